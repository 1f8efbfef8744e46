"""
The journal of a probe: JSON lines in files of a folder, the oldest of which go; and how other programs follow it.

Durability: a line is on disk when ``append`` returns.
Rule: readers write nothing there. They remember their ``Spot``, and a file that went before they came is not missed
aloud: it is ``FILES_MAX`` files, or ``DAYS_MAX`` days old.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from rollcall_ha.node.files import durable_unlink, fsync_directory, write_all
from rollcall_ha.probe.lines import Line, LineError, decode_line, encode_line

FILE_BYTES_MAX: Final = 1024 * 1024
"""A file that has as many is followed by a new one, and so is one of another day."""
FILES_MAX: Final = 64
DAYS_MAX: Final = 90
DAY_MS: Final = 86_400_000
GLOB: Final = "probe-*.jsonl"
READ_BYTES_MAX: Final = 64 * 1024
"""Of one look of a reader, and of one line."""


class Journal:
    """The folder belongs to one process (``node.files.DataDirectory``). Blocks; for one thread at a time."""

    def __init__(self, folder: Path) -> None:
        """Nothing is opened yet. A life begins a file of its own, so a torn line of the last one stays a last line."""
        self._folder = folder
        self._descriptor = -1
        self._bytes = self._day = 0

    def append(self, line: Line, *, now_ms: int) -> None:
        """Raises ``OSError``: what is on disk of the line is not known."""
        if self._descriptor < 0 or self._bytes >= FILE_BYTES_MAX or self._day != now_ms // DAY_MS:
            self._begin(now_ms)
        data = encode_line(line)
        write_all(self._descriptor, data)
        os.fsync(self._descriptor)
        self._bytes += len(data)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def _begin(self, now_ms: int) -> None:
        self.close()
        # A clock that was set back would give a name that is there.
        begun_ms = max([now_ms, *(begun + 1 for begun, _ in self._files())])
        path = self._folder / f"probe-{begun_ms:015d}.jsonl"
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        fsync_directory(self._folder)
        self._bytes, self._day = 0, now_ms // DAY_MS
        files = self._files()
        for number, (begun, old) in enumerate(files[:-1]):
            if len(files) - number > FILES_MAX or now_ms - begun > DAYS_MAX * DAY_MS:
                durable_unlink(old)

    def _files(self) -> list[tuple[int, Path]]:
        return files_of(self._folder)


class Spot(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Behind the last line that a reader has read."""

    file: str = ""
    """Name of the file; empty: before the first one."""
    offset_bytes: int = 0


def files_of(folder: Path) -> list[tuple[int, Path]]:
    """The files of a journal with when they were begun, in UTC ms, the oldest first; none: there is no journal yet."""
    named = ((path.stem.removeprefix("probe-"), path) for path in folder.glob(GLOB))
    return sorted((int(text), path) for text, path in named if text.isdigit())


def end_of(folder: Path) -> Spot:
    """Behind what is there now. Raises ``OSError``."""
    files = files_of(folder)
    return Spot(file=files[-1][1].name, offset_bytes=files[-1][1].stat().st_size) if files else Spot()


def read_on(folder: Path, spot: Spot) -> tuple[Spot, list[Line]]:
    """
    The whole lines behind ``spot``, ``READ_BYTES_MAX`` at most, and where reading goes on.

    What is no line that this program reads is passed by. Raises ``OSError``.
    """
    # Names are as long as each other, so their order is that of their files.
    for path in (path for _, path in files_of(folder) if path.name >= spot.file):
        offset = spot.offset_bytes if path.name == spot.file else 0
        with path.open("rb") as opened:
            opened.seek(offset)
            data = opened.read(READ_BYTES_MAX)
        # A line without its end is being written, or, in a file that has a successor, was torn by the end of a life.
        whole = data.rfind(b"\n") + 1
        if not whole and len(data) < READ_BYTES_MAX:
            continue
        behind = Spot(file=path.name, offset_bytes=offset + (whole or len(data)))
        return behind, [line for text in data[:whole].splitlines() if (line := _line(text)) is not None]
    return spot, []


def _line(text: bytes) -> Line | None:
    try:
        return decode_line(text)
    except LineError:
        return None
