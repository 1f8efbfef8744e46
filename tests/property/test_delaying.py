"""Whatever happens to masters, a delayed message is delivered once, in order, and not before its time."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.delaying_set import DelayingSet, check_laws
from tests.support.folded import play
from tests.support.sim_loop import SimLoop

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 20), st.integers(1, 2)),
        st.tuples(st.just("wait"), st.integers(1, 6_000), st.just(0)),
        st.tuples(st.just("confirm"), st.integers(0, 100), st.just(0)),
        st.tuples(st.just("fail over"), st.integers(0, 100), st.booleans()),
    ),
    max_size=16,
)


@settings(max_examples=40, deadline=None, report_multiple_bugs=False)
@given(STEPS)
def test_what_was_delivered_by_a_master_that_died_was_delivered_again(steps: list[tuple[str, int, int]]) -> None:
    async def story(loop: SimLoop) -> None:
        with tempfile.TemporaryDirectory() as folder:
            world = DelayingSet(Path(folder), loop)
            for step, count, more in steps:
                log = world.broker.log
                if step == "send":
                    for number in range(count):
                        world.send(1 + number % more)
                elif step == "wait":
                    await asyncio.sleep(count / 1000)
                else:
                    ends = [
                        log.confirm_offset,
                        *(each.end for each in world.records() if each.end > log.confirm_offset),
                    ]
                    end = ends[(len(ends) - 1) * int(count) // 100]
                    if step == "confirm":
                        world.confirm(end)
                    elif step == "fail over":
                        world.fail_over(end, is_restarted=bool(more))
                check_laws(world.records(), is_over=False)
            for _ in range(40):
                world.settle()
                await asyncio.sleep(0.5)
            check_laws(world.records(), is_over=True)
            world.close()

    play(story)
