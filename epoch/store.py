"""
The epoch history of one log on its disk.

Rule 1: ``save`` returns when the history is durable; a crash leaves the old or the new one, nothing between.
Rule 2: the ``.bak`` holds the same as the main file, not the list before it: an older list would label the newest bytes
with an older epoch, and a handshake could then keep bytes that differ (D3). So it is as durable as the main file: a
power cut behind ``save`` must not bring an older one back.
Rule 3: nothing is guessed (S28). A missing file and a damaged one are errors of their own; ``create`` is for a caller
that knows that the log is new.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from rollcall_ha.epoch.codec import EpochFileCorrupt, decode_history, encode_history
from rollcall_ha.epoch.history import EpochHistory
from rollcall_ha.node.files import replace_together

EPOCH_FILE_NAME = "epochFileCheckpoint"
BACKUP_SUFFIX = ".bak"
EPOCH_FILE_BYTES_MAX = 16 * 1024 * 1024
"""A larger file is not ours: some 400,000 epochs."""


class EpochFileMissing(FileNotFoundError):
    """Neither the epoch file nor its backup is there."""


class LoadedHistory(msgspec.Struct, frozen=True, kw_only=True):
    """What was read, and what went wrong on the way."""

    history: EpochHistory
    fallback_reason: str | None = None
    """Why the backup was used; None = the main file was good. Worth a warning; the next ``save`` mends it."""


class EpochStore:
    """Reads and writes one history; calls block on the disk and do not belong on a loop."""

    def __init__(self, path: Path) -> None:
        """``path``: the main file, usually ``<store>/epochFileCheckpoint``."""
        self._path = path
        self._backup = path.with_name(path.name + BACKUP_SUFFIX)

    def exists(self) -> bool:
        """Whether this log ever had a history."""
        return self._path.exists() or self._backup.exists()

    def load(self) -> LoadedHistory:
        """
        The stored history, from the backup if the main file is damaged or gone.

        Raises:
            EpochFileMissing: both are gone. Never taken for an empty history (S28).
            EpochFileCorrupt: one is damaged and the other one does not help.
            OSError: the disk.
        """
        try:
            return LoadedHistory(history=_read(self._path))
        except (FileNotFoundError, EpochFileCorrupt) as error:
            reason = _reason(self._path, error)
        try:
            return LoadedHistory(history=_read(self._backup), fallback_reason=reason)
        except (FileNotFoundError, EpochFileCorrupt) as error:
            reasons = f"{reason}; {_reason(self._backup, error)}"
        # An empty history for a log with bytes: all of them would be of no epoch, the handshake would find nothing in
        # common, and the whole log would be thrown away (S28). So both cases are errors, and say which one it is.
        remedy = "restore it, or wipe this replica's log and let it copy everything again"
        if self.exists():
            raise EpochFileCorrupt(f"{reasons}; {remedy}")
        raise EpochFileMissing(f"{reasons}; {remedy}")

    def create(self) -> EpochHistory:
        """
        Begin the history of a new log; durable on return.

        Raises:
            FileExistsError: there is one already.
        """
        # An epoch file that outlived its log, as after a half-done restore: overwriting it would hide that.
        if self.exists():
            raise FileExistsError(f"{self._path} or its backup exists; a log begins once")
        self.save(EpochHistory())
        return EpochHistory()

    def save(self, history: EpochHistory) -> None:
        """Replace the stored history, an empty one included (W20); durable on return. Raises ``OSError``."""
        data = encode_history(history)
        # Both at once. One after the other, a crash between would leave a backup that is one epoch older (rule 2).
        replace_together((self._path, self._backup), data, mode=0o644)


def _read(path: Path) -> EpochHistory:
    with path.open("rb") as file:
        data = file.read(EPOCH_FILE_BYTES_MAX + 1)
    if len(data) > EPOCH_FILE_BYTES_MAX:
        raise EpochFileCorrupt(f"it is larger than {EPOCH_FILE_BYTES_MAX} bytes")
    return decode_history(data)


def _reason(path: Path, error: FileNotFoundError | EpochFileCorrupt) -> str:
    return f"{path} is missing" if isinstance(error, FileNotFoundError) else f"{path}: {error}"
