"""
Whether the leader that this follower knows still leads: the leader itself is asked.

Here: one question at a time over one link, its answer shared by all requests that wait for it. Not here: which
controller leads (``controller.replication``), what brokers are told (``handlers``).
"""

from __future__ import annotations

import asyncio

import msgspec

from rollcall_ha.controller.contract.codes import RequestCode
from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.contract.session import LeaderHint
from rollcall_ha.controller.contract.timing import NS_PER_MS
from rollcall_ha.controller.runtime.service import ControllerService
from rollcall_ha.node.certified import PeerKind
from rollcall_ha.node.config import ConfigError
from rollcall_ha.node.remoting.asking import dial
from rollcall_ha.node.remoting.connection import RemotingConnection, RemotingError
from rollcall_ha.node.remoting.secured import ExpectedPeer
from rollcall_ha.node.tls import Credentials

FRESH_MS = 100
ASK_MS_MAX = 500
"""Far below the 3 s that a broker waits for its 1005."""

_decode_hint = msgspec.json.Decoder(LeaderHint).decode


class LeaderCheck:
    """Asks. Runs on the loop."""

    def __init__(self, service: ControllerService, credentials: Credentials | None) -> None:
        """Connects when first asked; ``credentials`` None: on a plain link, to whoever listens there."""
        self._service = service
        self._credentials = credentials
        self._link: RemotingConnection | None = None
        self._address = ""
        self._asking: asyncio.Task[ControllerName | None] | None = None
        self._asked_ns: int | None = None
        self._answer: ControllerName | None = None

    async def confirmed(self) -> ControllerName | None:
        """The leader, if it says so itself within ``ASK_MS_MAX``."""
        now_ns = self._service.now_ns()
        # Every broker of the fleet asks 1005 on every controller: without this, 500 of them at once are 500 questions
        # to a leader that has just been elected.
        if self._asked_ns is not None and now_ns - self._asked_ns < FRESH_MS * NS_PER_MS:
            return self._answer
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask())
        try:
            # Shielded: a broker that hangs up cancels its own wait, not the question that the others wait for.
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
                    told = await self._ask_at(hint.leader, hint.leader_broker_address)
                # It must name itself: a leader that has stepped down answers too. Java looks again after 10 s only, so
                # a broker that is sent to a dead leader has no controller for so long; without a name it asks on.
                answer = hint.leader if told.leader == hint.leader else None
            except (OSError, TimeoutError, RemotingError, ConfigError, msgspec.MsgspecError):
                answer = None
        self._asked_ns, self._answer = self._service.now_ns(), answer
        return answer

    async def _ask_at(self, leader: ControllerName, address: str) -> LeaderHint:
        if self._link is None or not self._link.is_open or self._address != address:
            # The old link goes: else each change of the leader would leave one open, to the end of this process.
            if self._link is not None:
                self._link.close("another controller leads")
            self._link = await dial(address, timeout_ms=ASK_MS_MAX, expected=self._expected(leader))
            self._address = address
        answer = await self._link.request(RequestCode.FIND_LEADER, timeout_ms=ASK_MS_MAX)
        return _decode_hint(answer.body)

    def _expected(self, leader: ControllerName) -> ExpectedPeer | None:
        if self._credentials is None:
            return None
        return ExpectedPeer(credentials=self._credentials, kinds=frozenset({PeerKind.CONTROLLER}), name=leader)
