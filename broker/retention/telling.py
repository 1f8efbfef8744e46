"""
A master writes into its log where all queues go on, before the log loses their older records.

Here: when, and one record after the other. Not here: the form of a record (``broker.log.told_queues``).

Rule: one telling at a time. One that is refused, or ends with its epoch, is begun anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.broker.log.told_queues import TOPIC, parts_of
from rollcall_ha.broker.ports import Appender

AGAIN_SEGMENTS: Final = 8
"""Told at least so often: a slave with a fuller disk than its master's can delete what was told of."""


class Telling:
    """On the loop."""

    def __init__(self, log: CommitLog, appender: Appender) -> None:
        self._log = log
        self._appender = appender
        self._left: Iterator[bytes] | None = None

    def is_due(self, told_since: int, wanted_to: int) -> bool:
        """Whether a log that is to begin at ``wanted_to`` needs one, or the last one is old."""
        log, last = self._log, self._log.history.last
        far_bytes = log.whole_offset - told_since
        # Once in a reign, too: the election before may have cut the last telling, which a log without its front needs.
        is_older = last is not None and told_since < last.start_offset
        return wanted_to > told_since or is_older or far_bytes >= AGAIN_SEGMENTS * log.segment_bytes

    def begin(self) -> None:
        """Of a master that serves; nothing is done while one is on its way, or the index is behind."""
        log = self._log
        if self._left is None and log.unindexed_bytes == 0 and log.max_offset == log.whole_offset:
            self._left = parts_of(tuple(log.queues.rows()), log.whole_offset)
            self._next("")

    def _next(self, refusal: str) -> None:
        properties = None if refusal or self._left is None else next(self._left, None)
        if properties is None:
            self._left = None
        else:
            self._appender.append(TOPIC, 0, b"", properties, self._next)
