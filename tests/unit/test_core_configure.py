"""Changing the numbers of a set: what is on record, what its view shows, and what is refused."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import ConfigureSet
from rollcall_ha.controller.contract.events import MasterEntered, ReplicaRegistered, SetConfigured
from rollcall_ha.controller.contract.ids import FlushMode, ReplicaKind
from rollcall_ha.controller.contract.replies import AnyReply, Done
from rollcall_ha.controller.contract.values import SetConfiguration
from rollcall_ha.controller.core.invariants import check_transition
from rollcall_ha.controller.core.snapshot import decode_state, encode_state
from rollcall_ha.controller.core.views import view_of
from tests.support.core_builders import SET_A, SET_B, Fleet, refusal

ALICE = "admin:alice"


def ask(fleet: Fleet, expected: int | None = None, least: int | None = None) -> AnyReply:
    command = ConfigureSet(set_key=SET_A, expected_replicas=expected, min_in_sync=least, reason="a third zone")
    return fleet.apply([fleet.operation(command, requested_by=ALICE)]).replies[0]


def numbers(fleet: Fleet) -> tuple[int, int]:
    view = view_of(fleet.state, SET_A)
    assert view is not None
    return view.configuration.expected_replicas, view.configuration.effective_min_in_sync


def test_the_numbers_of_a_set_change_by_an_order_and_are_on_record() -> None:
    fleet = Fleet().serving()
    assert numbers(fleet) == (3, 2)
    assert ask(fleet, expected=4, least=3) == Done()
    event = fleet.event(SetConfigured)
    assert (event.expected_replicas, event.min_in_sync, event.reason) == (4, 3, "a third zone")
    assert (event.previous_expected_replicas, event.previous_min_in_sync) == (3, 0)
    assert numbers(fleet) == (4, 3)
    assert ask(fleet, least=1) == Done()
    assert numbers(fleet) == (4, 1)
    assert ask(fleet, least=0) == Done()
    assert numbers(fleet) == (4, 2), "half of the expected ones"
    assert decode_state(encode_state(fleet.state)) == fleet.state


def test_the_same_again_changes_nothing() -> None:
    fleet = Fleet().serving()
    before = len(fleet.records)
    assert ask(fleet, expected=3) == Done()
    assert ask(fleet) == Done()
    assert len(fleet.records) == before


def test_a_replica_that_registers_again_does_not_bring_back_the_numbers_of_its_file() -> None:
    """R11: the first registration founds them, and no later one counts."""
    fleet = Fleet().serving()
    assert ask(fleet, least=1) == Done()
    fleet.do(fleet.registration(2, incarnation="i2.2"))
    assert fleet.event(ReplicaRegistered).configuration.min_in_sync == 1
    assert numbers(fleet) == (3, 1)


@pytest.mark.parametrize(
    ("expected", "least", "told"),
    [
        (0, None, "min_in_sync 1 of 0 expected replicas"),
        (65, None, "of 65 expected replicas; both are 1 to 64"),
        (None, 4, "min_in_sync 4 of 3 expected replicas"),
        (None, -1, "min_in_sync -1 of 3"),
        (2, None, "replicas [1, 2, 3] are registered, and 2 would be expected"),
    ],
)
def test_numbers_that_make_no_sense_are_refused_with_both_values(
    expected: int | None, least: int | None, told: str
) -> None:
    fleet = Fleet().serving()
    answer = refusal(ask(fleet, expected, least))
    assert told in answer.reason
    assert answer.hint
    assert numbers(fleet) == (3, 2)


def test_an_order_that_would_stop_the_writes_is_refused_and_one_that_starts_them_is_not() -> None:
    fleet = Fleet().serving()
    fleet.do(fleet.alter(1, 2))
    assert ask(fleet, least=1) == Done()
    answer = refusal(ask(fleet, least=3))
    assert answer.code is RefusalCode.NO_BUDGET
    assert "min_in_sync would be 3, and [1, 2] are in sync: writes would stop" in answer.reason
    # 5 of which half, rounded up, are 3: the same by another key.
    assert "min_in_sync would be 3" in refusal(ask(fleet, expected=5, least=0)).reason
    assert ask(fleet, expected=5, least=2) == Done()
    assert numbers(fleet) == (5, 2)


def test_a_set_that_nobody_has_founded_has_no_numbers() -> None:
    fleet = Fleet().serving()
    command = ConfigureSet(set_key=SET_B, min_in_sync=1)
    answer = refusal(fleet.apply([fleet.operation(command, requested_by=ALICE)]).replies[0])
    assert answer.code is RefusalCode.SET_NOT_FOUND


def test_rocketmqs_brokers_keep_their_own_minimum() -> None:
    """On record here, it would look kept, and nobody would keep it."""
    fleet = Fleet().serving()
    state = fleet.state.sets[SET_A]
    java = tuple(
        replace(one, description=replace(one.description, kind=ReplicaKind.ROCKETMQ))
        for one in state.replicas
        if one.description is not None
    )
    fleet.state = replace(fleet.state, sets={SET_A: replace(state, replicas=java)})
    assert "minInSyncReplicas" in refusal(ask(fleet, least=1)).reason
    assert ask(fleet, expected=4) == Done()


def test_the_invariants_notice_numbers_that_nobody_ordered() -> None:
    fleet = Fleet().serving()
    before = fleet.state
    assert ask(fleet, least=1) == Done()
    record = fleet.records[-1]
    assert not [text for text in check_transition(before, fleet.state, [record]) if "C15" in text]
    other = replace(record, event=next(one.event for one in fleet.records if isinstance(one.event, MasterEntered)))
    assert any("without an order" in text for text in check_transition(before, fleet.state, [other]))

    def with_numbers(configuration: SetConfiguration) -> list[str]:
        changed = replace(before.sets[SET_A], configuration=configuration)
        after = replace(fleet.state, sets={SET_A: changed})
        return [text for text in check_transition(before, after, [record]) if "C15" in text]

    assert with_numbers(SetConfiguration(expected_replicas=3, min_in_sync=4))
    assert with_numbers(SetConfiguration(expected_replicas=3, min_in_sync=2, flush=FlushMode.SYNC))
