"""
What consumers and RocketMQ's tools say of groups, offsets and locks (docs/wire.md, client codes): 14, 15, 34, 36, 41,
42, 46, 203, 222, 400 and 401.

Here: headers and bodies to values, answers to bytes. Not here: what is answered (``broker.consuming``).

Rule 1: nonsense raises one of ``NONSENSE``. A value that is returned can be kept and told: names and texts are short,
numbers fit their fields.
Rule 2: what a heartbeat says twice is read once, from the text of the subscription. Go writes the codes of its tags as
texts, and other hashes than Java's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Final, TypeVar

import msgspec

from rollcall_ha.broker.protocol.java_hash import tags_code
from rollcall_ha.node.remoting.frame import Frame

SUBSCRIPTION_CHARS_MAX: Final = 4_096
GROUPS_PER_CLIENT_MAX: Final = 256
"""One heartbeat: each is some work on the loop."""
QUEUES_PER_REQUEST_MAX: Final = 4_096
_CONSUME_TYPES: Final = {"PULL": "CONSUME_ACTIVELY", "PUSH": "CONSUME_PASSIVELY"}
"""Clients in Go wrote it so for some years."""
_CONSUME_WORD: Final = re.compile(r"CONSUME_[A-Z_]{1,56}|BROADCASTING|CLUSTERING")
NONSENSE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
GROUP_PATTERN: Final = r"\A[%|a-zA-Z0-9_-]{1,248}\Z"
"""With the prefix of its retries, a longer name would be no topic's (255 bytes)."""
GroupName = Annotated[str, msgspec.Meta(pattern=GROUP_PATTERN)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
QueueId = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
Header = TypeVar("Header", bound=msgspec.Struct)
Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class Subscription(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a group wants of a topic."""

    text: str = "*"
    version: int = 0
    """As its client says it: ms since 1970, or ns."""
    kind: str = "TAG"


class Facts(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the clients of a group say of it."""

    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from: str = "CONSUME_FROM_LAST_OFFSET"
    subscriptions: dict[str, Subscription] = {}
    members: tuple[str, ...] = ()
    """Client ids, ascending."""


# --- headers ---------------------------------------------------------------------------------------------------------


class OffsetFields(msgspec.Struct, rename="camel"):
    """Of 14 and 15."""

    consumer_group: GroupName
    topic: Name
    queue_id: QueueId
    set_zero_if_not_found: bool = True
    commit_offset: Int64 | None = None


class ResetFields(msgspec.Struct, rename="camel"):
    """Of 222."""

    group: GroupName
    topic: Name
    timestamp: Int64
    """Below 0: to the end."""
    queue_id: Annotated[int, msgspec.Meta(ge=-1, lt=1 << 31)] = -1
    """-1: all."""
    offset: Int64 = -1
    """Of one queue; -1: by time."""


class BackFields(msgspec.Struct, rename="camel"):
    """Of 36."""

    group: GroupName
    offset: Annotated[int, msgspec.Meta(ge=0)]
    """In the log, of the record that the group refused."""
    delay_level: Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)] = 0
    max_reconsume_times: Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)] | None = None


def header_of(kind: type[Header]) -> Callable[[Frame], Header]:
    """Reads headers of one kind. At the top of a module only: it builds the type."""
    # Two threads that build a type of msgspec at once crash the interpreter.
    msgspec.json.Decoder(kind)
    convert = partial(msgspec.convert, type=kind, strict=False)
    return lambda frame: convert(frame.ext_fields or {})


parse_offset = header_of(OffsetFields)
parse_reset = header_of(ResetFields)
parse_back = header_of(BackFields)


# --- bodies ----------------------------------------------------------------------------------------------------------


class SubscriptionData(msgspec.Struct, rename="camel"):
    """RocketMQ's word for a subscription."""

    topic: Name
    sub_string: Annotated[str, msgspec.Meta(max_length=SUBSCRIPTION_CHARS_MAX)] | None = None
    expression_type: Annotated[str, msgspec.Meta(max_length=64)] | None = None
    sub_version: Int64 = 0

    def word(self) -> Subscription:
        return Subscription(self.sub_string or "*", self.sub_version, self.expression_type or "TAG")


class ConsumerData(msgspec.Struct, rename="camel"):
    """One group of a heartbeat."""

    group_name: GroupName
    consume_type: Any = None
    message_model: Any = None
    consume_from_where: Any = None
    subscription_data_set: list[SubscriptionData] | None = None

    def facts(self) -> Facts:
        """Without members."""
        usual = Facts()
        return Facts(
            consume_type=_word(self.consume_type, usual.consume_type),
            message_model=_word(self.message_model, usual.message_model),
            consume_from=_word(self.consume_from_where, usual.consume_from),
            subscriptions={each.topic: each.word() for each in self.subscription_data_set or ()},
        )


class ProducerData(msgspec.Struct, rename="camel"):
    """One group of producers of a heartbeat; a name that is none counts for nothing, as nothing depends on it."""

    group_name: Any = None


class Heartbeat(msgspec.Struct, rename="camel"):
    """Body of 34: the groups of one client."""

    client_id: Name = msgspec.field(name="clientID")
    producer_data_set: list[ProducerData] | None = None
    consumer_data_set: Annotated[list[ConsumerData], msgspec.Meta(max_length=GROUPS_PER_CLIENT_MAX)] | None = None
    without_sub: bool = False
    """Its subscriptions are those of the last one."""

    @property
    def producer_groups(self) -> list[str]:
        """Names of its groups of producers."""
        names = [each.group_name for each in (self.producer_data_set or ())[:GROUPS_PER_CLIENT_MAX]]
        return [name for name in names if isinstance(name, str) and re.match(GROUP_PATTERN, name)]


class Check(msgspec.Struct, rename="camel"):
    """Body of 46."""

    subscription_data: SubscriptionData


class MessageQueue(msgspec.Struct, rename="camel", frozen=True):
    """RocketMQ's name of a queue; its keys in the order that Java writes."""

    broker_name: str
    queue_id: QueueId
    topic: Name


class LockRequest(msgspec.Struct, rename="camel"):
    """Body of 41 and 42."""

    client_id: Name
    consumer_group: GroupName
    mq_set: Annotated[list[MessageQueue], msgspec.Meta(max_length=QUEUES_PER_REQUEST_MAX)]


class AssignmentQuestion(msgspec.Struct, rename="camel"):
    """Body of 400: a member asks which queues of a topic it is to read."""

    client_id: Name
    consumer_group: GroupName
    topic: Name
    strategy_name: Annotated[str, msgspec.Meta(max_length=64)] = ""
    message_model: Annotated[str, msgspec.Meta(max_length=64)] = "CLUSTERING"


class RequestMode(msgspec.Struct, rename="camel"):
    """Body of 401: an order that a group pulls, or has messages popped for it."""

    consumer_group: GroupName
    topic: Name
    mode: Annotated[str, msgspec.Meta(max_length=64)]


class _Members(msgspec.Struct, rename="camel"):
    """Body of the answer to 38."""

    consumer_id_list: list[str] | None = None


class _Locked(msgspec.Struct):
    """Body of the answer to 41."""

    lockOKMQSet: list[MessageQueue] | None = None  # noqa: N815 (name on the wire)


decode_heartbeat = msgspec.json.Decoder(Heartbeat).decode
decode_check = msgspec.json.Decoder(Check).decode
decode_assignment = msgspec.json.Decoder(AssignmentQuestion).decode
decode_mode = msgspec.json.Decoder(RequestMode).decode
decode_lock = msgspec.json.Decoder(LockRequest).decode
_decode_members = msgspec.json.Decoder(_Members).decode
_decode_locked = msgspec.json.Decoder(_Locked).decode
encode = msgspec.json.Encoder().encode


def subscription_table(words: Mapping[str, Subscription]) -> dict[str, dict[str, object]]:
    """The subscriptions of 203, by topic, as RocketMQ's tools read them."""
    return {topic: _data(topic, word) for topic, word in words.items()}


def _data(topic: str, word: Subscription) -> dict[str, object]:
    is_all = word.kind != "TAG" or word.text == "*"
    tags = [] if is_all else sorted({tag.strip() for tag in word.text.split("||")} - {""})
    return {
        "classFilterMode": False,
        "codeSet": [tags_code(tag.encode()) for tag in tags],
        "expressionType": word.kind,
        "subString": word.text,
        "subVersion": word.version,
        "tagsSet": tags,
        "topic": topic,
    }


def encode_heartbeat(client_id: str, group: str, facts: Facts) -> bytes:
    """Body of a 34 of a client of ours, as Java writes it."""
    consumer = {
        "consumeFromWhere": facts.consume_from,
        "consumeType": facts.consume_type,
        "groupName": group,
        "messageModel": facts.message_model,
        "subscriptionDataSet": list(subscription_table(facts.subscriptions).values()),
        "unitMode": False,
    }
    return encode({"clientID": client_id, "consumerDataSet": [consumer], "producerDataSet": []})


def decode_members(body: bytes) -> list[str]:
    """Client ids of an answer to 38. Raises as of rule 1."""
    return _decode_members(body).consumer_id_list or []


def decode_locked(body: bytes) -> list[MessageQueue]:
    """Queues of an answer to 41. Raises as of rule 1."""
    return _decode_locked(body).lockOKMQSet or []


def encode_offset_table(offsets: Mapping[MessageQueue, int]) -> bytes:
    """Body of a 222's answer: Java's JSON has objects as keys."""
    rows = b",".join(b"%b:%d" % (encode(queue), offset) for queue, offset in offsets.items())
    return b'{"offsetTable":{%b}}' % rows


def _word(said: object, usual: str) -> str:
    """A word of RocketMQ's, ``usual`` if it is none."""
    word = said.upper() if isinstance(said, str) else ""
    word = _CONSUME_TYPES.get(word, word)
    return word if _CONSUME_WORD.fullmatch(word) else usual
