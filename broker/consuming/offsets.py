"""
Offsets of consumers: codes 14, 15 and 222, and the commits of pulls.

Here: what is asked and answered. Not here: how offsets are remembered (``offsets_log``).

Rule 1: 14 tells a confirmed offset, and waits for one that is being written. So it is never below one that was
acknowledged, and no failover takes it back.
Rule 2: a slave tells no offset and takes none, be it one that gives messages: its own confirm is behind the master's,
and what it took would be in no log. RocketMQ's slave takes both, and loses them at its next copy from the master. Java
sends 15 there while there is no master, one-way, and again to the next master 5 s later.
Rule 3: 15 takes any offset, a lower one too; one below 0 is no offset and changes nothing. Go may send it for a queue
in which another member has committed meanwhile.
Rule 4: after a reset the group's own commits count for nothing until its next pull has been told where it goes on. They
would be of what it read before. That, too, outlives the master.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rollcall_ha.broker.consuming.offsets_core import NO_RESET, GroupChange
from rollcall_ha.broker.consuming.offsets_log import WAITING_MAX, ConsumerLog, OnOutcome, join
from rollcall_ha.broker.consuming.reading import QueueReader
from rollcall_ha.broker.consuming.replies import Reply, later, responder, written
from rollcall_ha.broker.folds.consume_queue import UNIT
from rollcall_ha.broker.folds.ports import QueueKey
from rollcall_ha.broker.handlers.ports import Responder, Topics
from rollcall_ha.broker.ports import Around
from rollcall_ha.broker.protocol.codes import ClientCode, ClientResult
from rollcall_ha.broker.protocol.consumers import (
    MessageQueue,
    OffsetFields,
    ResetFields,
    encode_offset_table,
    parse_offset,
    parse_reset,
)
from rollcall_ha.node.remoting.connection import RemotingConnection
from rollcall_ha.node.remoting.frame import Frame

RESET_QUEUES_MAX: Final = 64
"""Searched by time in one request: each is some reads from the disk, on the loop."""


class Offsets:
    """The offsets of all groups of one replica. On the loop thread."""

    def __init__(
        self,
        at: Around,
        log: ConsumerLog,
        *,
        topics: Topics,
        wake: Callable[[Sequence[QueueKey]], None],
    ) -> None:
        """``wake`` lets the pulls that wait at these queues look again."""
        self._at = at
        self._log = log
        self._topics = topics
        self._wake = wake

    def responders(self) -> dict[int, Responder]:
        return {
            ClientCode.QUERY_CONSUMER_OFFSET: responder(self._query, ClientResult.INVALID_PARAMETER),
            ClientCode.UPDATE_CONSUMER_OFFSET: responder(self._update, ClientResult.INVALID_PARAMETER),
            ClientCode.INVOKE_BROKER_TO_RESET_OFFSET: responder(self._reset, ClientResult.INVALID_PARAMETER),
        }

    # --- commits -----------------------------------------------------------------------------------------------------

    def commit(self, group: str, topic: str, queue_id: int, offset: int, on_outcome: OnOutcome | None = None) -> str:
        """
        A group says where it goes on. Returns why that will not be written, empty: it will, or need not; then
        ``on_outcome`` hears what became of it.
        """
        log, is_known = self._log, not self._log.why_unknown()
        is_sure = is_known and not log.is_doubtful
        newest, waiting = log.newest(group, lambda change: change.offsets.get(topic, {}).get(queue_id))
        is_ignored = offset < 0 or (is_known and self._reset_of(group, topic, queue_id)[0] is not None)
        # Clients repeat all their offsets every 5 s. Known by folds that are behind, "the same" may be an old one.
        if not is_ignored and (newest != offset or (waiting is None and not is_sure)):
            return log.note(group, GroupChange(offsets={topic: {queue_id: offset}}), on_outcome)
        return join(None if is_ignored else waiting, on_outcome) if on_outcome else ""

    def awaits_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether the group's next pull is to hear of a reset."""
        return self._reset_of(group, topic, queue_id)[0] is not None

    def take_reset(self, group: str, topic: str, queue_id: int, offset: int) -> int | None:
        """Where a pull at ``offset`` is to go on, told once after a reset; None: where it is."""
        place = (group, topic, queue_id)
        # Half of the log may have a reset whose end is in the other half: told again, it would take the group back.
        if self._reset_of(*place)[0] is None or self._log.why_unknown():
            return None
        reset, is_confirmed = self._reset_of(*place)
        # Told without that its end is noted, it would be told twice.
        if reset is None or not is_confirmed or self._end_reset(*place, reset):
            return None
        return None if reset == offset else reset

    def _end_reset(self, group: str, topic: str, queue_id: int, reset: int) -> str:
        """It is told: why that will not be written, empty: it will."""

        def note_again(reason: str) -> None:
            # The next pull would be sent there once more, and commits would count for nothing until then.
            if reason and self._reset_of(group, topic, queue_id) == (reset, True):
                self._end_reset(group, topic, queue_id, reset)

        return self._log.note(group, GroupChange(resets={topic: {queue_id: NO_RESET}}), note_again)

    def _reset_of(self, group: str, topic: str, queue_id: int) -> tuple[int | None, bool]:
        """Where consumers of the queue are to go on, None: where they are; and whether that is confirmed."""
        reset, waiting = self._log.newest(group, lambda change: change.resets.get(topic, {}).get(queue_id))
        return (None if reset == NO_RESET else reset), waiting is None

    def _update(self, connection: RemotingConnection, frame: Frame) -> Reply | None:
        asked = parse_offset(frame)
        if asked.commit_offset is None:
            return Reply(ClientResult.INVALID_PARAMETER, "commitOffset of a group is needed")
        if not self._at.standing.is_master:
            return Reply(ClientResult.SYSTEM_BUSY, self._log.why_unknown())
        row = self._topics.find(asked.topic)
        queue_count = 0 if row is None else row.queue_count
        # Any number would be a row for ever; folds that are not whole may lack a queue that is there.
        if asked.queue_id >= queue_count:
            if busy := self._log.why_unknown():
                return Reply(ClientResult.SYSTEM_BUSY, busy)
            refused = self._topics.absence(asked.topic)
            remark = f"queueId {asked.queue_id}: topic {asked.topic} has {queue_count} queues, from 0"
            return Reply(ClientResult.INVALID_PARAMETER, remark) if row else Reply(refused.code, refused.remark)
        on_outcome = None if frame.is_one_way else later(connection, frame, written)
        refusal = self.commit(asked.consumer_group, asked.topic, asked.queue_id, asked.commit_offset, on_outcome)
        return written(refusal) if refusal else None

    # --- 14 ----------------------------------------------------------------------------------------------------------

    def _query(self, connection: RemotingConnection, frame: Frame) -> Reply | None:
        asked = parse_offset(frame)
        topic, queue_id = asked.topic, asked.queue_id
        _, waiting = self._log.newest(asked.consumer_group, lambda change: change.offsets.get(topic, {}).get(queue_id))
        if waiting is None or len(waiting) >= WAITING_MAX:
            return self._find(asked)
        # A member that takes a queue over asks just when its last owner has committed.
        waiting.append(later(connection, frame, lambda _: self._find(asked)))
        return None

    def _find(self, asked: OffsetFields) -> Reply:
        busy = self._log.why_unknown()
        if busy:
            return Reply(ClientResult.SYSTEM_BUSY, busy)
        offset = self._log.known.offset(asked.consumer_group, asked.topic, asked.queue_id)
        # Told that it has none, a group would go by its start policy: to the end of the queue, past all that it missed.
        if offset is None and not self._log.is_whole:
            remark = "this replica's log begins behind what may be this group's offset; ask again in a minute"
            return Reply(ClientResult.SYSTEM_BUSY, remark)
        try:
            if offset is None and asked.set_zero_if_not_found and self._is_kept_from_0(asked):
                offset = 0
        except OSError as error:
            return Reply(ClientResult.SYSTEM_ERROR, f"the queue's files cannot be read: {error}")
        if offset is not None:
            return Reply(ext_fields={"offset": str(offset)})
        remark = f"group {asked.consumer_group} has no offset of {asked.topic}, queue {asked.queue_id}"
        return Reply(ClientResult.QUERY_NOT_FOUND, remark)

    def _is_kept_from_0(self, asked: OffsetFields) -> bool:
        """
        Whether a queue has its first message still, and near: as in RocketMQ, a new group then begins there.

        Raises ``OSError``.
        """
        queue = self._at.folds.queue(asked.topic.encode(), asked.queue_id)
        unit = queue.units(0, 1) if queue is not None and queue.min_offset == 0 else b""
        return bool(unit) and self._at.folds.confirm_offset - UNIT.unpack(unit)[0] <= self._at.near_bytes

    # --- 222 ---------------------------------------------------------------------------------------------------------

    def _reset(self, connection: RemotingConnection, frame: Frame) -> Reply | None:
        asked = parse_reset(frame)
        targets = self._targets(asked)
        if isinstance(targets, Reply):
            return targets
        name = self._at.standing.broker_name
        body = encode_offset_table({MessageQueue(name, queue_id, asked.topic): to for queue_id, to in targets.items()})

        def told(reason: str) -> Reply:
            self._wake([(asked.topic.encode(), queue_id) for queue_id in targets])
            return Reply(ClientResult.SYSTEM_ERROR, reason) if reason else Reply(body=body)

        change = GroupChange(offsets={asked.topic: targets}, resets={asked.topic: dict(targets)})
        refusal = self._log.note(asked.group, change, later(connection, frame, told))
        return Reply(ClientResult.SYSTEM_ERROR, refusal) if refusal else None

    def _targets(self, asked: ResetFields) -> dict[int, int] | Reply:
        """The new offset of each queue. Raises ``OSError``, ``QueueDamaged``."""
        busy = self._log.why_unknown()
        if busy:
            return Reply(ClientResult.SYSTEM_ERROR, busy)
        if self._log.newest(asked.group, lambda change: change)[0] is None:
            remark = f"group {asked.group} has neither members nor offsets: nothing to reset"
            return Reply(ClientResult.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        topic, targets = asked.topic.encode(), {}
        queue_ids = [each for each in self._at.folds.queue_ids(topic) if asked.queue_id in (-1, each)]
        if len(queue_ids) > RESET_QUEUES_MAX:
            remark = f"{asked.topic} has {len(queue_ids)} queues; {RESET_QUEUES_MAX} are reset at once: name a queueId"
            return Reply(ClientResult.INVALID_PARAMETER, remark)
        for queue_id in queue_ids:
            queue = self._at.folds.queue(topic, queue_id)
            if queue is None:
                continue
            to = asked.offset if asked.queue_id == queue_id else -1
            if to == -1 and asked.timestamp < 0:
                to = queue.max_offset
            elif to == -1:
                to = QueueReader(queue, self._at.folds, (topic, queue_id)).search(asked.timestamp, is_upper=False)
            if not queue.min_offset <= to <= queue.max_offset:
                remark = f"offset {to} is not within {queue.min_offset} and {queue.max_offset}"
                return Reply(ClientResult.SYSTEM_ERROR, remark)
            targets[queue_id] = to
        return targets or Reply(ClientResult.TOPIC_NOT_EXIST, f"{asked.topic} has no message in queue {asked.queue_id}")
