"""A power cut anywhere inside of a cut leaves each byte in the log or in the quarantine (R20, rule 2 of ``cut``)."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.broker.log.values import CutReason
from rollcall_ha.controller.contract.ids import FlushMode, LogOffset
from tests.support.log_tools import STORE_HOST, append_all, draft, refuse_to_stop
from tests.support.sim_files import FileCalls, SimFiles
from tests.support.sim_kernel import Died, Kernel

SEGMENT_BYTES = 4096


def open_log(disk: SimFiles) -> CommitLog:
    return CommitLog.open(
        disk.folder,
        segment_bytes=SEGMENT_BYTES,
        flush_mode=FlushMode.ASYNC,
        store_host=STORE_HOST,
        stop_process=refuse_to_stop,
        post=lambda call: call(),
        now_ms=lambda: 1_800_000_000_000,
        on_flush_due=lambda: None,
    )


def bodies_below(folder: Path) -> set[bytes]:
    found = b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
    return {b"<%05d>" % number for number in range(20) if b"<%05d>" % number * 90 in found}


@pytest.mark.parametrize("is_full_resync", [False, True])
def test_r20_no_power_cut_inside_of_a_cut_takes_a_byte_that_was_cut(is_full_resync: bool) -> None:
    """Twenty records in four segments; the power goes in front of the first file call, the second, and so on."""
    calls = FileCalls()
    try:
        for number in range(1, 200):
            if not _survives(calls.disk(Kernel(1), f"h{number}"), number, is_full_resync=is_full_resync):
                return
    finally:
        calls.close()
    raise AssertionError("the cut never ended")


def _survives(disk: SimFiles, calls_left: int, *, is_full_resync: bool) -> bool:
    """Whether the cut died; then everything must be there."""
    disk.boot()
    log = open_log(disk)
    places = append_all(log, *(draft(b"<%05d>" % number * 90) for number in range(20)))
    log.flush_turn()
    disk.dies_in_calls = calls_left
    is_dead = True
    with contextlib.suppress(Died):
        if is_full_resync:
            log.set_aside(LogOffset(0), "no common point")
        else:
            log.cut(LogOffset(places[3][0]), CutReason.TRUNCATION, "diverged")
        is_dead = False
    disk.lose_power(forgets_all=True)
    disk.boot()
    open_log(disk)

    assert len(bodies_below(disk.folder)) == 20, f"the power went in front of call {calls_left}"
    return is_dead
