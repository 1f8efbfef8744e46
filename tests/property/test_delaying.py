"""Whatever happens to masters, a delayed message is delivered once, in order, and not before its time."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tests.support.delaying_set import DelayingSet, check_laws
from tests.support.folded import play
from tests.support.sim_loop import SimLoop

SHARE = st.integers(0, 4)
"""Of the records above confirm, in quarters."""


class Reign(NamedTuple):
    """What one master lives to see."""

    sends: int
    levels: int
    confirmed: int
    lives_ms: int
    confirmed_later: int
    kept: int
    """By the next one."""
    is_restarted: bool


REIGNS = st.lists(
    st.builds(
        Reign,
        sends=st.integers(0, 12),
        levels=st.integers(1, 2),
        confirmed=SHARE,
        lives_ms=st.integers(0, 4_000),
        confirmed_later=SHARE,
        kept=SHARE,
        is_restarted=st.booleans(),
    ),
    min_size=1,
    max_size=6,
)

DIED_BEHIND_ITS_DELIVERIES = [
    Reign(sends=5, levels=1, confirmed=4, lives_ms=1_500, confirmed_later=0, kept=4, is_restarted=False),
    Reign(sends=0, levels=1, confirmed=0, lives_ms=1_500, confirmed_later=0, kept=4, is_restarted=False),
]
"""They are in the log of the next master, and nobody has confirmed them for a while: few draws have that."""


def end_of(world: DelayingSet, quarters: int) -> int:
    """The end of a record at or above confirm."""
    confirm = world.broker.log.confirm_offset
    ends = [confirm, *(each.end for each in world.records() if each.end > confirm)]
    return ends[(len(ends) - 1) * quarters // 4]


@pytest.mark.slow
@settings(max_examples=30, deadline=None, report_multiple_bugs=False, phases=(Phase.explicit, Phase.generate))
@given(REIGNS)
@example(DIED_BEHIND_ITS_DELIVERIES)
def test_what_was_delivered_by_a_master_that_died_was_delivered_again(reigns: list[Reign]) -> None:
    async def story(loop: SimLoop) -> None:
        with tempfile.TemporaryDirectory() as folder, closing(DelayingSet(Path(folder), loop)) as world:
            for reign in reigns:
                for number in range(reign.sends):
                    world.send(1 + number % reign.levels)
                world.confirm(end_of(world, reign.confirmed))
                await asyncio.sleep(reign.lives_ms / 1000)
                world.confirm(end_of(world, reign.confirmed_later))
                await asyncio.sleep(0.2)
                check_laws(world.records(), is_over=False)
                world.fail_over(end_of(world, reign.kept), is_restarted=reign.is_restarted)
            for _ in range(30):
                world.settle()
                await asyncio.sleep(0.5)
            check_laws(world.records(), is_over=True)

    play(story)
