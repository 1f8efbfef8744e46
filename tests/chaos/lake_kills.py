"""
Runs that are killed at chosen places, and what must hold after each.

Here: starting, killing, looking at the disk without Spark. The places are ``tests.chaos.stopped_driver``'s; who reads
meanwhile is in ``lake_readers``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from rollcall_ha.analytics.bronze.tables import BRONZE_INPUTS, BRONZE_QUALITY
from rollcall_ha.analytics.jobs.run import LAYERS
from rollcall_ha.analytics.lake.lake import Lake, Snapshot
from rollcall_ha.analytics.lake.tables import FORMS
from rollcall_ha.deploy.local.processes import wait_until
from tests.chaos.lake_readers import Readers
from tests.chaos.stopped_driver import HERE, STEPS
from tests.spark.lakes import build
from tests.support.analytics_story import write_journals

ROOT = Path(__file__).resolve().parents[2]
COUNTS = (BRONZE_QUALITY.path, BRONZE_INPUTS.path)
"""Each run replaces them, whatever it reads."""
DEADLINE_S = 900
EARLY = 30
"""Lines of the journals in their first state: in the middle of a day and of a failover."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill of a run of one layer, when it is at a place for the ``number``-th time."""

    layer: str
    place: str
    number: int = 1

    @property
    def is_writing(self) -> bool:
        """In the middle of a job of Spark."""
        return self.place not in STEPS

    @property
    def is_published(self) -> bool:
        """What the run made was published before."""
        return (self.place, self.number) == ("sweep", 2)


def look(lake: Lake) -> dict[str, str]:
    """Every file that the newest snapshot leads a reader to, and its number; fails if a file is not there."""
    snapshot = lake.snapshot()
    files = [
        lake.folder(path) / file
        for path in snapshot.rows
        for some in lake.files(path, snapshot.version(path)).values()
        for file in some
    ]
    found = {str(file.relative_to(lake.root)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    return found | {"snapshot": str(snapshot.number)}


def runs_there(lake: Lake) -> set[str]:
    """Names of the folders of runs that lie there, read by anybody or not."""
    return {folder.name for layer in FORMS for folder in lake.folder(layer).glob("*/0*")}


def runs_kept(lake: Lake) -> set[str]:
    """Of the snapshots that are kept."""
    return {
        file.split("/")[0]
        for snapshot in lake.snapshots()
        for path in snapshot.rows
        for some in lake.files(path, snapshot.version(path)).values()
        for file in some
    }


def layers_replaced(lake: Lake, before: Snapshot) -> set[str]:
    """Layers with a part of a table that was published ``before``, and has other files now."""
    now = lake.snapshot()
    return {
        path.split("/")[0]
        for path in before.rows
        for part, files in lake.files(path, before.version(path)).items()
        if path not in COUNTS and lake.files(path, now.version(path)).get(part, files) != files
    }


def kill_at(kill: Kill, lake: Lake, journals: Path, folder: Path, readers: Readers) -> int:
    """
    Start a run of a layer, look at the lake when it has stopped at the place, let all readers read, and SIGKILL it there.

    In the middle of Spark's writing its Java is killed too; otherwise that is left to end by itself. Fails if the run
    ends before. Returns how many files of the table that was being written were there, from tasks that had ended.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    arguments = [kill.place, str(kill.number), str(folder), kill.layer]
    paths = [str(journals)] if kill.layer == "ingest" else []
    command = [sys.executable, "-m", "tests.chaos.stopped_driver", *arguments, *paths, "--lake", str(lake.root), "-q"]
    before, said = look(lake), folder / "said"
    with said.open("wb") as out:
        driver = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out, start_new_session=True)

    def is_there() -> bool:
        assert driver.poll() is None, f"it ended before it was at {kill}: {said.read_text()[-2_000:]}"
        return any(folder.glob(HERE))

    try:
        wait_until(is_there, deadline_s=DEADLINE_S, what=f"the run to be at {kill}")
        assert (look(lake) == before) is not kill.is_published
        readers.await_rounds()
        started = psutil.Process(driver.pid).children(recursive=True)
        assert "java" in {process.name() for process in started}
        if not kill.is_writing:
            driver.kill()
            assert psutil.wait_procs(started, timeout=DEADLINE_S)[1] == []
    finally:
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        assert driver.wait() == -signal.SIGKILL
    return len(list((lake.root / kill.place).glob("0*/_temporary/0/task_*/**/*.parquet")))


def kill_all(spark: Any, lines: Sequence[str], kills: Sequence[Kill], folder: Path) -> tuple[Lake, int, dict[str, int]]:
    """
    A lake of the first ``EARLY`` lines; then the other lines come, and of each layer's run the ``kills`` are done one after
    the other before it may come to its end. After each kill a reader finds what was published, byte for byte. Programs without
    Rollcall read all the time: while a run writes or stands still, after its kill, and while a run publishes.

    Returns the lake, how many files lay in tables that were being written, over all kills, and what the readers counted.
    """
    lake, journals = Lake(folder / "lake"), folder / "journals"
    write_journals(lines[:EARLY], journals)
    assert build(spark, lake, journals) == 1
    first = lake.snapshot()
    shutil.rmtree(journals)
    write_journals(lines, journals)
    torn_files, readers = 0, Readers(lake, folder)
    with readers:
        for layer in LAYERS:
            for kill in (one for one in kills if one.layer == layer):
                before, version = look(lake), lake.snapshot().number
                torn = kill_at(kill, lake, journals, folder / "driver", readers)
                assert lake.snapshot().number == version + kill.is_published
                assert (look(lake) == before) is not kill.is_published
                assert kill.is_published or runs_there(lake) - runs_kept(lake), f"nothing was begun at {kill}"
                readers.await_rounds()
                torn_files += torn
            was_published = any(kill.layer == layer and kill.is_published for kill in kills)
            version = lake.snapshot().number
            assert build(spark, lake, journals, layers=(layer,)) == version + (not was_published)
        readers.await_rounds()
    assert layers_replaced(lake, first) == {"bronze", "silver", "gold"}
    assert runs_there(lake) == runs_kept(lake)
    return lake, torn_files, readers.judge()
