"""The snapshot file, writing it, and carrying it in pieces."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rollcall_ha.controller.replication.raft.failstop import FailStop
from rollcall_ha.controller.replication.raft.snapshot import (
    SNAPSHOT_FILE_NAME,
    Piece,
    SnapshotDamagedError,
    SnapshotStore,
    decode_snapshot,
    encode_snapshot,
)
from tests.support.raft_seams import Stopped, raise_stopped
from tests.support.sim_disk import SimDisk
from tests.support.sim_kernel import Kernel

PREVIOUS, LAST = (b"\x00a", 9, 2), (b"\x00b", 10, 3)
ITEMS = [b"item-%d" % number * (number % 50) for number in range(3_000)]


def _store(
    disk: SimDisk | None = None,
    *,
    floor: Callable[[], int] = lambda: 1_000,
    run_beside: Callable[[Callable[[], None]], None] = lambda work: work(),
) -> SnapshotStore:
    disk = disk if disk is not None else SimDisk(Kernel(1), "c1")
    return SnapshotStore(disk, raise_stopped, run_beside=run_beside, floor=floor)


def test_what_is_written_is_read() -> None:
    snapshot = decode_snapshot(encode_snapshot(PREVIOUS, LAST, ITEMS))
    assert (snapshot.previous, snapshot.last, list(snapshot.items)) == (PREVIOUS, LAST, ITEMS)


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_every_damage_is_found(part: float) -> None:
    """The stock library logs it, starts empty, votes, and may lead."""
    raw = encode_snapshot(PREVIOUS, LAST, ITEMS)
    at = int(len(raw) * part)
    with pytest.raises(SnapshotDamagedError):
        decode_snapshot(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
    with pytest.raises(SnapshotDamagedError):
        decode_snapshot(raw[:at])
    with pytest.raises(SnapshotDamagedError):
        decode_snapshot(raw + b"more")


def test_a_chunk_that_is_missing_is_found() -> None:
    """Each chunk has its own checksum; the end knows how many items there are."""
    with_items = encode_snapshot(PREVIOUS, LAST, [b"x"])
    without = encode_snapshot(PREVIOUS, LAST, [])
    with pytest.raises(SnapshotDamagedError):
        decode_snapshot(without[:-21] + with_items[-21:])


def test_taking_waits_for_the_event_journal() -> None:
    """R24: compaction waits until the events before it are synced."""
    synced = [5]
    store = _store(floor=lambda: synced[0])
    store.take(lambda: iter(ITEMS), PREVIOUS, LAST)
    assert store.poll() is None
    assert store.is_writing
    synced[0] = 10
    assert store.poll() == PREVIOUS[1]
    assert store.poll() is None
    loaded = store.load()
    assert loaded is not None
    assert loaded.last == LAST


def test_a_failing_writer_stops_the_process() -> None:
    disk = SimDisk(Kernel(1), "c1")
    disk.is_full = True
    with pytest.raises(Stopped) as stopped:
        _store(disk).take(lambda: iter(ITEMS), PREVIOUS, LAST)
    assert stopped.value.code is FailStop.STORAGE


def _pieces(store: SnapshotStore) -> list[Piece]:
    pieces: list[Piece] = []
    while not pieces or not pieces[-1][2]:
        piece = store.next_piece("peer")
        assert piece is not None
        assert piece.last_index == LAST[1]
        pieces.append(piece.piece)
    return pieces


@pytest.mark.slow
def test_pieces_make_the_same_file() -> None:
    source, target_disk = _store(), SimDisk(Kernel(1), "c2")
    source.take(lambda: iter(ITEMS * 30), PREVIOUS, LAST)
    source.poll()
    target = _store(target_disk)
    pieces = _pieces(source)
    assert len(pieces) > 1
    received = [target.receive(piece) for piece in pieces]
    assert received[:-1] == [None] * (len(pieces) - 1)
    assert received[-1] is not None
    assert received[-1].last == LAST
    assert not target_disk.exists(SNAPSHOT_FILE_NAME), "not before it is asked for"
    target.keep()
    assert target.load() == received[-1]


def test_a_piece_without_a_beginning_is_ignored() -> None:
    """After a reconnect the rest of an old transmission may arrive."""
    source, target = _store(), _store()
    source.take(lambda: iter(ITEMS * 30), PREVIOUS, LAST)
    source.poll()
    assert [target.receive(piece) for piece in _pieces(source)[1:]][-1] is None


def test_a_damaged_transmission_is_refused() -> None:
    target = _store()
    with pytest.raises(SnapshotDamagedError):
        target.receive((b"nonsense", True, True))
    assert target.load() is None


def test_nothing_is_received_while_one_is_written() -> None:
    """Both would write the same temporary file."""
    work: list[Callable[[], None]] = []
    store = _store(run_beside=work.append)
    store.take(lambda: iter(ITEMS), PREVIOUS, LAST)
    content = encode_snapshot(PREVIOUS, (b"\x00b", 10, 3), ITEMS)
    assert store.receive((content, True, True)) is None
    work[0]()
    assert store.poll() == PREVIOUS[1]
