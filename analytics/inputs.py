"""
Events for a job that needs their lines: out of a lake's bronze, or straight from journals.

Here: the choice, and its words. Not here: parsing (``bronze``), files (``lines``, ``lake``).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rollcall_ha.analytics import bronze
from rollcall_ha.analytics.lake import Lake
from rollcall_ha.analytics.lines import find_journals, pieces, read_lines
from rollcall_ha.analytics.tables import BRONZE_EVENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LAKE = Path("lake")


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """The options that ``check_inputs`` and ``read_events`` look at."""
    parser.add_argument("paths", nargs="*", type=Path, help="journals, or folders of journals; without any: the lake")
    parser.add_argument("--lake", type=Path, default=LAKE, help=f"folder of the tables; default: {LAKE}")
    parser.add_argument("--master", default="local[*]", help="Spark master, e.g. spark://host:7077")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")


def check_inputs(options: argparse.Namespace) -> Sequence[Path]:
    """Journals that are to be read; none: the lake is. Raises ``NoJournals``, ``NoLake``."""
    if options.paths:
        return find_journals(options.paths)
    Lake(options.lake).require()
    return ()


def read_events(spark: SparkSession, options: argparse.Namespace, files: Sequence[Path]) -> DataFrame:
    """Rows of ``bronze.events``, each event once."""
    if not files:
        return Lake(options.lake).read(spark, BRONZE_EVENTS)
    return events_of(spark, files)


def events_of(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    """The same of journal files, without a lake."""
    rows = bronze.once(bronze.judged(pieces(read_lines(spark, files))))
    return rows.where("why is null").select(*BRONZE_EVENTS.column_names)
