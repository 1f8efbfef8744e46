"""When the demo has seen enough failovers, and what it calls a failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from rollcall_ha.deploy.local.demo import KILLS_MAX, KILLS_MIN, faults_of, is_measured, start_producer
from rollcall_ha.deploy.local.producer import COUNTS_FILE_NAME, SendCounts, read_counts

TOTAL_MS = 50.0


def _result(**changed: Any) -> dict[str, Any]:
    return {
        "acked": 10,
        "retried": 1,
        "duplicate_answers": 1,
        "truncated_bytes": 1,
        "lost": 0,
        "duplicated": 0,
        "audit_troubles": 0,
        "audited_replicas": 3,
        "consumed": 100,
        "consumed_missing": 0,
        "consumed_twice": 0,
        "total_ms": TOTAL_MS,
        "unattributed_ms": 0.4,
        "unattributed_error_ms": 0.0,
    } | changed


def test_means_of_three_failovers_were_a_matter_of_chance() -> None:
    """A demo failed by 3.6 ms of 60.6: three failovers, one of which had waited 6 ms for a core."""
    unlucky = [2.939, 6.042, 1.948]

    assert not is_measured(unlucky, [60.6] * 3)
    assert not is_measured([*unlucky, 0.4, 0.3], [60.6] * 5)
    assert is_measured([*unlucky, 0.4, 0.3, 0.9, 1.2, 0.6, 0.8, 1.1, 0.4], [60.6] * 11)


@pytest.mark.parametrize("unattributed_ms", [0.2, 2.4, 2.6, 40.0])
def test_how_much_is_unexplained_does_not_decide_when_to_stop(unattributed_ms: float) -> None:
    """Only how exactly it is known does: whoever killed on until the mean is small would prove nothing."""
    each = [unattributed_ms - 0.1, unattributed_ms + 0.1] * KILLS_MAX

    assert [is_measured(each[:count], [TOTAL_MS] * count) for count in (KILLS_MIN - 1, KILLS_MIN)] == [False, True]


def test_failovers_that_differ_too_much_end_somewhere() -> None:
    """The limit holds whatever the values are."""
    wild = [-500.0, 500.0] * KILLS_MAX

    assert [is_measured(wild[:count], [TOTAL_MS] * count) for count in (KILLS_MAX - 1, KILLS_MAX)] == [False, True]


@pytest.mark.parametrize(("unattributed_ms", "is_fault"), [(2.5, False), (-2.5, False), (2.6, True), (-2.6, True)])
def test_more_than_a_twentieth_unexplained_fails_the_demo(unattributed_ms: float, is_fault: bool) -> None:
    """On either side: a record that explains more than there was is as wrong."""
    assert bool(faults_of(_result(unattributed_ms=unattributed_ms))) is is_fault


@pytest.mark.parametrize(("unattributed_ms", "is_fault"), [(2.995, False), (3.6, False), (3.7, True), (-3.7, True)])
def test_five_failovers_that_agreed_by_chance_failed_the_demo(unattributed_ms: float, is_fault: bool) -> None:
    """By 2.995 ms of 53.4, whose standard error was 0.5 ms: a twentieth, 2.7 ms, was within what it may be."""
    result = _result(unattributed_ms=unattributed_ms, unattributed_error_ms=0.5, total_ms=53.362)

    assert bool(faults_of(result)) is is_fault


def test_counts_of_an_earlier_producer_are_not_taken_for_those_of_the_new_one(tmp_path: Path) -> None:
    """``make demo-up`` behind ``make demo`` waited for acknowledgement 74,865 of a producer that began at 0."""
    (tmp_path / COUNTS_FILE_NAME).write_bytes(b'{"acked":74864}')

    start_producer(Mock(books=tmp_path))

    assert read_counts(tmp_path) == SendCounts()
