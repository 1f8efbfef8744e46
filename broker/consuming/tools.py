"""
What RocketMQ's tools ask of a broker beside its topics and groups: codes 25, 26, 28, 204, 208, 300, 306, 316, 317,
328, 329, 343 and 1007.

Here: how far groups are, who consumes and produces what, the broker's own figures. Not here: topics (``topics``),
settings of groups (``group_settings``), members (``groups``).

Rule 1: a figure that is not known is left out, or 0 where RocketMQ's tools parse it unguarded (docs/wire.md).
Rule 2: rates are of samples that ``tick`` takes each ``SAMPLE_MS``: nothing is counted per message for them.
Rule 3: an order for what the broker does by itself as soon as it is due is answered 0: nothing is left to do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from rollcall_ha.broker.consuming.groups import ROCKETMQ_VERSION, Groups, connection_set
from rollcall_ha.broker.consuming.offsets_log import ConsumerLog
from rollcall_ha.broker.consuming.reading import StoreTimes, copy_record
from rollcall_ha.broker.consuming.replies import Reply, responder
from rollcall_ha.broker.consuming.topics import Topics
from rollcall_ha.broker.handlers.ports import Responder
from rollcall_ha.broker.ports import Around
from rollcall_ha.broker.protocol.codes import ClientCode, ClientResult
from rollcall_ha.broker.protocol.consumers import MessageQueue, encode
from rollcall_ha.broker.protocol.record import RecordView
from rollcall_ha.broker.protocol.topics import (
    TopicRow,
    encode_queue_table,
    parse_group_name,
    parse_stats,
    parse_topic_name,
)
from rollcall_ha.controller.contract.ids import LogOffset
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.epoch.history import EpochHistory
from rollcall_ha.node.remoting.connection import RemotingConnection
from rollcall_ha.node.remoting.frame import Frame

SAMPLE_MS: Final = 10_000
_WINDOWS: Final = (1, 6, 60)
"""RocketMQ's rates: of the last 10 s, minute and ten minutes, in samples."""
STATS_QUEUES_MAX: Final = 1_024
"""In one answer to 208: each is a read of the log."""
_IDLE: Final = dict.fromkeys(
    (
        *(f"{pool}ThreadPoolQueue{what}" for pool in ("send", "pull", "ack") for what in ("Size", "HeadWaitTimeMills")),
        *("pageCacheLockTimeMills", "timerReadBehind", "timerOffsetBehind", "timerCongestNum"),
        *("timerEnqueueTps", "timerDequeueTps"),
        *(f"msg{what}Total{day}Morning" for what in ("Put", "Get") for day in ("Today", "Yesterday")),
    ),
    "0",
)
"""Of pools and a timer wheel, which are not here; and of totals at midnights: they count from the start."""


_DONE_BY_ITSELF: Final = (
    ClientCode.CLEAN_EXPIRED_CONSUME_QUEUES,
    ClientCode.DELETE_EXPIRED_LOG,
    ClientCode.CLEAN_UNUSED_TOPICS,
)
"""Rule 3: files go with the retention (``broker.retention``), and no topic has files without messages."""


_Sample = tuple[int, int, int]
"""When (monotonic, ms), and how many messages were put and pulled until then since the start."""


class About(Frozen):
    """What a broker can tell of itself, beside its topics and groups."""

    config: Callable[[], Mapping[str, str]]
    """What 26 shows, under RocketMQ's names; as it is in force when it is asked for."""
    disk_share: Callable[[], float | None]
    """Of the log's disk, taken by all that lies there; None: not known."""
    wall_ms: Callable[[], int]
    """UTC, ms since 1970."""


class Tools:
    """Answers of one replica. On the loop thread."""

    def __init__(
        self,
        at: Around,
        log: ConsumerLog,
        *,
        groups: Groups,
        topics: Topics,
        about: About,
        history: Callable[[], tuple[int, EpochHistory, LogOffset]],
        put_total: Callable[[], int],
        pulled_total: Callable[[], int],
    ) -> None:
        """``history``: this replica's id, its epochs, the end of its log. Totals are of messages, since the start."""
        self._at = at
        self._log = log
        self._groups = groups
        self._topics = topics
        self._about = about
        self._history = history
        self._put_total = put_total
        self._pulled_total = pulled_total
        self._booted_at_ms = about.wall_ms()
        self._began_ms = at.now_ms()
        self._samples: deque[_Sample] = deque(maxlen=max(_WINDOWS) + 1)

    def responders(self) -> dict[int, Responder]:
        return {
            ClientCode.UPDATE_BROKER_CONFIG: responder(self._refuse_config),
            ClientCode.GET_BROKER_CONFIG: responder(self._show_config),
            ClientCode.GET_BROKER_RUNTIME_INFO: responder(self._describe),
            ClientCode.GET_CONSUME_STATS: responder(self._progress),
            ClientCode.GET_BROKER_CONSUME_STATS: responder(self._progress_of_all),
            ClientCode.GET_PRODUCER_CONNECTION_LIST: responder(self._producers_of),
            ClientCode.GET_ALL_PRODUCERS: responder(self._all_producers),
            ClientCode.GET_BROKER_EPOCHS: responder(self._show_epochs),
            **dict.fromkeys(_DONE_BY_ITSELF, responder(lambda *_: Reply())),
            ClientCode.QUERY_GROUPS_OF_TOPIC: responder(self._groups_of),
            ClientCode.QUERY_TOPICS_OF_GROUP: responder(self._topics_of),
        }

    def tick(self) -> None:
        """Once a second."""
        if not self._samples or self._at.now_ms() - self._samples[-1][0] >= SAMPLE_MS:
            self._samples.append(self._sample())

    def _sample(self) -> _Sample:
        return self._at.now_ms(), self._put_total(), self._pulled_total()

    # --- the broker --------------------------------------------------------------------------------------------------

    def _refuse_config(self, _: RemotingConnection, __: Frame) -> Reply:
        remark = "settings are in the fleet file, and live by rollcall config apply; a broker takes none by code 25"
        return Reply(ClientResult.NO_PERMISSION, remark)

    def _show_config(self, _: RemotingConnection, __: Frame) -> Reply:
        config = {**self._about.config(), "autoCreateTopicEnable": str(self._topics.creates).lower()}
        return Reply(body="".join(f"{key}={value}\n" for key, value in sorted(config.items())).encode())

    def _describe(self, _: RemotingConnection, __: Frame) -> Reply:
        now, share = self._sample(), self._about.disk_share()
        table = {
            **_IDLE,
            "brokerActive": str(self._at.standing.is_master).lower(),
            "bootTimestamp": str(self._booted_at_ms),
            "brokerVersion": str(ROCKETMQ_VERSION),
            "brokerVersionDesc": "V5_3_3",
            "commitLogDiskRatio": "-1" if share is None else f"{share:.4f}",
            "commitLogMaxOffset": str(self._at.folds.confirm_offset),
            "commitLogMinOffset": str(self._at.folds.min_offset),
            "dispatchBehindBytes": str(self._at.folds.catch_up()),
            "earliestMessageTimeStamp": str(self._earliest_ms()),
            "getTransferredTps": self._rates(now, 2),
            "msgGetTotalTodayNow": str(now[2]),
            "msgPutTotalTodayNow": str(now[1]),
            "putTps": self._rates(now, 1),
            "runtime": f"[ {(self._at.now_ms() - self._began_ms) // 1_000} s ]",
        }
        return Reply(body=encode({"table": table}))

    def _rates(self, now: _Sample, which: int) -> str:
        samples = self._samples
        pasts = (samples[-min(each, len(samples))] if samples else now for each in _WINDOWS)
        rates = ((now[which] - past[which]) * 1_000 / max(1, now[0] - past[0]) for past in pasts)
        return " ".join(f"{rate:.2f}" for rate in rates)

    def _earliest_ms(self) -> int:
        """Store time of the log's first record; -1: it has none."""
        record = copy_record(self._at.folds, self._at.folds.min_offset)
        return -1 if record is None else RecordView(memoryview(record)).stored_at_ms

    def _show_epochs(self, _: RemotingConnection, __: Frame) -> Reply:
        standing, (broker_id, history, end) = self._at.standing, self._history()
        epochs = [
            {"epoch": one.epoch, "startOffset": one.start_offset, "endOffset": history.end_of(one.epoch, end)}
            for one in history.entries
        ]
        # As in routes, a master is 0.
        own_id = 0 if standing.is_master else broker_id
        whose = {"brokerId": own_id, "brokerName": standing.broker_name, "clusterName": standing.cluster}
        return Reply(body=encode({**whose, "epochList": epochs, "maxOffset": end}))

    # --- who produces what -------------------------------------------------------------------------------------------

    def _producers_of(self, _: RemotingConnection, frame: Frame) -> Reply:
        group = (frame.ext_fields or {}).get("producerGroup", "")
        members = self._groups.producers.members(group)
        if not members:
            return Reply(ClientResult.SYSTEM_ERROR, f"the producer group[{group[:255]}] not exist")
        return Reply(body=encode({"connectionSet": connection_set(members)}))

    def _all_producers(self, _: RemotingConnection, __: Frame) -> Reply:
        producers, wall_ms, now_ms = self._groups.producers, self._about.wall_ms(), self._at.now_ms()
        told = {
            name: [
                {
                    "clientId": each.client_id,
                    "language": each.language,
                    "lastUpdateTimestamp": wall_ms - now_ms + each.heard_ms,
                    "remoteIP": f"/{link.peer}",
                    "version": each.version,
                }
                for link, each in producers.members(name).items()
            ]
            for name in producers.names
        }
        return Reply(body=encode({"data": told}))

    # --- who consumes what -------------------------------------------------------------------------------------------

    def _groups_of(self, _: RemotingConnection, frame: Frame) -> Reply:
        topic = parse_topic_name(frame).topic
        # Not by ``Groups.topics``: the loop would stand still for all topics of 10,000 groups.
        found = [
            name
            for name, change in self._log.known.groups.items()
            if change.is_there and (change.has_offset(topic) or self._groups.subscribes(name, topic))
        ]
        return Reply(body=encode({"groupList": sorted(found)}))

    def _topics_of(self, _: RemotingConnection, frame: Frame) -> Reply:
        group = parse_group_name(frame).group
        return Reply(body=encode({"topicList": sorted(self._groups.topics(group))}))

    def _progress(self, _: RemotingConnection, frame: Frame) -> Reply:
        asked = parse_stats(frame)
        group = asked.consumer_group
        if busy := "" if self._log.follow() else "offsets are not all known yet; ask again in a moment":
            return Reply(ClientResult.SYSTEM_BUSY, busy)
        topics = asked.topics or self._groups.read_topics(group)
        # mqadmin asks for the route of each, and ends at the first that has none.
        rows = [(topic, row) for topic in topics if (row := self._topics.existing(topic)) is not None]
        queues = sum(row.read_queue_nums for _, row in rows)
        if queues > STATS_QUEUES_MAX:
            remark = (
                f"{len(rows)} topics of {group} have {queues} queues; {STATS_QUEUES_MAX} are told at once: name a topic"
            )
            return Reply(ClientResult.SYSTEM_ERROR, remark)
        times = StoreTimes(self._at.folds, self._at.near_bytes)
        return Reply(
            body=encode_queue_table(row for topic, own in rows for row in self._rows(group, topic, own, times))
        )

    def _progress_of_all(self, _: RemotingConnection, frame: Frame) -> Reply:
        if busy := "" if self._log.follow() else "offsets are not all known yet; ask again in a moment":
            return Reply(ClientResult.SYSTEM_BUSY, busy)
        is_ordered = (frame.ext_fields or {}).get("isOrder") == "true"
        found, queues = [], 0
        for group, change in self._log.known.groups.items():
            if not change.is_there:
                continue
            rows = [(topic, self._topics.existing(topic)) for topic in self._groups.read_topics(group)]
            found.append((group, [(topic, row) for topic, row in rows if row and (row.order or not is_ordered)]))
            queues += max(1, sum(row.read_queue_nums for _, row in found[-1][1]))
            if queues > STATS_QUEUES_MAX:
                remark = f"all groups have more than {STATS_QUEUES_MAX} queues; consumerProgress -g asks for one group"
                return Reply(ClientResult.SYSTEM_ERROR, remark)
        times, told, behind = StoreTimes(self._at.folds, self._at.near_bytes), [], 0
        for group, topics in found:
            tables = [self._rows(group, topic, row, times) for topic, row in topics]
            behind += sum(row["brokerOffset"] - row["consumerOffset"] for table in tables for _, row in table)
            told.append(b"{%b:[%b]}" % (encode(group), b",".join(map(encode_queue_table, tables))))
        return Reply(body=b'{"consumeStatsList":[%b],"totalDiff":%d}' % (b",".join(told), behind))

    def _rows(
        self, group: str, topic: str, row: TopicRow, times: StoreTimes
    ) -> list[tuple[MessageQueue, Mapping[str, int]]]:
        """How far a group is in each queue of a topic. Raises ``OSError``, ``QueueDamaged``."""
        name = self._at.standing.broker_name
        return [
            (MessageQueue(name, queue_id, topic), self._progress_of(group, topic, queue_id, times))
            for queue_id in range(row.read_queue_nums)
        ]

    def _progress_of(self, group: str, topic: str, queue_id: int, times: StoreTimes) -> dict[str, int]:
        """Raises ``OSError``, ``QueueDamaged``."""
        queue = self._at.folds.queue(topic.encode(), queue_id)
        offset = self._log.known.offset(group, topic, queue_id) or 0
        stored_at_ms = 0
        if queue is not None and queue.min_offset < offset <= queue.max_offset:
            stored_at_ms = times.of(queue, (topic.encode(), queue_id), offset - 1)
        return {
            "brokerOffset": 0 if queue is None else queue.max_offset,
            "consumerOffset": offset,
            "lastTimestamp": stored_at_ms,
            "pullOffset": offset,
        }
