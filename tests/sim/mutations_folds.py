"""
Mutants of what readers see: consume queues over cuts, offsets, locks and deliveries over changes of master, waiting pulls.

Here: the list. Not here: what a mutant is (``mutation``), running it (``mutants``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rollcall_ha.broker.consuming.locks_core import LockVerdict
from rollcall_ha.broker.delaying.deliveries import _Reign
from rollcall_ha.broker.log.checkpoint import FOLDS_FILE_NAME
from tests.sim.mutation import Function, Mutation, changed, constant


def _cut_leaves_the_mark(original: Function) -> Function:
    def mutated(files: Any, mark: Any) -> None:
        path: Path = files.root / FOLDS_FILE_NAME
        before = path.read_bytes() if path.exists() else None
        original(files, mark)
        if before is not None:
            path.write_bytes(before)

    return mutated


def _by_confirm_alone(_original: Function) -> Function:
    def mutated(self: Any) -> Any:
        return self._catch_up()

    return mutated


def _without_needs(original: Function) -> Function:
    def mutated(facts: Any, rules: Any) -> Any:
        return original(changed(facts, needs=()), rules)

    return mutated


def _without_the_state(original: Function) -> Function:
    def mutated(self: Any, start: Any) -> Any:
        self._store_state = lambda: None
        return original(self, start)

    return mutated


def _begins_at_once(_original: Function) -> Function:
    def mutated(self: Any) -> Any:
        epoch = self._at.standing.master_epoch
        if self._reign is None or self._reign.master_epoch != epoch:
            self._reign = _Reign(epoch, list(self._folds.delivered.following))
        return self._reign

    return mutated


def _whoever_follows(_original: Function) -> Function:
    def mutated(place: Any, *, is_on: bool) -> bool:
        return is_on and place.is_slave and place.has_confirm

    return mutated


def _all_that_came(original: Function) -> Function:
    def mutated(self: Any, confirm: Any, released: Any) -> Any:
        return original(self, max(confirm, self.whole_offset), released)

    return mutated


FOLDS: tuple[Mutation, ...] = (
    Mutation(
        name="I15-whoever-follows",
        what="a slave that is no member of its set gives messages",
        target="rollcall_ha.broker.consuming.reads_core:gives_as_slave",
        mutate=_whoever_follows,
        tests=(
            "tests/unit/test_consuming_reads.py::test_a_slave_gives_as_a_member_with_a_confirm_and_only_if_it_is_told_to[no-member]",
            "tests/unit/test_consuming_reads.py::test_a_reader_far_behind_goes_to_a_slave_that_gives[place7-in_sync7-1-0]",
        ),
    ),
    Mutation(
        name="I15-beyond-confirm",
        what="a slave gives all that came over its link, confirmed or not",
        target="rollcall_ha.broker.log.commit_log:CommitLog.note_confirm",
        mutate=_all_that_came,
        tests=(
            "tests/unit/test_consuming_reads.py::test_a_slave_gives_nothing_beyond_its_confirm",
            "tests/unit/test_handlers_listen.py::test_the_end_of_a_queue_counted_messages_that_a_failover_may_take_away",
        ),
    ),
    Mutation(
        name="R31-needed",
        what="a segment is deleted whoever still reads it",
        target="rollcall_ha.broker.retention.core:decide",
        mutate=_without_needs,
        tests=(
            "tests/unit/test_retention_core.py::test_what_the_log_needs_to_be_whole_stays_on_the_fullest_disk",
            "tests/unit/test_retention_shell.py::test_a_copy_that_runs_keeps_what_it_lacks_until_the_disk_is_nearly_full",
        ),
    ),
    Mutation(
        name="R31-only-copies",
        what="a replica deletes that is no part of its set, or that no controller has told anything",
        target="rollcall_ha.broker.retention.shell:Retention._why_kept",
        mutate=constant(""),
        tests=(
            "tests/unit/test_retention_shell.py::test_an_isolated_replica_deleted_the_only_copies",
            "tests/unit/test_retention_shell.py::test_nothing_is_deleted_before_a_controller_has_said_what_is_in_force",
        ),
    ),
    Mutation(
        name="R31-late-room",
        what="more is deleted for room that the disk does not show yet",
        target="rollcall_ha.broker.retention.core:Freed.unshown_bytes",
        mutate=constant(0),
        tests=(
            "tests/unit/test_retention_core.py::test_what_was_deleted_counts_until_the_disk_shows_it_or_for_a_minute",
            "tests/unit/test_retention_shell.py::test_a_deletion_that_failed_half_way_deleted_ten_more_segments_each_second",
        ),
    ),
    Mutation(
        name="R31-told-first",
        what="a master never writes again where its queues go on",
        target="rollcall_ha.broker.retention.telling:Telling.is_due",
        mutate=constant(False),
        tests=(
            "tests/unit/test_retention_shell.py::test_a_slave_with_the_fuller_disk_was_never_told_what_it_may_delete",
            "tests/unit/test_retention_shell.py::test_a_new_reign_tells_again_what_the_election_may_have_cut",
        ),
    ),
    Mutation(
        name="R31-state-first",
        what="segments are unlinked, and the log's state does not say that it begins later",
        target="rollcall_ha.broker.log.deletion:LogFront.delete",
        mutate=_without_the_state,
        tests=(
            "tests/unit/test_log_deletion.py::test_a_disk_that_refuses_the_state_leaves_the_log_as_it_was",
            "tests/unit/test_log_deletion.py::test_killed_at_each_step_it_starts_again_as_the_old_log_or_the_new_one[2]",
        ),
    ),
    Mutation(
        name="R31-numbers",
        what="a log that has lost the records of a queue does not know where it goes on",
        target="rollcall_ha.broker.log.queue_offsets:QueueOffsets.tell",
        mutate=constant(None),
        tests=(
            "tests/unit/test_log_deletion.py::test_r19_a_queue_whose_records_are_all_gone_goes_on_where_it_was",
            "tests/unit/test_log_deletion.py::test_a_new_slave_is_whole_from_the_masters_first_byte_on",
        ),
    ),
    Mutation(
        name="I13-begins-at-once",
        what="a new master delivers before it knows what the one before has delivered",
        target="rollcall_ha.broker.delaying.deliveries:Deliveries._this_reign",
        mutate=_begins_at_once,
        tests=(
            "tests/unit/test_delaying.py::test_a_new_master_delivered_what_its_predecessor_had_just_delivered",
            "tests/property/test_delaying.py::test_what_was_delivered_by_a_master_that_died_was_delivered_again",
        ),
    ),
    Mutation(
        name="I13-deliveries-of-a-cut",
        what="a cut leaves deliveries counted that it has taken out of the log",
        target="rollcall_ha.broker.folds.delivered:Delivered.cut",
        mutate=constant(None),
        tests=(
            "tests/unit/test_folds_dispatcher.py::test_a_cut_left_deliveries_counted_that_are_gone",
            "tests/unit/test_delaying.py::test_a_cut_delivery_was_never_made_again[False]",
        ),
    ),
    Mutation(
        name="R19-end-of-before",
        what="a new master tells the end of a queue below what the one before had confirmed",
        target="rollcall_ha.broker.folds.dispatcher:Dispatcher.catch_up",
        mutate=_by_confirm_alone,
        tests=(
            "tests/unit/test_handlers_listen.py::test_a_new_master_told_the_end_of_a_queue_that_the_one_before_had_moved_on",
            "tests/unit/test_delaying.py::test_a_new_master_delivered_what_its_predecessor_had_just_delivered",
        ),
    ),
    Mutation(
        name="I12-cut-units",
        what="a cut leaves the units of cut records in their queues",
        target="rollcall_ha.broker.folds.consume_queue:ConsumeQueues.cut",
        mutate=constant(None),
        tests=("tests/unit/test_folds_dispatcher.py::test_a_cut_takes_back_the_units_of_cut_records", "tests/property/test_folds.py::test_folds_equal_a_fresh_build_over_marks_kills_and_cuts"),
    ),
    Mutation(
        name="I12-mark-of-the-log-before",
        what="a full copy leaves the mark of the log before",
        target="rollcall_ha.broker.log.cut:_clamp_state",
        mutate=_cut_leaves_the_mark,
        tests=(
            "tests/unit/test_log_commit_log.py::test_a_log_that_is_set_aside_begins_again_where_the_master_says",
            "tests/unit/test_folds_dispatcher.py::test_a_full_copy_begins_the_folds_anew",
        ),
    ),
    Mutation(
        name="I12-units-of-another-log",
        what="a start believes files of queues whatever records they name",
        target="rollcall_ha.broker.folds.dispatcher:_is_of_log",
        mutate=constant(True),
        tests=("tests/unit/test_folds_dispatcher.py::test_files_that_do_not_agree_are_built_anew[of another log]",
               "tests/unit/test_folds_dispatcher.py::test_units_of_another_queue_are_not_believed"),
    ),
    Mutation(
        name="I12-offsets-of-before",
        what="a new master does not read the offsets that the log has",
        target="rollcall_ha.broker.consuming.offsets_core:Consumers.fold",
        mutate=constant(None),
        tests=("tests/unit/test_consuming_offsets.py::test_an_acknowledged_offset_is_told_by_the_next_master", "tests/unit/test_consuming_offsets.py::test_a_pull_commits"),
    ),
    Mutation(
        name="I12-locks-of-others",
        what="a queue is locked for a second client",
        target="rollcall_ha.broker.consuming.locks_core:LockTimes.judge",
        mutate=constant(LockVerdict.FREE),
        tests=(
            "tests/unit/test_consuming_locks.py::test_a_queue_is_locked_for_one_client_and_renewals_write_nothing",
            "tests/unit/test_consuming_locks.py::test_a_new_master_honours_the_locks_of_its_predecessor",
        ),
    ),
    Mutation(
        name="I12-pulls-asleep",
        what="a record wakes nobody who waits for it",
        target="rollcall_ha.broker.consuming.waiting:WaitingPulls.wake",
        mutate=constant(None),
        tests=(
            "tests/unit/test_consuming_waiting.py::test_growth_wakes_who_waits_at_that_queue_and_nobody_else",
            "tests/unit/test_consuming_pulls.py::test_a_pull_waits_for_its_message",
        ),
    ),
)  # fmt: skip
