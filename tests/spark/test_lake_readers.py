"""A lake is read by programs that know nothing of ours: DuckDB, pandas, a plain Spark; and the SQL of the page runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from rollcall_ha.analytics.bronze.tables import BRONZE_EVENTS, BRONZE_GAPS
from rollcall_ha.analytics.gold.tables import GOLD, GOLD_FAILOVERS, GOLD_FELT, GOLD_HOLES, GOLD_VIEWS
from rollcall_ha.analytics.lake.lake import Lake, Snapshot
from rollcall_ha.analytics.lake.tables import LakeTable, LakeView
from rollcall_ha.analytics.report import contents
from rollcall_ha.analytics.report.contents import Contents
from rollcall_ha.analytics.report.gather import gather
from rollcall_ha.analytics.report.questions import CONTROLLER_CHANGES, PLANNED, QUESTIONS
from rollcall_ha.analytics.report.summary import TABLES
from rollcall_ha.analytics.silver.orders import ORDERS
from rollcall_ha.analytics.silver.tables import SILVER, SILVER_VIEWS

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/analytics.md"
DICTIONARY = ROOT / "docs/data-dictionary.md"
SHOWN = 12 + len(QUESTIONS)


def shown(lake: Lake, table: LakeTable) -> DeltaTable:
    return DeltaTable(lake.folder(table.path), version=lake.snapshot().version(table.path))


@contextmanager
def opened(lake: Lake) -> Iterator[duckdb.DuckDBPyConnection]:
    """The lake in DuckDB as the pages say: tables by their names, and the views of the dictionary."""
    with duckdb.connect() as database:
        # "quality" is there twice: the page asks for that of gold.
        for table in (BRONZE_EVENTS, BRONZE_GAPS, *SILVER, *GOLD):
            database.register(table.name, shown(lake, table).to_pyarrow_dataset())
        for select in re.findall(r"```sql\n(.*?)```", DICTIONARY.read_text(), re.DOTALL):
            database.execute(select)
        yield database


def as_tuples(found: pa.Table) -> list[tuple[Any, ...]]:
    """Rows of either program, with instants in UTC."""
    rows = found.to_pylist()
    return [
        tuple(value.astimezone(UTC) if isinstance(value, datetime) else value for value in row.values()) for row in rows
    ]


def in_order(found: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(as_tuples(found), key=repr)


def test_views_are_the_same_in_spark_and_in_duckdb(spark: Any, batch: Lake) -> None:
    """By one SELECT, whatever type a sum or a quotient has in each; the rows of Spark are those that the report shows."""
    with opened(batch) as database:
        for view in (*SILVER_VIEWS, *GOLD_VIEWS):
            found = database.sql(f"SELECT * FROM {view.name}")
            assert tuple(found.columns) == view.column_names
            rows = in_order(batch.read(spark, view).toArrow())
            assert in_order(found.to_arrow_table()) == rows, view.path
            # No election of the story is missing, nobody ordered anything, and no probe watched (test_recount has those).
            assert bool(rows) != (view in (GOLD_HOLES, GOLD_FELT, *ORDERS))


def test_the_questions_of_the_page_are_one_select_each(batch: Lake) -> None:
    """Each runs on a lake as it is; the answers about failovers are those of the story."""
    queries = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(queries) == SHOWN
    with opened(batch) as database:
        answers = [as_tuples(database.sql(query).to_arrow_table()) for query in queries]
    by_cause, exposed, lost, *_ = answers
    assert {cause: count for cause, count, *_ in by_cause} == {"*": 3, "dead-at-once": 1, "timeout": 2}
    assert exposed[0][1] == "broker-a"
    assert exposed[0][2] > 20
    # All of the story are proven: the question is asked again of the same failovers with other grades.
    assert lost == []
    told = shown(batch, GOLD_FAILOVERS).to_pyarrow_table().to_pylist()
    grades = ["bounded", "proven", None]
    failovers = [row | {"grade": grade} for row, grade in zip(told, grades, strict=True)]
    not_proven = sorted((row["elected_at"], row["master_epoch"]) for row in failovers if row["grade"] != "proven")
    with duckdb.connect() as database:
        database.register("failovers", pa.Table.from_pylist(failovers))
        lost = as_tuples(database.sql(queries[2]).to_arrow_table())
    assert [row[2] for row in lost] == [epoch for _, epoch in not_proven]
    assert len(not_proven) == 2


def test_duckdb_and_a_plain_spark_give_the_same_answers(spark: Any, batch: Lake) -> None:
    """To each question of the report: neither its SELECT nor the tables need Rollcall."""

    def plain(table: LakeTable) -> Any:
        if isinstance(table, LakeView):
            return table.rows(spark, plain)
        files = shown(batch, table).file_uris()
        # Nobody was cleaned away in the story: without a file there is no schema to read.
        return spark.read.parquet(*files) if files else batch.read(spark, table)

    for question in QUESTIONS:
        with opened(batch) as database:
            expected = database.sql(question.statement()).to_arrow_table().to_pylist()
        answer = question.rows(spark, plain).toArrow().to_pylist()
        assert answer == expected, question.name
        assert expected or question in (PLANNED, CONTROLLER_CHANGES), question.name


class Superseded(Lake):
    """A lake in which another run publishes as soon as somebody has looked for the newest snapshot."""

    _is_seen = False

    def snapshot(self, number: int | None = None) -> Snapshot:
        found = Snapshot() if self._is_seen else super().snapshot(number)
        self._is_seen = True
        return found


def test_a_summary_is_of_one_snapshot(batch: Lake, found: Contents) -> None:
    """Durations of one run stood below the clusters of another."""
    superseded, asked = Superseded(batch.root), (contents.CLUSTERS, contents.RTO)
    assert set(asked) <= set(TABLES)
    told = gather(superseded, made_at_ms=0, tables=asked)
    assert told.lake_version == 1
    for table in asked:
        assert told.of(table) == found.of(table)
        assert told.of(table)


def test_a_plain_reader_sees_each_row_once(spark: Any, batch: Lake) -> None:
    """By the list of files alone, and by pandas; the comments are in Spark's schema and in Delta's."""
    table = shown(batch, GOLD_FAILOVERS)
    plain = spark.read.parquet(*table.file_uris())
    assert plain.count() == len(table.to_pandas()) == batch.read(spark, GOLD_FAILOVERS).count() == 3
    assert {"cluster", "day", "total_us"} <= set(plain.columns)
    comments = {field.name: field.metadata.get("comment") for field in plain.schema.fields}
    meanings = {column.name: column.meaning for column in GOLD_FAILOVERS.columns}
    assert {name: comments[name] for name in meanings} == meanings
    assert {field.name: field.metadata["comment"] for field in table.schema().fields} == meanings
    assert (
        spark.read.parquet(*shown(batch, BRONZE_EVENTS).file_uris()).count() == batch.read(spark, BRONZE_EVENTS).count()
    )
