"""
Which handler serves which request code on the broker port.

Here: ``CodeTable``, ``Request``, the argument of a handler, and ``Access``, the judge of who asks. Not here: any
handler, and the judge (``api.rocketmq``), frames and links (``node.remoting``), limits (``port``).

Rule 1: a handler either answers in its own turn and returns None, or returns a coroutine, which the port runs as one
task within its limits. Either way every request that is not one-way is answered, after a fault of ours too.
Rule 2: a code may have several handlers, each for frames of its own form (RocketMQ uses 904 twice); the first whose
``only_if`` holds serves it.
Rule 3: a header field that is missing or no number is null, as in RocketMQ; the handler decides what that means.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from rollcall_ha.api.broker_port.headers import Header, header_fields
from rollcall_ha.controller.contract.principals import Principal
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.controller.runtime.session_state import ConnectionId
from rollcall_ha.node.certified import PeerCertificate
from rollcall_ha.node.remoting.codes import SystemCode
from rollcall_ha.node.remoting.connection import RemotingConnection
from rollcall_ha.node.remoting.frame import Frame


class AccessRefused(Exception):
    """This peer may not have what it asks for; the message goes to it, ``reason`` is what is counted."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Access(Protocol):
    """The judgement on who asks by the codes of the table."""

    def judge(self, frame: Frame, *, address: str, certificate: PeerCertificate | None) -> Principal:
        """Who asks; it may have what it asks for. Raises ``AccessRefused``."""


class Request(Frozen):
    """One request with the link that it came on."""

    frame: Frame
    connection: RemotingConnection
    link: ConnectionId
    """Number of the link, drawn by the port and never used again: liveness belongs to it."""
    caller: Principal
    """Who asks; it may have what it asks for."""

    @property
    def fields(self) -> dict[str, str]:
        """Header fields; empty if there are none."""
        return self.frame.ext_fields or {}

    def answer(
        self,
        code: int = SystemCode.SUCCESS,
        *,
        header: Header | None = None,
        body: bytes = b"",
        remark: str | None = None,
    ) -> None:
        """Answer in the request's header form; a one-way is never answered."""
        fields = None if header is None else header_fields(header)
        self.connection.respond(self.frame, code, ext_fields=fields, body=body, remark=remark)


Handler = Callable[[Request], Coroutine[Any, Any, None] | None]
"""Answers at once and returns None, or returns the work that will. An exception is answered by SYSTEM_ERROR."""


def _always(_frame: Frame) -> bool:
    return True


class Served(Frozen):
    """One line of the table."""

    code: int
    name: str
    """As the metric ``rollcall_session_requests`` counts it."""
    handler: Handler
    only_if: Callable[[Frame], bool] = _always


class CodeTable:
    """The codes that one port serves."""

    def __init__(self) -> None:
        """Empty: everything is answered as unknown."""
        self._served: dict[int, tuple[Served, ...]] = {}

    def register(self, *served: Served) -> None:
        """Serve further codes, behind those that are there."""
        for line in served:
            self._served[line.code] = (*self._served.get(line.code, ()), line)

    def find(self, frame: Frame) -> Served | None:
        """The line that serves this frame; None = an unknown code."""
        for line in self._served.get(frame.code, ()):
            if line.only_if(frame):
                return line
        return None
