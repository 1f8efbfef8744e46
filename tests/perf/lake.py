"""
``make prove PARTS=bench-analytics``: what the lake's layers cost, beside a bare scan of the same events in the same session.

    python -m tests.perf.lake [--events-m 10,20,40] [--large-m 100] [--parts sizes,flapping,large] [--keep FOLDER] [--json FILE]
    python -m tests.perf.lake --events-m 1,1 --parts ingest     bronze from JSON: the first time in a Java, and once more

JSON lines are made and ingested for the first size; all lakes that are measured are copies of that bronze as so many
fleets, so that silver and gold are measured from Parquet. Copies have no ``line``, which silver does not read, and a hash chain
that goes on from event to event. The scan reads every column that silver reads and writes nothing; DuckDB computes the reigns of the same files in memory, and its rows
are compared with Spark's. CPU is that of the Java process, of DuckDB that of this one: on a shared machine it says more than
the clock. Jobs are Spark's, by its status tracker. Cold is the first time in a Java, warm are all others. The exit code is 0
whatever is reached. With ``--keep`` the ingested events are there for the next run. On two cores 10 and 100 million take 25 minutes
in all; each part says how long it took.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import msgspec
import psutil

from rollcall_ha.analytics.bronze.lines import find_journals
from rollcall_ha.analytics.bronze.tables import BRONZE_EVENTS
from rollcall_ha.analytics.jobs.layers import Layers
from rollcall_ha.analytics.lake.lake import Lake
from rollcall_ha.analytics.lake.progress import Progress
from rollcall_ha.analytics.lake.session import spark_session
from rollcall_ha.analytics.lake.tables import set_id_of
from rollcall_ha.analytics.silver.tables import SILVER_REIGNS
from tests.perf import lake_duckdb, lake_input
from tests.perf.machine import describe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MILLION = 1_000_000
NOT_READ_BY_SILVER = (
    "line",
    "blanked",
    "source_file",
    "version",
    "controller",
    "expected_replicas",
    "intactness",
    "is_accepted",
)
SILVER_AIM, BOTH_AIM, BRONZE_AIM = 2.5, 4.0, 20
"""CPU seconds per million events, warm: silver, silver and gold, JSON to bronze."""
GROWTH_AIM, FLAPPING_AIM, LARGE_AIM_S = 2.0, 1.1, 300
BEFORE = {10: (94.7, 97.8), 20: (141.8, 125.2), 40: (240.4, 192.0), 100: (506.5, 387.8)}
"""Million events -> CPU-s of silver and of gold on this bench at 60bd1f8, 2 cores (docs/numbers-analytics.md)."""
PARTS = ("sizes", "flapping", "large")
"""What is measured unless told; the ingest of the first size comes before."""
FLAPPING_ROUNDS = 3


class Cost(msgspec.Struct, frozen=True):
    """What something took; CPU is that of the Java process."""

    wall_s: float
    cpu_s: float


class Step(msgspec.Struct, kw_only=True):
    """One thing that was measured."""

    name: str
    events: int
    wall_s: float
    cpu_s: float
    peak_mib: float
    """Greatest resident memory of the process during the step; what it took before it keeps."""
    jobs: int = 0
    """Spark jobs that the step started, by its status tracker."""
    parts: dict[str, Cost] = {}
    """Of each table."""


class Measured(msgspec.Struct, kw_only=True):
    """One lake through its layers."""

    scan: Step
    silver: Step
    gold: Step
    duckdb: Step


class Costs(Progress):
    """Says nothing, and keeps what each table has cost."""

    def __init__(self, bench: Bench) -> None:
        """Nothing has been measured yet."""
        super().__init__(bench.spark, is_quiet=True)
        self._bench = bench
        self.costs: dict[str, Cost] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """As ``Progress``."""
        began, used = time.monotonic(), self._bench.cpu_s()
        with super().step(name):
            yield
        self.costs[name] = Cost(time.monotonic() - began, self._bench.cpu_s() - used)


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

    def cpu_s(self) -> float:
        """That the Java process has used so far."""
        return _cpu_s(self._java)

    def jobs(self) -> int:
        """That Spark has begun so far."""
        # Numbers of jobs grow by one; a count of those that are known would end at the thousand that Spark keeps.
        return 1 + max(self.spark.sparkContext.statusTracker().getJobIdsForGroup(None), default=-1)

    def measure(
        self,
        name: str,
        events: int,
        work: Callable[[], object],
        tables: Costs | None = None,
        process: psutil.Process | None = None,
    ) -> Step:
        """Run it once; ``tables`` keeps the costs of its parts; it runs in ``process``, else in Java."""
        known = set(tables.costs) if tables is not None else set()
        process = process or self._java
        _forget_peak(process.pid)
        began, used, jobs = time.monotonic(), _cpu_s(process), self.jobs()
        work()
        took = {} if tables is None else {name: cost for name, cost in tables.costs.items() if name not in known}
        step = Step(
            name=name,
            events=events,
            wall_s=time.monotonic() - began,
            cpu_s=_cpu_s(process) - used,
            peak_mib=_peak_mib(process.pid),
            jobs=self.jobs() - jobs,
            parts=took,
        )
        self.steps.append(step)
        print(
            f"{events / MILLION:6.0f} M  {name:<24} {step.wall_s:8.1f} s {step.cpu_s:8.1f} CPU-s  {step.peak_mib:7,.0f} MiB"
            f" {step.jobs:4} jobs",
            file=sys.stderr,
            flush=True,
        )
        for part, cost in took.items():
            print(f"          {part:<25} {cost.wall_s:8.1f} s {cost.cpu_s:8.1f} CPU-s", file=sys.stderr, flush=True)
        return step

    def ingest(self, events: int, *, name: str = "json") -> Lake:
        """JSON lines as gzip files, then bronze; or the bronze that an earlier run has left."""
        journals, lake = self.folder / "journals", Lake(self.folder / f"{name}-{events}")
        if lake.snapshot().number:
            return lake
        made = lake_input.lines(self.spark, events, tasks=max(2, events // (2 * MILLION)))
        target = journals / "events"

        def write() -> None:
            made.write.option("compression", "gzip").text(str(target))
            for number, file in enumerate(sorted(target.glob("part-*"))):
                file.rename(target / f"{number:04d}.jsonl{file.suffix}")

        self.measure("make journals", events, write)
        costs = Costs(self)
        with lake.writer() as writer:
            layers = Layers(self.spark, writer, costs)
            step = self.measure(
                "bronze from JSON", events, lambda: layers.ingest_files(find_journals([journals])), costs
            )
            writer.publish()
        each = step.cpu_s / events * MILLION
        print(f"bronze from JSON, cold: {each:.1f} CPU-s per million, {step.wall_s:,.0f} s (aim, warm: {BRONZE_AIM})")
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
        chain = f.sha2(f.lit(name).cast("binary"), 256)
        chained = {"chain": chain, "continues": f.xxhash64(chain), "blanked": f.lit(None).cast("string")}
        copies = rows.withColumns({"line": f.lit(None).cast("string"), **chained}).withColumn(
            "fleet", f.explode(fleets)
        )
        copies = copies.withColumn("set_id", set_id_of(f.col("fleet"), f.col("cluster"), f.col("broker_set")))
        # A task reads about a file, and all that it writes stays open: rows keep their order without a sort.
        for key, value in COPYING.items():
            self.spark.conf.set(key, value)
        try:
            with lake.writer() as writer:
                writer.put(BRONZE_EVENTS, copies)
                writer.publish()
        finally:
            for key in COPYING:
                self.spark.conf.unset(key)
        return lake

    def layers(self, lake: Lake, events: int, *, tag: str = "") -> Measured:
        """The scan, then all of silver and all of gold, published."""
        columns = [name for name in BRONZE_EVENTS.column_names if name not in NOT_READ_BY_SILVER]
        rows: DataFrame = lake.read(self.spark, BRONZE_EVENTS).select(*columns)
        scan = self.measure(f"scan{tag}", events, lambda: rows.write.format("noop").mode("overwrite").save())
        costs = Costs(self)
        with lake.writer() as writer:
            layers = Layers(self.spark, writer, costs)
            silver = self.measure(f"silver{tag}", events, lambda: layers.silver(is_full=True), costs)
            gold = self.measure(f"gold{tag}", events, lambda: layers.gold(is_full=True), costs)
            writer.publish()
        found, made = lake.read(self.spark, SILVER_REIGNS).count(), events // lake_input.EVENTS_PER_FAILOVER
        assert abs(found - made) <= made // 1_000, f"silver has {found} reigns of {made}: not the whole work"
        return Measured(scan=scan, silver=silver, gold=gold, duckdb=self.duckdb(lake, events, tag=tag))

    def duckdb(self, lake: Lake, events: int, *, tag: str = "") -> Step:
        """The reigns by DuckDB, in memory and with as many threads as Spark has; fails if a row differs from Spark's."""
        files = lake_duckdb.files_of
        with duckdb.connect(config={"threads": self.spark.sparkContext.defaultParallelism}) as database:
            step = self.measure(
                f"DuckDB's reigns{tag}",
                events,
                lambda: lake_duckdb.compute(database, files(lake, BRONZE_EVENTS)),
                process=psutil.Process(),
            )
            wrong = lake_duckdb.differing(database, files(lake, SILVER_REIGNS))
        assert wrong == 0, f"{wrong} rows of reigns are Spark's or DuckDB's alone"
        return step


COPYING = {"spark.sql.maxConcurrentOutputFileWriters": "64", "spark.sql.files.maxPartitionBytes": "16m"}


def _java_below(process: psutil.Process) -> psutil.Process:
    found = [child for child in [process, *process.children(recursive=True)] if child.name() == "java"]
    return found[0]


def _cpu_s(process: psutil.Process) -> float:
    return sum(process.cpu_times()[:2])


def _forget_peak(pid: int) -> None:
    """Linux: 5 sets the high-water mark back to what is resident now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _peak_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


# --- parts -----------------------------------------------------------------------------------------------------------


HEAD = (
    "| events | run | scan | DuckDB | reigns | silver | gold | silver and gold | per million | growth | jobs | peak | before |",
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
)
EXPLAINED = f"""CPU-s (wall s). DuckDB: the reigns only, in memory. Per million: silver, and both. Jobs: silver, gold.
Before: silver and gold in CPU-s, both per million, at 60bd1f8. Aims, warm: {SILVER_AIM} and {BOTH_AIM} CPU-s per million at 10 M,
growth {GROWTH_AIM} for twice the data, {LARGE_AIM_S} s (wall) for 100 M."""


def ingest(bench: Bench, wanted: Sequence[int]) -> str:
    """Bronze from JSON, one size after the other in one Java."""
    lines = ["| events | bronze | per million | peak |", "| --- | --- | --- | --- |"]
    for number, size in enumerate(wanted):
        lake = bench.ingest(size, name=f"ingest-{number}")
        shutil.rmtree(lake.root)
        step = bench.steps[-1]
        whole, each = f"{step.cpu_s:.1f} ({step.wall_s:.1f})", step.cpu_s / size * MILLION
        lines.append(f"| {size / MILLION:,.1f} M | {whole} | {each:.1f} | {step.peak_mib:,.0f} MiB |")
    return "\n".join([*lines, "CPU-s (wall s)."])


def sizes(bench: Bench, source: Lake, base: int, wanted: Sequence[int], *, is_kept: bool) -> str:
    """Growing lakes; the first one is run twice, for the compiler of Java."""
    lines, before = list(HEAD), None
    for size in wanted:
        lake = bench.copied(source, size // base, name=f"copied-{size}")
        if before is None:
            lines.append(_row(bench.layers(lake, size, tag=" (cold)"), "cold"))
        one = bench.layers(lake, size)
        if not is_kept:
            shutil.rmtree(lake.root)
        lines.append(_row(one, "warm", before))
        before = one
    return "\n".join([*lines, EXPLAINED])


def _row(one: Measured, run: str, smaller: Measured | None = None) -> str:
    size = one.scan.events
    costs: list[Step | Cost] = [one.scan, one.duckdb, _reigns(one), one.silver, one.gold, _both(one)]
    silver_cpu, both_cpu = one.silver.cpu_s, _both(one).cpu_s
    cells = [f"{size / MILLION:,.2f} M", run, *(f"{cost.cpu_s:.1f} ({cost.wall_s:.1f})" for cost in costs)]
    cells.append(f"{silver_cpu / size * MILLION:.2f}, {both_cpu / size * MILLION:.2f}")
    growth = ""
    if smaller is not None:
        growth = f"{both_cpu / _both(smaller).cpu_s:.2f} for {size / smaller.scan.events:.1f}x"
    peak = max(step.peak_mib for step in (one.scan, one.silver, one.gold))
    cells += [growth, f"{one.silver.jobs}, {one.gold.jobs}", f"{peak:,.0f} MiB"]
    then = BEFORE.get(size // MILLION)
    cells.append("" if then is None else f"{then[0]}, {then[1]}; {sum(then) / size * MILLION:.2f}")
    return f"| {' | '.join(cells)} |"


def _both(one: Measured) -> Cost:
    return Cost(one.silver.wall_s + one.gold.wall_s, one.silver.cpu_s + one.gold.cpu_s)


def _reigns(one: Measured) -> Cost:
    """A row per failover: the table that the aims were made for. The others of silver come on top."""
    return one.silver.parts["silver: reigns"]


def flapping(bench: Bench, source: Lake, base: int) -> str:
    """One set with 5 % of the events, beside the same events spread over all sets, in turn."""
    lakes = {
        "one set with 5 %": bench.copied(source, 1, name="flapping"),
        "spread over all": bench.copied(source, 1, name="calm", is_flapping=False),
    }
    found: dict[str, list[Measured]] = {name: [] for name in lakes}
    for _ in range(FLAPPING_ROUNDS):
        for name, lake in lakes.items():
            found[name].append(bench.layers(lake, base, tag=f" ({name})"))
    lines = ["| 5 % of the events | silver | gold |", "| --- | --- | --- |"]
    costs = {name: _costs(each) for name, each in found.items()}
    for name, (silver_cpu, silver, gold_cpu, gold) in costs.items():
        lines.append(f"| {name} | {silver_cpu:.1f} ({silver:.1f}) | {gold_cpu:.1f} ({gold:.1f}) |")
    skewed, spread = costs.values()
    cpu, wall = ((skewed[at] + skewed[at + 2]) / (spread[at] + spread[at + 2]) for at in (0, 1))
    return "\n".join(
        [
            *lines,
            f"Medians of {FLAPPING_ROUNDS}: {cpu:.3f} times the CPU, {wall:.3f} times the wall (aim: {FLAPPING_AIM}).",
        ]
    )


def _costs(each: Sequence[Measured]) -> tuple[float, ...]:
    steps = [(one.silver.cpu_s, one.silver.wall_s, one.gold.cpu_s, one.gold.wall_s) for one in each]
    return tuple(statistics.median(values) for values in zip(*steps, strict=True))


def large(bench: Bench, source: Lake, base: int, size: int, *, is_kept: bool) -> str:
    """One large lake."""
    lake = bench.copied(source, size // base, name=f"copied-{size}")
    one = bench.layers(lake, size)
    if not is_kept:
        shutil.rmtree(lake.root)
    took = _both(one).wall_s
    lines = [*HEAD, _row(one, "warm"), EXPLAINED]
    return "\n".join([*lines, f"silver and gold of {size / MILLION:,.0f} M: {took:,.0f} s (aim: {LARGE_AIM_S} s)"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events-m", default="10,20,40", help="million events of each size; the first one from JSON")
    parser.add_argument("--large-m", type=float, default=100, help="million events of the large one")
    parser.add_argument("--parts", default=",".join(PARTS), help="what to measure")
    parser.add_argument("--keep", type=Path, help="work here and leave the files; default: a temporary folder")
    parser.add_argument("--json", type=Path, help="write all steps here")
    parser.add_argument("--memory", default="2g", help="heap of the Java process")
    options = parser.parse_args(arguments)
    wanted = [round(float(size) * MILLION) for size in options.events_m.split(",")]
    folder = options.keep or Path(tempfile.mkdtemp(prefix="rollcall-lake-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(describe(folder).text())
    spark = spark_session(app="bench", settings={"spark.driver.memory": options.memory})
    try:
        bench, base, is_kept = Bench(spark, folder), wanted[0], options.keep is not None
        measured = {
            "ingest": lambda: ingest(bench, wanted),
            "sizes": lambda: sizes(bench, bench.ingest(base), base, wanted, is_kept=is_kept),
            "flapping": lambda: flapping(bench, bench.ingest(base), base),
            "large": lambda: large(bench, bench.ingest(base), base, round(options.large_m * MILLION), is_kept=is_kept),
        }
        for part in options.parts.split(","):
            began = time.monotonic()
            print(f"\n{part}\n{measured[part]()}", flush=True)
            print(f"{part} took {time.monotonic() - began:,.0f} s, with what it had to make", flush=True)
            if options.json:
                options.json.write_bytes(msgspec.json.encode(bench.steps))
        print(f"RESULT {json.dumps({'parts': len(options.parts.split(',')), 'steps': len(bench.steps)})}")
    finally:
        spark.stop()
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
