"""
Where a link's bytes lie until they are whole frames. Sans-IO.

Rule 1: the bytes of one readable event lie in a scratch buffer that all links of a thread share, and their frames are
taken there, before the next event: an idle link holds nothing.
Rule 2: an unfinished frame is copied into a buffer of the link, which grows with the bytes that came, never with the
promise of a length word. Some such buffers are used again: new memory costs more than the copy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from rollcall_ha.node.remoting.frame import cut_frames

SCRATCH_BYTES: Final = 1024 * 1024
"""
Most bytes of one readable event. A frame of 256 KiB that has come whole is taken where it lies; with a quarter of this
every such frame was copied, and puts of 256 KiB were slower by a quarter.
"""
SMALL_REST_BYTES: Final = 16 * 1024
"""So much of an unfinished frame is copied to the front of the scratch buffer, so that a batch is read behind it."""
SPARE_BYTES_MAX: Final = 1024 * 1024
SPARES_MAX: Final = 4
_NOTHING: Final = bytearray()
_NO_VIEW: Final = memoryview(_NOTHING)


class _Shared(threading.local):
    """One per thread, because two loops in two threads read at the same time."""

    def __init__(self) -> None:
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.spares: list[bytearray] = []

    def buffer(self, size: int) -> bytearray:
        """A spare one, which may be larger, or a new one."""
        for place, spare in enumerate(self.spares):
            if len(spare) >= size:
                return self.spares.pop(place)
        return bytearray(size)

    def give_back(self, buffer: bytearray) -> None:
        """Keep it for another link; no view of it is left."""
        if SMALL_REST_BYTES < len(buffer) <= SPARE_BYTES_MAX:
            self.spares.append(buffer)
            if len(self.spares) > SPARES_MAX:
                self.spares.remove(min(self.spares, key=len))


_shared = _Shared()


class ReceiveBuffer:
    """
    The bytes of one link: ``room`` for the next ones, then ``cut``, then ``keep`` when the frames were handled.

    No other link of the thread may come between ``room`` and ``keep``, unless nothing was read into the room.
    """

    __slots__ = (
        "_frame_bytes_max",
        "_header_bytes_max",
        "_own",
        "_taken",
        "_view",
        "_wanted",
        "held_bytes",
        "rest_bytes",
    )

    def __init__(self, *, frame_bytes_max: int, header_bytes_max: int) -> None:
        """Empty, and without memory of its own."""
        self._frame_bytes_max = frame_bytes_max
        self._header_bytes_max = header_bytes_max
        self._own = _NOTHING
        self._taken = self._wanted = 0
        self.rest_bytes = 0
        """Bytes of a frame that is not whole, or was not taken, yet."""
        self.held_bytes = 0
        """Memory that the rest costs."""
        self._view = _NO_VIEW
        """Where the last room was."""

    def drop(self) -> None:
        """The link is closed: hold nothing. Not given back: a batch may still have views."""
        self._own, self._view = _NOTHING, _NO_VIEW
        self.rest_bytes = self.held_bytes = 0

    def room(self) -> memoryview:
        """Where the next bytes go; never empty."""
        filled = self.rest_bytes
        if filled > SMALL_REST_BYTES:
            self._view = memoryview(self._own)
            return self._view[filled:]
        self._view = view = _shared.scratch
        if not filled:
            return view
        view[:filled] = self._own
        return view[filled:]

    def cut(self, new_bytes: int | None, take: Callable[[memoryview, int], bool]) -> int:
        """
        Hand every whole frame to ``take`` (``frame.cut_frames``); ``new_bytes`` were put into ``room``.

        None: nothing was; ``take`` refused a frame that is held, and may take it now. Returns the bytes of the frames
        that were taken. Raises as ``cut_frames``; the link cannot go on then.
        """
        if new_bytes is None:
            # Not where the last room was: other links may have read into it since.
            self._view = memoryview(self._own)
        else:
            self.rest_bytes += new_bytes
        self._taken, self._wanted = cut_frames(
            self._view,
            self.rest_bytes,
            take,
            frame_bytes_max=self._frame_bytes_max,
            header_bytes_max=self._header_bytes_max,
        )
        return self._taken

    def keep(self) -> None:
        """Copy the unfinished rest out of the way. Views that ``take`` kept must be released."""
        view, taken, filled, own = self._view, self._taken, self.rest_bytes, self._own
        self.rest_bytes = rest = filled - taken
        if not rest:
            self._own = _NOTHING
        elif rest <= SMALL_REST_BYTES:
            self._own = bytearray(view[taken:filled])
        elif taken or rest >= len(own):
            # Twice the bytes that came, not the promised length: else 8 bytes of a peer would cost 16 MiB.
            self._own = _shared.buffer(min(2 * rest, self._wanted or 2 * rest))
            self._own[:rest] = view[taken:filled]
        if own is not self._own:
            self.held_bytes = len(self._own)
            # The view would keep the buffer alive, uncounted: 100 idle links with one message of 4 MiB behind them
            # would cost 400 MiB.
            self._view = _NO_VIEW
            _shared.give_back(own)
