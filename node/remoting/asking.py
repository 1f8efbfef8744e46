"""Links on which this side asks and the peer only answers: probes, pushes, questions to a leader."""

from __future__ import annotations

from collections.abc import Sequence

from rollcall_ha.node.config import split_address
from rollcall_ha.node.remoting.connection import RemotingConnection, connect
from rollcall_ha.node.remoting.frame import Frame
from rollcall_ha.node.remoting.links import LinkLimits
from rollcall_ha.node.remoting.secured import ExpectedPeer

FRAME_BYTES_MAX = 64 * 1024
"""An answer of such a link is small; a peer that sends more is not the one that was to be asked."""


async def dial(address: str, *, timeout_ms: int, expected: ExpectedPeer | None = None) -> RemotingConnection:
    """A link to host:port, as ``connect``. Raises as that, and ``ConfigError``."""
    host, port = split_address(address)
    limits = LinkLimits(frame_bytes_max=FRAME_BYTES_MAX, idle_ms_max=0)
    return await connect(host, port, AskingOnly(), timeout_ms=timeout_ms, limits=limits, expected=expected)


class AskingOnly:
    """Implements ``FrameHandler``. Answers go to the request that waits for them, not through here."""

    def connected(self, connection: RemotingConnection) -> None:
        """The side that connects knows already."""

    def handle_requests(self, connection: RemotingConnection, frames: Sequence[Frame]) -> None:
        # The peer is not the server that this side took it for; to go on asking would take its answers for that one's.
        connection.close(f"a request from a peer that is only asked: code {frames[0].code}")

    def disconnected(self, connection: RemotingConnection, reason: str) -> None:
        """Each request that waits hears of it by itself."""
