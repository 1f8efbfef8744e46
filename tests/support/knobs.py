"""Wall clocks that can be moved and disks that can be slow or full: libraries that are loaded before libc, and files that they read."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path


def set_knob(file: Path, value: int) -> None:
    """Takes effect at the next look of the process; a clock is moved by seconds, a sync lasts milliseconds longer."""
    with file.open("r+b" if file.exists() else "wb") as held:
        held.write(struct.pack("<q", value))


def built(source: Path, library: Path) -> bool:
    """Whether ``library`` is there; it is compiled if it is not. False: there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is not None and not library.exists():
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source)]
        subprocess.run(command, check=True, timeout=60)
    return library.exists()


@contextmanager
def preloaded(libraries: Sequence[Path], **files: Path) -> Iterator[None]:
    """What is started inside the block has these libraries, each of which finds its file by a variable."""
    extra = {"LD_PRELOAD": " ".join(map(str, libraries)), **{name: str(file) for name, file in files.items()}}
    os.environ.update(extra)
    try:
        yield
    finally:
        for key in extra:
            del os.environ[key]


def fill(filler: Path) -> None:
    """To the last block: a file system that allocates late takes some more once it has written what it was given."""
    with filler.open("wb", buffering=0) as file:
        for block in (1 << 20, 1 << 12, 1 << 12):
            with suppress(OSError):
                while file.write(bytes(block)):
                    pass
            with suppress(OSError):
                os.fsync(file.fileno())
