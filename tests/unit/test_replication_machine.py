"""The fleet's state behind entries and snapshots."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from rollcall_ha.controller.contract.commands import FEATURE_LEVEL, Barrier, MarkSilent
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    BrokerName,
    ClusterName,
    FleetIncarnation,
    Incarnation,
    MasterEpoch,
    RequestId,
    SetKey,
)
from rollcall_ha.controller.contract.replies import Done
from rollcall_ha.controller.contract.values import SilenceCause
from rollcall_ha.controller.core.state import AnsweredRequest, FleetState, SetState
from rollcall_ha.controller.replication.codec import encode_operations
from rollcall_ha.controller.replication.machine import ITEM_BYTES_MAX, FleetMachine
from rollcall_ha.controller.replication.ports import UnsoundStateError
from tests.support.core_builders import SET_A, Fleet


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


@pytest.mark.parametrize(
    "payload", ["rubbish", '[{"version":1,"command":{"command":"Unheard"}}]'], ids=["rubbish", "unknown command"]
)
def test_a_controller_that_cannot_decode_a_committed_entry_stops_instead_of_going_on(payload: str) -> None:
    """R15: as a no-op it would be a state of its own under that index, and this node could lead with it."""
    applied = FleetMachine().apply(_state(), payload, term=4, index=9)

    assert (applied.state, applied.replies, applied.records) == (_state(), (), ())
    assert applied.stop_reason is not None
    assert "entry 9 of term 4 cannot be decoded" in applied.stop_reason
    assert "newest version" in applied.stop_reason
    assert not applied.is_fault


def test_no_memory_while_an_entry_is_applied_is_a_fault_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not an entry of a newer program: the exit code must not tell an operator to upgrade."""

    def short_of_memory(*_: object, **__: object) -> object:
        raise MemoryError

    fleet = Fleet().serving()
    monkeypatch.setattr("rollcall_ha.controller.core.apply.decide", short_of_memory)
    payload = encode_operations([fleet.operation(Barrier())])

    applied = FleetMachine().apply(fleet.state, payload, term=4, index=9)

    assert applied.stop_reason is not None
    assert applied.is_fault


def test_an_operation_above_the_feature_level_stops_this_node() -> None:
    machine = FleetMachine()
    payload = f'[{{"version":{FEATURE_LEVEL + 1},"command":{{"command":"FromTheFuture"}}}}]'
    applied = machine.apply(_state(), payload, term=4, index=9)
    assert applied.stop_reason is not None
    assert "upgrade" in applied.stop_reason


def _with_two_masters(fleet: Fleet) -> FleetState:
    """Broker 1 was elected in the present epoch, broker 2 is recorded as its master."""
    second = fleet.replica(2)
    return replace(
        fleet.state,
        sets={SET_A: replace(fleet.set, master=second.broker_id, master_incarnation=second.incarnation)},
    )


def test_a_snapshot_with_two_masters_in_one_epoch_is_refused() -> None:
    """C2: the message names the invariant and both masters."""
    machine = FleetMachine()
    fleet = Fleet().serving()
    assert machine.decode(machine.encode(fleet.state)) == fleet.state

    with pytest.raises(UnsoundStateError, match="C2: epoch 1 has two masters, 1 was elected and 2 is recorded"):
        machine.decode(machine.encode(_with_two_masters(fleet)))


@pytest.mark.parametrize(
    ("doctored", "words"),
    [
        ({"master_incarnation": Incarnation("old")}, "R9: master 1 rules as old"),
        ({"master_epoch": MasterEpoch(0)}, "C1: the newest reign is of epoch 1, masterEpoch is 0"),
        ({"next_id": BrokerId(2)}, "C6: next id 2 is not above 3"),
        ({"is_tombstone": True}, "W29"),
    ],
)
def test_a_snapshot_that_breaks_an_invariant_is_refused(doctored: dict[str, object], words: str) -> None:
    machine = FleetMachine()
    fleet = Fleet().serving()
    state = replace(fleet.state, sets={SET_A: replace(fleet.set, **doctored)})

    with pytest.raises(UnsoundStateError, match=words):
        machine.decode(machine.encode(state))


def test_a_long_list_of_broken_invariants_is_cut() -> None:
    """A fault in one rule may break it in every set; the line on stderr stays readable."""
    machine = FleetMachine()
    keys = [SetKey(ClusterName("c"), BrokerName(f"b{number}")) for number in range(20)]
    bad = {key: SetState(set_key=key, is_tombstone=True, master=BrokerId(1)) for key in keys}

    with pytest.raises(UnsoundStateError, match=r"and \d+ more") as refused:
        machine.decode(machine.encode(replace(_state(0), sets=bad)))
    assert str(refused.value).count("W29") <= 5


def test_entries_are_checked_behind_a_switch_only() -> None:
    """A running group is not stopped for a state that it has served from all along; the switch names the breach."""
    fleet = Fleet().serving()
    unsound = _with_two_masters(fleet)
    third = fleet.replica(3)
    assert third.incarnation is not None
    silent = MarkSilent(
        set_key=SET_A,
        broker_id=third.broker_id,
        incarnation=third.incarnation,
        session_ordinal=third.session_ordinal,
        cause=SilenceCause.TIMEOUT,
    )
    payload = encode_operations([fleet.operation(silent)])

    assert FleetMachine().apply(unsound, payload, term=1, index=99).stop_reason is None
    assert FleetMachine(checks_entries=True).apply(fleet.state, payload, term=1, index=99).stop_reason is None
    stopped = FleetMachine(checks_entries=True).apply(unsound, payload, term=1, index=99)
    assert stopped.is_fault
    assert stopped.stop_reason is not None
    assert "entry 99 of term 1 breaks an invariant: c/broker-a: C2" in stopped.stop_reason
    assert stopped.state is unsound
