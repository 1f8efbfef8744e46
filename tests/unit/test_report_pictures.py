"""Pictures of the report: what a table says is where it should be, in colour, pattern and words."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="jinja2 is not installed: the analytics extra is optional")

from rollcall_ha.analytics.checks.what_if import WHAT_IF
from rollcall_ha.analytics.report import contents, pictures
from rollcall_ha.analytics.report.contents import Contents
from rollcall_ha.analytics.report.page import page, templates
from rollcall_ha.analytics.report.scales import LEVELS, Levels, LogAxis, duration, rough, share, size, whole_ms
from tests.support.report_rows import failover, row

SPANS_MS = (5.9, 8.0, 14.0, 2.0, 22.0, 0.0, 33.0)
HANG_MS = (3_010.0, 4.0, 15.0, 2.0, 30.0, 5.0, 95.0)


def drawn(name: str, *rows: Any) -> str:
    """A picture of these rows."""
    return str(getattr(templates().get_template("pictures.html.jinja").module, name)(*rows))


def section(name: str, **rows: Any) -> str:
    """A part of the page of a lake that has these rows."""
    whole = [row(contents.CLUSTERS, fleet="*", cluster="*", sets=1)]
    text = page(Contents(rows={"clusters": whole, **rows}, lake="/l", lake_version=1, made_at_ms=0))
    return text[text.index(f'<section id="{name}"') :].partition("</section>")[0]


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
    nasty = row(contents.HEAT_MAP, rank=1, cluster='"><b>', broker_set="&", days=1)
    picture = drawn("heat_map", [nasty])

    assert 'title="&#34;&gt;&lt;b&gt;/&amp;, 1 days' in picture
    assert "<span>&#34;&gt;&lt;b&gt;/&amp;</span>" in picture


def test_parts_of_a_bar_are_as_wide_as_their_shares() -> None:
    """Seven phases and the rest fill the bar; a phase of no time has no width and no number."""
    one = failover(9, "dead-at-once", SPANS_MS)
    picture = drawn("failovers", [one])
    found = {n: widths(picture, f"phase-{n}") for n in range(8)}

    assert found[6] == []
    for number, ms in enumerate(SPANS_MS, start=1):
        if ms:
            assert found[number] == [pytest.approx(100 * ms * 1000 / one["total_us"], abs=0.01)]
    assert found[0] == [pytest.approx(100 * one["unattributed_us"] / one["total_us"], abs=0.01)]
    assert sum(map(sum, found.values())) == pytest.approx(100, abs=0.1)


def test_phases_are_told_by_more_than_colour() -> None:
    """Each drawn part has a pattern of its own number over it; wide ones have the number in words."""
    picture = drawn("failovers", [failover(9, "dead-at-once", SPANS_MS)])

    for number in (1, 2, 3, 4, 5, 7):
        assert f"over phase-{number}-pattern" in picture
        assert f">{number}</text>" in picture or widths(picture, f"phase-{number}")[0] < 100 * 13 / pictures.ROOM_PX


def test_what_follows_a_long_detection_is_enlarged() -> None:
    """3 s of silence would hide 150 ms of work: they are drawn again over the whole width."""
    hang = drawn("failovers", [failover(8, "timeout", HANG_MS)])
    kill = drawn("failovers", [failover(8, "dead-at-once", SPANS_MS)])

    assert "enlarged" in hang
    assert "enlarged" not in kill
    first, second = widths(hang, "phase-7")
    assert second > 10 * first


def test_missing_stamps_are_said() -> None:
    """A phase that nobody stamped is not drawn as 0."""
    one = failover(7, "timeout", (3_050, 4, 15, 2, None, None, None))

    assert "not stamped: promised, role applied, serving" in drawn("failovers", [one])
    cells = re.findall(r'<td class="number">(.*?)</td>', section("phases", failovers=[one]))
    assert cells[4:7] == ["-", "-", "-"]


def test_phases_that_exceed_the_rto_still_fit() -> None:
    """Clocks of two machines: the sum may be greater than the total. Nothing is drawn past the end."""
    one = failover(3, "dead-at-once", SPANS_MS, total_us=60_000, unattributed_us=-30_900)

    found = [width for n in range(8) for width in widths(drawn("failovers", [one]), f"phase-{n}")]
    assert sum(found) <= 100.1


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
    assert pictures.bin_edges_ms(20) == pytest.approx((100, 125.9), abs=0.1)
    total = row(
        contents.RTO, fleet="*", cluster="*", cause="timeout", phase="total", failovers=9, p50_ms=110, max_ms=300
    )
    found = [row(contents.RTO_HISTOGRAM, cause="timeout", bin=20 + n, failovers=m) for n, m in enumerate((6, 2, 1))]
    heights = re.findall(r'height="([\d.]+)" class="bar"', drawn("histograms", found, [total]))

    assert [float(one) / float(heights[0]) for one in heights] == [
        1,
        pytest.approx(2 / 6, abs=0.01),
        pytest.approx(1 / 6, abs=0.01),
    ]


def test_percentiles_have_shapes_of_their_own() -> None:
    """Five marks, five different elements or outlines: they can be told without colour."""
    one = row(contents.RTO, fleet="*", cluster="*", cause="*", phase="total", failovers=9, p50_ms=1, p90_ms=2, p95_ms=3, p99_ms=4, max_ms=5)  # fmt: skip
    marks = re.findall(r'<use href="#(\w+)"', drawn("percentiles", [one]))
    shapes = dict(re.findall(r'<\w+ id="(\w+_ms)" ([^>]*)>', templates().get_template("patterns.svg.jinja").render()))

    assert marks == ["max_ms", "p99_ms", "p95_ms", "p90_ms", "p50_ms"]
    assert len({shapes[name] for name in marks}) == 5


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
    picture = drawn("calendar", rows)
    cells = re.findall(r'<li class="cell level-(\d)" style="grid-area: (\d+) / (\d+)" title="([\d-]+):', picture)
    places = {day: (int(weekday), int(week)) for _, weekday, week, day in cells}

    assert len(places) == 10
    assert picture.count("<ol") == 2
    assert (places["2025-12-29"], places["2025-12-31"]) == ((2, 2), (4, 2))
    assert places["2026-01-01"][1] == places["2026-01-04"][1] == places["2026-01-05"][1] - 1
    assert (places["2026-01-01"][0], places["2026-01-05"][0]) == (5, 2)
    assert [day for level, *_, day in cells if level != "0"] == ["2025-12-31"]


def test_days_that_nobody_observed_have_no_frame() -> None:
    """A day on which nothing happened has one."""
    first, last = dt.date(2026, 1, 1), dt.date(2026, 1, 2)
    found = [(1, first), (1, last), (2, last)]
    rows = [row(contents.HEAT_MAP, rank=rank, broker_set=f"s{rank}", from_day=day, days=1) for rank, day in found]
    body = drawn("heat_map", rows).partition("<tbody>")[2]

    assert [re.findall(r'<td( class="cell level-0")?', line) for line in body.split("<tr>")[1:]] == [
        [' class="cell level-0"', ' class="cell level-0"'],
        ["", ' class="cell level-0"'],
    ]


def test_grades_are_all_of_the_failovers() -> None:
    """Parts add up to the bar; a refuted one is seen and named."""
    rows = [row(contents.GRADES, cause="timeout", failovers=100, proven=60, bounded=20, unknown=10, refuted=10)]
    picture = section("loss", grades=rows)
    parts = [[w for w in widths(picture, f"grade-{name}") if w < 100] for name, *_ in pictures.GRADES]

    assert [found[0] if found else 0 for found in parts] == pytest.approx([60, 20, 10, 10, 0])
    assert "refuted: 10" in picture


def test_worst_sets_share_one_scale() -> None:
    """A bar twice as long is twice the time, also across kinds."""
    rows = [row(contents.WORST_SETS, cluster="c", broker_set="a", outage_ms=1_000, exposed_ms=4_000)]
    picture = section("worst", worst_sets=rows)

    assert widths(picture, "exposed")[-1] == pytest.approx(4 * widths(picture, "outage")[-1], abs=0.02)


def test_what_if_shows_both_sides() -> None:
    """Outcomes add up to the bar; what is not known has no bar and says so."""
    one = row(
        WHAT_IF, preset="fast", timeout_ms=1_000, real_preset="normal", real_timeout_ms=3_000, failovers=10,
        faster=5, same=5, p50_ms=3_000, other_p50_ms=1_000, other_p99_ms=None,
    )  # fmt: skip
    picture = drawn("what_if", [one])

    assert widths(picture, "recorded")[0] == pytest.approx(3 * widths(picture, "replayed")[0], abs=0.03)
    assert widths(picture, "outcome-faster") == widths(picture, "outcome-same")
    assert "unknown" in picture
