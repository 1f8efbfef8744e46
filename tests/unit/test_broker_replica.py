"""One replica's shells, tied together by the real ``Replica`` on a real directory; only the controllers are missing."""

from __future__ import annotations

import asyncio
import errno
import gc
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast, get_args

import msgspec
import pytest
from structlog.testing import capture_logs

from rollcall_ha.broker.config import BrokerConfig
from rollcall_ha.broker.consuming.tools import About
from rollcall_ha.broker.core.durable import Identity
from rollcall_ha.broker.core.role import RoleMachine
from rollcall_ha.broker.core.role_io import (
    PersistView,
    PublishRole,
    ReignRefused,
    RoleAction,
    SessionLost,
    StartDraining,
    Step,
    StopDraining,
)
from rollcall_ha.broker.identity import disown, remember
from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.broker.log.segment import LogSegment
from rollcall_ha.broker.own_damage import DAMAGE_BYTES_MAX, DAMAGE_CHECK_PAUSE_US
from rollcall_ha.broker.parts import Parts
from rollcall_ha.broker.protocol.send import SendRequest, encode_send, parse_frame
from rollcall_ha.broker.replica import Replica
from rollcall_ha.broker.replica_files import ReplicaFiles
from rollcall_ha.broker.server import release
from rollcall_ha.broker.session import ControllerSession
from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import AnnounceStop, ReportEntered, ReportWrites
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    FleetIncarnation,
    FlushMode,
    Incarnation,
    LogOffset,
    MasterEpoch,
    RegisterCode,
    SessionOrdinal,
    SyncStateSetEpoch,
)
from rollcall_ha.controller.contract.replies import (
    AnyReply,
    Done,
    Elected,
    Refused,
    Registered,
    SetView,
)
from rollcall_ha.controller.contract.session import BrokerState
from rollcall_ha.controller.contract.timing import PRESETS, Preset
from rollcall_ha.controller.contract.values import (
    Milestone,
    Phase,
    ReplicaDescription,
    SetConfiguration,
    StopReason,
    Value,
)
from rollcall_ha.controller.contract.verdicts import ElectionKind, Intactness, Verdict
from rollcall_ha.deploy.local.processes import free_ports
from rollcall_ha.epoch.history import EpochHistory
from rollcall_ha.epoch.model import EpochEntry
from rollcall_ha.ha.actions import LogGrew, TruncateLog
from rollcall_ha.ha.errors import ErrorCode
from rollcall_ha.ha.links import FollowTarget
from rollcall_ha.ha.service import HaClient
from rollcall_ha.ha.truncation import Cut
from rollcall_ha.node.process import ExitCode
from tests.support.fold_tools import open_folds
from tests.support.ha_replica import until
from tests.support.log_tools import draft, log_bytes, open_log
from tests.support.set_views import KEY, shown, shown_member

FLEET = FleetIncarnation("f1")
ME = BrokerId(1)


def free_port() -> int:
    """Of loopback, a moment ago."""
    return free_ports(1)[0]


def config_of(directory: Path) -> BrokerConfig:
    """Configured to ack before anything is synced."""
    return BrokerConfig(
        name="broker-a-1",
        set_key=KEY,
        fleet_incarnation=FLEET,
        timing=PRESETS[Preset.FAST],
        directory=directory,
        listen=("127.0.0.1", 10911),
        ha=("127.0.0.1", free_port()),
        health=("127.0.0.1", 0),
        controllers=("127.0.0.1:1",),
        description=ReplicaDescription(address="127.0.0.1:10911", ha_address="127.0.0.1:10912"),
        configuration=SetConfiguration(expected_replicas=1, flush=FlushMode.ASYNC),
        segment_bytes=64 * 1024,
        quarantine_days=1,
        quarantine_bytes=1 << 30,
    )


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[Replica]:
    """A replica whose log is recovered, and which no controller has heard of."""
    loop = asyncio.get_running_loop()
    config = config_of(directory)
    files = ReplicaFiles(directory)
    files.identity.store(
        Identity(cluster=KEY.cluster, broker_name=KEY.name, register_code=RegisterCode("r1"), broker_id=ME)
    )
    remembered = remember(files, KEY)
    log = CommitLog.open(
        directory,
        segment_bytes=config.segment_bytes,
        flush_mode=config.configuration.flush,
        store_host=config.store_host,
        stop_process=lambda _error: None,
        post=loop.call_soon_threadsafe,
    )
    folds = open_folds(directory, log)
    with ThreadPoolExecutor(max_workers=1) as disk, ThreadPoolExecutor(max_workers=1) as marks:
        replica = Replica(
            about=About(config=dict, disk_share=lambda: None, wall_ms=lambda: 1),
            config=config,
            remembered=remembered,
            files=files,
            log=log,
            folds=folds,
            disk=disk,
            parts=Parts(),
        )
        replica.start()
        folds.start(marks)
        try:
            yield replica
        finally:
            await replica.close()
            log.close(is_clean=False)


def do(replica: Replica, action: RoleAction) -> None:
    """As if the role machine asked for it."""
    replica.role.deeds[type(action)](action)


def view(index: int, *, master: Replica | None = None, epoch: int = 0, flush: FlushMode = FlushMode.ASYNC) -> SetView:
    """The controllers' word."""
    return shown(
        fleet_incarnation=FLEET,
        index=index,
        master=None if master is None else ME,
        master_incarnation=None if master is None else incarnation_of(master),
        master_epoch=MasterEpoch(epoch),
        sync_state_set=() if master is None else (ME,),
        sync_state_set_epoch=SyncStateSetEpoch(epoch),
        configuration=SetConfiguration(expected_replicas=1, flush=flush),
    )


def view_of_other(index: int) -> SetView:
    """Broker 2 is master."""
    return msgspec.structs.replace(
        view(index, epoch=1), master=BrokerId(2), master_incarnation=Incarnation("i2"), members=(shown_member(2),)
    )


class Answers:
    """A dialler that dials nobody and notes what it is told."""

    heard_age_us: int | None = None
    ended_age_us: int | None = None

    def __init__(self, told: list[str]) -> None:
        self.told = told

    def follow(self, target: FollowTarget) -> None:
        self.told.append("follow")

    def stop_following(self, detail: str) -> None:
        self.told.append("stop")

    def truncation_done(self) -> None:
        self.told.append("done")

    def truncation_failed(self, reason: str) -> None:
        self.told.append("failed")

    def epoch_recorded(self) -> None:
        self.told.append("recorded")

    def epoch_failed(self, reason: str) -> None:
        self.told.append("epoch-failed")

    def log_has_room(self) -> None:
        self.told.append("room")

    def log_synced(self, end: LogOffset) -> None:
        self.told.append("synced")


def registered(of: SetView, ordinal: int = 1) -> Registered:
    """The answer to a registration."""
    return Registered(
        broker_id=ME,
        session_ordinal=SessionOrdinal(ordinal),
        intactness=Intactness.NEW,
        is_in_sync=False,
        view=of,
    )


def incarnation_of(replica: Replica) -> Incarnation:
    """Of this start."""
    return replica.status.probe.incarnation


def test_a_replica_of_a_set_that_syncs_does_so_whatever_was_configured_here(tmp_path: Path) -> None:
    """R3c: it acked what only its memory had, and after a power loss the controllers took it for intact."""

    async def story() -> None:
        async with running(tmp_path) as replica:
            replica.session_opened(registered(view(1, flush=FlushMode.SYNC)))
            await until(lambda: replica.machine.published.state is BrokerState.FENCED)
            assert replica.following._log.flush_mode is FlushMode.SYNC

    asyncio.run(story())


def test_a_replica_killed_in_its_first_moments_was_refused_for_ever_by_controllers_that_were_founded_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    R7: it had its id, its epoch and acked messages, but no view yet, which waited for a calm moment.

    Without a view to say which fleet gave its id, the new controllers take the id for one that was never granted. The
    first view does not wait.
    """
    monkeypatch.setattr("rollcall_ha.broker.role_shell.VIEW_DELAY_MS", 3_600_000)

    async def story() -> None:
        async with running(tmp_path) as replica:
            replica.session_opened(registered(view(1, master=replica, epoch=1)))
            await until(lambda: ReplicaFiles(tmp_path).view.load() is not None)
            stored = ReplicaFiles(tmp_path).view.load()
            assert stored is not None
            assert stored.fleet_incarnation == FLEET

    asyncio.run(story())


def test_a_replica_that_knew_its_set_from_its_registration_alone_told_wiped_controllers_nothing(tmp_path: Path) -> None:
    """
    R7: the view came with the answer, and no other one since. They took its id for one that was never granted.

    The view of controllers that have forgotten the reign does not take the place of what they have to hear.
    """

    async def story() -> None:
        async with running(tmp_path) as replica:
            replica.session_opened(registered(view_of_other(3)))
            stored = replica.session._machine._holdings()[1]
            assert stored is not None
            assert (stored.master_epoch, stored.fleet_incarnation) == (1, FLEET)
            replica.session_opened(registered(view(1)))
            assert replica.session._machine._holdings()[1] == stored
            other = msgspec.structs.replace(view(1), fleet_incarnation=FleetIncarnation("f2"))
            replica.session_opened(registered(other))
            stored = replica.session._machine._holdings()[1]
            assert stored is not None
            assert (stored.master_epoch, stored.fleet_incarnation) == (0, "f2")

    asyncio.run(story())


def test_entered_is_reported_again_when_the_controllers_were_too_busy_to_look_at_it(tmp_path: Path) -> None:
    """R6: a refusal for overload was taken for an answer; no ``entered`` came, and the set was elected again."""

    async def story() -> None:
        asked: list[type[Value]] = []

        async def ask(command: Value) -> AnyReply:
            asked.append(type(command))
            if asked.count(ReportEntered) == 1:
                return Refused(code=RefusalCode.OVERLOADED, reason="64 orders wait already", hint="retry")
            return Done()

        async with running(tmp_path) as replica:
            replica.session.ask = ask  # type: ignore[method-assign]
            replica.session_opened(registered(view(1, master=replica, epoch=1)))
            await until(lambda: asked.count(ReportEntered) == 2)
            assert replica.machine.published.state is BrokerState.MASTER

    asyncio.run(story())


class Client:
    """A client that reads nothing."""

    peer_host = bytes(8)

    def write_answers(self, data: bytes) -> None:
        del data


def test_the_first_ack_is_on_record_with_the_wait_of_its_sender(tmp_path: Path) -> None:
    """An idle set's failover lasted "31 s" in its record: until somebody sent again, although nobody had waited."""

    async def story() -> None:
        async with running(tmp_path) as replica:
            milestones: list[Milestone] = []

            def report(milestone: Milestone, *, reached_at_us: int) -> None:
                assert reached_at_us <= replica._parts.now_us()
                milestones.append(milestone)

            async def ask(command: Value) -> AnyReply:
                del command
                return Done()

            replica.session.ask = ask  # type: ignore[method-assign]
            replica.session.report = report  # type: ignore[method-assign]
            replica.session_opened(registered(view(1, master=replica, epoch=1)))
            await until(lambda: replica.gate.state.is_serving)
            raw = encode_send(
                opaque=1, group="g", topic="T", queue_id=0, born_at_ms=1, properties="", body=b"x", waited_us=3_000
            )
            send = parse_frame(memoryview(raw)[4:])
            assert isinstance(send, SendRequest)
            replica.put.handle(Client(), [send])
            await until(lambda: Phase.FIRST_ACK in [one.phase for one in milestones])
            (waited_us,) = [one.waited_us for one in milestones if one.phase is Phase.FIRST_ACK]
            assert isinstance(waited_us, int)
            assert 3_000 <= waited_us < 1_000_000
            assert not any(isinstance(one.waited_us, int) for one in milestones if one.phase is not Phase.FIRST_ACK)

    asyncio.run(story())


def reports_of(replica: Replica) -> list[ReportWrites]:
    """What it says of its writes, in order; everything is taken by the controllers."""
    reports: list[ReportWrites] = []

    async def ask(command: Value) -> AnyReply:
        if isinstance(command, ReportWrites):
            reports.append(command)
        return Done()

    replica.session.ask = ask  # type: ignore[method-assign]
    return reports


@pytest.mark.slow
def test_a_master_that_fenced_itself_tells_the_controllers_that_writes_are_stopped(
    tmp_path: Path,
) -> None:
    """They went on calling it master, and the set serving, for as long as nobody looked."""

    async def story() -> None:
        async with running(tmp_path) as replica:
            reports = reports_of(replica)
            replica.session_opened(registered(view(1, master=replica, epoch=1)))
            await until(lambda: replica.gate.state.is_serving)
            assert replica.health().is_ready
            replica.role.feed(ReignRefused(master_epoch=MasterEpoch(1), reason="masterEpoch 1 is over"))
            await until(lambda: bool(reports))
            assert (reports[0].reason, reports[0].master_epoch, reports[0].seq) == (StopReason.FENCED, 1, 1)
            assert reports[0].detail == "masterEpoch 1 is over"
            assert reports[0].stopped_us is None
            health = replica.health()
            counts = {name: value for name, _, value in health.values}
            assert (health.is_ready, health.stopped) == (False, StopReason.FENCED)
            assert counts["write_stops_total"] == 1
            assert counts["writes_stopped_seconds_total"] >= PRESETS[Preset.FAST].stall_ms / 1_000
            # Another master is elected: the stop is over with the reign, and nothing more is told of it.
            replica.view_arrived(view_of_other(2), 0)
            await until(lambda: replica.health().stopped is None)
            assert len(reports) == 1

    asyncio.run(story())


@pytest.mark.slow
def test_r21_a_master_that_its_slaves_have_left_named_itself_in_every_route(tmp_path: Path) -> None:
    """A client that asked it first got 600 refusals in a minute. On a peer's word alone a master that serves goes on."""

    async def story() -> None:
        async with running(tmp_path) as replica:
            reports_of(replica)
            reigning = msgspec.structs.replace(view(1, master=replica, epoch=1), sync_state_set=(ME, BrokerId(2)))
            replica.session_opened(registered(reigning))
            await until(lambda: replica.gate.state.is_serving)
            replica.session_lost("cut")
            replica.higher_epoch_seen(MasterEpoch(2), BrokerId(2), Incarnation("i2"))
            assert replica.status.route.master == ME, "it acknowledges, as far as anybody knows"
            await until(lambda: replica.status.route.master is None)
            assert replica.health().stopped is StopReason.NOT_ACKNOWLEDGED
            replica.session_opened(registered(msgspec.structs.replace(reigning, index=2), 2))
            await until(lambda: replica.status.route.master == ME)

    asyncio.run(story())


def is_told(lines: list[Any], event: str) -> bool:
    return any(line["event"] == event for line in lines)


def test_the_log_of_a_broker_said_master_2_where_the_machine_is_orders_7(tmp_path: Path) -> None:
    other = msgspec.structs.replace(shown_member(2), owner="orders-7")

    async def story() -> None:
        async with running(tmp_path) as replica:
            replica.following.client = cast("HaClient", Answers([]))
            with capture_logs() as lines:
                replica.session_opened(registered(msgspec.structs.replace(view_of_other(1), members=(other,))))
                await until(partial(is_told, lines, "follow"))
                replica.higher_epoch_seen(MasterEpoch(2), BrokerId(2), Incarnation("i2"))
            told = {line["event"]: line for line in lines}
            assert told["follow"]["master"] == told["higher_epoch_shown"]["by"] == "orders-7 (2)"
            assert told["role"]["master"] == "orders-7 (2)"

    asyncio.run(story())


class HeldLink:
    """A client's link of which the listen port wants to read no more."""

    def __init__(self, replica: Replica, length: int) -> None:
        self.replica, self.length = replica, length
        self.is_held = False

    def hold(self) -> None:
        self.is_held = True

    def go_on(self) -> None:
        self.is_held = False
        self.send()

    def send(self) -> None:
        self.replica.listen.may_send(self, self.length)  # type: ignore[arg-type]


def appended(log: CommitLog, length: int) -> None:
    log.begin_run(stored_at_ms=1)
    log.append(draft(b"x" * length))
    log.end_run()


@pytest.mark.slow
def test_sends_that_a_slow_disk_held_were_on_no_record_as_a_stop_of_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next segment took 1.7 s to make; senders waited in their sockets, and the set counted as available."""
    disk_is_free = threading.Event()
    create = LogSegment.create

    def create_slowly(folder: Path, base: int, size: int) -> LogSegment:
        assert disk_is_free.wait(30)
        return create(folder, base, size)

    async def story() -> None:
        async with running(tmp_path) as replica:
            reports = reports_of(replica)
            replica.session_opened(registered(view(1, master=replica, epoch=1)))
            await until(lambda: replica.gate.state.is_serving)
            log = replica._log
            monkeypatch.setattr(LogSegment, "create", create_slowly)
            try:
                appended(log, 1_000)
                replica._log_extended()
                link = HeldLink(replica, log.segment_bytes - 500)
                link.send()
                assert link.is_held
                await until(lambda: replica.writes.stop is not None)
                stop = replica.writes.stop
                assert stop is not None
                assert (stop.reason, stop.detail) == (
                    StopReason.OWN_DISK,
                    "this broker's disk has not made the next segment of its log",
                )
                assert link.is_held
            finally:
                disk_is_free.set()
            await until(lambda: not link.is_held and replica.writes.stop is None)
            await until(lambda: len(reports) == 2)
            assert [one.stopped_us is None for one in reports] == [True, False]
            stopped_us = reports[1].stopped_us
            assert isinstance(stopped_us, int)
            assert stopped_us >= PRESETS[Preset.FAST].stall_ms * 1_000

    asyncio.run(story())


def test_sends_that_wait_for_the_end_of_a_handover_are_no_stop_for_want_of_room(tmp_path: Path) -> None:
    """They are measured from the master's word on; called a stop, they would be counted twice."""

    async def story() -> None:
        async with running(tmp_path) as replica:
            replica.session_opened(registered(view(1, master=replica, epoch=1)))
            await until(lambda: replica.gate.state.is_serving)
            do(replica, StartDraining(master_epoch=MasterEpoch(1)))
            link = HeldLink(replica, 100)
            link.send()
            assert link.is_held
            assert replica.listen.room_wanted_since_us is None
            do(replica, StopDraining(master_epoch=MasterEpoch(1)))
            assert not link.is_held

    asyncio.run(story())


def test_a_session_that_is_lost_while_the_ha_address_opens_does_not_open_it_twice(tmp_path: Path) -> None:
    """The second session's bind found the address taken by the first one's, and the process ended."""

    async def story() -> None:
        async with running(tmp_path) as replica:
            replica.session_opened(registered(view(1), ordinal=1))
            replica.session_lost("the controller is gone")
            replica.session_opened(registered(view(2), ordinal=2))
            await until(lambda: replica.machine.view is not None)
            assert replica.machine.view is not None
            assert replica.machine.view.index == 2
            assert not replica.ended.done()

    asyncio.run(story())


def test_each_refusal_of_a_damaged_record_had_64_mib_read_in_front_of_the_promises(tmp_path: Path) -> None:
    """The slave came back every second, with the same refusal; one thread does these readings and the durable writes."""

    async def story() -> None:
        async with running(tmp_path) as replica:
            read_from: list[LogOffset] = []

            async def ask(command: Value) -> AnyReply:
                del command
                return Done()

            def find_damage(start: LogOffset, bytes_max: int) -> str:
                assert bytes_max == DAMAGE_BYTES_MAX
                read_from.append(start)
                return ""

            async def refuse() -> None:
                replica.slave_closed(BrokerId(2), 1, ErrorCode.RECORD_DAMAGED, "the body at 0")
                await asyncio.get_running_loop().run_in_executor(replica._disk, lambda: None)

            replica.session.ask = ask  # type: ignore[method-assign]
            replica.session_opened(registered(view(1, master=replica, epoch=1)))
            await until(lambda: replica.gate.state.is_serving)
            replica._log.find_damage = find_damage  # type: ignore[method-assign]
            for _ in range(3):
                await refuse()
            assert read_from == [0]
            replica._damage._next_check_us -= DAMAGE_CHECK_PAUSE_US
            await refuse()
            assert read_from == [0, 0]

    asyncio.run(story())


def test_the_log_of_a_damaged_record_said_slave_2_where_the_machine_is_orders_7(tmp_path: Path) -> None:
    """Damaged on the way or here: either line, and the alarm, name whoever refused it."""
    other = msgspec.structs.replace(shown_member(2), owner="orders-7")

    async def story() -> None:
        async with running(tmp_path) as replica:
            reports_of(replica)
            reigning = msgspec.structs.replace(view(1, master=replica, epoch=1), members=(other,))
            replica.session_opened(registered(reigning))
            await until(lambda: replica.gate.state.is_serving)
            found = iter(("", "record at 0: its body"))
            replica._log.find_damage = lambda *_: next(found)  # type: ignore[method-assign]
            with capture_logs() as lines:
                for event in ("slave_got_damaged_record", "own_record_damaged"):
                    replica._damage._next_check_us = 0
                    replica._damage.refused(BrokerId(2), None, "the body at 0")
                    await until(partial(is_told, lines, event))
            told = {line["event"]: line for line in lines}
            assert told["slave_got_damaged_record"]["slave"] == "orders-7 (2)"
            assert told["own_record_damaged"]["refused_by"] == "orders-7 (2)"
            assert "replica orders-7 (2) refused it" in replica.status.alarm

    asyncio.run(story())


def test_each_action_of_the_role_machine_has_its_deed(tmp_path: Path) -> None:
    """Looked up in a table: one that is missing would end the process the first time that it is asked for."""

    async def story() -> None:
        async with running(tmp_path) as replica:
            assert {*replica.role.deeds, *get_args(Step)} == {*get_args(RoleAction)}

    asyncio.run(story())


def test_a_fault_while_a_role_changes_ends_the_process(tmp_path: Path) -> None:
    """W36: the task of a step died with it, unseen; the replica stayed in half a role for ever."""

    async def story() -> None:
        async with running(tmp_path) as replica:

            def publish(action: PublishRole) -> None:
                if action.state is BrokerState.MASTER:
                    raise RuntimeError("a fault of ours, behind the last step")

            replica.role.deeds[PublishRole] = publish
            replica.session_opened(registered(view(1, master=replica, epoch=1)))
            ending = await asyncio.wait_for(replica.ended, timeout=30)
            assert isinstance(ending.error, RuntimeError)

    asyncio.run(story())


def test_a_link_that_closes_before_its_cut_began_does_not_keep_the_next_one_from_being_dialled(tmp_path: Path) -> None:
    """L4: a full disk put off the cut, its link closed meanwhile: nobody answered, and the slave never dialled again."""

    async def story() -> None:
        async with running(tmp_path) as replica:
            cuts: list[str] = []

            def fill(step: str) -> None:
                cuts.append(step)
                raise OSError(errno.ENOSPC, "no space left on device")

            log = replica.following._log
            assert isinstance(log, CommitLog)
            log.begin_run(stored_at_ms=1)
            log.append(draft(b"never replicated"))
            log.end_run()
            log._files.before_step = fill
            replica.session_opened(registered(view(1)))
            await until(lambda: replica.following.client is not None)
            answers: list[str] = []
            replica.following.client = cast("HaClient", Answers(answers))
            replica.view_arrived(view_of_other(2), 0)
            await until(lambda: "follow" in answers)
            target = replica.following._target
            assert target is not None
            for _ in range(2):
                plan = Cut(point=LogOffset(0), history=EpochHistory(), cut_bytes=log.max_offset)
                replica.following.slave_acted(target, TruncateLog(plan=plan))
                replica.following.link_closed(target, None, "reset")
                await until(lambda: replica.machine.pending is None)
            assert cuts == ["mark"], "the second plan met the pause after the failure of the first one"
            assert answers.count("failed") == 2

    asyncio.run(story())


@pytest.mark.slow
def test_a_sync_that_fails_in_a_cut_ends_the_process(tmp_path: Path) -> None:
    """R3b: tried again it succeeds, although its pages are gone; the end of the process disowns the store."""

    async def story() -> None:
        async with running(tmp_path) as replica:
            log = replica.following._log
            assert isinstance(log, CommitLog)
            log.begin_run(stored_at_ms=1)
            log.append(draft(b"never replicated"))
            log.end_run()

            def fail(_step: str) -> None:
                raise OSError(errno.EIO, "Input/output error")

            log._files.before_step = fail
            replica.session_opened(registered(view(1)))
            await until(lambda: replica.following.client is not None)
            answers: list[str] = []
            replica.following.client = cast("HaClient", Answers(answers))
            replica.view_arrived(view_of_other(2), 0)
            await until(lambda: "follow" in answers)
            target = replica.following._target
            assert target is not None
            plan = Cut(point=LogOffset(0), history=EpochHistory(), cut_bytes=log.max_offset)
            replica.following.slave_acted(target, TruncateLog(plan=plan))
            ending = await asyncio.wait_for(replica.ended, timeout=30)
            assert isinstance(ending.error, OSError)
            assert ending.error.errno == errno.EIO
            assert "failed" not in answers

    asyncio.run(story())


def test_a_store_whose_sync_failed_is_another_one_at_the_next_start(tmp_path: Path) -> None:
    """R3b: same boot and same store are no proof when the kernel has dropped pages that it could not write."""
    files = ReplicaFiles(tmp_path)
    before = remember(files, KEY).process.store_id
    assert remember(ReplicaFiles(tmp_path), KEY).process.store_id == before
    disown(files)
    disown(files)
    assert remember(ReplicaFiles(tmp_path), KEY).process.store_id != before


def test_what_is_fed_behind_the_end_sets_no_timer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that ended late woke the role machine again, when everything below it was closed."""

    async def story() -> None:
        async with running(tmp_path) as replica:
            monkeypatch.setattr(RoleMachine, "next_due_us", property(lambda _machine: 1))
            replica.role.stop()
            replica.role.feed(SessionLost())
            assert replica.role._timer is None

    asyncio.run(story())


def test_a_view_that_waited_for_a_calm_moment_was_written_to_a_disk_that_was_let_go(tmp_path: Path) -> None:
    """A broker that was stopped said "cannot schedule new futures after shutdown", with a traceback."""

    async def story() -> None:
        loop, faults = asyncio.get_running_loop(), list[object]()
        loop.set_exception_handler(lambda _loop, context: faults.append(context.get("exception")))
        async with running(tmp_path) as replica:
            replica.session_opened(registered(view(1, master=replica, epoch=1)))
            await until(lambda: ReplicaFiles(tmp_path).view.load() is not None and not replica.role._is_storing_view)
            stored = ReplicaFiles(tmp_path).view.load()
            assert stored is not None
            replica.role._calm_at_s = loop.time() + 0.1
            do(replica, PersistView(stored=stored))
            assert replica.role._is_storing_view
        await until(lambda: not replica.role._is_storing_view)
        gc.collect()
        assert faults == []

    asyncio.run(story())


def test_a_slave_that_had_just_caught_up_let_clients_wait_until_its_index_had_read_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn received a MiB and indexed a quarter of it: elected then, it had most of the copy to read first."""
    for name, value in (("UNREAD_BYTES_MAX", 8_000), ("TURN_BYTES_MAX", 8_000), ("INDEX_BYTES_MAX", 2_000)):
        monkeypatch.setattr(f"rollcall_ha.broker.following.{name}", value)
    master = open_log(tmp_path / "master", segment_bytes=64 * 1024)
    for _ in range(50):
        appended(master, 1_000)
    content = memoryview(log_bytes(master))

    async def story() -> None:
        async with running(tmp_path) as replica:
            log, behind = replica._log, list[int]()
            log.record_epoch(EpochEntry(epoch=MasterEpoch(1), start_offset=LogOffset(0)))
            target = cast("FollowTarget", None)
            for start in range(0, len(content), 8_000):
                piece = content[start : start + 8_000]
                view = log.receive_view(len(piece))
                view[: len(piece)] = piece
                view.release()
                log.commit_received(len(piece))
                end = LogOffset(start + len(piece))
                replica.following.slave_acted(target, LogGrew(start=LogOffset(start), end=end))
                behind.append(log.unindexed_bytes)
            assert log.max_offset == len(content) > 5 * 8_000
            assert max(behind) <= 2 * 8_000

    asyncio.run(story())


def test_a_disk_that_hangs_kept_the_process_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor saw a broker that was neither there nor gone."""
    codes: list[int] = []
    writing = threading.Event()

    async def story(disk: ThreadPoolExecutor) -> None:
        await release(disk, exit_now=codes.append)

    idle = ThreadPoolExecutor(max_workers=1)
    asyncio.run(story(idle))
    assert codes == []

    monkeypatch.setattr("rollcall_ha.broker.server.DISK_MS_MAX", 10)
    hung = ThreadPoolExecutor(max_workers=1)
    hung.submit(writing.wait, 5)
    asyncio.run(story(hung))
    writing.set()
    assert codes == [ExitCode.STORAGE]


def _elected_other(index: int) -> Elected:
    """Broker 2 won epoch 2."""
    successor = msgspec.structs.replace(view_of_other(index), master_epoch=MasterEpoch(2))
    verdict = Verdict(
        kind=ElectionKind.HANDOVER,
        winner=BrokerId(2),
        candidates=(),
        policy="preference-first@1",
        previous_master=ME,
        previous_epoch=MasterEpoch(1),
        master_epoch=MasterEpoch(2),
        previous_set=(ME, BrokerId(2)),
        sync_state_set=(BrokerId(2),),
        previous_set_epoch=SyncStateSetEpoch(1),
        sync_state_set_epoch=SyncStateSetEpoch(2),
    )
    return Elected(verdict=verdict, view=successor)


def test_a_master_that_is_asked_to_stop_asks_for_a_successor_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evidence that moved is gathered again."""
    monkeypatch.setattr(ControllerSession, "ordinal", property(lambda _session: SessionOrdinal(7)))

    async def story() -> None:
        asked: list[Value] = []
        states: list[BrokerState] = []

        async def ask(command: Value) -> AnyReply:
            if not isinstance(command, AnnounceStop):
                return Done()
            asked.append(command)
            states.append(replica.machine.published.state)
            assert not replica.put.is_ready_for(100), "sends wait in their sockets"
            if len(asked) == 1:
                return Refused(code=RefusalCode.EVIDENCE_MOVED, reason="a session was replaced", hint="retry")
            return _elected_other(5)

        async with running(tmp_path) as replica:
            replica.session.ask = ask  # type: ignore[method-assign]
            both = msgspec.structs.replace(
                view(1, master=replica, epoch=1), sync_state_set=(ME, BrokerId(2)), members=view_of_other(1).members
            )
            replica.session_opened(registered(both))
            await until(lambda: replica.gate.state.is_serving)
            replica.ask_to_stop()
            ending = await asyncio.wait_for(replica.ended, timeout=10)
            assert ending.is_clean
            (command, _) = asked
            assert isinstance(command, AnnounceStop)
            assert (command.session_ordinal, command.master_epoch) == (7, 1)
            assert set(states) == {BrokerState.MASTER}, "it left its reign before there was a successor"
            assert replica.gate.state.master_address == "127.0.0.1:2"
            assert replica.put.is_ready_for(100), "what waited is refused"

    asyncio.run(story())
