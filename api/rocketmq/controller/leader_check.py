"""
Whether the leader that this controller knows still leads: it is asked itself.

Here: one question per moment over one link, shared by all who wait. Not here: who leads (``controller.replication``),
what is answered to brokers (``handlers``).

Rule 1: a leader that does not answer, or does not name itself, is nobody: brokers that are sent to a dead leader come
back after 10 s only.
Rule 2: an answer holds for ``FRESH_MS``; within it nobody asks again.
"""

from __future__ import annotations

import asyncio

import msgspec

from rollcall_ha.controller.contract.codes import RequestCode
from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.contract.session import LeaderHint
from rollcall_ha.controller.runtime.service import ControllerService
from rollcall_ha.controller.runtime.session_state import NS_PER_MS
from rollcall_ha.node.config import ConfigError, split_address
from rollcall_ha.node.remoting.asking import AskingOnly
from rollcall_ha.node.remoting.connection import LinkLimits, RemotingConnection, RemotingError, connect

FRESH_MS = 100
ASK_MS_MAX = 500
"""Far below the 3 s that a broker waits for its 1005."""
FRAME_BYTES_MAX = 64 * 1024

_decode_hint = msgspec.json.Decoder(LeaderHint).decode


class LeaderCheck:
    """Asks. Runs on the loop."""

    def __init__(self, service: ControllerService) -> None:
        """Connects when first asked."""
        self._service = service
        self._link: RemotingConnection | None = None
        self._address = ""
        self._asking: asyncio.Task[ControllerName | None] | None = None
        self._asked_ns: int | None = None
        self._answer: ControllerName | None = None

    async def confirmed(self) -> ControllerName | None:
        """The leader, if it says so itself within ``ASK_MS_MAX``."""
        now_ns = self._service.now_ns()
        if self._asked_ns is not None and now_ns - self._asked_ns < FRESH_MS * NS_PER_MS:
            return self._answer
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask())
        try:
            return await asyncio.shield(self._asking)
        finally:
            if self._asking is not None and self._asking.done():
                self._asking = None

    async def stop(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        if self._link is not None:
            self._link.close("this controller stops")

    async def _ask(self) -> ControllerName | None:
        hint = self._service.leader_hint()
        answer: ControllerName | None = None
        if hint.leader is not None and hint.leader_broker_address is not None:
            try:
                async with asyncio.timeout(ASK_MS_MAX / 1000):
                    told = await self._ask_at(hint.leader_broker_address)
                answer = hint.leader if told.leader == hint.leader else None
            except (OSError, TimeoutError, RemotingError, ConfigError, msgspec.MsgspecError):
                answer = None
        self._asked_ns, self._answer = self._service.now_ns(), answer
        return answer

    async def _ask_at(self, address: str) -> LeaderHint:
        if self._link is None or not self._link.is_open or self._address != address:
            if self._link is not None:
                self._link.close("another controller leads")
            host, port = split_address(address)
            limits = LinkLimits(frame_bytes_max=FRAME_BYTES_MAX, idle_ms_max=0)
            self._link = await connect(host, port, AskingOnly(), timeout_ms=ASK_MS_MAX, limits=limits)
            self._address = address
        answer = await self._link.request(RequestCode.FIND_LEADER, timeout_ms=ASK_MS_MAX)
        return _decode_hint(answer.body)
