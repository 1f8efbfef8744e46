"""
Answers about groups and offsets, now or later.

Here: the value of an answer, the responder that gives it, who may give orders, what is kept of a request that waits for
it. Not here: what is answered (``groups``, ``offsets``, ``topics``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from rollcall_ha.broker.consuming.reading import QueueDamaged
from rollcall_ha.broker.handlers.ports import Responder
from rollcall_ha.broker.protocol.codes import ClientResult
from rollcall_ha.broker.protocol.consumers import NONSENSE
from rollcall_ha.node.certified import PeerKind
from rollcall_ha.node.remoting.connection import RemotingConnection
from rollcall_ha.node.remoting.frame import Frame

OPERATORS: Final = frozenset({PeerKind.OPERATOR, PeerKind.ADMIN, PeerKind.CONTROLLER})
"""A controller has judged the role of whom it asks for (adr/0039)."""


class Reply(msgspec.Struct, frozen=True):
    """One answer; without arguments: it is done."""

    code: int = 0
    remark: str = ""
    body: bytes = b""
    ext_fields: dict[str, str] | None = None
    version: int = 0
    """The frame's: RocketMQ's clients judge by it what a broker can do."""

    def give(self, connection: RemotingConnection, frame: Frame) -> None:
        """Write this answer to ``frame`` on its link; a one-way gets none."""
        remark = self.remark or None
        connection.respond(
            frame, self.code, body=self.body, ext_fields=self.ext_fields, remark=remark, version=self.version
        )


def kept(frame: Frame) -> Frame:
    """What an answer needs of its request: 10,000 that wait with their bodies would be gigabytes."""
    return replace(frame, body=b"", ext_fields=None, remark=None)


def written(reason: str) -> Reply:
    """What a change became: ``reason`` as of ``ports.Appender``."""
    return Reply(ClientResult.SYSTEM_BUSY, reason) if reason else Reply()


def responder(
    find: Callable[[RemotingConnection, Frame], Reply | None], nonsense: ClientResult = ClientResult.SYSTEM_ERROR
) -> Responder:
    """
    Gives what ``find`` finds, None: it will answer later; and the code ``nonsense`` if that is what was asked. ``find``
    may raise ``OSError`` and ``QueueDamaged``.
    """

    def respond(connection: RemotingConnection, frame: Frame) -> None:
        try:
            reply = find(connection, frame)
        except NONSENSE as error:
            reply = Reply(nonsense, f"request {frame.code}: {error}")
        except (OSError, QueueDamaged) as error:
            reply = Reply(ClientResult.SYSTEM_ERROR, f"a queue cannot be read: {error}")
        if reply is not None:
            reply.give(connection, frame)

    return respond


def order_responder(find: Callable[[RemotingConnection, Frame], Reply | None]) -> Responder:
    """As ``responder``, for those who may change what others rely on."""

    def judged(connection: RemotingConnection, frame: Frame) -> Reply | None:
        certificate = connection.certificate
        # Every certificate of the fleet opens this port: whoever has a producer's could delete all topics.
        if certificate is not None and certificate.name.kind not in OPERATORS:
            remark = f"code {frame.code} by {certificate.name}; a certificate of kind operator or admin is needed"
            return Reply(ClientResult.NO_PERMISSION, remark)
        return find(connection, frame)

    return responder(judged)


def later(connection: RemotingConnection, frame: Frame, make: Callable[[str], Reply]) -> Callable[[str], None]:
    """Answers a request, when it is called, with what ``make`` makes of its outcome: as of ``ports.Appender``."""
    request = kept(frame)
    return lambda reason: make(reason).give(connection, request)


def order_all(
    connection: RemotingConnection, frame: Frame, busy: str, notes: Sequence[Callable[[Callable[[str], None]], str]]
) -> Reply | None:
    """
    Notes all parts of an order, unless ``busy`` says why not, and answers when all have their outcome: with the first
    reason of all. A note takes who is to hear of its part, or returns why nothing will be heard.
    """
    if busy or not notes:
        return _done(busy)
    give = later(connection, frame, _done)
    reasons: list[str] = []

    def hear(reason: str) -> None:
        reasons.append(reason)
        if len(reasons) == len(notes):
            give(next(filter(None, reasons), ""))

    for note in notes:
        if refusal := note(hear):
            hear(refusal)
    return None


def _done(reason: str) -> Reply:
    return Reply(ClientResult.SYSTEM_ERROR, reason) if reason else Reply()
