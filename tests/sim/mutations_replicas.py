"""
Mutants of the rules of one replica: promises, epochs, roles, links, its log as clients and followers see it.

Here: the list. Not here: what a mutant is (``mutation``), running it (``mutants``).
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from rollcall_ha.broker.core.goals import GoalKind
from rollcall_ha.broker.core.role_io import PrepareMaster, StepDone, StopSlaveLink
from rollcall_ha.controller.contract.ids import LogOffset
from rollcall_ha.epoch.history import EpochHistory
from rollcall_ha.epoch.model import NO_EPOCH
from rollcall_ha.ha.slave_link import SlaveLinkState
from rollcall_ha.ha.truncation import Cut
from tests.sim.mutation import Function, Mutation, changed, constant, instead


def _marks_are_forgotten(original: Function) -> Function:
    def mutated(self: Any, event: Any) -> Any:
        return original(self, changed(event, marks=type(event.marks)()))

    return mutated


def _mastership_outlives_the_process(original: Function) -> Function:
    def mutated(state: Any, event: Any) -> Any:
        result = original(state, event)
        if state.master == event.broker_id:
            result = replace(result, master=state.master, master_incarnation=event.incarnation)
        return result

    return mutated


def _bytes_before_the_entry(original: Function) -> Function:
    def mutated(self: Any, header: Any) -> Any:
        actions = original(self, header)
        if self.state is SlaveLinkState.RECORDING:
            self.state = SlaveLinkState.TRANSFER
            self._recording = None
            return []
        return actions

    return mutated


def _start_before_the_link_stops(original: Function) -> Function:
    def mutated(self: Any, event: Any, *, now_us: int) -> Any:
        actions = original(self, event, now_us=now_us)
        held = self.__dict__.setdefault("_held_stop", [])
        stops = [action for action in actions if isinstance(action, StopSlaveLink)]
        if stops and self.goal.kind is GoalKind.REIGN:
            held.append(stops[0])
            others = [action for action in actions if action is not stops[0]]
            return others + mutated(self, StepDone(step=stops[0].step, offset=LogOffset(0)), now_us=now_us)
        if held and any(isinstance(action, PrepareMaster) for action in actions):
            return [held.pop(), *actions]
        return actions

    return mutated


def _acks_without_epoch(original: Function) -> Function:
    return lambda self, ack: original(self, changed(ack, master_epoch=self._master_epoch))


def _acks_without_link(original: Function) -> Function:
    def mutated(self: Any, ack: Any) -> Any:
        link = self._links.get(ack.broker_id)
        if link is not None:
            ack = changed(ack, link_generation=link.link_generation, incarnation=link.incarnation)
        return original(self, ack)

    return mutated


def _confirmed_bytes_are_cut(_original: Function) -> Function:
    return lambda point, _confirm, _what: Cut(point=point, history=EpochHistory(), cut_bytes=0)


def _appends_behind_the_index(_original: Function) -> Function:
    def mutated(self: Any, *, stored_at_ms: int) -> None:
        self._stored_at_ms = stored_at_ms

    return mutated


def _empty_epoch_is_refused(original: Function) -> Function:
    def mutated(self: EpochHistory, entry: Any) -> EpochHistory:
        if self.last is not None and self.last.start_offset == entry.start_offset:
            return self
        result = original(self, entry)
        assert isinstance(result, EpochHistory)
        return result

    return mutated


REPLICAS: tuple[Mutation, ...] = (
    Mutation(
        name="R9-marks-fall",
        what="promises are forgotten at a restart",
        target="rollcall_ha.broker.core.role:RoleMachine._on_recovered",
        mutate=_marks_are_forgotten,
        case="stale-master-after-a-restart",
        tests=("tests/property/test_broker_role.py::test_r9_a_process_keeps_what_the_one_before_it_promised",),
    ),
    Mutation(
        name="R9-old-epoch-to-a-new-incarnation",
        what="a master that restarts is still the master of its epoch",
        target="rollcall_ha.controller.core.evolve:_registered",
        mutate=_mastership_outlives_the_process,
        case="restarted-master",
        tests=(
            "tests/property/test_core_laws.py::test_random_lives_keep_every_invariant",
            "tests/unit/test_runtime_outages.py::test_a_master_that_is_back_before_it_was_found_gone_leaves_the_time_of_its_end",
        ),
    ),
    Mutation(
        name="R9-bytes-before-the-entry",
        what="a follower takes bytes of an epoch that it has not recorded",
        target="rollcall_ha.ha.slave_link:SlaveLink._take_header",
        mutate=_bytes_before_the_entry,
        case="entry-before-its-bytes",
        tests=("tests/unit/test_ha_links.py::test_an_empty_slave_gets_everything_with_its_epochs",),
    ),
    Mutation(
        name="R12-order",
        what="the start is fixed while bytes still arrive",
        target="rollcall_ha.broker.core.role:RoleMachine.handle",
        mutate=_start_before_the_link_stops,
        case="start-after-the-link",
        tests=(
            "tests/unit/test_broker_role_memory.py::test_the_winner_reports_the_highest_end_that_it_acked_to_the_old_master",
        ),
    ),
    Mutation(
        name="R12-acks-without-epoch",
        what="a late ack of an older epoch counts",
        target="rollcall_ha.ha.confirm_offset:SlaveAcks.record",
        mutate=_acks_without_epoch,
        case="late-acks",
        tests=("tests/unit/test_ha_sync_state.py::test_r12_acks_of_another_epoch_link_or_incarnation_do_not_count",),
    ),
    Mutation(
        name="R12-acks-without-link",
        what="a late ack of an older link or life counts",
        target="rollcall_ha.ha.confirm_offset:SlaveAcks.record",
        mutate=_acks_without_link,
        case="late-acks",
        tests=("tests/unit/test_ha_sync_state.py::test_r12_acks_of_another_epoch_link_or_incarnation_do_not_count",),
    ),
    Mutation(
        name="R12-data-of-a-closed-link",
        what="bytes of a link that was closed are taken",
        target="rollcall_ha.ha.slave_link:SlaveLink.connection_lost",
        mutate=constant(None),
        case="data-after-the-close",
        tests=("tests/unit/test_ha_links.py::test_r12_data_of_a_closed_link_is_dropped",),
    ),
    Mutation(
        name="R17",
        what="a waiter outlives the epoch in which it appended",
        target="rollcall_ha.broker.core.acks:WaitingSends.fail_all",
        mutate=constant([]),
        case="waiters-of-an-ended-epoch",
        tests=(
            "tests/unit/test_broker_acks.py::test_r17_an_ended_epoch_takes_nobody_and_releases_nobody",
            "tests/unit/test_handlers_put.py::test_r17_a_waiter_of_an_ended_epoch_is_never_released_by_a_later_one",
        ),
    ),
    Mutation(
        name="R17-waits-for-ever",
        what="a send is never answered while its epoch lasts",
        target="rollcall_ha.broker.core.acks:WaitingSends.expire",
        mutate=constant([]),
        tests=(
            "tests/unit/test_broker_acks.py::test_what_waits_too_long_is_told_and_what_came_later_waits_on",
            "tests/unit/test_handlers_put.py::test_r17_a_send_waited_for_the_end_of_an_epoch_that_lasted_for_days",
        ),
    ),
    Mutation(
        name="empty-epoch-refused",
        what="bytes land under an older epoch",
        target="rollcall_ha.epoch.history:EpochHistory.appended",
        mutate=_empty_epoch_is_refused,
        story="s34_old_member_returns",
        tests=("tests/unit/test_epoch_history.py::test_an_empty_last_epoch_is_replaced_by_the_next_one",),
    ),
    Mutation(
        name="R18",
        what="a retry is appended again",
        target="rollcall_ha.broker.core.producers:ProducerTable.judge",
        mutate=lambda original: (
            lambda self, stamp: (
                type(original(self, stamp)).ACCEPT
                if original(self, stamp).name == "DUPLICATE"
                else original(self, stamp)
            )
        ),
        case="retry-of-a-send",
        tests=(
            "tests/unit/test_client_producer.py::test_answers_lost_in_a_failover_neither_lose_nor_double_a_message",
            "tests/property/test_broker_producers.py::test_every_verdict_is_that_of_a_model_with_all_records",
        ),
    ),
    Mutation(
        name="R18-half-a-batch",
        what="a batch of which a failover left the first ones is answered as if all were there",
        target="rollcall_ha.broker.core.producers:ProducerTable.known_of",
        mutate=lambda _original: lambda _self, _stamp, count: count,
        case="retry-of-a-cut-batch",
        tests=(
            "tests/unit/test_handlers_batches.py::test_r18_of_a_batch_that_a_failover_cut_the_rest_is_appended_and_nothing_twice",
            "tests/unit/test_client_batches.py::test_a_batch_that_a_failover_cut_is_whole_and_once_at_the_next_master",
        ),
    ),
    Mutation(
        name="R18-one-number",
        what="a batch counts as one message in the table of its producer",
        target="rollcall_ha.broker.core.producers:ProducerTable.fold_run",
        mutate=lambda _original: lambda self, stamp, offsets: self.fold(stamp, offsets[0]),
        case="retry-of-a-cut-batch",
        tests=(
            "tests/unit/test_handlers_batches.py::test_a_batch_is_recognised_whole_and_each_record_has_its_own_number",
            "tests/property/test_broker_producers.py::test_a_run_is_folded_as_its_records_are_and_judged_by_what_is_there",
        ),
    ),
    Mutation(
        name="R19",
        what="a new master numbers messages before it knows the numbers of those it received",
        target="rollcall_ha.broker.log.commit_log:CommitLog.begin_run",
        mutate=_appends_behind_the_index,
        case="append-behind-unindexed-records",
        tests=("tests/unit/test_log_commit_log.py::test_received_bytes_count_as_acked_only_by_whole_records",),
    ),
    Mutation(
        name="R19-prepared-records",
        what="the master counts a place for a record that nobody else counts",
        target="rollcall_ha.broker.log.record:Draft.is_queued",
        mutate=instead(True),
        tests=(
            "tests/unit/test_log_commit_log.py::test_r19_a_slave_counted_no_place_for_a_prepared_record_and_the_master_did",
            "tests/property/test_log_commit_log.py::test_a_log_that_is_read_again_gives_the_offsets_that_were_answered",
        ),
    ),
    Mutation(
        name="R19-not-served",
        what="a prepared or delayed message is stored as an ordinary one, and delivered at once",
        target="rollcall_ha.broker.handlers.put:_why_not_served",
        mutate=constant(""),
        tests=("tests/unit/test_handlers_put.py::test_what_is_not_served_was_taken_as_an_ordinary_message",),
    ),
    Mutation(
        name="R21",
        what="a higher epoch of a peer is not asked after",
        target="rollcall_ha.broker.core.session:SessionMachine.look_up",
        mutate=constant([]),
        case="peer-in-a-higher-epoch",
        tests=(
            "tests/unit/test_broker_session.py::test_r21_a_higher_epoch_of_a_peer_is_asked_after_at_once_but_not_without_end",
        ),
    ),
    Mutation(
        name="R21-left-by-its-slaves",
        what="a master names itself for as long as it is cut from the controllers",
        target="rollcall_ha.broker.core.role:RoleMachine.is_doubted",
        mutate=instead(False),
        case="master-that-its-slaves-left",
        tests=(
            "tests/unit/test_broker_replica.py::test_r21_a_master_that_its_slaves_have_left_named_itself_in_every_route",
        ),
    ),
    Mutation(
        name="R21-strangers",
        what="a master answers whoever names itself a replica of its set",
        target="rollcall_ha.ha.master_link:MasterLink._is_registered",
        mutate=constant(True),
        case="ack-of-a-stranger",
        tests=("tests/unit/test_ha_links.py::test_a_stranger_is_never_answered_and_nothing_of_it_counts",),
    ),
    Mutation(
        name="R21-ended-incarnation",
        what="acks of a process count although its successor has registered",
        target="rollcall_ha.ha.master_link:MasterLink.replicas_changed",
        mutate=constant([]),
        case="ack-of-an-ended-incarnation",
        tests=("tests/unit/test_ha_links.py::test_a_replica_that_registered_a_moment_ago_waits_for_the_master_s_view",),
    ),
    Mutation(
        name="R26",
        what="a replica cuts what it knows to be confirmed",
        target="rollcall_ha.ha.truncation:_isolate",
        mutate=_confirmed_bytes_are_cut,
        case="cut-below-confirm",
        tests=("tests/unit/test_ha_truncation.py::test_a_cut_below_the_own_confirm_isolates",),
    ),
    Mutation(
        name="R26-unclean-epoch",
        what="the controllers never say which epoch began uncleanly: members that return isolate themselves",
        target="rollcall_ha.controller.core.evolve:_may_lack_confirmed",
        mutate=constant(False),
        story="r26_unclean_return",
        tests=(
            "tests/unit/test_core_unclean_epoch.py::test_the_view_names_the_unclean_epoch_and_the_old_master_is_cut_by_it",
        ),
    ),
    Mutation(
        name="W3",
        what="an epoch is entered twice",
        target="rollcall_ha.broker.core.goals:_goal_for_own_epoch",
        mutate=lambda original: lambda view, standing: original(view, changed(standing, left_epoch=NO_EPOCH)),
        case="epoch-entered-twice",
        tests=("tests/unit/test_broker_role_memory.py::test_w3_an_epoch_that_was_left_is_not_entered_again",),
    ),
    Mutation(
        name="W4",
        what="an epoch without an entry of its own",
        target="rollcall_ha.epoch.history:EpochHistory.appended",
        mutate=_empty_epoch_is_refused,
        case="empty-epochs",
        tests=("tests/unit/test_epoch_history.py::test_an_empty_last_epoch_is_replaced_by_the_next_one",),
    ),
)
