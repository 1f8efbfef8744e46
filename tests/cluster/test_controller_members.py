"""
The controllers go from one to three, to four or five and back to three, as real processes that are killed at every step.

Each controller has a fleet file of its own, as on its own machine: the first knows itself alone.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from rollcall_ha.client.client import Client
from rollcall_ha.client.errors import ClientError, RefusedError
from rollcall_ha.client.identity import Identity
from rollcall_ha.controller.contract.commands import ChangeControllers
from rollcall_ha.controller.contract.events import ControllersChangeOrdered
from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.contract.values import MembershipVerb
from rollcall_ha.deploy.local.processes import free_ports, our_environment, python_module, wait_until

pytestmark = pytest.mark.cluster

DEADLINE_S = 60.0
NAMES = ("c1", "c2", "c3", "c4", "c5", "c6")


class Machines:
    """Processes of controllers, and the operator's commands."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        ports = free_ports(18)
        self.addresses = {
            name: [f"127.0.0.1:{port}" for port in ports[at * 3 : at * 3 + 3]] for at, name in enumerate(NAMES)
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        founded = ["--controller", f"c1={','.join(self.addresses['c1'])}"]
        self.rollcall("init", "--directory", str(directory), "--name", "grown", "--timing", "fast", *founded)
        self.head = (directory / "rollcall.toml").read_text()
        for name in NAMES[1:]:
            # The bundle of a new machine: fleet file, authority, own certificate, and no mark of founding.
            self.rollcall("certs", "issue", name, "--config", str(self.drafted(name)), "--into", f"machine-{name}")

    def rollcall(self, *words: str, code: int | None = 0) -> str:
        done = subprocess.run(
            python_module("rollcall_ha.cli.main", *words),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S * 2,
            check=False,
            env=our_environment(),
            cwd=self.directory,
        )
        assert code is None or done.returncode == code, done.stderr + done.stdout
        return done.stdout

    def drafted(self, name: str) -> Path:
        """What an operator writes: the founding file, and the own section. The others are learnt from the log."""
        path = self.directory / f"{name}.toml"
        raft, broker, rest = self.addresses[name]
        own = f'[controllers.{name}]\nraft = "{raft}"\nbroker = "{broker}"\nrest = "{rest}"\ndata = "data/{name}"\n'
        path.write_text(f"{self.head}\n{own}")
        return path

    def start(self, name: str) -> None:
        file = self.directory / ("" if name == "c1" else f"machine-{name}") / "rollcall.toml"
        with (self.directory / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                python_module("rollcall_ha.api.server", "--config", str(file), "--name", name),
                stdout=log,
                stderr=log,
                env=our_environment(),
                cwd=self.directory,
            )

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def identity(self) -> Identity:
        return Identity(authority=self.directory / "tls/ca.pem", certificate=self.directory / "tls/admin.pem")

    def client(self) -> Client:
        return Client([self.addresses[name][2] for name in self.processes], identity=self.identity(), limit_ms=10_000)

    def leader(self) -> str:
        found: list[str] = []

        def leads() -> bool:
            try:
                with self.client() as asking:
                    found[:] = [asking.status().controller.name]
            except ClientError:
                return False
            return True

        wait_until(leads, deadline_s=DEADLINE_S, what="a controller to lead")
        return found[0]

    def voters(self) -> tuple[ControllerName, ...]:
        with self.client() as asking:
            return asking.members().voters

    def close(self) -> None:
        for name in list(self.processes):
            self.kill(name)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    found = Machines(tmp_path)
    try:
        yield found
    finally:
        found.close()


def _options(machines: Machines, name: str) -> list[str]:
    raft, broker, rest = machines.addresses[name]
    return ["--raft", raft, "--broker", broker, "--rest", rest, "--timeout", "50"]


def _votes(machines: Machines, name: str, *, expected: bool) -> bool:
    try:
        return (name in machines.voters()) is expected
    except ClientError:
        return False


def _repeat(machines: Machines, *words: str, is_done: Callable[[], bool]) -> None:
    """An operator's command while a controller is killed: repeated until it has come true."""
    addresses = ",".join(machines.addresses[name][2] for name in machines.processes)
    credentials = ["--authority", "tls/ca.pem", "--identity", "tls/admin.pem"]
    until = time.monotonic() + DEADLINE_S * 2
    while not is_done():
        assert time.monotonic() < until, f"{words} has not come true"
        machines.rollcall("--controllers", addresses, *credentials, *words, code=None)


@pytest.mark.parametrize("grown", [4, pytest.param(5, marks=pytest.mark.prove)])
def test_controllers_grow_from_one_and_shrink_to_three_while_they_are_killed(machines: Machines, grown: int) -> None:
    """With five nothing is asked that four are not asked, but twice: the last three have lost two founders, not one."""
    left = NAMES[grown - 3 : grown]
    machines.start("c1")
    machines.leader()
    for name in NAMES[1:grown]:
        machines.start(name)
        adding = subprocess.Popen(
            python_module(
                "rollcall_ha.cli.main", "--controllers", machines.addresses["c1"][2], "--authority", "tls/ca.pem",
                "--identity", "tls/admin.pem", "controllers", "add", name, *_options(machines, name),
            ),
            env=our_environment(), cwd=machines.directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        # In the middle of the step, and again: the one that comes, and the one that leads.
        time_out = machines.leader()
        machines.kill(time_out)
        machines.start(time_out)
        machines.kill(name)
        machines.start(name)
        adding.wait(timeout=DEADLINE_S * 2)
        _repeat(
            machines, "controllers", "add", name, *_options(machines, name),
            is_done=partial(_votes, machines, name, expected=True),
        )  # fmt: skip
    assert machines.voters() == NAMES[:grown]
    for name in NAMES[: grown - 3]:
        victim = next(one for one in left if one != machines.leader())
        machines.kill(victim)
        _repeat(machines, "controllers", "remove", name, is_done=partial(_votes, machines, name, expected=False))
        machines.start(victim)
        machines.kill(name)
    assert machines.voters() == left
    # The founder's file names c1 alone, and none of these three: they know each other by the log.
    for name in left:
        machines.kill(name)
    for name in left:
        machines.start(name)
    leader = machines.leader()
    assert machines.voters() == left
    with machines.client() as asking:
        told = asking.members_by(machines.addresses[leader][2])
        assert {one.name for one in told} == set(left)
        with pytest.raises(RefusedError) as refused:
            asking.order(ChangeControllers(verb=MembershipVerb.REMOVE, name=ControllerName(leader)))
        assert "does not remove itself" in refused.value.problem.detail
        events = asking.events(limit=500).events
    verbs = [one.event.verb.value for one in events if isinstance(one.event, ControllersChangeOrdered)]
    print("COUNTED", json.dumps({verb: verbs.count(verb) for verb in ("add", "promote", "remove")}))
    assert min(verbs.count("add"), verbs.count("promote")) >= grown - 1
    assert verbs.count("remove") >= grown - 3
