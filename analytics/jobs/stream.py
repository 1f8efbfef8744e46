"""
A lake that is kept up to date from a source that goes on, and the alerts that come of it.

Here: which source it is, when to look for alerts, which of them are printed. Not here: micro-batches (``streams``),
limits and rows of alerts (``alerts``).
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import msgspec
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from rollcall_ha.analytics.checks.alerts import COLUMNS, Limits, alerts, notice_of
from rollcall_ha.analytics.jobs import streams
from rollcall_ha.analytics.lake.lake import Lake
from rollcall_ha.analytics.lake.session import check_java, spark_session
from rollcall_ha.analytics.refusals import JobRefused
from rollcall_ha.analytics.silver.tables import SILVER_HORIZONS
from rollcall_ha.api.identity import Identity


def run(
    source: str,
    *,
    lake: Path,
    checkpoint: Path | None,
    is_once: bool,
    every_ms: int,
    limits: Limits,
    master: str,
    is_quiet: bool,
) -> int:
    """Follow ``source`` until all was read; 1 if the stream failed. Raises ``JobRefused``."""
    target = Lake(lake)
    is_live = ":" in source and not Path(source).exists()
    if not is_live and "*" not in source and not Path(source).is_dir():
        raise JobRefused(f"{source} is neither a folder nor host:port")
    # Before anything is made or started: a lake that another run writes is told at once, not at the first micro-batch.
    check_java()
    with target.writer():
        pass
    with spark_session(app="rollcall analytics stream", master=master) as spark:
        texts = streams.of_controllers(spark, source, **_caller()) if is_live else streams.of_files(spark, source)
        query = streams.start(
            spark,
            texts,
            target,
            checkpoint=checkpoint or lake / "checkpoint",
            is_continued=is_live,
            every_ms=None if is_once else every_ms,
            is_quiet=is_quiet,
        )
        watch = AlertPrinter(spark, target, limits, is_live=is_live)
        try:
            while not _has_ended(query, every_ms):
                watch.look()
            watch.look()
        finally:
            query.stop()
        failure = query.exception()
    if failure is None:
        return 0
    print(f"rollcall analytics stream: {failure}", file=sys.stderr)
    return 1


def _caller() -> dict[str, str]:
    """Who reads from the controllers: options of the source, by the environment, as the other commands take it."""
    found = Identity.of_environment(os.environ)
    named = {"authority": found.authority, "identity": found.certificate, "token-file": found.token_file}
    return {name: str(path.resolve()) for name, path in named.items() if path is not None}


def _has_ended(query: StreamingQuery, within_ms: int) -> bool:
    try:
        return bool(query.awaitTermination(within_ms / 1000))
    except StreamingQueryException:
        return True


class AlertPrinter:
    """Prints each alert when it begins."""

    def __init__(self, spark: SparkSession, lake: Lake, limits: Limits, *, is_live: bool) -> None:
        """``is_live``: judge by this machine's clock; else by the newest stamp of the events."""
        self._spark = spark
        self._lake = lake
        self._limits = limits
        self._is_live = is_live
        self._told: set[tuple[object, ...]] = set()

    def look(self) -> None:
        """One look at the published tables."""
        snapshot = self._lake.snapshot()
        if snapshot.number == 0:
            return
        # Old files by their own stamps: by this machine's clock each set of last year would have had no master for a
        # year.
        if self._is_live:
            now_ms: int | None = round(time.time() * 1000)
        else:
            now_ms = (
                self._lake.read(self._spark, SILVER_HORIZONS, snapshot=snapshot).agg({"last_at_ms": "max"}).first()[0]
            )
        if now_ms is None:
            return
        lasting = set()
        for row in alerts(self._spark, self._lake, snapshot, now_ms=now_ms, limits=self._limits).collect():
            found = dict(zip(COLUMNS, row, strict=True))
            # Without the three that move: else a set without a master would be an alert at each look.
            key = tuple(found[name] for name in COLUMNS if name not in ("lasts_ms", "count", "since_ms"))
            lasting.add(key)
            if key not in self._told:
                print(msgspec.json.encode(notice_of(found, now_ms=now_ms)).decode(), flush=True)
        self._told = lasting
