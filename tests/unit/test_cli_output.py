"""Single values as text, and tables as lines."""

from __future__ import annotations

import pytest

from rollcall_ha.api.cli import output
from rollcall_ha.api.cli.output import Column, Report, Table


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "unknown"),
        (0, "0.0 ms"),
        (800, "0.8 ms"),
        (9_949, "9.9 ms"),
        (9_960, "10 ms"),
        (12_345, "12 ms"),
        (999_499, "999 ms"),
        (999_600, "1.0 s"),
        (3_100_000, "3.1 s"),
        (59_960_000, "1 min"),
        (840_000_000, "14 min"),
        (7_560_000_000, "2.1 h"),
        (432_000_000_000, "5 d"),
    ],
)
def test_durations_have_two_or_three_digits_and_a_unit(value: int | None, text: str) -> None:
    """Never 1000 ms, never 60.0 s."""
    assert output.duration_us(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "unknown"), (0, "0 B"), (999, "999 B"), (1000, "1.0 K"), (21_800, "21.8 K"), (999_960, "1.0 M")],
)
def test_sizes_have_a_unit(value: int | None, text: str) -> None:
    """Thousands, as in the tables of the documents."""
    assert output.size(value) == text


def test_instants_are_utc() -> None:
    """Local time is what operators curse."""
    assert output.utc(1_763_651_400_000) == "2025-11-20T15:10:00Z"
    assert output.utc(None) == "unknown"


def test_numbers_are_right_aligned_and_silent_columns_left_out() -> None:
    """A column appears only when it says something."""
    columns = (Column(title="NAME"), Column(title="N", is_right=True), Column(title="LAG", is_optional=True))
    table = Table(columns=columns, rows=(("a", "1,000", "-"), ("long name", "7", "")))

    text = output.render_text(Report(document=None, verdict="OK  fine", read="read", parts=(table, "footer")))

    assert text.splitlines() == [
        "OK  fine" + " " * (output.LINE_WIDTH - 12) + "read",
        "",
        "NAME           N",
        "a          1,000",
        "long name      7",
        "footer",
    ]
