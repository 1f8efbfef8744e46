"""
Small fleets in which one thing happens that a wrong definition gets wrong, with what is right told by hand.

Here: the histories, which the product's core writes, and the tables of what is right. Not here: counting.

Rule 1: seconds are of a day that begins at ``BEGIN_MS``; durations in the tables are milliseconds.
Rule 2: a number on the right of a table is worked out from the story, with a comment where it takes a thought; it is never
copied from an answer.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from rollcall_ha.controller.contract.commands import (
    FEATURE_LEVEL,
    AnyCommand,
    ImportSet,
    InitialiseFleet,
    RaiseFeatureLevel,
    ReportWrites,
    TakeLeadership,
)
from rollcall_ha.controller.contract.events import EventRecord, MasterElected
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    BrokerName,
    ClusterName,
    ControllerName,
    FleetIncarnation,
    MasterEpoch,
    ReplicaKind,
    SetKey,
    SyncStateSetEpoch,
)
from rollcall_ha.controller.contract.values import (
    DetectionStamps,
    ImportedReplica,
    Milestone,
    Phase,
    SetConfiguration,
    SilenceCause,
    StopReason,
)
from rollcall_ha.probe.lines import GapLine, encode_line
from tests.support.core_builders import Fleet, ids, positions

BEGIN_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""
DAY_S = 86_400

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
        fleet = self.at(seconds)
        fleet.elect(evidence=fleet.evidence({number: positions(1_000, confirm=900) for number in (1, 2, 3)}))
        assert isinstance(fleet.events[0], MasterElected), fleet.events
        return int(fleet.events[0].master)

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
        """Of ``gold/sets``."""
        self.right.append(("sets", {"broker_set": name}, columns))

    def day(self, number: int, name: str = "a", **columns: Any) -> None:
        """Of ``gold/sets_daily``; no columns: there is no row."""
        self.right.append(("sets_daily", {"broker_set": name, "day": _date(number)}, columns))

    def node(self, number: int, name: str = "a", **columns: Any) -> None:
        self.right.append(("nodes", {"broker_set": name, "broker_id": number}, columns))

    def total(self, table: str, key: dict[str, Any], **columns: Any) -> None:
        """Of a table by cluster."""
        self.right.append((table, key, columns))

    @property
    def records(self) -> list[EventRecord]:
        """As journals have them."""
        begin_ms, end_ms = map(at_ms, self.missing)
        found = [record for record in self.fleet.records if not begin_ms < record.stamped_at_ms < end_ms]
        for alter in self.altered:
            found = [alter(record) for record in found]
        return found


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


def _date(day: int) -> dt.date:
    return dt.date(2026, 1, 1) + dt.timedelta(days=day)


# --- the stories ---------------------------------------------------------------------------------------------------------------


def controllers_change() -> Story:
    """The leader dies while a set has no master. Set b: the same, as a record of before such stamps has it."""
    story = Story("controllers")
    for name in ("a", "b"):
        story.serving(name)
        story.lost(100, 1, silent_s=3)
    story.leader(110, "c2")
    for name in ("a", "b"):
        story.at(120, name)
        story.elected(120)
        story.at(121).enter(1_000, acked=1_000)
        story.tells(121, story.report(Phase.SERVING, 22.5))
    story.end(3_600)
    story.altered.append(_without_stamps(story.key_of("b")))
    # a: found at 100, gone since 97; another leader's clock may be off by 1 s, so its lower bound begins at 98. SERVING
    # was 22.5 s after that. The last sign of life was at 96.9, and 1 s for the clocks: 24.1 s before the election at most.
    times: dict[str, Any] = {"lost_at": at(98), "served_at": at(120.5), "outage_ms": 22_500}
    story.failover(
        2, kind="failover", cause="timeout", total_us=22_500_000, total_us_max=24_600_000, is_open=False, **times
    )
    # From 1 to 98, and from 120.5 to 3,600.
    story.whole(observed_ms=3_599_000, available_ms=3_576_500, outage_ms=22_500, failovers=1, mtbf_ms=3_576_500)
    # b: no stamps, but its silence is on record, found at 100. No fault is known from which SERVING was timed: it serves
    # since it entered.
    story.failover(2, "b", cause="failover", lost_at=at(100), served_at=at(121), outage_ms=21_000)
    story.whole("b", observed_ms=3_599_000, available_ms=3_578_000, outage_ms=21_000, failovers=1, mtbf_ms=3_578_000)
    story.node(1, faults=1, timeouts=1, masters_lost=1, false_alarms=0, gone_ms=3_500_000, mtbf_ms=99_000)
    story.total("clusters", {"cluster": "controllers"}, sets=2, failovers=2, open=0, outage_ms=43_500)
    return story


def _without_stamps(key: SetKey) -> Callable[[EventRecord], EventRecord]:
    def alter(record: EventRecord) -> EventRecord:
        is_its = record.set_key == key and isinstance(record.event, MasterElected)
        return replace(record, event=replace(record.event, detection=None)) if is_its else record

    return alter


def elections_by_hand() -> Story:
    """
    Set a: a living master is moved; then one dies alone in its SyncStateSet, and an operator elects uncleanly. Set b: a
    living master is moved because a slave was found gone.
    """
    story = Story("by-hand")
    story.serving("b")
    story.lost(152, 3)
    silence = story.fleet.records[-1].ref
    fleet = story.at(200)
    fleet.elect(to=2, evidence=replace(fleet.evidence(), triggered_by=silence))
    story.at(201).enter(1_000, acked=1_000)
    story.serving("a")
    fleet = story.at(100)
    fleet.elect(to=2)
    story.at(101).enter(1_000, acked=1_000)
    story.at(200).do(fleet.alter(2))
    story.lost(302, 2)
    story.at(340).elect()
    story.at(400).elect_unclean(1_000_000)
    story.at(401).enter(1_000, acked=1_000)
    story.end(1_000)
    # Requested is no failover. Its second costs availability: no fault, so from the election to the entry.
    # Unclean: gone since 300, elected at 400, entered at 401.
    story.failover(3, kind="unclean", cause="timeout", outage_ms=101_000, lost_at=at(300), served_at=at(401))
    # 1 to 100, 101 to 300, 401 to 1,000. One member from 200 on: the unclean winner is alone, too.
    story.whole(observed_ms=999_000, available_ms=897_000, exposed_ms=800_000, failovers=1, flaps=0, mtbf_ms=897_000)
    # The one at 340 found nobody.
    story.total("elections_daily", {"kind": "none"}, elections=1)
    story.total("elections_daily", {"kind": "requested"}, elections=2)
    story.total("elections_daily", {"kind": "unclean"}, elections=1)
    # The master served on while its slave was gone.
    story.whole("b", observed_ms=999_000, available_ms=998_000, failovers=0)
    story.total("failovers_daily", {"kind": "unclean"}, failovers=1, timed=0, outage_ms=101_000, open=0)
    return story


def never_recovered() -> Story:
    """Sets that lose their master for good, each in its own way; and one that only seemed to."""
    story = Story("lost")
    for name in ("silent", "mute", "restarted", "back", "goodbye"):
        story.serving(name)
    alone = ("silent", "restarted", "back", "goodbye")
    for name in alone:
        fleet = story.at(100, name)
        fleet.do(fleet.alter(1))
    story.at(0, "silent")
    story.lost(202, 1)
    story.at(0, "mute")
    story.lost(202, 1)
    story.elected(210)
    story.at(0, "restarted")
    story.restarted(500, 1)
    story.at(0, "back")
    story.lost(202, 1)
    story.at(210).revive(1)
    story.at(300, "goodbye").goodbye(1, end=1_000)
    story.end(1_000)
    # Found at 202, gone since 200. Nobody may be elected.
    story.whole("silent", observed_ms=999_000, available_ms=199_000, exposed_ms=900_000, failovers=0, mtbf_ms=None)
    # Elected and never heard of.
    story.failover(2, "mute", lost_at=at(200), served_at=None, is_open=True, outage_ms=800_000)
    story.whole("mute", available_ms=199_000, failovers=1, mtbf_ms=199_000, exposed_ms=0)
    # Nobody was silent: the next process of the master came at once, and is no master. It has lost its proof, but it is
    # the last member: it stays one, as a suspect.
    story.whole("restarted", observed_ms=999_000, available_ms=499_000, outage_ms=500_000, exposed_ms=900_000)
    # It lived all the time, and reigned on.
    story.whole("back", observed_ms=999_000, available_ms=999_000, failovers=0)
    story.node(1, "back", faults=1, false_alarms=1, gone_ms=8_000)
    story.whole("goodbye", available_ms=299_000)
    story.node(1, "goodbye", faults=0, goodbyes=1, mtbf_ms=None, gone_ms=700_000)
    return story


def deleted() -> Story:
    """Sets that are taken away: in service, after goodbyes, with a winner that never served; two come back."""
    story = Story("deleted")
    for name in ("alive", "goodbye", "mute", "gone"):
        story.serving(name)
    story.at(0, "goodbye")
    for number in (3, 2, 1):
        story.at(100).goodbye(number, end=1_000)
    story.at(200).clean()
    story.at(0, "mute")
    story.lost(102, 1)
    story.elected(110)
    story.at(200).clean(is_unclean=True)
    story.at(200, "alive").clean(is_unclean=True)
    story.at(0, "gone")
    for number in (3, 2, 1):
        story.at(100).goodbye(number, end=1_000)
    story.at(200).clean()
    for name in ("alive", "goodbye"):
        _made_again(story, name, 300)
    story.end(1_000)
    # 1 to 200, and from 300 to the end.
    story.whole("alive", observed_ms=899_000, available_ms=899_000, outage_ms=0, exposed_ms=0, memberless_ms=0)
    # Its master said goodbye at 100: nobody served from then to the cleaning, whoever is elected afterwards.
    story.whole("goodbye", observed_ms=899_000, available_ms=799_000, outage_ms=100_000)
    story.whole("gone", observed_ms=199_000, available_ms=99_000, outage_ms=100_000)
    # Out of service from 100 on, and needed until 200.
    story.failover(2, "mute", outage_ms=100_000, is_open=False, served_at=None)
    story.whole("mute", observed_ms=199_000, available_ms=99_000, failovers=1, mtbf_ms=99_000)
    story.day(0, "alive", begun=1, ended=0, observed_ms=899_000)
    story.day(0, "gone", begun=1, ended=1, below_sla=1)
    return story


def _made_again(story: Story, name: str, seconds: float) -> None:
    """A cleaned set with three new replicas."""
    fleet = story.at(seconds, name)
    for _ in range(3):
        story.at(seconds)
        number = int(fleet.set.next_id)
        fleet.grant(f"code-{number}")
        story.at(seconds)
        fleet.do(fleet.registration(number))
    story.at(seconds)
    fleet.elect(to=number)
    story.at(seconds)
    fleet.enter()
    assert fleet.set.master == number


def nobody_left() -> Story:
    """The only set loses its last member; nobody may be elected, so nothing is written any more."""
    story = Story("nobody")
    story.serving("a")
    fleet = story.at(100)
    fleet.do(fleet.alter(1))
    story.lost(202, 1)
    # Asked three days later: gone since 200.
    observed_ms = 3 * DAY_S * 1_000 - 1_000
    story.whole(observed_ms=observed_ms, available_ms=199_000, outage_ms=observed_ms - 199_000)
    story.day(1, available_ms=0, outage_ms=DAY_S * 1_000)
    story.day(2, observed_ms=DAY_S * 1_000, available_ms=0)
    return story


def idle() -> Story:
    """Nothing for days; a failover in between, after which nobody sends for 40 minutes."""
    story = Story("idle")
    story.serving("a", 3_600)
    story.serving("asleep", 3_600)
    story.at(0, "a")
    story.lost(2 * DAY_S + 102, 1)
    story.elected(2 * DAY_S + 103)
    story.at(2 * DAY_S + 104).enter(1_000, acked=1_000)
    story.tells(2 * DAY_S + 105, story.report(Phase.SERVING, 3.5))
    late = replace(story.report(Phase.FIRST_ACK, 2_400), elapsed_us=2_400_000_000, waited_us=1_000)
    story.tells(2 * DAY_S + 2_505, late)
    story.end(4 * DAY_S + 10)
    # Gone since 100, SERVING 3.5 s later. 40 minutes without a sender are no outage.
    story.failover(2, outage_ms=3_500, total_us=3_500_000, waited_us=1_000, first_ack_us=2_399_500_000)
    whole_ms = (4 * DAY_S + 10 - 3_600) * 1_000
    story.whole(observed_ms=whole_ms, available_ms=whole_ms - 3_500, mtbf_ms=whole_ms - 3_500)
    story.whole(
        "asleep", observed_ms=whole_ms, available_ms=whole_ms, failovers=0, mtbf_ms=None, availability_ppm=1_000_000
    )
    for name in ("a", "asleep"):
        story.day(0, name, begun=1, observed_ms=82_800_000, available_ms=82_800_000, below_sla=0)
        story.day(1, name)
        story.day(4, name, begun=0, observed_ms=10_000)
    story.day(2, observed_ms=86_400_000, available_ms=86_396_500, below_sla=0, failovers=1)
    story.day(2, "asleep")
    for day, sets in ((1, 2), (2, 1), (3, 2)):
        story.total("quiet_daily", {"day": _date(day)}, sets=sets)
    # Quiet days count: the budget of 0.05 % is 171,005 ms.
    month = {"observed_ms": whole_ms, "outage_ms": 3_500, "failovers": 1, "budget_left_ms": 167_505}
    story.total("sets_monthly", {"broker_set": "a", "month": _date(0)}, **month)
    story.total("sets_monthly", {"broker_set": "asleep"}, availability_ppm=1_000_000, budget_left_ms=171_005)
    story.total("clusters", {"cluster": "idle"}, first_day=_date(0), last_day=_date(4), sets=2)
    return story


def skewed() -> Story:
    """The clock of c2 is 4 s behind, that of c3 2 s ahead: stamps fall, and order nothing."""
    story = Story("skewed")
    story.serving("a")
    story.lost(100, 1)
    story.leader(101, "c2", clock_s=-4)
    story.at(110)
    story.elected(110)
    story.at(111).enter(1_000, acked=1_000)
    story.tells(112, story.report(Phase.SERVING, 12))
    story.leader(200, "c3", clock_s=2)
    story.lost(302, int(story.fleet.set.master or 0))
    story.elected(303)
    story.at(304).enter(1_000, acked=1_000)
    story.tells(304, story.report(Phase.SERVING, 5))
    story.end(998)
    # By stamps: gone at 98, elected at 106; another leader's clock may be off by 1 s: the lower bound is 7 s, so since 99.
    # SERVING was 12 s after the first sign: at 111.
    story.failover(2, lost_at=at(99), served_at=at(111), outage_ms=12_000, elected_at=at(106))
    # All of it by c3: gone at 302, elected at 305, serving at 307.
    story.failover(3, lost_at=at(302), served_at=at(307), outage_ms=5_000, since_previous_ms=199_000)
    # 1 to 99, 111 to 302, 307 to 1,000.
    story.whole(observed_ms=999_000, available_ms=982_000, outage_ms=17_000, failovers=2, flaps=1, mtbf_ms=491_000)
    return story


def writes_stopped() -> Story:
    """Masters that take no writes and reign on: told in time, told late, never told, until the cleaning, until the end."""
    story = Story("stopped")
    for name in ("told", "untold", "cleaned", "open", "elected"):
        story.serving(name)
    story.at(0, "told")
    story.stopped(110, 1, age_s=10)
    story.stopped(140, 1, age_s=40, stopped_s=39)
    story.at(0, "untold")
    story.stopped(200, 1, age_s=0)
    story.stopped(230, 2, age_s=10)
    story.stopped(260, 2, age_s=40, stopped_s=40)
    story.at(0, "cleaned")
    story.stopped(300, 1, age_s=1)
    story.at(400).clean(is_unclean=True)
    story.at(0, "open")
    story.stopped(900, 1, age_s=0)
    story.at(0, "elected")
    story.stopped(110, 1, age_s=10)
    story.lost(142, 1)
    story.elected(150)
    story.at(151).enter(1_000, acked=1_000)
    story.end(1_000)
    story.felt(100.2, 39, 1, 39_000, name="told", kind="writes-stopped")
    # By the end of its stop nobody has told how long it was.
    story.felt(300, 5, 1, None, name="cleaned", kind="writes-stopped")
    # Since 100; 39 s by the master's own clock.
    story.whole("told", stopped_ms=39_000, available_ms=960_000, outage_ms=39_000, failovers=0)
    # 200 to 220, where the next one begins, and that up to 260.
    story.whole("untold", stopped_ms=60_000, available_ms=939_000)
    story.whole("cleaned", observed_ms=399_000, stopped_ms=101_000, available_ms=298_000)
    story.whole("open", stopped_ms=100_000, available_ms=899_000)
    # One outage, from the stop on. The master may have resumed in the 100 ms between its last heartbeat and the first sign
    # of its silence: so long is no part of the lower bound, and stays a stop.
    story.failover(2, "elected", lost_at=at(100.1), outage_ms=50_900)
    story.whole("elected", stopped_ms=100, available_ms=948_000, outage_ms=51_000)
    return story


def alarms() -> Story:
    """False alarms, one of them just after a change of controllers; flaps; late routes."""
    story = Story("alarms")
    story.serving("a")
    story.lost(102, 1)
    first = story.elected(102.5)
    story.at(103).enter(1_000, acked=1_000)
    route = replace(story.report(Phase.ROUTE_CONVERGED, 4.5), broker_id=None, incarnation=None)
    story.tells(104, story.report(Phase.SERVING, 3), route)
    story.at(110).revive(1)
    fleet = story.at(111)
    fleet.do(fleet.alter(*sorted((1, first))))
    story.leader(4_000, "c2")
    story.lost(4_010, first)
    second = story.elected(4_011)
    story.at(4_012).enter(1_000, acked=1_000)
    story.tells(4_013, story.report(Phase.SERVING, 4))
    story.at(4_020).revive(first)
    fleet = story.at(4_021)
    fleet.do(fleet.alter(*sorted((second, first)), seq=1))
    story.lost(4_502, second, cause=SilenceCause.DEAD_AT_ONCE)
    story.elected(4_502)
    story.at(4_503).enter(1_000, acked=1_000)
    story.end(10_000)
    story.failover(2, is_false_positive=True, is_controller_caused=False, heard_again_after_ms=8_000, outage_ms=3_000)
    story.failover(2, route_late_ms=1_500, is_route_late=True, leader_change_age_ms=None, since_previous_ms=None)
    story.failover(3, is_false_positive=True, is_controller_caused=True, leader_change_age_ms=10_000, is_flap=False)
    story.failover(3, since_previous_ms=3_908_500, route_late_ms=None, is_route_late=False, outage_ms=4_000)
    story.failover(4, is_false_positive=False, is_flap=True, since_previous_ms=491_000, cause="dead-at-once")
    story.total(
        "failovers_daily", {"cause": "timeout"}, failovers=2, false_positives=2, routed=1, routes_late=1, flaps=0
    )
    story.total("failovers_daily", {"cause": "dead-at-once"}, failovers=1, flaps=1, timed=0)
    # 1 to 100, 103 to 4,008, 4,012 to 4,500, 4,503 to 10,000.
    story.whole(available_ms=9_989_000, failovers=3, false_positives=2, controller_caused=1, flaps=1, mtbf_ms=3_329_666)
    shown: dict[str, Any] = {"failovers": 2, "p50_ms": 3_000, "p90_ms": 4_000, "max_ms": 4_000}
    story.total("rto", {"cluster": "alarms", "cause": "timeout", "phase": "total"}, **shown)
    # Of three outages (3,000, 4,000, 3,000): the second and the third in order.
    story.total("rto", {"cluster": "alarms", "cause": "*", "phase": "outage"}, failovers=3, p50_ms=3_000, p90_ms=4_000)
    return story


def moved_here() -> Story:
    """A set that comes from RocketMQ's controllers; when all its brokers are here they name a fourth one."""
    story = Story("moved")
    fleet = story.at(10)
    fleet.do(_import(fleet, 1, 2, 3))
    for seconds, number in ((20, 3), (30, 2), (40, 1)):
        _joins(story, seconds, number)
    story.at(100).do(_import(fleet, 1, 2, 3, 4))
    _joins(story, 150, 4)
    story.at(200).elect()
    story.at(201).enter(950, acked=900)
    story.end(1_000)
    # The master is the set, alone, once all have come: from 40 on, but for the time in which the fourth one was awaited.
    story.whole(observed_ms=799_000, available_ms=799_000, exposed_ms=910_000, memberless_ms=50_000)
    return story


def _import(fleet: Fleet, *numbers: int) -> ImportSet:
    return ImportSet(
        set_key=fleet.key,
        replicas=tuple(ImportedReplica(broker_id=BrokerId(one), address=f"10.0.0.{one}:911") for one in numbers),
        next_id=BrokerId(numbers[-1] + 1),
        master=BrokerId(1),
        master_epoch=MasterEpoch(7),
        sync_state_set=ids(*numbers),
        sync_state_set_epoch=SyncStateSetEpoch(12),
    )


def _joins(story: Story, seconds: float, number: int) -> None:
    """A broker of RocketMQ comes: its registration, and then what it holds."""
    for are_known in (False, True):
        fleet = story.at(seconds)
        one, code = SetConfiguration(expected_replicas=1), fleet.replica(number).register_code
        said = fleet.registration(number, kind=ReplicaKind.ROCKETMQ, configuration=one, code=code)
        fleet.do(replace(said, positions=positions(950, epoch=7), are_positions_known=are_known))


def hidden() -> Story:
    """The journals of an hour are lost, with the second of three elections."""
    story = Story("hidden", missing=(3_600, 7_200))
    story.serving("a")
    for seconds, number in ((100, 2), (4_000, 1), (9_000, 2)):
        story.at(seconds).elect(to=number)
        story.at(seconds + 1).enter(1_000, acked=1_000)
    story.end(10_000)
    hole = {"known_epoch": 2, "previous_epoch": 3, "from_at": at(100), "to_at": at(9_000)}
    story.total("holes", {"broker_set": "a", "master_epoch": 4}, **hole)
    return story


def died_before_it_entered() -> Story:
    """One outage with two elections: the winner of the first one was gone before it served."""
    story = Story("winner")
    story.serving("a")
    story.lost(102, 1)
    dead = story.elected(102)
    story.lost(160, dead)
    story.elected(160)
    story.at(160.005).enter(1_000, acked=1_000)
    story.tells(160.005, story.report(Phase.SERVING, 60.005))
    story.end(1_000)
    # The first winner never served, and its reign has no length of its own.
    story.felt(99.9, 60.2, 2, 60_005, kind="failover")
    # Half a minute later a stop that nobody else has noticed.
    story.felt(190, 0.7, 0, None, kind=None)
    # Gone since 100, served at 160.005.
    story.failover(2, lost_at=at(100), served_at=None, is_open=False, outage_ms=None)
    story.failover(3, lost_at=at(100), outage_ms=60_005)
    story.whole(outage_ms=60_005, failovers=2)
    story.total("failovers_daily", {"cluster": "winner", "cause": "timeout"}, failovers=2, outage_ms=60_005)
    return story


def one_name(name: str, lost_s: float) -> Story:
    """A fleet whose cluster has the name that the cluster of another fleet has, as RocketMQ's default."""
    story = Story(name, cluster="DefaultCluster")
    story.serving("a")
    story.lost(102, 1)
    story.elected(102)
    story.at(100 + lost_s).enter(1_000, acked=1_000)
    story.tells(100 + lost_s, story.report(Phase.SERVING, lost_s))
    story.end(1_000)
    outage = {"outage_ms": round(lost_s * 1_000), "failovers": 1}
    story.total("failovers_daily", {"cause": "timeout"}, **outage)
    story.total("clusters", {}, sets=1, **outage)
    story.total("rto", {"cause": "timeout", "phase": "total"}, failovers=1, max_ms=round(lost_s * 1_000))
    story.total("elections_daily", {"kind": "failover"}, elections=1)
    return story


STORIES = (
    partial(one_name, "east", 5),
    partial(one_name, "west", 9),
    died_before_it_entered,
    hidden,
    controllers_change,
    elections_by_hand,
    never_recovered,
    deleted,
    idle,
    skewed,
    writes_stopped,
    alarms,
    moved_here,
)


def misses(story: Story, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """Where these tables of gold are not what is right about the story."""
    for table, key, columns in story.right:
        wanted = {"fleet": story.incarnation, "cluster": story.cluster} | key
        rows = [row for row in tables[table] if all(row[name] == value for name, value in wanted.items())]
        if len(rows) != bool(columns):
            yield f"{table} {wanted}: {len(rows)} rows, right is {int(bool(columns))}"
        for row in rows:
            yield from (f"{table} {wanted} {c}: {row[c]}, right is {v}" for c, v in columns.items() if row[c] != v)


def write(folder: Path, stories: Sequence[Callable[[], Story]] = STORIES) -> Sequence[Story]:
    """Journals of the stories, a folder each."""
    told = tuple(make() for make in stories)
    for story in told:
        events = folder / story.name / "events"
        events.mkdir(parents=True)
        lines = [msgspec.json.encode(record).decode() for record in story.records]
        (events / "000001.jsonl").write_text("\n".join([*lines, ""]))
        if story.gaps:
            # Twice: a copy of a journal is no second gap.
            for number in (1, 2):
                (folder / story.name / f"probe-{number:015}.jsonl").write_bytes(b"".join(map(encode_line, story.gaps)))
    return told
