"""Reading the record on and on: whatever a controller lacks, changes or exchanges, no event is passed over in silence."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from rollcall_ha.client.client import Client
from rollcall_ha.client.errors import Unreachable
from rollcall_ha.controller.contract.events import EventRecord
from rollcall_ha.controller.contract.ids import FleetIncarnation
from rollcall_ha.controller.contract.values import EventRef
from rollcall_ha.hooks.following import (
    TAKEN_BACK_ROUNDS,
    Cursor,
    EventsGone,
    Follower,
    RecordExchanged,
    Worth,
    judge,
    place_of,
)
from tests.support.core_builders import gone_and_back, rechained
from tests.support.event_pages import Journal


class FakeControllers(Client):
    """Answers of several journals; None: this one is away. The first one leads."""

    def __init__(self, *journals: Journal | None, limit: int = 3) -> None:
        self.journals = {f"c{number}:1": journal for number, journal in enumerate(journals)}
        self.leader = "c0:1"
        self.limit = limit
        self.cut_off = ""
        self.asked: list[str] = []

    def text_from(self, address: str, path: str, params: dict[str, str], *, wait_ms: int = 0) -> bytes:
        del path, wait_ms
        self.asked.append(address)
        journal = self.journals[address]
        if journal is None:
            raise Unreachable("connection refused")
        term, index, ordinal = map(int, params["from"].split("."))
        page = journal.page(EventRef(term=term, index=index, ordinal=ordinal), self.limit)
        age_ms = 60_000 if address == self.cut_off else 0
        freshness = msgspec.structs.replace(page.freshness, is_authoritative=address == self.leader, age_ms=age_ms)
        return msgspec.json.encode(msgspec.structs.replace(page, freshness=freshness))


def follower(fake: FakeControllers) -> Follower:
    return Follower(fake, list(fake.journals), draw=lambda _: 0)


def behind(record: EventRecord) -> Cursor:
    return place_of(msgspec.json.encode(record))


def read_all(reading: Follower, cursor: Cursor) -> tuple[list[EventRecord], Cursor]:
    """Until there is nothing new."""
    found: list[EventRecord] = []
    for _ in range(1_000):
        judged = reading.read(cursor, wait_ms=0)
        if judged is None:
            continue
        if judged.worth is Worth.NOTHING_NEW:
            return found, cursor
        found += judged.records
        cursor = judged.cursor
    raise AssertionError("it never ends")


def test_every_event_is_read_once_in_order_and_not_of_the_leader_if_others_are_there() -> None:
    records = gone_and_back()
    fake = FakeControllers(Journal(records), Journal(records), Journal(records))
    found, cursor = read_all(follower(fake), behind(records[0]))
    assert found == records[1:]
    assert cursor == behind(records[-1])
    assert fake.asked[0] == fake.leader
    assert set(fake.asked[1:]) == {"c1:1"}


def test_a_controller_that_is_away_or_behind_or_has_a_hole_is_passed_over_for_another() -> None:
    records = gone_and_back()
    with_hole = Journal(records[6:], gap="a snapshot was installed")
    fake = FakeControllers(None, Journal(records[:4]), with_hole, Journal(records))
    fake.cut_off = "c1:1"
    found, _ = read_all(follower(fake), behind(records[0]))
    assert found == records[1:]


def test_a_changed_event_is_not_read_and_another_controllers_is() -> None:
    records = gone_and_back()
    changed = [*records]
    changed[5] = msgspec.structs.replace(records[5], stamped_at_ms=1)
    fake = FakeControllers(Journal(changed), Journal(records), Journal(records))
    fake.leader = ""
    found, _ = read_all(follower(fake), behind(records[0]))
    assert found == records[1:]


def test_a_missing_event_in_the_middle_of_a_page_is_not_passed_over() -> None:
    records = gone_and_back()
    page = Journal([*records[:3], *records[4:]]).page(None, 100)
    judged = judge(msgspec.json.encode(msgspec.structs.replace(page, events=page.events[1:])), behind(records[0]))
    assert (judged.worth, judged.records) == (Worth.FOLLOWS, tuple(records[1:3]))
    assert judged.cursor == behind(records[2])


def test_another_fleets_record_is_refused_by_its_majority_with_its_name() -> None:
    records = gone_and_back()
    other = FleetIncarnation("a" * 32)
    exchanged = rechained([msgspec.structs.replace(record, fleet_incarnation=other) for record in records], "")
    cursor = behind(records[3])
    reading = follower(FakeControllers(Journal(exchanged), Journal(records[:4]), None))
    assert reading.read(cursor, wait_ms=0) is not None
    reading = follower(FakeControllers(Journal(exchanged), None, Journal(exchanged)))
    with pytest.raises(RecordExchanged, match=f"fleet {other} in place of") as caught:
        reading.read(cursor, wait_ms=0)
    assert caught.value.found == other


def test_another_past_of_the_same_fleet_is_refused() -> None:
    """Controllers were restored, by hand, to a copy of their disks of yesterday, and went on from there."""
    records = gone_and_back()
    other = [*records[:4], *rechained(records[5:], records[3].chain)]
    reading = follower(FakeControllers(Journal(other), Journal(other), Journal(other)))
    with pytest.raises(RecordExchanged, match="does not continue"):
        reading.read(behind(records[4]), wait_ms=0)


def test_a_record_that_was_taken_back_is_refused_when_its_leader_stays_behind() -> None:
    records = gone_and_back()
    fake = FakeControllers(Journal(records[:4]), Journal(records[:4]), Journal(records[:4]))
    reading = follower(fake)
    for _ in range(TAKEN_BACK_ROUNDS - 1):
        assert reading.read(behind(records[8]), wait_ms=0) is None
    with pytest.raises(RecordExchanged, match="was taken back"):
        reading.read(behind(records[8]), wait_ms=0)


def test_a_hole_of_all_controllers_is_a_gap_and_one_that_is_down_is_waited_for() -> None:
    records = gone_and_back()
    holes = [Journal(records[number:], gap="removed by retention") for number in (6, 8, 7)]
    reading = follower(FakeControllers(holes[0], None, holes[2]))
    assert reading.read(behind(records[2]), wait_ms=0) is None
    reading = follower(FakeControllers(*holes))
    with pytest.raises(EventsGone) as caught:
        reading.read(behind(records[2]), wait_ms=0)
    assert caught.value.judged.first == behind(records[6])


def test_an_event_of_a_newer_controller_is_passed_by_and_the_chain_goes_on_through_it() -> None:
    records = gone_and_back()
    cursor = behind(records[0])
    line = msgspec.json.decode(msgspec.json.encode(records[1]))
    line["event"] = {"kind": "of-next-year", "value": 7}
    blank = msgspec.json.encode({**line, "chain": ""})
    line["chain"] = hashlib.sha256(cursor.chain.encode() + blank).hexdigest()
    following = rechained(records[2:4], line["chain"])
    page = msgspec.json.decode(msgspec.json.encode(Journal(following).page(None, 100)))
    page["events"].insert(0, line)
    judged = judge(msgspec.json.encode(page), cursor)
    assert judged.worth is Worth.FOLLOWS
    assert judged.records == tuple(following)
