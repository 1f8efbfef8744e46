"""Reading a live record: every event once, whoever answers; an end that is not the end, and holes, are never taken for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from rollcall_ha.analytics.bronze.live import BEGINNING, LiveRecord, Mark, ReadFailed, split
from rollcall_ha.client.errors import Unreachable
from rollcall_ha.controller.contract.events import EventRecord
from rollcall_ha.controller.contract.values import EventRef, Phase
from tests.support.core_builders import gone_and_back
from tests.support.event_pages import Journal


class FakeClient:
    """One controller that is asked for itself."""

    def __init__(self, journal: Journal | None) -> None:
        self.journal = journal

    def events_text(self, *, start: EventRef | None, limit: int, wait_ms: int) -> bytes:
        if self.journal is None:
            raise Unreachable("connection refused")
        # Small pages, so that a few events take several of them.
        return msgspec.json.encode(self.journal.page(start, min(limit, 7)))

    def close(self) -> None:
        return


def live(*journals: Journal | None) -> LiveRecord:
    clients: list[Any] = [FakeClient(journal) for journal in journals]
    return LiveRecord([str(number) for number in range(len(journals))], client_of=lambda where: clients[int(where)])


def places(lines: Sequence[bytes]) -> list[tuple[int, int]]:
    records = [msgspec.json.decode(line, type=EventRecord) for line in lines]
    return [(record.index, record.ordinal) for record in records]


def test_every_event_once_page_by_page() -> None:
    """All of them, in order, as they were sent."""
    records = gone_and_back()
    with live(Journal(records)) as record:
        found = list(record.read(BEGINNING, record.end().mark))

    assert [each.line for each in found] == [msgspec.json.encode(r) for r in records]
    assert record_fleet(records) == live(Journal(records)).end().fleet


def record_fleet(records: Sequence[EventRecord]) -> str:
    return records[-1].fleet_incarnation


def test_ranges_meet_without_overlap() -> None:
    """Whatever the number of parts: together they are the whole, and an entry is never torn apart."""
    records = gone_and_back()
    journal = Journal(records)
    end = live(journal).end().mark
    for parts in (1, 2, 5, 1_000):
        found = [each for low, high in split(BEGINNING, end, parts) for each in live(journal).read(low, high)]

        assert places([each.line for each in found]) == [(r.index, r.ordinal) for r in records]


def test_who_is_behind_is_not_believed_to_be_the_end() -> None:
    """A follower that lacks the newest events answers with an empty page: another controller has them."""
    records = gone_and_back()
    behind = Journal(records[:5])
    end = live(Journal(records)).end().mark

    assert len(list(live(behind, Journal(records)).read(BEGINNING, end))) == len(records)
    assert live(behind, Journal(records)).end().mark == end
    with pytest.raises(ReadFailed, match="its record ends at"):
        list(live(behind).read(BEGINNING, end))


def test_a_hole_is_read_elsewhere_or_is_an_error() -> None:
    """What one controller cannot give another may have; if none has it, nothing is skipped in silence."""
    records = gone_and_back()
    holed = Journal(records[6:], gap="events up to index 4: a snapshot was installed")
    end = live(Journal(records)).end().mark

    assert len(list(live(holed, Journal(records)).read(BEGINNING, end))) == len(records)
    with pytest.raises(ReadFailed, match="a hole"):
        list(live(holed, holed).read(BEGINNING, end))


def test_a_dead_controller_costs_nothing_while_another_answers() -> None:
    """And if none answers, that is said."""
    records = gone_and_back()

    end = live(None, Journal(records)).end().mark
    assert len(list(live(None, Journal(records)).read(BEGINNING, end))) == len(records)
    assert live(None, Journal(records)).end().mark.index == records[-1].index
    with pytest.raises(ReadFailed, match="no controller answers"):
        live(None, None).end()


def test_an_empty_record_has_an_end_too() -> None:
    """A fleet that was never initialised has nothing to read, and that is no error."""
    record = live(Journal([]))

    assert record.end().mark == BEGINNING
    assert list(record.read(BEGINNING, record.end().mark)) == []


def test_events_of_a_newer_version_are_kept() -> None:
    """A kind that this program does not know passes as it was sent: only its place is looked at."""
    line = msgspec.json.decode(msgspec.json.encode(gone_and_back()[3]))
    line["event"] = {"kind": "moon-landed", "crater": Phase.SERVING.value}
    page = {"events": [line], "last": {"term": 1, "index": line["index"], "ordinal": line["ordinal"]}}

    class Newer(FakeClient):
        def events_text(self, *, start: EventRef | None, limit: int, wait_ms: int) -> bytes:
            return msgspec.json.encode(page)

    client: Any = Newer(None)
    record = LiveRecord(["c1"], client_of=lambda _: client)
    found = list(record.read(Mark(line["index"], line["ordinal"]), Mark(line["index"], line["ordinal"] + 1)))

    assert [msgspec.json.decode(each.line) for each in found] == [line]
