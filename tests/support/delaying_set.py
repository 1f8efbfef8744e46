"""
Masters of one log on disk, one after the other, on virtual time: what they deliver of messages that wait.

``DelayingSet`` is the set; what a reign did not get confirmed may be cut by the next one, as in a failover.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import NamedTuple

from rollcall_ha.broker.log.cut import QUARANTINE_FOLDER_NAME
from rollcall_ha.broker.log.values import CutReason
from rollcall_ha.broker.protocol.delays import LEVEL_DELAYS_MS, SCHEDULE_TOPIC
from rollcall_ha.broker.protocol.properties import last_value
from rollcall_ha.broker.protocol.record import RecordView
from rollcall_ha.broker.protocol.send import SendRequest, encode_send, parse_frame
from rollcall_ha.epoch.model import EpochEntry, LogOffset, MasterEpoch
from rollcall_ha.node.remoting.frame import Frame, decode_frame
from tests.support.fold_tools import confirm_all
from tests.support.log_broker import LogBroker
from tests.support.log_tools import read_by_the_document
from tests.support.sim_loop import SimLoop

START_MS = 1_700_000_000_000


class Stored(NamedTuple):
    """A record, as the log has it."""

    topic: bytes
    queue_id: int
    queue_offset: int
    body: bytes
    properties: bytes
    stored_at_ms: int
    reconsume_times: int
    place: int
    end: int


class Sink:
    """A client that remembers its answers by opaque."""

    peer_host = b"\x7f\x00\x00\x01" + (4242).to_bytes(4, "big")

    def __init__(self) -> None:
        self.answers: dict[int, Frame] = {}

    def write_answers(self, data: bytes) -> None:
        while data:
            end = 4 + int.from_bytes(data[:4], "big")
            answer = decode_frame(data[4:end])
            self.answers[answer.opaque] = answer
            data = data[end:]


class DelayingSet:
    """A set whose master is one process, or one after the other, on one folder."""

    def __init__(self, root: Path, loop: SimLoop) -> None:
        self.root = root
        self.loop = loop
        self.sink = Sink()
        self.epoch = 0
        self.sent = 0
        self.skew_ms = 0
        """Of the master's clock."""
        self.broker = self._started()
        self.lead()

    def _started(self) -> LogBroker:
        broker = LogBroker(self.root, 1)
        broker.confirms_at_once = False
        broker.wall_ms = self.now_ms
        broker.folds.start(broker._marks)
        broker.room.start()
        return broker

    def now_ms(self) -> int:
        return START_MS + int(self.loop.time() * 1000) + self.skew_ms

    # --- reigns ---

    def lead(self) -> None:
        self.epoch += 1
        log = self.broker.log
        log.record_epoch(EpochEntry(epoch=MasterEpoch(self.epoch), start_offset=log.max_offset))
        self.broker.lead(self.epoch)

    def fail_over(self, keep: int | None = None, *, is_restarted: bool = False) -> None:
        """Another reign, with the log up to ``keep``, all of it by default: by this process, or by a new one."""
        old = self.broker
        old.follow()
        if is_restarted:
            self.close()
            self.broker = self._started()
        broker = self.broker
        if keep is not None and keep < broker.log.max_offset:
            broker.folds.rest(is_resting=True)
            broker.folds.before_cut()
            # The logs of tests have one time for all: a second cut at the same place would take itself for done.
            shutil.rmtree(self.root / QUARANTINE_FOLDER_NAME, ignore_errors=True)
            broker.log.cut(LogOffset(keep), CutReason.TRUNCATION)
            broker.folds.cut(broker.log.max_offset)
            broker.folds.rest(is_resting=False)
        self.lead()

    def confirm(self, offset: int | None = None) -> None:
        """Up to ``offset``, by default all: who waits hears it."""
        log = self.broker.log
        end = log.max_offset if offset is None else LogOffset(offset)
        log.note_confirm(end, LogOffset(0))
        self.broker.put.release(end)

    def settle(self) -> None:
        """Everything is confirmed, and taken in."""
        self.confirm()
        while self.broker.folds.catch_up():
            confirm_all(self.broker.log)

    def close(self) -> None:
        broker = self.broker
        broker.room.close()
        broker.folds.rest(is_resting=True)
        broker._marks.shutdown()
        broker.log.close(is_clean=False)

    # --- messages ---

    def send(self, level: int = 1, *, topic: str = "T", queue_id: int = 0, properties: str = "", **fields: int) -> int:
        """A message that asks for ``level``, 0: none; its number, which is its body and opaque."""
        self.sent += 1
        delay = f"DELAY\x01{level}\x02" if level else ""
        raw = encode_send(
            opaque=self.sent, group="g", topic=topic, queue_id=queue_id, born_at_ms=7, properties=delay + properties,
            body=b"%d" % self.sent,
        )  # fmt: skip
        request = parse_frame(memoryview(raw)[4:])
        assert isinstance(request, SendRequest)
        for name, value in fields.items():
            setattr(request.header.extFields, name, value)
        self.broker.put.handle(self.sink, [request])
        return self.sent

    def code(self, number: int) -> int | None:
        """Of the answer to a message; None: there is none yet."""
        answer = self.sink.answers.get(number)
        return None if answer is None else answer.code

    def records(self, topic: bytes | None = None) -> list[Stored]:
        """Of the log, in its order."""
        found = []
        for plain in read_by_the_document(self.root / "commitlog"):
            view = self.broker.log.reader.record(plain.offset, plain.size)
            assert view is not None
            with view:
                record = RecordView(view)
                stored = Stored(
                    plain.topic, plain.queue_id, plain.queue_offset, plain.body, plain.properties, record.stored_at_ms,
                    record.reconsume_times, plain.offset, plain.offset + plain.size,
                )  # fmt: skip
            if topic is None or stored.topic == topic:
                found.append(stored)
        return found

    def bodies(self, topic: bytes = b"T") -> list[int]:
        """Numbers of the messages that a topic has, in its order."""
        return [int(each.body) for each in self.records(topic)]


def check_laws(records: list[Stored], *, is_over: bool) -> None:
    """
    What was delivered waited in its place, once, in the order of its level, and not before its time.

    ``is_over``: nothing waits any more.
    """
    waiting = {(each.queue_id + 1, each.queue_offset): each for each in records if each.topic == SCHEDULE_TOPIC}
    following: dict[int, int] = {}
    for each in records:
        mark = last_value(each.properties, b"ROLLCALL_DELIVERED\x01")
        if not mark:
            continue
        place = re.fullmatch(rb"(\d+):(\d+)", mark)
        assert place is not None, mark
        level, queue_offset = int(place[1]), int(place[2])
        original = waiting[level, queue_offset]
        assert queue_offset == following.get(level, 0), f"level {level}: {queue_offset} after {following.get(level, 0)}"
        following[level] = queue_offset + 1
        assert each.body == original.body
        assert each.place > original.place
        assert each.stored_at_ms >= original.stored_at_ms + LEVEL_DELAYS_MS[level - 1], "before its time"
    if is_over:
        assert sum(following.values()) == len(waiting), "some were never delivered"
