"""
The judge of `make prove PARTS=record-truth` finds what it is there for, and its stopwatch shares no code with the product.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest

from rollcall_ha.deploy.local.endpoints import Endpoint
from tests.truth.recorded import Event, Felt, felt, judge, longest_gaps, recorded
from tests.truth.samples import Sampler

STOPWATCH = Path(__file__).resolve().parents[1] / "truth" / "stopwatch.py"
FAILOVER = frozenset({"failover"})


def row(*, least_ms: float = 50, most_ms: float | None = 50, waited_ms: float = 0, kind: str = "failover", missing: tuple[str, ...] = ()) -> dict[str, Any]:  # fmt: skip
    """A reign as ``history -o json`` gives it."""
    most_us = None if most_ms is None else most_ms * 1000
    return {
        "kind": kind, "masterEpoch": 7, "totalUs": least_ms * 1000, "totalUsMax": most_us, "waitedUs": waited_ms * 1000, "missing": missing,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "felt_ms", "complaint"),
    [
        ([row()], 79, ""),
        ([row()], 81, "above the record"),
        ([row(least_ms=1000, most_ms=1000)], 960, ""),
        ([row(least_ms=1000, most_ms=1000)], 940, "below the record"),
        ([row(most_ms=4000, missing=("fault",))], 3900, ""),
        ([row(most_ms=4000, missing=("fault",))], 4300, "above the record"),
        ([row(most_ms=4000)], 3900, "does not say that it missed the fault"),
        ([row(most_ms=None, missing=("fault",))], 3900, "knows no upper bound"),
        ([row(waited_ms=500)], 550, ""),
        ([row(kind="requested")], 50, "kind requested, expected failover"),
        ([], 50, "nothing is on record"),
    ],
)
def test_a_record_is_held_against_what_was_felt(rows: list[dict[str, Any]], felt_ms: float, complaint: str) -> None:
    found = judge(recorded(rows, ()), felt=Felt(felt_ms, felt_ms), with_sends=True, expected=FAILOVER).complaints
    assert (complaint in found[0]) if complaint else not found


@pytest.mark.parametrize(
    ("answers", "felt_ms"),
    [
        ([(0, 1), (112, 1), (2_100, 1), (2_145, 2), (2_150, 2)], 2_033),
        ([(0, 1), (112, 1), (117, 1), (162, 2), (262, 2)], 45),
        ([(0, 1), (112, 1), (4_112, 1), (4_120, 1), (4_158, 2)], 4_000),
        ([(0, 2), (27, 2), (1_017, 2), (1_033, 3), (1_040, 3)], 1_006),
        ([(0, 2), (27, 2), (857, 2), (896, 3), (900, 3)], 869),
        ([(0, 1), (5, 1), (117, 1), (162, 2)], 45),
        ([(0, 1), (5, 1), (117, 1), (120, 1)], 112),
        ([(-40, 1), (-5, 2), (5, 2), (8, 2)], 10),
    ],
    ids=[
        "a silent master",
        "a busy machine",
        "a stop before an election",
        "the last word of a master that hung",
        "the same, below a stall",
        "a busy machine's last answer",
        "the same process serves",
        "a change before it",
    ],
)
def test_a_wait_for_a_core_before_an_order_was_taken_for_its_outage(
    answers: list[tuple[int, int]], felt_ms: float
) -> None:
    """Two seconds before the election nothing was acknowledged for 112 ms, and 60 ms on record were called untrue."""
    assert felt([Event(ms * 1_000_000, link) for ms, link in answers], 0)[:2] == (felt_ms, felt_ms)


def test_the_wait_for_the_last_answer_of_a_living_master_was_taken_for_its_outage() -> None:
    """A busy master answered 42 ms before it was killed: the record, which begins at its end, was called untrue."""
    answers = [Event(0, 1), Event(100 * 1_000_000, 2)]
    outage = felt(answers, 0, gone_ns=42 * 1_000_000)
    assert outage == Felt(100, 58, over_ns=answers[-1].at_ns)
    for length_ms, is_true in ((27, False), (58, True), (100, True), (131, False)):
        found = recorded([row(least_ms=length_ms, most_ms=length_ms)], ())
        assert (not judge(found, felt=outage, with_sends=True, expected=FAILOVER).complaints) is is_true


def test_a_wait_counts_only_where_somebody_sent() -> None:
    found = recorded([row(waited_ms=500)], ())
    assert judge(found, felt=Felt(50, 50), with_sends=True, expected=FAILOVER).complaints
    assert not judge(found, felt=Felt(50, 50), with_sends=False, expected=FAILOVER).complaints


def test_a_stop_that_an_election_ended_is_not_counted_twice() -> None:
    stops = [
        {"masterEpoch": 6, "reason": "fenced", "stoppedUs": 40_000, "end": "election"},
        {"masterEpoch": 6, "reason": "disk-full", "stoppedUs": 9_000, "end": "resumed"},
    ]
    found = recorded([row()], stops)
    assert (found.lower_ms, found.kinds) == (59, ("writes-stopped:disk-full", "failover"))


def test_a_first_ack_that_waits_for_a_stop_to_end_is_part_of_the_stop() -> None:
    stops = [{"masterEpoch": 7, "reason": "too-few-in-sync", "stoppedUs": 4_000_000, "end": "resumed"}]
    found = recorded([row(waited_ms=4_010)], stops)
    assert (found.lower_ms, found.waited_ms) == (4_050, 10)


def test_the_stopwatch_imports_nothing_but_the_standard_library() -> None:
    nodes = list(ast.walk(ast.parse(STOPWATCH.read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert names
    assert names <= sys.stdlib_module_names


@pytest.mark.parametrize(("second", "counted"), [("", 1), ("serving", 0)])
def test_a_disagreement_counts_if_it_is_still_there_at_a_second_look(
    second: str, counted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gate that opened 5 ms after its entry was a disagreement of two pages; one that stays shut is one."""
    sampler = Sampler(controllers=[], health={}, path="", check=lambda: 0)
    looks = iter([("serving", {"readyz": ""}), ("serving", {"readyz": second})])

    def look(*, with_check: bool) -> tuple[str, dict[str, str]]:
        found = next(looks)
        if found[1]["readyz"] == second:
            sampler.is_over.set()
        return found

    monkeypatch.setattr(sampler, "_look", look)
    monkeypatch.setattr("tests.truth.samples.PERIOD_S", 0.0)
    sampler.start()
    assert sampler.is_over.wait(5)
    result = sampler.stop()
    assert sum(result.disagreements.values()) == counted
    assert result.passing == 1 - counted
    assert result.compared == {"readyz": 1}


@pytest.mark.parametrize(("state", "compared"), [(None, None), ("master", "")])
def test_controllers_that_were_put_back_were_told_to_know_a_master_that_they_had_not_heard(
    state: str | None, compared: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They say so in the same answer: the master of their copy was a slave of a reign that they had forgotten."""
    monkeypatch.setattr("tests.truth.samples.get", lambda *_: (200, b"slave: broker 2 is master of masterEpoch 2"))
    sampler = Sampler(controllers=[], health={"a:1": Endpoint(address="a:1", context=None)}, path="", check=lambda: 0)
    replica = {"isMaster": True, "address": "a:1", "state": state}
    assert sampler._readyz({"view": {"condition": "serving"}, "replicas": [replica]}) == compared


def test_a_row_that_spark_gives_differently_is_found() -> None:
    """And one that only one side has; the count says how much was compared."""
    pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")
    from rollcall_ha.analytics.silver.phases import SPANS, span_column
    from tests.truth.spark import REIGN, STOP, compare

    spans = {span_column(phase): 3 for phase in SPANS}
    reign = dict.fromkeys(REIGN.values(), 1) | spans
    stop = dict.fromkeys(STOP.values(), 2) | {"end": "resumed"}
    phases = [{"phase": phase, "durationUs": 3} for phase in SPANS]
    told = {
        "rows": [{"masterEpoch": 7, "phases": phases, **dict.fromkeys(REIGN, 1)}],
        "stops": [{"event": {"index": 3, "ordinal": 1}, **dict.fromkeys(STOP, 2), "end": "resumed"}],
    }
    seq = 3 * (1 << 20) + 1
    assert compare(told, {7: reign}, {seq: stop | {"ended_by": "writes-resumed"}}) == (len(reign) + len(stop), [])
    assert compare(told, {7: reign | {"total_us": 9}}, {seq: stop | {"ended_by": "writes-resumed"}})[1] == [
        "epoch 7 total_us: history 1, Spark 9"
    ]
    assert compare(told, {7: reign | {"serving_us": 9}}, {seq: stop | {"ended_by": "writes-resumed"}})[1] == [
        "epoch 7 serving_us: history 3, Spark 9"
    ]
    assert compare(told, {8: reign}, {})[1] == [
        "only one side has epoch 7",
        "only one side has epoch 8",
        f"only one side has stop {seq}",
    ]


def test_a_false_row_tells_the_gaps_by_which_it_can_be_looked_at() -> None:
    answers = [Event(ms * 1_000_000, link) for ms, link in ((0, 1), (5, 1), (935, 1), (974, 2), (976, 2))]
    assert longest_gaps(answers, 4_000_000, count=2) == (
        "the longest gaps, until ms after the fault began: 930 ms to 931 (link 1); 39 ms to 970 (link 1, then 2)"
    )
