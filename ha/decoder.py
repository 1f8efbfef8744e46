"""
Cutting a stream of headers and bodies at its boundaries, for every HA protocol.

Not here: layouts (``codec_native``, ``codec_rocketmq``), where bodies go (``slave_link``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

FrameT = TypeVar("FrameT")


class HeaderDecoder(ABC, Generic[FrameT]):
    """
    Takes a link's bytes in pieces of any size and gives frames; never holds more than one frame's header.

    After a frame with a body, ``body_left`` counts down: the bytes are not collected here, their place is the log.
    """

    def __init__(self) -> None:
        self._header = bytearray()
        self._size = self._first_size()
        self.body_left = 0
        """Bytes of the current body that are still to come."""

    @property
    def header_wanted(self) -> int:
        """Bytes up to the next boundary: who reads at most so many never gets a byte of a body."""
        return self._size - len(self._header)

    def body_taken(self, length: int) -> None:
        """``length`` body bytes went straight to their place."""
        if not 0 < length <= self.body_left:
            raise ValueError(f"took {length} bytes of a body that has {self.body_left} left")
        self.body_left -= length

    def feed(self, data: memoryview) -> tuple[FrameT | None, int]:
        """
        Take header bytes from the front of ``data``; return a finished frame, if any, and how many bytes were taken.

        Raises:
            HaProtocolError: this link cannot go on.
        """
        if self.body_left:
            raise ValueError(f"{self.body_left} body bytes come first")
        taken = 0
        while taken < len(data):
            piece = data[taken : taken + self.header_wanted]
            self._header += piece
            taken += len(piece)
            if self.header_wanted:
                break
            header = bytes(self._header)
            self._size = self._next_size(header)
            if self._size > len(header):
                continue
            self._header.clear()
            self._size = self._first_size()
            frame, self.body_left = self._parse(header)
            return frame, taken
        return None, taken

    @abstractmethod
    def _first_size(self) -> int:
        """Bytes that say how long a header is, or more."""

    @abstractmethod
    def _next_size(self, header: bytes) -> int:
        """How long the header is, judged by what is there; ``len(header)`` = it is complete."""

    @abstractmethod
    def _parse(self, header: bytes) -> tuple[FrameT, int]:
        """The frame, and how many bytes of a body follow it."""
