"""
The input of every daily gold table: silver, the sets and the ends of their fleets.

Here: values and small tables. Not here: any figure (``daily``, ``intervals``).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from rollcall_ha.analytics.silver.tables import (
    SILVER_BROKER_SETS,
    SILVER_CLEANINGS,
    SILVER_LEADERSHIPS,
    SILVER_PHASES,
    SILVER_REIGNS,
    SILVER_SILENCES,
    SILVER_STOPS,
    SILVER_SYNC_STATE_SETS,
    SILVER_WAITS,
)

MS_PER_DAY = 86_400_000
US_PER_MS = 1_000

SET = ("fleet", "cluster", "broker_set")
"""Columns that name a broker set."""


SOURCES = (
    *(SILVER_BROKER_SETS, SILVER_CLEANINGS, SILVER_LEADERSHIPS, SILVER_PHASES, SILVER_REIGNS, SILVER_SILENCES),
    *(SILVER_STOPS, SILVER_SYNC_STATE_SETS, SILVER_WAITS),
)

LIVING_MS = 7 * MS_PER_DAY
"""A fleet whose last event is no older lives on; it is the word for an idle one, too."""


class Days(msgspec.Struct, kw_only=True):
    """``SOURCES`` by name, later ``failovers`` and ``sets_daily`` too, ``in_ms``."""

    tables: dict[str, DataFrame]
    until_ms: Mapping[str, int]
    """Fleet -> up to when it is counted."""

    def horizon_ms(self) -> Column:
        """Up to when the row's ``fleet`` is counted. No join: each would be a job of its own, for some numbers."""
        until = f.from_json(f.lit(msgspec.json.encode(self.until_ms).decode()), "map<string, bigint>")
        return until[f.col("fleet")].alias("horizon_ms")

    def sets(self) -> DataFrame:
        """Columns ``set_id``, ``SET`` and ``horizon_ms``, up to when its fleet is counted."""
        return self.tables["broker_sets"].select("set_id", *SET, self.horizon_ms())


EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def ms_of(at: dt.datetime) -> int:
    """An instant as milliseconds since 1970, rounded down."""
    return (at - EPOCH) // dt.timedelta(milliseconds=1)


def ends_of(horizons: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Fleet -> the stamp of its last event, in ms since 1970, by rows of ``silver.horizons``."""
    return {row["fleet"]: ms_of(row["last_at"]) for row in sorted(horizons, key=itemgetter("last_seq"))}


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
