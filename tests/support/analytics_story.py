"""
Histories that the real core wrote, for tests of analytics: with missing and backward stamps, false alarms, days apart.

Here: the stories, and journals of them with everything that goes wrong in files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from rollcall_ha.controller.contract.commands import TakeLeadership
from rollcall_ha.controller.contract.events import EventRecord
from rollcall_ha.controller.contract.ids import BrokerId, ControllerName, Incarnation, LogOffset
from rollcall_ha.controller.contract.values import DetectionStamps, EventRef, Evidence, Milestone, Phase, SilenceCause
from tests.support.core_builders import Fleet, positions, rechained

BEGIN_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""

ENTRIES_PER_EPISODE = 7
EPISODE_MS = 20 * 3_600_000
"""So many entries follow each other by the second; then there is a long pause: the story covers several days."""

HOLE = '{"gap":{"after":null,"toIndex":3,"chain":"","reason":"installed a snapshot"}}'


def reached(epoch: int, phase: Phase, elapsed: int, *, by: int | None, observed: int | None = None) -> Milestone:
    """A report of a phase; ``by`` None: the leader's."""
    return Milestone(
        master_epoch=epoch,  # type: ignore[arg-type]  # plain numbers read best in a table
        phase=phase,
        elapsed_us=elapsed,
        broker_id=None if by is None else BrokerId(by),
        incarnation=None if by is None else Incarnation(f"i{by}.1"),
        observed_us=observed,
    )


def story() -> Fleet:
    """A first election, a kill with all stamps, and a silence with a missing and a backward stamp."""
    fleet = Fleet().serving()
    ends = {number: positions(1_000, confirm=900) for number in (1, 2, 3)}
    fleet.silence(1, SilenceCause.DEAD_AT_ONCE)
    kill = DetectionStamps(
        cause=SilenceCause.DEAD_AT_ONCE,
        last_heartbeat_age_us=400_000,
        session_closed_age_us=9_000,
        link_closed_age_us=8_500,
        probe_refused_age_us=7_000,
        detected_age_us=2_000,
        first_sign_age_us=9_000,
    )
    fleet.elect(evidence=triggered(fleet, fleet.evidence(ends, detection=kill)))
    fleet.enter(1_000, acked=1_000)
    winner = int(fleet.set.master or 0)
    fleet.milestones(reached(2, Phase.COMMITTED, 1_500, by=None), reached(2, Phase.NOTIFIED, 1_900, by=None))
    fleet.milestones(
        reached(2, Phase.PROMISED, 700, by=winner),
        reached(2, Phase.PROMISED, 300, by=5 - winner),
        reached(2, Phase.ROLE_APPLIED, 4_000, by=winner),
        reached(2, Phase.SERVING, 4_100, by=winner, observed=15_100),
        reached(2, Phase.FIRST_ACK, 30_000, by=winner, observed=41_000),
    )
    fleet.milestones(
        msgspec.structs.replace(
            reached(2, Phase.TRUNCATED, 1, by=1),
            cut_from=LogOffset(1_000),
            cut_to=LogOffset(1_200),
            released=LogOffset(900),
        )
    )
    fleet.silence(winner)
    hang = DetectionStamps(
        cause=SilenceCause.TIMEOUT,
        last_heartbeat_age_us=3_050_000,
        detected_age_us=1_000,
        first_sign_age_us=3_050_000,
    )
    fleet.elect(evidence=triggered(fleet, fleet.evidence(ends, detection=hang)))
    other = int(fleet.set.master or 0)
    fleet.milestones(
        reached(3, Phase.COMMITTED, 2_000, by=None),
        reached(3, Phase.NOTIFIED, 1_000, by=None),
        reached(3, Phase.SERVING, 8_000, by=other, observed=3_069_000),
        reached(3, Phase.FIRST_ACK, 9_000, by=other, observed=3_070_000),
    )
    return fleet


def long_story() -> Fleet:
    """``story``, and then: the silent master was alive, and a new leading controller makes the same mistake again."""
    fleet = story()
    ends = {number: positions(2_000, confirm=1_900) for number in (1, 2, 3)}
    gone = [int(replica.broker_id) for replica in fleet.set.replicas if not replica.is_alive]
    deposed = next(number for number in gone if number != 1)
    master = int(fleet.set.master or 0)
    fleet.enter(2_000, acked=2_000)
    fleet.revive(deposed)
    fleet.do(fleet.alter(*sorted((master, deposed))))
    # A new episode begins here: the change of controllers and the false alarm are seconds apart.
    while fleet.index % ENTRIES_PER_EPISODE:
        fleet.revive(deposed)
    fleet.do(TakeLeadership(controller=ControllerName("c2"), term=1))
    fleet.silence(master)
    hang = DetectionStamps(
        cause=SilenceCause.TIMEOUT, last_heartbeat_age_us=3_000_500, detected_age_us=500, first_sign_age_us=3_000_500
    )
    fleet.elect(evidence=triggered(fleet, fleet.evidence(ends, detection=hang)))
    winner = int(fleet.set.master or 0)
    fleet.enter(2_000, acked=2_000)
    fleet.revive(master)
    fleet.milestones(
        reached(4, Phase.COMMITTED, 800, by=None),
        reached(4, Phase.NOTIFIED, 900, by=None),
        reached(4, Phase.SERVING, 19_000, by=winner, observed=3_029_000),
        reached(4, Phase.FIRST_ACK, 20_000, by=winner, observed=3_030_000),
        reached(4, Phase.ROUTE_CONVERGED, 2_000_000, by=winner, observed=5_030_000),
    )
    return fleet


def triggered(fleet: Fleet, evidence: Evidence) -> Evidence:
    """By the event of the last entry."""
    return msgspec.structs.replace(evidence, triggered_by=EventRef(term=1, index=fleet.index, ordinal=0))


def days_apart(records: Sequence[EventRecord]) -> list[EventRecord]:
    """The same history over several days."""
    return rechained(
        [
            msgspec.structs.replace(
                record,
                stamped_at_ms=BEGIN_MS + record.index * 1_000 + record.index // ENTRIES_PER_EPISODE * EPISODE_MS,
            )
            for record in records
        ]
    )


def lines_of(records: Sequence[EventRecord]) -> list[str]:
    """As a journal has them."""
    return [msgspec.json.encode(record).decode() for record in records]


def write_journals(lines: Sequence[str], directory: Path) -> None:
    """Three controllers journal the same history: one has a torn line, one two records on a line, one a hole."""
    for name, extra in (("c1", HOLE), ("c2", lines[0] + lines[1]), ("c3", lines[2][:40])):
        folder = directory / "data" / name / "events"
        folder.mkdir(parents=True)
        (folder / "000001.jsonl").write_text("\n".join([*lines, extra]) + "\n")
