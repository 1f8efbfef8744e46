"""Waiters of one masterEpoch."""

from __future__ import annotations

import pytest

from rollcall_ha.broker.core.acks import WaitingSends
from rollcall_ha.epoch.model import LogOffset, MasterEpoch


def table() -> WaitingSends[str]:
    return WaitingSends(MasterEpoch(3), waiting_messages_max=3, waiting_bytes_max=100)


def test_tokens_leave_in_order_up_to_confirm_and_once() -> None:
    """A lower confirm than before releases nothing."""
    acks = table()
    for end in (10, 20, 20, 30):
        acks.register(LogOffset(end), f"t{end}", messages=1, size_bytes=10, now_us=1)
    assert acks.release(LogOffset(20)) == ["t10", "t20", "t20"]
    assert acks.release(LogOffset(15)) == []
    assert (acks.released_offset, acks.waiting_messages, acks.waiting_bytes) == (20, 1, 10)


def test_limits_count_what_waits() -> None:
    """Both of them, and releasing makes room."""
    acks = table()
    acks.register(LogOffset(10), "a", messages=3, size_bytes=1, now_us=1)
    assert not acks.has_room()
    acks.release(LogOffset(10))
    assert acks.has_room()
    acks.register(LogOffset(11), "b", messages=1, size_bytes=100, now_us=1)
    assert not acks.has_room()


def test_r17_an_ended_epoch_takes_nobody_and_releases_nobody() -> None:
    """Everybody hears of the end exactly once."""
    acks = table()
    acks.register(LogOffset(10), "a", messages=1, size_bytes=1, now_us=1)
    assert acks.fail_all() == ["a"]
    assert acks.fail_all() == []
    assert acks.release(LogOffset(10)) == []
    assert not acks.has_room()
    with pytest.raises(ValueError, match="masterEpoch 3"):
        acks.register(LogOffset(20), "b", messages=1, size_bytes=1, now_us=1)


def test_an_end_below_the_last_one_is_refused() -> None:
    """Rule 2 is what makes a release a walk from the left."""
    acks = table()
    acks.register(LogOffset(10), "a", messages=1, size_bytes=1, now_us=1)
    with pytest.raises(ValueError, match="9"):
        acks.register(LogOffset(9), "b", messages=1, size_bytes=1, now_us=1)


def test_what_waits_too_long_is_told_and_what_came_later_waits_on() -> None:
    acks = table()
    for end, now_us in ((10, 100), (20, 200), (30, 300)):
        acks.register(LogOffset(end), f"t{end}", messages=1, size_bytes=10, now_us=now_us)
    assert acks.expire(100) == []
    assert acks.expire(250) == ["t10", "t20"]
    assert (acks.waiting_messages, acks.waiting_bytes) == (1, 10)
    assert acks.release(LogOffset(30)) == ["t30"]


def test_a_stop_of_writes_counts_from_what_has_expired_until_that_is_confirmed() -> None:
    """Told as an outage by this age, it would end with each expiry, every five seconds."""
    acks = table()
    for end, now_us in ((10, 100), (20, 200)):
        acks.register(LogOffset(end), f"t{end}", messages=1, size_bytes=10, now_us=now_us)
    assert acks.expire(150) == ["t10"]
    assert acks.expire(250) == ["t20"]
    assert acks.waiting_since_us == 100
    acks.register(LogOffset(30), "t30", messages=1, size_bytes=10, now_us=900)
    assert acks.release(LogOffset(10)) == []
    assert acks.waiting_since_us == 100
    assert acks.release(LogOffset(20)) == []
    assert acks.waiting_since_us == 900
