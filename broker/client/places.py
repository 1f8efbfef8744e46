"""
Places for messages that wait for their answer: so many messages, and so many bytes.

Rule 1: callers get places in the order of asking; a later one does not overtake.
Rule 2: a message enters while there is any room, so the bytes may pass their limit by those of one message: a message
larger than the limit would else wait for ever.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

_Wanted = tuple[Sequence[int], int]
"""Bytes of each message of a call, and the first one that has no place."""


class Places:
    """The places of one producer, and the line before them; all on one loop."""

    def __init__(self, *, messages_max: int, bytes_max: int) -> None:
        self.messages = 0
        self.size_bytes = 0
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._line: deque[tuple[_Wanted, asyncio.Future[int]]] = deque()

    async def take(self, sizes_bytes: Sequence[int], first: int) -> int:
        """Wait for places for messages ``first`` and on, one at least; how many have one. 0: ``close`` was called."""
        wanted = sizes_bytes, first
        if not self._line and self._has_room():
            return self._enter(wanted)
        turn: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._line.append((wanted, turn))
        try:
            return await turn
        except asyncio.CancelledError:
            # Given, and cancelled before it ran: these places would be nobody's, for ever.
            if turn.done() and not turn.cancelled():
                self.give(turn.result(), sum(sizes_bytes[first : first + turn.result()]))
            raise

    def give(self, messages: int, size_bytes: int) -> None:
        """Places are free again."""
        self.messages -= messages
        self.size_bytes -= size_bytes
        while self._line and self._has_room():
            wanted, turn = self._line.popleft()
            if not turn.done():
                turn.set_result(self._enter(wanted))

    def close(self) -> None:
        """Callers that wait for a place get none."""
        for _, turn in self._line:
            if not turn.done():
                turn.set_result(0)
        self._line.clear()

    def _has_room(self) -> bool:
        return self.messages < self._messages_max and self.size_bytes < self._bytes_max

    def _enter(self, wanted: _Wanted) -> int:
        sizes_bytes, first = wanted
        at, end = first, min(len(sizes_bytes), first + self._messages_max - self.messages)
        size_bytes, bytes_max = self.size_bytes, self._bytes_max
        while at < end and size_bytes < bytes_max:
            size_bytes += sizes_bytes[at]
            at += 1
        self.size_bytes = size_bytes
        self.messages += at - first
        return at - first
