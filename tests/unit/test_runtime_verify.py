"""``rollcall verify``: sound records hold, and of a doctored one the first wrong line is named."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from rollcall_ha.controller.contract.events import EventRecord, MasterElected, MasterEntered
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    FleetIncarnation,
    LogOffset,
    MasterEpoch,
    SyncStateSetEpoch,
)
from rollcall_ha.controller.contract.views import EventPage
from rollcall_ha.controller.core.verification import Rule
from rollcall_ha.controller.runtime.journal_retention import DROPPED_FILE_NAME, Dropped
from rollcall_ha.controller.runtime.journal_segments import Gap, GapLine, segment_path
from rollcall_ha.controller.runtime.verify import NothingToRead, main, verify
from tests.support.core_builders import failed_over, rechained
from tests.support.fake_controllers import freshness

RECORDS = failed_over()
ELECTIONS = [place for place, record in enumerate(RECORDS) if isinstance(record.event, MasterElected)]
STARTS = [place for place, record in enumerate(RECORDS) if isinstance(record.event, MasterEntered)]
LAST = ELECTIONS[-1]


def lines_of(records: Sequence[EventRecord]) -> list[bytes]:
    return [msgspec.json.encode(record) + b"\n" for record in records]


def journal(directory: Path, *segments: Sequence[bytes]) -> Path:
    """A controller's data directory with these segments; an event lies in the one that begins at its index."""
    events = directory / "c1" / "events"
    events.mkdir(parents=True)
    for lines in segments:
        index = next(found["index"] for found in map(msgspec.json.decode, lines) if "index" in found)
        segment_path(events, index).write_bytes(b"".join(lines))
    return directory / "c1"


# --- sound records ---------------------------------------------------------------------------------------------------


def test_a_sound_journal_holds_over_its_segments(tmp_path: Path) -> None:
    """Counted, with the hash by which two controllers are compared."""
    cut = next(place for place in range(5, len(RECORDS)) if RECORDS[place].ordinal == 0)
    found = verify(journal(tmp_path, lines_of(RECORDS[:cut]), lines_of(RECORDS[cut:])))

    assert (found.wrong, found.notes) == ((), ())
    assert (found.events, found.elections, found.sets) == (len(RECORDS), len(ELECTIONS), 1)
    assert (found.first_index, found.last_index) == (RECORDS[0].index, RECORDS[-1].index)
    assert found.chain == RECORDS[-1].chain


def test_a_record_of_which_the_beginning_was_removed_goes_on_from_there(tmp_path: Path) -> None:
    """Known by its size and hash; a file that a crash left behind is not read as a repetition."""
    cut = next(place for place in range(5, len(RECORDS)) if RECORDS[place].ordinal == 0)
    last = RECORDS[cut - 1]
    data = journal(tmp_path, lines_of(RECORDS[:cut]), lines_of(RECORDS[cut:]))
    dropped = Dropped(last=last.ref, chain=last.chain, events=cut, size_bytes=1)
    (data / "events" / DROPPED_FILE_NAME).write_bytes(msgspec.json.encode(dropped))
    found = verify(data)

    assert (found.wrong, found.events) == ((), len(RECORDS) - cut)
    assert found.notes == (f"{cut} events up to index {last.index} were removed by age or size",)


def test_a_hole_that_is_on_record_is_a_note_and_one_that_was_filled_is_none(tmp_path: Path) -> None:
    """A controller that installed a snapshot did not see the events before it."""
    first = next(place for place in range(3, len(RECORDS)) if RECORDS[place].ordinal == 0)
    second = next(place for place in range(first + 1, len(RECORDS)) if RECORDS[place].ordinal == 0)
    before, missing, after = RECORDS[:first], RECORDS[first:second], RECORDS[second:]
    gap = Gap(after=before[-1].ref, to_index=missing[-1].index, chain=missing[-1].chain, reason="a snapshot")
    line = msgspec.json.encode(GapLine(gap=gap)) + b"\n"
    data = journal(tmp_path, lines_of(before), [line, *lines_of(after)])
    with_hole = verify(data)
    segment_path(data / "events", missing[-1].index, is_fill=True).write_bytes(b"".join(lines_of(missing)))
    filled = verify(data)

    assert (with_hole.wrong, len(with_hole.notes), "a hole after index" in with_hole.notes[0]) == ((), 1, True)
    assert (filled.wrong, filled.notes, filled.events) == ((), (), len(RECORDS))


def test_a_journal_that_is_being_written_is_read_up_to_its_last_whole_line(tmp_path: Path) -> None:
    """And it is left as it is."""
    torn = [*lines_of(RECORDS[:-1]), lines_of(RECORDS[-1:])[0][:40]]
    data = journal(tmp_path, torn)
    found = verify(data)

    assert (found.wrong, found.events, "torn" in found.notes[0]) == ((), len(RECORDS) - 1, True)
    assert b"".join(torn) in [file.read_bytes() for file in (data / "events").iterdir()]


@pytest.mark.parametrize("indent", [2, -1])
def test_events_that_were_exported_are_read_as_a_journal(tmp_path: Path, indent: int) -> None:
    """``rollcall events -o json``, and the answer of REST as it is; the beginning need not be there."""
    pages = [
        EventPage(freshness=freshness(), events=tuple(part), next_from=None) for part in (RECORDS[3:6], RECORDS[6:])
    ]
    file = tmp_path / "events.json"
    file.write_bytes(b"".join(msgspec.json.format(msgspec.json.encode(page), indent=indent) + b"\n" for page in pages))
    found = verify(file)

    assert (found.wrong, found.events) == ((), len(RECORDS) - 3)
    assert found.notes == (f"{file}: event 1: events before it are not here: no chain leads to it, and proves it",)


# --- doctored records ------------------------------------------------------------------------------------------------


def _swap(lines: list[bytes]) -> list[bytes]:
    lines[4], lines[5] = lines[5], lines[4]
    return lines


def _forged(place: int, change: Callable[[EventRecord], EventRecord]) -> list[bytes]:
    """One event changed, and every hash from there on made anew."""
    return lines_of(rechained([change(one) if at == place else one for at, one in enumerate(RECORDS)]))


def _verdict(record: EventRecord, **changes: object) -> EventRecord:
    assert isinstance(record.event, MasterElected)
    return replace(record, event=replace(record.event, verdict=replace(record.event.verdict, **changes)))


def _event(record: EventRecord, **changes: object) -> EventRecord:
    return replace(record, event=replace(record.event, **changes))


def _evidence(record: EventRecord) -> EventRecord:
    """Broker 3 had less, so that broker 2 was the right choice."""
    assert isinstance(record.event, MasterElected)
    replicas = tuple(
        replace(one, max_offset=LogOffset(1)) if one.broker_id == 3 else one for one in record.event.evidence.replicas
    )
    return _event(record, evidence=replace(record.event.evidence, replicas=replicas))


def _twice(place: int, change: Callable[[EventRecord], EventRecord]) -> list[bytes]:
    """A changed copy of one event, appended as an entry of its own."""
    copy = replace(change(RECORDS[place]), term=RECORDS[-1].term, index=RECORDS[-1].index + 1, ordinal=0)
    return lines_of(rechained([*RECORDS, copy]))


DOCTORED: dict[str, tuple[Callable[[], list[bytes]], int, str]] = {
    "one letter": (
        lambda: [
            line.replace(b'"stampedAtMs":', b'"stampedAtMs":1', 1) if at == 4 else line
            for at, line in enumerate(lines_of(RECORDS))
        ],
        5,
        Rule.CHAIN,
    ),
    "a line taken out": (lambda: [*lines_of(RECORDS[:4]), *lines_of(RECORDS[5:])], 5, Rule.CHAIN),
    "the beginning taken out": (lambda: lines_of(RECORDS[1:]), 1, Rule.CHAIN),
    "a line twice": (lambda: [*lines_of(RECORDS[:5]), *lines_of(RECORDS[4:])], 6, Rule.CHAIN),
    "two lines swapped": (lambda: _swap(lines_of(RECORDS)), 5, Rule.CHAIN),
    "a line without a hash": (
        lambda: [*lines_of(RECORDS[:4]), *lines_of([replace(RECORDS[4], chain="")]), *lines_of(RECORDS[5:])],
        5,
        Rule.CHAIN,
    ),
    "half a line": (
        lambda: [line[:50] + b"\n" if at == 6 else line for at, line in enumerate(lines_of(RECORDS))],
        7,
        Rule.READABLE,
    ),
    "a gap that covers what was taken out": (
        lambda: [
            *lines_of(RECORDS[:4]),
            msgspec.json.encode(
                GapLine(gap=Gap(after=None, to_index=RECORDS[4].index, chain=RECORDS[4].chain, reason="x"))
            )
            + b"\n",
            *lines_of(RECORDS[5:]),
        ],
        5,
        Rule.ORDER,
    ),
    "another fleet's event": (
        lambda: _forged(4, lambda one: replace(one, fleet_incarnation=FleetIncarnation("e" * 32))),
        5,
        Rule.ONE_FLEET,
    ),
    "a term that fell": (lambda: _forged(len(RECORDS) - 1, lambda one: replace(one, term=0)), len(RECORDS), Rule.ORDER),
    "another winner": (
        lambda: _forged(LAST, lambda one: _event(_verdict(one, winner=BrokerId(2)), master=BrokerId(2))),
        LAST + 1,
        Rule.ELECTIONS,
    ),
    "other evidence": (lambda: _forged(LAST, _evidence), LAST + 1, Rule.ELECTIONS),
    "two masters in one epoch": (
        lambda: _twice(LAST, lambda one: _event(one, master=BrokerId(2))),
        len(RECORDS) + 1,
        Rule.ONE_MASTER,
    ),
    "an epoch that fell": (lambda: _twice(ELECTIONS[0], lambda one: one), len(RECORDS) + 1, Rule.EPOCHS),
    "a second start": (
        lambda: _twice(STARTS[-1], lambda one: _event(one, start_offset=LogOffset(17))),
        len(RECORDS) + 1,
        Rule.ONE_START,
    ),
    "a SyncStateSetEpoch that fell": (
        lambda: _twice(
            LAST, lambda one: _event(one, sync_state_set_epoch=SyncStateSetEpoch(0), master_epoch=MasterEpoch(9))
        ),
        len(RECORDS) + 1,
        Rule.SET_EPOCHS,
    ),
}


@pytest.mark.parametrize("doctored", DOCTORED)
def test_a_doctored_record_is_refused_with_the_line_named(
    doctored: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1; the first line that is named is the one that was changed, or the first behind what is missing."""
    make, number, rule = DOCTORED[doctored]
    data = journal(tmp_path, make())
    file = next((data / "events").glob("events-*.jsonl"))
    code = main([str(data)])
    found = verify(data)

    assert (code, found.wrong[0].where) == (1, f"{file}:{number}")
    assert rule in {one.rule for one in found.wrong if one.where == found.wrong[0].where}
    assert capsys.readouterr().out.startswith(f"BROKEN  {file}:{number}: ")


def test_the_first_wrong_lines_are_enough(tmp_path: Path) -> None:
    """A journal of 100 million lines behind a bad one is not printed."""
    lines = [line for record in RECORDS for line in [msgspec.json.encode(record) + b"\n"] * 5]
    found = verify(journal(tmp_path, lines))

    assert len(found.wrong) == 20


def test_nothing_to_read_is_not_sound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty folder, an empty file, and none: exit code 2, with what is looked for."""
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    with pytest.raises(NothingToRead, match="events-"):
        verify(tmp_path)
    assert [main([str(path)]) for path in (tmp_path, empty, tmp_path / "none")] == [2, 2, 2]
    assert "No such file" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_runs_it_without_a_fleet(tmp_path: Path) -> None:
    """Whole processes: the exit codes and both forms, in a folder with nothing else."""
    data = journal(tmp_path, lines_of(RECORDS))
    command = [sys.executable, "-m", "rollcall_ha.cli.main", "verify", str(data)]
    told = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    as_json = subprocess.run([*command, "-o", "json"], capture_output=True, text=True, check=False, cwd=tmp_path)

    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.startswith(f"OK  {len(RECORDS)} events from index {RECORDS[0].index} to ")
    assert json.loads(as_json.stdout)["wrong"] == []
