"""
Mutants of the rules of alters: proposing one, deciding it, and whose acknowledgement counts meanwhile.

Here: the list. Not here: what a mutant is (``mutation``), running it (``mutants``).
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from rollcall_ha.controller.contract.ids import LogOffset
from rollcall_ha.controller.contract.replies import AlterDecided
from rollcall_ha.controller.core.decision import Decision
from tests.sim.mutation import Function, Mutation, changed, constant, instead


def _no_stored_verdict(original: Function) -> Function:
    def mutated(fleet: Any, command: Any) -> Any:
        state = fleet.sets.get(command.set_key)
        if state is None or state.last_alter is None:
            return original(fleet, command)
        forgetful = replace(fleet, sets={**fleet.sets, command.set_key: replace(state, last_alter=None)})
        decision = original(forgetful, command)
        answer = decision.answer
        if not isinstance(answer, AlterDecided) or answer.verdict.is_accepted:
            return decision
        blind = replace(answer.verdict, sync_state_set=(), sync_state_set_epoch=0)
        events = tuple(replace(event, verdict=blind) for event in decision.events)
        return Decision(answer=replace(answer, verdict=blind), events=events)

    return mutated


def _retry_with_other_content(original: Function) -> Function:
    def mutated(self: Any, now_ms: int) -> Any:
        outstanding = self._outstanding
        if outstanding is None or self._ended or now_ms - self._sent_at_ms < self.reign.timing.session_rpc_timeout_ms:
            return original(self, now_ms)
        self._outstanding = None
        self._seq -= 1
        outputs = original(self, now_ms)
        if self._outstanding is None:
            self._seq += 1
        return outputs

    return mutated


def _no_compare_and_set(original: Function) -> Function:
    def mutated(state: Any, command: Any) -> Any:
        return original(state, replace(command, sync_state_set_epoch=state.sync_state_set_epoch))

    return mutated


def _any_incarnation_joins(original: Function) -> Function:
    def mutated(fleet: Any, command: Any) -> Any:
        state = fleet.sets.get(command.set_key)

        def present(member: Any) -> Any:
            replica = state.replica(member.broker_id) if state is not None else None
            return member if replica is None else replace(member, incarnation=replica.incarnation)

        return original(fleet, replace(command, joining=tuple(map(present, command.joining))))

    return mutated


def _refusal_ends_the_union(_original: Function) -> Function:
    def mutated(self: Any, reason: str) -> Any:
        del reason
        self._outstanding = None
        return self._advance_confirm()

    return mutated


def _adopts_another_epoch(original: Function) -> Function:
    def mutated(self: Any, view: Any, now_ms: int) -> Any:
        reign = self.reign
        as_ours = replace(
            view, master_epoch=reign.master_epoch, master=reign.broker_id, master_incarnation=reign.incarnation
        )
        return original(self, as_ours, now_ms)

    return mutated


def _timeout_drops_the_proposal(original: Function) -> Function:
    def mutated(self: Any, now_ms: int) -> Any:
        outstanding = self._outstanding
        if outstanding is not None and now_ms - self._sent_at_ms >= self.reign.timing.session_rpc_timeout_ms:
            self._outstanding = None
            self._pause_until_ms = now_ms + self.reign.timing.session_rpc_timeout_ms
            return self._advance_confirm()
        return original(self, now_ms)

    return mutated


def _local_set_only(_original: Any) -> Any:
    return property(lambda self: self._local)


def _proposed_set_only(_original: Any) -> Any:
    return property(lambda self: self._outstanding.new_set if self._outstanding is not None else self._local)


def _join_in_two_steps(original: Function) -> Function:
    def mutated(self: Any, broker_id: Any, now_ms: int) -> bool:
        passed = self.__dict__.setdefault("_passed", {})
        is_fit = original(self, broker_id, now_ms)
        if is_fit and broker_id not in passed:
            passed[broker_id] = now_ms
            return False
        return broker_id in passed and passed.pop(broker_id) < now_ms

    return mutated


def _join_without_start(original: Function) -> Function:
    def mutated(self: Any, reign: Any, **named: Any) -> None:
        original(self, changed(reign, start_offset=LogOffset(0)), **named)

    return mutated


def _join_without_confirm(_original: Function) -> Function:
    def mutated(self: Any, broker_id: Any) -> bool:
        acked = self._table.acked(broker_id)
        return acked is not None and acked >= self.reign.start_offset

    return mutated


def _adopts_another_fleet(original: Function) -> Function:
    def mutated(self: Any, view: Any, now_ms: int) -> Any:
        return original(self, replace(view, fleet_incarnation=self.reign.fleet_incarnation), now_ms)

    return mutated


def _unknown_members_are_skipped(original: Function) -> Function:
    def mutated(own_end: Any, required: Any, table: Any) -> Any:
        return original(own_end, [member for member in required if table.acked(member) is not None], table)

    return mutated


def _counts_the_required_set(_original: Any) -> Any:
    return property(lambda self: len(self.required_set))


def _refusal_keeps_the_proposal(original: Function) -> Function:
    def mutated(self: Any, decided: Any, now_ms: int) -> Any:
        return original(self, decided, now_ms) if decided.is_accepted else []

    return mutated


ALTERS: tuple[Mutation, ...] = (
    Mutation(
        name="R1-stored-verdict",
        what="a retry of a committed alter is refused as stale, and the proposal dropped",
        target="rollcall_ha.controller.core.alters:decide_alter",
        mutate=_no_stored_verdict,
        case="alter-answer-lost",
        tests=(
            "tests/unit/test_core_safety_alters.py::test_r1_a_retry_hears_the_stored_verdict_and_nothing_is_recorded",
        ),
    ),
    Mutation(
        name="R1-content-bound-to-seq",
        what="a retry proposes something else under the same seq",
        target="rollcall_ha.ha.sync_state:SyncState.tick",
        mutate=_retry_with_other_content,
        case="alter-retry-is-the-same",
        tests=("tests/unit/test_ha_sync_state.py::test_r1_a_retry_repeats_the_same_content_although_more_happened",),
    ),
    Mutation(
        name="R1-overtaken",
        what="a master repeats a seq that the controllers have passed",
        target="rollcall_ha.ha.sync_state:SyncState.overtaken",
        mutate=constant([]),
        case="alter-overtaken",
        tests=("tests/unit/test_ha_sync_state.py::test_r1_a_forged_seq_does_not_stop_the_alters_of_a_reign",),
    ),
    Mutation(
        name="R1-seq-far-ahead",
        what="an alter is decided with a seq that leaves none above it",
        target="rollcall_ha.controller.core.alters:SEQUENCE_STEP_MAX",
        mutate=instead(2**63),
        case="alter-far-ahead",
        tests=(
            "tests/property/test_core_laws.py::test_r1_whatever_seqs_are_shown_there_is_room_for_the_alters_of_a_reign",
        ),
    ),
    Mutation(
        name="R1-compare-and-set",
        what="an alter is applied to another version of the set than it was made for",
        target="rollcall_ha.controller.core.alters:_refusal",
        mutate=_no_compare_and_set,
        case="alter-on-a-moved-set",
        tests=(
            "tests/unit/test_core_safety_alters.py::test_r1_a_stale_set_epoch_of_the_present_master_is_refused_and_stored",
        ),
    ),
    Mutation(
        name="R1-incarnations",
        what="a member joins by the ack of a life that it has lost",
        target="rollcall_ha.controller.core.alters:decide_alter",
        mutate=_any_incarnation_joins,
        case="alter-of-an-ended-incarnation",
        tests=(
            "tests/unit/test_core_safety_alters.py::test_r1_a_joining_member_is_named_by_the_incarnation_that_passed_the_test",
        ),
    ),
    Mutation(
        name="R1-late-registration",
        what="a late duplicate of an earlier life's registration ends the life that came after it",
        target="rollcall_ha.controller.core.registration:_has_moved",
        mutate=constant(False),
        case="late-registration",
        tests=("tests/unit/test_core_safety.py::test_r1_a_late_duplicate_of_an_earlier_lifes_registration_is_refused",),
    ),
    Mutation(
        name="R2-refusal-ends-the-union",
        what="a refusal because of an older masterEpoch ends the union instead of the mastership",
        target="rollcall_ha.ha.sync_state:SyncState.mastership_refused",
        mutate=_refusal_ends_the_union,
        case="refused-mastership",
        tests=(
            "tests/unit/test_ha_sync_state.py::test_r2_a_refusal_because_of_the_epoch_ends_the_mastership_not_the_union",
        ),
    ),
    Mutation(
        name="R2-state-of-another-epoch",
        what="a master adopts the set of its successor's epoch",
        target="rollcall_ha.ha.sync_state:SyncState.authoritative_state",
        mutate=_adopts_another_epoch,
        case="state-of-another-epoch",
        tests=("tests/unit/test_ha_sync_state.py::test_r2_a_state_of_another_epoch_is_not_adopted",),
    ),
    Mutation(
        name="R2-timeout-drops-the-proposal",
        what="an alter without an answer is forgotten; it commits later",
        target="rollcall_ha.ha.sync_state:SyncState.tick",
        mutate=_timeout_drops_the_proposal,
        case="alter-without-an-answer",
        tests=("tests/unit/test_ha_sync_state.py::test_r2_a_timeout_does_not_drop_the_proposal",),
    ),
    Mutation(
        name="R2-no-union-when-adding",
        what="acks wait for the local set only",
        target="rollcall_ha.ha.sync_state:SyncState.required_set",
        mutate=_local_set_only,
        case="union-when-adding",
        tests=("tests/unit/test_ha_sync_state.py::test_r2_joining_and_being_required_are_one_step",),
    ),
    Mutation(
        name="R2-no-union-when-removing",
        what="acks wait for the proposed set only",
        target="rollcall_ha.ha.sync_state:SyncState.required_set",
        mutate=_proposed_set_only,
        case="union-when-removing",
        tests=("tests/unit/test_ha_sync_state.py::test_r2_removing_needs_the_union_too",),
    ),
    Mutation(
        name="R2-join-test-in-two-steps",
        what="a member passes the join test now and is required later",
        target="rollcall_ha.ha.sync_state:SyncState._is_fit_to_join",
        mutate=_join_in_two_steps,
        case="join-test",
        tests=("tests/unit/test_ha_sync_state.py::test_r2_joining_and_being_required_are_one_step",),
    ),
    Mutation(
        name="R2-join-test-without-start",
        what="a member joins below the start of the master's own epoch",
        target="rollcall_ha.ha.sync_state:SyncState.__init__",
        mutate=_join_without_start,
        case="join-below-the-start",
        tests=("tests/unit/test_ha_sync_state.py::test_r2_nobody_joins_below_the_start_of_the_epoch",),
    ),
    Mutation(
        name="R2-join-test-without-confirm",
        what="a member joins without what was acknowledged",
        target="rollcall_ha.ha.sync_state:SyncState._has_everything",
        mutate=_join_without_confirm,
        case="join-below-confirm",
        tests=("tests/unit/test_ha_sync_state.py::test_r2_nobody_joins_below_confirm",),
    ),
    Mutation(
        name="R22",
        what="min_in_sync counts who is only proposed",
        target="rollcall_ha.ha.sync_state:SyncState.in_sync_count",
        mutate=_counts_the_required_set,
        case="min-in-sync-of-a-proposal",
        tests=("tests/unit/test_ha_sync_state.py::test_r22_min_in_sync_counts_members_of_both_sets",),
    ),
    Mutation(
        name="R22-below-the-minimum",
        what="a master removes members until it is alone",
        target="rollcall_ha.ha.sync_state:SyncState._may_remain",
        mutate=lambda _original: lambda _self, _members, _now_ms: True,
        case="set-below-its-minimum",
        tests=("tests/unit/test_ha_sync_state.py::test_r22_a_master_that_loses_its_slaves_keeps_them_in_its_set",),
    ),
    Mutation(
        name="R22-changed",
        what="a master goes on with the min_in_sync that it was elected with",
        target="rollcall_ha.ha.sync_state:SyncState.require",
        mutate=constant(None),
        case="min-in-sync-raised-in-a-reign",
        tests=(
            "tests/unit/test_broker_mastership.py::test_a_minimum_that_was_changed_opens_and_closes_the_gate_of_a_reign_at_once",
        ),
    ),
    Mutation(
        name="R23",
        what="a learner is a member like any other",
        target="rollcall_ha.ha.confirm_offset:SlaveAcks.open_link",
        mutate=lambda original: lambda self, *args, is_learner: original(self, *args, is_learner=False),
        case="learner-is-no-candidate",
        tests=("tests/unit/test_ha_sync_state.py::test_r23_a_learner_is_heard_and_never_joins",),
    ),
    Mutation(
        name="R7-view-of-another-fleet",
        what="a master takes the set of restored controllers for knowledge about the alter of the old ones",
        target="rollcall_ha.ha.sync_state:SyncState.authoritative_state",
        mutate=_adopts_another_fleet,
        case="state-of-another-fleet",
        tests=(
            "tests/unit/test_ha_sync_state.py::test_r7_a_view_of_restored_controllers_is_no_knowledge_of_an_alter_of_the_old_ones",
        ),
    ),
    Mutation(
        name="W8",
        what="a refused proposal is kept: its member is required for ever",
        target="rollcall_ha.ha.sync_state:SyncState.verdict",
        mutate=_refusal_keeps_the_proposal,
        case="refused-proposal",
        tests=("tests/unit/test_ha_sync_state.py::test_a_refused_join_is_tried_again_with_a_new_seq_after_a_pause",),
    ),
    Mutation(
        name="W9",
        what="members without a report are skipped",
        target="rollcall_ha.ha.sync_state:confirm_candidate",
        mutate=_unknown_members_are_skipped,
        case="member-without-a-report",
        tests=("tests/unit/test_ha_sync_state.py::test_r2_a_promotion_and_a_handshake_make_members_unknown",),
    ),
)
