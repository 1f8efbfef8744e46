"""The fleet's state behind entries and snapshots."""

from __future__ import annotations

import msgspec
import pytest

from rollcall_ha.controller.contract.commands import FEATURE_LEVEL
from rollcall_ha.controller.contract.ids import BrokerName, ClusterName, FleetIncarnation, RequestId, SetKey
from rollcall_ha.controller.contract.replies import Done
from rollcall_ha.controller.core.state import AnsweredRequest, FleetState, SetState
from rollcall_ha.controller.replication.machine import ITEM_BYTES_MAX, FleetMachine


def _state(sets: int = 3) -> FleetState:
    keys = [SetKey(ClusterName("c"), BrokerName(f"b{number}" + "x" * (number * 40_000))) for number in range(sets)]
    return FleetState(
        fleet_incarnation=FleetIncarnation("f" * 32),
        sets={key: SetState(set_key=key) for key in keys},
        requests={RequestId(f"r{number}"): AnsweredRequest(digest="d", reply=Done()) for number in range(5)},
        chain_head="head",
        last_stamp_ms=9,
        term=3,
        index=8,
    )


def test_a_snapshot_is_the_same_state() -> None:
    machine = FleetMachine()
    items = list(machine.encode(_state(4)))
    assert all(len(item) <= ITEM_BYTES_MAX + 1 for item in items)
    assert len(items) > 1 + 4 + 5, "long sets go on in further items"
    assert machine.decode(items) == _state(4)
    assert machine.decode(machine.encode(machine.initial())) == machine.initial()


def test_requests_keep_their_order() -> None:
    """The oldest leaves the window first, on every node."""
    machine = FleetMachine()
    assert list(machine.decode(machine.encode(_state())).requests) == [f"r{number}" for number in range(5)]


@pytest.mark.parametrize("cut", [0, 1, 2, -1])
def test_a_snapshot_that_is_cut_short_is_refused(cut: int) -> None:
    machine = FleetMachine()
    with pytest.raises(ValueError, match="snapshot"):
        machine.decode(list(machine.encode(_state()))[:cut])


def test_a_snapshot_with_more_than_it_says_is_refused() -> None:
    machine = FleetMachine()
    items = list(machine.encode(_state()))
    with pytest.raises(ValueError, match="its header says"):
        machine.decode([*items, items[-1]])


def test_a_snapshot_above_the_feature_level_is_refused() -> None:
    """R15: this node must not diverge."""
    machine = FleetMachine()
    newer = msgspec.structs.replace(_state(), feature_level=FEATURE_LEVEL + 1)
    with pytest.raises(ValueError, match="feature level"):
        machine.decode(machine.encode(newer))


def test_rubbish_changes_nothing_and_is_counted() -> None:
    machine = FleetMachine()
    applied = machine.apply(_state(), "rubbish", term=4, index=9)
    assert applied.state == _state()
    assert (applied.replies, applied.records, applied.stop_reason) == ((), (), None)
    assert machine.undecodable_entries == 1


def test_an_operation_above_the_feature_level_stops_this_node() -> None:
    machine = FleetMachine()
    payload = f'[{{"version":{FEATURE_LEVEL + 1},"command":{{"command":"FromTheFuture"}}}}]'
    applied = machine.apply(_state(), payload, term=4, index=9)
    assert applied.stop_reason is not None
    assert "upgrade" in applied.stop_reason
