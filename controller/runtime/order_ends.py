"""
Ending pauses of elections and maintenances whose time is over: a duty of the leader, as a machine.

Rule: the leader's wall clock says when, and the end is an entry (``core.pauses`` rule 2). A clock that was set ends
them sooner or later than was asked, by its step; it elects nobody by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from rollcall_ha.controller.contract.commands import AnyCommand, EndMaintenance, ResumeElections
from rollcall_ha.controller.contract.timing import NS_PER_MS
from rollcall_ha.controller.core.actions import ProposeCommand
from rollcall_ha.controller.core.state import FleetState

LOOK_INTERVAL_MS = 1_000
ENDS_PER_LOOK_MAX = 100

FleetNow = Callable[[], tuple[FleetState, int]]
"""The newest applied state, and UTC in milliseconds."""


class OrderEnds:
    """``tick`` while this controller leads; a repeated proposal changes nothing."""

    def __init__(self, fleet_now: FleetNow) -> None:
        self._fleet_now = fleet_now
        self._look_ns = 0

    def tick(self, now_ns: int) -> list[ProposeCommand]:
        """The ends that are due, each second at most once."""
        if now_ns < self._look_ns:
            return []
        self._look_ns = now_ns + LOOK_INTERVAL_MS * NS_PER_MS
        fleet, wall_ms = self._fleet_now()
        pauses = (
            ResumeElections(set_key=one.set_key, expired_at_ms=one.expires_at_ms)
            for one in fleet.pauses.values()
            if one.expires_at_ms <= wall_ms
        )
        maintenances = (
            EndMaintenance(scope=one.scope, expired_at_ms=one.expires_at_ms)
            for one in fleet.maintenances.values()
            if one.expires_at_ms <= wall_ms
        )
        due: list[AnyCommand] = [*islice(pauses, ENDS_PER_LOOK_MAX), *islice(maintenances, ENDS_PER_LOOK_MAX)]
        return [ProposeCommand(command=command) for command in due]
