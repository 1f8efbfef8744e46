"""
Mutants of what is on a disk: cuts, starts, promises, votes, and what a failed sync proves.

Here: the list. Not here: what a mutant is (``mutation``), running it (``mutants``).
"""

from __future__ import annotations

import os
from typing import Any

from rollcall_ha.broker.core.goals import GoalKind
from rollcall_ha.broker.core.role_io import PersistMarks, StepDone
from rollcall_ha.epoch.model import EpochEntry
from tests.sim.mutation import Function, Mutation, changed, constant


def _promise_is_not_written(original: Function) -> Function:
    def mutated(self: Any, event: Any, *, now_us: int) -> Any:
        actions = original(self, event, now_us=now_us)
        promises = [action for action in actions if isinstance(action, PersistMarks)]
        if not promises or self.goal.kind is not GoalKind.FOLLOW:
            return actions
        others = [action for action in actions if action is not promises[0]]
        return others + mutated(self, StepDone(step=promises[0].step), now_us=now_us)

    return mutated


def _vote_in_memory_only(_original: Function) -> Function:
    def mutated(self: Any, term: int, vote: str | None) -> None:
        self._term, self._vote = term, vote

    return mutated


def _syncs_nothing(original: Function) -> Function:
    def mutated(self: Any, *args: Any) -> Any:
        real = os.fdatasync
        os.fdatasync = lambda fd: None
        try:
            return original(self, *args)
        finally:
            os.fdatasync = real

    return mutated


def _begins_behind_half_a_record(_original: Function) -> Function:
    def mutated(self: Any, master_epoch: Any) -> Any:
        entry = EpochEntry(epoch=master_epoch, start_offset=self._commit_log.max_offset)
        self._commit_log.record_epoch(entry)
        return entry.start_offset

    return mutated


def _unknown_birth_is_another_one(original: Function) -> Function:
    def mutated(files: Any, parts: Any) -> Any:
        store = files.store.load()
        if store is not None and not store.birthmark:
            files.store.store(changed(store, birthmark="unknown"))
        return original(files, parts)

    return mutated


DISKS: tuple[Mutation, ...] = (
    Mutation(
        name="R9-promise-not-durable",
        what="a follower acks in an epoch that it may forget",
        target="rollcall_ha.broker.core.role:RoleMachine.handle",
        mutate=_promise_is_not_written,
        story="s01_answer_lost",
        tests=("tests/property/test_broker_role.py::test_r9_an_epoch_is_on_disk_before_its_master_is_followed",),
    ),
    Mutation(
        name="R20",
        what="a cut leaves the old tail in place",
        target="rollcall_ha.broker.log.cut:_zero_tail",
        mutate=constant(None),
        case="cut-tail-comes-back",
        tests=("tests/unit/test_log_power_cut.py::test_r20_a_cut_is_on_disk_when_it_returns",),
    ),
    Mutation(
        name="vote-not-durable",
        what="a controller votes twice in one term",
        target="rollcall_ha.controller.replication.raft.journal:DurableJournal.setCurrentTerm",
        mutate=_vote_in_memory_only,
        case="vote-over-a-restart",
        tests=(
            "tests/unit/test_replication_stock_faults.py::test_a_vote_is_remembered_over_a_power_loss",
            "tests/property/test_replication_formats.py::test_a_power_loss_leaves_a_state_between_the_last_sync_and_now",
        ),
    ),
    Mutation(
        name="W5",
        what="an epoch entry beyond the end of the log stays",
        target="rollcall_ha.epoch.history:EpochHistory.repaired",
        mutate=lambda _original: lambda self, _end: self,
        case="entry-beyond-the-end",
        tests=("tests/unit/test_log_commit_log.py::test_epoch_entries_beyond_the_recovered_end_are_dropped",),
    ),
    Mutation(
        name="R20-cut-not-synced",
        what="the zeros of a cut are not on the disk when it is reported done",
        target="rollcall_ha.broker.log.cut:_sync",
        mutate=constant(None),
        case="cut-over-a-power-cut",
        tests=("tests/unit/test_log_power_cut.py::test_r20_a_cut_over_segments_is_on_disk_when_it_returns",),
        once_unnoticed="a cut is not synced",
    ),
    Mutation(
        name="R3-start-not-synced",
        what="a start reports records that are in the page cache only",
        target="rollcall_ha.broker.log.commit_log:CommitLog._start_flusher",
        mutate=_syncs_nothing,
        case="start-over-a-power-cut",
        tests=("tests/unit/test_log_power_cut.py::test_r3_what_a_start_returned_survives_the_power_cut_that_follows",),
        once_unnoticed="recovery opens without a sync",
    ),
    Mutation(
        name="R3-start-behind-a-failed-sync",
        what="a start takes pages for synced that a failed sync has called clean",
        target="rollcall_ha.broker.log.segment:LogSegment.write_again",
        mutate=constant(None),
        case="start-after-a-failed-sync",
        tests=(
            "tests/unit/test_log_failed_sync.py::test_r3_what_a_start_calls_synced_is_on_disk_though_a_sync_failed_before_it",
        ),
    ),
    Mutation(
        name="R3-failed-sync-keeps-its-store",
        what="the store of a process whose sync failed vouches for its pages",
        target="rollcall_ha.broker.identity:disown",
        mutate=constant(None),
        story="r03_failed_sync",
        tests=("tests/unit/test_broker_replica.py::test_a_store_whose_sync_failed_is_another_one_at_the_next_start",),
        once_unnoticed="a store whose sync failed is not disowned",
    ),
    Mutation(
        name="R3-copy-is-the-same-store",
        what="a copy of a directory is the store that it was copied from",
        target="rollcall_ha.broker.identity:_store",
        mutate=lambda original: lambda files, parts: original(files, changed(parts, birthmark=lambda _path: "")),
        case="copy-of-a-directory",
        tests=("tests/unit/test_broker_lost_log.py::test_a_copy_of_a_directory_was_the_same_store",),
    ),
    Mutation(
        name="R3-unknown-birth-is-another-store",
        what="a replica leaves its set with its upgrade: the program of before knew no births",
        target="rollcall_ha.broker.identity:_store",
        mutate=_unknown_birth_is_another_one,
        tests=(
            "tests/unit/test_broker_lost_log.py::test_a_directory_of_a_program_that_knew_no_births_stays_the_same_store",
            "tests/unit/test_broker_lost_log.py::test_a_file_system_that_tells_no_birth_accuses_nobody",
        ),
    ),
    Mutation(
        name="R9-marks-not-synced",
        what="a promise is given that a power cut takes back",
        target="rollcall_ha.broker.replica_files:MarksFile.store",
        mutate=_syncs_nothing,
        case="promise-over-a-power-cut",
        tests=("tests/unit/test_log_power_cut.py::test_r9_a_promise_is_on_disk_when_it_is_given",),
        once_unnoticed="marks are stored without fdatasync",
    ),
    Mutation(
        name="R9-marks-behind-a-failed-sync",
        what="a start goes by a promise that a failed sync has not written",
        target="rollcall_ha.broker.identity:marks_on_disk",
        mutate=lambda _original: lambda files: files.marks.load(),
        case="promise-after-a-failed-sync",
        tests=(
            "tests/unit/test_log_failed_sync.py::test_r9_a_promise_that_a_start_has_read_is_on_disk_though_its_sync_failed",
        ),
    ),
    Mutation(
        name="R12-half-a-record",
        what="an epoch begins behind half a record of the old master",
        target="rollcall_ha.broker.role_shell:RoleShell._record",
        mutate=_begins_behind_half_a_record,
        case="half-a-record-at-a-promotion",
        tests=(
            "tests/unit/test_broker_role_shell.py::test_r12_half_a_record_of_the_old_master_is_cut_before_the_epoch_begins",
        ),
        once_unnoticed="half a record is kept at a promotion",
    ),
)
