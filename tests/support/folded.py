"""Folds of a log in memory, and what else the rooms that serve consumers ask of a replica: links, its standing."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, cast

import msgspec
import pytest

from rollcall_ha.broker.folds.dispatcher import tags_of
from rollcall_ha.broker.folds.ports import QueueKey
from rollcall_ha.broker.log.record import Draft, pack, record_bytes
from rollcall_ha.broker.protocol.java_hash import tags_code
from rollcall_ha.controller.contract.ids import MasterEpoch
from rollcall_ha.node.certified import PeerCertificate
from rollcall_ha.node.remoting.codes import FLAG_RESPONSE
from rollcall_ha.node.remoting.connection import RemotingConnection
from rollcall_ha.node.remoting.frame import Frame, decode_frame, encode_frame
from tests.support.sim_kernel import SECOND, Host, Kernel, Process
from tests.support.sim_loop import SimLoop
from tests.support.sim_net import SimNet

UNIT = struct.Struct(">qiq")
STORE_HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
T0: QueueKey = (b"T", 0)


class FoldedQueue:
    """Units in memory; ``broken`` and ``step_max`` make it worse than it must be."""

    def __init__(self, first: int) -> None:
        self.first = self.min_offset = first
        self.data = bytearray()
        self.broken: OSError | None = None
        self.step_max = 1_000_000

    @property
    def max_offset(self) -> int:
        return self.first + len(self.data) // UNIT.size

    def units(self, start: int, count_max: int) -> bytes:
        if self.broken is not None:
            raise self.broken
        assert self.min_offset <= start < self.max_offset
        at = (start - self.first) * UNIT.size
        return bytes(self.data[at : at + min(count_max, self.step_max) * UNIT.size])

    def put(self, offset: int, place: int, size: int, code: int) -> None:
        """Write a unit over another one."""
        UNIT.pack_into(self.data, (offset - self.first) * UNIT.size, place, size, code)


class FoldedLog:
    """A log whose records begin at ``start``, and its folds: what is appended is visible once it is taken in."""

    def __init__(self, start: int = 0) -> None:
        self.min_offset = self.start = start
        self.data = bytearray()
        self.queues: dict[QueueKey, FoldedQueue] = {}
        self.catch_up_max = 1_000_000
        """So many records are taken in by one ``catch_up``."""
        self.missing_bytes = 0
        """Of a log that is not whole yet: ``catch_up`` says so, whatever was taken in."""
        self.catch_ups = 0
        self.reads: list[int] = []
        """Places that were read, in order."""
        self._ends: dict[QueueKey, int] = {}
        self._first: dict[QueueKey, int] = {}
        self._pending: list[tuple[QueueKey, int, int, int]] = []
        self._on_grown: list[Callable[[Sequence[QueueKey]], None]] = []

    def append(
        self, body: bytes = b"hello", *, key: QueueKey = T0, properties: bytes = b"", at_ms: int = 1, first: int = 0
    ) -> int:
        """A record behind the others, confirmed and not taken in; returns its place. ``first``: of a new queue."""
        draft = Draft(topic=key[0], queue_id=key[1], body=body, properties=properties)
        size, place = record_bytes(draft, STORE_HOST), self.confirm_offset
        offset = self._ends.get(key, self._first.setdefault(key, first))
        record = bytearray(size)
        pack(
            memoryview(record), 0, draft, total_bytes=size, physical_offset=place, queue_offset=offset,
            stored_at_ms=at_ms, store_host=STORE_HOST,
        )  # fmt: skip
        self.data += record
        self._ends[key] = offset + 1
        self._pending.append((key, place, size, tags_code(tags_of(properties))))
        return place

    def grow(self, *bodies: bytes, key: QueueKey = T0, properties: bytes = b"", at_ms: int = 1, first: int = 0) -> None:
        """Append, take in, and wake."""
        for body in bodies:
            self.append(body, key=key, properties=properties, at_ms=at_ms, first=first)
        self.catch_up()

    # --- ports.Folds, LogEnds ---

    def queue(self, topic: bytes, queue_id: int) -> FoldedQueue | None:
        return self.queues.get((topic, queue_id))

    @property
    def knows_all(self) -> bool:
        return self.min_offset == 0

    def queue_ids(self, topic: bytes) -> Sequence[int]:
        return sorted(queue_id for name, queue_id in self.queues if name == topic)

    def topic_names(self) -> Collection[bytes]:
        return {name for name, _ in self.queues}

    def catch_up(self) -> int:
        self.catch_ups += 1
        taken, self._pending = self._pending[: self.catch_up_max], self._pending[self.catch_up_max :]
        for key, place, size, code in taken:
            if key not in self.queues:
                self.queues[key] = FoldedQueue(self._first[key])
            self.queues[key].data += UNIT.pack(place, size, code)
        if taken:
            for on_grown in self._on_grown:
                on_grown(list(dict.fromkeys(key for key, *_ in taken)))
        return self.missing_bytes + sum(size for _, _, size, _ in self._pending)

    def subscribe_grown(self, on_grown: Callable[[Sequence[QueueKey]], None]) -> None:
        self._on_grown.append(on_grown)

    @property
    def confirm_offset(self) -> int:
        return self.start + len(self.data)

    def record(self, offset: int, size: int) -> memoryview | None:
        self.reads.append(offset)
        if not self.min_offset <= offset or offset + size > self.confirm_offset:
            return None
        return memoryview(bytes(self.data[offset - self.start : offset - self.start + size]))

    def has(self, topic: bytes, queue_id: int) -> bool:
        return (topic, queue_id) in self._ends

    def max_offset(self, topic: bytes, queue_id: int) -> int:
        return self._ends.get((topic, queue_id), 0)


class FoldedStanding(msgspec.Struct):
    """A master that serves, until it is told otherwise."""

    is_master: bool = True
    cluster: str = "c"
    broker_name: str = "broker-a"
    master_epoch: MasterEpoch = MasterEpoch(1)
    serves_reads: bool = True
    gives_as_slave: bool = False
    knows_master: bool = True
    far_reader: int = 0
    wished: int | None = None
    """By the group that was asked about last."""

    def next_reader(self, wished: int, *, is_far: bool) -> int:
        self.wished = wished
        return self.far_reader if is_far else 0


class FoldedLink:
    """Keeps what was sent over it."""

    def __init__(self) -> None:
        self.peer = "192.0.2.1:5000"
        self.certificate: PeerCertificate | None = None
        self.answers: Counter[int] | None = Counter()
        self.frames: list[Frame] = []
        self.is_reading = True
        self.unread_bytes = 0

    @property
    def connection(self) -> RemotingConnection:
        return cast("RemotingConnection", self)

    def send_bytes(self, data: bytes) -> None:
        self.frames.append(decode_frame(data[4:]))
        if not self.is_reading:
            self.unread_bytes += len(data)

    def respond(
        self,
        request: Frame,
        code: int,
        *,
        body: bytes = b"",
        ext_fields: dict[str, str] | None = None,
        remark: str | None = None,
        version: int = 0,
    ) -> None:
        assert not request.is_one_way
        answer = Frame(
            code=code, opaque=request.opaque, flag=FLAG_RESPONSE, body=body, ext_fields=ext_fields, remark=remark,
            form=request.form, version=version,
        )  # fmt: skip
        self.send_bytes(encode_frame(answer))

    @property
    def last(self) -> Frame:
        return self.frames[-1]


def play(story: Callable[[SimLoop], Coroutine[Any, Any, None]], *, seconds_max: int = 600) -> None:
    """``story`` on a loop of virtual time."""
    kernel = Kernel(1)
    process = Process(Host(kernel, "here"), "here")
    faults: list[dict[str, Any]] = []
    loop = SimLoop(process, SimNet(kernel), address="192.0.2.7", on_fault=faults.append)
    task = loop.create_task(story(loop))
    if not kernel.run_until(seconds_max * SECOND, stop=task.done):
        pytest.fail(f"the story is not over after {seconds_max} s")
    task.result()

    assert faults == []
