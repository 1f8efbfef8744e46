"""
The layers of a lake, brought up to date: journals into bronze, bronze into silver, silver into gold.

Here: their order, and publishing after each. Not here: the rows (``layers``).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rollcall_ha.analytics.bronze.lines import find_journals
from rollcall_ha.analytics.jobs.layers import Layers, unread
from rollcall_ha.analytics.lake.lake import Lake
from rollcall_ha.analytics.lake.progress import Progress
from rollcall_ha.analytics.lake.session import are_few, spark_session
from rollcall_ha.analytics.report.gather import gather
from rollcall_ha.analytics.report.summary import TABLES, print_summary, summary_of
from rollcall_ha.node.terminal import print_json

LAYERS = ("ingest", "silver", "gold")


def run(
    layers: Sequence[str],
    paths: Sequence[Path],
    *,
    lake: Path,
    is_full: bool,
    until_ms: int | None = None,
    master: str,
    is_quiet: bool,
    is_json: bool,
) -> None:
    """Bring ``layers`` up to date, and print the summary after gold. Raises ``JobRefused``."""
    # Both are looked for before Spark starts: a wrong path is told at once, not after 20 s.
    files = find_journals(paths, with_probes=True) if "ingest" in layers else []
    target = Lake(lake)
    if "ingest" not in layers:
        target.require()
    # Files that were read before are not read again: a day of a year's journals is few lines.
    is_few = are_few([*(files if is_full else unread(target, files)), lake / "bronze"])
    with spark_session(app=f"rollcall {layers[0]}", master=master, is_few=is_few) as spark:
        progress = Progress(spark, is_quiet=is_quiet)
        with target.writer() as writer:
            work = Layers(spark, writer, progress)
            # Published after each layer: a run that is killed in gold leaves bronze and silver to the next one.
            for layer in layers:
                with progress.step(layer):
                    if layer == "ingest":
                        read = work.ingest_files(files, again=is_full)
                    elif layer == "silver":
                        work.silver(is_full=is_full)
                    else:
                        work.gold(is_full=is_full, until_ms=until_ms)
                    writer.publish()
            if "ingest" in layers:
                progress.say(f"{read:,} of {len(files):,} files were new or had grown")
        if "gold" in layers:
            with progress.step("summary"):
                found = summary_of(gather(target, made_at_ms=0, tables=TABLES))
            if is_json:
                print_json(found, is_line=True)
            else:
                print_summary(found)
