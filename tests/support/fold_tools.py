"""Folds of logs on a temporary disk, and what they must hold, by readers that know docs/wire.md only."""

from __future__ import annotations

import re
import struct
from pathlib import Path

from rollcall_ha.broker.folds.consume_queue import UNIT, UNIT_BYTES, queue_folder
from rollcall_ha.broker.folds.dispatcher import Dispatcher
from rollcall_ha.broker.folds.ports import FoldSizes
from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.broker.protocol.delays import SCHEDULE_TOPIC, delivered_place
from rollcall_ha.epoch.model import LogOffset
from tests.support.log_tools import PlainRecord, read_by_the_document

SIZES = FoldSizes(index_slots=100, index_units=1_000)
Units = dict[tuple[bytes, int], list[tuple[int, int]]]
"""(place, size) of every unit of a queue, in order."""


def open_folds(root: Path, log: CommitLog) -> Dispatcher:
    """Queues as large as RocketMQ's, and a small index."""
    return Dispatcher.open(root, log, SIZES)


def confirm_all(log: CommitLog) -> None:
    log.note_confirm(log.whole_offset, LogOffset(0))


def take_all(folds: Dispatcher) -> None:
    """Turns until all is in."""
    while folds.catch_up():
        assert not folds.trouble, folds.trouble


def mark(folds: Dispatcher) -> None:
    """What the thread of marks does."""
    folds._write_mark(*folds._gather())


def trim(folds: Dispatcher) -> None:
    """What follows when the log has lost its front, in one go."""
    queues, start = folds._queues, folds.min_offset
    for key, first in queues.firsts(start):
        queue = queues.find(key)
        assert queue is not None
        if queue.trim(first, start):
            folds._to_erase[key] = queue.min_offset
    folds.index.trim(start)
    mark(folds)
    queues.erase_below(folds._to_erase)


def units_of(folds: Dispatcher) -> Units:
    """What readers see."""
    found: Units = {}
    for key, queue in folds._queues:
        raw, at = b"", queue.min_offset
        while at < queue.max_offset:
            part = queue.units(at, 1_000_000)
            assert part, f"nothing of {key} at {at}"
            raw, at = raw + part, at + len(part) // UNIT_BYTES
        found[key] = [(place, size) for place, size, _ in UNIT.iter_unpack(raw)]
    return found


def units_in_files(root: Path, key: tuple[bytes, int]) -> list[tuple[int, int, int]]:
    """What a tool of RocketMQ reads: from the first byte on, until a unit says size 0."""
    found: list[tuple[int, int, int]] = []
    for path in sorted(queue_folder(root, *key).iterdir()):
        for place, size, code in struct.iter_unpack(">qiq", path.read_bytes()):
            if size == 0:
                return found
            found.append((place, size, code))
    return found


def expected(root: Path, end: int, *, start: int = 0) -> Units:
    """By the records of the log's files below ``end``."""
    found: Units = {}
    for record in read_by_the_document(root / "commitlog"):
        if start <= record.offset and record.offset + record.size <= end:
            found.setdefault((record.topic, record.queue_id), []).append((record.offset, record.size))
    return found


def delivered(root: Path, end: int) -> list[int]:
    """By level, from 0: the next place to deliver, by the records of the log's files below ``end``."""
    following = [0] * 18
    for record in read_by_the_document(root / "commitlog"):
        found = re.search(rb"(?:\A|\x02)ROLLCALL_DELIVERED\x01(\d+):(\d+)\x02", record.properties)
        if found is not None and record.offset + record.size <= end:
            following[int(found[1]) - 1] = max(following[int(found[1]) - 1], int(found[2]) + 1)
    return following


def waiting_in(root: Path) -> set[tuple[int, int]]:
    """Level, from 0, and place of the delayed messages that no record of the log delivers."""
    waits: set[tuple[int, int]] = set()
    for record in read_by_the_document(root / "commitlog"):
        if record.topic == SCHEDULE_TOPIC:
            waits.add((record.queue_id, record.queue_offset))
        elif (place := delivered_place(record.properties)) is not None:
            waits.discard((place[0] - 1, place[1]))
    return waits


def waiting_by(folds: Dispatcher) -> set[tuple[int, int]]:
    """As ``waiting_in``: what a master would deliver by these folds."""
    waits: set[tuple[int, int]] = set()
    for level, following in enumerate(folds.delivered.following):
        queue = folds.queue(SCHEDULE_TOPIC, level)
        if queue is None:
            continue
        for at in range(max(following, queue.min_offset), queue.max_offset):
            if UNIT.unpack(queue.units(at, 1))[0] >= folds.min_offset:
                waits.add((level, at))
    return waits


def of_queue(records: list[PlainRecord], key: tuple[bytes, int]) -> list[PlainRecord]:
    return [each for each in records if (each.topic, each.queue_id) == key]
