"""``rollcall drill`` on real processes: by a switchover and back, by a stop of the master, and refused."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest

from rollcall_ha.deploy.local.fleet import Fleet
from tests.support.fleet_story import counted, heal, only_set, rollcall

pytestmark = pytest.mark.cluster

LIMIT_S = 180.0
SLOWLY = ("--interval-ms", "100", "--within", "90s", "-o", "json")
"""A machine that is busy makes each send late: the figures are those of the record test, here the steps count."""


@contextmanager
def drilling(fleet: Fleet, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = fleet.command("drill", only_set(fleet).name, *SLOWLY, *arguments)
    pipe, environment = subprocess.PIPE, fleet.commands_environment()
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, stdin=pipe, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.terminate()


def told(process: subprocess.Popen[str], code: int) -> dict[str, Any]:
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == code, (out, err)
    found: dict[str, Any] = json.loads(out)
    counted(drill={name: value for name, value in found.items() if name != "judgement"})
    return found


def test_a_drill_by_switchover_goes_there_and_back_and_tells_what_clients_felt(fleet: Fleet) -> None:
    before = heal(fleet)
    refused = rollcall(fleet, "drill", only_set(fleet).name, "--at-most-ms", "100")
    assert (refused.returncode, "grain of 120 ms" in refused.stderr) == (2, True), refused.stderr
    dry = rollcall(fleet, "drill", only_set(fleet).name, "--dry-run")
    assert (dry.returncode, "by a switchover may begin" in dry.stdout) == (0, True), dry
    assert (
        fleet.wait_set(only_set(fleet), lambda _: True, what="an answer").view.master_epoch == before.view.master_epoch
    )
    with drilling(fleet, "--back", "--at-most-ms", "60000") as process:
        found = told(process, 0)
    after = heal(fleet)
    assert after.view.master == before.view.master
    assert [row["kind"] for row in found["reigns"]] == ["switchover", "switchover"]
    assert [row["masterEpoch"] for row in found["reigns"]][-1] == after.view.master_epoch
    assert (found["failures"], found["judgement"]["budget"], found["budgetAfter"]) == ([], 1, 1)
    assert found["felt"]["acks"] > 0
    assert found["wholeAfterMs"] > 0


def test_a_hard_drill_runs_the_stop_command_and_waits_for_the_supervisor(fleet: Fleet) -> None:
    before = heal(fleet)
    master = fleet.master(only_set(fleet))
    spent = rollcall(fleet, "drill", only_set(fleet).name, "--hard", "--stop-command", "true")
    assert (spent.returncode, "its failure budget is 1, and 0 while" in spent.stderr) == (1, True), spent
    stop = f"kill -KILL {fleet.pid(master)}"
    with drilling(fleet, "--hard", "--spend-last", "--stop-command", stop) as process:
        fleet.wait_set(
            only_set(fleet),
            lambda one: one.view.master_epoch > before.view.master_epoch,
            what="a failover",
            deadline_s=90,
        )
        fleet.restart(master)
        found = told(process, 0)
    assert [row["kind"] for row in found["reigns"]] == ["failover"]
    assert (found["felt"]["acks"] > 0, found["judgement"]["isHard"]) == (True, True)
    heal(fleet)
    # A stop command that fails is told, and nothing else is waited for.
    with drilling(fleet, "--hard", "--spend-last", "--stop-command", "false") as process:
        assert told(process, 1)["failures"] == ["the stop command ended with 1"]


def test_a_drill_that_is_ended_ends_its_probe(fleet: Fleet) -> None:
    """It had a group of its own, and sent on for five minutes."""
    heal(fleet)
    with drilling(fleet, "--hard", "--spend-last", "--stop-command", "sleep 600") as process:
        assert process.stderr is not None
        assert "the stop command is run" in process.stderr.readline()
        (probe,) = [one for one in psutil.Process(process.pid).children() if "rollcall_ha.probe" in one.cmdline()]
        process.terminate()
        assert process.wait(LIMIT_S) == 128 + signal.SIGTERM
        assert not psutil.pid_exists(probe.pid)


def test_no_drill_of_a_set_with_a_replica_out(fleet: Fleet) -> None:
    """It has two of three, and needs two: without the master, writes would stop."""
    heal(fleet)
    key = only_set(fleet)
    slave = next(name for name in fleet.brokers if name != fleet.master(key))
    fleet.kill(slave)
    fleet.wait_set(key, lambda one: len(one.view.sync_state_set) == 2, what="that it is out", deadline_s=30)
    done = rollcall(fleet, "drill", key.name, "-o", "json")
    assert done.returncode == 1, done
    assert json.loads(done.stdout)["against"] == [
        "2 replicas are in sync and alive; at least 3 are needed, for it takes one away"
    ]
    heal(fleet)
