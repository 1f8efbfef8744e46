"""Whether the probe and the stopwatch beside it say the same: their grain is allowed for, and nothing more."""

from __future__ import annotations

import pytest

from rollcall_ha.probe.lines import GapLine
from tests.truth.probe import complaints
from tests.truth.recorded import Felt


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
    assert (complaints(found, Felt(felt_ms, felt_ms)) == ()) is is_true
