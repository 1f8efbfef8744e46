"""
Small fleets in which one thing happens that a wrong definition gets wrong, with what is right told by hand.

Here: the histories, which the product's core writes, and the tables of what is right. Not here: telling them (``telling``),
counting.

Rule 1: seconds are of a day that begins at ``BEGIN_MS``; durations in the tables are milliseconds.
Rule 2: a number on the right of a table is worked out from the story, with a comment where it takes a thought; it is never
copied from an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from rollcall_ha.controller.contract.commands import (
    ApplySettings,
    BeginMaintenance,
    ConfigureSet,
    ElectMaster,
    EndMaintenance,
    EndSwitchover,
    ImportSet,
    OrderSwitchover,
    PauseElections,
    ReportDrained,
    ResumeElections,
)
from rollcall_ha.controller.contract.events import ElectionWithheld, EventRecord, MasterElected
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    MasterEpoch,
    ReplicaKind,
    RequestId,
    SetKey,
    SyncStateSetEpoch,
)
from rollcall_ha.controller.contract.settings import settings_of
from rollcall_ha.controller.contract.timing import PRESETS, Preset
from rollcall_ha.controller.contract.values import (
    DetectionStamps,
    ImportedReplica,
    MaintenanceScope,
    Phase,
    SetConfiguration,
    SilenceCause,
)
from rollcall_ha.probe.lines import encode_line
from tests.recount.telling import DAY_S, Story, at, at_ms, date_of
from tests.support.core_builders import Fleet, ids, positions, stored


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
    waited = {"cause": "nobody-eligible", "found_by": "timeout"}
    story.failover(3, kind="unclean", **waited, outage_ms=101_000, lost_at=at(300), served_at=at(401))
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
    story.total("clusters", {}, sets=4)
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
        story.total("quiet_daily", {"day": date_of(day)}, sets=sets)
    # Quiet days count: the budget of 0.05 % is 171,005 ms.
    month = {"observed_ms": whole_ms, "outage_ms": 3_500, "failovers": 1, "budget_left_ms": 167_505}
    story.total("sets_monthly", {"broker_set": "a", "month": date_of(0)}, **month)
    story.total("sets_monthly", {"broker_set": "asleep"}, availability_ppm=1_000_000, budget_left_ms=171_005)
    story.total("clusters", {"cluster": "idle"}, first_day=date_of(0), last_day=date_of(4), sets=2)
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
    story.total("rto", {"kind": "*", "cause": "timeout", "phase": "total"}, **shown)
    # Of three outages (3,000, 4,000, 3,000): the second and the third in order.
    story.total("rto", {"kind": "failover", "cause": "*", "phase": "outage"}, failovers=3, p50_ms=3_000, p90_ms=4_000)
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
    # The master is the set, alone, as its configuration wants it.
    story.whole(observed_ms=799_000, available_ms=799_000, exposed_ms=0, memberless_ms=0)
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
    story.total("holes", {"broker_set": "a", "master_epoch": 4}, **hole, what="elections")
    # The last event before is the entry at 101: of both holes each moment counts once.
    story.total("holes", {"cluster": None, "what": "chain"}, from_at=at(101), to_at=at(9_000))
    story.total("set_days", {"broker_set": "a"}, hidden_ms=8_900_000, observed_ms=9_999_000)
    story.total("sets_monthly", {"broker_set": "a"}, hidden_ms=8_900_000)
    return story


def broken() -> Story:
    """
    The journals of an hour are lost, in which the master took no writes for half an hour: no election, no index tells it.

    Later somebody makes a small loss of a large one. Set b is there from the next day on.
    """
    story = Story("broken", missing=(3_600, 7_200))
    story.serving("a")
    story.at(3_500, "before").grant()
    story.at(0, "a")
    story.stopped(4_000, 1, age_s=0)
    story.stopped(5_800, 1, age_s=1_800, stopped_s=1_800)
    story.at(7_300, "behind").grant()
    story.at(0, "a")
    story.lost(8_002, 1)
    story.elected(8_003)
    story.at(8_004).enter(1_000, acked=1_000)
    lost = story.fleet.index + 1
    story.restarted(8_100, 1)
    story.serving("b", DAY_S + 10)
    story.end(DAY_S + 20)
    story.forged.append(lambda record: replace(record, requested_by="nobody") if record.index == lost else record)
    # From the grants before and behind.
    missing = {"from_at": at(3_500), "to_at": at(7_300), "broker_set": None, "master_epoch": None}
    story.total("holes", {"cluster": None, "what": "chain", "to_at": at(7_300)}, **missing)
    # From the entry to the line that was changed.
    story.total("holes", {"cluster": None, "what": "chain", "to_at": at(8_100)}, from_at=at(8_004))
    # 3,800 s and 96 s; nobody knows of the half hour.
    story.total("set_days", {"broker_set": "a", "day": date_of(0)}, hidden_ms=3_896_000, stopped_ms=0)
    story.total("set_days", {"broker_set": "b"}, hidden_ms=0, observed_ms=10_000)
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
    story.total("rto", {"kind": "*", "cause": "timeout", "phase": "total"}, failovers=1, max_ms=round(lost_s * 1_000))
    story.total("elections_daily", {"kind": "failover"}, elections=1)
    return story


def waited() -> Story:
    """Failovers that waited: for the end of a pause, and for the only member to be started again."""
    story = Story("waited")
    for name in ("paused", "alone"):
        story.serving(name)
    fleet = story.at(100, "paused")
    story.ask(100, PauseElections(set_key=fleet.key, expires_at_ms=at_ms(3_600), reason="new switch"))
    story.lost(202, 1)
    story.wanted(202)
    assert isinstance(fleet.events[0], ElectionWithheld), fleet.events
    story.ask(1_800, ResumeElections(set_key=fleet.key, reason="it works"))
    story.elected(1_800)
    story.at(1_801).enter(1_000, acked=1_000)
    story.at(2_000, "alone").do(fleet.alter(1))
    story.lost(2_102, 1)
    story.restarted(3_000, 1, boot="boot-1")
    assert story.elected(3_001) == 1
    story.at(3_002).enter(1_000, acked=1_000)
    story.at(4_000)
    for seconds in (4_000, 4_100):
        until_ms = at_ms(seconds + 200)
        story.ask(seconds, PauseElections(set_key=None, expires_at_ms=until_ms, reason="core router"))
    story.at(4_300).do(ResumeElections(set_key=None, expired_at_ms=until_ms))
    story.end(10_000)
    # Gone since 200, and entered one second after the end of the pause; the speed of a failover is another figure.
    story.failover(2, "paused", cause="paused", found_by="timeout", outage_ms=1_601_000)
    story.failover(2, "alone", cause="nobody-eligible", found_by="timeout", outage_ms=902_000)
    story.total("rto", {"kind": "failover", "cause": "timeout"})
    story.total("rto", {"kind": "failover", "cause": "paused", "phase": "outage"}, failovers=1, p50_ms=1_601_000)
    by = {"ordered_by": "admin:alice"}
    times = {"began_at": at(100), "until_at": at(3_600), "ended_at": at(1_800)}
    story.total("pauses", {"broker_set": "paused"}, **by, **times, ended_by="order", reason="new switch")
    of_fleet = {"cluster": "/fleet", "broker_set": None}
    story.total("pauses", of_fleet | {"began_at": at(4_000)}, **by, ended_at=at(4_100), ended_by="renewal")
    story.total("pauses", of_fleet | {"began_at": at(4_100)}, **by, ended_at=at(4_300), ended_by="expiry")
    story.total("orders", {"broker_set": "paused", "kind": "elections-resumed"}, **by, reason="it works")
    return story


def ordered() -> Story:
    """What an admin orders besides: switchovers of which one is rolled back, maintenance, settings; one is refused."""
    story = Story("ordered")
    story.serving("a")
    for seconds, target in ((100, 2), (200, 1)):
        master, epoch = story.fleet.set.master, story.fleet.set.master_epoch
        story.ask(seconds, OrderSwitchover(set_key=story.fleet.key, to=BrokerId(target), reason="patch"), f"o{target}")
        if target == 2:
            _drained(story, seconds + 1, f"o{target}")
            story.at(seconds + 2).enter(1_000, acked=1_000)
    late = EndSwitchover(set_key=story.fleet.key, order=RequestId("o1"), reason="it did not drain in time")
    story.at(260).do(late)
    replica = MaintenanceScope(set_key=story.fleet.key, broker_id=BrokerId(3))
    until_ms = at_ms(3_600)
    story.ask(300, BeginMaintenance(scope=replica, expires_at_ms=until_ms, spends_last=True, reason="new disk"))
    story.ask(400, EndMaintenance(scope=replica))
    host = MaintenanceScope(host="10.0.0.3")
    story.ask(500, BeginMaintenance(scope=host, expires_at_ms=until_ms, spends_last=True))
    file = PRESETS[Preset.NORMAL]
    slower = replace(settings_of(file), heartbeat_timeout_ms=2_000)
    story.ask(600, ApplySettings(settings=slower, expected_version=0, file=file, reason="night"))
    story.ask(700, ElectMaster(set_key=story.fleet.key, expected_epoch=MasterEpoch(77)))
    story.end(1_000)
    by = {"ordered_by": "admin:alice"}
    done = {"outcome": "done", "told_end": "done", "from_master": 1, "master_epoch": 1}
    story.total("switchovers", {"to_master": 2}, **by, **done, ordered_at=at(100), ended_at=at(102), reason="patch")
    back = {"outcome": "rolled-back", "told_end": "deadline", "from_master": master, "master_epoch": epoch}
    story.total("switchovers", {"to_master": 1}, **back, ended_at=at(260), end_reason="it did not drain in time")
    times = {"began_at": at(300), "until_at": at(3_600), "ended_at": at(400)}
    story.total("maintenances", {"broker_set": "a"}, **by, **times, broker_id=3, ended_by="order", reason="new disk")
    story.total("maintenances", {"cluster": None, "host": "10.0.0.3"}, began_at=at(500), ended_at=None, ended_by=None)
    changed = '[{"key":"heartbeat_timeout_ms","before":3000,"after":2000}]'
    story.total("settings", {"version": 1}, changed="[]", applied_at=at(600))
    story.total("settings", {"version": 2}, **by, changed=changed, worst_case_rto_ms=2_700, reason="night")
    story.total("orders", {"kind": "command-refused"}, **by, proved_by="certificate", refused="ElectMaster")
    # Orders of a leader about its own are none of a person's.
    story.total("orders", {"kind": "switchover-ended"})
    return story


def _drained(story: Story, seconds: float, order: str) -> None:
    """The master tells that it took no sends for the last 9 ms, as it was ordered."""
    fleet = story.at(seconds)
    master, incarnation = fleet.set.master, fleet.set.master_incarnation
    assert master is not None
    assert incarnation is not None
    stamps = DetectionStamps(
        cause=SilenceCause.DRAINED, detected_age_us=9_000, first_sign_age_us=9_000, alive_age_us=9_000
    )
    told = ReportDrained(
        set_key=fleet.key,
        broker_id=master,
        incarnation=incarnation,
        master_epoch=fleet.set.master_epoch,
        drained_us=9_000,
        order=RequestId(order),
    )
    fleet.do(told, evidence=replace(fleet.evidence(), detection=stamps))
    assert isinstance(fleet.events[0], MasterElected)


def restored() -> Story:
    """
    The controllers are lost, and put back from a backup of before a failover; each set has a master all the time.

    It is one set with its past; the election that the restore needs is no failover.
    """
    story = Story("restored")
    story.serving("a")
    fleet = story.at(100)
    backup = fleet.state
    story.lost(202, 1)
    story.elected(203)
    story.at(204).enter(1_000, acked=1_000)
    now = fleet.set
    view = stored(now.master_epoch, now.sync_state_set_epoch, *now.sync_state_set, fleet=story.incarnation)
    story.restored(1_000, backup)
    story.leader(1_001, "c1")
    for number in (2, 3):
        story.at(1_002).do(fleet.registration(number, holds=positions(1_000, epoch=2), view=view))
    story.at(1_003).do(fleet.registration(1, holds=positions(1_000, epoch=2), view=view))
    assert story.elected(1_004) == 2
    story.at(1_005).enter(1_000, acked=1_000)
    needed = int(fleet.set.master_epoch)
    story.lost(3_002, 2)
    story.elected(3_002)
    story.at(3_003).enter(1_000, acked=1_000)
    story.end(10_000)
    # Gone since 200 and 3,000, and one second of the restore's election, from it to the entry.
    story.failover(2, outage_ms=4_000)
    story.failover(needed)
    story.failover(needed + 1, outage_ms=3_000, since_previous_ms=2_799_000)
    story.whole(observed_ms=9_999_000, outage_ms=8_000, failovers=2, mtbf_ms=4_995_500)
    story.total("clusters", {}, sets=1, failovers=2, outage_ms=8_000)
    story.total("rto", {"kind": "*", "cause": "*", "phase": "outage"}, failovers=2, max_ms=4_000)
    told = {"name": "restored since 2026-01-01 (rest)", "restores": 1, "until_at": at(10_000)}
    story.total("fleets", {}, **told, incarnation="restored-again".ljust(32, "_"))
    # Its last election before is at 203, the last event of the lost controllers at 204.
    story.total("holes", {"cluster": None, "what": "restore"}, from_at=at(204), to_at=at(1_000), master_epoch=None)
    story.total("set_days", {}, hidden_ms=796_000)
    since = {"origin": story.incarnation, "generation": 1, "backup_index": 9, "restored_at": at(1_000)}
    story.total("restores", {"fleet": "restored-again".ljust(32, "_")}, **since, previous_fleet=story.incarnation)
    return story


def stepped() -> Story:
    """The leader's clock is set ahead by an hour while a set has no master, and is set right later."""
    story = Story("stepped")
    story.serving("a")
    story.lost(100, 1)
    story.stepped(110, 3_600)
    story.elected(120)
    story.at(121).enter(1_000, acked=1_000)
    story.tells(121, story.report(Phase.SERVING, 23))
    story.stepped(500, 0)
    story.end(1_000)
    story.failover(2, lost_at=at(98), elected_at=at(120), served_at=at(121), outage_ms=23_000)
    story.whole(observed_ms=999_000, available_ms=976_000, outage_ms=23_000)
    return story


def future() -> Story:
    """The last event is by a clock that is a hundred years ahead: nobody was observed in all that time."""
    story = Story("future")
    story.serving("a")
    story.stepped(900, 100 * 365 * DAY_S)
    story.end(1_000)
    story.whole(observed_ms=999_000, available_ms=999_000)
    return story


def reserved(cluster: str) -> Story:
    """A fleet whose cluster has a name that stands for something else in a lake; with many replicas, of which few are there."""
    story = Story({"*": "star", "_fleet": "under"}[cluster], cluster=cluster)
    story.serving("a")
    story.at(100).do(ConfigureSet(set_key=story.fleet.key, expected_replicas=5, min_in_sync=0))
    story.at(300).do(story.fleet.alter(1, 2))
    story.at(500).do(story.fleet.alter(1, seq=1))
    story.end(1_000)
    story.total("clusters", {}, sets=1, exposed_ms=700_000, observed_ms=999_000)
    return story


STORIES = (
    partial(reserved, "*"),
    partial(reserved, "_fleet"),
    stepped,
    future,
    restored,
    waited,
    ordered,
    partial(one_name, "east", 5),
    partial(one_name, "west", 9),
    died_before_it_entered,
    hidden,
    broken,
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
