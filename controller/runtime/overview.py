"""
A fleet of thousands of sets at a glance: one line for each set, the worst first, a page at a time.

Here: lines that are kept between questions, order, filter, pages. Not here: what is wrong with a set (``views``), one
set in full (``queries``), HTTP (``api.rest``).

Rule 1: a line is made anew when its set's replicated state has changed, and otherwise after ``SOFT_MS_MAX``: what only
heartbeats tell may be as old as that. Looking at a fleet that is quiet costs next to nothing.
Rule 2: lines are made ``LINES_AT_ONCE`` at a time: those of a thousand sets in one go would hold the loop.
Rule 3: of a local read, the same question within ``SHARED_MS`` has the same answer, byte by byte: twenty people who
look at one fleet cost as much as one.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from rollcall_ha.controller.contract.hosts import host_shares
from rollcall_ha.controller.contract.ids import SetKey
from rollcall_ha.controller.contract.problems import ProblemCode
from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.controller.contract.timing import NS_PER_MS
from rollcall_ha.controller.contract.values import ElectionPause, Frozen, Maintenance
from rollcall_ha.controller.contract.views import Freshness, HostShare, Overview, SetLine, SetStatus
from rollcall_ha.controller.core.pauses import pause_of
from rollcall_ha.controller.core.state import FleetState, SetState
from rollcall_ha.controller.replication.ports import Published

SOFT_MS_MAX = 2_000
LINES_AT_ONCE = 100
SHARED_MS = 250
SHARED_MAX = 64
"""Answers that are kept for those that ask the same."""
_RANK = {code.value: place for place, code in enumerate(ProblemCode)}
_encode = msgspec.json.Encoder().encode


class SetOrder(StrEnum):
    """Which sets are on the first page."""

    WORST = "worst"
    NAME = "name"


class Question(Frozen):
    """What is asked of the fleet."""

    order: SetOrder
    name: str = ""
    """Part of cluster/set, upper and lower case alike; empty: every set."""
    problem: str = ""
    """A code of ``ProblemCode``, or ``any``; empty: also sets without a problem."""
    after: SetKey | None = None
    """The last set of the page before."""
    limit: int = 100
    has_hosts: bool = False
    """Whether each line tells what its hosts have of the set."""


class _Kept(msgspec.Struct):
    """A line, and what it was made of."""

    state: SetState
    pause: ElectionPause | None
    maintenances: object
    made_ns: int
    line: SetLine
    hosts: tuple[HostShare, ...]
    """Beside the line, which is sent as it is kept; few ask for them."""


class Lines:
    """The lines of one controller, kept between questions. On the loop."""

    def __init__(
        self,
        *,
        published: Callable[[], Published[FleetState]],
        status_of: Callable[[SetKey], SetStatus | None],
        freshness: Callable[[Published[FleetState]], Freshness],
        fleet_name: str,
        now_ns: Callable[[], int],
    ) -> None:
        """Nothing is made before somebody asks."""
        self._published = published
        self._status_of = status_of
        self._freshness = freshness
        self._fleet_name = fleet_name
        self._now_ns = now_ns
        self._kept: dict[SetKey, _Kept] = {}
        self._renewing = asyncio.Lock()
        self._shared: OrderedDict[Question, tuple[int, bytes]] = OrderedDict()

    async def answer(self, question: Question, *, may_share: bool) -> bytes:
        """``Overview`` as JSON. ``may_share``: the answer that another one got within ``SHARED_MS`` will do."""
        # One at a time: whoever waits here finds the lines renewed, and perhaps the whole answer.
        async with self._renewing:
            made_ns, found = self._shared.get(question, (0, b""))
            if may_share and found and self._now_ns() - made_ns < SHARED_MS * NS_PER_MS:
                return found
            await self._renew()
            answer = _encode(self._overview(question))
            self._shared[question] = (self._now_ns(), answer)
            self._shared.move_to_end(question)
            if len(self._shared) > SHARED_MAX:
                self._shared.popitem(last=False)
            return answer

    async def _renew(self) -> None:
        state, now_ns, made = self._published().state, self._now_ns(), 0
        for key, set_state in state.sets.items():
            kept = self._kept.get(key)
            if kept is not None and _is_good(kept, state, set_state, now_ns):
                continue
            if (status := self._status_of(key)) is not None:
                line, hosts = line_of(status), host_shares(status)
                self._kept[key] = _Kept(set_state, status.pause, state.maintenances, now_ns, line, hosts)
            made += 1
            if made % LINES_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _overview(self, question: Question) -> Overview:
        published = self._published()
        lines = [kept.line for key, kept in self._kept.items() if key in published.state.sets]
        matching = sorted((line for line in lines if matches(line, question)), key=_key_of(question.order))
        first = place_after(matching, question)
        page = matching[first : first + question.limit]
        if question.has_hosts:
            page = [replace(line, hosts=self._kept[line.set_key].hosts) for line in page]
        return Overview(
            freshness=self._freshness(published),
            fleet_name=self._fleet_name,
            sets=tuple(page),
            sets_total=len(lines),
            sets_matching=len(matching),
            problems=dict(sorted(Counter(code for line in lines for code in line.problems).items(), key=_by_rank)),
            conditions=dict(sorted(Counter(line.condition.value for line in lines).items())),
            sets_with_problems=sum(bool(line.problems) for line in lines),
            pause=published.state.pauses.get(None),
            maintenances=len(published.state.maintenances),
            next_after=str(page[-1].set_key) if first + len(page) < len(matching) else None,
        )


def _is_good(kept: _Kept, state: FleetState, set_state: SetState, now_ns: int) -> bool:
    # By identity: an applied entry that changes a set makes another value of it, and leaves the others as they are.
    return (
        kept.state is set_state
        # Its own alone: of a thousand sets that are paused one by one, each pause would make all lines anew.
        and kept.pause is pause_of(state, set_state.set_key)
        and kept.maintenances is state.maintenances
        and now_ns - kept.made_ns < SOFT_MS_MAX * NS_PER_MS
    )


def line_of(status: SetStatus) -> SetLine:
    """The line of one set."""
    view = status.view
    lags = [replica.lag_bytes for replica in status.replicas if replica.lag_bytes is not None]
    return SetLine(
        set_key=view.set_key,
        condition=view.condition,
        condition_reason=view.condition_reason,
        problems=status.problems,
        master=view.master,
        master_epoch=view.master_epoch,
        in_sync=len(view.sync_state_set),
        alive=sum(replica.is_alive for replica in status.replicas),
        registered=len(status.replicas),
        expected=view.configuration.expected_replicas,
        failure_budget=status.failure_budget,
        lag_bytes_max=max(lags, default=None),
        last_election_ms=status.last_election_ms,
        is_paused=status.pause is not None,
        in_maintenance=sum(isinstance(replica.maintenance, Maintenance) for replica in status.replicas),
        master_name=next((replica.name for replica in status.replicas if replica.is_master), ""),
    )


def matches(line: SetLine, question: Question) -> bool:
    """Whether the line is among those that are asked for."""
    if question.name and question.name.lower() not in str(line.set_key).lower():
        return False
    return (
        not question.problem or question.problem in line.problems or (question.problem == "any" and bool(line.problems))
    )


def _worst(line: SetLine) -> tuple[int, int, SetKey]:
    # The worst problem first, then the number of them; a tombstone of a cleaned set is nobody's concern.
    if line.condition is Condition.CLEANED:
        return (len(_RANK) + 1, 0, line.set_key)
    return (_RANK.get(line.problems[0], 0) if line.problems else len(_RANK), -len(line.problems), line.set_key)


def _key_of(order: SetOrder) -> Callable[[SetLine], tuple[int, int, SetKey]]:
    return _worst if order is SetOrder.WORST else lambda line: (0, 0, line.set_key)


def _by_rank(counted: tuple[str, int]) -> int:
    return _RANK.get(counted[0], 0)


def place_after(lines: list[SetLine], question: Question) -> int:
    """Where the page begins: behind the set that the page before ended with; at the top if that one is gone."""
    if question.after is None:
        return 0
    return next((place + 1 for place, line in enumerate(lines) if line.set_key == question.after), 0)
