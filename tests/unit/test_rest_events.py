"""The record of events by REST on whole controllers: pages, waits, and a stream that resumes."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import msgspec
import pytest

from rollcall_ha.api.rest import streaming
from rollcall_ha.controller.contract.events import EventRecord, is_asked_by
from rollcall_ha.controller.contract.values import EventRef
from rollcall_ha.controller.contract.views import EventPage
from rollcall_ha.controller.runtime.event_journal import Page
from tests.support.runtime_controller import Group, broker_id_body, listen, make_set, played, recorded, until


@played()
async def test_the_record_of_one_caller_was_read_whole_by_its_client(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages hold the orders of that caller only, and go on where a bounded search has stopped."""
    monkeypatch.setattr("rollcall_ha.controller.runtime.queries.SEARCH_PAGES_MAX", 1)
    monkeypatch.setattr("rollcall_ha.controller.runtime.queries.PAGE_EVENTS_MAX", 2)
    leader = await group.elect("c1")
    for number, name in enumerate(("alice", "bob", "bob", "bob", "alice", "bob")):
        told = {"X-Requested-By": f"admin:{name}"}
        await leader.http.post("/v1/broker-ids", json=broker_id_body(number + 1), headers=told)
    await recorded(leader)

    async def walked(query: str) -> list[tuple[EventRecord, ...]]:
        pages: list[tuple[EventRecord, ...]] = []
        mark = "0.0.0"
        while True:
            answer = await leader.http.get(f"/v1/events?limit=2&from={mark}{query}")
            assert answer.status_code == 200, answer.text
            page = msgspec.json.decode(answer.content, type=EventPage)
            if page.next_from is None:
                return pages
            pages.append(page.events)
            mark = f"{page.next_from.term}.{page.next_from.index}.{page.next_from.ordinal}"

    whole = [record for page in await walked("") for record in page]
    counts = {}
    for name in ("alice", "admin:bob", "mallory"):
        pages = await walked(f"&by={name}")
        found = [record for page in pages for record in page]
        assert found == [record for record in whole if is_asked_by(record, name)]
        assert len(pages) >= len(whole) // 2, "a search of two events at a time"
        counts[name] = len(found)
    assert counts == {"alice": 2, "admin:bob": 4, "mallory": 0}
    assert (await leader.http.get("/v1/events?by=alice&newest=true")).status_code == 422


@played()
async def test_events_are_held_until_something_happens(group: Group) -> None:
    """Long-poll: the answer comes with the event, long before the wait is over."""
    leader = await group.elect("c1")
    await recorded(leader)
    page = msgspec.json.decode((await leader.http.get("/v1/events")).content, type=EventPage)
    newest = (await leader.http.get("/v1/events?newest=true&limit=2")).content
    assert msgspec.json.decode(newest, type=EventPage).events == page.events[-2:]
    assert (await leader.http.get("/v1/events?newest=true&from=1.1.0")).status_code == 422
    assert page.next_from is not None
    mark = f"{page.next_from.term}.{page.next_from.index}.{page.next_from.ordinal}"
    empty = await leader.http.get(f"/v1/events?from={mark}")
    assert msgspec.json.decode(empty.content, type=EventPage).events == ()
    began = time.monotonic()
    waiting = asyncio.create_task(leader.http.get(f"/v1/events?from={mark}&waitMs=30000"))
    await asyncio.sleep(0)
    await leader.http.post("/v1/broker-ids", json=broker_id_body(1))
    following = msgspec.json.decode((await waiting).content, type=EventPage)
    assert len(following.events) == 1
    assert time.monotonic() - began < 20


@played()
async def test_an_event_between_the_reading_and_the_wait_wakes_the_wait(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Synced while the empty page is still on its way: the answer comes at once, not when the wait is over."""
    has_read, may_answer = threading.Event(), threading.Event()
    leader = await group.elect("c1")
    await recorded(leader)
    last, read = leader.journal.last, leader.journal.read
    assert last is not None
    start = EventRef(term=last.term, index=last.index, ordinal=last.ordinal + 1)

    def slow_read(*args: Any, **options: Any) -> Page:
        page = read(*args, **options)
        has_read.set()
        assert may_answer.wait(10)
        return page

    monkeypatch.setattr(leader.journal, "read", slow_read)
    began = time.monotonic()
    waiting = asyncio.create_task(leader.queries.events(start, limit=10, wait_ms=20_000))
    await until(has_read.is_set)
    synced = leader.service.next_events_synced
    await leader.http.post("/v1/broker-ids", json=broker_id_body(1))
    await synced.wait()
    may_answer.set()
    assert len((await waiting).events) == 1
    assert time.monotonic() - began < 10


@played()
async def test_event_stream_resumes_where_it_ended(group: Group) -> None:
    """Server-sent events carry the mark to go on from as their id; a mark that cannot be read is none."""
    leader = await group.elect("c1")
    await make_set(leader)
    await recorded(leader)
    total = len(leader.journal.read(None, limit=500).records)

    chunks = await listen(leader.app, {}, total)
    data, first_id, *end = chunks[0].decode().split("\n")
    assert end == ["", ""]
    assert msgspec.json.decode(data.removeprefix("data: "), type=EventRecord).event
    again = await listen(leader.app, {"Last-Event-ID": first_id.removeprefix("id: ")}, total - 1)
    assert again == chunks[1:]
    assert await listen(leader.app, {"Last-Event-ID": "here"}, 1) == chunks[:1]


@played()
async def test_a_listener_that_hangs_up_behind_its_backlog_is_no_fault(group: Group) -> None:
    """It stops reading with events still to come and closes its link: the stream ends, and nothing is raised."""
    leader = await group.elect("c1")
    await make_set(leader)
    await recorded(leader)
    assert len(await listen(leader.app, {}, 1, stops_reading=True)) == 1


@played()
async def test_event_stream_says_that_nothing_is_new(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comment while nothing happens: without it nobody notices that the listener has gone."""
    monkeypatch.setattr(streaming, "HEARTBEAT_MS", 5)
    leader = await group.elect("c1")
    await recorded(leader)
    total = len(leader.journal.read(None, limit=500).records)

    chunks = await listen(leader.app, {}, total + 1)
    assert chunks[-1] == b": nothing new\n\n"
