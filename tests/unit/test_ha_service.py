"""Links over real sockets on loopback: catching up, live data, reconnecting, strangers."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvloop
from msgspec.structs import replace
from structlog.testing import capture_logs

import rollcall_ha.ha.transport
from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, LogOffset, MasterEpoch
from rollcall_ha.ha.codec_native import encode
from rollcall_ha.ha.errors import ErrorCode
from rollcall_ha.ha.frames import Handshake, LinkError
from rollcall_ha.ha.links import FollowTarget
from rollcall_ha.ha.master_link import MasterLinkState
from rollcall_ha.ha.service import HaClient
from rollcall_ha.ha.slave_link import SlaveLink
from rollcall_ha.ha.transport import HA_LIMITS
from rollcall_ha.node.remoting.links import CloseCause, LinkTable
from tests.support.ha_logs import MappedLog, history
from tests.support.ha_pair import reign, target
from tests.support.ha_replica import MasterReplica, SlaveReplica, until

CAPACITY = 8 * 1024 * 1024


@dataclass
class World:
    master: MasterReplica
    slave: SlaveReplica
    port: int = 0

    def target(self, epoch: int = 1) -> FollowTarget:
        return replace(target(epoch), port=self.port)

    def reign(self, epoch: int = 1) -> None:
        self.master.server.open_reign(reign(epoch), LogOffset(0))


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[tuple[MappedLog, MappedLog]]:
    pair = MappedLog(tmp_path / "master", CAPACITY), MappedLog(tmp_path / "slave", CAPACITY)
    yield pair
    for log in pair:
        log.close()


def play(logs: tuple[MappedLog, MappedLog], scene: Callable[[World], Awaitable[None]]) -> None:
    """Run a scene on the loop that servers use; afterwards nothing may be left open."""

    async def body() -> None:
        world = World(MasterReplica(logs[0]), SlaveReplica(logs[1]))
        world.port = await world.master.server.start("127.0.0.1", 0)
        try:
            await scene(world)
        finally:
            await world.slave.client.stop()
            await world.master.server.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(body())


def test_a_slave_catches_up_through_epochs_and_then_follows_live(logs: tuple[MappedLog, MappedLog]) -> None:
    async def scene(world: World) -> None:
        log = world.master.log
        for epoch in (1, 2, 3):
            log.begin_epoch(epoch)
            log.append(os.urandom(1_500_000))
        world.reign(3)
        world.slave.client.follow(world.target(3))
        await until(lambda: world.master.acks.get(2) == log.max_offset)  # type: ignore[call-overload]
        assert world.slave.log.history == log.history
        for _ in range(50):
            log.append(os.urandom(1000))
            world.master.server.log_extended()
            await until(lambda: world.master.acks.get(2) == log.max_offset)  # type: ignore[call-overload]
        world.master.server.confirm_moved(log.max_offset)
        await until(lambda: world.slave.confirm == log.max_offset)
        assert world.slave.log.content() == log.content()
        ((broker_id, connection),) = world.master.server._current.items()
        assert (broker_id, connection.link.lag_bytes, connection.link.acked) == (2, 0, log.max_offset)

    play(logs, scene)


def test_a_cold_link_is_read_ahead_and_arrives_whole(
    logs: tuple[MappedLog, MappedLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread touches pages only; what is sent is the same."""
    monkeypatch.setattr(rollcall_ha.ha.transport, "COLD_LAG_BYTES", 100_000)
    monkeypatch.setattr(rollcall_ha.ha.transport, "COLD_WINDOW_BYTES", 300_000)

    async def scene(world: World) -> None:
        log = world.master.log
        log.begin_epoch(1)
        log.append(os.urandom(5_000_000))
        world.reign()
        world.slave.client.follow(world.target())
        await until(lambda: world.master.acks.get(2) == log.max_offset)  # type: ignore[call-overload]
        assert world.slave.log.content() == log.content()

    play(logs, scene)


def test_a_slave_comes_back_by_itself_and_is_cut(logs: tuple[MappedLog, MappedLog]) -> None:
    """A reign ends, the log of the old master has a tail that the new reign does not know."""

    async def scene(world: World) -> None:
        master, slave = world.master.log, world.slave.log
        for log in (master, slave):
            log.begin_epoch(1)
            log.append(b"common")
        slave.append(b" tail that nobody acknowledged")
        master.begin_epoch(2)
        master.append(b" new")
        world.slave.client.follow(world.target(2))
        await asyncio.sleep(0)
        world.reign(2)
        await until(lambda: world.master.acks.get(2) == 10)  # type: ignore[call-overload]
        assert slave.content() == b"common new"
        assert slave.history == history((1, 0), (2, 6))
        world.master.server.end_reign("masterEpoch 3 begins")
        await until(lambda: ErrorCode.REIGN_ENDED in world.slave.closed)
        assert world.master.closed == [(2, world.master.opened[-1][1], ErrorCode.REIGN_ENDED)]
        master.begin_epoch(3)
        world.reign(3)
        world.slave.client.follow(world.target(3))
        await until(lambda: len(world.master.opened) == 2 and world.slave.told[-1] == "ready")

    play(logs, scene)


def test_w10_a_newer_link_replaces_the_older_one_which_is_told_closed_first(logs: tuple[MappedLog, MappedLog]) -> None:
    async def scene(world: World) -> None:
        world.master.log.begin_epoch(1)
        world.reign()
        world.slave.client.follow(world.target())
        await until(lambda: 2 in world.master.acks)
        twin = SlaveReplica(world.slave.log)
        twin.client.follow(world.target())
        await until(lambda: len(world.master.opened) == 2)
        assert world.master.closed == [(2, world.master.opened[0][1], ErrorCode.LINK_REPLACED)]
        await twin.client.stop()

    play(logs, scene)


def test_no_other_link_is_dialled_while_the_broker_cuts_for_the_last_one(logs: tuple[MappedLog, MappedLog]) -> None:
    """Two plans for one log must never overlap."""

    async def scene(world: World) -> None:
        world.master.log.begin_epoch(1)
        world.reign()
        world.slave.answers_at_once = False
        world.slave.client.follow(world.target())
        await until(lambda: len(world.slave.plans) == 1)
        world.slave.client.follow(world.target())
        await until(lambda: len(world.master.closed) == 1)
        assert world.slave.told.count("answered") == len(world.master.opened) == 1
        assert world.slave.client._connection is None, "no link stands, and none is dialled"
        world.slave.answers_at_once = True
        world.slave.client.truncation_done()
        await until(lambda: world.slave.told.count("ready") == 1)
        assert len(world.slave.plans) == 2

    play(logs, scene)


def test_a_master_that_is_not_there_is_tried_again_and_every_attempt_is_told(logs: tuple[MappedLog, MappedLog]) -> None:
    async def scene(world: World) -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            world.slave.client.follow(replace(target(1), port=unused.getsockname()[1]))
            await until(lambda: world.slave.closed == [None, None, None])

    play(logs, scene)


@pytest.mark.parametrize(
    "first", [bytes.fromhex("00000001000000000000000000000002"), bytes(8), b"\xff" * 4, b"RCHA" * 9]
)
def test_foreign_protocols_and_nonsense_close_their_own_connection_only(
    logs: tuple[MappedLog, MappedLog], first: bytes
) -> None:
    """AutoSwitch, classic, garbage, a broken native frame: the healthy link goes on."""

    async def scene(world: World) -> None:
        world.master.log.begin_epoch(1)
        world.reign()
        world.slave.client.follow(world.target())
        await until(lambda: 2 in world.master.acks)
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(first)
        await asyncio.wait_for(reader.read(), 30)
        writer.close()
        world.master.log.append(b"still here")
        world.master.server.log_extended()
        await until(lambda: world.master.acks.get(2) == 10)  # type: ignore[call-overload]

    with capture_logs() as lines:
        play(logs, scene)
    closed = [line for line in lines if line["event"] == "ha_connection_closed"]
    # Ours spoken wrong is warned of; who speaks another protocol has the wrong port.
    assert [line["log_level"] for line in closed] == ["warning" if first.startswith(b"RCHA") else "info"], closed


def test_each_link_that_said_nothing_was_a_line(logs: tuple[MappedLog, MappedLog]) -> None:
    """400 silent links were 383 lines of a broker: whoever reached the port could fill its disk."""

    async def scene(world: World) -> None:
        for _ in range(20):
            _, writer = await asyncio.open_connection("127.0.0.1", world.port)
            writer.close()
        await until(lambda: world.master.server.connections.closed_by_cause.total() == 20)

    with capture_logs() as lines:
        play(logs, scene)
    assert [line["left_out"] for line in lines if line["event"] == "ha_connection_closed"] == [0]


def test_the_line_of_a_silent_link_hid_that_of_one_that_spoke_wrong(logs: tuple[MappedLog, MappedLog]) -> None:
    """Both within ten seconds: a forged peer was one of those that were left out."""

    async def scene(world: World) -> None:
        for first in (b"", b"RCHA" * 9):
            reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
            writer.write(first)
            if first:
                await asyncio.wait_for(reader.read(), 30)
            writer.close()
        await until(lambda: world.master.server.connections.closed_by_cause.total() == 2)

    with capture_logs() as lines:
        play(logs, scene)
    levels = sorted(line["log_level"] for line in lines if line["event"] == "ha_connection_closed")
    assert levels == ["info", "warning"]


def test_a_full_disk_on_the_slave_ends_its_link_only(logs: tuple[MappedLog, MappedLog], tmp_path: Path) -> None:
    small = MappedLog(tmp_path / "small", 4096)

    async def scene(world: World) -> None:
        world.master.log.begin_epoch(1)
        world.master.log.append(bytes(10_000))
        world.reign()
        world.slave.client.follow(world.target())
        await until(lambda: ErrorCode.LOG_FAILED in world.slave.closed)
        world.slave.client.stop_following("the disk is full")

    play((logs[0], small), scene)
    small.close()


@pytest.mark.slow
def test_a_listener_s_fault_never_stops_a_reign_from_opening(logs: tuple[MappedLog, MappedLog]) -> None:
    """It went up through the link into the role change; now it costs the link, and the slave comes back."""

    async def scene(world: World) -> None:
        log, real = world.master.log, world.master.slave_opened
        faults = iter((True,))

        def slave_opened(handshake: Handshake, link_generation: int) -> None:
            if next(faults, False):
                raise LookupError("a fault of our own")
            real(handshake, link_generation)

        world.master.slave_opened = slave_opened  # type: ignore[method-assign]
        log.begin_epoch(1)
        log.append(os.urandom(1000))
        world.slave.client.follow(world.target())
        await until(
            lambda: any(
                each.link.state is MasterLinkState.PARKED for each in world.master.server.connections.snapshot()
            )
        )
        world.reign()
        await until(lambda: world.master.acks.get(2) == log.max_offset)  # type: ignore[call-overload]
        assert next(faults, None) is None

    play(logs, scene)


def test_a_slave_reads_on_when_its_log_has_room_again(logs: tuple[MappedLog, MappedLog]) -> None:
    """The next segment is being made: the loop must not wait for the disk, nor the link forget to go on."""

    async def scene(world: World) -> None:
        world.slave.log.is_ready = False
        world.master.log.begin_epoch(1)
        world.master.log.append(os.urandom(10_000))
        world.reign()
        world.slave.client.follow(world.target())
        await until(lambda: "ready" in world.slave.told and bool(world.slave.log.history))
        await asyncio.sleep(0.01)
        assert world.slave.log.max_offset == 0
        world.slave.log.is_ready = True
        world.slave.client.log_has_room()
        await until(lambda: world.slave.log.content() == world.master.log.content())
        assert world.slave.closed == []

    play(logs, scene)


@pytest.mark.slow
@pytest.mark.parametrize("at", ["batch_ended", "connected"])
def test_a_fault_of_our_own_costs_a_link_and_not_the_following(
    logs: tuple[MappedLog, MappedLog], monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """W36: the reader met the fault again and again, or the dialler was dead; either way the slave never came back."""
    real = getattr(SlaveLink, at)
    faults = iter((True, True))

    def faulty(link: SlaveLink, now_ms: int) -> object:
        if next(faults, False):
            raise LookupError("a fault of our own")
        return real(link, now_ms)

    monkeypatch.setattr(SlaveLink, at, faulty)

    async def scene(world: World) -> None:
        log = world.master.log
        log.begin_epoch(1)
        log.append(os.urandom(100_000))
        world.reign()
        world.slave.client.follow(world.target())
        await until(lambda: world.master.acks.get(2) == log.max_offset)  # type: ignore[call-overload]
        assert next(faults, None) is None, "both faults were met"
        assert world.slave.log.content() == log.content()

    play(logs, scene)


def test_a_stranger_s_error_frame_with_a_higher_epoch_deposes_nobody(logs: tuple[MappedLog, MappedLog]) -> None:
    """Without a handshake its 44 bytes ended the reign of a healthy master; now they end their own link, counted."""

    async def scene(world: World) -> None:
        world.master.log.begin_epoch(1)
        world.reign()
        world.slave.client.follow(world.target())
        await until(lambda: 2 in world.master.acks)
        _, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(
            encode(
                LinkError(
                    code=ErrorCode.EPOCH_UNKNOWN,
                    master_epoch=MasterEpoch(2**30),
                    broker_id=BrokerId(2),
                    incarnation=Incarnation(""),
                    expected="",
                    actual="",
                )
            )
        )
        await until(lambda: world.master.server.connections.closed_by_cause == {CloseCause.PEER: 1})
        writer.close()
        world.master.log.append(b"still here")
        world.master.server.log_extended()
        await until(lambda: world.master.acks.get(2) == 10)  # type: ignore[call-overload]
        assert world.master.higher == []

    play(logs, scene)


@pytest.mark.slow
def test_links_that_say_nothing_do_not_keep_a_slave_out(
    logs: tuple[MappedLog, MappedLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strangers held all places of the port until their handshakes were overdue, and came again."""
    monkeypatch.setattr("rollcall_ha.ha.service.HA_LIMITS", replace(HA_LIMITS, connections_max=4))

    async def scene(world: World) -> None:
        world.master.log.begin_epoch(1)
        world.reign()
        world.slave.client.follow(world.target())
        await until(lambda: 2 in world.master.acks)
        strangers = [await asyncio.open_connection("127.0.0.1", world.port) for _ in range(10)]
        closed = world.master.server.connections.closed_by_cause
        await until(lambda: closed[CloseCause.TOO_MANY_LINKS] == 7)
        twin = SlaveReplica(world.slave.log)
        twin.client.follow(world.target())
        await until(lambda: len(world.master.opened) == 2)
        await until(lambda: closed[CloseCause.SAID_NOTHING] == 2)
        await twin.client.stop()
        for _, writer in strangers:
            writer.close()

    play(logs, scene)


def test_half_a_handshake_is_given_up_and_so_are_too_many_of_them(
    logs: tuple[MappedLog, MappedLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame that drips, or 1 MiB of it on many links, costs its own link: by age, and by what all of them hold."""
    monkeypatch.setattr(LinkTable, "SWEEP_MS", 5)
    monkeypatch.setattr("rollcall_ha.ha.service.HA_LIMITS", replace(HA_LIMITS, unfinished_bytes_max=1_000_000))

    async def scene(world: World) -> None:
        closed = world.master.server.connections.closed_by_cause
        with monkeypatch.context() as patch:
            patch.setattr("rollcall_ha.ha.transport.HA_LIMITS", replace(HA_LIMITS, frame_ms_max=20))
            _, slow = await asyncio.open_connection("127.0.0.1", world.port)
            slow.write(b"RCHA\x01\x01\x00\x00\x00\x00\x00\x20\x00\x00\x00\x00" + b"x")
            await until(lambda: closed == {CloseCause.SLOW_FRAME: 1})
        greedy = [await asyncio.open_connection("127.0.0.1", world.port) for _ in range(3)]
        for _, writer in greedy:
            writer.write(b"RCHA\x01\x01\x00\x00\x00\x0f\x00\x00\x00\x00\x00\x00" + b"x" * 900_000)
        await until(lambda: closed[CloseCause.UNFINISHED_FRAMES] > 0)
        await until(lambda: len(world.master.server.connections) == 0)
        assert world.master.server.connections.unfinished_bytes == 0
        for _, writer in ((None, slow), *greedy):
            writer.close()

    play(logs, scene)


def test_a_port_without_descriptors_waits_before_it_accepts_again(logs: tuple[MappedLog, MappedLog]) -> None:
    """The listener stayed readable, so the loop came back at once and did nothing else."""

    class Loop:
        def __init__(self) -> None:
            self.said: list[str] = []

        def remove_reader(self, _: int) -> None:
            self.said.append("pause")

        def call_later(self, delay_s: float, _: object, *__: object) -> None:
            self.said.append(f"again in {delay_s} s")

    class Listener:
        def accept(self) -> None:
            raise OSError(24, "too many open files")

        def fileno(self) -> int:
            return -1

    async def scene(world: World) -> None:
        loop = Loop()
        world.master.server._accept(Listener(), loop)  # type: ignore[arg-type]
        assert loop.said == ["pause", "again in 1.0 s"]
        world.master.server._accept_on(Listener(), loop)  # type: ignore[arg-type]
        assert len(loop.said) == 2, "stopped meanwhile: that listener is not this server's any more"

    play(logs, scene)


def signs_of(client: HaClient) -> tuple[int | None, int | None]:
    return client.heard_age_us, client.ended_age_us


def test_the_end_of_a_master_is_told_from_an_end_of_ours(logs: tuple[MappedLog, MappedLog]) -> None:
    """R13: only what the master's end closed says when it ended; what this end gave up says when it was heard last."""

    async def scene(world: World) -> None:
        world.master.log.begin_epoch(1)
        world.reign()
        client = world.slave.client
        assert (client.heard_age_us, client.ended_age_us) == (None, None)
        client.follow(world.target())
        await until(lambda: "ready" in world.slave.told)
        assert client.heard_age_us is not None
        assert client.ended_age_us is None
        client.stop_following("an end of ours")
        assert client.ended_age_us is None
        assert client.heard_age_us is not None
        client.follow(world.target())
        await until(lambda: world.slave.told.count("ready") == 2)
        await world.master.server.stop()
        await until(lambda: client.ended_age_us is not None)
        client.follow(world.target())
        assert signs_of(client) == (None, None), "they were of the target before this one"

    play(logs, scene)
