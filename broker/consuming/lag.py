"""
How far groups are behind the ends of their queues, who holds each queue, which stand still; and what controllers are
told of that and of topics: codes 3192 to 3195 (adr/0039).

Here: looks at queues, a sweep over all groups, sums for metrics, answers. Not here: offsets (``offsets_log``), members
(``groups``), orders (``topics``, ``group_settings``, ``offsets``), their types (``controller.contract.consuming``).

Rule 1: nothing is counted per message, nor per commit: a sweep compares offsets and ends, ``ROWS_PER_TICK_MAX`` queues
a second. So sums are as old as a sweep takes; a question about one group looks anew.
Rule 2: a queue is held by the member that pulled it last. Clients share queues by themselves, and no broker is told.
Rule 3: standstill is what this replica saw while it served: a new master begins to count anew.
Rule 4: metrics have at most ``LAG_SERIES_MAX`` series, those that lag most; the others are summed in one.
Rule 5: a replica that may not be read from, or does not know all yet, answers "busy", never "there is nothing".
Rule 6: an answer has at most ``NAMES_PAGE_MAX`` names or ``QUEUES_TOLD_MAX`` queues, and says how many it left off.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Annotated, Any, Final

import msgspec

from rollcall_ha.broker.consuming.groups import Groups
from rollcall_ha.broker.consuming.offsets_core import NO_OFFSET
from rollcall_ha.broker.consuming.offsets_log import ConsumerLog
from rollcall_ha.broker.consuming.replies import Reply, responder
from rollcall_ha.broker.consuming.topics import Topics
from rollcall_ha.broker.handlers.ports import Responder
from rollcall_ha.broker.ports import Around
from rollcall_ha.broker.protocol.codes import ClientCode, ClientResult
from rollcall_ha.broker.protocol.consumers import encode, header_of
from rollcall_ha.broker.protocol.pull import PullRequest
from rollcall_ha.broker.protocol.topics import TopicRow, parse_group_name, parse_topic_name
from rollcall_ha.controller.contract import consuming as told
from rollcall_ha.controller.contract.consuming import NAMES_PAGE_MAX, QUEUES_TOLD_MAX, STUCK_AFTER_MS, GroupQueue
from rollcall_ha.controller.contract.ids import BrokerName, ClusterName, SetKey
from rollcall_ha.node.remoting.connection import RemotingConnection
from rollcall_ha.node.remoting.frame import Frame

ROWS_PER_TICK_MAX: Final = 500
"""Two to four ms of the loop."""
LAG_SERIES_MAX: Final = 200
"""Pairs of a group and a topic in the metrics of one broker."""
PLACES_PER_GROUP_MAX: Final = 4_096
"""Whose holders are remembered between two looks: a client may pull at any place."""
OTHERS: Final = "(others)"
"""Group and topic of the sum of all further ones; no name has brackets."""
_Place = tuple[str, int]
"""Topic and queue id."""


class _Page(msgspec.Struct):
    """Header of 3192 and 3194: ``limit`` names behind ``after`` that contain ``part``."""

    after: str = ""
    part: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=NAMES_PAGE_MAX)] = NAMES_PAGE_MAX


_parse_page = header_of(_Page)


class GroupSum(msgspec.Struct):
    """One group, as the last sweep found it; by topic."""

    lags: dict[str, int] = {}
    """How many messages the group is behind."""
    stuck: dict[str, int] = {}
    """Queues that stand still."""

    def add(self, row: GroupQueue) -> None:
        self.lags[row.topic] = self.lags.get(row.topic, 0) + (row.lag or 0)
        self.stuck[row.topic] = self.stuck.get(row.topic, 0) + row.is_stuck

    def of(self, topic: str) -> GroupSum:
        return GroupSum({topic: self.lags.get(topic, 0)}, {topic: self.stuck.get(topic, 0)})


class Lags:
    """The lag of all groups at one replica. On the loop thread."""

    def __init__(self, at: Around, log: ConsumerLog, *, groups: Groups, topics: Topics) -> None:
        self.sums: dict[str, GroupSum] = {}
        self._at, self._log, self._groups, self._topics = at, log, groups, topics
        self._set_key = SetKey(ClusterName(at.standing.cluster), BrokerName(at.standing.broker_name))
        self._holders: dict[str, dict[_Place, str]] = {}
        self._still: dict[str, dict[_Place, tuple[int, int]]] = {}
        """Where a queue's offset stands, and since when, by group; only of those with messages behind it."""
        self._sweep = self._round()

    def note_pull(self, connection: RemotingConnection, request: PullRequest) -> None:
        """A member asks for messages of a queue (rule 2)."""
        group = request.consumer_group
        member = self._groups.table.members(group).get(connection)
        if member is not None:
            held, place = self._holders.setdefault(group, {}), (request.topic, request.queue_id)
            if place in held or len(held) < PLACES_PER_GROUP_MAX:
                held[place] = member.client_id

    def tick(self) -> None:
        """Once a second: the sweep goes on, or begins again."""
        if not self._at.standing.serves_reads:
            self.sums, self._holders, self._still, self._sweep = {}, {}, {}, self._round()
        # Queues that are being built anew have no end: each failover would look as if all had been read.
        elif self._log.follow() and sum(1 for _ in islice(self._sweep, ROWS_PER_TICK_MAX)) < ROWS_PER_TICK_MAX:
            self._sweep = self._round()

    def _round(self) -> Iterator[None]:
        names = self.names()
        tables: tuple[dict[str, Any], ...] = self.sums, self._holders, self._still
        for table in tables:
            for gone in table.keys() - set(names):
                del table[gone]
        for group in names:
            found, places = GroupSum(), set[_Place]()
            for row in self.look(group):
                found.add(row)
                places.add((row.topic, row.queue_id))
                yield
            self.sums[group] = found
            for table in tables[1:]:
                # A client may pull at a place that is no queue, or no queue any more.
                for place in table.get(group, {}).keys() - places:
                    del table[group][place]
            yield

    def names(self) -> list[str]:
        """Groups that are there."""
        known = self._log.known.groups
        return sorted({*(name for name, change in known.items() if change.is_there), *self._groups.table.names})

    def topics_of(self, group: str) -> list[str]:
        """Those whose progress is told, ascending."""
        return self._groups.read_topics(group)

    def count(self, group: str, topic: str = "") -> int:
        """How many queues ``look`` finds."""
        rows = map(self._topics.existing, [topic] if topic else self.topics_of(group))
        return sum(row.read_queue_nums for row in rows if row is not None)

    def look(self, group: str, topic: str = "") -> Iterator[GroupQueue]:
        """Every queue of the group, or those of one topic, as of now."""
        members = set(self._groups.facts(group).members)
        for each in [topic] if topic else self.topics_of(group):
            row = self._topics.existing(each)
            for queue_id in range(0 if row is None else row.read_queue_nums):
                yield self._look_at(group, (each, queue_id), members)

    def ends(self, place: _Place) -> tuple[int, int]:
        """The lowest offset of a queue that is there, and the next one."""
        queue = self._at.folds.queue(place[0].encode(), place[1])
        return (0, 0) if queue is None else (queue.min_offset, queue.max_offset)

    def _look_at(self, group: str, place: _Place, members: set[str]) -> GroupQueue:
        lowest, end = self.ends(place)
        offset = self._log.known.offset(group, *place)
        lag = None if offset is None else max(0, end - offset)
        still_ms = self._stood(group, place, offset) if offset is not None and lag else None
        if still_ms is None:
            self._still.get(group, {}).pop(place, None)
        holder = self._holders.get(group, {}).get(place, "")
        return GroupQueue(
            set_key=self._set_key,
            topic=place[0],
            queue_id=place[1],
            min_offset=lowest,
            max_offset=end,
            offset=offset,
            lag=lag,
            holder=holder if holder in members else "",
            still_ms=still_ms,
            is_stuck=still_ms is not None and still_ms >= STUCK_AFTER_MS,
        )

    def _stood(self, group: str, place: _Place, offset: int) -> int:
        of_group = self._still.setdefault(group, {})
        at, since_ms = of_group.get(place, (NO_OFFSET, 0))
        if at != offset:
            of_group[place] = offset, self._at.now_ms()
            return 0
        return self._at.now_ms() - since_ms

    # --- metrics -----------------------------------------------------------------------------------------------------

    @property
    def stuck_queues(self) -> int:
        """Of all groups, as the last sweep found them."""
        return sum(sum(each.stuck.values()) for each in self.sums.values())

    def series(self) -> list[tuple[str, str, int]]:
        """Group, topic and lag (rule 4)."""
        every = ((lag, group, topic) for group, each in self.sums.items() for topic, lag in each.lags.items())
        shown = heapq.nlargest(LAG_SERIES_MAX, every)
        total = sum(sum(each.lags.values()) for each in self.sums.values())
        others = total - sum(lag for lag, _, _ in shown)
        return [*((group, topic, lag) for lag, group, topic in shown), (OTHERS, OTHERS, others)]

    # --- what controllers ask ----------------------------------------------------------------------------------------

    def responders(self) -> dict[int, Responder]:
        """The codes that are answered here."""
        find = {
            ClientCode.TELL_TOPICS: self._tell_topics,
            ClientCode.TELL_TOPIC: self._tell_topic,
            ClientCode.TELL_GROUPS: self._tell_groups,
            ClientCode.TELL_GROUP: self._tell_group,
        }

        def judged(_: RemotingConnection, frame: Frame) -> Reply:
            if not self._at.standing.serves_reads:
                return Reply(ClientResult.SYSTEM_BUSY, "this replica is not the master, or does not serve yet")
            if not self._log.follow() or self._at.folds.catch_up():
                return Reply(ClientResult.SYSTEM_BUSY, "not all that is confirmed is known here yet; ask again")
            answer = find[ClientCode(frame.code)](frame)
            return answer if isinstance(answer, Reply) else Reply(body=encode(answer))

        return dict.fromkeys(find, responder(judged))

    def _read(self, left_off: int = 0) -> tuple[told.SetRead]:
        return (told.SetRead(set_key=self._set_key, left_off=left_off),)

    # --- topics ------------------------------------------------------------------------------------------------------

    def _tell_topics(self, frame: Frame) -> told.TopicPage:
        rows = self._topics.all().rows
        names, next_after = _page(rows, frame)
        lines = tuple(self._topic_line(name, rows[name]) for name in names)
        return told.TopicPage(read=self._read(), topics=lines, next_after=next_after)

    def _topic_line(self, topic: str, row: TopicRow) -> told.TopicLine:
        return told.TopicLine(
            topic=topic,
            set_key=self._set_key,
            read_queues=row.read_queue_nums,
            write_queues=row.write_queue_nums,
            permission=told.permission_of(row.perm),
            is_own=topic in self._topics.system,
        )

    def _tell_topic(self, frame: Frame) -> told.TopicAnswer | Reply:
        topic = parse_topic_name(frame).topic
        row = self._topics.existing(topic)
        if row is None:
            refused = self._topics.absence(topic)
            return Reply(refused.code, refused.remark)
        ends = {queue_id: self.ends((topic, queue_id)) for queue_id in range(row.queue_count)}
        # By the sums of the sweep: the loop would stand still for all topics of 10,000 groups.
        readers = sorted(name for name, found in self.sums.items() if topic in found.lags)
        page = readers[:NAMES_PAGE_MAX]
        return told.TopicAnswer(
            read=self._read(len(readers) - len(page)),
            topics=(self._topic_line(topic, row),),
            queues=tuple(
                told.TopicQueue(set_key=self._set_key, queue_id=queue_id, min_offset=lowest, max_offset=end)
                for queue_id, (lowest, end) in ends.items()
            ),
            groups=tuple(self._line(name, self.sums[name].of(topic)) for name in page),
        )

    # --- groups ------------------------------------------------------------------------------------------------------

    def _tell_groups(self, frame: Frame) -> told.GroupPage:
        names, next_after = _page(self.names(), frame)
        lines = tuple(self._line(name, self.sums.get(name, GroupSum())) for name in names)
        return told.GroupPage(read=self._read(), groups=lines, next_after=next_after)

    def _line(self, group: str, found: GroupSum) -> told.GroupLine:
        return told.GroupLine(
            group=group,
            set_key=self._set_key,
            members=len(self._groups.facts(group).members),
            topics=len(found.lags),
            lag=sum(found.lags.values()),
            stuck_queues=sum(found.stuck.values()),
        )

    def _tell_group(self, frame: Frame) -> told.GroupAnswer | Reply:
        group, topic = parse_group_name(frame).group, (frame.ext_fields or {}).get("topic", "")
        if (refused := self._groups.absence(group)) is not None:
            return Reply(refused.code, refused.remark)
        rows = list(islice(self.look(group, topic), QUEUES_TOLD_MAX))
        found, left_off = GroupSum(), self.count(group, topic) - len(rows)
        for row in rows:
            found.add(row)
        line = self._line(group, self.sums.get(group, found) if left_off else found)
        return told.GroupAnswer(
            read=self._read(left_off),
            groups=(line,),
            members=self._members(group, rows),
            queues=tuple(rows),
            settings=(self._settings(group),),
        )

    def _settings(self, group: str) -> told.GroupSettings:
        row = self._groups.settings_of(group)
        return told.GroupSettings(
            set_key=self._set_key,
            retries_max=row.retry_max_times,
            may_consume=row.consume_enable,
            may_broadcast=row.consume_broadcast_enable,
            is_ordered=row.consume_message_orderly,
        )

    def _members(self, group: str, rows: Sequence[GroupQueue]) -> tuple[told.GroupMember, ...]:
        groups = self._groups
        held: dict[str, list[GroupQueue]] = {client_id: [] for client_id in groups.facts(group).members}
        for row in rows:
            held.get(row.holder, []).append(row)
        peers = {each.client_id: link.peer for link, each in groups.table.members(group).items()}
        return tuple(
            told.GroupMember(
                client_id=client_id,
                set_key=self._set_key,
                address=peers.get(client_id, ""),
                queues=len(own),
                lag=sum(row.lag or 0 for row in own),
                stuck_queues=sum(row.is_stuck for row in own),
            )
            for client_id, own in held.items()
        )


def _page(names: Iterable[str], frame: Frame) -> tuple[list[str], str | None]:
    """The names that are asked for, and the last of them if there are more."""
    asked = _parse_page(frame)
    found = sorted(name for name in names if name > asked.after and asked.part in name)
    page = found[: asked.limit]
    return page, page[-1] if len(found) > len(page) else None
