"""
``rollcall analytics stream SOURCE [--lake FOLDER]``: keep a lake up to date, and print alerts.

SOURCE is ``host:port,...`` of the controllers' REST ports, or a folder (or glob) into which closed journals are put: a
file is read once, so one that still grows loses its later lines here; ``run`` reads those again.
Alerts are JSON lines on stdout, each once while it lasts: a set without a serving master, a set that flaps, a set with
one member in sync. Gold is not touched: ``rollcall analytics gold`` brings it up to date at any time between batches.

Exit codes: 0 all was read (``--once``) or it was interrupted; 1 the stream failed; 2 no source, another writer, or no
Spark.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rollcall_ha.analytics import streams
from rollcall_ha.analytics.alerts import COLUMNS, Limits, alerts
from rollcall_ha.analytics.jobs.run import LAKE
from rollcall_ha.analytics.lake import Lake, LakeBusy, NoLake
from rollcall_ha.analytics.session import NoSpark, check_java, spark_session
from rollcall_ha.analytics.tables import SILVER_HORIZONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

EVERY_MS = 10_000
_DEFAULT = Limits()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; returns the exit code."""
    options = _parser().parse_args(arguments)
    lake = Lake(options.lake)
    is_live = ":" in options.source and not Path(options.source).exists()
    if not is_live and "*" not in options.source and not Path(options.source).is_dir():
        print(f"rollcall analytics stream: {options.source} is neither a folder nor host:port", file=sys.stderr)
        return 2
    try:
        # Before anything is made or started.
        check_java()
        with lake.writer():
            pass
        spark = spark_session(app="rollcall stream", master=options.master)
    except (NoSpark, LakeBusy, NoLake) as error:
        print(f"rollcall analytics stream: {error}", file=sys.stderr)
        return 2
    try:
        return _run(spark, lake, options, is_live=is_live)
    except KeyboardInterrupt:
        return 0
    finally:
        spark.stop()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rollcall analytics stream", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", help="host:port,... of controllers, or a folder of closed journals")
    parser.add_argument("--lake", type=Path, default=LAKE, help=f"folder of the tables; default: {LAKE}")
    parser.add_argument("--checkpoint", type=Path, help="what the stream remembers; default: LAKE/checkpoint")
    parser.add_argument("--once", action="store_true", help="read what is there and end")
    parser.add_argument("--every-ms", type=int, default=EVERY_MS, help="pause between micro-batches and looks")
    parser.add_argument("--open-ms", type=int, default=_DEFAULT.open_ms, help="alert: no serving master for so long")
    parser.add_argument("--exposed-ms", type=int, default=_DEFAULT.exposed_ms, help="alert: one member for so long")
    parser.add_argument("--flaps", type=int, default=_DEFAULT.flaps, help="alert: so many failovers ...")
    parser.add_argument("--flap-window-ms", type=int, default=_DEFAULT.flap_window_ms, help="... within so long")
    parser.add_argument("--master", default="local[*]", help="Spark master, e.g. spark://host:7077")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress on stderr")
    return parser


def _run(spark: SparkSession, lake: Lake, options: argparse.Namespace, *, is_live: bool) -> int:
    texts = streams.of_controllers(spark, options.source) if is_live else streams.of_files(spark, options.source)
    query = streams.start(
        spark,
        texts,
        lake,
        checkpoint=options.checkpoint or lake.root / "checkpoint",
        is_continued=is_live,
        every_ms=None if options.once else options.every_ms,
        is_quiet=options.quiet,
    )
    limits = Limits(
        open_ms=options.open_ms,
        exposed_ms=options.exposed_ms,
        flaps=options.flaps,
        flap_window_ms=options.flap_window_ms,
    )
    watch = AlertPrinter(spark, lake, limits, is_live=is_live)
    try:
        while not _has_ended(query, options.every_ms):
            watch.look()
        watch.look()
    finally:
        query.stop()
    failure = query.exception()
    if failure is not None:
        print(f"rollcall analytics stream: {failure}", file=sys.stderr)
        return 1
    return 0


def _has_ended(query: StreamingQuery, within_ms: int) -> bool:
    from pyspark.errors import StreamingQueryException

    try:
        return bool(query.awaitTermination(within_ms / 1000))
    except StreamingQueryException:
        return True


class AlertPrinter:
    """Prints each alert when it begins."""

    def __init__(self, spark: SparkSession, lake: Lake, limits: Limits, *, is_live: bool) -> None:
        """``is_live``: by this machine's clock; else by the stamps of the events, as if it were then."""
        self._spark = spark
        self._lake = lake
        self._limits = limits
        self._is_live = is_live
        self._told: set[tuple[object, ...]] = set()

    def look(self) -> None:
        """One look at what is published now."""
        manifest = self._lake.manifest()
        if manifest.version == 0:
            return
        if self._is_live:
            now_ms: int | None = round(time.time() * 1000)
        else:
            now_ms = (
                self._lake.read(self._spark, SILVER_HORIZONS, manifest=manifest).agg({"last_at_ms": "max"}).first()[0]
            )
        if now_ms is None:
            return
        lasting = set()
        for row in alerts(self._spark, self._lake, manifest, now_ms=now_ms, limits=self._limits).collect():
            found = dict(zip(COLUMNS, row, strict=True))
            # A flapping set is told again when its window has moved on, not at every failover.
            key = tuple(found[name] for name in COLUMNS if name not in ("lasts_ms", "count", "since_ms"))
            lasting.add(key)
            if key not in self._told:
                print(msgspec.json.encode({"at_ms": now_ms, **found}).decode(), flush=True)
        self._told = lasting


if __name__ == "__main__":
    sys.exit(main())
