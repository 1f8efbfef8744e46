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
from msgspec import UNSET

from rollcall_ha.broker.consuming.filters import Filter, make_filter
from rollcall_ha.broker.consuming.reading import QueueReader
from rollcall_ha.broker.log.told_queues import TOPIC
from rollcall_ha.broker.protocol.codes import ClientResult
from rollcall_ha.broker.retention import shell
from rollcall_ha.broker.status import ReplicaReporter
from rollcall_ha.controller.contract.ids import BrokerId
from rollcall_ha.controller.contract.session import BrokerState
from rollcall_ha.controller.contract.values import Positions
from rollcall_ha.epoch.history import EpochHistory
from rollcall_ha.epoch.model import NO_EPOCH, EpochEntry, LogOffset, MasterEpoch
from rollcall_ha.ha.copies import LeftCopies
from rollcall_ha.ha.master_link import MasterLinkState
from rollcall_ha.ha.service import HaServer
from tests.support.fold_tools import confirm_all
from tests.support.ha_replica import until
from tests.support.log_broker import LogBroker
from tests.support.log_tools import append_all, draft
from tests.support.old_broker import GIB, HOUR_MS, Old

SEGMENT_BYTES = 256 * 1024
LOG_NOW_MS = 1_700_000_000_000
"""``log_tools.open_log``."""


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
        # The room that these tests tell has the next segment in it: made between two looks, it took the place of what
        # was deleted, and a segment more went.
        broker.log.front._preallocator.prepare(broker.log.whole_offset)
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
        assert "it would begin at 0" in old.retention.report({})
        await old.look()
        assert log.min_offset == 0, "no record tells where queue 4 of Idle goes on"
        assert folds.queue(TOPIC, 0) is not None
        told = old.retention.report({})
        assert f"it would begin at {4 * SEGMENT_BYTES}," in told
        assert "the master writes queues' offsets again first, last told behind 0" in told
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
        assert "nothing is deleted: no controller has said" in old.retention.report({})
        old.settings.is_known = True
        old.settings.settings = msgspec.structs.replace(old.settings.settings, retention_hours=0)
        await old.look(3)
        assert old.broker.log.min_offset == 0
        assert "it would begin at 0, and at 0 if" in old.retention.report({})
        start = 4 * SEGMENT_BYTES
        assert f"it would begin at {start}, and at {start} if" in old.retention.report({"hours": 48})

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
        assert "held by broker 3" in old.retention.report({})
        assert value_of(old, "retention_held") == 1

        old.room = (4 * 1024 * 1024, 200 * 1024)
        await old.look()
        assert log.min_offset == 3 * SEGMENT_BYTES, "one segment brings the disk below 90 %"
        assert old.links.copies == []
        assert value_of(old, "retention_copies_passed_total") == 1

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


def test_a_slave_with_the_fuller_disk_was_never_told_what_it_may_delete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the master itself had deleted something it told nothing: the slave held all, until its disk was full."""

    async def body(old: Old) -> None:
        log, telling = old.broker.log, old.retention._telling
        assert not telling.is_due(0, 0)
        monkeypatch.setattr(type(log), "segment_bytes", SEGMENT_BYTES // 4)
        assert telling.is_due(0, 0), "16 segments of that size"
        assert not telling.is_due(log.whole_offset - SEGMENT_BYTES, 0)

    run(tmp_path, monkeypatch, body)


def test_a_new_reign_tells_again_what_the_election_may_have_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unclean one cut the only telling of a log without its front, and quiet queues began at 0 after a restart."""

    async def body(old: Old) -> None:
        log, folds = old.broker.log, old.broker.folds
        log.record_epoch(EpochEntry(epoch=MasterEpoch(2), start_offset=log.max_offset))
        await old.look()
        assert folds.told.since == log.history.last.start_offset  # type: ignore[union-attr]
        end = log.max_offset
        await old.look(3)
        assert log.max_offset == end, "once"

    run(tmp_path, monkeypatch, body)


def test_an_isolated_replica_deleted_the_only_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R26: it has confirmed bytes that its master lacks, and waits for an operator; three days later they were gone."""

    async def body(old: Old) -> None:
        await told(old)
        old.now_ms += 73 * HOUR_MS
        old.room = (100 * GIB, 5 * GIB)
        for old.role in (BrokerState.STOPPING, BrokerState.FENCED, BrokerState.ISOLATED):
            await old.look(3)
            assert old.broker.log.min_offset == 0
            assert f"nothing is deleted: this replica is {old.role}" in old.retention.report({})
        assert old.broker.put.full_disk, "a disk is full whatever the role is"
        old.role = BrokerState.SLAVE
        await old.look(2)
        assert old.broker.log.min_offset > 0

    run(tmp_path, monkeypatch, body)


def test_a_replica_that_was_isolated_while_its_disk_was_asked_deleted_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(old: Old) -> None:
        await told(old)
        old.now_ms += 73 * HOUR_MS

        def asked() -> tuple[int, int]:
            old.role = BrokerState.ISOLATED
            return old.room

        monkeypatch.setattr(old.retention, "_disk_room", asked)
        await old.look(2)
        assert (old.role, old.broker.log.min_offset) == (BrokerState.ISOLATED, 0)

    run(tmp_path, monkeypatch, body)


async def told(old: Old) -> None:
    """Its queues are told, as behind an earlier deletion."""
    old.retention._telling.begin()
    await old.look()
    assert old.broker.folds.told.since > 0


def test_a_deletion_that_failed_half_way_deleted_ten_more_segments_each_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files were unlinked, not closed, so the disk stayed full; links went on sending from them."""

    async def body(old: Old) -> None:
        log, saves = old.broker.log, [0]
        save = log._files.epochs.save

        def fails_once(history: EpochHistory) -> None:
            saves[0] += 1
            if saves[0] == 1:
                raise OSError(28, "No space left on device")
            save(history)

        await told(old)
        log._files.history = EpochHistory(
            [EpochEntry(epoch=MasterEpoch(n), start_offset=LogOffset((n - 1) * SEGMENT_BYTES)) for n in (1, 2, 3)]
        )
        monkeypatch.setattr(log._files.epochs, "save", fails_once)
        monkeypatch.setattr(old.retention._telling, "begin", lambda: None)
        held = log.reader.record(0, 60)
        old.room = (100 * SEGMENT_BYTES, 14 * SEGMENT_BYTES + 1)
        await old.look()
        assert log.min_offset == SEGMENT_BYTES
        assert old.links.let_go_of == [SEGMENT_BYTES]
        assert log.front.unclosed_bytes == SEGMENT_BYTES
        await old.look()
        assert held is not None
        held.release()
        await old.look()
        assert (log.min_offset, log.front._deleted, saves) == (SEGMENT_BYTES, [], [1])
        assert not old.failures

    run(tmp_path, monkeypatch, body)


def test_a_full_disk_on_which_the_folds_stood_still_held_the_whole_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They took nothing in for want of room, and nothing was deleted until they had: full for ever."""

    async def body(old: Old) -> None:
        log, folds = old.broker.log, old.broker.folds
        await told(old)

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(folds, "_take_run", full)
        append_all(log, draft(b"nobody reads it"))
        confirm_all(log)
        assert folds.catch_up() > 0
        assert folds.trouble
        old.room = (100 * SEGMENT_BYTES, 14 * SEGMENT_BYTES + 1)
        await old.retention._look()
        assert log.min_offset == SEGMENT_BYTES
        await old.retention._look()
        assert folds.trouble, "still"

    run(tmp_path, monkeypatch, body)


def test_a_file_of_a_queue_that_is_gone_ended_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(old: Old) -> None:
        await told(old)

        def gone() -> int:
            raise FileNotFoundError(2, "No such file or directory", "consumequeue/SCHEDULE_TOPIC_XXXX/3/0")

        monkeypatch.setattr(old.broker.folds, "delayed_from", gone)
        old.now_ms += 73 * HOUR_MS
        await old.look(2)
        assert old.broker.log.min_offset == 0, "nobody knows what waits there"
        assert not old.failures

    run(tmp_path, monkeypatch, body)


def test_cuts_that_were_set_aside_stayed_until_the_next_start_and_messages_went_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(old: Old) -> None:
        folder, day_ms = tmp_path / "quarantine", 24 * HOUR_MS
        for began_at_ms in (1, LOG_NOW_MS - 6 * day_ms, LOG_NOW_MS):
            (folder / f"{began_at_ms}-0").mkdir(parents=True)
            (folder / f"{began_at_ms}-0" / "0").write_bytes(b"x")
        await told(old)
        assert len(list(folder.iterdir())) == 2, "one was too old"
        rooms = [(100 * GIB, 10 * GIB), (100 * GIB, 10 * GIB), (100 * GIB, 20 * GIB)]
        monkeypatch.setattr(old.retention, "_disk_room", lambda: rooms.pop(0) if len(rooms) > 1 else rooms[0])
        await old.look()
        assert not list(folder.iterdir())
        assert old.broker.log.min_offset == 0

    run(tmp_path, monkeypatch, body)


def test_what_would_go_is_told_of_the_whole_log_while_nothing_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answered for ten segments, and for none at all while everything was off."""

    async def body(old: Old) -> None:
        old.settings.settings = msgspec.structs.replace(
            old.settings.settings, retention_hours=0, retention_forced_percent=0, sends_refused_percent=0,
            retention_segments_max=1,
        )  # fmt: skip
        await told(old)
        append_all(old.broker.log, draft(b"now"))
        old.now_ms += 73 * HOUR_MS
        old.broker.log.begin_run(stored_at_ms=old.now_ms)
        old.broker.log.append(draft(b"now"))
        old.broker.log.end_run()
        confirm_all(old.broker.log)
        await old.look(2)
        assert old.broker.log.min_offset == 0
        said = old.retention.report({"hours": 24})
        assert "nothing is deleted" not in said
        assert f"it would begin at {4 * SEGMENT_BYTES}," in said
        assert "nothing is deleted: retention_hours and retention_forced_percent are 0" in old.retention.report({})
        assert "the disk is 50.0 % full, from 40 % on" in old.retention.report({"forced": 40})
        assert "sends are refused from 45 % on" in old.retention.report({"refused": 45})

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
    server: Any = SimpleNamespace(
        connections=SimpleNamespace(snapshot=lambda: links), _left=LeftCopies(), _clock_ms=lambda: 0
    )
    copies: Any = HaServer.copies
    assert copies.fget(server) == [(2, 900), (3, 400), (4, 0)]
    HaServer.let_go(server, LogOffset(500))
    assert ended == [3], "one that cuts its log has nothing on its way, and says where it begins"


def test_a_copy_whose_link_broke_for_a_second_lost_what_it_lacked() -> None:
    left = LeftCopies()
    left.note(BrokerId(3), LogOffset(400), 0)
    left.note(BrokerId(4), LogOffset(700), 0)
    here = [(BrokerId(2), LogOffset(900))]
    assert left.beside(here, 59_999) == [*here, (3, 400), (4, 700)]
    back = [(BrokerId(4), LogOffset(750))]
    assert left.beside(back, 59_999) == [*back, (3, 400)]
    left.note(BrokerId(4), LogOffset(800), 1_000)
    left.let_go(LogOffset(500))
    assert left.beside([], 60_999) == [(4, 800)]
    assert left.beside([], 61_000) == []


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


@pytest.mark.parametrize(
    ("confirm", "begins", "of"),
    [(900, 0, (1,)), (901, 0, ()), (1_400, 0, ()), (0, 0, UNSET), (5, 10, UNSET), (600, 0, (1,)), (300, 0, (0, 1))],
)
def test_a_confirm_is_told_with_the_epochs_of_the_log_from_its_last_byte_on(
    confirm: int, begins: int, of: object
) -> None:
    """Epoch 4 began at 900: of a member that ends there in epoch 1 nothing is missing (R7)."""
    entries = ((1, begins), (4, 900)) if confirm != 300 else ((0, 0), (1, 500), (4, 900))
    history = EpochHistory(
        EpochEntry(epoch=MasterEpoch(epoch), start_offset=LogOffset(start)) for epoch, start in entries
    )
    log = SimpleNamespace(history=history, min_offset=0, max_offset=1_000, whole_offset=1_000)
    log.confirm_offset, log.released_offset = confirm, 0
    positions: Any = ReplicaReporter.positions
    assert positions.fget(SimpleNamespace(_log=log)).confirm_epochs == of


def test_a_stop_in_the_turn_in_which_a_segment_was_made_was_never_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``asyncio.wait_for`` takes a cancellation for the end of what it waits for: the broker waited for its end for ever."""

    async def body(old: Old) -> None:
        old.retention.start()
        await until(lambda: bool(old.retention._woken._waiters))
        old.broker.log._tell_room()
        async with asyncio.timeout(5):
            await old.retention.close()

    run(tmp_path, monkeypatch, body)
