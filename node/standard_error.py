"""
Standard error of a server: lines go to a thread of their own, which may fail or wait.

Here: ``LineWriter``, ``say``, ``leave``. Not here: what a line looks like (``telemetry``).

Rule 1: a line never raises and never waits, whatever lies behind the descriptor: a full partition, a pipe whose reader
has died, or one whose reader has stopped to read. It is dropped, counted, and the number told once one can be written.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import NoReturn

from prometheus_client import Counter

WAITING_BYTES_MAX = 1 << 20
"""With more of them no line is taken any more: whoever should read them has stopped."""
LAST_MS_MAX = 1_000
"""So long may the lines that wait hold up the end of a process."""

LINES_DROPPED = Counter(
    "rollcall_log_lines_dropped", "Lines of the log that standard error did not take.", registry=None
)


class LineWriter(io.TextIOBase):
    """A text file to loggers: a ``write`` is a line. From any thread."""

    def __init__(self, descriptor: int, told: Callable[[int, str], str] = lambda *_: "") -> None:
        """``told`` makes the line that says how many were dropped, and the last reason."""
        self._descriptor = descriptor
        self._told = told
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._untold, self._why = 0, ""
        self._is_torn = False
        """A line broke off in its middle: without an end before it, the next one would be unreadable, too."""
        threading.Thread(target=self._run, name="log-lines", daemon=True).start()

    def write(self, text: str) -> int:
        """Whether it reaches its place is seen later, by the thread."""
        line = text.encode(errors="backslashreplace")
        with self._changed:
            if self._waiting_bytes + len(line) > WAITING_BYTES_MAX:
                self._drop(f"{self._waiting_bytes} bytes wait for the reader")
            else:
                self._waiting.append(line)
                self._waiting_bytes += len(line)
                self._changed.notify_all()
        return len(text)

    def drain(self) -> bool:
        """Whether every line that was taken has been tried within ``LAST_MS_MAX``; waits for it."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting, LAST_MS_MAX / 1000)

    def _drop(self, why: str) -> None:
        self._untold += 1
        self._why = why
        LINES_DROPPED.inc()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                line, untold, why = self._waiting[0], self._untold, self._why
            notice = self._told(untold, why).encode(errors="backslashreplace") if untold else b""
            error = self._put(notice + line)
            with self._changed:
                if error:
                    self._drop(error)
                else:
                    self._untold -= untold
                self._waiting.popleft()
                self._waiting_bytes -= len(line)
                self._changed.notify_all()

    def _put(self, data: bytes) -> str:
        """Why it could not be written, or nothing."""
        view = memoryview(b"\n" + data if self._is_torn else data)
        try:
            while view:
                try:
                    view = view[os.write(self._descriptor, view) :]
                except BlockingIOError:
                    # Whoever shares the terminal or pipe has set it so; this thread has the time to wait.
                    _wait_for_room(self._descriptor)
                    continue
                self._is_torn = bool(view)
        except OSError as error:
            return error.strerror or repr(error)
        return ""


def _wait_for_room(descriptor: int) -> None:
    room = select.poll()
    room.register(descriptor, select.POLLOUT)
    room.poll()


_writer: LineWriter | None = None


def open_standard_error(told: Callable[[int, str], str]) -> LineWriter:
    """The process's own writer, from now on that of ``say``, too."""
    global _writer  # noqa: PLW0603 (there is one standard error)
    _writer = LineWriter(_descriptor(), told)
    atexit.register(_writer.drain)
    return _writer


def _descriptor() -> int:
    # Started with one of them closed, the first files that are opened would get its number: the next program that
    # complains on "2" would write into a journal.
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(opened, True)
    os.close(opened)
    try:
        return sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):
        return 2


def say(text: str) -> None:
    """A line for people, such as the reason of an end: behind the log, and done with after ``LAST_MS_MAX``."""
    if _writer is not None:
        _writer.write(f"{text}\n")
        _writer.drain()
        return
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def leave(code: int, reason: str = "") -> NoReturn:
    """End the process, from any thread and without running anything else of ours."""
    try:
        if reason:
            say(reason)
        elif _writer is not None:
            _writer.drain()
    finally:
        # Else what cannot be said would keep a process alive that must not go on.
        os._exit(code)
