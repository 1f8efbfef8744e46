"""A leader whose elections are paused: what it proposes, and when it ends a pause."""

from __future__ import annotations

import pytest

from rollcall_ha.controller.contract.commands import ElectMaster, PauseElections, ResumeElections
from rollcall_ha.controller.contract.ids import SetKey
from tests.support.runtime_world import Replica, World, set_key

KEY = set_key()


def _paused(for_ms: int, *, whose: SetKey | None = KEY) -> tuple[World, list[Replica]]:
    world = World()
    world.take()
    replicas = world.serving_set()
    world.apply(PauseElections(set_key=whose, expires_at_ms=world.now_ms + for_ms))
    return world, replicas


def _lose_master(world: World, replicas: list[Replica]) -> None:
    world.close(replicas[0])
    for slave in replicas[1:]:
        world.report_link(slave, replicas[0])
    world.refuse_probe()
    assert not world.the_view(KEY).condition.has_master


def test_one_withheld_election_is_on_record_however_long_the_pause_lasts() -> None:
    """Each second, or each heartbeat, would be an entry of the log else."""
    world, replicas = _paused(60_000)
    _lose_master(world, replicas)
    world.pass_ms(30_000, *replicas[1:])

    assert world.kinds().count("election-withheld") == 1
    assert world.kinds().count("master-elected") == 1
    assert world.the_view(KEY).master_epoch == 1


@pytest.mark.parametrize("whose", [KEY, None])
def test_a_pause_ends_by_the_clock_and_the_set_has_a_master_within_two_seconds(whose: SetKey | None) -> None:
    world, replicas = _paused(10_000, whose=whose)
    _lose_master(world, replicas)
    world.pass_ms(9_500, *replicas[1:])
    assert world.state.pauses
    world.pass_ms(2_500, *replicas[1:])

    assert world.state.pauses == {}
    assert world.kinds().count("elections-resumed") == 1
    assert world.the_view(KEY).master_epoch == 2
    assert world.the_view(KEY).condition.has_master


@pytest.mark.parametrize("whose", [KEY, None])
def test_an_operator_who_ends_a_pause_gets_a_master_with_the_next_tick(whose: SetKey | None) -> None:
    world, replicas = _paused(60_000, whose=whose)
    _lose_master(world, replicas)
    world.pass_ms(2_000, *replicas[1:])
    world.apply(ResumeElections(set_key=whose))
    world.tick()

    assert world.the_view(KEY).master_epoch == 2


def test_the_end_of_a_pause_is_proposed_each_second_until_it_is_applied() -> None:
    """An end whose entry was lost would else leave the set without failovers until another leader comes."""
    world, replicas = _paused(1_000)
    world.applies = False
    world.pass_ms(4_000, *replicas)
    ends = [one for one in world.waiting if isinstance(one.command, ResumeElections)]

    assert 2 <= len(ends) <= 4
    for action in world.waiting:
        world.settle(action)
    assert world.kinds().count("elections-resumed") == 1


def test_detection_goes_on_in_a_pause() -> None:
    world, replicas = _paused(60_000)
    _lose_master(world, replicas)

    assert "replica-silent" in world.kinds()
    assert "election-withheld" in world.kinds()
    assert any(isinstance(action.command, ElectMaster) for action in world.proposals)
