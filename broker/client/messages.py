"""
Messages as a consumer gets them.

Here: the records of an answer to messages: bodies inflated, batches of Java's unwrapped, properties. Not here: the
record's format (``broker.protocol.record``), pulls.

Rule 1: nothing that a log holds stops a consumer. A body that cannot be inflated here, or not within the limits of a
body and of an answer, is given as it is stored, and ``stored_as`` says how.
Rule 2: a broker filters tags by their hash alone: the text is compared here.
Rule 3: bytes that are no record raise ``RecordError``.
"""

from __future__ import annotations

import zlib
from collections.abc import Container
from typing import Final

import msgspec

from rollcall_ha.broker.protocol.consumers import MessageQueue
from rollcall_ha.broker.protocol.properties import decode_properties
from rollcall_ha.broker.protocol.record import RecordView
from rollcall_ha.broker.protocol.send import SendError, decode_batch
from rollcall_ha.broker.protocol.topics import RETRY_PREFIX

BODY_BYTES_MAX: Final = 32 * 1024 * 1024
"""Of an inflated body: a record of 100 bytes may say that it is gigabytes."""
INFLATED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of one answer; the body that passes it is the last one that is inflated."""
_COMPRESSED: Final = 1
_INNER_BATCH: Final = 3 << 6
_KINDS: Final = {1: "lz4", 2: "zstd"}


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a topic."""

    topic: str
    """That it was sent to; of a retry, that of its first delivery."""
    queue: MessageQueue
    """Where it was read: of a retry, a queue of ``%RETRY%GROUP``."""
    queue_offset: int
    body: bytes
    properties: dict[str, str]
    born_at_ms: int
    stored_at_ms: int
    message_id: str
    """Of the record: host and port of the broker that took it, and its place."""
    log_offset: int
    reconsume_times: int
    stored_as: str = ""
    """Empty; or what ``body`` still is: lz4 or zstd; zlib, if it is damaged or beyond a limit; a batch, if damaged."""
    size_bytes: int
    """Of its record, or of ``body``, where that is more."""

    @property
    def tag(self) -> str:
        return self.properties.get("TAGS", "")

    @property
    def keys(self) -> tuple[str, ...]:
        """Those by which brokers find it."""
        return tuple(self.properties.get("KEYS", "").split())


def decode_messages(data: bytes, queue: MessageQueue, tags: Container[str] | None = None) -> list[Message]:
    """All messages of an answer that have one of ``tags``, None: all. Raises ``RecordError``."""
    found: list[Message] = []
    view, at, left_bytes = memoryview(data), 0, INFLATED_BYTES_MAX
    while at < len(data):
        record = RecordView(view, at)
        at += record.size_bytes
        body, stored_as = _inflated(bytes(record.body), record.sys_flag, left_bytes)
        if record.sys_flag & _COMPRESSED and not stored_as:
            left_bytes -= len(body)
        found += _messages_of(record, queue, body, stored_as)
    return found if tags is None else [message for message in found if message.tag in tags]


def _messages_of(record: RecordView, queue: MessageQueue, body: bytes, stored_as: str) -> list[Message]:
    properties = decode_properties(record.properties)
    # Its queue is that of the retries; what its reader asked for is the topic of the first delivery.
    topic = properties.get("RETRY_TOPIC", queue.topic) if queue.topic.startswith(RETRY_PREFIX) else queue.topic
    message = Message(
        topic=topic,
        queue=queue,
        queue_offset=record.queue_offset,
        body=body,
        properties=properties,
        born_at_ms=record.born_at_ms,
        stored_at_ms=record.stored_at_ms,
        message_id=record.store_host.hex().upper() + f"{record.physical_offset:016X}",
        log_offset=record.physical_offset,
        reconsume_times=record.reconsume_times,
        stored_as=stored_as,
        size_bytes=max(record.size_bytes, len(body)),
    )
    is_batch = record.sys_flag & _INNER_BATCH == _INNER_BATCH
    return _unwrapped(message) if is_batch and not stored_as else [message]


def _inflated(body: bytes, flags: int, left_bytes: int) -> tuple[bytes, str]:
    """And how it is stored still; ``left_bytes`` 0 or less: its answer has inflated enough."""
    if not flags & _COMPRESSED:
        return body, ""
    kind = flags >> 8 & 7
    if kind in _KINDS:
        return body, _KINDS[kind]
    if left_bytes <= 0:
        return body, "zlib"
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(body, BODY_BYTES_MAX)
    except zlib.error:
        return body, "zlib"
    return (found, "") if inflater.eof else (body, "zlib")


def _unwrapped(outer: Message) -> list[Message]:
    """The messages of a batch that Java stored as one record; each has a queue offset."""
    try:
        items = decode_batch(memoryview(outer.body))
    except SendError:
        return [msgspec.structs.replace(outer, stored_as="batch")]
    return [
        msgspec.structs.replace(
            outer,
            queue_offset=outer.queue_offset + number,
            body=bytes(item.body),
            properties=outer.properties | decode_properties(item.properties),
            size_bytes=max(outer.size_bytes // len(items), len(item.body)),
        )
        for number, item in enumerate(items)
    ]
