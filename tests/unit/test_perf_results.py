"""The bench's table says what was reached, by the median, and by how much the rest misses."""

from __future__ import annotations

import pytest

from tests.perf.results import Measure, gather, number, percentile, table

BELOW = Measure(key="gap", what="gap", unit="ms", aim=50)
ABOVE = Measure(key="rate", what="rate", unit="/s", aim=20_000, is_floor=True)
PLAIN = Measure(key="note", what="note", unit="")


def test_a_verdict_is_about_the_median() -> None:
    """One slow run of three does not miss an aim, and one fast run does not reach it."""
    gap, rate, note = gather(
        "s",
        (BELOW, ABOVE, PLAIN),
        [
            {"gap": 10, "rate": 1, "note": 1},
            {"gap": 49, "rate": 19_000, "note": 2},
            {"gap": 900, "rate": 30_000, "note": 3},
        ],
    )

    assert (gap.is_reached, gap.verdict) == (True, "reached")
    assert (rate.is_reached, rate.verdict) == (False, "misses by 1,000 /s")
    assert (note.is_reached, note.verdict) == (None, "")


def test_a_measure_without_its_value_is_an_error() -> None:
    """An empty cell would read like a measurement."""
    with pytest.raises(KeyError):
        gather("s", (BELOW, ABOVE), [{"gap": 1}])


def test_the_table_shows_both_ends_of_the_runs() -> None:
    lines = table(gather("s", (BELOW,), [{"gap": 10}, {"gap": 49.5}, {"gap": 1_900}])).splitlines()

    assert lines[0].split()[:5] == ["WHAT", "UNIT", "MIN", "MEDIAN", "MAX"]
    assert lines[-1].split()[:5] == ["gap", "ms", "10", "49.5", "1,900"]


@pytest.mark.parametrize(("value", "text"), [(0.123, "0.12"), (12.34, "12.3"), (1234.5, "1,234"), (3, "3")])
def test_three_digits_count(value: float, text: str) -> None:
    assert number(value) == text


def test_a_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing"):
        percentile([], 0.5)
    assert percentile([3, 1, 2], 0.5) == 2
    assert percentile([1], 0.99) == 1
