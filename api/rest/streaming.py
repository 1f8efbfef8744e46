"""
Server-sent events: the record of this controller, live, for any number of listeners up to a bound.

Here: ``EventStream``, its listeners, frames. Not here: the record itself (``controller.runtime.event_journal``), pages
of it (``routes``). On the loop; files are read by ``Queries`` on a thread.

Rule 1: an event becomes a frame once, for all listeners: ``Chunk``. The chunks of the last seconds are kept, at most
``CHUNKS_MAX``; a listener has nothing of its own but its mark.
Rule 2: a listener that is behind the oldest chunk reads pages of the record until it has caught up. So one that reads
slowly costs the bytes of its socket, and loses nothing.
Rule 3: at most ``LISTENERS_MAX`` at once; the next one is told to come again (503). New chunks are made at most every
``PACE_MS`` if a person waits for an event in them (``URGENT``), and else at most every ``ROUTINE_MS``, however fast
events come: each costs a write per listener.
Rule 4: a listener hears something every ``HEARTBEAT_MS``: only a write finds out that its machine has gone, and proxies
end a link that is silent for a minute. As often its token is judged anew: a stream of a day would outlive it.
Rule 5: each controller answers from its own record, as for pages: a follower's listeners cost the leader nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
from collections import deque
from collections.abc import AsyncGenerator
from typing import Annotated

import msgspec
from fastapi import Query, Request
from fastapi.sse import EventSourceResponse, format_sse_event
from starlette.responses import Response

from rollcall_ha.api.rest.guard import caller_of
from rollcall_ha.controller.contract.principals import Principal, ProvedBy
from rollcall_ha.controller.contract.values import EventRef
from rollcall_ha.controller.core.state import FleetState
from rollcall_ha.controller.replication.proposer import Overloaded
from rollcall_ha.controller.runtime.background import Wakeup
from rollcall_ha.controller.runtime.event_journal import PAGE_EVENTS_MAX
from rollcall_ha.controller.runtime.queries import Queries
from rollcall_ha.controller.runtime.service import ControllerService

LISTENERS_MAX = 100
CHUNKS_MAX = 64
PACE_MS = 100
ROUTINE_MS = 300
URGENT = re.compile(rb'"kind":"(?:master-elected|election-failed|replica-silent|writes-stopped)"')
"""Kinds of events that a console shows within 200 ms of their commit."""
HEARTBEAT_MS = 5_000
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""A proxy must neither keep events for others nor gather them before it passes them on."""

FromMark = Annotated[str | None, Query(alias="from", pattern=r"^\d{1,18}\.\d{1,18}\.\d{1,9}$")]
Place = tuple[int, int]
"""(index, ordinal) of the first event that a listener has not had."""


def mark_of(text: str | None) -> EventRef | None:
    """``term.index.ordinal`` as a place in the record. Raises ``ValueError``."""
    if text is None:
        return None
    term, index, ordinal = (int(part) for part in text.split("."))
    return EventRef(term=term, index=index, ordinal=ordinal)


class Chunk(msgspec.Struct, frozen=True):
    """Frames of all events from ``start`` up to ``end``, the first one that is not in it."""

    start: Place
    end: Place
    frames: bytes


def frame(ref: EventRef, line: bytes) -> bytes:
    """One event. ``id`` is the mark behind it: with its own, a listener that comes again would get it twice."""
    return b"data: %b\nid: %d.%d.%d\n\n" % (line.rstrip(b"\n"), ref.term, ref.index, ref.ordinal + 1)


def token_has_ended(fleet: FleetState, caller: Principal, now_ms: int) -> bool:
    """Whether the token by which ``caller`` came is no longer good; links of certificates end in (``listening``)."""
    if caller.proved_by is not ProvedBy.TOKEN:
        return False
    token = fleet.tokens.get(caller.serial)
    return token is None or token.revoked_at_ms is not None or token.expires_at_ms <= now_ms


class EventStream:
    """The route, and what its listeners share."""

    def __init__(self, service: ControllerService, queries: Queries) -> None:
        """Nothing runs while nobody listens."""
        self._service = service
        self._queries = queries
        self._chunks: deque[Chunk] = deque(maxlen=CHUNKS_MAX)
        self._end: Place = (0, 0)
        self._grown = Wakeup()
        self._listeners = 0
        self._work: asyncio.Task[None] | None = None
        self._is_idle = asyncio.Event()

    async def stream(self, request: Request, start: FromMark = None) -> Response:
        """The same as server-sent events, without end; ``id`` is the mark to go on from."""
        try:
            mark = mark_of(request.headers.get("Last-Event-ID") or start)
        except ValueError:
            # The header is the browser's memory, of another fleet perhaps. Refused, it would come again for ever.
            mark = None
        if self._listeners >= LISTENERS_MAX:
            raise Overloaded(f"{self._listeners} listen to the events of this controller, and {LISTENERS_MAX} may")
        # Not a generator as the route: of FastAPI's two tasks per stream one raises "broken resource" with a traceback
        # whenever a listener hangs up that reads slower than the events come.
        return EventSourceResponse(self._frames(mark, caller_of(request.scope)), headers=_HEADERS)

    async def _frames(self, mark: EventRef | None, caller: Principal) -> AsyncGenerator[bytes, None]:
        place: Place = (0, 0) if mark is None else (mark.index, mark.ordinal)
        loop = asyncio.get_running_loop()
        # Again: those that asked in one turn of the loop were all below the bound.
        if self._listeners >= LISTENERS_MAX:
            return
        self._enter()
        try:
            heard_s = loop.time()
            while True:
                # Taken before the look: a chunk that is made between the look and the wait is not missed.
                grown = self._grown.next
                frames, place = await self._after(place)
                if frames:
                    yield frames
                # By the clock, not when nothing is new: in a busy fleet there would always be something.
                if loop.time() - heard_s >= HEARTBEAT_MS / 1000:
                    heard_s = loop.time()
                    if token_has_ended(self._service.published.state, caller, self._service.ports.wall_ms()):
                        return
                    if not frames:
                        yield format_sse_event(comment="nothing new")
                if not frames:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout_at(heard_s + HEARTBEAT_MS / 1000):
                            await grown.wait()
        finally:
            self._leave()

    async def _after(self, place: Place) -> tuple[bytes, Place]:
        """The frames behind ``place``, and the place behind them; no bytes: the listener has all."""
        if place >= self._end:
            return b"", place
        for chunk in reversed(self._chunks):
            if chunk.start == place:
                return chunk.frames, chunk.end
        # Behind the chunks, or within one by a mark of its own (rule 2). Up to where they end and no further: then
        # the next chunk begins where this listener is.
        return await self._page(place, up_to=self._end)

    async def _page(self, place: Place, *, up_to: Place | None) -> tuple[bytes, Place]:
        start = EventRef(term=0, index=place[0], ordinal=place[1])
        page = await self._queries.events(start, limit=PAGE_EVENTS_MAX, wait_ms=0)
        found = [] if page.gap is None else [_gap_frame(page.gap)]
        for record in page.events:
            if up_to is not None and (record.index, record.ordinal) >= up_to:
                return b"".join(found), up_to
            found.append(frame(record.ref, msgspec.json.encode(record)))
            place = (record.index, record.ordinal + 1)
        # Nothing was left up to there: removed, or never here. Left where it is, the listener would ask for ever.
        if not page.events and up_to is not None:
            place = up_to
        return b"".join(found), place

    # --- what all share ----------------------------------------------------------------------------------------------

    def _enter(self) -> None:
        self._listeners += 1
        # Also while the last follower still runs: it would find itself idle at each wait, and never wait again.
        self._is_idle.clear()
        if self._work is None or self._work.done():
            last = self._service.journal.last
            self._chunks.clear()
            self._end = (last.index, last.ordinal + 1) if last is not None else (0, 0)
            self._work = asyncio.get_running_loop().create_task(self._follow())

    def _leave(self) -> None:
        self._listeners -= 1
        if not self._listeners:
            self._is_idle.set()

    async def _follow(self) -> None:
        """Make chunks while somebody listens."""
        loop, told_s = asyncio.get_running_loop(), -math.inf
        while self._listeners:
            synced = self._service.next_events_synced
            lines = self._service.journal.tail.after(self._end, limit=PAGE_EVENTS_MAX)
            is_early = loop.time() < told_s + ROUTINE_MS / 1000
            if lines and is_early and not any(URGENT.search(line) for _, line in lines):
                # Told now, hundreds of routine events a second would be three times as many writes for each listener.
                await self._pause()
                continue
            if lines is None:
                # Behind a snapshot: only the files know that events are missing.
                frames, end = await self._page(self._end, up_to=None)
                # A gap and nothing behind it yet: told once.
                end = self._service.journal.tail.begins if end == self._end else end
            else:
                frames = b"".join(frame(ref, line) for ref, line in lines)
                end = (lines[-1][0].index, lines[-1][0].ordinal + 1) if lines else self._end
            if frames:
                self._chunks.append(Chunk(self._end, end, frames))
                self._end, told_s = end, loop.time()
                self._grown.wake()
                await self._pause()
            else:
                await _first_of(synced, self._is_idle)

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PACE_MS / 1000):
                await self._is_idle.wait()


async def _first_of(*events: asyncio.Event) -> None:
    tasks = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _gap_frame(gap: str) -> bytes:
    return format_sse_event(event="gap", data_str=msgspec.json.encode(gap).decode())
