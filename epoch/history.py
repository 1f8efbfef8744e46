"""
The epoch history of one log, as an immutable value: lookup, growth, cutting, and the point up to which two logs agree.

Not here: bytes (``codec``), files (``store``), what a replica does with a cut point (``ha.truncation``).
Rule 1: epochs and starts both grow strictly (D1). An epoch that got no byte is replaced by the next one: it is neither
kept nor a reason to refuse the next one (W4, S24).
Rule 2: an epoch ends where the next one starts, the last one where the log ends; every answer is clamped to that (W5,
R9).
Rule 3: a start never changes, not even when old segments are deleted (R20, D2).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import final

from rollcall_ha.epoch.model import NO_EPOCH, EpochEntry, LogOffset, MasterEpoch


class EpochOrderError(ValueError):
    """An entry does not fit behind the ones that are there; the message names both."""


def _start_of(entry: EpochEntry) -> LogOffset:
    return entry.start_offset


def _epoch_of(entry: EpochEntry) -> MasterEpoch:
    return entry.epoch


@final
class EpochHistory:
    """Entries of one log, oldest first; equal histories are equal values."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        """Raises ``EpochOrderError`` unless epochs and starts both grow strictly and nothing is negative."""
        self._entries = tuple(entries)
        previous: EpochEntry | None = None
        for entry in self._entries:
            if entry.epoch < 0 or entry.start_offset < 0:
                raise EpochOrderError(f"{_show(entry)} has a negative number")
            # Two entries with one start: which of the two masters wrote the byte there? The handshake would take the
            # answer of one log for that of the other, and keep bytes that differ (D3).
            if previous and (entry.epoch <= previous.epoch or entry.start_offset <= previous.start_offset):
                raise EpochOrderError(f"{_show(entry)} does not grow from {_show(previous)}")
            previous = entry

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return self._entries

    @property
    def last(self) -> EpochEntry | None:
        return self._entries[-1] if self._entries else None

    @property
    def last_epoch(self) -> MasterEpoch:
        """Epoch of the newest entry, ``NO_EPOCH`` if there is none."""
        return self._entries[-1].epoch if self._entries else NO_EPOCH

    def get(self, epoch: MasterEpoch) -> EpochEntry | None:
        """The entry of exactly this epoch."""
        index = bisect_right(self._entries, epoch, key=_epoch_of) - 1
        return self._entries[index] if index >= 0 and self._entries[index].epoch == epoch else None

    def find_by_offset(self, offset: LogOffset) -> EpochEntry | None:
        """The epoch that a byte at ``offset`` belongs to; None before the first start."""
        index = bisect_right(self._entries, offset, key=_start_of) - 1
        return self._entries[index] if index >= 0 else None

    def next(self, epoch: MasterEpoch) -> EpochEntry | None:
        """The first entry with a larger epoch."""
        index = bisect_right(self._entries, epoch, key=_epoch_of)
        return self._entries[index] if index < len(self._entries) else None

    def end_of(self, epoch: MasterEpoch, log_end: LogOffset) -> LogOffset:
        """Where the bytes of ``epoch`` end: the next start or the end of the log, whichever comes first."""
        following = self.next(epoch)
        # Clamped: after a crash the log may end before the next entry starts, and bytes up to there would be taken for
        # common ones that this log does not have (W5).
        return log_end if following is None else min(following.start_offset, log_end)

    def appended(self, entry: EpochEntry) -> EpochHistory:
        """
        This history with one more epoch. A last epoch without a byte (same start) is replaced (W4, S24).

        Raises:
            EpochOrderError: the epoch does not grow, or it would start before the last one did.
        """
        last = self.last
        if last is None:
            return EpochHistory((entry,))
        # Entered twice, epoch 3 would start at 900 in one history and at 700 in another; nothing would be cut (W3).
        if entry.epoch <= last.epoch:
            raise EpochOrderError(f"epoch {entry.epoch} does not grow from {last.epoch}: an epoch is entered once")
        # Master 1 was elected in 2 and died before its first byte; now 3 starts at the same offset. RocketMQ refuses
        # the new entry: its bytes land under 2, a later handshake cuts nothing, and a wrong record is acked (W4).
        kept = self._entries[:-1] if entry.start_offset == last.start_offset else self._entries
        return EpochHistory((*kept, entry))

    def common_entry(self, other: EpochHistory) -> EpochEntry | None:
        """The newest entry that both have, with the same start."""
        for entry in reversed(self._entries):
            # Epoch and start: an epoch number that was issued twice (wiped controllers) is not one epoch.
            if other.get(entry.epoch) == entry:
                return entry
        return None

    def consistent_point(self, own_end: LogOffset, other: EpochHistory, other_end: LogOffset) -> LogOffset | None:
        """
        End of what the two logs have in common; never beyond either end (W5). None: no epoch in common (S29).

        The newest common epoch decides: in it both hold the same bytes up to the shorter of its two ends (D3).
        """
        common = self.common_entry(other)
        if common is None:
            return None
        return min(self.end_of(common.epoch, own_end), other.end_of(common.epoch, other_end))

    def truncated_suffix(self, offset: LogOffset) -> EpochHistory:
        """Without the entries that start at or behind ``offset``: what is left when the log is cut there."""
        # ``<``: an entry that starts at the cut has lost all its bytes. Kept, it would claim the next master's.
        return EpochHistory(entry for entry in self._entries if entry.start_offset < offset)

    def truncated_prefix(self, offset: LogOffset) -> EpochHistory:
        """Without the entries whose bytes all lie below ``offset``: what is left when the log begins there."""
        first = max(bisect_right(self._entries, offset, key=_start_of) - 1, 0)
        return EpochHistory(self._entries[first:])

    def repaired(self, log_end: LogOffset) -> EpochHistory:
        """Without the entries that begin beyond the end of the log: for a start after bytes were lost (R9, W5)."""
        # Without it the log ends at 500 and its last epoch "starts" at 900: what is appended at 500 belongs to no
        # epoch, and a slave cannot tell whose it is. ``<=``: an entry at the end is an epoch that has no byte yet.
        return EpochHistory(entry for entry in self._entries if entry.start_offset <= log_end)

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        return self._entries == other._entries if isinstance(other, EpochHistory) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._entries)

    def __repr__(self) -> str:
        return f"EpochHistory({' '.join(map(_show, self._entries)) or 'empty'})"


def _show(entry: EpochEntry) -> str:
    return f"{entry.epoch}:{entry.start_offset}"
