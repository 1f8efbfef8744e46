"""
A bad wire between a machine and its switch: latency, jitter, loss, reordering and a bandwidth, frame by frame.

    python3 -P -m rollcall_ha.deploy.local.wire        (in the switch's namespace; ``machines`` starts it)

Many kernels come without netem, so frames go through this process: from a machine's port by a packet socket, into a
heap by the time at which they are due, and out at the switch's side. What is impaired is what a machine SENDS, by
target; what it receives passes at once.

Here: one process with the wires of all machines of a switch. Not here: which machine has one (``machines``).
Orders are JSON lines on standard input, each answered by one line; the end of input ends the process, and unplugs
the machines: no wire outlives its launcher.

A frame is what the kernel hands over: up to 64 KiB of one TCP link, because headers of segmentation offload travel
along. So a loss takes a burst of packets with it, and a reordered frame overtakes a burst. TCP mends both before a
program reads a byte: what a program sees of reordering is that links overtake each other, and bytes that come late and
at once.

Rule 1: what waits is bounded: ``WAITING_BYTES_MAX`` for each pair; beyond that the newest is dropped, as by a router.
Rule 2: frames of a pair keep their order, whatever the jitter, but for those that are drawn to overtake.
Rule 3: frames without an IPv4 target (ARP) pass at once: they tell who is there, and no program of ours waits for them.
"""

from __future__ import annotations

import errno
import heapq
import itertools
import json
import os
import random
import select
import socket
import sys
import time
from typing import Any

import msgspec

from rollcall_ha.controller.contract.values import Frozen

WAITING_BYTES_MAX = 4 * 1024 * 1024
DELAY_MS_MAX = 10_000.0
BANDWIDTH_BYTES_PER_S_MIN = 1_000
LINE_BYTES_MAX = 4_096
_BATCH_FRAMES_MAX = 256
_FRAME_BYTES_MAX = 128 * 1024
_SOCKET_BYTES = 8 * 1024 * 1024
_HEADER_BYTES = 10
"""virtio_net_hdr: checksum and segmentation that the kernel still owes."""
_SOL_PACKET, _PACKET_VNET_HDR, _PACKET_IGNORE_OUTGOING = 263, 15, 23
_ETH_P_ALL, _ETH_P_IP = 0x0003, 0x0800
_SO_RCVBUFFORCE = 33
_GONE = (errno.ENETDOWN, errno.ENXIO, errno.ENODEV)


class Quality(Frozen):
    """What happens to that which one machine sends to another. The default does nothing."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    """Added to the delay: evenly drawn from 0 to this."""
    loss_share: float = 0.0
    """Of frames, 0 to 1."""
    overtake_share: float = 0.0
    """Of frames, 0 to 1: sent without delay, before those that wait."""
    bandwidth_bytes_per_s: int | None = None
    """None = as fast as it goes."""

    def __post_init__(self) -> None:
        """Raises ``ValueError`` with the value and its limits."""
        for name in ("delay_ms", "jitter_ms"):
            _require(name, getattr(self, name), 0.0, DELAY_MS_MAX)
        for name in ("loss_share", "overtake_share"):
            _require(name, getattr(self, name), 0.0, 1.0)
        if self.bandwidth_bytes_per_s is not None:
            _require("bandwidth_bytes_per_s", self.bandwidth_bytes_per_s, BANDWIDTH_BYTES_PER_S_MIN, 10**12)


def _require(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ValueError(f"{name} is {value}; it must be from {least} to {most}")


class FrameCounts(msgspec.Struct):
    """What became of frames between two machines that are impaired."""

    passed: int = 0
    lost: int = 0
    overtook: int = 0
    overflowed: int = 0
    """Dropped because ``WAITING_BYTES_MAX`` waited already."""


class Shaper(msgspec.Struct):
    """Decides when each frame of one pair is due. Pure but for the draw."""

    quality: Quality
    draw: random.Random
    counts: FrameCounts = msgspec.field(default_factory=FrameCounts)
    waiting_bytes: int = 0
    _free_at_s: float = 0.0
    _last_due_s: float = 0.0

    def due_s(self, size_bytes: int, now_s: float) -> float | None:
        """When to send a frame; None = never. The caller takes it from ``waiting_bytes`` when it is sent."""
        quality = self.quality
        if quality.loss_share and self.draw.random() < quality.loss_share:
            self.counts.lost += 1
            return None
        # Without the limit, a sender that is faster than the bandwidth would fill this process's memory (rule 1).
        if self.waiting_bytes + size_bytes > WAITING_BYTES_MAX:
            self.counts.overflowed += 1
            return None
        self.counts.passed += 1
        self.waiting_bytes += size_bytes
        if quality.overtake_share and self.draw.random() < quality.overtake_share:
            self.counts.overtook += 1
            return now_s
        sent_s = now_s
        if quality.bandwidth_bytes_per_s is not None:
            sent_s = self._free_at_s = max(now_s, self._free_at_s) + size_bytes / quality.bandwidth_bytes_per_s
        due_s = sent_s + (quality.delay_ms + self.draw.random() * quality.jitter_ms) / 1000
        # By jitter alone a frame would overtake the one before it, which looks like a loss to TCP (rule 2).
        self._last_due_s = max(self._last_due_s, due_s)
        return self._last_due_s


def target_of(frame: bytes | memoryview) -> str | None:
    """IPv4 address that a frame (behind its virtio header) goes to; None = no IPv4."""
    ethernet = _HEADER_BYTES
    if len(frame) < ethernet + 34 or int.from_bytes(frame[ethernet + 12 : ethernet + 14], "big") != _ETH_P_IP:
        return None
    return socket.inet_ntoa(frame[ethernet + 30 : ethernet + 34])


class Wire:
    """The wire of one machine: its port, and the socket of the switch."""

    def __init__(self, port: str, switch: str) -> None:
        """Open both ends by the names of their interfaces. Raises ``OSError``."""
        self.port = _packet_socket(port)
        self.switch = _packet_socket(switch)
        self.shapers: dict[str, Shaper] = {}
        """By target address."""

    def close(self) -> None:
        self.port.close()
        self.switch.close()


def _packet_socket(interface: str) -> socket.socket:
    found = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    # Before the bind: a frame that came without its header would be read as one.
    found.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    # What we send would else be read back, and go round for ever.
    found.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    found.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _SOCKET_BYTES)
    found.bind((interface, _ETH_P_ALL))
    found.setblocking(False)
    return found


class Wires:
    """All wires of a switch, and the frames that wait."""

    def __init__(self) -> None:
        """Nothing is plugged in yet."""
        self._wires: dict[str, Wire] = {}
        self._heap: list[tuple[float, int, Wire, Shaper, bytes]] = []
        self._numbers = itertools.count()
        self._poll = select.epoll()
        self._readers: dict[int, tuple[Wire, bool]] = {}

    def run(self) -> None:
        """Until standard input ends."""
        orders = sys.stdin.fileno()
        self._poll.register(orders, select.EPOLLIN)
        text = b""
        while True:
            for descriptor, _ in self._poll.poll(self._wait_s()):
                if descriptor != orders:
                    # An order of this very look may have unplugged it: its frames are nobody's any more.
                    if (reader := self._readers.get(descriptor)) is not None:
                        self._read(*reader)
                    continue
                part = os.read(orders, LINE_BYTES_MAX)
                if not part:
                    return
                *lines, text = (text + part).split(b"\n")
                for line in lines:
                    sys.stdout.write(json.dumps(self._obey(json.loads(line))) + "\n")
                    sys.stdout.flush()
            self._send_due()

    def _wait_s(self) -> float:
        return -1 if not self._heap else max(self._heap[0][0] - time.monotonic(), 0)

    def _obey(self, order: dict[str, Any]) -> dict[str, Any]:
        """One order: plug, unplug, shape or count."""
        try:
            return {"counts": getattr(self, f"_do_{order.pop('do')}")(**order)}
        except OSError as error:
            return {"error": str(error)}

    def _do_plug(self, machine: str, port: str, switch: str) -> None:
        wire = self._wires[machine] = Wire(port, switch)
        for end, is_outgoing in ((wire.port, True), (wire.switch, False)):
            self._readers[end.fileno()] = wire, is_outgoing
            self._poll.register(end.fileno(), select.EPOLLIN)

    def _do_unplug(self, machine: str) -> None:
        wire = self._wires.pop(machine)
        self._heap = [entry for entry in self._heap if entry[2] is not wire]
        heapq.heapify(self._heap)
        for end in (wire.port, wire.switch):
            self._poll.unregister(end.fileno())
            del self._readers[end.fileno()]
        wire.close()

    def _do_shape(self, machine: str, target: str, seed: int, quality: dict[str, Any]) -> None:
        self._wires[machine].shapers[target] = Shaper(Quality(**quality), random.Random(seed))  # noqa: S311

    def _do_count(self, machine: str, target: str) -> dict[str, int]:
        return msgspec.structs.asdict(self._wires[machine].shapers[target].counts)

    def _read(self, wire: Wire, is_outgoing: bool) -> None:
        """Take what is there, at most a batch: one busy port must not keep the others waiting."""
        source, out = (wire.port, wire.switch) if is_outgoing else (wire.switch, wire.port)
        now_s = time.monotonic()
        for _ in range(_BATCH_FRAMES_MAX):
            try:
                frame = source.recv(_FRAME_BYTES_MAX)
            except OSError:  # nothing more, or the interface is down for a moment
                return
            shaper = wire.shapers.get(target_of(frame) or "") if is_outgoing else None
            if shaper is None:
                _send(out, frame)
                continue
            due_s = shaper.due_s(len(frame), now_s)
            if due_s is not None:
                heapq.heappush(self._heap, (due_s, next(self._numbers), wire, shaper, frame))

    def _send_due(self) -> None:
        now_s = time.monotonic()
        while self._heap and self._heap[0][0] <= now_s:
            _, _, wire, shaper, frame = heapq.heappop(self._heap)
            shaper.waiting_bytes -= len(frame)
            _send(wire.switch, frame)


def _send(out: socket.socket, frame: bytes) -> None:
    """A frame that the interface does not take is dropped, as any switch would."""
    try:
        out.send(frame)
    except OSError as error:
        if error.errno not in (*_GONE, errno.ENOBUFS, errno.EAGAIN, errno.EMSGSIZE, errno.EINVAL):
            raise


if __name__ == "__main__":
    Wires().run()
