"""
Failovers as a client feels them: kill -9 and SIGSTOP of a master, kill -9 of the leading controller.

Three controllers and three brokers as processes, a producer in one more. The gap is what lies between two
acknowledgements, by the producer's own stamps; phases are what ``rollcall history`` shows.
"""

from __future__ import annotations

import bisect
import itertools
import signal
import statistics
import time
from collections.abc import Callable, Sequence

from rollcall_ha.client.errors import ClientError
from rollcall_ha.controller.contract.ids import MasterEpoch, SetKey
from rollcall_ha.controller.contract.values import Phase
from rollcall_ha.controller.contract.views import HistoryRow
from rollcall_ha.deploy.local import faults
from rollcall_ha.deploy.local.fleet import Fleet, Layout
from rollcall_ha.deploy.local.ledger import Interruption, interruption
from rollcall_ha.deploy.local.processes import wait_until
from tests.perf.load import Client
from tests.perf.results import Measure, percentile
from tests.perf.section import Context, Section

FAILOVER_DEADLINE_S = 30.0
RECORD_DEADLINE_S = 10.0
BEFORE_S = 1
ELECTED = (Phase.DETECTED, Phase.PROPOSED, Phase.COMMITTED)
TIMED = (
    Phase.DETECTED,
    Phase.PROPOSED,
    Phase.COMMITTED,
    Phase.NOTIFIED,
    Phase.PROMISED,
    Phase.TRUNCATED,
    Phase.ROLE_APPLIED,
    Phase.SERVING,
    Phase.FIRST_ACK,
)


def seeds_of(fleet: Fleet) -> list[str]:
    """Listen addresses of all brokers."""
    return [section.listen for section in fleet.file.brokers.values()]


def felt(stamps: Sequence[int], faults_at_ns: Sequence[int]) -> list[Interruption]:
    """The gap that each fault tore, looking no further than to the next one."""
    found = []
    for at_ns, until_ns in itertools.pairwise([*faults_at_ns, stamps[-1] + 1]):
        first = bisect.bisect_left(stamps, at_ns - BEFORE_S * 10**9)
        gap = interruption(stamps[first : bisect.bisect_left(stamps, until_ns)], at_ns)
        if gap is None:
            raise RuntimeError("no acknowledgement before or after the fault")
        found.append(gap)
    return found


def wait_acks(client: Client, count: int) -> None:
    """Until ``count`` more than now came."""
    goal = client.acked() + count
    wait_until(lambda: client.acked() >= goal, deadline_s=FAILOVER_DEADLINE_S, what=f"{count} more acknowledgements")


def row_of(fleet: Fleet, key: SetKey, epoch: MasterEpoch) -> HistoryRow:
    """The record of one failover, when it is complete up to the first acknowledgement."""
    found: list[HistoryRow] = []

    def is_there() -> bool:
        try:
            rows = fleet.client().history(key).rows
        except ClientError:
            return False
        found[:] = [row for row in rows if row.master_epoch == epoch and Phase.FIRST_ACK not in row.missing]
        return bool(found)

    wait_until(is_there, deadline_s=RECORD_DEADLINE_S, what=f"the record of masterEpoch {epoch}")
    return found[0]


def spans_ms(row: HistoryRow) -> dict[Phase, float]:
    """Duration of each phase."""
    return {span.phase: (span.duration_us or 0) / 1000 for span in row.phases}


def fail_over(
    context: Context, fleet: Fleet, rounds: int, strike: Callable[[str], int], heal: Callable[[str], object]
) -> tuple[list[Interruption], list[HistoryRow]]:
    """``rounds`` times: strike the master, see another one serve, heal the first one and wait for it."""
    key = fleet.set_keys()[0]
    struck: list[int] = []
    rows: list[HistoryRow] = []
    with Client(fleet.directory, seeds_of(fleet)) as client:
        for number in range(rounds):
            wait_acks(client, 200)
            master = fleet.master(key)
            status = fleet.wait_set(key, lambda _: True, what="to be known")
            struck.append(strike(master))
            wait_acks(client, 200)
            rows.append(row_of(fleet, key, MasterEpoch(status.view.master_epoch + 1)))
            heal(master)
            fleet.wait_redundant(key, deadline_s=FAILOVER_DEADLINE_S)
            context.say(
                f"failover {number + 1} of {rounds}: elected and recorded as masterEpoch {rows[-1].master_epoch}"
            )
        stamps = client.stop()
    return felt(stamps, struck), rows


def run_kill(context: Context) -> dict[str, float]:
    """kill -9 of the master."""
    with context.fleet() as fleet:
        gaps, rows = fail_over(
            context, fleet, 3 if context.is_quick else 7, lambda name: faults.kill_and_see(fleet, name), fleet.restart
        )
    elected = [sum(spans_ms(row).get(phase, 0.0) for phase in ELECTED) for row in rows]
    context.detail["gap_ms"] = [gap.gap_ms for gap in gaps]
    context.detail["after_fault_ms"] = [gap.total_ms for gap in gaps]
    values = {
        "elected_ms": statistics.median(elected),
        "gap_p50_ms": percentile([gap.gap_ms for gap in gaps], 0.5),
        "gap_max_ms": max(gap.gap_ms for gap in gaps),
        "after_fault_ms": statistics.median(gap.total_ms for gap in gaps),
    }
    for phase in TIMED:
        spans = [spans_ms(row).get(phase, 0.0) for row in rows]
        context.detail[phase.value] = spans
        values[phase.value] = statistics.median(spans)
    return values


def stop_and_stamp(fleet: Fleet, name: str) -> int:
    """SIGSTOP."""
    at_ns = time.monotonic_ns()
    fleet.stop(name)
    return at_ns


def _run_stop(context: Context, timing: str, rounds: int) -> tuple[float, float]:
    with context.fleet(Layout(name="perf", timing=timing)) as fleet:
        walls_ms: list[float] = []

        def strike(name: str) -> int:
            walls_ms.append(time.time() * 1000)
            return stop_and_stamp(fleet, name)

        gaps, rows = fail_over(context, fleet, rounds, strike, fleet.cont)
    elected = [row.elected_at_ms - wall_ms for row, wall_ms in zip(rows, walls_ms, strict=True)]
    context.detail[f"gap_ms_{timing}"] = [gap.gap_ms for gap in gaps]
    context.detail[f"elected_ms_{timing}"] = elected
    return statistics.median(elected) / 1000, statistics.median(gap.gap_ms for gap in gaps) / 1000


def run_stop(context: Context) -> dict[str, float]:
    """SIGSTOP of the master, under two presets."""
    rounds = 1 if context.is_quick else 2
    elected_s, gap_s = _run_stop(context, "normal", rounds)
    fast_elected_s, fast_gap_s = _run_stop(context, "fast", rounds)
    return {"elected_s": elected_s, "gap_s": gap_s, "fast_elected_s": fast_elected_s, "fast_gap_s": fast_gap_s}


def run_leader(context: Context) -> dict[str, float]:
    """kill -9 of the leading controller, brokers serving meanwhile."""
    took: list[float] = []
    struck: list[int] = []
    with context.fleet() as fleet:
        key = fleet.set_keys()[0]
        epoch = fleet.wait_set(key, lambda _: True, what="to be known").view.master_epoch
        with Client(fleet.directory, seeds_of(fleet)) as client:
            for number in range(2 if context.is_quick else 5):
                wait_acks(client, 200)
                leader = fleet.leader()
                fleet.processes.signal(leader, signal.SIGKILL)
                began = time.monotonic()
                struck.append(time.monotonic_ns())
                fleet.leader()
                took.append((time.monotonic() - began) * 1000)
                context.say(f"leader {number + 1}: the next one has authority after {took[-1]:.0f} ms")
                fleet.processes.wait_gone(leader, deadline_s=5)
                fleet.restart(leader)
                fleet.wait_live([leader])
                fleet.wait_redundant(key)
                wait_until(lambda: _knows(fleet), deadline_s=10, what="all controllers to be at the same index")
            stamps = client.stop()
        elections = fleet.wait_set(key, lambda _: True, what="to be known").view.master_epoch - epoch
    context.detail["authority_ms"] = took
    return {
        "authority_ms": statistics.median(took),
        "authority_max_ms": max(took),
        "ack_gap_ms": max(gap.gap_ms for gap in felt(stamps, struck)),
        "elections": float(elections),
    }


def _knows(fleet: Fleet) -> bool:
    """Whether every controller runs and has applied what another has: the next leader may be any of them."""
    seen = [reached.status for reached in fleet.client().survey() if reached.status is not None]
    applied = {status.controller.applied_index for status in seen}
    return len(seen) == len(fleet.controllers) and max(applied) - min(applied) <= 2


KILL = Section(
    name="kill",
    title="kill -9 of the master",
    measures=(
        Measure(key="elected_ms", what="elected after the first sign", unit="ms", aim=30, reference="210-380"),
        Measure(key="gap_p50_ms", what="gap between two acks, p50", unit="ms", aim=50, reference="500-1,100"),
        Measure(key="gap_max_ms", what="gap between two acks, longest", unit="ms", aim=200, reference="1,100; 20,000"),
        Measure(key="after_fault_ms", what="first ack after the kernel closed it", unit="ms"),
        *(Measure(key=phase.value, what=f"  phase {phase.value}", unit="ms") for phase in TIMED),
    ),
    run=run_kill,
)
STOP = Section(
    name="stop",
    title="SIGSTOP of the master",
    measures=(
        Measure(key="elected_s", what="elected after SIGSTOP, normal", unit="s", aim=4, reference="13.1"),
        Measure(key="gap_s", what="gap between two acks, normal", unit="s", aim=4, reference="14.4-15.4"),
        Measure(key="fast_elected_s", what="elected after SIGSTOP, fast", unit="s", aim=1.5),
        Measure(key="fast_gap_s", what="gap between two acks, fast", unit="s", aim=1.5),
    ),
    run=run_stop,
)
LEADER = Section(
    name="leader",
    title="kill -9 of the leading controller",
    measures=(
        Measure(key="authority_ms", what="next one has authority, p50", unit="ms", aim=1_000, reference="8,100-8,400"),
        Measure(key="authority_max_ms", what="next one has authority, longest", unit="ms"),
        Measure(key="ack_gap_ms", what="gap between two acks meanwhile", unit="ms", aim=500),
        Measure(key="elections", what="elections of masters meanwhile", unit="", aim=1),
    ),
    run=run_leader,
)
