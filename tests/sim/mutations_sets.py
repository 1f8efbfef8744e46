"""
Mutants of the rules of sets: intactness, elections, evidence, recovery, silence.

Here: the list. Not here: what a mutant is (``mutation``), running it (``mutants``).
"""

from __future__ import annotations

import importlib
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from rollcall_ha.controller.contract.ids import LogOffset
from rollcall_ha.controller.contract.values import SilenceCause
from rollcall_ha.controller.contract.verdicts import Intactness
from rollcall_ha.controller.core.decision import Decision
from rollcall_ha.controller.core.recovery import started
from tests.sim.mutation import Function, Mutation, changed, constant


def _always_vacated(_original: Function) -> Function:
    return lambda _fleet, _set_state, replica: replica.registered_as


def _waits_for_the_lost_index(original: Function) -> Function:
    def mutated(self: Any, view: Any, **told: Any) -> None:
        known = self._facts.view
        is_same_fleet = known is not None and known.fleet_incarnation == view.fleet_incarnation
        if not is_same_fleet or view.index >= known.index:
            original(self, view, **told)

    return mutated


def _missed_until_it_is_heard(original: Function) -> Function:
    def mutated(self: Any, session: Any, *told: Any) -> None:
        original(self, session, *told)
        session.missed_ns = session.witnessed_ns = None

    return mutated


def _newest_entry_counts(original: Function) -> Function:
    def mutated(self: Any, stamped_at_ms: int, **at: int) -> None:
        self.forget()
        original(self, stamped_at_ms, **at)

    return mutated


def _everybody_is_intact(original: Function) -> Function:
    def mutated(state: Any, replica: Any, command: Any, **told: Any) -> Any:
        judged, reason = original(state, replica, command, **told)
        if judged in (Intactness.NOT_INTACT, Intactness.SUSPECT):
            return Intactness.SAME_BOOT, "trusted"
        return judged, reason

    return mutated


def _boot_id_of_the_last_start(original: Function) -> Function:
    starts: dict[str, list[str]] = {}

    def mutated(self: Any, facts: Any, identity: Any) -> None:
        process = facts.process
        seen = starts.setdefault(process.store_id, [])
        claim = seen[0] if seen and seen[-1] == process.boot_id else process.boot_id
        seen.append(process.boot_id)
        original(self, changed(facts, process=replace(process, boot_id=claim)), identity)

    return mutated


def _later_confirms_count(original: Function) -> Function:
    def mutated(self: Any, view: Any, session: Any, beat: Any) -> None:
        original(self, view, session, beat)
        session.confirmed_before = session.answered_confirm

    return mutated


def _any_copy_will_do(original: Function) -> Function:
    def mutated(state: Any, replica: Any, command: Any, **told: Any) -> Any:
        known = () if replica.incarnation is None else (replica.incarnation,)
        return original(state, replica, replace(command, previous_incarnations=known), **told)

    return mutated


def _survivors_need_not_be_intact(_original: Function) -> Function:
    def mutated(self: Any, replica: Any) -> bool:
        return replica.incarnation is not None and replica.broker_id in {*self.sync_state_set, *self.fallen}

    return mutated


def _survivors_from_anywhere(_original: Function) -> Function:
    def mutated(case: Any, winner: Any) -> Any:
        return tuple(
            replica.broker_id
            for replica in case.set_state.replicas
            if replica.broker_id == winner.broker_id or (replica.is_alive and replica.is_voter)
        )

    return mutated


def _any_evidence(_original: Function) -> Function:
    return lambda _state, operation: operation.evidence


class _NoCommand:
    """An entry without alters."""


def _in_the_order_of_the_batch(original: Function) -> Function:
    module: Any = importlib.import_module(original.__module__)

    def mutated(*args: Any, **named: Any) -> Any:
        known = module.AlterSyncStateSet
        # No command is one of these: all are taken as they come.
        module.AlterSyncStateSet = _NoCommand
        try:
            return original(*args, **named)
        finally:
            module.AlterSyncStateSet = known

    return mutated


def _nobody_is_awaited(_original: Any) -> Any:
    return property(lambda _self: ())


def _as_long_as_an_answer(_original: Any) -> Any:
    return property(lambda timing: timing.session_rpc_timeout_ms)


def _keeps_its_incarnation(original: Function) -> Function:
    def mutated(state: Any, _fleet_incarnation: Any, **named: Any) -> Any:
        return original(state, state.fleet_incarnation, **named)

    return mutated


def _members_only(_original: Any) -> Any:
    return lambda set_state: started(set_state, UNSET) if set_state.is_established else None


def _awaits_its_members(original: Function) -> Function:
    return lambda set_state, _newcomers: original(set_state, UNSET)


def _first_come_first_master(original: Function) -> Function:
    def mutated(state: Any, command: Any, evidence: Any, **named: Any) -> Any:
        configuration = replace(state.configuration, expected_replicas=1)
        replicas = tuple(
            replica
            if replica.positions is None
            else replace(replica, positions=replace(replica.positions, max_offset=LogOffset(0)))
            for replica in state.replicas
        )
        state = replace(state, configuration=configuration, replicas=replicas)
        return original(state, command, evidence, **named)

    return mutated


def _refused_is_dead(original: Function) -> Function:
    def mutated(self: Any, session: Any, now_ns: int) -> Any:
        if session.refused_ns is not None and session.connection is None and session.is_alive:
            return self._detect(session, SilenceCause.DEAD_AT_ONCE, now_ns)
        return original(self, session, now_ns)

    return mutated


SETS: tuple[Mutation, ...] = (
    Mutation(
        name="R3",
        what="a member stays one after a restart that proves nothing",
        target="rollcall_ha.controller.core.intactness:judge",
        mutate=_everybody_is_intact,
        story="r03_unclean_restart",
        tests=("tests/unit/test_core_safety_intactness.py::test_r3_a_restart_without_proof_leaves_the_set",),
    ),
    Mutation(
        name="R3-boot-id-of-the-last-start",
        what="a power loss before the last start but one is not noticed",
        target="rollcall_ha.broker.core.registration:Registration.__init__",
        mutate=_boot_id_of_the_last_start,
        story="r03_boot_of_last_start",
        tests=("tests/unit/test_broker_registration.py::test_r3_each_life_names_the_boot_that_it_runs_on",),
    ),
    Mutation(
        name="R3-older-copy",
        what="an older copy of a directory counts as intact on the same boot",
        target="rollcall_ha.controller.core.intactness:judge",
        mutate=_any_copy_will_do,
        case="older-copy",
        tests=("tests/unit/test_core_safety_intactness.py::test_r3_an_older_copy_of_the_directory_is_not_intact",),
    ),
    Mutation(
        name="R3-short-of-confirmed",
        what="a member is elected that ends below what all members had",
        target="rollcall_ha.controller.core.evidence:short_of_confirmed",
        mutate=constant({}),
        case="copy-of-a-running-broker",
        tests=(
            "tests/unit/test_core_copies.py::test_a_member_that_ends_below_what_was_confirmed_is_not_elected_cleanly",
        ),
    ),
    Mutation(
        name="R3-heard-confirm",
        what="a registration is judged without what its leader has heard of the set's confirm",
        target="rollcall_ha.controller.core.intactness:with_heard_confirm",
        mutate=lambda _original: lambda set_state, _operation: set_state,
        case="copy-that-registers",
        tests=("tests/unit/test_core_copies.py::test_a_copy_that_lacks_what_the_leader_heard_is_not_intact",),
    ),
    Mutation(
        name="R3-confirm-not-noted",
        what="replicated state learns of a set's confirm at elections and registrations only",
        target="rollcall_ha.controller.core.confirms:_rises",
        mutate=constant(False),
        case="copy-after-everybody-died",
        tests=("tests/unit/test_core_copies.py::test_a_copy_is_found_by_a_leader_that_has_heard_nobody",),
    ),
    Mutation(
        name="R3-noted-of-another-reign",
        what="a confirm is noted of a reign whose bytes an unclean election has taken",
        target="rollcall_ha.controller.core.confirms:_rises",
        mutate=lambda _original: lambda fleet, told: told.set_key in fleet.sets,
        case="confirm-of-a-reign-that-is-over",
        tests=(
            "tests/unit/test_core_copies.py::test_what_does_not_rise_or_is_of_another_reign_or_of_no_set_is_no_event",
        ),
    ),
    Mutation(
        name="R3-confirm-of-a-later-moment",
        what="an honest slave is not elected: its master confirmed more after the slave's last heartbeat",
        target="rollcall_ha.controller.runtime.confirms:Confirms.heard",
        mutate=_later_confirms_count,
        tests=(
            "tests/unit/test_runtime_confirms.py::test_a_confirm_counts_against_the_word_behind_the_next_answer",
            "tests/unit/test_runtime_confirms.py::test_a_slave_that_told_less_than_its_master_a_moment_ago_is_elected_at_once",
        ),
    ),
    Mutation(
        name="R3-id-in-use",
        what="an ended process may come back although the one in its place lives",
        target="rollcall_ha.controller.core.registration:_vacated",
        mutate=_always_vacated,
        case="clone-beside-its-original",
        tests=(
            "tests/unit/test_core_safety_intactness.py::test_r3_an_ended_process_may_come_back_only_when_its_id_is_nobodys_and_another_master_lives",
        ),
    ),
    Mutation(
        name="R3-id-free-for-a-moment",
        what="an ended process begins anew in the moment in which the one in its place starts again",
        target="rollcall_ha.broker.core.session:SessionMachine._is_vacated_long",
        mutate=lambda _original: lambda _self, refusal, _now_ms: refusal.registered is not None,
        case="clone-beside-its-original",
        tests=(
            "tests/unit/test_broker_session.py::test_the_loser_of_an_identity_stayed_isolated_for_ever_although_the_winner_was_gone",
        ),
    ),
    Mutation(
        name="S12-ended-for-ever",
        what="an ended process stays out of its set although its id is nobody's",
        target="rollcall_ha.controller.core.registration:_vacated",
        mutate=constant(None),
        case="clone-beside-its-original",
        tests=(
            "tests/unit/test_core_safety_intactness.py::test_r3_an_ended_process_may_come_back_only_when_its_id_is_nobodys_and_another_master_lives",
        ),
    ),
    Mutation(
        name="R6-intact",
        what="a member that fell is a survivor or a winner all the same",
        target="rollcall_ha.controller.core.state:SetState.is_intact_member",
        mutate=_survivors_need_not_be_intact,
        case="survivors-are-intact",
        tests=(
            "tests/unit/test_core_safety_elections.py::test_r6_members_that_are_not_intact_do_not_survive",
            "tests/property/test_core_laws.py::test_random_lives_keep_every_invariant",
        ),
    ),
    Mutation(
        name="R6-members-of-the-old-set",
        what="everybody alive is a survivor",
        target="rollcall_ha.controller.core.decide_election:_new_set",
        mutate=_survivors_from_anywhere,
        case="survivors-are-members",
        tests=(
            "tests/unit/test_core_safety_elections.py::test_r6_an_outsider_is_never_added_by_a_clean_election",
            "tests/property/test_core_laws.py::test_random_lives_keep_every_invariant",
        ),
    ),
    Mutation(
        name="R14",
        what="an election is applied to another state than its evidence was taken on",
        target="rollcall_ha.controller.core.evidence:validate_evidence",
        mutate=_any_evidence,
        case="evidence-moved",
        tests=("tests/unit/test_core_safety.py::test_r14_evidence_that_moved_is_refused",),
    ),
    Mutation(
        name="R14-lateness-is-a-step",
        what="a follower that applied its newest entry late reports a step of the clock when it leads",
        target="rollcall_ha.controller.runtime.clock_watch:ClockWatch.applied",
        mutate=_newest_entry_counts,
        tests=(
            "tests/unit/test_runtime_clock_watch.py::test_a_follower_that_applies_late_takes_the_delay_for_no_step",
            "tests/unit/test_runtime_clock_watch.py::test_the_largest_offset_of_two_windows_counts",
        ),
    ),
    Mutation(
        name="R5",
        what="an answer of an earlier term counts",
        target="rollcall_ha.controller.replication.raft.repairs:RepairedTransport._on_answer",
        mutate=lambda original: (
            lambda self, peer, message: original(self, peer, replace(message, term=self._attached().internals.term))
        ),
        case="answer-of-another-term",
        tests=("tests/unit/test_replication_member.py::test_an_answer_of_another_term_counts_for_nothing",),
    ),
    Mutation(
        name="R7-awaits-reports",
        what="after a wipe or restore a master is elected before all named replicas have reported",
        target="rollcall_ha.controller.core.state:Recovery.awaited",
        mutate=_nobody_is_awaited,
        story="r07_wiped_controllers",
        tests=(
            "tests/unit/test_core_safety_recovery.py::test_r7_after_a_wipe_nothing_is_decided_before_all_named_replicas_have_reported",
        ),
    ),
    Mutation(
        name="R7-longest-report",
        what="after a wipe or restore the first that is heard is elected, others had reported more",
        target="rollcall_ha.controller.core.decide_election:_set_aside_by_reports",
        mutate=constant({}),
        case="restored-longest",
        tests=(
            "tests/unit/test_core_safety_recovery.py::test_r7_whoever_is_heard_first_was_elected_although_another_member_had_reported_more",
        ),
    ),
    Mutation(
        name="R7-epochs-jump",
        what="after a wipe or restore epochs go on where the backup ended",
        target="rollcall_ha.controller.core.recovery:next_master_epoch",
        mutate=lambda _original: lambda set_state, **_named: set_state.master_epoch + 1,
        story="r07_old_backup",
        tests=(
            "tests/unit/test_core_safety_recovery.py::test_r7_the_newest_view_wins_and_its_longest_member_is_elected_in_an_epoch_that_jumps",
        ),
    ),
    Mutation(
        name="R7-restored-as-itself",
        what="restored controllers keep the fleet's incarnation: what they say counts as the old ones' word",
        target="rollcall_ha.controller.core.backups:restored",
        mutate=_keeps_its_incarnation,
        story="r07_old_backup",
        tests=(
            "tests/unit/test_runtime_restore.py::test_r7_restored_controllers_are_another_fleet_in_which_every_set_awaits_its_replicas",
            "tests/unit/test_runtime_restore.py::test_one_token_makes_one_fleet_on_every_machine",
        ),
    ),
    Mutation(
        name="R7-restored-awaits",
        what="restored controllers go on as if the backup were of now",
        target="rollcall_ha.controller.core.recovery:_begun_again",
        mutate=constant(None),
        story="r07_old_backup",
        tests=(
            "tests/unit/test_runtime_restore.py::test_r7_restored_controllers_are_another_fleet_in_which_every_set_awaits_its_replicas",
            "tests/unit/test_core_safety_recovery.py::test_r7_a_restored_backup_waits_for_its_members_and_adopts_what_they_know",
        ),
    ),
    Mutation(
        name="R7-restored-awaits-members-only",
        what="restored controllers await the members that the backup knows, and what it was told before is forgotten",
        target="rollcall_ha.controller.core.recovery:_begun_again",
        mutate=_members_only,
        tests=(
            "tests/unit/test_core_restore_union.py::test_r7_a_member_since_the_backup_was_not_awaited_when_nobody_else_had_heard_so",
            "tests/unit/test_core_restore_union.py::test_r7_a_restore_forgot_what_a_replica_had_told_that_is_dead_by_now",
        ),
    ),
    Mutation(
        name="R7-below-confirmed",
        what="in a recovery the longest report is elected, also where it lacks what is known to be confirmed",
        target="rollcall_ha.controller.core.recovery:lacks_confirmed",
        mutate=constant(""),
        case="volume-behind-a-report",
        tests=(
            "tests/unit/test_core_safety_recovery.py::test_r7_the_only_member_of_a_set_that_recovers_was_elected_with_less_than_was_confirmed",
            "tests/unit/test_core_safety_recovery.py::test_r7_a_member_that_lacks_what_was_confirmed_was_said_to_be_electable",
        ),
    ),
    Mutation(
        name="R7-lost-reign",
        what="in a recovery nothing is held against a log of a reign that the controllers have lost",
        target="rollcall_ha.controller.core.recovery:confirmed_after",
        mutate=constant(UNSET),
        case="volume-behind-a-report-of-a-lost-reign",
        tests=(
            "tests/unit/test_core_safety_recovery.py::test_r7_a_member_was_elected_with_less_than_it_had_reported_of_a_reign_that_the_controllers_lost",
        ),
    ),
    Mutation(
        name="R7-branch-in-between",
        what="a log of an epoch between that of a confirmed byte and that of its teller's log is taken to have the byte",
        target="rollcall_ha.controller.core.recovery:_has",
        mutate=lambda _original: (
            lambda told, epoch, end: (epoch, end) >= (min((*told.epochs, told.log_epoch)), told.offset)
        ),
        case="branch-between-a-confirm-and-its-teller",
        tests=(
            "tests/unit/test_core_told_confirms.py::test_r7_a_log_that_ends_in_an_epoch_in_between_has_nothing_of_what_was_confirmed",
        ),
    ),
    Mutation(
        name="R7-short-survivor",
        what="a member that lacks what was confirmed is in the set of a recovery's winner",
        target="rollcall_ha.controller.core.decide_election:_is_whole",
        mutate=lambda _original: lambda case, replica: case.set_state.is_intact_member(replica),
        case="volume-before-its-report",
        tests=(
            "tests/unit/test_core_safety_recovery.py::test_r7_a_survivor_that_lacks_what_was_confirmed_stood_in_the_new_set",
        ),
    ),
    Mutation(
        name="R3-tail-of-an-older-epoch",
        what="a log with a tail of an older epoch is measured by its length",
        target="rollcall_ha.controller.core.state:SetState.held_by",
        mutate=lambda _original: lambda _set_state, log: log.max_offset,
        case="volume-with-a-tail",
        tests=(
            "tests/unit/test_core_copies.py::test_a_copy_from_before_its_own_tail_was_cut_was_elected_for_its_length",
            "tests/unit/test_core_copies.py::test_a_copy_from_before_its_own_tail_was_cut_was_intact_for_its_length",
        ),
    ),
    Mutation(
        name="R7-lost-grant",
        what="a replica whose id was granted in an entry that the controllers have lost is sent away for a fresh one",
        target="rollcall_ha.controller.core.registration:_is_grant_lost",
        mutate=constant(value=False),
        case="grant-of-a-lost-entry",
        tests=(
            "tests/unit/test_core_safety_recovery.py::test_r7_an_id_whose_grant_was_lost_with_the_controllers_entries_waited_for_a_person",
            "tests/unit/test_core_safety_recovery.py::test_r7_an_id_whose_grant_was_lost_is_no_second_one_of_the_same_directory",
        ),
    ),
    Mutation(
        name="R7-newcomers-word",
        what="the report of an empty machine counts for the member whose id wiped controllers gave it",
        target="rollcall_ha.controller.core.recovery:is_of_the_past",
        mutate=constant(value=True),
        case="newcomer-under-a-members-id",
        tests=(
            "tests/unit/test_core_safety_recovery.py::test_r7_an_empty_machine_that_was_first_after_a_wipe_spoke_for_the_member_whose_id_it_got",
        ),
    ),
    Mutation(
        name="R7-newcomer-keeps-the-id",
        what="a member is refused as another register code because wiped controllers gave its id to an empty machine",
        target="rollcall_ha.controller.core.registration:_yields",
        mutate=constant(value=False),
        case="newcomer-under-a-members-id",
        tests=(
            "tests/unit/test_core_safety_recovery.py::test_r7_an_empty_machine_that_was_first_after_a_wipe_spoke_for_the_member_whose_id_it_got",
        ),
    ),
    Mutation(
        name="R7-put-back-awaits-members-only",
        what="controllers that were put back await the members of their copy, and not its other replicas",
        target="rollcall_ha.controller.core.recovery:started",
        mutate=_awaits_its_members,
        case="member-since-the-copy",
        tests=(
            "tests/unit/test_core_safety_recovery.py::test_r7_a_replica_that_the_copy_of_put_back_controllers_knew_was_not_awaited",
        ),
    ),
    Mutation(
        name="R13-long-dial",
        what="a dial that is lost in a cut takes as long as an answer may",
        target="rollcall_ha.controller.contract.timing:Timing.session_dial_timeout_ms",
        mutate=_as_long_as_an_answer,
        tests=(
            "tests/unit/test_session_dials.py::test_a_dial_that_was_lost_in_a_cut_outlasted_the_patience_of_the_leader",
            "tests/unit/test_session_dials.py::test_a_dial_leaves_the_leader_half_of_its_patience",
        ),
    ),
    Mutation(
        name="R8",
        what="the first replica that comes is elected",
        target="rollcall_ha.controller.core.founding_election:decide_first",
        mutate=_first_come_first_master,
        case="first-election",
        tests=(
            "tests/unit/test_core_safety_elections.py::test_r8_the_first_election_waits_for_the_expected_replicas_and_takes_all_of_them",
        ),
    ),
    Mutation(
        name="R13",
        what="a refused probe alone makes a master dead",
        target="rollcall_ha.controller.runtime.sessions:Sessions._judge",
        mutate=_refused_is_dead,
        case="dead-at-once",
        tests=("tests/unit/test_runtime_duties.py::test_dead_at_once_needs_all_three_facts",),
    ),
    Mutation(
        name="R13-missed-is-lost",
        what="a master is replaced when a cut between controllers and brokers ends",
        target="rollcall_ha.controller.runtime.own_network:is_awaited",
        mutate=constant(value=False),
        tests=(
            "tests/unit/test_runtime_own_network.py::test_a_cut_between_controllers_and_brokers_deposed_a_healthy_master_when_it_ended",
            "tests/unit/test_runtime_own_network.py::test_a_new_leader_awaits_a_master_that_the_last_one_found_silent",
        ),
    ),
    Mutation(
        name="R13-missed-for-ever",
        what="a master that hangs is awaited, and one that controllers never hear again",
        target="rollcall_ha.controller.runtime.own_network:is_awaited",
        mutate=lambda _original: lambda master, _now_ns: master.missed_ns is not None,
        tests=(
            "tests/unit/test_runtime_own_network.py::test_a_missed_master_is_awaited_for_one_timeout_and_no_longer",
            "tests/unit/test_runtime_own_network.py::test_a_master_that_hung_while_all_were_cut_off_is_found_at_once",
        ),
    ),
    Mutation(
        name="R13-back-is-heard",
        what="a slave that is back from the same cut a moment before the master is due bears witness against it",
        target="rollcall_ha.controller.runtime.own_network:returned",
        mutate=constant(value=None),
        tests=(
            "tests/unit/test_runtime_own_network.py::test_a_cut_that_ended_just_before_the_timeout_deposed_the_master_whose_slaves_were_heard_first",
            "tests/unit/test_runtime_own_network.py::test_a_cut_from_most_of_a_fleet_that_ended_just_before_the_timeout_deposed_its_masters",
        ),
    ),
    Mutation(
        name="R13-missed-until-heard",
        what="a master that was missed is deposed by its own first heartbeat, before it is alive again",
        target="rollcall_ha.controller.runtime.sessions:Sessions._heard",
        mutate=_missed_until_it_is_heard,
        case="missed-master-is-heard",
        tests=("tests/unit/test_runtime_own_network.py::test_a_missed_master_was_deposed_by_its_own_first_heartbeat",),
    ),
    Mutation(
        name="R13-hung-up-is-awaited",
        what="a master that was killed while it was awaited is awaited as long as its last bytes are fresh",
        target="rollcall_ha.controller.runtime.own_network:_has_hung_up",
        mutate=constant(value=False),
        tests=(
            "tests/unit/test_runtime_own_network.py::test_a_master_that_was_killed_while_it_was_awaited_is_replaced_at_once",
            "tests/unit/test_runtime_own_network.py::test_a_master_that_was_killed_while_a_new_leader_awaited_it_is_replaced_at_once",
        ),
    ),
    Mutation(
        name="R15",
        what="an entry of a newer version is skipped",
        target="rollcall_ha.controller.replication.codec:decode_operations",
        mutate=lambda original: (
            lambda payload: () if type(original(payload)).__name__ == "AboveFeatureLevel" else original(payload)
        ),
        case="newer-operation",
        tests=("tests/unit/test_replication_machine.py::test_an_operation_above_the_feature_level_stops_this_node",),
    ),
    Mutation(
        name="R24",
        what="refusals leave no record",
        target="rollcall_ha.controller.core.decision:Refusal.decision",
        mutate=lambda original: lambda *args: Decision(answer=original(*args).answer),
        case="refusal-on-record",
        tests=("tests/unit/test_core_safety.py::test_r24_refusals_are_on_record_and_repeated_answers_are_not",),
    ),
    Mutation(
        name="R25",
        what="an alter is decided before the election that shares its entry",
        target="rollcall_ha.controller.core.apply:apply_operations",
        mutate=_in_the_order_of_the_batch,
        case="election-in-a-batch",
        tests=(
            "tests/unit/test_core_safety.py::test_r25_elections_come_before_alters_in_a_batch_and_replies_keep_their_order",
        ),
    ),
    Mutation(
        name="R7-put-back-by-index",
        what="a broker ignores controllers that were put back until their log is as long as the lost one",
        target="rollcall_ha.broker.core.role:RoleMachine._on_view",
        mutate=_waits_for_the_lost_index,
        tests=(
            "tests/unit/test_broker_role_memory.py::test_r7_controllers_that_were_put_back_are_believed_from_the_registration_on",
            "tests/property/test_broker_role.py::test_after_any_interruption_a_newer_epoch_is_entered",
        ),
    ),
)
