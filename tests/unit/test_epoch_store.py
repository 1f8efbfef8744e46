"""The epoch file on disk: emptied lists are stored, damage is said, nothing is guessed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rollcall_ha.epoch.codec import EpochFileCorrupt, decode_history
from rollcall_ha.epoch.history import EpochHistory
from rollcall_ha.epoch.store import BACKUP_SUFFIX, EPOCH_FILE_NAME, EpochFileMissing, EpochStore
from tests.support.ha_logs import history


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / EPOCH_FILE_NAME


def backup_of(path: Path) -> Path:
    return path.with_name(path.name + BACKUP_SUFFIX)


def test_an_emptied_history_stays_empty_after_a_restart(path: Path) -> None:
    """W20: the reference does not write an empty list, and the old entries come back."""
    EpochStore(path).save(history((1, 0)))
    EpochStore(path).save(EpochHistory())
    loaded = EpochStore(path).load()
    assert (loaded.history, loaded.fallback_reason) == (EpochHistory(), None)


def test_a_missing_epoch_file_is_not_an_empty_history(path: Path) -> None:
    """S28: who knows that the log is new says create."""
    store = EpochStore(path)
    with pytest.raises(EpochFileMissing, match=r"is missing.*wipe"):
        store.load()
    assert store.create() == store.load().history == EpochHistory()
    with pytest.raises(FileExistsError):
        store.create()


@pytest.mark.parametrize("damage", ["torn", "gone", "empty", "flipped"])
def test_the_backup_knows_as_much_as_the_main_file(path: Path, damage: str) -> None:
    """An older list would label the newest bytes with an older epoch (D3); the reason is told."""
    store = EpochStore(path)
    store.save(history((1, 0)))
    store.save(history((1, 0), (2, 600)))
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes({"torn": data[:-3], "empty": b"", "flipped": data.replace(b"600", b"601")}[damage])
    loaded = store.load()
    assert loaded.history == history((1, 0), (2, 600))
    assert loaded.fallback_reason
    assert str(path) in loaded.fallback_reason


def test_both_damaged_is_an_error_that_names_both(path: Path) -> None:
    store = EpochStore(path)
    store.save(history((1, 0)))
    path.write_bytes(b"1\n7\n1-0\n")
    backup_of(path).unlink()
    with pytest.raises(EpochFileCorrupt, match=r"CRC is \d+, stored is 7.*bak is missing"):
        store.load()


def test_both_files_hold_the_same_bytes(path: Path) -> None:
    EpochStore(path).save(history((1, 0), (2, 600)))
    assert path.read_bytes() == backup_of(path).read_bytes()
    assert decode_history(path.read_bytes()) == history((1, 0), (2, 600))


def test_a_power_cut_brought_an_older_backup_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was never synced: with a damaged main file the newest bytes got the label of an older epoch (D3)."""
    synced: list[int] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    EpochStore(path).save(history((1, 0)))

    files, folder = {path.stat().st_ino, backup_of(path).stat().st_ino}, path.parent.stat().st_ino
    assert set(synced[:-1]) == files
    assert synced[-1] == folder
