"""
What simulated clients say to a broker and hear: frames of its listen port, as bytes on a connection.

Here: one message of a producer, one question of a consumer, and what an answer means. Not here: when to ask (``client``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rollcall_ha.broker.core.producers import ProducerStamp
from rollcall_ha.broker.log.record import Draft, record_bytes
from rollcall_ha.broker.protocol.codes import ClientCode, ClientResult, SendOutcome, SendRefusal
from rollcall_ha.broker.protocol.delays import SCHEDULE_TOPIC
from rollcall_ha.broker.protocol.send import encode_send
from rollcall_ha.broker.protocol.stamp import STAMP_PROPERTY, format_stamp
from rollcall_ha.node.remoting.frame import Frame, encode_frame
from tests.sim.log import PREPARED, RECORD_BYTES
from tests.support.frames import FrameDecoder
from tests.support.sim_net import End

_BY_BROKER = b"CLUSTER\x01sim\x02"
"""Properties that a broker of the simulation adds to each message."""
_NUMBERS_LOST = (SendRefusal.SEQUENCE_GAP, SendRefusal.SEQUENCE_OLD, SendRefusal.PRODUCER_UNKNOWN)
_HOST_DIGITS = 16
OF_BEFORE = b"OF_BEFORE\x011\x02"
"""Property of what only a broker of before stores: it took half messages as they came (``broker.watched_brokers``)."""
UNSERVED = (
    (PREPARED, ""),
    (2 << 2, ""),
    (0, "TIMER_DELAY_MS\x01500\x02"),
    (0, "TIMER_DELIVER_MS\x011800000000000\x02"),
    (0, "TRAN_MSG\x01true\x02"),
    (0, "POP_CK\x011\x02"),
)
"""System flag and properties of messages that a broker must not store as ordinary ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a broker says to one send; an answer to anything else has ``fields`` only."""

    number: int
    is_acked: bool
    end: int
    """Of the record, if it was acked and its place is known; else 0."""
    place: int | None
    """In its queue, as answered."""
    is_duplicate: bool
    is_unknown: bool
    """It may be in the log: the same sequence must be sent again."""
    is_number_lost: bool
    master: str | None
    """Where the master listens, as a hint."""
    reason: str
    code: int
    fields: dict[str, str]


def delayed(number: int, stamp: ProducerStamp, value: int, level: int) -> tuple[bytes, int]:
    """The frame that sends ``value`` with a delay, and the size of the record in which it waits."""
    text = format_stamp(stamp.producer_id, stamp.producer_epoch, stamp.sequence)
    properties = f"{STAMP_PROPERTY}\x01{text}\x02DELAY\x01{level}\x02"
    body = value.to_bytes(8, "big").ljust(16, b".")
    stored = properties.encode() + _BY_BROKER + b"REAL_TOPIC\x01t\x02REAL_QID\x010\x02"
    draft = Draft(topic=SCHEDULE_TOPIC, queue_id=level - 1, body=body, properties=stored)
    return _send(number, 0, properties, body), record_bytes(draft, bytes(8))


def message(number: int, stamp: ProducerStamp, value: int, *, is_prepared: bool = False) -> bytes:
    """The frame that sends ``value``: its record has ``RECORD_BYTES``. ``is_prepared``: as ``OF_BEFORE`` says."""
    text = format_stamp(stamp.producer_id, stamp.producer_epoch, stamp.sequence)
    properties = f"{STAMP_PROPERTY}\x01{text}\x02" + (OF_BEFORE.decode() if is_prepared else "")
    draft = Draft(topic=b"t", queue_id=0, body=b"", properties=properties.encode() + _BY_BROKER)
    body = value.to_bytes(8, "big").ljust(RECORD_BYTES - record_bytes(draft, bytes(8)), b".")
    return _send(number, PREPARED if is_prepared else 0, properties, body)


def unserved(number: int, which: int) -> bytes:
    """The frame of a message that no broker may take (``UNSERVED``)."""
    return _send(number, *UNSERVED[which], b"never stored")


def _send(number: int, sys_flag: int, properties: str, body: bytes) -> bytes:
    frame = encode_send(
        opaque=number, group="sim", topic="t", queue_id=0, born_at_ms=0, properties=properties, body=body
    )
    # Our producer sets no flag. One digit in place of another: lengths stay.
    return frame.replace(b'"f":"0"', f'"f":"{sys_flag}"'.encode(), 1)


def ask_offset(number: int, asked: int) -> bytes:
    """The frame of a consumer that was told to go on at ``asked``."""
    fields = {"topic": "t", "queueId": "0", "asked": str(asked)}
    return encode_frame(Frame(code=ClientCode.GET_MAX_OFFSET, opaque=number, ext_fields=fields))


def read_answers(end: End, heard: Callable[[Answer], None]) -> None:
    """From here on ``heard`` gets the answers that arrive at ``end``."""
    decoder = FrameDecoder()

    def received(data: Any) -> None:
        end.taken_bytes += len(data)
        for frame in decoder.feed(data):
            heard(_answer(frame))

    end.on_message = received


def _answer(frame: Frame) -> Answer:
    fields = frame.ext_fields or {}
    is_acked = frame.code == ClientResult.PUT_OK
    place = fields.get("msgId", "")
    reason = fields.get("reason", "")
    return Answer(
        number=frame.opaque,
        is_acked=is_acked,
        end=int(place[_HOST_DIGITS:], 16) + RECORD_BYTES if is_acked and place else 0,
        place=int(fields["queueOffset"]) if is_acked and place else None,
        is_duplicate=fields.get("duplicate") == "true",
        is_unknown=not is_acked and fields.get("outcome") != SendOutcome.NOT_APPENDED,
        is_number_lost=reason in _NUMBERS_LOST,
        master=fields.get("master") or None,
        reason=reason or frame.remark or str(frame.code),
        code=frame.code,
        fields=fields,
    )
