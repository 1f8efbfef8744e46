"""
What a broker set remembers of its consumers and topics: a fold of the records of one internal topic.

Here: the form of a record, and the value that all of them make. Not here: reading and writing them (``offsets_log``),
who asks for what is known (``offsets``, ``groups``, ``topics``).

A record's body is JSON: what has changed of some groups and topics, some of them told again, and ``since``.
Rule 1: the fold is total: a body that is none of ours changes nothing and is counted.
Rule 2: the records from the newest ``since`` on make the same value as all of them: what was known there of groups and
topics has been told again behind it. So what lies before it may be deleted, and a rebuild begins there.
Rule 3: what is told again fills gaps and replaces nothing. It is how things were some records earlier: a newer offset
that was on its way meanwhile would be taken back by it.
Rule 4: what has ended stays: as a row without a holder, as -1, as deleted. Told again from before its end, it would be
back.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from rollcall_ha.broker.protocol.consumers import NONSENSE, Facts
from rollcall_ha.broker.protocol.topics import GroupRow, TopicRow

GROUPS_MAX: Final = 10_000
ROWS_MAX: Final = 200_000
"""Offsets, resets and locks of all groups; each is a number in memory for ever."""
GROUP_BYTES_MAX: Final = 2 * 1024 * 1024
"""
A group is told again in one record, beside what is gathered and a few other groups: larger, that would be no message
(4 MiB), no group behind it would be told again, and the topic's age would take their offsets.
"""
NAME_BYTES_MAX: Final = 340
"""The name of a group in a record, and the words around its tables."""
TOPICS_MAX: Final = 10_000
"""Deleted ones too: told by every broker to every controller, and remembered for ever."""
TOPIC_BYTES_MAX: Final = 400
"""A topic in a record."""
NO_RESET: Final = -1
NO_OFFSET: Final = -1
"""The group was deleted together with its offsets."""
_encode = msgspec.json.Encoder().encode


class GroupChange(msgspec.Struct, omit_defaults=True):
    """What is new of a group, or all that is known of it. Rows are by topic and queue id."""

    offsets: dict[str, dict[int, int]] = {}
    resets: dict[str, dict[int, int]] = {}
    """Where consumers are sent at their next pull; ``NO_RESET``: they were."""
    holders: dict[str, dict[int, str]] = {}
    """The client that has locked a queue; empty: none."""
    facts: Facts | None = None
    settings: GroupRow | None = None
    """By order; None: never, it has the defaults."""

    @property
    def is_there(self) -> bool:
        """Whether the group is: it was not deleted, or has members again."""
        is_deleted = self.settings is not None and self.settings.is_deleted
        return not is_deleted or bool(self.facts and self.facts.members)

    def has_offset(self, topic: str) -> bool:
        """Whether the group goes on somewhere in the topic: it was not deleted together with its offsets."""
        return max(self.offsets.get(topic, {}).values(), default=NO_OFFSET) > NO_OFFSET

    @property
    def tables(self) -> tuple[dict[str, dict[int, Any]], ...]:
        """The rows by topic and queue id: offsets, resets, holders of locks."""
        return self.offsets, self.resets, self.holders

    @property
    def cost_bytes(self) -> int:
        """
        How long it is in a record, at most, without ``NAME_BYTES_MAX``: a character takes up to 6 bytes there, a number
        20.
        """
        cost = sum(6 * len(topic) + 40 * len(rows) for table in self.tables for topic, rows in table.items())
        cost += sum(6 * len(client_id) for rows in self.holders.values() for client_id in rows.values())
        return cost + sum(len(_encode(part)) for part in (self.facts, self.settings) if part is not None)


class Record(msgspec.Struct, omit_defaults=True, rename="camel"):
    """The body of one record."""

    since: Annotated[int, msgspec.Meta(ge=0)]
    """The queue offset that a rebuild begins at (rule 2)."""
    groups: dict[str, GroupChange] = {}
    again: dict[str, GroupChange] = {}
    topics: dict[str, TopicRow] = {}
    topics_again: dict[str, TopicRow] = {}


encode_record = _encode
_decode_record = msgspec.json.Decoder(Record).decode


def decode_record(at: int, body: bytes | memoryview) -> Record | None:
    """The record at the queue offset ``at``; None: none of ours."""
    try:
        record = _decode_record(body)
    except NONSENSE:
        return None
    return record if record.since <= at else None


class Consumers:
    """The value. Driven by one thread: the loop of the broker."""

    __slots__ = ("groups", "nonsense", "orders", "rows", "since", "topics")

    def __init__(self, since: int = 0) -> None:
        """Nothing is known; ``since`` is that of the newest record, for a rebuild that begins there."""
        self.groups: dict[str, GroupChange] = {}
        self.topics: dict[str, TopicRow] = {}
        self.orders = 0
        """Changes of topics and of settings of groups; only for "is it another one than before"."""
        self.since = since
        self.rows = 0
        self.nonsense = 0

    def fold(self, at: int, body: bytes | memoryview) -> None:
        """The next record is the one at the queue offset ``at`` (rule 1)."""
        record = decode_record(at, body)
        if record is None:
            self.nonsense += 1
            return
        self.since = max(self.since, record.since)
        for name, change in record.groups.items():
            self.rows += merge(self._group(name), change)
            self.orders += change.settings is not None
        for name, told in record.again.items():
            self.rows += merge(self._group(name), told, is_older=True)
        self.topics |= record.topics
        self.orders += len(record.topics)
        for topic, row in record.topics_again.items():
            # Told again each hour, all would count as other ones.
            if topic not in self.topics:
                self.topics[topic] = row
                self.orders += 1

    def offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where the group goes on; None: it has never said."""
        known = self.groups.get(group)
        offset = None if known is None else known.offsets.get(topic, {}).get(queue_id)
        return None if offset == NO_OFFSET else offset

    def _group(self, name: str) -> GroupChange:
        known = self.groups.get(name)
        if known is None:
            known = self.groups[name] = GroupChange()
        return known


def merge(known: GroupChange, change: GroupChange, *, is_older: bool = False) -> int:
    """
    ``change`` is newer than what is ``known``, or older and fills its gaps (rule 3); returns how many rows were not
    there.
    """
    new, old = (known, change) if is_older else (change, known)
    known.facts = new.facts or old.facts
    known.settings = new.settings or old.settings
    added = 0
    for table, told in zip(known.tables, change.tables, strict=True):
        for topic, rows in told.items():
            of_topic = table.setdefault(topic, {})
            added -= len(of_topic)
            of_topic.update(rows | of_topic if is_older else rows)
            added += len(of_topic)
    return added


def brings_rows(known: GroupChange | None, change: GroupChange) -> bool:
    """Whether ``change`` has a row that is not ``known``."""
    tables = (known or GroupChange()).tables
    return any(
        rows.keys() - table.get(topic, {}).keys()
        for table, news in zip(tables, change.tables, strict=True)
        for topic, rows in news.items()
    )
