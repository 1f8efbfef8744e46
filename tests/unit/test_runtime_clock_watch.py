"""Steps of the clock by which entries are stamped (R14)."""

from __future__ import annotations

from rollcall_ha.controller.contract.timing import NS_PER_MS
from rollcall_ha.controller.runtime.clock_watch import WINDOW_MS, ClockWatch

HOUR_MS = 3_600_000
UTC_MS = 1_700_000_000_000


def ns(ms: int) -> int:
    return ms * NS_PER_MS


def following(*, until_ms: int = 5_000) -> ClockWatch:
    """A follower that has been even with its leader, looking each 20 ms."""
    watch = ClockWatch()
    for now_ms in range(0, until_ms, 20):
        watch.look(is_even=True, newest_stamp_ms=UTC_MS, now_ns=ns(now_ms))
    return watch


def test_a_leaders_clock_that_is_set_is_told_once_with_its_size() -> None:
    """Ahead by an hour at 60 ms, and back at 100 ms."""
    watch = ClockWatch()
    steps = [
        watch.lead(UTC_MS + now_ms + error_ms, now_ns=ns(now_ms))
        for now_ms, error_ms in ((20, 0), (40, 0), (60, HOUR_MS), (80, HOUR_MS), (100, 0), (120, 3))
    ]

    assert steps == [None, None, HOUR_MS, None, -HOUR_MS, None]


def test_a_new_leader_whose_clock_is_an_hour_ahead_is_a_step_and_idle_hours_are_none() -> None:
    """The entry came live at 5 s; leadership at 3 h by both clocks, or with an hour more on the wall."""
    for error_ms, step_ms in ((0, None), (HOUR_MS, HOUR_MS), (-HOUR_MS, -HOUR_MS)):
        watch = following()
        watch.applied(UTC_MS + 5_000, applied_ns=ns(5_000))
        now_ms = 3 * HOUR_MS
        told = watch.lead(UTC_MS + now_ms + error_ms, now_ns=ns(now_ms))
        assert told == step_ms


def test_entries_that_a_controller_catches_up_with_tell_nothing_of_the_present_clock() -> None:
    """It was down for an hour: taken for live, the entries' age would be reported as a step forward of an hour."""
    watch = ClockWatch()
    watch.look(is_even=False, newest_stamp_ms=0, now_ns=ns(0))
    watch.applied(UTC_MS - HOUR_MS, applied_ns=ns(10))
    watch.look(is_even=True, newest_stamp_ms=UTC_MS, now_ns=ns(20))
    watch.applied(UTC_MS - HOUR_MS, applied_ns=ns(30))

    assert watch.lead(UTC_MS + 500, now_ns=ns(500)) is None


def test_a_leader_that_has_learned_nothing_still_sees_that_the_newest_entry_is_in_its_future() -> None:
    watch = ClockWatch()
    watch.look(is_even=False, newest_stamp_ms=UTC_MS + HOUR_MS, now_ns=ns(1))

    assert watch.lead(UTC_MS, now_ns=ns(7)) == -HOUR_MS
    assert ClockWatch().lead(UTC_MS, now_ns=ns(7)) is None


def test_a_follower_that_applies_late_takes_the_delay_for_no_step() -> None:
    """The newest entry was applied 2.2 s late: each lead of a busy machine reported a step forward of its size."""
    watch = following()
    for delay_ms in (3, 900, 2_200):
        watch.applied(UTC_MS + 5_000 - delay_ms, applied_ns=ns(5_000))

    assert watch.lead(UTC_MS + 5_100, now_ns=ns(5_100)) is None


def test_the_largest_offset_of_two_windows_counts() -> None:
    """One late entry begins a window, and the one before still counts; in the third window the first is forgotten."""
    for late_ms, step_ms in (((0, 2_000), None), ((2_000, 0), None), ((-5_000, 0), -5_000), ((-5_000, 0, 0), None)):
        watch = following()
        at_ms = 5_000
        for number, delay_ms in enumerate(late_ms):
            until_ms = 5_000 + number * (WINDOW_MS + 500)
            for now_ms in range(at_ms, until_ms + 1, 500):
                watch.look(is_even=True, newest_stamp_ms=UTC_MS, now_ns=ns(now_ms))
            at_ms = until_ms
            watch.applied(UTC_MS + at_ms - delay_ms, applied_ns=ns(at_ms))

        assert watch.lead(UTC_MS + at_ms, now_ns=ns(at_ms)) == step_ms


def test_what_was_learned_before_a_stall_or_another_leader_tells_nothing() -> None:
    """Applied behind a stall all entries are late, and the clock of the leader before is another one."""
    stalled, led_by_another = following(), following()
    for watch in (stalled, led_by_another):
        watch.applied(UTC_MS + 5_000 - HOUR_MS, applied_ns=ns(5_000))
    stalled.look(is_even=True, newest_stamp_ms=UTC_MS, now_ns=ns(6_000 + 1))
    led_by_another.forget()

    for watch in (stalled, led_by_another):
        assert watch.lead(UTC_MS + 6_100, now_ns=ns(6_100)) is None
