"""The REST server on a real port with an application of the test's own, and a loop whose clock the test moves on."""

from __future__ import annotations

import asyncio
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from starlette.types import Receive, Scope, Send

from rollcall_ha.api.rest.listening import RestServer
from rollcall_ha.node.remoting.links import CloseCause
from rollcall_ha.node.tls import Credentials

Link = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class RestPort(ABC):
    """``async with port.running(): ...``; links that the test has made are closed at the end, however it ends."""

    def __init__(self, credentials: Credentials | None = None) -> None:
        self.server = RestServer(self.app, credentials)
        self.may_answer = asyncio.Event()
        """What the application waits for; at the end nothing waits any more."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._writers: list[asyncio.StreamWriter] = []
        self._ahead_s = 0.0

    @abstractmethod
    async def app(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    @property
    def closed(self) -> dict[CloseCause, int]:
        return self.server.links.closed_by_cause

    async def link(self, data: bytes = b"", *, context: ssl.SSLContext | None = None) -> Link:
        reader, writer = await asyncio.open_connection(*self._listener.getsockname(), ssl=context)
        self._writers.append(writer)
        writer.write(data)
        return reader, writer

    def pass_ms(self, passed_ms: int) -> None:
        """Move the loop's clock: what is due by then is done at once."""
        self._ahead_s += passed_ms / 1000

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        loop = asyncio.get_running_loop()
        real = loop.time
        loop.time = lambda: real() + self._ahead_s  # type: ignore[method-assign]
        serving = asyncio.create_task(self.server.serve(self._listener))
        try:
            yield self
        finally:
            self.may_answer.set()
            self.server.stop()
            await serving
            for writer in self._writers:
                writer.transport.abort()
            await asyncio.sleep(0)
            assert len(self.server.links) == 0
