"""
Comparing controllers: have all of them made the same state of the same entries?

Here: ``judge_states``, pure, and ``StateWatch``, which remembers what there is to compare. Not here: the digest
(``controller.core.digest``), how it travels (``controller.replication.raft``: links between controllers).

Every controller asks the others, and judges about itself alone.
Rule 1: digests are compared at one index. Only the last few entries of each are known: under load there may be none in
common, and the next time there is.
Rule 2: a controller that differs from a majority that agrees stops. Entries are applied by fixed rules: where most have
one state and one has another, the one has a fault, of its memory or of its build. Going on it could lead, and elect.
Rule 3: without a majority that agrees nobody is right for certain, and nobody stops: that is for an operator to see.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.contract.timing import NS_PER_MS
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.node.telemetry import Logger

INTERVAL_MS = 1_000
"""Between two comparisons of this controller's state with the others'."""
DIGESTS_TOLD = 64
"""Newest entries whose digest a controller tells."""

Digests = Mapping[int, str]
"""State digest by the index of the entry that made it."""


class StateJudgement(Frozen):
    """The outcome of one comparison."""

    differing: tuple[ControllerName, ...] = ()
    """Controllers whose state is not ours at the newest index that both know."""
    stop_reason: str = ""
    """Why this controller must stop; empty: it need not."""


def judge_states(own: Digests, others: Mapping[ControllerName, Digests], *, members: int) -> StateJudgement:
    """Compare our newest digests with those of the others; ``members`` counts all controllers of the fleet."""
    differing = []
    for name, told in sorted(others.items()):
        common = own.keys() & told.keys()
        if common and own[max(common)] != told[max(common)]:
            differing.append(name)
    majority = members // 2 + 1
    for index in sorted(own, reverse=True):
        told_here = {name: told[index] for name, told in others.items() if index in told}
        for digest in set(told_here.values()) - {own[index]}:
            agreeing = sorted(name for name, one in told_here.items() if one == digest)
            if len(agreeing) >= majority:
                reason = (
                    f"the state after entry {index} is {own[index]} here and {digest} on {', '.join(agreeing)}, which "
                    "are a majority: this one is wrong. Start it again; if it stops again, move its data directory "
                    "away, so that it gets the state from the others, check the memory of this machine, and report it"
                )
                return StateJudgement(differing=tuple(differing), stop_reason=reason)
    return StateJudgement(differing=tuple(differing))


class StateWatch:
    """What this controller tells of its newest states, and what came of the last comparison."""

    def __init__(self, members: int, logger: Logger) -> None:
        """``members`` counts all controllers of the fleet."""
        self.members = members
        self._logger = logger
        self._digests: deque[tuple[int, str]] = deque(maxlen=DIGESTS_TOLD)
        """(index, digest of the state) of each of the newest entries."""
        self.differing: tuple[ControllerName, ...] = ()
        """Controllers whose state is not ours, by the last comparison."""
        self._next_ns = 0

    def note(self, index: int, digest: str) -> None:
        """The state after this entry; before the first one it has no digest."""
        if digest:
            self._digests.append((index, digest))

    def compare(
        self, exchange: Callable[[tuple[tuple[int, str], ...]], Mapping[ControllerName, Digests]], now_ns: int
    ) -> str:
        """Compare with what ``exchange`` brings, once a second. The answer: why this controller must stop, or empty."""
        if now_ns < self._next_ns:
            return ""
        self._next_ns = now_ns + INTERVAL_MS * NS_PER_MS
        own = tuple(self._digests)
        judgement = judge_states(dict(own), exchange(own), members=self.members)
        if judgement.differing and judgement.differing != self.differing:
            self._logger.error("states_differ", differing=judgement.differing, newest=own[-1])
        self.differing = judgement.differing
        if judgement.stop_reason:
            self._logger.error("state_is_wrong", reason=judgement.stop_reason)
        return judgement.stop_reason
