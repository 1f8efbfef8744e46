"""
The put path: sends in, one append run, one wake-up of the links, answers out when confirm has moved.

Here: a batch of sends of one client through gate, dedupe, log and waiters. Not here: sockets (``listen``), what confirm
is (``ha``), when an epoch begins and ends (``broker.mastership`` calls ``enter_epoch`` and ``leave_epoch``).

Rule 1: the gate is read once per batch, in the turn that appends: no turn of the loop lies between check and append.
Rule 2 (R17): waiters belong to the epoch that they appended in; leaving it answers all of them "outcome unknown", and
``expire`` those that have waited for ``ack_timeout_ms``.
Rule 3 (R18): a duplicate is answered when its original is released. It waits for the end of the log as it is now, which
is never below the end of its original.
Rule 4: every other answer is given at once and says whether the message is definitely not in the log.
Rule 5: the only objects per message are its draft and the bytes of its answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from rollcall_ha.broker.core.acks import WaitingSends
from rollcall_ha.broker.core.producers import ProducerStamp, SequenceVerdict
from rollcall_ha.broker.delaying.records import Limits, cleaned, dead_letter, is_dead_letter
from rollcall_ha.broker.delaying.records import waiting as to_wait
from rollcall_ha.broker.handlers.ports import AnswerSink, Gate, GateState, Topics
from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.broker.log.record import BLANK_BYTES_MIN, TRANSACTION_BITS, Draft, record_bytes
from rollcall_ha.broker.log.values import IndexBehindError
from rollcall_ha.broker.protocol.codes import ClientCode, ClientResult, SendRefusal
from rollcall_ha.broker.protocol.delays import DELAY, DELIVERED, SCHEDULE_TOPIC, TIMER_NAMES, DelayError, level_of
from rollcall_ha.broker.protocol.properties import without
from rollcall_ha.broker.protocol.record import SYS_FLAG_BORN_IPV6, RecordError
from rollcall_ha.broker.protocol.send import (
    BatchItem,
    SendError,
    SendRequest,
    decode_batch,
    put_duplicate,
    put_ok,
    put_refused,
    put_unknown,
)
from rollcall_ha.broker.protocol.stamp import STAMP_PROPERTY, StampError, find_stamp, stamp_lead
from rollcall_ha.broker.protocol.topics import OWN, QUEUE_COUNT, RETRY_PREFIX, TopicRow
from rollcall_ha.controller.contract.ids import MasterEpoch
from rollcall_ha.controller.contract.settings import KEYS
from rollcall_ha.epoch.model import LogOffset
from rollcall_ha.node.durations import Durations
from rollcall_ha.node.remoting.frame import HeaderForm

_OWN: Final = OWN.encode()
_STAMP_NAMES: Final = (STAMP_PROPERTY.encode(),)
WAIT_BOUNDS_S: Final = (0.0005, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_NOT_SERVED: Final = re.compile(rb"(?:\A|\x02)(%b|TRAN_MSG(?=\x01true)|POP_CK)\x01" % b"|".join(TIMER_NAMES))
_VERDICT_REFUSALS: Final = {
    SequenceVerdict.GAP: SendRefusal.SEQUENCE_GAP,
    SequenceVerdict.OLD: SendRefusal.SEQUENCE_OLD,
    SequenceVerdict.UNKNOWN: SendRefusal.PRODUCER_UNKNOWN,
}


class _TopicRefusedError(Exception):
    """The topic, or one of its queues, takes no message: ``args`` are the refusal and its text."""


class PutLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the memory that producers may take."""

    body_bytes_max: int = 4 * 1024 * 1024
    waiting_messages_max: int = 100_000
    """Appended and not released; above this sends are refused as overloaded."""
    waiting_bytes_max: int = 256 * 1024 * 1024
    queues_max: int = 100_000
    """Queues, by topic and id, that have records: each is remembered for ever."""


class PutCounters(msgspec.Struct):
    """Since the start of the process."""

    appended: int = 0
    duplicates: int = 0
    refused: int = 0
    released: int = 0
    """Messages answered PUT_OK, duplicates included."""
    failed_unknown: int = 0
    timed_out: int = 0
    """Of these, those that nobody acknowledged for ``ack_timeout_ms``."""
    dead_letters: int = 0
    """Of the appended, those that their clients gave back to their groups once too often."""


class _Waiting(msgspec.Struct):
    """Answers of one batch of one client, ready to be written, and the opaque of each."""

    sink: AnswerSink
    answers: list[bytes]
    opaques: list[int]
    messages: int = 0
    """For which they are: one answer is for all messages of a batch."""
    appended_us: int = 0
    """CLOCK_MONOTONIC when the last of them was appended."""
    waits_since_us: int | None = None
    """CLOCK_MONOTONIC since when its longest waiting send waits, at its sender and here; None = no sender said it."""


class PutPath:
    """All sends of one replica. On the loop thread."""

    def __init__(
        self,
        log: CommitLog,
        gate: Gate,
        *,
        store_host: bytes,
        broker_properties: bytes,
        now_ms: Callable[[], int],
        now_us: Callable[[], int],
        wake_links: Callable[[], None],
        on_first_ack: Callable[[MasterEpoch, int, int | None], None],
        limits: PutLimits | None = None,
    ) -> None:
        """
        ``broker_properties`` are added to every message (``name 0x01 value 0x02``); ``now_ms`` is UTC, ``now_us``
        CLOCK_MONOTONIC. ``wake_links`` is called once per batch that has a waiter: it sends the new bytes, and calls
        ``release``; ``on_first_ack`` once per epoch, after the first answer PUT_OK was handed to its transport, with
        ``now_us`` of before that: on a busy machine its reader runs before the next line here; and with the longest
        time that a send of this release had waited by then, at its sender and here, in µs, None if no sender said it.
        """
        self.counters = PutCounters()
        self.waits = Durations(WAIT_BOUNDS_S)
        """How long the longest waiting send of each release waited; one for a release, not for a message."""
        self._log = log
        self._store_host = store_host
        self._gate = gate
        self._broker_properties = broker_properties
        self._message_id = (store_host.hex().upper() + "%016X").encode()
        self._now_ms = now_ms
        self._now_us = now_us
        self._wake_links = wake_links
        self._on_first_ack = on_first_ack
        self._limits = limits or PutLimits()
        self.delay_limits = Limits(store_host, log.segment_bytes - BLANK_BYTES_MIN)
        self._acks: WaitingSends[_Waiting] | None = None
        self._is_first_ack = False
        self._picked_queue = 0
        self._born_host = b""
        self._awaited_queues: set[tuple[bytes, int]] = set()
        """Without messages until a delayed one of this epoch is delivered: each counts as if it had them."""
        self._rows: dict[str, TopicRow] = {}
        """Topics of the batch that is being put."""
        self._open_queues: dict[tuple[str, int], bytes] = {}
        """Queues with messages that take those of this batch, too: nothing is asked twice of one."""
        self.topics: Topics
        """Which there are; set, as the next one, by who makes the room of consumers."""
        self.retry_times_max: Callable[[str], int]
        """How often a group is given a message that it refuses, by the group's name."""
        self.ack_timeout_ms = KEYS["ack_timeout_ms"].unset
        """Live (docs/settings.md): after so long a waiting send is answered "outcome unknown"."""
        self.released_us = 0
        """CLOCK_MONOTONIC of the last answer PUT_OK; 0 = none yet."""
        self.full_disk = ""
        """Why the disk takes no sends (``broker.retention``); empty: it does. The broker's own are taken."""
        self.disk_refused_us = 0
        """CLOCK_MONOTONIC of the last send that was refused because the log could not grow; 0 = none yet."""

    @property
    def waiting_messages(self) -> int:
        """Appended and neither released nor failed."""
        return self._acks.waiting_messages if self._acks is not None else 0

    @property
    def waiting_since_us(self) -> int | None:
        """CLOCK_MONOTONIC when the oldest send that is not confirmed was appended; None = none waits."""
        return None if self._acks is None else self._acks.waiting_since_us

    # --- epochs ------------------------------------------------------------------------------------------------------

    def enter_epoch(self, master_epoch: MasterEpoch) -> None:
        """This replica is master of ``master_epoch`` and will serve; fails the waiters of an earlier one (R17)."""
        self.leave_epoch()
        self._is_first_ack = True
        self._awaited_queues.clear()
        self._acks = WaitingSends(
            master_epoch,
            waiting_messages_max=self._limits.waiting_messages_max,
            waiting_bytes_max=self._limits.waiting_bytes_max,
        )

    def leave_epoch(self) -> None:
        """Not master any more: every waiter hears "outcome unknown" (R17)."""
        acks, self._acks = self._acks, None
        if acks is None:
            return
        detail = f"masterEpoch {acks.master_epoch} ended before this message was acknowledged"
        self._tell_unknown(acks.fail_all(), SendRefusal.EPOCH_ENDED, detail)

    def expire(self) -> None:
        """Answer sends that have waited too long; a repeat waits anew, and is in the log once (R18). Once per tick."""
        if self._acks is None:
            return
        # Never answered, its sender's buffers, and room among those that may wait, would be held until the end of the
        # epoch, which may be days away.
        expired = self._acks.expire(self._now_us() - self.ack_timeout_ms * 1_000)
        detail = f"not acknowledged for {self.ack_timeout_ms} ms (ack_timeout_ms): send it again, or look for it"
        self.counters.timed_out += self._tell_unknown(expired, SendRefusal.ACK_TIMEOUT, detail)

    def _tell_unknown(self, waiters: Sequence[_Waiting], refusal: SendRefusal, detail: str) -> int:
        """The number of messages that these waiters stand for."""
        for waiting in waiters:
            self._write(waiting.sink, [put_unknown(answer, refusal, detail) for answer in waiting.answers])
        told = sum(waiting.messages for waiting in waiters)
        self.counters.failed_unknown += told
        return told

    def release(self, confirm: LogOffset) -> None:
        """
        Confirm has moved, or ``min_in_sync`` is reached again: answer the waiters below it.

        Nothing is released in another epoch than the gate's, nor below ``min_in_sync`` (R17, R22).
        """
        acks, state = self._acks, self._gate.state
        # Asked again here, not only before the append: the set may have shrunk to the master alone since. An answer now
        # would acknowledge a message of which ``min_in_sync = 2`` promised two copies (R22).
        if acks is None or state.master_epoch != acks.master_epoch or not state.is_min_in_sync:
            return
        released = acks.release(confirm)
        if not released:
            return
        by_sink: dict[int, tuple[AnswerSink, list[bytes]]] = {}
        for waiting in released:
            self.counters.released += waiting.messages
            known = by_sink.setdefault(id(waiting.sink), (waiting.sink, []))
            known[1].extend(waiting.answers)
        # Before the answers leave: the loss in a failover is judged by "released" (fact 4 of a proof). Noted behind
        # them, a checkpoint or heartbeat in between, or a sink that raises, would leave an acknowledged message out of
        # it.
        self._log.note_confirm(confirm, acks.released_offset)
        self.released_us = written_at_us = self._now_us()
        self.waits.note((written_at_us - released[0].appended_us) / 1_000_000)
        for sink, answers in by_sink.values():
            self._write(sink, answers)
        # The broker's own sends come first at times. By them the record would say that no producer had waited.
        if self._is_first_ack and any(one.sink.peer_host != self._store_host for one in released):
            self._is_first_ack = False
            since_us = min((one.waits_since_us for one in released if one.waits_since_us is not None), default=None)
            waited_us = None if since_us is None else written_at_us - since_us
            self._on_first_ack(acks.master_epoch, written_at_us, waited_us)

    def is_ready_for(self, length: int) -> bool:
        """
        Whether sends of ``length`` bytes need no wait, for the disk or for the end of a handover.

        A replica that refuses them needs none.
        """
        state = self._gate.state
        # Refused now, each send would come back at once, and once more, before there is another master.
        if state.is_draining:
            return False
        return not state.is_serving or self._log.is_room_ready(length)

    def room_wanted_from_us(self) -> int | None:
        """CLOCK_MONOTONIC now, for sends that wait for the disk; None = they wait for the end of a handover."""
        return None if self._gate.state.is_draining else self._now_us()

    # --- sends -------------------------------------------------------------------------------------------------------

    def refusal(self) -> str:
        """Why no send is taken now; empty: they are."""
        refused = self._refusal(self._gate.state, self._acks)
        return "" if refused is None else refused[1]

    def put_run(self, sink: AnswerSink, drafts: Sequence[Draft], opaque: int) -> str:
        """
        Messages of the broker itself, all or none; returns why none was appended, empty: ``sink`` hears once, by an
        answer with ``opaque``, what became of all of them.
        """
        acks = self._acks
        if (refusal := self.refusal()) or acks is None:
            return refusal
        try:
            length = sum(record_bytes(draft, self._store_host) for draft in drafts)
            # A sender's socket would be held; this one is told, and comes again.
            if not self.is_ready_for(length):
                return "the log has no room yet"
            self._log.begin_run(stored_at_ms=self._now_ms())
        except (RecordError, IndexBehindError) as error:
            return str(error)
        try:
            self._log.ensure_room(length)
            places = [self._log.append(draft) for draft in drafts]
        except (RecordError, OSError) as error:
            return str(error)
        finally:
            end = self._log.end_run()
        self.counters.appended += len(places)
        self._awaited_queues.difference_update((draft.topic, draft.queue_id) for draft in drafts)
        answer = put_ok(opaque, HeaderForm.JSON, queue_id=0, queue_offset=places[0][1], message_id=b"")
        waiting = _Waiting(sink, [answer], [opaque], len(places), self._now_us())
        acks.register(end, waiting, messages=len(places), size_bytes=length, now_us=waiting.appended_us)
        self._wake_links()
        return ""

    def handle(self, sink: AnswerSink, requests: Sequence[SendRequest]) -> None:
        """All sends that one readable event of one client brought; their bodies are views into its buffer."""
        state = self._gate.state
        acks = self._acks
        refusal = self._refusal(state, acks)
        if refusal is None and self.full_disk:
            refusal = SendRefusal.DISK, self.full_disk
        if refusal is not None or acks is None:
            self._refuse_all(sink, requests, refusal or (SendRefusal.NOT_MASTER, "not entered"), state)
            return
        try:
            # Refused as "not master", and thus repeated by the producer, until the index has seen the whole log (R19).
            self._log.begin_run(stored_at_ms=self._now_ms())
        except IndexBehindError as error:
            self._refuse_all(sink, requests, (SendRefusal.NOT_MASTER, str(error)), state)
            return
        waiting = _Waiting(sink, [], [])
        self._born_host = sink.peer_host
        self._rows.clear()
        self._open_queues.clear()
        start = self._log.max_offset
        appended = self.counters.appended
        try:
            at_once = self._put_all(requests, waiting, state.master_epoch)
        finally:
            # Also after an error of our own: a run that was never ended would let nobody append, or receive, any more.
            end = self._log.end_run()
        if waiting.opaques:
            waiting.appended_us = self._now_us()
            if self._is_first_ack:
                waiting.waits_since_us = _waits_since_us(waiting, requests)
            acks.register(end, waiting, messages=waiting.messages, size_bytes=end - start, now_us=waiting.appended_us)
        if at_once:
            self._write(sink, at_once)
        is_new = self.counters.appended != appended
        if is_new or waiting.opaques:
            self._wake_links()
        if waiting.opaques and not is_new:
            # Duplicates only: their originals may have been confirmed long ago. Nothing moves confirm again, so without
            # this a producer that repeats its last message would wait for ever.
            self.release(self._log.confirm_offset)

    def _put_all(self, requests: Sequence[SendRequest], waiting: _Waiting, master_epoch: MasterEpoch) -> list[bytes]:
        """Append the acceptable ones; returns the answers of the others."""
        at_once: list[bytes] = []
        for request in requests:
            header = request.header
            refused = self._put(request, waiting)
            if refused is None:
                if not header.is_one_way:
                    waiting.opaques.append(header.opaque)
            elif not header.is_one_way:
                self.counters.refused += 1
                at_once.append(
                    put_refused(header.opaque, request.form, refused[0], refused[1], master_epoch=master_epoch)
                )
        return at_once

    def _refusal(self, state: GateState, acks: WaitingSends[_Waiting] | None) -> tuple[SendRefusal, str] | None:
        if not state.is_serving or acks is None or acks.master_epoch != state.master_epoch:
            return SendRefusal.NOT_MASTER, state.reason or "this replica is not the serving master"
        if not state.is_min_in_sync:
            return SendRefusal.MIN_IN_SYNC, f"in-sync replicas not enough: {list(state.in_sync)}"
        if not acks.has_room():
            return SendRefusal.OVERLOADED, f"{acks.waiting_messages} messages wait for their acknowledgement"
        return None

    def _refuse_all(
        self,
        sink: AnswerSink,
        requests: Sequence[SendRequest],
        refusal: tuple[SendRefusal, str],
        state: GateState,
    ) -> None:
        self.counters.refused += len(requests)
        answers = [
            put_refused(
                request.header.opaque,
                request.form,
                refusal[0],
                refusal[1],
                master_epoch=state.master_epoch,
                master=state.master_address,
            )
            for request in requests
            if not request.header.is_one_way
        ]
        if answers:
            self._write(sink, answers)

    def _put(self, request: SendRequest, waiting: _Waiting) -> tuple[SendRefusal, str] | None:
        """Append one request of the current run; None: its answer is in ``waiting``."""
        try:
            if request.header.code == ClientCode.SEND_BATCH_MESSAGE:
                return self._put_batch(request, waiting)
            return self._put_one(request, waiting)
        except _TopicRefusedError as error:
            return error.args
        except (RecordError, SendError, StampError, DelayError) as error:
            return SendRefusal.ILLEGAL, str(error)
        except OSError as error:
            self.disk_refused_us = self._now_us()
            return SendRefusal.DISK, f"the log cannot grow: {error}; free space on this broker's disk"

    def _put_one(self, request: SendRequest, waiting: _Waiting) -> tuple[SendRefusal, str] | None:
        header = request.header
        fields = header.extFields
        if len(request.body) > self._limits.body_bytes_max:
            return (
                SendRefusal.ILLEGAL,
                f"a body of {len(request.body)} bytes; {self._limits.body_bytes_max} are allowed",
            )
        properties, is_retry = fields.i.encode(), fields.b.startswith(RETRY_PREFIX)
        if is_retry or DELIVERED in properties:
            properties = cleaned(fields.b, properties)
        found = find_stamp(properties)
        queue_id = fields.e if fields.e >= 0 else self._pick_queue(fields.b)
        stamp = None
        if found is not None:
            stamp = ProducerStamp(*found)
            verdict = self._log.producers.judge(stamp)
            # Not answered at once: the original may wait for its set still. Acknowledged now, and cut at the next
            # failover, the message would be lost although its producer heard PUT_OK twice.
            if verdict is SequenceVerdict.DUPLICATE:
                self.counters.duplicates += 1
                if not header.is_one_way:
                    waiting.messages += 1
                    waiting.answers.append(put_duplicate(header.opaque, request.form, queue_id=queue_id))
                return None
            if verdict is not SequenceVerdict.ACCEPT:
                return _VERDICT_REFUSALS[verdict], f"producer {found[0].hex()}, epoch {found[1]}, sequence {found[2]}"
        draft = self._draft(request, request.body, properties, queue_id, stamp)
        target: tuple[bytes, int] | None = None
        if is_retry and is_dead_letter(fields.b, fields.j, fields.l, self.retry_times_max):
            draft = dead_letter(draft)
            self.counters.dead_letters += 1
        elif DELAY in properties and (level := level_of(properties)):
            target = draft.topic, draft.queue_id
            draft = to_wait(draft, level, self.delay_limits)
        offset, queue_offset = self._log.append(draft)
        if target is not None and not self._log.queues.has(*target):
            self._awaited_queues.add(target)
        self.counters.appended += 1
        if not header.is_one_way:
            waiting.messages += 1
            waiting.answers.append(
                put_ok(
                    header.opaque,
                    request.form,
                    queue_id=queue_id,
                    queue_offset=queue_offset,
                    message_id=self._message_id % offset,
                )
            )
        return None

    def _put_batch(self, request: SendRequest, waiting: _Waiting) -> tuple[SendRefusal, str] | None:
        """All messages in one segment, or none: one answer names them all."""
        header = request.header
        queue_id = header.extFields.e if header.extFields.e >= 0 else self._pick_queue(header.extFields.b)
        items = decode_batch(request.body)
        known, found = 0, find_stamp(items[0].properties)
        if found is not None:
            stamp = ProducerStamp(*found)
            verdict = self._log.producers.judge(stamp)
            if verdict is SequenceVerdict.DUPLICATE:
                known = self._log.producers.known_of(stamp, len(items))
                self.counters.duplicates += known
            elif verdict is not SequenceVerdict.ACCEPT:
                return _VERDICT_REFUSALS[verdict], f"producer {found[0].hex()}, epoch {found[1]}, sequence {found[2]}"
            items[0].properties = without(items[0].properties, _STAMP_NAMES)
        ids, first_place = b"", 0
        if known < len(items):
            draft = self._draft(request, b"", b"", queue_id, None)
            self._complete(items, draft, found)
            following = None if found is None else ProducerStamp(found[0], found[1], found[2] + known)
            places, first_place = self._log.append_run(draft, items[known:], following)
            self.counters.appended += len(places)
            ids = b",".join([self._message_id % offset for offset in places])
        if not header.is_one_way:
            waiting.messages += len(items)
            # Of a part that an earlier master had taken the places are not remembered, and the rest may lie elsewhere.
            answer = (
                put_duplicate(header.opaque, request.form, queue_id=queue_id)
                if known
                else put_ok(header.opaque, request.form, queue_id=queue_id, queue_offset=first_place, message_id=ids)
            )
            waiting.answers.append(answer)
        return None

    def _complete(self, items: Sequence[BatchItem], draft: Draft, found: tuple[bytes, int, int] | None) -> None:
        """Give each message of a batch the properties of its record; ``found`` is the stamp of the first."""
        # Most messages of a batch have the same properties, and one look at them is enough.
        seen: dict[bytes, bytes] = {}
        lead, sequence = (b"", 0) if found is None else (stamp_lead(*found[:2]), found[2])
        for number, item in enumerate(items, sequence):
            completed = seen.get(item.properties)
            if completed is None:
                # One answer names all messages, and "the third is a gap" has no place in it.
                if find_stamp(item.properties) is not None:
                    raise SendError("a batch has one number, of its first message; send others one by one")
                if level_of(item.properties):
                    raise SendError("a batch cannot be delayed: send its messages one by one")
                completed = _served(draft.sys_flag, cleaned("", item.properties)) + self._broker_properties
                seen[item.properties] = completed
            item.properties = b"%b%d\x02%b" % (lead, number, completed) if lead else completed

    def _draft(
        self,
        request: SendRequest,
        body: memoryview | bytes,
        properties: bytes,
        queue_id: int,
        stamp: ProducerStamp | None,
    ) -> Draft:
        fields = request.header.extFields
        properties = _served(fields.f, properties)
        host = self._born_host
        topic = self._open_queues.get((fields.b, queue_id)) or self._topic_of(fields.b, queue_id)
        return Draft(
            topic=topic,
            queue_id=queue_id,
            body=body,
            properties=properties + self._broker_properties,
            flag=fields.h,
            sys_flag=fields.f & ~SYS_FLAG_BORN_IPV6 if len(host) == 8 else fields.f | SYS_FLAG_BORN_IPV6,
            born_at_ms=fields.g,
            born_host=host,
            reconsume_times=fields.j,
            stamp=stamp,
        )

    def _topic_of(self, name: str, queue_id: int) -> bytes:
        """The topic of a queue that takes messages. Raises ``SendError``, ``_TopicRefusedError``."""
        topic, queues, awaited = name.encode(), self._log.queues, self._awaited_queues
        # Groups would have the offsets that any client says.
        if topic.startswith(_OWN):
            raise SendError(f"topic {name!r} is the brokers' own; send to one without {OWN}")
        if topic == SCHEDULE_TOPIC:
            refusal = f"topic {name} is the brokers' own; send to another one with property DELAY"
            raise _TopicRefusedError(SendRefusal.NO_PERMISSION, refusal)
        self._require_queue(name, queue_id)
        if queues.has(topic, queue_id) or (topic, queue_id) in awaited:
            self._open_queues[name, queue_id] = topic
        # Queues are remembered for ever: a client that counts up topics would otherwise fill the memory of all
        # replicas.
        elif len(queues) + len(awaited) >= self._limits.queues_max:
            raise SendError(
                f"{len(queues)} queues have messages and {len(awaited)} await delayed ones, "
                f"{self._limits.queues_max} are allowed: no new one for topic {name!r}, queue {queue_id}; "
                "use one that is there"
            )
        return topic

    def _row(self, topic: str) -> TopicRow | None:
        """The topic; asked once for a batch."""
        row = self._rows.get(topic)
        if row is None and (row := self.topics.find(topic)) is not None:
            self._rows[topic] = row
        return row

    def _require_queue(self, topic: str, queue_id: int) -> None:
        """
        A queue that a client may send to. Raises ``_TopicRefusedError``.

        Behind the verdict on a duplicate: its original may be in the log, whatever the topic may take by now (R18).
        """
        row = self._row(topic)
        if row is None:
            refused = self.topics.absence(topic)
            is_absent = refused.code is ClientResult.TOPIC_NOT_EXIST
            raise _TopicRefusedError(SendRefusal.NO_TOPIC if is_absent else SendRefusal.OVERLOADED, refused.remark)
        if row.may_write and queue_id < row.queue_count:
            return
        # A new master reads the newest orders in a moment: told "no such queue" until then, a producer gives up a
        # message that the topic takes.
        if (unsure := self.topics.unsure()) is not None:
            raise _TopicRefusedError(SendRefusal.OVERLOADED, unsure.remark)
        if not row.may_write:
            remark = (
                f"topic {topic} has permission {row.perm}, without 2 (write); change it with mqadmin updateTopicPerm"
            )
            raise _TopicRefusedError(SendRefusal.NO_PERMISSION, remark)
        remark = f"queueId {queue_id}: topic {topic} has {row.queue_count} queues, from 0; ask its route again"
        raise _TopicRefusedError(SendRefusal.NO_QUEUE, remark)

    def _pick_queue(self, topic: str) -> int:
        row = self._row(topic)
        self._picked_queue += 1
        return self._picked_queue % (QUEUE_COUNT if row is None else row.write_queue_nums)

    @staticmethod
    def _write(sink: AnswerSink, answers: Sequence[bytes]) -> None:
        sink.write_answers(b"".join(answers))


def _served(sys_flag: int, properties: bytes) -> bytes:
    """Properties of a message that this broker serves, ready for others behind them. Raises ``SendError``."""
    # Of two words about its time RocketMQ takes the level.
    if b"TIMER_" in properties and level_of(properties):
        properties = without(properties, TIMER_NAMES)
    if reason := _why_not_served(sys_flag, properties):
        raise SendError(reason)
    return properties + b"\x02" if properties and not properties.endswith(b"\x02") else properties


def _why_not_served(sys_flag: int, properties: bytes) -> str:
    """
    What a message asks for that this broker does not do; empty: nothing.

    Stored as an ordinary one it would be delivered at once, not later, or although its transaction was rolled back.
    """
    if sys_flag & TRANSACTION_BITS:
        return f"system flag {sys_flag:#x}: transactions are not served"
    # In front of the pattern, which costs more than all else here: nearly no message has one of them.
    if not (b"TIMER_" in properties or b"TRAN_MSG\x01" in properties or b"POP_CK\x01" in properties):
        return ""
    if (found := _NOT_SERVED.search(properties)) is not None:
        return f"property {found[1].decode()}: timed and transactional messages and POP are not served; DELAY is"
    return ""


def _waits_since_us(waiting: _Waiting, requests: Sequence[SendRequest]) -> int | None:
    """Since when the longest waiting one of the sends in ``waiting`` waits, by its sender's word; None = none said."""
    taken = set(waiting.opaques)
    waits = [
        wait_us
        for request in requests
        if request.header.opaque in taken and (wait_us := request.header.extFields.waited_us) is not None
    ]
    return waiting.appended_us - max(waits) if waits else None
