"""A registration's numbers are kept for the life of the set: none is taken that no wire can carry."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.replies import Refused, Registered
from rollcall_ha.controller.core.registration import SHOWN_EPOCH_MAX, SHOWN_NUMBER_MAX
from tests.support.core_builders import Fleet, positions, stored


@pytest.mark.parametrize(
    ("what", "epoch", "end", "view_epoch", "set_epoch"),
    [
        ("masterEpoch", SHOWN_EPOCH_MAX + 1, 0, 1, 1),
        ("max offset", 1, SHOWN_NUMBER_MAX + 1, 1, 1),
        ("stored masterEpoch", 1, 0, 2**70, 1),
        ("stored SyncStateSetEpoch", 1, 0, 1, SHOWN_NUMBER_MAX + 1),
    ],
)
def test_a_number_that_no_wire_can_carry_is_refused(
    what: str, epoch: int, end: int, view_epoch: int, set_epoch: int
) -> None:
    """2**70 as a stored masterEpoch became the floor of every later election."""
    fleet = Fleet()
    before = fleet.state.sets
    registration = fleet.registration(1, holds=positions(end, epoch=epoch), view=stored(view_epoch, set_epoch, 1))

    refused = fleet.want(fleet.do(registration), Refused)

    assert refused.code is RefusalCode.INVALID_ARGUMENT
    assert refused.reason.startswith(f"{what} ")
    assert fleet.state.sets == before


def test_the_highest_number_that_is_taken_leaves_room_for_elections() -> None:
    """The limit itself registers, and the epoch after a jump still has 31 bits."""
    fleet = Fleet()
    registration = fleet.registration(
        1, holds=positions(0, epoch=SHOWN_EPOCH_MAX), view=stored(SHOWN_EPOCH_MAX, SHOWN_NUMBER_MAX, 1)
    )
    registration = replace(registration, configuration=replace(registration.configuration, expected_replicas=1))

    fleet.want(fleet.do(registration), Registered)
    fleet.elect(evidence=fleet.evidence(draw=15))

    assert SHOWN_EPOCH_MAX < fleet.set.master_epoch < 2**31
