"""
What lies in the files of a replica, read without any code of ``broker.log``; and the messages that producers send.

Records have one size, which is the nasty case of S23: behind a cut, the old tail lies at record boundaries with good
CRCs. Here: ``ReplicaDisk``, which the oracle and the laws look at. Not here: the log itself, which is the product's.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import struct
import zlib
from dataclasses import dataclass

from rollcall_ha.broker.core.producers import ProducerStamp
from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.broker.log.record import Draft, record_bytes
from rollcall_ha.broker.protocol.stamp import STAMP_PROPERTY, format_stamp
from rollcall_ha.epoch.codec import EpochFileCorrupt, decode_history
from rollcall_ha.epoch.history import EpochHistory
from rollcall_ha.epoch.model import LogOffset
from rollcall_ha.epoch.store import BACKUP_SUFFIX, EPOCH_FILE_NAME
from tests.support.sim_files import SimFiles

RECORD_BYTES = 192
STORE_HOST = bytes(8)
LOG_FOLDER = "commitlog"
_HEAD = struct.Struct(">II I 8x q q I")
"""Size, magic, CRC of the body, place in the queue, the record's own offset, and system flag."""
_MAGIC, _BLANK = 0xDAA320A7, 0xCBD43194
_BODY_AT = 88
_TOLD = re.compile(rb"ROLLCALL_SYS_QUEUES..(?:[^\x02]*\x02)*?QUEUES\x01(\[[^\x01\x02]*\])\x02", re.DOTALL)
PREPARED = 1 << 2
"""System flag of a transaction's half message; with the bit above it, of one that was rolled back."""


def draft_of(stamp: ProducerStamp, value: int) -> Draft:
    """The message ``value``: its record has ``RECORD_BYTES``."""
    text = format_stamp(stamp.producer_id, stamp.producer_epoch, stamp.sequence)
    properties = f"{STAMP_PROPERTY}\x01{text}\x02".encode()
    draft = Draft(topic=b"t", queue_id=0, body=value.to_bytes(8, "big"), properties=properties, stamp=stamp)
    draft.body = value.to_bytes(8, "big").ljust(8 + RECORD_BYTES - record_bytes(draft, STORE_HOST), b".")
    return draft


@dataclass(frozen=True, slots=True)
class Record:
    """One message as it lies in a log."""

    offset: int
    size: int
    value: int
    queue_offset: int
    is_queued: bool
    topic: bytes = b"t"
    queue_id: int = 0
    stored_at_ms: int = 0
    delivers: bytes = b""
    """Of a delivery: the place of the record that waited for it."""

    @property
    def end(self) -> int:
        """First offset behind it."""
        return self.offset + self.size


class ReplicaDisk:
    """The log and the epochs of one replica, as its present or its next process finds them."""

    def __init__(self, files: SimFiles) -> None:
        self.files = files
        self.name = files.name
        self.log: CommitLog | None = None
        """Of the process that lives, once it is open; set and reset by the broker's life."""
        self.lost_bytes = 0
        """Of the log, by all faults of the disk, since the owner set it to 0."""
        self.was_replaced = False
        """An old image was put back, or the disk was emptied; the owner resets it."""
        self.has_old_births = False
        """The image that was put back last was a volume's: only what the set is known to have confirmed gives it away."""
        self.was_harmed = False
        """A fault may have taken something since the replica last became a member; ``orders``."""
        self.has_failed_sync = False
        """And no process has registered since: a set that it becomes a member of does not know it yet."""
        self.rotten: list[Record] = []
        """A bit of their bodies was flipped: their place and number are known, their bytes differ from any other copy."""
        self.is_gone = False
        """Its machine was replaced: nothing of it is left, for ever."""
        self._walked: tuple[int, tuple[Record, ...], int] | None = None

    def begin(self) -> int:
        """First byte of the log; 0 if it has none."""
        return self.log.min_offset if self.log is not None else next(iter(self._bases()), 0)

    def size(self) -> int:
        """End of the log, bytes of a record that is not whole included while a process receives them."""
        return self.end_on_disk() if self.log is None else self.log.max_offset

    def end_on_disk(self) -> int:
        """End of the last whole and good record."""
        return self._walk()[1]

    def records(self) -> tuple[Record, ...]:
        """All whole and good records."""
        return self._walk()[0]

    def read_at(self, start: int, length: int) -> bytes:
        """Bytes of the log."""
        parts = []
        end = start + length
        while self.log is not None and start < end:
            region = self.log.region(LogOffset(start), end - start)
            assert region is not None, f"[{start}, {end}) is not in the log of {self.name}"
            parts.append(os.pread(region.fd, region.length, region.position))
            start += region.length
        for base, content in self._segments() if start < end else ():
            if base < end and start < base + len(content):
                parts.append(content[max(start - base, 0) : end - base])
        return b"".join(parts)

    def is_rotten_at(self, offset: int) -> bool:
        """Whether this byte is part of a rotten record."""
        return any(record.offset <= offset < record.end for record in self.rotten)

    def look_for_rot(self) -> None:
        """Of the rotten records those that are there still: a cut, a copy or another disk may have ended it."""
        assert self.log is not None
        begin, end = self.log.min_offset, self.log.max_offset
        there = [record for record in self.rotten if begin <= record.offset and record.end <= end]
        self.rotten = [record for record in there if not _is_sound(self.read_at(record.offset, record.size))]

    def place_of(self, record: Record) -> tuple[str, int]:
        """File and position of a byte of its body that is not its number."""
        names = [path for path in self.files.paths() if path.startswith(f"{LOG_FOLDER}/") and path[-20:].isdecimal()]
        path = max(path for path in names if int(path[-20:]) <= record.offset)
        return path, record.offset - int(path[-20:]) + _BODY_AT + 8

    def history(self) -> EpochHistory:
        """By the epoch file, or its backup; empty if there is none."""
        for name in (EPOCH_FILE_NAME, EPOCH_FILE_NAME + BACKUP_SUFFIX):
            with contextlib.suppress(FileNotFoundError, EpochFileCorrupt):
                return decode_history((self.files.folder / name).read_bytes())
        return EpochHistory()

    def told_since(self, end: int) -> int:
        """As of where the records below ``end`` say last, as a whole, where all queues go on; -1: nowhere."""
        found = -1
        for base, content in self._segments():
            for told in _TOLD.finditer(content):
                since, number, is_last, _ = json.loads(told[1])
                # Two or three queues are one record.
                if number == 0 and is_last and base + told.end() <= end:
                    found = max(found, since)
        return found

    def segment_count(self) -> int:
        """Files of the log, the one that is made ahead included."""
        return len(self._bases())

    def _bases(self) -> list[int]:
        folder = self.files.folder / LOG_FOLDER
        if self.is_gone or not folder.is_dir():
            return []
        return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal())

    def _segments(self) -> list[tuple[int, bytes]]:
        folder = self.files.folder / LOG_FOLDER
        return [(base, (folder / f"{base:020}").read_bytes()) for base in self._bases()]

    def _walk(self) -> tuple[tuple[Record, ...], int]:
        if self.log is None and not self.is_gone and self._walked is not None and self._walked[0] == self.files.version:
            return self._walked[1], self._walked[2]
        found: list[Record] = []
        end = None
        for base, content in self._segments():
            if end not in (None, base):
                break
            end = _walk_segment(base, content, found, {record.offset for record in self.rotten})
        # A process that lives appends through a map, which changes no version.
        self._walked = (self.files.version, tuple(found), end or 0) if self.log is None else None
        return tuple(found), end or 0


def _is_sound(record: bytes) -> bool:
    (body_bytes,) = struct.unpack_from(">I", record, _BODY_AT - 4)
    return bool(zlib.crc32(record[_BODY_AT : _BODY_AT + body_bytes]) & 0x7FFFFFFF == _HEAD.unpack_from(record)[2])


def _is_own(content: bytes, at: int) -> bool:
    """Whether the record is one that a broker has written for itself."""
    topic_at = at + _BODY_AT + int.from_bytes(content[at + _BODY_AT - 4 : at + _BODY_AT], "big") + 1
    return content.startswith(b"ROLLCALL_SYS_", topic_at)


def _named(record: bytes) -> tuple[bytes, int, int, bytes]:
    """Topic, queue and store time, and the place that it delivers."""
    (queue_id,), (stored_at_ms,) = struct.unpack_from(">i", record, 12), struct.unpack_from(">q", record, 56)
    (body_bytes,) = struct.unpack_from(">I", record, _BODY_AT - 4)
    topic_at = _BODY_AT + body_bytes + 1
    topic = record[topic_at : topic_at + record[topic_at - 1]]
    mark = re.search(rb"\x02ROLLCALL_DELIVERED\x01([0-9]+:[0-9]+)\x02", record[topic_at + len(topic) :])
    return topic, queue_id, stored_at_ms, mark[1] if mark is not None else b""


def _walk_segment(base: int, content: bytes, found: list[Record], rotten: set[int]) -> int:
    """Add the records of one segment, good or known as rotten; where they end: behind it, if a blank fills the rest."""
    at = 0
    while at + _BODY_AT <= len(content):
        size, magic, _crc, place, offset, sys_flag = _HEAD.unpack_from(content, at)
        if magic == _BLANK:
            return base + len(content)
        is_good = magic == _MAGIC and offset == base + at and at + size <= len(content)
        if not is_good or content[at + size - 1] != 2:
            return base + at
        if base + at not in rotten and not _is_sound(content[at : at + size]):
            return base + at
        value = int.from_bytes(content[at + _BODY_AT : at + _BODY_AT + 8], "big")
        if not _is_own(content, at):
            names = _named(content[at : at + size])
            found.append(Record(base + at, size, value, place, not sys_flag & PREPARED, *names))
        at += size
    if struct.unpack_from(">II", content.ljust(at + 8, b"\0"), at)[1] == _BLANK:
        return base + len(content)
    return base + at
