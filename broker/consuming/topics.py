"""
Topics: which there are, their queues and permissions; codes 17, 18, 21, 202, 215, 305 and 351.

Here: what sends, pulls and routes ask (``find``), orders, questions of RocketMQ's tools. Not here: how topics are
remembered (``offsets_log``), groups (``groups``, ``group_settings``).

Rule 1: a topic needs no order while topics come by themselves (``creates``): it has ``QUEUE_COUNT`` queues, or as many
as have messages, until an order says otherwise.
Rule 2: a topic that was deleted by an order comes back by an order only. A producer that still runs would bring it back
a moment later (RocketMQ's does). Its messages stay until their age; made again, its queues go on where they were.
Rule 3: topics of a group's retries and dead letters are there with the group: deleted, they have the usual queues.
Rule 4: an order counts when it is confirmed: who hears 0 finds it at each later master.
Rule 5: only the master takes orders, and only of who may operate the fleet (``replies.order_responder``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

import msgspec

from rollcall_ha.broker.consuming.offsets_core import TOPICS_MAX
from rollcall_ha.broker.consuming.offsets_log import ConsumerLog, OnOutcome, join
from rollcall_ha.broker.consuming.reading import StoreTimes
from rollcall_ha.broker.consuming.replies import Reply, order_all, order_responder, responder
from rollcall_ha.broker.folds.ports import QueueKey
from rollcall_ha.broker.handlers.ports import Responder
from rollcall_ha.broker.log.record import TOPIC_BYTES_MAX
from rollcall_ha.broker.ports import Around
from rollcall_ha.broker.protocol.codes import ClientCode, ClientResult
from rollcall_ha.broker.protocol.consumers import MessageQueue, encode
from rollcall_ha.broker.protocol.delays import LEVEL_DELAYS_MS, SCHEDULE_TOPIC
from rollcall_ha.broker.protocol.pull import Refused
from rollcall_ha.broker.protocol.topics import (
    DEAD_LETTER_PREFIX,
    DEFAULT_TOPIC,
    OWN,
    PERM_INHERIT,
    PERM_READ,
    QUEUES_PER_TOPIC_MAX,
    RETRY_PREFIX,
    TopicRow,
    decode_topics,
    encode_queue_table,
    parse_topic,
    parse_topic_name,
    topic_config,
    topic_table,
)
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.node.remoting.connection import RemotingConnection
from rollcall_ha.node.remoting.frame import Frame

USUAL: Final = TopicRow()
_ONE_QUEUE: Final = TopicRow(read_queue_nums=1, write_queue_nums=1)
_DELETED: Final = TopicRow(is_deleted=True)
_WITH_GROUPS: Final = (RETRY_PREFIX, DEAD_LETTER_PREFIX)


class TopicList(Frozen):
    """Topics that are there."""

    rows: Mapping[str, TopicRow]
    is_whole: bool
    """Whether there is no other: not where the list was cut, nor where the log begins behind older orders."""


class Topics:
    """The topics of one replica; implements ``handlers.ports.Topics``. On the loop thread."""

    def __init__(self, at: Around, log: ConsumerLog) -> None:
        self.creates = True
        """Live (docs/settings.md, ``auto_create_topics``): a send makes its topic."""
        self._at = at
        self._log = log
        row, levels = USUAL, len(LEVEL_DELAYS_MS)
        self._system: dict[str, TopicRow] = {
            # mqadmin's clusterRT and sendMsgStatus send to topics with these names.
            at.standing.cluster: row,
            at.standing.broker_name: _ONE_QUEUE,
            "SELF_TEST_TOPIC": _ONE_QUEUE,
            SCHEDULE_TOPIC.decode(): TopicRow(read_queue_nums=levels, write_queue_nums=levels),
            f"{OWN}CONSUMERS": msgspec.structs.replace(_ONE_QUEUE, perm=PERM_READ),
            f"{OWN}QUEUES": msgspec.structs.replace(_ONE_QUEUE, perm=PERM_READ),
        }
        self._default = msgspec.structs.replace(row, perm=row.perm | PERM_INHERIT)

    def responders(self) -> dict[int, Responder]:
        return {
            ClientCode.UPDATE_AND_CREATE_TOPIC: order_responder(self._create),
            ClientCode.UPDATE_AND_CREATE_TOPIC_LIST: order_responder(self._create),
            ClientCode.DELETE_TOPIC: order_responder(self._delete),
            ClientCode.GET_TOPIC_CONFIG: responder(self._describe),
            ClientCode.GET_ALL_TOPIC_CONFIG: responder(lambda *_: Reply(body=encode(self.table()))),
            ClientCode.GET_TOPIC_STATS: responder(self._stats),
            ClientCode.GET_SYSTEM_TOPICS: responder(lambda *_: Reply(body=encode({"topicList": sorted(self.system)}))),
        }

    # --- which there are ---------------------------------------------------------------------------------------------

    @property
    def system(self) -> Mapping[str, TopicRow]:
        """Topics of every broker, which no order changes."""
        return {**self._system, DEFAULT_TOPIC: self._default} if self.creates else self._system

    def find(self, topic: str) -> TopicRow | None:
        """As ``handlers.ports.Topics``."""
        row = self._log.known.topics.get(topic)
        if row is not None:
            return None if row.is_deleted else row
        return self._unlisted(topic) or (USUAL if self.creates else None)

    def existing(self, topic: str) -> TopicRow | None:
        """A topic that is there; one that a send would make is not."""
        return self.find(topic) if topic in self._log.known.topics else self._unlisted(topic)

    def absence(self, topic: str) -> Refused:
        """As ``handlers.ports.Topics``."""
        known = self._log.known.topics.get(topic)
        if known is not None and known.is_deleted:
            return Refused(
                ClientResult.TOPIC_NOT_EXIST, f"topic {topic[:255]} was deleted; mqadmin updateTopic makes it again"
            )
        # Said of a topic that the newest records have, it would be taken for lost.
        if (unsure := self.unsure()) is not None:
            return unsure
        remark = f"there is no topic {topic[:255]}, and auto_create_topics is 0; mqadmin updateTopic makes one"
        return Refused(ClientResult.TOPIC_NOT_EXIST, remark)

    def unsure(self) -> Refused | None:
        """As ``handlers.ports.Topics``."""
        # Not followed here: a client may send to a thousand such topics at once.
        if self._log.is_all_known:
            return None
        return Refused(ClientResult.SYSTEM_BUSY, "this replica does not know all topics yet; ask again in a moment")

    def _unlisted(self, topic: str) -> TopicRow | None:
        """A topic that no order has made, and that is there all the same (rules 1 and 3); None: it is not."""
        if (row := self._system.get(topic)) is not None:
            return row
        if topic == DEFAULT_TOPIC and self.creates:
            return self._default
        queue_ids = self._at.folds.queue_ids(topic.encode())
        if topic.startswith(_WITH_GROUPS):
            count = self._retry_queues(topic)
        elif not queue_ids:
            return None
        else:
            count = USUAL.queue_count
        # Messages of before there were numbers to be held to: nobody could read them.
        count = max(count, min(queue_ids[-1] + 1, QUEUES_PER_TOPIC_MAX)) if queue_ids else count
        return USUAL if count == USUAL.queue_count else TopicRow(read_queue_nums=count, write_queue_nums=count)

    def _retry_queues(self, topic: str) -> int:
        known = self._log.known.groups.get(topic.removeprefix(RETRY_PREFIX)) if topic.startswith(RETRY_PREFIX) else None
        return 1 if known is None or known.settings is None else max(1, known.settings.retry_queue_nums)

    def all(self) -> TopicList:
        """At most ``TOPICS_MAX`` and the system's: by order, then of groups, then those that came by themselves."""
        known, system = self._log.known, self.system
        found = {topic: row for topic, row in known.topics.items() if not row.is_deleted}
        # Without a route of its retries a group of RocketMQ's clients would not get them.
        others = [RETRY_PREFIX + group for group, change in known.groups.items() if change.is_there]
        others += [topic.decode(errors="replace") for topic in self._at.folds.topic_names()]
        is_whole = self._log.is_whole
        for topic in others:
            # Bytes that were no text have become longer ones: no name service takes such a topic.
            if topic in found or topic in known.topics or topic in system or len(topic.encode()) > TOPIC_BYTES_MAX:
                continue
            if len(found) >= TOPICS_MAX:
                is_whole = False
                break
            if (row := self._unlisted(topic)) is not None:
                found[topic] = row
        return TopicList(rows={**found, **system}, is_whole=is_whole)

    def follow(self) -> bool:
        """Take in what is confirmed, within one budget; whether all topics are known."""
        return self._log.follow()

    @property
    def stamp(self) -> tuple[tuple[object, ...], tuple[int, int]]:
        """Another one, as a rule, when ``all`` is: of what was ordered, and of what came by itself."""
        log, known = self._log, self._log.known
        ordered = known, known.orders, self.creates, log.is_whole
        return ordered, (len(known.groups), len(self._at.folds.topic_names()))

    def table(self) -> dict[str, object]:
        """RocketMQ's table of all topics."""
        known = self._log.known
        return topic_table(
            self.all().rows, self._at.version(known.orders + len(known.groups) + len(self._at.folds.topic_names()))
        )

    # --- orders ------------------------------------------------------------------------------------------------------

    def _create(self, connection: RemotingConnection, frame: Frame) -> Reply | None:
        orders = [parse_topic(frame)] if frame.code == ClientCode.UPDATE_AND_CREATE_TOPIC else decode_topics(frame.body)
        for order in orders:
            if complaint := order.complaint or self._reserved(order.topic):
                code = ClientResult.SYSTEM_ERROR if order.attributes else ClientResult.INVALID_PARAMETER
                return Reply(code, complaint)
        return self._write({order.topic: order.row() for order in orders}, connection, frame)

    def _reserved(self, topic: str) -> str:
        is_reserved = topic in self._system or topic == DEFAULT_TOPIC or topic.startswith(OWN)
        return f"topic {topic} is the brokers' own; its settings are fixed" if is_reserved else ""

    def _delete(self, connection: RemotingConnection, frame: Frame) -> Reply | None:
        topic = parse_topic_name(frame).topic
        if reserved := self._reserved(topic):
            return Reply(ClientResult.INVALID_PARAMETER, reserved)
        log, is_with_group = self._log, topic.startswith(_WITH_GROUPS)
        busy = log.why_unknown() if self._at.standing.is_master else ""
        newest = log.newest_topic(topic)[0]
        count = self._retry_queues(topic)
        row = TopicRow(read_queue_nums=count, write_queue_nums=count) if is_with_group else _DELETED
        # A row for each name that somebody mistypes would fill the table.
        is_nowhere = newest is None and (is_with_group or not self._at.folds.queue_ids(topic.encode()))
        is_nowhere = is_nowhere and not (self._at.standing.is_master and log.is_doubtful)
        if not is_nowhere and (newest != row or self._at.standing.is_master):
            return self._write({topic: row}, connection, frame)
        # mqadmin deleteSubGroup asks the slaves too, and stops at the first that refuses.
        return Reply(ClientResult.SYSTEM_ERROR, busy) if busy else Reply()

    def _write(self, rows: Mapping[str, TopicRow], connection: RemotingConnection, frame: Frame) -> Reply | None:
        notes = [partial(self._note, topic, row) for topic, row in rows.items()]
        return order_all(connection, frame, self._log.why_unknown(), notes)

    def _note(self, topic: str, row: TopicRow, on_outcome: OnOutcome) -> str:
        newest, waiting = self._log.newest_topic(topic)
        if newest != row or (waiting is None and self._log.is_doubtful):
            return self._log.note_topic(topic, row, on_outcome)
        return join(waiting, on_outcome)

    # --- questions ---------------------------------------------------------------------------------------------------

    def _there(self, topic: str) -> TopicRow | Reply:
        self._log.follow()
        row = self.existing(topic)
        if row is not None:
            return row
        refused = self.absence(topic)
        return Reply(refused.code, refused.remark)

    def _describe(self, _: RemotingConnection, frame: Frame) -> Reply:
        topic = parse_topic_name(frame).topic
        row = self._there(topic)
        return row if isinstance(row, Reply) else Reply(body=encode(topic_config(topic, row)))

    def _stats(self, _: RemotingConnection, frame: Frame) -> Reply:
        topic = parse_topic_name(frame).topic
        row = self._there(topic)
        if isinstance(row, Reply):
            return row
        if self._at.folds.catch_up():
            return Reply(ClientResult.SYSTEM_BUSY, "queues are not whole yet; ask again in a moment")
        name, times = self._at.standing.broker_name, StoreTimes(self._at.folds, self._at.near_bytes)
        queues = [
            (MessageQueue(name, each, topic), self._ends((topic.encode(), each), times))
            for each in range(row.queue_count)
        ]
        return Reply(body=encode_queue_table(queues))

    def _ends(self, key: QueueKey, times: StoreTimes) -> dict[str, int]:
        """Raises ``OSError``, ``QueueDamaged``."""
        queue = self._at.folds.queue(*key)
        if queue is None or queue.max_offset <= queue.min_offset:
            offset = 0 if queue is None else queue.max_offset
            return {"lastUpdateTimestamp": 0, "maxOffset": offset, "minOffset": offset}
        stored_at_ms = times.of(queue, key, queue.max_offset - 1)
        return {"lastUpdateTimestamp": stored_at_ms, "maxOffset": queue.max_offset, "minOffset": queue.min_offset}
