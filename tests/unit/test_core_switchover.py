"""Orders to switch over (R29): taken, carried out, withdrawn, rolled back; each ends once, with its reason."""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import (
    AnnounceStop,
    EndSwitchover,
    OrderSwitchover,
    PauseElections,
    ReportDrained,
)
from rollcall_ha.controller.contract.events import CommandRefused, MasterElected, SwitchoverEnded, SwitchoverOrdered
from rollcall_ha.controller.contract.ids import BrokerId, FleetIncarnation, MasterEpoch, RequestId
from rollcall_ha.controller.contract.replies import AnyReply, Done, Elected
from rollcall_ha.controller.contract.values import DetectionStamps, Evidence, SilenceCause, SwitchoverEnd
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.controller.core.history import history_of
from rollcall_ha.controller.core.preview import foresee
from rollcall_ha.controller.core.recovery import begin_again
from rollcall_ha.controller.core.state import Switchover
from rollcall_ha.controller.core.switchovers import switchovers_of
from rollcall_ha.controller.core.views import set_view
from tests.support.core_builders import Fleet, ids, positions
from tests.support.core_fleets import refusal_of

ORDER = RequestId("order-1")


def order(fleet: Fleet, to: int | None = 2, *, name: str = ORDER, **fields: object) -> AnyReply:
    """An operator's order."""
    command = OrderSwitchover(set_key=fleet.key, to=None if to is None else BrokerId(to), reason="patch")
    operation = fleet.operation(
        replace(command, **fields), evidence=fleet.evidence(), request_id=name, requested_by="operator:ann"
    )
    return fleet.apply([operation]).replies[0]


def drained(fleet: Fleet, broker_id: int = 1, *, name: str = ORDER, evidence: Evidence | None = None) -> AnyReply:
    """The master tells that it has drained for an order."""
    replica = fleet.replica(broker_id)
    assert replica.incarnation is not None
    stamps = DetectionStamps(
        cause=SilenceCause.DRAINED, detected_age_us=9_000, first_sign_age_us=9_000, alive_age_us=9_000
    )
    command = ReportDrained(
        set_key=fleet.key,
        broker_id=replica.broker_id,
        incarnation=replica.incarnation,
        master_epoch=fleet.set.master_epoch,
        drained_us=9_000,
        order=RequestId(name),
    )
    return fleet.do(command, evidence=evidence or fleet.evidence(detection=stamps))


def pending(fleet: Fleet) -> Switchover | None:
    return fleet.set.pending_switchover


def end_of(fleet: Fleet) -> SwitchoverEnd:
    """Of the order that the last entry ended; it is not under way any more."""
    assert pending(fleet) is None
    return fleet.event(SwitchoverEnded).end


def ordered() -> Fleet:
    """Master 1 of {1,2,3} is ordered to hand over to 2."""
    fleet = Fleet().serving()
    assert isinstance(order(fleet), Done)
    return fleet


def elected() -> Fleet:
    """And has drained: 2 is elected and has not entered."""
    fleet = ordered()
    assert isinstance(drained(fleet), Elected)
    return fleet


def test_a_switchover_elects_its_target_when_the_master_has_drained_and_is_done_when_it_has_entered() -> None:
    fleet = ordered()
    view = set_view(fleet.state, fleet.set, term=1, index=1)
    assert view.switchover is not None
    assert (view.switchover.order, view.switchover.target, view.switchover.elected_epoch) == (ORDER, 2, None)
    assert (fleet.set.master, fleet.set.master_epoch) == (1, 1), "nobody is elected before the master has drained"

    reply = fleet.want(drained(fleet), Elected)

    assert (reply.verdict.kind, reply.verdict.winner, reply.verdict.designated) == (ElectionKind.SWITCHOVER, 2, 2)
    assert reply.view.sync_state_set == ids(1, 2, 3), "the old master follows: it stays a member"
    assert pending(fleet) is not None
    fleet.enter(100)
    assert end_of(fleet) is SwitchoverEnd.DONE
    row = history_of(fleet.records)[0]
    assert (row.kind, row.requested_by, row.cause) == (
        ElectionKind.SWITCHOVER, "operator:ann", "switched over by order of operator:ann",
    )  # fmt: skip
    told = switchovers_of(fleet.records)[0]
    assert (told.order, told.end, told.from_master, told.to_master, told.epoch) == (ORDER, SwitchoverEnd.DONE, 1, 2, 2)
    assert (told.drained_us, told.elected_ms, told.took_ms) == (9_000, 1, 2)
    assert fleet.event(SwitchoverEnded).master == 2
    assert set_view(fleet.state, fleet.set, term=1, index=1).switchover is None


def test_the_election_is_triggered_by_its_order() -> None:
    fleet = ordered()
    ref = next(record.ref for record in fleet.records if isinstance(record.event, SwitchoverOrdered))
    drained(fleet)

    assert fleet.event(MasterElected).triggered_by == ref


def test_an_order_without_a_target_goes_by_policy() -> None:
    fleet = Fleet().serving()
    order(fleet, None)

    assert fleet.event(SwitchoverOrdered).target == 2


def test_what_cannot_be_carried_out_is_not_ordered() -> None:
    """Each with the code that says why, and nothing is changed."""
    silent, learner, behind, entering = (Fleet().serving() for _ in range(4))
    silent.silence(2)
    learner.do(learner.registration(3, incarnation="i3.2", is_learner=True))
    entering.elect(to=3)
    far = {1: positions(40 << 20), 2: positions(0), 3: positions(40 << 20)}
    for fleet, reply, code in (
        (silent, order(silent, 2), RefusalCode.NOT_ELIGIBLE),
        (learner, order(learner, 3), RefusalCode.NOT_ELIGIBLE),
        (behind, order(behind, 9), RefusalCode.UNKNOWN_REPLICA),
        (behind, order(behind, 1, name="r-0"), RefusalCode.MASTER_STILL_EXISTS),
        (behind, order(behind, 2, name="r-a", expected_master=BrokerId(3)), RefusalCode.EXPECTATION_FAILED),
        (behind, order(behind, 2, name="r-b", expected_epoch=MasterEpoch(7)), RefusalCode.EXPECTATION_FAILED),
        (behind, order(behind, 2, name="r-c", deadline_ms=99), RefusalCode.INVALID_ARGUMENT),
        (behind, order(behind, 2, name="r-d", deadline_ms=60_001), RefusalCode.INVALID_ARGUMENT),
        (entering, order(entering, 1), RefusalCode.MASTER_NOT_AVAILABLE),
    ):
        assert refusal_of(reply) is code, reply
        assert fleet.set.switchover is None
    command = OrderSwitchover(set_key=behind.key, to=BrokerId(2))
    assert refusal_of(behind.do(command, evidence=behind.evidence(far))) is RefusalCode.NOT_ELIGIBLE
    assert isinstance(behind.do(replace(command, max_lag_bytes=40 << 20), evidence=behind.evidence(far)), Done)


def test_a_dry_run_says_what_the_order_would_say() -> None:
    fleet = Fleet().serving()
    command = OrderSwitchover(set_key=fleet.key, to=BrokerId(2))
    operation = fleet.operation(command, evidence=fleet.evidence())

    reply, events = foresee(fleet.state, operation)

    assert isinstance(reply, Done)
    assert [type(event) for event in events] == [SwitchoverOrdered]
    assert fleet.apply([operation]).records[0].event == events[0]


def test_one_order_at_a_time() -> None:
    fleet = ordered()

    assert refusal_of(order(fleet, 3, name="order-2")) is RefusalCode.SWITCHOVER_UNDER_WAY
    assert pending(fleet) is not None


def test_a_repeated_order_is_answered_as_the_first_one_and_ordered_once() -> None:
    fleet = ordered()

    assert isinstance(order(fleet), Done)
    assert sum(isinstance(record.event, SwitchoverOrdered) for record in fleet.records) == 1


def test_r29_an_announcement_for_a_withdrawn_order_elects_nobody() -> None:
    """Drained for order 1, it takes sends again, and is ordered anew: of order 2 nothing is drained yet."""
    fleet = ordered()
    fleet.do(EndSwitchover(set_key=fleet.key, order=ORDER, reason="time is over"))
    assert end_of(fleet) is SwitchoverEnd.DEADLINE
    assert refusal_of(drained(fleet)) is RefusalCode.NO_SWITCHOVER
    order(fleet, 3, name="order-2")

    assert refusal_of(drained(fleet, name=ORDER)) is RefusalCode.NO_SWITCHOVER

    assert (fleet.set.master, fleet.set.master_epoch) == (1, 1)
    assert isinstance(drained(fleet, name="order-2"), Elected)


def test_r29_only_the_reign_that_was_ordered_to_drain_asks_for_the_election() -> None:
    """A slave in the master's name, and a reign that was deposed: nobody is elected."""
    fleet = ordered()
    assert refusal_of(drained(fleet, 3)) is RefusalCode.INVALID_MASTER
    late = ReportDrained(
        set_key=fleet.key,
        broker_id=BrokerId(1),
        incarnation=fleet.replica(1).incarnation,  # type: ignore[arg-type]
        master_epoch=MasterEpoch(0),
        drained_us=0,
        order=ORDER,
    )
    assert refusal_of(fleet.do(late, evidence=fleet.evidence())) is RefusalCode.FENCED_MASTER_EPOCH
    assert fleet.set.master_epoch == 1


def test_r29_the_order_of_a_restored_backup_elects_nobody() -> None:
    """Its master may have been deposed after the backup was taken (R7)."""
    fleet = ordered()
    fleet.state = begin_again(fleet.state, FleetIncarnation("e" * 32))
    assert pending(fleet) is not None

    assert refusal_of(drained(fleet)) is RefusalCode.MASTER_NOT_AVAILABLE
    assert fleet.set.master_epoch == 1


def test_an_order_whose_target_is_elected_is_not_withdrawn() -> None:
    fleet = elected()

    reply = fleet.do(EndSwitchover(set_key=fleet.key, order=ORDER, reason="time is over"))

    assert refusal_of(reply) is RefusalCode.NO_SWITCHOVER
    assert pending(fleet) is not None


def test_r29_before_its_election_an_order_ends_with_its_target_or_its_master() -> None:
    """Silent, gone, restarted, about to stop, out of the set; each in the entry that tells it."""
    target, master = SwitchoverEnd.TARGET_LOST, SwitchoverEnd.MASTER_LOST

    def stop(fleet: Fleet) -> AnyReply:
        replica = fleet.replica(2)
        assert replica.incarnation is not None
        return fleet.do(
            AnnounceStop(
                set_key=fleet.key,
                broker_id=replica.broker_id,
                incarnation=replica.incarnation,
                session_ordinal=replica.session_ordinal,
                master_epoch=fleet.set.master_epoch,
            )
        )

    for end, hurt in (
        (target, lambda fleet: fleet.silence(2)),
        (target, lambda fleet: fleet.goodbye(2)),
        (target, lambda fleet: fleet.do(fleet.registration(2, incarnation="i2.2"))),
        (target, lambda fleet: fleet.do(fleet.alter(1, 3))),
        (target, stop),
        (master, lambda fleet: fleet.silence(1)),
        (master, lambda fleet: fleet.goodbye(1)),
        (master, lambda fleet: fleet.do(fleet.registration(1, incarnation="i1.2"))),
        (SwitchoverEnd.OVERTAKEN, lambda fleet: fleet.elect(to=3)),
        (SwitchoverEnd.OVERTAKEN, lambda fleet: fleet.clean(2, is_unclean=True)),
    ):
        fleet = ordered()
        hurt(fleet)
        assert end_of(fleet) is end, fleet.events


def test_r29_an_order_that_nobody_gave_elects_nobody() -> None:
    fleet = ordered()

    assert refusal_of(drained(fleet, name="never-ordered")) is RefusalCode.NO_SWITCHOVER
    assert fleet.set.master_epoch == 1


def test_r29_a_target_that_restarted_is_not_elected_by_the_order() -> None:
    """Another process under its id, which came back intact: the operator's pre-check was of the one before it."""
    fleet = ordered()
    fleet.do(fleet.registration(2, incarnation="i2.2"))

    assert refusal_of(drained(fleet)) is RefusalCode.NO_SWITCHOVER
    assert isinstance(order(fleet, 2, name="order-2"), Done)


def test_an_order_goes_on_when_others_come_and_go() -> None:
    """Replica 3; a further session of master and target, as under the next leading controller."""
    fleet = ordered()
    fleet.silence(3)
    fleet.revive(3)
    fleet.do(fleet.registration(1))
    fleet.do(fleet.registration(2))

    assert pending(fleet) is not None
    assert isinstance(drained(fleet), Elected)


def test_a_target_that_is_not_eligible_when_the_master_has_drained_ends_the_order() -> None:
    """The leader has not heard it: the master serves again, and nobody else is elected in its place."""
    fleet = ordered()

    reply = drained(fleet, evidence=fleet.evidence(unready=(2,)))

    assert refusal_of(reply) is RefusalCode.NOT_ELIGIBLE
    assert [type(event) for event in fleet.events] == [CommandRefused, SwitchoverEnded]
    assert end_of(fleet) is SwitchoverEnd.TARGET_LOST
    assert (fleet.set.master, fleet.set.master_epoch) == (1, 1)


def test_r29_a_target_that_does_not_enter_gives_the_set_back_to_the_old_master() -> None:
    """By policy it would be replica 3, which has the higher rank here: nobody chose that place."""
    fleet = elected()
    fleet.passed_ms = 3_000
    stamps_before = fleet.event(MasterElected).detection

    reply = fleet.want(fleet.elect(master=2, epoch=2), Elected)

    assert (reply.verdict.winner, reply.verdict.kind) == (1, ElectionKind.SWITCHOVER)
    back = fleet.event(MasterElected)
    assert back.reason.startswith("rolled back: ")
    assert stamps_before is not None
    assert back.detection is not None
    assert back.detection.first_sign_age_us >= 3_000_000, "the outage began with the drain, not with the way back"
    fleet.enter(100)
    assert end_of(fleet) is SwitchoverEnd.NOT_ENTERED
    assert fleet.event(SwitchoverEnded).master == 1
    rows = history_of(fleet.records)
    assert [(row.kind, row.requested_by) for row in rows[:2]] == [(ElectionKind.SWITCHOVER, "operator:ann")] * 2
    assert switchovers_of(fleet.records)[0].end is SwitchoverEnd.NOT_ENTERED


def test_r29_a_target_that_dies_before_it_has_entered_gives_the_set_back_too() -> None:
    silent, restarted = elected(), elected()
    silent.silence(2)
    restarted.do(restarted.registration(2, incarnation="i2.2"))
    for fleet in (silent, restarted):
        assert pending(fleet) is not None

        assert fleet.want(fleet.elect(), Elected).verdict.winner == 1
        fleet.enter(100)
        assert end_of(fleet) is SwitchoverEnd.NOT_ENTERED


def test_r29_the_way_back_is_clean_or_it_is_an_election_by_policy() -> None:
    """The old master restarted without proof meanwhile: 3, which holds everything, is elected, and 1 is not."""
    fleet = elected()
    fleet.do(fleet.registration(1, incarnation="i1.2", boot="boot-2"))
    fleet.silence(2)

    reply = fleet.want(fleet.elect(), Elected)

    assert (reply.verdict.winner, reply.verdict.kind) == (3, ElectionKind.FAILOVER)
    assert end_of(fleet) is SwitchoverEnd.OVERTAKEN


def test_a_master_that_is_asked_to_stop_meanwhile_hands_over_by_policy() -> None:
    fleet = ordered()
    replica = fleet.replica(1)
    assert replica.incarnation is not None
    stop = AnnounceStop(
        set_key=fleet.key,
        broker_id=replica.broker_id,
        incarnation=replica.incarnation,
        session_ordinal=replica.session_ordinal,
        master_epoch=fleet.set.master_epoch,
    )

    reply = fleet.want(fleet.do(stop, evidence=fleet.evidence()), Elected)

    assert reply.verdict.kind is ElectionKind.HANDOVER
    assert end_of(fleet) is SwitchoverEnd.OVERTAKEN


def test_a_master_of_rocketmq_is_not_asked_to_drain() -> None:
    fleet = Fleet().serving_java(replicas=(1, 2, 3))
    assert fleet.set.has_entered

    assert refusal_of(order(fleet, 2)) is RefusalCode.INVALID_REQUEST


def test_a_switchover_that_a_person_orders_in_a_pause_goes_through_and_back() -> None:
    """Withheld behind the drain, the way back would leave the set without a master for as long as the pause."""
    fleet = Fleet().serving()
    pause = PauseElections(set_key=None, expires_at_ms=2_000_000)
    fleet.apply([fleet.operation(pause, requested_by="operator:ann")])
    order(fleet)
    assert isinstance(drained(fleet), Elected)

    assert fleet.want(fleet.elect(master=2, epoch=2), Elected).verdict.winner == 1
    fleet.enter(100)
    assert end_of(fleet) is SwitchoverEnd.NOT_ENTERED
    fleet.silence(1)
    assert refusal_of(fleet.elect()) is RefusalCode.PAUSED
