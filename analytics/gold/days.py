"""
The input of every daily gold table: silver, the wanted days, the sets and the ends of their fleets.

Here: values and small tables. Not here: any figure (``daily``, ``intervals``).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

MS_PER_DAY = 86_400_000
US_PER_MS = 1_000

SET = ("fleet", "cluster", "broker_set")
"""Columns that name a broker set."""


LIVING_MS = 7 * MS_PER_DAY
"""A fleet whose last event is no older lives on; it is the word for an idle one, too."""


class Days(msgspec.Struct, kw_only=True):
    """Silver and ``phases`` by name, later ``failovers`` and ``sets_daily`` too, ``in_ms``; the first wanted day."""

    tables: dict[str, DataFrame]
    since: dt.date | None
    until_ms: Mapping[str, int]
    """Fleet -> up to when it is counted."""

    def only_since(self, rows: DataFrame) -> DataFrame:
        """Rows of the days that are wanted."""
        return rows if self.since is None else rows.where(f.col("day") >= f.lit(self.since))

    def horizons(self) -> DataFrame:
        """Columns ``fleet`` and ``horizon_ms``, small."""
        spark = self.tables["broker_sets"].sparkSession
        return spark.createDataFrame([*self.until_ms.items()], "fleet string, horizon_ms bigint").hint("broadcast")

    def sets(self) -> DataFrame:
        """Columns ``set_id``, ``SET`` and ``horizon_ms``, up to when its fleet is counted."""
        return self.tables["broker_sets"].select("set_id", *SET).join(self.horizons(), "fleet")


def ends_of(horizons: DataFrame) -> dict[str, int]:
    """Fleet -> the stamp of its last event, in ms since 1970."""
    ends = horizons.groupBy("fleet").agg(f.max_by("last_at_ms", "last_seq").alias("at_ms"))
    return {row["fleet"]: row["at_ms"] for row in ends.collect()}


def counted_until(last_ms: int, *, asked_ms: int | None, now_ms: int) -> int:
    """
    Up to when a fleet is counted whose last event has the stamp ``last_ms``; all in ms since 1970.

    ``asked_ms``: for all fleets; None: now, of a fleet that lives on. Never before the last event.
    """
    if asked_ms is not None:
        return max(last_ms, asked_ms)
    # Controllers write nothing while nobody can be elected: up to its last event, a set that lost its last member three
    # days ago would have been out of service for 40 ms, and an idle healthy fleet would no longer be observed.
    return now_ms if 0 <= now_ms - last_ms <= LIVING_MS else last_ms
