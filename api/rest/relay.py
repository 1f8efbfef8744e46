"""
Requests between controllers without a port of their own: over the link that their Raft group proved by TLS.

Here: what travels, the side that asks, and the application's door on the other. Not here: the link
(``controller.replication``), what is asked (``peers``), when a request is passed on (``forwarding``).

Rule 1: one hop. A request that came over the link is never passed on: two controllers that take each other for the
leader would send it to and fro.
Rule 2: an error says what is known: ``NotTaken``: the peer certainly did not take it; ``AnswerLost``: it may have.
Rule 3: the caller travels beside the request, never in its headers, and only the end of such a link takes it.
"""

from __future__ import annotations

import asyncio
from urllib.parse import unquote

import msgspec
from fastapi import Request
from starlette.types import ASGIApp, Message, Scope

from rollcall_ha.api.rest.guard import PRINCIPAL, RELAYED_BY
from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.contract.principals import Principal
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.controller.replication.async_calls import AsyncCalls
from rollcall_ha.controller.replication.ports import CALL_BYTES_MAX, CallStatus
from rollcall_ha.node.telemetry import get_logger


class NotTaken(Exception):
    """The peer certainly did not take the request (rule 2)."""


class AnswerLost(Exception):
    """The peer may have taken the request, and no answer came that can be read (rule 2)."""


class Asked(Frozen):
    """One request."""

    method: str
    target: str
    """Path and query, as they were sent."""
    headers: tuple[tuple[str, str], ...]
    content: bytes = b""
    principal: Principal | None = None
    """Who asks, as the sender has proved it; None: the sender asks for itself."""


class Answered(Frozen):
    """The answer to one."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    content: bytes = b""


encode = msgspec.msgpack.Encoder().encode
_decode_asked = msgspec.msgpack.Decoder(Asked).decode
decode_answered = msgspec.msgpack.Decoder(Answered).decode


async def ask(calls: AsyncCalls, peer: ControllerName, asked: Asked) -> Answered:
    """The answer of ``peer``; sets no bound of its own. Raises ``NotTaken``, ``AnswerLost``."""
    outcome = await calls.call(peer, encode(asked))
    if outcome.status is CallStatus.NOT_SENT:
        raise NotTaken(f"there is no link to {peer}")
    if outcome.status is CallStatus.LOST:
        raise AnswerLost(f"the link to {peer} ended before its answer")
    try:
        return decode_answered(outcome.response)
    except msgspec.MsgspecError as error:
        raise AnswerLost(f"{peer} answered what cannot be read: {error}") from error


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
            scope = _scope_of(asked, caller)
        except (msgspec.MsgspecError, UnicodeError) as error:
            return encode(Answered(status=400, content=str(error).encode()))
        run = _Run(asked.content)
        try:
            await self._app(scope, run.receive, run.send)
        except Exception:
            # The caller has its 500 already. uvicorn, which would print the traceback, is not in between here.
            self._logger.exception("request_failed", caller=caller, path=scope["path"])
        content = b"" if asked.method == "HEAD" else b"".join(run.content)
        # Half an answer would be taken for a whole one, and one above the limit of a call would never leave.
        if not run.is_over.is_set() or len(content) > CALL_BYTES_MAX // 2:
            return encode(Answered(status=500))
        return encode(Answered(status=run.status, headers=run.headers, content=content))


def _scope_of(asked: Asked, caller: ControllerName) -> Scope:
    """The ASGI scope of a request. Raises ``UnicodeError``: its head cannot have come by HTTP."""
    path, _, query = asked.target.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": asked.method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode("ascii"),
        "query_string": query.encode("ascii"),
        "root_path": "",
        "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in asked.headers],
        "client": (caller, 0),
        # Rule 3: the state of a request is ours alone; nothing that its sender wrote gets there.
        "state": {RELAYED_BY: caller, PRINCIPAL: asked.principal},
    }


class _Run:
    """One request in the application: its body goes in at once, its answer is collected."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self.is_over = asyncio.Event()
        self.status = 500
        self.headers: tuple[tuple[str, str], ...] = ()
        self.content: list[bytes] = []

    async def receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        # Whoever asks again waits for the caller to leave, and must not hear so before the answer is whole.
        await self.is_over.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            pairs = message.get("headers", ())
            self.headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in pairs)
        else:
            self.content.append(message.get("body", b""))
            if not message.get("more_body", False):
                self.is_over.set()


def is_relayed(request: Request) -> bool:
    """Whether it came over the link (rule 1); a caller from outside cannot say so."""
    return getattr(request.state, RELAYED_BY, None) is not None
