"""
Locks of queues, for consumers that read in order: who may have one now.

Here: judging a request against the holder. Not here: who the holder is, which is replicated (``offsets_core``), and the
answers (``groups``).

Rule 1: a lock is its holder's until it gives it back, or has not asked for it for ``LOCK_MS_MAX`` by this broker's
clock.
Rule 2: renewals are in memory, as long as a record of this master was confirmed within ``LOCK_PROOF_MS``. A new master
has heard none, and counts from when it became master: it honours the locks of its predecessor, whose holders would
otherwise read on beside new ones.
Rule 3: without that proof a lock is written again, and told when that is confirmed. A master that was cut off would
renew it for ever, beside the holder that its successor has found meanwhile.
Rule 4: a lock that is granted and not confirmed yet is nobody else's.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

LOCK_MS_MAX: Final = 60_000
"""RocketMQ's clients believe in a lock for 30 s, and renew it every 20."""
LOCK_PROOF_MS: Final = 20_000
"""
A renewal at the end of that time is believed until 50 s after the proof: the next master, which came later, frees no
lock for ``LOCK_MS_MAX``.
"""
QueueName = tuple[str, str, int]
"""Group, topic and queue id."""


class LockVerdict(Enum):
    """Verdict on a request for the lock of one queue."""

    HELD = "held"
    """By the one that asks: nothing to write."""
    FREE = "free"
    """It is granted as soon as the grant is confirmed."""
    FOREIGN = "foreign"


class LockTimes:
    """When holders were last heard. Driven by one thread: the loop of the broker."""

    def __init__(self, now_ms: int) -> None:
        """Nobody was heard before ``now_ms``: the moment in which this replica became master (rule 2)."""
        self._since_ms = now_ms
        self._heard: dict[QueueName, tuple[str, int]] = {}

    def judge(
        self, queue: QueueName, holder: str, *, is_confirmed: bool, is_proved: bool, client_id: str, now_ms: int
    ) -> LockVerdict:
        """
        ``holder`` is empty if there is none; ``is_proved`` is the proof of rule 2. A holder that asks is heard by this.
        """
        if holder == client_id and is_confirmed and is_proved:
            self.hear(queue, client_id, now_ms)
            return LockVerdict.HELD
        if holder in ("", client_id):
            return LockVerdict.FREE
        if not is_confirmed:
            return LockVerdict.FOREIGN
        who, heard_ms = self._heard.get(queue, ("", 0))
        # A holder that this replica has not heard was granted the lock by another master, which heard it until its end.
        last_ms = heard_ms if who == holder else self._since_ms
        return LockVerdict.FREE if now_ms - last_ms > LOCK_MS_MAX else LockVerdict.FOREIGN

    def hear(self, queue: QueueName, client_id: str, now_ms: int) -> None:
        """The holder has asked, or was granted the lock."""
        self._heard[queue] = client_id, now_ms
