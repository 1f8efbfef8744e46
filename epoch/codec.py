"""
Bytes of an epoch history: RocketMQ's ``epochFileCheckpoint``, so that its tools and replicas read ours, and we theirs.

Layout: number of entries; CRC-32 & 0x7FFFFFFF of all that follows; one ``epoch-startOffset`` per line.
Difference on purpose: an empty list has an encoding (count 0) and so can be stored (W20).
Not here: files (``store``).
"""

from __future__ import annotations

import re
import zlib

from rollcall_ha.epoch.history import EpochHistory, EpochOrderError
from rollcall_ha.epoch.model import EpochEntry, LogOffset, MasterEpoch

NUMBER_MAX = 2**63 - 1
_CRC_MASK = 0x7FFFFFFF
_UNCHECKED = 0
"""A stored CRC of 0 is not compared, as in RocketMQ."""
_NUMBER = re.compile(rb"[0-9]{1,19}")
_ENTRY = re.compile(rb"([0-9]{1,19})-([0-9]{1,19})")


class EpochFileCorrupt(ValueError):
    """These bytes are not an epoch file; the message says what is wrong with them."""


def encode_history(history: EpochHistory) -> bytes:
    body = b"".join(b"%d-%d\n" % (entry.epoch, entry.start_offset) for entry in history.entries)
    return b"%d\n%d\n" % (len(history), zlib.crc32(body) & _CRC_MASK) + body


def decode_history(data: bytes) -> EpochHistory:
    """
    Read a whole file.

    Raises:
        EpochFileCorrupt: empty, torn, a wrong count or CRC, a line that is no entry, or entries that do not grow.
    """
    lines = data.splitlines(keepends=True)
    if len(lines) < 2:
        raise EpochFileCorrupt(f"{len(data)} bytes hold no count and CRC")
    count, stored_crc = _number(lines[0], "count"), _number(lines[1], "CRC")
    body = data[len(lines[0]) + len(lines[1]) :]
    # A torn file whose CRC line says 0 ("not compared") would pass for a shorter history.
    if len(lines) - 2 != count:
        raise EpochFileCorrupt(f"it announces {count} entries and has {len(lines) - 2} lines")
    crc = zlib.crc32(body) & _CRC_MASK
    if stored_crc not in (_UNCHECKED, crc):
        raise EpochFileCorrupt(f"CRC is {crc}, stored is {stored_crc}")
    try:
        return EpochHistory(_entry(line) for line in lines[2:])
    except EpochOrderError as error:
        raise EpochFileCorrupt(str(error)) from error


def _number(line: bytes, what: str) -> int:
    digits = line.rstrip(b"\r\n")
    if digits == line or not _NUMBER.fullmatch(digits):
        raise EpochFileCorrupt(f"{what} line is {line[:40]!r}, not a number and a line end")
    return int(digits)


def _entry(line: bytes) -> EpochEntry:
    # With its line end: "3-90" may be the torn half of "3-900".
    match = _ENTRY.fullmatch(line.rstrip(b"\r\n"))
    if match is None or not line.endswith(b"\n"):
        raise EpochFileCorrupt(f"line {line[:60]!r} is not epoch-startOffset and a line end")
    epoch, start = int(match[1]), int(match[2])
    if epoch > NUMBER_MAX or start > NUMBER_MAX:
        raise EpochFileCorrupt(f"entry {epoch}-{start} is above {NUMBER_MAX}")
    return EpochEntry(epoch=MasterEpoch(epoch), start_offset=LogOffset(start))
