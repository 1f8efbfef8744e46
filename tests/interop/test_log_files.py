"""Records, blanks and checkpoints against the examples of docs/wire.md and bytes of Java brokers."""

from __future__ import annotations

import pytest

from rollcall_ha.broker.log.checkpoint import rocketmq_checkpoint
from rollcall_ha.broker.log.record import Draft, blank_bytes, check, index_fields, pack, pack_blank, record_bytes
from rollcall_ha.broker.protocol.record import RecordView

EXAMPLE = bytes.fromhex(
    "00000082 daa320a7 3610a686 00000003 00000000 0000000000000005 00000000000003e8 00000000"
    "0000018bcfe56800 7f0000010000d431 0000018bcfe56801 0a00000100002a9f 00000000 0000000000000000"
    "00000005 68656c6c6f 06 546f70696341 001c 554e49515f4b455901 3041303030303031 02 5441475301 74616741 02"
)
EXAMPLE_IPV6 = bytes.fromhex(
    "0000009a daa320a7 3610a686 00000003 00000000 0000000000000005 00000000000003e8 00000030"
    "0000018bcfe56800 20010db8000000000000000000000017 0000d431"
    "0000018bcfe56801 20010db8000000000000000000000001 00002a9f 00000000 0000000000000000"
    "00000005 68656c6c6f 06 546f70696341 001c 554e49515f4b455901 3041303030303031 02 5441475301 74616741 02"
)
"""The same message from 2001:db8::17 to 2001:db8::1: two flags, and 16 bytes of address with an int32 port for each."""
JAVA_RECORD = bytes.fromhex(
    "000000c2daa320a73610a6860000000300000000000000000000000000000000000021f500000000000001a1fb93f7347f0000010000a194"
    "000001a1fb93f7ae7f00000100007ca70000000000000000000000000000000568656c6c6f06546f70696347005c4d53475f524547494f4e"
    "0144656661756c74526567696f6e02554e49515f4b4559014944303102434c555354455201633102544147530174616741024b455953016b"
    "31025741495401747275650254524143455f4f4e017472756502"
)
JAVA_COMPRESSED = bytes.fromhex(
    "000000c7daa320a7600f00650000000100000000000000000000000000000000000024bd00000301000001a1fb93f8097f0000010000a194"
    "000001a1fb93f80c7f00000100007ca70000000000000000000000000000001c785eedc13101000000c2a0f54f6d0a3fa00000000080b701"
    "1388000106546f70696347004a4d53475f524547494f4e0144656661756c74526567696f6e02554e49515f4b4559014944303402434c5553"
    "544552016331025741495401747275650254524143455f4f4e017472756502"
)


def test_the_example_record_is_written_byte_for_byte() -> None:
    """The example record of 130 bytes in docs/wire.md, log records."""
    host = bytes.fromhex("0a00000100002a9f")
    draft = Draft(
        topic=b"TopicA",
        queue_id=3,
        body=b"hello",
        properties=b"UNIQ_KEY\x010A000001\x02TAGS\x01tagA\x02",
        born_at_ms=1_700_000_000_000,
        born_host=bytes.fromhex("7f0000010000d431"),
    )
    buffer = bytearray(130)
    total = record_bytes(draft, host)
    pack(
        memoryview(buffer),
        0,
        draft,
        total_bytes=total,
        physical_offset=1000,
        queue_offset=5,
        stored_at_ms=1_700_000_000_001,
        store_host=host,
    )
    assert bytes(buffer) == EXAMPLE


def test_a_record_with_addresses_of_ipv6_is_written_byte_for_byte_and_read_again() -> None:
    """Whatever the sender's own system flag says of the broker's address: 0x20 came with it once, 0 otherwise."""
    store = bytes.fromhex("20010db800000000000000000000000100002a9f")
    for sys_flag in (0x10, 0x30):
        draft = Draft(
            topic=b"TopicA",
            queue_id=3,
            body=b"hello",
            properties=b"UNIQ_KEY\x010A000001\x02TAGS\x01tagA\x02",
            sys_flag=sys_flag,
            born_at_ms=1_700_000_000_000,
            born_host=bytes.fromhex("20010db80000000000000000000000170000d431"),
        )
        buffer = bytearray(record_bytes(draft, store))
        pack(
            memoryview(buffer),
            0,
            draft,
            total_bytes=len(buffer),
            physical_offset=1000,
            queue_offset=5,
            stored_at_ms=1_700_000_000_001,
            store_host=store,
        )
        assert bytes(buffer) == EXAMPLE_IPV6
    view = memoryview(EXAMPLE_IPV6)
    assert check(view, 0, 1000) == len(EXAMPLE_IPV6)
    record = RecordView(view)
    assert (record.topic, bytes(record.body), record.stored_at_ms) == (b"TopicA", b"hello", 1_700_000_000_001)
    assert index_fields(view, 0) == (b"TopicA", 3, 5, True, record.properties, record.stored_at_ms, record.size_bytes)


def test_a_client_that_claimed_an_ipv6_broker_made_a_record_that_nobody_could_read() -> None:
    """Its system flag was written as it came, over 4 bytes of address: each slave, and the next start, found nonsense."""
    draft = Draft(topic=b"T", queue_id=0, body=b"hello", sys_flag=0x20)
    store = bytes.fromhex("0a00000100002a9f")
    buffer = bytearray(record_bytes(draft, store))
    view = memoryview(buffer)
    pack(view, 0, draft, total_bytes=len(buffer), physical_offset=0, queue_offset=0, stored_at_ms=1, store_host=store)
    assert check(view, 0, 0) == len(buffer)
    assert RecordView(view).sys_flag == 0


@pytest.mark.parametrize(("raw", "offset"), [(EXAMPLE, 1000), (JAVA_RECORD, 8693), (JAVA_COMPRESSED, 9405)])
def test_records_of_java_brokers_pass_every_check_and_pack_again_to_the_same_bytes(raw: bytes, offset: int) -> None:
    """Bytes of Java brokers; every field that a reader needs."""
    view = memoryview(raw)
    assert check(view, 0, offset) == len(raw)
    record = RecordView(view)
    draft = Draft(
        topic=record.topic,
        queue_id=record.queue_id,
        body=record.body,
        properties=record.properties,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_at_ms=record.born_at_ms,
        born_host=raw[48:56],
    )
    buffer = bytearray(len(raw))
    pack(
        memoryview(buffer),
        0,
        draft,
        total_bytes=record_bytes(draft, raw[64:72]),
        physical_offset=record.physical_offset,
        queue_offset=record.queue_offset,
        stored_at_ms=record.stored_at_ms,
        store_host=raw[64:72],
    )
    assert bytes(buffer) == raw
    assert index_fields(view, 0)[:4] == (record.topic, record.queue_id, record.queue_offset, True)
    assert index_fields(view, 0)[4:] == (record.properties, record.stored_at_ms, record.size_bytes)


def test_the_blank_at_the_end_of_a_file() -> None:
    """The one of a Java broker, and ours (docs/wire.md, segments)."""
    buffer = bytearray(16)
    pack_blank(memoryview(buffer), 0, 4096)
    assert buffer.hex() == "00001000cbd431940000000000000000"
    assert blank_bytes(memoryview(bytes.fromhex("00005f12cbd431940000000000000000")), 0) == 24338
    assert blank_bytes(memoryview(EXAMPLE), 0) is None


def test_the_checkpoint_of_document_and_java_broker() -> None:
    """The one of a Java broker, and ours (docs/wire.md, checkpoint)."""
    at = 1_700_000_000_001
    raw = rocketmq_checkpoint(stored_at_ms=at, confirm_offset=1130)
    assert len(raw) == 4096
    assert raw[:40].hex() == "0000018bcfe56801" * 3 + "0000000000000000" + "000000000000046a"
