"""
HTTP between controllers without a port of its own: over the link that their Raft group proved by TLS.

Here: an httpx transport for the side that asks, and the application's door on the other. Not here: the link
(``controller.replication``), what is asked (``peers``), when a request is passed on (``forwarding``).

Rule 1: one hop. A request that came over the link is never passed on: two controllers that take each other for the
leader would send it to and fro.
Rule 2: httpx's own errors say what is known: ``ConnectError``: the peer certainly did not take it; ``ReadError``: it
may have.
Rule 3: in a fleet below ``PEER_CALLS_SINCE_LEVEL`` the request goes to the peer's REST port instead.
Rule 4: the caller travels beside the request, never in its headers, and only the end of such a link takes it.
"""

from __future__ import annotations

from collections.abc import Callable

import httpx
import msgspec
from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from rollcall_ha.api.rest.guard import PRINCIPAL, RELAYED_BY
from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.contract.levels import PEER_CALLS_SINCE_LEVEL
from rollcall_ha.controller.contract.principals import Principal
from rollcall_ha.controller.core.state import FleetState
from rollcall_ha.controller.replication.async_calls import AsyncCalls
from rollcall_ha.controller.replication.ports import CALL_BYTES_MAX, CallStatus
from rollcall_ha.node.telemetry import get_logger

CONTROLLER = "controller"
"""Extension of an httpx request: the name of the controller that it is for."""


CALLER = "caller"
"""The same: the ``Principal`` on whose behalf it is asked; none = the controller asks for itself."""


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    target: str
    """Path and query, as they were sent."""
    headers: tuple[tuple[str, str], ...]
    content: bytes
    principal: Principal | None = None
    """Who asks, as the sender has proved it; None: the sender itself, or its program is from before feature level 3."""


class _Answered(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    headers: tuple[tuple[str, str], ...]
    content: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode_asked = msgspec.msgpack.Decoder(_Asked).decode
_decode_answered = msgspec.msgpack.Decoder(_Answered).decode


class PeerTransport(httpx.AsyncBaseTransport):
    """To the controller that ``extensions["controller"]`` names. Rule 2 says what it raises."""

    def __init__(
        self, calls: AsyncCalls, *, may_call: Callable[[], bool], port: httpx.AsyncBaseTransport | None = None
    ) -> None:
        """``may_call``: whether the fleet's level has calls (rule 3); ``port`` takes the place of TCP in tests."""
        self._calls = calls
        self._may_call = may_call
        self._port = port if port is not None else httpx.AsyncHTTPTransport(trust_env=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if not self._may_call():
            return await self._port.handle_async_request(request)
        asked = _Asked(
            method=request.method,
            target=request.url.raw_path.decode("ascii"),
            headers=tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw),
            content=await request.aread(),
            principal=request.extensions.get(CALLER),
        )
        peer: ControllerName = request.extensions[CONTROLLER]
        outcome = await self._calls.call(peer, _encode(asked))
        if outcome.status is CallStatus.NOT_SENT:
            raise httpx.ConnectError(f"there is no link to {peer}", request=request)
        if outcome.status is CallStatus.LOST:
            raise httpx.ReadError(f"the link to {peer} ended before its answer", request=request)
        try:
            answered = _decode_answered(outcome.response)
        except msgspec.MsgspecError as error:
            raise httpx.RemoteProtocolError(f"{peer} answered what cannot be read: {error}", request=request) from error
        return httpx.Response(answered.status, headers=list(answered.headers), content=answered.content)

    async def aclose(self) -> None:
        await self._port.aclose()


class PeerDoor:
    """The application as the other controllers reach it."""

    def __init__(self, app: ASGIApp) -> None:
        """Nothing is checked again that the caller's edge has checked."""
        self._app = app
        self._logger = get_logger("relay")

    async def answer(self, caller: ControllerName, request: bytes) -> bytes:
        """The answer to a request of ``caller``; never raises (``async_calls.Handler``)."""
        try:
            asked = _decode_asked(request)
        except msgspec.MsgspecError as error:
            return _encode(_Answered(status=400, headers=(), content=str(error).encode()))
        # A client for each: kept between requests, it would also keep cookies, which are none of ours.
        async with httpx.AsyncClient(
            transport=self._transport(caller, asked.principal), base_url="http://controller"
        ) as http:
            answer = await http.request(
                asked.method, asked.target, headers=list(asked.headers), content=asked.content, timeout=None
            )
        if len(answer.content) > CALL_BYTES_MAX // 2:
            return _encode(_Answered(status=500, headers=(), content=b""))
        headers = tuple((name, value) for name, value in answer.headers.multi_items())
        return _encode(_Answered(status=answer.status_code, headers=headers, content=answer.content))

    def _transport(self, caller: ControllerName, principal: Principal | None) -> httpx.ASGITransport:
        async def marked(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                # Rule 4: the state of a request is ours alone; nothing that its sender wrote gets there.
                await self._app({**scope, "state": {RELAYED_BY: caller, PRINCIPAL: principal}}, receive, send)
            except Exception:
                # The caller has its 500 already. uvicorn, which would print the traceback, is not in between here.
                self._logger.exception("request_failed", caller=caller, path=scope["path"])

        return httpx.ASGITransport(app=marked, client=(caller, 0))


def has_peer_calls(state: FleetState) -> bool:
    """Whether the fleet's level has calls between controllers (rule 3)."""
    return state.feature_level >= PEER_CALLS_SINCE_LEVEL


def is_relayed(request: Request) -> bool:
    """Whether it came over the link (rule 1); a caller from outside cannot say so."""
    return getattr(request.state, RELAYED_BY, None) is not None
