"""
Controllers and brokers on machines of their own: each with its own address, files and loopback.

Network namespaces take the place of machines. REST is on each machine's loopback, so what a command reaches there is that
machine's controller and no other.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rollcall_ha.deploy.local.machines import Machines, MachinesError, sweep
from rollcall_ha.deploy.local.partitions import NO_CUTS, one_way, two_way
from rollcall_ha.deploy.local.processes import Processes, our_environment, python_module, wait_until
from rollcall_ha.deploy.local.wire import Quality
from rollcall_ha.node.config import FLEET_FILE_NAME, load_fleet_file
from tests.support.fleet_story import counted

pytestmark = [pytest.mark.cluster, pytest.mark.prove]

CONTROLLERS = ("c1", "c2", "c3")
BROKERS = ("broker-a-1", "broker-a-2")
RAFT, SESSIONS, REST, LISTEN, HA, HEALTH = 9300, 9100, 9200, 10911, 10912, 9400
DEADLINE_S = 40.0
COMMAND_SECONDS_MAX = 20.0
CLI = "rollcall_ha.cli.main"


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
        for name in self._processes:
            own = self._directory / name
            (own / FLEET_FILE_NAME).write_text(text)
            (own / "tls").mkdir()
            # The operator has an identity wherever he works.
            for file in ("ca.pem", f"{name}.pem", f"{name}.key", "admin.pem", "admin.key"):
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
        rows: list[dict[str, Any]] = json.loads(done.stdout)["items"]
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
    # Not ``status --check``: a fleet is in order, too, while no broker has registered, and that set has no history.
    wait_until(
        lambda: site.ask(follower, "wait", "site/broker-a", "--until", "in-sync", "--timeout", "5").returncode == 0,
        deadline_s=DEADLINE_S,
        what=f"site/broker-a to be in sync, as {follower} sees it",
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


# --- the machines themselves -------------------------------------------------------------------------------------------

ECHO = """
import socket
server = socket.create_server(("0.0.0.0", 5000))
print("up", flush=True)
while True:
    link = server.accept()[0]
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := link.recv(65536):
        link.sendall(data)
    link.close()
"""
ECHOES = 20
ECHO_SECONDS_MAX = 10.0


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Machines]:
    """Three machines; on ``c2`` a server sends back what it is sent."""
    try:
        machines = Machines(CONTROLLERS, disks=tmp_path / "disks")
        with machines:
            server = subprocess.Popen(machines.inside("c2", [sys.executable, "-c", ECHO]), stdout=subprocess.PIPE)
            assert server.stdout is not None
            assert server.stdout.readline() == b"up\n"
            try:
                yield machines
            finally:
                server.kill()
                server.communicate()
    except MachinesError as error:
        pytest.skip(str(error))


def connect(machines: Machines, source: str, *, seconds_max: float = ECHO_SECONDS_MAX) -> socket.socket:
    with machines.on(source):
        link = socket.create_connection((machines.address("c2"), 5000), timeout=seconds_max)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link


def round_trips_ms(machines: Machines, source: str, count: int = ECHOES) -> list[float]:
    with connect(machines, source) as link:
        found = []
        for _ in range(count):
            began = time.monotonic()
            link.sendall(b"x")
            assert link.recv(1) == b"x"
            found.append((time.monotonic() - began) * 1000)
    return found


def test_a_cut_has_a_direction_and_tells_nobody(three: Machines) -> None:
    """c1 reaches c2 and hears nothing back; everybody else reaches everybody. A connection waits, as at a cut cable."""
    three.cut("c2", "c1")
    with pytest.raises(TimeoutError):
        connect(three, "c1", seconds_max=0.5)
    assert len(round_trips_ms(three, "c3")) == ECHOES
    three.join("c2", "c1")
    assert len(round_trips_ms(three, "c1")) == ECHOES
    three.impose(two_way(["c1", "c3"], ["c2"]))
    for source in ("c1", "c3"):
        with pytest.raises(TimeoutError):
            connect(three, source, seconds_max=0.5)
    three.impose(one_way(["c1"], ["c2"]))
    assert len(round_trips_ms(three, "c3")) == ECHOES
    three.heal()
    assert len(round_trips_ms(three, "c1")) == ECHOES
    assert three.cuts == NO_CUTS


def test_a_bad_wire_is_bad_for_one_pair_only(three: Machines) -> None:
    three.impair("c1", "c2", Quality(delay_ms=30))
    assert min(round_trips_ms(three, "c1")) >= 30
    assert min(round_trips_ms(three, "c3")) < 30
    three.impair("c1", "c2", Quality(loss_share=0.2), seed=7)
    trips = round_trips_ms(three, "c1")
    lossy = three.frames("c1", "c2")
    assert lossy["lost"] > 0
    three.impair("c1", "c2", Quality(delay_ms=5, overtake_share=0.3), seed=7)
    sent = secrets.token_bytes(1_000_000)
    with connect(three, "c1") as link:
        threading.Thread(target=link.sendall, args=(sent,), daemon=True).start()
        received = bytearray()
        while len(received) < len(sent):
            received += link.recv(65536)
    shuffled = three.frames("c1", "c2")
    assert received == sent, "TCP has put them in order again"
    assert shuffled["overtook"] > 0
    three.impair("c1", "c2", Quality(bandwidth_bytes_per_s=1_000_000))
    with connect(three, "c1") as link:
        began = time.monotonic()
        link.sendall(bytes(300_000))
        link.shutdown(socket.SHUT_WR)
        while link.recv(65536):
            pass
        took_s = time.monotonic() - began
    assert took_s > 0.3
    three.heal()
    assert statistics.median(round_trips_ms(three, "c1")) < 5
    counted(loss=lossy, loss_worst_ms=max(trips), overtaking=shuffled, bandwidth_s=took_s)


def is_reached(machines: Machines) -> bool:
    """Whether ``c2`` takes a connection within less than its plug is out."""
    try:
        connect(machines, "c3", seconds_max=0.15).close()
    except TimeoutError:
        return False
    return True


def test_a_link_outlives_a_flapping_plug(three: Machines) -> None:
    with connect(three, "c1", seconds_max=30) as link, three.flapping("c2", down_s=0.2, up_s=0.3):
        for _ in range(3):
            wait_until(lambda: not is_reached(three), deadline_s=10, what="the plug to be out")
            link.sendall(b"x")
            assert link.recv(1) == b"x"
    assert len(round_trips_ms(three, "c3")) == ECHOES


def test_a_machine_sees_its_own_disk_and_no_other(three: Machines) -> None:
    disks = str(three.disks)
    script = f"pwd && echo mine > here && find {disks} -mindepth 1"
    done = [
        subprocess.run(three.inside(name, ["sh", "-c", script]), check=True, capture_output=True, text=True).stdout
        for name in CONTROLLERS
    ]
    assert done == [f"{disks}\n{disks}/here\n"] * 3
    assert [(three.disk(name) / "here").read_text() for name in CONTROLLERS] == ["mine\n"] * 3


LEFT_BEHIND = """
import subprocess, sys
from rollcall_ha.deploy.local.machines import Machines
from rollcall_ha.deploy.local.wire import Quality
machines = Machines(("a", "b"))
machines.__enter__()
machines.impair("a", "b", Quality(delay_ms=1))
child = subprocess.Popen(machines.inside("a", ["sleep", "600"]), stdout=subprocess.DEVNULL)
print(child.pid, machines._wires.pid, flush=True)
sys.stdin.read()
"""


def test_what_a_killed_run_left_behind_is_removed_by_the_next(three: Machines) -> None:
    """Its processes too: a broker without a launcher would hold its namespace until the computer stops."""
    run = subprocess.Popen(
        [sys.executable, "-c", LEFT_BEHIND], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=our_environment()
    )
    assert run.stdout is not None
    child, wires = map(int, run.stdout.readline().split())
    names = {f"rc{run.pid}-1-{part}" for part in ("1", "2", "hub")}
    assert names <= set(os.listdir("/var/run/netns"))
    assert not set(sweep()) & names, "its run is still there"
    run.kill()
    run.communicate()
    wait_until(lambda: not psutil.pid_exists(wires), deadline_s=5, what="the wires to end with their launcher")
    assert set(sweep()) >= names
    assert not names & set(os.listdir("/var/run/netns"))
    wait_until(lambda: not psutil.pid_exists(child), deadline_s=5, what="the process on a removed machine to end")
    assert len(round_trips_ms(three, "c1")) == ECHOES
