"""Copies to slaves that lag far behind, over real sockets: way for members, one at a time, on where they ended."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import uvloop
from msgspec.structs import replace

from rollcall_ha.controller.contract.ids import BrokerId, LogOffset
from rollcall_ha.ha.catch_up import PIECE_BYTES, CatchUpLimits
from rollcall_ha.ha.master_link import MasterLinkState
from rollcall_ha.ha.truncation import Cut, Keep
from tests.support.ha_logs import MappedLog, history
from tests.support.ha_pair import reign, target
from tests.support.ha_replica import MasterReplica, SlaveReplica, until

LOG_BYTES = 12 * 1024 * 1024
CAPACITY_BYTES = 16 * 1024 * 1024


@dataclass
class World:
    """A master that copies one piece, and then nothing for as long as its clock stands."""

    directory: Path
    stack: ExitStack
    master: MasterReplica = field(init=False)
    slaves: list[SlaveReplica] = field(default_factory=list)
    port: int = 0

    def __post_init__(self) -> None:
        limits = CatchUpLimits(link_bytes_per_s_max=PIECE_BYTES)
        self.master = MasterReplica(self.log("master"), clock_ms=lambda: 0, catch_up=limits)

    def log(self, name: str) -> MappedLog:
        log = MappedLog(self.directory / name, CAPACITY_BYTES)
        self.stack.callback(log.close)
        return log

    def slave(self, broker_id: int) -> SlaveReplica:
        slave = SlaveReplica(self.log(f"slave-{broker_id}"), broker_id, clock_ms=lambda: 0)
        self.slaves.append(slave)
        return slave

    def follow(self, slave: SlaveReplica, epoch: int = 1) -> None:
        slave.client.follow(replace(target(epoch), port=self.port))

    def break_links(self) -> None:
        for connection in self.master.server.connections.snapshot():
            connection.lost("the network broke")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(tmp_path, stack)


def play(world: World, scene: Callable[[], Awaitable[None]]) -> None:
    async def body() -> None:
        world.port = await world.master.server.start("127.0.0.1", 0)
        try:
            await scene()
        finally:
            for slave in world.slaves:
                await slave.client.stop()
            await world.master.server.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(body())


@pytest.mark.slow
def test_a_copy_does_not_hold_up_the_member_that_sends_wait_for(world: World) -> None:
    async def scene() -> None:
        master = world.master
        master.log.begin_epoch(1)
        master.log.append(os.urandom(LOG_BYTES))
        master.required.add(BrokerId(3))
        master.server.open_reign(reign(1), master.log.max_offset)
        blank, member = world.slave(2), world.slave(3)
        world.follow(blank)
        await until(lambda: blank.log.max_offset == PIECE_BYTES)
        world.follow(member)
        await until(lambda: master.acks.get(BrokerId(3)) == LOG_BYTES)
        assert blank.log.max_offset == PIECE_BYTES, "its budget is used up until the clock goes on"
        master.required.add(BrokerId(2))
        await until(lambda: master.acks.get(BrokerId(2)) == LOG_BYTES)
        assert blank.log.content() == master.log.content()

    play(world, scene)


def test_the_second_blank_slave_waits_for_the_first_and_its_link_stands(world: World) -> None:
    async def scene() -> None:
        master = world.master
        master.log.begin_epoch(1)
        master.log.append(os.urandom(LOG_BYTES))
        master.server.open_reign(reign(1), master.log.max_offset)
        first, second = world.slave(2), world.slave(3)
        world.follow(first)
        await until(lambda: first.log.max_offset == PIECE_BYTES)
        world.follow(second)
        await until(lambda: len(master.server.pacer.copies) == 2)
        assert [one.has_turn for one in master.server.pacer.copies] == [True, False]
        assert {one.link.state for one in master.server._current.values()} == {MasterLinkState.TRANSFER}
        assert second.log.max_offset == 0
        await first.client.stop()
        await until(lambda: second.log.max_offset == PIECE_BYTES)

    play(world, scene)


def test_a_copy_goes_on_where_the_log_ends_after_a_break_and_not_from_its_beginning(world: World) -> None:
    async def scene() -> None:
        master, slave = world.master, world.slave(2)
        master.log.begin_epoch(1)
        master.log.append(os.urandom(LOG_BYTES))
        master.server.open_reign(reign(1), master.log.max_offset)
        world.follow(slave)
        for pieces in (1, 2, 3):
            await until(lambda end=pieces * PIECE_BYTES: slave.log.max_offset == end)  # type: ignore[misc]
            world.break_links()
        await until(lambda: slave.log.max_offset == 4 * PIECE_BYTES)
        assert slave.plans == [Keep(point=LogOffset(pieces * PIECE_BYTES)) for pieces in range(4)]
        assert master.server.pacer.copied_bytes == slave.log.max_offset, "no byte went twice"
        assert slave.log.content() == master.log.content()[: slave.log.max_offset]

    play(world, scene)


def test_a_copy_goes_on_behind_the_cut_by_epochs_after_a_break(world: World) -> None:
    """The slave has a tail of epoch 2 that the master of 3 never had."""
    common = 300_000

    async def scene() -> None:
        master, slave = world.master, world.slave(2)
        both = os.urandom(common)
        for log in (master.log, slave.log):
            log.begin_epoch(1)
            log.append(both)
        slave.log.begin_epoch(2)
        slave.log.append(b"a tail that nobody acknowledged")
        master.log.begin_epoch(3)
        master.log.append(os.urandom(LOG_BYTES))
        master.server.open_reign(reign(3), master.log.max_offset)
        world.follow(slave, 3)
        await until(lambda: slave.log.max_offset == common + PIECE_BYTES)
        world.break_links()
        await until(lambda: slave.log.max_offset == common + 2 * PIECE_BYTES)
        cut, keep = slave.plans
        assert isinstance(cut, Cut)
        assert (cut.point, keep) == (common, Keep(point=LogOffset(common + PIECE_BYTES)))
        assert slave.log.history == master.log.history == history((1, 0), (3, common))
        assert slave.log.content() == master.log.content()[: slave.log.max_offset]

    play(world, scene)
