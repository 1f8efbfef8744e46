"""
Tiny messages to one set, one at a time.

Here: the link to the master, what an answer is. Not here: when one is sent (``server``), what it means (``gaps``).

Rule 1: a probe's message has no producer id and no sequence: it takes no place in the table of duplicates (R18).
Rule 2: only PUT_OK is an acknowledgement, as for a producer.
Rule 3: a link that answered nothing for the whole time of a send is left, and the next send dials by the newest route.
A master whose process was cloned keeps its links, and answers nothing on them.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Final

from rollcall_ha.broker.client.routes import CONNECT_TIMEOUT_MS, RouteWatcher
from rollcall_ha.broker.protocol.codes import ClientCode, ClientResult
from rollcall_ha.broker.protocol.topics import DEFAULT_TOPIC
from rollcall_ha.node.remoting.asking import dial
from rollcall_ha.node.remoting.connection import RemotingConnection, RemotingError
from rollcall_ha.node.remoting.secured import ExpectedPeer

TOPIC: Final = "rollcall-probe"
"""A topic of the probe alone; a set makes it with its first message, where ``auto_create_topics`` lets it."""
GROUP: Final = "rollcall-probe"
BODY: Final = b"?"
REMEDY: Final = f"rollcall topics create {TOPIC} makes it; in RocketMQ's sets mqadmin updateTopic -t {TOPIC} does"
"""Where no send makes a topic."""
REASON_CHARACTERS_MAX: Final = 300


class SetSender:
    """Follows the master of one set by ``routes``, which it starts and stops."""

    def __init__(self, routes: RouteWatcher, expected: ExpectedPeer | None, *, timeout_ms: int) -> None:
        """Nothing is dialled yet. ``timeout_ms``: a send that has no answer by then has failed."""
        self._routes, self._expected, self._timeout_ms = routes, expected, timeout_ms
        self._link: RemotingConnection | None = None
        self._dialling: asyncio.Task[RemotingConnection] | None = None
        self._address = ""

    async def start(self) -> None:
        """Begin to look for the master, and give the first answer a moment: else each start would be a gap."""
        self._routes.start()
        with suppress(TimeoutError):
            async with asyncio.timeout(CONNECT_TIMEOUT_MS / 1000):
                await self._routes.moved.wait()

    async def close(self) -> None:
        await self._routes.stop()
        self._leave("the probe ends")

    async def send(self) -> str:
        """Send one message; why it was not acknowledged in time, empty: it was."""
        failure = await self._tried()
        if failure:
            # RocketMQ's name servers tell nobody of a new master. Found with their next turn, it would be 2 s more.
            self._routes.doubt()
        return failure[:REASON_CHARACTERS_MAX]

    async def _tried(self) -> str:
        asked = self._link
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                return await self._send()
        except TimeoutError:
            # Rule 3. A link whose handshake took a part of this send is kept: left for what remained, that of a slow
            # machine would be begun anew by each send, and never be asked.
            if asked is not None and asked is self._link:
                self._leave("it answered nothing in time")
            return f"{self._address or 'no master'}: no acknowledgement within {self._timeout_ms} ms"
        except (OSError, RemotingError, ValueError) as error:
            self._leave("it failed")
            return f"{self._address}: {error or type(error).__name__}"

    async def _send(self) -> str:
        route = self._routes.route
        address = None if route is None else route.master_address
        if address is None:
            return "no master is known"
        if self._link is None or not self._link.is_open or address != self._address:
            await self._connect(address)
        link = self._link
        assert link is not None
        fields = {"a": GROUP, "b": TOPIC, "c": DEFAULT_TOPIC, "d": "1", "e": "0", "f": "0", "h": "0", "i": "", "j": "0"}
        fields |= {"g": str(time.time_ns() // 1_000_000), "k": "false", "m": "false"}
        answer = await link.request(
            ClientCode.SEND_MESSAGE_V2, body=BODY, ext_fields=fields, timeout_ms=self._timeout_ms
        )
        if answer.code == ClientResult.PUT_OK:
            return ""
        # RocketMQ's brokers have the address of a page in a second line.
        told = f"{address}: {(answer.remark or f'code {answer.code}').partition(chr(10))[0]}"
        return f"{told}; {REMEDY}" if answer.code == ClientResult.TOPIC_NOT_EXIST else told

    async def _connect(self, address: str) -> None:
        if self._dialling is None or address != self._address or _has_failed(self._dialling):
            self._leave("the master is another one")
            self._address = address
            dialled = dial(address, timeout_ms=CONNECT_TIMEOUT_MS, expected=self._expected)
            self._dialling = asyncio.create_task(dialled)
        # Given up with each send and begun anew, a handshake that is slower than a send may be would never end.
        self._link = await asyncio.shield(self._dialling)
        self._dialling = None

    def _leave(self, reason: str) -> None:
        if self._link is not None:
            self._link.close(reason)
        if self._dialling is not None and not self._dialling.cancel() and not _has_failed(self._dialling):
            self._dialling.result().close(reason)
        self._link = self._dialling = None


def _has_failed(dialling: asyncio.Task[RemotingConnection]) -> bool:
    return dialling.done() and dialling.exception() is not None
