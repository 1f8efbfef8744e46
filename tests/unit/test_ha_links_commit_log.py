"""Both ends of a link over real commit logs: logs that begin in the middle of an epoch, segments of another size."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.broker.log.values import CutReason
from rollcall_ha.controller.contract.ids import FlushMode
from rollcall_ha.epoch.model import EpochEntry, LogOffset, MasterEpoch
from rollcall_ha.ha.errors import ErrorCode
from rollcall_ha.ha.ports import FileRegion
from rollcall_ha.ha.truncation import Cut, ExecutablePlan, FullResync
from tests.support.ha_pair import LinkPair
from tests.support.log_tools import SEGMENT_BYTES, STORE_HOST, append_all, draft, log_bytes, refuse_to_stop


class LogOnDisk(CommitLog):
    """A commit log that does what a broker's shells do with it."""

    def read_region(self, region: FileRegion) -> bytes:
        segment = next(each for each in self._files.segments if each.fd == region.fd)
        return bytes(segment.view[region.position : region.position + region.length])

    def execute(self, plan: ExecutablePlan) -> None:
        if isinstance(plan, FullResync):
            self.set_aside(plan.start_offset, plan.reason, is_whole=plan.is_whole, known_to=plan.known_to)
        elif isinstance(plan, Cut):
            self.cut(plan.point, CutReason.TRUNCATION)

    def record(self, new: EpochEntry) -> None:
        self.record_epoch(new)


def opened(root: Path, *, segment_bytes: int = SEGMENT_BYTES) -> LogOnDisk:
    return LogOnDisk.open(
        root,
        segment_bytes=segment_bytes,
        flush_mode=FlushMode.ASYNC,
        store_host=STORE_HOST,
        stop_process=refuse_to_stop,
        post=lambda call: call(),
    )


def enter(log: LogOnDisk, epoch: int, messages: int, body: bytes = b"x") -> None:
    log.extend_index(log.unindexed_bytes)
    log.record(EpochEntry(epoch=MasterEpoch(epoch), start_offset=log.max_offset))
    for _ in range(messages):
        append_all(log, draft(body * 3000))


def without_its_first_segment(log: LogOnDisk) -> LogOnDisk:
    """As after the deletion of old segments: the epochs' starts stay (R20)."""
    root, first = log._files.root, log._files.segments[0].path
    log.close(is_clean=False)
    first.unlink()
    return opened(root)


def close(*logs: LogOnDisk) -> None:
    for log in logs:
        log.close(is_clean=False)


@pytest.mark.slow
def test_an_empty_slave_never_followed_a_log_that_begins_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    """S29: the entry of its first byte starts below that byte; the log refused it, and the link came back for ever."""
    master = opened(tmp_path / "master")
    enter(master, 1, 2)
    enter(master, 2, 20)
    master = without_its_first_segment(master)
    slave = opened(tmp_path / "slave")

    link = LinkPair(master, slave, epoch=2).open().run()

    assert link.closes == []
    assert (slave.min_offset, slave.max_offset) == (SEGMENT_BYTES, master.max_offset)
    assert slave.history.entries == master.history.entries[-1:]
    assert log_bytes(slave) == log_bytes(master)
    slave.close(is_clean=False)
    slave = opened(tmp_path / "slave")
    assert slave.history.entries == master.history.entries[-1:]
    assert LinkPair(master, slave, epoch=2).open().run().is_up
    close(master, slave)


def test_a_log_that_was_cut_to_its_beginning_kept_an_epoch_that_its_next_master_never_had(tmp_path: Path) -> None:
    """No byte of it was left, and yet it stood in the way of the first entry of the next master."""
    slave = opened(tmp_path / "slave")
    enter(slave, 1, 20)
    slave = without_its_first_segment(slave)
    slave.cut(slave.min_offset, CutReason.TRUNCATION)
    master = opened(tmp_path / "master")
    enter(master, 0, 20, b"y")
    master = without_its_first_segment(master)

    link = LinkPair(master, slave, epoch=2, unclean=2).open().run()

    assert link.closes == []
    assert slave.history == master.history
    assert log_bytes(slave) == log_bytes(master)
    close(master, slave)


def test_segments_of_another_size_were_found_out_by_the_first_record_that_did_not_fit(tmp_path: Path) -> None:
    """The link talked of a broken record, and came back for ever; both sizes are named now, and only the link closes."""
    master, slave = opened(tmp_path / "master"), opened(tmp_path / "slave", segment_bytes=2 * SEGMENT_BYTES)
    enter(master, 1, 20)

    link = LinkPair(master, slave, epoch=1).open().run()

    (refused, heard) = link.closes
    assert refused.code is heard.code is ErrorCode.WRONG_SEGMENTS
    assert str(SEGMENT_BYTES) in refused.detail
    assert str(2 * SEGMENT_BYTES) in heard.detail
    assert slave.max_offset == LogOffset(0)
    close(master, slave)


def flip(log: LogOnDisk, offset: int) -> None:
    """One bit of a byte on the disk."""
    segment = next(each for each in log._files.segments if each.base <= offset < each.end)
    segment.view[offset - segment.base] ^= 1


def test_a_slave_copied_a_damaged_record_of_its_master(tmp_path: Path) -> None:
    """Sizes and magics were checked on the way, bodies not: the rotten bytes came onto every replica."""
    master, slave = opened(tmp_path / "master"), opened(tmp_path / "slave")
    enter(master, 1, 3)
    damaged_at = master.max_offset
    enter(master, 2, 3, body=b"y")
    flip(master, damaged_at + 1_000)

    link = LinkPair(master, slave, epoch=2).open().run()

    assert {each.code for each in link.closes} == {ErrorCode.RECORD_DAMAGED}
    assert f"the body of the record at {damaged_at} does not match its CRC" in link.closes[0].detail
    assert log_bytes(slave) == log_bytes(master)[:damaged_at]
    assert f"record at {damaged_at}" in master.find_damage(slave.max_offset, 1_000_000)
    assert master.find_damage(LogOffset(0), damaged_at) == ""
    close(master, slave)


def test_a_record_that_changed_on_the_way_is_taken_from_the_next_link(tmp_path: Path) -> None:
    """Its first half stayed in the log: each later link went on behind it, and failed as the first."""
    master, slave = opened(tmp_path / "master"), opened(tmp_path / "slave")
    enter(master, 1, 3)
    link = LinkPair(master, slave, epoch=1).open()
    while slave.max_offset < 500:
        link.step()
    assert slave.whole_offset == 0
    flip(slave, 300)

    assert {each.code for each in link.run().closes} == {ErrorCode.RECORD_DAMAGED}
    assert slave.max_offset == 0

    assert LinkPair(master, slave, epoch=1, generation=2).open().run().is_up
    assert log_bytes(slave) == log_bytes(master)
    assert master.find_damage(LogOffset(0), 1_000_000) == ""
    close(master, slave)
