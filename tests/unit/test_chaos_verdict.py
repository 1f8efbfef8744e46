"""The judge of `make prove PARTS=chaos-net`: which records it calls wrong, and what an audit lies between."""

from __future__ import annotations

import json
import random
import subprocess
from dataclasses import replace
from typing import Any

import pytest

from rollcall_ha.deploy.local.processes import our_environment
from tests.chaos.net.__main__ import AUDITED_FAULTS, batches
from tests.chaos.net.faults import DESTROYS, FAULTS, FIELD, some
from tests.chaos.net.verdict import Trial, can_serve, longest_gap_ms, table, untrue
from tests.support.two_versions import NEWER_LEVEL, newer_program


def reign(total_ms: float, *, most_ms: float | None = None, waited_ms: float = 0, epoch: int = 2) -> dict[str, Any]:
    """A row of the history; exact unless ``most_ms`` says more."""
    most_us = (total_ms if most_ms is None else most_ms) * 1000
    return {
        "masterEpoch": epoch, "kind": "failover", "totalUs": total_ms * 1000, "totalUsMax": most_us,
        "waitedUs": waited_ms * 1000,
    }  # fmt: skip


def stop(length_ms: float, *, epoch: int = 1, end: str = "resumed") -> dict[str, Any]:
    return {"masterEpoch": epoch, "reason": "not-acknowledged", "stoppedUs": length_ms * 1000, "end": end}


@pytest.mark.parametrize(
    ("felt_ms", "rows", "stops"),
    [
        (20, [], []),
        (1_000, [], []),
        (420, [reign(408, waited_ms=2)], []),
        (2_647, [reign(2_153, most_ms=2_653, waited_ms=3)], []),
        (3_013, [], [stop(3_013)]),
        (16_786, [reign(176, most_ms=3_000, waited_ms=14_089)], [stop(13_930, epoch=2)]),
    ],
)
def test_a_record_that_says_what_was_felt_is_right(felt_ms: float, rows: list[Any], stops: list[Any]) -> None:
    assert untrue(felt_ms, rows, stops) == ""


@pytest.mark.parametrize(
    ("felt_ms", "rows", "stops", "words"),
    [
        (1_200, [], [], "felt 1,200 ms, on record at most 0 ms"),
        (75, [reign(662)], [], "felt 75 ms, on record 662 ms"),
        (1_876, [reign(102, most_ms=175, waited_ms=34)], [], "on record at most 209 ms"),
        (1_220, [], [stop(1_560)], "on record 1,560 ms"),
        (3_472, [], [stop(1_678)], "on record at most 1,678 ms"),
        (4_000, [reign(400)], [stop(3_000, end="election")], "on record at most 400 ms"),
    ],
)
def test_a_record_that_says_more_or_less_is_wrong(
    felt_ms: float, rows: list[Any], stops: list[Any], words: str
) -> None:
    assert words in untrue(felt_ms, rows, stops)


def test_the_longest_gap_may_begin_before_the_fault_and_end_behind_it() -> None:
    stamps = [0, 10, 20, 320, 330, 900]
    assert longest_gap_ms([one * 10**6 for one in stamps], 100 * 10**6, 400 * 10**6) == 570
    assert longest_gap_ms([one * 10**6 for one in stamps], 100 * 10**6, 325 * 10**6) == 300


@pytest.mark.parametrize(
    ("sides", "can"),
    [
        ([(2, 2)], True),
        ([(3, 0)], True),
        ([(0, 3), (3, 0)], True),
        ([(1, 3)], False),
        ([(2, 1)], False),
        ([(2, 1), (1, 2)], False),
        ([(1, 1), (2, 2)], True),
    ],
)
def test_a_fault_leaves_a_side_that_can_acknowledge(sides: list[tuple[int, int]], can: bool) -> None:
    assert can_serve(sides, brokers=3, controllers=3, min_in_sync=2) is can


def test_what_nobody_could_serve_in_is_no_time_to_recover() -> None:
    trial = Trial(
        commit="c", at="", seed=1, scenario="kill broker", hit="", gap_ms=62_000.0, elections=1, acked=1, lost=0, doubled=0,
        stuck="", record="", recovered_ms=900.0,
    )  # fmt: skip
    assert "| 900 ms | 900 ms | 900 ms |" in table([trial])
    assert "| 62,000 ms |" in table([replace(trial, recovered_ms=None)])


def test_victims_of_the_field_are_one_more_than_half_or_all_and_each_is_hit_at_times() -> None:
    names = ("broker-a-1", "broker-a-2", "broker-a-3")
    draw = random.Random(1)
    drawn = [some(draw, names) for _ in range(60)]
    assert {len(one) for one in drawn} == {1, 2, 3}
    assert {name for one in drawn if len(one) == 1 for name in one} == set(names)


def test_a_disk_is_audited_before_it_is_destroyed() -> None:
    assert set(FIELD) < set(FAULTS)
    order = list(FAULTS)
    found = batches(order)

    assert [name for one in found for name in one] == order
    assert all(0 < len(one) <= AUDITED_FAULTS for one in found)
    assert [one.index(DESTROYS) for one in found if DESTROYS in one] == [0]


@pytest.mark.slow
def test_the_newer_program_has_the_level_after_ours_in_every_module() -> None:
    """Taken by value at an import, the level of one module would be ours: half a newer program."""
    script = (
        "import json, sys; from rollcall_ha.controller.contract import commands; from rollcall_ha.controller.core import"
        " apply, snapshot; from rollcall_ha.controller.runtime import service, queries;"
        " print(json.dumps([one.FEATURE_LEVEL for one in (commands, apply, snapshot, service, queries)]))"
    )
    done = subprocess.run(
        newer_program("code", "-q"), input=f"{script}\n", capture_output=True, text=True, check=True, timeout=60,
        env=our_environment(),
    )  # fmt: skip
    assert json.loads(done.stdout.replace(">>>", "").strip()) == [NEWER_LEVEL] * 5
