"""
Whether this process should end because its Raft part has stopped while its loop turns.

Here: the judgement over several looks, pure. Not here: looking and ending (``api.server``).

Rule: one bad look proves nothing (the whole process may have been paused: then the log has had no time either);
``STRIKES_MAX`` looks in a row do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

LOOK_INTERVAL_MS = 1_000
STRIKES_MAX = 10
TICK_AGE_MS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchdogReading:
    """What the looks so far have shown."""

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
    elif commit_index > applied_index and applied_index == watch.applied_index:
        reason = f"index {commit_index} is committed, applied is {applied_index} and does not move"
    else:
        return WatchdogReading(applied_index=applied_index)
    return replace(watch, strikes=watch.strikes + 1, applied_index=applied_index, reason=reason)
