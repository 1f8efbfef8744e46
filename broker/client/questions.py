"""
The questions of a member of a group to the master of a set, or, by ``pull`` alone, to a slave; answers are values.

Here: the questions, refusals told once. Not here: when they are asked (``consumer``), what follows (``progress``).

Rule 1: a question raises ``RemotingError``, or, on nonsense, one of ``NONSENSE``; a refusal is a value.
Rule 2: a refusal is told when it is another one than the last: the same each second would fill a disk.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from rollcall_ha.broker.client.messages import Message
from rollcall_ha.broker.client.progress import ATTEMPTS_MAX, QueueProgress, members_of
from rollcall_ha.broker.client.sets import ANSWER_MS_MAX
from rollcall_ha.broker.protocol.codes import ClientCode, ClientResult
from rollcall_ha.broker.protocol.consumers import (
    Facts,
    LockRequest,
    MessageQueue,
    Subscription,
    decode_locked,
    decode_members,
    encode,
    encode_heartbeat,
    header_of,
)
from rollcall_ha.broker.protocol.pull import FLAG_SUBSCRIPTION, FLAG_SUSPEND
from rollcall_ha.broker.protocol.topics import RETRY_PREFIX
from rollcall_ha.node.remoting.codes import SystemCode
from rollcall_ha.node.remoting.connection import RemotingConnection
from rollcall_ha.node.remoting.frame import Frame

PULL_MESSAGES_MAX: Final = 32
SUSPEND_MS: Final = 15_000
PULL_MS_MAX: Final = 30_000
_log = logging.getLogger("consumer")


class Start(StrEnum):
    """Where a group begins that has no offset yet."""

    FIRST = "first"
    LAST = "last"
    """Of the queues that are there when it begins. One that comes later is read from its first message on."""


class _Pulled(msgspec.Struct, rename="camel"):
    """Header of an answer to a pull."""

    next_begin_offset: int
    """Where the next pull goes on."""
    suggest_which_broker_id: int = 0
    """Id of the replica for it; 0: the master, whatever its own is."""


class _Offset(msgspec.Struct):
    """Header of an answer about an offset."""

    offset: int


parse_pulled = header_of(_Pulled)
_parse_offset = header_of(_Offset)
_POLICIES: Final[dict[Start | int, str]] = {
    Start.FIRST: "CONSUME_FROM_FIRST_OFFSET",
    Start.LAST: "CONSUME_FROM_LAST_OFFSET",
}


class Questions:
    """Those of one member."""

    def __init__(
        self, group: str, client_id: str, topics: Mapping[str, Subscription], *, is_push: bool, start: Start | int
    ) -> None:
        """``start`` as a number: a time, ms since 1970."""
        self.group = group
        self.client_id = client_id
        self._topics = topics
        self._start = start
        self._facts = Facts(
            consume_type="CONSUME_PASSIVELY" if is_push else "CONSUME_ACTIVELY",
            consume_from=_POLICIES.get(start, "CONSUME_FROM_TIMESTAMP"),
            subscriptions=dict(topics),
        )
        self._told = ""

    # --- the group ---------------------------------------------------------------------------------------------------

    async def beat(self, link: RemotingConnection) -> None:
        """Say the subscriptions of the group, and that this member lives. Raises ``RemotingError``."""
        answer = await _ask(link, ClientCode.HEART_BEAT, {}, encode_heartbeat(self.client_id, self.group, self._facts))
        self.is_done(answer, "heartbeat")

    async def members(self, link: RemotingConnection) -> list[str] | None:
        """None: it is not known who they are."""
        answer = await _ask(link, ClientCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": self.group})
        told = decode_members(answer.body) if answer.code == SystemCode.SUCCESS else []
        return members_of(answer.code, told, self.client_id)

    async def leave(self, link: RemotingConnection) -> None:
        """The group has a member less."""
        fields = {"clientID": self.client_id, "consumerGroup": self.group}
        await _ask(link, ClientCode.UNREGISTER_CLIENT, fields)

    async def lock(self, link: RemotingConnection, queues: Sequence[MessageQueue]) -> set[MessageQueue] | None:
        """Those that are locked for us; None: refused, nothing is known."""
        answer = await _ask(link, ClientCode.LOCK_BATCH_MQ, {}, self._locks(queues))
        return set(decode_locked(answer.body)) if self.is_done(answer, "lock") else None

    async def unlock(self, link: RemotingConnection, queues: Sequence[MessageQueue]) -> None:
        await _ask(link, ClientCode.UNLOCK_BATCH_MQ, {}, self._locks(queues))

    def _locks(self, queues: Sequence[MessageQueue]) -> bytes:
        return encode(LockRequest(self.client_id, self.group, list(queues)))

    # --- a queue -----------------------------------------------------------------------------------------------------

    async def pull(self, link: RemotingConnection, queue: MessageQueue, offset: int) -> Frame:
        """The answer as it is; its broker may hold it for ``SUSPEND_MS`` and some seconds."""
        wanted = self._topics[queue.topic]
        fields = {
            "queueOffset": offset,
            "maxMsgNums": PULL_MESSAGES_MAX,
            "sysFlag": FLAG_SUSPEND | FLAG_SUBSCRIPTION,
            "commitOffset": 0,
            "suspendTimeoutMillis": SUSPEND_MS,
            "subscription": wanted.text,
            "subVersion": wanted.version,
            "expressionType": wanted.kind,
        }
        return await _ask(link, ClientCode.PULL_MESSAGE, self._place(queue) | fields, timeout_ms=PULL_MS_MAX)

    async def where(self, link: RemotingConnection, queue: MessageQueue, *, is_later: bool) -> QueueProgress | None:
        """Where the group is in a queue, or begins; None: that is not known now. ``is_later``: as of ``Start.LAST``."""
        place, start = self._place(queue), self._start
        answer = await _ask(link, ClientCode.QUERY_CONSUMER_OFFSET, place | {"setZeroIfNotFound": "false"})
        is_new = answer.code == ClientResult.QUERY_NOT_FOUND
        # A retry may be older than its reader.
        from_first = start is Start.FIRST or queue.topic.startswith(RETRY_PREFIX)
        if is_new:
            # What was sent to a later queue before it was found would be passed by.
            if from_first or (start is Start.LAST and is_later):
                answer = await _ask(link, ClientCode.GET_MIN_OFFSET, place)
            elif start is Start.LAST:
                answer = await _ask(link, ClientCode.GET_MAX_OFFSET, place)
            else:
                answer = await _ask(link, ClientCode.SEARCH_OFFSET_BY_TIMESTAMP, place | {"timestamp": start})
        if not self.is_done(answer, "offset", queue):
            return None
        offset = _parse_offset(answer).offset
        # Before its first message: whoever comes after a member that died behind it would begin at a later end.
        if is_new and not from_first and not await self.commit(link, queue, offset):
            return None
        return QueueProgress(offset, None if is_new and from_first else offset)

    async def end(self, link: RemotingConnection, queue: MessageQueue) -> int | None:
        """Where the queue ends now; None: that is not known."""
        answer = await _ask(link, ClientCode.GET_MAX_OFFSET, self._place(queue))
        return _parse_offset(answer).offset if self.is_done(answer, "end", queue) else None

    async def commit(self, link: RemotingConnection, queue: MessageQueue, offset: int) -> bool:
        """Whether its broker has it."""
        answer = await _ask(link, ClientCode.UPDATE_CONSUMER_OFFSET, self._place(queue) | {"commitOffset": offset})
        return self.is_done(answer, "commit", queue)

    async def send_back(self, link: RemotingConnection, message: Message) -> bool:
        """Whether the broker has taken it, and gives it again after a while."""
        fields = {
            "offset": message.log_offset,
            "group": self.group,
            "delayLevel": 0,
            "originMsgId": message.message_id,
            "originTopic": message.topic,
            "unitMode": "false",
            "maxReconsumeTimes": ATTEMPTS_MAX,
        }
        answer = await _ask(link, ClientCode.CONSUMER_SEND_MSG_BACK, fields)
        return answer.code == SystemCode.SUCCESS

    def _place(self, queue: MessageQueue) -> dict[str, object]:
        return {"consumerGroup": self.group, "topic": queue.topic, "queueId": queue.queue_id}

    # --- refusals ----------------------------------------------------------------------------------------------------

    def is_done(self, answer: Frame, what: str, queue: MessageQueue | None = None) -> bool:
        """Whether it was; why not is told."""
        if answer.code != SystemCode.SUCCESS:
            of_queue = "" if queue is None else f" of {name_of(queue)}"
            self.tell(f"{what}{of_queue}: {answer.remark or f'code {answer.code}'}")
        return answer.code == SystemCode.SUCCESS

    def tell(self, text: str) -> None:
        """A line, if it is another one than the last (rule 2)."""
        if text != self._told:
            self._told = text
            _log.warning("consumer_waits group=%s reason=%s", self.group, text)


def name_of(queue: MessageQueue) -> str:
    """The queue, as a line of log names it."""
    return f"{queue.broker_name}/{queue.topic}:{queue.queue_id}"


async def _ask(
    link: RemotingConnection,
    code: int,
    fields: Mapping[str, object],
    body: bytes = b"",
    *,
    timeout_ms: int = ANSWER_MS_MAX,
) -> Frame:
    texts = {name: str(value) for name, value in fields.items()}
    return await link.request(code, body=body, ext_fields=texts or None, timeout_ms=timeout_ms)
