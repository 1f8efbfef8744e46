"""Batch and stream against a running control plane read every event once, over a restart and a change of the lead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")

from rollcall_ha.analytics.bronze.datasource import register
from rollcall_ha.controller.contract.events import EventRecord
from rollcall_ha.deploy.local.fleet import Fleet
from rollcall_ha.deploy.local.processes import wait_until
from tests.spark.lakes import start_stream, stream_now
from tests.support.fleet_story import await_authority, counted, heal, load, only_set, running, wait_row
from tests.support.fleet_trials import kill_master

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.slow, pytest.mark.prove]

STREAM_DEADLINE_S = 600
AUTHORITY_DEADLINE_S = 120
"""Spark shares the processors with the controllers."""

_decode = msgspec.json.Decoder(EventRecord).decode


def place(line: str) -> tuple[int, int]:
    record = _decode(line)
    return record.index, record.ordinal


def source_options(fleet: Fleet) -> dict[str, str]:
    """Where the controllers are, whom to trust, and what to show."""
    identity = fleet.identity()
    return {
        "endpoint": ",".join(fleet.rest_addresses()),
        "authority": str(identity.authority),
        "identity": str(identity.certificate),
    }


def live(spark: Any, fleet: Fleet) -> Any:
    """The record as a stream of lines, in small micro-batches."""
    options = {"max-entries": "20", **source_options(fleet)}
    return spark.readStream.format("rollcall").options(**options).load().select("line")


def stored(spark: Any, folder: Path) -> list[str]:
    """What streams have written, by place."""
    return sorted((row["line"] for row in spark.read.parquet(str(folder / "rows")).collect()), key=place)


def journaled(data: Path) -> list[str]:
    """What any controller has on disk, each event once, by place."""
    lines = {line for file in data.glob("*/events/*.jsonl") for line in file.read_text().splitlines()}
    return sorted((line for line in lines if not line.startswith('{"gap":') and line.endswith("}")), key=place)


def change_leader(fleet: Fleet) -> None:
    """SIGKILL for the leading controller, until another one has authority."""
    leader = fleet.leader()
    fleet.kill(leader)
    others = tuple(name for name in fleet.controllers if name != leader)
    await_authority(fleet, others, deadline_s=AUTHORITY_DEADLINE_S)


def test_a_live_record_is_read_once(spark: Any, tmp_path: Path) -> None:
    """
    Stream what is there; stream on while a master and then the leading controller are killed; stop, and start again from
    the checkpoint; a batch at the end. All equal the journals on disk, line by line.
    """
    register(spark)
    with running(tmp_path / "fleet") as fleet:
        only_set(fleet)
        stream_now(live(spark, fleet), tmp_path)
        first = stored(spark, tmp_path)
        # Spark took the processor for a while: the lead may have moved.
        await_authority(fleet, fleet.controllers, deadline_s=AUTHORITY_DEADLINE_S)
        query = start_stream(live(spark, fleet), tmp_path, processingTime="200 milliseconds")
        try:
            with load(fleet) as work:
                trial = kill_master(fleet)
                work.wait_more()
                change_leader(fleet)
                work.wait_more()
            wait_row(fleet, trial.epoch)
            newest = journaled(fleet.directory / "data")[-1]
            wait_until(
                lambda: query.exception() is not None or place(stored(spark, tmp_path)[-1]) >= place(newest),
                deadline_s=STREAM_DEADLINE_S,
                what="the stream to read on from the new leading controller",
            )
        finally:
            query.stop()
        between = stored(spark, tmp_path)
        heal(fleet)
        stream_now(live(spark, fleet), tmp_path)
        second = stored(spark, tmp_path)
        batch = spark.read.format("rollcall").options(**source_options(fleet)).load()
        whole = sorted((row["line"] for row in batch.select("line").collect()), key=place)
        disk = journaled(fleet.directory / "data")

    assert query.exception() is None
    assert first
    assert len(second) >= len(between) > len(first)
    assert len({_decode(line).term for line in between}) > len({_decode(line).term for line in first})
    for read in (first, between, second, whole):
        assert read == [line for line in disk if place(line) <= place(read[-1])]
    counted(first=len(first), streamed=len(between), restarted=len(second), batch=len(whole), on_disk=len(disk))
