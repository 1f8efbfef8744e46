"""
Pulls, questions about queues, and their answers (docs/wire.md, client codes): codes 11 and 361, and 29 to 32.

Here: a header to one value, an answer to bytes. Not here: what a queue has (``broker.consuming``).

Rule 1: a pull that is nonsense is a value, ``Refused``, never an error.
Rule 2: every answer to a pull has all header fields, a refusal too. Without the next offset a client in Go begins again
at 0, and one in Java fails on the answer instead of telling its reason.
Rule 3: an answer in JSON is formatted without an object per answer, and records are copied once, from where they lie.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from rollcall_ha.broker.protocol.codes import ClientResult
from rollcall_ha.broker.protocol.consumers import SUBSCRIPTION_CHARS_MAX, GroupName, Int64, Name, header_of
from rollcall_ha.node.remoting.codes import FLAG_RESPONSE
from rollcall_ha.node.remoting.frame import Frame, HeaderForm, encode_frame

FLAG_COMMIT: Final = 1
FLAG_SUSPEND: Final = 2
FLAG_SUBSCRIPTION: Final = 4
_WORDS = struct.Struct(">iI")
_FIELDS: Final = ("groupSysFlag", "maxOffset", "minOffset", "nextBeginOffset", "suggestWhichBrokerId", "topicSysFlag")
_ANSWER: Final = (
    b'{"code":%d,"extFields":{' + ",".join(f'"{name}":"%d"' for name in _FIELDS).encode() + b"},"
    b'"flag":1,"language":"PYTHON","opaque":%d,%b"version":0}'
)
_quote = msgspec.json.Encoder().encode


class Refused(msgspec.Struct, frozen=True, gc=False):
    """The answer to a request that gets nothing else: a code that its client acts on, and why."""

    code: ClientResult
    remark: str


class PullRequest(msgspec.Struct, rename="camel", gc=False):
    """Header of a pull."""

    consumer_group: GroupName
    topic: Name
    queue_id: int
    queue_offset: Int64
    max_msg_nums: int = 32
    sys_flag: int = 0
    commit_offset: Int64 = -1
    suspend_timeout_millis: int = 0
    subscription: Annotated[str, msgspec.Meta(max_length=SUBSCRIPTION_CHARS_MAX)] = ""
    sub_version: int = 0
    expression_type: Annotated[str, msgspec.Meta(max_length=64)] = ""

    @property
    def wait_ms(self) -> int:
        """How long its answer may be kept back until there is a message; 0: not at all."""
        return self.suspend_timeout_millis if self.sys_flag & FLAG_SUSPEND else 0


class QueueQuestion(msgspec.Struct, rename="camel", gc=False):
    """Header of a question about one queue."""

    topic: Name
    queue_id: int
    committed: str = ""
    """Of code 30: "false" asks for the end of the log, any other text for that of the confirmed records."""
    timestamp: Int64 | None = None
    """Of code 29, ms."""
    boundary_type: str = ""
    """Of code 29: "upper" in any case, or else the lower one."""


# Built at import: two threads that build a type of msgspec at once crash the interpreter.
msgspec.json.Decoder(PullRequest)
parse_question = header_of(QueueQuestion)


def parse_pull(frame: Frame) -> PullRequest | Refused:
    """The header of a pull, of either form."""
    try:
        return msgspec.convert(frame.ext_fields or {}, PullRequest, strict=False)
    except msgspec.MsgspecError as error:
        return Refused(ClientResult.SYSTEM_ERROR, f"header of the pull: {error}")


def pull_answer(
    opaque: int,
    form: HeaderForm,
    code: int,
    *,
    next_offset: int,
    min_offset: int = 0,
    max_offset: int = 0,
    reader: int = 0,
    remark: str = "",
    records: Sequence[memoryview] = (),
) -> bytes:
    """The frame that answers one pull; ``reader``: the broker id for the next one, 0 is the master."""
    values = (0, max_offset, min_offset, next_offset, reader, 0)
    if form is HeaderForm.JSON:
        said = b'"remark":%b,' % _quote(remark) if remark else b""
        header = _ANSWER % (code, *values, opaque, said)
        length = 4 + len(header) + sum(map(len, records))
        return b"".join((_WORDS.pack(length, len(header)), header, *records))
    fields = dict(zip(_FIELDS, map(str, values), strict=True))
    body = b"".join(records)
    return encode_frame(
        Frame(
            code=code, opaque=opaque, flag=FLAG_RESPONSE, ext_fields=fields, remark=remark or None, form=form, body=body
        )
    )
