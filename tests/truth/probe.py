"""
``rollcall probe`` beside the stopwatch of a row: what it felt of the same outage.

Here: the process, its longest gap, and whether both say the same, give or take the probe's grain. Not here: the record.

Rule 1: the probe begins a gap with a send, and a send has an interval before it and a timeout behind it. A gap that is shorter
than its threshold and its grain together may be missing.
Rule 2: service that is shorter than that grain may be missed too: two stops with it between them are one gap. RocketMQ's new
master acknowledges a few messages, and then none until its SyncStateSet is without the hanging one.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from rollcall_ha.deploy.local.processes import LauncherError, wait_until
from rollcall_ha.probe.journal import GLOB
from rollcall_ha.probe.lines import GapLine, decode_line
from tests.truth.faults import Stage
from tests.truth.recorded import TOLERANCE_MS, TOLERANCE_SHARE, Event, Felt

INTERVAL_MS = 20
ACK_TIMEOUT_MS = 100
THRESHOLD_MS = 40
GRAIN_MS = INTERVAL_MS + ACK_TIMEOUT_MS
"""All of these times ``Stage.coarse``."""
UP_S = 120.0
SERVED = b"first_acknowledgement"


def folder_of(stage: Stage) -> Path:
    """Of the journals of all rows."""
    return stage.fleet.directory / "probes"


class Beside:
    """One probe, for one row."""

    def __init__(self, stage: Stage) -> None:
        """Started, and it has found the set. Its journal stays, for the lake."""
        folder_of(stage).mkdir(exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(dir=folder_of(stage)))
        self._log = stage.fleet.directory / "probe-output.log"
        limits = {"interval-ms": INTERVAL_MS, "ack-timeout-ms": ACK_TIMEOUT_MS, "threshold-ms": THRESHOLD_MS}
        arguments: dict[str, object] = {name: stage.coarse * each for name, each in limits.items()}
        arguments |= {**stage.seeds(), "directory": self._folder}
        command = [
            sys.executable,
            "-m",
            "rollcall_ha.probe",
            *(f"--{name}={value}" for name, value in arguments.items()),
        ]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stderr=log)
        try:
            wait_until(lambda: SERVED in self._log.read_bytes(), deadline_s=UP_S, what="the probe to be served")
        except LauncherError:
            self._process.kill()
            raise

    def stop(self) -> list[GapLine]:
        """All gaps that it felt."""
        self._process.terminate()
        self._process.wait(timeout=UP_S)
        files = sorted(self._folder.glob(GLOB))
        found = (decode_line(line) for file in files for line in file.read_bytes().splitlines())
        return [line for line in found if isinstance(line, GapLine)]


def meeting(gaps: Sequence[GapLine], felt: Felt, *, wall_ms: float, coarse: int = 1) -> GapLine | None:
    """
    The gap that has most of what the stopwatch felt; None: none has any, give or take the grain.

    A machine that is busy makes gaps without an outage, too. ``wall_ms``: UTC at the zero of CLOCK_MONOTONIC.
    """
    to_ms = wall_ms + felt.over_ns / 1e6
    from_ms = to_ms - felt.most_ms

    def shared_ms(gap: GapLine) -> float:
        return min(to_ms, gap.from_ms + gap.felt_ms) - max(from_ms, gap.from_ms)

    return max((gap for gap in gaps if shared_ms(gap) > -coarse * GRAIN_MS), key=shared_ms, default=None)


def longest_ms(events: Sequence[Event], felt: Felt, *, coarse: int = 1) -> float:
    """The outage, with the stops before and after it that rule 2 makes one gap with it."""
    grain_ns, threshold_ns = coarse * GRAIN_MS * 1_000_000, coarse * THRESHOLD_MS * 1_000_000
    stops = [(one.at_ns, later.at_ns) for one, later in pairwise(events) if later.at_ns - one.at_ns >= threshold_ns]
    to_ns = felt.over_ns
    from_ns = to_ns - round(felt.most_ms * 1e6)
    for begun_ns, over_ns in stops:
        if to_ns <= begun_ns < to_ns + grain_ns:
            to_ns = over_ns
    for begun_ns, over_ns in reversed(stops):
        if from_ns - grain_ns < over_ns <= from_ns:
            from_ns = begun_ns
    return (to_ns - from_ns) / 1e6


def complaints(gap: GapLine | None, felt: Felt, *, longest_ms: float, coarse: int = 1) -> tuple[str, ...]:
    """In words; empty: the probe felt what the stopwatch felt. ``longest_ms``: as one gap (rule 2)."""
    tolerance_ms = coarse * GRAIN_MS + max(TOLERANCE_MS, TOLERANCE_SHARE * felt.most_ms)
    if gap is None:
        told = f"the probe felt nothing, the stopwatch {felt.most_ms:,.0f} ms"
        return (told,) if felt.most_ms > coarse * THRESHOLD_MS + tolerance_ms else ()
    # A machine that made the probe late made its gap longer.
    if felt.least_ms - tolerance_ms <= gap.felt_ms <= longest_ms + tolerance_ms + gap.stalled_ms:
        return ()
    stopwatch = f"{felt.most_ms:,.0f} ms, {longest_ms:,.0f} with the stops around it"
    return (f"the probe felt {gap.felt_ms:,} ms ({gap.reason}), the stopwatch {stopwatch}",)
