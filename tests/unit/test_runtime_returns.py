"""Returning masters to preferred replicas: off by default, after a time in sync, never in a pause, few at a time."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rollcall_ha.controller.contract.commands import (
    ApplySettings,
    BeginMaintenance,
    OrderSwitchover,
    PauseElections,
    ResumeElections,
)
from rollcall_ha.controller.contract.events import CommandRefused, SwitchoverOrdered
from rollcall_ha.controller.contract.replies import Done
from rollcall_ha.controller.contract.settings import settings_of
from rollcall_ha.controller.contract.timing import PRESETS, Preset
from rollcall_ha.controller.contract.values import MaintenanceScope
from rollcall_ha.controller.core.preferred import preferred_heir
from tests.support.runtime_world import Replica, World, set_key

KEY = set_key()
FILE = PRESETS[Preset.NORMAL]
AFTER_MS = 10_000


def _preferring(
    *, return_after_ms: int = AFTER_MS, zones: tuple[str, str, str] = ("", "", "")
) -> tuple[World, list[Replica]]:
    """A set whose master is not the preferred replica, 2, which is in sync."""
    world = World()
    world.take()
    replicas = world.serving_set()
    set_state = world.state.sets[KEY]
    changed = tuple(
        replace(one, description=replace(one.description, zone=zone, priority=1 if one.broker_id == 2 else 100))
        for one, zone in zip(set_state.replicas, zones, strict=True)
        if one.description is not None
    )
    world.state = replace(world.state, sets={**world.state.sets, KEY: replace(set_state, replicas=changed)})
    if return_after_ms:
        settings = replace(settings_of(FILE), return_after_ms=return_after_ms)
        assert world.apply(ApplySettings(settings=settings, expected_version=0, file=FILE, reason="policy")) == Done()
    return world, replicas


def _orders(world: World) -> int:
    return world.kinds().count("switchover-ordered")


def test_off_by_default_a_master_stays_where_it_is() -> None:
    world, replicas = _preferring(return_after_ms=0)
    world.pass_ms(60_000, *replicas)
    assert _orders(world) == 0


def test_the_master_returns_when_the_preferred_replica_was_in_sync_for_the_time_and_no_sooner() -> None:
    world, replicas = _preferring()
    world.pass_ms(AFTER_MS - 1_000, *replicas)
    assert _orders(world) == 0
    world.pass_ms(3_000, *replicas)
    (order,) = (one.event for one in world.records if isinstance(one.event, SwitchoverOrdered))
    assert (order.target, order.master) == (2, 1)
    assert "returned by policy: preferred, and in sync for 10000 ms" in order.reason


def test_a_return_that_failed_is_tried_again_after_the_whole_time() -> None:
    """The master never drains here: each order ends by its deadline of 5 s."""
    world, replicas = _preferring()
    world.pass_ms(AFTER_MS + 3_000, *replicas)
    assert _orders(world) == 1
    world.pass_ms(AFTER_MS - 2_000, *replicas)
    assert _orders(world) == 1
    world.pass_ms(12_000, *replicas)
    assert _orders(world) == 2


def test_nothing_returns_in_a_pause_also_if_the_order_was_on_its_way() -> None:
    world, replicas = _preferring()
    pause = PauseElections(set_key=KEY, expires_at_ms=world.now_ms + 600_000)
    world.apply(pause)
    world.pass_ms(2 * AFTER_MS, *replicas)
    assert _orders(world) == 0
    world.apply(ResumeElections(set_key=KEY))
    world.pass_ms(AFTER_MS - 1_000, *replicas)
    world.applies = False
    world.pass_ms(3_000, *replicas)
    (action,) = (one for one in world.waiting if isinstance(one.command, OrderSwitchover))
    world.apply(replace(pause, expires_at_ms=world.now_ms + 600_000))
    world.settle(action)
    assert _orders(world) == 0
    assert any(isinstance(one.event, CommandRefused) and one.event.code.name == "PAUSED" for one in world.records)


@pytest.mark.parametrize(("zones", "heir"), [(("", "", ""), 2), (("a", "b", "a"), None), (("a", "a", "b"), 2)])
def test_the_preferred_replica_is_in_the_zone_of_the_master(zones: tuple[str, str, str], heir: int | None) -> None:
    world, _ = _preferring(zones=zones)
    assert preferred_heir(world.state, world.state.sets[KEY]) == heir


def test_a_preferred_replica_in_maintenance_gets_nothing() -> None:
    world, replicas = _preferring()
    scope = MaintenanceScope(set_key=KEY, broker_id=replicas[1].broker_id)
    world.apply(BeginMaintenance(scope=scope, expires_at_ms=world.now_ms + 600_000, spends_last=True))
    assert preferred_heir(world.state, world.state.sets[KEY]) is None
