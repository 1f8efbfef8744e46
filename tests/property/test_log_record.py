"""Laws of the record codec and of the small decoders: round trips, and declared errors only."""

from __future__ import annotations

import zlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcall_ha.broker.log.record import (
    Draft,
    check,
    check_bodies,
    index_fields,
    pack,
    pack_run,
    record_bytes,
    run_bytes,
    walk,
)
from rollcall_ha.broker.protocol.record import SYS_FLAG_BORN_IPV6, RecordError, RecordView
from rollcall_ha.broker.protocol.routes import RouteError, decode_route
from rollcall_ha.broker.protocol.send import BatchItem, SendError, decode_batch, parse_frame
from rollcall_ha.broker.protocol.stamp import StampError, find_stamp, format_stamp
from rollcall_ha.node.remoting.frame import FrameError

TEXT = st.binary(max_size=40).map(lambda raw: raw.replace(b"\0", b"\x01"))
DRAFTS = st.builds(
    Draft,
    topic=st.binary(min_size=1, max_size=255).map(lambda raw: raw.replace(b"\0", b"t")),
    queue_id=st.integers(-(1 << 31), (1 << 31) - 1),
    body=st.binary(max_size=300),
    properties=TEXT,
    flag=st.integers(-(1 << 31), (1 << 31) - 1),
    sys_flag=st.sampled_from([0, 1, 4, 8, 12, 0x20, 0x301]),
    born_at_ms=st.integers(0, (1 << 63) - 1),
    born_host=st.binary(min_size=8, max_size=8),
    reconsume_times=st.integers(0, 100),
) | st.builds(
    Draft,
    topic=st.just(b"T"),
    queue_id=st.just(0),
    body=st.binary(max_size=20),
    sys_flag=st.just(SYS_FLAG_BORN_IPV6),
    born_host=st.binary(min_size=20, max_size=20),
)
HOSTS = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)


def packed(draft: Draft, host: bytes, *, offset: int = 77, queue_offset: int = 5) -> bytearray:
    total = record_bytes(draft, host)
    buffer = bytearray(total)
    pack(
        memoryview(buffer), 0, draft, total_bytes=total, physical_offset=offset, queue_offset=queue_offset,
        stored_at_ms=9, store_host=host,
    )  # fmt: skip
    return buffer


@given(DRAFTS, HOSTS)
def test_what_was_packed_is_read_again_with_every_reader(draft: Draft, host: bytes) -> None:
    """Both versions, both kinds of host on both sides."""
    view = memoryview(packed(draft, host))
    assert check(view, 0, 77) == len(view)
    record = RecordView(view)
    assert (record.topic, record.queue_id, record.queue_offset) == (draft.topic, draft.queue_id, 5)
    assert (bytes(record.body), record.properties, record.flag) == (draft.body, draft.properties, draft.flag)
    assert (record.born_at_ms, record.stored_at_ms, record.physical_offset) == (draft.born_at_ms, 9, 77)
    is_queued = draft.sys_flag & 12 in (0, 8)
    assert index_fields(view, 0) == (draft.topic, draft.queue_id, 5, is_queued, draft.properties, 9, len(view))
    starts: list[int] = []
    assert walk(view, 0, len(view), starts) == len(view)
    assert starts == [0]


ITEMS = st.builds(BatchItem, body=st.binary(max_size=60), properties=TEXT, flag=st.integers(-(1 << 31), (1 << 31) - 1))


@given(DRAFTS, st.lists(ITEMS, min_size=1, max_size=5), HOSTS)
def test_a_run_is_byte_for_byte_the_records_that_single_sends_would_be(
    draft: Draft, items: list[BatchItem], host: bytes
) -> None:
    """One format, written by two loops."""
    expected, starts = bytearray(), []
    for number, item in enumerate(items):
        alone = msgspec.structs.replace(draft, body=item.body, properties=item.properties, flag=item.flag)
        starts.append(77 + len(expected))
        expected += packed(alone, host, offset=starts[-1], queue_offset=5 + number)
    run = pack_run(draft, items, physical_offset=77, queue_offset=5, stored_at_ms=9, store_host=host)
    assert run == (bytes(expected), starts)
    assert run_bytes(draft, items, host) == len(expected)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [("properties", b"a\0b", "NUL"), ("properties", b"x" * 32_768, "32767 are possible"), ("flag", 1 << 31, "fit its")],
)
def test_one_message_that_the_format_cannot_carry_keeps_all_of_a_run_out(
    field: str, value: object, message: str
) -> None:
    """Before the first byte is written."""
    items = [BatchItem(b"a"), msgspec.structs.replace(BatchItem(b"b"), **{field: value})]

    def run() -> None:
        draft = Draft(topic=b"T", queue_id=0, body=b"")
        run_bytes(draft, items, bytes(8))
        pack_run(draft, items, physical_offset=0, queue_offset=0, stored_at_ms=0, store_host=bytes(8))

    with pytest.raises(RecordError, match=message):
        run()


@given(st.binary(min_size=1, max_size=70), st.integers(0, 20_000), st.integers(0, 300), st.booleans())
def test_the_crc_of_a_body_is_the_one_of_zlib(pattern: bytes, size: int, at: int, is_writable: bool) -> None:
    """
    Of bytes and of views at any offset, in the field that RocketMQ reads and in both checks of it.

    Sizes: around every block that a vector unit folds, and on both sides of the 5 KiB from which the GIL is released.
    """
    body = (pattern * (size // len(pattern) + 1))[:size]
    around = bytes(at) + body + pattern
    view = memoryview(bytearray(around) if is_writable else around)[at : at + size]
    given_bodies: tuple[bytes | memoryview, ...] = (body, view)
    for given_body in given_bodies:
        # The body comes right behind 88 bytes, at an address that moves with ``at``.
        draft = Draft(topic=b"T", queue_id=0, body=given_body, born_host=bytes(8))
        total = record_bytes(draft, bytes(8))
        segment = memoryview(bytearray(at + total))
        pack(
            segment, at, draft, total_bytes=total, physical_offset=at, queue_offset=0, stored_at_ms=9,
            store_host=bytes(8),
        )  # fmt: skip

        assert RecordView(segment, at).body_crc == zlib.crc32(body) & 0x7FFFFFFF
        assert check(segment, at, at) == total
        check_bodies(segment, [at], 0)


@pytest.mark.slow
@given(DRAFTS, st.data())
def test_no_zeroed_part_of_a_record_passes_the_check(draft: Draft, data: st.DataObject) -> None:
    """Rule 4: from any byte to the end, and any stretch inside, unless it was zeros before."""
    buffer = packed(draft, b"\x0a\0\0\1\0\0\x2a\x9f")
    start = data.draw(st.integers(0, len(buffer) - 1))
    torn = bytes(buffer[:start]) + bytes(len(buffer) - start)
    if torn != bytes(buffer) and torn.rstrip(b"\0") != bytes(buffer).rstrip(b"\0"):
        with pytest.raises(RecordError):
            check(memoryview(torn), 0, 77)


@given(st.binary(max_size=300), st.integers(0, 200))
def test_nonsense_raises_the_declared_error_only(raw: bytes, at: int) -> None:
    """Every decoder of bytes that a peer or a disk can send."""
    view = memoryview(raw)
    head = memoryview(b"\0\0\1\x00\xda\xa3\x20\xa7" + raw.ljust(248, b"\0"))
    for decode, errors in (
        (lambda: check(view, min(at, len(raw)), 0), RecordError),
        (lambda: check(head, 0, 0), RecordError),
        (lambda: index_fields(head, 0), RecordError),
        (lambda: walk(view, 0, len(view), []), RecordError),
        (lambda: decode_batch(view), SendError),
        (lambda: parse_frame(view), (FrameError, SendError)),
        (lambda: parse_frame(memoryview(len(raw).to_bytes(4, "big") + raw)), (FrameError, SendError)),
        (lambda: decode_route(raw), RouteError),
        (lambda: find_stamp(raw), StampError),
        (lambda: find_stamp(b"ROLLCALL_SEQ\x01" + raw), StampError),
    ):
        try:
            decode()
        except errors:
            pass


@settings(max_examples=200)
@given(st.binary(max_size=60))
def test_a_header_that_begins_like_a_send_fails_as_declared(raw: bytes) -> None:
    """The fast way never lets another error through."""
    header = b'{"code":310,' + raw
    try:
        parse_frame(memoryview(len(header).to_bytes(4, "big") + header))
    except (FrameError, SendError):
        pass


@given(st.binary(min_size=16, max_size=16), st.integers(0, 10**18 - 1), st.integers(0, 10**18 - 1), TEXT)
def test_a_stamp_is_found_wherever_it_stands(identity: bytes, epoch: int, sequence: int, other: bytes) -> None:
    """Behind other properties too, but not inside the value of one."""
    value = format_stamp(identity, epoch, sequence).encode()
    filler = other.replace(b"\x01", b"").replace(b"\x02", b"")
    assert find_stamp(b"A\x01" + filler + b"\x02ROLLCALL_SEQ\x01" + value + b"\x02") == (identity, epoch, sequence)
    assert find_stamp(b"ROLLCALL_SEQ\x01" + value) == (identity, epoch, sequence)
    assert find_stamp(b"XROLLCALL_SEQ\x01" + value) is None
