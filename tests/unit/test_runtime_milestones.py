"""Milestones of a failover: from when the leader counts, and what it knows as bounds."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from rollcall_ha.controller.contract.commands import RecordMilestones
from rollcall_ha.controller.contract.events import MasterElected
from rollcall_ha.controller.contract.ids import BrokerId, MasterEpoch
from rollcall_ha.controller.contract.session import RoleNotice
from rollcall_ha.controller.contract.values import DetectionStamps, Milestone, Phase, SilenceCause
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.controller.runtime.milestones import Milestones, Origin, winner_beside
from rollcall_ha.controller.runtime.pushes import push_views
from tests.support.core_builders import Fleet
from tests.support.runtime_controller import SilentBrokers
from tests.support.runtime_world import led_set, set_key

KEY = set_key()


def observed_by(milestones: Milestones, reached: Milestone, now_ns: int, steady_ms: int | None = None) -> Milestone:
    """The milestone of a broker's report that comes now, as the leader has observed it."""
    report = RecordMilestones(set_key=KEY, milestones=(reached,))
    return milestones.observe(report, now_ns, steady_ms=steady_ms).milestones[0]


def test_milestones_of_leader_and_brokers_share_one_origin() -> None:
    """COMMITTED and NOTIFIED count from the proposal; what a broker reports is observed from the oldest stamp."""
    world, (_, *slaves) = led_set()
    world.pass_ms(3_500, *slaves)
    epoch = world.the_view(KEY).master_epoch
    world.now_ms += 20
    world.duties.handle_notified(KEY, epoch, world.now_ns)
    world.tick()
    recorded = [
        milestone
        for proposal in world.proposals
        if isinstance(proposal.command, RecordMilestones)
        for milestone in proposal.command.milestones
        if milestone.master_epoch == epoch
    ]
    assert [milestone.phase for milestone in recorded] == [Phase.COMMITTED, Phase.NOTIFIED]
    serving = Milestone(master_epoch=epoch, phase=Phase.SERVING, elapsed_us=5)
    observed = observed_by(world.duties.milestones, serving, world.now_ns)

    assert observed.observed_us is not None
    assert 3_000_000 <= observed.observed_us == recorded[1].observed_us


@pytest.mark.parametrize(
    ("age_us", "expected_us"),
    [(None, 60_000), (0, 60_000), (42_000, 18_000), (10_000_000, 7_000), (-5, 60_000)],
    ids=["without an age", "sent at once", "behind another report", "before the commit", "in the future"],
)
def test_the_time_that_a_report_waited_at_its_broker_was_part_of_the_outage(
    age_us: int | None, expected_us: int
) -> None:
    """A master that served after 18 ms, and told it behind another report, had 60 ms on record: 36 were felt."""
    milestones, epoch = Milestones(), MasterEpoch(2)
    milestones.committed(KEY, epoch, Origin(proposed_ns=2_000_000, fault_ns=1_000_000, committed_ns=8_000_000))
    reached = Milestone(master_epoch=epoch, phase=Phase.SERVING, elapsed_us=9_000, age_us=age_us)

    observed = observed_by(milestones, reached, 61_000_000)
    assert observed == msgspec.structs.replace(reached, age_us=None, observed_us=expected_us)


def inherited(detection: DetectionStamps) -> tuple[Milestones, MasterEpoch]:
    """Milestones of a follower that applied an election at 2 s, 40 ms behind its stamp of 1,000,000 ms."""
    fleet = Fleet().serving()
    fleet.silence(1)
    fleet.elect(evidence=fleet.evidence(detection=detection))
    event = fleet.event(MasterElected)
    assert event.master == 2
    record = next(one for one in fleet.last.records if one.event == event)
    milestones = Milestones()
    stamped = msgspec.structs.replace(record, set_key=KEY, stamped_at_ms=1_003_600_000)
    milestones.applied([stamped], stepped_ms=1_002_600_000, now_ns=2_000_000_000)
    milestones.disarm()
    return milestones, event.master_epoch


def test_the_next_leader_had_no_bounds_of_an_outage_whose_election_it_had_applied() -> None:
    """The leader died behind the commit: 107 to 7,773 ms were felt, and TOTAL was empty."""
    milestones, epoch = inherited(
        DetectionStamps(cause=SilenceCause.TIMEOUT, first_sign_age_us=300_000, alive_age_us=300_000)
    )
    served = Milestone(master_epoch=epoch, phase=Phase.SERVING, elapsed_us=9_000, broker_id=BrokerId(2), age_us=500_000)
    # It arrives 700 ms after the election was applied here, and was told 500 ms late.
    observed = observed_by(milestones, served, 2_700_000_000, 1_000_740)
    assert observed.observed_us == 300_000 + 200_000
    assert observed.uncertainty_us == 40_000 + 1_000_000
    # A step of 10 s that is not on record yet.
    assert observed_by(milestones, served, 2_700_000_000, 990_740).uncertainty_us == 1_000_000
    observed = observed_by(milestones, served, 2_700_000_000)
    assert (observed.observed_us, observed.uncertainty_us) == (None, msgspec.UNSET), "the level has no bounds"
    older = msgspec.structs.replace(served, master_epoch=MasterEpoch(epoch - 1))
    assert observed_by(milestones, older, 2_700_000_000, 1_000_740).observed_us is None


def replaced(**ages_us: int) -> DetectionStamps:
    """By a process that registered 140 us ago."""
    return DetectionStamps(cause=SilenceCause.REPLACED, first_sign_age_us=140, **ages_us)


@pytest.mark.parametrize(
    ("detection", "is_beside"),
    [
        (DetectionStamps(cause=SilenceCause.TIMEOUT, first_sign_age_us=0, alive_age_us=0), True),
        (DetectionStamps(cause=SilenceCause.TIMEOUT, first_sign_age_us=140, last_heartbeat_age_us=3_000), True),
        (DetectionStamps(cause=SilenceCause.TIMEOUT, first_sign_age_us=2_600, last_heartbeat_age_us=3_000), False),
        (DetectionStamps(cause=SilenceCause.TIMEOUT, first_sign_age_us=3_000, detected_age_us=1_000), False),
        (DetectionStamps(cause=SilenceCause.DEAD_AT_ONCE, first_sign_age_us=0), False),
        # Another process has its id: beside it, behind its end, and told to a leader that never heard it.
        (replaced(last_heartbeat_age_us=300), True),
        (replaced(last_heartbeat_age_us=300, session_closed_age_us=140), False),
        (replaced(), False),
    ],
)
def test_a_master_that_its_slaves_heard_to_the_end_served_until_its_winner_had_promised(
    detection: DetectionStamps, is_beside: bool
) -> None:
    """
    It was cut from the controllers alone: 140 ms were the least on record, and 29 felt.

    Of one beside which a copy of its directory had started: 116, and 10 felt.
    """
    fleet = Fleet().serving()
    fleet.silence(1)
    fleet.elect(evidence=fleet.evidence(detection=detection))
    elected = fleet.event(MasterElected)
    # The beginning that the state knows does not decide it.
    elected = msgspec.structs.replace(elected, detection=detection)
    assert winner_beside(elected) == (elected.master if is_beside else None)


@pytest.mark.parametrize(("kind", "is_beside"), [(ElectionKind.UNCLEAN, True), (ElectionKind.FIRST, False)])
def test_a_living_master_serves_until_it_is_told_of_an_unclean_order_too(kind: ElectionKind, is_beside: bool) -> None:
    fleet = Fleet().serving()
    fleet.elect(to=2)
    elected = fleet.event(MasterElected)
    elected = msgspec.structs.replace(elected, verdict=msgspec.structs.replace(elected.verdict, kind=kind))
    assert winner_beside(elected) == (elected.master if is_beside else None)


@pytest.mark.parametrize(("is_promise_known", "least_us"), [(True, 3_000), (False, 0)])
def test_an_order_took_the_time_in_which_its_old_master_still_acknowledged_for_an_outage(
    is_promise_known: bool, least_us: int
) -> None:
    """1,834 ms were on record as exact, and 1,730 felt: up to the winner's promise its acks let the old master answer."""
    milestones, epoch = Milestones(), MasterEpoch(2)
    origin = Origin(proposed_ns=0, fault_ns=0, committed_ns=0, served_by=BrokerId(2))
    milestones.committed(KEY, epoch, origin)

    def observed(phase: Phase, elapsed_us: int, broker: int, steady_ms: int | None) -> Milestone:
        reached = Milestone(master_epoch=epoch, phase=phase, elapsed_us=elapsed_us, broker_id=BrokerId(broker))
        return observed_by(milestones, reached, 14_000_000, steady_ms)

    observed(Phase.PROMISED, 1_000, 3, 5)
    if is_promise_known:
        observed(Phase.PROMISED, 9_000, 2, 5)
    serving = observed(Phase.SERVING, 12_000, 2, 5)
    assert (serving.observed_us, serving.uncertainty_us) == (least_us, 14_000 - least_us)
    serving = observed(Phase.SERVING, 12_000, 2, None)
    assert (serving.observed_us, serving.uncertainty_us) == (14_000, msgspec.UNSET), "the level has no bounds"


def test_time_between_the_leaders_stamp_and_the_notices_own_belonged_to_no_phase(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """NOTIFIED ended before the notice was encoded, the winner's clock began after it: a wait for a core fell between."""
    world, (_, *slaves) = led_set()
    world.pass_ms(3_500, *slaves)
    elected = [record for record in world.records if isinstance(record.event, MasterElected)][-1]
    clock_ns = itertools.count(world.now_ns, 2_000_000)
    ended_ns: list[int] = []
    monkeypatch.setattr(world.duties, "handle_notified", lambda _key, _epoch, now_ns: ended_ns.append(now_ns))
    port = SilentBrokers()

    push_views([elected], view_of=world.view, duties=world.duties, port=port, now_ns=lambda: next(clock_ns))

    notices = [msgspec.json.decode(body, type=RoleNotice) for _, body in port.pushed]
    assert len(notices) == len(world.the_view(KEY).members)
    assert {notice.sent_at_us * 1_000 for notice in notices} == set(ended_ns)
