"""
Messages that a group refused: code 36.

Here: which record is meant, the answer. Not here: what becomes of it, a delayed message for the group or a dead letter
(``broker.delaying``).

Rule 1: 0 is answered when the copy is confirmed, and nothing but 1 or 2 before: then its client keeps the message, or
sends a copy itself. What could not be confirmed may come twice.
Rule 2: a group that refuses everything sends thousands at once: each waits as its request alone, and a turn of the loop
copies ``TURN_BYTES`` of records, in runs of appends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from rollcall_ha.broker.consuming.reading import copy_record
from rollcall_ha.broker.consuming.replies import Reply, kept, responder
from rollcall_ha.broker.delaying.records import Limits, sent_back
from rollcall_ha.broker.handlers.ports import Responder
from rollcall_ha.broker.log.record import Draft, check_body, record_bytes
from rollcall_ha.broker.ports import Around
from rollcall_ha.broker.protocol.codes import ClientCode, ClientResult
from rollcall_ha.broker.protocol.consumers import BackFields, parse_back
from rollcall_ha.broker.protocol.delays import SCHEDULE_TOPIC, DelayError
from rollcall_ha.broker.protocol.pull import Refused
from rollcall_ha.broker.protocol.record import RecordError, RecordView
from rollcall_ha.node.remoting.connection import RemotingConnection
from rollcall_ha.node.remoting.frame import Frame

RUN_RECORDS_MAX: Final = 128
RUN_BYTES_MAX: Final = 256 * 1024
ASKING_MAX: Final = 10_000
TURN_BYTES: Final = 1024 * 1024
"""Or one record, if it is longer."""
LOOK_BYTES: Final = 4 * 1024
"""So many bytes of a turn a look costs beside its record, found or not."""
_Asker = tuple[RemotingConnection, Frame]


class SendBack:
    """What groups of one replica refuse. On the loop thread."""

    def __init__(
        self,
        at: Around,
        *,
        limits: Limits,
        absence: Callable[[str], Refused | None],
        retry_times_max: Callable[[str], int],
    ) -> None:
        """``absence``: why there is no such group, None: there is; ``retry_times_max``: of a group, by its settings."""
        self.given_back = 0
        """Confirmed since the start, dead letters included."""
        self.dead_letters = 0
        self._at = at
        self._limits = limits
        self._absence = absence
        self._retry_times_max = retry_times_max
        self._asking: deque[tuple[RemotingConnection, Frame, BackFields]] = deque()
        self._drafts: list[Draft] = []
        self._askers: list[_Asker] = []
        self._size_bytes = 0

    def responders(self) -> dict[int, Responder]:
        return {ClientCode.CONSUMER_SEND_MSG_BACK: responder(self._take)}

    def _take(self, connection: RemotingConnection, frame: Frame) -> Reply | None:
        asked = parse_back(frame)
        if not self._at.standing.is_master:
            return Reply(ClientResult.SYSTEM_BUSY, f"this replica of {self._at.standing.broker_name} is not its master")
        # Each name would make two queues, which are remembered for ever.
        if (absence := self._absence(asked.group)) is not None:
            return Reply(absence.code, absence.remark)
        if len(self._asking) >= ASKING_MAX:
            return Reply(ClientResult.SYSTEM_BUSY, f"{ASKING_MAX} messages that were given back wait; retry")
        if not self._asking:
            asyncio.get_running_loop().call_soon(self._turn)
        self._asking.append((connection, kept(frame), asked))
        return None

    def _turn(self) -> None:
        """Copies of what was asked first."""
        room_bytes = TURN_BYTES
        try:
            # A new master may not have taken in yet what the one before gave.
            behind_bytes = self._at.folds.catch_up()
            while self._asking and room_bytes > 0:
                # Before the copy: refused behind it, what a link asks for in one go would stop the loop for seconds.
                # And with a full disk the client's own copy is refused, too: its group is given the message again.
                if refusal := self._at.appender.full_disk or self._at.appender.refusal():
                    askers = [(connection, frame) for connection, frame, _ in self._asking]
                    self._asking.clear()
                    self._answer(askers, 0, refusal)
                    break
                connection, frame, asked = self._asking.popleft()
                record = copy_record(self._at.folds, asked.offset)
                room_bytes -= LOOK_BYTES + len(record or b"")
                complaint = self._gather((connection, frame), asked, record, behind_bytes)
                if complaint and not frame.is_one_way:
                    Reply(ClientResult.SYSTEM_ERROR, complaint).give(connection, frame)
            self._write()
        finally:
            # Also after a fault of our own: nobody else would look at those that wait.
            if self._asking:
                asyncio.get_running_loop().call_soon(self._turn)

    def _gather(self, asker: _Asker, asked: BackFields, record: bytes | None, behind_bytes: int) -> str:
        """Into the run of this turn; returns why it is not."""
        if record is None:
            there = f"messages lie from {self._at.folds.min_offset} to {self._at.folds.confirm_offset} here"
            return f"no message begins at {asked.offset}; {there}, {behind_bytes} bytes are not taken in yet"
        said = asked.max_reconsume_times
        times_max = self._retry_times_max(asked.group) if said is None else said
        try:
            view = RecordView(memoryview(record))
            # A copy would have a CRC that fits what the disk made of it.
            check_body(view)
            draft = sent_back(view, asked.group, asked.delay_level, times_max, self._limits)
            size_bytes = record_bytes(draft, self._limits.store_host)
        except (RecordError, DelayError) as error:
            return f"the message at {asked.offset} cannot be given back: {error}"
        if self._size_bytes + size_bytes > self._run_bytes_max or len(self._drafts) >= RUN_RECORDS_MAX:
            self._write()
        self._drafts.append(draft)
        self._askers.append(asker)
        self._size_bytes += size_bytes
        return ""

    @property
    def _run_bytes_max(self) -> int:
        return min(RUN_BYTES_MAX, self._limits.record_bytes_max)

    def _write(self) -> None:
        """One run of all that was gathered."""
        drafts, askers = self._drafts, self._askers
        if not drafts:
            return
        self._drafts, self._askers, self._size_bytes = [], [], 0
        dead_letters = sum(draft.topic != SCHEDULE_TOPIC for draft in drafts)
        on_outcome: Callable[[str], None] = partial(self._answer, askers, dead_letters)
        refusal = self._at.appender.append_run(drafts, on_outcome)
        if refusal:
            on_outcome(refusal)

    def _answer(self, askers: list[_Asker], dead_letters: int, reason: str) -> None:
        reply = Reply(ClientResult.SYSTEM_ERROR, f"not confirmed: {reason}") if reason else Reply()
        if not reason:
            self.given_back += len(askers)
            self.dead_letters += dead_letters
        for connection, frame in askers:
            if not frame.is_one_way:
                reply.give(connection, frame)
