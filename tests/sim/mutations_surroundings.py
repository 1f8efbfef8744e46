"""
Mutants of rules about what stands around a process: logs, headers of foreign clients, directories, secrets, names of
hosts, clocks, readers, and people who are asked or told.

Here: the list. Not here: what a mutant is (``mutation``), running it (``mutants``).
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from rollcall_ha.api.rest import problems
from rollcall_ha.node.remoting import frame, names
from tests.sim.mutation import Function, Mutation, changed, constant, instead


def _at_once(_original: Function) -> Function:
    return lambda self, text: os.write(self._descriptor, text.encode())


def _java_alone(_original: Function) -> Function:
    return frame._decode_json_header


def _whatever_its_mode(_original: Function) -> Function:
    return Path.read_bytes


def _as_it_is(_original: Function) -> Function:
    return lambda text, _stream: text


def _a_pattern(_original: Function) -> Function:
    return lambda value: str(value)  # noqa: PLW0108  (a mutant is called as its function is)


def _of_its_owner_alone(original: Function) -> Function:
    def mutated(path: Path) -> Any:
        if path.stat().st_mode & 0o070:
            raise PermissionError(f"{path}: chmod 0600")
        return original(path)

    return mutated


def _remembers_no_address(original: Function) -> Function:
    def mutated(host: str, port: int, *, timeout_ms: int) -> Any:
        names._known.clear()
        return original(host, port, timeout_ms=timeout_ms)

    return mutated


def _without_what_to_give(_original: Function) -> Function:
    return lambda detail: problems.bad_request(400, detail)


def _leads_to_the_end(original: Function) -> Function:
    def mutated(self: Any, directory: Any, **named: Any) -> None:
        original(self, directory, **{name: value for name, value in named.items() if name != "leave"})

    return mutated


def _seen_of_nobody(original: Function) -> Function:
    return lambda service, beat, connection: original(service, changed(beat, seen_index=0), connection)


SURROUNDINGS: tuple[Mutation, ...] = (
    Mutation(
        name="N1",
        what="a log line is written where it is made, and raises",
        target="rollcall_ha.node.standard_error:LineWriter.write",
        mutate=_at_once,
        tests=(
            "tests/unit/test_node_standard_error.py::test_a_line_for_a_reader_that_died_is_dropped_and_counted",
            "tests/unit/test_node_standard_error.py::test_lines_that_were_dropped_are_told_by_the_next_one_that_is_written",
        ),
    ),
    Mutation(
        name="N2",
        what="header fields that are no texts are nonsense",
        target="rollcall_ha.node.remoting.frame:_decode_other_header",
        mutate=_java_alone,
        tests=(
            "tests/property/test_foreign_headers.py::test_a_send_with_numbers_is_understood_as_its_twin_with_texts",
            "tests/property/test_foreign_headers.py::test_a_field_that_is_null_is_none",
        ),
    ),
    Mutation(
        name="N3",
        what="a data directory is taken without a look at what is in it",
        target="rollcall_ha.node.files:_refuse_foreign",
        mutate=constant(None),
        tests=(
            "tests/unit/test_node_files.py::test_a_claim_that_is_refused_changes_nothing",
            "tests/unit/test_controller_directories.py::test_a_start_that_is_refused_does_not_spend_the_right_to_found",
        ),
    ),
    Mutation(
        name="N4",
        what="a controller takes the data directory of another one",
        target="rollcall_ha.controller.runtime.directories:refuse_other_owner",
        mutate=constant(None),
        tests=(
            "tests/unit/test_controller_directories.py::test_the_directory_of_another_is_refused_with_both_names",
            "tests/unit/test_controller_directories.py::test_an_owner_that_cannot_be_read_is_refused",
        ),
    ),
    Mutation(
        name="N5",
        what="a secret that everybody may read is taken",
        target="rollcall_ha.node.files:read_secret",
        mutate=_whatever_its_mode,
        tests=(
            "tests/unit/test_secret_modes.py::test_a_secret_that_everybody_may_read_is_refused_with_mode_and_remedy",
            "tests/unit/test_rocketmq_access.py::test_a_bad_file_of_accounts_names_the_remedy_and_no_secret",
        ),
    ),
    Mutation(
        name="N6",
        what="JSON is written as it is where the reader's encoding lacks characters",
        target="rollcall_ha.node.terminal:json_for",
        mutate=_as_it_is,
        tests=(
            "tests/unit/test_node_terminal.py::test_json_for_an_ascii_reader_is_json_with_the_same_names",
            "tests/unit/test_cli_output.py::test_a_name_that_standard_output_cannot_encode_is_printed",
        ),
    ),
    Mutation(
        name="N7",
        what="a path is a pattern to Spark",
        target="rollcall_ha.analytics.lake.session:as_path",
        mutate=_a_pattern,
        tests=(
            "tests/unit/test_analytics_paths.py::test_signs_of_patterns_are_escaped",
            "tests/unit/test_analytics_paths.py::test_a_lake_below_a_folder_with_brackets_is_read_by_its_paths",
        ),
    ),
    Mutation(
        name="N8",
        what="a secret is refused that a group may read, as a Secret volume of Kubernetes shows it",
        target="rollcall_ha.node.files:read_secret",
        mutate=_of_its_owner_alone,
        tests=(
            "tests/unit/test_secret_modes.py::test_a_secret_that_a_group_may_read_is_taken",
            "tests/unit/test_hooks_settings.py::test_a_secret_of_a_volume_that_a_group_reads_was_refused",
        ),
    ),
    Mutation(
        name="N9",
        what="files that are not read are not named",
        target="rollcall_ha.analytics.bronze.lines:tell_unread",
        mutate=constant(None),
        tests=(
            "tests/unit/test_analytics_journals.py::test_a_file_of_a_persons_folder_was_left_out_without_a_word[events]",
            "tests/unit/test_analytics_paths.py::test_a_stream_left_out_what_spark_hides_without_a_word",
        ),
    ),
    Mutation(
        name="N10",
        what="a name has no address while no name server answers",
        target="rollcall_ha.node.remoting.names:looked_up",
        mutate=_remembers_no_address,
        tests=(
            "tests/unit/test_session_dials.py::test_a_name_keeps_its_addresses_while_no_name_server_answers[a name server that hangs]",
            "tests/unit/test_session_dials.py::test_a_name_keeps_its_addresses_while_no_name_server_answers[a name server that refuses]",
        ),
    ),
    Mutation(
        name="N11",
        what="a certificate is no good where the clock is ten minutes behind",
        target="rollcall_ha.node.authority:BACKDATED",
        mutate=instead(timedelta(minutes=5)),
        tests=(
            "tests/unit/test_node_credentials.py::test_a_clock_that_is_hours_behind_takes_a_certificate_of_this_minute",
            "tests/unit/test_cli_certs.py::test_a_leader_whose_clock_was_set_back_refused_a_fleet_that_was_renewed_as_a_whole",
        ),
    ),
    Mutation(
        name="N12",
        what="a founder is not asked how many replicas must be in sync",
        target="rollcall_ha.cli.founding:_ask_min_in_sync",
        mutate=constant(0),
        tests=(
            "tests/unit/test_cli_founding.py::test_a_person_is_asked_how_many_must_be_in_sync",
            "tests/unit/test_cli_founding.py::test_the_question_says_what_either_answer_costs",
        ),
    ),
    Mutation(
        name="N13",
        what="a controller that was put back does not hear that brokers have seen more than its log",
        target="rollcall_ha.controller.runtime.broker_requests:handle_heartbeat",
        mutate=_seen_of_nobody,
        tests=(
            "tests/unit/test_rest_app.py::test_a_leader_that_was_put_back_did_not_say_that_brokers_have_seen_more_than_its_log",
            "tests/unit/test_gateway_broker_port.py::test_the_heartbeats_of_a_session_tell_how_many_entries_a_controller_that_was_put_back_lacks",
        ),
    ),
    Mutation(
        name="N14",
        what="nobody is told of a lead that changes again and again",
        target="rollcall_ha.controller.contract.problems:lead_unstable_words",
        mutate=constant(""),
        tests=(
            "tests/unit/test_runtime_lead_watch.py::test_words_name_who_is_late",
            "tests/unit/test_cli_doctor.py::test_each_fault_is_named_with_both_values_and_a_remedy[a lead that changes]",
        ),
    ),
    Mutation(
        name="N15",
        what="a leader whose event journal fails ends without asking another one to lead",
        target="rollcall_ha.controller.runtime.event_journal:EventJournal.__init__",
        mutate=_leads_to_the_end,
        tests=(
            "tests/unit/test_runtime_event_journal.py::test_fault_while_writing_ends_the_process",
            "tests/unit/test_controller_directories.py::test_a_leader_whose_journals_disk_was_full_ended_with_the_lead",
        ),
    ),
    Mutation(
        name="N16",
        what="who asks a port with TLS plainly does not hear what to give",
        target="rollcall_ha.api.rest.problems:tls_only",
        mutate=_without_what_to_give,
        tests=(
            "tests/unit/test_cli_identity.py::test_whoever_is_not_taken_is_told_why_and_what_helps",
            "tests/unit/test_rest_tls.py::test_plain_http_is_told_what_it_missed_and_half_handshakes_end_in_time",
        ),
    ),
    Mutation(
        name="N17",
        what="a read that a busy leader did not answer to a follower is refused",
        target="rollcall_ha.client.client:_NO_ANSWER",
        mutate=instead(""),
        tests=(
            "tests/unit/test_api_client.py::test_a_read_that_a_busy_leader_did_not_answer_a_follower_is_asked_of_the_leader",
            "tests/unit/test_moving.py::test_the_dry_run_of_an_import_ended_where_the_leader_took_longer_than_a_second",
        ),
    ),
    Mutation(
        name="N18",
        what="a volume is not empty whose root has what its file system keeps there",
        target="rollcall_ha.node.files:VOLUME_ENTRIES",
        mutate=instead(frozenset()),
        tests=(
            "tests/unit/test_node_files.py::test_the_root_of_a_volume_is_empty_but_for_what_its_file_system_keeps_there",
            "tests/unit/test_controller_directories.py::test_a_founded_directory_at_the_root_of_a_volume_is_accepted",
        ),
    ),
)
