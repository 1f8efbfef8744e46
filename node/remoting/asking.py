"""The handler of links on which this side asks and the peer only answers: probes, pushes, questions to a leader."""

from __future__ import annotations

from collections.abc import Sequence

from rollcall_ha.node.remoting.connection import RemotingConnection
from rollcall_ha.node.remoting.frame import Frame


class AskingOnly:
    """Implements ``FrameHandler``. Answers go to the request that waits for them, not through here."""

    def connected(self, connection: RemotingConnection) -> None:
        """The side that connects knows already."""

    def handle_requests(self, connection: RemotingConnection, frames: Sequence[Frame]) -> None:
        # The peer is not the server that this side took it for; to go on asking would take its answers for that one's.
        connection.close(f"a request from a peer that is only asked: code {frames[0].code}")

    def disconnected(self, connection: RemotingConnection, reason: str) -> None:
        """Each request that waits hears of it by itself."""
