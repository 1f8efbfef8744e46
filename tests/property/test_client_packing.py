"""What waits at a producer leaves whole, once, in order and under its limits, whatever is handed over and given up."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rollcall_ha.broker.client.packing import Call, Pack, Packer, PackLimits, bytes_of, one_by_one
from rollcall_ha.broker.protocol.send import decode_batch, encode_batch

LIMITS = PackLimits(messages_max=4, bytes_max=120, delay_ms=5)
KEYS = (("a", None), ("a", 1), ("b", 1))
PROPERTIES = (b"", b"K\x01v\x02", b"DELAY\x013\x02", b"WAIT\x01false\x02")
ADD = st.tuples(
    st.just("add"),
    st.sampled_from(KEYS),
    st.lists(st.sampled_from((0, 1, 30, 97, 98, 99, 400)), min_size=1, max_size=9),
    st.sampled_from(PROPERTIES),
    st.booleans(),
)
TAKE = st.tuples(st.just("take"), st.sets(st.sampled_from(KEYS)), st.integers(0, 6_000))
FORGET = st.tuples(st.just("forget"), st.sets(st.integers(0, 20)))
STEPS = st.lists(st.one_of(ADD, TAKE, FORGET), max_size=30)


def messages_of(pack: Pack) -> list[tuple[Call, int, bytes]]:
    """Whose it is, which of that call's, and its body, by the pack's own books."""
    found = [(part.call, part.first + number) for part in pack.parts for number in range(part.count)]
    assert len(found) == len(pack.bodies) == len(pack.properties)
    return [(*each, body) for each, body in zip(found, pack.bodies, strict=True)]


def judge_limits(pack: Pack) -> None:
    """No frame is larger than its limits, but by one message that fits into none; and a batch carries what it can."""
    assert pack.size_bytes == bytes_of(pack, 0, len(pack.bodies)) == len(encode_batch(pack.bodies, pack.properties))
    assert 1 <= len(pack.bodies) <= LIMITS.messages_max
    assert pack.size_bytes <= LIMITS.bytes_max or len(pack.bodies) == 1
    assert len(pack.bodies) == 1 or not {b"DELAY", b"WAIT"} & {each[: each.find(b"\x01")] for each in pack.properties}


@given(STEPS)
def test_every_message_leaves_once_in_the_order_of_its_queue_or_is_taken_out(steps: list[tuple[Any, ...]]) -> None:
    """Nothing is lost, nothing twice, and what nobody waits for any more is in no frame."""
    packer, now_us, numbers = Packer(LIMITS), 0, iter(range(10_000))
    calls: list[tuple[Call, tuple[str, int | None], list[bytes]]] = []
    left: dict[tuple[str, int | None], list[tuple[Call, int, bytes]]] = {key: [] for key in KEYS}
    taken: set[tuple[Call, int]] = set()

    def leave(packs: list[Pack]) -> None:
        for pack in packs:
            judge_limits(pack)
            left[pack.key] += messages_of(pack)

    for step in steps:
        match step:
            case ("add", key, sizes, properties, may_pack):
                bodies = [b"%d|" % next(numbers) + b"." * size for size in sizes]
                call = Call(len(bodies), 0.0, lambda: None)
                calls.append((call, key, bodies))
                packer.add(key, bodies, properties, call, now_us=now_us, now_ms=0, may_pack=bool(may_pack))
            case ("take", busy, passed_us):
                now_us += passed_us
                leave(packer.take(set(busy).copy, now_us))
                due_us = packer.due_us()
                assert due_us is None or due_us > now_us, "what is due has left"
            case ("forget", which):
                late = {calls[number][0] for number in which if number < len(calls)}
                for part, _ in packer.forget(late):
                    taken |= {(part.call, part.first + number) for number in range(part.count)}
                assert not late & {part.call for pack in packer.all() for part in pack.parts}
    # Once more for what waits behind full frames.
    leave(packer.take(set, now_us))
    leave(packer.take(set, now_us))
    assert not packer
    for key in KEYS:
        handed = [(call, number, body) for call, of, bodies in calls if of == key for number, body in enumerate(bodies)]
        assert left[key] == [each for each in handed if each[:2] not in taken]


@given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=20)), min_size=1, max_size=9))
def test_a_batch_is_read_as_it_was_written_and_taken_apart_with_its_numbers(
    messages: list[tuple[bytes, bytes]],
) -> None:
    """Body by body; alone, each message has the number that it had in the batch."""
    bodies, properties = [body for body, _ in messages], [each for _, each in messages]
    items = decode_batch(memoryview(encode_batch(bodies, properties)))
    assert [(item.body, item.properties) for item in items] == messages
    packer, call = Packer(PackLimits()), Call(len(bodies), 0.0, lambda: None)
    packer.add(("t", 3), bodies, b"", call, now_us=0, now_ms=0, may_pack=True)
    (pack,) = packer.take(set, 0)
    pack.sequence = 70
    singles = one_by_one(pack)
    assert [message for single in singles for message in messages_of(single)] == messages_of(pack)
    assert [single.sequence for single in singles] == list(range(70, 70 + len(bodies)))
    assert sum(single.size_bytes for single in singles) == pack.size_bytes
