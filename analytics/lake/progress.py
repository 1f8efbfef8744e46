"""
Progress of a long job on stderr: one line per step, and on a terminal a line that moves: which part of the step runs,
and the tasks that are done so far.

Here: printing, parts of a step side by side. Not here: the steps. Nothing of this runs inside Spark's tasks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress as Bars
from rich.progress import ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PARTS_AT_ONCE = 2
"""A plan is made by one thread, and a small table is mostly plan. Tasks of all parts share cores as those of one."""


class Progress:
    """Prints the step that runs, how many of its tasks are done, and how long it took."""

    def __init__(self, spark: SparkSession, *, is_quiet: bool = False) -> None:
        self._spark = spark
        self._console = Console(stderr=True, quiet=is_quiet)
        self._bars: Bars | None = None

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Everything that Spark does inside belongs to the step. A step within another one is a part of it."""
        if self._bars is not None:
            # A person who waits wants to see which table is made; who reads a log has no use for thirty of them.
            self._bars.update(self._bars.task_ids[0], description=name)
            yield
            return
        began = time.monotonic()
        columns = (TextColumn("{task.description:<28}"), TimeElapsedColumn(), _Tasks(self._spark))
        bars = Bars(
            *columns,
            console=self._console,
            transient=True,
            refresh_per_second=2,
            # Off unless a person looks: a log file would get a line of control characters twice a second.
            disable=self._console.quiet or not self._console.is_terminal,
            # Rich would take over stdout for its console: alerts that stream prints meanwhile would go to stderr.
            redirect_stdout=False,
            redirect_stderr=False,
        )
        bars.add_task(name, total=None)
        self._bars = bars
        try:
            with bars:
                yield
        finally:
            self._bars = None
        self.say(f"{name:<28} {time.monotonic() - began:8.1f} s")

    def together(self, parts: Mapping[str, Callable[[], object]]) -> None:
        """
        Parts of a step that need nothing of each other, ``PARTS_AT_ONCE``, by names or paths of tables.

        Raises what the first part raises that fails; those that have not begun are left out then.
        """
        from pyspark.util import inheritable_thread_target

        has_failed = Event()

        def run(name: str, part: Callable[[], object]) -> None:
            if has_failed.is_set():
                return
            if self._bars is not None:
                self._bars.update(self._bars.task_ids[0], description=name.replace("/", ": "))
            try:
                part()
            except BaseException:
                has_failed.set()
                raise

        pool = ThreadPoolExecutor(PARTS_AT_ONCE)
        # With a copy of this thread's properties: by them a stream that is stopped finds its jobs.
        begun = [pool.submit(inheritable_thread_target(self._spark)(run), name, parts[name]) for name in parts]
        try:
            for ended in as_completed(begun):
                ended.result()
        finally:
            pool.shutdown(cancel_futures=True)

    def say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


class _Tasks(ProgressColumn):
    """Tasks of the stages that Spark runs now."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__()
        self._spark = spark

    def render(self, task: Task) -> Text:  # noqa: ARG002 (rich hands it over)
        tracker = self._spark.sparkContext.statusTracker()
        # A stage that ends between the two calls has no info any more.
        stages = [found for number in tracker.getActiveStageIds() if (found := tracker.getStageInfo(number))]
        complete, tasks = (sum(getattr(one, name) for one in stages) for name in ("numCompletedTasks", "numTasks"))
        return Text(f"{complete:,}/{tasks:,} tasks")
