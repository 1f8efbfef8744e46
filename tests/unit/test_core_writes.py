"""Writes that stop without an election: on record with their reason, dated back, and over when the reign is."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import ReportWrites, TakeLeadership
from rollcall_ha.controller.contract.events import MasterElected, WritesResumed, WritesStopped
from rollcall_ha.controller.contract.ids import BrokerId, ControllerName, Incarnation, MasterEpoch
from rollcall_ha.controller.contract.replies import Condition, Done, Elected, Refused
from rollcall_ha.controller.contract.values import DetectionStamps, Phase, SilenceCause, StopReason
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.controller.contract.views import StopEnd
from rollcall_ha.controller.core.history import history_of
from rollcall_ha.controller.core.outages import CLOCK_DIFFERENCE_MS
from rollcall_ha.controller.core.snapshot import decode_state, encode_state
from rollcall_ha.controller.core.stops import stops_of
from rollcall_ha.controller.core.views import condition_of
from tests.support.core_builders import Fleet


def report(
    fleet: Fleet, seq: int = 1, *, age_us: int = 600_000, stopped_us: int | None = None, detail: str = "brokers 2 and 3"
) -> ReportWrites:
    """By the present master."""
    assert fleet.set.master is not None
    assert fleet.set.master_incarnation is not None
    return ReportWrites(
        set_key=fleet.key,
        broker_id=fleet.set.master,
        incarnation=fleet.set.master_incarnation,
        master_epoch=fleet.set.master_epoch,
        seq=seq,
        reason=StopReason.NOT_ACKNOWLEDGED,
        detail=detail,
        age_us=age_us,
        stopped_us=stopped_us,
    )


def test_a_master_that_acknowledges_nothing_does_not_show_a_serving_set() -> None:
    """Cut from its slaves for 15 s it acknowledged nothing; every page said serving, and the record said nothing."""
    fleet = Fleet().serving()
    assert fleet.do(report(fleet)) == Done()
    assert fleet.event(WritesStopped).reason is StopReason.NOT_ACKNOWLEDGED
    stamped_at_ms = fleet.last.records[0].stamped_at_ms

    condition, reason = condition_of(fleet.set)

    assert condition is Condition.WRITES_STOPPED
    assert "acknowledges no write" in reason
    assert reason.endswith("does not acknowledge: brokers 2 and 3")
    assert fleet.set.writes is not None
    assert fleet.set.writes.began_at_ms == stamped_at_ms - 600
    assert decode_state(encode_state(fleet.state)) == fleet.state
    (going_on,) = stops_of(fleet.records)
    assert (going_on.began_at_ms, going_on.stopped_us, going_on.end) == (stamped_at_ms - 600, None, None)

    fleet.do(report(fleet, age_us=2_100_000, stopped_us=2_000_000))

    assert condition_of(fleet.set)[0] is Condition.SERVING
    assert fleet.event(WritesResumed).age_us == 100_000
    (over,) = stops_of(fleet.records)
    assert (over.stopped_us, over.end) == (2_000_000, StopEnd.RESUMED)


def test_a_report_that_comes_twice_is_one_stop() -> None:
    """The answer was lost, and the master told it again: two stops were counted, of which the first never ended."""
    fleet = Fleet().serving()
    begun, ended = report(fleet), report(fleet, stopped_us=500_000)
    for command in (begun, begun, ended, begun, ended):
        assert fleet.do(command) == Done()
    fleet.do(report(fleet, 2, detail=""))
    fleet.do(ended)

    assert [type(record.event) for record in fleet.records if isinstance(record.event, WritesStopped | WritesResumed)] == [
        WritesStopped,
        WritesResumed,
        WritesStopped,
    ]  # fmt: skip
    assert condition_of(fleet.set)[0] is Condition.WRITES_STOPPED


def test_a_stop_during_which_no_controller_could_be_reached_is_told_later_as_a_whole() -> None:
    """Its beginning is dated by the age that the master says: the entry's stamp alone is that of the reconnection."""
    fleet = Fleet().serving()
    fleet.do(report(fleet, age_us=60_000_000, stopped_us=15_000_000))

    (stop,) = stops_of(fleet.records)
    assert stop.began_at_ms == fleet.last.records[0].stamped_at_ms - 60_000
    assert (stop.stopped_us, stop.end) == (15_000_000, StopEnd.RESUMED)
    assert fleet.event(WritesResumed).age_us == 45_000_000
    assert condition_of(fleet.set)[0] is Condition.SERVING


def test_a_stop_ends_with_the_reign_whose_master_never_speaks_again() -> None:
    """Killed while it was stopped: the set was without writes for ever, by the record."""
    fleet = Fleet().serving()
    late = report(fleet, stopped_us=600_000)
    fleet.do(report(fleet))
    fleet.silence(1)
    assert condition_of(fleet.set)[0] is Condition.MASTER_SILENT
    fleet.elect()
    fleet.enter()

    assert condition_of(fleet.set)[0] is Condition.SERVING
    (stop,) = stops_of(fleet.records)
    assert (stop.stopped_us, stop.end) == (None, StopEnd.ELECTION)
    refused = fleet.want(fleet.do(late), Refused)
    assert refused.code is RefusalCode.FENCED_MASTER_EPOCH
    assert stops_of(fleet.records) == (stop,)


@pytest.mark.parametrize(("is_later_leader", "blur_ms"), [(False, 0), (True, CLOCK_DIFFERENCE_MS)])
def test_the_outage_of_a_master_that_died_while_it_was_stopped_begins_with_the_stop(
    is_later_leader: bool,
    blur_ms: int,
) -> None:
    """Its last acknowledgement was 60 s ago, and the record began with the kill: 20 ms."""
    fleet = Fleet().serving()
    fleet.do(report(fleet))
    assert fleet.set.writes is not None
    began_at_ms = fleet.set.writes.began_at_ms
    fleet.passed_ms += 60_000
    if is_later_leader:
        fleet.term += 1
        fleet.do(TakeLeadership(controller=ControllerName("c2"), term=fleet.term))
    # Heard until its end: a resumption would have been told.
    heard = DetectionStamps(cause=SilenceCause.TIMEOUT, last_heartbeat_age_us=0, first_sign_age_us=0)
    fleet.silence(1, detection=heard)
    fleet.elect()

    stamps = fleet.event(MasterElected).detection
    assert stamps is not None
    age_us = (fleet.last.records[0].stamped_at_ms - began_at_ms) * 1_000
    assert age_us > 60_600_000
    assert stamps.cause is SilenceCause.TIMEOUT
    assert stamps.first_sign_age_us == age_us - blur_ms * 1_000
    assert stamps.uncertainty_us == 2 * blur_ms * 1_000
    # The winner dies while it enters: the same outage goes on.
    fleet.silence(2)
    fleet.elect()
    stamps = fleet.event(MasterElected).detection
    assert stamps is not None
    assert stamps.first_sign_age_us > 60_000_000 - blur_ms * 1_000


@pytest.mark.parametrize(
    ("detection", "untold_ms"),
    [
        # A silence: the last word with it was its last heartbeat, the next one was due 500 ms later.
        (
            DetectionStamps(cause=SilenceCause.TIMEOUT, last_heartbeat_age_us=3_000_000, first_sign_age_us=2_500_000),
            500,
        ),
        # Killed: the session and its life ended at the same moment.
        (DetectionStamps(cause=SilenceCause.DEAD_AT_ONCE, session_closed_age_us=20_000, first_sign_age_us=20_000), 0),
        # Only its slaves heard it since its report: writes may have gone on for most of a minute.
        (DetectionStamps(cause=SilenceCause.DEAD_AT_ONCE, link_closed_age_us=20_000, first_sign_age_us=20_000), 59_980),
    ],
)
@pytest.mark.parametrize("is_own_kept", [False, True])
def test_a_stopped_master_that_may_have_resumed_untold_before_it_died_leaves_an_outage_with_bounds(
    detection: DetectionStamps, untold_ms: int, is_own_kept: bool
) -> None:
    """Told when no controller could be reached, a resumption is on no record; the whole time since the stop was."""
    fleet = Fleet().serving()
    fleet.do(report(fleet))
    assert fleet.set.writes is not None
    began_at_ms = fleet.set.writes.began_at_ms
    fleet.passed_ms += 60_000
    detection = replace(detection, alive_age_us=detection.first_sign_age_us)
    fleet.silence(1, detection=detection)
    fleet.elect(evidence=fleet.evidence(detection=detection) if is_own_kept else None)

    (row, *_) = history_of(fleet.records)
    stamps = fleet.event(MasterElected).detection
    assert stamps is not None
    age_us = (fleet.last.records[0].stamped_at_ms - began_at_ms) * 1_000
    assert stamps.alive_age_us == age_us
    assert stamps.uncertainty_us is not None
    assert abs(stamps.uncertainty_us - untold_ms * 1_000) <= 10_000
    assert (Phase.FAULT in row.missing) == (stamps.uncertainty_us > 0) == (untold_ms > 0)


def test_a_stop_that_one_leader_heard_of_is_blurred_by_its_clock_for_the_next_one() -> None:
    """Its master opened a session with the next leader: the stop then passed for one on that leader's clock."""
    fleet = Fleet().serving()
    fleet.do(report(fleet))
    stop = next(record for record in fleet.records if isinstance(record.event, WritesStopped))
    fleet.term += 1
    fleet.do(TakeLeadership(controller=ControllerName("c2"), term=fleet.term))
    fleet.revive(1)
    assert fleet.set.outage is not None
    assert fleet.set.outage.found_by == stop.ref
    fleet.elect(to=2)
    stamps = fleet.event(MasterElected).detection
    assert stamps is not None
    assert stamps.uncertainty_us is not None
    assert stamps.uncertainty_us > 0


def test_the_outage_of_a_stopped_master_that_an_operator_moves_away_begins_with_the_stop() -> None:
    """Its disk was full for 43 s; ``elect --to`` ended that within 28 ms, and these were the outage on record."""
    fleet = Fleet().serving()
    fleet.do(report(fleet, age_us=43_000_000))
    elected = fleet.want(fleet.elect(to=2), Elected)

    stamps = fleet.event(MasterElected).detection
    assert elected.verdict.kind is ElectionKind.REQUESTED
    assert stamps is not None
    assert (stamps.cause, stamps.uncertainty_us) == (SilenceCause.WRITES_STOPPED, 0)
    assert stamps.first_sign_age_us >= 43_000_000
    assert history_of(fleet.records)[0].kind is ElectionKind.REQUESTED


def test_a_stop_that_is_over_makes_no_later_outage_longer() -> None:
    fleet = Fleet().serving()
    fleet.do(report(fleet, age_us=43_000_000, stopped_us=42_000_000))
    fleet.elect(to=2)

    assert fleet.event(MasterElected).detection is None


def test_a_stop_ends_with_its_set() -> None:
    fleet = Fleet().serving()
    fleet.do(report(fleet))
    fleet.clean(is_unclean=True)

    assert [stop.end for stop in stops_of(fleet.records)] == [StopEnd.CLEANED]
    assert fleet.set.writes is None


def test_a_stop_goes_on_when_a_dead_replica_of_its_set_is_cleaned() -> None:
    """No master was left, so the record said that the set was cleaned; the next election was said to end nothing."""
    fleet = Fleet().serving()
    fleet.do(report(fleet))
    fleet.silence(1, SilenceCause.DEAD_AT_ONCE)
    fleet.clean(1)
    assert fleet.set.replicas
    assert [stop.end for stop in stops_of(fleet.records)] == [None]
    fleet.elect()

    assert [stop.end for stop in stops_of(fleet.records)] == [StopEnd.ELECTION]


def test_a_stop_whose_end_was_never_told_is_over_when_the_next_one_of_its_reign_begins() -> None:
    """Of 65 stops that waited to be told the oldest was dropped: two stops went on at once."""
    fleet = Fleet().serving()
    fleet.do(report(fleet))
    fleet.do(report(fleet, 3))

    newest, oldest = stops_of(fleet.records)
    assert (newest.end, newest.stopped_us) == (None, None)
    assert (oldest.end, oldest.stopped_us) == (StopEnd.RESUMED, None)
    fleet.do(report(fleet, 3, age_us=900_000, stopped_us=800_000))
    assert [stop.stopped_us for stop in stops_of(fleet.records)] == [800_000, None]


@pytest.mark.parametrize(
    ("broker_id", "incarnation", "epoch", "code"),
    [
        (2, "i2", 1, RefusalCode.INVALID_MASTER),
        (1, "another process", 1, RefusalCode.FENCED_INCARNATION),
        (1, "i1", 0, RefusalCode.FENCED_MASTER_EPOCH),
    ],
)
def test_nobody_but_the_present_master_says_that_writes_are_stopped(
    broker_id: int, incarnation: str, epoch: int, code: RefusalCode
) -> None:
    fleet = Fleet().serving()
    command = ReportWrites(
        set_key=fleet.key,
        broker_id=BrokerId(broker_id),
        incarnation=Incarnation(incarnation),
        master_epoch=MasterEpoch(epoch),
        seq=1,
        reason=StopReason.DISK_FULL,
        detail="",
        age_us=1,
    )

    assert fleet.want(fleet.do(command), Refused).code is code
    assert condition_of(fleet.set)[0] is Condition.SERVING


@pytest.mark.parametrize(
    ("seq", "age_us", "stopped_us", "detail"),
    [(0, 1, None, ""), (1, -1, None, ""), (1, 5, 6, ""), (1, 2**60, None, ""), (1, 1, None, "x" * 241)],
)  # fmt: skip
def test_a_report_that_can_be_no_stop_is_refused(seq: int, age_us: int, stopped_us: int | None, detail: str) -> None:
    fleet = Fleet().serving()
    told = report(fleet, seq, age_us=age_us, stopped_us=stopped_us, detail=detail)

    assert fleet.want(fleet.do(told), Refused).code is RefusalCode.INVALID_ARGUMENT
    assert condition_of(fleet.set)[0] is Condition.SERVING
