"""Records of an answer as messages: compressed ones, batches of Java's, retries, IPv6, nonsense."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollcall_ha.broker.client import messages as client_messages
from rollcall_ha.broker.client.messages import BODY_BYTES_MAX, Message, decode_messages
from rollcall_ha.broker.log.record import Draft, pack, record_bytes
from rollcall_ha.broker.protocol.consumers import MessageQueue
from rollcall_ha.broker.protocol.record import RecordError

HOST = bytes([10, 0, 0, 5]) + (10911).to_bytes(4, "big")
QUEUE = MessageQueue("b", 3, "T")


def record(
    body: bytes, *, flags: int = 0, host: bytes = HOST, reconsume: int = 0, offset: int = 7, **properties: str
) -> bytes:
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
    draft = Draft(
        topic=b"T", queue_id=3, body=body, properties=text, sys_flag=flags, born_at_ms=11, reconsume_times=reconsume
    )
    size = record_bytes(draft, host)
    data = bytearray(size)
    pack(
        memoryview(data), 0, draft, total_bytes=size, physical_offset=0x1000, queue_offset=offset, stored_at_ms=22,
        store_host=host,
    )  # fmt: skip
    return bytes(data)


def only(data: bytes, queue: MessageQueue = QUEUE) -> Message:
    (found,) = decode_messages(data, queue)
    return found


def test_a_record_becomes_a_message_with_all_its_facts() -> None:
    data = record(b"hello", TAGS="a", KEYS="k1 k2", colour="red")
    found = only(data)
    assert found == Message(
        topic="T", queue=QUEUE, queue_offset=7, body=b"hello", properties={"TAGS": "a", "KEYS": "k1 k2", "colour": "red"},
        born_at_ms=11, stored_at_ms=22, message_id="0A00000500002A9F0000000000001000", log_offset=0x1000,
        reconsume_times=0, size_bytes=len(data),
    )  # fmt: skip
    assert (found.tag, found.keys) == ("a", ("k1", "k2"))


def test_a_body_that_java_compressed_is_inflated_with_and_without_its_kind() -> None:
    packed = zlib.compress(b"x" * 9_000, 5)
    for flags in (0x1, 0x301):
        assert only(record(packed, flags=flags)).body == b"x" * 9_000


def test_a_body_that_cannot_be_inflated_is_given_as_it_is_stored() -> None:
    """Raised, it would end its queue for every consumer."""
    bomb = zlib.compress(bytes(BODY_BYTES_MAX + 1))
    for body, flags, kind in ((b"l", 0x101, "lz4"), (b"z", 0x201, "zstd"), (b"nonsense", 1, "zlib"), (bomb, 1, "zlib")):
        found = only(record(body, flags=flags))
        assert (found.body, found.stored_as) == (body, kind)


def test_what_counts_for_limits_is_what_a_message_takes_here() -> None:
    """By its stored size, the 64 MiB of a consumer would hold 64 GiB of zeros."""
    small, packed = record(b"x"), record(zlib.compress(bytes(100_000)), flags=1)
    item = struct.pack(">iiiii", 22 + 50_000, 0, 0, 0, 50_000) + bytes(50_000) + struct.pack(">h", 0)
    batch = record(zlib.compress(2 * item), flags=1 | 3 << 6)
    found = decode_messages(small + packed + batch, QUEUE)
    assert found[0].size_bytes == len(small)
    assert found[1].size_bytes == 100_000
    assert [each.size_bytes >= 50_000 for each in found[2:]] == [True, True]


def test_one_answer_inflates_to_no_more_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer of 32 small records is a gigabyte else, before any limit of the consumer is asked."""
    monkeypatch.setattr(client_messages, "INFLATED_BYTES_MAX", 250_000)
    body = zlib.compress(bytes(100_000))
    found = decode_messages(record(body, flags=1) * 5 + record(b"plain"), QUEUE)
    assert [each.stored_as for each in found] == ["", "", "", "zlib", "zlib", ""]
    assert [len(each.body) for each in found] == [100_000] * 3 + [len(body)] * 2 + [5]
    assert decode_messages(record(body, flags=1), QUEUE)[0].stored_as == "", "each answer counts anew"


def test_a_batch_of_javas_is_as_many_messages_as_it_has() -> None:
    items = [(b"one", b"TAGS\x01a\x02"), (b"two", b"")]
    body = b"".join(
        struct.pack(">iiiii", 22 + len(text) + len(properties), 0, 0, 0, len(text)) + text
        + struct.pack(">h", len(properties)) + properties
        for text, properties in items
    )  # fmt: skip
    found = decode_messages(record(body, flags=3 << 6, colour="red"), QUEUE)
    assert [(each.queue_offset, each.body, each.tag, each.properties["colour"]) for each in found] == [
        (7, b"one", "a", "red"),
        (8, b"two", "", "red"),
    ]
    assert only(record(b"damaged", flags=3 << 6)).stored_as == "batch"


def test_a_retry_is_a_message_of_the_topic_that_it_was_sent_to() -> None:
    retry = MessageQueue("b", 0, "%RETRY%g")
    found = only(record(b"x", reconsume=2, RETRY_TOPIC="orders"), retry)
    assert (found.topic, found.queue, found.reconsume_times) == ("orders", retry, 2)
    assert only(record(b"x", RETRY_TOPIC="orders")).topic == "T"


def test_an_id_of_a_broker_with_ipv6_has_all_of_its_address() -> None:
    found = only(record(b"x", host=bytes(15) + b"\x01" + (10911).to_bytes(4, "big")))
    assert found.message_id == "00000000000000000000000000000001" + "00002A9F" + "0000000000001000"


def test_tags_with_one_hash_are_told_apart_by_their_texts() -> None:
    """Java's hash of both is 2112: the broker lets both pass."""
    data = record(b"1", TAGS="Aa") + record(b"2", TAGS="BB")
    assert [each.body for each in decode_messages(data, QUEUE, frozenset({"BB"}))] == [b"2"]


@given(st.binary(max_size=200), st.integers(0, 300))
def test_nonsense_raises_one_error(noise: bytes, at: int) -> None:
    whole = record(b"body", TAGS="a")
    for data in (noise, whole[: at % len(whole)] + noise):
        try:
            decode_messages(data, QUEUE)
        except RecordError:
            continue
    with pytest.raises(RecordError):
        decode_messages(whole[:-1], QUEUE)
