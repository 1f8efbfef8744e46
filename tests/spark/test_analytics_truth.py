"""Truth tests: what Spark finds in synthetic journals is what happened, and a replay of history gives history back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")

from rollcall_ha.analytics.bronze.inputs import events_of
from rollcall_ha.analytics.bronze.lines import find_journals
from rollcall_ha.analytics.bronze.tables import BRONZE_EVENTS
from rollcall_ha.analytics.checks.what_if import WHAT_IF, answer
from rollcall_ha.analytics.lake.lake import Lake
from tests.support.analytics_plans import ROUGH
from tests.support.analytics_truth import build_lake, compare
from tests.synthetic.files import write_fleet

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.prove]

PLAN = msgspec.structs.replace(ROUGH, faults_per_day=90)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Journals and truth of one rough fleet."""
    made = tmp_path_factory.mktemp("synthetic")
    counts = write_fleet(PLAN, 0, made)
    assert counts["false_failovers"] > 20
    return made


@pytest.fixture(scope="module")
def lake(spark: Any, folder: Path) -> Lake:
    """Of those journals."""
    return build_lake(spark, folder / "journals", folder / "lake")


@pytest.fixture(scope="module")
def events(spark: Any, lake: Lake) -> Any:
    """Bronze."""
    return lake.read(spark, BRONZE_EVENTS).persist()


def test_the_truth_is_recovered(spark: Any, lake: Lake, folder: Path) -> None:
    """Every phase, grade, cut, regret and false alarm row by row; percentiles and exposure exactly; the rest within its
    tolerance."""
    found = compare(spark, lake, folder / "truth")

    assert found.wrong() == []
    assert found.reigns > 300
    assert min(found.false[0], found.controller_caused[0], found.exposed_ms[0]) > 0


@pytest.fixture(scope="module")
def asked(spark: Any, lake: Lake) -> dict[tuple[str, str], Any]:
    """What another preset would have done, by the real and the other one."""
    return {(row["real_preset"], row["preset"]): row for row in lake.read(spark, WHAT_IF).collect()}


def test_at_the_real_settings_history_comes_back(asked: dict[tuple[str, str], Any]) -> None:
    """S83: same times, nothing avoided; and silences say which preset was real."""
    row = asked["normal", "normal"]
    found, words = answer([asked[pair] for pair in sorted(asked)])

    assert row["same"] + row["unknown"] == row["failovers"] > 300
    assert [row[f"p{percent}_ms"] for percent in (50, 95, 99)] == [
        row[f"other_p{percent}_ms"] for percent in (50, 95, 99)
    ]
    assert row["availability_ppm"] == row["other_availability_ppm"]
    assert [(one["real_preset"], one["preset"]) for one in found] == [("normal", "fast"), ("normal", "safe")]
    assert words.endswith("the preset normal is taken to have been in force.")


def test_a_shorter_timeout_is_faster_and_a_longer_one_avoids(asked: dict[tuple[str, str], Any]) -> None:
    """Two seconds sooner; a master that was heard again before the longer timeout would have stayed it."""
    fast, safe = asked["normal", "fast"], asked["normal", "safe"]

    assert fast["faster"] > 0
    assert (fast["slower"], fast["avoided"], safe["faster"]) == (0, 0, 0)
    assert safe["avoided"] > 0
    assert safe["slower"] > 0
    assert 1_900 <= fast["p99_ms"] - fast["other_p99_ms"] <= 2_110


def test_journals_and_lake_hold_the_same_events(spark: Any, events: Any, folder: Path) -> None:
    """A job may read either."""
    direct = events_of(spark, find_journals([folder / "journals"]))

    assert direct.select("fleet", "seq", "line").exceptAll(events.select("fleet", "seq", "line")).count() == 0
