"""What the event journal drops by bytes and by age, and what readers and restarts hear of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rollcall_ha.controller.contract.values import EventRef
from rollcall_ha.controller.runtime import event_journal, journal_retention
from rollcall_ha.controller.runtime.event_journal import RETENTION_INTERVAL_MS, EventJournal
from rollcall_ha.controller.runtime.journal_retention import Dropped, Retention
from rollcall_ha.controller.runtime.journal_segments import JournalDamaged, JournalSegment
from tests.support.runtime_records import SET_A, SET_B, History, fails

NOW_MS = 2_000_000_000_000
HOUR_MS = 3_600_000


class Clock:
    """Wall time that moves by one interval of retention with each look."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        self.now_ms += RETENTION_INTERVAL_MS
        return self.now_ms


@contextmanager
def _opened(directory: Path, retention: Retention | None) -> Iterator[EventJournal[str]]:
    """One segment for each group of events."""
    journal: EventJournal[str] = EventJournal(
        directory,
        chain_head_of=lambda head: head,
        fail=fails,
        segment_bytes_max=1,
        retention=retention,
        wall_ms=Clock(),
    )
    try:
        yield journal
    finally:
        journal.start()
        journal.stop()


def _segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("events-*.jsonl"))


def _bytes_of(count: int, directory: Path) -> Retention:
    """Room for this many of the segments that are there."""
    largest_bytes = max(path.stat().st_size for path in _segments(directory))
    return Retention(keep_ms=1 << 60, keep_bytes=count * largest_bytes + largest_bytes // 2)


def _filled(directory: Path, count: int) -> History:
    history = History()
    with _opened(directory, None) as journal:
        for number in range(count):
            journal._write_group([history.entry(SET_A if number % 2 else SET_B)])
    return history


def test_too_many_bytes_drop_the_oldest_segments_and_readers_hear_how_many_events(tmp_path: Path) -> None:
    """A reader of the beginning gets what is left behind a counted gap; one who is further on hears nothing of it."""
    history = _filled(tmp_path, 9)
    with _opened(tmp_path, _bytes_of(4, tmp_path)) as journal:
        journal._write_group([history.entry(SET_A)])
        page = journal.read(None, limit=100)

        assert history.refs()[-4:] == [record.ref for record in page.records]
        assert page.gap is not None
        assert (page.gap.to_index, page.gap.chain) == (6, history.entries[5].state)
        assert page.gap.reason.startswith("6 events were dropped")
        assert journal.read(EventRef(term=1, index=6, ordinal=1), limit=9).gap is None
        assert journal.read(history.refs()[5], limit=9).gap == page.gap
        assert journal.gaps() == (), "no peer is asked for what was dropped"
        assert journal.dropped is not None
        assert journal.dropped.events == 6
        assert [r.index for r in journal.read_set_backwards(SET_B, is_enough=lambda _: False, limit=99)] == [7, 9]


def test_a_restart_goes_on_behind_what_was_dropped(tmp_path: Path) -> None:
    """Counts go on, nothing is written twice, and the gap is still told."""
    history = _filled(tmp_path, 6)
    limit = _bytes_of(3, tmp_path)
    with _opened(tmp_path, limit) as journal:
        journal._write_group([history.entry(SET_A)])
        assert journal.dropped is not None
        assert journal.dropped.events == 4
    with _opened(tmp_path, limit) as again:
        again._write_group([*history.entries[3:], history.entry(SET_B)])
        page = again.read(None, limit=100)

        assert history.refs()[-3:] == [record.ref for record in page.records]
        assert page.gap is not None
        assert page.gap.reason.startswith("5 events")


def test_age_drops_segments_whose_last_event_is_too_old(tmp_path: Path) -> None:
    """By the time of the file; the newest segment stays, however old it is."""
    history = _filled(tmp_path, 5)
    for path, age_hours in zip(_segments(tmp_path), (50, 49, 10, 9, 8), strict=True):
        os.utime(path, (NOW_MS / 1000 - age_hours * 3600,) * 2)
    with _opened(tmp_path, Retention(keep_ms=48 * HOUR_MS)) as journal:
        journal._write_group([history.entry(SET_A)])
        assert history.refs()[2:] == [record.ref for record in journal.read(None, limit=100).records]
    with _opened(tmp_path, Retention(keep_ms=-1, keep_bytes=0)) as journal:
        journal._write_group([history.entry(SET_A)])
        assert history.refs()[-1:] == [record.ref for record in journal.read(None, limit=100).records]


def test_a_crash_between_the_note_and_the_files_leaves_no_event_twice_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note is durable first: what is still there of the dropped ones is removed at the next start."""
    history = _filled(tmp_path, 4)
    with monkeypatch.context() as patch:
        patch.setattr(event_journal, "remove", lambda _gone: None)
        with _opened(tmp_path, _bytes_of(2, tmp_path)) as journal:
            journal._write_group([history.entry(SET_A)])
    assert len(_segments(tmp_path)) == 5
    with _opened(tmp_path, None) as again:
        assert history.refs()[-2:] == [record.ref for record in again.read(None, limit=100).records]
    assert len(_segments(tmp_path)) == 2


def test_a_reader_whose_segment_is_dropped_under_its_eyes_reads_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file was gone when it was opened: the page is made again, with its gap, and nobody sees an error."""
    history = _filled(tmp_path, 4)
    retention = _bytes_of(2, tmp_path)
    with _opened(tmp_path, retention) as journal:
        read = JournalSegment.read
        entries = iter((history.entry(SET_A),))

        def late(segment: JournalSegment, *arguments: int) -> object:
            for entry in entries:
                journal._write_group([entry])
            return read(segment, *arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(JournalSegment, "read", late)
        page = journal.read(None, limit=100)
        assert history.refs()[-2:] == [record.ref for record in page.records]
        assert page.gap is not None


def test_a_hole_that_was_dropped_is_no_hole_any_more(tmp_path: Path) -> None:
    """A peer was asked again and again for what would have been dropped at once."""
    history = History()
    with _opened(tmp_path, None) as journal:
        journal._write_group([history.entry(SET_A)])
        history.entry(SET_B)
        journal._write_group([history.snapshot()])
        journal._write_group([history.entry(SET_A)])
        assert len(journal.gaps()) == 1
    with _opened(tmp_path, Retention(keep_ms=1 << 60, keep_bytes=0)) as again:
        again._write_group([history.entry(SET_A)])
        assert again.gaps() == ()


def test_an_unreadable_note_of_what_was_dropped_is_refused(tmp_path: Path) -> None:
    """Without it the journal would seem to begin where it does not."""
    (tmp_path / journal_retention.DROPPED_FILE_NAME).write_bytes(b"{")
    with pytest.raises(JournalDamaged, match="which events were dropped"):
        EventJournal(tmp_path, chain_head_of=str, fail=fails)


def test_nothing_is_noted_of_segments_without_events(tmp_path: Path) -> None:
    """A segment that holds only a gap counts no event."""
    before = Dropped(last=EventRef(term=1, index=1, ordinal=0), chain="c", events=1, size_bytes=1)
    segment = JournalSegment(tmp_path / "events-00000000000000000002.jsonl")
    assert journal_retention.note_dropped(tmp_path, before, [segment]) == before
