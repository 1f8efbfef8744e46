"""
Network namespaces as machines: each with an address, a loopback and a disk of its own, on one switch that can be bad.

    with Machines(("c1", "c2", "client"), disks=folder) as machines:
        subprocess.Popen(machines.inside("c1", ["…"]))          # runs on c1, and sees folder/c1 as folder
        with machines.on("client"): socket.create_connection((machines.address("c1"), 9200))
        machines.cut("c1", "c2")                                # c2 hears nothing of c1; join() ends it
        machines.impose(ring(machines.names))                   # any shape of ``partitions``; heal() ends all
        machines.impair("c1", "c2", Quality(delay_ms=50, loss_share=0.01))
        with machines.flapping("c1", down_s=0.5, up_s=1): …     # its plug, out and in

Needs root, and ip and tc of iproute2; ``MachinesError`` says what is missing. All traffic stays on the switch: no
namespace here has an interface of the computer.

Here: making and removing machines, commands and sockets on one, cuts, bad wires. Not here: which cuts make a partition
(``partitions``), what a bad wire does (``wire``), what runs on machines.

Rule 1: names carry the pid of this process: two runs on one computer do not meet. What a killed run left behind is
removed at the next start, with its processes, because its pid is no longer there.
Rule 2: the switch has a namespace to itself: the computer's own interfaces, routes and filters stay as they are.
Rule 3: a cut is made in the switch, on the way to its target: nobody is told. Made at the source, a connection would be
refused at once, which no cable does.
Rule 4: a machine whose disk is given sees that disk in the place of the folder of all disks, and no other one's.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Self

import psutil
from msgspec.structs import asdict

from rollcall_ha.deploy.local.partitions import NO_CUTS, Cuts, changes, two_way
from rollcall_ha.deploy.local.processes import LauncherError, our_environment, python_module
from rollcall_ha.deploy.local.wire import Quality

MACHINES_MAX = 60
FLAP_S_MIN = 0.05
_SUBNET = "10.99.0"
_COMMAND_SECONDS_MAX = 10.0
_CLONE_NEWNET = 0x40000000
_OURS = re.compile(r"rc(?P<pid>\d+)-\d+-(?:\d+|hub)")
_MOUNT_OWN_DISK = 'mount --bind "$0" "$1" && cd "$1" && shift && exec "$@"'
_serials = count(1)
_libc = ctypes.CDLL(None, use_errno=True)


class MachinesError(LauncherError):
    """There can be no machines here; the message says why."""


class Machines:
    """A switch with machines. Not for several threads, but ``on`` may be used by each."""

    def __init__(self, names: Sequence[str], *, disks: Path | None = None) -> None:
        """
        Nothing is made yet.

        Args:
            names: Of the machines, in the order of their addresses.
            disks: Folder with one folder for each machine; both are made. None = they share the computer's files.

        Raises:
            MachinesError: not root, no ``ip``, ``tc`` or ``mount``, or too many.
        """
        if os.geteuid() != 0 or any(shutil.which(program) is None for program in ("ip", "tc", "mount")):
            raise MachinesError("network namespaces need root, and ip and tc (apt-get install iproute2)")
        if len(names) > MACHINES_MAX:
            raise MachinesError(f"{len(names)} machines; at most {MACHINES_MAX} have an address")
        self.names = tuple(names)
        self.disks = None if disks is None else disks.resolve()
        self._prefix = f"rc{os.getpid()}-{next(_serials)}"
        self._numbers = {name: number for number, name in enumerate(names, start=1)}
        self._cuts: Cuts = NO_CUTS
        self._walls: Cuts = NO_CUTS
        self._unplugged: set[str] = set()
        self._wires: subprocess.Popen[str] | None = None
        self._impaired: dict[str, dict[str, Quality]] = {}
        """By source, then by target."""

    def __enter__(self) -> Self:
        """Raises ``MachinesError``: this kernel or container allows no namespaces."""
        sweep()
        try:
            self._ip("netns", "add", self._hub)
            self._ip("-n", self._hub, "link", "add", "hub", "type", "bridge")
            self._ip("-n", self._hub, "link", "set", "hub", "up")
            for name in self.names:
                self._make(name)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    # --- who, and on which -------------------------------------------------------------------------------------------

    def address(self, name: str) -> str:
        """IPv4 address of a machine."""
        return f"{_SUBNET}.{self._numbers[name]}"

    def disk(self, name: str) -> Path:
        """The folder, seen from outside, that is ``name``'s disk. Raises ``MachinesError`` if there are no disks."""
        if self.disks is None:
            raise MachinesError("these machines were made without disks")
        return self.disks / name

    def inside(self, name: str, argv: Sequence[str]) -> list[str]:
        """The command line that runs ``argv`` on a machine, in the folder of its disk if it has one; same pid."""
        entered = ["ip", "netns", "exec", self._namespace(name)]
        if self.disks is None:
            return [*entered, *argv]
        # ip has given it a mount namespace of its own: nobody else sees this mount (rule 4).
        return [*entered, "sh", "-c", _MOUNT_OWN_DISK, str(self.disk(name)), str(self.disks), *argv]

    @contextmanager
    def on(self, name: str) -> Iterator[None]:
        """
        Sockets that this thread makes inside the block are on that machine, and stay there; so do threads begun there.

        Raises ``MachinesError``.
        """
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            there = os.open(f"/var/run/netns/{self._namespace(name)}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                _enter(there)
            finally:
                os.close(there)
            try:
                yield
            finally:
                _enter(before)
        finally:
            os.close(before)

    # --- cuts --------------------------------------------------------------------------------------------------------

    @property
    def cuts(self) -> Cuts:
        """What is cut now, without walls."""
        return self._cuts - self._walls

    def wall_off(self, cuts: Cuts) -> None:
        """These stay whatever is imposed or healed: who reaches whom on the best of days."""
        self._walls = cuts
        self.impose(self._cuts)

    def cut(self, source: str, target: str) -> None:
        """Drop every packet from ``source`` to ``target``; the other way goes on."""
        self.impose(self.cuts | {(source, target)})

    def join(self, source: str, target: str) -> None:
        """End a cut."""
        self.impose(self.cuts - {(source, target)})

    def impose(self, wanted: Cuts) -> None:
        """Make these cuts, and end all others but walls. Raises ``MachinesError``."""
        ended, made = changes(self._cuts, wanted | self._walls)
        for source, target in ended:
            self._tc("filter", "del", *self._at(target, source))
            self._cuts -= {(source, target)}
        for source, target in made:
            where = f"{self.address(source)}/32"
            self._tc("filter", "add", *self._at(target, source), "u32", "match", "ip", "src", where, "flowid", "1:2")
            self._cuts |= {(source, target)}

    def isolate(self, name: str) -> None:
        """Unplug a machine; its processes go on, and reach themselves only."""
        self._ip("-n", self._hub, "link", "set", self._port(name), "down")
        self._unplugged.add(name)

    def plug(self, name: str) -> None:
        """Plug it in again."""
        self._ip("-n", self._hub, "link", "set", self._port(name), "up")
        self._unplugged.discard(name)

    @contextmanager
    def flapping(self, name: str, *, down_s: float, up_s: float, others: Sequence[str] = ()) -> Iterator[None]:
        """
        Its plug is out for ``down_s``, in for ``up_s``, out again, and in after the block.

        With ``others``, it and they do not hear each other meanwhile, and its plug stays in: to all further machines
        its link is good. Inside the block nothing else may cut.
        """
        if min(down_s, up_s) < FLAP_S_MIN:
            raise MachinesError(f"a plug flaps in {FLAP_S_MIN} s at least, not in {min(down_s, up_s)} s")
        enough = threading.Event()
        before, between = self.cuts, two_way([name], others)

        def flap() -> None:
            while not enough.is_set():
                self.impose(before | between) if others else self.isolate(name)
                enough.wait(down_s)
                self.impose(before) if others else self.plug(name)
                enough.wait(up_s)

        thread = threading.Thread(target=flap, name=f"flap-{name}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            enough.set()
            thread.join()

    def heal(self) -> None:
        """All cuts end, all machines are plugged in, and every wire is good again."""
        self.impose(NO_CUTS)
        for name in sorted(self._unplugged):
            self.plug(name)
        for source in list(self._impaired):
            self._unwire(source)

    # --- bad wires ---------------------------------------------------------------------------------------------------

    def impair(self, source: str, target: str, quality: Quality, *, seed: int = 0) -> None:
        """From now on, what ``source`` sends to ``target`` arrives like this; both ways take two calls."""
        if source not in self._impaired:
            self._wire(source)
        asked = {"machine": source, "target": self.address(target), "seed": seed, "quality": asdict(quality)}
        self._order(do="shape", **asked)
        self._impaired[source][target] = quality

    def frames(self, source: str, target: str) -> dict[str, int]:
        """What became of the frames of an impaired pair since ``impair``; the names are those of ``FrameCounts``."""
        counts: dict[str, int] = self._order(do="count", machine=source, target=self.address(target))
        return counts

    def _wire(self, name: str) -> None:
        """Put the process between a machine's port and the switch."""
        if self._wires is None:
            self._wires = subprocess.Popen(
                ["ip", "netns", "exec", self._hub, *python_module("rollcall_ha.deploy.local.wire")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
                env=our_environment(),
                start_new_session=True,
            )
        port, number = self._port(name), self._numbers[name]
        self._ip("-n", self._hub, "link", "add", f"in{number}", "type", "veth", "peer", "name", f"out{number}")
        self._ip("-n", self._hub, "link", "set", f"in{number}", "up")
        self._order(do="plug", machine=name, port=port, switch=f"in{number}")
        self._ip("-n", self._hub, "link", "set", port, "nomaster")
        self._ip("-n", self._hub, "link", "set", f"out{number}", "master", "hub", "up")
        self._impaired[name] = {}

    def _unwire(self, name: str) -> None:
        self._order(do="unplug", machine=name)
        self._ip("-n", self._hub, "link", "del", f"in{self._numbers[name]}")
        self._ip("-n", self._hub, "link", "set", self._port(name), "master", "hub")
        del self._impaired[name]

    def _order(self, **order: Any) -> Any:
        """Raises ``MachinesError`` with the answer of the wires."""
        wires = self._wires
        if wires is None or wires.stdin is None or wires.stdout is None:
            raise MachinesError(f"{order.get('machine')} has no bad wire; impair it first")
        try:
            wires.stdin.write(json.dumps(order) + "\n")
            answer = json.loads(wires.stdout.readline() or '{"error": "it has ended"}')
        except BrokenPipeError:
            answer = {"error": "it has ended"}
        if "error" in answer:
            raise MachinesError(f"the process of the wires, asked to {order['do']}: {answer['error']}")
        return answer["counts"]

    # --- making and removing -----------------------------------------------------------------------------------------

    def _make(self, name: str) -> None:
        namespace, port = self._namespace(name), self._port(name)
        if self.disks is not None:
            self.disk(name).mkdir(parents=True, exist_ok=True)
        self._ip("netns", "add", namespace)
        # Made inside: for a moment it would else be an interface of the computer.
        self._ip("-n", namespace, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", self._hub)
        self._ip("-n", self._hub, "link", "set", port, "master", "hub", "up")
        self._ip("-n", namespace, "address", "add", f"{self.address(name)}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            self._ip("-n", namespace, "link", "set", device, "up")
        # What a filter sends to class 1:2 is dropped without a word; all else does not notice the classes.
        self._tc("qdisc", "add", "dev", port, "root", "handle", "1:", "htb")
        self._tc("class", "add", "dev", port, "parent", "1:", "classid", "1:2", "htb", "rate", "1gbit")
        self._tc("qdisc", "add", "dev", port, "parent", "1:2", "blackhole")

    def _at(self, target: str, source: str) -> tuple[str, ...]:
        """Where the filter of a cut is: at the target's port, with the source's number."""
        return ("dev", self._port(target), "parent", "1:", "protocol", "ip", "prio", str(self._numbers[source]))

    @property
    def _hub(self) -> str:
        return f"{self._prefix}-hub"

    def _namespace(self, name: str) -> str:
        return f"{self._prefix}-{self._numbers[name]}"

    def _port(self, name: str) -> str:
        return f"port{self._numbers[name]}"

    def _remove(self) -> None:
        if self._wires is not None:
            self._wires.kill()
            self._wires.communicate()
            self._wires = None
        for namespace in (*map(self._namespace, self.names), self._hub):
            _delete(namespace)

    def _ip(self, *arguments: str) -> None:
        _run("ip", *arguments)

    def _tc(self, *arguments: str) -> None:
        _run("tc", "-n", self._hub, *arguments)


def sweep() -> tuple[str, ...]:
    """Remove what killed runs left behind, with the processes in it (rule 1); returns the names of the namespaces."""
    listed = _run("ip", "netns", "list").split("\n")
    found = [_OURS.fullmatch(line.partition(" ")[0]) for line in listed]
    stale = tuple(name[0] for name in found if name is not None and not psutil.pid_exists(int(name["pid"])))
    for namespace in stale:
        _delete(namespace)
    return stale


def _delete(namespace: str) -> None:
    """A process that is left in it would keep it, without a name, until the computer stops."""
    with suppress(MachinesError):
        for pid in map(int, _run("ip", "netns", "pids", namespace).split()):
            if pid != os.getpid():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        _run("ip", "netns", "del", namespace)


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, _CLONE_NEWNET) != 0:
        raise MachinesError(f"cannot enter a network namespace: {os.strerror(ctypes.get_errno())}")


def _run(*command: str) -> str:
    """What it printed. Raises ``MachinesError`` with its error."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_COMMAND_SECONDS_MAX)
    if done.returncode != 0:
        raise MachinesError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
