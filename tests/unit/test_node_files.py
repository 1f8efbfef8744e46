"""Files that survive: what is there after each function, and after a crash in the middle."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rollcall_ha.node.files import DataDirectory, DirectoryError, atomic_replace, durable_unlink


def test_atomic_replace_replaces_and_leaves_no_temporary(tmp_path: Path) -> None:
    """New content, one file, private mode."""
    path = tmp_path / "state"
    atomic_replace(path, b"one")
    atomic_replace(path, b"two")

    assert path.read_bytes() == b"two"
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_torn_temporary_of_a_crash_does_not_disturb(tmp_path: Path) -> None:
    """What a crash left beside the file is overwritten by the next replace."""
    path = tmp_path / "state"
    atomic_replace(path, b"good")
    (tmp_path / "state.tmp").write_bytes(b"to")

    assert path.read_bytes() == b"good"
    atomic_replace(path, b"better")
    assert path.read_bytes() == b"better"


def test_durable_unlink_twice(tmp_path: Path) -> None:
    """Removing what is gone is fine."""
    path = tmp_path / "mark"
    path.write_bytes(b"x")

    durable_unlink(path)
    durable_unlink(path)

    assert not path.exists()


def test_a_directory_belongs_to_one_process(tmp_path: Path) -> None:
    """A second claim is refused by name until the first is released."""
    first = DataDirectory.claim(tmp_path / "data", kind="broker", version=1)
    with pytest.raises(DirectoryError, match="in use"):
        DataDirectory.claim(tmp_path / "data", kind="broker", version=1)
    first.release()

    second = DataDirectory.claim(tmp_path / "data", kind="broker", version=1)
    assert second.was_empty
    second.release()


@pytest.mark.parametrize(("kind", "version"), [("controller", 1), ("broker", 2)])
def test_a_directory_of_another_kind_or_version_is_refused_with_both_values(
    tmp_path: Path, kind: str, version: int
) -> None:
    """Versioned data directories."""
    DataDirectory.claim(tmp_path, kind="broker", version=1).release()

    with pytest.raises(DirectoryError, match=rf"'broker 1'.*'{kind} {version}'"):
        DataDirectory.claim(tmp_path, kind=kind, version=version)


def test_a_foreign_directory_is_refused(tmp_path: Path) -> None:
    """Files that we did not write are not touched."""
    (tmp_path / "precious").write_text("mine")

    with pytest.raises(DirectoryError, match="not ours"):
        DataDirectory.claim(tmp_path, kind="broker", version=1)


@pytest.mark.parametrize("entry", ["precious", "VERSION"])
def test_a_claim_that_is_refused_changes_nothing(tmp_path: Path, entry: str) -> None:
    """Not even by a lock file, in a folder of somebody else's."""
    (tmp_path / entry).write_text("database 7\n")

    with pytest.raises(DirectoryError):
        DataDirectory.claim(tmp_path, kind="broker", version=1)

    assert [file.name for file in tmp_path.iterdir()] == [entry]


@pytest.mark.parametrize("entry", ["lost+found", ".snapshot"])
def test_the_root_of_a_volume_is_empty_but_for_what_its_file_system_keeps_there(tmp_path: Path, entry: str) -> None:
    """A claim of a volume in Kubernetes is mounted so."""
    (tmp_path / entry).mkdir()

    try:
        claimed = DataDirectory.claim(tmp_path, kind="broker", version=1)
    except DirectoryError as error:
        pytest.fail(str(error))

    assert claimed.was_empty
    claimed.release()


@pytest.mark.parametrize("below", ["", "/deeper"])
def test_a_data_directory_that_is_a_file_is_refused_with_the_remedy(tmp_path: Path, below: str) -> None:
    file = tmp_path / "data"
    file.write_text("x")

    with pytest.raises(DirectoryError, match="is no folder"):
        DataDirectory.claim(Path(f"{file}{below}"), kind="broker", version=1)


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_a_data_directory_that_cannot_be_written_was_told_as_a_number_and_a_lock_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Still an ``OSError``: a supervisor starts the process again, also when the disk is back."""

    def refused(path: Path, *_: int) -> int:
        raise OSError(code, os.strerror(code), str(path))

    monkeypatch.setattr("os.open", refused)
    with pytest.raises(OSError, match=os.strerror(code)) as caught:
        DataDirectory.claim(tmp_path, kind="broker", version=1)

    told = f"{tmp_path} cannot be written ({os.strerror(code)}): mount it read-write, and let user {os.getuid()} own it"
    assert caught.value.errno == code
    assert (told in str(caught.value)) == (code != errno.ENOSPC)
