"""
Connections between simulated processes: streams in order that stall, break, and tell only what TCP would tell.

Here: latency, stalls that deliver late, breaks that lose a suffix, one-way and two-way partitions, listeners.
Not here: duplication and reordering of *commands*: streams do neither; retries and late proposals do (``tests.sim``).
Rule 1: within a direction of a connection, order is kept, and what arrives is a prefix of what was sent.
Rule 2: a process that dies closes its connections: peers that can be reached hear of it; over a cut they hear nothing.
Rule 3: data that was under way when a connection broke may still arrive, long after; then comes the close.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.support.sim_kernel import MS, Kernel, Process


@dataclass(slots=True, kw_only=True)
class Weather:
    """How bad the network is. All zero: only latency."""

    latency_us_min: int = 100
    latency_us_max: int = 1_500
    stall_probability: float = 0.0
    """Of a message to be held up, and all that follow it on its connection."""
    stall_us_max: int = 800 * MS
    break_probability: float = 0.0
    """Of a message to be the last one on its connection."""


class End:
    """One side of a connection. ``on_message`` and ``on_closed`` run in ``process``."""

    def __init__(self, net: SimNet, process: Process, label: str) -> None:
        self.net = net
        self.process = process
        self.label = label
        self.is_open = True
        self.is_broken = False
        """The connection was reset; what is under way from here may still arrive."""
        self.loses_rest = False
        """Nothing that is under way from here will arrive."""
        self.on_message: Callable[[Any], None] = _ignore
        self.on_closed: Callable[[], None] = _ignore_close
        self.owner: Any = None
        """Whatever reads and writes here (``sim_streams``)."""
        self.taken_bytes = 0
        """Read by ``owner``."""
        self.peer: End = self
        self._arrives_us = 0
        self._held: deque[tuple[str, Any]] = deque()

    def send(self, message: Any) -> None:
        """Queue ``message`` for the peer; without effect on a closed end."""
        if self.is_open:
            self.net.transmit(self, "message", message)

    def close(self) -> None:
        """Stop hearing; the peer hears of it after what was sent."""
        if self.is_open:
            self.is_open = False
            self.net.transmit(self, "close", None)


class SimNet:
    """All connections of a world."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.weather = Weather()
        self.hosts: dict[str, str] = {}
        """Host by IP; where none is named, a host's name is its address."""
        self._listeners: dict[str, tuple[Process, Callable[[End], None]]] = {}
        self._cuts: dict[tuple[str, str], int] = {}
        self._dark: dict[str, None] = {}
        self._ends: list[End] = []

    def listen(self, process: Process, address: str, accept: Callable[[End], None]) -> None:
        """``accept`` gets the server's end of every new connection to ``address``."""
        self._listeners[address] = (process, accept)
        process.at_exit(lambda: self.unlisten(process, address))

    def is_listening(self, address: str) -> bool:
        """Whether a living process listens at ``address``."""
        found = self._listeners.get(address)
        return found is not None and found[0].is_alive

    def host_of(self, ip: str) -> str:
        """Name of the host with this address."""
        return self.hosts.get(ip, ip)

    def address_of(self, host: str) -> str:
        """IP of ``host``; one that nobody listens on if it has none."""
        return next((ip for ip, name in self.hosts.items() if name == host), "192.0.2.1")

    def unlisten(self, process: Process, address: str) -> None:
        """``process`` listens there no more; without effect on what it has accepted, and on other processes."""
        if self._listeners.get(address, (None, None))[0] is process:
            del self._listeners[address]

    def connect(
        self, process: Process, address: str, host: str, opened: Callable[[End], None], refused: Callable[[], None]
    ) -> None:
        """
        Connect from ``process`` to ``address`` on ``host``.

        ``refused`` is called if nobody listens there; if the way is cut, neither is called: the caller needs its own deadline.
        """
        if self.is_cut(process.host.name, host) or self.is_cut(host, process.host.name):
            self.kernel.counts.add("connects lost in a cut")
            return
        self.kernel.after(self._latency_us(), "connect", lambda: self._arrive(process, address, opened, refused))

    def _arrive(
        self, process: Process, address: str, opened: Callable[[End], None], refused: Callable[[], None]
    ) -> None:
        found = self._listeners.get(address)
        if found is None or not found[0].is_alive:
            self.kernel.after(self._latency_us(), "refused", lambda: process.run("refused", refused))
            return
        if not process.is_alive:
            return
        server, accept = found
        here = End(self, process, f"{process.name}>{address}")
        there = End(self, server, f"{address}<{process.name}")
        here.peer, there.peer = there, here
        self._ends += [here, there]
        for end in (here, there):
            end.process.at_exit(end.close)
        there._arrives_us = self.kernel.now_us + self._latency_us()
        self.kernel.at(there._arrives_us, "opened", lambda: process.run("opened", lambda: opened(here)))
        # The kernel of the operating system accepts also for a program that is stopped.
        server.run("accept", lambda: accept(there))

    def transmit(self, end: End, kind: str, message: Any) -> None:
        """Carry one message or the close from ``end`` to its peer."""
        if end.is_broken:
            return
        if self.is_cut(end.process.host.name, end.peer.process.host.name):
            end._held.append((kind, message))
            return
        self._carry(end, kind, message)

    def _carry(self, end: End, kind: str, message: Any) -> None:
        weather, random = self.weather, self.kernel.random
        delay_us = self._latency_us()
        if weather.stall_probability and random.random() < weather.stall_probability:
            delay_us += random.randrange(weather.stall_us_max)
            self.kernel.counts.add("messages stalled")
        if weather.break_probability and kind == "message" and random.random() < weather.break_probability:
            self.break_connection(end)
            return
        end._arrives_us = max(end._arrives_us, self.kernel.now_us + delay_us)
        peer = end.peer
        self.kernel.at(
            end._arrives_us, end.label, lambda: peer.process.run(end.label, lambda: _deliver(peer, kind, message))
        )

    def break_connection(self, end: End) -> None:
        """Something between them resets the connection: both ends hear a close; what is under way arrives, or does not."""
        self.kernel.counts.add("connections broken")
        for one in (end, end.peer):
            one._held.clear()
            one.is_broken = True
            one.loses_rest = self.kernel.chance(0.5)
            one._arrives_us = max(one._arrives_us, self.kernel.now_us + self._latency_us())
            peer = one.peer
            self.kernel.at(one._arrives_us, "reset", lambda peer=peer: peer.process.run("reset", lambda: _reset(peer)))  # type: ignore[misc]

    def break_some(self, probability: float) -> None:
        """Break each open connection with ``probability``."""
        self._forget_closed()
        for end in list(self._ends)[::2]:
            if end.is_open and self.kernel.chance(probability):
                self.break_connection(end)

    def break_host(self, host: str) -> None:
        """Break every connection of ``host``; nothing that is under way arrives."""
        self._forget_closed()
        for end in list(self._ends)[::2]:
            if end.is_open and host in (end.process.host.name, end.peer.process.host.name):
                self.break_connection(end)
                end.loses_rest = end.peer.loses_rest = True

    def cut(self, source: str, target: str) -> None:
        """Nothing goes from ``source`` to ``target`` until it is healed as often as it was cut."""
        self._cuts[source, target] = self._cuts.get((source, target), 0) + 1

    def heal(self, source: str, target: str) -> None:
        """What was held up goes on, late."""
        left = self._cuts.get((source, target), 0) - 1
        if left > 0:
            self._cuts[source, target] = left
            return
        self._cuts.pop((source, target), None)
        self._release_held()

    def heal_all(self) -> None:
        """No cuts any more."""
        self._cuts.clear()
        self._release_held()

    def power_off(self, host: str) -> None:
        """The host says nothing, not even that its connections are gone."""
        self._dark[host] = None

    def power_on(self, host: str) -> None:
        """Peers that had connections to it learn that these are gone."""
        self._dark.pop(host, None)
        self._release_held()

    def _release_held(self) -> None:
        self._forget_closed()
        for end in self._ends:
            if end._held and not self.is_cut(end.process.host.name, end.peer.process.host.name):
                held, end._held = end._held, deque()
                self.kernel.counts.add("messages delivered late", len(held))
                for kind, message in held:
                    self._carry(end, kind, message)

    def is_cut(self, source: str, target: str) -> bool:
        """Whether nothing goes from ``source`` to ``target`` now."""
        if self._dark and (source in self._dark or target in self._dark):
            return True
        return bool(self._cuts) and source != target and (source, target) in self._cuts

    def _latency_us(self) -> int:
        weather = self.weather
        return weather.latency_us_min + int(
            self.kernel.random.random() * (weather.latency_us_max - weather.latency_us_min)
        )

    def _forget_closed(self) -> None:
        self._ends = [end for end in self._ends if end.is_open or end._held or end.peer.is_open or end.peer._held]


def _deliver(end: End, kind: str, message: Any) -> None:
    if not end.is_open or end.peer.loses_rest:
        return
    if kind == "close":
        end.is_open = False
        end.on_closed()
    else:
        end.on_message(message)


def _reset(end: End) -> None:
    if end.is_open:
        end.is_open = False
        end.on_closed()


def _ignore(message: Any) -> None:
    """Nobody listens yet: a stream would have buffered; owners set their handler when they get the end."""


def _ignore_close() -> None:
    """Nobody listens yet."""
