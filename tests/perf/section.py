"""What a bench is given, and what it is: a name, its measures and a function that runs once. And how runs are made and kept."""

from __future__ import annotations

import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from rollcall_ha.deploy.local.fleet import Fleet, Layout
from tests.interop_java.artifacts import RocketMq
from tests.perf.machine import Others
from tests.perf.results import Measure, Run


@dataclass(slots=True, kw_only=True)
class Context:
    """One run of one section."""

    directory: Path
    """Empty, of this run alone."""
    is_quick: bool
    side: str = ""
    """Which of the two programs that are compared (``versus``)."""
    java: RocketMq | None = None
    """Where RocketMQ is one of them."""
    detail: dict[str, list[float]] = field(default_factory=dict)
    """Samples, for the JSON."""

    @property
    def rocketmq(self) -> RocketMq:
        """For a section that is run beside it."""
        assert self.java is not None
        return self.java

    def say(self, text: str) -> None:
        """Progress; not part of the result."""
        sys.stderr.write(f"    {text}\n")
        sys.stderr.flush()

    @contextmanager
    def fleet(self, layout: Layout | None = None, *, is_up: bool = True) -> Iterator[Fleet]:
        """A fleet that is gone afterwards, data and all."""
        directory = self.directory / f"fleet-{time.monotonic_ns()}"
        with Fleet.create(directory, layout or Layout(name="perf")) as fleet:
            if is_up:
                fleet.up()
            yield fleet
        shutil.rmtree(directory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A bench of one subject; ``run`` gives a value for every measure."""

    name: str
    title: str
    measures: tuple[Measure, ...]
    run: Callable[[Context], dict[str, float]]


def run_section(section: Section, number: int, context: Context) -> Run:
    """One run of one section in the directory of ``context``, which stays if it fails."""
    context.directory.mkdir()
    load, others, began = os.getloadavg()[0], Others(), time.monotonic()
    values: dict[str, float] = {}
    error = ""
    try:
        values = section.run(context)
    except Exception as failure:  # noqa: BLE001 (the other runs have their own fleets)
        error = "".join(traceback.format_exception(failure))
        sys.stderr.write(f"{error}    logs are kept in {context.directory}\n")
    else:
        shutil.rmtree(context.directory)
    run = Run(
        section=section.name,
        side=context.side,
        number=number,
        seconds=round(time.monotonic() - began, 1),
        load_before=round(load, 2),
        cpu_of_others=round(others.cores(), 2),
        values=values,
        detail=context.detail,
        error=error,
    )
    sys.stderr.write(f"    {run.seconds:.0f} s, others used {run.cpu_of_others:.2f} cores\n")
    return run


def write_report(report: msgspec.Struct, path: Path) -> None:
    """The JSON file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")


def print_failed(runs: Sequence[Run]) -> int:
    """A line for each run that failed; how many those are."""
    failed = [run for run in runs if run.error]
    for run in failed:
        print(f"FAILED  {run.section} {run.side}, run {run.number}: {run.error.strip().splitlines()[-1]}")
    return len(failed)
