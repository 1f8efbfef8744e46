"""
What a table of the lake is: its name, columns with their exact meaning, types, key, partitions.

Here: the values. Not here: the tables (``tables`` of each layer), how they are published (``lake``).

Rule 1: an event belongs to (fleet, term, index, ordinal). ``seq`` = index * 2**20 + ordinal orders the events of one
fleet, because an index belongs to one term for ever; stamps order nothing, leaders' clocks are skewed.
Rule 2: ``day`` is the UTC date of the row's own beginning, taken from the entry's stamp: every copy of an event has the
same. All tables with a cluster and a day are partitioned by both.
Rule 3: a phase without a stamp is null. A duration that would be negative is null, and counted.
Rule 4 (open rows): a row whose end has not been seen has a null end. The next run that sees it writes the row again;
gold counts it up to the last event of its fleet (``silver.horizons``). Batch and streaming are equal by this rule.
Rule 5: daily gold tables hold sums and counts of whole numbers, so that adding days gives exactly the longer period's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ORDINALS_PER_INDEX = 1 << 20
FLEET_CLUSTER = "_fleet"
"""``cluster`` of events that belong to no broker set: leadership, founding."""


@dataclass(frozen=True, slots=True)
class LakeColumn:
    """One column: its Spark type as DDL, and the meaning of its values."""

    name: str
    kind: str
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeTable:
    """One table of one layer. ``key`` is unique; ``partitions`` are the folders below it."""

    layer: str
    name: str
    meaning: str
    columns: tuple[LakeColumn, ...]
    key: tuple[str, ...]
    partitions: tuple[str, ...] = ("cluster", "day")

    @property
    def path(self) -> str:
        """Its name in manifests and below the lake's folder."""
        return f"{self.layer}/{self.name}"

    @property
    def ddl(self) -> str:
        """All columns, the partitions first."""
        return ", ".join(f"`{column.name}` {column.kind}" for column in self.columns)

    @property
    def column_names(self) -> tuple[str, ...]:
        """In the order of ``ddl``."""
        return tuple(column.name for column in self.columns)

    def schema(self) -> StructType:
        """The Spark type of a row."""
        from pyspark.sql.types import StructType

        return StructType.fromDDL(self.ddl)


def columns_of(text: str) -> tuple[LakeColumn, ...]:
    """``name type meaning`` per line; without a meaning: as the line before it says."""
    rows = [line.split(maxsplit=2) for line in text.splitlines() if line]
    return tuple(LakeColumn(row[0], row[1], row[2] if len(row) > 2 else "as above") for row in rows)
