"""
How much longer than in calm a member waits for the others, while it comes late or elections are lost (P12).

Here: the judgement, pure. Not here: the durations that it stretches (``node``, ``transport``).
Rule 1: a member that is late reads late what its leader sent in time, and two late ones add up: its shortest election
timeout is ``LATE_TURNS`` times its lateness, ``ELECTION_TIMEOUT_MS_MAX`` at most. A turn is late by its disk, too.
Rule 2: one late turn says nothing, nor do two that are ``PAIR_MS_MAX`` apart, nor one lost election: failover on a calm
machine is as fast as it was.
Rule 3: it waits longer at once, and shorter again by one step for each ``CALM_MS`` under a leader whom a majority
follows.
Rule 4: calm has to last. A member that must wait longer again within ``CALM_MS_MAX`` of a step down needs twice the
calm for the next one, ``CALM_MS_MAX`` at most. Else, on a machine that starves for a second in each twenty, all have
calmed down before each such second, and elect in it.
"""

from __future__ import annotations

from rollcall_ha.controller.contract.timing import NS_PER_MS
from rollcall_ha.controller.replication.raft.config import TICK_SECONDS

ELECTION_TIMEOUT_MS_MAX = 10_000
"""The shortest one is stretched no further; the longest is twice as long."""
LATE_TURNS = 3
"""The leader's late turn, the own one, and one to spare."""
LOST_STEPS_MAX = 3
"""By lost elections alone: a member that was cut off stands when it is back, and is waited for no longer than that."""
CALM_MS, CALM_MS_MAX = 3_000, 30_000
PAIR_MS_MAX = 1_000
"""Between two late turns that are one lateness: a disk that hangs for a second now and then starves nobody."""


class Patience:
    """The machine of one member; all in the raft thread."""

    def __init__(self, *, shortest_ms: int, now_ns: int) -> None:
        """``shortest_ms``: election timeout in calm."""
        self._shortest_ns = shortest_ms * NS_PER_MS
        self._steps_max = max(1, ELECTION_TIMEOUT_MS_MAX // shortest_ms).bit_length() - 1
        self._steps = 0
        self._turned_ns = self._calm_since_ns = now_ns
        self._calm_ns = CALM_MS * NS_PER_MS
        self._eased_ns: int | None = None
        """The last step down; None: none, or it has lasted (rule 4)."""
        self._late_at_ns = self._late_before_ns = 0
        self.late_ns = 0
        """By which two turns in a row were late within the last ``CALM_MS``; 0: none; any thread."""
        self._term = 0
        self._is_confirmed = True
        self._lost = 0

    @property
    def factor(self) -> int:
        """By which the durations of calm are stretched; a power of two."""
        return 1 << self._steps

    def turn(self, now_ns: int, *, term: int, is_confirmed: bool) -> bool:
        """
        A turn begins: whether it is late.

        ``is_confirmed``: a majority follows the leader of ``term``.
        """
        late_ns = now_ns - self._turned_ns - round(TICK_SECONDS * 1e9)
        self._turned_ns = now_ns
        is_late = LATE_TURNS * late_ns > self._shortest_ns
        if is_late:
            self._came_late(now_ns, late_ns)
        elif now_ns - self._late_at_ns > CALM_MS * NS_PER_MS:
            self.late_ns = 0
        if term != self._term:
            # Two that stood at once is chance. A second term without a leader says that timeouts are too short for
            # this network, or for the others' machines.
            self._lost = 0 if self._is_confirmed else self._lost + 1
            self._term, self._is_confirmed = term, False
            if self._lost > 1:
                self._need(min(self._steps + 1, LOST_STEPS_MAX), now_ns)
        self._is_confirmed |= is_confirmed
        if is_confirmed and self._steps and now_ns - self._calm_since_ns >= self._calm_ns:
            self._steps, self._calm_since_ns = self._steps - 1, now_ns
            self._eased_ns = now_ns
        if self._eased_ns is not None and now_ns - self._eased_ns > CALM_MS_MAX * NS_PER_MS:
            self._calm_ns, self._eased_ns = CALM_MS * NS_PER_MS, None
        return is_late

    def _came_late(self, now_ns: int, late_ns: int) -> None:
        # Rule 2. A snapshot, or a pause of the machine, is one late turn: with timeouts of seconds after it, a leader
        # that dies within the next ten seconds would be missed for as long.
        if self._late_before_ns and now_ns - late_ns - self._late_at_ns <= PAIR_MS_MAX * NS_PER_MS:
            self.late_ns = min(late_ns, self._late_before_ns)
            # Late by less, it reads what came before it judges. Stretched for that, a leader's death would be found in
            # twice the time on a machine that is merely busy.
            if LATE_TURNS * self.late_ns >= 2 * self._shortest_ns:
                self._need((-(-LATE_TURNS * self.late_ns // self._shortest_ns) - 1).bit_length(), now_ns)
        self._late_at_ns, self._late_before_ns = now_ns, late_ns

    def _need(self, steps: int, now_ns: int) -> None:
        if steps >= self._steps:
            # Rule 4.
            if self._eased_ns is not None:
                self._calm_ns = min(2 * self._calm_ns, CALM_MS_MAX * NS_PER_MS)
                self._eased_ns = None
            self._steps, self._calm_since_ns = min(steps, self._steps_max), now_ns
