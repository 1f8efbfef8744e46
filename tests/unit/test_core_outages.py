"""The beginning of an outage is replicated: other leaders, operators and later attempts name the same one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rollcall_ha.controller.contract.commands import (
    Barrier,
    ReportClockStep,
    ReportWrites,
    TakeLeadership,
)
from rollcall_ha.controller.contract.events import ElectionFailed, MasterElected, ReplicaRegistered, ReplicaSilent
from rollcall_ha.controller.contract.ids import BrokerId, ControllerName, FleetIncarnation, Incarnation
from rollcall_ha.controller.contract.values import DetectionStamps, SilenceCause, StopReason, StoredView
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.controller.core.history import history_of
from rollcall_ha.controller.core.outages import CLOCK_DIFFERENCE_MS, SAME_SIGN_MS
from rollcall_ha.controller.core.recovery import begin_again
from rollcall_ha.controller.core.snapshot import decode_state, encode_state
from tests.support.core_builders import Fleet, positions, stored

DEATH = DetectionStamps(
    cause=SilenceCause.DEAD_AT_ONCE,
    session_closed_age_us=20_000,
    detected_age_us=1_000,
    first_sign_age_us=20_000,
    alive_age_us=20_000,
)
NEVER_HEARD = DetectionStamps(cause=SilenceCause.TIMEOUT, detected_age_us=0, first_sign_age_us=0)
BLURRED_MS = CLOCK_DIFFERENCE_MS + SAME_SIGN_MS


def serving(*, heard_within_ms: int | None = None) -> Fleet:
    """A set that serves, and perhaps a mark that everybody was heard, one minute later."""
    fleet = Fleet().serving()
    fleet.passed_ms += 60_000
    if heard_within_ms is not None:
        fleet.do(Barrier(heard_within_ms=heard_within_ms))
    return fleet


def next_leader(fleet: Fleet) -> None:
    fleet.term += 1
    fleet.do(TakeLeadership(controller=ControllerName("c2"), term=fleet.term))


def bounds_ms(stamps: DetectionStamps | None) -> tuple[int, int | None]:
    """Ages of the first sign of the fault and of the last sign of life."""
    assert stamps is not None
    return stamps.first_sign_age_us // 1_000, None if stamps.alive_age_us is None else stamps.alive_age_us // 1_000


def test_the_next_leaders_election_begins_where_the_last_leader_saw_the_fault() -> None:
    """Three brokers and the leader died: 89 ms were on record of 51 s without an acknowledgement."""
    fleet = serving()
    fleet.silence(1, SilenceCause.DEAD_AT_ONCE, detection=DEATH)
    silence = fleet.last.records[0].ref
    fleet.passed_ms += 50_000
    next_leader(fleet)
    fleet.elect()
    elected = fleet.event(MasterElected)

    first_ms, alive_ms = bounds_ms(elected.detection)
    assert 50_020 - BLURRED_MS <= first_ms <= 50_020
    assert alive_ms is not None
    assert 50_020 <= alive_ms <= 50_020 + BLURRED_MS
    assert elected.triggered_by == silence
    assert elected.detection is not None
    assert elected.detection.detected_age_us <= elected.detection.first_sign_age_us


@pytest.mark.parametrize("is_next_leader", [False, True])
@pytest.mark.parametrize("step_ms", [3_600_000, -3_600_000, -20_000])
def test_a_clock_that_is_set_while_a_set_is_down_makes_the_outage_no_longer_or_shorter(
    step_ms: int,
    is_next_leader: bool,
) -> None:
    """Set ahead by an hour, 30 s without a master were an hour on record, as a point; set back, they were 0 ms."""
    fleet = serving()
    fleet.passed_ms += 7_200_000
    fleet.silence(1, SilenceCause.DEAD_AT_ONCE, detection=DEATH)
    fleet.passed_ms += 30_000 + step_ms
    if is_next_leader:
        next_leader(fleet)
    fleet.do(ReportClockStep(controller=ControllerName("c2"), step_ms=step_ms))
    fleet.elect()
    first_ms, alive_ms = bounds_ms(fleet.event(MasterElected).detection)

    assert 30_020 - BLURRED_MS <= first_ms <= 30_020 + SAME_SIGN_MS
    assert alive_ms is not None
    assert 30_020 <= alive_ms <= 30_020 + BLURRED_MS


def test_a_mark_of_a_clock_that_was_ahead_bounds_nothing_after_it() -> None:
    """The leader died with the master; its clock was 20 s ahead, and an end that nobody saw was on record as exact."""
    fleet = serving(heard_within_ms=700)
    fleet.passed_ms -= 20_000 - 5_000
    next_leader(fleet)
    fleet.do(ReportClockStep(controller=ControllerName("c2"), step_ms=-20_000))
    fleet.silence(1, SilenceCause.TIMEOUT, detection=NEVER_HEARD)
    first_ms, alive_ms = bounds_ms(fleet.event(ReplicaSilent).detection)

    assert first_ms == 0
    assert alive_ms is None or alive_ms >= 5_000


def test_a_winner_that_says_it_cannot_serve_does_not_move_the_beginning() -> None:
    """Moved from a full disk to a broker that had fenced itself: the first half minute was not on record."""
    fleet = serving()
    stop_writes(fleet, age_us=1_500_000)
    fleet.passed_ms += 30_000
    fleet.elect(to=2)
    stop_writes(fleet, age_us=0)
    fleet.passed_ms += 4_000
    fleet.elect(to=3)

    assert bounds_ms(fleet.event(MasterElected).detection)[0] >= 35_500


def test_a_winner_that_enters_with_its_writes_stopped_begins_the_next_outage_there() -> None:
    """Elected with too few in sync, it died after 30 s in which it had acknowledged nothing: 20 ms were on record."""
    fleet = serving()
    fleet.elect(to=2)
    stop_writes(fleet, age_us=0)
    fleet.enter()
    fleet.passed_ms += 30_000
    fleet.silence(2, SilenceCause.DEAD_AT_ONCE, detection=DEATH)
    fleet.elect(evidence=fleet.evidence(detection=DEATH))

    assert bounds_ms(fleet.event(MasterElected).detection)[0] >= 30_000


def test_an_operators_unclean_election_names_the_beginning() -> None:
    """The master had been dead for 43 s, and the record said 28 ms."""
    fleet = serving()
    fleet.silence(1, SilenceCause.DEAD_AT_ONCE, detection=DEATH)
    for lost in (2, 3):
        fleet.silence(lost)
    fleet.elect()
    assert fleet.event(ElectionFailed).triggered_by is not None
    fleet.passed_ms += 43_000
    fleet.do(fleet.registration(2, incarnation="i2.9", boot="other"))
    fleet.elect_unclean(10**9)
    elected = fleet.event(MasterElected)

    assert elected.verdict.kind is ElectionKind.UNCLEAN
    first_ms, alive_ms = bounds_ms(elected.detection)
    assert 43_020 <= first_ms <= 43_020 + 2 * SAME_SIGN_MS
    assert alive_ms == first_ms


def test_a_winner_that_dies_while_it_enters_begins_no_outage_of_its_own() -> None:
    """Nobody was served between the two: one outage, from the first fault to the third broker's gate."""
    fleet = serving()
    fleet.silence(1, SilenceCause.DEAD_AT_ONCE, detection=DEATH)
    fleet.elect(evidence=fleet.evidence(detection=DEATH))
    winner = int(fleet.set.master or 0)
    fleet.passed_ms += 4_000
    fleet.silence(winner, SilenceCause.DEAD_AT_ONCE, detection=DEATH)
    fleet.elect(evidence=fleet.evidence(detection=DEATH))

    assert bounds_ms(fleet.event(MasterElected).detection)[0] >= 4_020
    fleet.enter()
    assert fleet.set.outage is None


def test_the_leaders_own_stamps_are_taken_where_they_are_of_the_same_sign() -> None:
    """They are of one monotonic clock, to the microsecond."""
    fleet = serving()
    fleet.silence(1, SilenceCause.DEAD_AT_ONCE, detection=DEATH)
    fleet.elect(evidence=fleet.evidence(detection=DEATH))

    assert fleet.event(MasterElected).detection == DEATH


@pytest.mark.parametrize(("heard_within_ms", "at_least_ms"), [(None, 150_000), (700, 90_700)])
def test_an_end_that_no_leader_saw_lies_after_the_last_entry_that_shows_a_living_master(
    heard_within_ms: int | None, at_least_ms: int
) -> None:
    """The whole fleet was stopped for 90 s: "no heartbeat in time, DETECT 0.0 ms", and nothing missing."""
    fleet = serving(heard_within_ms=heard_within_ms)
    fleet.passed_ms += 90_000
    next_leader(fleet)
    fleet.silence(1, detection=NEVER_HEARD)
    assert bounds_ms(fleet.event(ReplicaSilent).detection)[1] is not None
    fleet.elect(evidence=fleet.evidence(detection=NEVER_HEARD))

    first_ms, alive_ms = bounds_ms(fleet.event(MasterElected).detection)
    assert first_ms == 0
    assert alive_ms is not None
    assert at_least_ms <= alive_ms <= at_least_ms + BLURRED_MS + 20


@pytest.mark.parametrize(
    ("boot", "held_us", "gone_ms"),
    [
        ("boot-1", None, 0),
        ("boot-1", 3_000_000, 3_000),
        # On another machine the directory may be a copy, whose lock says nothing of the first one's process.
        ("other", 3_000_000, 0),
    ],
)
def test_a_master_that_comes_back_as_another_process_ended_before_it_did(
    boot: str, held_us: int | None, gone_ms: int
) -> None:
    """
    Everything was killed and started: no leader saw the end, and of 7.4 s 55 ms were sure.

    The next process of the directory had locked it 3 s before it registered: the one before was gone by then.
    """
    fleet = serving(heard_within_ms=700)
    fleet.passed_ms += 30_000
    next_leader(fleet)
    fleet.do(replace(fleet.registration(1, incarnation="i1.9", boot=boot), held_us=held_us))
    assert fleet.event(ReplicaRegistered).ended is not None
    fleet.passed_ms += 200
    fleet.elect()
    first_ms, alive_ms = bounds_ms(fleet.event(MasterElected).detection)
    assert gone_ms + 200 <= first_ms <= gone_ms + 200 + SAME_SIGN_MS
    assert alive_ms is not None
    assert 30_900 <= alive_ms <= 30_900 + BLURRED_MS + 20


def test_the_next_process_of_a_master_that_was_found_gone_late_says_that_it_was_gone_before() -> None:
    """The new leader had waited for it in vain, and called that moment the first sign."""
    fleet = serving(heard_within_ms=700)
    fleet.passed_ms += 30_000
    next_leader(fleet)
    fleet.silence(1, detection=NEVER_HEARD)
    fleet.do(replace(fleet.registration(1, incarnation="i1.9"), held_us=4_000_000))
    fleet.elect()
    first_ms, alive_ms = bounds_ms(fleet.event(MasterElected).detection)
    assert 4_000 <= first_ms <= 4_000 + SAME_SIGN_MS
    assert alive_ms is not None
    assert alive_ms >= 30_700


def test_a_mark_from_before_the_masters_election_is_not_about_it() -> None:
    """Broker 1 was heard then; broker 2 may have died as soon as it was elected."""
    fleet = serving(heard_within_ms=700)
    fleet.passed_ms += 5_000
    fleet.elect(to=2)
    next_leader(fleet)
    fleet.silence(2, detection=NEVER_HEARD)

    assert bounds_ms(fleet.event(ReplicaSilent).detection)[1] is None


def test_a_master_that_is_heard_again_has_had_no_outage_of_a_reign() -> None:
    fleet = serving()
    fleet.silence(1, detection=DEATH)
    assert fleet.set.outage is not None
    fleet.revive(1)
    assert fleet.set.outage is None


def stop_writes(fleet: Fleet, *, age_us: int, stopped_us: int | None = None) -> None:
    """The master says that its writes stopped, or for how long they had."""
    assert fleet.set.master is not None
    assert fleet.set.master_incarnation is not None
    fleet.do(
        ReportWrites(
            set_key=fleet.key,
            broker_id=fleet.set.master,
            incarnation=fleet.set.master_incarnation,
            master_epoch=fleet.set.master_epoch,
            seq=1,
            reason=StopReason.DISK_FULL,
            detail="",
            age_us=age_us,
            stopped_us=stopped_us,
        )
    )


def test_a_death_after_a_stop_of_writes_is_one_outage_from_the_stop() -> None:
    """Nobody was served since the disk filled up: a minute, of which the record had 40 ms."""
    fleet = serving()
    stop_writes(fleet, age_us=1_500_000)
    fleet.passed_ms += 60_000
    fleet.silence(1, SilenceCause.DEAD_AT_ONCE, detection=DEATH)
    fleet.elect(evidence=fleet.evidence(detection=DEATH))
    stamps = fleet.event(MasterElected).detection

    first_ms, alive_ms = bounds_ms(stamps)
    assert 61_500 <= first_ms <= 61_500 + SAME_SIGN_MS
    assert alive_ms == first_ms
    assert stamps is not None
    assert (stamps.cause, stamps.detected_age_us) == (SilenceCause.DEAD_AT_ONCE, DEATH.detected_age_us)


def test_an_election_that_ends_a_stop_of_writes_names_its_beginning() -> None:
    """The master lived, and acknowledged nothing; an operator moved it."""
    fleet = serving()
    stop_writes(fleet, age_us=1_500_000)
    fleet.passed_ms += 5_000
    fleet.elect(to=2)
    stamps = fleet.event(MasterElected).detection

    assert stamps is not None
    assert stamps.cause is SilenceCause.WRITES_STOPPED
    assert 6_500 <= bounds_ms(stamps)[0] <= 6_500 + SAME_SIGN_MS


def test_writes_that_resumed_leave_no_beginning() -> None:
    fleet = serving()
    stop_writes(fleet, age_us=1_500_000)
    fleet.silence(1, detection=DEATH)
    fleet.revive(1)
    before = fleet.set.outage
    stop_writes(fleet, age_us=2_500_000, stopped_us=2_000_000)
    after = fleet.set.outage
    assert before is not None, "it lives, and its writes are still stopped"
    assert after is None
    fleet.elect(to=2)
    assert fleet.event(MasterElected).detection is None


def test_a_snapshot_carries_the_beginning() -> None:
    """A leader that started from one would name its own first look."""
    fleet = serving(heard_within_ms=700)
    fleet.silence(1, detection=DEATH)

    assert decode_state(encode_state(fleet.state)) == fleet.state
    assert fleet.state.heard_at_ms > 0


def test_a_set_that_is_cleaned_is_not_down_for_ever() -> None:
    fleet = serving()
    for broker_id in (1, 2, 3):
        fleet.silence(broker_id, detection=DEATH)
    fleet.clean(is_unclean=True)

    assert fleet.set.outage is None


LATER = DetectionStamps(cause=SilenceCause.TIMEOUT, detected_age_us=100_000, first_sign_age_us=100_000)


def test_a_master_that_its_slaves_heard_after_it_was_found_silent_was_out_of_service_all_the_time() -> None:
    """No controller reached a broker for 5 s, and its election took 100 ms: 5.1 s at the least were on record."""
    fleet = Fleet().serving()
    fleet.silence(1, detection=NEVER_HEARD)
    fleet.passed_ms += 5_000
    fleet.elect(evidence=replace(fleet.evidence(), detection=LATER))

    assert bounds_ms(fleet.event(MasterElected).detection)[0] == 100


@pytest.mark.parametrize(("alive_us", "first_ms"), [(100_000, 100), (None, 4_000)])
def test_the_next_leader_took_the_silence_of_a_cut_for_the_end_of_a_master_that_served_on(
    alive_us: int | None, first_ms: int
) -> None:
    """
    Cut off for 5 s with all controllers, and killed then: 4 s at the least were on record, felt were 100 ms.

    A leader that knows no sign of life of its own has nothing better than what the one before it saw.
    """
    fleet = Fleet().serving()
    fleet.silence(1, detection=NEVER_HEARD)
    fleet.passed_ms += 5_000
    next_leader(fleet)
    fleet.elect(evidence=replace(fleet.evidence(), detection=replace(LATER, alive_age_us=alive_us)))

    assert bounds_ms(fleet.event(MasterElected).detection)[0] == pytest.approx(first_ms, abs=5)


def test_a_winner_that_falls_silent_before_it_entered_begins_no_outage_by_a_later_sign() -> None:
    fleet = serving()
    fleet.silence(1, detection=NEVER_HEARD)
    fleet.elect(to=2)
    fleet.passed_ms += 5_000
    fleet.silence(2, detection=NEVER_HEARD)
    fleet.elect(evidence=replace(fleet.evidence(), detection=LATER))

    assert bounds_ms(fleet.event(MasterElected).detection)[0] == pytest.approx(5_000, abs=5)


def restored(*, named: bool = True) -> tuple[Fleet, StoredView]:
    """A backup knows master 1 in an outage; 2 was elected in epoch 4 since, and the controllers were restored."""
    fleet = serving(heard_within_ms=700)
    fleet.silence(1, detection=DEATH)
    fleet.state = begin_again(fleet.state, FleetIncarnation("e" * 32))
    view = stored(4, 9, 1, 2, 3)
    if named:
        view = replace(view, master=BrokerId(2), master_incarnation=Incarnation("i2.1"))
    return fleet, view


@pytest.mark.parametrize("is_itself_first", [False, True])
def test_after_a_restore_the_outage_was_that_of_the_backups_master(is_itself_first: bool) -> None:
    """It began when that one registered anew: 171.5 to 212.7 s were on record of 102.0 s, and "1 -> 1"."""
    fleet, view = restored()

    def come(broker_id: int, process: int, held_us: int) -> None:
        register = fleet.registration(
            broker_id, incarnation=f"i{broker_id}.{process}", holds=positions(100, epoch=4), view=view
        )
        fleet.do(replace(register, held_us=held_us))

    if not is_itself_first:
        come(1, 7, 70_000_000)
    fleet.passed_ms += 20_000
    come(2, 2, 3_000_000)
    come(1, 8, 60_000_000)
    come(3, 2, 60_000_000)
    fleet.elect()
    elected = fleet.event(MasterElected)
    first_ms, alive_ms = bounds_ms(elected.detection)
    assert 3_000 <= first_ms <= 3_000 + SAME_SIGN_MS
    assert alive_ms is None, "nobody here heard it: over"
    row = history_of(fleet.records)[0]
    assert (row.from_master, row.to_master, row.total_us_max) == (2, elected.master, None)

    # The winner dies before it enters: the same outage.
    fleet.passed_ms += 10_000
    fleet.silence(elected.master, detection=DEATH)
    fleet.elect(evidence=fleet.evidence(detection=DEATH))
    first_ms, alive_ms = bounds_ms(fleet.event(MasterElected).detection)
    assert first_ms >= 13_000
    assert alive_ms is None


@pytest.mark.parametrize("named", [False, True])
def test_a_master_that_lives_on_through_a_restore_has_ended_nothing(named: bool) -> None:
    """Its process is the elected one, or its broker names no master: what else registers says nothing of it."""
    fleet, view = restored(named=named)
    fleet.do(replace(fleet.registration(1, incarnation="i1.7", holds=positions(100), view=view), held_us=9_000_000))
    for broker_id in (2, 3):
        fleet.do(fleet.registration(broker_id, holds=positions(100, epoch=4), view=view))
    fleet.elect(to=3)
    stamps = fleet.event(MasterElected).detection
    assert bounds_ms(stamps) == (0, None)


def test_a_master_that_dies_in_a_recovery_begins_the_outage_there() -> None:
    fleet, view = restored()
    for broker_id in (3, 2):
        fleet.do(fleet.registration(broker_id, holds=positions(100, epoch=4), view=view))
    fleet.silence(2, detection=DEATH)
    fleet.passed_ms += 5_000
    fleet.do(fleet.registration(1, holds=positions(100), view=view))
    fleet.silence(1, detection=DEATH)
    fleet.revive(1)  # the backup's master
    fleet.elect()
    first_ms, alive_ms = bounds_ms(fleet.event(MasterElected).detection)
    assert 5_020 <= first_ms <= 5_020 + SAME_SIGN_MS
    assert alive_ms is None
