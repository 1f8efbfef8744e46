"""The key index by RocketMQ's own algorithm, one key after the other: what any way of ours must end in, byte for byte."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rollcall_ha.broker.folds.index_file import Shape
from rollcall_ha.broker.folds.key_index import Keyed, KeyIndex

SMALL = Shape(slot_count=5, unit_count=7)
"""Chains of several keys, and a new file after six units."""
BEGAN_MS = 1_700_000_000_000


def record(
    offset: int, *keys: str, unique: str = "", at_ms: int = BEGAN_MS, topic: bytes = b"T", is_queued: bool = True
) -> Keyed:
    """A record of 100 bytes with these keys."""
    properties = "A\x01b\x02"
    if unique:
        properties += f"UNIQ_KEY\x01{unique}\x02"
    if keys:
        properties += f"KEYS\x01{' '.join(keys)}\x02"
    return topic, properties.encode(), offset, 100, at_ms, is_queued


def feed(index: KeyIndex, log: Sequence[Keyed], *, step: int = 3) -> None:
    """What the index lacks of ``log``, as the dispatcher does: from its offset on, in batches."""
    rest = [each for each in log if each[2] >= index.taken_offset]
    for at in range(0, len(rest), step):
        batch = rest[at : at + step]
        index.take_all(batch, batch[-1][2] + batch[-1][3])


def files_below(root: Path) -> dict[str, bytes]:
    """All files of the index, by name."""
    return {path.name: path.read_bytes() for path in sorted((root / "index").iterdir())}


def java_files(log: Sequence[Keyed], shape: Shape = SMALL) -> dict[str, bytes]:
    """The files that a broker of RocketMQ has of these records; their names are ours."""
    files: list[_JavaFile] = []
    for topic, properties, offset, _size, at_ms, is_queued in log:
        pairs = (pair.partition("\x01")[::2] for pair in properties.decode().split("\x02") if pair)
        found = {name: value for name, value in pairs if value}
        for key in [found.get("UNIQ_KEY", ""), *found.get("KEYS", "").split(" ")]:
            if not key or not is_queued:
                continue
            if not files or files[-1].count >= shape.unit_count:
                files.append(_JavaFile(shape, at_ms, files[-1] if files else None))
            files[-1].put(f"{topic.decode()}#{key}", offset, at_ms)
    return {file.name: file.content() for file in files}


class _JavaFile:
    def __init__(self, shape: Shape, at_ms: int, before: _JavaFile | None) -> None:
        self.shape = shape
        self.begin_ms: int = before.end_ms if before is not None else 0
        self.begin_offset: int = before.end_offset if before is not None else 0
        self.end_ms: int = self.begin_ms
        self.end_offset: int = self.begin_offset
        self.used, self.count = 0, 1
        self.slots = [0] * shape.slot_count
        self.units: list[bytes] = [bytes(20)]
        self.named_ms: int = max(at_ms, 0 if before is None else before.named_ms + 1)

    @property
    def name(self) -> str:
        seconds, milliseconds = divmod(self.named_ms, 1000)
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y%m%d%H%M%S") + f"{milliseconds:03d}"

    def put(self, text: str, offset: int, at_ms: int) -> None:
        key_hash = 0
        for character in text:
            key_hash = (key_hash * 31 + ord(character)) & 0xFFFFFFFF
        key_hash = abs(key_hash - (1 << 32) if key_hash >> 31 else key_hash)
        key_hash = 0 if key_hash == 1 << 31 else key_hash
        slot = key_hash % self.shape.slot_count
        seconds = max((at_ms - self.begin_ms) // 1000, 0) if self.begin_ms > 0 else 0
        self.units.append(struct.pack(">iqii", key_hash, offset, min(seconds, 0x7FFFFFFF), self.slots[slot]))
        self.used += self.slots[slot] == 0
        self.slots[slot] = self.count
        if self.count == 1:
            self.begin_ms, self.begin_offset = at_ms, offset
        self.count += 1
        self.end_ms, self.end_offset = at_ms, offset

    def content(self) -> bytes:
        header = struct.pack(
            ">qqqqii", self.begin_ms, self.end_ms, self.begin_offset, self.end_offset, self.used, self.count
        )
        slots = struct.pack(f">{len(self.slots)}i", *self.slots)
        return (header + slots + b"".join(self.units)).ljust(
            40 + 4 * len(self.slots) + 20 * self.shape.unit_count, b"\0"
        )
