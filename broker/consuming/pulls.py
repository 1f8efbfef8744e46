"""
Pulls of consumers, and questions about the ends of queues: codes 11, 361, and 29 to 32.

Here: whether a pull is admitted, its look at the queue, its wait or its answer. Not here: what is found (``reading``),
the table of those that wait (``waiting``), groups and their offsets (``groups``, ``offsets``).

Rule 1: what moves a consumer, an offset that was asked for or code 21, is told only when all that is confirmed has been
taken in. Told by folds that are behind, after a start or a failover, it would send a group back by thousands.
Rule 2: a slave moves no consumer: what it cannot answer it sends back to the master, at the offset that was asked for,
by a code behind which RocketMQ's clients heed the replica that is named for the next pull: 20, or 19 after a while.
Rule 3: a waiting pull is admitted again when it is woken: its group may have subscribed to something else, this replica
may read no more.
Rule 4: a queue whose units name other records delivers nothing behind them: it is counted, and told to its owner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from rollcall_ha.broker.consuming.filters import Filter, make_filter
from rollcall_ha.broker.consuming.reading import Found, QueueDamaged, QueueReader, nothing
from rollcall_ha.broker.consuming.replies import Reply, responder
from rollcall_ha.broker.consuming.waiting import WaitingPull, WaitingPulls
from rollcall_ha.broker.handlers.ports import Responder, Topics
from rollcall_ha.broker.ports import Around
from rollcall_ha.broker.protocol.codes import ClientCode, ClientResult
from rollcall_ha.broker.protocol.pull import (
    FLAG_COMMIT,
    FLAG_SUBSCRIPTION,
    PullRequest,
    QueueQuestion,
    Refused,
    parse_pull,
    parse_question,
    pull_answer,
)
from rollcall_ha.node.remoting.connection import RemotingConnection
from rollcall_ha.node.remoting.frame import Frame

_SEEN_ALL: Final = (ClientResult.PULL_NOT_FOUND, ClientResult.PULL_RETRY_IMMEDIATELY)
_QUESTIONS: Final = (
    ClientCode.SEARCH_OFFSET_BY_TIMESTAMP,
    ClientCode.GET_MAX_OFFSET,
    ClientCode.GET_MIN_OFFSET,
    ClientCode.GET_EARLIEST_MSG_STORETIME,
)
_AT_AN_END: Final = (ClientResult.PULL_NOT_FOUND, ClientResult.PULL_OFFSET_MOVED)
BACK_WAIT_MS_MAX: Final = 1_000
UNREAD_BYTES_MAX: Final = 8 * 1024 * 1024
"""Of answers that a client has not read; with so much, and one answer more, it is far from being thrown out."""


class Subscriptions(Protocol):
    """What groups have subscribed to, by their heartbeats, and may."""

    def refusal_of(self, group: str) -> Refused | None:
        """Why the group gets nothing, by its settings; None: it may."""
        ...

    def filter_of(self, group: str, topic: str, sub_version: int) -> Filter | Refused:
        """The filter of a pull without a subscription of its own."""
        ...

    def slow_reader(self, group: str) -> int:
        """Broker id of the slave that the group wants to read from while it is far behind."""
        ...


class GroupOffsets(Protocol):
    """Where groups go on."""

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> object:
        """The group goes on at ``offset``; left out while a reset is not told."""
        ...

    def take_reset(self, group: str, topic: str, queue_id: int, offset: int) -> int | None:
        """Where a pull at ``offset`` is to go on, told once after a reset; None: where it is."""
        ...

    def awaits_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether the group's next pull is to hear of a reset, from the master."""
        ...


class LogEnds(Protocol):
    """Queues by the log itself, records included that are not confirmed."""

    def has(self, topic: bytes, queue_id: int) -> bool: ...

    def max_offset(self, topic: bytes, queue_id: int) -> int: ...


class Pulls:
    """All pulls of one replica. On the loop thread."""

    def __init__(
        self,
        at: Around,
        *,
        subscriptions: Subscriptions,
        topics: Topics,
        offsets: GroupOffsets,
        log_ends: Callable[[], LogEnds],
    ) -> None:
        self.messages = 0
        """Given since the start of the process."""
        self.damaged = 0
        """Looks at queues whose units name other records (rule 4), since then."""
        self.waiting = WaitingPulls(self._retry, self._expire)
        self.on_pull: Callable[[RemotingConnection, PullRequest], None] = lambda _link, _request: None
        """Hears each pull that comes, not those that are looked at again."""
        self._at = at
        self._subscriptions = subscriptions
        self._topics = topics
        self._offsets = offsets
        self._log_ends = log_ends
        at.folds.subscribe_grown(self.waiting.wake)

    def responders(self) -> dict[int, Responder]:
        return {
            ClientCode.PULL_MESSAGE: self._pull,
            ClientCode.LITE_PULL_MESSAGE: self._pull,
            **dict.fromkeys(_QUESTIONS, responder(self._answer_question)),
        }

    # --- pulls -------------------------------------------------------------------------------------------------------

    def _pull(self, connection: RemotingConnection, frame: Frame) -> None:
        if frame.is_one_way:
            return  # nobody reads what it would find
        request = parse_pull(frame)
        if isinstance(request, Refused):
            data = pull_answer(frame.opaque, frame.form, request.code, next_offset=0, remark=request.remark)
            _write(connection, request.code, data)
            return
        self.on_pull(connection, request)
        key = (request.topic.encode(), request.queue_id)
        pull = WaitingPull(connection, frame.opaque, frame.form, request, key, request.queue_offset)
        found = self._look(pull)
        wait_ms = request.wait_ms if found.code == ClientResult.PULL_NOT_FOUND else 0
        if found.is_sent_back:
            # Told at once, a client whose route has no master would come back here at once, and for ever.
            pull.is_sent_back, wait_ms = True, min(request.wait_ms, BACK_WAIT_MS_MAX)
        if wait_ms > 0:
            full = self.waiting.hold(pull, wait_ms)
            if not full:
                return
            # Told that there is nothing, its client would ask again at once, for ever; so it makes a pause first.
            found.code, found.remark = ClientResult.SYSTEM_BUSY, full
        self._answer(pull, found)

    def _retry(self, pull: WaitingPull) -> bool:
        """A queue has grown: whether the pull that waits at it has its answer."""
        found = self._look(pull)
        is_news = found.is_sent_back and not pull.is_sent_back
        if found.code in _SEEN_ALL and found.next_offset >= found.max_offset and not is_news:
            pull.offset = found.next_offset
            return False
        self._answer(pull, found)
        return True

    def _expire(self, pull: WaitingPull) -> None:
        queue = self._at.folds.queue(*pull.key)
        lowest, end = (0, 0) if queue is None else (queue.min_offset, queue.max_offset)
        self._answer(pull, Found(ClientResult.PULL_NOT_FOUND, pull.offset, "", lowest, end))

    def _look(self, pull: WaitingPull) -> Found:
        """What the pull finds now, or why it may not look."""
        request, standing = pull.request, self._at.standing
        place = (request.consumer_group, request.topic, request.queue_id)
        if not standing.serves_reads and (elsewhere := self._why_elsewhere(*place)):
            # A tool that does not wait would ask a set without a master on and on.
            code = ClientResult.PULL_RETRY_IMMEDIATELY if standing.knows_master else ClientResult.SYSTEM_BUSY
            return Found(code, request.queue_offset, elsewhere, is_sent_back=True)
        filter_ = self._admit(pull)
        if isinstance(filter_, Refused):
            return Found(filter_.code, request.queue_offset, filter_.remark)
        # Before a reset is taken: behind it, the commit of a client that does not know of it would undo it.
        if pull.filter is None and request.sys_flag & FLAG_COMMIT and request.commit_offset >= 0:
            self._offsets.commit(*place, request.commit_offset)
        reset = self._offsets.take_reset(*place, request.queue_offset)
        if reset is not None:
            return Found(ClientResult.PULL_OFFSET_MOVED, reset, "the offset of the group was reset")
        if pull.filter is None or pull.filter.text != filter_.text:
            # The old filter has passed by what the new one may want.
            pull.filter, pull.offset = filter_, request.queue_offset
        found = self._look_once(pull, filter_)
        # A pull that waits is woken by what is taken in.
        is_end = found.code == ClientResult.PULL_NOT_FOUND and request.wait_ms <= 0
        if is_end or found.code == ClientResult.PULL_OFFSET_MOVED:
            behind_bytes = self._at.folds.catch_up()
            found = self._look_once(pull, filter_)
            if found.code in _AT_AN_END and behind_bytes:
                # Told that this is busy, Java makes a pause of 1 s, Go of 3 s; held, they hear when there is more.
                is_held = request.wait_ms > 0 and pull.offset >= found.max_offset
                code = ClientResult.PULL_NOT_FOUND if is_held else ClientResult.SYSTEM_BUSY
                found = Found(code, pull.offset, _behind(behind_bytes))
            elif found.code == ClientResult.PULL_OFFSET_MOVED and not found.max_offset and not self._at.folds.knows_all:
                found = Found(ClientResult.SYSTEM_ERROR, pull.offset, self._unseen())
        if found.damage:
            self._tell_damage(found.damage)
        if found.code == ClientResult.PULL_OFFSET_MOVED and not standing.is_master:
            # Perhaps confirmed there, and not yet here: this replica hears of it a moment later.
            found.code, found.next_offset = ClientResult.PULL_RETRY_IMMEDIATELY, request.queue_offset
            found.is_sent_back = True
        return found

    def _why_elsewhere(self, group: str, topic: str, queue_id: int) -> str:
        """Why this replica, which is not the master, gives the group nothing; empty: it gives."""
        if not self._at.standing.gives_as_slave:
            replica = (
                f"this replica of {self._at.standing.broker_name} is not its master, nor one that may be read from"
            )
            return f"{replica}; pull from the master"
        # Here it would never hear of it, and what it commits counts for nothing until then.
        is_reset = self._offsets.awaits_reset(group, topic, queue_id)
        return "the offset of the group was reset; the master tells where to" if is_reset else ""

    def _admit(self, pull: WaitingPull) -> Filter | Refused:
        request = pull.request
        unread_bytes = pull.connection.unread_bytes
        # Answered on and on, a client with a backlog would lose its link at 64 MiB, and pull the same again, for ever.
        if unread_bytes > UNREAD_BYTES_MAX:
            remark = f"{unread_bytes} bytes of answers to this link are not read; {UNREAD_BYTES_MAX} may be: read them"
            return Refused(ClientResult.FLOW_CONTROL, remark)
        if (refused := self._refused_by_settings(request)) is not None:
            return refused
        if request.sys_flag & FLAG_SUBSCRIPTION:
            return pull.filter or make_filter(request.expression_type, request.subscription)
        return self._subscriptions.filter_of(request.consumer_group, request.topic, request.sub_version)

    def _refused_by_settings(self, request: PullRequest) -> Refused | None:
        """Why neither the group nor anybody else gets messages of this queue; None: it may."""
        if (refused := self._subscriptions.refusal_of(request.consumer_group)) is not None:
            return refused
        topic = request.topic
        row = self._topics.find(topic)
        if row is None:
            return self._topics.absence(topic)
        if row.may_read and 0 <= request.queue_id < row.read_queue_nums:
            return None
        if (unsure := self._topics.unsure()) is not None:
            return unsure
        if not row.may_read:
            return Refused(ClientResult.NO_PERMISSION, f"topic {topic} has permission {row.perm}, without 4 (read)")
        remark = f"queueId {request.queue_id}: topic {topic[:255]} has {row.read_queue_nums} queues to read, from 0"
        return Refused(ClientResult.INVALID_PARAMETER, remark)

    def _look_once(self, pull: WaitingPull, filter_: Filter) -> Found:
        queue = self._at.folds.queue(*pull.key)
        if queue is None:
            return nothing(pull.offset)
        reader, messages = QueueReader(queue, self._at.folds, pull.key), pull.request.max_msg_nums
        try:
            return reader.look(pull.offset, filter_, messages=messages, near_bytes=self._at.near_bytes)
        except OSError as error:
            return Found(ClientResult.SYSTEM_ERROR, pull.offset, _unreadable(error))

    def _answer(self, pull: WaitingPull, found: Found) -> None:
        wished = self._subscriptions.slow_reader(pull.request.consumer_group) if found.is_far else 0
        data = pull_answer(
            pull.opaque,
            pull.form,
            found.code,
            next_offset=found.next_offset,
            min_offset=found.min_offset,
            max_offset=found.max_offset,
            reader=self._at.standing.next_reader(wished, is_far=found.is_far),
            remark=found.remark,
            records=found.records,
        )
        self.messages += len(found.records)
        for view in found.records:
            view.release()
        _write(pull.connection, found.code, data)

    # --- questions ---------------------------------------------------------------------------------------------------

    def _answer_question(self, _: RemotingConnection, frame: Frame) -> Reply:
        question = parse_question(frame)
        try:
            answer = self._find(frame.code, question)
        except QueueDamaged as damaged:
            self._tell_damage(str(damaged))
            return Reply(ClientResult.SYSTEM_ERROR, f"the queue is damaged: {damaged}")
        except OSError as error:
            return Reply(ClientResult.SYSTEM_ERROR, _unreadable(error))
        if isinstance(answer, Reply):
            return answer
        name = "timestamp" if frame.code == ClientCode.GET_EARLIEST_MSG_STORETIME else "offset"
        return Reply(ext_fields={name: str(answer)})

    def _find(self, code: int, question: QueueQuestion) -> int | Reply:
        """Raises ``QueueDamaged``, ``OSError``."""
        key = (question.topic.encode(), question.queue_id)
        is_log_end = code == ClientCode.GET_MAX_OFFSET and question.committed == "false"
        behind_bytes = 0 if is_log_end else self._at.folds.catch_up()
        if behind_bytes:
            return Reply(ClientResult.SYSTEM_BUSY, _behind(behind_bytes))
        queue, ends = self._at.folds.queue(*key), self._log_ends()
        # A learner that began at the master's last segment has not seen the records before it: 0 would be told of a
        # queue that has thousands, and a consumer would begin there again.
        if not self._at.folds.knows_all and not (ends.has(*key) if is_log_end else queue is not None):
            return Reply(ClientResult.SYSTEM_ERROR, self._unseen())
        if is_log_end:
            return ends.max_offset(*key)
        if code == ClientCode.SEARCH_OFFSET_BY_TIMESTAMP and question.timestamp is None:
            return Reply(ClientResult.SYSTEM_ERROR, f"request {code}: timestamp is needed, in ms")
        if queue is None or queue.max_offset == 0:
            return -1 if code == ClientCode.GET_EARLIEST_MSG_STORETIME else 0
        if code == ClientCode.GET_MAX_OFFSET:
            return queue.max_offset
        if code == ClientCode.GET_MIN_OFFSET:
            return queue.min_offset
        reader = QueueReader(queue, self._at.folds, key)
        if code == ClientCode.GET_EARLIEST_MSG_STORETIME:
            return reader.earliest_ms()
        return reader.search(question.timestamp or 0, is_upper=question.boundary_type.lower() == "upper")

    def _tell_damage(self, damage: str) -> None:
        self.damaged += 1
        self._at.on_damaged(damage)

    def _unseen(self) -> str:
        return f"this replica's log begins at {self._at.folds.min_offset}, behind all of that queue; ask the master"


def _behind(behind_bytes: int) -> str:
    return f"{behind_bytes} confirmed bytes are not in the queues yet; ask again in a moment"


def _unreadable(error: OSError) -> str:
    return f"the queue's files cannot be read: {error}"


def _write(connection: RemotingConnection, code: int, data: bytes) -> None:
    if connection.answers is not None:
        connection.answers[code] += 1
    connection.send_bytes(data)
