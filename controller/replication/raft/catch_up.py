"""
A member that has lost its disk, and when it may vote and be counted again.

It may have forgotten a vote, and entries that it once acknowledged. Stock PySyncObj lets it vote at once: c3 has voted
for c2 in term 5, loses its disk, votes for c1 in 5, and there are two leaders of one term. Here it waits until neither
matters any more:

Rule 1: a majority without this member has answered, in the leader's term, an append that was sent after the member
came back. A leader of a higher term that was elected by the forgotten vote would share a member with that majority,
and that member would not have answered the lower term.
Rule 2: this member has applied everything that the leader's log held when it came back. Whatever it once acknowledged
to this or an earlier leader is in there, committed or not.
Rule 3: until then it neither votes nor stands, and its answers count for nothing. A new leader or term begins anew.
"""

from __future__ import annotations

import msgspec

CATCHING_UP_FILE_NAME = "CATCHING_UP"
"""Marks a node that began with an empty directory and is no founder; removed once it is a voter."""


class _Goal(msgspec.Struct, frozen=True):
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
        # Another leader, or the same in another term: send time and end of the log were the other one's.
        if goal is None or (goal.leader, goal.term) != (leader, term):
            self._goal = _Goal(leader, term, sent_ns, last_index)
            return False
        # ``confirmed_ns`` is the leader's: only it knows its majority, and this member's own answers are not in it.
        return confirmed_ns >= goal.asked_ns and applied_index >= goal.last_index
