"""Apply's own rules: the fleet, levels, request ids, entry times, snapshots, and commands and events that cannot be."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import (
    FEATURE_LEVEL,
    AnyCommand,
    ApplyBrokerId,
    Barrier,
    Command,
    InitialiseFleet,
    RaiseFeatureLevel,
    TakeLeadership,
)
from rollcall_ha.controller.contract.events import (
    AnyEvent,
    BrokerIdGranted,
    CommandRefused,
    FeatureLevelRaised,
    LeadershipTaken,
    LossGraded,
    MasterElected,
    MasterEntered,
)
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    ControllerName,
    FleetIncarnation,
    RegisterCode,
    SetKey,
)
from rollcall_ha.controller.contract.replies import Condition, Done, Elected, IdGranted
from rollcall_ha.controller.core import apply as apply_module
from rollcall_ha.controller.core import decide as decide_module
from rollcall_ha.controller.core.apply import apply_operations
from rollcall_ha.controller.core.decide import decide
from rollcall_ha.controller.core.evolve import evolve
from rollcall_ha.controller.core.fleet import evolve_fleet
from rollcall_ha.controller.core.policies import UNCLEAN
from rollcall_ha.controller.core.ranking import elect
from rollcall_ha.controller.core.snapshot import decode_state, encode_state
from rollcall_ha.controller.core.state import EMPTY_FLEET, REQUEST_WINDOW_ENTRIES, SetState
from rollcall_ha.controller.core.views import condition_of
from tests.support.core_builders import SET_A, SET_B, Fleet
from tests.support.core_fleets import (
    last_election,
    refusal_of,
)

# --- apply and the fleet ---------------------------------------------------------------------------------------------


def test_fleet_commands() -> None:
    """Incarnation fixed once, leadership on record, barriers silent, the level never falls."""
    fleet = Fleet(is_initialised=False)
    fleet.do(RaiseFeatureLevel(level=FEATURE_LEVEL))
    assert refusal_of(fleet.grant()) is RefusalCode.INVALID_REQUEST
    assert refusal_of(fleet.do(InitialiseFleet(fleet_incarnation=FleetIncarnation("")))) is RefusalCode.INVALID_ARGUMENT
    one = InitialiseFleet(fleet_incarnation=FleetIncarnation("1" * 32))
    assert isinstance(fleet.do(one), Done)
    assert isinstance(fleet.do(one), Done)
    assert fleet.events == []
    assert (
        refusal_of(fleet.do(InitialiseFleet(fleet_incarnation=FleetIncarnation("2" * 32)))) is RefusalCode.WRONG_FLEET
    )
    fleet.do(TakeLeadership(controller=ControllerName("c1"), term=4))
    assert isinstance(fleet.events[0], LeadershipTaken)
    assert refusal_of(fleet.do(TakeLeadership(controller=ControllerName(""), term=4))) is RefusalCode.INVALID_ARGUMENT
    assert isinstance(fleet.do(Barrier()), Done)
    assert fleet.events == []
    assert isinstance(fleet.do(RaiseFeatureLevel(level=1)), Done)
    assert fleet.events == []
    raised = replace(fleet.records[0], event=FeatureLevelRaised(level=9))
    assert evolve_fleet(fleet.state, raised).feature_level == 9


def test_r15_raising_the_level_above_ones_own_stops_the_node() -> None:
    """And an operation above the fleet's level, but not above the node's, is refused."""
    fleet = Fleet()
    stop = apply_operations(fleet.state, [fleet.operation(RaiseFeatureLevel(level=FEATURE_LEVEL + 1))], term=1, index=9)
    assert stop.stop_reason is not None
    low = replace(fleet.state, feature_level=0)
    applied = apply_operations(low, [fleet.operation(Barrier())], term=1, index=9)
    assert refusal_of(applied.replies[0]) is RefusalCode.FEATURE_LEVEL


def test_request_ids_are_deduplicated_within_a_bounded_window() -> None:
    """Same id, other content: refused. Too long or not ASCII: refused. The window is bounded."""
    fleet = Fleet()
    ask = ApplyBrokerId(set_key=SET_A, register_code=RegisterCode("a"), address="x")
    first = fleet.do(ask, request_id="q")
    assert fleet.do(ask, request_id="q") == first
    other = fleet.do(replace(ask, register_code=RegisterCode("b")), request_id="q")
    assert refusal_of(other) is RefusalCode.INVALID_REQUEST
    for bad in ("x" * 65, "ü"):
        assert refusal_of(fleet.do(ask, request_id=bad)) is RefusalCode.INVALID_ARGUMENT
    fleet.apply([fleet.operation(ask) for _ in range(REQUEST_WINDOW_ENTRIES + 10)])
    assert len(fleet.state.requests) == REQUEST_WINDOW_ENTRIES
    assert "q" not in fleet.state.requests


def test_an_answer_that_its_entry_pushes_out_is_given_within_the_entry() -> None:
    """The window is cut at the entry's end, on every node; and no entry changes the window of the state before."""
    fleet = Fleet()
    ask = ApplyBrokerId(set_key=SET_A, register_code=RegisterCode("a"), address="x")
    first = fleet.do(ask, request_id="q")
    fleet.apply([fleet.operation(ask) for _ in range(REQUEST_WINDOW_ENTRIES - len(fleet.state.requests))])
    before, kept = fleet.state, tuple(fleet.state.requests)
    assert "q" in kept[:3]

    fleet.apply([*(fleet.operation(ask) for _ in range(3)), fleet.operation(ask, request_id="q")])

    assert fleet.last.replies[-1] == first
    assert "q" not in fleet.state.requests
    assert tuple(before.requests) == kept


def test_one_clock_an_hour_ahead_does_not_freeze_the_time_of_later_events() -> None:
    """R14: each entry keeps the time of the leader that proposed it; (term, index, ordinal) is the order."""
    fleet = Fleet()
    fleet.apply([fleet.operation(TakeLeadership(controller=ControllerName("c1"), term=1), stamped_at_ms=9_000_000)])
    fleet.apply([fleet.operation(TakeLeadership(controller=ControllerName("c2"), term=2), stamped_at_ms=5_400_000)])
    fleet.apply([fleet.operation(TakeLeadership(controller=ControllerName("c2"), term=2), stamped_at_ms=5_400_800)])

    stamps = [record.stamped_at_ms for record in fleet.records[-3:]]
    assert stamps == [9_000_000, 5_400_000, 5_400_800]


def test_s55_a_fault_of_ours_becomes_a_refusal_on_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other items of the entry apply; what may differ between nodes stops this one instead."""
    real = decide

    def faulty(fleet: object, operation: object) -> object:
        if operation.request_id == "bad":  # type: ignore[attr-defined]
            raise ZeroDivisionError
        if operation.request_id == "huge":  # type: ignore[attr-defined]
            raise MemoryError
        return real(fleet, operation)  # type: ignore[arg-type]

    monkeypatch.setattr(apply_module, "decide", faulty)
    fleet = Fleet()
    ask = ApplyBrokerId(set_key=SET_A, register_code=RegisterCode("a"), address="x")

    applied = fleet.apply([fleet.operation(ask, request_id="bad"), fleet.operation(ask, request_id="good")])

    assert refusal_of(applied.replies[0]) is RefusalCode.INVALID_REQUEST
    assert isinstance(applied.records[0].event, CommandRefused)
    assert applied.records[0].event.reason == "internal fault: ZeroDivisionError"
    assert isinstance(applied.replies[1], IdGranted)
    stopped = apply_operations(fleet.state, [fleet.operation(ask, request_id="huge")], term=1, index=50)
    assert stopped.stop_reason is not None
    assert stopped.state is fleet.state


def test_an_empty_entry_moves_the_index_only() -> None:
    """No operations, no events."""
    applied = apply_operations(EMPTY_FLEET, [], term=3, index=7)

    assert (applied.state.term, applied.state.index, applied.records, applied.replies) == (3, 7, (), ())


def test_a_snapshot_that_is_damaged_or_too_new_is_refused() -> None:
    """R15: with words that say what to do."""
    items = list(encode_state(Fleet().serving().state))
    for bad, words in (
        ([], "cannot be read"),
        ([b"{"], "cannot be read"),
        (items[1:], "does not begin with its header"),
        ([items[0], items[0]], "two headers"),
        (items[:-1], "its header says"),
        (
            [
                items[0].replace(b'"featureLevel":%d' % FEATURE_LEVEL, b'"featureLevel":%d' % (FEATURE_LEVEL + 1)),
                *items[1:],
            ],
            "upgrade",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            decode_state(bad)


# --- what cannot come from deciding, but may come to a pure function ---------------------------------------------------


def test_evolve_takes_events_of_strangers_and_repeats_as_no_change() -> None:
    """Total: an unknown replica, an id that is granted already, an election without evidence."""
    fleet = Fleet().serving()
    fleet.goodbye(2)
    fleet.do(fleet.registration(2, incarnation="i2.2"))
    fleet.silence(2)
    fleet.revive(2)
    fleet.do(fleet.registration(2, incarnation="i2.2"))
    blank = SetState(set_key=SET_A)
    events = [record.event for record in fleet.records]

    changed = [event for event in events if evolve(blank, event) is not blank]

    assert {type(event) for event in changed} <= {BrokerIdGranted, MasterElected, MasterEntered, LossGraded}
    again: AnyEvent = next(event for event in events if isinstance(event, BrokerIdGranted))
    assert evolve(fleet.set, again) is fleet.set
    bare = replace(last_election(fleet)[1], evidence=replace(fleet.evidence(), replicas=()))
    assert evolve(fleet.set, bare).known_confirm == fleet.set.known_confirm


def test_a_command_that_nobody_decides_is_a_fault_on_record() -> None:
    """A kind that was added and forgotten: a refusal, equal on every node."""

    class Forgotten(Command, tag="Forgotten"):
        set_key: SetKey = SET_A

    fleet = Fleet()
    forgotten: Any = Forgotten()

    assert refusal_of(fleet.do(forgotten)) is RefusalCode.INVALID_REQUEST
    assert fleet.event(CommandRefused).reason == "internal fault: KeyError"


def test_small_corners() -> None:
    """An alter on no set; unregistered members; who is no candidate; members without a proof in the unclean order."""
    fleet = Fleet().serving()
    assert refusal_of(fleet.do(replace(fleet.alter(1), set_key=SET_B))) is RefusalCode.SET_NOT_FOUND
    assert elect((), policy=UNCLEAN).reason_of(BrokerId(1)) == "not registered"
    suspect = Fleet().serving()
    suspect.do(suspect.alter(1))
    suspect.do(suspect.registration(1, incarnation="i1.2", boot="boot-2"))
    assert condition_of(suspect.set)[0] is Condition.NO_ELIGIBLE_REPLICA


def test_when_a_master_was_last_elected_survives_a_snapshot() -> None:
    """It was known only to a process that had applied the election: after a restart from a snapshot it was null."""
    fleet = Fleet().serving()
    (stamp,) = [record.stamped_at_ms for record in fleet.records if isinstance(record.event, MasterElected)]
    restarted = decode_state(encode_state(fleet.state))
    assert restarted.sets[SET_A].last_elected_at_ms == stamp
    fleet.silence(1)
    assert fleet.set.last_elected_at_ms == stamp, "only an election moves it"
    fleet.want(fleet.elect(), Elected)
    assert fleet.set.last_elected_at_ms == fleet.records[-1].stamped_at_ms


def test_every_command_has_one_place_that_decides_it() -> None:
    """One that was forgotten would be an internal fault on record, at the first operator who gives it."""
    tables = (decide_module._ON_THE_FLEET, decide_module._BY_STATE, decide_module._BY_OPERATION)
    decided = [kind for table in tables for kind in table]

    assert sorted(kind.__name__ for kind in decided) == sorted(kind.__name__ for kind in get_args(AnyCommand))
