"""
How often the lead of the controllers has changed lately, as this controller has seen it.

Here: the count, pure. Not here: why (``replication.raft.patience``), the words (``contract.problems``).
"""

from __future__ import annotations

from collections import deque

from rollcall_ha.controller.contract.problems import LEAD_WINDOW_MS
from rollcall_ha.controller.contract.timing import NS_PER_MS
from rollcall_ha.controller.replication.ports import Leadership

CHANGES_KEPT_MAX = 1_000


class LeadWatch:
    """Counts the terms that began within ``LEAD_WINDOW_MS`` and had a leader, one a look at most."""

    def __init__(self) -> None:
        self._term = 0
        self._changed_ns: deque[int] = deque(maxlen=CHANGES_KEPT_MAX)

    @property
    def changes(self) -> int:
        """Up to the newest look."""
        return len(self._changed_ns)

    def look(self, leadership: Leadership, now_ns: int) -> None:
        # A controller that is cut off stands again and again, and changes no lead by it.
        term = self._term if leadership.leader is None else leadership.term
        # Not the difference of the terms: a controller that was away for a day would tell of the whole day.
        if term != self._term and self._term:
            self._changed_ns.append(now_ns)
        self._term = term
        while self._changed_ns and now_ns - self._changed_ns[0] > LEAD_WINDOW_MS * NS_PER_MS:
            self._changed_ns.popleft()
