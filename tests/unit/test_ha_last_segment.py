"""A blank learner that begins at its master's last segment: where it begins, and what it must never pass for."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from rollcall_ha.broker.config import broker_config
from rollcall_ha.broker.server import refuse_part_of_a_log
from rollcall_ha.controller.contract.ids import LogOffset
from rollcall_ha.epoch.model import NO_EPOCH
from rollcall_ha.ha.truncation import Cut, FullResync, Keep, LogExtent, TruncationPlan, plan_truncation
from rollcall_ha.node.config import ReplicationSection
from rollcall_ha.node.files import DirectoryError
from tests.support.ha_logs import history
from tests.support.ha_pair import LinkPair, target
from tests.support.log_tools import SEGMENT_BYTES, append_all, draft, log_bytes
from tests.unit.test_broker_config import GOOD, fleet
from tests.unit.test_ha_links_commit_log import close, enter, opened

SEGMENT = 1_000
MASTER = LogExtent(history=history((1, 0), (4, 2_400)), min_offset=LogOffset(0), max_offset=LogOffset(3_300))


def plan(own: LogExtent, *, segment: int = SEGMENT) -> TruncationPlan:
    return plan_truncation(
        own,
        LogOffset(0),
        MASTER,
        unclean_epoch=NO_EPOCH,
        is_record_boundary=lambda _offset: True,
        begins_at_last_segment_of_bytes=segment,
    )


def extent(low: int, high: int, *entries: tuple[int, int]) -> LogExtent:
    return LogExtent(history=history(*entries), min_offset=LogOffset(low), max_offset=LogOffset(high))


def test_a_blank_learner_begins_where_the_masters_last_segment_does() -> None:
    begin = plan(extent(0, 0))
    assert isinstance(begin, FullResync)
    assert (begin.start_offset, begin.set_aside_bytes) == (3_000, 0)
    assert begin.reason == "a blank learner begins at the master's last segment, 3000 of 3300"
    assert plan(extent(3_000, 3_000)) == Keep(point=LogOffset(3_000)), "asked again behind its cut"


def test_a_learner_with_bytes_goes_on_where_it_ends() -> None:
    """Blank is blank: 900 bytes of an hour ago are kept, and the rest is copied."""
    assert plan(extent(0, 900, (1, 0))) == Keep(point=LogOffset(900))
    assert plan(extent(3_000, 3_100, (4, 2_400))) == Keep(point=LogOffset(3_100))


def test_a_learner_that_began_late_is_cut_by_epochs_as_any_other() -> None:
    """Its history begins with the epoch that its first byte is of."""
    tail = plan(extent(3_000, 3_500, (4, 2_400), (5, 3_200)))
    assert isinstance(tail, Cut)
    assert (tail.point, tail.history) == (3_200, history((4, 2_400)))


def test_nobody_else_begins_there() -> None:
    assert plan(extent(0, 0), segment=0) == Keep(point=LogOffset(0))


LATE = replace(target(2), is_learner=True, begins_at_last_segment=True)


def test_a_learner_from_the_last_segment_on_holds_the_masters_bytes_at_the_masters_offsets(tmp_path: Path) -> None:
    """Also after a start, and when its link breaks and comes back."""
    master, learner = opened(tmp_path / "master"), opened(tmp_path / "learner")
    enter(master, 1, 20)
    enter(master, 2, 20)
    start = master.max_offset // SEGMENT_BYTES * SEGMENT_BYTES
    assert 0 < start < master.max_offset

    assert LinkPair(master, learner, epoch=2, follow=LATE).open().run().is_up
    assert (learner.min_offset, learner.max_offset) == (start, master.max_offset)
    assert learner.history.entries == master.history.entries[-1:]
    close(learner)
    learner = opened(tmp_path / "learner")
    assert learner.min_offset == start
    append_all(master, *[draft(b"z" * 3000)] * 10)
    assert LinkPair(master, learner, epoch=2, follow=LATE, generation=2).open().run().is_up
    assert (learner.min_offset, learner.max_offset) == (start, master.max_offset)
    assert (
        log_bytes(learner)
        == b"".join(bytes(one.view) for one in master._files.segments if one.base >= start)[: master.max_offset - start]
    )
    close(master, learner)


def test_a_member_copies_from_0_on_whatever_its_file_says(tmp_path: Path) -> None:
    master, slave = opened(tmp_path / "master"), opened(tmp_path / "slave")
    enter(master, 2, 40)
    assert LinkPair(master, slave, epoch=2, follow=replace(LATE, is_learner=False)).open().run().is_up
    assert (slave.min_offset, slave.max_offset) == (0, master.max_offset)
    close(master, slave)


@pytest.mark.parametrize(("is_learner", "is_set"), [(True, True), (True, False), (False, True)])
def test_the_setting_is_for_learners(*, is_learner: bool, is_set: bool) -> None:
    section = msgspec.structs.replace(GOOD, is_learner=is_learner)
    file = msgspec.structs.replace(
        fleet(section), replication=ReplicationSection(learners_begin_at_last_segment=is_set)
    )
    assert broker_config(file, "broker-a-1").begins_at_last_segment is (is_learner and is_set)


def test_a_part_of_a_log_is_not_taken_for_a_member_s(tmp_path: Path) -> None:
    """Elected, it would lack what was acknowledged before its first byte, and give queue offsets a second time (R19)."""
    learner = broker_config(fleet(msgspec.structs.replace(GOOD, is_learner=True)), "broker-a-1")
    member = broker_config(fleet(GOOD), "broker-a-1")
    log = opened(tmp_path)
    refuse_part_of_a_log(member, log)
    log.set_aside(LogOffset(SEGMENT_BYTES), "the master's last segment", is_whole=False)
    refuse_part_of_a_log(learner, log)
    with pytest.raises(DirectoryError) as refused:
        refuse_part_of_a_log(member, log)
    for part in (str(SEGMENT_BYTES), "brokers.broker-a-1", "wipe the directory", "is_learner = true"):
        assert part in str(refused.value)
    log.set_aside(LogOffset(SEGMENT_BYTES), "the master's first byte: older ones went by age")
    refuse_part_of_a_log(member, log)
    close(log)
