"""
One blocking link for tools that ask one thing after the other: a command line, a launcher.

Here: connect, ask, ask many at once, close. Not here: servers and anything on a loop (``connection``), the questions.
"""

from __future__ import annotations

import itertools
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from typing import Self

from rollcall_ha.node.certified import PeerRefused
from rollcall_ha.node.config import split_address
from rollcall_ha.node.remoting.frame import Frame, FrameDecoder, encode_frame
from rollcall_ha.node.remoting.secured import ExpectedPeer

ASK_TIMEOUT_MS = 3_000
READ_BYTES = 64 * 1024


class BlockingLink:
    """One connection. Not for several threads."""

    def __init__(self, address: str, *, timeout_ms: int = ASK_TIMEOUT_MS, expected: ExpectedPeer | None = None) -> None:
        """
        Connect; ``expected`` None: a plain link, to whoever listens there.

        Raises ``OSError``, with the reason if it is not the peer that is expected, and ``ConfigError`` if ``address``
        is none.
        """
        self._timeout_s = timeout_ms / 1000
        self._socket = socket.create_connection(split_address(address), timeout=self._timeout_s)
        if expected is not None:
            self._socket = _secured(self._socket, expected, address)
        self._decoder = FrameDecoder()
        self._opaques = itertools.count(1)

    def __enter__(self) -> Self:
        """Use as a context: closed at the end."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def ask(self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"") -> Frame:
        """The answer. Raises ``OSError``, ``TimeoutError`` included, and ``FrameError``: it may have been executed."""
        return self.ask_all([(code, fields or {}, body)])[0]

    def ask_all(self, requests: Sequence[tuple[int, Mapping[str, object], bytes]]) -> list[Frame]:
        """The answers in the order of the requests, which are all sent before the first is read. Raises as ``ask``."""
        waiting: dict[int, int] = {}
        out = bytearray()
        for place, (code, fields, body) in enumerate(requests):
            opaque = next(self._opaques)
            waiting[opaque] = place
            texts = {name: str(value) for name, value in fields.items()}
            out += encode_frame(Frame(code=code, opaque=opaque, ext_fields=texts or None, body=body))
        self._socket.sendall(out)
        answers: dict[int, Frame] = {}
        # Of all answers together: a peer that sends a byte now and then would keep each single read from timing out.
        deadline = time.monotonic() + self._timeout_s
        while waiting:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(waiting)} of {len(requests)} answers did not come within {self._timeout_s} s")
            data = self._socket.recv(READ_BYTES)
            if not data:
                raise ConnectionResetError("closed while an answer was awaited")
            for frame in self._decoder.feed(data):
                if frame.is_response and frame.opaque in waiting:
                    answers[waiting.pop(frame.opaque)] = frame
        return [answers[place] for place in range(len(requests))]


def _secured(plain: socket.socket, expected: ExpectedPeer, address: str) -> ssl.SSLSocket:
    """The link behind its handshake, with the peer judged. Raises ``OSError``; the socket is closed then."""
    try:
        secured = expected.credentials.client_context().wrap_socket(plain)
    except OSError:
        plain.close()
        raise
    try:
        expected.judge(secured.getpeercert())
    except PeerRefused as error:
        secured.close()
        raise ConnectionAbortedError(f"{address}: {error}") from error
    return secured
