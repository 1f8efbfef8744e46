"""
A producer that follows the master and never doubles a message.

Here: the window of unacknowledged frames, their numbers, retries, counters. Not here: which messages share a frame
(``packing``), how many may wait (``places``), where the master is (``routes``), links to those that may be it next
(``spares``).

Rule 1 (R18): every message has (producer id, producer epoch, sequence). Messages that are unanswered when a link ends
are sent again, in order, to the next master of the same set; the table of the log makes sure that each is there once.
Rule 2: only PUT_OK is an acknowledgement. ``SendFailedError`` says whether the message is definitely not in the log.
Rule 3: a message that was given up as unknown stays in the window until it is answered, so that numbers have no gap.
Rule 4: a message that is definitely not appended and cannot keep its number gets a new one, in a new producer epoch.
Rule 5: messages of one frame are sent again as the same frame, with the number of its first: a batch is in the log
once, as a message is. Only one that was refused whole, and was sent once, is taken apart: one of its messages may be
illegal.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec
from msgspec.structs import replace

from rollcall_ha.broker.client.fleet import access_of
from rollcall_ha.broker.client.packing import Call, Pack, Packer, PackLimits, one_by_one, take_out
from rollcall_ha.broker.client.places import Places
from rollcall_ha.broker.client.routes import CONNECT_TIMEOUT_MS, RouteWatcher, renewing
from rollcall_ha.broker.client.spares import Spares
from rollcall_ha.broker.protocol.codes import REFUSAL_RESULT, ClientResult, SendOutcome, SendRefusal
from rollcall_ha.broker.protocol.send import BATCH_ITEM_BYTES, encode_batch, encode_send
from rollcall_ha.broker.protocol.stamp import STAMP_PROPERTY, format_stamp
from rollcall_ha.node.certified import PeerKind
from rollcall_ha.node.config import ConfigError
from rollcall_ha.node.remoting.asking import ANSWER_LIMITS, AskingOnly, dial
from rollcall_ha.node.remoting.codes import SystemCode
from rollcall_ha.node.remoting.connection import RemotingConnection, RemotingError
from rollcall_ha.node.remoting.frame import FRAME_BYTES_MAX, Frame, decode_frame
from rollcall_ha.node.remoting.secured import ExpectedPeer
from rollcall_ha.node.tls import Credentials

IN_FLIGHT_MAX = 8_192
WAITING_BYTES_MAX = 64 * 1024 * 1024
SEND_TIMEOUT_MS = 30_000
RETRY_DELAY_MS_MIN = 5
RETRY_DELAY_MS_MAX = 200
TOPIC_BYTES_MAX = 255
BODY_BYTES_MAX = 4 * 1024 * 1024
_NO_PROPERTIES: Final[Mapping[str, str]] = {}
_NEVER_TAKEN: Final = (SendRefusal.ILLEGAL, SendRefusal.NO_TOPIC, SendRefusal.NO_PERMISSION, SendRefusal.NO_QUEUE)
"""A repeat hears the same, from each master."""
_NEVER_TAKEN_CODES: Final = frozenset(
    (*(REFUSAL_RESULT[refusal] for refusal in _NEVER_TAKEN), SystemCode.REQUEST_CODE_NOT_SUPPORTED)
)
"""The same of RocketMQ's brokers, which give no reason."""
_OF_ONE_MESSAGE: Final = frozenset((REFUSAL_RESULT[SendRefusal.ILLEGAL], SystemCode.REQUEST_CODE_NOT_SUPPORTED))
"""Of these a message may be taken that is alone in its frame."""


class SendFailedError(Exception):
    """
    Not acknowledged. ``outcome`` NOT_APPENDED: definitely not in the log; UNKNOWN: it may be, or may still get there.
    """

    def __init__(self, outcome: SendOutcome, reason: str) -> None:
        """``reason`` is for humans."""
        super().__init__(f"{reason} ({outcome})")
        self.outcome = outcome


class SendResult(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An acknowledged message. ``queue_offset`` is None if only a duplicate's answer arrived."""

    answered_at_ns: int
    """CLOCK_MONOTONIC when the answer was read; the caller of ``send`` runs a little later."""
    answered_by: str
    """Listen address (host:port) of the broker that acknowledged it."""
    message_id: str
    queue_id: int
    queue_offset: int | None
    attempts: int
    sequence: int
    producer_epoch: int


class ProducerCounters(msgspec.Struct):
    acked: int = 0
    retried: int = 0
    """Messages written again, each time counted."""
    duplicate_answers: int = 0
    unknown: int = 0
    """Given up with an unknown outcome."""
    not_appended: int = 0
    gap: int = 0
    """Answers that named a gap or an unknown producer."""
    links: int = 0


class _MasterLink(AskingOnly):
    """The end of one link to a master: all answers of one readable event go to the producer in one turn."""

    def __init__(self, producer: Producer, address: str) -> None:
        self.address = address
        self.connection: RemotingConnection
        self._producer = producer

    @property
    def is_open(self) -> bool:
        """Whether bytes sent now have a chance to leave."""
        return self.connection.is_open

    def connected(self, connection: RemotingConnection) -> None:
        self.connection = connection

    def take_frame(self, part: memoryview, to_come_bytes: int) -> bool:  # noqa: ARG002 (of ``BatchReader``)
        frame = decode_frame(part)
        if frame.is_response:
            self._producer._answered(self, frame)  # noqa: SLF001 (one machine in two classes)
        return True

    def end_batch(self) -> None:
        """Each answer was handled as it was taken; what waited for them leaves."""
        self._producer._flush()  # noqa: SLF001 (one machine in two classes)

    def disconnected(self, connection: RemotingConnection, reason: str) -> None:  # noqa: ARG002 (nobody asks for it)
        if self is self._producer._link:  # noqa: SLF001 (one machine in two classes)
            self._producer.routes.moved.set()  # so that who waits for it looks

    def abort(self) -> None:
        self.connection.close("the producer leaves it")


class Producer:
    """``async with Producer(["127.0.0.1:10911"]) as producer: await producer.send("Topic", b"...")``."""

    def __init__(
        self,
        seeds: Iterable[str],
        *,
        group: str = "rollcall",
        in_flight_max: int = IN_FLIGHT_MAX,
        waiting_bytes_max: int = WAITING_BYTES_MAX,
        pack: PackLimits | None = None,
        send_timeout_ms: int = SEND_TIMEOUT_MS,
        queue_count: int = 8,
        credentials: Credentials | None = None,
        set_key: str = "",
        topic: str = "",
        set_name: str = "",
    ) -> None:
        """
        Nothing is dialled yet.

        Args:
            seeds: Listen addresses of any brokers of the set.
            group: Producer group, for the records.
            in_flight_max: Messages without an answer; ``send`` waits beyond that.
            waiting_bytes_max: Bytes of them; the same.
            pack: Limits of one frame; None: the defaults. ``PackLimits(messages_max=1)`` packs nothing.
            send_timeout_ms: When a caller is told "unknown" at the latest.
            queue_count: Queues of a topic that are written to in turn.
            credentials: Certificate of this client, renewed with its files while this is open; None: an insecure fleet,
                links are plain.
            set_key: CLUSTER/SET that certificates of brokers must name; empty = any set of the fleet.
            topic: Where seeds are RocketMQ's name servers: a topic of the set. Its brokers know no numbers of messages:
                what is sent again may be there twice.
            set_name: The set, there.
        """
        self.expected: ExpectedPeer | None = None
        if credentials is not None:
            kinds = frozenset({PeerKind.BROKER})
            self.expected = ExpectedPeer(credentials=credentials, kinds=kinds, set_key=set_key)
        self.counters = ProducerCounters()
        self.producer_id = secrets.token_bytes(16)
        self.producer_epoch = 0
        self.routes = RouteWatcher(seeds, self.expected, topic=topic, set_name=set_name)
        self._group = group
        self._timeout_s = send_timeout_ms / 1000
        self._queue_count = queue_count
        self._places = Places(messages_max=in_flight_max, bytes_max=waiting_bytes_max)
        # What may wait to be sent is limited by the window: a link that ended for it would be dialled again for ever.
        self._limits = replace(ANSWER_LIMITS, out_buffer_bytes_max=in_flight_max * FRAME_BYTES_MAX)
        self._pack_limits = pack or PackLimits()
        self._packer = Packer(self._pack_limits)
        self._calls: deque[Call] = deque()
        """Not told of all their messages yet, by rising ``until_s``; told ones among them leave with those before."""
        self._call_timer: asyncio.TimerHandle | None = None
        self._pack_timer: asyncio.TimerHandle | None = None
        self._window: deque[Pack] = deque()
        """Unanswered, by rising sequence."""
        self._by_opaque: dict[int, Pack] = {}
        """Written on the current link and not answered."""
        self._next_sequence = 0
        self._next_opaque = 0
        self._next_queue = 0
        self._link: _MasterLink | None = None
        self._spares: Spares[_MasterLink] = Spares(self._dial)
        self._outgoing: list[bytes] = []
        self._is_flush_due = False
        self._hint: str | None = None
        self._must_renumber = False
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._is_closing = False

    @classmethod
    def from_fleet_file(cls, path: str | Path, *, set_name: str = "", **options: Any) -> Self:
        """
        The producer of one set of a fleet file, with the certificate ``client`` beside it. Blocks.

        A fleet of one set needs no ``set_name``; ``options`` are those of ``Producer``. Raises ``ConfigError``.
        """
        access = access_of(path, set_name)
        # A producer follows one master: seeds of two sets would be two masters, and each message would go to either.
        if not access.set_key:
            raise ConfigError(f"{path} has brokers of more than one set; say which by set_name")
        return cls(access.seeds, credentials=access.credentials, set_key=access.set_key, **options)

    async def __aenter__(self) -> Producer:
        """Begin to look for the master."""
        self.routes.start()
        loop = asyncio.get_running_loop()
        self._tasks = (loop.create_task(self._run(), name="producer"),)
        if self.expected is not None:
            self._tasks += (loop.create_task(renewing(self.expected.credentials), name="producer's certificate"),)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End at once: sends that were written fail as unknown, the others as not appended."""
        self._is_closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._spares.drop()
        await self.routes.stop()
        for timer in (self._call_timer, self._pack_timer):
            if timer is not None:
                timer.cancel()
        for pack in (*self._window, *self._packer.all()):
            self._fail(pack, SendOutcome.UNKNOWN if pack.attempts else SendOutcome.NOT_APPENDED, "the producer closed")
        self._window.clear()
        self._packer = Packer(self._pack_limits)
        self._places.close()

    async def send(
        self,
        topic: str,
        body: bytes,
        *,
        queue_id: int | None = None,
        properties: Mapping[str, str] = _NO_PROPERTIES,
        may_pack: bool = True,
    ) -> SendResult:
        """
        Send one message and wait for its acknowledgement.

        ``may_pack`` False: in a frame of its own, behind what was sent to its queue before.

        Raises:
            SendFailedError: not acknowledged; its ``outcome`` says what is known.
            ValueError: topic, body or properties cannot be sent; nothing was.
        """
        (outcome,) = await self._send(topic, (body,), queue_id, properties, may_pack=may_pack)
        if isinstance(outcome, SendFailedError):
            raise outcome
        return outcome

    async def send_many(
        self,
        topic: str,
        bodies: Sequence[bytes],
        *,
        queue_id: int | None = None,
        properties: Mapping[str, str] = _NO_PROPERTIES,
    ) -> list[SendResult | SendFailedError]:
        """
        Send messages of one topic, and of one queue if it is given, in order, and wait until each is acknowledged or
        not: what became of it. Costs far less than ``send`` for each.

        Raises ``ValueError``: topic, a body or properties cannot be sent; nothing was.
        """
        return await self._send(topic, bodies, queue_id, properties, may_pack=True)

    async def _send(
        self,
        topic: str,
        bodies: Sequence[bytes],
        queue_id: int | None,
        properties: Mapping[str, str],
        *,
        may_pack: bool,
    ) -> list[SendResult | SendFailedError]:
        handed_at_us = time.monotonic_ns() // 1_000
        text = _check(topic, bodies, properties)
        own_bytes = BATCH_ITEM_BYTES + len(text)
        sizes_bytes = [own_bytes + len(body) for body in bodies]
        outcomes: list[SendResult | SendFailedError] = []
        calls: list[tuple[Call, asyncio.Future[None]]] = []
        at = 0
        while at < len(bodies):
            count = 0 if self._is_closing else await self._places.take(sizes_bytes, at)
            if self._is_closing:
                self._places.give(count, sum(sizes_bytes[at : at + count]))
                break
            calls.append(self._hand_over((topic, queue_id), bodies[at : at + count], text, handed_at_us, may_pack))
            at += count
        for call, told in calls:
            if call.left:
                await told
            outcomes += call.outcomes
        if at < len(bodies):
            outcomes += self._told(len(bodies) - at, SendOutcome.NOT_APPENDED, "the producer is closed")
        return outcomes

    def _hand_over(
        self, key: tuple[str, int | None], bodies: Sequence[bytes], properties: bytes, handed_at_us: int, may_pack: bool
    ) -> tuple[Call, asyncio.Future[None]]:
        """Messages that have a place; the future is done when each is told of."""
        loop = asyncio.get_running_loop()
        told: asyncio.Future[None] = loop.create_future()

        def on_told() -> None:
            # Its caller may have been cancelled.
            if not told.done():
                told.set_result(None)

        call = Call(len(bodies), loop.time() + self._timeout_s, on_told)
        self._calls.append(call)
        born_at_ms = time.time_ns() // 1_000_000
        self._packer.add(key, bodies, properties, call, now_us=handed_at_us, now_ms=born_at_ms, may_pack=may_pack)
        self._flush_soon()
        return call, told

    # --- writing ------------------------------------------------------------------------------------------------------

    def _flush_soon(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _write(self, pack: Pack) -> None:
        self._next_opaque = (self._next_opaque + 1) & 0x7FFFFFFF
        pack.opaque = self._next_opaque
        pack.attempts += 1
        if pack.attempts > 1:
            self.counters.retried += len(pack.bodies)
        self._by_opaque[pack.opaque] = pack
        stamp = f"{STAMP_PROPERTY}\x01{format_stamp(self.producer_id, self.producer_epoch, pack.sequence)}\x02"
        is_batch = len(pack.bodies) > 1
        if is_batch:
            # Among its first message's own: a broker from before batches had numbers refuses one there. Anywhere else
            # it would overlook it, and store a repeat of the batch as new messages.
            properties = [stamp.encode() + pack.properties[0], *pack.properties[1:]]
            body = encode_batch(pack.bodies, properties)
        else:
            body = pack.bodies[0]
        self._outgoing.append(
            encode_send(
                opaque=pack.opaque,
                group=self._group,
                topic=pack.key[0],
                queue_id=pack.queue_id,
                born_at_ms=pack.born_at_ms,
                properties="" if is_batch else stamp + pack.properties[0].decode(),
                body=body,
                waited_us=time.monotonic_ns() // 1_000 - pack.handed_at_us,
                is_batch=is_batch,
            )
        )
        self._flush_soon()

    def _flush(self) -> None:
        """Number what leaves, and one write for everything of one turn of the loop."""
        # Frames that are written here leave here: none of them has to ask for a further flush.
        self._is_flush_due = True
        if self._calls:
            self._watch_calls()
        if self._link is not None:
            if self._packer and not self._must_renumber:
                self._number()
            if self._outgoing:
                outgoing, self._outgoing = self._outgoing, []
                self._link.connection.send_bytes(b"".join(outgoing))
        self._is_flush_due = False

    def _number(self) -> None:
        for pack in self._packer.take(self._keys_under_way, time.monotonic_ns() // 1_000):
            queue_id = pack.key[1]
            if queue_id is None:
                self._next_queue = queue_id = (self._next_queue + 1) % self._queue_count
            pack.queue_id = queue_id
            pack.sequence = self._next_sequence
            self._next_sequence += len(pack.bodies)
            self._window.append(pack)
            self._write(pack)
        due_us = self._packer.due_us()
        if due_us is not None and self._pack_timer is None:
            self._pack_timer = asyncio.get_running_loop().call_later(
                max(0, due_us - time.monotonic_ns() // 1_000) / 1_000_000, self._pack_is_due
            )

    def _pack_is_due(self) -> None:
        self._pack_timer = None
        self._flush()

    def _keys_under_way(self) -> set[tuple[str, int | None]]:
        return {pack.key for pack in self._by_opaque.values()}

    # --- links --------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Follow the master for ever."""
        delay_ms = RETRY_DELAY_MS_MIN
        while True:
            address = self._hint or (self.routes.route.master_address if self.routes.route is not None else None)
            self._hint = None
            self.routes.moved.clear()
            if address is not None and await self._serve(address):
                delay_ms = RETRY_DELAY_MS_MIN
            try:
                async with asyncio.timeout(delay_ms / 1000):
                    await self.routes.moved.wait()
            except TimeoutError:
                delay_ms = min(2 * delay_ms, RETRY_DELAY_MS_MAX)

    async def _serve(self, address: str) -> bool:
        """One link until it ends or the master moves; whether anything was acknowledged on it."""
        acked = self.counters.acked
        link = await self._spares.take(address) or await self._dial(address)
        if link is None:
            return False
        self._spares.drop()
        self.counters.links += 1
        self._link = link
        try:
            self._renumber_if_idle()
            # In the order of their numbers, before any new send: message 8 in front of 7 would be refused as a gap.
            for pack in self._window:
                if pack.opaque not in self._by_opaque:
                    self._write(pack)
            self._flush()
            await self._until_ended(link, address)
        finally:
            self._link = None
            self._outgoing.clear()
            self._by_opaque.clear()
            link.abort()
        # A plain link is there in no time: one of each replica would cost more than it saves.
        if self.expected is not None and self.routes.route is not None and not self.routes.moved.is_set():
            self._spares.begin(one.address for one in self.routes.route.replicas if one.address != address)
        return self.counters.acked != acked

    async def _dial(self, address: str) -> _MasterLink | None:
        """None: nobody is there, or no broker of the set."""
        link = _MasterLink(self, address)
        try:
            await dial(
                address,
                link,
                timeout_ms=CONNECT_TIMEOUT_MS,
                limits=self._limits,
                expected=self.expected,
                make_reader=lambda _: link,
            )
        except (OSError, TimeoutError, ValueError, RemotingError):
            return None
        return link

    async def _until_ended(self, link: _MasterLink, address: str) -> None:
        while link.is_open:
            await self.routes.moved.wait()
            self.routes.moved.clear()
            route = self.routes.route
            if route is not None and route.master_address not in (None, address):
                self.routes.moved.set()
                return

    # --- answers ------------------------------------------------------------------------------------------------------

    def _answered(self, link: _MasterLink, frame: Frame) -> None:
        # An answer of the old link, handled after its messages were written again: its opaque may name another message.
        if link is not self._link:
            return
        pack = self._by_opaque.pop(frame.opaque, None)
        if pack is None:
            return
        fields = frame.ext_fields or {}
        if frame.code == ClientResult.PUT_OK:
            self._acked(link, pack, fields)
        else:
            self._refused(link, pack, fields, frame)
        # Only when no answer is awaited any more: a message that is still on its way has a number of the old epoch, and
        # given a new one it could be in the log twice.
        if self._must_renumber and not self._by_opaque:
            self._renumber_if_idle()
            for waiting in self._window:
                self._write(waiting)

    def _acked(self, link: _MasterLink, pack: Pack, fields: dict[str, str]) -> None:
        count = len(pack.bodies)
        self.counters.acked += count
        is_duplicate = fields.get("duplicate") == "true"
        if is_duplicate:
            self.counters.duplicate_answers += count
        self._leave(pack)
        ids = fields.get("msgId", "").split(",")
        # RocketMQ's brokers may name a batch by one id.
        ids = ids if len(ids) == count else ids[:1] * count
        first, now_ns = int(fields.get("queueOffset", "0")), time.monotonic_ns()
        results = [
            SendResult(
                answered_at_ns=now_ns,
                answered_by=link.address,
                message_id=ids[number],
                queue_id=pack.queue_id,
                queue_offset=None if is_duplicate else first + number,
                attempts=pack.attempts,
                sequence=pack.sequence + number,
                producer_epoch=self.producer_epoch,
            )
            for number in range(count)
        ]
        at = 0
        for part in pack.parts:
            part.call.tell(part.first, results[at : at + part.count])
            at += part.count

    def _refused(self, link: _MasterLink, pack: Pack, fields: dict[str, str], answer: Frame) -> None:
        reason, detail = fields.get("reason", ""), answer.remark or f"code {answer.code}"
        if reason in (SendRefusal.SEQUENCE_GAP, SendRefusal.SEQUENCE_OLD, SendRefusal.PRODUCER_UNKNOWN):
            self.counters.gap += 1
            self._must_renumber = True
            if pack.attempts > 1:
                # An earlier attempt may be in the log, forgotten by the window or on a master that comes back: under a
                # new number it could be there twice.
                self._leave(pack)
                self._fail(pack, SendOutcome.UNKNOWN, detail)
            pack.attempts = 0
        elif reason in _NEVER_TAKEN or (not reason and answer.code in _NEVER_TAKEN_CODES):
            # Of numbers that its broker does not know none is missing.
            self._must_renumber = self._must_renumber or bool(reason)
            if answer.code in _OF_ONE_MESSAGE and len(pack.bodies) > 1 and pack.attempts == 1:
                self._take_apart(pack)
                return
            self._leave(pack)
            # Refused now; but an earlier attempt may have been accepted by a broker with other limits.
            self._fail(pack, SendOutcome.NOT_APPENDED if pack.attempts == 1 else SendOutcome.UNKNOWN, detail)
        elif reason == SendRefusal.ACK_TIMEOUT:
            # It is in that log, where a repeat waits for its release. By a new link the whole window would go again.
            self._write(pack)
        elif not reason:
            # RocketMQ's broker: it knows no numbers, so the rest of the window, sent again, would be there twice.
            asyncio.get_running_loop().call_later(RETRY_DELAY_MS_MAX / 1000, self._repeat, link, pack)
        else:
            # Not master, overloaded, epoch ended...: everything unanswered goes again, in order, on a new link.
            self._hint = fields.get("master") or None
            link.abort()

    def _take_apart(self, pack: Pack) -> None:
        """Rule 5. One of its messages is illegal, or its broker takes no batch: each is asked for alone."""
        at, singles = self._window.index(pack), one_by_one(pack)
        self._window.remove(pack)
        for number, single in enumerate(singles):
            self._window.insert(at + number, single)
        if not self._must_renumber:
            for single in singles:
                self._write(single)

    def _repeat(self, link: _MasterLink, pack: Pack) -> None:
        if pack.is_given_up:
            self._leave(pack)
        elif link is self._link:
            self._write(pack)

    def _renumber_if_idle(self) -> None:
        """
        Rule 4. Nothing is on its way: a message that was written and never answered has lost its number and fails as
        unknown; the others get new numbers from 0, in the next producer epoch.
        """
        if not self._must_renumber:
            return
        self._must_renumber = False
        for pack in [each for each in self._window if each.attempts]:
            self._leave(pack)
            self._fail(pack, SendOutcome.UNKNOWN, "its number is lost")
        self.producer_epoch += 1
        self._next_sequence = 0
        for pack in self._window:
            pack.sequence = self._next_sequence
            self._next_sequence += len(pack.bodies)

    # --- the end of a message -----------------------------------------------------------------------------------------

    def _leave(self, pack: Pack) -> None:
        window = self._window
        if window and window[0] is pack:
            window.popleft()
        else:
            window.remove(pack)
        self._places.give(len(pack.bodies), pack.size_bytes)

    def _watch_calls(self) -> None:
        """Drop told calls from the front, and set the timer for the oldest that is left."""
        calls = self._calls
        while calls and not calls[0].left:
            calls.popleft()
        if calls and self._call_timer is None:
            self._call_timer = asyncio.get_running_loop().call_at(calls[0].until_s, self._give_up)

    def _give_up(self) -> None:
        """Calls that have waited for too long hear what is known of each of their messages."""
        self._call_timer = None
        now_s = asyncio.get_running_loop().time()
        late: list[Call] = []
        while self._calls and self._calls[0].until_s <= now_s:
            call = self._calls.popleft()
            if call.left:
                late.append(call)
        reasons = [f"{address}: {why}" for address, why in self.routes.troubles.items()]
        reason = "; ".join([f"no acknowledgement within {self._timeout_s:.1f} s", *reasons])
        # Written once, a message stays in the window although its caller is told "unknown": taken out, the next number
        # would be a gap for a master that never saw this one (rule 3). One that was never written goes, and is
        # definitely not appended.
        unsent = self._packer.forget(late)
        for pack in [each for each in self._window if not each.attempts]:
            unsent += take_out(pack, late)
            if not pack.bodies:
                self._window.remove(pack)
        for part, size_bytes in unsent:
            self._places.give(part.count, size_bytes)
            part.call.tell(part.first, self._told(part.count, SendOutcome.NOT_APPENDED, reason))
        for call in late:
            missing = [number for number, outcome in enumerate(call.outcomes) if outcome is None]
            for number in missing:
                call.tell(number, self._told(1, SendOutcome.UNKNOWN, reason))
            call.is_given_up = True
        self._watch_calls()

    def _fail(self, pack: Pack, outcome: SendOutcome, reason: str) -> None:
        for part in pack.parts:
            if not part.call.is_given_up:
                part.call.tell(part.first, self._told(part.count, outcome, reason))

    def _told(self, count: int, outcome: SendOutcome, reason: str) -> list[SendFailedError]:
        """One for each message: an error that several callers raise would have the traces of all."""
        if outcome is SendOutcome.UNKNOWN:
            self.counters.unknown += count
        else:
            self.counters.not_appended += count
        return [SendFailedError(outcome, reason) for _ in range(count)]


def _check(topic: str, bodies: Sequence[bytes], properties: Mapping[str, str]) -> bytes:
    """Properties in their form. Raises ``ValueError``."""
    if not 1 <= len(topic.encode()) <= TOPIC_BYTES_MAX:
        raise ValueError(f"topic {topic!r} has {len(topic.encode())} bytes; 1 to {TOPIC_BYTES_MAX} are possible")
    longest = max(map(len, bodies), default=0)
    if longest > BODY_BYTES_MAX:
        raise ValueError(f"a body of {longest} bytes; {BODY_BYTES_MAX} are allowed")
    for name, value in properties.items():
        if not name or not value or any(mark in part for part in (name, value) for mark in "\x00\x01\x02"):
            raise ValueError(f"property {name!r}={value!r}: neither may be empty or contain NUL, 0x01 or 0x02")
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
