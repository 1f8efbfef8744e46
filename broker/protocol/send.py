"""
Send requests and their answers (docs/wire.md, client codes): codes 10, 310 and 320.

Here: header bytes to one value, answers to bytes, the batch body. Not here: whether a message is accepted
(``broker.handlers.put``).

Rule 1: the header of a 310 or 320 as Java and our producer write it is decoded straight into its struct; any other
legal form goes the general way through ``node.remoting.frame``, with the same result.
Rule 2: answers to accepted sends are formatted into bytes, without an object per answer.
Rule 3: nonsense raises ``SendError`` or ``FrameError`` and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from rollcall_ha.broker.protocol.codes import REFUSAL_OUTCOME, REFUSAL_RESULT, ClientCode, ClientResult, SendRefusal
from rollcall_ha.node.remoting.codes import FLAG_ONE_WAY, FLAG_RESPONSE
from rollcall_ha.node.remoting.frame import FRAME_BYTES_MAX, Frame, FrameError, HeaderForm, decode_frame, encode_frame

SEND_CODES: Final = frozenset(
    (int(ClientCode.SEND_MESSAGE), int(ClientCode.SEND_MESSAGE_V2), int(ClientCode.SEND_BATCH_MESSAGE))
)
BATCH_MESSAGES_MAX: Final = 4096
BATCH_ITEM_BYTES: Final = 22
"""Of a message in the body of a batch, beside its own body and properties."""
SEND_FRAME_BYTES_MAX: Final = FRAME_BYTES_MAX - 4
WAIT_US_MAX: Final = 86_400_000_000
"""A sender's wait above this is no wait that anybody told: a day."""
_FAST_STARTS: Final = (b'{"code":310,', b'{"code":320,')
_WORDS = struct.Struct(">iI")
_BATCH_HEAD = struct.Struct(">iiiii")
_INT16 = struct.Struct(">h")


class SendError(ValueError):
    """A send request that cannot be understood; it was not appended."""


class SendRefusedError(SendError):
    """``SendError`` with the frame that it is about."""

    def __init__(self, frame: Frame, message: str) -> None:
        """The frame says where the answer goes."""
        super().__init__(message)
        self.frame = frame


class SendFields(msgspec.Struct, gc=False):
    """Short names of the V2 header."""

    b: str
    e: int
    """Queue id; below 0 the broker picks."""
    f: int = 0
    g: int = 0
    h: int = 0
    i: str = ""
    j: int = 0
    l: int | None = None  # noqa: E741 (name on the wire)
    """Of a message that its group refused: how often it may; None = as usual."""
    waitUs: int | None = None  # noqa: N815 (name on the wire)
    """
    How long this send, or the oldest one of this batch, had waited at its sender when it was written, on the sender's
    monotonic clock. None = not told: RocketMQ's clients do not know the field, and its brokers skip it.
    """

    @property
    def waited_us(self) -> int | None:
        """``waitUs`` if it can be one, microseconds."""
        # A peer's number: a negative one, or a century, would be a phase of the failover's record.
        return self.waitUs if self.waitUs is not None and 0 <= self.waitUs <= WAIT_US_MAX else None


class SendHeader(msgspec.Struct, gc=False):
    """All of a send but its body."""

    code: int
    opaque: int
    extFields: SendFields  # noqa: N815 (name on the wire)
    flag: int = 0

    @property
    def is_one_way(self) -> bool:
        """Nobody waits for the answer."""
        return bool(self.flag & FLAG_ONE_WAY)


class SendRequest(msgspec.Struct, gc=False):
    """A send whose body still lies in the receive buffer."""

    header: SendHeader
    body: memoryview
    form: HeaderForm = HeaderForm.JSON


class _LongFields(msgspec.Struct, gc=False):
    """Long names of the V1 header."""

    topic: str
    queueId: int  # noqa: N815
    sysFlag: int = 0  # noqa: N815
    bornTimestamp: int = 0  # noqa: N815
    flag: int = 0
    properties: str = ""
    reconsumeTimes: int = 0  # noqa: N815
    maxReconsumeTimes: int | None = None  # noqa: N815
    waitUs: int | None = None  # noqa: N815


_decode_fast = msgspec.json.Decoder(SendHeader, strict=False).decode
# For ``convert``: without this it builds the types at the first send in the general form, and two threads that do so at
# once crash the interpreter.
msgspec.json.Decoder(SendFields)
msgspec.json.Decoder(_LongFields)


def parse_frame(part: memoryview) -> SendRequest | Frame:
    """
    One frame without its length word: a send in place, anything else as a ``Frame``.

    Raises:
        FrameError: the bytes are no frame: close the link.
        SendRefusedError: a frame, but no possible send: refuse it.
    """
    word = int.from_bytes(part[:4], "big")
    if word >> 24 == 0 and word + 4 <= len(part) and bytes(part[4:16]) in _FAST_STARTS:
        try:
            return SendRequest(_decode_fast(part[4 : 4 + word]), part[4 + word :])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            # Not the form that is expected: the general way finds the error.
            pass
    frame = decode_frame(part)
    if frame.code not in SEND_CODES or frame.is_response:
        return frame
    return send_from_frame(frame)


def send_from_frame(frame: Frame) -> SendRequest:
    """The same value from a decoded frame. Raises ``SendRefusedError``."""
    raw = frame.ext_fields or {}
    try:
        if frame.code == ClientCode.SEND_MESSAGE:
            long = msgspec.convert(raw, _LongFields, strict=False)
            fields = SendFields(
                b=long.topic,
                e=long.queueId,
                f=long.sysFlag,
                g=long.bornTimestamp,
                h=long.flag,
                i=long.properties,
                j=long.reconsumeTimes,
                l=long.maxReconsumeTimes,
                waitUs=long.waitUs,
            )
        else:
            fields = msgspec.convert(raw, SendFields, strict=False)
    except msgspec.MsgspecError as error:
        raise SendRefusedError(frame, f"send header: {error}") from error
    header = SendHeader(code=frame.code, opaque=frame.opaque, extFields=fields, flag=frame.flag)
    return SendRequest(header, memoryview(frame.body), frame.form)


# --- answers ---------------------------------------------------------------------------------------------------------

_PUT_OK: Final = (
    b'{"code":0,"extFields":{"queueId":"%d","msgId":"%b","TRACE_ON":"true","MSG_REGION":"DefaultRegion",'
    b'"queueOffset":"%d"},"flag":1,"language":"PYTHON","opaque":%d,"version":0}'
)


def put_ok(opaque: int, form: HeaderForm, *, queue_id: int, queue_offset: int, message_id: bytes) -> bytes:
    """The frame that acknowledges one send (or one batch: ``message_id`` is then a comma list)."""
    if form is HeaderForm.JSON:
        header = _PUT_OK % (queue_id, message_id, queue_offset, opaque)
        return _WORDS.pack(4 + len(header), len(header)) + header
    fields = {"queueId": str(queue_id), "msgId": message_id.decode("ascii"), "queueOffset": str(queue_offset)}
    return encode_frame(
        Frame(code=ClientResult.PUT_OK, opaque=opaque, flag=FLAG_RESPONSE, ext_fields=fields, form=form)
    )


def put_duplicate(opaque: int, form: HeaderForm, *, queue_id: int) -> bytes:
    """Acknowledges a send whose original was released; the place of that one is not remembered."""
    fields = {"queueId": str(queue_id), "msgId": "", "queueOffset": "-1", "duplicate": "true"}
    return encode_frame(
        Frame(code=ClientResult.PUT_OK, opaque=opaque, flag=FLAG_RESPONSE, ext_fields=fields, form=form)
    )


def put_refused(
    opaque: int,
    form: HeaderForm,
    refusal: SendRefusal,
    detail: str,
    *,
    master_epoch: int = 0,
    master: str = "",
    place: dict[str, str] | None = None,
) -> bytes:
    """Refuses a send: whether the message may be in the log, its ``place``, and the master's address if it is known."""
    fields = (place or {}) | {"reason": refusal.value, "outcome": REFUSAL_OUTCOME[refusal].value}
    if master_epoch:
        fields["masterEpoch"] = str(master_epoch)
    if master:
        fields["master"] = master
    return encode_frame(
        Frame(
            code=REFUSAL_RESULT[refusal],
            opaque=opaque,
            flag=FLAG_RESPONSE,
            ext_fields=fields,
            remark=detail or refusal.value,
            form=form,
        )
    )


def put_unknown(answer: bytes, refusal: SendRefusal, detail: str) -> bytes:
    """Tells that a send is in the log and not acknowledged, with the fields of its ``PUT_OK``, ``answer``."""
    frame = decode_frame(memoryview(answer)[4:])
    # RocketMQ's clients read message id and queue offset of code 12: without them they raise an error of decoding.
    return put_refused(frame.opaque, frame.form, refusal, detail, place=frame.ext_fields)


# --- requests, for our producer --------------------------------------------------------------------------------------

_SEND: Final = (
    b'{"code":%d,"extFields":{"a":%b,"b":%b,"c":"TBW102","d":"4","e":"%d","f":"0","g":"%d","h":"0","i":%b,"j":"0",'
    b'"k":"false","m":"%b","waitUs":"%d"},"flag":0,"language":"PYTHON","opaque":%d,"version":0}'
)
_OF_ONE: Final = (ClientCode.SEND_MESSAGE_V2, b"false")
_OF_BATCH: Final = (ClientCode.SEND_BATCH_MESSAGE, b"true")
_quote = msgspec.json.Encoder().encode


def encode_send(
    *,
    opaque: int,
    group: str,
    topic: str,
    queue_id: int,
    born_at_ms: int,
    properties: str,
    body: bytes,
    waited_us: int = 0,
    is_batch: bool = False,
) -> bytes:
    """
    A 310 frame, or a 320. Raises ``FrameError`` if it is larger than the largest frame.

    ``waited_us``: since the message was handed to this sender, on its own monotonic clock. Of a batch ``body`` is what
    ``encode_batch`` makes, which has the properties of each message.
    """
    code, mark = _OF_BATCH if is_batch else _OF_ONE
    header = _SEND % (
        code, _quote(group), _quote(topic), queue_id, born_at_ms, _quote(properties), mark, waited_us, opaque,
    )  # fmt: skip
    length = 4 + len(header) + len(body)
    if length > SEND_FRAME_BYTES_MAX:
        raise FrameError(f"a send of {length} bytes is larger than {SEND_FRAME_BYTES_MAX}")
    return b"".join((_WORDS.pack(length, len(header)), header, body))


# --- batch body ------------------------------------------------------------------------------------------------------


class BatchItem(msgspec.Struct, gc=False):
    """One message of a batch body."""

    body: bytes
    properties: bytes = b""
    flag: int = 0


def encode_batch(bodies: Sequence[bytes], properties: Sequence[bytes]) -> bytes:
    """The body of a 320: for each message its properties, at most 32,767 bytes."""
    parts: list[bytes] = []
    for body, of_body in zip(bodies, properties, strict=True):
        body_bytes, properties_bytes = len(body), len(of_body)
        total = BATCH_ITEM_BYTES + body_bytes + properties_bytes
        parts += (_BATCH_HEAD.pack(total, 0, 0, 0, body_bytes), body, _INT16.pack(properties_bytes), of_body)
    return b"".join(parts)


def decode_batch(data: memoryview) -> list[BatchItem]:
    """Messages of a 320's body, out of one copy of it: bytes are cut faster than a view. Raises ``SendError``."""
    items: list[BatchItem] = []
    whole = bytes(data)
    at, length = 0, len(whole)
    unpack, unpack_length, head_bytes = _BATCH_HEAD.unpack_from, _INT16.unpack_from, _BATCH_HEAD.size
    try:
        while at < length:
            total, _, _, flag, body_bytes = unpack(whole, at)
            body_at = at + head_bytes
            body_end = body_at + body_bytes
            (properties_bytes,) = unpack_length(whole, body_end) if body_bytes >= 0 else (-1,)
            end = body_end + 2 + properties_bytes
            # Lengths of a peer: a negative one would slice from the end of the batch, a long one into the next message.
            if properties_bytes < 0 or end != at + total or end > length:
                raise SendError(f"message {len(items)} of the batch says {total} bytes, its parts do not add up")
            if len(items) == BATCH_MESSAGES_MAX:
                raise SendError(f"a batch of more than {BATCH_MESSAGES_MAX} messages")
            items.append(BatchItem(whole[body_at:body_end], whole[body_end + 2 : end], flag))
            at = end
    except struct.error as error:
        raise SendError(f"a batch that ends inside message {len(items)}") from error
    if not items:
        raise SendError("an empty batch")
    return items
