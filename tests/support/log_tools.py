"""Logs on a temporary disk, and a reader of them that knows docs/wire.md only (imports nothing of ``broker``)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, NoReturn

from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.broker.log.record import Draft
from rollcall_ha.broker.log.told_queues import TOPIC, parts_of
from rollcall_ha.controller.contract.ids import FlushMode
from rollcall_ha.epoch.model import LogOffset

STORE_HOST = b"\x0a\x00\x00\x01" + (10911).to_bytes(4, "big")
SEGMENT_BYTES = 16 * 1024


def refuse_to_stop(error: BaseException) -> NoReturn:
    """A test's ``stop_process``: a sync failed where none should."""
    raise AssertionError("a sync failed") from error


def open_log(
    root: Path,
    *,
    segment_bytes: int = SEGMENT_BYTES,
    flush_mode: FlushMode = FlushMode.ASYNC,
    before_step: Callable[[str], None] = lambda _step: None,
    on_loss: Callable[[], None] = lambda: None,
    boot_id: str = "",
) -> CommitLog:
    """A log whose flush thread hands over directly."""
    return CommitLog.open(
        root,
        segment_bytes=segment_bytes,
        flush_mode=flush_mode,
        store_host=STORE_HOST,
        stop_process=refuse_to_stop,
        post=lambda call: call(),
        flush_interval_ms=10_000,
        now_ms=lambda: 1_700_000_000_000,
        before_step=before_step,
        on_loss=on_loss,
        boot_id=boot_id,
    )


def draft(body: bytes = b"hello", *, topic: bytes = b"TopicA", queue_id: int = 0, properties: bytes = b"") -> Draft:
    """A message."""
    return Draft(topic=topic, queue_id=queue_id, body=body, properties=properties, born_at_ms=1_700_000_000_000)


def append_all(log: CommitLog, *drafts: Draft) -> list[tuple[int, int]]:
    """One run."""
    log.begin_run(stored_at_ms=1_700_000_000_001)
    places = [log.append(each) for each in drafts]
    log.end_run()
    return places


def settle(log: CommitLog) -> None:
    """Everything is confirmed, synced and told to the disk."""
    log.note_confirm(log.whole_offset, LogOffset(0))
    log._sync()
    log._do_chores()


def tell_queues(log: CommitLog) -> None:
    """As a master does before its log loses its front."""
    parts = list(parts_of(list(log.queues.rows()), log.max_offset))
    append_all(log, *(draft(b"", topic=TOPIC, properties=properties) for properties in parts))


def log_bytes(log: CommitLog) -> bytes:
    """Everything between both ends."""
    return b"".join(
        bytes(segment.view[: min(segment.size, log.max_offset - segment.base)])
        for segment in log._files.segments
        if segment.base < log.max_offset
    )


def never_synced(log: CommitLog) -> CommitLog:
    """From here on nothing is synced: whatever is appended may be lost in a power cut, page by page."""
    flusher = log._flusher
    assert flusher is not None
    flusher.stop()
    return log


def crash(log: CommitLog) -> None:
    """What a killed process leaves: files as they are, nothing synced, no mark."""
    log.close(is_clean=False)


class PlainRecord(NamedTuple):
    """What docs/wire.md says about one record."""

    offset: int
    size: int
    topic: bytes
    queue_id: int
    queue_offset: int
    body: bytes
    properties: bytes


def read_by_the_document(folder: Path) -> list[PlainRecord]:
    """Every record of a commit-log folder by docs/wire.md (log records), IPv4 hosts only."""
    found: list[PlainRecord] = []
    for path in sorted(path for path in folder.iterdir() if path.name.isdecimal()):
        base, data, at = int(path.name), path.read_bytes(), 0
        while at + 8 <= len(data):
            size, magic = struct.unpack_from(">iI", data, at)
            if magic in (0, 0xCBD43194):
                break
            assert magic in (0xDAA320A7, 0xDAA320AB), f"magic {magic:#x} at {base + at}"
            crc, queue_id, _flag, queue_offset, physical, _sys = struct.unpack_from(">iiiqqi", data, at + 8)
            assert physical == base + at
            (body_bytes,) = struct.unpack_from(">i", data, at + 84)
            position = at + 88
            body = data[position : position + body_bytes]
            assert zlib.crc32(body) & 0x7FFFFFFF == crc
            position += body_bytes
            if magic == 0xDAA320A7:
                topic_bytes, position = data[position], position + 1
            else:
                (topic_bytes,), position = struct.unpack_from(">h", data, position), position + 2
            topic = data[position : position + topic_bytes]
            position += topic_bytes
            (properties_bytes,) = struct.unpack_from(">h", data, position)
            properties = data[position + 2 : position + 2 + properties_bytes]
            assert position + 2 + properties_bytes == at + size
            found.append(PlainRecord(base + at, size, topic, queue_id, queue_offset, body, properties))
            at += size
    return found
