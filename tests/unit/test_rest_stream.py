"""The stream of events: one frame for all listeners, slow and many listeners, tokens that end; the fleet at a glance."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec
import pytest

from rollcall_ha.api.rest import streaming
from rollcall_ha.api.rest.streaming import EventStream, Place, frame, token_has_ended
from rollcall_ha.controller.contract.events import EventRecord
from rollcall_ha.controller.contract.ids import SetKey
from rollcall_ha.controller.contract.principals import Principal, ProvedBy, Role
from rollcall_ha.controller.contract.values import EventRef
from rollcall_ha.controller.contract.views import Overview
from rollcall_ha.controller.core.state import EMPTY_FLEET, IssuedToken
from rollcall_ha.controller.runtime import event_journal, overview
from rollcall_ha.controller.runtime.event_journal import EventTail
from tests.support.runtime_controller import (
    Controller,
    Group,
    broker_id_body,
    listen,
    make_set,
    play_led,
    played_led,
    recorded,
    register_body,
    running_group,
    until,
)

ANYBODY = Principal(name="admin", role=Role.ADMIN, proved_by=ProvedBy.NOTHING)


async def _hear(stream: AsyncGenerator[bytes, None], count: int) -> bytes:
    """Chunks until they hold so many events."""
    heard = b""
    async with asyncio.timeout(30):
        while heard.count(b"\nid: ") < count:
            heard += await anext(stream)
    return heard


def _events(heard: bytes) -> list[tuple[int, int]]:
    lines = [line.removeprefix(b"data: ") for line in heard.split(b"\n") if line.startswith(b"data: ")]
    return [(one.index, one.ordinal) for one in (msgspec.json.decode(line, type=EventRecord) for line in lines)]


async def _begin(controller: Controller) -> tuple[EventStream, Place]:
    await recorded(controller)
    last = controller.journal.last
    assert last is not None
    return EventStream(controller.service, controller.queries), (last.index, last.ordinal + 1)


def test_an_event_is_made_a_frame_once_for_all_listeners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoded for each, 20 listeners cost the leader more than what they listen to."""
    made: list[EventRef] = []

    def counting(ref: EventRef, line: bytes) -> bytes:
        made.append(ref)
        return frame(ref, line)

    monkeypatch.setattr(streaming, "frame", counting)

    async def scenario(leader: Controller) -> None:
        stream, (index, ordinal) = await _begin(leader)
        mark = EventRef(term=0, index=index, ordinal=ordinal)
        listeners = [stream._frames(mark, ANYBODY) for _ in range(20)]
        hearing = [asyncio.create_task(_hear(one, 4)) for one in listeners]
        await until(lambda: stream._listeners == 20)
        await make_set(leader)
        heard = await asyncio.gather(*hearing)
        await recorded(leader)
        expected = [(one.index, one.ordinal) for one in leader.journal.read(mark, limit=500).records]
        assert all(_events(one)[:4] == expected[:4] for one in heard)
        assert len(made) == len(set(made))
        for one in listeners:
            await one.aclose()
        await until(lambda: stream._work is not None and stream._work.done())

    play_led(tmp_path, scenario)


def test_a_listener_that_comes_as_the_last_one_goes_leaves_the_loop_to_others(tmp_path: Path) -> None:
    """Each wait for "nobody listens" ended at once then: the loop that elects masters never came to rest."""

    async def scenario(leader: Controller) -> None:
        stream, place = await _begin(leader)
        mark = EventRef(term=0, index=place[0], ordinal=place[1])
        stream._enter()
        await asyncio.sleep(0)  # its follower waits now
        stream._leave()
        second = stream._frames(mark, ANYBODY)
        asked = asyncio.ensure_future(anext(second))
        await asyncio.sleep(0)
        looks = 0
        after = leader.journal.tail.after

        def counted(place: Place, *, limit: int) -> object:
            nonlocal looks
            looks += 1
            return after(place, limit=limit)

        leader.journal.tail.after = counted  # type: ignore[method-assign,assignment]
        for _ in range(100):
            await asyncio.sleep(0)
        assert looks < 10
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await second.aclose()

    play_led(tmp_path, scenario)


def test_a_listener_that_reads_slowly_loses_nothing_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind all chunks that are kept it reads the record itself, up to where the next chunk begins."""
    monkeypatch.setattr(streaming, "PACE_MS", 0)
    monkeypatch.setattr(streaming, "ROUTINE_MS", 0)

    async def scenario(leader: Controller) -> None:
        stream, (index, ordinal) = await _begin(leader)
        stream._chunks = type(stream._chunks)(maxlen=1)
        mark = EventRef(term=0, index=index, ordinal=ordinal)
        slow, fast = stream._frames(mark, ANYBODY), stream._frames(mark, ANYBODY)
        following = asyncio.create_task(_hear(fast, 12))
        first = asyncio.create_task(_hear(slow, 1))
        await until(lambda: stream._listeners == 2)
        await make_set(leader)
        heard = await first
        for name in ("b", "c"):
            await make_set(leader, name)
        await recorded(leader)
        expected = [(one.index, one.ordinal) for one in leader.journal.read(mark, limit=500).records]
        heard += await _hear(slow, len(expected) - heard.count(b"\nid: "))
        assert _events(heard) == expected
        assert _events(await following) == expected[: len(_events(following.result()))]
        for one in (slow, fast):
            await one.aclose()

    play_led(tmp_path, scenario)


def test_an_election_is_told_at_once_and_routine_events_are_told_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each chunk costs a write per listener: 20 consoles took a quarter of the leader's time for events."""
    monkeypatch.setattr(streaming, "ROUTINE_MS", 60_000)

    async def scenario(leader: Controller) -> None:
        stream, (index, ordinal) = await _begin(leader)
        listener = stream._frames(EventRef(term=0, index=index, ordinal=ordinal), ANYBODY)
        hearing = asyncio.create_task(_hear(listener, 1))
        await until(lambda: stream._listeners == 1)
        assert (await leader.http.post("/v1/broker-ids", json=broker_id_body(1, "a"))).status_code == 200
        # Told before more is asked for: where the disk is slow, elections would come in the same sync, and chunk.
        heard = await hearing
        for name in ("a", "b"):
            await make_set(leader, name)
        async with asyncio.timeout(30):
            while heard.count(b'"kind":"master-elected"') < 2:
                heard += await anext(listener)
        first, *others = stream._chunks
        assert not streaming.URGENT.search(first.frames)
        assert others
        assert all(streaming.URGENT.search(chunk.frames) for chunk in others)
        await listener.aclose()

    play_led(tmp_path, scenario)


def test_more_listeners_than_there_may_be_are_told_to_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "LISTENERS_MAX", 0)

    async def scenario(leader: Controller) -> None:
        answer = await leader.http.get("/v1/events/stream")
        assert (answer.status_code, answer.json()["code"], answer.headers["retry-after"]) == (503, "OVERLOADED", "1")
        # Those that asked in one turn of the loop, before any was counted: it ends at once, and is asked again.
        stream, _ = await _begin(leader)
        assert [chunk async for chunk in stream._frames(None, ANYBODY)] == []

    play_led(tmp_path, scenario)


def test_a_stream_does_not_outlive_its_token() -> None:
    token = IssuedToken(
        token_id="t", digest="d", role=Role.VIEWER, name="v", set_key=None, expires_at_ms=1_000, issued_at_ms=0,
        issued_by="admin",
    )  # fmt: skip
    fleet = msgspec.structs.replace(EMPTY_FLEET, tokens={"t": token})
    revoked = msgspec.structs.replace(EMPTY_FLEET, tokens={"t": msgspec.structs.replace(token, revoked_at_ms=3)})
    caller = Principal(name="v", role=Role.VIEWER, proved_by=ProvedBy.TOKEN, serial="t")
    assert not token_has_ended(fleet, caller, 999)
    assert token_has_ended(fleet, caller, 1_000)
    assert token_has_ended(revoked, caller, 4)
    assert token_has_ended(EMPTY_FLEET, caller, 4)
    assert not token_has_ended(EMPTY_FLEET, ANYBODY, 4)


def test_a_stream_ends_at_the_heartbeat_that_finds_its_token_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "HEARTBEAT_MS", 1)

    async def scenario(leader: Controller) -> None:
        stream, (index, ordinal) = await _begin(leader)
        gone = Principal(name="v", role=Role.VIEWER, proved_by=ProvedBy.TOKEN, serial="never-issued")
        async with asyncio.timeout(30):
            mark = EventRef(term=0, index=index, ordinal=ordinal)
            assert [chunk async for chunk in stream._frames(mark, gone)] == []

    play_led(tmp_path, scenario)


def test_the_tail_of_the_record_in_memory_is_bounded_by_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no longer there is said, never left out: the reader asks the files."""
    monkeypatch.setattr(event_journal, "TAIL_BYTES_MAX", 30)
    tail = EventTail((5, 0))
    for index in range(5, 10):
        tail.add(EventRef(term=1, index=index, ordinal=0), b"0123456789")
    assert tail.after((6, 9), limit=500) is not None
    assert [ref.index for ref, _ in tail.after((7, 0), limit=500) or ()] == [7, 8, 9]
    assert [ref.index for ref, _ in tail.after((7, 0), limit=2) or ()] == [7, 8]
    assert tail.after((6, 0), limit=500) is None
    tail.begin_again((20, 0))
    assert tail.after((9, 1), limit=500) is None
    assert tail.after((20, 0), limit=500) == []


@played_led()
async def test_the_overview_has_the_worst_sets_first_by_pages(leader: Controller) -> None:
    """No answer is larger than a page, and the pages together are every set once."""
    for name in ("alpha", "beta", "gamma", "delta"):
        await make_set(leader, name)
    # Of two that are expected one is there: it waits for the other one.
    for path, body in (("broker-ids", broker_id_body(1, "zeta")), ("replicas", register_body(1, "zeta", 2))):
        assert (await leader.http.post(f"/v1/{path}", json=body)).status_code == 200

    async def ask(query: str) -> Overview:
        answer = await leader.http.get(f"/v1/overview?{query}")
        assert answer.status_code == 200, answer.text
        return msgspec.json.decode(answer.content, type=Overview)

    worst = await ask("limit=2")
    assert worst.sets[0].set_key.name == "zeta"
    assert worst.sets[0].condition == "waiting-for-replicas"
    names, page = [one.set_key.name for one in worst.sets], worst
    while page.next_after is not None:
        page = await ask(f"limit=2&after={page.next_after}")
        names += [one.set_key.name for one in page.sets]
    assert sorted(names) == sorted({"alpha", "beta", "gamma", "delta", "zeta"})
    found = await ask("order=name&name=ETA")
    assert [one.set_key.name for one in found.sets] == ["beta", "zeta"]
    assert (found.sets_matching, found.sets_total) == (2, 5)
    assert found.problems == (await ask("problem=any")).problems
    assert [one.set_key.name for one in (await ask("problem=WAITING_FOR_REPLICAS")).sets] == ["zeta"]
    assert {one.hosts for one in worst.sets} == {()}, (
        "asked for by few: a page of the fleet would be half as long again"
    )
    (share,) = (await ask("hosts=true&name=alpha")).sets[0].hosts
    assert (share.has_master, share.heirs, share.goes_on) == (True, 0, False), "all of its replicas are on one host"
    assert (await leader.http.get("/v1/overview?order=best")).status_code == 422


def test_twenty_that_ask_the_same_are_answered_by_one_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at each set anew, 20 consoles kept the leader of 1,000 sets busy with nothing else."""
    monkeypatch.setattr(overview, "SHARED_MS", 60_000)
    monkeypatch.setattr(overview, "SOFT_MS_MAX", 60_000)

    async def scenario(leader: Controller) -> None:
        await make_set(leader)
        looked: list[SetKey] = []
        status_of = leader.queries._lines._status_of

        def counting(key: SetKey) -> object:
            looked.append(key)
            return status_of(key)

        monkeypatch.setattr(leader.queries._lines, "_status_of", counting)
        path = "/v1/overview?consistency=local"
        answers = await asyncio.gather(*(leader.http.get(path) for _ in range(20)))
        assert len({answer.content for answer in answers}) == 1
        assert len(looked) == 1
        # A change of the set is seen by whoever reads with the newest state.
        await make_set(leader, "broker-b")
        now = msgspec.json.decode((await leader.http.get("/v1/overview")).content, type=Overview)
        assert now.sets_total == 2

    play_led(tmp_path, scenario)


@played_led()
async def test_the_first_frames_come_without_waiting_for_more(leader: Controller) -> None:
    """A listener without a mark has the whole record, from the files and from memory, each event once."""
    await make_set(leader)
    await recorded(leader)
    total = len(leader.journal.read(None, limit=500).records)
    began = time.monotonic()
    heard = b"".join(await listen(leader.app, {}, total))
    assert time.monotonic() - began < 10
    assert len(_events(heard)) == len(set(_events(heard))) == total


@pytest.mark.slow
def test_followers_answer_listeners_from_their_own_record(tmp_path: Path) -> None:
    """Followers answer from their own record: nothing of a stream passes through the leader."""

    async def scenario(group: Group) -> None:
        leader = await group.elect("c1")
        await make_set(leader)
        follower = group["c2"]
        await recorded(leader)
        await until(lambda: follower.service.published.index == leader.service.published.index)
        await recorded(follower)
        total = len(leader.journal.read(None, limit=500).records)
        follower.log.answerer = leader.log.answerer = None
        assert await listen(follower.app, {}, total) == await listen(leader.app, {}, total)

    async def main() -> None:
        async with running_group(tmp_path) as group:
            await scenario(group)

    asyncio.run(main())
