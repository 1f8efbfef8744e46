"""A master and two workers on this machine make the same tables as one process."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")

from rollcall_ha.analytics.bronze.tables import BRONZE_EVENTS
from rollcall_ha.analytics.gold.tables import GOLD
from rollcall_ha.analytics.lake.lake import Lake
from rollcall_ha.analytics.lake.session import NoSpark, check_java
from rollcall_ha.analytics.silver.tables import SILVER
from rollcall_ha.deploy.local.processes import wait_until
from tests.spark.lakes import content

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.prove]

SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "spark-standalone.sh"
DEADLINE_S = 600
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = f"""
spark.driver.extraJavaOptions {QUICK_START}
spark.executor.extraJavaOptions {QUICK_START}
spark.sql.codegen.wholeStage false
"""
"""As in ``conftest``, for processes that live for a few seconds."""


def environment(folder: Path) -> dict[str, str]:
    """Temporary files below ``folder``."""
    (folder / "settings").write_text(SETTINGS)
    return {**os.environ, "TMPDIR": str(folder), "SETTINGS": str(folder / "settings")}


def started(folder: Path) -> list[str]:
    """Processes that run below ``folder``: everything that the script starts has its own temporary folder in its environment."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if any(str(folder) in word for word in (*process.cmdline(), *process.environ().values())):
                found.append(f"{process.pid} {' '.join(process.cmdline())}")
    return found


def await_end(folder: Path) -> None:
    """Until nothing of what was ``started`` is left. Raises ``DeadlineError``."""
    wait_until(lambda: not started(folder), deadline_s=DEADLINE_S, what="every process of the cluster to be gone")


def test_two_workers_make_the_same_tables(
    spark: Any, journals: Path, expected: dict[str, list[Any]], tmp_path: Path
) -> None:
    """The script starts everything, and leaves nothing behind: no master, worker, executor or driver."""
    lake = Lake(tmp_path / "lake")
    done = subprocess.run(
        [str(SCRIPT), "run", str(journals), "--lake", str(lake.root), "--quiet", "-o", "json"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env=environment(tmp_path),
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    assert "with 2 workers" in done.stderr
    found = content(spark, lake, (BRONZE_EVENTS, *SILVER, *GOLD))
    for path, rows in found.items():
        assert rows == expected[path], path
    await_end(tmp_path)


def test_a_script_that_is_told_to_end_takes_everything_with_it(journals: Path, tmp_path: Path) -> None:
    """In the middle of the job: master, workers, executors and the job itself; it waited for the job's end before."""
    try:
        check_java()
    except NoSpark as error:
        pytest.skip(str(error))
    command = [str(SCRIPT), "run", str(journals), "--lake", str(tmp_path / "lake")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment(tmp_path)) as script:
        try:
            assert script.stderr is not None
            assert any(line.startswith("ingest ") for line in script.stderr), "the job began"
            before = started(tmp_path)
        finally:
            script.terminate()
        rest = script.stderr.read()
        assert script.wait(timeout=DEADLINE_S) == 143
    assert len([line for line in before if "org.apache.spark" in line]) >= 4
    assert "logs are in" in rest
    await_end(tmp_path)
