"""
Sockets of native links on the loop: one shell per machine.

Limits, causes, clocks and counters are those of every port (``node.remoting.links``). The reading and writing of
``RemotingConnection`` cannot be shared: a body goes from a file to the socket and from the socket into the log's map,
so there is no receive buffer, no batch of frames and no transport that could hold unsent bytes.
Not here: the calls on a socket, TLS (``channels``); which link counts, reconnecting (``service``); decisions
(``master_link``, ``slave_link``).

Rule 1: own non-blocking sockets with ``add_reader`` / ``add_writer``: uvloop has no sendfile, and the standard loop's
stops reading meanwhile, so acks would starve. With TLS the same sockets serve: its bytes never pass a transport either.
Rule 2: a link sends or receives at most ``TURN_BYTES_MAX`` in one turn of the loop; no coroutine or task per message.
Rule 3: a link that lags far behind may need bytes that are not in memory: its own thread reads them ahead into the page
cache, so that sendfile on the loop never waits for the disk. It is granted what it may send (``catch_up``), and waits
on a timer for the rest.
Rule 4: views of the log are released in the function that asked for them.
Rule 5: with TLS, no byte of a peer reaches a machine, and none of a machine the peer, before its certificate is judged.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from rollcall_ha.controller.contract.ids import LogOffset
from rollcall_ha.ha.actions import CloseLink, MasterAction, Send, SendTransfer, SlaveAcked, SlaveAction
from rollcall_ha.ha.catch_up import Grant
from rollcall_ha.ha.channels import Channel, Parts, PlainChannel, SecuredChannel
from rollcall_ha.ha.errors import ErrorCode, FrameCorrupt
from rollcall_ha.ha.master_link import MasterLink
from rollcall_ha.ha.ports import FileRegion, ReplicaLog
from rollcall_ha.ha.slave_link import SlaveLink
from rollcall_ha.ha.sniff import SNIFF_BYTES, Protocol, sniff
from rollcall_ha.node.certified import PeerRefused
from rollcall_ha.node.remoting.links import CloseCause, LimitedLink, LinkLimits, cause_of
from rollcall_ha.node.remoting.secured import ExpectedPeer
from rollcall_ha.node.telemetry import get_logger
from rollcall_ha.node.tls import tls_reason

TURN_BYTES_MAX = 1024 * 1024
SEND_QUEUE_BYTES_MAX = 4 * 1024 * 1024
"""Control frames that a peer does not read; a transfer is planned only when nothing is queued."""
CONTROL_READ_BYTES = 64 * 1024
HA_LIMITS = LinkLimits(
    connections_max=64,
    silent_make_room=True,
    idle_ms_max=0,
    out_buffer_bytes_max=SEND_QUEUE_BYTES_MAX,
    unfinished_bytes_max=4 * 1024 * 1024,
    unread_bytes_max=64 * 1024 * 1024,
)
"""A set has a handful of replicas. Silence, before a handshake and behind it, is judged by the link machines."""
_CAUSES = {
    ErrorCode.PROTOCOL: CloseCause.FRAME,
    ErrorCode.CODEC_UNSUPPORTED: CloseCause.FRAME_LENGTH,
    ErrorCode.IDLE: CloseCause.IDLE,
    ErrorCode.STOPPING: CloseCause.STOPPED,
    ErrorCode.CERTIFICATE_REFUSED: CloseCause.CERTIFICATE,
}
"""Why a link ended that its machine ends; any other code is a decision of the broker."""
COLD_LAG_BYTES = 64 * 1024 * 1024
"""A link that lags more is read ahead by a thread; less was written a moment ago and is in memory."""
COLD_WINDOW_BYTES = 8 * 1024 * 1024
_COLD_PIECE_BYTES = 1024 * 1024

ActionT = TypeVar("ActionT")

_log = get_logger("ha")


def monotonic_ms() -> int:
    """The clock of all links of a process."""
    return time.monotonic_ns() // 1_000_000


def open_channel(sock: socket.socket, context: ssl.SSLContext | None, *, is_server: bool) -> Channel:
    """Made of a connected socket. Raises ``OSError``, and the socket is closed: the peer is gone already."""
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError:
        sock.close()
        raise
    return PlainChannel(sock) if context is None else SecuredChannel(sock, context, is_server=is_server)


def wall_clock_ms() -> int:
    """UTC, as certificates count."""
    return time.time_ns() // 1_000_000


class _Connection(LimitedLink, Generic[ActionT]):
    """A channel on the loop, its queue of outgoing parts, and the actions of its machine in their order."""

    def __init__(self, channel: Channel, loop: asyncio.AbstractEventLoop, clock_ms: Callable[[], int]) -> None:
        super().__init__(HA_LIMITS)
        self.channel = channel
        self._number = channel.fileno()
        self._loop = loop
        self._clock_ms = clock_ms
        self._parts: Parts = deque()
        self._queued_bytes = 0
        self._actions: deque[ActionT] = deque()
        self._is_executing = False
        self._is_reading = False
        self._is_read_due = False
        self._is_waiting_to_write = False
        self._refused_for: CloseCause | None = None
        self.is_closed = False

    @property
    def has_queue(self) -> bool:
        """Something waits for room in the socket; it will be woken by itself."""
        return bool(self._parts) or self.channel.held_bytes > 0

    @property
    def unread_bytes(self) -> int:
        """Control frames, and TLS's window; the rest of a transfer waits in its file, not in memory."""
        return self.channel.held_bytes + sum(len(part) for part in self._parts if isinstance(part, memoryview))

    # --- reading -----------------------------------------------------------------------------------------------------

    def start_reading(self) -> None:
        """Wake on bytes; again after a pause."""
        if not self.is_closed and not self._is_reading:
            self._is_reading = True
            self._loop.add_reader(self._number, self._guarded_read)
            self._read_on()

    def _pause_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._number)

    def _read_on(self) -> None:
        # What TLS has decrypted makes no socket readable: left to wait for the peer's next record, the end of a body
        # would never be acked on an idle link.
        if self.channel.has_unread and not self._is_read_due:
            self._is_read_due = True
            self._loop.call_soon(self._read_due)

    def _read_due(self) -> None:
        self._is_read_due = False
        if self._is_reading:
            self._guarded_read()

    def _guarded_read(self) -> None:
        self.channel.is_drained = False
        try:
            if self._is_admitted():
                self._read()
        except OSError as error:
            self._failed("receive", error)
        except Exception as error:  # noqa: BLE001 (ours; the bytes that met it would be read again, for ever)
            self.close_for_fault(error)
        if self.is_closed:
            return
        if self._is_reading:
            self._read_on()
        if self.channel.waits_for_room:
            self._want_write(True)

    def _failed(self, what: str, error: OSError) -> None:
        # The peer left in the middle of a record, or of the handshake: no more than a socket that is closed.
        if isinstance(error, ssl.SSLEOFError):
            self.lost(f"{what}: the peer closed the connection")
        elif isinstance(error, ssl.SSLError):
            self.close(f"{what}: {tls_reason(error)}", CloseCause.TLS, ErrorCode.CERTIFICATE_REFUSED)
        else:
            self.lost(f"{what}: {error.strerror or error}", error)

    def _is_admitted(self) -> bool:
        """Whether the machine may have what comes (rule 5). Raises ``OSError``."""
        return True

    @abstractmethod
    def _read(self) -> None:
        """Take what one readable event brings, at most ``TURN_BYTES_MAX``."""

    # --- writing -----------------------------------------------------------------------------------------------------

    def _write_some(self, budget_bytes: int) -> int:
        """Write queued parts until the socket is full or the budget is used; returns the bytes written."""
        written = 0
        try:
            # Rule 5: a machine may have its last word before anybody has proved who he is.
            while self.channel.is_ready and self.has_queue and written < budget_bytes:
                count = self.channel.send(self._parts, budget_bytes - written)
                written += count
                self._queued_bytes -= count
        except BlockingIOError:
            pass
        return written

    def _want_write(self, wanted: bool) -> None:
        wanted = wanted or self.channel.waits_for_room
        if wanted is self._is_waiting_to_write or self.is_closed:
            return
        self._is_waiting_to_write = wanted
        if wanted:
            self._loop.add_writer(self._number, self.guarded_send)
        else:
            self._loop.remove_writer(self._number)

    def guarded_send(self) -> None:
        """As ``send_queued``; an error closes the connection."""
        if self.channel.waits_for_room:
            self._guarded_read()
        if self.is_closed:
            return
        try:
            self.send_queued()
        except OSError as error:
            self._failed("send", error)
        except Exception as error:  # noqa: BLE001 (ours; a writable socket would call again, for ever)
            self.close_for_fault(error)

    def close_for_fault(self, error: Exception) -> None:
        """An error of our own, or of a listener: it costs this link and is seen."""
        _log.error("ha_link_fault", error=f"{type(error).__name__}: {error}", exc_info=error)
        self.close(f"a fault of our own: {type(error).__name__}", CloseCause.FAULT)

    def send_queued(self) -> None:
        """Write queued parts, one turn's worth; raises ``OSError``."""
        self._write_some(TURN_BYTES_MAX)
        self._want_write(self.has_queue and self.channel.is_ready)

    def _queue(self, *parts: memoryview | FileRegion) -> None:
        for part in parts:
            self._parts.append(part)
            self._queued_bytes += part.length if isinstance(part, FileRegion) else len(part)

    # --- actions -----------------------------------------------------------------------------------------------------

    def execute(self, actions: Sequence[ActionT]) -> None:
        """Do these behind those that are being done: an event may call back and cause more."""
        self._actions.extend(actions)
        # An ack may end a reign, and that may end this very link: done at once, the frame that says why would overtake
        # the frames of the actions before it.
        if self._is_executing:
            return
        self._is_executing = True
        try:
            while self._actions and not self.is_closed:
                action = self._actions.popleft()
                if isinstance(action, Send):
                    self._queue(memoryview(action.data))
                    if self._queued_bytes > SEND_QUEUE_BYTES_MAX:
                        reason = f"{self._queued_bytes} bytes are queued, the limit is {SEND_QUEUE_BYTES_MAX}"
                        self.close(reason, CloseCause.DOES_NOT_READ)
                elif isinstance(action, SendTransfer):
                    self._queue(memoryview(action.header), action.region)
                elif isinstance(action, CloseLink):
                    self._send_last_frame()
                    self.close(action.detail, self._cause_of(action), action.code)
                else:
                    self._tell(action)
        except Exception as error:  # noqa: BLE001 (a listener's; the caller may be a reign that moves, or another link)
            self.close_for_fault(error)
        finally:
            self._is_executing = False
        if self.has_queue and not self._is_waiting_to_write and not self.is_closed:
            self.guarded_send()

    def _cause_of(self, action: CloseLink) -> CloseCause:
        if self._refused_for is not None:
            return self._refused_for
        cause = CloseCause.PEER if action.is_by_peer else _CAUSES.get(action.code, CloseCause.HANDLER)
        if cause is CloseCause.IDLE and not self.has_frame:
            return CloseCause.TLS if self.is_shaking_hands else CloseCause.SAID_NOTHING
        return cause

    def _send_last_frame(self) -> None:
        try:
            self._write_some(SEND_QUEUE_BYTES_MAX)
        except OSError:
            return  # it is being closed anyway; the peer sees the end

    def lost(self, reason: str, error: Exception | None = None) -> None:
        """The peer or the network has ended the link."""
        if not self.is_closed:
            self.close(reason, self.note_gone(error))

    def close(self, reason: str, cause: CloseCause = CloseCause.HANDLER, code: ErrorCode | None = None) -> None:
        """Close the socket and tell it once; ``code``: what the machine told the peer."""
        if self.is_closed:
            return
        self.close_cause = cause
        self._pause_reading()
        self.channel.waits_for_room = False
        self._want_write(False)
        self.is_closed = True
        self._parts.clear()
        self._actions.clear()
        self.channel.close()
        self._tell_closed(code, reason)

    def guarded_tick(self, now_ms: int) -> None:
        """Time passed; one link's fault must not keep the others from hearing of it."""
        try:
            self.tick(now_ms)
        except Exception as error:  # noqa: BLE001 (ours)
            self.close_for_fault(error)

    @abstractmethod
    def tick(self, now_ms: int) -> None:
        """Time passed: heartbeats, confirm offsets, timeouts."""

    @abstractmethod
    def _tell(self, action: ActionT) -> None:
        """Hand an event of the machine to the service."""

    @abstractmethod
    def _tell_closed(self, code: ErrorCode | None, detail: str) -> None:
        """The socket is closed: tell the machine and the service, once."""


class MasterConnection(_Connection[MasterAction]):
    """An accepted connection; speaks once its first bytes turned out to be native."""

    def __init__(
        self,
        channel: Channel,
        link: MasterLink,
        log: ReplicaLog,
        *,
        loop: asyncio.AbstractEventLoop,
        clock_ms: Callable[[], int],
        confirm: Callable[[], LogOffset],
        on_event: Callable[[MasterConnection, MasterAction], None],
        on_closed: Callable[[MasterConnection, ErrorCode | None, str], None],
        grant: Callable[[MasterConnection], Grant],
        on_planned: Callable[[MasterConnection, int], None],
        slaves: ExpectedPeer | None = None,
    ) -> None:
        """
        ``on_event`` gets the actions that are events for the broker; ``on_closed`` is called once.

        ``grant`` says what may be sent now, ``on_planned`` hears of the bytes that will be. ``slaves``: who may be at
        the other end of a channel with TLS.
        """
        super().__init__(channel, loop, clock_ms)
        self._slaves = slaves
        self.link = link
        self._log = log
        self._confirm = confirm
        self._on_event = on_event
        self._on_closed = on_closed
        self._grant = grant
        self._on_planned = on_planned
        self._granted_timer: asyncio.TimerHandle | None = None
        self._sniffed = bytearray()
        self._is_native = False
        self._read_ahead = _ReadAhead(loop, self.guarded_send)

    @property
    def shed_rank(self) -> int | None:
        """A stranger makes room first; a broker of the set that has not said a whole frame yet, behind all of them."""
        if self.has_frame:
            return None
        return 0 if self.certificate is None else 1

    def send_queued(self) -> None:
        """Send queued parts and then more of the log, one turn's worth. Raises ``OSError``."""
        if self.is_closed:
            return
        budget = TURN_BYTES_MAX
        while budget > 0:
            if not self.has_queue and not self._plan():
                break
            written = self._write_some(budget)
            if self.has_queue and written < budget:  # the socket is full
                break
            budget -= written
        if not self.is_closed:
            has_more = self.has_queue or (budget <= 0 and self.link.lag_bytes > 0)
            self._want_write(has_more and self.channel.is_ready)

    def tick(self, now_ms: int) -> None:
        self.execute(self.link.tick(self._confirm(), now_ms, can_send=not self.has_queue))

    def _plan(self) -> bool:
        link = self.link
        grant = self._grant(self)
        if grant.wait_ms:
            if self._granted_timer is None:
                self._granted_timer = self._loop.call_later(grant.wait_ms / 1000, self._wait_is_over)
            return False
        # Bytes of an hour ago are on the disk: sendfile would wait for it on the loop, and every ack with it.
        is_cold = link.lag_bytes > COLD_LAG_BYTES
        if is_cold and not self._read_ahead.covers(self._log, link.position):
            return False
        before = link.position
        actions = link.plan_transfer(self._confirm(), self._clock_ms(), length_max=grant.bytes_max)
        if not actions:
            return False
        self._on_planned(self, link.position - before)
        for action in actions:
            if isinstance(action, SendTransfer):
                self._queue(memoryview(action.header), action.region)
            else:
                self.execute([action])
        return self.has_queue

    def _wait_is_over(self) -> None:
        self._granted_timer = None
        if not self.is_closed and not self.has_queue:
            self.guarded_send()

    def _read(self) -> None:
        try:
            data = self.channel.receive(CONTROL_READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self.lost("the slave closed the connection")
            return
        self._last_read, self._has_read = self._loop.time(), True
        held_before = self.unfinished_bytes
        self._take(data)
        held = len(self._sniffed) + self.link.unfinished_bytes
        self.note_read(held, took_frame=held < held_before + len(data))
        if not self.is_closed:
            self.note_unfinished(held)

    def _take(self, data: bytes) -> None:
        if not self._is_native:
            self._sniffed += data
            if len(self._sniffed) < SNIFF_BYTES or not self._is_our_protocol():
                return
            data, self._is_native = bytes(self._sniffed), True
            self._sniffed.clear()
        actions = self.link.bytes_received(data, self._confirm(), self._clock_ms())
        # Acks of one batch: the last one says it all.
        last_ack = next((action for action in reversed(actions) if isinstance(action, SlaveAcked)), None)
        was_idle = not self.has_queue
        self.execute([action for action in actions if not isinstance(action, SlaveAcked) or action is last_ack])
        if was_idle and last_ack is not None and not self._is_waiting_to_write:
            self.guarded_send()  # the first ack says where to begin

    def _is_our_protocol(self) -> bool:
        try:
            protocol = sniff(bytes(self._sniffed[:SNIFF_BYTES]))
        except FrameCorrupt as error:
            self.close(str(error), CloseCause.FRAME_LENGTH, ErrorCode.CODEC_UNSUPPORTED)
            return False
        if protocol is not Protocol.NATIVE:
            reason = f"the slave speaks RocketMQ's {protocol.value} protocol, this broker serves native links only"
            self.close(reason, CloseCause.FRAME_LENGTH, ErrorCode.CODEC_UNSUPPORTED)
            return False
        return True

    def _is_admitted(self) -> bool:
        channel, slaves = self.channel, self._slaves
        if channel.is_ready:
            return True
        assert isinstance(channel, SecuredChannel), "a plain link is ready at once"
        assert slaves is not None, "who wrapped it has credentials"
        is_done = channel.shake_hands()
        self._has_read = self.is_shaking_hands = True
        if not is_done:
            return False
        self.is_shaking_hands = False
        try:
            self.certificate = slaves.judge(channel.peer_certificate())
        except PeerRefused as error:
            self._refused_for = cause_of(error)
            self.execute(self.link.end(ErrorCode.CERTIFICATE_REFUSED, str(error)))
            return False
        self.link.proved(self.certificate.name.name)
        return True

    def _tell(self, action: MasterAction) -> None:
        self._on_event(self, action)

    def _tell_closed(self, code: ErrorCode | None, detail: str) -> None:
        self.link.connection_lost()
        self._read_ahead.stop()
        if self._granted_timer is not None:
            self._granted_timer.cancel()
        self._on_closed(self, code, detail)


class SlaveConnection(_Connection[SlaveAction]):
    def __init__(
        self,
        channel: Channel,
        link: SlaveLink,
        *,
        loop: asyncio.AbstractEventLoop,
        clock_ms: Callable[[], int],
        on_event: Callable[[SlaveAction], None],
        on_closed: Callable[[ErrorCode | None, str], None],
    ) -> None:
        """
        ``channel`` is ready, and its peer was judged.

        ``on_event`` gets the actions that are events for the broker; ``on_closed`` is called once.
        """
        super().__init__(channel, loop, clock_ms)
        self.certificate = channel.certificate
        self.link = link
        self._on_event = on_event
        self._on_closed = on_closed

    def answer(self, actions: Sequence[SlaveAction]) -> None:
        """The broker answered a request: do what follows and read on."""
        self.execute(actions)
        if self.link.body_wanted or self.link.header_wanted:
            self.start_reading()

    def tick(self, now_ms: int) -> None:
        self.execute(self.link.tick(now_ms))

    def _read(self) -> None:
        budget = TURN_BYTES_MAX
        while budget > 0 and not self.is_closed:
            taken = self._read_body(budget) if self.link.body_wanted else self._read_header()
            if taken == 0:
                break
            budget -= taken
        if not self.is_closed:
            self.execute(self.link.batch_ended(self._clock_ms()))

    def _read_header(self) -> int:
        wanted = self.link.header_wanted
        # The broker cuts its log, or records an epoch, for this link: no byte of the stream may reach the log before.
        if wanted == 0:
            self._pause_reading()
            return 0
        try:
            data = self.channel.receive(wanted)
        except BlockingIOError:
            return 0
        if not data:
            self.lost("the master closed the connection")
            return 0
        self.execute(self.link.bytes_received(data, self._clock_ms()))
        return len(data)

    def _read_body(self, budget_bytes: int) -> int:
        # The next segment is being made: its bytes would wait for the disk, on the loop. ``answer`` reads on.
        if not self.link.has_room:
            self._pause_reading()
            return 0
        try:
            view = self.link.body_view(budget_bytes)
        except OSError as error:
            self.execute(self.link.fail(ErrorCode.LOG_FAILED, "room in the log", str(error)))
            return 0
        try:
            taken = self.channel.receive_into(view)
        except BlockingIOError:
            return 0
        finally:
            view.release()
        if taken == 0:
            self.lost("the master closed the connection inside a body")
            return 0
        self.execute(self.link.body_received(taken, self._clock_ms()))
        return taken

    def _tell(self, action: SlaveAction) -> None:
        self._on_event(action)

    def _tell_closed(self, code: ErrorCode | None, detail: str) -> None:
        self.link.connection_lost()
        self._on_closed(code, detail)


class _ReadAhead:
    """Brings the bytes of a cold link into the page cache, one window ahead of what is sent."""

    def __init__(self, loop: asyncio.AbstractEventLoop, resume: Callable[[], None]) -> None:
        self._loop = loop
        self._resume = resume
        self._executor: ThreadPoolExecutor | None = None
        self._warm_from = 0
        self._warm_until = 0
        self._reading_until: int | None = None
        self._is_awaited = False

    def covers(self, log: ReplicaLog, offset: LogOffset) -> bool:
        """Whether ``offset`` may be sent now; if not, ``resume`` is called as soon as it may."""
        is_warm = self._warm_from <= offset < self._warm_until
        if not is_warm and self._reading_until is None:
            self._warm_from = self._warm_until = offset
        if self._reading_until is None and self._warm_until - offset < COLD_WINDOW_BYTES:
            self._read_on(log, LogOffset(self._warm_until))
        self._is_awaited = not is_warm
        return is_warm

    def stop(self) -> None:
        """Forget it; a running read ends by itself."""
        self._is_awaited = False
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None

    def _read_on(self, log: ReplicaLog, start: LogOffset) -> None:
        region = log.region(start, COLD_WINDOW_BYTES)
        if region is None:
            self._warm_until = start
            return
        if self._executor is None:
            self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ha-cold")
        self._reading_until = start + region.length
        done = self._executor.submit(_touch, region)
        done.add_done_callback(self._wake)

    def _wake(self, done: Future[None]) -> None:
        """On the reading thread. A loop that is closed meanwhile needs no bytes any more."""
        if not done.cancelled() and not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._finished)

    def _finished(self) -> None:
        if self._reading_until is None:
            return
        self._warm_until, self._reading_until = self._reading_until, None
        if self._is_awaited:
            self._is_awaited = False
            self._resume()


def _touch(region: FileRegion) -> None:
    """Read a region and forget it. If the file is gone by now, the loop finds out when it plans."""
    scratch = bytearray(min(region.length, _COLD_PIECE_BYTES))
    position, end = region.position, region.position + region.length
    while position < end:
        try:
            count = os.preadv(region.fd, [scratch], position)
        except OSError:
            return
        if count == 0:
            return
        position += count
