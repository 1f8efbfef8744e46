"""
Cutting a log so that no crash leaves half a cut, and keeping the cut bytes for some days (R20, D13).

Here: the steps, each of which may be repeated, and the quarantine's folder. Not here: whether to cut
(``ha.truncation``, the role machine), the numbers in memory (``commit_log``).

The steps: mark · copy the tail into quarantine · its manifest · move whole segments there · zero the rest · begin a
new log (full resync) · sync · cut the epoch history · clamp checkpoint and index · clear the mark.
Rule 1: the mark is durable before anything else changes and goes last. A start that finds it runs all steps again.
Rule 2: the quarantine is complete before a byte is zeroed.
Rule 3: an error up to the manifest (a full disk, say) undoes the mark: nothing was cut, the cut may be tried again.
Rule 4: an error behind the manifest is ``CutUnfinishedError``: only a new start may go on with the log.
Rule 5: bytes that are known to be the master's too (``CutMark.known_to``) are not set aside. A slave that was away for
longer than its master keeps messages would else have no room for what it copies.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec

from rollcall_ha.broker.log.checkpoint import (
    CLEAN_FILE_NAME,
    CUT_FILE_NAME,
    FOLDS_FILE_NAME,
    INDEX_FILE_NAME,
    STATE_FILE_NAME,
    CutMark,
    IndexSnapshot,
    read_small_or_none,
    write_small,
)
from rollcall_ha.broker.log.segment import LogSegment, segment_name
from rollcall_ha.broker.log.values import CutReason
from rollcall_ha.epoch.history import EpochHistory
from rollcall_ha.epoch.store import EpochStore
from rollcall_ha.node.files import atomic_replace, durable_unlink, fsync_directory

LOG_FOLDER_NAME = "commitlog"
QUARANTINE_FOLDER_NAME = "quarantine"
MANIFEST_FILE_NAME = "manifest.json"
_DAY_MS = 24 * 60 * 60 * 1000


class LogFiles(msgspec.Struct, kw_only=True):
    """The files of one log, as cutting and recovery see them."""

    root: Path
    segment_bytes: int
    segments: list[LogSegment]
    epochs: EpochStore
    history: EpochHistory
    before_step: Callable[[str], None] = lambda _step: None
    """Called with a step's name before it: tests stop there."""

    @property
    def log_folder(self) -> Path:
        return self.root / LOG_FOLDER_NAME


class CutUnfinishedError(RuntimeError):
    """A cut failed when bytes had gone already; the mark is on disk, and the next start finishes it (rule 4)."""


def run_cut(files: LogFiles, mark: CutMark) -> None:
    """
    Do, or finish, the cut that ``mark`` describes; on return it is durable and the mark is gone. For recovery.

    Raises:
        OSError: the disk; the mark stays.
    """
    _run(files, _first_steps(files, mark))
    _run(files, _last_steps(files, mark))


def begin_cut(files: LogFiles, mark: CutMark) -> None:
    """
    Mark, and fill the quarantine; the log is as it was. For a cut that has not begun before.

    Raises:
        OSError: the disk; the mark is gone (rule 3).
        CutUnfinishedError: the disk, and the mark cannot be removed.
    """
    try:
        _run(files, _first_steps(files, mark))
    except OSError:
        # A mark that stayed would be obeyed by the next start: cut at 500, tried on a full disk; space is freed, the
        # log goes on to 2000 and acks it; a restart a month later cuts it to 500.
        try:
            durable_unlink(files.root / CUT_FILE_NAME)
        except OSError as error:
            raise CutUnfinishedError(f"the mark of a cut that did not begin cannot be removed: {error}") from error
        raise


def finish_cut(files: LogFiles, mark: CutMark) -> None:
    """The steps behind ``begin_cut``. Raises ``CutUnfinishedError`` (rule 4)."""
    try:
        _run(files, _last_steps(files, mark))
    except OSError as error:
        raise CutUnfinishedError(f"the cut at {mark.cut_offset} failed half-way: {error}; start again") from error


_Steps = tuple[tuple[str, Callable[[], object]], ...]


def _run(files: LogFiles, steps: _Steps) -> None:
    for name, step in steps:
        files.before_step(name)
        step()


def _quarantine_of(files: LogFiles, mark: CutMark) -> Path:
    return files.root / QUARANTINE_FOLDER_NAME / mark.quarantine_name


def _first_steps(files: LogFiles, mark: CutMark) -> _Steps:
    quarantine = _quarantine_of(files, mark)
    # First: a crash between zeroing and the epoch history would else leave a history that speaks of zeros.
    first = ("mark", lambda: write_small(files.root / CUT_FILE_NAME, mark))
    if mark.known_to >= mark.end_offset:
        return (first,)
    return (
        first,
        ("quarantine", lambda: _copy_tail(files, mark, quarantine)),
        ("manifest", lambda: atomic_replace(quarantine / MANIFEST_FILE_NAME, _manifest(mark), mode=0o644)),
    )


def _last_steps(files: LogFiles, mark: CutMark) -> _Steps:
    quarantine = _quarantine_of(files, mark)
    return (
        ("drop", lambda: _move_segments(files, mark, quarantine)),
        ("zero", lambda: _zero_tail(files, mark)),
        ("begin", lambda: _begin(files, mark)),
        # Before the history and the mark go: after a power cut the zeros may be missing, and behind a history that is
        # cut already the old bytes would be whole records of the wrong epoch.
        ("sync", lambda: _sync(files)),
        ("history", lambda: _cut_history(files, mark)),
        ("state", lambda: _clamp_state(files, mark)),
        ("clear", lambda: durable_unlink(files.root / CUT_FILE_NAME)),
    )


def _manifest(mark: CutMark) -> bytes:
    return msgspec.json.format(msgspec.json.encode(mark), indent=2) + b"\n"


def _copy_tail(files: LogFiles, mark: CutMark, quarantine: Path) -> None:
    quarantine.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Both names, before anything is moved there: a power cut behind the move takes a folder without a durable name with
    # all that was cut.
    fsync_directory(quarantine.parent)
    fsync_directory(files.root)
    target = quarantine / segment_name(mark.cut_offset)
    for segment in files.segments:
        # A copy that exists is whole (it was renamed into place), and the original may be zeroed already: a second run
        # after a crash would put zeros over the only copy.
        if segment.base < mark.cut_offset < segment.end and not target.exists():
            end = min(mark.end_offset, segment.end)
            with segment.view[mark.cut_offset - segment.base : end - segment.base] as tail:
                atomic_replace(target, bytes(tail), mode=0o600)


def _move_segments(files: LogFiles, mark: CutMark, quarantine: Path) -> None:
    """Whole segments at or behind the cut; one without data of the log is just removed."""
    kept: list[LogSegment] = []
    for segment in files.segments:
        target = quarantine / segment.path.name
        if segment.base < mark.cut_offset or (segment.base == mark.new_start and target.exists()):
            # The second case: an earlier run moved the old segment of this name and began the new log. Moved again, the
            # empty segment would replace the quarantined one.
            kept.append(segment)
            continue
        segment.close()
        end = min(segment.end, mark.end_offset)
        if segment.base < end and mark.known_to < end and not target.exists():
            segment.path.rename(target)
        else:
            segment.path.unlink()
    # In front of every sync of the log's folder, that of a new segment too: the other way round, a power cut finds the
    # moved file in neither of the two.
    if mark.known_to < mark.end_offset:
        fsync_directory(quarantine)
    files.segments[:] = kept


def _zero_tail(files: LogFiles, mark: CutMark) -> None:
    for segment in files.segments:
        if segment.base < mark.cut_offset < segment.end:
            # To the segment's end, not to the log's: pages behind the end may hold records of an earlier, longer life,
            # which a start after a crash would take for the log's own.
            segment.zero(mark.cut_offset - segment.base, segment.size)


def _begin(files: LogFiles, mark: CutMark) -> None:
    if mark.new_start is not None and not files.segments:
        files.segments.append(LogSegment.create(files.log_folder, mark.new_start, files.segment_bytes))


def _sync(files: LogFiles) -> None:
    for segment in files.segments[-1:]:
        segment.sync()
    fsync_directory(files.log_folder)


def _cut_history(files: LogFiles, mark: CutMark) -> None:
    if mark.reason is CutReason.FULL_RESYNC:
        files.history = EpochHistory()
    elif mark.reason is CutReason.TORN_TAIL:
        # An epoch that was entered at the very end stays entered (R9): dropped here, the replica would enter epoch 7 a
        # second time, from another start.
        files.history = files.history.repaired(mark.cut_offset)
    else:
        files.history = files.history.truncated_suffix(mark.cut_offset)
    files.epochs.save(files.history)


def _clamp_state(files: LogFiles, mark: CutMark) -> None:
    end = mark.cut_offset if mark.new_start is None else mark.new_start
    write_small(files.root / STATE_FILE_NAME, mark.state_before.clamped(end))
    index = read_small_or_none(files.root / INDEX_FILE_NAME, IndexSnapshot)
    # A snapshot of the longer log would pass the next start's check as soon as the log has grown past it again.
    if index is None or index.offset > mark.cut_offset or mark.new_start is not None:
        durable_unlink(files.root / INDEX_FILE_NAME)
    # The folds lower their mark themselves, at once or when they are opened; of another log they would believe it.
    if mark.reason is CutReason.FULL_RESYNC:
        durable_unlink(files.root / FOLDS_FILE_NAME)
    durable_unlink(files.root / CLEAN_FILE_NAME)


def remove_expired(
    root: Path, *, now_ms: Callable[[], int], keep_days: int, keep_bytes: int, is_in_the_way: bool = False
) -> list[str]:
    """
    Remove the oldest cuts from quarantine: those older than ``keep_days``, and more until ``keep_bytes`` are left;
    ``is_in_the_way``: the oldest one whatever it is.

    The newest one goes by its age only: an operator looks for it after a failover. For a log without a cut
    under way. Blocking. Returns the folders' names. Raises ``OSError``.
    """
    folder = root / QUARANTINE_FOLDER_NAME
    if not folder.is_dir():
        return []
    cuts = sorted((int(began), entry) for entry in folder.iterdir() if (began := entry.name.split("-")[0]).isdecimal())
    sizes_bytes = [sum(file.stat().st_size for file in entry.iterdir()) for _, entry in cuts]
    total_bytes = sum(sizes_bytes)
    removed: list[str] = []
    for (began_at_ms, entry), size_bytes in zip(cuts, sizes_bytes, strict=True):
        # Never the newest by size: after a failover that cut 16 GiB it is the only copy of what producers may ask
        # about.
        is_too_much = (total_bytes > keep_bytes and entry != cuts[-1][1]) or (is_in_the_way and not removed)
        if not is_too_much and now_ms() - began_at_ms <= keep_days * _DAY_MS:
            break
        shutil.rmtree(entry)
        removed.append(entry.name)
        total_bytes -= size_bytes
    return removed
