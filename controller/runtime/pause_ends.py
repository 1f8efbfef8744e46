"""
Ending pauses of elections whose time is over: a duty of the leader, as a machine.

Rule: the leader's wall clock says when, and the end is an entry (``core.pauses`` rule 2). A clock that was set ends
pauses sooner or later than was asked, by its step; it elects nobody by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rollcall_ha.controller.contract.commands import ResumeElections
from rollcall_ha.controller.contract.ids import SetKey
from rollcall_ha.controller.contract.values import ElectionPause
from rollcall_ha.controller.runtime.actions import ProposeCommand
from rollcall_ha.controller.runtime.session_state import NS_PER_MS

LOOK_INTERVAL_MS = 1_000
ENDS_PER_LOOK_MAX = 100

PausesNow = Callable[[], tuple[Mapping[SetKey | None, ElectionPause], int]]
"""The pauses of the newest applied state, and UTC in milliseconds."""


class PauseEnds:
    """``tick`` while this controller leads; a repeated proposal changes nothing."""

    def __init__(self, pauses_now: PausesNow) -> None:
        self._pauses_now = pauses_now
        self._look_ns = 0

    def tick(self, now_ns: int) -> list[ProposeCommand]:
        """The ends that are due, each second at most once."""
        if now_ns < self._look_ns:
            return []
        self._look_ns = now_ns + LOOK_INTERVAL_MS * NS_PER_MS
        pauses, wall_ms = self._pauses_now()
        due = [pause for pause in pauses.values() if pause.expires_at_ms <= wall_ms][:ENDS_PER_LOOK_MAX]
        return [
            ProposeCommand(command=ResumeElections(set_key=one.set_key, expired_at_ms=one.expires_at_ms)) for one in due
        ]
