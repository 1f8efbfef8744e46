"""Whatever a log goes through, its folds hold what a fresh build of them holds."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from rollcall_ha.broker.log.values import CutReason
from rollcall_ha.epoch.model import LogOffset
from tests.support.fold_tools import confirm_all, delivered, expected, mark, open_folds, take_all, units_of
from tests.support.log_tools import append_all, crash, draft, open_log, read_by_the_document

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
