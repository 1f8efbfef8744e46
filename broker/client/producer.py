"""
A producer that follows the master and never doubles a message.

Here: the window of unacknowledged sends, their numbers, retries, counters. Not here: where the master is (``routes``),
links to those that may be it next (``spares``).

Rule 1 (R18): every message has (producer id, producer epoch, sequence). Messages that are unanswered when a link ends
are sent again, in order, to the next master of the same set; the table of the log makes sure that each is there once.
Rule 2: only PUT_OK is an acknowledgement. ``SendFailedError`` says whether the message is definitely not in the log.
Rule 3: a message that was given up as unknown stays in the window until it is answered, so that numbers have no gap.
Rule 4: a message that is definitely not appended and cannot keep its number gets a new one, in a new producer epoch.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec
from msgspec.structs import replace

from rollcall_ha.broker.client.fleet import access_of
from rollcall_ha.broker.client.routes import CONNECT_TIMEOUT_MS, RouteWatcher, renewing
from rollcall_ha.broker.client.spares import Spares
from rollcall_ha.broker.protocol.codes import REFUSAL_RESULT, ClientResult, SendOutcome, SendRefusal
from rollcall_ha.broker.protocol.send import encode_send
from rollcall_ha.broker.protocol.stamp import STAMP_PROPERTY, format_stamp
from rollcall_ha.node.certified import PeerKind
from rollcall_ha.node.config import ConfigError
from rollcall_ha.node.remoting.asking import ANSWER_LIMITS, AskingOnly, dial
from rollcall_ha.node.remoting.connection import RemotingConnection, RemotingError
from rollcall_ha.node.remoting.frame import FRAME_BYTES_MAX, Frame, decode_frame
from rollcall_ha.node.remoting.secured import ExpectedPeer
from rollcall_ha.node.tls import Credentials

IN_FLIGHT_MAX = 1_024
SEND_TIMEOUT_MS = 30_000
RETRY_DELAY_MS_MIN = 5
RETRY_DELAY_MS_MAX = 200
TOPIC_BYTES_MAX = 255
BODY_BYTES_MAX = 4 * 1024 * 1024
_NEVER_TAKEN: Final = (SendRefusal.ILLEGAL, SendRefusal.NO_TOPIC, SendRefusal.NO_PERMISSION, SendRefusal.NO_QUEUE)
"""A repeat hears the same, from each master."""
_NEVER_TAKEN_CODES: Final = frozenset(REFUSAL_RESULT[refusal] for refusal in _NEVER_TAKEN)
"""The same of RocketMQ's brokers, which give no reason."""


class SendFailedError(Exception):
    """
    Not acknowledged. ``outcome`` NOT_APPENDED: definitely not in the log; UNKNOWN: it may be, or may still get there.
    """

    def __init__(self, outcome: SendOutcome, reason: str) -> None:
        """``reason`` is for humans."""
        super().__init__(f"{reason} ({outcome})")
        self.outcome = outcome


class SendResult(msgspec.Struct, frozen=True, kw_only=True):
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


class _Pending(msgspec.Struct):
    """A message in the window."""

    topic: str
    queue_id: int
    body: bytes
    properties: str
    born_at_ms: int
    handed_at_us: int
    """CLOCK_MONOTONIC when ``send`` was called: each attempt says how long it is since then."""
    done: asyncio.Future[SendResult]
    sequence: int = 0
    attempts: int = 0
    opaque: int = 0


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
        """Each answer was handled as it was taken."""

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
        self._slots = asyncio.Semaphore(in_flight_max)
        # What may wait to be sent is limited by the window: a link that ended for it would be dialled again for ever.
        self._limits = replace(ANSWER_LIMITS, out_buffer_bytes_max=in_flight_max * FRAME_BYTES_MAX)
        self._window: deque[_Pending] = deque()
        """Unanswered, by rising sequence."""
        self._by_opaque: dict[int, _Pending] = {}
        """Written on the current link and not answered."""
        self._next_sequence = 0
        self._next_opaque = 0
        self._next_queue = 0
        self._link: _MasterLink | None = None
        self._spares: Spares[_MasterLink] = Spares(self._dial)
        self._outgoing: list[bytes] = []
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
        for pending in self._window:
            self._fail(
                pending, SendOutcome.UNKNOWN if pending.attempts else SendOutcome.NOT_APPENDED, "the producer closed"
            )
        self._window.clear()

    async def send(
        self, topic: str, body: bytes, *, queue_id: int | None = None, properties: dict[str, str] | None = None
    ) -> SendResult:
        """
        Send one message and wait for its acknowledgement.

        Raises:
            SendFailedError: not acknowledged; its ``outcome`` says what is known.
            ValueError: topic, body or properties cannot be sent; nothing was.
        """
        handed_at_us = time.monotonic_ns() // 1_000
        text = _check(topic, body, properties or {})
        await self._slots.acquire()
        if self._is_closing:
            self._slots.release()
            raise SendFailedError(SendOutcome.NOT_APPENDED, "the producer is closed")
        done: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        # The caller may have been cancelled: an error that nobody fetches would be logged as one of ours.
        done.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        if queue_id is None:
            self._next_queue = queue_id = (self._next_queue + 1) % self._queue_count
        pending = _Pending(topic, queue_id, body, text, time.time_ns() // 1_000_000, handed_at_us, done)
        pending.sequence = self._next_sequence
        self._next_sequence += 1
        self._window.append(pending)
        if self._link is not None and not self._must_renumber:
            self._write(pending)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.shield(done)
        except TimeoutError:
            outcome = SendOutcome.UNKNOWN if pending.attempts else SendOutcome.NOT_APPENDED
            # Written once, it stays in the window although its caller is told "unknown": taken out, the next number
            # would be a gap for a master that never saw this one (rule 3).
            if not pending.attempts:
                self._drop_unsent(pending)
            self._count(outcome)
            done.cancel()
            reason = f"no acknowledgement within {self._timeout_s:.1f} s"
            told = [f"{address}: {why}" for address, why in self.routes.troubles.items()]
            raise SendFailedError(outcome, "; ".join([reason, *told])) from None

    # --- writing ------------------------------------------------------------------------------------------------------

    def _write(self, pending: _Pending) -> None:
        self._next_opaque = (self._next_opaque + 1) & 0x7FFFFFFF
        pending.opaque = self._next_opaque
        pending.attempts += 1
        if pending.attempts > 1:
            self.counters.retried += 1
        self._by_opaque[pending.opaque] = pending
        stamp = format_stamp(self.producer_id, self.producer_epoch, pending.sequence)
        if not self._outgoing:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outgoing.append(
            encode_send(
                opaque=pending.opaque,
                group=self._group,
                topic=pending.topic,
                queue_id=pending.queue_id,
                born_at_ms=pending.born_at_ms,
                properties=f"{STAMP_PROPERTY}\x01{stamp}\x02{pending.properties}",
                body=pending.body,
                waited_us=time.monotonic_ns() // 1_000 - pending.handed_at_us,
            )
        )

    def _flush(self) -> None:
        """One write for everything that was sent in one turn of the loop."""
        outgoing, self._outgoing = self._outgoing, []
        if self._link is not None:
            self._link.connection.send_bytes(b"".join(outgoing))

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
            for pending in self._window:
                if pending.opaque not in self._by_opaque:
                    self._write(pending)
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
        pending = self._by_opaque.pop(frame.opaque, None)
        if pending is None:
            return
        fields = frame.ext_fields or {}
        if frame.code == ClientResult.PUT_OK:
            self._acked(link, pending, fields)
        else:
            self._refused(link, pending, fields, frame)
        # Only when no answer is awaited any more: a message that is still on its way has a number of the old epoch, and
        # given a new one it could be in the log twice.
        if self._must_renumber and not self._by_opaque:
            self._renumber_if_idle()
            for waiting in self._window:
                self._write(waiting)

    def _acked(self, link: _MasterLink, pending: _Pending, fields: dict[str, str]) -> None:
        self.counters.acked += 1
        is_duplicate = fields.get("duplicate") == "true"
        if is_duplicate:
            self.counters.duplicate_answers += 1
        self._leave(pending)
        if not pending.done.done():
            pending.done.set_result(
                SendResult(
                    answered_at_ns=time.monotonic_ns(),
                    answered_by=link.address,
                    message_id=fields.get("msgId", ""),
                    queue_id=pending.queue_id,
                    queue_offset=None if is_duplicate else int(fields.get("queueOffset", "0")),
                    attempts=pending.attempts,
                    sequence=pending.sequence,
                    producer_epoch=self.producer_epoch,
                )
            )

    def _refused(self, link: _MasterLink, pending: _Pending, fields: dict[str, str], answer: Frame) -> None:
        reason, detail = fields.get("reason", ""), answer.remark or f"code {answer.code}"
        if reason in (SendRefusal.SEQUENCE_GAP, SendRefusal.SEQUENCE_OLD, SendRefusal.PRODUCER_UNKNOWN):
            self.counters.gap += 1
            self._must_renumber = True
            if pending.attempts > 1:
                # An earlier attempt may be in the log, forgotten by the window or on a master that comes back: under a
                # new number it could be there twice.
                self._leave(pending)
                self._fail(pending, SendOutcome.UNKNOWN, detail)
            pending.attempts = 0
        elif reason in _NEVER_TAKEN or (not reason and answer.code in _NEVER_TAKEN_CODES):
            # Of numbers that its broker does not know none is missing.
            self._must_renumber = self._must_renumber or bool(reason)
            self._leave(pending)
            # Refused now; but an earlier attempt may have been accepted by a broker with other limits.
            self._fail(pending, SendOutcome.NOT_APPENDED if pending.attempts == 1 else SendOutcome.UNKNOWN, detail)
        elif reason == SendRefusal.ACK_TIMEOUT:
            # It is in that log, where a repeat waits for its release. By a new link the whole window would go again.
            self._write(pending)
        elif not reason:
            # RocketMQ's broker: it knows no numbers, so the rest of the window, sent again, would be there twice.
            asyncio.get_running_loop().call_later(RETRY_DELAY_MS_MAX / 1000, self._repeat, link, pending)
        else:
            # Not master, overloaded, epoch ended...: everything unanswered goes again, in order, on a new link.
            self._hint = fields.get("master") or None
            link.abort()

    def _repeat(self, link: _MasterLink, pending: _Pending) -> None:
        if pending.done.done():
            self._leave(pending)
        elif link is self._link:
            self._write(pending)

    def _renumber_if_idle(self) -> None:
        """
        Rule 4. Nothing is on its way: a message that was written and never answered has lost its number and fails as
        unknown; the others get new numbers from 0, in the next producer epoch.
        """
        if not self._must_renumber:
            return
        self._must_renumber = False
        for pending in [each for each in self._window if each.attempts]:
            self._leave(pending)
            self._fail(pending, SendOutcome.UNKNOWN, "its number is lost")
        self.producer_epoch += 1
        for sequence, pending in enumerate(self._window):
            pending.sequence = sequence
        self._next_sequence = len(self._window)

    # --- the end of a message -----------------------------------------------------------------------------------------

    def _leave(self, pending: _Pending) -> None:
        window = self._window
        if window and window[0] is pending:
            window.popleft()
        else:
            window.remove(pending)
        self._slots.release()

    def _drop_unsent(self, pending: _Pending) -> None:
        """
        Take out a message that was never written, and close the gap: 7 goes, 8 becomes 7.

        The messages behind it were not written either: they are written in order.
        """
        behind = False
        for each in self._window:
            if behind:
                each.sequence -= 1
            behind = behind or each is pending
        self._next_sequence -= 1
        self._leave(pending)

    def _fail(self, pending: _Pending, outcome: SendOutcome, reason: str) -> None:
        if not pending.done.done():
            self._count(outcome)
            pending.done.set_exception(SendFailedError(outcome, reason))

    def _count(self, outcome: SendOutcome) -> None:
        if outcome is SendOutcome.UNKNOWN:
            self.counters.unknown += 1
        else:
            self.counters.not_appended += 1


def _check(topic: str, body: bytes, properties: dict[str, str]) -> str:
    """Properties in their form. Raises ``ValueError``."""
    if not 1 <= len(topic.encode()) <= TOPIC_BYTES_MAX:
        raise ValueError(f"topic {topic!r} has {len(topic.encode())} bytes; 1 to {TOPIC_BYTES_MAX} are possible")
    if len(body) > BODY_BYTES_MAX:
        raise ValueError(f"a body of {len(body)} bytes; {BODY_BYTES_MAX} are allowed")
    for name, value in properties.items():
        if not name or not value or any(mark in part for part in (name, value) for mark in "\x00\x01\x02"):
            raise ValueError(f"property {name!r}={value!r}: neither may be empty or contain NUL, 0x01 or 0x02")
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
