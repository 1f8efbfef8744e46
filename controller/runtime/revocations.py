"""
Telling this process and the brokers which certificates are revoked.

Here: when the list has changed, who is told, in which words. Not here: the list (``controller.core.revocations``),
closing links (each port), what a broker does with it (``broker.revocations``).

Rule 1 (R28): every controller takes the list with the entry that changes it, also as a follower, and from its snapshot
when it starts.
Rule 2 (R28): the leader pushes it to every session at once; a heartbeat that shows another number gets it again, so
that a lost push and a session that opens later are mended within one interval.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet

import msgspec

from rollcall_ha.controller.contract.codes import RequestCode
from rollcall_ha.controller.contract.session import Heartbeat, RevokedSerials
from rollcall_ha.controller.core.state import FleetState
from rollcall_ha.controller.runtime.ports import BrokerPort


class RevocationWatch:
    """The newest list that this process was told."""

    def __init__(self) -> None:
        """Nobody is told before the first change."""
        self.listeners: list[Callable[[AbstractSet[str]], None]] = []
        """Called with all revoked serial numbers."""
        self._told = 0

    def look(self, state: FleetState, port: BrokerPort | None) -> None:
        """Tell everybody if ``state`` has another list than they know; ``port``: the leader's, None = a follower's."""
        # Every 20 ms, so no comparison of lists.
        if state.revocations == self._told:
            return
        self._told = state.revocations
        serials = frozenset(state.revoked)
        for tell in self.listeners:
            tell(serials)
        if port is not None:
            port.tell_brokers(RequestCode.SESSION_REVOKED, msgspec.json.encode(_told(state)))


def _told(state: FleetState) -> RevokedSerials:
    return RevokedSerials(revocations=state.revocations, serials=tuple(state.revoked))


def unknown_to(beat: Heartbeat, state: FleetState) -> RevokedSerials | None:
    """The list, if the heartbeat asks for it and shows that its broker has another one."""
    if beat.known_revocations is None or beat.known_revocations == state.revocations:
        return None
    return _told(state)
