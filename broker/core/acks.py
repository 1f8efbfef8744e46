"""
Sends that wait until confirm has passed them.

Here: the waiters of one masterEpoch, in the order of their ends. Not here: confirm itself (``ha.confirm_offset``), the
form of an answer (``broker.handlers``).

Rule 1 (R17): a table belongs to the epoch in which its waiters appended. Leaving the epoch fails all of them as
"outcome unknown" and ends the table; the next epoch gets a new one.
Rule 2: ends are registered in rising order, so a release is a walk from the left: amortised O(1).
Rule 3: one waiter per batch of one client, not per message.
Rule 4: a waiter that has waited too long is told "outcome unknown", too, and is gone. Its bytes stay in the log: until
confirm has passed them, ``waiting_since_us`` counts from it.
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
        self._expired_end = LogOffset(0)
        self._expired_since_us: int | None = None
        self._messages_max = waiting_messages_max
        self._bytes_max = waiting_bytes_max
        self._waiting: deque[tuple[LogOffset, int, int, int, Token]] = deque()
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
    def waiting_since_us(self) -> int | None:
        """When the oldest batch that is not confirmed was registered, expired ones included; None = all are."""
        # Without the expired ones a stop of writes, which is told by this age, would end with nothing confirmed.
        if self._expired_since_us is not None:
            return self._expired_since_us
        return self._waiting[0][3] if self._waiting else None

    def register(self, end: LogOffset, token: Token, *, messages: int, size_bytes: int, now_us: int) -> None:
        """
        ``token`` waits until everything below ``end`` is confirmed; ``now_us`` never falls.

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
        self._waiting.append((end, messages, size_bytes, now_us, token))
        self.waiting_messages += messages
        self.waiting_bytes += size_bytes

    def release(self, confirm: LogOffset) -> list[Token]:
        """Tokens of all ends at or below ``confirm``, in order. A lower confirm than before releases nothing."""
        waiting = self._waiting
        released: list[Token] = []
        while waiting and waiting[0][0] <= confirm:
            self.released_offset = max(self.released_offset, waiting[0][0])
            released.append(self._pop())
        if confirm >= self._expired_end:
            self._expired_since_us = None
        return released

    def expire(self, before_us: int) -> list[Token]:
        """Tokens that were registered before then and still wait, in order: their outcome is unknown (R18)."""
        expired: list[Token] = []
        while self._waiting and self._waiting[0][3] < before_us:
            self._expired_since_us = self.waiting_since_us
            self._expired_end = self._waiting[0][0]
            expired.append(self._pop())
        return expired

    def _pop(self) -> Token:
        _, messages, size_bytes, _, token = self._waiting.popleft()
        self.waiting_messages -= messages
        self.waiting_bytes -= size_bytes
        return token

    def fail_all(self) -> list[Token]:
        """
        End the epoch: every waiter, in order, to be told "outcome unknown" (R17). Nothing can be registered
        afterwards.
        """
        self._is_ended = True
        failed = [token for *_, token in self._waiting]
        self._waiting.clear()
        self.waiting_messages = 0
        self.waiting_bytes = 0
        return failed
