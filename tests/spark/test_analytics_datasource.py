"""``format("rollcall")`` in Spark: batch and stream read every event once, and the fixed-step trap is not ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from rollcall_ha.analytics.bronze.datasource import register
from rollcall_ha.analytics.bronze.journals import pieces_of
from rollcall_ha.analytics.bronze.lines import LINES_DDL, find_journals, pieces
from rollcall_ha.analytics.bronze.schema import event_record_schema
from rollcall_ha.controller.contract.events import EventRecord
from tests.spark.lakes import stream_now
from tests.support.analytics_story import write_journals
from tests.support.event_pages import Journal, serving
from tests.synthetic.fleet import SyntheticFleet
from tests.synthetic.plan import Plan

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def records() -> tuple[EventRecord, ...]:
    """A fleet's record, through the real core."""
    fleet = SyntheticFleet(Plan(seed=5, sets=3, days=2, faults_per_day=12), 0)
    return tuple(record for entry in fleet.entries() for record in entry)


def texts(records: Sequence[EventRecord]) -> list[str]:
    return sorted(msgspec.json.encode(record).decode() for record in records)


def test_a_batch_is_the_record(spark: Any, records: tuple[EventRecord, ...]) -> None:
    """Every event once over several tasks, with the columns that from_json makes of its line; one cluster on demand."""
    from pyspark.sql import functions as f

    register(spark)
    with serving(Journal(records)) as address:
        table = spark.read.format("rollcall").option("endpoint", address).option("partitions", "3").load().cache()
        assert sorted(row["line"] for row in table.select("line").collect()) == texts(records)
        parsed = table.withColumn("again", f.from_json("line", event_record_schema()))
        names = [field.name for field in event_record_schema().fields]
        differing = parsed.where(f.to_json(f.struct(*names)) != f.to_json("again"))
        assert differing.count() == 0
        table.unpersist()
        late = records[len(records) // 2].index
        some = spark.read.format("rollcall").options(
            **{"endpoint": address, "from-index": str(late), "cluster": "none"}
        )
        assert some.load().count() == 0
        some = spark.read.format("rollcall").options(**{"endpoint": address, "from-index": str(late)})
        assert some.load().count() == sum(record.index >= late for record in records)


def test_journals_by_path_are_the_live_record(spark: Any, records: tuple[EventRecord, ...], tmp_path: Path) -> None:
    """Three controllers' journals two folders down: the same rows as live; bad texts are rows with their line alone."""
    register(spark)
    write_journals([msgspec.json.encode(record).decode() for record in records], tmp_path / "fleet")
    with serving(Journal(records)) as address:
        live = spark.read.format("rollcall").option("endpoint", address).load()
        journals = spark.read.format("rollcall").option("partitions", "3").load(str(tmp_path))
        assert journals.schema == live.schema
        events = journals.where("version is not null").cache()
        assert events.count() == live.count() == len(records)
        assert events.exceptAll(live).count() == 0
        events.unpersist()
    assert sorted(row["line"][:8] for row in journals.where("version is null").collect()) == ['{"gap":{', '{"versio']
    listed = [str(file) for file in find_journals([tmp_path])]
    assert spark.read.format("rollcall").load(listed[:2]).where("version is not null").count() == len(records)


def test_pieces_are_the_same_with_spark_and_without(spark: Any, records: tuple[EventRecord, ...]) -> None:
    """Two records on a line, torn ones, pages, half a page, text that is nothing."""
    lines = [msgspec.json.encode(record).decode() for record in records[:6]]
    page = '{"freshness":{"index":1},"events":[' + ",".join(lines[2:4]) + '],"nextFrom":null,"gap":"1 to 3"}'
    texts = [
        lines[0],
        lines[0] + lines[1],
        lines[1][:70] + lines[2],
        page,
        page + page,
        page[:-40],
        "",
        "  ",
        "torn",
        "[1]",
    ]
    rows = spark.createDataFrame([(str(number), text) for number, text in enumerate(texts)], LINES_DDL)
    found: dict[str, list[str]] = {str(number): [] for number in range(len(texts))}
    for row in pieces(rows).where("trim(line) != ''").collect():
        found[row["source_file"]].append(row["line"])

    assert list(found.values()) == [pieces_of(text) for text in texts]


def test_a_wrong_use_of_the_source_is_told_by_load(spark: Any, tmp_path: Path) -> None:
    """With the remedy, before any query; a path without journals at the first one."""
    from pyspark.errors import AnalysisException

    register(spark)
    with pytest.raises(AnalysisException, match="neither endpoint nor path is given"):
        spark.read.format("rollcall").load()
    with pytest.raises(AnalysisException, match="are two records: read one"):
        spark.read.format("rollcall").option("endpoint", "127.0.0.1:1").load(str(tmp_path))
    with pytest.raises(AnalysisException, match="no journals"):
        spark.read.format("rollcall").load(str(tmp_path)).count()


def test_a_stream_reads_every_event_once_over_restarts(
    spark: Any, records: tuple[EventRecord, ...], tmp_path: Path
) -> None:
    """AvailableNow, more events, AvailableNow again from the checkpoint: nothing twice, nothing left out."""
    register(spark)
    half = len(records) // 2
    journal = Journal(records[:half])
    with serving(journal) as address:
        assert read_now(spark, address, tmp_path) > 1, "one step is all that the trap reads"
        assert stored(spark, tmp_path) == texts(records[:half])
        journal.records += records[half:]
        assert read_now(spark, address, tmp_path) > 3
        read_now(spark, address, tmp_path)

    assert stored(spark, tmp_path) == texts(records)


def read_now(spark: Any, address: str, folder: Path) -> int:
    """Returns how many micro-batches there were up to now."""
    stream = spark.readStream.format("rollcall").options(**{"endpoint": address, "max-entries": "200"}).load()
    return stream_now(stream.select("line"), folder)


def stored(spark: Any, folder: Path) -> list[str]:
    return sorted(row["line"] for row in spark.read.parquet(str(folder / "rows")).collect())


def test_the_fixed_step_trap_is_there_and_is_not_ours(spark: Any, tmp_path: Path) -> None:
    """A source that advances by a step and does not say that it knows AvailableNow reads one step, and succeeds."""

    class Naive(DataSource):  # type: ignore[misc]  # pyspark is untyped
        @classmethod
        def name(cls) -> str:
            return "naive"

        def schema(self) -> str:
            return "number long"

        def streamReader(self, schema: Any) -> NaiveReader:  # noqa: N802
            return NaiveReader()

    class NaiveReader(DataSourceStreamReader):  # type: ignore[misc]
        def initialOffset(self) -> dict[str, int]:  # noqa: N802
            return {"at": 0}

        def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:  # noqa: N802
            return {"at": min(200, (start or {"at": 0})["at"] + 50)}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
            return [InputPartition((start["at"], end["at"]))]

        def read(self, partition: InputPartition) -> Any:
            return iter([(number,) for number in range(*partition.value)])

    spark.dataSource.register(Naive)
    assert stream_now(spark.readStream.format("naive").load(), tmp_path) == 1

    assert spark.read.parquet(str(tmp_path / "rows")).count() == 50, "Spark has closed the trap"
