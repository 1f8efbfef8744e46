"""
The lake as one HTML page with pictures, and the tables behind them.

Here: the questions to the lake and their order. Not here: reading it (``report.gather``), other timeouts
(``report.asking``), the page (``report.page``), the files (``report.files``).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace
from pyspark.sql import SparkSession

from rollcall_ha.analytics.checks.what_if import WrongReality
from rollcall_ha.analytics.lake.lake import Lake
from rollcall_ha.analytics.lake.progress import Progress
from rollcall_ha.analytics.lake.session import are_few, spark_session
from rollcall_ha.analytics.report.asking import ask
from rollcall_ha.analytics.report.contents import WHAT_IF, Contents
from rollcall_ha.analytics.report.files import write_report
from rollcall_ha.analytics.report.gather import gather
from rollcall_ha.analytics.report.summary import print_summary, summary_of
from rollcall_ha.controller.contract.timing import Preset


def run(
    lake: Path, *, out: Path | None, presets: Sequence[Preset], real_preset: Preset, master: str, is_quiet: bool
) -> None:
    """Write the report of ``lake`` and print its summary. Raises ``JobRefused``, ``OSError``."""
    source = Lake(lake)
    source.require()
    is_few = are_few([lake / "bronze"])
    with spark_session(app="rollcall analytics report", master=master, is_few=is_few) as spark:
        progress = Progress(spark, is_quiet=is_quiet)
        with progress.step("report"):
            found = contents_of(spark, source, progress, presets=presets, real_preset=real_preset)
        page = write_report(found, out or lake / "report")
    print_summary(summary_of(found))
    print(f"WROTE {page}")


def contents_of(
    spark: SparkSession, lake: Lake, progress: Progress, *, presets: Sequence[Preset], real_preset: Preset
) -> Contents:
    """What the page shows: gold, and the what-if unless the record contradicts the settings it is asked about."""
    found = gather(spark, lake, progress, made_at_ms=round(time.time() * 1000))
    if not presets:
        return found
    try:
        asked, doubt = ask(spark, lake, progress, real=real_preset, presets=presets)
    except WrongReality as error:
        return replace(found, why_no_what_if=f"Not answered: {error}.")
    return replace(
        found,
        rows={**found.rows, WHAT_IF.name: asked},
        why_no_what_if="There was no failover to ask about.",
        what_if_doubt=doubt,
    )
