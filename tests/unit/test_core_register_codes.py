"""What is kept of a register code proves nothing to a reader, and everything to the broker that has the code."""

from __future__ import annotations

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.ids import RegisterCode, ReplicaKind
from rollcall_ha.controller.contract.replies import Registered
from tests.support.core_builders import Fleet
from tests.support.core_fleets import refusal_of

CODE = "5c0de5c0de5c0de5c0de5c0de5c0de5c"


def _granted(fleet: Fleet, kind: ReplicaKind | None = None) -> RegisterCode:
    """Id 1 for ``CODE``, perhaps with a process of this kind; what is kept of the code."""
    fleet.grant(CODE)
    if kind is not None:
        assert isinstance(fleet.do(fleet.registration(1, code=CODE, kind=kind)), Registered)
    return fleet.replica(1).register_code


def test_the_code_is_in_no_event_and_not_in_the_state() -> None:
    """With it and one request, a reader of ``/v1/events`` registered as the master."""
    fleet = Fleet()
    kept = _granted(fleet, ReplicaKind.NATIVE)
    assert kept.startswith("sha256:")
    assert CODE not in repr(fleet.state.sets)
    assert CODE not in repr([record.event for record in fleet.records])


def test_what_every_reader_has_does_not_register_as_the_broker() -> None:
    """Neither as one of ours nor as a RocketMQ broker; its own code does, and asks for the id again."""
    fleet = Fleet()
    kept = _granted(fleet, ReplicaKind.NATIVE)
    for kind in ReplicaKind:
        forged = fleet.registration(1, code=kept, incarnation="forged", kind=kind)
        assert refusal_of(fleet.do(forged)) is RefusalCode.BROKER_ID_INVALID
    assert fleet.grant(CODE) == fleet.grant(CODE, applied=1)
    again = fleet.registration(1, code=CODE, incarnation="i1.2")
    assert isinstance(fleet.do(again), Registered)


def test_the_gateway_registers_rocketmq_brokers_by_what_is_kept() -> None:
    """Their 1003 brings no code; one of ours that has the same id is not theirs to replace."""
    fleet = Fleet()
    kept = _granted(fleet)
    for life in ("i1.1", "i1.2"):
        said = fleet.registration(1, code=kept, incarnation=life, kind=ReplicaKind.ROCKETMQ)
        assert isinstance(fleet.do(said), Registered)
    ours = fleet.registration(1, code=kept, incarnation="i1.3")
    assert refusal_of(fleet.do(ours)) is RefusalCode.BROKER_ID_INVALID
