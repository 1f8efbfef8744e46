"""The event journal: order, nothing twice, torn tails, holes, pages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest
from msgspec.structs import replace

from rollcall_ha.controller.contract.values import EventRef
from rollcall_ha.controller.replication.ports import AppliedEntry
from rollcall_ha.controller.runtime.event_journal import EventJournal
from rollcall_ha.controller.runtime.journal_segments import JournalDamaged
from tests.support.runtime_records import SET_A, SET_B, History, fails


def _open(
    directory: Path, *, fail: Callable[[str], NoReturn] = fails, segment_bytes: int = 1 << 20
) -> EventJournal[str]:
    return EventJournal(directory, chain_head_of=lambda head: head, fail=fail, segment_bytes_max=segment_bytes)


@contextmanager
def _written(
    directory: Path, entries: Iterable[AppliedEntry[str]], segment_bytes: int = 1 << 20
) -> Iterator[EventJournal[str]]:
    """A journal into which these entries were written, one group each."""
    journal = _open(directory, segment_bytes=segment_bytes)
    for entry in entries:
        journal._write_group([entry])
    try:
        yield journal
    finally:
        journal.start()
        journal.stop()


def _refs(journal: EventJournal[str]) -> list[EventRef]:
    found: list[EventRef] = []
    start: EventRef | None = None
    while page := journal.read(start, limit=3).records:
        found += [record.ref for record in page]
        start = EventRef(term=1, index=page[-1].index, ordinal=page[-1].ordinal + 1)
    return found


def test_replayed_entries_are_written_once(tmp_path: Path) -> None:
    """A restart applies entries again: what is on disk stays as it is, and new events follow."""
    history = History()
    with _written(tmp_path, [history.entry(SET_A), history.entry(None, SET_B), history.entry()]):
        pass
    history.entry(SET_A)
    with _written(tmp_path, history.entries) as journal:
        assert history.refs() == _refs(journal)
        assert history.index == journal.synced_index


def test_entry_that_was_written_half_is_completed(tmp_path: Path) -> None:
    """S80: A crash between two lines of one entry loses neither: the replay writes the missing one."""
    history = History()
    with _written(tmp_path, [history.entry(SET_A), history.entry(None, SET_B)]):
        pass
    path = next(tmp_path.glob("events-*.jsonl"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]) + lines[2][:20])
    with _written(tmp_path, history.entries) as journal:
        assert history.refs() == _refs(journal)


def test_bad_line_before_good_ones_is_refused(tmp_path: Path) -> None:
    """Damage in the middle is no torn tail: nothing is cut, the message names the byte."""
    history = History()
    with _written(tmp_path, [history.entry(SET_A), history.entry(SET_A)]):
        pass
    path = next(tmp_path.glob("events-*.jsonl"))
    path.write_bytes(b"nonsense\n" + path.read_bytes())

    with pytest.raises(JournalDamaged, match="at byte 0"):
        _open(tmp_path)


def test_journal_of_another_history_is_refused(tmp_path: Path) -> None:
    """A journal left over from another fleet must not swallow this fleet's events as already written."""
    old = History()
    with _written(tmp_path, [old.entry(SET_A), old.entry(SET_A)]):
        pass
    other = History()
    other.entry(SET_B)
    journal = _open(tmp_path)

    with pytest.raises(JournalDamaged, match="another history"):
        journal._write_group(other.entries)
    journal.start()
    journal.stop()


def test_snapshot_without_missing_events_leaves_no_gap(tmp_path: Path) -> None:
    """The chain head tells that nothing was missed, even where entries had no events."""
    history = History()
    with _written(tmp_path, [history.entry(SET_A)]) as journal:
        history.entry()
        journal._write_group([history.snapshot()])
        assert journal.gaps() == ()
        assert history.index == journal.synced_index


def test_hole_after_a_snapshot_is_on_record_and_is_filled_in_order(tmp_path: Path) -> None:
    """What a peer gave lies between the old and the new events, also after a restart; the gap is gone."""
    history = History()
    seen = history.entry(SET_A)
    missed = [history.entry(SET_B), history.entry(SET_A, SET_B)]
    snapshot = history.snapshot()
    with _written(tmp_path, [seen, snapshot, history.entry(SET_A)]) as journal:
        (gap,) = journal.gaps()
        assert (seen.records[0].ref, 3) == (gap.after, gap.to_index)
        assert gap == journal.read(EventRef(term=1, index=2, ordinal=0), limit=9).gap
        with pytest.raises(ValueError, match="do not end"):
            journal.fill(gap, missed[0].records)
        journal.fill(gap, [record for entry in missed for record in entry.records])
        assert journal.gaps() == ()
        assert history.refs() == _refs(journal)
    with _written(tmp_path, []) as again:
        assert again.gaps() == ()
        assert history.refs() == _refs(again)


def test_wiped_journal_beside_a_raft_log_that_goes_on_has_a_gap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Events that begin in the middle of the chain are not taken for the beginning, and a human is told."""
    history = History()
    missed = history.entry(SET_A)
    with _written(tmp_path, [history.entry(SET_A)]) as journal:
        (gap,) = journal.gaps()
        assert (gap.after, gap.to_index) == (None, 1)
        assert "events_missing" in capsys.readouterr().out
        journal.fill(gap, missed.records)
        assert history.refs() == _refs(journal)


def test_events_of_one_set_are_found_over_all_segments(tmp_path: Path) -> None:
    """By set, forwards in pages and backwards until enough, before and after a restart."""
    history = History()
    entries = [history.entry(SET_A if number % 3 else SET_B) for number in range(30)]
    wanted = [record.ref for entry in entries for record in entry.records if record.set_key == SET_B]
    with _written(tmp_path, entries, segment_bytes=1_500) as journal:
        assert len(list(tmp_path.glob("*.jsonl"))) > 3
        assert wanted == [record.ref for record in journal.read(None, limit=100, set_key=SET_B).records]
    with _written(tmp_path, [], segment_bytes=1_500) as again:
        newest = again.read_set_backwards(SET_B, is_enough=lambda found: len(found) >= 4, limit=100)
        assert wanted[-len(newest) :] == [record.ref for record in newest]
        assert len(newest) >= 4


@pytest.mark.slow
def test_the_newest_events_are_read_from_the_end(tmp_path: Path) -> None:
    """Of all sets and of one, within a segment, over several, more than there are, before and after a restart."""
    history = History()
    entries = [history.entry(SET_A if number % 3 else SET_B) for number in range(600)]
    everything = [record for entry in entries for record in entry.records]
    for segment_bytes in (40_000, 1 << 20):
        with _written(tmp_path / str(segment_bytes), entries, segment_bytes=segment_bytes):
            pass
        with _written(tmp_path / str(segment_bytes), [], segment_bytes=segment_bytes) as journal:
            for key in (None, SET_A, SET_B):
                wanted = [record.ref for record in everything if key in (None, record.set_key)]
                for limit in (1, 7, 257, 500):
                    page = journal.read_newest(limit=limit, set_key=key)
                    assert [record.ref for record in page.records] == wanted[-limit:], (segment_bytes, key, limit)
                    assert journal.read(page.next_from, limit=1, set_key=key).records == ()


def test_thread_syncs_groups_and_tells(tmp_path: Path) -> None:
    """``synced_index`` follows what was appended, and readers are woken after the sync."""
    told = threading.Event()
    journal = EventJournal[str](tmp_path, chain_head_of=lambda head: head, fail=fails, on_synced=told.set)
    history = History()
    journal.start()
    for _ in range(10):
        journal.append(history.entry(SET_A))
    assert told.wait(5)
    journal.stop()

    assert history.index == journal.synced_index
    assert history.refs() == _refs(journal)


def test_journal_of_another_history_is_refused_whatever_its_term(tmp_path: Path) -> None:
    """R24: after a restore the same index came in another term; its events were skipped as written already."""
    old = History()
    with _written(tmp_path, [old.entry(SET_A), old.entry(SET_A)]):
        pass
    other = History()
    entry = other.entry(SET_B)
    records = tuple(replace(record, term=record.term + 1, chain="another chain") for record in entry.records)
    journal = _open(tmp_path)
    with pytest.raises(JournalDamaged, match="another history"):
        journal._write_group([replace(entry, term=entry.term + 1, records=records)])
    journal.start()
    journal.stop()


def test_fault_while_writing_ends_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W36: anything but a disk's error ended the thread alone; nothing was recorded, nothing compacted any more."""

    class Ended(BaseException):
        pass

    def fail(reason: str) -> NoReturn:
        raise Ended(reason)

    def write(_journal: object, _entries: object) -> None:
        raise LookupError("a fault of ours")

    def leave() -> None:
        left.append("another one is asked to lead")
        raise RuntimeError("and that fails, too")

    left: list[str] = []
    monkeypatch.setattr(EventJournal, "_write_group", write)
    journal = EventJournal[str](tmp_path, chain_head_of=lambda head: head, fail=fail, leave=leave)
    journal.append(History().entry(SET_A))
    with pytest.raises(Ended, match="LookupError"):
        journal._run()
    assert left
