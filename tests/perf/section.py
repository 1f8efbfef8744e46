"""What a bench is given, and what it is: a name, its measures and a function that runs once."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rollcall_ha.deploy.local.fleet import Fleet, Layout
from tests.perf.results import Measure


@dataclass(slots=True, kw_only=True)
class Context:
    """One run of one section."""

    directory: Path
    """Empty, of this run alone."""
    is_quick: bool
    detail: dict[str, list[float]] = field(default_factory=dict)
    """Samples, for the JSON."""

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
