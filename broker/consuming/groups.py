"""
Groups of consumers: codes 34, 35, 38, 46 and 203, locks of queues (41, 42), and the news of a group (40).

Here: frames and links, and the change of master. Not here: the table (``groups_core``), the verdict on a lock
(``locks_core``), what is remembered (``offsets_log``), offsets (``offsets``).

Rule 1: master and slaves keep the table, because clients send their heartbeats to all of them. The master alone writes
what it says into the log.
Rule 2: members hear of a change at once, and of all that follow within ``PACE_MS`` by one more word: a thousand clients
that start together are no million of frames.
Rule 3: who asks for the list of a group while this replica does not know all that is remembered waits for it, for
``LIST_WAIT_MS_MAX``: Go takes an error for an empty list, and gives up its queues.
Rule 4: a group needs no order to exist: it has RocketMQ's defaults from its first heartbeat on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from rollcall_ha.broker.consuming.filters import Filter, make_filter
from rollcall_ha.broker.consuming.group_settings import GroupSettings
from rollcall_ha.broker.consuming.groups_core import (
    BROADCASTING,
    NO_FACTS,
    TAKEOVER_GRACE_MS,
    GroupTable,
    Member,
    News,
    version_ms,
)
from rollcall_ha.broker.consuming.locks_core import LOCK_PROOF_MS, LockTimes, LockVerdict
from rollcall_ha.broker.consuming.offsets_core import GroupChange
from rollcall_ha.broker.consuming.offsets_log import ConsumerLog
from rollcall_ha.broker.consuming.replies import Reply, kept, later, responder, written
from rollcall_ha.broker.handlers.ports import Responder
from rollcall_ha.broker.ports import Around
from rollcall_ha.broker.protocol.codes import ClientCode, ClientResult
from rollcall_ha.broker.protocol.consumers import (
    Facts,
    MessageQueue,
    decode_check,
    decode_heartbeat,
    decode_lock,
    encode,
    subscription_table,
)
from rollcall_ha.broker.protocol.pull import Refused
from rollcall_ha.broker.protocol.topics import GroupRow
from rollcall_ha.node.remoting.codes import FLAG_ONE_WAY, LANGUAGES
from rollcall_ha.node.remoting.connection import RemotingConnection
from rollcall_ha.node.remoting.frame import Frame, encode_frame

PACE_MS: Final = 1_000
EXPIRY_INTERVAL_MS: Final = 10_000
LIST_WAIT_MS_MAX: Final = 1_500
"""RocketMQ's clients wait for 3 s, and the tick that ends the wait may come 1 s later than this."""
LIST_WAITERS_MAX: Final = 10_000
SETTLED_PER_TICK_MAX: Final = 256
"""Groups; a new master has up to 10,000 of them to look at, and its loop sends meanwhile."""
ROCKETMQ_VERSION: Final = 479
"""5.3.3. A client in Java takes a broker without a number for one before 4.1, and subscribes by no SQL there."""

_NOT_ALL_KNOWN: Final = Refused(
    ClientResult.SYSTEM_BUSY, "this replica does not know all groups yet; ask again in a moment"
)


class Groups:
    """The groups of one replica; implements ``pulls.Subscriptions``. On the loop thread."""

    def __init__(self, at: Around, log: ConsumerLog, settings: GroupSettings) -> None:
        self.table: GroupTable[RemotingConnection] = GroupTable()
        self.producers: GroupTable[RemotingConnection] = GroupTable()
        """Groups of producers, for RocketMQ's tools alone."""
        self._at = at
        self._log = log
        self._settings = settings
        self._was_master = False
        self._role_since_ms = self._expired_ms = at.now_ms()
        self._locks = LockTimes(self._role_since_ms)
        self._due: dict[str, bool] = {}
        """Groups that may be others than the log remembers, and whether their members must hear."""
        self._settled_ms: dict[str, int] = {}
        self._asking: deque[tuple[int, RemotingConnection, Frame, str]] = deque()

    def responders(self) -> dict[int, Responder]:
        return {
            ClientCode.HEART_BEAT: responder(self._hear),
            ClientCode.UNREGISTER_CLIENT: responder(self._unregister),
            ClientCode.GET_CONSUMER_LIST_BY_GROUP: responder(self._list),
            ClientCode.CHECK_CLIENT_CONFIG: responder(self._check),
            ClientCode.GET_CONSUMER_CONNECTION_LIST: responder(self._describe),
            ClientCode.LOCK_BATCH_MQ: responder(self._lock),
            ClientCode.UNLOCK_BATCH_MQ: responder(self._lock),
        }

    # --- members -----------------------------------------------------------------------------------------------------

    def _hear(self, connection: RemotingConnection, frame: Frame) -> Reply:
        beat = decode_heartbeat(frame.body)
        language = frame.language if frame.language in LANGUAGES else "OTHER"
        refusals = []

        def member() -> Member:
            return Member(beat.client_id, language, frame.version & 0x7FFFFFFF, self._at.now_ms())

        for name in beat.producer_groups:
            # The table's refusal is left unsaid: a producer whose heartbeat is refused would look for another broker.
            self.producers.hear(connection, name, member(), NO_FACTS)
        for consumer in beat.consumer_data_set or ():
            group, has_subscriptions = consumer.group_name, not beat.without_sub
            news = self.table.hear(connection, group, member(), consumer.facts(), has_subscriptions=has_subscriptions)
            if isinstance(news, str):
                refusals.append(news)
            elif news:
                self._note_changed(group, must_tell=news is News.MEMBERS)
        # ``IS_SUB_CHANGE``: the next heartbeat is to have all subscriptions, too.
        fields = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
        code = ClientResult.SYSTEM_ERROR if refusals else 0
        return Reply(code, "; ".join(refusals), ext_fields=fields, version=ROCKETMQ_VERSION)

    def _unregister(self, connection: RemotingConnection, frame: Frame) -> Reply:
        group = _group_of(frame)
        if self.table.leave(connection, group):
            self._note_changed(group)
        self.producers.leave(connection, (frame.ext_fields or {}).get("producerGroup", ""))
        return Reply()

    def disconnected(self, connection: RemotingConnection) -> None:
        """The link is closed."""
        self.producers.close(connection)
        for group in self.table.close(connection):
            self._note_changed(group)

    def tick(self) -> None:
        """Once a second: silent members, news that were held back, the end of a new master's grace."""
        now_ms, is_known = self._at.now_ms(), self._log.follow()
        self._note_role()
        if now_ms - self._expired_ms >= EXPIRY_INTERVAL_MS:
            self._expired_ms = now_ms
            self._due.update(dict.fromkeys(self.table.expire(now_ms), True))
            self.producers.expire(now_ms)
        if self.table.left is not None and now_ms - self._role_since_ms >= TAKEOVER_GRACE_MS and is_known:
            told = {name: self.facts(name).members for name in self._log.known.groups}
            self.table.left = None
            self._due.update({name: True for name, members in told.items() if self.facts(name).members != members})
        self._settled_ms = {name: at_ms for name, at_ms in self._settled_ms.items() if now_ms - at_ms < PACE_MS}
        due = [each for each in self._due if each not in self._settled_ms]
        # Behind all groups of a new master, members would hear of each other a minute late.
        due.sort(key=self._due.__getitem__, reverse=True)
        for group in due[:SETTLED_PER_TICK_MAX]:
            self._settle(group, is_known=is_known)
        while self._asking and (self._asking[0][0] <= now_ms or is_known):
            _, connection, frame, group = self._asking.popleft()
            self._list_now(group).give(connection, frame)

    def _note_role(self) -> bool:
        is_master = self._at.standing.is_master
        if is_master != self._was_master:
            self._was_master = is_master
            self._role_since_ms = self._at.now_ms()
            self._locks = LockTimes(self._role_since_ms)
            self.table.left = {} if is_master else None
            self._due = dict.fromkeys(self.table.names, False) | self._due
        return is_master

    def _note_changed(self, group: str, *, must_tell: bool = True) -> None:
        """The group is another one: its members and the log are to hear it (rule 2)."""
        self._due[group] = must_tell or self._due.get(group, False)
        if self._at.now_ms() - self._settled_ms.get(group, -PACE_MS) >= PACE_MS:
            self._settle(group, is_known=self._log.follow())

    def _settle(self, group: str, *, is_known: bool) -> None:
        is_master = self._note_role()
        self._settled_ms[group] = self._at.now_ms()
        if self._due.pop(group):
            self._tell(group)
        if not is_master:
            return
        facts = self.facts(group)
        if not is_known:
            self._retry(group, "not all is known")
        elif facts != (self._log.newest(group, lambda change: change.facts)[0] or NO_FACTS):
            refusal = self._log.note(group, GroupChange(facts=facts), lambda reason: self._retry(group, reason))
            self._retry(group, refusal)

    def _retry(self, group: str, reason: str) -> None:
        """The record of the group was perhaps not written: it is due again; an empty ``reason``: it was."""
        if reason:
            self._due.setdefault(group, False)

    def _tell(self, group: str) -> None:
        # Each member of a broadcasting group has all queues, whoever else there is.
        if self.facts(group).message_model == BROADCASTING:
            return
        if not self._settings.of(group).notify_consumer_ids_changed_enable:
            return
        fields = {"consumerGroup": group}
        code = ClientCode.NOTIFY_CONSUMER_IDS_CHANGED
        data = encode_frame(Frame(code=code, opaque=0, flag=FLAG_ONE_WAY, ext_fields=fields))
        for link in self.table.members(group):
            link.send_bytes(data)

    # --- what is told of a group -------------------------------------------------------------------------------------

    def _remembered(self, group: str) -> Facts:
        """The log's facts of the group count on a slave, and on a master during its grace."""
        known = self._log.known.groups.get(group)
        is_over = self._note_role() and self.table.left is None
        return NO_FACTS if known is None or known.facts is None or is_over else known.facts

    def facts(self, group: str) -> Facts:
        """All that is said of the group, by its members and by the log."""
        return self.table.facts(group, self._remembered(group))

    def subscribes(self, group: str, topic: str) -> bool:
        """Whether the group wants the topic; ``facts`` makes all of its topics."""
        return self.table.subscription(group, topic, self._remembered(group)) is not None

    def topics(self, group: str) -> set[str]:
        """Those that it has an offset of, or has subscribed to."""
        change = self._log.known.groups.get(group)
        consumed = set() if change is None else {topic for topic in change.offsets if change.has_offset(topic)}
        return consumed | self.facts(group).subscriptions.keys()

    def read_topics(self, group: str) -> list[str]:
        """Those whose progress is told, ascending: with members only what it subscribes to."""
        facts = self.facts(group)
        # A topic that the group does not subscribe to any more would be shown as left behind for ever.
        return sorted(facts.subscriptions if facts.members else self.topics(group))

    def absence(self, group: str) -> Refused | None:
        """Why there is no such group: no heartbeat, offset or order has named it, or it was deleted. None: there is."""
        known = self._log.known.groups.get(group)
        if self.table.members(group) or (known is not None and known.is_there):
            return None
        if not self._log.is_all_known:
            return _NOT_ALL_KNOWN
        remark = f"there is no group {group[:255]}; a heartbeat to this broker, or mqadmin updateSubGroup, makes it"
        return Refused(ClientResult.SUBSCRIPTION_GROUP_NOT_EXIST, remark)

    def refusal_of(self, group: str) -> Refused | None:
        """As ``pulls.Subscriptions`` says."""
        row = self._settings.of(group)
        if row.consume_enable and row.consume_broadcast_enable:
            return None
        if row.consume_enable and self.facts(group).message_model != BROADCASTING:
            return None
        what = "consumeBroadcastEnable" if row.consume_enable else "consumeEnable"
        remark = f"group {group[:255]} may not consume: {what} is false; rollcall groups change sets it"
        return Refused(ClientResult.NO_PERMISSION, remark)

    def settings_of(self, group: str) -> GroupRow:
        """The settings in force: those of the newest order, RocketMQ's defaults without one."""
        return self._settings.of(group)

    def slow_reader(self, group: str) -> int:
        return self._settings.of(group).which_broker_when_consume_slowly

    def filter_of(self, group: str, topic: str, sub_version: int) -> Filter | Refused:
        """As ``pulls.Subscriptions`` says."""
        word = self.table.subscription(group, topic, self._remembered(group))
        if word is None:
            # Said by a new master that has not taken in all yet, it would send its members away for a second, or three.
            if not self._log.follow():
                return _NOT_ALL_KNOWN
            remark = f"group {group[:255]} has not subscribed to {topic[:255]} by a heartbeat; send one to this broker"
            return Refused(ClientResult.SUBSCRIPTION_NOT_EXIST, remark)
        if version_ms(word.version) < version_ms(sub_version):
            remark = f"subVersion {sub_version} is newer than {word.version}, that of the last heartbeat; send one"
            return Refused(ClientResult.SUBSCRIPTION_NOT_LATEST, remark)
        return make_filter(word.kind, word.text)

    def _list(self, connection: RemotingConnection, frame: Frame) -> Reply | None:
        group = _group_of(frame)
        if self._log.follow() or len(self._asking) >= LIST_WAITERS_MAX:
            return self._list_now(group)
        # A longer name is no group's either.
        self._asking.append((self._at.now_ms() + LIST_WAIT_MS_MAX, connection, kept(frame), group[:256]))
        return None

    def _list_now(self, group: str) -> Reply:
        members = self.facts(group).members
        if not members:
            return Reply(ClientResult.SYSTEM_ERROR, f"group {group[:255]!r} has no member")
        return Reply(body=encode({"consumerIdList": members}))

    def _check(self, _: RemotingConnection, frame: Frame) -> Reply:
        word = decode_check(frame.body).subscription_data.word()
        found = make_filter(word.kind, word.text)
        return Reply(found.code, found.remark) if isinstance(found, Refused) else Reply()

    def _describe(self, _: RemotingConnection, frame: Frame) -> Reply:
        group = _group_of(frame)
        members, facts = self.table.members(group), self.table.facts(group, NO_FACTS)
        if not members:
            return Reply(ClientResult.CONSUMER_NOT_ONLINE, f"group {group[:255]!r} has no member at this broker")
        told = {
            "connectionSet": connection_set(members),
            "consumeFromWhere": facts.consume_from,
            "consumeType": facts.consume_type,
            "messageModel": facts.message_model,
            "subscriptionTable": subscription_table(facts.subscriptions),
        }
        return Reply(body=encode(told))

    # --- locks -------------------------------------------------------------------------------------------------------

    def _lock(self, connection: RemotingConnection, frame: Frame) -> Reply | None:
        asked = decode_lock(frame.body)
        self._note_role()
        if busy := self._log.why_unknown():
            return Reply(ClientResult.SYSTEM_BUSY, busy)
        queues = [queue for queue in asked.mq_set if queue.broker_name == self._at.standing.broker_name]
        act = self._grant if frame.code == ClientCode.LOCK_BATCH_MQ else self._release
        change, answer = act(asked.consumer_group, asked.client_id, queues)
        give = later(connection, frame, answer)
        refusal = self._log.note(asked.consumer_group, change, give) if change.holders else ""
        return answer(refusal) if refusal or not change.holders else None

    def _grant(
        self, group: str, client_id: str, queues: list[MessageQueue]
    ) -> tuple[GroupChange, Callable[[str], Reply]]:
        """The change that the log has to take, and the answer that follows on its outcome."""
        held, free = [], []
        now_ms, is_proved = self._at.now_ms(), self._log.is_proved(LOCK_PROOF_MS) and not self._log.is_doubtful
        for queue in queues:
            holder, is_confirmed = self._holder(group, queue)
            name = group, queue.topic, queue.queue_id
            verdict = self._locks.judge(
                name, holder, is_confirmed=is_confirmed, is_proved=is_proved, client_id=client_id, now_ms=now_ms
            )
            if verdict is LockVerdict.HELD:
                held.append(queue)
            elif verdict is LockVerdict.FREE:
                free.append(queue)

        def answer(reason: str) -> Reply:
            # Not confirmed, a grant may be taken back by a failover: its queue is not in the list.
            granted = [] if reason else free
            for queue in granted:
                self._locks.hear((group, queue.topic, queue.queue_id), client_id, self._at.now_ms())
            return Reply(remark=reason, body=encode({"lockOKMQSet": held + granted}))

        return _holders(free, client_id), answer

    def _release(
        self, group: str, client_id: str, queues: list[MessageQueue]
    ) -> tuple[GroupChange, Callable[[str], Reply]]:
        own = [queue for queue in queues if self._holder(group, queue)[0] == client_id]
        return _holders(own, ""), written

    def _holder(self, group: str, queue: MessageQueue) -> tuple[str, bool]:
        """The client that holds the lock (empty: none), and whether its grant is confirmed."""
        topic, queue_id = queue.topic, queue.queue_id
        holder, waiting = self._log.newest(group, lambda change: change.holders.get(topic, {}).get(queue_id))
        return holder or "", waiting is None


def connection_set(members: Mapping[RemotingConnection, Member]) -> list[dict[str, object]]:
    """RocketMQ's list of links."""
    return [
        {"clientAddr": link.peer, "clientId": each.client_id, "language": each.language, "version": each.version}
        for link, each in members.items()
    ]


def _holders(queues: list[MessageQueue], client_id: str) -> GroupChange:
    change = GroupChange()
    for queue in queues:
        change.holders.setdefault(queue.topic, {})[queue.queue_id] = client_id
    return change


def _group_of(frame: Frame) -> str:
    return (frame.ext_fields or {}).get("consumerGroup", "")
