"""
What slaves lack whose links broke: kept for ``BACK_MS``. A link comes again within seconds; without this the next look
would delete what its slave still lacks, and the copy would begin anew (R31).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rollcall_ha.controller.contract.ids import BrokerId, LogOffset
from rollcall_ha.ha.errors import ErrorCode

BACK_MS: Final = 60_000


class LeftCopies:
    """The copies that one master has no link to at the moment."""

    def __init__(self) -> None:
        self._left: dict[BrokerId, tuple[LogOffset, int]] = {}

    def note(self, broker_id: BrokerId, acked: LogOffset, now_ms: int, code: ErrorCode | None = None) -> None:
        """Its link is closed, for ``code``; it had acknowledged everything below ``acked``."""
        if code is not ErrorCode.OFFSET_UNSERVED:  # what it lacked is deleted
            self._left[broker_id] = acked, now_ms + BACK_MS

    def beside(self, here: Sequence[tuple[BrokerId, LogOffset]], now_ms: int) -> list[tuple[BrokerId, LogOffset]]:
        """The copies on links, and those that may come back."""
        back = {broker_id for broker_id, _ in here}
        self._left = {one: left for one, left in self._left.items() if one not in back and now_ms < left[1]}
        return [*here, *((broker_id, acked) for broker_id, (acked, _) in self._left.items())]

    def let_go(self, start: LogOffset) -> None:
        self._left = {one: left for one, left in self._left.items() if left[0] >= start}
