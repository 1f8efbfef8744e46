"""
What one fault did, by the producer's stopwatch, and whether the record says the same.

Here: pure functions over stamps and the record as JSON; the lines that rounds add up in. Not here: faults, running them.

Rule 1: the longest time without an acknowledgement is not shorter than the longest outage on record, and not longer than
all of them together; give or take max(10 %, 100 ms): the machine runs nine processes on its cores. Shorter than
``NOTICED_MS`` need not be on record: stops of less than a second in the middle of a reign are not recorded.
No more is allowed for a bad network: the client's link to the master is good (``faults``, rule 2), so an answer is never late
by it, and the record is read when no broker has a stop left to tell.
Rule 2: nothing is averaged over scenarios: a fast kill must not hide a slow partition.
Rule 3: where a fault leaves no side that could acknowledge (``can_serve``), the fleet's time to recover counts from its end.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

NOTICED_MS = 1_100.0
TOLERANCE_SHARE, TOLERANCE_MS = 0.10, 100.0
ELECTED = "election"
ROCKETMQ_RTO_MS = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One fault: a line of the file of all rounds."""

    commit: str
    at: str
    """UTC date and time."""
    seed: int
    scenario: str
    hit: str
    """Whom it was about."""
    gap_ms: float
    """Longest time without an acknowledgement, from the fault until the fleet was whole."""
    elections: int
    acked: int
    lost: int
    doubled: int
    stuck: str
    """What did not come back within its deadline; empty: everything did."""
    record: str
    """Where the record is wrong; empty: it is not."""
    recovered_ms: float | None = None
    """Longest time without an acknowledgement behind the end of a fault that nobody could serve in (rule 3)."""

    @property
    def rto_ms(self) -> float:
        return self.gap_ms if self.recovered_ms is None else self.recovered_ms

    @property
    def is_good(self) -> bool:
        return not (self.lost or self.doubled or self.stuck or self.record)


def longest_gap_ms(stamps_ns: Sequence[int], since_ns: int, until_ns: int) -> float:
    """Between two acknowledgements of which the later came after ``since_ns`` and the sooner before ``until_ns``."""
    stamps = sorted(stamps_ns)
    gaps = [later - one for one, later in itertools.pairwise(stamps) if later > since_ns and one < until_ns]
    return max(gaps, default=0) / 1e6


def can_serve(sides: Iterable[tuple[int, int]], *, brokers: int, controllers: int, min_in_sync: int) -> bool:
    """
    Whether a fleet with so many of each has a side (brokers, controllers) that can acknowledge.

    All brokers need no controller. Some need a majority of them: without one the others stay in the SyncStateSet.
    """
    return any(here == brokers or (here >= min_in_sync and 2 * with_them > controllers) for here, with_them in sides)


def outages_ms(rows: Sequence[Mapping[str, Any]], stops: Sequence[Mapping[str, Any]]) -> list[tuple[float, float, str]]:
    """(least, most, kind) of each outage on record, with the time that the first acknowledgement was waited for."""
    found = []
    stopped: dict[int, float] = {}
    for stop in stops:
        if stop["end"] != ELECTED:
            length = (stop.get("stoppedUs") or 0) / 1000
            stopped[stop["masterEpoch"]] = stopped.get(stop["masterEpoch"], 0.0) + length
            found.append((length, length, f"writes-stopped:{stop['reason']}"))
    for row in rows:
        total = row["totalUs"]
        if total is None:
            continue
        most = row.get("totalUsMax", total)
        waited = max(0.0, (row.get("waitedUs") or 0) / 1000 - stopped.get(row["masterEpoch"], 0.0))
        upper = float("inf") if most is None else most / 1000 + waited
        found.append((total / 1000 + waited, upper, row["kind"]))
    return found


def untrue(gap_ms: float, rows: Sequence[Mapping[str, Any]], stops: Sequence[Mapping[str, Any]]) -> str:
    """Where the record is wrong about the longest gap; empty: nowhere (rule 1)."""
    outages = outages_ms(rows, stops)
    least, _, kind = max(outages, default=(0.0, 0.0, "nothing"))
    # Outages that follow each other at once are one for who waits: between an election and a stop of writes that its
    # master begins with, nothing was acknowledged.
    most = sum(one[1] for one in outages)
    tolerance = max(TOLERANCE_SHARE * gap_ms, TOLERANCE_MS)
    if gap_ms < least - tolerance:
        return f"felt {gap_ms:,.0f} ms, on record {least:,.0f} ms ({kind})"
    if gap_ms > most + tolerance and gap_ms > NOTICED_MS:
        return f"felt {gap_ms:,.0f} ms, on record at most {most:,.0f} ms ({kind})"
    return ""


def append(file: Path, trials: Iterable[Trial]) -> None:
    """At the end of the file of all rounds."""
    with file.open("a") as lines:
        lines.writelines(json.dumps(asdict(trial)) + "\n" for trial in trials)


def read(file: Path) -> list[Trial]:
    """Raises ``OSError``, ``ValueError``."""
    return [Trial(**json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []


def table(trials: Sequence[Trial]) -> str:
    """RTO by scenario, as Markdown."""
    lines = [
        "| scenario | faults | masters changed | RTO p50 | p99 | max | lost | doubled | stuck | record wrong |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for scenario in dict.fromkeys(trial.scenario for trial in trials):
        those = [trial for trial in trials if trial.scenario == scenario]
        gaps = sorted(trial.rto_ms for trial in those)
        rto = [gaps[min(len(gaps) - 1, int(len(gaps) * share))] for share in (0.5, 0.99)] + [gaps[-1]]
        counts = [sum(trial.elections > 0 for trial in those)]
        bad = [sum(trial.lost for trial in those), sum(trial.doubled for trial in those)]
        bad += [sum(bool(trial.stuck) for trial in those), sum(bool(trial.record) for trial in those)]
        cells = [scenario, len(those), *counts, *(f"{ms:,.0f} ms" for ms in rto), *bad]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)
