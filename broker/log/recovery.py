"""
Opening a log after a stop of any kind: find its end, finish an interrupted cut, make files and history agree.

Clean stop: the mark names the end, and everything was synced. Otherwise every record behind the last durable boundary
is checked (``record.check``), and the log ends before the first one that fails: the recovered bytes are a prefix of the
lost ones (D13). On the boot that wrote them the newest record alone can be torn (R3). The bytes behind are cut with the
same steps as any cut (R20). Synced records that have changed since are not looked for, but near both ends
(``soundness``), and reported, never cut.

Rule 1: an interrupted cut, or deletion, is finished before anything is read.
Rule 2 (R9): epoch entries that begin beyond the end are dropped, so that the next bytes get the epoch they are of.
Rule 3: the file ``clean-stop`` is good for one start: it is gone, durably, before ``open`` returns.
Rule 4 (S28): a log with bytes and without an epoch file is refused, never taken for one without epochs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from rollcall_ha.broker.log.checkpoint import (
    CLEAN_FILE_NAME,
    CUT_FILE_NAME,
    STATE_FILE_NAME,
    CleanStop,
    CutMark,
    LogState,
    read_small,
    read_small_or_none,
)
from rollcall_ha.broker.log.cut import LOG_FOLDER_NAME, LogFiles, run_cut
from rollcall_ha.broker.log.record import MAGIC_AT, MAGIC_COMMON, blank_bytes, check
from rollcall_ha.broker.log.segment import LogSegment, open_segments, segment_name
from rollcall_ha.broker.log.soundness import damage_at_the_ends
from rollcall_ha.broker.log.values import CutReason, RecoveryReport
from rollcall_ha.broker.protocol.record import RecordError
from rollcall_ha.epoch.history import EpochHistory
from rollcall_ha.epoch.model import LogOffset, MasterEpoch
from rollcall_ha.epoch.store import EPOCH_FILE_NAME, EpochStore
from rollcall_ha.node.files import durable_unlink, fsync_directory


def recover(
    root: Path,
    *,
    segment_bytes: int,
    now_ms: Callable[[], int],
    before_step: Callable[[str], None],
    on_loss: Callable[[], None],
    boot_id: str = "",
) -> tuple[LogFiles, LogState, RecoveryReport]:
    """
    The files, the state that was durable beside them, and a report.

    ``on_loss`` is called before anything is changed if the log lacks bytes that it had synced or confirmed, or that no
    power cut can have taken: ``boot_id`` is that of this boot, and the log was written on it.

    Raises:
        SegmentError, EpochFileMissing, EpochFileCorrupt, CheckpointError: the folder needs a human.
        OSError: the disk.
    """
    began = time.monotonic_ns()
    # Not ``read_small_or_none``: a damaged cut mark is no missing one. Half a cut may lie behind it, and only a human
    # can say where the log ends.
    mark = read_small(root / CUT_FILE_NAME, CutMark)
    files, fallback = _open_files(root, segment_bytes, mark, before_step)
    segments, history = files.segments, files.history
    if mark is not None:
        run_cut(files, mark)
    stored = read_small_or_none(root / STATE_FILE_NAME, LogState) or LogState()
    clean = read_small_or_none(root / CLEAN_FILE_NAME, CleanStop)
    # Before the first append: left there, a power cut next week finds it and takes today's end for that of the log.
    durable_unlink(root / CLEAN_FILE_NAME)
    start = LogOffset(segments[0].base) if segments else LogOffset(0)
    files_end = LogOffset(segments[-1].end) if segments else LogOffset(0)
    checked_from = min(max(start, stored.checked_offset), files_end)
    torn_reason, records = "", 0
    # The clean file is believed with one doubt: if bytes lie behind its end, it is that of an older copy of this
    # folder.
    if clean is not None and _is_end(files, clean.end_offset):
        end = data_end = checked_from = clean.end_offset
    else:
        clean = None
        end, records, torn_reason = _check_records(segments, checked_from)
        data_end = _data_end(segments, end)
    is_same_boot = bool(boot_id) and stored.boot_id == boot_id
    lost = stored.lost(start, end) or (_rotten(segments, end, torn_reason) if is_same_boot else "")
    if lost:
        # Before the state below is clamped: killed in between, the next start would find nothing amiss, and this store
        # would vouch for bytes that are gone (R3).
        on_loss()
    if end < data_end:
        _cut_torn_tail(files, stored, end, data_end, reason=torn_reason, now_ms=now_ms())
    _drop_empty(files, end)
    _repair_history(files, start, end)
    report = RecoveryReport(
        was_clean=clean is not None,
        end_offset=end,
        checked_from=LogOffset(checked_from),
        checked_records=records,
        torn_bytes=data_end - end,
        torn_reason=torn_reason if data_end > end else "",
        finished_cut=mark is not None,
        dropped_epochs=_gone_behind(start, history, files.history),
        lost=lost,
        # Not cut: these bytes were synced, and other replicas have acked what follows them. A human must choose.
        damaged=damage_at_the_ends(files.segments, end),
        history_fallback=fallback,
        duration_us=(time.monotonic_ns() - began) // 1000,
    )
    return files, stored.clamped(end), report


def _open_files(
    root: Path, segment_bytes: int, mark: CutMark | None, before_step: Callable[[str], None]
) -> tuple[LogFiles, str | None]:
    """The segments and the epoch history, as a crash left them; second, why the history's backup was taken."""
    log_folder = root / LOG_FOLDER_NAME
    log_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    epochs = EpochStore(root / EPOCH_FILE_NAME)
    if mark is None:
        _finish_deletion(root, segment_bytes)
    segments = open_segments(log_folder, segment_bytes, cut_offset=None if mark is None else mark.cut_offset)
    history, fallback = _load_history(epochs, is_new=not segments)
    files = LogFiles(
        root=root,
        segment_bytes=segment_bytes,
        segments=segments,
        epochs=epochs,
        history=history,
        before_step=before_step,
    )
    return files, fallback


def _finish_deletion(root: Path, segment_bytes: int) -> None:
    """
    Remove the segments that a deletion has begun to remove: some of them may be gone, and leave a hole.

    Not beside a cut's mark: its new log may begin below the beginning that the state tells still.
    """
    folder, state = root / LOG_FOLDER_NAME, read_small_or_none(root / STATE_FILE_NAME, LogState)
    start = None if state is None else state.start_offset
    # Without the segment that the log should begin with it has lost bytes, and what is left in front is evidence.
    if start is None or not (folder / segment_name(start)).exists():
        return
    gone = [path for path in folder.iterdir() if path.name.isdecimal() and int(path.name) + segment_bytes <= start]
    for path in gone:
        path.unlink()
    if gone:
        fsync_directory(folder)


def _cut_torn_tail(
    files: LogFiles, stored: LogState, end: LogOffset, data_end: LogOffset, *, reason: str, now_ms: int
) -> None:
    """R20 holds for torn tails too: half-zeroed, a tail could read as records at the start after the next crash."""
    cut = CutMark(
        cut_offset=end,
        end_offset=data_end,
        new_start=None,
        reason=CutReason.TORN_TAIL,
        explanation=reason,
        began_at_ms=now_ms,
        state_before=stored,
        epochs_before=tuple((entry.epoch, entry.start_offset) for entry in files.history.entries),
    )
    run_cut(files, cut)


def _load_history(epochs: EpochStore, *, is_new: bool) -> tuple[EpochHistory, str | None]:
    # S28: with segments but without an epoch file this raises. Taken for an empty history, the whole log would have no
    # epoch in common with its master and be set aside, acked bytes included.
    if is_new and not epochs.exists():
        return epochs.create(), None
    loaded = epochs.load()
    return loaded.history, loaded.fallback_reason


def _repair_history(files: LogFiles, start: LogOffset, end: LogOffset) -> None:
    """
    Drop the entries beyond the end (rule 2), and those of deleted bytes.

    An entry (2, 1000) in a log that lost everything behind 900: the master's next bytes are of epoch 1, and those from
    1000 on would be found under epoch 2.
    """
    repaired = files.history.truncated_prefix(start).repaired(end)
    if repaired != files.history:
        files.epochs.save(repaired)
        files.history = repaired


def _gone_behind(start: LogOffset, before: EpochHistory, after: EpochHistory) -> tuple[MasterEpoch, ...]:
    """Entries that were dropped; not those of deleted bytes."""
    return tuple(one.epoch for one in before.entries if one.start_offset >= start and one not in after.entries)


def _is_end(files: LogFiles, end: LogOffset) -> bool:
    """Whether a log may end at ``end``: a cheap doubt of the clean mark, the bytes behind it are zeros."""
    if not files.segments:
        return end == 0
    last = files.segments[-1]
    for segment in files.segments:
        if segment.base <= end < segment.end:
            at = end - segment.base
            return bytes(segment.view[at : at + 8]).strip(b"\0") == b""
    return end == last.end


def _check_records(segments: list[LogSegment], start: int) -> tuple[LogOffset, int, str]:
    """End of the last good record, how many were checked, and why the next one is none."""
    records = 0
    offset = start
    for segment in segments:
        if segment.end <= offset:
            continue
        at = offset - segment.base
        try:
            while at < segment.size:
                size = blank_bytes(segment.view, at)
                if size is None:
                    size = check(segment.view, at, segment.base + at)
                    records += 1
                # A blank that does not reach the end of its segment is rubbish that looks like one.
                elif size != segment.size - at:
                    return (
                        LogOffset(segment.base + at),
                        records,
                        f"a blank of {size} bytes, {segment.size - at} are left",
                    )
                at += size
        except RecordError as error:
            return LogOffset(segment.base + at), records, str(error)
        offset = segment.end
    return LogOffset(offset), records, ""


def _rotten(segments: list[LogSegment], end: LogOffset, torn_reason: str) -> str:
    """
    Why the record at ``end``, which is none, was one, in a log that was written on this boot; empty: it may be torn.

    A process that dies leaves half of its newest record, and nothing behind it. The kernel has kept all pages since, so
    a record with a whole one behind it was whole, and was acked. Called torn, it would be cut, and the same boot would
    vouch for a log that lacks it (R3).
    """
    behind = _record_behind(segments, end)
    if behind is None:
        return ""
    return f"the record at {end} is damaged, one at {behind} is whole, and no power was lost since: {torn_reason}"


def _record_behind(segments: list[LogSegment], end: LogOffset) -> LogOffset | None:
    """The first whole record behind ``end``; None: there is none."""
    for segment in segments:
        at = max(end - segment.base, -1) + 1
        while (found := segment.find(MAGIC_COMMON, at + MAGIC_AT) - MAGIC_AT) >= at:
            try:
                check(segment.view, found, segment.base + found)
            except RecordError:
                at = found + 1
            else:
                return LogOffset(segment.base + found)
    return None


def _data_end(segments: list[LogSegment], end: LogOffset) -> LogOffset:
    """Behind the last byte that is not zero: the bytes between are a torn tail."""
    for segment in reversed(segments):
        at = max(end - segment.base, 0)
        if at >= segment.size:
            break
        found = segment.data_end(at)
        if found > at or segment.base <= end:
            return LogOffset(max(end, segment.base + found))
    return end


def _drop_empty(files: LogFiles, end: LogOffset) -> None:
    """Segments that were prepared ahead and hold nothing; the one that the log ends in stays."""
    # They were made for an end that this log may not have again: after the next cut they would be a hole in the folder.
    while len(files.segments) > 1 and files.segments[-1].base > end:
        segment = files.segments.pop()
        segment.close()
        segment.path.unlink()
