"""
The input of every daily gold table: silver, the wanted days, the sets and the ends of their fleets.

Here: values and small tables. Not here: any figure (``daily``, ``intervals``).
"""

from __future__ import annotations

import datetime as dt

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

MS_PER_DAY = 86_400_000
US_PER_MS = 1_000

SET = ("fleet", "cluster", "broker_set")
"""Columns that name a broker set."""


class Days(msgspec.Struct, kw_only=True):
    """Silver and ``phases`` by name, later ``failovers`` and ``sets_daily`` too, ``in_ms``; the first wanted day."""

    tables: dict[str, DataFrame]
    since: dt.date | None
    _horizons: DataFrame | None = None

    def only_since(self, rows: DataFrame) -> DataFrame:
        """Rows of the days that are wanted."""
        return rows if self.since is None else rows.where(f.col("day") >= f.lit(self.since))

    def horizons(self) -> DataFrame:
        """Columns ``fleet`` and ``horizon_ms``, small."""
        if self._horizons is None:
            ends = horizon_of_fleets(self.tables["horizons"]).withColumnRenamed("at_ms", "horizon_ms")
            # Their rows, not their plan: six queries would each find them anew, in two jobs.
            self._horizons = ends.sparkSession.createDataFrame(ends.toArrow()).hint("broadcast")
        return self._horizons

    def sets(self) -> DataFrame:
        """Columns ``set_id``, ``SET`` and ``horizon_ms``, where the events of its fleet end."""
        return self.tables["broker_sets"].select("set_id", *SET).join(self.horizons(), "fleet")


def horizon_of_fleets(horizons: DataFrame) -> DataFrame:
    """Columns ``fleet`` and ``at_ms``: the stamp of each fleet's last event."""
    return horizons.groupBy("fleet").agg(f.max_by("last_at_ms", "last_seq").alias("at_ms"))
