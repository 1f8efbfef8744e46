"""When what waits at a producer leaves, and what never shares a frame."""

from __future__ import annotations

import asyncio

import pytest

from rollcall_ha.broker.client.packing import Call, Packer, PackLimits
from rollcall_ha.broker.client.places import Places

KEY = ("T", 1)


def add(packer: Packer, *bodies: bytes, now_us: int = 0, properties: bytes = b"", may_pack: bool = True) -> Call:
    """Hand over bodies of one call to one queue."""
    call = Call(len(bodies), 0.0, lambda: None)
    packer.add(KEY, bodies, properties, call, now_us=now_us, now_ms=0, may_pack=may_pack)
    return call


def take(packer: Packer, *, is_busy: bool, now_us: int = 0) -> list[list[bytes]]:
    """The bodies of each frame that leaves."""
    return [pack.bodies for pack in packer.take(lambda: {KEY} if is_busy else set(), now_us)]


def test_with_nothing_under_way_a_message_leaves_at_once_and_what_gathers_meanwhile_in_one_frame() -> None:
    """Nobody waits for neighbours that may not come."""
    packer = Packer(PackLimits())
    add(packer, b"a")
    assert take(packer, is_busy=False) == [[b"a"]]
    add(packer, b"b")
    add(packer, b"c")
    assert take(packer, is_busy=True) == []
    assert take(packer, is_busy=False) == [[b"b", b"c"]]


def test_a_frame_that_stays_away_holds_its_neighbours_up_for_the_delay_at_most() -> None:
    """A set that answers nothing for 5 s would hold back what a new frame could tell."""
    packer = Packer(PackLimits(delay_ms=5))
    add(packer, b"a", now_us=1_000)
    add(packer, b"b", now_us=4_000)
    assert packer.due_us() == 6_000
    assert take(packer, is_busy=True, now_us=5_999) == []
    assert take(packer, is_busy=True, now_us=6_000) == [[b"a", b"b"]]
    assert packer.due_us() is None


def test_full_frames_leave_whatever_is_under_way_and_the_rest_waits_behind_them() -> None:
    """By count, and by bytes."""
    packer = Packer(PackLimits(messages_max=2))
    add(packer, b"a", b"b", b"c")
    assert take(packer, is_busy=True) == [[b"a", b"b"]]
    assert take(packer, is_busy=False) == [[b"c"]]
    packer = Packer(PackLimits(bytes_max=2 * 22 + 20))
    add(packer, b"x" * 10, b"y" * 10, b"z")
    assert take(packer, is_busy=True) == [[b"x" * 10, b"y" * 10]]


@pytest.mark.parametrize("properties", [b"A\x01b\x02DELAY\x011\x02", b"TIMER_DELAY_MS\x015\x02", b"WAIT\x01false\x02"])
def test_what_a_batch_cannot_carry_is_alone_and_in_its_place(properties: bytes) -> None:
    """A broker refuses a whole batch for a delay in it; the order of the queue stays."""
    packer = Packer(PackLimits())
    add(packer, b"a", b"b")
    add(packer, b"x", b"y", properties=properties)
    add(packer, b"c")
    assert take(packer, is_busy=False) == [[b"a", b"b"], [b"x"], [b"y"]]
    assert take(packer, is_busy=False) == [[b"c"]]


def test_who_asks_for_it_and_who_is_too_large_is_alone() -> None:
    """``may_pack`` False; a message above the limit of a frame."""
    packer = Packer(PackLimits(bytes_max=100))
    add(packer, b"a")
    add(packer, b"b", may_pack=False)
    add(packer, b"x" * 200)
    add(packer, b"c")
    assert take(packer, is_busy=True) == [[b"a"], [b"b"], [b"x" * 200]]
    assert take(packer, is_busy=True, now_us=5_000) == [[b"c"]]


@pytest.mark.parametrize("limits", [{"messages_max": 0}, {"messages_max": 1_025}, {"bytes_max": 0}, {"delay_ms": -1}])
def test_a_limit_that_is_none_is_refused_with_what_is_possible(limits: dict[str, int]) -> None:
    """More than 1,024 ids do not fit into the answer that a producer reads."""
    with pytest.raises(ValueError, match="are possible"):
        PackLimits(**limits)


def test_places_are_given_in_the_order_of_asking_and_a_cancelled_one_keeps_none() -> None:
    """By messages and by bytes; one message may pass the bytes, or it would wait for ever."""

    async def body() -> None:
        places = Places(messages_max=3, bytes_max=100)
        assert await places.take([10, 10], 0) == 2
        first = asyncio.ensure_future(places.take([10, 500, 10], 0))
        assert await first == 1
        second = asyncio.ensure_future(places.take([10, 500, 10], 1))
        third = asyncio.ensure_future(places.take([1], 0))
        await asyncio.sleep(0)
        places.give(2, 20)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert await third == 1
        assert (places.messages, places.size_bytes) == (2, 11)
        fourth = asyncio.ensure_future(places.take([500, 1], 0))
        assert await fourth == 1
        fifth = asyncio.ensure_future(places.take([1], 0))
        await asyncio.sleep(0)
        places.close()
        assert await fifth == 0

    asyncio.run(body())
