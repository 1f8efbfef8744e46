"""
RocketMQ's commit-log record: bytes to values and back, in place (``docs/wire.md``, commit log).

Here: packing a draft into a map, walking from record to record, checking one, the blank at a segment's end. Not here:
a lazy view of one (``broker.protocol.record``), where a record goes (``commit_log``), files (``segment``).

Rule 1: ``pack`` copies a body once and makes no object of its own.
Rule 2: ``walk`` reads size and magic only, and is for bytes that were checked before; ``check_bodies`` is for whole
records that a peer sent; ``check`` reads everything, for recovery.
Rule 3: decoding nonsense raises ``RecordError`` and nothing else.
Rule 4: a page that a power cut took reads as zeros, and ``check`` finds it wherever it lies: in the body by the CRC; in
the lengths, because sizes must add up and no topic is empty; in topic and properties, because neither may hold a NUL.
Rule 5: the CRC of a body is computed here only, by ISA-L (``adr/0016``). What checks us from outside, the audit and the
tests, computes it by zlib.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import msgspec
from isal.isal_zlib import crc32

from rollcall_ha.broker.core.producers import ProducerStamp
from rollcall_ha.broker.protocol.record import (
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    SYS_FLAG_BORN_IPV6,
    SYS_FLAG_STORE_IPV6,
    RecordError,
    RecordView,
)
from rollcall_ha.broker.protocol.send import BatchItem
from rollcall_ha.ha.errors import ReceivedDamaged

MAGIC_COMMON: Final = b"\xda\xa3\x20"
"""The first bytes of both."""
MAGIC_AT: Final = 4
MAGIC_BLANK: Final = 0xCBD43194
BLANK_BYTES_MIN: Final = 8
"""Every segment keeps room for a blank at its end: size and magic."""

_IPV6_BITS: Final = SYS_FLAG_BORN_IPV6 | SYS_FLAG_STORE_IPV6
TRANSACTION_BITS: Final = 3 << 2
_NOT_QUEUED: Final = (1 << 2, 3 << 2)

PROPERTIES_BYTES_MAX: Final = 32_767
TOPIC_BYTES_MAX: Final = 255
"""RocketMQ accepts no longer topic; the format would."""
CRC_MASK: Final = 0x7FFFFFFF

_SIZE_MAGIC = struct.Struct(">II")
_FIXED_IPV4 = struct.Struct(">IIIiiqqiq8sq8siqI")
_HEAD = struct.Struct(">IIIiiqqiq")
_TAIL = struct.Struct(">iqI")
_INT64 = struct.Struct(">q")
_FLAG_BORN = struct.Struct(">iq")
_UINT16 = struct.Struct(">H")
_INDEX_FIELDS = struct.Struct(">I8xi4xq8xI16xq20xI")
"""From byte 0: size, queue id, queue offset, system flag, and, with IPv4 hosts, store time and the body's length."""


_BODY_FIELDS = struct.Struct(">I4xI16xqI44xI")
"""From byte 0: size, CRC of the body, physical offset, system flag, and, with IPv4 hosts, the body's length."""


class RecordDamaged(RecordError, ReceivedDamaged):
    """A record by its size and magic, and its body is another one than was stored."""


def takes_queue_offset(sys_flag: int) -> bool:
    """
    Whether a record has a place in its queue: prepared and rolled-back transaction records have none.

    Whoever counts a queue asks here, at append, receipt, cut and rebuild. Counted by the master alone, a number that
    was answered before a failover would be given to another message behind it.
    """
    return sys_flag & TRANSACTION_BITS not in _NOT_QUEUED


class Draft(msgspec.Struct):
    """
    A message that has no place in the log yet. Not frozen: built once per message on the hot path, used in the same
    turn.

    ``body`` may be a view into a receive buffer: it is copied into the map by ``append``, once.
    """

    topic: bytes
    queue_id: int
    body: bytes | memoryview
    properties: bytes = b""
    flag: int = 0
    sys_flag: int = 0
    born_at_ms: int = 0
    born_host: bytes = b"\x7f\x00\x00\x01\x00\x00\x00\x00"
    """4 or 16 bytes of IP and an int32 port; bit 4 of ``sys_flag`` says which."""
    reconsume_times: int = 0
    stamp: ProducerStamp | None = None
    """The producer's stamp in ``properties`` (R18); given so that nobody parses them twice."""

    @property
    def is_queued(self) -> bool:
        """Whether its record will have a place in its queue."""
        return takes_queue_offset(self.sys_flag)


# --- writing ---------------------------------------------------------------------------------------------------------


def record_bytes(draft: Draft, store_host: bytes) -> int:
    """
    Total size of the record that ``pack`` would write.

    Raises:
        RecordError: the format, or rule 4, cannot carry it.
    """
    topic, properties = draft.topic, draft.properties
    topic_bytes, properties_bytes, host_bytes = len(topic), len(properties), len(draft.born_host)
    if not 0 < topic_bytes <= TOPIC_BYTES_MAX:
        raise RecordError(f"a topic of {topic_bytes} bytes; 1 to {TOPIC_BYTES_MAX} are possible")
    if properties_bytes > PROPERTIES_BYTES_MAX:
        raise RecordError(f"properties of {properties_bytes} bytes; {PROPERTIES_BYTES_MAX} are possible")
    # The format would take a NUL, but a recovery could not tell it from a lost page: it would cut the log there (rule
    # 4).
    if 0 in topic or 0 in properties:
        raise RecordError("topic and properties must not contain a NUL character")
    if host_bytes != (20 if draft.sys_flag & SYS_FLAG_BORN_IPV6 else 8):
        raise RecordError(f"a born host of {host_bytes} bytes with system flag {draft.sys_flag:#x}")
    length_bytes = 1 if topic_bytes <= 127 else 2
    return 74 + host_bytes + len(store_host) + length_bytes + len(draft.body) + topic_bytes + properties_bytes


def pack(
    view: memoryview,
    at: int,
    draft: Draft,
    *,
    total_bytes: int,
    physical_offset: int,
    queue_offset: int,
    stored_at_ms: int,
    store_host: bytes,
) -> None:
    """
    Write a draft at ``view[at:]``, which has room for the ``total_bytes`` that ``record_bytes`` gave.

    Raises ``RecordError`` if a number is out of the range of its field; the bytes at ``at`` are then undefined.
    """
    body, topic, properties = draft.body, draft.topic, draft.properties
    body_bytes, topic_bytes = len(body), len(topic)
    magic = MAGIC_V1 if topic_bytes <= 127 else MAGIC_V2
    # By what is written, never by the draft: with the word of a client for an address of 16 bytes where 4 lie, the
    # lengths of this record no longer add up, for slaves and for the next recovery.
    sys_flag = draft.sys_flag & ~SYS_FLAG_STORE_IPV6 if len(store_host) == 8 else draft.sys_flag | SYS_FLAG_STORE_IPV6
    crc = crc32(body) & CRC_MASK
    try:
        if len(draft.born_host) == 8 and len(store_host) == 8:
            _FIXED_IPV4.pack_into(
                view, at, total_bytes, magic, crc, draft.queue_id, draft.flag, queue_offset, physical_offset, sys_flag,
                draft.born_at_ms, draft.born_host, stored_at_ms, store_host, draft.reconsume_times, 0, body_bytes,
            )  # fmt: skip
            position = at + 88
        else:
            _HEAD.pack_into(
                view, at, total_bytes, magic, crc, draft.queue_id, draft.flag, queue_offset, physical_offset, sys_flag,
                draft.born_at_ms,
            )  # fmt: skip
            rest = b"".join(
                (
                    draft.born_host,
                    _INT64.pack(stored_at_ms),
                    store_host,
                    _TAIL.pack(draft.reconsume_times, 0, body_bytes),
                )
            )
            view[at + 48 : at + 48 + len(rest)] = rest
            position = at + 48 + len(rest)
    except struct.error as error:
        raise RecordError(f"a number of this message does not fit its field: {error}") from error
    end = position + body_bytes
    view[position:end] = body
    lengths = _UINT16.pack(len(properties))
    if magic == MAGIC_V1:
        tail = b"%c%b%b%b" % (topic_bytes, topic, lengths, properties)
    else:
        tail = b"%b%b%b%b" % (_UINT16.pack(topic_bytes), topic, lengths, properties)
    view[end : end + len(tail)] = tail


def run_bytes(draft: Draft, messages: Sequence[BatchItem], store_host: bytes) -> int:
    """
    Total size of the records that ``pack_run`` would write.

    Raises ``RecordError``: the format, or rule 4, cannot carry one of them.
    """
    each = record_bytes(draft, store_host) - len(draft.properties) - len(draft.body)
    for message in messages:
        properties = message.properties
        if len(properties) > PROPERTIES_BYTES_MAX or 0 in properties:
            draft.properties = properties
            record_bytes(draft, store_host)
    return len(messages) * each + sum([len(message.body) + len(message.properties) for message in messages])


def pack_run(
    draft: Draft,
    messages: Sequence[BatchItem],
    *,
    physical_offset: int,
    queue_offset: int,
    stored_at_ms: int,
    store_host: bytes,
) -> tuple[bytes, list[int]]:
    """
    Records of one queue, one behind the other, as ``pack`` writes each, and the place of each.

    ``draft`` gives what they share, each message body, properties and flag. Raises ``RecordError`` as ``pack``.
    """
    topic, queue_id = draft.topic, draft.queue_id
    magic = MAGIC_V1 if len(topic) <= 127 else MAGIC_V2
    of_topic = (b"%c%b" if magic == MAGIC_V1 else b"\0%c%b") % (len(topic), topic)
    sys_flag = draft.sys_flag & ~SYS_FLAG_STORE_IPV6 if len(store_host) == 8 else draft.sys_flag | SYS_FLAG_STORE_IPV6
    parts: list[bytes] = []
    starts: list[int] = []
    at = physical_offset
    try:
        middle = b"".join(
            (
                _FLAG_BORN.pack(sys_flag, draft.born_at_ms),
                draft.born_host,
                _INT64.pack(stored_at_ms),
                store_host,
                _FLAG_BORN.pack(draft.reconsume_times, 0),
            )
        )
        head = struct.Struct(f">IIIiiqq{len(middle)}sI")
        rest_bytes = head.size + len(of_topic) + 2
        pack_head, pack_length = head.pack, _UINT16.pack
        for number, message in enumerate(messages, queue_offset):
            body, properties = message.body, message.properties
            body_bytes, properties_bytes = len(body), len(properties)
            total = rest_bytes + body_bytes + properties_bytes
            crc = crc32(body) & CRC_MASK
            parts += (
                pack_head(total, magic, crc, queue_id, message.flag, number, at, middle, body_bytes),
                body,
                of_topic,
                pack_length(properties_bytes),
                properties,
            )
            starts.append(at)
            at += total
    except struct.error as error:
        raise RecordError(f"a number of this message does not fit its field: {error}") from error
    return b"".join(parts), starts


def pack_blank(view: memoryview, at: int, space_bytes: int) -> None:
    """Fill ``space_bytes`` up to the segment's end: two words, then zeros that are already there."""
    _SIZE_MAGIC.pack_into(view, at, space_bytes, MAGIC_BLANK)


# --- walking ---------------------------------------------------------------------------------------------------------


def walk(view: memoryview, start: int, end: int, starts: list[int]) -> int:
    """
    Add the start of every whole record and blank of ``view[start:end]`` to ``starts``; returns where the last one ends.

    Behind it lies a record that is not whole yet, or nothing.

    Raises:
        RecordError: something that is neither a record nor a blank.
    """
    unpack = _SIZE_MAGIC.unpack_from
    while end - start >= 8:
        size, magic = unpack(view, start)
        if magic in (MAGIC_V1, MAGIC_V2):
            # A size of 0 with a good magic, from a peer or a torn page, would keep this loop here for ever.
            if size < RECORD_BYTES_MIN:
                raise RecordError(
                    f"a record of {size} bytes at {start} of its segment; {RECORD_BYTES_MIN} is the least"
                )
        elif magic != MAGIC_BLANK or size < BLANK_BYTES_MIN:
            raise RecordError(f"magic {magic:#010x} with size {size} at {start} of its segment is no record")
        if size > end - start:
            break  # the rest of this record is still to come; half of it must not count as here
        starts.append(start)
        start += size
    return start


def check_bodies(view: memoryview, starts: list[int], base: int) -> None:
    """
    Check place and body of the whole records at ``starts``, as ``walk`` gave them; the segment begins at ``base``.

    Raises ``RecordDamaged``, ``RecordError``.
    """
    # Padding ends its segment. One that does not is no record, and is found as such.
    if starts and blank_bytes(view, starts[-1]) == len(view) - starts[-1]:
        starts = starts[:-1]
    unpack = _BODY_FIELDS.unpack_from
    for at in starts:
        size, crc, physical_offset, sys_flag, body_bytes = unpack(view, at)
        if sys_flag & _IPV6_BITS:
            check(view, at, base + at)
            continue
        body_at = at + 88
        if physical_offset != base + at or body_bytes > size - RECORD_BYTES_MIN:
            raise RecordDamaged(
                f"the record at {base + at} says that it is at {physical_offset}, with {body_bytes} of {size} bytes"
            )
        if crc32(view[body_at : body_at + body_bytes]) & CRC_MASK != crc:
            raise RecordDamaged(f"the body of the record at {base + at} does not match its CRC {crc:#010x}")


def blank_bytes(view: memoryview, at: int) -> int | None:
    """Size of the padding to the segment's end that begins at ``at``; None if something else does."""
    if len(view) - at < BLANK_BYTES_MIN:
        return None
    size, magic = _SIZE_MAGIC.unpack_from(view, at)
    return int(size) if magic == MAGIC_BLANK else None


def index_fields(view: memoryview, at: int) -> tuple[bytes, int, int, bool, bytes, int, int]:
    """
    Fields for the log's index and the folds: topic, queue id, queue offset, whether it has a place in a queue,
    properties, store time (ms), size.

    Raises ``RecordError``.
    """
    size, queue_id, queue_offset, sys_flag, stored_at_ms, body_bytes = _INDEX_FIELDS.unpack_from(view, at)
    is_queued = takes_queue_offset(sys_flag)
    if sys_flag & _IPV6_BITS or view[at + 7] != MAGIC_V1 & 0xFF:
        record = RecordView(view, at)
        return record.topic, queue_id, queue_offset, is_queued, record.properties, record.stored_at_ms, size
    # ``walk`` trusted the total size; the lengths inside come from a peer or a disk and must stay within it, or a slice
    # reaches into the next record and its topic becomes a queue of this one.
    if 89 + body_bytes >= size:
        raise RecordError(f"a body of {body_bytes} bytes in a record of {size}")
    # One copy out of the map: parts of bytes are cut faster than parts of a view.
    rest = bytes(view[at + 88 + body_bytes : at + size])
    properties_at = rest[0] + 3
    if properties_at > len(rest):
        raise RecordError(f"a topic of {rest[0]} bytes does not fit into its record")
    return rest[1 : properties_at - 2], queue_id, queue_offset, is_queued, rest[properties_at:], stored_at_ms, size


def check_body(record: RecordView) -> None:
    """Raises ``RecordDamaged``: the body is another one than was stored."""
    if crc32(record.body) & CRC_MASK != record.body_crc:
        raise RecordDamaged(
            f"the body of the record at {record.physical_offset} does not match its CRC {record.body_crc:#010x}"
        )


def check(view: memoryview, at: int, physical_offset: int) -> int:
    """
    Size of the record at ``at``, everything of it verified (rule 4).

    Raises:
        RecordError: it is not a whole, undamaged record that belongs at ``physical_offset``.
    """
    record = RecordView(view, at)
    # A whole record of the file's earlier life has a good CRC; it says another place, and is no record of this log.
    if record.physical_offset != physical_offset:
        raise RecordError(f"a record that says it is at {record.physical_offset} lies at {physical_offset}")
    check_body(record)
    topic = record.topic
    if not topic or b"\0" in topic or b"\0" in record.properties:
        raise RecordError(f"topic or properties of the record at {physical_offset} are damaged")
    return int(record.size_bytes)
