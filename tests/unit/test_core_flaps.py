"""Sets that fail over again and again (S71): counted per cause, blocked until a person acknowledges it."""

from __future__ import annotations

import pytest

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import ApplySettings, ElectMaster, ResumeElections
from rollcall_ha.controller.contract.events import ElectionsPaused, ElectionWithheld
from rollcall_ha.controller.contract.replies import AnyReply, Done, Elected, Refused
from rollcall_ha.controller.contract.settings import settings_of
from rollcall_ha.controller.contract.timing import PRESETS, Preset
from rollcall_ha.controller.contract.values import SilenceCause
from rollcall_ha.controller.core.flaps import FAILOVERS_KEPT
from rollcall_ha.controller.core.settings import wanted
from rollcall_ha.controller.core.snapshot import decode_state, encode_state
from tests.support.core_builders import SET_A, Fleet

FILE = PRESETS[Preset.NORMAL]
LEADER, ALICE = "controller:c1", "operator:alice"


def flapping(**values: int) -> Fleet:
    """A set that serves, under the policy."""
    fleet = Fleet().serving()
    order = ApplySettings(settings=wanted(fleet.state, settings_of(FILE), values=values), expected_version=0, file=FILE)
    assert fleet.apply([fleet.operation(order, requested_by="admin:ann")]).replies[0] == Done()
    return fleet


def fail_over(
    fleet: Fleet, cause: SilenceCause = SilenceCause.TIMEOUT, *, by: str = LEADER
) -> tuple[AnyReply, list[ElectionsPaused]]:
    """The master is lost, and comes back as a member when another one has been elected. The answer, and the block."""
    master = fleet.set.master
    assert master is not None
    fleet.silence(master, cause=cause)
    order = fleet.operation(ElectMaster(set_key=SET_A), requested_by=by, evidence=fleet.evidence())
    answer = fleet.apply([order]).replies[0]
    blocks = [event for event in fleet.events if isinstance(event, ElectionsPaused)]
    if isinstance(answer, Elected):
        fleet.enter(0)
        fleet.revive(master)
        fleet.do(fleet.alter(1, 2, 3, seq=1))
    return answer, blocks


def assert_fails_over(fleet: Fleet, cause: SilenceCause = SilenceCause.TIMEOUT, *, by: str = LEADER) -> None:
    """And is not blocked."""
    answer, blocks = fail_over(fleet, cause, by=by)
    assert isinstance(answer, Elected)
    assert blocks == []


def test_off_by_default_a_set_fails_over_as_often_as_it_has_to() -> None:
    fleet = Fleet().serving()
    for _ in range(5):
        assert_fails_over(fleet)


def test_the_last_failover_that_is_allowed_is_held_and_the_next_one_waits_for_a_person() -> None:
    fleet = flapping(flap_failovers=3)
    for _ in range(2):
        assert_fails_over(fleet)
    answer, blocks = fail_over(fleet)
    assert isinstance(answer, Elected)
    assert len(blocks) == 1
    block = blocks[0]
    assert (block.paused_set, "3 failovers by timeout" in block.reason) == (SET_A, True)
    assert "rollcall acknowledge broker-a" in block.reason

    waits, _ = fail_over(fleet)
    assert isinstance(waits, Refused)
    assert waits.code is RefusalCode.PAUSED
    assert isinstance(fleet.events[0], ElectionWithheld)
    fleet.apply([fleet.operation(ResumeElections(set_key=SET_A), requested_by=ALICE)])
    assert fleet.set.failovers == ()
    order = fleet.operation(ElectMaster(set_key=SET_A), requested_by=LEADER, evidence=fleet.evidence())
    assert isinstance(fleet.apply([order]).replies[0], Elected)
    assert len(fleet.set.failovers) == 1


def test_failovers_of_another_cause_and_those_before_the_window_do_not_count() -> None:
    fleet = flapping(flap_failovers=3, flap_window_ms=60_000)
    for cause in (SilenceCause.DEAD_AT_ONCE, SilenceCause.DEAD_AT_ONCE, SilenceCause.TIMEOUT, SilenceCause.TIMEOUT):
        assert_fails_over(fleet, cause)
    fleet.passed_ms += 61_000
    assert_fails_over(fleet)


@pytest.mark.parametrize("by", [ALICE, "admin:ann"])
def test_a_persons_election_blocks_nothing(by: str) -> None:
    fleet = flapping(flap_failovers=2)
    fail_over(fleet)
    assert_fails_over(fleet, by=by)


def test_failovers_are_bounded_and_a_snapshot_keeps_them() -> None:
    fleet = Fleet().serving()
    for _ in range(FAILOVERS_KEPT + 2):
        fail_over(fleet)
    assert len(fleet.set.failovers) == FAILOVERS_KEPT
    assert decode_state(encode_state(fleet.state)).sets[SET_A].failovers == fleet.set.failovers
