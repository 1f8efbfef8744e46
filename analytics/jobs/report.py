"""
``rollcall analytics report LAKE [--out FOLDER]``: the lake as one HTML page with pictures, and the tables behind them.

The page needs nothing but a browser: no network, no script. Beside it, in ``tables/``, lies what each picture is made
from, as CSV and Parquet. A summary is printed.

Exit codes: 0 written; 2 no lake, wrong use, no Spark, or a folder that cannot be written.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analytics.lake import Lake, NoLake
from analytics.progress import Progress
from analytics.report.contents import Contents
from analytics.report.files import write_report
from analytics.report.gather import gather
from analytics.session import NoSpark, spark_session
from analytics.summary import print_summary, summary_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OUT = "report"
NS_PER_MS = 1_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; returns the exit code."""
    options = _parser().parse_args(arguments)
    lake = Lake(options.lake)
    try:
        lake.require()
        spark = spark_session(app="rollcall report", master=options.master)
    except (NoLake, NoSpark) as error:
        print(f"rollcall analytics report: {error}", file=sys.stderr)
        return 2
    try:
        found = _found(spark, lake, options)
        page = write_report(found, options.out or lake.root / OUT)
        print_summary(summary_of(spark, lake))
    except OSError as error:
        print(f"rollcall analytics report: {error}", file=sys.stderr)
        return 2
    finally:
        spark.stop()
    print(f"WROTE {page}")
    return 0


def _found(spark: SparkSession, lake: Lake, options: argparse.Namespace) -> Contents:
    progress = Progress(spark, is_quiet=options.quiet)
    return gather(spark, lake, progress, made_at_ms=time.time_ns() // NS_PER_MS)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rollcall analytics report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("lake", type=Path, help="folder of the tables, made by: rollcall analytics run")
    parser.add_argument("--out", type=Path, help=f"folder of the report; default: LAKE/{OUT}")
    parser.add_argument("--master", default="local[*]", help="Spark master, e.g. spark://host:7077")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress on stderr")
    return parser


if __name__ == "__main__":
    sys.exit(main())
