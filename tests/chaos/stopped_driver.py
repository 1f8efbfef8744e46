"""
``rollcall analytics run`` that stops at a chosen place, to be killed there: the disk is then what any SIGKILL leaves.

Here: the stop. ``python -m tests.chaos.stopped_driver PLACE NUMBER FOLDER LAYER ARGUMENTS...`` does one layer of the run
up to the NUMBER-th time that PLACE is reached, leaves a file ``HERE`` in FOLDER, and does no more. FOLDER takes Java's
temporary files too. Imported for its names, and started, by ``lake_kills``.

A place is the path of a table: Spark's job that writes it, with all of its rows committed by their tasks and one task
that does not end. Or one of ``STEPS`` of publishing.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rollcall_ha.analytics.bronze.tables import BRONZE_EVENTS
from rollcall_ha.analytics.cli import app
from rollcall_ha.analytics.jobs.layers import Layers
from rollcall_ha.analytics.lake import lake
from rollcall_ha.analytics.lake.session import spark_session
from rollcall_ha.analytics.lake.tables import LakeTable
from tests.spark.conftest import QUICK_START

HERE = "*.here"
FOREVER_MS = 24 * 3_600_000

STEPS = ("publish", "commit", "name", "sweep")
"""
Before anything of what was staged is published; before a table is committed (those before it are); when all tables are
committed and no snapshot names them; before what is old is removed (a run does that twice: when it begins, and after it has
published).
"""


def nth(number: int, call: Callable[..., Any], then: Callable[..., Any], *, counts: Callable[..., bool]) -> Any:
    """``call``, but ``then`` when it ``counts`` for the ``number``-th time."""
    left = number

    def called(*arguments: Any) -> Any:
        nonlocal left
        left -= counts(*arguments)
        return (then if left == 0 else call)(*arguments)

    return called


def with_endless_task(rows: Any) -> Any:
    """
    The same rows, and a task after theirs that says where it is and adds none for ``FOREVER_MS``.

    Two partitions, of which the first is never done: Spark makes one task of a partition each of both sides of a union.
    """
    from pyspark.sql import functions as f

    says = "reflect('java.io.File', 'createTempFile', 'held', '.here')"
    waits = f"reflect('java.lang.Thread', 'sleep', {FOREVER_MS}L)"
    endless = rows.sparkSession.range(0, 2, 1, 2).where(f"concat({says}, {waits}) = ''")
    nothing = [f.lit(None).cast(field.dataType).alias(field.name) for field in rows.schema.fields]
    return rows.unionByName(endless.select(*nothing))


def stop_at(place: str, number: int, folder: Path) -> None:
    """Change what the run calls at ``place``."""

    def stop(*_: Any) -> None:
        (folder / "step.here").touch()
        signal.pause()

    def instead(owner: Any, name: str, then: Callable[..., Any], *, counts: Callable[..., bool]) -> None:
        patch.object(owner, name, nth(number, getattr(owner, name), then, counts=counts)).start()

    def stage_with_endless_task(writer: lake.LakeWriter, table: LakeTable, rows: Any) -> Any:
        return stage(writer, table, with_endless_task(rows))

    def write_with_endless_task(layers: Layers, rows: Any) -> Any:
        return write(layers, with_endless_task(rows))

    stage, write = lake.LakeWriter.stage, Layers._write
    if place == "publish":
        instead(lake.LakeWriter, "publish", stop, counts=lambda _: True)
    elif place == "commit":
        instead(lake, "commit", stop, counts=lambda *_: True)
    elif place == "name":
        instead(lake.LakeWriter, "_name", stop, counts=lambda *_: True)
    elif place == "sweep":
        instead(lake.LakeWriter, "_sweep", stop, counts=lambda _: True)
    elif place == BRONZE_EVENTS.path:
        instead(Layers, "_write", write_with_endless_task, counts=lambda *_: True)
    else:
        instead(lake.LakeWriter, "stage", stage_with_endless_task, counts=lambda _, table, __: table.path == place)


def main() -> None:
    """Ends with the run's exit code if it came to its end."""
    place, number, folder, layer, *arguments = sys.argv[1:]
    stop_at(place, int(number), Path(folder))
    # In the order of their numbers: tasks that read a shuffle have places that they like, and others go before them.
    in_order = {"spark.shuffle.reduceLocality.enabled": "false"}
    java = f"-Djava.io.tmpdir={folder}"
    # The job finds the session that is there.
    settings = QUICK_START | in_order | {"spark.driver.extraJavaOptions": java}
    spark_session(app="stopped", master="local[1]", settings=settings, is_few=True)
    app([layer, *arguments])


if __name__ == "__main__":
    main()
