"""
Whether this process should end because its Raft part has stopped while its loop turns.

Here: the judgement over several looks, pure. Not here: looking and ending (``api.server``).

Rule: one bad look proves nothing, because the whole process may have been paused, the log's thread with it;
``STRIKES_MAX`` bad looks in a row do.
"""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.controller.contract.values import Frozen

LOOK_INTERVAL_MS = 1_000
STRIKES_MAX = 10
TICK_AGE_MS_MAX = 1_000


class WatchdogReading(Frozen):
    """The result of the looks so far."""

    strikes: int = 0
    applied_index: int = -1
    reason: str = ""

    @property
    def is_over(self) -> bool:
        """The process should end, for ``reason``."""
        return self.strikes >= STRIKES_MAX


def look(watch: WatchdogReading, *, tick_age_ms: int, commit_index: int, applied_index: int) -> WatchdogReading:
    """One more look at the log's thread."""
    if tick_age_ms > TICK_AGE_MS_MAX:
        reason = f"the log's thread has not ticked for {tick_age_ms} ms"
    # Committed and never applied: a listener that blocks, or an entry that loops. The thread may tick all the same, the
    # leader keep its lead by heartbeats, and no election of any set ever be applied here.
    elif commit_index > applied_index and applied_index == watch.applied_index:
        reason = f"index {commit_index} is committed, applied is {applied_index} and does not move"
    else:
        return WatchdogReading(applied_index=applied_index)  # strikes count in a row only
    return replace(watch, strikes=watch.strikes + 1, applied_index=applied_index, reason=reason)
