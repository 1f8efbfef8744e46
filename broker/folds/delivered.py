"""
What was delivered of the messages that wait at each level: a fold of the records that are such deliveries.

Here: the numbers, the steps by which a cut takes them back. Not here: reading all records (``dispatcher``), delivering
(``broker.delaying``).

Rule 1: a level delivers in the order of its queue, so its highest delivered place says all: the next one is the first
that is in no record.
Rule 2: numbers cannot be taken back one by one. A cut goes back to a step at or below its end, and reads the log from
there; without a step, from the log's first byte.
Rule 3: a log that has lost its front may give a lower number, and the same deliveries are made: a delivery lies behind
what it delivers, so what is in the log and was delivered has its delivery there, and the rest is below the queue's
first unit. For that readers begin at the higher one of the two, and a message that waits holds the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rollcall_ha.broker.log.reader import LogReader
from rollcall_ha.broker.log.record import index_fields
from rollcall_ha.broker.protocol.delays import DELIVERED, LEVEL_DELAYS_MS, delivered_place
from rollcall_ha.epoch.model import LogOffset

STEPS_MAX: Final = 16
STEP_BYTES_MIN: Final = 64 * 1024 * 1024
"""Between two steps but the last; marks come about as often: a cut within the last GiB reads twice as much at most."""
SCAN_BYTES: Final = 1024 * 1024
Step = tuple[LogOffset, tuple[int, ...]]
"""The numbers of the records below a place in the log."""
_NOTHING: Final = (0,) * len(LEVEL_DELAYS_MS)


class Delivered:
    """The numbers of one log. On the loop, or by the thread that cuts while the folds rest."""

    def __init__(self) -> None:
        """Of a log without deliveries."""
        self.following = list(_NOTHING)
        """By level, from 0: the offset in its queue of the next one to deliver."""
        self._steps: list[Step] = []

    def take(self, properties: bytes) -> None:
        """Of the next record that has the property. Total; taken twice it counts once."""
        place = delivered_place(properties)
        if place is not None:
            level, queue_offset = place
            self.following[level - 1] = max(self.following[level - 1], queue_offset + 1)

    def note_step(self, offset: int) -> tuple[Step, ...]:
        """The records below ``offset`` are taken: the steps for a mark there."""
        steps = self._steps
        if not steps or steps[-1][0] < offset:
            # Each stop makes a mark: a day of restarts would push out all steps that lie far enough back for a cut.
            if len(steps) > 1 and steps[-1][0] - steps[-2][0] < STEP_BYTES_MIN:
                steps = steps[:-1]
            self._steps = [*steps[1 - STEPS_MAX :], (LogOffset(offset), tuple(self.following))]
        return tuple(self._steps)

    def load(self, steps: Iterable[Step]) -> None:
        """Of a mark; ``cut`` brings the numbers."""
        self._steps = list(steps)

    def cut(self, reader: LogReader, start: int, end: int) -> None:
        """
        *Blocking*. The numbers of the records below ``end``, of a log that begins at ``start`` (rule 2).

        Raises ``OSError``, ``RecordError``, ``LookupError``.
        """
        self._steps = [step for step in self._steps if start <= step[0] <= end]
        at, following = self._steps[-1] if self._steps else (start, _NOTHING)
        self.following = list(following)
        while at < end:
            segment, places, stop = reader.run(at, end, SCAN_BYTES)
            for place in places:
                properties = index_fields(segment.view, place)[4]
                if DELIVERED in properties:
                    self.take(properties)
            # Half a record is none.
            if stop == at:
                break
            at = stop
