"""
Questions to the other controllers, within a short bound.

Here: their statuses, their events where our own journal has a hole, requests that a leader is to answer. Not here: how
they travel (``relay``), deciding anything with the answers.

Rule: a peer that does not answer in time is unreachable, never a reason to wait longer.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlencode

import msgspec

from rollcall_ha.api.rest.relay import Answered, AnswerLost, Asked, NotTaken, ask
from rollcall_ha.controller.contract.events import EventRecord
from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.contract.principals import Principal
from rollcall_ha.controller.contract.values import EventRef
from rollcall_ha.controller.contract.views import ControllerRole, ControllerStatus, EventPage, FleetStatus
from rollcall_ha.controller.replication.async_calls import AsyncCalls
from rollcall_ha.controller.runtime.event_journal import FILL_EVENTS_MAX, PAGE_EVENTS_MAX
from rollcall_ha.controller.runtime.journal_segments import Gap
from rollcall_ha.controller.runtime.settings import ControllerAddresses, ServiceSettings

STATUS_MS_MAX = 400
PAGE_MS_MAX = 2_000
_decode_status = msgspec.json.Decoder(FleetStatus).decode
_decode_page = msgspec.json.Decoder(EventPage).decode


class Peers:
    """The other members of the Raft group."""

    def __init__(self, settings: ServiceSettings, calls: AsyncCalls) -> None:
        """``calls``: over the Raft links; the caller closes them."""
        self._settings = settings
        self._calls = calls

    @property
    def _others(self) -> dict[ControllerName, ControllerAddresses]:
        settings = self._settings
        return {name: where for name, where in settings.controllers.items() if name != settings.name}

    async def send(
        self,
        name: ControllerName,
        method: str,
        target: str,
        *,
        headers: dict[str, str] | None = None,
        content: bytes = b"",
        caller: Principal | None = None,
    ) -> Answered:
        """
        Ask one of them for ``caller``, or for this controller itself; sets no bound of its own.

        Raises ``relay.NotTaken``, ``relay.AnswerLost``.
        """
        # Its edge judges Host as that of every request.
        head = (("host", self._others[name].rest), *(headers or {}).items())
        asked = Asked(method=method, target=target, headers=head, content=content, principal=caller)
        return await ask(self._calls, name, asked)

    async def statuses(self) -> tuple[ControllerStatus, ...]:
        """The word of each other controller about itself, asked all at once: two dead ones cost 400 ms, not 800."""
        return tuple(await asyncio.gather(*(self._status(name, where) for name, where in self._others.items())))

    async def _status(self, name: ControllerName, where: ControllerAddresses) -> ControllerStatus:
        try:
            async with asyncio.timeout(STATUS_MS_MAX / 1000):
                # Local: a linearizable read of a peer without a quorum would wait, and the page that shows the missing
                # quorum would not come.
                answer = await self.send(name, "GET", "/v1/status?consistency=local&limit=1")
            return _decode_status(answer.content).controller
        except (NotTaken, AnswerLost, TimeoutError, msgspec.MsgspecError):
            return ControllerStatus(
                name=name,
                role=ControllerRole.UNREACHABLE,
                has_authority=False,
                leader=None,
                term=0,
                commit_index=0,
                applied_index=0,
                rest_address=where.rest,
                broker_address=where.broker,
                raft_address=where.raft,
                feature_level=0,
                fleet_incarnation=None,
            )

    async def events_of(self, gap: Gap) -> list[EventRecord] | None:
        """The events in ``gap`` from the first peer that has all of them, else None. The journal checks them."""
        for name in self._others:
            try:
                found = await self._events_from(name, gap)
            except (NotTaken, AnswerLost, TimeoutError, msgspec.MsgspecError):
                continue
            if found:
                return found
        return None

    async def _events_from(self, name: ControllerName, gap: Gap) -> list[EventRecord] | None:
        after = gap.after
        start = EventRef(term=after.term, index=after.index, ordinal=after.ordinal + 1) if after is not None else None
        found: list[EventRecord] = []
        while len(found) <= FILL_EVENTS_MAX:
            params = {"limit": str(PAGE_EVENTS_MAX)}
            if start is not None:
                params["from"] = str(start)
            async with asyncio.timeout(PAGE_MS_MAX / 1000):
                answer = await self.send(name, "GET", f"/v1/events?{urlencode(params)}")
            page = _decode_page(answer.content)
            # The peer has a hole there as well: half of the missing events would close ours, and nobody would look
            # again.
            if page.gap is not None:
                return None
            inside = [record for record in page.events if record.index <= gap.to_index]
            found += inside
            if len(inside) < len(page.events) or page.next_from is None:
                return found
            start = page.next_from
        return None
