"""A broker whose log grows old, or whose disk fills up: what is deleted, told before, refused, and said of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from rollcall_ha.broker.consuming.filters import Filter, make_filter
from rollcall_ha.broker.consuming.reading import QueueReader
from rollcall_ha.broker.live_settings import LiveSettings
from rollcall_ha.broker.log.told_queues import TOPIC
from rollcall_ha.broker.protocol.codes import ClientResult
from rollcall_ha.broker.retention import shell
from rollcall_ha.broker.retention.shell import Retention
from rollcall_ha.broker.status import ReplicaReporter
from rollcall_ha.controller.contract.ids import BrokerId
from rollcall_ha.controller.contract.timing import PRESETS, Preset
from rollcall_ha.controller.contract.values import Positions
from rollcall_ha.epoch.history import EpochHistory
from rollcall_ha.epoch.model import NO_EPOCH, EpochEntry, LogOffset, MasterEpoch
from rollcall_ha.ha.master_link import MasterLinkState
from rollcall_ha.ha.service import HaServer
from tests.support.fold_tools import confirm_all
from tests.support.ha_replica import until
from tests.support.log_broker import LogBroker
from tests.support.log_tools import append_all, draft

SEGMENT_BYTES = 256 * 1024
STORED_MS = 1_700_000_000_001
HOUR_MS = 3_600_000
GIB = 1024**3


class OneCopy:
    """The links of a master."""

    def __init__(self) -> None:
        self.copies: list[tuple[BrokerId, LogOffset]] = []
        self.let_go_of: list[int] = []

    def let_go(self, start: LogOffset) -> None:
        self.let_go_of.append(start)
        self.copies = [(broker, at) for broker, at in self.copies if at >= start]


class Old:
    """A broker that leads, with a log of five segments; the test moves its clock and fills its disk."""

    def __init__(self, broker: LogBroker) -> None:
        self.broker = broker
        self.links = OneCopy()
        self.room = (100 * GIB, 50 * GIB)
        self.now_ms = STORED_MS
        self.failures: list[BaseException] = []
        self.settings = LiveSettings(PRESETS[Preset.NORMAL], lambda *_: None)
        self.settings.is_known = True
        self.settings.settings = msgspec.structs.replace(
            self.settings.settings, retention_hours=72, retention_forced_percent=85, sends_refused_percent=90
        )
        self.retention = Retention(
            log=broker.log,
            folds=broker.folds,
            put=broker.put,
            room=broker.room,
            copies=self.links,
            settings=self.settings,
            disk=broker._marks,
            disk_room=lambda: self.room,
            now_ms=lambda: self.now_ms,
            failed=self.failures.append,
        )

    async def look(self, times: int = 1) -> None:
        for _ in range(times):
            await self.retention._look()
            for _ in range(5):
                await asyncio.sleep(0)
            self.broker.log._sync()
            await until(lambda: not self.broker.folds.catch_up())


@asynccontextmanager
async def old_broker(root: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Old]:
    # 64 MiB, in which producers' repeats are found.
    monkeypatch.setattr(shell, "window_start", lambda end: end)
    async with LogBroker(root, 1) as broker:
        broker.lead(1)
        append_all(broker.log, draft(b"once", topic=b"Idle", queue_id=4))
        while len(broker.log._files.segments) < 5:
            append_all(broker.log, draft(b"x" * 30_000))
        confirm_all(broker.log)
        broker.log._sync()
        await until(lambda: not broker.folds.catch_up())
        old = Old(broker)
        yield old
        await old.retention.close()


def run(root: Path, monkeypatch: pytest.MonkeyPatch, body: Callable[[Old], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with old_broker(root, monkeypatch) as old:
            await body(old)

    asyncio.run(whole())


def all_of_it() -> Filter:
    found = make_filter("TAG", "*")
    assert isinstance(found, Filter)
    return found


def value_of(old: Old, name: str) -> float:
    return {known: value for known, _, value in old.retention.values}[name]


def test_a_log_of_four_days_loses_its_front_when_its_queues_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(old: Old) -> None:
        log, folds = old.broker.log, old.broker.folds
        await old.look()
        assert log.min_offset == 0, "nothing is old"

        old.now_ms += 73 * HOUR_MS
        assert "it would begin at 0" in old.retention.report(None)
        await old.look()
        assert log.min_offset == 0, "no record tells where queue 4 of Idle goes on"
        assert folds.queue(TOPIC, 0) is not None
        assert "held by queues' offsets" in old.retention.report(None)
        await old.look()

        assert log.min_offset == 4 * SEGMENT_BYTES, "all but the last segment"
        assert old.links.let_go_of == [4 * SEGMENT_BYTES]
        assert not log.front._deleted
        assert value_of(old, "retention_freed_bytes_total") == (4 * SEGMENT_BYTES)
        idle, queue = folds.queue(b"Idle", 4), folds.queue(b"TopicA", 0)
        assert idle is not None
        assert (idle.min_offset, idle.max_offset) == (1, 1), "it is empty, and goes on where it was"
        assert queue is not None
        assert 0 < queue.min_offset < queue.max_offset
        every = all_of_it()
        found = QueueReader(queue, folds, (b"TopicA", 0)).look(0, every, messages=1, near_bytes=0)
        assert (found.code, found.next_offset, found.min_offset) == (
            ClientResult.PULL_OFFSET_MOVED, queue.min_offset, queue.min_offset,
        )  # fmt: skip
        at_min = QueueReader(queue, folds, (b"TopicA", 0)).look(queue.min_offset, every, messages=1, near_bytes=0)
        assert at_min.code == 0
        for one in at_min.records:
            one.release()
        assert not old.failures

    run(tmp_path, monkeypatch, body)


def test_nothing_is_deleted_before_a_controller_has_said_what_is_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator keeps all; a broker that starts while no controller is up went by the three days of its file."""

    async def body(old: Old) -> None:
        old.settings.is_known = False
        old.now_ms += 73 * HOUR_MS
        await old.look(3)
        assert old.broker.log.min_offset == 0
        assert "nothing was looked at yet" in old.retention.report(None)
        old.settings.is_known = True
        old.settings.settings = msgspec.structs.replace(old.settings.settings, retention_hours=0)
        await old.look(3)
        assert old.broker.log.min_offset == 0
        assert "it would begin at 0, and at 0 if" in old.retention.report(None)
        assert f"it would begin at 0, and at {4 * SEGMENT_BYTES} if" in old.retention.report(48)

    run(tmp_path, monkeypatch, body)


def test_a_copy_that_runs_keeps_what_it_lacks_until_the_disk_is_nearly_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(old: Old) -> None:
        log = old.broker.log
        old.links.copies = [(BrokerId(3), LogOffset(2 * SEGMENT_BYTES + 9))]
        old.now_ms += 73 * HOUR_MS
        await old.look(3)
        assert log.min_offset == 2 * SEGMENT_BYTES
        assert "held by broker 3" in old.retention.report(None)
        assert value_of(old, "retention_held") == 1

        old.room = (4 * 1024 * 1024, 200 * 1024)
        await old.look()
        assert log.min_offset == 3 * SEGMENT_BYTES, "one segment brings the disk below 90 %"
        assert old.links.copies == []

    run(tmp_path, monkeypatch, body)


def test_a_full_disk_refuses_sends_not_reads_and_takes_them_again_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(old: Old) -> None:
        broker = old.broker
        old.room = (1024 * GIB, 50 * GIB)
        await old.look(2)
        assert broker.log.min_offset > 0, "what is confirmed gives way"
        assert "95.1 % full" in broker.put.full_disk
        outcomes: list[str] = []
        broker.room.appender.append(b"ROLLCALL_SYS_X", 0, b"own", b"", outcomes.append)
        await asyncio.sleep(0.01)
        assert outcomes == [""], "what helps to free the disk is taken"
        queue = broker.folds.queue(b"TopicA", 0)
        assert queue is not None
        found = QueueReader(queue, broker.folds, (b"TopicA", 0)).look(
            queue.min_offset, all_of_it(), messages=1, near_bytes=0
        )
        assert found.code == 0
        for one in found.records:
            one.release()

        old.room = (1024 * GIB, 140 * GIB)
        await old.look()
        assert broker.put.full_disk, "86 %: not yet"
        old.room = (1024 * GIB, 200 * GIB)
        await old.look()
        assert broker.put.full_disk == ""

    run(tmp_path, monkeypatch, body)


def test_groups_that_were_told_in_deleted_records_are_told_again_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their offsets were gone with the segment."""

    async def body(old: Old) -> None:
        kept, asked = [0], []
        consumers = old.broker.room.consumers
        monkeypatch.setattr(consumers, "kept_from", lambda: kept[0])
        monkeypatch.setattr(consumers, "tell_again", lambda: asked.append(True))
        old.now_ms += 73 * HOUR_MS
        await old.look(3)
        assert old.broker.log.min_offset == 0
        assert asked
        kept[0] = old.broker.log.max_offset
        await old.look()
        assert old.broker.log.min_offset > 0

    run(tmp_path, monkeypatch, body)


def test_a_slave_deletes_what_its_master_has_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(old: Old) -> None:
        old.broker.follow()
        old.now_ms += 73 * HOUR_MS
        await old.look(3)
        assert old.broker.log.min_offset == 0, "it may not write the record itself"
        old.broker.lead(2)
        await old.look()
        old.broker.follow()
        await old.look()
        assert old.broker.log.min_offset == 4 * SEGMENT_BYTES

    run(tmp_path, monkeypatch, body)


def test_a_disk_that_fails_ends_the_process_and_a_full_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(old: Old) -> None:

        def refuses(number: int) -> None:
            def failing() -> tuple[int, int]:
                raise OSError(number, "the disk")

            monkeypatch.setattr(old.retention, "_disk_room", failing)

        refuses(28)
        assert not await old.retention._look()
        refuses(5)
        old.retention.start()
        await until(lambda: bool(old.failures))
        assert isinstance(old.failures[0], OSError)

    run(tmp_path, monkeypatch, body)


def test_links_that_send_what_is_deleted_end_and_others_go_on() -> None:
    """The number of a closed file may be another's: its bytes would go out as those of the log."""
    ended: list[int] = []

    def connection(broker: int, state: MasterLinkState, acked: int) -> Any:
        link = SimpleNamespace(
            peer=SimpleNamespace(broker_id=broker), state=state, acked=acked, end=lambda *_: ended.append(broker)
        )
        return SimpleNamespace(link=link, execute=lambda _actions: None)

    links = [
        connection(2, MasterLinkState.TRANSFER, 900),
        connection(3, MasterLinkState.TRANSFER, 400),
        connection(4, MasterLinkState.CUTTING, 0),
        connection(5, MasterLinkState.PARKED, 0),
    ]
    server: Any = SimpleNamespace(connections=SimpleNamespace(snapshot=lambda: links))
    copies: Any = HaServer.copies
    assert copies.fget(server) == [(2, 900), (3, 400), (4, 0)]
    HaServer.let_go(server, LogOffset(500))
    assert ended == [3], "one that cuts its log has nothing on its way, and says where it begins"


def test_a_log_that_is_to_begin_late_has_no_end_yet() -> None:
    """Its copy had just begun when it was killed: the controllers refused records of no epoch up to 32768, for ever."""
    log = SimpleNamespace(history=EpochHistory(), min_offset=32_768, max_offset=32_768, whole_offset=32_768)
    log.confirm_offset = log.released_offset = 8_128
    reporter: Any = SimpleNamespace(_log=log)
    positions: Any = ReplicaReporter.positions
    assert positions.fget(reporter) == Positions(
        last_epoch=NO_EPOCH, max_offset=LogOffset(0), confirm_offset=LogOffset(0), released=LogOffset(8_128)
    )
    log.history = EpochHistory([EpochEntry(epoch=MasterEpoch(1), start_offset=LogOffset(0))])
    assert positions.fget(reporter).max_offset == 32_768
