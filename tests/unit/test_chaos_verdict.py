"""The judge of `make prove PARTS=chaos-net`: which records it calls wrong, and what an audit lies between."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from rollcall_ha.deploy.local.processes import our_environment
from tests.chaos.net.__main__ import AUDITED_FAULTS, batches
from tests.chaos.net.faults import DESTROYS, FAULTS
from tests.chaos.net.verdict import longest_gap_ms, untrue
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


def test_a_disk_is_audited_before_it_is_destroyed() -> None:
    order = list(FAULTS)
    found = batches(order)

    assert [name for one in found for name in one] == order
    assert all(0 < len(one) <= AUDITED_FAULTS for one in found)
    assert [one.index(DESTROYS) for one in found if DESTROYS in one] == [0]


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
