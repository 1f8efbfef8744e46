"""
Events for a job that needs their lines: out of a lake's bronze, or straight from journals.

Here: the choice. Not here: parsing (``events``), files (``lines``, ``lake``).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession

from rollcall_ha.analytics.bronze import events as bronze
from rollcall_ha.analytics.bronze.lines import find_journals, pieces, read_lines
from rollcall_ha.analytics.bronze.tables import BRONZE_EVENTS
from rollcall_ha.analytics.lake.lake import Lake


class Source(msgspec.Struct, frozen=True):
    """Where a job's events come from."""

    files: Sequence[Path]
    """Journals; none: the lake."""
    lake: Lake

    @classmethod
    def of(cls, paths: Sequence[Path], lake: Path) -> Source:
        """The journals below ``paths``; without a path, the lake. Raises ``NoJournals``, ``NoLake``."""
        source = cls(find_journals(paths) if paths else (), Lake(lake))
        if not paths:
            source.lake.require()
        return source

    def events(self, spark: SparkSession) -> DataFrame:
        """Rows of ``bronze.events``, each event once."""
        return events_of(spark, self.files) if self.files else self.lake.read(spark, BRONZE_EVENTS)


def events_of(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    """The same of journal files, without a lake."""
    rows = bronze.once(bronze.judged(pieces(read_lines(spark, files))))
    return rows.where("why is null").select(*BRONZE_EVENTS.column_names)
