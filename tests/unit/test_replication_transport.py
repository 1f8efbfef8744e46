"""Links of the Raft group: what a peer that goes away while we write to it costs."""

from __future__ import annotations

import pytest

from rollcall_ha.controller.replication.raft.transport import WRITE_BYTES, RaftLink


class ResetAfterOne:
    """Written in Python, like ``ssl.SSLSocket``: the traceback of its error holds what it was given."""

    def __init__(self) -> None:
        self.sends = 0

    def send(self, data: memoryview) -> int:
        self.sends += 1
        if self.sends > 1:
            raise ConnectionResetError("the peer is gone")
        return len(data)


def test_a_peer_that_resets_in_the_middle_of_a_write_is_an_error_of_the_link() -> None:
    """It came out as a BufferError, which is no error of a link: it broke off the tick of the whole node."""
    link = RaftLink.__new__(RaftLink)
    link._out = bytearray(2 * WRITE_BYTES)
    link._socket = ResetAfterOne()  # type: ignore[assignment]
    with pytest.raises(ConnectionResetError):
        link._flush()
