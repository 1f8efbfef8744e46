"""What every session of Spark shares."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")

from analytics.session import LOCAL_FILES, spark_session

pytestmark = pytest.mark.spark


def test_writing_a_partition_started_processes_for_the_modes_of_its_files(spark: Any, tmp_path: Path) -> None:
    """Java sets them, as Hadoop would have; a session that is asked for again has them too."""
    again = spark_session(app="another")
    local, settings = spark._jvm.java.net.URI("file:///"), spark.sparkContext._jsc.hadoopConfiguration()
    file_system = spark._jvm.org.apache.hadoop.fs.FileSystem.get(local, settings)
    assert again is spark or again.sparkContext is spark.sparkContext
    assert file_system.getClass().getName() == LOCAL_FILES.stem

    spark.range(3).selectExpr("id", "id AS day").write.partitionBy("day").parquet(str(tmp_path / "rows"))
    files = list((tmp_path / "rows").rglob("*.parquet"))
    assert len(files) == 3
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o644}
    assert {stat.S_IMODE(path.parent.stat().st_mode) for path in files} == {0o755}
    assert sum(row["id"] for row in spark.read.parquet(str(tmp_path / "rows")).collect()) == 3

    raw, path = file_system.getRawFileSystem(), spark._jvm.org.apache.hadoop.fs.Path(str(files[0]))
    raw.setPermission(path, spark._jvm.org.apache.hadoop.fs.permission.FsPermission("600"))
    assert stat.S_IMODE(files[0].stat().st_mode) == 0o600
