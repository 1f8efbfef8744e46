"""
Answers about groups and offsets, now or later.

Here: the value of an answer, the responder that gives it, what is kept of a request that waits for it. Not here: what
is answered (``groups``, ``offsets``).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from rollcall_ha.broker.handlers.ports import Responder
from rollcall_ha.broker.protocol.codes import ClientResult
from rollcall_ha.broker.protocol.consumers import NONSENSE
from rollcall_ha.node.remoting.connection import RemotingConnection
from rollcall_ha.node.remoting.frame import Frame


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
    """Gives what ``find`` finds, None: it will answer later; and the code ``nonsense`` if that is what was asked."""

    def respond(connection: RemotingConnection, frame: Frame) -> None:
        try:
            reply = find(connection, frame)
        except NONSENSE as error:
            reply = Reply(nonsense, f"request {frame.code}: {error}")
        if reply is not None:
            reply.give(connection, frame)

    return respond
