"""
The five frames of Kafka's protocol that the bench speaks, by hand: a client of one attempt, and three questions.

Here: bytes. Not here: links, processes (``kafka``). https://kafka.apache.org/protocol names the fields.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from tests.perf.field.links import Link

PRODUCE, METADATA, CREATE_TOPICS, DESCRIBE_QUORUM = 0, 3, 19, 55
ACKS_ALL = -1
ALREADY_EXISTS = 36
SERVER_MS_MAX = 30_000
"""How long a broker may wait for its replicas; the client's link ends long before."""
QUORUM_TOPIC = b"__cluster_metadata"
_CASTAGNOLI = 0x82F63B78


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a broker says of the cluster, and of partition 0 of the topic that it was asked for."""

    brokers: tuple[int, ...]
    leader: int
    """-1: none is known."""
    in_sync: tuple[int, ...]


class _Reader:
    """Fields one after the other. Raises ``ConnectionAbortedError`` beyond the end."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def number(self, form: str) -> int:
        size = struct.calcsize(f">{form}")
        (found,) = struct.unpack(f">{form}", self.take(size))
        return int(found)

    def take(self, count: int) -> bytes:
        found = self._data[self._at : self._at + count]
        if count < 0 or len(found) < count:
            raise ConnectionAbortedError(f"an answer of {len(self._data)} bytes is shorter than its fields")
        self._at += count
        return found

    def text(self) -> bytes:
        """A text with its length before it; null is empty."""
        return self.take(max(0, self.number("h")))

    def numbers(self) -> tuple[int, ...]:
        return tuple(self.number("i") for _ in range(self.number("i")))


def ask(link: Link, request: bytes) -> bytes:
    """The body of the answer, behind its number. Raises ``OSError``."""
    link.send(request)
    (size,) = struct.unpack(">i", link.exactly(4))
    return link.exactly(size)[4:]


def _request(key: int, version: int, body: bytes, *, is_flexible: bool = False) -> bytes:
    """With the number 1: one question is under way on a link at a time."""
    head = struct.pack(">hhi", key, version, 1) + _text("field") + (b"\0" if is_flexible else b"")
    return struct.pack(">i", len(head) + len(body)) + head + body


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def _varint(value: int) -> bytes:
    """Of a number that is not below zero, in zigzag."""
    left, found = value << 1, bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((*found, left))


def crc32c(data: bytes) -> int:
    """Bit by bit: it is made once for each client."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (_CASTAGNOLI if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def produce(topic: str, body: bytes) -> bytes:
    """One record to partition 0, acknowledged by all; the same bytes each time, by a producer without a number."""
    # Attributes, no difference of time and of offset, no key, the value, no headers.
    record = b"\0" + _varint(0) + _varint(0) + b"\x01" + _varint(len(body)) + body + _varint(0)
    # Attributes, last offset, both times, producer id, its epoch, its sequence, how many records.
    summed = struct.pack(">hiqqqhii", 0, 0, 0, 0, -1, -1, -1, 1) + _varint(len(record)) + record
    counted = struct.pack(">ibI", -1, 2, crc32c(summed)) + summed
    batch = struct.pack(">qi", 0, len(counted)) + counted
    partition = struct.pack(">ii", 0, len(batch)) + batch
    head = struct.pack(">hhi", -1, ACKS_ALL, SERVER_MS_MAX)
    return _request(PRODUCE, 3, head + _array([_text(topic) + _array([partition])]))


def _array(items: Sequence[bytes]) -> bytes:
    return struct.pack(">i", len(items)) + b"".join(items)


def produced(answer: bytes, topic: str) -> int:
    """The error of the one partition; 0: it is acknowledged."""
    reader = _Reader(answer)
    if (reader.number("i"), reader.text(), reader.number("i"), reader.number("i")) != (1, topic.encode(), 1, 0):
        raise ConnectionAbortedError("an answer that is not about the one partition")
    return reader.number("h")


def create_topic(topic: str, replicas: int) -> bytes:
    """The request that makes a topic of one partition."""
    one = _text(topic) + struct.pack(">ih", 1, replicas) + _array([]) + _array([])
    return _request(CREATE_TOPICS, 2, _array([one]) + struct.pack(">ib", SERVER_MS_MAX, 0))


def created(answer: bytes, topic: str) -> bool:
    """Whether the topic is there now."""
    reader = _Reader(answer)
    if (reader.number("i"), reader.number("i"), reader.text()) != (0, 1, topic.encode()):
        raise ConnectionAbortedError("an answer that is not about the one topic, or is throttled")
    return reader.number("h") in (0, ALREADY_EXISTS)


def metadata(topic: str) -> bytes:
    return _request(METADATA, 1, _array([_text(topic)]))


def seen(answer: bytes) -> Seen:
    """The answer to ``metadata``."""
    reader = _Reader(answer)
    brokers = []
    for _ in range(reader.number("i")):
        brokers.append(reader.number("i"))
        reader.text()
        reader.number("i")
        reader.text()
    reader.number("i")
    leader = -1
    in_sync: tuple[int, ...] = ()
    for _ in range(reader.number("i")):
        reader.number("h")
        reader.text()
        reader.number("b")
        for _ in range(reader.number("i")):
            reader.number("h")
            reader.number("i")
            leader = reader.number("i")
            reader.numbers()
            in_sync = reader.numbers()
    return Seen(brokers=tuple(brokers), leader=leader, in_sync=in_sync)


def describe_quorum() -> bytes:
    """Who leads the controllers; in the compact form, whose counts are one more than what they count."""
    partition = struct.pack(">ib", 0, 0)
    topic = bytes([len(QUORUM_TOPIC) + 1]) + QUORUM_TOPIC + b"\x02" + partition + b"\0"
    return _request(DESCRIBE_QUORUM, 0, b"\x02" + topic + b"\0", is_flexible=True)


def quorum_leader(answer: bytes) -> int:
    """The answer to ``describe_quorum``; -1: none is known."""
    reader = _Reader(answer)
    reader.take(1)
    error = reader.number("h")
    if error or reader.number("b") != 2:
        raise ConnectionAbortedError(f"no answer about the quorum: error {error}")
    reader.take(reader.number("b") - 1)
    reader.number("b")
    reader.number("i")
    error = reader.number("h")
    return -1 if error else reader.number("i")
