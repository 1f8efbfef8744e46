"""The successor of a leader: chosen, or refused with the reason of each controller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.contract.replies import Refused
from rollcall_ha.controller.replication.ports import Follower, HandoverEnd
from rollcall_ha.controller.runtime import transfers
from rollcall_ha.controller.runtime.transfers import (
    LAG_ENTRIES_MAX,
    LATE_GAP_MS_MAX,
    LATE_MS_MIN,
    LEAVING_PAUSE_MS_MIN,
    Leaving,
    successor,
)

C1, C2, C3 = (ControllerName(name) for name in ("c1", "c2", "c3"))
GOOD = Follower(name=C2, is_linked=True, answer_age_ms=40, lag_entries=3)


def choose(*followers: Follower, to: ControllerName | None = None) -> ControllerName | Refused:
    return successor(C1, to, followers, answer_age_ms_max=1_000)


def test_the_controller_with_the_fewest_entries_to_come_takes_over_and_of_two_the_first_by_name() -> None:
    assert choose(GOOD, replace(GOOD, name=C3, lag_entries=1)) == C3
    assert choose(replace(GOOD, name=C3), GOOD) == C2
    assert choose(GOOD, replace(GOOD, name=C3, lag_entries=1), to=C2) == C2
    assert choose(replace(GOOD, name=C3, lag_entries=1), replace(GOOD, is_earlier=True)) == C2, "it is less late"


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (replace(GOOD, is_linked=False), "c2 is not linked"),
        (replace(GOOD, is_voter=False), "c2 is being added, and does not vote yet"),
        (replace(GOOD, answer_age_ms=None), "c2 has not answered in this term as a voter"),
        (replace(GOOD, answer_age_ms=1_001), "answered last 1001 ms ago, at most 1000"),
        (replace(GOOD, lag_entries=LAG_ENTRIES_MAX + 1), f"lacks {LAG_ENTRIES_MAX + 1} entries, at most"),
    ],
)
def test_one_that_may_not_be_elected_is_not_asked(fault: Follower, told: str) -> None:
    """Asked all the same, the leader would give its lead up for nobody."""
    third = replace(GOOD, name=C3)
    assert choose(fault, third) == C3
    for answer in (choose(fault, third, to=C2), choose(fault)):
        assert isinstance(answer, Refused)
        assert answer.code is RefusalCode.NO_SUCCESSOR
        assert told in answer.reason


def test_a_wrong_name_is_refused_with_those_that_there_are() -> None:
    for to, told in ((C1, "c1 leads already"), (ControllerName("c9"), "there is c2")):
        answer = choose(GOOD, to=to)
        assert isinstance(answer, Refused)
        assert told in answer.reason
    alone = choose()
    assert isinstance(alone, Refused)
    assert "it is the only controller" in alone.reason


class _Leader:
    """A service that leads, and where its handovers went; one after the other they end as ``ends`` says."""

    def __init__(self, patch: pytest.MonkeyPatch, *ends: HandoverEnd) -> None:
        self.ms, self.is_held, self.followers = 0, True, [GOOD]
        self.left: list[ControllerName] = []
        service: Any = SimpleNamespace(
            now_ns=lambda: self.ms * 1_000_000,
            authority=lambda: SimpleNamespace(is_held=self.is_held),
            settings=SimpleNamespace(name=C1, timing=SimpleNamespace(raft_election_timeout_ms_min=1_000)),
            log=SimpleNamespace(followers=lambda: self.followers, leadership=SimpleNamespace(late_ms=300)),
        )
        self.leaving = Leaving(service)

        async def hand_over(_service: object, target: ControllerName) -> HandoverEnd:
            self.left.append(target)
            return ends[len(self.left) - 1]

        patch.setattr(transfers, "_hand_over", hand_over)

    async def left_at(self, ms: int, why: Callable[[], None]) -> int:
        """How often it has left, after two such looks."""
        self.ms = ms
        why()
        why()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return len(self.left)


def test_a_leader_whose_clock_was_behind_kept_each_broker_that_started_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It hands the lead over, and not again within ten minutes: two such leaders would pass it to and fro for ever."""
    leader = _Leader(monkeypatch, HandoverEnd.NOT_CAUGHT_UP, HandoverEnd.DEPOSED, HandoverEnd.STOOD_DOWN)

    async def story() -> None:
        refused, leader.is_held = leader.leaving.clock_behind, False
        assert await leader.left_at(0, refused) == 0, "whoever follows keeps nobody out"
        leader.is_held = True
        assert await leader.left_at(1, refused) == 1
        assert await leader.left_at(1_000, refused) == 2, "nobody had every entry in time: it leads on"
        assert await leader.left_at(1_000 + LEAVING_PAUSE_MS_MIN - 1, refused) == 2
        assert await leader.left_at(1_000 + LEAVING_PAUSE_MS_MIN, refused) == 3

    asyncio.run(story())


def test_a_late_leader_kept_the_lead_though_another_controller_came_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it was late for long; a failed attempt waits as long again, and one that worked for ten minutes."""
    leader = _Leader(monkeypatch, HandoverEnd.NOT_CAUGHT_UP, HandoverEnd.DEPOSED, HandoverEnd.DEPOSED)

    async def late_from(begin_ms: int, end_ms: int) -> int:
        for ms in range(begin_ms, end_ms, 5_000):
            await leader.left_at(ms, leader.leaving.late)
        return await leader.left_at(end_ms, leader.leaving.late)

    async def story() -> None:
        at_ms = 100_000
        assert await late_from(at_ms, at_ms + 2 * LATE_MS_MIN) == 0, "all are late"
        leader.followers = [replace(GOOD, lag_entries=0), replace(GOOD, name=C3, is_earlier=True)]
        at_ms += 2 * LATE_MS_MIN + LATE_GAP_MS_MAX + 1
        assert await late_from(at_ms, at_ms + LATE_MS_MIN - 1) == 0
        assert await leader.left_at(at_ms + LATE_MS_MIN, leader.leaving.late) == 1
        at_ms += LATE_MS_MIN
        assert await late_from(at_ms, at_ms + LATE_MS_MIN - 1) == 1
        assert await leader.left_at(at_ms + LATE_MS_MIN, leader.leaving.late) == 2
        at_ms += LATE_MS_MIN
        assert await late_from(at_ms, at_ms + LEAVING_PAUSE_MS_MIN - 1) == 2
        assert await leader.left_at(at_ms + LEAVING_PAUSE_MS_MIN, leader.leaving.late) == 3

    asyncio.run(story())
    assert leader.left == [C3] * 3
