"""
What RocketMQ's tools say of topics and groups, and how a broker remembers it (docs/wire.md, client codes): 17, 18, 200,
201, 207, 208, 215, 225, 300, 343, 351 and 352.

Here: the rows of both tables, headers and bodies to values, answers to bytes. Not here: what is answered
(``broker.consuming``).

Rule 1: nonsense raises one of ``consumers.NONSENSE``; what is no nonsense and still no order has a complaint.
Rule 2: bounds are of orders, never of rows: one that a later program narrows would make old records nonsense.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

import msgspec

from rollcall_ha.broker.protocol.consumers import GroupName, MessageQueue, Name, encode, header_of
from rollcall_ha.controller.contract.values import made_from

PERM_INHERIT: Final = 1
PERM_WRITE: Final = 2
PERM_READ: Final = 4
PERM_READ_WRITE: Final = PERM_READ | PERM_WRITE
PERM_MAX: Final = 15
QUEUE_COUNT: Final = 8
"""Queues of a topic that nobody has ordered."""
QUEUES_PER_TOPIC_MAX: Final = 256
"""Each is a number in memory, and a question for its ends looks at all of them on the loop."""
LIST_MAX: Final = 256
"""Topics or groups in one order."""
RETRY_PREFIX: Final = "%RETRY%"
"""Before the name of a group: the topic of what is given to the group again."""
DEAD_LETTER_PREFIX: Final = "%DLQ%"
"""Before the name of a group: the topic of what it refused too often."""
OWN: Final = "ROLLCALL_SYS_"
"""Topics that begin so are the brokers' own."""
DEFAULT_TOPIC: Final = "TBW102"
"""RocketMQ's clients take the queues of a topic that no name server knows from the route of this one."""
_TOPIC_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")


class TopicRow(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One topic, as it is remembered."""

    read_queue_nums: int = QUEUE_COUNT
    write_queue_nums: int = QUEUE_COUNT
    perm: int = PERM_READ_WRITE
    order: bool = False
    topic_sys_flag: int = 0
    is_deleted: bool = False
    """It stays as such: told again from before its end, it would be back."""

    @property
    def may_read(self) -> bool:
        return bool(self.perm & PERM_READ)

    @property
    def may_write(self) -> bool:
        return bool(self.perm & PERM_WRITE)

    @property
    def queue_count(self) -> int:
        """Its queues, from 0: those that only shrank for one of both sides are there still."""
        return max(self.read_queue_nums, self.write_queue_nums)


class GroupConfig(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The settings of a group that brokers keep; the defaults are RocketMQ's."""

    broker_id: int = 0
    consume_broadcast_enable: bool = True
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_message_orderly: bool = False
    consume_timeout_minute: int = 15
    group_sys_flag: int = 0
    notify_consumer_ids_changed_enable: bool = True
    retry_max_times: int = 16
    retry_queue_nums: int = 1
    which_broker_when_consume_slowly: int = 1


class GroupRow(GroupConfig, frozen=True, rename="camel", kw_only=True):
    """One group's settings, as they are remembered."""

    is_deleted: bool = False
    """By an order: it has the defaults, and is named only while it has members."""


# --- orders ----------------------------------------------------------------------------------------------------------


class TopicFields(msgspec.Struct, rename="camel", kw_only=True):
    """Header of 17; the topics in the body of 18 are the same, under ``topicName``."""

    topic: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0
    order: bool = False
    attributes: str = ""

    def row(self) -> TopicRow:
        return made_from(self, TopicRow)

    @property
    def complaint(self) -> str:
        """What is wrong with it; empty: nothing."""
        if not _TOPIC_NAME.fullmatch(self.topic):
            return f"topic {self.topic[:255]!r}: 1 to 127 of the characters %|a-zA-Z0-9_- are a name"
        for name, value in (("readQueueNums", self.read_queue_nums), ("writeQueueNums", self.write_queue_nums)):
            if not 1 <= value <= QUEUES_PER_TOPIC_MAX:
                return f"{name} is {value}; it takes 1 to {QUEUES_PER_TOPIC_MAX}; to close a topic, take its permission"
        if not 0 <= self.perm <= PERM_MAX or not -(1 << 31) <= self.topic_sys_flag < 1 << 31:
            return f"perm is {self.perm}; it is a sum of 8, 4 (read), 2 (write) and 1; topicSysFlag is an int32"
        if self.attributes:
            return f"attributes {self.attributes[:255]!r}: topics have none here; leave them out"
        return ""


class _TopicConfigs(msgspec.Struct, rename="camel"):
    topic_config_list: Annotated[list[dict[str, Any]], msgspec.Meta(max_length=LIST_MAX)]


class GroupOrder(GroupConfig, frozen=True, rename="camel", kw_only=True):
    """Body of 200, and one of 225."""

    group_name: GroupName
    attributes: dict[str, Any] | None = None

    def row(self) -> GroupRow:
        return made_from(self, GroupRow)

    @property
    def complaint(self) -> str:
        """What is wrong with it; empty: nothing."""
        if not 0 <= self.retry_queue_nums <= QUEUES_PER_TOPIC_MAX:
            return f"retryQueueNums is {self.retry_queue_nums}; it takes 0 to {QUEUES_PER_TOPIC_MAX}"
        numbers = (self.broker_id, self.consume_timeout_minute, self.group_sys_flag, self.retry_max_times)
        if any(not -(1 << 31) <= each < 1 << 31 for each in (*numbers, self.which_broker_when_consume_slowly)):
            return f"group {self.group_name}: a number of its settings is no int32"
        if self.attributes:
            return f"group {self.group_name} has attributes; no attribute of groups is defined"
        return ""


class _GroupConfigs(msgspec.Struct, rename="camel"):
    group_config_list: Annotated[list[GroupOrder], msgspec.Meta(max_length=LIST_MAX)]


class _TopicName(msgspec.Struct):
    """Header of 202, 215, 300 and 351."""

    topic: Name


class _GroupName(msgspec.Struct):
    """Header of 343 and 352."""

    group: GroupName


class DeleteGroup(msgspec.Struct, rename="camel"):
    """Header of 207."""

    group_name: GroupName
    clean_offset: bool = False


class StatsFields(msgspec.Struct, rename="camel"):
    """Header of 208."""

    consumer_group: GroupName
    topic: str = ""
    topic_list: str = ""
    """Names between semicolons."""

    @property
    def topics(self) -> list[str]:
        """Those that are asked for; empty: all of the group."""
        return [each for each in (self.topic, *self.topic_list.split(";")) if each]


parse_topic = header_of(TopicFields)
parse_topic_name = header_of(_TopicName)
parse_group_name = header_of(_GroupName)
parse_delete_group = header_of(DeleteGroup)
parse_stats = header_of(StatsFields)
decode_group = msgspec.json.Decoder(GroupOrder).decode
_decode_groups = msgspec.json.Decoder(_GroupConfigs).decode
_decode_topics = msgspec.json.Decoder(_TopicConfigs).decode


def decode_topics(body: bytes) -> list[TopicFields]:
    """The body of an 18."""
    found = _decode_topics(body).topic_config_list
    orders = [
        {**each, "topic": each.get("topicName"), "attributes": str(each.get("attributes") or "")} for each in found
    ]
    return [msgspec.convert(each, TopicFields) for each in orders]


def decode_groups(body: bytes) -> list[GroupOrder]:
    """The body of a 225."""
    return _decode_groups(body).group_config_list


# --- answers ---------------------------------------------------------------------------------------------------------


def data_version(counter: int, master_epoch: int, since_ms: int) -> dict[str, int]:
    """RocketMQ's version of a table."""
    return {"counter": counter, "stateVersion": master_epoch, "timestamp": since_ms}


def topic_config(topic: str, row: TopicRow) -> dict[str, Any]:
    """RocketMQ's bean; Java's own default of queues is another one, so all are said."""
    return {"attributes": {}, "topicFilterType": "SINGLE_TAG", "topicName": topic, **_bean(row)}


def topic_table(topics: Mapping[str, TopicRow], version: Mapping[str, int]) -> dict[str, Any]:
    """Body of the answer to 21, and the topics of a registration (103)."""
    return {
        "dataVersion": version,
        "mappingDataVersion": version,
        "topicConfigTable": {topic: topic_config(topic, row) for topic, row in topics.items()},
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {},
    }


def group_config(group: str, row: GroupConfig) -> dict[str, Any]:
    """RocketMQ's bean."""
    return {"groupName": group, **_bean(row)}


def group_table(groups: Mapping[str, GroupConfig], version: Mapping[str, int]) -> dict[str, Any]:
    """Body of the answer to 201."""
    return {
        "dataVersion": version,
        "forbiddenTable": {},
        "subscriptionGroupTable": {group: group_config(group, row) for group, row in groups.items()},
    }


def encode_queue_table(rows: Iterable[tuple[MessageQueue, Mapping[str, int]]]) -> bytes:
    """Body of the answers to 202 and 208: Java's JSON has objects as keys."""
    return b'{"offsetTable":{%b}}' % b",".join(b"%b:%b" % (encode(queue), encode(row)) for queue, row in rows)


def _bean(row: TopicRow | GroupConfig) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(row)
    fields.pop("isDeleted", None)
    return fields
