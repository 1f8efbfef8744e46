"""
Mutants of rules about what stands around a process: logs, headers of foreign clients, directories, secrets, readers.

Here: the list. Not here: what a mutant is (``mutation``), running it (``mutants``).
"""

from __future__ import annotations

import os
from pathlib import Path

from rollcall_ha.node.remoting import frame
from tests.sim.mutation import Function, Mutation, constant


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
)
