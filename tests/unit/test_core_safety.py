"""R9, R12 to R15, R24 and R25, and the table of what was model-checked in docs/safety.md: the controllers' part."""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import FEATURE_LEVEL, AnyCommand, ElectMaster, MarkSilent
from rollcall_ha.controller.contract.events import (
    CommandRefused,
    MasterElected,
)
from rollcall_ha.controller.contract.ids import (
    AckMode,
    BrokerId,
    Incarnation,
    SessionOrdinal,
    SyncStateSetEpoch,
)
from rollcall_ha.controller.contract.replies import Condition, Done, Elected, Refused, Registered
from rollcall_ha.controller.contract.values import Evidence, SetConfiguration, SilenceCause
from rollcall_ha.controller.contract.verdicts import Intactness
from rollcall_ha.controller.core.apply import apply_operations
from rollcall_ha.controller.core.views import condition_of, view_of
from tests.support.core_builders import OLD_FLEET, Fleet, positions
from tests.support.core_fleets import (
    TWO,
    judged,
    refusal_of,
    wiped,
)

# --- R9, R12, R13, R14, R15 ------------------------------------------------------------------------------------------


def test_r9_a_new_incarnation_is_never_given_an_old_epoch() -> None:
    """The recorded master restarts: its mastership is over, and its election is a new epoch."""
    fleet = Fleet().serving()
    fleet.do(fleet.registration(1, incarnation="i1.2"))
    assert fleet.set.master is None

    elected = fleet.want(fleet.elect(to=1), Elected)

    assert (elected.verdict.master_epoch, fleet.set.master_incarnation) == (2, "i1.2")


def test_r12_an_epoch_is_entered_by_the_named_incarnation_with_one_start() -> None:
    """A repeat is answered, another start is refused."""
    fleet = Fleet().serving()
    fleet.silence(1)
    fleet.elect()
    assert condition_of(fleet.set)[0] is Condition.ENTERING
    assert isinstance(fleet.enter(100), Done)
    assert isinstance(fleet.enter(100), Done)
    assert fleet.events == []

    assert refusal_of(fleet.enter(90)) is RefusalCode.INVALID_REQUEST
    assert fleet.set.start_offset == 100


def test_r13_a_newer_incarnation_ends_the_older_ones_life_at_once() -> None:
    """Its late silence and its late registration mean nothing any more."""
    fleet = Fleet().serving()
    old = fleet.replica(2)
    fleet.do(fleet.registration(2, incarnation="i2.2"))
    late = MarkSilent(
        set_key=fleet.key,
        broker_id=old.broker_id,
        incarnation=Incarnation("i2.1"),
        session_ordinal=old.session_ordinal,
        cause=SilenceCause.TIMEOUT,
    )

    assert refusal_of(fleet.do(late)) is RefusalCode.FENCED_INCARNATION
    assert refusal_of(fleet.do(fleet.registration(2))) is RefusalCode.FENCED_INCARNATION
    assert fleet.replica(2).is_alive


def test_s33_a_late_close_of_an_old_session_means_nothing() -> None:
    """The broker reconnected before the old channel closed."""
    fleet = Fleet().serving()
    old = fleet.replica(1)
    fleet.do(fleet.registration(1))
    late = MarkSilent(
        set_key=fleet.key,
        broker_id=old.broker_id,
        incarnation=Incarnation("i1.1"),
        session_ordinal=old.session_ordinal,
        cause=SilenceCause.DEAD_AT_ONCE,
    )

    assert refusal_of(fleet.do(late)) is RefusalCode.FENCED_SESSION
    assert condition_of(fleet.set)[0] is Condition.SERVING


def moved(evidence: Evidence, **changes: object) -> Evidence:
    """Evidence whose first replica differs."""
    return replace(evidence, replicas=(replace(evidence.replicas[0], **changes), *evidence.replicas[1:]))


def test_r14_evidence_that_moved_is_refused() -> None:
    """masterEpoch, SyncStateSetEpoch, and each replica's incarnation and session."""
    fleet = Fleet().serving()
    fleet.silence(1)
    good = fleet.evidence()
    for stale in (
        replace(good, master_epoch=good.master_epoch - 1),
        replace(good, sync_state_set_epoch=SyncStateSetEpoch(good.sync_state_set_epoch + 1)),
        moved(good, incarnation=Incarnation("i1.9")),
        moved(good, session_ordinal=SessionOrdinal(9)),
        moved(good, broker_id=BrokerId(9)),
    ):
        assert refusal_of(fleet.elect(evidence=stale)) is RefusalCode.EVIDENCE_MOVED
    assert isinstance(fleet.elect(evidence=good), Elected)


def test_r14_elect_b_is_delayed_past_an_alter() -> None:
    """ "Elect B" is delayed; alter {A} commits; the entry applies: B must not win, for A acks alone by now."""
    fleet = Fleet().serving()
    late = fleet.evidence()
    fleet.do(fleet.alter(1))

    assert refusal_of(fleet.elect(to=2, evidence=late)) is RefusalCode.EVIDENCE_MOVED


def test_r14_malformed_evidence_is_refused() -> None:
    """None at all, a replica twice, a draw out of range."""
    fleet = Fleet().serving()
    good = fleet.evidence()
    for bad in (
        replace(good, replicas=(good.replicas[0], good.replicas[0])),
        replace(good, epoch_jump_draw=16),
        replace(good, epoch_jump_draw=-1),
    ):
        assert refusal_of(fleet.elect(to=2, evidence=bad)) is RefusalCode.INVALID_ARGUMENT
    without = fleet.operation(elect_command(fleet))
    assert refusal_of(fleet.apply([without]).replies[0]) is RefusalCode.INVALID_ARGUMENT


def elect_command(fleet: Fleet) -> AnyCommand:
    """An election of replica 2."""
    return ElectMaster(set_key=fleet.key, to=BrokerId(2))


def test_r15_an_operation_above_the_feature_level_stops_the_node_and_changes_nothing() -> None:
    """It must not diverge: nothing of the entry is applied."""
    fleet = Fleet().serving()
    good = fleet.operation(elect_command(fleet), evidence=fleet.evidence())
    high = fleet.operation(elect_command(fleet), version=FEATURE_LEVEL + 1)

    applied = apply_operations(fleet.state, (good, high), term=1, index=99)

    assert applied.stop_reason is not None
    assert f"feature level {FEATURE_LEVEL + 1}" in applied.stop_reason
    assert (applied.state, applied.replies, applied.records) == (fleet.state, (), ())


def test_r25_elections_come_before_alters_in_a_batch_and_replies_keep_their_order() -> None:
    """The alter of the old master shares the entry with the election that deposes it: it is refused."""
    fleet = Fleet().serving()
    alter = fleet.operation(fleet.alter(1))
    elect = fleet.operation(elect_command(fleet), evidence=fleet.evidence())

    applied = fleet.apply([alter, elect])

    assert refusal_of(applied.replies[0]) is RefusalCode.FENCED_MASTER_EPOCH
    assert isinstance(applied.replies[1], Elected)
    assert isinstance(applied.records[0].event, MasterElected)


def test_r24_refusals_are_on_record_and_repeated_answers_are_not() -> None:
    """One refusal, one event; the same request id again: none."""
    fleet = Fleet().serving()
    fleet.do(elect_command(fleet), request_id="x")
    assert [type(event) for event in fleet.events] == [CommandRefused]

    fleet.do(elect_command(fleet), request_id="x")

    assert fleet.events == []


# --- the rest of the model's table: the controllers' part ------------------------------------------------------------


def test_model_r2_state_of_another_epoch_names_its_own_master_and_incarnation() -> None:
    """{A,B}; B elected (2), then A (3, {A}): the view that A hears says epoch 3, so A in 1 cannot take it for its own."""
    fleet = Fleet().serving(replicas=(1, 2), configuration=TWO)
    fleet.elect(to=2)
    fleet.silence(2)
    fleet.elect()

    view = view_of(fleet.state, fleet.key)

    assert view is not None
    assert (view.master, view.master_epoch, view.master_incarnation) == (1, 3, "i1.1")


def test_model_suspect_as_the_only_member_while_another_holds_everything() -> None:
    """{winner} alone loses nothing, but strands; the survivors in the set make the other one electable."""
    fleet = Fleet().serving()
    fleet.silence(1)
    fleet.elect()
    fleet.enter(10)
    fleet.do(fleet.registration(2, incarnation="i2.2", boot="boot-2"))

    assert fleet.want(fleet.elect(), Elected).verdict.winner == 3


def test_ack_modes_n_and_async_rank_the_longest_log_first() -> None:
    """R10: (epoch, end) ranks first, zones and priorities after it."""
    for mode, winner in ((AckMode.ALL, 2), (AckMode.N, 3), (AckMode.ASYNC, 3)):
        fleet = Fleet()
        for broker_id in (1, 2, 3):
            fleet.grant(f"code-{broker_id}")
            fleet.do(
                fleet.registration(
                    broker_id, priority=broker_id, configuration=SetConfiguration(expected_replicas=3, ack_mode=mode)
                )
            )
        fleet.elect()
        fleet.silence(1)
        elected = fleet.want(fleet.elect(evidence=fleet.evidence({2: positions(10), 3: positions(20)})), Elected)
        assert elected.verdict.winner == winner


def test_a_wiped_fleet_is_told_by_its_incarnation() -> None:
    """What replicas kept names the old fleet; the state is the new one's."""
    fleet = wiped((1, 3, 2, (1,)))

    assert fleet.set.recovery is not None
    assert fleet.set.recovery.newest is not None
    assert fleet.set.recovery.newest.fleet_incarnation == OLD_FLEET


def test_r1_a_late_duplicate_of_an_earlier_lifes_registration_is_refused() -> None:
    """Simulation seed 424: it had never been applied, so it was new, and ended the life of who had come after it."""
    fleet = Fleet().serving()
    late = fleet.registration(2, incarnation="i2.2")
    fleet.do(fleet.registration(2, incarnation="i2.3"))
    before = fleet.set

    reply = fleet.want(fleet.do(late), Refused)

    assert reply.code is RefusalCode.EVIDENCE_MOVED
    assert reply.registered == fleet.replica(2).registered_as
    assert fleet.set == before


def test_r1_a_late_duplicate_opens_no_session_and_voids_no_goodbye() -> None:
    """A stopped replica must not look alive again, nor its clean stop be forgotten."""
    fleet = Fleet().serving()
    late = fleet.registration(2)
    fleet.do(late)
    mark = fleet.goodbye(2, end=0)

    assert refusal_of(fleet.do(late)) is RefusalCode.EVIDENCE_MOVED

    assert not fleet.replica(2).is_alive
    assert fleet.replica(2).goodbye == mark


def test_r1_who_was_refused_registers_by_what_the_refusal_says() -> None:
    """An answer that was lost, a wiped controller: the living process is told what it has to replace."""
    fleet = Fleet().serving()
    command = replace(fleet.registration(2, incarnation="i2.2"), replaces=None)
    refused = fleet.want(fleet.do(command), Refused)

    fleet.want(fleet.do(replace(command, replaces=refused.registered)), Registered)

    assert judged(fleet) is Intactness.SAME_BOOT
