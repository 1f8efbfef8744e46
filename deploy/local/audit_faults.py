"""What the self-test of ``audit`` does to a copy of a replica, a program of its own: FAULT REPLICA OFFSET."""

from __future__ import annotations

import struct
import sys
import zlib
from pathlib import Path


def _segment_of(replica: Path, offset: int) -> tuple[Path, int]:
    """The file that ``offset`` lies in, and where in it."""
    path = max(path for path in (replica / "commitlog").iterdir() if int(path.name) <= offset)
    return path, offset - int(path.name)


def _remove_record(replica: Path, offset: int) -> None:
    """What follows in the segment moves up."""
    path, position = _segment_of(replica, offset)
    content = path.read_bytes()
    (size,) = struct.unpack_from(">I", content, position)
    path.write_bytes(content[:position] + content[position + size :] + bytes(size))


def _flip_body_byte(replica: Path, offset: int) -> None:
    path, position = _segment_of(replica, offset)
    content = bytearray(path.read_bytes())
    (sysflag,) = struct.unpack_from(">i", content, position + 36)
    hosts = (20 if sysflag & 1 << 4 else 8) + (20 if sysflag & 1 << 5 else 8)
    content[position + 40 + 8 + 8 + hosts + 12 + 4] ^= 0x01
    path.write_bytes(content)


def _flip_header_byte(replica: Path, offset: int) -> None:
    """The born time: no checksum covers it."""
    path, position = _segment_of(replica, offset)
    content = bytearray(path.read_bytes())
    content[position + 47] ^= 0x01
    path.write_bytes(content)


def _change_epoch(replica: Path, _offset: int) -> None:
    path = replica / "epochFileCheckpoint"
    count, _, first, *others = path.read_text().splitlines()
    epoch, _, start = first.partition("-")
    lines = "".join(f"{line}\n" for line in (f"{int(epoch) - 1}-{start}", *others))
    path.write_text(f"{count}\n{zlib.crc32(lines.encode()) & 0x7FFFFFFF}\n{lines}")


FAULTS = {
    "remove-record": _remove_record,
    "flip-body": _flip_body_byte,
    "flip-header": _flip_header_byte,
    "change-epoch": _change_epoch,
}

if __name__ == "__main__":
    FAULTS[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
