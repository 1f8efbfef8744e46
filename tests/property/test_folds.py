"""Whatever a log goes through, its folds hold what a fresh build of them holds."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcall_ha.broker.log.values import CutReason
from rollcall_ha.broker.protocol.delays import SCHEDULE_TOPIC, delivered_mark
from rollcall_ha.epoch.model import LogOffset
from tests.support.fold_tools import (
    confirm_all,
    delivered,
    expected,
    mark,
    open_folds,
    take_all,
    trim,
    units_of,
    waiting_by,
    waiting_in,
)
from tests.support.log_tools import append_all, crash, draft, open_log, read_by_the_document, settle, tell_queues

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 300), st.integers(1, 4)),
        st.tuples(st.just("confirm"), st.just(0), st.just(0)),
        st.tuples(st.just("mark"), st.just(0), st.just(0)),
        st.tuples(st.just("kill"), st.just(0), st.just(0)),
        st.tuples(st.just("stop"), st.just(0), st.just(0)),
        st.tuples(st.just("cut"), st.integers(0, 100), st.just(0)),
    ),
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, report_multiple_bugs=False)
@given(STEPS)
def test_folds_equal_a_fresh_build_over_marks_kills_and_cuts(steps: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        log = open_log(root)
        folds = open_folds(root, log)
        for step, count, queues in steps:
            if step == "append":
                following = delivered(root, log.max_offset)
                for n in range(count):
                    level, more = n % (2 * queues), draft(b"x" * (n * 7 % 400), queue_id=n % queues)
                    if level < queues:
                        more.properties = b"ROLLCALL_DELIVERED\x01%d:%d\x02" % (level + 1, following[level])
                        following[level] += 1
                    append_all(log, more)
            elif step == "confirm":
                confirm_all(log)
            elif step == "mark":
                mark(folds)
            elif step in ("kill", "stop"):
                if step == "stop":
                    folds.close()
                log.close(is_clean=step == "stop")
                log = open_log(root)
                folds = open_folds(root, log)
            else:
                starts = [record.offset for record in read_by_the_document(root / "commitlog")]
                if starts:
                    folds.rest(is_resting=True)
                    folds.before_cut()
                    log.cut(LogOffset(starts[len(starts) * count // 101]), CutReason.TRUNCATION)
                    folds.cut(log.max_offset)
                    folds.rest(is_resting=False)
            take_all(folds)
            assert units_of(folds) == expected(root, folds.dispatched_offset)
            assert folds.delivered.following == delivered(root, folds.dispatched_offset)
        crash(log)


LIVES = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 120), st.integers(1, 4)),
        st.tuples(st.just("delete"), st.integers(0, 100), st.booleans()),
        st.tuples(st.sampled_from(["mark", "kill", "stop", "cut"]), st.integers(0, 100), st.just(0)),
    ),
    max_size=14,
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, report_multiple_bugs=False)
@given(LIVES)
def test_folds_follow_a_log_that_loses_its_front_and_no_queue_its_number(lives: list[tuple[str, int, int]]) -> None:
    """Killed behind any of its steps; queue 9 is written to once, and forgotten by the log soon after."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        log = open_log(root)
        folds = open_folds(root, log)
        append_all(log, draft(b"once", queue_id=9))
        told_at = 0
        for step, count, more in lives:
            if step == "append":
                append_all(log, *(draft(b"x" * (n * 7 % 1400), queue_id=n % more) for n in range(count)))
                append_all(log, *(draft(b"later", topic=SCHEDULE_TOPIC, queue_id=n % more) for n in range(count % 7)))
                due = sorted(waiting_in(root))
                # In the order of its level, and not all of them.
                marks = [delivered_mark(level + 1, place) for level, place in due if level != more - 1]
                append_all(log, *(draft(b"now", properties=properties) for properties in marks[: count % 9]))
            elif step == "delete":
                tell_queues(log)
                settle(log)
                take_all(folds)
                assert folds.told.at > 0
                needed, before = min(folds.told.since, folds.delayed_from()), waiting_in(root)
                bases = [segment.base for segment in log._files.segments if segment.base <= needed]
                log.front.delete(LogOffset(bases[len(bases) * count // 101]))
                told_at = folds.told.at
                assert waiting_in(root) == before, "a delayed message went before its delivery"
                if more:
                    trim(folds)
            elif step == "mark":
                mark(folds)
            elif step == "cut":
                # Below what is confirmed nothing is cut.
                lowest = max(told_at, 1)
                starts = [one.offset for one in read_by_the_document(root / "commitlog") if one.offset >= lowest]
                if starts:
                    folds.rest(is_resting=True)
                    folds.before_cut()
                    log.cut(LogOffset(starts[len(starts) * count // 101]), CutReason.TRUNCATION)
                    folds.cut(log.max_offset)
                    folds.rest(is_resting=False)
            else:
                if step == "stop":
                    folds.close()
                log.close(is_clean=step == "stop")
                log = open_log(root)
                folds = open_folds(root, log)
            confirm_all(log)
            take_all(folds)
            here = expected(root, folds.dispatched_offset)
            units = units_of(folds)
            for key, found in units.items():
                assert [each for each in found if each[0] >= log.min_offset] == here.get(key, [])
            assert set(here) <= set(units)
            assert {key: queue.max_offset for key, queue in folds._queues} == {
                (topic, queue_id): following for topic, queue_id, _, following in log.queues.rows()
            }
            assert waiting_by(folds) == waiting_in(root), "some are delivered twice, or never"
            if told_at:
                assert log.queues.max_offset(b"TopicA", 9) == 1
        crash(log)
