"""What the fleets' tests wait for before they judge: statuses of the leader, and the disks."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from rollcall_ha.controller.contract.ids import LogOffset, SetKey
from rollcall_ha.controller.contract.views import SetStatus
from rollcall_ha.deploy.local import audit
from rollcall_ha.deploy.local.fleet import Fleet
from tests.support.fake_controllers import set_status
from tests.support.fleet_story import wait_settled

BEFORE, AFTER = 192, 576


class TellsInTurn:
    """A fleet whose disks have one confirmed end, and whose leader tells these statuses, one a look."""

    def __init__(self, directory: Path, stored: int, *told: SetStatus) -> None:
        self.directory, self._told = directory, told
        for name in ("broker-a-1", "broker-a-2"):
            (directory / "data" / name / "commitlog").mkdir(parents=True)
            checkpoint = bytes(audit.CONFIRM_AT_BYTE) + struct.pack(">q", stored)
            (directory / "data" / name / "checkpoint").write_bytes(checkpoint)

    def set_keys(self) -> tuple[SetKey, ...]:
        return (self._told[0].view.set_key,)

    def wait_set(self, key: SetKey, condition: Callable[[SetStatus], bool], **_said: Any) -> SetStatus:
        assert key == self._told[0].view.set_key
        return next(status for status in self._told if condition(status))


def at(*ends: int) -> SetStatus:
    """Each replica with its log and its confirmed bytes up to one of ``ends``."""
    status = set_status()
    offsets = [LogOffset(ends[number % len(ends)]) for number in range(len(status.replicas))]
    replicas = zip(status.replicas, offsets, strict=True)
    return replace(status, replicas=tuple(replace(one, max_offset=end, confirm_offset=end) for one, end in replicas))


def test_a_status_of_before_a_short_load_was_waited_for_on_disks_that_were_further(tmp_path: Path) -> None:
    stale, on_its_way, fresh = at(BEFORE), at(AFTER, BEFORE), at(AFTER)
    fleet = cast("Fleet", TellsInTurn(tmp_path, AFTER, stale, on_its_way, fresh))

    assert wait_settled(fleet) is fresh


def test_an_end_that_the_disks_do_not_have_settles_nothing(tmp_path: Path) -> None:
    fleet = cast("Fleet", TellsInTurn(tmp_path, BEFORE, at(AFTER), at(AFTER)))

    with pytest.raises(StopIteration):
        wait_settled(fleet)
