"""
``make bench-analytics``: what the lake's layers cost, beside a bare scan of the same events in the same session.

    python -m tests.perf.lake [--events-m 10,20,40] [--json-m 10] [--keep FOLDER] [--json FILE]

JSON lines are made and ingested for ``--json-m`` million events; larger inputs are copies of that bronze as other fleets,
so that silver and gold are measured from Parquet. The scan reads every column that silver reads and writes nothing.
CPU is that of the Java process: on a shared machine it says more than the clock. The exit code is 0 whatever is reached.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import psutil

from analytics.lake import Lake, partitions_in
from analytics.layers import FILE_ORDER, Layers
from analytics.lines import find_journals
from analytics.progress import Progress
from analytics.session import spark_session
from analytics.tables import BRONZE_EVENTS, SILVER_REIGNS
from tests.perf import lake_input
from tests.perf.machine import describe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MILLION = 1_000_000
NOT_READ_BY_SILVER = ("line", "source_file", "version", "controller", "expected_replicas", "intactness", "is_accepted")
SCAN_AIM, GROWTH_AIM, FLAPPING_AIM = 2.0, 2.1, 1.1


class Step(msgspec.Struct, kw_only=True):
    """One thing that was measured."""

    name: str
    events: int
    wall_s: float
    cpu_s: float
    peak_mib: float
    """Of the Java process, since it began."""


class Bench:
    """One session; steps are measured one after the other."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        """Files go below ``folder``."""
        self.spark = spark
        self.folder = folder
        self.steps: list[Step] = []
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        self._java = _java_below(psutil.Process(gateway.proc.pid))

    def measure(self, name: str, events: int, work: Callable[[], object]) -> Step:
        """Run it once."""
        began, used = time.monotonic(), sum(self._java.cpu_times()[:2])
        work()
        step = Step(
            name=name,
            events=events,
            wall_s=time.monotonic() - began,
            cpu_s=sum(self._java.cpu_times()[:2]) - used,
            peak_mib=_peak_mib(self._java.pid),
        )
        self.steps.append(step)
        print(
            f"{events / MILLION:6.0f} M  {name:<24} {step.wall_s:8.1f} s {step.cpu_s:8.1f} CPU-s  {step.peak_mib:7,.0f} MiB",
            file=sys.stderr,
            flush=True,
        )
        return step

    def ingest(self, events: int) -> Lake:
        """JSON lines as zstd files, then bronze."""
        journals, lake = self.folder / "journals", Lake(self.folder / "json")
        made = lake_input.lines(self.spark, events, tasks=max(2, events // (2 * MILLION)))
        target = journals / "events"

        def write() -> None:
            made.write.option("compression", "zstd").text(str(target))
            for number, file in enumerate(sorted(target.glob("part-*"))):
                file.rename(target / f"{number:04d}.jsonl{file.suffix}")

        self.measure("make journals", events, write)
        with lake.writer() as writer:
            layers = Layers(self.spark, writer, Progress(self.spark, is_quiet=True))
            self.measure("bronze from JSON", events, lambda: layers.ingest_files(find_journals([journals])))
            writer.publish()
        shutil.rmtree(journals)
        return lake

    def copied(self, source: Lake, times: int, *, name: str, is_flapping: bool = True) -> Lake:
        """A lake with the bronze of ``source`` as so many fleets."""
        from pyspark.sql import functions as f

        lake = Lake(self.folder / name)
        rows = source.read(self.spark, BRONZE_EVENTS)
        if not is_flapping:
            spread = f.concat(f.lit("calm-"), (f.col("master_epoch") % lake_input.SETS).cast("string"))
            flapping = f.col("broker_set") == "broker-0"
            rows = rows.withColumn("broker_set", f.when(flapping, spread).otherwise(f.col("broker_set")))
        fleets = f.array(*(f.lit(f"{number:032d}") for number in range(times)))
        with lake.writer() as writer:
            copies = rows.withColumn("line", f.lit("")).withColumn("fleet", f.explode(fleets))
            run, folder = writer.stage(BRONZE_EVENTS, copies.sortWithinPartitions("cluster", "day", *FILE_ORDER))
            writer.replace(BRONZE_EVENTS, {partition: [run] for partition in partitions_in(folder)})
            writer.publish()
        return lake

    def layers(self, lake: Lake, events: int, *, tag: str = "") -> tuple[Step, Step]:
        """The scan, then silver and gold; returns the scan and the whole of silver."""
        columns = [name for name in BRONZE_EVENTS.column_names if name not in NOT_READ_BY_SILVER]
        rows: DataFrame = lake.read(self.spark, BRONZE_EVENTS).select(*columns)
        scan = self.measure(f"scan{tag}", events, lambda: rows.write.format("noop").mode("overwrite").save())
        progress = Progress(self.spark, is_quiet=True)
        with lake.writer() as writer:
            layers = Layers(self.spark, writer, progress)
            silver = self.measure(f"silver{tag}", events, layers.silver)
            self.measure(f"gold{tag}", events, layers.gold)
            writer.publish()
        for name, took_ms in progress.took_ms.items():
            print(f"           {name:<28} {took_ms / 1000:6.1f} s", file=sys.stderr, flush=True)
        return scan, silver


def _java_below(process: psutil.Process) -> psutil.Process:
    found = [child for child in [process, *process.children(recursive=True)] if child.name() == "java"]
    return found[0]


def _peak_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _report(sizes: Sequence[int], measured: dict[int, tuple[Step, Step]], calm: Step | None) -> str:
    lines = [
        "",
        "| events | scan CPU-s | silver CPU-s | silver / scan | growth | aim |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    before: Step | None = None
    for size in sizes:
        scan, silver = measured[size]
        growth = "" if before is None else f"{silver.cpu_s / before.cpu_s:.2f} for {silver.events / before.events:.0f}x"
        lines.append(
            f"| {size / MILLION:,.0f} M | {scan.cpu_s:.1f} | {silver.cpu_s:.1f} | {silver.cpu_s / scan.cpu_s:.2f} |"
            f" {growth} | at most {SCAN_AIM}; {GROWTH_AIM} |"
        )
        before = silver
    if calm is not None:
        flapping = measured[sizes[0]][1]
        lines.append(
            f"\nOne set with 5 % of the events: silver takes {flapping.cpu_s / calm.cpu_s:.3f} times the CPU of the same"
            f" events spread over all sets (aim: less than {FLAPPING_AIM})."
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events-m", default="10,20,40", help="million events of each size; the first one from JSON")
    parser.add_argument("--keep", type=Path, help="work here and leave the files; default: a temporary folder")
    parser.add_argument("--json", type=Path, help="write all steps here")
    parser.add_argument("--memory", default="2g", help="heap of the Java process")
    options = parser.parse_args(arguments)
    sizes = [round(float(size) * MILLION) for size in options.events_m.split(",")]
    folder = options.keep or Path(tempfile.mkdtemp(prefix="rollcall-lake-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(describe(folder).text())
    spark = spark_session(app="bench", settings={"spark.driver.memory": options.memory})
    try:
        bench = Bench(spark, folder)
        first = bench.ingest(sizes[0])
        measured: dict[int, tuple[Step, Step]] = {}
        bench.layers(bench.copied(first, 1, name="warm"), sizes[0], tag=" (warm-up)")
        for size in sizes:
            lake = bench.copied(first, round(size / sizes[0]), name=f"copied-{size}")
            measured[size] = bench.layers(lake, size)
            times = round(size / sizes[0])
            found, made = lake.read(spark, SILVER_REIGNS).count(), sizes[0] // lake_input.EVENTS_PER_FAILOVER * times
            assert found == made, f"silver has {found} reigns of {made}: what was measured is not the whole work"
            if options.keep is None:
                shutil.rmtree(lake.root)
        calm = bench.layers(bench.copied(first, 1, name="calm", is_flapping=False), sizes[0], tag=" (calm)")[1]
        print(_report(sizes, measured, calm))
        if options.json:
            options.json.write_bytes(msgspec.json.encode(bench.steps))
    finally:
        spark.stop()
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
