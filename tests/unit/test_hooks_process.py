"""The whole hooks' process but for its network: where it begins, what it does when the record is another one."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from rollcall_ha.controller.contract.consuming import GroupLine, GroupPage, SetRead
from rollcall_ha.controller.contract.events import EventRecord
from rollcall_ha.controller.contract.ids import FleetIncarnation
from rollcall_ha.controller.contract.values import EventRef
from rollcall_ha.controller.contract.views import SetPage
from rollcall_ha.hooks import following, server
from rollcall_ha.hooks.courier import Courier
from rollcall_ha.hooks.desk import DELIVERED, Desk, Outcome
from rollcall_ha.hooks.server import HooksProcess, WrongFleet, now_ms
from rollcall_ha.hooks.settings import HooksFile, load
from rollcall_ha.hooks.store import Store
from rollcall_ha.probe import journal as felt
from rollcall_ha.probe.lines import GapLine
from tests.support.core_builders import SET_A, Fleet, rechained
from tests.support.core_fleets import failed_over
from tests.support.event_pages import Journal
from tests.support.hook_files import webhook, write_hooks
from tests.support.runtime_controller import until
from tests.unit.test_hooks_following import FakeControllers

OTHER = FleetIncarnation("a" * 32)


class Fake(FakeControllers):
    """With the two questions of a first start; it knows no sets. It holds its answers, for the reader to let others run."""

    def text_from(self, address: str, path: str, params: dict[str, str], *, wait_ms: int = 0) -> bytes:
        threading.Event().wait(0.002)
        return super().text_from(address, path, params, wait_ms=wait_ms)

    def events_text(self, **_: object) -> bytes:
        journal = self.journals["c0:1"]
        assert journal is not None
        page = journal.page(None, 1)
        return msgspec.json.encode(msgspec.structs.replace(page, events=tuple(journal.records[-1:])))

    def sets(self, *, consistency: str = "linearizable", limit_ms: int | None = None) -> SetPage:
        del consistency, limit_ms
        journal = self.journals["c0:1"]
        assert journal is not None
        return SetPage(freshness=journal.page(None, 1).freshness, sets=(), sets_total=0, next_after=None)


class Receiver:
    """Takes everything, or nothing."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.bodies: list[dict[str, object]] = []
        self.takes = True

    async def deliver(self, identity: str, kind: str, body: bytes) -> Outcome:
        del kind
        if not self.takes:
            return Outcome(is_delivered=False, reason="HTTP 500")
        self.ids.append(identity)
        self.bodies.append(msgspec.json.decode(body))
        return DELIVERED

    async def close(self) -> None:
        return


def settings(folder: Path, more: str = "", kinds: str = '"elections", "serving"', head: str = "") -> HooksFile:
    section = webhook("pager", "https://pager.example/", kinds=kinds)
    return load(write_hooks(folder, section, more, fleet='controllers = ["c0:1", "c1:1", "c2:1"]', head=head))


def life(
    folder: Path,
    fake: FakeControllers,
    receiver: Receiver,
    wanted: Callable[[HooksProcess], bool],
    *,
    accepts_fleet: str = "",
    more: str = "",
    kinds: str = '"elections", "serving"',
    head: str = "",
) -> HooksProcess:
    """One start of the process, to its end by SIGTERM."""

    async def main() -> HooksProcess:
        stop = asyncio.Event()
        made = settings(folder, more, kinds, head)
        with closing(Store.open(folder)) as store, ThreadPoolExecutor(max_workers=1) as thread:
            desk = Desk(store, made.hooks, made.limits, draw=random.random, now_ms=now_ms())
            courier = Courier(desk, store, {"pager": receiver}, thread=thread, now_ms=now_ms)
            process = HooksProcess(made, fake, store, courier, accepts_fleet)
            running = asyncio.create_task(process.run(stop))
            await until(lambda: wanted(process) or running.done())
            stop.set()
            await running
        return process

    return asyncio.run(main())


def journals(records: list[EventRecord]) -> tuple[Journal, Journal, Journal]:
    """Three controllers with one record."""
    one = Journal(records)
    return one, one, one


def reads(process: HooksProcess) -> bool:
    return process.reading.cursor is not None


def test_a_first_start_begins_at_the_end_and_the_next_one_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    records = failed_over().records
    receiver, fake = Receiver(), Fake(*journals(records[:6]))
    life(tmp_path, fake, receiver, reads)
    assert receiver.ids == []
    fake = Fake(*journals(records))
    life(tmp_path, fake, receiver, lambda _: len(receiver.ids) == 2)
    assert [one["type"] for one in receiver.bodies] == ["master-elected", "master-elected"]
    life(tmp_path, fake, receiver, reads)
    assert len(receiver.ids) == 2


def test_a_record_that_was_exchanged_is_told_once_and_not_read_until_a_person_accepts_it(tmp_path: Path) -> None:
    records = failed_over().records
    receiver = Receiver()
    life(tmp_path, Fake(*journals(records[:6])), receiver, reads)
    exchanged = rechained(
        [msgspec.structs.replace(record, fleet_incarnation=OTHER) for record in Fleet().serving().records], ""
    )
    fake = Fake(*journals([*exchanged[:3], *exchanged[3:]]))
    for _ in range(2):
        process = life(tmp_path, fake, receiver, lambda found: found.reading.is_refused and bool(receiver.ids))
        assert process.reading.is_refused
    (gap,) = receiver.bodies
    assert gap["type"] == "record-gap"
    assert gap["data"] == {
        "reason": f"fleet {OTHER} in place of {'f' * 32}",
        "afterIndex": records[5].index,
        "upToIndex": None,
        "previousFleet": "f" * 32,
        "isRefused": True,
    }

    with pytest.raises(WrongFleet, match=f"are of fleet {OTHER}"):
        life(tmp_path, fake, receiver, reads, accepts_fleet="b" * 32)
    for accepts in (OTHER, ""):
        process = life(tmp_path, fake, receiver, reads, accepts_fleet=accepts)
        assert not process.reading.is_refused
        assert process.reading.cursor is not None
        assert process.reading.cursor.fleet == OTHER
    assert len(receiver.ids) == 1


def test_a_hole_that_all_controllers_have_is_told_and_reading_goes_on_behind_it(tmp_path: Path) -> None:
    records = failed_over().records
    receiver = Receiver()
    life(tmp_path, Fake(*journals(records[:4])), receiver, reads)
    behind = Journal(records[8:], gap="removed by retention")
    life(tmp_path, Fake(behind, behind, behind), receiver, lambda _: len(receiver.ids) >= 2)
    assert [one["type"] for one in receiver.bodies][:1] == ["record-gap"]
    assert receiver.bodies[0]["data"] == {
        "reason": "removed by retention",
        "afterIndex": records[3].index,
        "upToIndex": records[8].index - 1,
        "previousFleet": "f" * 32,
        "isRefused": False,
    }
    assert "master-elected" in {one["type"] for one in receiver.bodies}


def test_a_group_that_lags_is_told_once_also_over_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LAG_INTERVAL_S", 0.01)
    monkeypatch.setattr(server, "PAUSE_MS", 10)
    receiver, fake = Receiver(), Fake(*journals(failed_over().records))
    asked = 0

    def consuming(*_: object) -> GroupPage:
        nonlocal asked
        asked += 1
        line = GroupLine(group="g", set_key=SET_A, members=0, topics=1, lag=lag, stuck_queues=1)
        return GroupPage(read=(SetRead(set_key=SET_A),), groups=(line,))

    def types() -> list[object]:
        return [body["type"] for body in receiver.bodies]

    monkeypatch.setattr(fake, "consuming", consuming, raising=False)
    lag = 100_001
    life(tmp_path, fake, receiver, lambda _: types() == ["group-lags"], kinds='"lag"')
    asked = 0
    life(tmp_path, fake, receiver, lambda _: asked > 2, kinds='"lag"')
    assert types() == ["group-lags"]
    lag = 0
    life(tmp_path, fake, receiver, lambda _: len(types()) > 1, kinds='"lag"')
    assert types() == ["group-lags", "group-caught-up"]


def test_a_gap_that_a_client_felt_is_told_once_also_over_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of before the first start are not told, nor those below the limit without the probe's own stalls."""
    monkeypatch.setattr(server, "PROBE_INTERVAL_MS", 5)
    receiver, fake, folder = Receiver(), Fake(*journals(failed_over().records)), tmp_path / "probe"
    folder.mkdir()
    journal = felt.Journal(folder)

    def live(wanted: Callable[[HooksProcess], bool]) -> None:
        life(tmp_path, fake, receiver, wanted, kinds='"felt"', head='probe = "probe"\nprobe_gap_ms = 500\n')

    journal.append(gap(1, 9_000), now_ms=1)
    live(lambda process: process.store.probed() == felt.end_of(folder))
    for number, (felt_ms, stalled_ms) in enumerate([(499, 0), (700, 201), (500, 0), (9_000, 8_000)], start=2):
        journal.append(gap(number, felt_ms, stalled_ms), now_ms=number)
    live(lambda _: len(receiver.ids) == 2)
    journal.close()
    live(lambda process: process.store.probed() == felt.end_of(folder))
    assert [(body["type"], body["stampedAtMs"], body["setKey"]) for body in receiver.bodies] == [
        ("gap-felt", 504, {"cluster": "c", "name": "broker-a"}),
        ("gap-felt", 9_005, {"cluster": "c", "name": "broker-a"}),
    ]
    assert receiver.bodies[0]["data"] == {
        "fromMs": 4, "feltMs": 500, "stalledMs": 0, "sendsFailed": 3, "isOver": True, "reason": "gone", "limitMs": 500
    }  # fmt: skip


def gap(from_ms: int, felt_ms: int, stalled_ms: int = 0) -> GapLine:
    return GapLine(
        cluster="c",
        set_name="broker-a",
        from_ms=from_ms,
        felt_ms=felt_ms,
        since_ack_ms=None,
        sends_failed=3,
        threshold_ms=300,
        stalled_ms=stalled_ms,
        is_over=True,
        reason="gone",
    )


def test_what_does_not_fit_stays_unread_until_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "PAGE_EVENTS", 1)
    # With a page for each event, and a tenth of a second between pages, the first ones were given up before it is full.
    monkeypatch.setattr(server, "GATHER_MS", 1)
    fleet = Fleet().serving()
    begun = len(fleet.records)
    for _ in range(20):
        fleet.elect(to=2 if fleet.set.master == 1 else 1)
        fleet.enter(0)
    receiver = Receiver()
    receiver.takes = False
    more = "[limits]\nwaiting_max = 10\nlane_waiting_max = 1000\nfirst_pause_ms = 10\npause_ms_max = 100\ntries_max = 10000"
    life(tmp_path, Fake(*journals(fleet.records[:begun]), limit=1), receiver, reads, more=more)
    fake = Fake(*journals(fleet.records), limit=1)
    process = life(tmp_path, fake, receiver, lambda found: found.courier.desk.is_full, more=more)
    assert process.reading.cursor is not None
    assert process.reading.cursor.index < fleet.index - 4
    receiver.takes = True
    life(tmp_path, fake, receiver, lambda _: len(receiver.ids) == 20, more=more)
    places = [EventRef(term=0, index=int(one.split(".")[1]), ordinal=int(one.split(".")[2])) for one in receiver.ids]
    assert [(one.index, one.ordinal) for one in places] == sorted({(one.index, one.ordinal) for one in places})
