"""The marks of a replica survive what a disk may do to them, and never fall (R9)."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollcall_ha.broker.core.durable import EpochMarks
from rollcall_ha.broker.replica_files import MARKS_FILE_NAME, SLOT_BYTES, SLOTS, MarksFile
from rollcall_ha.controller.contract.ids import MasterEpoch
from rollcall_ha.node.files import DirectoryError


def marks(promised: int, entered: int) -> EpochMarks:
    return EpochMarks(promised=MasterEpoch(promised), entered=MasterEpoch(entered))


def stored(tmp_path: Path, *values: EpochMarks) -> Path:
    path = tmp_path / MARKS_FILE_NAME
    file = MarksFile(path)
    for value in values:
        file.store(value)
    return path


def test_a_new_directory_has_promised_nothing(tmp_path: Path) -> None:
    assert MarksFile(tmp_path / MARKS_FILE_NAME).load() == EpochMarks()


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_the_newest_marks_are_found_whichever_slot_they_are_in(tmp_path: Path, count: int) -> None:
    values = [marks(number, number - 1) for number in range(1, count + 1)]
    path = stored(tmp_path, *values)

    again = MarksFile(path)
    assert again.load() == values[-1]
    again.store(marks(100, count))
    assert MarksFile(path).load() == marks(100, count)


def test_marks_never_fall(tmp_path: Path) -> None:
    """R9: neither in this process nor after a restart."""
    path = stored(tmp_path, marks(5, 4))

    for file in (MarksFile(path), MarksFile(path)):
        with pytest.raises(ValueError, match="never fall"):
            file.store(marks(4, 4))
        with pytest.raises(ValueError, match="never fall"):
            file.store(marks(6, 3))
    assert MarksFile(path).load() == marks(5, 4)


def test_a_write_that_never_began_leaves_the_marks_before(tmp_path: Path) -> None:
    """A power cut in the second write: its sector holds what it held, the other slot what was promised last."""
    path = stored(tmp_path, marks(1, 0), marks(2, 1))
    before = path.read_bytes()
    stored(tmp_path, marks(3, 2))
    after = path.read_bytes()

    changed = [slot for slot in range(SLOTS) if slot_of(before, slot) != slot_of(after, slot)]
    assert len(changed) == 1
    path.write_bytes(before)
    assert MarksFile(path).load() == marks(2, 1)


def slot_of(raw: bytes, slot: int) -> bytes:
    return raw[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES]


@pytest.mark.parametrize("slot", [0, 1])
def test_a_damaged_slot_is_an_error_and_not_an_older_promise(tmp_path: Path, slot: int) -> None:
    """Falling back to the other slot would let a mark fall by rot."""
    path = stored(tmp_path, marks(1, 0), marks(2, 1))
    raw = bytearray(path.read_bytes())
    raw[slot * SLOT_BYTES + 30] ^= 0xFF
    path.write_bytes(bytes(raw))

    with pytest.raises(DirectoryError, match=MARKS_FILE_NAME):
        MarksFile(path).load()
    with pytest.raises(DirectoryError, match=MARKS_FILE_NAME):
        MarksFile(path).store(marks(9, 9))


def test_a_cut_file_is_an_error(tmp_path: Path) -> None:
    path = stored(tmp_path, marks(2, 1))
    path.write_bytes(path.read_bytes()[:SLOT_BYTES])

    with pytest.raises(DirectoryError, match="512 bytes"):
        MarksFile(path).load()
