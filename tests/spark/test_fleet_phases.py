"""The phases that Spark finds in a real fleet's journals are what ``rollcall history`` says, phase by phase."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")

from rollcall_ha.analytics.lake.session import NoSpark, check_java
from rollcall_ha.analytics.silver.phases import SPANS, span_column
from tests.recount.compare import opened
from tests.support.fleet_story import counted, heal, load, only_set, rollcall, running, wait_row
from tests.support.fleet_trials import kill_master

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.slow, pytest.mark.prove]

SPARK_DEADLINE_S = 240
"""A session alone takes half a minute on a busy machine."""
QUICK_START = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dspark.sql.codegen.wholeStage=false "
    "-Dspark.sql.codegen.factoryMode=NO_CODEGEN"
)
"""As in ``conftest``, for the Java of a program."""


def test_phases_of_a_fleet_are_its_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two failovers under load; every phase, total, rest, grade and loss of every reign is the same in both."""
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", QUICK_START)
    try:
        check_java()
    except NoSpark as error:
        pytest.skip(str(error))
    with running(tmp_path / "fleet") as fleet:
        key = only_set(fleet)
        for _ in range(2):
            with load(fleet) as work:
                trial = kill_master(fleet)
                work.wait_more()
            wait_row(fleet, trial.epoch)
            heal(fleet)
        # While the fleet runs and is at rest: its stop would be one more election.
        told = rollcall(fleet, "history", key.name, "-o", "json")
        assert told.returncode == 0, told.stderr
        history = json.loads(told.stdout)
        lake = tmp_path / "lake"
        done = rollcall(fleet, "analytics", "run", str(fleet.directory), "--lake", str(lake), limit_s=SPARK_DEADLINE_S)
    assert done.returncode == 0, done.stderr
    with opened(lake) as database:
        rows = database.sql("SELECT * FROM phases").to_arrow_table().to_pylist()
    by_epoch = {row["master_epoch"]: row for row in rows}
    counted(reigns=len(history["rows"]))
    assert "rejected" not in done.stdout
    assert sum(row["is_failover"] for row in rows) == 2
    assert sorted(by_epoch) == sorted(row["masterEpoch"] for row in history["rows"])
    for row in history["rows"]:
        same(by_epoch[row["masterEpoch"]], row)


def same(spark: dict[str, Any], history: dict[str, Any]) -> None:
    """One reign in both."""
    durations = {span["phase"]: span["durationUs"] for span in history["phases"]}
    for phase in SPANS:
        assert spark[span_column(phase)] == durations.get(phase.value), phase
    # Causes are words for people in the one and a closed vocabulary in the other.
    assert spark["cause"]
    for ours, theirs in (
        ("kind", "kind"),
        ("from_master", "fromMaster"),
        ("to_master", "toMaster"),
        ("total_us", "totalUs"),
        ("unattributed_us", "unattributedUs"),
        ("grade", "grade"),
        ("loss_bytes", "lossBytes"),
        ("cut_bytes", "cutBytes"),
    ):
        assert spark[ours] == history[theirs], ours
