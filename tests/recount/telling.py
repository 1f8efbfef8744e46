"""
A small fleet whose clock is set by hand, driven by the product's core, and what is right about it.

Here: ``Story``, its verbs, and the comparison with tables. Not here: the histories (``stories``).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rollcall_ha.controller.contract.commands import (
    FEATURE_LEVEL,
    AnyCommand,
    ElectMaster,
    InitialiseFleet,
    OrderSwitchover,
    RaiseFeatureLevel,
    ReportClockStep,
    ReportWrites,
    TakeLeadership,
)
from rollcall_ha.controller.contract.events import EventRecord, MasterElected
from rollcall_ha.controller.contract.ids import (
    BrokerName,
    ClusterName,
    ControllerName,
    FleetIncarnation,
    SetKey,
)
from rollcall_ha.controller.contract.principals import Principal, ProvedBy, Role
from rollcall_ha.controller.contract.values import (
    DetectionStamps,
    Milestone,
    Phase,
    SilenceCause,
    StopReason,
)
from rollcall_ha.controller.core.backups import restored
from rollcall_ha.controller.core.state import FleetState
from rollcall_ha.probe.lines import GapLine
from tests.support.core_builders import Fleet, positions, rechained

BEGIN_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""
DAY_S = 86_400

ALICE = Principal(name="alice", role=Role.ADMIN, proved_by=ProvedBy.CERTIFICATE)

Right = tuple[str, dict[str, Any], dict[str, Any]]
"""Table of gold, columns that name one row of it, and columns of that row."""


def at_ms(seconds: float) -> int:
    """Stamp of a second of the story."""
    return BEGIN_MS + round(seconds * 1_000)


def at(seconds: float) -> dt.datetime:
    """The same as the instant that a table has."""
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=at_ms(seconds))


@dataclass
class Story:
    """A fleet with a clock that is set by hand, and what is right about it."""

    name: str
    right: list[Right] = field(default_factory=list)
    missing: tuple[float, float] = (0, 0)
    """From a second to another one, nothing is on record."""
    cluster: str = ""
    """By default the name of the story."""
    gaps: list[GapLine] = field(default_factory=list)
    """What a probe felt."""
    altered: list[Callable[[EventRecord], EventRecord]] = field(default_factory=list)
    """What records of an earlier version of the program have in other ways."""
    forged: list[Callable[[EventRecord], EventRecord]] = field(default_factory=list)
    """What somebody changed in the journals."""

    def __post_init__(self) -> None:
        self.cluster = self.cluster or self.name
        self.incarnation = FleetIncarnation(f"{self.name:_<32}")
        self.fleet = Fleet(key=self.key_of("a"), is_initialised=False)
        self.leader_clock_s = 0.0
        self.at(0)
        founding: list[AnyCommand] = [
            InitialiseFleet(fleet_incarnation=self.incarnation),
            RaiseFeatureLevel(level=FEATURE_LEVEL),
            TakeLeadership(controller=ControllerName("c1"), term=1),
        ]
        self.fleet.apply([self.fleet.operation(command) for command in founding])

    def key_of(self, name: str) -> SetKey:
        return SetKey(cluster=ClusterName(self.cluster), name=BrokerName(name))

    # --- what happens ------------------------------------------------------------------------------------------------

    def at(self, seconds: float, name: str | None = None) -> Fleet:
        """The fleet, whose next entry is stamped so by its leader; ``name``: with this set in hand."""
        fleet = self.fleet
        fleet.passed_ms = at_ms(seconds + self.leader_clock_s) - 1_000_000 - fleet.index
        if name is not None:
            fleet.key = self.key_of(name)
        return fleet

    def serving(self, name: str, seconds: float = 1) -> None:
        """Three replicas, and broker 1 their master from then on; ``seconds`` later the set is observed."""
        fleet = self.at(seconds, name)
        for number in (1, 2, 3):
            self.at(seconds)
            fleet.grant(f"code-{number}")
            self.at(seconds)
            fleet.do(fleet.registration(number))
        self.at(seconds)
        fleet.elect(to=1)
        self.at(seconds)
        fleet.enter()
        assert fleet.set.master == 1

    def leader(self, seconds: float, name: str, *, clock_s: float = 0) -> None:
        """Another controller takes the lead; its clock shows so much more."""
        self.fleet.term += 1
        self.leader_clock_s = clock_s
        self.at(seconds).do(TakeLeadership(controller=ControllerName(name), term=self.fleet.term))

    def lost(
        self, seconds: float, number: int, *, silent_s: float = 2, cause: SilenceCause = SilenceCause.TIMEOUT
    ) -> None:
        """Found gone; its first sign of it was ``silent_s`` before, its last sure sign of life 100 ms before that."""
        us = round(silent_s * 1_000_000)
        heard = us + 100_000
        stamps = DetectionStamps(cause=cause, last_heartbeat_age_us=heard, first_sign_age_us=us, alive_age_us=heard)
        self.at(seconds).silence(number, cause, detection=stamps)

    def elected(self, seconds: float) -> int:
        """A master by policy; returns its id."""
        self.wanted(seconds)
        assert isinstance(self.fleet.events[0], MasterElected), self.fleet.events
        return int(self.fleet.events[0].master)

    def wanted(self, seconds: float) -> None:
        """A leader's order to elect, by policy."""
        fleet = self.at(seconds)
        fleet.elect(evidence=fleet.evidence({number: positions(1_000, confirm=900) for number in (1, 2, 3)}))

    def tells(self, seconds: float, *reports: Milestone) -> None:
        self.at(seconds).milestones(*reports)

    def report(self, phase: Phase, observed_s: float) -> Milestone:
        """Of the master that reigns: so long after the first sign of the fault, by the leader's monotonic clock."""
        now = self.fleet.set
        return Milestone(
            master_epoch=now.master_epoch,
            phase=phase,
            elapsed_us=500_000,
            broker_id=now.master,
            incarnation=now.master_incarnation,
            observed_us=round(observed_s * 1_000_000),
        )

    def restarted(self, seconds: float, number: int, *, boot: str = "boot-2") -> None:
        """Its next process registers; the machine was booted anew, so what it holds is no proof."""
        fleet = self.at(seconds)
        known = str(fleet.replica(number).incarnation)
        said = fleet.registration(number, incarnation=f"{known}x", boot=boot, holds=positions(1_000))
        fleet.do(said)

    def stopped(self, seconds: float, seq: int, *, age_s: float, stopped_s: float | None = None) -> None:
        """The master tells that writes stopped so long ago, or that they had been stopped for so long."""
        self.at(seconds).do(_writes(self.fleet, seq, age_s, stopped_s))

    def ask(self, seconds: float, command: AnyCommand, name: str = "") -> None:
        """As an admin; ``name`` of the request."""
        fleet = self.at(seconds)
        evidence = fleet.evidence() if isinstance(command, ElectMaster | OrderSwitchover) else None
        asked = fleet.operation(
            command, evidence=evidence, request_id=name or None, requested_by=str(ALICE), principal=ALICE
        )
        fleet.apply([asked])

    def stepped(self, seconds: float, clock_s: float) -> None:
        """The leader's clock shows so much more than ours from now on; it sees that and puts the step on record."""
        step_ms = round((clock_s - self.leader_clock_s) * 1_000)
        self.leader_clock_s = clock_s
        self.at(seconds).do(ReportClockStep(controller=ControllerName("c1"), step_ms=step_ms))

    def restored(self, seconds: float, state: FleetState) -> None:
        """New controllers begin with the ``state`` of a backup; their fleet has another incarnation."""
        incarnation = FleetIncarnation(f"{self.name}-again".ljust(32, "_"))
        self.fleet.state, record = restored(state, incarnation, restored_at_ms=at_ms(seconds))
        self.fleet.index, self.fleet.term = record.index, record.term
        self.fleet.records.append(record)

    def felt(
        self, seconds: float, felt_s: float, outages: int, recorded_ms: int | None, *, name: str = "a", kind: str | None
    ) -> None:
        """A probe felt a gap; the record has so many outages there, and so long."""
        line = GapLine(
            cluster=self.cluster, set_name=name, from_ms=at_ms(seconds), felt_ms=round(felt_s * 1_000), since_ack_ms=90,
            sends_failed=9, threshold_ms=300, stalled_ms=0, is_over=True, reason="no acknowledgement",
        )  # fmt: skip
        self.gaps.append(line)
        difference_ms = None if recorded_ms is None else line.felt_ms - recorded_ms
        owner = {"fleet": self.incarnation if outages else "", "broker_set": name, "from_at": at(seconds)}
        found = {"outages": outages, "kind": kind, "recorded_ms": recorded_ms, "difference_ms": difference_ms}
        self.right.append(("felt", owner, found))

    def end(self, seconds: float) -> None:
        """The fleet's last event: an id that nobody uses."""
        self.at(seconds, "nobody").grant()

    # --- what is right -----------------------------------------------------------------------------------------------

    def failover(self, epoch: int, name: str = "a", **columns: Any) -> None:
        self.right.append(("failovers", {"broker_set": name, "master_epoch": epoch}, columns))

    def whole(self, name: str = "a", **columns: Any) -> None:
        """The whole time of a set, as ``gold/sets`` has it."""
        self.right.append(("sets", {"broker_set": name}, columns))

    def day(self, number: int, name: str = "a", **columns: Any) -> None:
        """Of ``gold/sets_daily``; no columns: there is no row."""
        self.right.append(("sets_daily", {"broker_set": name, "day": date_of(number)}, columns))

    def node(self, number: int, name: str = "a", **columns: Any) -> None:
        self.right.append(("nodes", {"broker_set": name, "broker_id": number}, columns))

    def total(self, table: str, key: dict[str, Any], **columns: Any) -> None:
        """Of a table by cluster."""
        self.right.append((table, key, columns))

    @property
    def records(self) -> list[EventRecord]:
        """As journals have them."""
        begin_ms, end_ms = map(at_ms, self.missing)
        found = self.fleet.records
        if self.altered:
            found = rechained(_changed(found, self.altered))
        found = [record for record in found if not begin_ms < record.stamped_at_ms < end_ms]
        return _changed(found, self.forged)


def _changed(records: list[EventRecord], changes: Sequence[Callable[[EventRecord], EventRecord]]) -> list[EventRecord]:
    for change in changes:
        records = [change(record) for record in records]
    return records


def _writes(fleet: Fleet, seq: int, age_s: float, stopped_s: float | None) -> AnyCommand:
    now = fleet.set
    assert now.master is not None
    assert now.master_incarnation is not None
    return ReportWrites(
        set_key=fleet.key,
        broker_id=now.master,
        incarnation=now.master_incarnation,
        master_epoch=now.master_epoch,
        seq=seq,
        reason=StopReason.DISK_FULL,
        detail="",
        age_us=round(age_s * 1_000_000),
        stopped_us=None if stopped_s is None else round(stopped_s * 1_000_000),
    )


def date_of(day: int) -> dt.date:
    return dt.date(2026, 1, 1) + dt.timedelta(days=day)


def misses(story: Story, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """Where these tables of gold are not what is right about the story."""
    for table, key, columns in story.right:
        wanted = {"fleet": story.incarnation, "cluster": story.cluster} | key
        rows = [row for row in tables[table] if all(row.get(name, value) == value for name, value in wanted.items())]
        if len(rows) != bool(columns):
            yield f"{table} {wanted}: {len(rows)} rows, right is {int(bool(columns))}"
        for row in rows:
            yield from (f"{table} {wanted} {c}: {row[c]}, right is {v}" for c, v in columns.items() if row[c] != v)
