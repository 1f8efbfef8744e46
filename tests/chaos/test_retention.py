"""
R31 at its edge: a disk that has room for three segments under ten times its size of messages, and kill -9 everywhere.

The disk is a real one, of limited size (tmpfs); the killed process is a real one. What is looked at afterwards is read by
``docs/wire.md`` and by a fresh build of the folds.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollcall_ha.broker.folds.dispatcher import Dispatcher
from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.broker.log.record import Draft
from rollcall_ha.broker.parts import disk_room
from rollcall_ha.broker.protocol.delays import DELIVERED, SCHEDULE_TOPIC
from rollcall_ha.broker.retention import shell
from rollcall_ha.controller.contract.ids import BrokerId
from rollcall_ha.epoch.model import EpochEntry, LogOffset, MasterEpoch
from tests.chaos import retention_child
from tests.support.fold_tools import confirm_all, expected, open_folds, take_all, units_of
from tests.support.ha_replica import until
from tests.support.log_broker import LogBroker
from tests.support.log_tools import crash, draft, log_bytes, open_log
from tests.support.old_broker import HOUR_MS, Old

pytestmark = [pytest.mark.slow, pytest.mark.prove]

MIB = 1024 * 1024
SEGMENT_BYTES = 4 * MIB
DISK_BYTES = 3 * SEGMENT_BYTES + SEGMENT_BYTES - MIB // 2
"""Three segments, and what lies beside them: a fourth one does not fit."""
TRAFFIC_BYTES = 10 * DISK_BYTES
MESSAGE_BYTES = 30_000
KILLS_AT_RANDOM = 30


@pytest.fixture(scope="module")
def counts() -> Iterator[Counter[str]]:
    """What the ledger is told, at the end of the module."""
    found: Counter[str] = Counter()
    yield found
    print(f"\nRESULT {json.dumps({**found, 'fails': found['fails']})}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    if os.getuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


class Story:
    """A master on a small disk, and a slave of it with a large one; every deletion of the master is judged."""

    def __init__(self, old: Old, slave: CommitLog, counts: Counter[str]) -> None:
        self.old, self.log, self.folds = old, old.broker.log, old.broker.folds
        self.slave = slave
        self.counts = counts
        self.written_bytes = 0
        self.may_stop = False
        self.waits: list[int] = []
        """Places of delayed messages that are not delivered yet."""
        front = self.log.front
        delete = front.delete

        def judged(start: LogOffset) -> LogOffset:
            decision, facts = old.retention._decision, old.retention._facts
            assert facts is not None
            self._must(start <= self.log.confirm_offset, "not confirmed")
            self._must(start <= self.folds.told.since, "no telling of behind it")
            self._must(start < self.log._files.segments[-1].end, "the last segment")
            self._must(all(place >= start for place in self.waits), "a delayed message waits")
            behind = [at for _, at in old.links.copies if at < start]
            is_full = facts.used_percent >= 90 or facts.next_bytes > facts.free_bytes
            self._must(not behind or is_full, "a copy lacks it")
            self._must(len(behind) == len(decision.passed), "a copy is passed, and nobody says so")
            before = self.log.min_offset
            found = delete(start)
            counts["segments_deleted"] += (self.log.min_offset - before) // SEGMENT_BYTES
            counts["copies_passed"] += len(behind)
            return found

        front.delete = judged  # type: ignore[method-assign]

    def _must(self, holds: bool, what: str) -> None:
        self.counts["fails"] += not holds
        assert holds, what

    async def write(self, amount_bytes: int, *, follows: bool) -> None:
        """So much traffic, at 3 minutes for a MiB; ``follows``: the slave copies all of it at once."""
        end = self.written_bytes + amount_bytes
        while self.written_bytes < end:
            if not await self._send(draft(b"x" * MESSAGE_BYTES, queue_id=self.written_bytes % 4)):
                return
            if self.written_bytes % (20 * MESSAGE_BYTES) == 0:
                self.old.now_ms += 3 * 60_000 * 20 * MESSAGE_BYTES // MIB
                if follows:
                    self.copy()
                await self.looks()
        if follows:
            self.copy()

    async def _send(self, message: Draft) -> bool:
        """Whether it was taken; refused for the disk only where something that is needed holds the log."""
        log = self.log
        await until(lambda: log.is_room_ready(MESSAGE_BYTES + 1_000))
        refusal = self.old.broker.put.full_disk
        if not refusal:
            log.begin_run(stored_at_ms=self.old.now_ms)
            try:
                log.append(message)
            except OSError as error:
                refusal = str(error)
            log.end_run()
        if refusal:
            held_by = [need.who for need in self.old.retention._decision.held_by]
            self._must(self.may_stop and held_by == ["delayed messages"], f"writes stop: {refusal}, held by {held_by}")
            self.counts["sends_refused"] += 1
            return False
        self.written_bytes += MESSAGE_BYTES
        self.counts["messages"] += 1
        confirm_all(log)
        return True

    async def looks(self) -> None:
        """As the loop of retention, which looks at once when a segment was made, or could not be."""
        self.log._sync()
        await until(lambda: not self.folds.catch_up())
        for _ in range(6):
            await self.old.look()
            self.log._do_chores()
            self.counts["looks"] += 1
        self._must(not self.old.failures, f"{self.old.failures}")

    def copy(self) -> None:
        """The slave has all that the master has."""
        slave, master = self.slave, self.log
        if slave.max_offset < master.min_offset:
            self.counts["copies_begun_anew"] += 1
            slave.set_aside(master.min_offset, "outlived", known_to=slave.max_offset)
            self._must(not (slave._files.root / "quarantine").exists(), "what the master had is set aside")
        while slave.max_offset < master.max_offset:
            covering = master.history.find_by_offset(slave.max_offset)
            if covering is not None and slave.history.last != covering:
                slave.record_epoch(covering)
            region = master.region(slave.max_offset, MIB)
            assert region is not None
            view = slave.receive_view(region.length)
            taken = len(view)
            view[:] = os.pread(region.fd, taken, region.position)
            view.release()
            slave.commit_received(taken)
        slave.extend_index(slave.unindexed_bytes)
        confirm_all(slave)
        self.old.links.copies = [(BrokerId(3), slave.max_offset)]

    def compare(self) -> None:
        """Both logs from the later beginning on, their epochs, and what each knows of queues."""
        slave, master = self.slave, self.log
        start = max(slave.min_offset, master.min_offset)
        ours, theirs = (log_bytes(log)[start - log.min_offset :] for log in (slave, master))
        self._must(ours == theirs, "the logs differ")
        self._must(slave.history.truncated_prefix(start) == master.history.truncated_prefix(start), "the epochs differ")
        following = [{row[:2]: row[3] for row in log.queues.rows()} for log in (slave, master)]
        self._must(following[0] == following[1], "the slave does not know where queues go on")
        self._must(following[0][b"Idle", 4] == 1, "a queue without messages has lost its number")
        self.counts["comparisons"] += 1


def test_a_disk_of_three_segments_under_ten_times_its_size(
    tmp_path: Path, small_disk: Path, counts: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "window_start", lambda end: end)

    async def whole() -> None:
        slave = open_log(tmp_path / "slave", segment_bytes=SEGMENT_BYTES)
        async with LogBroker(small_disk / "master", 1, segment_bytes=SEGMENT_BYTES) as broker:
            broker.log.record_epoch(EpochEntry(epoch=MasterEpoch(1), start_offset=LogOffset(0)))
            broker.lead(1)
            story = Story(Old(broker, lambda: disk_room(small_disk)), slave, counts)
            await story._send(draft(b"once", topic=b"Idle", queue_id=4))
            await tell(story)

        crash(slave)

    async def tell(story: Story) -> None:
        part = TRAFFIC_BYTES // 5
        await story.write(part, follows=True)
        story.compare()

        # The slave is hours behind, on a link that copies too slowly; then it is back.
        await story.write(part, follows=False)
        story._must(counts["copies_passed"] == 1, "a copy held a full disk")
        story.copy()
        await story.write(part, follows=True)
        story.compare()

        # A delayed message holds the log: sends are refused until it is delivered, and taken again without a restart.
        story.waits = [story.log.max_offset]
        await story._send(draft(b"later", topic=SCHEDULE_TOPIC, queue_id=17))
        story.may_stop = True
        await story.write(part, follows=True)
        story._must(counts["sends_refused"] > 0, "the message that waits held nothing")
        story.may_stop, story.waits = False, []
        await story._send(draft(b"later", properties=DELIVERED + b"18:0\x02"))
        await story.looks()
        await story.looks()
        await story.write(TRAFFIC_BYTES - story.written_bytes, follows=True)
        story.compare()
        counts["traffic_bytes"] = story.written_bytes
        counts["disk_bytes"] = DISK_BYTES

        # Nobody writes for four days.
        story.old.now_ms += 96 * HOUR_MS
        await story.looks()
        story.copy()
        story._must(story.log.min_offset == story.log._files.segments[-1].base, "old messages stay")
        story.compare()
        story._must(units_of(story.folds) == expected_of(story.log, story.folds), "the folds differ from the log")

    asyncio.run(whole())


def expected_of(log: CommitLog, folds: Dispatcher) -> dict[tuple[bytes, int], list[tuple[int, int]]]:
    """By the records alone; queues without one have no unit."""
    idle: dict[tuple[bytes, int], list[tuple[int, int]]] = {key: [] for key, _ in folds._queues}
    return {**idle, **expected(log._files.root, log.whole_offset)}


# --- kill -9 ---------------------------------------------------------------------------------------------------------


def begun(root: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", retention_child.__name__, str(root), *more]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def killed(child: subprocess.Popen[str]) -> None:
    child.send_signal(signal.SIGKILL)
    child.wait()
    for pipe in (child.stdin, child.stdout):
        assert pipe is not None
        pipe.close()
    assert child.returncode == -signal.SIGKILL, "it had ended by itself"


def start_again(root: Path, fresh: Path, counts: Counter[str]) -> None:
    """It starts, has lost nothing, and its folds are those of a build from nothing, byte for byte."""
    log = open_log(root, segment_bytes=retention_child.SEGMENT_BYTES)
    assert (log.recovery.lost, log.recovery.damaged, log.front.is_whole) == ("", "", True)
    names = sorted(int(path.name) for path in (root / "commitlog").iterdir() if path.name.isdecimal())
    assert names[:1] in ([log.min_offset], [])
    counts["starts_by_a_mark"] += (root / "folds-mark").exists()
    folds = open_folds(root, log)
    # As the next reign does: a mark may be of records whose confirm was not on disk yet.
    confirm_all(log)
    take_all(folds)
    shown = shown_by(log, folds)
    crash(log)
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(root, fresh)
    for name in ("consumequeue", "index"):
        shutil.rmtree(fresh / name, ignore_errors=True)
    for name in ("folds-mark", "folds"):
        (fresh / name).unlink(missing_ok=True)
    log = open_log(fresh, segment_bytes=retention_child.SEGMENT_BYTES)
    folds = open_folds(fresh, log)
    confirm_all(log)
    take_all(folds)
    anew = shown_by(log, folds)
    crash(log)
    assert shown == anew
    counts["units_compared"] += sum(len(units) // 20 for units, *_ in shown[0].values())
    counts["starts"] += 1


def shown_by(log: CommitLog, folds: Dispatcher) -> tuple[dict[tuple[bytes, int], tuple[bytes, int, int]], object]:
    """Of each queue its units as they lie in files, its first and its next offset; and where queues go on."""
    queues = {}
    for key, queue in folds._queues:
        units, at = b"", queue.min_offset
        while at < queue.max_offset:
            units += queue.units(at, 1_000_000)
            at = queue.min_offset + len(units) // 20
        queues[key] = units, queue.min_offset, queue.max_offset
    following = {row[:2]: row[3] for row in log.queues.rows()}
    return queues, (following, folds.dispatched_offset, folds.told.since, folds.knows_all)


def test_kill_9_at_every_step_of_a_deletion(tmp_path: Path, counts: Counter[str]) -> None:
    """Before the first step, before the second one, and so on, of a deletion and of a log that is given up."""
    number, steps = 0, Counter[str]()
    while True:
        root = tmp_path / f"r{number}"
        child, left, turns = begun(root, "--steps"), number, 0
        assert child.stdin is not None
        assert child.stdout is not None
        for line in child.stdout:
            word, name, *_ = line.split()
            turns += word == "turn"
            if turns == retention_child.OUTLIVED_EVERY or (word == "step" and left == 0):
                break
            if word == "step":
                left -= 1
                child.stdin.write("go\n")
                child.stdin.flush()
        else:
            raise AssertionError(f"the child ended: {child.wait()}")
        killed(child)
        start_again(root, tmp_path / "fresh", counts)
        shutil.rmtree(root)
        if turns == retention_child.OUTLIVED_EVERY:
            break
        steps[name] += 1
        counts["kills_at_steps"] += 1
        number += 1
    assert steps.keys() >= {
        "delete-state",
        "delete-segment",
        "delete-epochs",
        "mark",
        "drop",
        "begin",
        "state",
        "clear",
    }


def test_kill_9_at_any_moment(tmp_path: Path, counts: Counter[str], request: pytest.FixtureRequest) -> None:
    """One directory through all its lives."""
    draw = random.Random(request.config.getoption("randomly_seed"))
    root, turns = tmp_path / "r", 0
    for _ in range(KILLS_AT_RANDOM):
        child = begun(root)
        assert child.stdout is not None
        turns += bool(child.stdout.readline())
        time.sleep(draw.uniform(0, 0.5))  # the moment is what is drawn
        killed(child)
        start_again(root, tmp_path / "fresh", counts)
        counts["kills_at_random"] += 1
    assert turns == KILLS_AT_RANDOM, "each life has deleted something"
