"""
The journal of a probe: JSON lines in files of a folder, the oldest of which go.

Durability: a line is on disk when ``append`` returns.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from rollcall_ha.node.files import durable_unlink, fsync_directory, write_all
from rollcall_ha.probe.lines import Line, encode_line

FILE_BYTES_MAX: Final = 1024 * 1024
"""A file that has as many is followed by a new one, and so is one of another day."""
FILES_MAX: Final = 64
DAYS_MAX: Final = 90
DAY_MS: Final = 86_400_000
GLOB: Final = "probe-*.jsonl"


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
        named = ((path.stem.removeprefix("probe-"), path) for path in self._folder.glob(GLOB))
        return sorted((int(text), path) for text, path in named if text.isdigit())
