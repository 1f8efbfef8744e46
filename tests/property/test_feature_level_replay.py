"""
Law of upgrades (R15): entries of a released feature level give the events and the state that its program made of them.

The lives were recorded by the releases themselves (``tests.levels.recorded``). While a fleet is at that level, an older
controller may share the quorum: another event here, be it by one word of a reason, would be a state of its own.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rollcall_ha.controller.contract.commands import FEATURE_LEVEL, FIRST_FEATURE_LEVEL
from rollcall_ha.controller.contract.replies import Refused
from rollcall_ha.controller.core.apply import apply_operations
from rollcall_ha.controller.core.snapshot import decode_state
from rollcall_ha.controller.core.state import EMPTY_FLEET, AnsweredRequest, FleetState
from rollcall_ha.controller.replication.codec import decode_operations
from tests.levels.recorded import CHAIN_DIGITS, RECORDED, recorded_lives


def test_every_level_below_the_programs_own_was_recorded() -> None:
    """Or the release was cut without its lives, and nothing holds this program to it."""
    assert set(RECORDED) >= set(range(FIRST_FEATURE_LEVEL, FEATURE_LEVEL))


@pytest.mark.slow
@pytest.mark.parametrize("level", RECORDED)
def test_a_released_level_is_applied_as_its_own_program_did(level: int) -> None:
    """Chain heads after every entry, and the state at the end, are those of the release."""
    for number, life in enumerate(recorded_lives(level)):
        state = _replayed(life, where=f"life {number} of level {level}")

        assert _comparable(state) == _comparable(decode_state(item.encode() for item in life["snapshot"]))


def _replayed(life: dict[str, Any], *, where: str) -> FleetState:
    state = EMPTY_FLEET
    for index, (payload, chain_head) in enumerate(life["entries"], start=1):
        operations = decode_operations(payload)
        assert isinstance(operations, tuple), operations
        applied = apply_operations(state, operations, term=1, index=index)
        events = "\n".join(str(record.event) for record in applied.records)
        assert applied.state.chain_head[:CHAIN_DIGITS] == chain_head, (
            f"entry {index} of {where} gives other events than the release made of it. Let the change hold from the next "
            f"level on (CONTRIBUTING, to change what is decided); only while no release has level {FEATURE_LEVEL}: "
            f"python -m tests.levels.recorded\n{operations}\n->\n{events}"
        )
        state = applied.state
    return state


def _comparable(state: FleetState) -> FleetState:
    """Without the hints of stored answers: they are words for people, on no chain, and no decision rests on them."""
    return replace(state, requests={key: _without_hint(answer) for key, answer in state.requests.items()})


def _without_hint(answered: AnsweredRequest) -> AnsweredRequest:
    reply = answered.reply
    return replace(answered, reply=replace(reply, hint="")) if isinstance(reply, Refused) else answered
