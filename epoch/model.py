"""
The numbers of an epoch history, and its entry: from which offset on the master of an epoch wrote.

Not here: what a list of entries may look like (``history``), bytes (``codec``), files (``store``).
"""

from __future__ import annotations

from typing import NewType

import msgspec

MasterEpoch = NewType("MasterEpoch", int)
"""Number of one reign over a broker set. Only rises, is issued once, for ever. 0 = data from before any master."""

LogOffset = NewType("LogOffset", int)
"""A byte position in a commit log, counted from the log's beginning; never negative."""

NO_EPOCH = MasterEpoch(-1)
"""What an empty epoch history answers as its last epoch (the wire's value)."""


class EpochEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """
    The master of ``epoch`` appended its first byte at ``start_offset``.

    The end is implied: the start of the next entry, or the end of the log (D1, D2).
    """

    epoch: MasterEpoch
    start_offset: LogOffset
