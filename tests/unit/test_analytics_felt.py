"""Gaps of probes: out of their journals, and beside the record, asked by DuckDB of rows by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="jinja2 is not installed: the analytics extra is optional")

from rollcall_ha.analytics.bronze.gaps import gaps_of
from rollcall_ha.analytics.bronze.lines import find_journals
from rollcall_ha.analytics.bronze.tables import BRONZE_GAPS
from rollcall_ha.analytics.gold.tables import GOLD_FELT
from rollcall_ha.analytics.silver.tables import SILVER_BROKER_SETS, SILVER_REIGNS, SILVER_STOPS
from rollcall_ha.probe.lines import GapLine, WatchedLine, encode_line
from tests.support.report_rows import instant, row
from tests.unit.test_report_questions import asked

WATCHED = encode_line(WatchedLine(to_ms=1, watched_ms=1, interval_ms=100, sets=()))


def line(from_ms: int, felt_ms: int, *, name: str = "a") -> GapLine:
    return GapLine(
        cluster="c",
        set_name=name,
        from_ms=from_ms,
        felt_ms=felt_ms,
        since_ack_ms=None,
        sends_failed=3,
        threshold_ms=300,
        stalled_ms=0,
        is_over=True,
        reason="gone",
    )


def test_each_gap_is_a_row_once_whatever_lies_around_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of three probes' journals, one a copy and one torn; the journals of controllers beside them are not looked at."""
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "1.jsonl").write_text("")
    lines = [encode_line(line(5_000, 700)), WATCHED, encode_line(line(9_000, 800))]
    for number, text in enumerate([b"".join(lines), b"".join(lines), lines[0] + b'{"kind":"gap"'], start=1):
        (tmp_path / f"probe-{number:015}.jsonl").write_bytes(text)
    assert [one.name for one in find_journals([tmp_path])] == ["1.jsonl"]
    files = find_journals([tmp_path], with_probes=True)[1:]
    found = gaps_of(files, [])
    assert [(one["from_at"], one["near_to_at"]) for one in found] == [
        (instant(5_000), instant(6_700)),
        (instant(9_000), instant(10_800)),
    ]
    assert set(found[0]) == set(BRONZE_GAPS.column_names)
    assert gaps_of(files[:1], found) == found
    assert "probe-000000000000003.jsonl" in capsys.readouterr().err


def felt(folder: Path, gaps: list[GapLine], reigns: list[dict[str, Any]], *stops: dict[str, Any]) -> list[Any]:
    """Of each row what it says of the record. Set 1 is of fleet f, set 2 of g; both have one name."""
    file = folder / "probe-000000000000001.jsonl"
    file.write_bytes(b"".join(map(encode_line, gaps)))
    sets = [
        row(SILVER_BROKER_SETS, set_id=of, fleet=fleet, cluster="c", broker_set="a")
        for of, fleet in ((1, "f"), (2, "g"))
    ]
    tables = [
        (BRONZE_GAPS, gaps_of([file], [])),
        (SILVER_REIGNS, [row(SILVER_REIGNS, **one) for one in reigns]),
        (SILVER_STOPS, [row(SILVER_STOPS, **one) for one in stops]),
        (SILVER_BROKER_SETS, sets),
    ]
    names = ("fleet", "outages", "kind", "recorded_ms", "difference_ms")
    return sorted(tuple(one[name] for name in names) for one in asked(GOLD_FELT, *tables))


def reign(of: int, epoch: int, lost_ms: int, served_ms: int | None, total_us: int | None) -> list[dict[str, Any]]:
    """A failover and the reign before it, long ago."""
    ended = instant(lost_ms + 50)
    return [
        {"set_id": of, "master_epoch": epoch - 1, "next_epoch": epoch, "lost_at": instant(lost_ms), "ended_at": ended},
        {"set_id": of, "master_epoch": epoch, "next_epoch": None, "kind": "failover", "elected_at": ended}
        | {"served_at": None if served_ms is None else instant(served_ms), "ended_at": None, "total_us": total_us},
    ]  # fmt: skip


HOUR_MS = 3_600_000


def test_a_gap_stands_beside_the_outages_that_it_meets(tmp_path: Path) -> None:
    known = reign(1, 7, HOUR_MS, HOUR_MS + 300, 300_900)
    assert felt(tmp_path, [line(HOUR_MS + 90, 450)], known) == [("f", 1, "failover", 300, 150)]
    # The probe's clock is 0.9 s ahead; with more it is a gap of its own.
    assert felt(tmp_path, [line(HOUR_MS + 1_200, 450)], known) == [("f", 1, "failover", 300, 150)]
    assert felt(tmp_path, [line(HOUR_MS + 1_400, 450)], known) == [("", 0, None, None, None)]


def test_a_failover_of_rocketmqs_brokers_has_the_length_that_was_felt_alone(tmp_path: Path) -> None:
    """They tell nobody when they serve: its total is unknown. A stop within a reign is on no record at all."""
    known = reign(1, 7, HOUR_MS, HOUR_MS + 300, None)
    gaps = [line(HOUR_MS + 90, 1_450), line(2 * HOUR_MS, 700)]
    assert felt(tmp_path, gaps, known) == [("", 0, None, None, None), ("f", 1, "failover", None, None)]


def test_a_stop_that_goes_on_and_one_that_an_election_ended(tmp_path: Path) -> None:
    """The second is a part of the election's outage: counted too, it would be there twice."""
    known = reign(1, 7, HOUR_MS, HOUR_MS + 5_000, 5_000_000)
    began = {"set_id": 1, "began_at": instant(HOUR_MS), "ended_at": instant(HOUR_MS + 50), "stopped_us": 40_000}
    ended = began | {"ended_by": "master-elected"}
    assert felt(tmp_path, [line(HOUR_MS, 5_100)], known, ended) == [("f", 1, "failover", 5_000, 100)]
    goes_on = began | {"set_id": 2, "ended_at": None, "ended_by": None, "stopped_us": None}
    assert felt(tmp_path, [line(2 * HOUR_MS, 700)], [], goes_on) == [("g", 1, "writes-stopped", None, None)]


def test_two_fleets_with_sets_of_one_name_are_two_rows(tmp_path: Path) -> None:
    known = [*reign(1, 7, HOUR_MS, HOUR_MS + 300, 300_000), *reign(2, 4, HOUR_MS, HOUR_MS + 200, 200_000)]
    assert felt(tmp_path, [line(HOUR_MS, 400)], known) == [
        ("f", 1, "failover", 300, 100),
        ("g", 1, "failover", 200, 200),
    ]
