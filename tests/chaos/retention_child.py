"""
A broker that deletes until it is killed: ``python -m tests.chaos.retention_child ROOT [--steps]``.

It appends, tells, deletes, and now and then gives its log up for that of a master that has outlived it. With ``--steps``
it says each step before it does it, and waits for a line; without, it runs on. Its clock is told by its log.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from rollcall_ha.broker.folds import dispatcher
from rollcall_ha.broker.retention import shell
from rollcall_ha.epoch.model import EpochEntry, LogOffset, MasterEpoch
from tests.support.fold_tools import confirm_all
from tests.support.ha_replica import until
from tests.support.log_broker import LogBroker
from tests.support.log_tools import draft
from tests.support.old_broker import HOUR_MS, STORED_MS, Old

SEGMENT_BYTES = 64 * 1024
OUTLIVED_EVERY = 4
"""One turn of so many makes a log that its master has outlived."""


async def grow(old: Old, *, segments: int) -> None:
    """Confirmed and synced messages of some queues, one of which is never written to again."""
    log = old.broker.log
    end = log.max_offset + segments * SEGMENT_BYTES
    first = log.max_offset
    while log.max_offset < end:
        # 30 h for each segment.
        old.now_ms = STORED_MS + log.max_offset * 30 * HOUR_MS // SEGMENT_BYTES
        await until(lambda: log.is_room_ready(4_000))
        log.begin_run(stored_at_ms=old.now_ms)
        idle = b"Idle%d" % (first // SEGMENT_BYTES)
        log.append(
            draft(b"x" * 3_000, topic=idle if log.max_offset == first else b"Topic", queue_id=log.max_offset % 3)
        )
        log.end_run()
    confirm_all(log)
    log._sync()
    log._do_chores()
    await until(lambda: not old.broker.folds.catch_up())


async def turn(old: Old, number: int) -> None:
    """One deletion, and perhaps a log that is given up."""
    log = old.broker.log
    await grow(old, segments=6)
    begin = log.min_offset
    for _ in range(20):
        await old.look()
        if log.min_offset > begin:
            break
    assert log.min_offset > begin, old.retention.report({})
    if number % OUTLIVED_EVERY == OUTLIVED_EVERY - 1:
        folds, end = old.broker.folds, log.max_offset
        start = LogOffset((end // SEGMENT_BYTES + 3) * SEGMENT_BYTES)
        folds.rest(is_resting=True)
        folds.before_cut()
        log.set_aside(start, "outlived", known_to=end)
        folds.cut(log.max_offset, is_new=True)
        folds.rest(is_resting=False)
        enter(old)


def enter(old: Old) -> None:
    """A new reign, as behind each start."""
    log = old.broker.log
    epoch = MasterEpoch(log.history.last_epoch + 1 if log.history else log.max_offset // SEGMENT_BYTES + 1)
    old.broker.follow()
    log.extend_index(log.unindexed_bytes)
    log.record_epoch(EpochEntry(epoch=epoch, start_offset=log.max_offset))
    old.broker.lead(epoch)


async def run(root: Path, *, waits: bool) -> None:
    async with LogBroker(root, 1, segment_bytes=SEGMENT_BYTES) as broker:
        old = Old(broker)
        enter(old)

        def step(name: str) -> None:
            if waits:
                print("step", name, flush=True)
                sys.stdin.readline()

        broker.log._files.before_step = step
        number = 0
        while True:
            await turn(old, number)
            print("turn", number, broker.log.min_offset, flush=True)
            number += 1


if __name__ == "__main__":
    patch = pytest.MonkeyPatch()
    # Else the log is kept for the window of producers' numbers, 64 MiB.
    patch.setattr(shell, "window_start", lambda end: end)
    # Else a short log has no mark, and a start would build all anew.
    patch.setattr(dispatcher, "MARK_STEP_BYTES", SEGMENT_BYTES // 2)
    asyncio.run(run(Path(sys.argv[1]), waits="--steps" in sys.argv))
