"""What the core says afterwards: grades, history, explanations, views, snapshots, previews, and apply's own rules."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from controller.contract.codes import RefusalCode
from controller.contract.commands import (
    ApplyBrokerId,
    Barrier,
    CleanMark,
    CleanReplicas,
    Command,
    DetectionStamps,
    ElectMaster,
    ElectUnclean,
    EventRef,
    Evidence,
    InitialiseFleet,
    MarkAlive,
    Milestone,
    Phase,
    RaiseFeatureLevel,
    RecordMilestones,
    ReportEntered,
    SayGoodbye,
    SetConfiguration,
    SilenceCause,
    TakeLeadership,
)
from controller.contract.events import (
    AnyEvent,
    BrokerIdGranted,
    CommandRefused,
    EventRecord,
    FeatureLevelRaised,
    LeadershipTaken,
    LossGraded,
    MasterElected,
    MasterEntered,
)
from controller.contract.ids import (
    AckMode,
    BrokerId,
    ControllerName,
    FleetIncarnation,
    Incarnation,
    LogOffset,
    MasterEpoch,
    RegisterCode,
    ReplicaKind,
    SessionOrdinal,
    SetKey,
    SyncStateSetEpoch,
)
from controller.contract.replies import AnyReply, Condition, Done, Elected, IdGranted, Refused, Registered
from controller.contract.verdicts import ElectionKind, Grade, LossVerdict
from controller.contract.views import Freshness
from controller.core import apply as apply_module
from controller.core.apply import apply_operations
from controller.core.decide import decide
from controller.core.election import elect, elect_again
from controller.core.evolve import evolve
from controller.core.explain import checked_rules, explain
from controller.core.fleet import evolve_fleet
from controller.core.history import history_of
from controller.core.invariants import check_state, check_transition
from controller.core.policies import UNCLEAN
from controller.core.preview import preview
from controller.core.snapshot import decode_state, encode_state
from controller.core.state import EMPTY_FLEET, REPLICAS_PER_SET_MAX, REQUEST_WINDOW_ENTRIES, SetState
from controller.core.views import condition_of, view_of
from tests.support.core_builders import SET_A, SET_B, Fleet, ids, positions, stored

FRESH = Freshness(read_from=ControllerName("c1"), term=1, index=1, age_ms=0, is_authoritative=True, is_stale=False)
TIMEOUT = DetectionStamps(
    cause=SilenceCause.TIMEOUT, last_heartbeat_age_us=3_100_000, session_closed_age_us=50_000, detected_age_us=400
)


def code_of(reply: AnyReply) -> RefusalCode | None:
    """The code of a refusal."""
    return reply.code if isinstance(reply, Refused) else None


def failed_over(
    *, released: int | None = 90, start: int = 100, acked: int = 100, ack_mode: AckMode = AckMode.ALL
) -> Fleet:
    """Replica 1 was master and is gone; replica 2 has entered epoch 2."""
    fleet = Fleet().serving(configuration=SetConfiguration(expected_replicas=3, ack_mode=ack_mode))
    fleet.silence(1)
    ends = {2: positions(start), 3: positions(10)}
    evidence = fleet.evidence(
        ends if released is None else {**ends, 1: positions(100, released=released)}, detection=TIMEOUT
    )
    if released is None:
        evidence = replace(evidence, replicas=tuple(r for r in evidence.replicas if r.broker_id != 1))
    fleet.elect(evidence=evidence)
    fleet.enter(start, acked=acked)
    return fleet


def last_election(fleet: Fleet) -> tuple[EventRecord, MasterElected]:
    """The newest election on record."""
    for record in reversed(fleet.records):
        if isinstance(record.event, MasterElected):
            return record, record.event
    raise AssertionError("no election on record")


def grade(fleet: Fleet) -> LossVerdict:
    """The grade of the last entry."""
    return fleet.event(LossGraded).verdict


def truncated(epoch: int, broker_id: int, cut: tuple[int, int] | None, released: int | None = None) -> Milestone:
    """An old master returned and was cut."""
    return Milestone(
        master_epoch=MasterEpoch(epoch),
        phase=Phase.TRUNCATED,
        elapsed_us=1,
        broker_id=BrokerId(broker_id),
        cut_from=None if cut is None else LogOffset(cut[0]),
        cut_to=None if cut is None else LogOffset(cut[1]),
        released=None if released is None else LogOffset(released),
    )


# --- grades ----------------------------------------------------------------------------------------------------------


def test_a_clean_failover_in_mode_all_is_proven() -> None:
    """Facts 1-3 are complete; fact 4 is not needed."""
    for released in (90, None):
        verdict = grade(failed_over(released=released))

        assert (verdict.grade, verdict.bound_bytes, verdict.missing) == (Grade.PROVEN, 0, ())
        assert "ack mode all" in verdict.facts


def test_a_first_election_has_nothing_to_lose() -> None:
    """Every log was empty."""
    fleet = Fleet().joined(1, 2, 3)
    fleet.elect()
    fleet.enter()

    assert grade(fleet).grade is Grade.PROVEN


def test_weak_modes_are_never_proven() -> None:
    """Without an enforced bound nothing is bounded either."""
    for mode in (AckMode.N, AckMode.ASYNC):
        verdict = grade(failed_over(ack_mode=mode, released=500))

        assert (verdict.grade, verdict.bound_bytes) == (Grade.UNKNOWN, None)
        assert mode.value in verdict.missing[0]


def test_an_unconfirmed_mode_is_unknown() -> None:
    """Fact 1 comes from the old master, replicated when it entered."""
    fleet = Fleet().joined(1, 2, 3)
    fleet.elect(to=1)
    fleet.enter(is_mode_confirmed=False)
    fleet.silence(1)
    fleet.elect()
    fleet.enter()

    assert grade(fleet).missing == ("the last master did not confirm the ack mode",)


def test_unclean_suspect_restored_java_and_bootstrap_are_unknown() -> None:
    """Each names what is missing."""
    unclean = Fleet().serving()
    unclean.do(unclean.alter(1))
    unclean.silence(1)
    unclean.elect_unclean(0)
    unclean.enter()
    suspect = Fleet().serving(replicas=(1,), configuration=SetConfiguration())
    suspect.do(suspect.registration(1, incarnation="i1.2", boot="boot-2"))
    suspect.elect_unclean(0)
    suspect.enter()
    restored = Fleet()
    restored.do(restored.registration(1, holds=positions(5, epoch=3), view=stored(3, 1, 1)))
    restored.elect()
    restored.enter()
    boot = Fleet()
    boot.grant("code-1")
    boot.do(boot.registration(1, holds=positions(5)))
    boot.bootstrap(1)
    boot.enter()
    java = Fleet()
    for broker_id in (1, 2):
        java.grant(f"code-{broker_id}")
        java.do(
            java.registration(broker_id, kind=ReplicaKind.ROCKETMQ, configuration=SetConfiguration(expected_replicas=2))
        )
    java.elect()
    java.enter()
    java.do(java.alter(1, 2))
    java.silence(1)
    java.elect()
    java.enter()
    for fleet, word in (
        (unclean, "unclean election"),
        (suspect, "suspect"),
        (restored, "stored views"),
        (boot, "bootstrapped"),
        (java, "Java"),
    ):
        verdict = grade(fleet)
        assert verdict.grade is Grade.UNKNOWN
        assert any(word in missing for missing in verdict.missing), verdict


def test_a_start_below_what_was_released_refutes() -> None:
    """In mode all: acknowledged up to 150, the epoch starts at 100."""
    verdict = grade(failed_over(released=150))

    assert (verdict.grade, verdict.bound_bytes) == (Grade.REFUTED, 50)


def test_a_winner_that_acked_beyond_its_own_end_is_not_proven() -> None:
    """It lost what it had acked."""
    assert grade(failed_over(acked=101)).grade is Grade.UNKNOWN


def test_what_a_never_entered_reign_leaves_unproven_is_inherited() -> None:
    """Unclean, never entered; the clean election on top of it proves nothing about what was lost before."""
    fleet = Fleet().serving()
    fleet.do(fleet.alter(1))
    fleet.silence(1)
    fleet.elect_unclean(0, to=2)
    fleet.elect(epoch=2)
    fleet.enter()

    assert any("epoch 2 was never entered" in missing for missing in grade(fleet).missing)


def test_a_first_reign_that_was_never_entered_leaves_nothing() -> None:
    """But the mode was not confirmed by anybody."""
    fleet = Fleet().joined(1, 2, 3)
    fleet.elect()
    fleet.silence(1)
    fleet.elect()
    fleet.enter()

    assert grade(fleet).missing == ("the last master did not confirm the ack mode",)


def test_an_old_master_that_returns_fills_in_what_was_cut() -> None:
    """Cut bytes above what was released were never acknowledged: still proven. Said once."""
    fleet = failed_over()
    fleet.milestones(truncated(2, 1, (100, 130), released=90))

    assert (grade(fleet).grade, grade(fleet).cut_bytes) == (Grade.PROVEN, 30)

    fleet.milestones(truncated(2, 1, (0, 130), released=90))
    assert not [event for event in fleet.events if isinstance(event, LossGraded)]


def test_an_old_master_that_returns_without_a_cut_says_so() -> None:
    """Zero bytes is an answer; unknown is another one."""
    fleet = failed_over()
    fleet.milestones(truncated(2, 1, None))

    assert grade(fleet).cut_bytes == 0


def test_a_cut_below_what_was_released_refutes_the_proof() -> None:
    """By the returning master's own word, else by what the evidence said."""
    for released in (120, None):
        fleet = failed_over(released=95)
        fleet.milestones(truncated(2, 1, (80, 130), released=released))

        assert grade(fleet).grade is Grade.REFUTED
        assert grade(fleet).bound_bytes == (released or 95) - 80


def test_the_cut_of_a_mere_slave_grades_nothing() -> None:
    """Only who was deposed can refute."""
    fleet = failed_over()
    fleet.milestones(truncated(2, 3, (80, 130), released=120))

    assert not [event for event in fleet.events if isinstance(event, LossGraded)]


def test_milestones_that_cannot_be_are_refused() -> None:
    """None, too many, a future epoch, an unknown replica, an unknown set."""
    fleet = Fleet().serving()
    one = truncated(1, 1, None)
    assert code_of(fleet.milestones()) is RefusalCode.INVALID_ARGUMENT
    assert code_of(fleet.milestones(*[one] * 257)) is RefusalCode.INVALID_ARGUMENT
    assert code_of(fleet.milestones(truncated(2, 1, None))) is RefusalCode.FENCED_MASTER_EPOCH
    assert code_of(fleet.milestones(truncated(1, 9, None))) is RefusalCode.UNKNOWN_REPLICA
    assert code_of(fleet.do(RecordMilestones(set_key=SET_B, milestones=(one,)))) is RefusalCode.SET_NOT_FOUND


def test_entering_is_for_the_elected_incarnation_only() -> None:
    """Epoch, id, incarnation, set; and a start below 0 is nonsense."""
    fleet = Fleet().joined(1, 2, 3)
    fleet.elect()
    good = ReportEntered(
        set_key=SET_A,
        broker_id=BrokerId(1),
        incarnation=Incarnation("i1.1"),
        master_epoch=MasterEpoch(1),
        start_offset=LogOffset(0),
        acked_end_max=LogOffset(0),
    )
    for bad, code in (
        (replace(good, set_key=SET_B), RefusalCode.SET_NOT_FOUND),
        (replace(good, master_epoch=MasterEpoch(2)), RefusalCode.FENCED_MASTER_EPOCH),
        (replace(good, broker_id=BrokerId(2)), RefusalCode.INVALID_MASTER),
        (replace(good, incarnation=Incarnation("i1.2")), RefusalCode.FENCED_INCARNATION),
        (replace(good, start_offset=LogOffset(-1)), RefusalCode.INVALID_REQUEST),
    ):
        assert code_of(fleet.do(bad)) is code
    assert isinstance(fleet.do(good), Done)


# --- history and explanations ----------------------------------------------------------------------------------------


def reported(phase: Phase, elapsed_us: int, *, by_leader: bool = False, observed_us: int | None = None) -> Milestone:
    """A milestone of epoch 2."""
    return Milestone(
        master_epoch=MasterEpoch(2),
        phase=phase,
        elapsed_us=elapsed_us,
        broker_id=None if by_leader else BrokerId(2),
        incarnation=None if by_leader else Incarnation("i2.1"),
        observed_us=observed_us,
    )


def test_phases_chain_on_their_clocks_and_the_rest_is_unattributed() -> None:
    """S79: oldest stamp -> detected -> proposed -> committed -> notified | push -> promised -> role -> serving -> first ack."""
    fleet = failed_over()
    fleet.milestones(
        reported(Phase.COMMITTED, 9_000, by_leader=True),
        reported(Phase.NOTIFIED, 9_500, by_leader=True),
        reported(Phase.PROMISED, 2_000),
        reported(Phase.ROLE_APPLIED, 5_000),
        reported(Phase.SERVING, 6_000),
        reported(Phase.FIRST_ACK, 50_000, observed_us=3_170_000),
        reported(Phase.FIRST_ACK, 90_000, observed_us=9_999_999),
    )

    row = history_of(fleet.records)[0]

    assert [(span.phase, span.duration_us) for span in row.phases] == [
        (Phase.DETECTED, 3_099_600),
        (Phase.PROPOSED, 400),
        (Phase.COMMITTED, 9_000),
        (Phase.NOTIFIED, 500),
        (Phase.PROMISED, 2_000),
        (Phase.ROLE_APPLIED, 3_000),
        (Phase.SERVING, 1_000),
        (Phase.FIRST_ACK, 44_000),
    ]
    assert row.total_us == 3_170_000
    assert row.unattributed_us == 3_170_000 - 3_159_500
    assert (row.missing, row.cause, row.grade, row.loss_bytes) == ((), "no heartbeat for 3.1 s", Grade.PROVEN, 0)
    assert (row.from_master, row.to_master, row.kind) == (1, 2, ElectionKind.FAILOVER)


def test_stamps_that_are_missing_or_run_backwards_are_named_not_guessed() -> None:
    """A milestone of another incarnation is not the winner's either."""
    fleet = failed_over()
    fleet.milestones(
        reported(Phase.PROMISED, 5_000),
        reported(Phase.ROLE_APPLIED, 4_000),
        replace(reported(Phase.SERVING, 6_000), incarnation=Incarnation("i2.0")),
    )

    row = history_of(fleet.records)[0]

    assert row.missing == (Phase.COMMITTED, Phase.NOTIFIED, Phase.ROLE_APPLIED, Phase.SERVING, Phase.FIRST_ACK)
    assert (row.total_us, row.unattributed_us) == (None, None)


def test_history_names_causes_and_is_newest_first() -> None:
    """Every kind of silence, a request, and a failover without stamps."""
    causes = []
    for detection in (
        replace(TIMEOUT, last_heartbeat_age_us=None),
        replace(TIMEOUT, cause=SilenceCause.DEAD_AT_ONCE),
        replace(TIMEOUT, cause=SilenceCause.REPLACED),
        replace(TIMEOUT, cause=SilenceCause.GOODBYE),
        None,
    ):
        fleet = Fleet().serving()
        fleet.silence(1)
        fleet.elect(evidence=fleet.evidence(detection=detection))
        row = history_of(fleet.records)[0]
        causes.append(row.cause)
        assert (Phase.DETECTED in row.missing) is (detection is None)
        assert (row.grade, row.loss_bytes, row.cut_bytes) == (None, None, None)
    assert causes == [
        "no heartbeat in time",
        "session closed, probe refused, HA link closed",
        "restarted as a new incarnation",
        "stopped cleanly",
        "failover",
    ]
    fleet.elect(to=3)
    rows = history_of([*fleet.records, *fleet.records])
    assert [(row.master_epoch, row.cause) for row in rows] == [(3, "requested"), (2, "failover"), (1, "requested")] or [
        row.master_epoch for row in rows
    ] == [3, 2, 1]


def test_loss_in_history_follows_the_grade() -> None:
    """Unknown is no number; refuted is one."""
    assert history_of(failed_over(released=150).records)[0].loss_bytes == 50
    assert history_of(failed_over(ack_mode=AckMode.N).records)[0].loss_bytes is None


def test_an_explanation_holds_the_trigger_the_rules_and_the_correction() -> None:
    """From the event that triggered it to the grade that was corrected epochs later."""
    fleet = Fleet().serving()
    fleet.silence(1)
    trigger = fleet.last.records[0].ref
    fleet.elect(evidence=replace(fleet.evidence({1: positions(9, released=9), 2: positions(9)}), triggered_by=trigger))
    fleet.enter(9)
    fleet.elect(to=3)
    fleet.enter(9)
    fleet.milestones(truncated(2, 1, None))

    told = explain(fleet.records, master_epoch=MasterEpoch(2), freshness=FRESH)

    assert told is not None
    assert told.events[0].ref == trigger
    assert told.loss is not None
    assert told.loss.cut_bytes == 0
    assert told.election.event == next(r.event for r in told.events if r.ref == told.row.event)
    assert all(line.startswith(("holds", "proven")) for line in told.invariants), told.invariants
    assert any("elected again from the stored evidence by preference-first@1: replica 2" in t for t in told.invariants)
    assert explain(fleet.records, master_epoch=MasterEpoch(77), freshness=FRESH) is None


def test_an_explanation_says_what_does_not_hold() -> None:
    """A doctored record: outcome that the evidence does not give, evidence of another epoch, an unknown policy."""
    fleet = failed_over()
    record, event = last_election(fleet)
    doctored = replace(
        event,
        evidence=replace(event.evidence, master_epoch=MasterEpoch(7)),
        verdict=replace(event.verdict, winner=BrokerId(3)),
    )
    unknown = replace(event, verdict=replace(event.verdict, policy="other@9"))

    broken = [t for t in checked_rules([replace(record, event=doctored)]) if t.startswith("BROKEN")]

    assert [text.split()[1] for text in broken] == ["C4", "R14", "S68"]
    assert "not repeated: policy other@9 is not known here" in checked_rules([replace(record, event=unknown)])


# --- views -----------------------------------------------------------------------------------------------------------


def test_conditions_say_why() -> None:
    """Each state of a set has a condition and words."""
    fleet = Fleet()
    fleet.grant("code-1")
    assert condition_of(fleet.set) == (Condition.WAITING_FOR_REPLICAS, "0 of 1 expected replicas have registered")
    assert view_of(fleet.state, SET_B) is None
    fleet = Fleet().serving()
    fleet.silence(1)
    assert condition_of(fleet.set)[0] is Condition.MASTER_SILENT
    fleet.silence(2)
    fleet.silence(3)
    condition, reason = condition_of(fleet.set)
    assert condition is Condition.NO_ELIGIBLE_REPLICA
    assert reason == "in SyncStateSet: 1 is silent (timeout); 2 is silent (timeout); 3 is silent (timeout)"
    fleet.clean(is_unclean=True)
    assert condition_of(fleet.set)[0] is Condition.CLEANED
    view = view_of(fleet.state, SET_A)
    assert view is not None
    assert (view.index, view.members) == (fleet.index, ())


# --- ids, registration, liveness, cleaning ---------------------------------------------------------------------------


def test_s62_s63_c6_an_id_belongs_to_one_register_code_for_ever() -> None:
    """A repeat gets the same id, the next one the next, a free one far above is refused."""
    fleet = Fleet()
    assert fleet.grant("a") == IdGranted(broker_id=BrokerId(1))
    assert fleet.grant("a") == IdGranted(broker_id=BrokerId(1))
    assert fleet.grant("b", applied=2) == IdGranted(broker_id=BrokerId(2))
    assert fleet.grant("b", applied=2) == IdGranted(broker_id=BrokerId(2))
    assert code_of(fleet.grant("b", applied=1)) is RefusalCode.BROKER_ID_INVALID
    assert code_of(fleet.grant("c", applied=7)) is RefusalCode.BROKER_ID_INVALID
    assert code_of(fleet.grant("")) is RefusalCode.INVALID_ARGUMENT


def test_a_set_has_a_limit_of_ids() -> None:
    """The limit is named; cleaning makes room."""
    fleet = Fleet()
    fleet.apply(
        [
            fleet.operation(ApplyBrokerId(set_key=SET_A, register_code=RegisterCode(f"x{n}"), address=""))
            for n in range(REPLICAS_PER_SET_MAX)
        ]
    )
    assert code_of(fleet.grant("more")) is RefusalCode.INVALID_REQUEST
    late = fleet.registration(99, code="late", view=stored(3, 1, 99), holds=positions(1))
    assert code_of(fleet.do(late)) is RefusalCode.BROKER_ID_INVALID


def test_malformed_registrations_are_refused() -> None:
    """Empty names, ids and ends below their range, a configuration that cannot be met, too many names."""
    fleet = Fleet()
    fleet.grant("code-1")
    good = fleet.registration(1)
    for bad in (
        replace(good, incarnation=Incarnation("")),
        replace(good, broker_id=BrokerId(0)),
        replace(good, positions=positions(-1)),
        replace(good, configuration=SetConfiguration(expected_replicas=2, min_in_sync=3)),
        replace(good, stored=stored(1, 1, *range(1, 70))),
    ):
        assert code_of(fleet.do(bad)) is RefusalCode.INVALID_ARGUMENT
    assert code_of(fleet.do(replace(good, register_code=RegisterCode("other")))) is RefusalCode.BROKER_ID_INVALID
    assert code_of(fleet.do(fleet.registration(2))) is RefusalCode.NEED_TO_BE_REGISTERED
    same_code = fleet.registration(5, code="code-1", view=stored(3, 1, 5))
    assert code_of(fleet.do(same_code)) is RefusalCode.BROKER_ID_INVALID


def test_s78_a_cleaned_set_keeps_its_epochs_and_gives_fresh_ids() -> None:
    """Ids go on, epochs lie above the old ones, the old id is refused."""
    fleet = Fleet().serving()
    for broker_id in (1, 2, 3):
        fleet.goodbye(broker_id)
    assert isinstance(fleet.clean(), Done)
    assert fleet.set.is_tombstone
    assert code_of(fleet.clean()) is RefusalCode.TOMBSTONED
    assert code_of(fleet.elect(evidence=Fleet().joined(1).evidence())) is RefusalCode.TOMBSTONED
    assert code_of(fleet.do(fleet.registration(1))) is RefusalCode.TOMBSTONED

    assert fleet.grant("code-1") == IdGranted(broker_id=BrokerId(4))
    fleet.do(fleet.registration(4, code="code-1", configuration=SetConfiguration()))
    elected = fleet.want(fleet.elect(), Elected)

    assert elected.verdict.master_epoch == 3
    assert elected.verdict.sync_state_set_epoch > 2


def test_a_cleaned_id_is_not_admitted_again_by_a_foreign_view() -> None:
    """Its sessions would count from 1 again, and a late report of the old ones would be taken for the new one's."""
    fleet = Fleet().serving()
    fleet.silence(3)
    fleet.clean(3)

    late = fleet.do(fleet.registration(3, incarnation="i3.2", view=stored(1, 1, 3)))

    assert code_of(late) is RefusalCode.TOMBSTONED


def test_cleaning_is_careful_without_the_unclean_word() -> None:
    """A living replica, the rest of the set, somebody unknown, a set that does not exist."""
    fleet = Fleet().serving()
    fleet.do(fleet.alter(1, 2))
    assert code_of(fleet.clean(3)) is RefusalCode.INVALID_CLEAN
    assert code_of(fleet.clean(9)) is RefusalCode.UNKNOWN_REPLICA
    assert code_of(fleet.do(CleanReplicas(set_key=SET_B))) is RefusalCode.SET_NOT_FOUND
    fleet.silence(3)
    before = fleet.set
    assert isinstance(fleet.clean(3), Done)
    assert (fleet.set.master, fleet.set.master_epoch) == (1, before.master_epoch)
    assert fleet.set.sync_state_set_epoch == before.sync_state_set_epoch + 1
    fleet.do(fleet.alter(1, seq=2))
    fleet.goodbye(1)
    assert code_of(fleet.clean(1)) is RefusalCode.INVALID_CLEAN
    assert isinstance(fleet.clean(1, is_unclean=True), Done)
    assert (fleet.set.sync_state_set, fleet.set.is_established) == ((), False)


def test_s13_an_alter_on_its_way_misses_after_a_member_was_cleaned() -> None:
    """ABA: the set looks the same to the master, its epoch does not."""
    fleet = Fleet().serving()
    late = fleet.alter(1, 2)
    fleet.silence(3)
    fleet.clean(3)

    fleet.do(late)

    assert fleet.set.sync_state_set == ids(1, 2)
    assert fleet.set.last_alter is not None
    assert fleet.set.last_alter.verdict.refusal is RefusalCode.FENCED_SYNC_STATE_SET_EPOCH


def test_liveness_transitions_apply_once() -> None:
    """A repeat is answered and not recorded; after a goodbye only a registration brings it back."""
    fleet = Fleet().serving()
    assert isinstance(fleet.revive(2), Done)
    assert fleet.events == []
    fleet.silence(2)
    fleet.silence(2)
    assert fleet.events == []
    mark = fleet.goodbye(2)
    fleet.goodbye(2)
    assert fleet.events == []
    assert code_of(fleet.revive(2)) is RefusalCode.FENCED_SESSION
    assert mark == fleet.replica(2).goodbye
    reply = fleet.want(fleet.do(fleet.registration(2)), Registered)
    assert (reply.session_ordinal, fleet.replica(2).goodbye) == (2, None)
    nobody = MarkAlive(
        set_key=SET_A, broker_id=BrokerId(9), incarnation=Incarnation("x"), session_ordinal=SessionOrdinal(1)
    )
    assert code_of(fleet.do(nobody)) is RefusalCode.UNKNOWN_REPLICA
    blank = SayGoodbye(
        set_key=SET_A,
        broker_id=BrokerId(2),
        incarnation=Incarnation("i2.1"),
        session_ordinal=SessionOrdinal(2),
        clean_mark=CleanMark(nonce="", end_offset=LogOffset(0)),
    )
    assert code_of(fleet.do(blank)) is RefusalCode.INVALID_ARGUMENT
    stale = replace(blank, session_ordinal=SessionOrdinal(1))
    assert code_of(fleet.do(stale)) is RefusalCode.FENCED_SESSION


# --- elections, previews ---------------------------------------------------------------------------------------------


def test_s47_ties_are_decided_by_zone_priority_data_then_id() -> None:
    """And the reason names the part that decided, with both values."""
    fleet = Fleet()
    for broker_id, zone, priority in ((1, "a", 10), (2, "b", 5), (3, "a", 20), (4, "a", 20)):
        fleet.grant(f"code-{broker_id}")
        fleet.do(fleet.registration(broker_id, zone=zone, priority=priority))
    fleet.elect(to=1)
    fleet.silence(1)

    elected = fleet.want(fleet.elect(evidence=fleet.evidence({3: positions(10), 4: positions(10)})), Elected)

    assert {c.broker_id: c.reason for c in elected.verdict.candidates} == {
        3: "in SyncStateSet, alive, equal otherwise, smallest id: 3 before 4",
        4: "in SyncStateSet, alive; replica 3 is before it: equal otherwise, smallest id: 3 before 4",
        2: "in SyncStateSet, alive; replica 3 is before it: in zone 'a' of the last master, before 'b'",
        1: "silent (timeout)",
    }
    assert elect_again(elected.verdict) is not None


def test_s46_who_is_not_ready_or_not_heard_is_not_elected() -> None:
    """With the reason."""
    fleet = Fleet().serving()
    fleet.silence(1)
    evidence = fleet.evidence(unready=(2,))
    reply = fleet.want(fleet.elect(to=2, evidence=evidence), Refused)
    assert reply.code is RefusalCode.NOT_ELIGIBLE
    assert "not ready" in reply.reason
    elected = fleet.want(fleet.elect(evidence=fleet.evidence(unheard=(2,))), Elected)
    assert (elected.verdict.winner, elected.verdict.candidates[-1].reason) == (
        3,
        "not heard by the leading controller yet",
    )


def test_s69_expectations_are_checked_first() -> None:
    """--expect-master and --expect-epoch."""
    fleet = Fleet().serving()
    assert code_of(fleet.elect(to=2, master=3)) is RefusalCode.EXPECTATION_FAILED
    assert code_of(fleet.elect(to=2, epoch=7)) is RefusalCode.EXPECTATION_FAILED
    assert code_of(fleet.elect(to=9)) is RefusalCode.UNKNOWN_REPLICA
    assert code_of(fleet.elect(to=1)) is RefusalCode.MASTER_STILL_EXISTS
    command = ElectMaster(set_key=SET_B)
    assert code_of(fleet.do(command, evidence=fleet.evidence())) is RefusalCode.SET_NOT_FOUND


def test_s72_unclean_needs_the_stated_loss_to_be_accepted() -> None:
    """Known confirm 1000, the winner ends at 800."""
    fleet = Fleet().serving()
    fleet.do(fleet.alter(1))
    fleet.silence(1)
    evidence = fleet.evidence({1: positions(1200, confirm=1000), 2: positions(800), 3: positions(700)})

    refused = fleet.want(fleet.elect_unclean(199, evidence=evidence), Refused)
    assert (refused.code, refused.current) == (RefusalCode.NOT_CONFIRMED, "200")
    elected = fleet.want(fleet.elect_unclean(200, evidence=evidence), Elected)

    assert (elected.verdict.kind, elected.verdict.estimated_loss_bytes) == (ElectionKind.UNCLEAN, 200)
    assert fleet.set.sync_state_set == ids(2)


def test_the_unclean_verb_stays_clean_if_it_can() -> None:
    """A member that is intact goes first; nothing is lost; a set without a past is bootstrapped instead."""
    fleet = Fleet().serving()
    fleet.silence(1)
    elected = fleet.want(fleet.elect_unclean(0), Elected)
    assert (elected.verdict.kind, fleet.set.sync_state_set) == (ElectionKind.FAILOVER, ids(2, 3))
    fleet.silence(3)
    late = fleet.operation(replace(_unclean(), expected_epoch=fleet.set.master_epoch), evidence=fleet.evidence())
    assert isinstance(fleet.apply([late]).replies[0], Elected)
    young = Fleet().joined(1)
    assert code_of(young.elect_unclean(0)) is RefusalCode.INVALID_REQUEST
    dead = Fleet().serving()
    for broker_id in (1, 2, 3):
        dead.silence(broker_id)
    assert code_of(dead.elect_unclean(10**9)) is RefusalCode.NO_ELIGIBLE_REPLICA


def _unclean() -> ElectUnclean:
    return ElectUnclean(set_key=SET_A, accepted_loss_bytes=0)


def test_s68_a_preview_assumes_that_the_living_master_is_lost() -> None:
    """Nothing changes; the master is excluded with that reason; the set is the one after its loss."""
    fleet = Fleet().serving()
    before = list(encode_state(fleet.state))
    for command in (ElectMaster(set_key=SET_A), _unclean()):
        reply = fleet.want(preview(fleet.state, fleet.operation(command, evidence=fleet.evidence())), Elected)

        assert reply.verdict.winner == 2
        assert reply.verdict.sync_state_set == ids(2, 3)
        assert reply.verdict.candidates[-1].reason == "current master (preview assumes it is lost)"
        assert reply.view.master == 1
    assert list(encode_state(fleet.state)) == before
    designated = fleet.operation(ElectMaster(set_key=SET_A, designated=BrokerId(1)), evidence=fleet.evidence())
    assert code_of(preview(fleet.state, designated)) is RefusalCode.MASTER_STILL_EXISTS
    assert isinstance(preview(fleet.state, fleet.operation(Barrier())), Done)
    new = fleet.registration(1)
    assert isinstance(preview(fleet.state, fleet.operation(new)), Registered)


# --- apply and the fleet ---------------------------------------------------------------------------------------------


def test_fleet_commands() -> None:
    """Incarnation fixed once, leadership on record, barriers silent, the level never falls."""
    fleet = Fleet(is_initialised=False)
    assert code_of(fleet.grant()) is RefusalCode.INVALID_REQUEST
    assert code_of(fleet.do(InitialiseFleet(fleet_incarnation=FleetIncarnation("")))) is RefusalCode.INVALID_ARGUMENT
    one = InitialiseFleet(fleet_incarnation=FleetIncarnation("1" * 32))
    assert isinstance(fleet.do(one), Done)
    assert isinstance(fleet.do(one), Done)
    assert fleet.events == []
    assert code_of(fleet.do(InitialiseFleet(fleet_incarnation=FleetIncarnation("2" * 32)))) is RefusalCode.WRONG_FLEET
    fleet.do(TakeLeadership(controller=ControllerName("c1"), term=4))
    assert isinstance(fleet.events[0], LeadershipTaken)
    assert code_of(fleet.do(TakeLeadership(controller=ControllerName(""), term=4))) is RefusalCode.INVALID_ARGUMENT
    assert isinstance(fleet.do(Barrier()), Done)
    assert fleet.events == []
    assert isinstance(fleet.do(RaiseFeatureLevel(level=1)), Done)
    assert fleet.events == []
    assert evolve_fleet(fleet.state, FeatureLevelRaised(level=3)).feature_level == 3


def test_r15_raising_the_level_above_ones_own_stops_the_node() -> None:
    """And an operation above the fleet's level, but not above the node's, is refused."""
    fleet = Fleet()
    stop = apply_operations(fleet.state, [fleet.operation(RaiseFeatureLevel(level=2))], term=1, index=9)
    assert stop.stop_reason is not None
    low = replace(fleet.state, feature_level=0)
    applied = apply_operations(low, [fleet.operation(Barrier())], term=1, index=9)
    assert code_of(applied.replies[0]) is RefusalCode.FEATURE_LEVEL


def test_request_ids_are_deduplicated_within_a_bounded_window() -> None:
    """Same id, other content: refused. Too long or not ASCII: refused. The window is bounded."""
    fleet = Fleet()
    ask = ApplyBrokerId(set_key=SET_A, register_code=RegisterCode("a"), address="x")
    first = fleet.do(ask, request_id="q")
    assert fleet.do(ask, request_id="q") == first
    other = fleet.do(replace(ask, register_code=RegisterCode("b")), request_id="q")
    assert code_of(other) is RefusalCode.INVALID_REQUEST
    for bad in ("x" * 65, "ü"):
        assert code_of(fleet.do(ask, request_id=bad)) is RefusalCode.INVALID_ARGUMENT
    fleet.apply([fleet.operation(ask) for _ in range(REQUEST_WINDOW_ENTRIES + 10)])
    assert len(fleet.state.requests) == REQUEST_WINDOW_ENTRIES
    assert "q" not in fleet.state.requests


def test_entry_time_never_falls() -> None:
    """R14: a leader with a clock behind stamps the newest time that is known."""
    fleet = Fleet()
    fleet.apply([fleet.operation(TakeLeadership(controller=ControllerName("c1"), term=1), stamped_at_ms=9_000_000)])
    fleet.apply([fleet.operation(TakeLeadership(controller=ControllerName("c2"), term=2), stamped_at_ms=5)])

    assert fleet.last.records[0].stamped_at_ms == 9_000_000


def test_s55_a_fault_of_ours_becomes_a_refusal_on_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other items of the entry apply; what may differ between nodes stops this one instead."""
    real = decide

    def faulty(fleet: object, operation: object) -> object:
        if operation.request_id == "bad":  # type: ignore[attr-defined]
            raise ZeroDivisionError
        if operation.request_id == "huge":  # type: ignore[attr-defined]
            raise MemoryError
        return real(fleet, operation)  # type: ignore[arg-type]

    monkeypatch.setattr(apply_module, "decide", faulty)
    fleet = Fleet()
    ask = ApplyBrokerId(set_key=SET_A, register_code=RegisterCode("a"), address="x")

    applied = fleet.apply([fleet.operation(ask, request_id="bad"), fleet.operation(ask, request_id="good")])

    assert code_of(applied.replies[0]) is RefusalCode.INVALID_REQUEST
    assert isinstance(applied.records[0].event, CommandRefused)
    assert applied.records[0].event.reason == "internal fault: ZeroDivisionError"
    assert isinstance(applied.replies[1], IdGranted)
    stopped = apply_operations(fleet.state, [fleet.operation(ask, request_id="huge")], term=1, index=50)
    assert stopped.stop_reason is not None
    assert stopped.state is fleet.state


def test_an_empty_entry_moves_the_index_only() -> None:
    """No operations, no events."""
    applied = apply_operations(EMPTY_FLEET, [], term=3, index=7)

    assert (applied.state.term, applied.state.index, applied.records, applied.replies) == (3, 7, (), ())


def test_a_snapshot_that_is_damaged_or_too_new_is_refused() -> None:
    """R15: with words that say what to do."""
    items = list(encode_state(Fleet().serving().state))
    for bad, words in (
        ([], "cannot be read"),
        ([b"{"], "cannot be read"),
        (items[1:], "does not begin with its header"),
        ([items[0], items[0]], "two headers"),
        (items[:-1], "its header says"),
        ([items[0].replace(b'"featureLevel":1', b'"featureLevel":2'), *items[1:]], "upgrade"),
    ):
        with pytest.raises(ValueError, match=words):
            decode_state(bad)


# --- the invariants themselves ---------------------------------------------------------------------------------------


def test_the_invariants_notice_what_they_are_for() -> None:
    """A checker that cannot fail proves nothing: each doctored state is named."""
    fleet = Fleet().serving()
    good = fleet.set
    first = good.replicas[0]
    learner = replace(first, description=replace(fleet.registration(1).description, is_learner=True))
    for bad, words in (
        (replace(good, set_key=SET_B), "another key"),
        (replace(good, replicas=good.replicas[::-1]), "not sorted"),
        (replace(good, next_id=BrokerId(2)), "C6: next id"),
        (
            replace(
                good, replicas=(first, *[replace(r, register_code=first.register_code) for r in good.replicas[1:]])
            ),
            "share",
        ),
        (replace(good, sync_state_set=ids(1, 2, 9)), "C3: members"),
        (replace(good, master=BrokerId(7)), "C3: master"),
        (replace(good, bound_incarnations=good.bound_incarnations[:2]), "R3: bound"),
        (replace(good, replicas=(replace(first, incarnation=Incarnation("x")), *good.replicas[1:])), "registered is x"),
        (replace(good, replicas=(learner, *good.replicas[1:])), "R23"),
        (replace(good, replicas=(replace(first, is_suspect=True), *good.replicas[1:])), "suspect"),
        (replace(good, sync_state_set=(), bound_incarnations=(), master=None), "S08"),
        (replace(good, is_tombstone=True), "W29"),
    ):
        broken = check_state(replace(fleet.state, sets={SET_A: bad}))
        assert any(words in text for text in broken), (words, broken)
    window = dict.fromkeys(map(str, range(REQUEST_WINDOW_ENTRIES + 1)))
    assert "window" in check_state(replace(fleet.state, requests=window))[0]


def test_the_invariants_notice_transitions_that_cannot_be() -> None:
    """Falling epochs, two masters, a moved start, a lost set, a broken chain, a refusal that changes something."""
    fleet = Fleet().serving()
    old = replace(fleet.set, start_offset=LogOffset(5))
    before = replace(fleet.state, sets={SET_A: old})
    second = old.replicas[1]
    for changes, words in (
        ({"master_epoch": MasterEpoch(0)}, "C1: epochs fell"),
        ({"master_epoch": MasterEpoch(5)}, "without an election"),
        ({"sync_state_set": ids(1, 2)}, "within one SyncStateSetEpoch"),
        ({"master": BrokerId(2)}, "C2"),
        ({"start_offset": LogOffset(6)}, "R12"),
        ({"next_id": BrokerId(1)}, "C6: next id fell"),
        ({"replicas": (old.replicas[0], replace(second, register_code=RegisterCode("z")))}, "one register code"),
        ({"replicas": (replace(second, session_ordinal=SessionOrdinal(0)),)}, "S33"),
    ):
        broken = check_transition(before, replace(before, sets={SET_A: replace(old, **changes)}), [])
        assert any(words in text for text in broken), (words, broken)
        assert any("C10" in text for text in broken)
    assert "vanished" in check_transition(before, replace(before, sets={}), [])[0]
    assert "R14" in check_transition(before, replace(before, last_stamp_ms=0), [])[0]
    assert "chain head" in check_transition(before, replace(before, chain_head="x"), [])[0]
    other = replace(before, fleet_incarnation=FleetIncarnation("x"))
    assert "fleet incarnation" in check_transition(before, other, [])[0]
    lived = replace(old, replicas=(replace(second, ended_incarnations=(Incarnation("i2.1"),)),))
    assert any("R13" in t for t in check_transition(replace(before, sets={SET_A: lived}), before, []))
    tombstone = replace(old, replicas=(), is_tombstone=True, next_id=BrokerId(2))
    assert any("forgot" in t for t in check_transition(before, replace(before, sets={SET_A: tombstone}), []))


def test_the_invariants_notice_elections_that_cannot_be() -> None:
    """The event alone gives it away."""
    fleet = failed_over()
    record, event = last_election(fleet)
    verdict = event.verdict
    dead = tuple(replace(c, is_alive=False) for c in verdict.candidates)
    java = tuple(replace(c, kind=ReplicaKind.ROCKETMQ) for c in verdict.candidates)
    for bad, words in (
        (replace(event, master_epoch=MasterEpoch(9)), "C1: an election went"),
        (replace(event, sync_state_set_epoch=SyncStateSetEpoch(0)), "C1: an election left"),
        (replace(event, sync_state_set=ids(3)), "C3: elected"),
        (replace(event, verdict=replace(verdict, candidates=dead)), "C4: elected"),
        (replace(event, verdict=replace(verdict, previous_set=ids(3))), "C4: clean winner"),
        (replace(event, verdict=replace(verdict, candidates=java)), "C5"),
        (replace(event, sync_state_set=ids(2, 3, 9)), "R6: [9] entered"),
        (replace(event, verdict=replace(verdict, candidates=dead)), "R6: silent"),
    ):
        broken = check_transition(fleet.state, fleet.state, [replace(record, event=bad)])
        assert any(words in text for text in broken), (words, broken)


def test_evidence_of_an_event_ref_is_carried_through() -> None:
    """An election's event names the event that triggered it."""
    fleet = Fleet().serving()
    fleet.silence(1)
    ref = EventRef(term=1, index=2, ordinal=3)
    evidence: Evidence = replace(fleet.evidence(), triggered_by=ref)
    fleet.elect(evidence=evidence)

    assert last_election(fleet)[1].triggered_by == ref


# --- what cannot come from deciding, but may come to a pure function ---------------------------------------------------


def test_evolve_takes_events_of_strangers_and_repeats_as_no_change() -> None:
    """Total: an unknown replica, an id that is granted already, an election without evidence."""
    fleet = Fleet().serving()
    fleet.goodbye(2)
    fleet.do(fleet.registration(2, incarnation="i2.2"))
    fleet.silence(2)
    fleet.revive(2)
    fleet.do(fleet.registration(2, incarnation="i2.2"))
    blank = SetState(set_key=SET_A)
    events = [record.event for record in fleet.records]

    changed = [event for event in events if evolve(blank, event) is not blank]

    assert {type(event) for event in changed} <= {BrokerIdGranted, MasterElected, MasterEntered, LossGraded}
    again: AnyEvent = next(event for event in events if isinstance(event, BrokerIdGranted))
    assert evolve(fleet.set, again) is fleet.set
    bare = replace(last_election(fleet)[1], evidence=replace(fleet.evidence(), replicas=()))
    assert evolve(fleet.set, bare).known_confirm == fleet.set.known_confirm


def test_a_command_that_nobody_decides_is_a_fault_on_record() -> None:
    """A kind that was added and forgotten: a refusal, equal on every node."""

    class Forgotten(Command, tag="Forgotten"):
        set_key: SetKey = SET_A

    fleet = Fleet()
    forgotten: Any = Forgotten()

    assert code_of(fleet.do(forgotten)) is RefusalCode.INVALID_REQUEST
    assert fleet.event(CommandRefused).reason == "internal fault: TypeError"


def test_small_corners() -> None:
    """An alter on no set; unregistered members; who is no candidate; members without a proof in the unclean order."""
    fleet = Fleet().serving()
    assert code_of(fleet.do(replace(fleet.alter(1), set_key=SET_B))) is RefusalCode.SET_NOT_FOUND
    assert elect((), policy=UNCLEAN).reason_of(BrokerId(1)) == "not registered"
    suspect = Fleet().serving()
    suspect.do(suspect.alter(1))
    suspect.do(suspect.registration(1, incarnation="i1.2", boot="boot-2"))
    assert condition_of(suspect.set)[0] is Condition.NO_ELIGIBLE_REPLICA


def test_when_a_master_was_last_elected_survives_a_snapshot() -> None:
    """It was known only to a process that had applied the election: after a restart from a snapshot it was null."""
    fleet = Fleet().serving()
    (stamp,) = [record.stamped_at_ms for record in fleet.records if isinstance(record.event, MasterElected)]
    restarted = decode_state(encode_state(fleet.state))
    assert restarted.sets[SET_A].last_elected_at_ms == stamp
    fleet.silence(1)
    assert fleet.set.last_elected_at_ms == stamp, "only an election moves it"
    fleet.want(fleet.elect(), Elected)
    assert fleet.set.last_elected_at_ms == fleet.records[-1].stamped_at_ms
