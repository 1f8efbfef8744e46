"""
Tables of the lake as values: name, columns with their exact meaning, types, key, partition.

Here: the values, the table of snapshots, the rows of a view. Not here: the other tables (``tables`` of each layer), how
they are published (``lake``).

Rule 1: an event belongs to (fleet, term, index, ordinal). ``seq`` = index * 2**20 + ordinal orders the events of one
fleet, because an index belongs to one term for ever; stamps order nothing, leaders' clocks are skewed.
Rule 2: ``day`` is the UTC date of the row's own beginning, taken from the entry's stamp: every copy of an event has the
same. Files of events are apart by it; those of a fact about a set by the bucket of the set (``bucket_of``).
Rule 3: a phase without a stamp is null. A duration that would be negative is null, and counted.
Rule 4 (open rows): a row whose end has not been seen has a null end. The run that sees it makes the set's rows anew;
gold counts it up to ``gold.counted_until`` of its fleet. Batch and streaming are equal by this rule.
Rule 5: daily gold tables hold sums and counts of whole numbers, so that adding days gives exactly the longer period's.
"""

from __future__ import annotations

import re
import textwrap
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from rollcall_ha.analytics.lake.session import SHUFFLE_PARTITIONS
from rollcall_ha.controller.contract.values import Frozen

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

ORDINALS_PER_INDEX = 1 << 20
FLEET_CLUSTER = "/fleet"
"""``cluster`` of events that belong to no broker set: leadership, founding. No cluster may have a "/" in its name."""


BUCKETS = 16
"""
So many parts have the facts of all sets. A run makes those anew whose sets have a new event: with fewer of them a
stream would make more than it has to; with more a run of all sets would write too many files, at 18 ms each.
"""

BY_SET = "set_id"
"""``partition`` of a table whose files are apart by bucket."""

FORMS = {"bronze": 7, "silver": 11, "gold": 13}
"""
Layer -> its form: another number whenever a column of its tables comes, goes or changes its meaning. Gold of another
form counts as never built, and the next run makes it anew; bronze and silver of another form are refused.
"""

_DELTA_TYPES: dict[str, Any] = {
    "bigint": "long",
    "int": "integer",
    "array<int>": {"type": "array", "elementType": "integer", "containsNull": True},
}
"""Type as DDL -> as Delta and Spark write it as JSON, where that is another word."""


SET_ID_SQL = "CAST(conv(substr(md5(concat_ws('/', {fleet}, cluster, broker_set)), 1, 15), 16, 10) AS bigint)"
"""The number of a broker set: 15 hex digits of a hash that every program has. No name has a "/"."""


class LakeColumn(msgspec.Struct, frozen=True):
    """One column: its Spark type as DDL, and the meaning of its values."""

    name: str
    kind: str
    meaning: str


class LakeTable(Frozen):
    """
    One table of one layer. ``key`` is unique; by the column ``partition`` its files are apart: by each value, by bucket
    if it is ``BY_SET``; empty: they are not.
    """

    layer: str
    name: str
    meaning: str
    columns: tuple[LakeColumn, ...]
    key: tuple[str, ...]
    partition: str = "day"

    @property
    def path(self) -> str:
        """Its name in snapshots, and its folder below the lake's."""
        return f"{self.layer}/{self.name}" if self.layer else self.name

    @property
    def column_names(self) -> tuple[str, ...]:
        """In the order in which files and plain readers have them."""
        return tuple(column.name for column in self.columns)

    def lines(self, names: str) -> str:
        """The columns of these names as ``columns_of`` reads them, for a table that has them, too."""
        known = {one.name: f"{one.name} {one.kind} {one.meaning}" for one in self.columns}
        return "\n".join(known[name] for name in names.split())

    def json_schema(self) -> dict[str, Any]:
        """The type of a row with the meanings as comments, in the JSON of Spark and Delta."""
        return {
            "type": "struct",
            "fields": [
                {
                    "name": column.name,
                    "type": _DELTA_TYPES.get(column.kind, column.kind),
                    "nullable": True,
                    "metadata": {"comment": column.meaning},
                }
                for column in self.columns
            ],
        }

    def schema(self) -> StructType:
        """The Spark type of a row."""
        from pyspark.sql.types import StructType

        return StructType.fromJson(self.json_schema())

    def commented(self) -> list[Column]:
        """The columns, each with its meaning as Spark's and Parquet's comment."""
        from pyspark import SparkContext

        return list(_commented(self, SparkContext._gateway))  # noqa: SLF001 (the columns live in that Java)

    def of_ms(self) -> list[Column]:
        """The columns, of rows that have their instants as ``NAME_ms`` (``in_ms``)."""
        from pyspark.sql import functions as f

        return [
            f.timestamp_millis(f"{one.name}_ms").alias(one.name) if one.kind == "timestamp" else f.col(one.name)
            for one in self.columns
        ]


@cache
def _commented(table: LakeTable, _java: object) -> tuple[Column, ...]:
    """Made once per table and Java: for each new one py4j would look the class of its comment up in 250 jars."""
    from pyspark.sql import functions as f

    return tuple(f.col(one.name).alias(one.name, metadata={"comment": one.meaning}) for one in table.columns)


class LakeView(LakeTable, kw_only=True):
    """
    Rows that follow from others: a SELECT, in the SQL that Spark and DuckDB share. Nothing is stored.

    It names the tables ``of`` as they are called, without their layer, behind FROM and JOIN.
    """

    partition: str = ""
    of: tuple[LakeTable, ...]
    select: str

    def statement(self, called: Callable[[LakeTable], str] | None = None) -> str:
        """
        The SELECT, with its columns in their order and types: a sum has another type in each program.

        ``called``: the word for a table in it, where that is not its name.
        """
        # An instant stays what it is: as a timestamp without a zone DuckDB would give the clock of the reader's zone.
        columns = ", ".join(
            one.name if one.kind == "timestamp" else f"CAST({one.name} AS {one.kind}) AS {one.name}"
            for one in self.columns
        )
        whole = f"{textwrap.fill(f'SELECT {columns}', 120)}\nFROM ({self.select.strip()}) AS found"
        if called is None:
            return whole
        words = {one.name: called(one) for one in self.of}
        return re.sub(rf"\b(FROM|JOIN) ({'|'.join(words)})\b", lambda found: f"{found[1]} {words[found[2]]}", whole)

    def rows(self, spark: SparkSession, read: Callable[[LakeTable], DataFrame]) -> DataFrame:
        """Its rows, from the tables as ``read`` gives them."""
        frames = {table.name: read(table) for table in self.of}
        # Views of the session with these names would be another thread's, too.
        named = self.statement(lambda one: f"{{{one.name}}}")
        return spark.sql(named, **frames).select(*self.commented())


def bucket_of() -> Column:
    """The bucket of ``set_id``; null without one."""
    from pyspark.sql import functions as f

    # As Spark spreads sets over the partitions of a shuffle, four neighbours together: a task that holds partitions
    # side by side writes few buckets, and needs no further shuffle to bring the rows of one together.
    partition = f.pmod(f.hash(BY_SET), f.lit(SHUFFLE_PARTITIONS))
    return f.when(f.col(BY_SET).isNotNull(), f.floor(partition * BUCKETS / SHUFFLE_PARTITIONS).cast("int"))


def in_ms(rows: DataFrame) -> DataFrame:
    """Rows with each instant as ``NAME_ms``, milliseconds since 1970, to reckon with: stamps have no finer part."""
    from pyspark.sql import functions as f

    return rows.select(
        *(f.unix_millis(name).alias(f"{name}_ms") if kind == "timestamp" else f.col(name) for name, kind in rows.dtypes)
    )


def set_id_of(*names: Column) -> Column:
    """``SET_ID_SQL`` of columns: fleet, cluster, broker set."""
    from pyspark.sql import functions as f

    return f.conv(f.substring(f.md5(f.concat_ws("/", *names)), 1, 15), 16, 10).cast("bigint")


def columns_of(text: str) -> tuple[LakeColumn, ...]:
    """``name type meaning`` per line; without a meaning: as the line before it says."""
    rows = [line.split(maxsplit=2) for line in text.splitlines() if line]
    return tuple(LakeColumn(row[0], row[1], row[2] if len(row) > 2 else "as above") for row in rows)


def table(path: str, meaning: str, key: str, columns: str, *, partition: str = "") -> LakeTable:
    """A table ``layer/name`` of these columns (``columns_of``)."""
    layer, name = path.split("/")
    found, keys = columns_of(columns), tuple(key.split())
    return LakeTable(layer=layer, name=name, meaning=meaning, columns=found, key=keys, partition=partition)


def view(path: str, meaning: str, key: str, columns: str, *, of: tuple[LakeTable, ...], select: str) -> LakeView:
    """A view ``layer/name``: ``select`` from the tables ``of``."""
    layer, name = path.split("/")
    found, keys = columns_of(columns), tuple(key.split())
    return LakeView(layer=layer, name=name, meaning=meaning, columns=found, key=keys, of=of, select=select)


SNAPSHOTS = LakeTable(
    layer="",
    name="snapshots",
    meaning="Which version of each table a run published: those of one snapshot belong together.",
    key=("snapshot", "table"),
    partition="",
    columns=columns_of(
        """
snapshot bigint number of the run that published, from 1 on
made_at timestamp when
table string path of the table, e.g. gold/failovers
version bigint version of its Delta log
form int form of its layer (tables.FORMS)
built_from string JSON: the tables that its layer was computed from, and their versions; null = none
"""
    ),
)
