"""
The listen port: requests of producers, consumers and probes.

Here: routes, watches and probes, and the reader that takes sends out of the receive buffer where they lie; sends go to
``put``, what consumers ask to ``broker.consuming``. Not here: sockets, limits and counters (``node.remoting``), HA
links (``ha.transport``), the controller's session (``broker.session``).

Rule 1: everything that one readable event brings is one batch, and is handled before the buffer is used again.
Rule 2: every request gets an answer, an unknown code included.
Rule 3: the newest route answers a watch; a watch waits for at most ``WATCH_WAIT_MS_MAX``.
Rule 4: while the log's next segment is being made, and while the master hands over, nothing is read from links that
send: the socket waits, not the loop.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from rollcall_ha.broker.handlers.ports import OwnWord, Responder
from rollcall_ha.broker.handlers.put import PutPath
from rollcall_ha.broker.protocol.codes import ClientCode, ClientResult, SendRefusal
from rollcall_ha.broker.protocol.routes import WATCH_WAIT_MS_MAX, encode_route, encode_topic_route
from rollcall_ha.broker.protocol.send import SendRefusedError, SendRequest, parse_frame, put_refused
from rollcall_ha.controller.contract.codes import RequestCode
from rollcall_ha.node.remoting.codes import SystemCode
from rollcall_ha.node.remoting.connection import RemotingConnection, RemotingServer
from rollcall_ha.node.remoting.frame import Frame
from rollcall_ha.node.remoting.links import LinkLimits
from rollcall_ha.node.remoting.secured import Door

WATCHERS_MAX: Final = 10_000
LIMITS: Final = LinkLimits(first_frame_ms_max=30_000, unfinished_bytes_max=48 * 1024 * 1024)
"""
A broker's whole memory stays under 160 MiB: unfinished frames may hold three of the largest, or twelve of the largest
messages (4 MiB), at any moment.
"""


class ListenLink:
    """One client's link: reads its batches (``BatchReader``) and takes its answers (``AnswerSink``)."""

    def __init__(self, service: ListenService, connection: RemotingConnection) -> None:
        """Made when the connection stands: records carry the address of its peer."""
        host, _, port = connection.peer.rpartition(":")
        self.peer_host = ipaddress.ip_address(host).packed + int(port).to_bytes(4, "big") if host else b"\x00" * 8
        """IP and int32 port, as records carry them."""
        self.write_answers = connection.send_bytes
        self._connection = connection
        self._service = service
        self._sends: list[SendRequest] = []
        self._others: list[Frame] = []

    def take_frame(self, part: memoryview, to_come_bytes: int) -> bool:
        """A send stays where it lies; False: the log has no room for it yet (rule 4)."""
        try:
            found = parse_frame(part)
        except SendRefusedError as error:
            if not error.frame.is_one_way:
                refusal = put_refused(error.frame.opaque, error.frame.form, SendRefusal.ILLEGAL, str(error))
                self.write_answers(refusal)
            return True
        if isinstance(found, SendRequest):
            sends = self._sends
            # Asked once per batch: the room that is ready for all that is to come stays ready within this turn.
            if not sends and not self._service.may_send(self._connection, to_come_bytes):
                found.body.release()
                return False
            sends.append(found)
        elif found.is_response:
            self._connection.take_answer(found)
        else:
            self._others.append(found)
        return True

    def end_batch(self) -> None:
        """Sends first, as one run of appends; then all other requests."""
        if self._sends:
            sends, self._sends = self._sends, []
            self._service.handle_sends(self, sends)
            for send in sends:
                # Without this, a view kept by mistake would show the next client's bytes: now its use is an error.
                send.body.release()
        if self._others:
            others, self._others = self._others, []
            self._service.handle_requests(self._connection, others)


def listen_server(service: ListenService, *, door: Door | None = None) -> RemotingServer:
    """The listen port of ``service``; it does not listen yet."""
    return RemotingServer(service, limits=LIMITS, door=door, make_reader=lambda link: ListenLink(service, link))


class _Watch(msgspec.Struct):
    connection: RemotingConnection
    frame: Frame
    timer: asyncio.TimerHandle


class ListenService:
    """The requests of the listen port and their answers. On the loop thread."""

    def __init__(
        self,
        *,
        put: PutPath,
        word: OwnWord,
        responders: Mapping[int, Responder],
        on_disconnected: Callable[[RemotingConnection], object],
    ) -> None:
        """``responders`` answer what this service does not, by code (``broker.consuming``)."""
        self._put = put
        self._word = word
        self._on_disconnected = on_disconnected
        self._watches: dict[RemotingConnection, dict[int, _Watch]] = {}
        self._watch_count = 0
        self._held: dict[RemotingConnection, int | None] = {}
        """Since when their sends wait for room, by ``PutPath``'s clock; None = for the end of a handover."""
        self._going_on: dict[RemotingConnection, int | None] = {}
        """Held until a moment ago; none of their sends has been taken since."""
        self._responders: dict[int, Responder] = {
            **responders,
            ClientCode.GET_ROUTE_BY_TOPIC: self._answer_route,
            ClientCode.WATCH_ROUTE: self._watch_route,
            RequestCode.PROBE: self._answer_probe,
        }

    # --- FrameHandler ------------------------------------------------------------------------------------------------

    def connected(self, connection: RemotingConnection) -> None:
        """Nothing to do: its ``ListenLink`` was made."""

    def disconnected(self, connection: RemotingConnection, reason: str) -> None:  # noqa: ARG002 (of ``FrameHandler``)
        """Forget it, its watches included."""
        self._held.pop(connection, None)
        self._on_disconnected(connection)
        for watch in self._watches.pop(connection, {}).values():
            watch.timer.cancel()
            self._watch_count -= 1

    def handle_requests(self, connection: RemotingConnection, frames: Sequence[Frame]) -> None:
        """Everything but sends (rule 2)."""
        for frame in frames:
            responder = self._responders.get(frame.code)
            if responder is None:
                remark = f"request type {frame.code} not supported"
                connection.respond(frame, SystemCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
            else:
                responder(connection, frame)

    # --- sends -------------------------------------------------------------------------------------------------------

    def may_send(self, connection: RemotingConnection, length: int) -> bool:
        """Whether sends of ``length`` bytes can be handled now; if not, the connection is held until they can."""
        waited_since_us = self._going_on.pop(connection, None)
        if self._put.is_ready_for(length):
            return True
        # Still no room for the same send: counted from now on, a wait of 2 s in which the disk failed each 400 ms would
        # be five short ones, and no stop of writes.
        self._held[connection] = waited_since_us or self._put.room_wanted_from_us()
        connection.hold()
        return False

    @property
    def room_wanted_since_us(self) -> int | None:
        """Since when the oldest send waits in its socket for the next segment of the log; None = none does."""
        return min((since for since in self._held.values() if since is not None), default=None)

    def room_is_ready(self) -> None:
        """The log can take more, or will say why not, or the reign is over: every held link goes on."""
        held, self._held = self._held, {}
        self._going_on = dict(held)
        for connection in held:
            connection.go_on()
        self._going_on.clear()

    def handle_sends(self, link: ListenLink, sends: list[SendRequest]) -> None:
        self._put.handle(link, sends)

    # --- answers -----------------------------------------------------------------------------------------------------

    def _answer_route(self, connection: RemotingConnection, frame: Frame) -> None:
        topic, topics = (frame.ext_fields or {}).get("topic", ""), self._put.topics
        row = topics.find(topic)
        if row is None:
            refused = topics.absence(topic)
            connection.respond(frame, refused.code, remark=refused.remark)
        else:
            connection.respond(frame, SystemCode.SUCCESS, body=encode_topic_route(self._word.route, row))

    def _answer_probe(self, connection: RemotingConnection, frame: Frame) -> None:
        connection.respond(frame, SystemCode.SUCCESS, body=msgspec.json.encode(self._word.probe))

    def _watch_route(self, connection: RemotingConnection, frame: Frame) -> None:
        """
        Rule 3: answered at once if the route is newer than ``masterEpoch``, else when it moves or after ``waitMs``.

        ``hasMaster=false``: the client knows the epoch, but not its master; a known master is an answer at once too.
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
        route = self._word.route
        is_fuller = route.master_epoch == known and route.master is not None and fields.get("hasMaster") == "false"
        if frame.is_one_way or route.master_epoch > known or is_fuller or wait_ms <= 0 or is_full:
            connection.respond(frame, SystemCode.SUCCESS, body=encode_route(route))
            return
        timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._end_watch, connection, frame.opaque)
        of_link[frame.opaque] = _Watch(connection, frame, timer)
        self._watch_count += 1

    def _end_watch(self, connection: RemotingConnection, opaque: int) -> None:
        watch = self._watches.get(connection, {}).pop(opaque, None)
        if watch is not None:
            self._watch_count -= 1
            connection.respond(watch.frame, SystemCode.SUCCESS, body=encode_route(self._word.route))

    def route_moved(self) -> None:
        """The route has changed: every watch is answered, with one encoding."""
        body = encode_route(self._word.route)
        for connection, watches in self._watches.items():
            for watch in watches.values():
                watch.timer.cancel()
                connection.respond(watch.frame, SystemCode.SUCCESS, body=body)
            self._watch_count -= len(watches)
            watches.clear()
