"""
The listen port: sockets of producers, consumers and probes.

Here: connections whose frames are parsed in their receive buffer, limits, and the answers to everything but sends;
sends go to ``put``. Not here: HA links (``ha.transport``), the controller's session (``broker.session``).

Rule 1: everything that one readable event brings is one batch, and is handled before the buffer is used again.
Rule 2: a peer's nonsense, silence or greed closes that link and nothing else, with a reason that is counted.
Rule 3: whoever asks gets an answer, a code that nobody knows included.
Rule 4: the newest route answers a watch; a watch waits for at most ``WATCH_WAIT_MS_MAX``.
Rule 5: while the log's next segment is being made nothing is read from who sends: its socket waits, not the loop.
"""

from __future__ import annotations

import asyncio
import ipaddress
import struct
from collections import Counter
from typing import Final, Protocol, cast

import msgspec

from rollcall_ha.broker.handlers.ports import ProbeSource, RouteSource
from rollcall_ha.broker.handlers.put import PutPath
from rollcall_ha.broker.log.ports import BrokerLog
from rollcall_ha.broker.protocol.codes import ClientCode, ClientResult, SendRefusal
from rollcall_ha.broker.protocol.routes import WATCH_WAIT_MS_MAX, encode_route, encode_topic_route
from rollcall_ha.broker.protocol.send import SendRefusedError, SendRequest, parse_frame, put_refused
from rollcall_ha.controller.contract.codes import RequestCode
from rollcall_ha.node.remoting.codes import FLAG_RESPONSE, SystemCode
from rollcall_ha.node.remoting.connection import LinkLimits
from rollcall_ha.node.remoting.frame import Frame, FrameError, encode_frame
from rollcall_ha.node.telemetry import get_logger

RECEIVE_BUFFER_BYTES: Final = 256 * 1024
"""What one readable event brings at most, unless a single frame is larger."""
WATCHERS_MAX: Final = 10_000
UNCONFIRMED_BYTES_MAX: Final = 4 * 1024 * 1024
"""Behind confirm; who asks for the confirmed end of a queue has so much looked through, on the loop."""
SWEEP_MS: Final = 1_000
_LENGTH = struct.Struct(">i")
_log = get_logger("listen")


class Responder(Protocol):
    """Answers a request that was not a send: ``connection.respond``, now or later."""

    def __call__(self, connection: ListenConnection, frame: Frame) -> None: ...


class ListenConnection(asyncio.BufferedProtocol):
    def __init__(self, service: ListenService, limits: LinkLimits) -> None:
        self.peer = "?"
        self.peer_host = b"\x00" * 8
        """IP and int32 port, as records carry them."""
        self._service = service
        self._limits = limits
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray(RECEIVE_BUFFER_BYTES)
        self._filled = 0
        self._close_reason = ""
        self._is_held = False
        self.last_read_s = 0.0
        self.frame_began_s: float | None = None

    # --- asyncio -----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        name = transport.get_extra_info("peername")
        if name:
            self.peer = f"{name[0]}:{name[1]}"
            self.peer_host = ipaddress.ip_address(name[0]).packed + int(name[1]).to_bytes(4, "big")
        self.last_read_s = asyncio.get_running_loop().time()
        self._service.connected(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (asyncio's signature)
        """Asyncio's callback: where the next bytes go; never empty."""
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        self.last_read_s = asyncio.get_running_loop().time()
        try:
            self._take_frames()
        except FrameError as error:
            self.close(f"protocol error: {error}")
        except Exception as error:  # noqa: BLE001 (ours; it costs the link that met it, and is seen)
            _log.error("listen_link_fault", peer=self.peer, exc_info=error)
            self.close(f"internal fault: {type(error).__name__}: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._service.disconnected(self, self._close_reason or (str(exc) if exc else "closed by the peer"))

    # --- batches -----------------------------------------------------------------------------------------------------

    def _take_frames(self) -> None:
        """Rule 1. Raises ``FrameError``."""
        buffer, filled, at = self._buffer, self._filled, 0
        length_max = self._limits.frame_bytes_max - 4
        needed = 0
        sends: list[SendRequest] = []
        others: list[Frame] = []
        with memoryview(buffer) as view:
            while filled - at >= 4:
                (length,) = _LENGTH.unpack_from(view, at)
                if not 4 <= length <= length_max:
                    raise FrameError(f"frame length {length} is not within 4 and {length_max}")
                if at + 4 + length > filled:
                    needed = 4 + length
                    break
                if not self._take_frame(view[at + 4 : at + 4 + length], sends, others, to_come=filled - at):
                    self._hold()
                    needed = len(buffer)
                    break
                at += 4 + length
            if sends:
                self._service.handle_sends(self, sends)
                for send in sends:
                    send.body.release()
        for frame in others:
            self._service.handle_frame(self, frame)
        self._keep(at, needed)

    def _take_frame(self, part: memoryview, sends: list[SendRequest], others: list[Frame], *, to_come: int) -> bool:
        """False: a send for which the log has no room yet (rule 5); it stays in the buffer."""
        try:
            found = parse_frame(part)
        except SendRefusedError as error:
            if not error.frame.is_one_way:
                refusal = put_refused(error.frame.opaque, error.frame.form, SendRefusal.ILLEGAL, str(error))
                self.write_answers(refusal)
            return True
        if isinstance(found, SendRequest):
            if not sends and not self._service.may_send(self, to_come):
                found.body.release()
                return False
            sends.append(found)
        elif not found.is_response:
            others.append(found)
        return True

    def _hold(self) -> None:
        """Read no more until ``go_on``; the sweep closes a link that is held for longer than a frame may take."""
        self._is_held = True
        if self._transport is not None:
            self._transport.pause_reading()

    def go_on(self) -> None:
        """The log has room, or can say why not: take what is in the buffer, and read on."""
        if self._transport is None or not self._is_held:
            return
        self._is_held = False
        self.buffer_updated(0)
        if not self._is_held and self._transport is not None:
            self._transport.resume_reading()

    def _keep(self, at: int, needed: int) -> None:
        """Move what is not whole yet to the front of a buffer that can hold all of it."""
        rest = self._filled - at
        if (rest and self.frame_began_s is None) or at:
            self.frame_began_s = self.last_read_s if rest else None
        size = max(needed, RECEIVE_BUFFER_BYTES)
        if size != len(self._buffer):
            larger = bytearray(size)
            larger[:rest] = self._buffer[at : self._filled]
            self._buffer = larger
        elif at and rest:
            self._buffer[:rest] = self._buffer[at : self._filled]
        self._filled = rest

    # --- answers -----------------------------------------------------------------------------------------------------

    def write_answers(self, data: bytes) -> None:
        """Hand whole frames to the transport; a closed link drops them."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(data)
        if transport.get_write_buffer_size() > self._limits.out_buffer_bytes_max:
            self.close("the peer does not read")

    def respond(
        self,
        request: Frame,
        code: int,
        *,
        body: bytes = b"",
        ext_fields: dict[str, str] | None = None,
        remark: str | None = None,
    ) -> None:
        """Answer in the request's header form; nothing for a one-way."""
        if request.is_one_way:
            return
        answer = Frame(
            code=code,
            opaque=request.opaque,
            flag=FLAG_RESPONSE,
            body=body,
            ext_fields=ext_fields,
            remark=remark,
            form=request.form,
        )
        self.write_answers(encode_frame(answer))

    def close(self, reason: str) -> None:
        """Close now; the service hears ``reason``."""
        if self._transport is not None and not self._close_reason:
            self._close_reason = reason
            self._transport.abort()

    def overdue(self, now_s: float) -> str | None:
        """Why this link should be closed for its slowness, if it should."""
        limits = self._limits
        if limits.idle_ms_max and now_s - self.last_read_s > limits.idle_ms_max / 1000:
            return f"idle for more than {limits.idle_ms_max} ms"
        if self.frame_began_s is not None and now_s - self.frame_began_s > limits.frame_ms_max / 1000:
            return f"a frame took more than {limits.frame_ms_max} ms"
        return None


class _Watch(msgspec.Struct):
    connection: ListenConnection
    frame: Frame
    timer: asyncio.TimerHandle


class ListenService:
    """What is answered on the listen port. On the loop thread."""

    def __init__(self, *, put: PutPath, log: BrokerLog, routes: RouteSource, probes: ProbeSource) -> None:
        """``add_responder`` adds codes that other parts of the broker answer."""
        self.closed_by_reason: Counter[str] = Counter()
        """First words of the reason -> number of links."""
        self.connections: set[ListenConnection] = set()
        self._put = put
        self._log = log
        self._routes = routes
        self._probes = probes
        self._watches: dict[ListenConnection, dict[int, _Watch]] = {}
        self._watch_count = 0
        self._held: set[ListenConnection] = set()
        self._responders: dict[int, Responder] = {
            ClientCode.GET_MAX_OFFSET: self._answer_offset,
            ClientCode.GET_MIN_OFFSET: self._answer_offset,
            ClientCode.GET_ROUTE_BY_TOPIC: self._answer_route,
            ClientCode.WATCH_ROUTE: self._watch_route,
            RequestCode.PROBE: self._answer_probe,
        }

    def add_responder(self, code: int, responder: Responder) -> None:
        """Answer ``code`` too. Raises ``ValueError`` if it has an answer already."""
        if code in self._responders:
            raise ValueError(f"code {code} has a responder already")
        self._responders[code] = responder

    # --- connections -------------------------------------------------------------------------------------------------

    def connected(self, connection: ListenConnection) -> None:
        self.connections.add(connection)

    def disconnected(self, connection: ListenConnection, reason: str) -> None:
        """Forget it, its watches included."""
        self.connections.discard(connection)
        self._held.discard(connection)
        self.closed_by_reason[" ".join(reason.split(" ", 2)[:2])] += 1
        for watch in self._watches.pop(connection, {}).values():
            watch.timer.cancel()
            self._watch_count -= 1

    def may_send(self, connection: ListenConnection, length: int) -> bool:
        """Whether sends of ``length`` bytes can be handled now; if not, the connection's ``go_on`` is called."""
        is_ready = self._put.is_ready_for(length)
        if not is_ready:
            self._held.add(connection)
        return is_ready

    def room_is_ready(self) -> None:
        """The log can take more, or will say why not: whoever waits goes on."""
        held, self._held = self._held, set()
        for connection in held:
            connection.go_on()

    def handle_sends(self, connection: ListenConnection, sends: list[SendRequest]) -> None:
        self._put.handle(connection, sends)

    def handle_frame(self, connection: ListenConnection, frame: Frame) -> None:
        """Anything else (rule 3)."""
        responder = self._responders.get(frame.code)
        if responder is None:
            remark = f"request type {frame.code} not supported"
            connection.respond(frame, SystemCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
        else:
            responder(connection, frame)

    # --- answers -----------------------------------------------------------------------------------------------------

    def _answer_offset(self, connection: ListenConnection, frame: Frame) -> None:
        fields = frame.ext_fields or {}
        try:
            topic, queue_id = fields["topic"].encode(), int(fields["queueId"])
        except (KeyError, ValueError) as error:
            connection.respond(frame, ClientResult.SYSTEM_ERROR, remark=f"topic and queueId are needed: {error!r}")
            return
        queues = self._log.queues
        if frame.code == ClientCode.GET_MIN_OFFSET:
            offset = queues.min_offset(topic, queue_id)
        elif fields.get("committed") == "false":
            offset = queues.max_offset(topic, queue_id)
        else:
            # As RocketMQ, whose consume queues end at confirm: what lies behind it may yet be cut.
            pending_bytes = self._log.max_offset - self._log.confirm_offset
            if pending_bytes > UNCONFIRMED_BYTES_MAX:
                remark = f"{pending_bytes} bytes are not confirmed, {UNCONFIRMED_BYTES_MAX} are looked through; retry"
                connection.respond(frame, ClientResult.SYSTEM_BUSY, remark=remark)
                return
            offset = self._log.confirmed_queue_end(topic, queue_id)
        connection.respond(frame, SystemCode.SUCCESS, ext_fields={"offset": str(offset)})

    def _answer_route(self, connection: ListenConnection, frame: Frame) -> None:
        connection.respond(frame, SystemCode.SUCCESS, body=encode_topic_route(self._routes.route))

    def _answer_probe(self, connection: ListenConnection, frame: Frame) -> None:
        connection.respond(frame, SystemCode.SUCCESS, body=msgspec.json.encode(self._probes.probe))

    def _watch_route(self, connection: ListenConnection, frame: Frame) -> None:
        """
        Rule 4: at once if the route is newer than ``masterEpoch``, else when it moves or after ``waitMs``.

        ``hasMaster=false``: whoever asks has that epoch without its master, and hears of one at once too.
        """
        fields = frame.ext_fields or {}
        try:
            known, wait_ms = int(fields.get("masterEpoch", "-1")), int(fields.get("waitMs", "0"))
        except ValueError as error:
            connection.respond(frame, ClientResult.SYSTEM_ERROR, remark=f"masterEpoch and waitMs: {error}")
            return
        wait_ms = min(wait_ms, WATCH_WAIT_MS_MAX)
        of_link = self._watches.setdefault(connection, {})
        is_full = self._watch_count >= WATCHERS_MAX or frame.opaque in of_link
        route = self._routes.route
        is_fuller = route.master_epoch == known and route.master is not None and fields.get("hasMaster") == "false"
        if frame.is_one_way or route.master_epoch > known or is_fuller or wait_ms <= 0 or is_full:
            connection.respond(frame, SystemCode.SUCCESS, body=encode_route(route))
            return
        timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._end_watch, connection, frame.opaque)
        of_link[frame.opaque] = _Watch(connection, frame, timer)
        self._watch_count += 1

    def _end_watch(self, connection: ListenConnection, opaque: int) -> None:
        watch = self._watches.get(connection, {}).pop(opaque, None)
        if watch is not None:
            self._watch_count -= 1
            connection.respond(watch.frame, SystemCode.SUCCESS, body=encode_route(self._routes.route))

    def route_moved(self) -> None:
        """The route has changed: everybody who watches hears of it, encoded once."""
        body = encode_route(self._routes.route)
        for connection, watches in self._watches.items():
            for watch in watches.values():
                watch.timer.cancel()
                connection.respond(watch.frame, SystemCode.SUCCESS, body=body)
            self._watch_count -= len(watches)
            watches.clear()


class ListenServer:
    """The socket, and the sweep that closes who is idle or slow."""

    def __init__(self, service: ListenService, *, limits: LinkLimits | None = None) -> None:
        """Does not listen yet."""
        self._service = service
        self._limits = limits or LinkLimits()
        self._server: asyncio.Server | None = None
        self._sweep: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """Where it listens; for tests that asked for port 0."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises ``OSError`` if the address is taken."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, host, port, backlog=1024)
        self._sweep = loop.call_later(SWEEP_MS / 1000, self._close_overdue)

    def _accept(self) -> ListenConnection:
        return ListenConnection(self._service, self._limits)

    async def stop(self, reason: str = "the broker stops") -> None:
        """Stop listening and close every link."""
        if self._sweep is not None:
            self._sweep.cancel()
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._service.connections):
            connection.close(reason)
        # One turn, so that the service hears of every close before we return.
        await asyncio.sleep(0)

    def _close_overdue(self) -> None:
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        excess = len(self._service.connections) - self._limits.connections_max
        for connection in tuple(self._service.connections):
            reason = connection.overdue(now_s)
            if reason is None and excess > 0:
                reason, excess = f"more than {self._limits.connections_max} links", excess - 1
            if reason is not None:
                connection.close(reason)
        self._sweep = loop.call_later(SWEEP_MS / 1000, self._close_overdue)
