"""Truth tests: what Spark finds in synthetic journals is what happened, and a replay of history gives history back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")

from rollcall_ha.analytics.bronze.inputs import events_of
from rollcall_ha.analytics.bronze.lines import find_journals
from rollcall_ha.analytics.bronze.tables import BRONZE_EVENTS
from rollcall_ha.analytics.checks.counterfactual import Settings
from rollcall_ha.analytics.checks.what_if import AVOIDED, FASTER, SAME, WhatIf, WrongReality, what_if
from rollcall_ha.analytics.lake.lake import Lake
from rollcall_ha.controller.contract.timing import PRESETS, Preset
from rollcall_ha.controller.core.policies import DATA_FIRST
from tests.support.analytics_plans import ROUGH
from tests.support.analytics_truth import build_lake, compare
from tests.synthetic.files import write_fleet

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.prove]

PLAN = msgspec.structs.replace(ROUGH, faults_per_day=90)
NORMAL, FAST, SAFE = (Settings.of(PRESETS[preset]) for preset in (Preset.NORMAL, Preset.FAST, Preset.SAFE))


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


def counts_of(answer: WhatIf) -> dict[str, int]:
    return {row["outcome"]: row["count"] for row in answer.failovers.groupBy("outcome").count().collect()}


def test_at_the_real_settings_history_comes_back(spark: Any, events: Any, folder: Path) -> None:
    """S83: same winners, same times, nothing avoided, nothing added; and silences say which settings were not real."""
    gaps = spark.read.parquet(str(folder / "truth" / "gaps"))
    answer = what_if(events, real=NORMAL, other=NORMAL, gaps=gaps)
    changed = answer.failovers.where(
        "is_other_winner or not other_total_us <=> total_us or other_regret_bytes != regret_bytes or outcome = 'avoided'"
    )

    assert changed.where("outcome != 'unknown'").count() == 0
    assert set(counts_of(answer)) <= {SAME, "unknown"}
    assert answer.added.count() == 0
    assert answer.doubt == ""
    with pytest.raises(WrongReality, match="--real-preset"):
        what_if(events, real=SAFE, other=NORMAL)


def test_a_record_under_a_longer_timeout_was_asked_as_if_under_a_shorter_one(events: Any) -> None:
    """Nothing was found before the shorter timeout, so nothing contradicted it, and all answers were wrong."""
    answer = what_if(events, real=FAST, other=NORMAL)

    assert re.match(
        r"Every recorded silence was found after 3,0\d\d\.\d ms or later.* 1,000 ms .*--real-", answer.doubt
    )


def test_a_shorter_timeout_is_faster_and_costs_false_failovers(spark: Any, events: Any, folder: Path) -> None:
    """Every failover that silence gave away is found two seconds earlier; which gaps would have been taken for faults is
    what the world says."""
    gaps = spark.read.parquet(str(folder / "truth" / "gaps"))
    answer = what_if(events, real=NORMAL, other=FAST, gaps=gaps)
    saved = [row["saved_us"] for row in answer.failovers.where("outcome = 'faster'").collect()]
    would_be_false = gaps.where("is_master and not is_detected and gap_us > 1000000").count()

    assert set(counts_of(answer)) <= {SAME, FASTER, "unknown"}
    assert saved
    assert all(1_990_000 <= saved_us <= 2_110_000 for saved_us in saved)
    assert answer.added.count() == would_be_false > 0


def test_a_longer_timeout_avoids_what_came_back_in_time(spark: Any, events: Any, folder: Path) -> None:
    """False failovers whose master was heard again before the longer timeout would not have happened."""
    answer = what_if(events, real=NORMAL, other=SAFE)
    avoided = answer.failovers.where(f"outcome = '{AVOIDED}'")

    assert avoided.count() > 0
    assert avoided.where("not was_false").count() == 0
    assert avoided.where("back_us > 10250000").count() == 0
    assert answer.failovers.where("outcome = 'slower' and was_false and back_us < 10000000").count() == 0


def test_another_policy_elects_by_data(events: Any) -> None:
    """The longest log first: no regret is left, and exactly the elections that had one change."""
    answer = what_if(events, real=NORMAL, other=NORMAL, policy=DATA_FIRST.name)
    replayed = answer.failovers.where("is_replayed")

    assert replayed.where("other_regret_bytes > 0").count() == 0
    assert replayed.where("is_other_winner").count() >= replayed.where("regret_bytes > 0").count() > 0
    assert answer.failovers.where("not is_replayed and is_other_winner").count() == 0


def test_journals_and_lake_hold_the_same_events(spark: Any, events: Any, folder: Path) -> None:
    """A job may read either."""
    direct = events_of(spark, find_journals([folder / "journals"]))

    assert direct.select("fleet", "seq", "line").exceptAll(events.select("fleet", "seq", "line")).count() == 0
