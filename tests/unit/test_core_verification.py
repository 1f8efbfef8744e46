"""The rules of a record on lines as they were written: a sound one breaks none, each planted fault breaks its own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from rollcall_ha.controller.contract.events import EventRecord, MasterElected
from rollcall_ha.controller.contract.ids import BrokerId, LogOffset
from rollcall_ha.controller.core.verification import ChainedEvent, Rule, begins_inside, election_violations, walk
from rollcall_ha.controller.core.verification import link_of as link_of_line
from tests.support.core_builders import failed_over


def link_of(record: EventRecord, line: bytes | None = None) -> ChainedEvent:
    return link_of_line(
        msgspec.json.encode(record) if line is None else line,
        term=record.term,
        index=record.index,
        ordinal=record.ordinal,
    )


def broken(links: Sequence[ChainedEvent]) -> list[str]:
    found = [violation.rule for violation in walk(None, links[0])]
    for before, link in pairwise(links):
        found += [violation.rule for violation in walk(before, link)]
    return found


def test_a_sound_record_breaks_nothing() -> None:
    """Chain, order, stamps and elections."""
    records = failed_over()

    assert broken([link_of(record) for record in records]) == []
    assert [each for record in records for each in election_violations(msgspec.json.encode(record))] == []
    assert not begins_inside(link_of(records[0]))
    assert begins_inside(link_of(records[1]))


def test_a_changed_event_breaks_the_chain() -> None:
    """One letter of one event, its hash left as it was."""
    records = failed_over()
    line = msgspec.json.encode(records[4]).replace(b"controller:c1", b"controller:c9")

    assert broken([link_of(r, line if r is records[4] else None) for r in records]) == [Rule.CHAIN]


def test_a_missing_event_breaks_the_chain_and_its_entry() -> None:
    """The one after it does not continue, and if it was inside an entry, an ordinal is missing too."""
    records = failed_over()
    inside = next(at for at, r in enumerate(records) if at and r.ordinal == 0 and records[at + 1].ordinal == 1)
    whole = next(at for at, r in enumerate(records) if at and r.ordinal == 0 and records[at + 1].ordinal == 0)

    assert broken([link_of(r) for r in records if r is not records[inside]]) == [Rule.CHAIN, Rule.ORDER]
    assert broken([link_of(r) for r in records if r is not records[whole]]) == [Rule.CHAIN]


def test_an_event_that_was_written_twice_is_seen() -> None:
    """Even if the copy has another place."""
    records = failed_over()
    links = [link_of(record) for record in records]

    assert Rule.CHAIN in broken([*links, replaced(links[-1])])


def replaced(link: ChainedEvent) -> ChainedEvent:
    return replace(link, index=link.index + 1, ordinal=0)


def test_falling_terms_and_stamps_are_named() -> None:
    """Both values are told."""
    records = failed_over()
    before, link = link_of(records[3]), link_of(records[4])
    older = replace(link, term=0)

    assert [violation.rule for violation in walk(before, older)] == [Rule.ORDER]
    assert f"from {before.term} to 0" in walk(before, older)[0].text


def test_a_last_event_without_a_hash_is_not_a_sound_one() -> None:
    """No event after it would tell."""
    records = failed_over()
    line = msgspec.json.encode(records[-1])
    without = line[: line.rfind(b',"chain":')] + b"}"

    assert broken([*(link_of(record) for record in records[:-1]), link_of(records[-1], without)]) == [Rule.CHAIN]


def test_fields_of_a_later_version_are_part_of_the_chain() -> None:
    """A line with a field that this program does not know is hashed as it was written, by who knew it."""
    records = failed_over()
    fleet_line = msgspec.json.encode(records[0])

    assert walk(None, link_of(records[0], fleet_line.replace(b'"version":1', b'"version":1,"moon":1')))


def elections(records: Sequence[EventRecord]) -> tuple[EventRecord, MasterElected]:
    record = [record for record in records if isinstance(record.event, MasterElected)][-1]
    assert isinstance(record.event, MasterElected)
    return record, record.event


def said(record: EventRecord, event: MasterElected) -> str:
    found = election_violations(msgspec.json.encode(replace(record, event=event)))
    assert all(violation.rule == Rule.ELECTIONS for violation in found)
    return "; ".join(violation.text for violation in found)


def test_an_election_that_its_evidence_does_not_give_is_found() -> None:
    """Another winner, other positions, another epoch, a stranger in the set: each is told by its own rule."""
    record, event = elections(failed_over())
    other = BrokerId(5 - event.master)
    richer = tuple(replace(seen, max_offset=LogOffset(seen.max_offset + 1)) for seen in event.evidence.replicas)

    candidates = tuple(
        replace(each, max_offset=LogOffset(9_999)) if each.broker_id == other else each
        for each in event.verdict.candidates
    )
    assert "S68" in said(record, replace(event, verdict=replace(event.verdict, candidates=candidates)))
    assert "the verdict elects" in said(record, replace(event, master=other))
    assert "evidence says" in said(record, replace(event, evidence=replace(event.evidence, replicas=richer)))
    jumped = replace(event.verdict, master_epoch=event.master_epoch + 5)
    assert "C1" in said(record, replace(event, verdict=jumped, master_epoch=jumped.master_epoch))
    stranger = (*event.sync_state_set, BrokerId(9))
    verdict = replace(event.verdict, sync_state_set=stranger)
    assert "R6" in said(record, replace(event, verdict=verdict, sync_state_set=stranger))
