"""
The ends that a master can come to, each made from outside: signals, a packet filter, a full disk, a wrong clock, an
operator's command.

Here: one function per kind; it returns when the fault is over and the fleet serves again. Not here: what is expected of
the record (``__main__``).
Rule: the fleet is told nothing; operators' commands are those of the CLI.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from rollcall_ha.controller.contract.ids import SetKey
from rollcall_ha.deploy.local.faults import kill_and_see
from rollcall_ha.deploy.local.fleet import Fleet
from rollcall_ha.deploy.local.processes import free_ports, python_module, wait_until
from rollcall_ha.node.config import FLEET_FILE_NAME, split_address
from tests.support.knobs import built, fill, preloaded, set_knob

HEAL_S = 60.0
CLOCK_JUMP_S = 3_600


class SkipError(Exception):
    """This machine cannot do that fault; the message says what is missing."""


@dataclass(slots=True, kw_only=True)
class Stage:
    """The fleet that faults happen to."""

    fleet: Fleet
    key: SetKey
    kept_s: float = 4.0
    """How long a fault that ends by itself is kept up."""
    coarse: int = 1
    """The probe beside looks so many times less finely."""
    gone_ns: int | None = None
    """When the row's killed master was seen to have ended, CLOCK_MONOTONIC."""

    def addresses(self) -> list[str]:
        """host:port of the brokers."""
        return [self.fleet.file.broker(name).listen for name in self.fleet.brokers]

    def proofs(self) -> list[str]:
        """Files of the authority, of a client's certificate and of its key; three empty words: links are plain."""
        return [str(self.fleet.directory / "tls" / name) for name in ("ca.pem", "client.pem", "client.key")]

    def seeds(self) -> dict[str, str]:
        """By which options a probe finds the set."""
        authority, certificate, _ = self.proofs()
        return {"brokers": ",".join(self.addresses()), "authority": authority, "identity": certificate}

    def master(self) -> str:
        return self.fleet.master(self.key)

    def kill(self, master: str) -> None:
        """SIGKILL, and when it was seen to work: a process that maps a log takes milliseconds to end."""
        self.gone_ns = kill_and_see(self.fleet, master)

    def slaves(self) -> list[str]:
        master = self.master()
        return [name for name in self.fleet.brokers if name != master]

    def epoch(self) -> int:
        return self.fleet.wait_set(self.key, lambda _: True, what="to be known").view.master_epoch

    def wait_next(self, epoch: int) -> None:
        """A later reign serves."""
        self.fleet.wait_set(
            self.key,
            lambda status: status.view.master_epoch > epoch and status.view.has_entered,
            what="to have a next master",
            deadline_s=HEAL_S,
        )

    def heal(self) -> None:
        """Everything runs, and every replica is in the SyncStateSet."""
        for name in (*self.fleet.controllers, *self.fleet.brokers):
            if self.fleet.pid(name) is None:
                self.fleet.restart(name)
            else:
                self.fleet.cont(name)
        self.fleet.leader(deadline_s=HEAL_S)
        self.fleet.wait_redundant(self.key, deadline_s=HEAL_S)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The CLI, as a program."""
        return subprocess.run(
            python_module("rollcall_ha.cli.main", *arguments),
            capture_output=True, text=True, check=False, timeout=HEAL_S, env=self.fleet.commands_environment(),
        )  # fmt: skip

    def pause(self) -> None:
        """Keep the fault up for a while: a length of time is what is measured here."""
        time.sleep(self.kept_s)


def kill_master(stage: Stage) -> None:
    epoch = stage.epoch()
    stage.kill(stage.master())
    stage.wait_next(epoch)


def kill_and_restart_master(stage: Stage) -> None:
    """The process is there again before any timeout."""
    epoch, master = stage.epoch(), stage.master()
    stage.kill(master)
    stage.fleet.restart(master)
    stage.wait_next(epoch)


def hang_master(stage: Stage) -> None:
    """SIGSTOP, and SIGCONT when another one serves."""
    epoch, master = stage.epoch(), stage.master()
    stage.fleet.stop(master)
    stage.wait_next(epoch)
    stage.fleet.cont(master)


def kill_leader_and_master(stage: Stage) -> None:
    epoch, master, leader = stage.epoch(), stage.master(), stage.fleet.leader()
    stage.fleet.processes.signal(leader, signal.SIGKILL)
    stage.kill(master)
    stage.wait_next(epoch)


def kill_leader_behind_election(stage: Stage) -> None:
    """The leader dies when its log tells of the election, before it can tell how long that took."""
    epoch, leader, pid = stage.epoch(), stage.fleet.leader(), stage.fleet.pid(stage.fleet.leader())
    log = stage.fleet.directory / "log" / f"{leader}.log"
    at = log.stat().st_size
    stage.fleet.processes.signal(stage.master(), signal.SIGKILL)
    wait_until(lambda: b"master_elected" in log.read_bytes()[at:], deadline_s=HEAL_S, what="the election")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    stage.wait_next(epoch)


def put_controllers_back(stage: Stage) -> None:
    """All controllers get directories of before the last reign, and the master dies: brokers know more than they do."""
    copies = stage.fleet.directory / "copies"
    for name in stage.fleet.controllers:
        shutil.copytree(stage.fleet.data(name), copies / name, dirs_exist_ok=True)
    elect_another(stage)
    stage.fleet.wait_redundant(stage.key, deadline_s=HEAL_S)
    epoch, master = stage.epoch(), stage.master()
    for name in stage.fleet.controllers:
        stage.fleet.kill(name)
        _put_back(stage.fleet.data(name), copies / name)
        stage.fleet.restart(name)
    stage.fleet.leader(deadline_s=HEAL_S)
    stage.kill(master)
    stage.fleet.restart(master)
    stage.wait_next(epoch)


def restore_controllers(stage: Stage) -> None:
    """The controllers come back from a backup that does not know the master, and that one dies before it is asked."""
    backup = stage.fleet.directory / "restored.backup"
    backup.unlink(missing_ok=True)
    _do(stage, "backup", str(backup))
    elect_another(stage)
    stage.fleet.wait_redundant(stage.key, deadline_s=HEAL_S)
    epoch, master = stage.epoch(), stage.master()
    for name in stage.fleet.controllers:
        stage.fleet.kill(name)
        _put_back(stage.fleet.data(name), None)
    _do(stage, "restore", str(backup), "--config", str(stage.fleet.directory / FLEET_FILE_NAME))
    for name in stage.fleet.controllers:
        stage.fleet.restart(name)
    stage.kill(master)
    stage.fleet.leader(deadline_s=HEAL_S)
    stage.pause()
    stage.fleet.restart(master)
    stage.wait_next(epoch)


def put_slave_back_and_kill_master(stage: Stage) -> None:
    """A member is put back from a copy that was taken while it ran, and starts before the master's next process."""
    slave, other = stage.slaves()
    copy = stage.fleet.directory / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    stage.fleet.kill(other)
    stage.fleet.wait_set(stage.key, lambda s: len(s.view.sync_state_set) == 2, what="to shrink", deadline_s=HEAL_S)
    shutil.copytree(stage.fleet.data(slave), copy)
    stage.pause()
    epoch, master = stage.epoch(), stage.master()
    for name in (slave, master):
        stage.fleet.processes.signal(name, signal.SIGKILL)
        stage.fleet.processes.wait_gone(name, deadline_s=5)
    _put_back(stage.fleet.data(slave), copy)
    stage.fleet.restart(slave)
    stage.pause()
    stage.fleet.restart(master)
    stage.wait_next(epoch)


def clone_master(stage: Stage) -> None:
    """A second process of the master's identity, in a copy of its directory, on other ports of the same machine."""
    epoch, master = stage.epoch(), stage.master()
    section = stage.fleet.file.broker(master)
    shutil.rmtree(stage.fleet.directory / "clone", ignore_errors=True)
    shutil.copytree(stage.fleet.data(master), stage.fleet.directory / "clone")
    text = (stage.fleet.directory / FLEET_FILE_NAME).read_text().replace(f'"{section.data}"', '"clone"')
    for address, port in zip((section.listen, section.ha, section.health), free_ports(3), strict=True):
        text = text.replace(f'"{address}"', f'"127.0.0.1:{port}"')
    file = stage.fleet.directory / "clone.toml"
    file.write_text(text)
    argv = [*stage.fleet.program(master, "rollcall_ha.broker.server"), "--config", str(file), "--name", master]
    stage.fleet.processes.start("clone", argv)
    try:
        stage.wait_next(epoch)
        # Killed at once, the clone would stop writes again before a probe had an acknowledgement: one gap of two faults.
        stage.pause()
    finally:
        stage.fleet.processes.kill("clone")
        # The clone's was the last process of that name: the original's directory is the older copy now.
        stage.fleet.kill(master)
    stage.fleet.restart(master)


def _put_back(directory: Path, copy: Path | None) -> None:
    """In the place of what is there, perhaps on a disk of its own; None: nothing."""
    for old in directory.iterdir():
        if old.is_dir():
            shutil.rmtree(old)
        else:
            old.unlink()
    if copy is not None:
        shutil.copytree(copy, directory, dirs_exist_ok=True)
        shutil.rmtree(copy)


def _do(stage: Stage, *arguments: str) -> None:
    done = stage.command(*arguments)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()}")


def kill_controllers_and_master(stage: Stage) -> None:
    """All controllers and the master die; the controllers come back after a while."""
    epoch, master = stage.epoch(), stage.master()
    for name in (*stage.fleet.controllers, master):
        stage.fleet.processes.signal(name, signal.SIGKILL)
    stage.pause()
    for name in stage.fleet.controllers:
        stage.fleet.processes.wait_gone(name, deadline_s=5)
        stage.fleet.restart(name)
    stage.wait_next(epoch)


def kill_whole_fleet(stage: Stage) -> None:
    """Everything dies, and is started after a while."""
    epoch = stage.epoch()
    names = (*stage.fleet.controllers, *stage.fleet.brokers)
    for name in names:
        stage.fleet.processes.signal(name, signal.SIGKILL)
    stage.pause()
    for name in names:
        stage.fleet.processes.wait_gone(name, deadline_s=5)
        stage.fleet.restart(name)
    stage.wait_next(epoch)


def hang_whole_fleet(stage: Stage) -> None:
    """Everything stands still, as on a suspended host, and goes on; which master serves then is the fleet's affair."""
    names = (*stage.fleet.controllers, *stage.fleet.brokers)
    for name in names:
        stage.fleet.stop(name)
    stage.pause()
    for name in names:
        stage.fleet.cont(name)
    stage.fleet.leader(deadline_s=HEAL_S)
    stage.fleet.wait_redundant(stage.key, deadline_s=HEAL_S)


def hang_slave(stage: Stage) -> None:
    """A member of the SyncStateSet does not ack: nothing is acknowledged until it has been removed."""
    slave = stage.slaves()[0]
    stage.fleet.stop(slave)
    stage.fleet.wait_set(
        stage.key, lambda status: len(status.view.sync_state_set) == 2, what="to shrink", deadline_s=HEAL_S
    )
    stage.fleet.cont(slave)


def cut_master_from_slaves(stage: Stage) -> None:
    """No packet of an HA link passes for a while; ``min_in_sync`` is 2, so nothing may be acknowledged."""
    port = port_of(stage.fleet.file.broker(stage.master()).ha)
    with cut(*_both_ways(port)):
        stage.pause()
        stage.pause()
    stage.fleet.wait_redundant(stage.key, deadline_s=HEAL_S)


def cut_controllers_and_kill_master(stage: Stage) -> None:
    """No controller hears another one, so none leads; the master dies, and then they hear each other again."""
    epoch, master = stage.epoch(), stage.master()
    ports = [port_of(stage.fleet.file.controllers[name].raft) for name in stage.fleet.controllers]
    with cut(*(rule for port in ports for rule in _both_ways(port))):
        stage.pause()
        stage.kill(master)
        stage.pause()
    stage.wait_next(epoch)


def cut_master_from_controllers(stage: Stage) -> None:
    """Its sessions are silent and nobody reaches its port, while its slaves hear it; until another one serves."""
    epoch, master = stage.epoch(), stage.master()
    brokers = {port_of(stage.fleet.file.controllers[name].broker) for name in stage.fleet.controllers}
    links = psutil.Process(stage.fleet.pid(master)).net_connections("tcp")
    own = [str(one.laddr.port) for one in links if one.raddr and str(one.raddr.port) in brokers]
    closed = [*brokers, port_of(stage.fleet.file.broker(master).listen)]
    fresh = [["-p", "tcp", "--syn", "--dport", port] for port in closed]
    with cut(*fresh, *(rule for port in own for rule in _both_ways(port))):
        stage.wait_next(epoch)
        stage.pause()
    stage.fleet.wait_redundant(stage.key, deadline_s=HEAL_S)


def port_of(address: str) -> str:
    return str(split_address(address)[1])


def _both_ways(port: str) -> list[list[str]]:
    return [["-p", "tcp", side, port] for side in ("--dport", "--sport")]


@contextmanager
def cut(*rules: list[str]) -> Iterator[None]:
    """Packets that fit one of ``rules`` are dropped inside. Raises ``SkipError``."""
    if shutil.which("iptables") is None or os.geteuid() != 0 or "TRUTH_NAMESPACE" not in os.environ:
        raise SkipError("a packet filter in a network namespace of its own needs root, unshare and iptables")
    for rule in rules:
        subprocess.run(["iptables", "-A", "INPUT", *rule, "-j", "DROP"], check=True, timeout=10)
    try:
        yield
    finally:
        subprocess.run(["iptables", "-F", "INPUT"], check=True, timeout=10)


def restart_master(stage: Stage) -> None:
    """SIGTERM, and a new process: what an upgrade does to each broker."""
    epoch, master = stage.epoch(), stage.master()
    stage.fleet.terminate(master)
    stage.fleet.restart(master)
    stage.wait_next(epoch)


def elect_another(stage: Stage) -> None:
    """An operator moves the mastership."""
    epoch = stage.epoch()
    status = stage.fleet.wait_redundant(stage.key)
    to = next(one for one in status.view.sync_state_set if one != status.view.master)
    _do(stage, "elect", stage.key.name, "--to", str(to), "--yes")
    stage.wait_next(epoch)


def elect_while_master_hangs(stage: Stage) -> None:
    """An operator moves the mastership of a process that stands still; perhaps it is found silent before he has typed."""
    epoch, master, view = stage.epoch(), stage.master(), stage.fleet.wait_redundant(stage.key).view
    target = next(one for one in view.sync_state_set if one != view.master)
    stage.fleet.stop(master)
    # He looks first: by then its heartbeat is overdue. Without that the leader takes it for a living one.
    stage.command("status")
    stage.command("elect", stage.key.name, "--to", str(target), "--yes")
    stage.wait_next(epoch)
    stage.fleet.cont(master)


def elect_unclean(stage: Stage) -> None:
    """Only a replica outside of the SyncStateSet is left; an operator takes it."""
    outsider, other = stage.slaves()
    stage.fleet.kill(outsider)
    stage.fleet.wait_set(stage.key, lambda s: len(s.view.sync_state_set) == 2, what="to shrink", deadline_s=HEAL_S)
    epoch, master = stage.epoch(), stage.master()
    for name in (other, master):
        stage.fleet.processes.signal(name, signal.SIGKILL)
    stage.fleet.restart(outsider)
    stage.fleet.wait_live([outsider])

    def elected() -> bool:
        arguments = ("--unclean", "--accept-loss", str(1 << 30), "--reason", "only this one is left", "--yes")
        return stage.command("elect", stage.key.name, *arguments).returncode == 0

    wait_until(elected, deadline_s=HEAL_S, what="the unclean election")
    stage.wait_next(epoch)


def fill_disk(stage: Stage) -> None:
    """The master's disk is full for a while."""
    with full_disk(stage.fleet.data(stage.master())):
        wait_until(lambda: not serves(stage), deadline_s=HEAL_S, what="the log to need room")
        stage.pause()
    stage.fleet.wait_redundant(stage.key, deadline_s=HEAL_S)


def fill_leaders_disk_and_kill_master(stage: Stage) -> None:
    """The leader cannot record what the failover decides, and ends in the middle of it."""
    with full_disk(stage.fleet.data(stage.fleet.leader())):
        kill_master(stage)


@contextmanager
def full_disk(data: Path) -> Iterator[None]:
    """The disk of one process has no room inside. Raises ``SkipError``."""
    if not os.path.ismount(data):
        raise SkipError("a disk of its own for each process needs root and unshare")
    filler = data / "filler"
    fill(filler)
    try:
        yield
    finally:
        filler.unlink(missing_ok=True)


def serves(stage: Stage) -> bool:
    status = stage.fleet.set_status(stage.key)
    return status is None or status.view.condition.value == "serving"


def jump_clock_and_kill(stage: Stage) -> None:
    """The leading controller's wall clock goes an hour ahead, the master is killed, the clock comes back."""
    file = clock_file(stage.fleet, stage.fleet.leader())
    if not file.exists():
        raise SkipError("a wall clock that can be moved needs a C compiler")
    set_knob(file, CLOCK_JUMP_S)
    try:
        kill_master(stage)
    finally:
        set_knob(file, 0)


def clock_file(fleet: Fleet, name: str) -> Path:
    return fleet.directory / f"clock-{name}"


@contextmanager
def movable_clock(fleet: Fleet, name: str) -> Iterator[None]:
    """A process that is started inside has a wall clock that ``set_knob`` can move, where there is a C compiler."""
    library, file = fleet.directory / "clock.so", clock_file(fleet, name)
    if not built(Path(__file__).with_name("clock.c"), library):
        yield
        return
    if not file.exists():
        set_knob(file, 0)
    with preloaded([library], WALL_CLOCK_FILE=file):
        yield


Fault = Callable[[Stage], None]
