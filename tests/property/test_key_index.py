"""Whatever was taken, cut, flushed and started again: the key index is the one that RocketMQ builds of the log."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcall_ha.broker.folds.index_file import Shape
from rollcall_ha.broker.folds.key_index import Keyed, KeyIndex
from tests.support.key_index_java import BEGAN_MS, feed, files_below, java_files, record
from tests.support.sim_files import IN_MEMORY

KEYS = st.lists(st.sampled_from(["a", "b", "Aa", "BB", "order-1", "order-2"]), max_size=3)
RECORDS = st.lists(st.tuples(KEYS, st.booleans(), st.integers(-2_000, 9_000), st.booleans()), max_size=9)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), RECORDS),
        st.tuples(st.just("cut"), st.integers(0, 12)),
        st.tuples(st.sampled_from(["flush", "kill", "stop"]), st.none()),
    ),
    max_size=12,
)
SHAPES = st.builds(Shape, slot_count=st.integers(1, 6), unit_count=st.integers(2, 9))


def extended(log: list[Keyed], drawn: list[tuple[list[str], bool, int, bool]], number: int) -> list[Keyed]:
    """With records behind it that no other step has; their clock may go back."""
    for keys, has_unique, step_ms, is_queued in drawn:
        offset, at_ms = (log[-1][2] + 100, log[-1][4] + step_ms) if log else (0, BEGAN_MS + step_ms)
        unique = f"ID-{number}-{offset}" if has_unique else ""
        log = [*log, record(offset, *keys, unique=unique, at_ms=at_ms, is_queued=is_queued)]
    return log


def check_questions(index: KeyIndex, log: list[Keyed]) -> None:
    """Every record is found by each of its keys, and nothing that is not in the log."""
    for key in ("a", "Aa", "order-1"):
        having = [
            each[2] for each in log if key.encode() in each[1].replace(b"\x02", b" ").replace(b"\x01", b" ").split()
        ]
        expected = [offset for offset in reversed(having) if any(each[2] == offset and each[5] for each in log)]
        found = index.find(b"T", key.encode(), begin_ms=0, end_ms=1 << 62, count_max=1000)

        assert [offset for offset in found if offset in expected] == expected
        assert found == sorted(set(found), reverse=True)
        assert set(found) <= {each[2] for each in log}


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(STEPS, SHAPES, st.integers(1, 4))
def test_any_life_ends_in_the_files_of_a_fresh_build(steps: list[tuple[str, object]], shape: Shape, batch: int) -> None:
    """Byte for byte, names included."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as folder:
        root, log = Path(folder), list[Keyed]()
        index = KeyIndex.open(root, valid_to=0, shape=shape)
        for number, (step, drawn) in enumerate(steps):
            if step == "append":
                log = extended(log, drawn, number)  # type: ignore[arg-type]
                feed(index, log, step=batch)
            elif step == "cut":
                assert isinstance(drawn, int)
                log = log[:drawn]
                index.cut(len(log) * 100)
            elif step == "flush":
                index.flush()
            else:
                if step == "stop":
                    index.flush()
                index.close()
                index = KeyIndex.open(root, valid_to=len(log) * 100, shape=shape)
            assert index.taken_offset <= len(log) * 100
        feed(index, log, step=batch)
        index.flush()

        assert index.taken_offset == len(log) * 100
        assert files_below(root) == java_files(log, shape)
        check_questions(index, log)
        index.close()
