"""The successor of a leader: chosen, or refused with the reason of each controller."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.contract.replies import Refused
from rollcall_ha.controller.replication.ports import Follower, HandoverEnd
from rollcall_ha.controller.runtime import transfers
from rollcall_ha.controller.runtime.transfers import CLOCK_PAUSE_MS_MIN, LAG_ENTRIES_MAX, ClockBehind, successor

C1, C2, C3 = (ControllerName(name) for name in ("c1", "c2", "c3"))
GOOD = Follower(name=C2, is_linked=True, answer_age_ms=40, lag_entries=3)


def choose(*followers: Follower, to: ControllerName | None = None) -> ControllerName | Refused:
    return successor(C1, to, followers, answer_age_ms_max=1_000)


def test_the_controller_with_the_fewest_entries_to_come_takes_over_and_of_two_the_first_by_name() -> None:
    assert choose(GOOD, replace(GOOD, name=C3, lag_entries=1)) == C3
    assert choose(replace(GOOD, name=C3), GOOD) == C2
    assert choose(GOOD, replace(GOOD, name=C3, lag_entries=1), to=C2) == C2


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


def test_a_leader_whose_clock_was_behind_kept_each_broker_that_started_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It hands the lead over, and not again within ten minutes: two such leaders would pass it to and fro for ever."""
    ends = [HandoverEnd.NOT_CAUGHT_UP, HandoverEnd.DEPOSED, HandoverEnd.STOOD_DOWN]
    left: list[HandoverEnd] = []
    now = SimpleNamespace(ms=0, is_held=False)
    service: Any = SimpleNamespace(
        now_ns=lambda: now.ms * 1_000_000,
        authority=lambda: SimpleNamespace(is_held=now.is_held),
        settings=SimpleNamespace(name=C1, timing=SimpleNamespace(raft_election_timeout_ms_min=1_000)),
        log=SimpleNamespace(followers=lambda: (GOOD,)),
    )

    async def hand_over(_service: object, target: ControllerName) -> HandoverEnd:
        assert target == C2
        left.append(ends[len(left)])
        return left[-1]

    monkeypatch.setattr(transfers, "_hand_over", hand_over)

    async def story() -> None:
        behind = ClockBehind(service)

        async def refused_at(ms: int, *, leads: bool = True) -> int:
            now.ms, now.is_held = ms, leads
            behind.refused()
            behind.refused()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return len(left)

        assert await refused_at(0, leads=False) == 0, "whoever follows keeps nobody out"
        assert await refused_at(1) == 1
        assert await refused_at(1_000) == 2, "nobody had every entry in time: it leads on"
        assert await refused_at(1_000 + CLOCK_PAUSE_MS_MIN - 1) == 2
        assert await refused_at(1_000 + CLOCK_PAUSE_MS_MIN) == 3

    asyncio.run(story())
