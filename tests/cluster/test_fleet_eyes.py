"""
What load balancers, a terminal and Prometheus see of real processes.

Here: who is master, replica, in sync and leader by HTTP, ``status --watch``, metrics as Prometheus wants them. Not here: a real
Prometheus with alarms and dashboard (``test_fleet_alarms``).
"""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from rollcall_ha.cli.watching import ENTER, HOME, LEAVE
from rollcall_ha.controller.contract.ids import MasterEpoch
from rollcall_ha.controller.contract.values import Phase
from rollcall_ha.deploy.local.endpoints import Endpoint
from rollcall_ha.deploy.local.fleet import Fleet
from rollcall_ha.deploy.local.processes import wait_until
from tests.support.fleet_story import counted, heal, only_set, plain, rollcall, wait_row
from tests.support.otlp import collector
from tests.support.prometheus import program, why_not

pytestmark = pytest.mark.cluster

DEADLINE_S = 30.0
LAG = "/replica?lag=1048576"


@contextmanager
def ending(command: subprocess.Popen[bytes]) -> Iterator[None]:
    """A test that fails does not wait for ever for what it started."""
    try:
        yield
    except BaseException:
        command.kill()
        raise


def asked(fleet: Fleet, name: str, path: str) -> int:
    """As a load balancer does, without a certificate; 0 = no answer."""
    stranger = ssl.create_default_context()
    stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
    try:
        return plain(Endpoint(address=fleet.health(name).address, context=stranger), path)[0]
    except OSError:
        return 0


def saying_yes(fleet: Fleet, path: str) -> set[str]:
    """The nodes that answer 200."""
    nodes = fleet.controllers if path == "/leader" else fleet.brokers
    return {name for name in nodes if asked(fleet, name, path) == 200}


def wait_yes(fleet: Fleet, path: str, expected: set[str]) -> None:
    wait_until(lambda: saying_yes(fleet, path) == expected, deadline_s=DEADLINE_S, what=f"{path} of {sorted(expected)}")


def test_load_balancers_find_the_master_the_fresh_slaves_and_the_leader(fleet: Fleet) -> None:
    """Before and after the master is killed, and while no controller is there."""
    heal(fleet)
    old = fleet.master(only_set(fleet))
    slaves = set(fleet.brokers) - {old}
    for path, expected in (("/master", {old}), (LAG, slaves), ("/in-sync", {old, *slaves})):
        wait_yes(fleet, path, expected)
    assert saying_yes(fleet, "/leader") == {fleet.leader()}

    fleet.kill(old)
    wait_until(lambda: len(saying_yes(fleet, "/master")) == 1, deadline_s=DEADLINE_S, what="another master")
    new = saying_yes(fleet, "/master")
    assert new < slaves
    fleet.restart(old)
    wait_yes(fleet, LAG, set(fleet.brokers) - new)

    for name in fleet.controllers:
        fleet.kill(name)
    # Nobody could tell a slave that it was removed; masters serve on (promise 3).
    wait_yes(fleet, "/in-sync", new)
    assert saying_yes(fleet, "/master") == new
    assert saying_yes(fleet, LAG) == set(fleet.brokers) - new
    assert saying_yes(fleet, "/leader") == set()
    heal(fleet)
    counted(killed=old, master=sorted(new))


def test_a_master_that_hung_is_no_master_when_it_wakes(fleet: Fleet) -> None:
    """The next one has served meanwhile."""
    heal(fleet)
    old = fleet.master(only_set(fleet))
    wait_yes(fleet, "/master", {old})
    fleet.stop(old)
    others = set(fleet.brokers) - {old}
    wait_until(
        lambda: any(asked(fleet, name, "/master") == 200 for name in others),
        deadline_s=DEADLINE_S,
        what="another master",
    )
    fleet.cont(old)
    wait_until(lambda: asked(fleet, old, "/replica") == 200, deadline_s=DEADLINE_S, what=f"{old} to follow")
    assert asked(fleet, old, "/master") == 503


def test_a_watch_goes_on_when_a_controller_dies_and_leaves_the_terminal_clean(fleet: Fleet) -> None:
    """On a terminal, drawn in place; Ctrl-C ends it with exit code 0 and the first screen back."""
    heal(fleet)
    ours, theirs = pty.openpty()
    shown = bytearray()
    with subprocess.Popen(
        fleet.command("status", "--watch=0.5s"),
        stdin=theirs, stdout=theirs, stderr=subprocess.STDOUT, env=fleet.commands_environment() | {"TERM": "xterm"},
        # Tests that run in the background of a shell ignore Ctrl-C, and so would all that they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    ) as command, ending(command):  # fmt: skip
        os.close(theirs)

        def page() -> str:
            # Once the command is gone, a pseudo-terminal says EIO instead of its end.
            with suppress(OSError):
                while select.select([ours], [], [], 0)[0]:
                    shown.extend(os.read(ours, 65_536))
            return shown.decode(errors="replace").rpartition(HOME)[2]

        wait_until(lambda: "WRITTEN" in page(), deadline_s=DEADLINE_S, what="a second page, with rates")
        dead = fleet.leader()
        fleet.kill(dead)
        wait_until(lambda: "unreachable" in page(), deadline_s=DEADLINE_S, what=f"{dead} to be shown as unreachable")
        command.send_signal(signal.SIGINT)
        wait_until(lambda: (page(), command.poll())[1] is not None, deadline_s=DEADLINE_S, what="the watch to end")
        page()
    os.close(ours)
    text = shown.decode(errors="replace")
    assert command.returncode == 0
    assert text.startswith(ENTER)
    assert text.endswith(LEAVE)
    counted(pages=text.count(HOME))


@pytest.mark.skipif(bool(why_not("promtool")), reason=why_not("promtool"))
def test_metrics_of_every_process_are_clean_in_promtool(fleet: Fleet) -> None:
    """``promtool check metrics`` says nothing, and each process tells of itself, its disk, its ports and its settings."""
    heal(fleet)
    sizes = {}
    for name in (*fleet.controllers, *fleet.brokers):
        wait_until(
            lambda name=name: "rollcall_disk_free_bytes " in plain(fleet.health(name), "/metrics")[1],  # type: ignore[misc]
            deadline_s=DEADLINE_S,
            what=f"{name} to have measured its disk",
        )
        status, text = plain(fleet.health(name), "/metrics")
        assert status == 200
        judged = subprocess.run(
            [program("promtool"), "check", "metrics"],
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert (judged.returncode, judged.stdout + judged.stderr) == (0, ""), name
        families = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
        common = {"build_info", "clock_timestamp_seconds", "disk_free_bytes", "state_bytes", "links_open"}
        common |= {"loop_lag_max_seconds", "certificate_expires_timestamp_seconds", "port_answers_total"}
        is_controller = name in fleet.controllers
        own = {"rest_requests_total", "rest_request_seconds", "settings_version", "sets_by_problem"}
        own = own if is_controller else {"broker_settings_version", "broker_release_seconds"}
        assert {f"rollcall_{one}" for one in common | own} <= families
        sizes[name] = len([line for line in text.splitlines() if not line.startswith("#")])
    counted(series=sizes)


def test_a_real_failover_is_a_trace_of_what_history_says(fleet: Fleet) -> None:
    """Made by the command, taken by a collector of the protocol's own messages."""
    heal(fleet)
    key = only_set(fleet)
    epoch = fleet.client().set(key).set.view.master_epoch
    fleet.kill(fleet.master(key))
    row = wait_row(fleet, MasterEpoch(epoch + 1), lambda found: set(found.missing) <= {Phase.FIRST_ACK})
    with collector() as (url, got):
        told = rollcall(fleet, "trace", key.name, str(row.master_epoch), "--collector", url)
    assert (told.returncode, len(got)) == (0, 1), told.stderr
    spans = {
        span.name: (span.end_time_unix_nano - span.start_time_unix_nano) // 1000
        for process in got[0].resource_spans
        for scope in process.scope_spans
        for span in scope.spans
    }
    stamped = {span.phase.value: span.duration_us for span in row.phases if span.duration_us is not None}
    assert spans == stamped | {f"failover {key.name}": row.total_us}
    counted(epoch=row.master_epoch, spans=len(spans))
