"""
Blocking links for attempts that are made by hand: bytes out, bytes in, one deadline for all of it.

Here: dial, keep, leave. Not here: what is said on them (each system's own).
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rollcall_ha.node.config import split_address
from tests.perf.field.system import ATTEMPT_MS_MAX, RefusedError

QUESTION_MS_MAX = 2_000
READ_BYTES = 64 * 1024
ANSWER_BYTES_MAX = 1024 * 1024
"""A peer that says more before the end of a line, or announces more, is not the one that was asked."""


class Link:
    """One connection; every call raises ``OSError``, ``TimeoutError`` at the deadline included."""

    def __init__(self, address: str, deadline: float) -> None:
        """Connect. ``deadline``: of ``time.monotonic``."""
        self.deadline = deadline
        self._socket = socket.create_connection(split_address(address), timeout=self._left_s())
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()

    def send(self, data: bytes) -> None:
        self._socket.settimeout(self._left_s())
        self._socket.sendall(data)

    def line(self) -> bytes:
        """The bytes up to the next line feed, without it and without a carriage return before it."""
        while (end := self._buffer.find(b"\n")) < 0:
            self._read()
        return self._take(end + 1).rstrip(b"\r\n")

    def exactly(self, count: int) -> bytes:
        if not 0 <= count <= ANSWER_BYTES_MAX:
            raise ConnectionAbortedError(f"an answer of {count} bytes; at most {ANSWER_BYTES_MAX} are read")
        while len(self._buffer) < count:
            self._read()
        return self._take(count)

    def rest(self) -> bytes:
        """All that comes until the peer closes."""
        try:
            while True:
                self._read()
        except ConnectionResetError:
            return self._take(len(self._buffer))

    def close(self) -> None:
        self._socket.close()

    def _take(self, count: int) -> bytes:
        found = bytes(self._buffer[:count])
        del self._buffer[:count]
        return found

    def _read(self) -> None:
        self._socket.settimeout(self._left_s())
        data = self._socket.recv(READ_BYTES)
        if not data:
            raise ConnectionResetError("the peer closed the link")
        self._buffer += data
        if len(self._buffer) > ANSWER_BYTES_MAX + READ_BYTES:
            raise ConnectionAbortedError(f"more than {ANSWER_BYTES_MAX} bytes of one answer")

    def _left_s(self) -> float:
        left_s = self.deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("no answer in time")
        return left_s


class Links:
    """One link for each address, kept as long as it answers. Of one thread."""

    def __init__(self, greet: Callable[[Link], None] | None = None, *, timeout_ms: int = ATTEMPT_MS_MAX) -> None:
        """``greet``: what a new link says first. ``timeout_ms``: for all that a ``with`` block does, dial included."""
        self._greet, self._timeout_ms = greet, timeout_ms
        self._kept: dict[str, Link] = {}

    @contextmanager
    def to(self, address: str) -> Iterator[Link]:
        """
        A link to ``address``. One whose block raised anything but ``RefusedError`` is left: its next answer would be that
        to the last question.
        """
        deadline = time.monotonic() + self._timeout_ms / 1000
        link = self._kept.pop(address, None)
        is_new = link is None
        if link is None:
            link = Link(address, deadline)
        link.deadline = deadline
        try:
            if is_new and self._greet is not None:
                self._greet(link)
            yield link
        except RefusedError:
            # An answer: the link is as good as before. Left, each look at a member that is no master would be a dial.
            self._kept[address] = link
            raise
        except BaseException:
            link.close()
            raise
        self._kept[address] = link

    def close(self) -> None:
        """Close every link."""
        for link in self._kept.values():
            link.close()
        self._kept.clear()


@contextmanager
def once(address: str, greet: Callable[[Link], None] | None = None) -> Iterator[Link]:
    """A link for one question of the bench's own, which is no attempt."""
    links = Links(greet, timeout_ms=QUESTION_MS_MAX)
    try:
        with links.to(address) as link:
            yield link
    finally:
        links.close()
