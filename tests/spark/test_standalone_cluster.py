"""Must show 5 of the analytics: a master and two workers on this machine make the same tables as one process."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")

from analytics.gold_tables import GOLD
from analytics.lake import Lake
from analytics.tables import BRONZE_EVENTS, SILVER
from tests.spark.lakes import content

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.slow]

SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "spark-standalone.sh"
DEADLINE_S = 600


def test_two_workers_make_the_same_tables(
    spark: Any, journals: Path, expected: dict[str, list[Any]], tmp_path: Path
) -> None:
    """The script starts and stops everything; its last line is the job's own."""
    lake = Lake(tmp_path / "lake")
    before = {process.pid for process in psutil.process_iter()}
    done = subprocess.run(
        [str(SCRIPT), "run", str(journals), "--lake", str(lake.root), "--quiet", "-o", "json"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    assert "with 2 workers" in done.stderr
    found = content(spark, lake, (BRONZE_EVENTS, *SILVER, *GOLD))
    for path, rows in found.items():
        assert rows == expected[path], path
    left = [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if process.pid not in before and any("spark.deploy" in word for word in process.info["cmdline"] or ())
    ]
    assert left == []
