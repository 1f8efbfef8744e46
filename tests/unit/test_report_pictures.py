"""Pictures of the report: what a table says is where it should be, in colour, pattern and words."""

from __future__ import annotations

import datetime as dt
import re

import pytest

pytest.importorskip("markupsafe", reason="jinja2 is not installed: the analytics extra is optional")

from markupsafe import Markup

from rollcall_ha.analytics.report import bars, contents, distributions, phase_bars, time_maps
from rollcall_ha.analytics.report.markup import element, label
from rollcall_ha.analytics.report.scales import LEVELS, Levels, LogAxis, duration, rough, share, size, whole_ms
from tests.support.report_rows import failover, row

SPANS_MS = (5.9, 8.0, 14.0, 2.0, 22.0, 0.0, 33.0)
HANG_MS = (3_010.0, 4.0, 15.0, 2.0, 30.0, 5.0, 95.0)


def widths(picture: str, class_: str) -> list[float]:
    """Widths of all parts of a class, in the order of drawing, in per cent of their strip."""
    return [float(one) for one in re.findall(rf'width="([\d.]+)%" height="[\d.]+" class="{class_}"', picture)]


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (None, "unknown"),
        (0, "0 ms"),
        (0.25, "0.25 ms"),
        (83, "83 ms"),
        (999.6, "1 s"),
        (3_050, "3.05 s"),
        (59_999, "1 min"),
        (5_400_000, "1.5 h"),
        (-7, "\N{MINUS SIGN}7 ms"),
        (400 * 86_400_000, "400 d"),
    ],
)
def test_durations_have_a_unit_and_three_digits(ms: float | None, words: str) -> None:
    """The unit is chosen after rounding: there is no 1,000 ms and no 60 s."""
    assert duration(ms) == words


def test_what_is_not_known_is_never_zero() -> None:
    """Unknown has a word of its own everywhere; a floor of 0 ms is not nothing."""
    assert (size(None), share(None), whole_ms(None)) == ("unknown", "unknown", "unknown")
    assert (size(0), share(999_991), whole_ms(0)) == ("0 B", "99.9991 %", "< 1 ms")
    assert (rough(0), rough(31_870_00), rough(95)) == ("", "53 min", "95 ms")


def test_text_from_journals_stays_text() -> None:
    """The name of a set cannot become markup, in text or in an attribute."""
    assert element("p", "<script>", class_='"x') == '<p class="&#34;x">&lt;script&gt;</p>'
    assert element("p", Markup("<b>1</b>"), ["a&", 2]) == "<p><b>1</b>a&amp;2</p>"
    assert "&lt;b&gt;" in label("<b>", 0, 0)


def test_parts_of_a_bar_are_as_wide_as_their_shares() -> None:
    """Seven phases and the rest fill the bar; a phase of no time has no width and no number."""
    one = failover(9, "dead-at-once", SPANS_MS)
    picture = phase_bars.phase_bars([one])
    drawn = {n: widths(picture, f"phase-{n}") for n in range(8)}

    assert drawn[6] == []
    for number, ms in enumerate(SPANS_MS, start=1):
        if ms:
            assert drawn[number] == [pytest.approx(100 * ms * 1000 / one["total_us"], abs=0.01)]
    assert drawn[0] == [pytest.approx(100 * one["unattributed_us"] / one["total_us"], abs=0.01)]
    assert sum(sum(found) for found in drawn.values()) == pytest.approx(100, abs=0.1)


def test_phases_are_told_by_more_than_colour() -> None:
    """Each drawn part has a pattern of its own number over it; wide ones have the number in words."""
    picture = phase_bars.phase_bars([failover(9, "dead-at-once", SPANS_MS)])

    for number in (1, 2, 3, 4, 5, 7):
        assert f"over phase-{number}-pattern" in picture
        assert f">{number}</text>" in picture or widths(picture, f"phase-{number}")[0] < 100 * 13 / bars.ROOM_PX


def test_what_follows_a_long_detection_is_enlarged() -> None:
    """3 s of silence would hide 150 ms of work: they are drawn again over the whole width."""
    hang = phase_bars.phase_bars([failover(8, "timeout", HANG_MS)])
    kill = phase_bars.phase_bars([failover(8, "dead-at-once", SPANS_MS)])

    assert "enlarged" in hang
    assert "enlarged" not in kill
    first, second = widths(hang, "phase-7")
    assert second > 10 * first


def test_missing_stamps_are_said() -> None:
    """A phase that nobody stamped is not drawn as 0."""
    one = failover(7, "timeout", (3_050, 4, 15, 2, None, None, None))

    assert "not stamped: promised, role applied, serving" in phase_bars.phase_bars([one])
    _, cells = phase_bars.phase_numbers([one])
    assert cells[0][5:8] == ["-", "-", "-"]


def test_phases_that_exceed_the_rto_still_fit() -> None:
    """Clocks of two machines: the sum may be greater than the total. Nothing is drawn past the end."""
    one = failover(3, "dead-at-once", SPANS_MS, total_us=60_000, unattributed_us=-30_900)

    drawn = [width for n in range(8) for width in widths(phase_bars.phase_bars([one]), f"phase-{n}")]
    assert sum(drawn) <= 100.1


def test_axis_is_logarithmic_and_holds_everything() -> None:
    """A decade is as wide as the next; ends are round; ticks lie inside and are few."""
    axis = LogAxis.over([3, 4_200])

    assert (axis.low_ms, axis.high_ms) == (2, 5_000)
    assert axis.place(200) - axis.place(20) == pytest.approx(axis.place(2_000) - axis.place(200))
    assert (axis.place(0), axis.place(10**9)) == (0, 1)
    assert axis.ticks()[0] == 2
    wide = LogAxis.over([1, 40 * 86_400_000])
    assert 3 < len(wide.ticks()) <= 13
    assert LogAxis.over([]).ticks()


def test_histogram_bins_lie_at_their_durations() -> None:
    """Ten bins for a decade; the highest of a cause is the one with most failovers."""
    assert distributions.bin_edges_ms(20) == pytest.approx((100, 125.9), abs=0.1)
    total = row(contents.RTO, cluster="*", cause="timeout", phase="total", failovers=9, p50_ms=110, max_ms=300)
    found = [row(contents.RTO_HISTOGRAM, cause="timeout", bin=20 + n, failovers=m) for n, m in enumerate((6, 2, 1))]
    heights = re.findall(r'height="([\d.]+)" class="bar"', distributions.histograms(found, [total]))

    assert [float(one) / float(heights[0]) for one in heights] == [
        1,
        pytest.approx(2 / 6, abs=0.01),
        pytest.approx(1 / 6, abs=0.01),
    ]


def test_percentiles_have_shapes_of_their_own() -> None:
    """Five marks, five different elements or outlines: they can be told without colour."""
    one = row(contents.RTO, cluster="*", cause="*", phase="total", failovers=9, p50_ms=1, p90_ms=2, p95_ms=3, p99_ms=4, max_ms=5)  # fmt: skip
    marks = re.findall(r'<g class="mark (\w+)">(<\w+ [^>]*>)', distributions.percentiles([one]))
    outlines = {re.sub(r"-?[\d.]+", "#", outline) for _, outline in marks}

    assert [name for name, _ in marks] == ["max", "p99", "p95", "p90", "p50"]
    assert len(outlines) == 5


def test_levels_grow_with_the_quantity() -> None:
    """Nothing is level 0, the least something is seen, the greatest is full; one outlier does not flatten the rest."""
    levels = Levels.of_durations([*range(1_000, 60_000, 1_000), 10**9])
    found = [levels.of(value) for value in (0, 1, 15_000, 30_000, 59_000, 10**9)]

    assert found == sorted(found)
    assert (found[0], found[1], found[-1]) == (0, 1, LEVELS)
    assert len(set(found)) >= 5
    assert [level for level, _ in levels.words()] == sorted({level for level, _ in levels.words()})
    assert Levels.of_durations([]).of(5) == 1


def test_calendar_puts_days_where_calendars_have_them() -> None:
    """Weekdays downwards, weeks to the right, a year of its own begins a block of its own."""
    days = [dt.date(2025, 12, 29) + dt.timedelta(days=n) for n in range(10)]
    rows = [row(contents.CALENDAR, day=day, exposed_ms=60_000 if day.day == 31 else 0) for day in days]
    picture = time_maps.calendar(rows)
    frames = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)"[^>]*class="frame"><title>(\d+-\d+-\d+)', picture)
    places = {day: (float(x), float(y)) for x, y, day in frames}

    assert len(places) == 10
    assert places["2026-01-01"][0] == places["2026-01-04"][0] < places["2026-01-05"][0]
    assert places["2026-01-01"][1] > places["2025-12-31"][1]
    assert places["2026-01-05"][1] < places["2026-01-01"][1]
    assert len(re.findall(r'class="level-\d"', picture)) == 1


def test_grades_are_all_of_the_failovers() -> None:
    """Parts add up to the bar; a refuted one is seen and named."""
    rows = [row(contents.GRADES, cause="timeout", failovers=100, proven=60, bounded=20, unknown=10, refuted=10)]
    picture = bars.grades(rows)
    drawn = [widths(picture, f"grade-{name}") for name, *_ in bars.GRADES]

    assert [found[0] if found else 0 for found in drawn] == pytest.approx([60, 20, 10, 10, 0])
    assert "refuted: 10" in picture


def test_worst_sets_share_one_scale() -> None:
    """A bar twice as long is twice the time, also across kinds."""
    rows = [row(contents.WORST_SETS, cluster="c", broker_set="a", outage_ms=1_000, exposed_ms=4_000)]
    picture = bars.worst_sets(rows)

    assert widths(picture, "exposed")[0] == pytest.approx(4 * widths(picture, "outage")[0], abs=0.02)


def test_what_if_shows_both_sides() -> None:
    """Outcomes add up to the bar; what is not known has no bar and says so."""
    one = row(
        contents.WHAT_IF, preset="fast", timeout_ms=1_000, real_preset="normal", real_timeout_ms=3_000, failovers=10,
        faster=5, same=5, p50_ms=3_000, other_p50_ms=1_000, other_p99_ms=None,
    )  # fmt: skip
    picture = bars.what_if([one])

    assert widths(picture, "recorded")[0] == pytest.approx(3 * widths(picture, "replayed")[0], abs=0.03)
    assert widths(picture, "outcome-faster") == widths(picture, "outcome-same")
    assert "unknown" in picture
