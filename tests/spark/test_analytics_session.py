"""What every session of Spark shares."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")

from rollcall_ha.analytics.lake.session import spark_session

pytestmark = pytest.mark.spark


FILES = 40


def test_writing_a_partition_started_processes_for_the_modes_of_its_files(spark: Any, tmp_path: Path) -> None:
    """Java sets them, as Hadoop would have, and waits for no process; a session that is asked for again has them too."""
    java = psutil.Process(spark._jvm.ProcessHandle.current().pid())
    rows = spark.range(0, FILES, 1, 1).selectExpr("id", "id AS day")
    before = java.cpu_times()
    spark_session(app="another")
    rows.write.partitionBy("day").parquet(str(tmp_path / "rows"))
    after = java.cpu_times()

    assert (after.children_user, after.children_system) == (before.children_user, before.children_system)
    files = list((tmp_path / "rows").rglob("*.parquet"))
    assert len(files) == FILES
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o644}
    assert {stat.S_IMODE(path.parent.stat().st_mode) for path in files} == {0o755}
    assert spark.read.parquet(str(tmp_path / "rows")).count() == FILES
