"""
Sends that wait until confirm has passed them.

Here: the waiters of one masterEpoch, in the order of their ends. Not here: confirm itself (``ha.confirm_offset``), the
form of an answer (``broker.handlers``).

Rule 1 (R17): a table belongs to the epoch in which its waiters appended. Leaving the epoch fails all of them as
"outcome unknown" and ends the table; the next epoch gets a new one.
Rule 2: ends are registered in rising order, so a release is a walk from the left: amortised O(1).
Rule 3: one waiter per batch of one client, not per message.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from rollcall_ha.epoch.model import LogOffset, MasterEpoch

Token = TypeVar("Token")


class WaitingSends(Generic[Token]):
    """Waiters of ``master_epoch``; ``Token`` is the caller's own value for each."""

    def __init__(self, master_epoch: MasterEpoch, *, waiting_messages_max: int, waiting_bytes_max: int) -> None:
        """Both limits count registered sends that are not yet released."""
        self.master_epoch = master_epoch
        self.waiting_messages = 0
        self.waiting_bytes = 0
        self.released_offset = LogOffset(0)
        """Highest end that was released in this epoch."""
        self._messages_max = waiting_messages_max
        self._bytes_max = waiting_bytes_max
        self._waiting: deque[tuple[LogOffset, int, int, Token]] = deque()
        self._is_ended = False

    def has_room(self) -> bool:
        """
        Whether another batch may be appended.

        Asked before the append: an appended batch is always registered, so the limits can be passed by one batch.
        """
        return (
            not self._is_ended and self.waiting_messages < self._messages_max and self.waiting_bytes < self._bytes_max
        )

    @property
    def oldest(self) -> Token | None:
        """The waiter that was registered first; None = nobody waits."""
        return self._waiting[0][3] if self._waiting else None

    def register(self, end: LogOffset, token: Token, *, messages: int, size_bytes: int) -> None:
        """
        ``token`` waits until everything below ``end`` is confirmed.

        Raises:
            ValueError: the epoch has ended, or ``end`` is below the last registered one (rule 2).
        """
        # Appended at 950 in epoch 2, demoted, cut to 900, followed to 1100, elected again in 4: "acks reach 950" would
        # release a message that is gone. So no waiter outlives its epoch.
        if self._is_ended:
            raise ValueError(f"masterEpoch {self.master_epoch} has ended: nobody may wait in it (R17)")
        # ``release`` stops at the first end above confirm: a lower one behind it would wait although it is confirmed.
        if self._waiting and end < self._waiting[-1][0]:
            raise ValueError(f"end {end} is below the last registered end {self._waiting[-1][0]}")
        self._waiting.append((end, messages, size_bytes, token))
        self.waiting_messages += messages
        self.waiting_bytes += size_bytes

    def release(self, confirm: LogOffset) -> list[Token]:
        """Tokens of all ends at or below ``confirm``, in order. A lower confirm than before releases nothing."""
        waiting = self._waiting
        released: list[Token] = []
        while waiting and waiting[0][0] <= confirm:
            end, messages, size_bytes, token = waiting.popleft()
            self.waiting_messages -= messages
            self.waiting_bytes -= size_bytes
            self.released_offset = max(self.released_offset, end)
            released.append(token)
        return released

    def fail_all(self) -> list[Token]:
        """
        End the epoch: every waiter, in order, to be told "outcome unknown" (R17). Nothing can be registered
        afterwards.
        """
        self._is_ended = True
        failed = [token for _, _, _, token in self._waiting]
        self._waiting.clear()
        self.waiting_messages = 0
        self.waiting_bytes = 0
        return failed
