"""Pulls that wait, on virtual time: who is woken, who is over, who is forgotten, and what waiting costs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from rollcall_ha.broker.consuming import waiting
from rollcall_ha.broker.consuming.waiting import WAIT_MS_MAX, WAKES_PER_TURN_MAX, WaitingPull, WaitingPulls
from rollcall_ha.broker.folds.ports import QueueKey
from rollcall_ha.broker.protocol.pull import PullRequest
from rollcall_ha.node.remoting.frame import HeaderForm
from tests.support.folded import T0, FoldedLink, play
from tests.support.sim_loop import SimLoop

OTHER: QueueKey = (b"T", 1)


class Table:
    """``WaitingPulls`` whose pulls are known by number; ``has_message``: those that a look answers."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.looks: list[int] = []
        self.expired: list[tuple[int, int]] = []
        """(number, loop's time in ms)."""
        self.has_message: Callable[[int], bool] = lambda _: True
        self.pulls = WaitingPulls(self._retry, self._expire)

    def hold(
        self,
        number: int,
        wait_ms: int = 15_000,
        *,
        key: QueueKey = T0,
        link: FoldedLink | None = None,
        text: str = "",
        kind: str = "",
    ) -> str:
        request = PullRequest(
            consumer_group="g", topic="T", queue_id=key[1], queue_offset=0, subscription=text, expression_type=kind
        )
        connection = (link or FoldedLink()).connection
        return self.pulls.hold(WaitingPull(connection, number, HeaderForm.JSON, request, key, 0), wait_ms)

    @property
    def now_ms(self) -> int:
        return round(self.loop.time() * 1000)

    def _retry(self, pull: WaitingPull) -> bool:
        self.looks.append(pull.opaque)
        return self.has_message(pull.opaque)

    def _expire(self, pull: WaitingPull) -> None:
        self.expired.append((pull.opaque, self.now_ms))


async def turn() -> None:
    await asyncio.sleep(0.001)


def test_growth_wakes_who_waits_at_that_queue_and_nobody_else() -> None:
    async def story(loop: SimLoop) -> None:
        table = Table(loop)
        for number, key in ((1, T0), (2, OTHER), (3, T0)):
            assert table.hold(number, key=key) == ""
        table.pulls.wake([T0, (b"nobody", 0)])
        assert table.looks == [], "never within the turn that has taken records in"
        await turn()
        assert (table.looks, len(table.pulls)) == ([1, 3], 1)
        table.pulls.wake([T0])
        await turn()
        assert table.looks == [1, 3], "they have their answers"

    play(story)


def test_a_pull_that_finds_nothing_goes_on_waiting() -> None:
    async def story(loop: SimLoop) -> None:
        table = Table(loop)
        table.has_message = lambda _: False
        table.hold(1)
        for _ in range(3):
            table.pulls.wake([T0])
            await turn()
        assert (table.looks, len(table.pulls)) == ([1, 1, 1], 1)

    play(story)


def test_a_queue_that_grows_while_its_pull_is_about_to_look_is_not_missed() -> None:
    """The look comes behind both batches."""

    async def story(loop: SimLoop) -> None:
        table = Table(loop)
        batches: list[str] = []
        table.has_message = lambda _: len(batches) == 2
        table.hold(1)
        for batch in ("first", "second"):
            batches.append(batch)
            table.pulls.wake([T0])
        await turn()
        assert (table.looks, len(table.pulls)) == ([1], 0)

    play(story)


def test_many_that_wait_at_one_queue_look_a_few_per_turn() -> None:
    """A message for 10,000 of them stopped the loop for a second."""

    async def story(loop: SimLoop) -> None:
        table = Table(loop)
        count = WAKES_PER_TURN_MAX * 3 + 1
        for number in range(count):
            table.hold(number)
        between: list[int] = []

        def watch() -> None:
            between.append(len(table.looks))
            if len(table.looks) < count:
                loop.call_soon(watch)

        table.pulls.wake([T0])
        loop.call_soon(watch)
        await asyncio.sleep(0.1)
        assert table.looks == list(range(count))
        assert between == [WAKES_PER_TURN_MAX * turns for turns in (1, 2, 3)] + [count]

    play(story)


def test_each_is_over_at_its_own_time() -> None:
    """Never before it, and by one step after it at most: RocketMQ is late by up to 5 s."""

    async def story(loop: SimLoop) -> None:
        table = Table(loop)
        waits = {1: 15_000, 2: 20, 3: 7_003, 4: 20, 5: 1, 6: 19_999}
        begun = {}
        for number, wait_ms in waits.items():
            begun[number] = table.now_ms
            table.hold(number, wait_ms)
            await asyncio.sleep(0.003)
        await asyncio.sleep(25)
        assert sorted(number for number, _ in table.expired) == [1, 2, 3, 4, 5, 6]
        for number, at_ms in table.expired:
            assert 0 <= at_ms - begun[number] - waits[number] <= waiting.STEP_MS + 1
        assert (len(table.pulls), table.looks) == (0, [])

    play(story)


def test_a_shorter_wait_that_comes_later_is_not_kept_waiting_by_a_longer_one() -> None:
    async def story(loop: SimLoop) -> None:
        table = Table(loop)
        table.hold(1, 30_000)
        table.hold(2, 100)
        await asyncio.sleep(0.2)
        assert [number for number, _ in table.expired] == [2]
        await asyncio.sleep(30)
        assert [number for number, _ in table.expired] == [2, 1]

    play(story)


def test_nobody_waits_longer_than_is_allowed() -> None:
    async def story(loop: SimLoop) -> None:
        table = Table(loop)
        table.hold(1, 1 << 40)
        await asyncio.sleep(WAIT_MS_MAX / 1000 + 0.1)
        assert [number for number, _ in table.expired] == [1]

    play(story)


def test_many_whose_time_is_over_at_once_are_answered_over_several_turns() -> None:
    async def story(loop: SimLoop) -> None:
        table = Table(loop)
        count = waiting.ENDS_PER_TURN_MAX * 2 + 1
        for number in range(count):
            table.hold(number, 50)
        most, before = 0, 0

        def watch() -> None:
            nonlocal most, before
            most, before = max(most, len(table.expired) - before), len(table.expired)
            if len(table.expired) < count:
                loop.call_soon(watch)

        loop.call_soon(watch)
        await asyncio.sleep(0.2)
        assert (len(table.expired), len(table.pulls), most) == (count, 0, waiting.ENDS_PER_TURN_MAX)

    play(story)


def test_a_pull_that_was_woken_when_its_time_was_over_is_answered_once() -> None:
    async def story(loop: SimLoop) -> None:
        table = Table(loop)
        table.hold(1, 50)
        pull = next(iter(table.pulls._of_queue[T0]))
        table.pulls.wake([T0])
        table.pulls._end(pull)
        await turn()
        await asyncio.sleep(1)
        assert (table.looks, table.expired) == ([], [])

    play(story)


def test_a_link_that_closes_takes_its_pulls_along() -> None:
    """Those that are about to look, too."""

    async def story(loop: SimLoop) -> None:
        table = Table(loop)
        gone, stays = FoldedLink(), FoldedLink()
        table.hold(1, link=gone)
        table.hold(2, link=gone, key=OTHER)
        table.hold(3, link=stays)
        table.pulls.wake([T0])
        table.pulls.forget(gone.connection)
        table.pulls.forget(FoldedLink().connection)
        assert len(table.pulls) == 1
        await turn()
        await asyncio.sleep(20)
        assert (table.looks, table.expired) == ([3], [])
        assert (table.pulls._of_link, table.pulls._of_queue) == ({}, {})

    play(story)


def test_all_look_again_when_their_answer_may_have_changed() -> None:
    async def story(loop: SimLoop) -> None:
        table = Table(loop)
        table.hold(1)
        table.hold(2, key=OTHER)
        table.pulls.wake_all()
        await turn()
        assert table.looks == [1, 2]

    play(story)


@pytest.mark.slow
def test_who_waits_costs_nothing_until_something_comes() -> None:
    """10,000 pulls at 10,000 queues: not one turn of the loop in 14 s."""

    async def story(loop: SimLoop) -> None:
        table = Table(loop)
        for number in range(10_000):
            table.hold(number, key=(b"T", number))
        await turn()
        steps = loop.kernel.steps
        await asyncio.sleep(14)
        assert loop.kernel.steps - steps <= 5
        assert len(table.pulls) == 10_000

    play(story)


@pytest.mark.slow
def test_what_a_busy_queue_leaves_behind_is_little() -> None:
    """Held and woken 20,000 times within the wait of one: a timer or an entry for each would be kept for 15 s."""

    async def story(loop: SimLoop) -> None:
        table = Table(loop)
        for number in range(20_000):
            table.hold(number)
            table.pulls.wake([T0])
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert (len(table.looks), len(table.pulls)) == (20_000, 0)
        assert (table.pulls._of_link, table.pulls._of_queue, len(table.pulls._woken)) == ({}, {}, 0)
        assert len(table.pulls._of_step) == len(table.pulls._steps) <= 20_000 * 60 / 1000 / waiting.STEP_MS
        await asyncio.sleep(16)
        assert (table.pulls._of_step, table.pulls._steps, table.expired) == ({}, [], [])

    play(story)


def test_more_than_may_wait_are_told_both_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "WAITING_PULLS_MAX", 5)
    monkeypatch.setattr(waiting, "LINK_PULLS_MAX", 3)

    async def story(loop: SimLoop) -> None:
        table = Table(loop)
        greedy = FoldedLink()
        assert [table.hold(number, link=greedy) for number in range(3)] == [""] * 3
        told = table.hold(3, link=greedy)
        assert told.startswith(
            "3 pulls wait here, 3 of this link, with 6 characters of names and filters; 5, 3 and 1048576 may"
        )
        assert [table.hold(number) for number in (4, 5)] == [""] * 2
        assert table.hold(6).startswith("5 pulls wait here, 0 of this link, with 10 characters")
        table.pulls.forget(greedy.connection)
        assert table.hold(7, link=greedy) == ""
        assert len(table.pulls) == 3

    play(story)


def test_texts_of_those_that_wait_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "WAITING_CHARS_MAX", 100)

    async def story(loop: SimLoop) -> None:
        table = Table(loop)
        link = FoldedLink()
        assert table.hold(1, text="x" * 58, link=link) == table.hold(2, kind="x" * 58, link=link) == ""
        assert "with 120 characters of names and filters" in table.hold(3)
        table.pulls.forget(link.connection)
        assert table.hold(4) == ""

    play(story)
