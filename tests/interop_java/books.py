"""
What the Java clients wrote down, read as it grows: acknowledgements and consumed messages.

Rule: only whole lines count, and each is read once however often is asked: callers poll.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rollcall_ha.deploy.local import ledger
from rollcall_ha.deploy.local.ledger import LEDGER_FILE_NAME, Line

CONSUMED_FILE_NAME = "consumed.tsv"
BEFORE_NS = 2_000_000_000
_decode = msgspec.json.Decoder(Line).decode


class Growing:
    """A file of lines that somebody else appends to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def lines(self) -> list[bytes]:
        """Whole lines that are new since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        end = data.rfind(b"\n") + 1
        self._offset += end
        return data[:end].splitlines()


class Books:
    """Both files of one folder."""

    def __init__(self, directory: Path) -> None:
        """Neither file need be there yet."""
        self.directory = directory
        self._ledger = Growing(directory / LEDGER_FILE_NAME)
        self._consumed_file = Growing(directory / CONSUMED_FILE_NAME)
        self._stamps: list[int] = []
        self._acked: dict[str, str] = {}
        self._consumed: dict[str, Counter[str]] = {}

    def _read_ledger(self) -> None:
        for raw in self._ledger.lines():
            line = _decode(raw)
            self._acked[line.key] = line.body_sha256
            bisect.insort(self._stamps, line.acked_at_ns)

    @property
    def stamps(self) -> list[int]:
        """When each acknowledgement came, CLOCK_MONOTONIC in ns, rising."""
        self._read_ledger()
        return self._stamps

    @property
    def acked(self) -> dict[str, str]:
        """Key -> SHA-256 of the body of each acknowledged message."""
        self._read_ledger()
        return self._acked

    @property
    def consumed(self) -> dict[str, Counter[str]]:
        """Key -> how often it came with which body."""
        for raw in self._consumed_file.lines():
            key, body, *_ = raw.decode().split("\t")
            self._consumed.setdefault(key, Counter())[body] += 1
        return self._consumed

    def acked_since(self, at_ns: int) -> int:
        """Acknowledgements from a moment on."""
        stamps = self.stamps
        return len(stamps) - bisect.bisect_left(stamps, at_ns)

    def longest_gap_s(self, at_ns: int) -> float:
        """The longest time between two acknowledgements from a moment on; NaN: there are too few."""
        return longest_gap_s(self.stamps, at_ns)

    def missing(self) -> set[str]:
        """Keys that were acknowledged and have not been consumed."""
        return set(self.acked.keys() - self.consumed.keys())


def longest_gap_s(stamps: Sequence[int], at_ns: int) -> float:
    """The longest time between two of these, which rise, from a moment on; NaN: there are too few."""
    gap = ledger.interruption(stamps[bisect.bisect_left(stamps, at_ns - BEFORE_NS) :], at_ns)
    return gap.gap_ms / 1000 if gap is not None else float("nan")
