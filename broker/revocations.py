"""
The certificates that this broker believes no longer (R28).

Here: taking the controllers' list, and remembering it. Not here: how it arrives (``session``), ending links
(``node.remoting.links``, ``ha.proof``).

Rule 1: a list counts from the turn in which it arrives; the file is written behind that. A start takes the file before
anything listens: with every controller dead, a revoked peer is refused all the same.
Rule 2: nothing is ever believed again: controllers that lost their memory send an empty list. Beyond ``SERIALS_MAX``
the oldest go, which controllers would have forgotten as expired.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from rollcall_ha.controller.contract.session import RevokedSerials
from rollcall_ha.node.telemetry import get_logger
from rollcall_ha.node.tls import Credentials

SERIALS_MAX = 2_000
"""Twice what controllers keep."""

_log = get_logger("revocations")


class RevokedPeers:
    """The list of one process."""

    def __init__(
        self,
        credentials: Credentials,
        remembered: RevokedSerials | None,
        store: Callable[[RevokedSerials], Future[None]],
    ) -> None:
        """``remembered``: as the file has it. ``store`` writes it, on the thread of the disk."""
        self._credentials = credentials
        self._store = store
        self._list = remembered or RevokedSerials(revocations=0, serials=())
        credentials.revoke(frozenset(self._list.serials))

    @property
    def known(self) -> int:
        """Number of the newest list, for heartbeats."""
        return self._list.revocations

    def take(self, told: RevokedSerials) -> None:
        """A list of the controllers."""
        if told.revocations == self._list.revocations:
            return
        serials = tuple(dict.fromkeys((*told.serials, *self._list.serials)))[:SERIALS_MAX]
        self._list = RevokedSerials(revocations=told.revocations, serials=serials)
        self._credentials.revoke(frozenset(serials))
        self._store(self._list).add_done_callback(_complain)


def _complain(written: Future[None]) -> None:
    # The list is in force, and the next start asks for it again: no reason to end a process that serves.
    if not written.cancelled() and (error := written.exception()) is not None:
        _log.error("revocations_not_written", error=repr(error))
