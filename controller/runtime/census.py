"""
All sets of a fleet in a few numbers, and the worst of them, for a scrape.

Here: counting statuses. Not here: taking them (``queries``), names and labels (``metrics``).
"""

from __future__ import annotations

import heapq
from collections import Counter

from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.controller.contract.views import SetStatus
from rollcall_ha.controller.runtime.views import gravity, is_exposed


class Census:
    """Filled with one status after the other; a cleaned set counts by its condition alone."""

    def __init__(self) -> None:
        self.conditions: Counter[str] = Counter()
        self.problems: Counter[str] = Counter()
        self.exposed = 0
        """Sets with one member in sync, and more expected."""
        self._statuses: list[SetStatus] = []

    def add(self, status: SetStatus) -> None:
        """Count a set by condition and problem; a cleaned one only by its condition."""
        self.conditions[status.view.condition.value] += 1
        # A tombstone serves nobody, and never will: as a series of a set it would be an alarm for ever.
        if status.view.condition is Condition.CLEANED:
            return
        self.problems.update(status.problems)
        self.exposed += is_exposed(status.view)
        self._statuses.append(status)

    def worst(self, limit: int) -> list[SetStatus]:
        """Those with the worst problems first, at most ``limit``."""
        return heapq.nsmallest(limit, self._statuses, key=gravity)
