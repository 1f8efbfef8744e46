"""
Network namespaces as machines: each with an address of its own, on one bridge, cut from others when a test says so.

Here: making and removing them, command lines that run inside one, cuts. Not here: what runs in them.

Rule 1: names carry the pid of this process: two runs on one computer do not meet, and only our own are ever removed.
Rule 2: the bridge has a namespace to itself: the computer's own interfaces, routes and filters stay as they are.
Rule 3: a cut is a blackhole route where the packets come from, so it has a direction; no packet filter is needed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rollcall_ha.deploy.local.processes import LauncherError

MACHINES_MAX = 60
_SUBNET = "10.99.0"
_COMMAND_SECONDS_MAX = 10.0


class MachinesError(LauncherError):
    """There can be no machines here; the message says why."""


class Machines:
    """A switch with machines. Not for several threads."""

    def __init__(self, names: Sequence[str]) -> None:
        """Raises ``MachinesError``: not root, no ``ip``, or too many."""
        if os.geteuid() != 0 or shutil.which("ip") is None:
            raise MachinesError("network namespaces need root and ip (apt-get install iproute2)")
        if len(names) > MACHINES_MAX:
            raise MachinesError(f"{len(names)} machines; at most {MACHINES_MAX} have an address")
        self._prefix = f"rc{os.getpid()}"
        self._numbers = {name: number for number, name in enumerate(names, start=1)}

    def __enter__(self) -> Self:
        """Raises ``MachinesError``: this kernel or container allows no namespaces."""
        try:
            hub = f"{self._prefix}-hub"
            self._ip("netns", "add", hub)
            self._ip("-n", hub, "link", "add", "hub", "type", "bridge")
            self._ip("-n", hub, "link", "set", "hub", "up")
            for name, number in self._numbers.items():
                self._plug(name, f"port{number}", hub)
        except MachinesError:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def address(self, name: str) -> str:
        """IPv4 address of a machine."""
        return f"{_SUBNET}.{self._numbers[name]}"

    def inside(self, name: str, argv: Sequence[str]) -> list[str]:
        """The command line that runs ``argv`` on a machine."""
        return ["ip", "netns", "exec", self._namespace(name), *argv]

    def cut(self, source: str, target: str) -> None:
        """Drop every packet from ``source`` to ``target``; the other way goes on."""
        self._ip("-n", self._namespace(source), "route", "add", "blackhole", f"{self.address(target)}/32")

    def join(self, source: str, target: str) -> None:
        """End a cut."""
        self._ip("-n", self._namespace(source), "route", "del", "blackhole", f"{self.address(target)}/32")

    def isolate(self, name: str) -> None:
        """Unplug a machine; its processes go on, and reach themselves only."""
        self._ip("-n", f"{self._prefix}-hub", "link", "set", f"port{self._numbers[name]}", "down")

    def plug(self, name: str) -> None:
        """Plug it in again."""
        self._ip("-n", f"{self._prefix}-hub", "link", "set", f"port{self._numbers[name]}", "up")

    def _plug(self, name: str, port: str, hub: str) -> None:
        namespace = self._namespace(name)
        self._ip("netns", "add", namespace)
        # Made inside: for a moment it would else be an interface of the computer.
        self._ip("-n", namespace, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", hub)
        self._ip("-n", hub, "link", "set", port, "master", "hub", "up")
        self._ip("-n", namespace, "address", "add", f"{self.address(name)}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            self._ip("-n", namespace, "link", "set", device, "up")

    def _namespace(self, name: str) -> str:
        return f"{self._prefix}-{self._numbers[name]}"

    def _remove(self) -> None:
        for namespace in (*map(self._namespace, self._numbers), f"{self._prefix}-hub"):
            subprocess.run(
                ["ip", "netns", "del", namespace], check=False, capture_output=True, timeout=_COMMAND_SECONDS_MAX
            )

    def _ip(self, *arguments: str) -> None:
        done = subprocess.run(
            ["ip", *arguments], check=False, capture_output=True, text=True, timeout=_COMMAND_SECONDS_MAX
        )
        if done.returncode != 0:
            raise MachinesError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
