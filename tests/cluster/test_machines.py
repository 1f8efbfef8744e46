"""
Controllers and brokers on machines of their own: each with its own address, files and loopback.

Network namespaces take the place of machines. REST is on each machine's loopback, so what a command reaches there is that
machine's controller and no other.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollcall_ha.deploy.local.processes import Processes, our_environment, python_module, wait_until
from rollcall_ha.node.config import FLEET_FILE_NAME, load_fleet_file
from tests.support.fleet_story import counted
from tests.support.machines import Machines, MachinesError

pytestmark = pytest.mark.cluster

CONTROLLERS = ("c1", "c2", "c3")
BROKERS = ("broker-a-1", "broker-a-2")
RAFT, SESSIONS, REST, LISTEN, HA, HEALTH = 9300, 9100, 9200, 10911, 10912, 9400
DEADLINE_S = 40.0
COMMAND_SECONDS_MAX = 20.0
CLI = "rollcall_ha.api.cli.main"


class Site:
    """A fleet whose nodes share nothing but the network."""

    def __init__(self, machines: Machines, directory: Path) -> None:
        self.machines = machines
        self._directory = directory
        self._processes = {name: Processes(directory / name) for name in (*CONTROLLERS, *BROKERS)}

    def found(self) -> None:
        """``rollcall init`` in one place; each machine gets the fleet file, the authority, and what is its own."""
        arguments = ["--directory", str(self._directory / "founding"), "--name", "site"]
        for number, name in enumerate(CONTROLLERS):
            at = self.machines.address(name)
            # Three ports: init refuses two nodes with one address, and each is on the loopback of its own machine.
            arguments += ["--controller", f"{name}={at}:{RAFT},{at}:{SESSIONS},127.0.0.1:{REST + number}"]
        for name in BROKERS:
            at = self.machines.address(name)
            arguments += ["--broker", f"{name}={at}:{LISTEN},{at}:{HA},{at}:{HEALTH}"]
        subprocess.run(
            python_module(CLI, "init", *arguments), check=True, capture_output=True, timeout=30, env=our_environment()
        )
        founding = self._directory / "founding"
        text = (founding / FLEET_FILE_NAME).read_text()
        assert text.count("[fleet]\n") == 1
        text = text.replace("[fleet]\n", "[fleet]\nopen_broker_ports = true\n")
        for name in self._processes:
            own = self._directory / name
            (own / FLEET_FILE_NAME).write_text(text)
            (own / "tls").mkdir()
            for file in ("ca.pem", f"{name}.pem", f"{name}.key"):
                if (founding / "tls" / file).exists():
                    shutil.copy(founding / "tls" / file, own / "tls" / file)
            if (founding / "data" / name).exists():
                shutil.copytree(founding / "data" / name, own / "data" / name)
            load_fleet_file(own / FLEET_FILE_NAME)

    def start(self, name: str) -> None:
        module = "rollcall_ha.api.server" if name in CONTROLLERS else "rollcall_ha.broker.server"
        argv = python_module(module, "--config", str(self._directory / name / FLEET_FILE_NAME), "--name", name)
        self._processes[name].start(name, self.machines.inside(name, argv))

    def stop(self) -> None:
        for name in (*BROKERS, *CONTROLLERS):
            if self._processes[name].pid(name) is not None:
                self._processes[name].terminate(name, deadline_s=15)

    def ask(self, at: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command of the CLI on one machine, in its directory."""
        return subprocess.run(
            self.machines.inside(at, python_module(CLI, *arguments)),
            check=False,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            stdin=subprocess.DEVNULL,
            cwd=self._directory / at,
            env=our_environment(),
        )

    def roles(self, at: str) -> dict[str, str]:
        """Role of each controller, as ``rollcall controllers`` on one machine shows it."""
        done = self.ask(at, "controllers", "-o", "json")
        if done.returncode != 0:
            return {}
        rows: list[dict[str, Any]] = json.loads(done.stdout)
        return {row["status"]["name"]: row["status"]["role"] for row in rows if row["status"] is not None}

    def leader(self, at: str, *, other_than: str = "") -> str:
        """Waits until one leads, by the word of a machine's controller."""
        found: list[str] = []

        def is_there() -> bool:
            found[:] = [name for name, role in self.roles(at).items() if role == "leader" and name != other_than]
            return len(found) == 1

        wait_until(is_there, deadline_s=DEADLINE_S, what=f"a leader, as {at} sees it")
        return found[0]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    try:
        machines = Machines((*CONTROLLERS, *BROKERS))
        with machines:
            found = Site(machines, tmp_path)
            found.found()
            try:
                yield found
            finally:
                found.stop()
    except MachinesError as error:
        pytest.skip(str(error))


def test_a_fleet_is_operated_from_the_machine_of_any_controller(site: Site) -> None:
    """REST of the others cannot be reached: a follower on its own machine could read nothing and order nothing."""
    for name in CONTROLLERS:
        site.start(name)
    leader = site.leader("c1")
    follower, other = (name for name in CONTROLLERS if name != leader)
    for name in BROKERS:
        site.start(name)
    wait_until(
        lambda: site.ask(follower, "status", "--check").returncode == 0,
        deadline_s=DEADLINE_S,
        what=f"status --check on {follower}",
    )
    slave = 3 - _newest_reign(site, follower)["toMaster"]
    ordered = site.ask(follower, "elect", "site/broker-a", "--to", str(slave), "--yes", "--reason", "from a follower")
    assert ordered.returncode == 0, ordered.stdout + ordered.stderr
    newest = _newest_reign(site, other)
    assert (newest["kind"], newest["toMaster"]) == ("requested", slave)
    assert sorted(site.roles(follower).values()) == ["follower", "follower", "leader"]
    site.machines.isolate(leader)
    successor = site.leader(follower, other_than=leader)
    assert leader not in site.roles(other)
    assert site.ask(other if successor == follower else follower, "sets", "-o", "json").returncode == 0
    site.machines.plug(leader)
    wait_until(
        lambda: site.roles(other).get(leader) == "follower", deadline_s=DEADLINE_S, what=f"{leader} to follow again"
    )
    counted(leader=leader, ordered_at=follower, successor=successor, back=site.roles(leader))


def _newest_reign(site: Site, at: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(site.ask(at, "history", "site/broker-a", "-o", "json").stdout)["rows"][0]
    return found


def test_a_cut_has_a_direction(site: Site) -> None:
    """c1 reaches c2 and hears nothing back; everybody else reaches everybody."""
    site.machines.cut("c2", "c1")

    def answers(source: str, target: str) -> bool:
        ping = ["ping", "-c1", "-W1", site.machines.address(target)]
        return subprocess.run(site.machines.inside(source, ping), check=False, capture_output=True).returncode == 0

    if shutil.which("ping") is None:
        pytest.skip("no ping on the PATH: apt-get install iputils-ping")
    assert not answers("c1", "c2")
    assert answers("c1", "c3")
    assert answers("c2", "c3")
    site.machines.join("c2", "c1")
    assert answers("c1", "c2")
