"""Recorded failovers under other timeouts: rows by hand, asked by DuckDB."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("jinja2", reason="jinja2 is not installed: the analytics extra is optional")

from rollcall_ha.analytics.checks.what_if import WHAT_IF, answer
from rollcall_ha.analytics.gold.tables import GOLD_CLUSTERS
from rollcall_ha.analytics.silver.tables import SILVER_REIGNS, SILVER_SILENCES
from tests.support.report_rows import instant, row
from tests.unit.test_report_questions import asked

FOUND_US = 3_050_000
"""A silence of 3 s and a part of a scan."""


def under(*silences: dict[str, Any], cause: str = "timeout") -> dict[tuple[str, str], dict[str, Any]]:
    """The answers to one failover for each of these silences."""
    reigns = [
        row(
            SILVER_REIGNS, set_id=1, is_failover=True, cause=cause, from_master=1, triggered_seq=n, total_us=FOUND_US + 90_000,
            last_heartbeat_age_us=one.get("heard", FOUND_US + 1_000), detected_age_us=1_000,
        )
        for n, one in enumerate(silences)
    ]  # fmt: skip
    rows = [
        row(
            SILVER_SILENCES, set_id=1, broker_id=1, seq=n, last_heartbeat_age_us=FOUND_US, found_at=instant(0),
            returned_at=one.get("back"), is_same_incarnation=one.get("same"),
        )
        for n, one in enumerate(silences)
    ]  # fmt: skip
    whole = {"observed_ms": 100_000_000, "available_ms": 99_000_000, "availability_ppm": 990_000}
    clusters = [row(GOLD_CLUSTERS, fleet="*", cluster="*", **whole), row(GOLD_CLUSTERS, fleet="f", cluster="*")]
    found = asked(WHAT_IF, (SILVER_REIGNS, reigns), (SILVER_SILENCES, rows), (GOLD_CLUSTERS, clusters))
    return {(one["real_preset"], one["preset"]): one for one in found}


def outcome(told: dict[str, Any]) -> str:
    (name,) = (name for name in ("same", "faster", "slower", "avoided", "unknown") if told[name])
    return name


def test_a_silence_is_found_as_much_sooner_or_later_as_the_timeout_is_shorter_or_longer() -> None:
    """At the real preset it is history, to the millisecond (S83); availability gains what a failover saves."""
    found = under({"back": None})

    assert len(found) == 9
    assert {pair: outcome(told) for pair, told in found.items() if pair[0] == "normal"} == {
        ("normal", "fast"): "faster",
        ("normal", "normal"): "same",
        ("normal", "safe"): "slower",
    }
    same, fast = found["normal", "normal"], found["normal", "fast"]
    assert (same["p50_ms"], same["other_p50_ms"], same["other_availability_ppm"]) == (3_140, 3_140, 990_000)
    assert (fast["timeout_ms"], fast["real_timeout_ms"]) == (1_000, 3_000)
    assert 1_950 <= fast["p50_ms"] - fast["other_p50_ms"] <= 2_050
    saved_ms = fast["p50_ms"] - fast["other_p50_ms"]
    assert fast["other_availability_ppm"] == pytest.approx((99_000_000 + saved_ms) // 100, abs=1)


def test_a_false_alarm_that_came_back_in_time_would_not_have_been() -> None:
    """A new process that came back before the longer timeout is noticed then; one that came back later is not waited for."""
    alive, restarted, late = (
        under({"back": instant(ms), "same": same})["normal", "safe"]
        for ms, same in ((1_000, True), (1_000, False), (9_000, True))
    )

    assert (outcome(alive), alive["other_p50_ms"]) == ("avoided", None)
    assert alive["other_availability_ppm"] == (99_000_000 + alive["p50_ms"]) // 100
    assert (outcome(restarted), restarted["other_p50_ms"] - restarted["p50_ms"]) == ("slower", 1_000)
    assert (outcome(late), late["other_p50_ms"] > late["p50_ms"] + 6_000) == ("slower", True)


def test_what_was_not_found_by_silence_alone_stays_and_what_is_not_on_record_is_unknown() -> None:
    """Counted as the same, it would shrink every difference."""
    assert outcome(under({"back": None}, cause="dead-at-once")["normal", "fast"]) == "same"
    unknown = under({"heard": None})["normal", "fast"]
    assert (outcome(unknown), unknown["p50_ms"], unknown["other_p50_ms"]) == ("unknown", None, None)


def rows_of(earliest_us: int | None) -> list[dict[str, Any]]:
    """Every pair, when the shortest silence lasted so long."""
    return [one | {"earliest_us": earliest_us} for one in under({"back": None}).values()]


@pytest.mark.parametrize(
    ("earliest_us", "real", "words"),
    [
        (3_001_000, "normal", "3,001.0 ms, so the preset normal is taken to have been in force."),
        (2_999_999, "normal", "so the preset normal is taken to have been in force."),
        (1_050_000, "fast", "so the preset fast is taken to have been in force."),
        (7_000_000, "normal", "in force: that is late for it, and another timeout may have been."),
        (400_000, None, "so the timeout that was in force was that of no preset."),
        (None, None, "no timeout would have changed any."),
    ],
)
def test_the_record_says_which_preset_was_in_force(earliest_us: int | None, real: str | None, words: str) -> None:
    """The report asked a person, took "normal" for an answer, and was wrong of every fleet that was not."""
    found, said = answer(rows_of(earliest_us))

    assert {one["real_preset"] for one in found} == ({real} if real else set())
    assert [one["preset"] for one in found] == [one for one in ("fast", "normal", "safe") if real and one != real]
    assert said.endswith(words)


def test_a_lake_without_failovers_has_no_answer() -> None:
    """Neither rows nor words."""
    assert asked(WHAT_IF) == []
    assert answer([]) == ([], "")
