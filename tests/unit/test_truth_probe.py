"""Whether the probe and the stopwatch beside it say the same: their grain is allowed for, and nothing more."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rollcall_ha.probe.lines import GapLine
from tests.truth.probe import GRAIN_MS, complaints, longest_ms, meeting
from tests.truth.recorded import Event, Felt


def gap(felt_ms: int, stalled_ms: int = 0) -> GapLine:
    return GapLine(
        set_name="broker-a",
        from_ms=1,
        felt_ms=felt_ms,
        since_ack_ms=1,
        sends_failed=1,
        threshold_ms=40,
        stalled_ms=stalled_ms,
        is_over=True,
        reason="no answer",
    )


@pytest.mark.parametrize(
    ("found", "felt_ms", "is_true"),
    [
        (gap(2_851), 2_762, True),
        (gap(3_100), 2_762, False),
        (gap(3_100, stalled_ms=200), 2_762, True),
        (gap(2_400), 2_762, False),
        (gap(41), 29, True),
        (None, 150, True),
        (None, 1_000, False),
    ],
)
def test_what_the_probe_felt_is_held_against_the_stopwatch(found: GapLine | None, felt_ms: int, is_true: bool) -> None:
    assert (complaints(found, Felt(felt_ms, felt_ms), longest_ms=felt_ms) == ()) is is_true


def test_the_gap_of_the_outage_counts_and_not_the_longest() -> None:
    """On a machine that was late a probe felt 5.7 s of a kill, and 6.7 s later on: the row was called false by the latter."""
    of_outage = replace(gap(5_725), from_ms=100_000)
    later = replace(gap(6_721), from_ms=130_000)
    felt = Felt(5_129, 5_129, over_ns=5_600_000_000)
    assert meeting([later, of_outage], felt, wall_ms=100_000) is of_outage
    assert meeting([later], felt, wall_ms=100_000) is None


@pytest.mark.parametrize(("served_ms", "is_one"), [(GRAIN_MS - 20, True), (GRAIN_MS + 20, False)])
def test_two_stops_with_service_between_them_that_the_probe_missed_were_called_a_lie_of_the_probe(
    served_ms: int, is_one: bool
) -> None:
    """Of a RocketMQ master that hung the probe felt 7.5 s, the stopwatch 5.1: few messages in the middle were acknowledged."""
    begins_ms = (0, 2_400 + served_ms, 2_400 + served_ms + 5_000 + served_ms)
    over_ms = (2_400, begins_ms[1] + 5_000, begins_ms[2] + 300)
    served = (range(over_ms[place], begins_ms[place + 1] + 1, 2) for place in (0, 1))
    events = [
        Event(at * 1_000_000, 1) for at in (-2, 0, *(at for one in served for at in one), over_ms[2], over_ms[2] + 2)
    ]
    outage = Felt(5_000, 5_000, over_ns=over_ms[1] * 1_000_000)

    found = longest_ms(events, outage)

    assert found == (over_ms[2] if is_one else 5_000)
    assert (complaints(gap(over_ms[2]), outage, longest_ms=found) == ()) is is_one
