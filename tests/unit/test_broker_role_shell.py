"""R12, R3: what the shell of a role does to the log before an epoch begins, and to the store when a sync fails."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from rollcall_ha.broker.role_shell import RoleShell
from rollcall_ha.controller.contract.ids import LogOffset, MasterEpoch
from rollcall_ha.epoch.model import EpochEntry
from tests.support.log_tools import append_all, crash, draft, log_bytes, open_log


def test_r12_half_a_record_of_the_old_master_is_cut_before_the_epoch_begins(tmp_path: Path) -> None:
    """
    The old master died in the middle of a record: 40 of its bytes are here.

    Were they kept, epoch 3 would begin inside of a record, and no start of any replica could read on behind it.
    """
    source = open_log(tmp_path / "source")
    append_all(source, draft(b"whole"), draft(b"torn" * 20))
    data = log_bytes(source)
    crash(source)
    log = open_log(tmp_path / "log")
    log.record_epoch(EpochEntry(epoch=MasterEpoch(2), start_offset=LogOffset(0)))
    whole_bytes = int.from_bytes(data[:4], "big")
    receive(log, data[: whole_bytes + 40])
    assert (log.whole_offset, log.max_offset) == (whole_bytes, whole_bytes + 40)

    shell = cast("Any", SimpleNamespace(_commit_log=log))
    start = RoleShell._record(shell, MasterEpoch(3))

    assert start == log.max_offset == whole_bytes
    assert log.history.last == EpochEntry(epoch=MasterEpoch(3), start_offset=LogOffset(whole_bytes))
    crash(log)
    again = open_log(tmp_path / "log")
    assert (again.max_offset, again.recovery.torn_bytes) == (whole_bytes, 0)
    crash(again)


def receive(log: Any, data: bytes) -> None:
    """As a slave's link does, straight into the log."""
    while data:
        with log.receive_view(len(data)) as view:
            taken = min(len(view), len(data))
            view[:taken] = data[:taken]
        log.commit_received(taken)
        data = data[taken:]
