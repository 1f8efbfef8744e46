"""
Mutants of the rules of callers: owners of broker ids, revoked certificates, elections that only people may ask for,
settings.

Here: the list. Not here: what a mutant is (``mutation``), running it (``mutants``).
"""

from __future__ import annotations

import asyncio
from typing import Any

from rollcall_ha.controller.runtime.sessions import ROCKETMQ_PROBE_PAUSE_MS
from tests.sim.mutation import Function, Mutation, constant, instead


def _closed_as_any_other(original: Function) -> Function:
    return lambda self, connection, now_ns, **_named: original(self, connection, now_ns)


def _as_decided(_original: Function) -> Function:
    return lambda _fleet, _operation, _set_key, decision: decision


def _with_an_empty_list(original: Function) -> Function:
    return lambda self, credentials, _remembered, store: original(self, credentials, None, store)


def _nobody_aside(_original: Function) -> Function:
    return lambda _fleet, _set_state, **_named: {}


def _pauses_as_for_no_answer(original: Function) -> Function:
    def mutated(self: Any, session: Any, *, after_ms: int = 0) -> Any:
        return original(self, session, after_ms=after_ms and ROCKETMQ_PROBE_PAUSE_MS)

    return mutated


def _by_any_time(_original: Function) -> Function:
    return lambda timeout_ms: asyncio.timeout(timeout_ms / 1000)


CALLERS: tuple[Mutation, ...] = (
    Mutation(
        name="C12",
        what="a pause withholds no election",
        target="rollcall_ha.controller.core.pauses:unless_paused",
        mutate=_as_decided,
        tests=(
            "tests/unit/test_core_pauses.py::test_a_dead_master_in_a_pause_has_no_successor_and_the_record_names_who_it_would_be",
            "tests/unit/test_core_pauses.py::test_a_master_that_stops_in_a_pause_goes_without_a_successor",
            "tests/unit/test_runtime_pauses.py::test_one_withheld_election_is_on_record_however_long_the_pause_lasts",
        ),
    ),
    Mutation(
        name="C13",
        what="settings are taken key by key, and not judged as a whole",
        target="rollcall_ha.controller.core.settings:faults_of",
        mutate=constant(()),
        tests=(
            "tests/unit/test_core_settings.py::test_an_inconsistent_whole_is_refused_with_both_values_and_the_remedy",
            "tests/property/test_core_laws.py::test_random_lives_keep_every_invariant",
        ),
    ),
    Mutation(
        name="C15",
        what="any numbers are taken for a set",
        target="rollcall_ha.controller.core.decide_configure:_refuse_wanted",
        mutate=constant(None),
        tests=(
            "tests/unit/test_core_configure.py::test_numbers_that_make_no_sense_are_refused_with_both_values",
            "tests/unit/test_core_configure.py::test_an_order_that_would_stop_the_writes_is_refused_and_one_that_starts_them_is_not",
        ),
    ),
    Mutation(
        name="C14",
        what="a replica in maintenance is elected as any other",
        target="rollcall_ha.controller.core.maintenance:set_aside",
        mutate=_nobody_aside,
        tests=(
            "tests/unit/test_core_maintenance.py::test_a_replica_in_maintenance_is_not_elected_and_the_record_says_why",
            "tests/unit/test_core_maintenance.py::test_a_target_that_goes_into_maintenance_ends_its_switchover",
            "tests/unit/test_runtime_maintenance.py::test_a_set_whose_heirs_are_in_maintenance_has_a_master_when_it_ends",
        ),
    ),
    Mutation(
        name="R27",
        what="whoever shows the register code is the replica",
        target="rollcall_ha.controller.core.callers:_is_owner",
        mutate=constant(True),
        tests=(
            "tests/unit/test_core_callers.py::test_r27_an_id_belongs_to_the_certificate_that_asked_for_it",
            "tests/unit/test_core_callers.py::test_r27_a_strangers_repeat_of_a_registration_does_not_get_its_answer",
        ),
    ),
    Mutation(
        name="R27-other-sets",
        what="a broker orders in every set, and what people order",
        target="rollcall_ha.controller.core.callers:_above_its_role",
        mutate=constant(""),
        tests=(
            "tests/unit/test_core_callers.py::test_r27_a_broker_speaks_for_its_own_set_and_as_a_broker",
            "tests/unit/test_core_callers.py::test_r27_an_alter_in_the_name_of_another_sets_master_changes_nothing",
        ),
    ),
    Mutation(
        name="R27-links",
        what="every broker of a set acks for each of its replicas",
        target="rollcall_ha.ha.master_link:MasterLink._is_owner",
        mutate=constant(True),
        tests=(
            "tests/unit/test_ha_secured.py::test_r27_a_stolen_certificate_of_the_set_acks_for_its_own_id_only",
            "tests/unit/test_ha_secured.py::test_r27_an_id_that_is_bound_meanwhile_ends_the_link_of_another",
        ),
    ),
    Mutation(
        name="claims-second-network",
        what="a living broker whose heartbeats come from a second network is silent",
        target="rollcall_ha.api.rocketmq.controller.claims:Claims._is_second_network",
        mutate=constant(False),
        tests=(
            "tests/unit/test_gateway_claims.py::test_a_living_broker_on_two_networks_does_not_count_as_silent",
            "tests/unit/test_gateway_claims.py::test_heartbeats_from_a_second_network_keep_the_master",
        ),
    ),
    Mutation(
        name="claims-any-host",
        what="anybody's heartbeats keep a dead broker alive",
        target="rollcall_ha.api.rocketmq.controller.claims:Claims._is_second_network",
        mutate=constant(True),
        tests=(
            "tests/unit/test_gateway_claims.py::test_nobody_keeps_a_dead_broker_alive_that_sent_its_own_heartbeats",
            "tests/unit/test_gateway_claims.py::test_words_from_another_host_move_nothing",
        ),
    ),
    Mutation(
        name="acting-masters",
        what="a set without a master has no acting one",
        target="rollcall_ha.api.rocketmq.names.answers:_acting_masters",
        mutate=constant({}),
        tests=(
            "tests/unit/test_gateway_names.py::test_consumers_of_a_set_without_a_master_go_on_with_an_acting_one",
            "tests/unit/test_gateway_names.py::test_an_acting_master_elsewhere_is_hidden_as_a_master_is",
        ),
    ),
    Mutation(
        name="static-topics-of-all",
        what="one static topic's bare keys make all other topics of its broker count as such",
        target="rollcall_ha.api.rocketmq.names.beans:_STATIC_TOPICS",
        mutate=instead(b""),
        tests=(
            "tests/unit/test_gateway_names.py::test_one_static_topic_does_not_keep_a_broker_of_many_topics_out",
            "tests/unit/test_gateway_names.py::test_static_topics_above_the_limit_are_refused_with_the_remedy",
        ),
    ),
    Mutation(
        name="refusal-waits-as-silence",
        what="a RocketMQ master that has refused a probe is asked again as late as one that did not answer",
        target="rollcall_ha.controller.runtime.sessions:Sessions._maybe_probe",
        mutate=_pauses_as_for_no_answer,
        tests=(
            "tests/unit/test_runtime_rocketmq.py::test_master_is_dead_at_once_after_two_refused_probes",
            "tests/unit/test_runtime_rocketmq.py::test_dying_broker_is_probed_until_its_listener_is_gone",
        ),
    ),
    Mutation(
        name="busy-loop-is-silence",
        what="a controller that is busy takes its own standstill for the silence of the broker that it asks",
        target="rollcall_ha.node.remoting.asking:running_timeout",
        mutate=_by_any_time,
        tests=(
            "tests/unit/test_gateway_pushes.py::test_a_busy_loop_is_not_taken_for_a_silent_broker",
            "tests/unit/test_gateway_pushes.py::test_a_busy_loop_does_not_keep_a_dead_master_until_its_timeout",
        ),
    ),
    Mutation(
        name="R28",
        what="what a revoked certificate or token asked is done",
        target="rollcall_ha.controller.core.callers:_revoked",
        mutate=constant(""),
        tests=(
            "tests/unit/test_core_callers.py::test_r28_nothing_that_a_revoked_certificate_asks_is_done",
            "tests/unit/test_core_callers.py::test_r28_a_revocation_within_an_entry_counts_from_the_next_item_on",
            "tests/unit/test_core_callers.py::test_r28_a_token_is_its_principal_until_it_expires_or_is_revoked",
        ),
    ),
    Mutation(
        name="R28-gone-at-once",
        what="a master whose certificate is revoked is probed, and answers",
        target="rollcall_ha.controller.runtime.sessions:Sessions.close",
        mutate=_closed_as_any_other,
        tests=(
            "tests/unit/test_runtime_revocations.py::test_r28_a_master_whose_certificate_is_revoked_is_replaced_at_once",
            "tests/unit/test_runtime_revocations.py::test_r28_a_revoked_slave_is_not_elected_after_it",
        ),
    ),
    Mutation(
        name="R28-told",
        what="nobody is told of a revocation: its links stay",
        target="rollcall_ha.controller.runtime.revocations:RevocationWatch.look",
        mutate=constant(None),
        tests=(
            "tests/unit/test_runtime_revocations.py::test_a_list_from_a_snapshot_is_told_once_and_the_one_in_force_counts",
            "tests/unit/test_runtime_revocations.py::test_r28_a_revocation_closes_the_session_and_counts_its_replica_as_gone",
        ),
    ),
    Mutation(
        name="R28-remembered",
        what="a broker that starts without controllers believes everybody again",
        target="rollcall_ha.broker.revocations:RevokedPeers.__init__",
        mutate=_with_an_empty_list,
        tests=(
            "tests/unit/test_broker_revocations.py::test_r28_a_start_without_controllers_refuses_whom_the_process_before_it_refused",
            "tests/unit/test_broker_revocations.py::test_r28_a_start_asks_for_the_list_that_it_lacks",
        ),
    ),
    Mutation(
        name="R28-links",
        what="a link that stands is not asked again",
        target="rollcall_ha.node.remoting.links:LinkTable._judge_again",
        mutate=constant(None),
        tests=(
            "tests/unit/test_ha_secured.py::test_r28_a_revoked_peer_loses_its_open_link_at_once",
            "tests/unit/test_ha_secured.py::test_a_link_ends_when_the_certificate_of_its_peer_expires",
        ),
    ),
)
