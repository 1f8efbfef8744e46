"""Must show 6: batch and stream against a running control plane read every event exactly once, also after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")

from analytics.datasource import register
from controller.contract.events import EventRecord
from tests.spark.lakes import stream_now
from tests.support.fleet_story import await_authority, heal, load, only_set, running, wait_row
from tests.support.fleet_trials import kill_master

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.slow]

_decode = msgspec.json.Decoder(EventRecord).decode


def places(lines: list[str]) -> list[tuple[int, int]]:
    return sorted((record.index, record.ordinal) for record in map(_decode, lines))


def read_now(spark: Any, endpoints: str, folder: Path) -> list[tuple[int, int]]:
    """Everything that was read up to now, from the checkpoint on."""
    stream = spark.readStream.format("rollcall").options(**{"endpoint": endpoints, "max-entries": "20"}).load()
    stream_now(stream.select("line"), folder)
    return places([row["line"] for row in spark.read.parquet(str(folder / "rows")).collect()])


def journaled(data: Path) -> set[tuple[int, int]]:
    """What any controller has on disk."""
    lines = [line for file in data.glob("*/events/*.jsonl") for line in file.read_text().splitlines()]
    return set(places([line for line in lines if not line.startswith('{"gap":') and line.endswith("}")]))


def test_a_live_record_is_read_once(spark: Any, tmp_path: Path) -> None:
    """Stream, fail over, stream again from the checkpoint; a batch at the end; all equal to the journals on disk."""
    register(spark)
    with running(tmp_path / "fleet") as fleet:
        only_set(fleet)
        endpoints = ",".join(fleet.rest_addresses())
        first = read_now(spark, endpoints, tmp_path)
        # Spark took the processor for a while: the lead may have moved.
        await_authority(fleet, fleet.controllers)
        with load(fleet) as work:
            trial = kill_master(fleet)
            work.wait_more()
        wait_row(fleet, trial.epoch)
        heal(fleet)
        second = read_now(spark, endpoints, tmp_path)
        batch = spark.read.format("rollcall").option("endpoint", endpoints).load()
        whole = places([row["line"] for row in batch.select("line").collect()])
        disk = sorted(journaled(fleet.directory / "data"))

    assert first
    assert len(second) > len(first)
    for read in (first, second, whole):
        assert read == [place for place in disk if place <= read[-1]]
