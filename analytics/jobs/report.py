"""
``rollcall analytics report LAKE [--out FOLDER]``: the lake as one HTML page with pictures, and the tables behind them.

The page needs nothing but a browser: no network, no script. Beside it, in ``tables/``, lies what each picture is made
from, as CSV and Parquet. A summary is printed. What other heartbeat timeouts would have done is asked of the same lake.

Exit codes: 0 written; 2 no lake, wrong use, no Spark, or a folder that cannot be written.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rollcall_ha.analytics.lake import Lake, NoLake
from rollcall_ha.analytics.progress import Progress
from rollcall_ha.analytics.report.asking import ask
from rollcall_ha.analytics.report.contents import WHAT_IF, Contents
from rollcall_ha.analytics.report.files import write_report
from rollcall_ha.analytics.report.gather import gather
from rollcall_ha.analytics.session import NoSpark, spark_session
from rollcall_ha.analytics.summary import print_summary, summary_of
from rollcall_ha.analytics.what_if import WrongReality
from rollcall_ha.controller.contract.timing import Preset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OUT = "report"
NO_PRESET = "none"
ASKED = (Preset.FAST, Preset.SAFE)
NS_PER_MS = 1_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; returns the exit code."""
    options = parser().parse_args(arguments)
    lake = Lake(options.lake)
    try:
        lake.require()
        spark = spark_session(app="rollcall report", master=options.master)
    except (NoLake, NoSpark) as error:
        print(f"rollcall analytics report: {error}", file=sys.stderr)
        return 2
    try:
        found = contents_of(spark, lake, options)
        page = write_report(found, options.out or lake.root / OUT)
        print_summary(summary_of(spark, lake))
    except OSError as error:
        print(f"rollcall analytics report: {error}", file=sys.stderr)
        return 2
    finally:
        spark.stop()
    print(f"WROTE {page}")
    return 0


def contents_of(spark: SparkSession, lake: Lake, options: argparse.Namespace) -> Contents:
    """What the page shows: gold, and the what-if unless the record contradicts the settings it is asked about."""
    progress = Progress(spark, is_quiet=options.quiet)
    found = gather(spark, lake, progress, made_at_ms=time.time_ns() // NS_PER_MS)
    if not options.what_if:
        return found
    try:
        asked, doubt = ask(spark, lake, progress, real=Preset(options.real_preset), presets=options.what_if)
    except WrongReality as error:
        return replace(found, why_no_what_if=f"Not answered: {error}.")
    return replace(
        found,
        rows={**found.rows, WHAT_IF.name: asked},
        why_no_what_if="There was no failover to ask about.",
        what_if_doubt=doubt,
    )


def _presets(text: str) -> tuple[Preset, ...]:
    """``fast,safe``, or ``none``. Raises ``ArgumentTypeError``."""
    if text == NO_PRESET:
        return ()
    try:
        return tuple(dict.fromkeys(Preset(name) for name in text.split(",")))
    except ValueError as error:
        known = ", ".join(preset.value for preset in Preset)
        raise argparse.ArgumentTypeError(f"{text!r}: presets are {known}; or {NO_PRESET}") from error


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rollcall analytics report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("lake", type=Path, help="folder of the tables, made by: rollcall analytics run")
    parser.add_argument("--out", type=Path, help=f"folder of the report; default: LAKE/{OUT}")
    parser.add_argument(
        "--what-if", type=_presets, default=ASKED, help=f"presets to ask about, or {NO_PRESET}; default: fast,safe"
    )
    parser.add_argument(
        "--real-preset",
        choices=[preset.value for preset in Preset],
        default=Preset.NORMAL.value,
        help="the preset that was in force; default: normal. A record that contradicts it is not asked",
    )
    parser.add_argument("--master", default="local[*]", help="Spark master, e.g. spark://host:7077")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress on stderr")
    return parser


if __name__ == "__main__":
    sys.exit(main())
