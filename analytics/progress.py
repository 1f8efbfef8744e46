"""
What a long job says while it runs, on stderr: one line per step, and on a terminal how far it is.

Here: printing. Not here: what the steps do. Nothing of this runs inside Spark's tasks.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_MS = 500


class Progress:
    """Says which step runs, how many of its tasks are done, and how long it took."""

    def __init__(self, spark: SparkSession, *, is_quiet: bool = False) -> None:
        self._spark = spark
        self._is_quiet = is_quiet
        self.took_ms: dict[str, int] = {}
        """Step -> wall clock."""

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Everything that Spark does inside belongs to the step."""
        began = time.monotonic()
        done = threading.Event()
        watcher = None
        if not self._is_quiet and sys.stderr.isatty():
            watcher = threading.Thread(target=self._watch, args=(name, began, done), daemon=True)
            watcher.start()
        try:
            yield
        finally:
            done.set()
            if watcher is not None:
                watcher.join()
        self.took_ms[name] = round((time.monotonic() - began) * 1000)
        self.say(f"{name:<28} {self.took_ms[name] / 1000:8.1f} s")

    def say(self, line: str) -> None:
        if not self._is_quiet:
            clear = "\r\x1b[K" if sys.stderr.isatty() else ""
            print(f"{clear}{line}", file=sys.stderr, flush=True)

    def _watch(self, name: str, began: float, done: threading.Event) -> None:
        tracker = self._spark.sparkContext.statusTracker()
        while not done.wait(POLL_MS / 1000):
            stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
            tasks = sum(stage.numTasks for stage in stages if stage is not None)
            complete = sum(stage.numCompletedTasks for stage in stages if stage is not None)
            line = f"\r\x1b[K{name:<28} {time.monotonic() - began:8.1f} s  {complete:,}/{tasks:,} tasks"
            print(line, end="", file=sys.stderr, flush=True)
