"""Settings that change while a fleet runs: what a leader finds by them, and who hears of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
from msgspec.structs import replace
from structlog.testing import capture_logs

from rollcall_ha.controller.contract.codes import RequestCode
from rollcall_ha.controller.contract.commands import ApplySettings
from rollcall_ha.controller.contract.events import ReplicaSilent
from rollcall_ha.controller.contract.ids import BrokerId, ReplicaKind, RequestId
from rollcall_ha.controller.contract.replies import AnyReply, Done
from rollcall_ha.controller.contract.session import Heartbeat, SettingsTold
from rollcall_ha.controller.contract.settings import settings_of, timing_with
from rollcall_ha.controller.contract.timing import PRESETS, Preset
from rollcall_ha.controller.core.settings import settings_in_force, wanted
from rollcall_ha.controller.core.state import FleetState
from rollcall_ha.controller.replication.ports import ReplicatedLog
from rollcall_ha.controller.runtime.live_settings import LiveSettings, settings_unknown_to, tell_of_file
from rollcall_ha.controller.runtime.service import ControllerService
from tests.support.core_builders import Fleet
from tests.support.runtime_controller import Controller, SilentBrokers, heartbeat_body, running_group, until
from tests.support.runtime_world import World, set_key

KEY = set_key()
FILE = PRESETS[Preset.NORMAL]


def retimed(world: World, **values: int) -> None:
    """As the service does it when the entry is applied."""
    settings = replace(settings_of(FILE), **values)
    world.duties.retime(timing_with(settings, FILE), settings, world.now_ns)


def silent(world: World) -> list[BrokerId]:
    return [record.event.broker_id for record in world.records if isinstance(record.event, ReplicaSilent)]


def test_a_shorter_timeout_finds_a_master_that_hangs_sooner() -> None:
    world = World()
    world.take()
    master, *slaves = world.serving_set()
    world.pass_ms(5_000, master, *slaves)
    retimed(world, heartbeat_timeout_ms=1_000)
    world.pass_ms(5_000, master, *slaves)
    assert silent(world) == []

    world.pass_ms(1_200, *slaves)
    assert silent(world) == [master.broker_id]


def test_nobody_is_found_silent_between_two_heartbeats_of_the_interval_before() -> None:
    """A broker hears of its shorter interval a moment after the leader counts by the shorter timeout."""
    world = World(timing_name=Preset.SAFE)
    world.take()
    replicas = world.serving_set()
    world.pass_ms(3_000, *replicas)
    fast = settings_of(PRESETS[Preset.FAST])
    world.duties.retime(timing_with(fast, PRESETS[Preset.SAFE]), fast, world.now_ns)
    world.pass_ms(9_900)
    assert silent(world) == []

    world.pass_ms(300)
    assert len(silent(world)) == 3


def test_a_longer_timeout_counts_for_replicas_that_are_known() -> None:
    world = World()
    world.take()
    replicas = world.serving_set()
    retimed(world, heartbeat_timeout_ms=8_000)
    world.pass_ms(7_500)
    assert silent(world) == []
    world.pass_ms(1_000)
    assert len(silent(world)) == len(replicas)


def test_a_hanging_java_master_is_found_in_three_seconds_although_it_asks_for_ten() -> None:
    """Its own timeout is in the file of each Java broker; the fleet's limit is changed in one place."""
    world = World()
    world.take()
    master, slave = (world.register(KEY, number, expected=1, kind=ReplicaKind.ROCKETMQ) for number in (1, 2))
    for replica in (master, slave):
        replica.timeout_ms = 10_000
        world.beat(replica)
    retimed(world, rocketmq_heartbeat_timeout_ms=2_500)
    world.pass_ms(4_000, master, slave, step_ms=1_000)
    assert silent(world) == []

    world.pass_ms(2_400, slave)
    assert silent(world) == []
    world.pass_ms(600, slave)
    assert silent(world) == [master.broker_id]


def test_without_the_limit_a_java_broker_has_the_timeout_that_it_asks_for_again() -> None:
    world = World()
    world.take()
    java = world.register(KEY, 1, expected=1, kind=ReplicaKind.ROCKETMQ)
    java.timeout_ms = 10_000
    retimed(world, rocketmq_heartbeat_timeout_ms=2_500)
    world.pass_ms(1_000, java)
    retimed(world)
    world.beat(java)
    world.pass_ms(9_800)
    assert silent(world) == []
    world.pass_ms(400)
    assert silent(world) == [java.broker_id]


async def change(controller: Controller, **values: int) -> AnyReply:
    state = controller.service.published.state
    present = settings_in_force(state)
    order = ApplySettings(
        settings=wanted(state, settings_of(FILE), values=values),
        expected_version=present.version if present else 0,
        file=FILE,
    )
    return await controller.service.submit(order, request_id=RequestId(f"set-{values}"), requested_by="admin:alice")


def test_every_controller_takes_a_version_and_the_leader_alone_pushes_it(tmp_path: Path) -> None:
    async def story() -> None:
        ports: dict[str, SilentBrokers] = {}

        def make(service: ControllerService) -> SilentBrokers:
            return ports.setdefault(service.settings.name, SilentBrokers())

        async with running_group(tmp_path, make_port=make) as group:
            leader = await group.elect("c1")
            file = leader.service.settings.timing
            for member in group.members.values():
                assert (member.service.live.version, member.service.live.timing) == (0, file)
            assert await change(leader, heartbeat_timeout_ms=2_000) == Done()
            await until(lambda: all(member.service.live.version == 2 for member in group.members.values()))
            expected = timing_with(wanted(leader.service.published.state, settings_of(FILE), values={}), file)
            assert {member.service.live.timing for member in group.members.values()} == {expected}
            assert expected.heartbeat_timeout_ms == 2_000
            assert expected.raft_append_period_ms == file.raft_append_period_ms
            ((code, body),) = ports["c1"].told
            assert code is RequestCode.SESSION_SETTINGS
            told = msgspec.json.decode(body, type=SettingsTold)
            assert (told.version, told.settings.heartbeat_timeout_ms) == (2, 2_000)
            assert (ports["c2"].told, ports["c3"].told) == ([], [])

            beat = msgspec.convert(heartbeat_body(1), Heartbeat)
            state = leader.service.published.state
            assert settings_unknown_to(beat, state) is None, "a broker from before does not ask"
            assert settings_unknown_to(replace(beat, known_settings=0), state) == told
            assert settings_unknown_to(replace(beat, known_settings=2), state) is None

    asyncio.run(story())


def test_a_start_says_what_the_own_file_says_otherwise_when_it_has_caught_up() -> None:
    """Sooner, it would be told of each version that a replay passes; never, an operator waits for the edited file."""

    async def story() -> None:
        fleet = Fleet()
        order = ApplySettings(settings=replace(settings_of(FILE), handover_ms=1_700), expected_version=0, file=FILE)
        fleet.apply([fleet.operation(order)])
        log = SimpleNamespace(
            leadership=SimpleNamespace(leader="c1", commit_index=9),
            published=SimpleNamespace(index=8, state=fleet.state),
        )
        live = LiveSettings(FILE, settings_of(FILE), lambda *_told: None, lambda: 0)
        with capture_logs() as lines:
            telling = asyncio.create_task(tell_of_file(cast("ReplicatedLog[FleetState]", log), live))
            await asyncio.sleep(0)
            assert lines == []
            log.published.index = 9
            await telling
        (line,) = lines
        assert (line["event"], line["version"]) == ("file_differs_from_settings", 2)
        assert line["file_to_settings"] == ["handover_ms 2000 -> 1700"]

    asyncio.run(story())
