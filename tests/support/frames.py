"""Frames out of bytes of any pieces, for peers of a test: the product reads them where they lie (``node.remoting``)."""

from __future__ import annotations

from rollcall_ha.node.remoting.connection import RemotingConnection
from rollcall_ha.node.remoting.frame import FRAME_BYTES_MAX, Frame, cut_frames, decode_frame


class FrameDecoder:
    """Collects bytes of any pieces until frames are whole; holds at most one incomplete frame."""

    def __init__(self, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        """``frame_bytes_max`` counts the length word, as the reference's limit does."""
        self._buffer = bytearray()
        self._frame_bytes_max = frame_bytes_max

    @property
    def buffered_bytes(self) -> int:
        """Bytes of a frame that is not whole yet."""
        return len(self._buffer)

    def feed(self, data: bytes | memoryview) -> list[Frame]:
        """Frames that became whole, in order. Raises ``FrameError``; the decoder is not usable afterwards."""
        frames: list[Frame] = []

        def take(part: memoryview, _: int) -> bool:
            frames.append(decode_frame(part))
            return True

        self._buffer += data
        with memoryview(self._buffer) as view:
            taken, _ = cut_frames(view, len(view), take, frame_bytes_max=self._frame_bytes_max)
        if taken:
            del self._buffer[:taken]
        return frames


class QuietHandler:
    """A ``FrameHandler`` but for its frames: nothing is asked before the first one, and nothing is kept of a link."""

    def connected(self, connection: RemotingConnection) -> None: ...

    def disconnected(self, connection: RemotingConnection, reason: str) -> None: ...
