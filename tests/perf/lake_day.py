"""
What one more day costs, by the age of the lake.

    python -m tests.perf.lake_day [--sets 1200] [--days 102] [--failovers 4080] [--ages 10,40,100] [--keep FOLDER]
                                  [--alone]

A fleet of ``tests.synthetic`` is split into the days of its events. For each age: a lake of so many days, made in one run;
then the next two days, each a run of all layers, as somebody does who runs it daily. CPU is that of the Java process, of the
programs that it starts, and of this one: on a shared machine it says more than the clock. The first lake is made twice, so that
Java has compiled what it needs. Last the whole is made anew, at all of its days. With ``--alone`` each run is ``rollcall analytics run``
in a process of its own, with its summary, as from a timer; nothing is warm then. The exit code is 0 whatever is found.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
import psutil

from rollcall_ha.analytics.jobs.layers import Layers
from rollcall_ha.analytics.lake.lake import Lake
from rollcall_ha.analytics.lake.progress import Progress
from rollcall_ha.analytics.lake.session import spark_session
from tests.perf.first_table import run_alone
from tests.perf.machine import describe
from tests.synthetic.files import write_fleet
from tests.synthetic.plan import MS_PER_DAY, Plan

MORE = 2
"""Days that are added to a lake of each age, one by one."""


class Stamp(msgspec.Struct, rename="camel"):
    stamped_at_ms: int


def days_of(plan: Plan, folder: Path) -> list[Path]:
    """A journal for each day of the plan."""
    if not (folder / "days").exists():
        write_fleet(plan, 0, folder, compression="none")
        (folder / "making").mkdir()
        decode = msgspec.json.Decoder(Stamp).decode
        for journal in sorted((folder / "journals").rglob("*.jsonl")):
            with journal.open("rb") as lines:
                texts: dict[int, list[bytes]] = {}
                for line in lines:
                    texts.setdefault((decode(line).stamped_at_ms - plan.begin_ms) // MS_PER_DAY, []).append(line)
            for day, some in texts.items():
                with (folder / "making" / f"{day:05d}.jsonl").open("ab") as file:
                    file.writelines(some)
        (folder / "making").rename(folder / "days")
    return sorted((folder / "days").glob("*.jsonl"))


class Meter:
    """CPU seconds of one session, layer by layer."""

    def __init__(self, memory: str) -> None:
        """Starts Spark with a heap of ``memory``, as ``2g``."""
        self.spark = spark_session(app="days", settings={"spark.driver.memory": memory})
        gateway = self.spark.sparkContext._gateway
        assert gateway is not None
        started = psutil.Process(gateway.proc.pid)
        (java,) = (one for one in (started, *started.children(recursive=True)) if one.name() == "java")
        self._processes = (java, psutil.Process())

    def cpu_s(self) -> float:
        """Used so far, by programs that have ended too."""
        return sum(sum(process.cpu_times()[:4]) for process in self._processes)

    def run(self, lake: Lake, files: Sequence[Path]) -> tuple[float, ...]:
        """One run of all layers; CPU seconds of bronze, silver and gold."""
        marks = [self.cpu_s()]
        with lake.writer() as writer:
            layers = Layers(self.spark, writer, Progress(self.spark, is_quiet=True))
            steps: tuple[Callable[[], object], ...] = (
                lambda: layers.ingest_files(files),
                layers.silver,
                lambda: layers.gold(until_ms=0),
            )
            for step in steps:
                step()
                writer.publish()
                marks.append(self.cpu_s())
        return tuple(end - begin for begin, end in pairwise(marks))


def shown(what: str, events: int, costs: Sequence[float]) -> str:
    return f"| {what} | {events:,} | {' | '.join(f'{cost:.1f}' for cost in costs)} | {sum(costs):.1f} |"


def days_alone(folder: Path, files: Sequence[Path], events: Sequence[int], age: int) -> None:
    """A lake of so many days, and the next ones, each run by itself; prints a row after each."""
    print("| alone | events | CPU-s | s |\n| --- | ---: | ---: | ---: |", flush=True)
    for upto in range(age, age + MORE + 1):
        told = run_alone(folder, "run", *map(str, files[:upto]), "--lake", "lake", "--until", "last")
        assert told.code == 0, told.lines
        new = f"{sum(events[:age]):,}" if upto == age else f"{events[upto - 1]:,}"
        what = f"{age} days" if upto == age else f"day {upto}"
        print(f"| {what} | {new} | {told.cpu_s:.1f} | {told.wall_s:.1f} |", flush=True)
    shutil.rmtree(folder / "lake")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a row after each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("sets", 1_200), ("days", 102), ("failovers", 4_080)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--ages", default="10,40,100", help="days of the lakes to which days are added")
    parser.add_argument("--keep", type=Path, help="work here and leave the journals; default: a temporary folder")
    parser.add_argument("--alone", action="store_true", help="each run in a process of its own")
    parser.add_argument("--memory", default="2g", help="heap of the Java process")
    options = parser.parse_args(arguments)
    folder = options.keep or Path(tempfile.mkdtemp(prefix="rollcall-days-"))
    folder.mkdir(parents=True, exist_ok=True)
    plan = Plan(fleets=1, sets=options.sets, days=options.days).for_failovers(options.failovers)
    files = days_of(plan, folder)
    events = [sum(1 for _ in file.open("rb")) for file in files]
    print(describe(folder).text())
    if options.alone:
        for age in options.ages.split(","):
            days_alone(folder, files, events, int(age))
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
        return 0
    meter = Meter(options.memory)
    print("| CPU-s | events | bronze | silver | gold | all |\n| --- | ---: | ---: | ---: | ---: | ---: |", flush=True)
    try:
        ages = [int(age) for age in options.ages.split(",")]
        for number, age in enumerate([ages[0], *ages]):
            lake = Lake(folder / "lake")
            name = f"{age} days" if number else f"{age} days, Java is cold"
            print(shown(name, sum(events[:age]), meter.run(lake, files[:age])), flush=True)
            for day in range(age, age + MORE) if number else ():
                print(shown(f"day {day + 1}", events[day], meter.run(lake, files[: day + 1])), flush=True)
            shutil.rmtree(lake.root)
        print(shown(f"all {len(files)} days", sum(events), meter.run(Lake(folder / "lake"), files)), flush=True)
    finally:
        meter.spark.stop()
        shutil.rmtree(folder / "lake" if options.keep else folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
