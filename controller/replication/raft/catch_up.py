"""
A member that has lost its memory, and when it may vote and be counted again (pysyncobj.md, section 10.7).

It may have forgotten a vote, and entries that it once acknowledged. Both must have stopped to matter:

Rule 1: a majority that does not include it has answered, in the leader's term, something sent after it came back. A
later leader elected by a forgotten vote would share a member with that majority, and that member would not have
answered.
Rule 2: it has applied everything that the leader's log held when it came back. What it once acknowledged to this or an
earlier leader is in there, committed or not.
Rule 3: until then it neither votes nor stands, and its answers count for nothing. A new leader or term begins anew.
"""

from __future__ import annotations

from dataclasses import dataclass

CATCHING_UP_FILE_NAME = "CATCHING_UP"
"""Marks a node that began with an empty directory and is no founder; removed once it is a voter."""


@dataclass(frozen=True, slots=True)
class _Goal:
    leader: int
    term: int
    asked_ns: int
    last_index: int


class CatchUp:
    """Fed with every append that was taken; pure."""

    def __init__(self) -> None:
        """No leader was heard yet."""
        self._goal: _Goal | None = None

    def observe(
        self, *, leader: int, term: int, sent_ns: int, confirmed_ns: int, last_index: int, applied_index: int
    ) -> bool:
        """Whether both rules hold now. ``leader`` names it; times are the leader's own."""
        goal = self._goal
        if goal is None or (goal.leader, goal.term) != (leader, term):
            self._goal = _Goal(leader, term, sent_ns, last_index)
            return False
        return confirmed_ns >= goal.asked_ns and applied_index >= goal.last_index
