"""
Parts of the broker that the listen port asks.

Here: the gate that says whether this replica may append, the source of routes, the topics, the answer to probes, and
the connection that answers are written to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from rollcall_ha.broker.protocol.pull import Refused
from rollcall_ha.broker.protocol.routes import RouteState
from rollcall_ha.broker.protocol.topics import TopicRow
from rollcall_ha.controller.contract.ids import MasterEpoch, SyncStateSet
from rollcall_ha.controller.contract.session import ProbeAnswer
from rollcall_ha.epoch.model import NO_EPOCH
from rollcall_ha.node.remoting.connection import RemotingConnection
from rollcall_ha.node.remoting.frame import Frame

Responder = Callable[[RemotingConnection, Frame], None]
"""
Answers a request that is no send: ``connection.respond``, now or later; on the loop thread, does not block or raise.
"""


class GateState(msgspec.Struct, frozen=True, kw_only=True):
    """May this replica append and release, as of now. Replaced as a whole whenever anything of it moves."""

    is_serving: bool
    """Master, entered ``master_epoch``, not draining, not isolated, queue offsets rebuilt."""
    master_epoch: MasterEpoch
    is_min_in_sync: bool
    """Enough members are in the local *and* the proposed set (R22): asked before the append and again at release."""
    in_sync: SyncStateSet = ()
    """Members that are caught up and linked, the master included."""
    master_address: str = ""
    """Where the master listens, as far as known; a hint for producers. Empty = unknown."""
    reason: str = ""
    """Why it is not serving, for the refusal's text."""
    is_draining: bool = False
    """About to hand over: new sends are left in their sockets until the master is known that will take them."""


class Gate:
    """Read once per batch, in the turn that appends: both run on the loop thread, so nothing can move in between."""

    def __init__(self) -> None:
        self.state = GateState(is_serving=False, master_epoch=NO_EPOCH, is_min_in_sync=False, reason="starting")

    def close(self, reason: str, master_epoch: MasterEpoch, master_address: str) -> None:
        """Nothing is appended or released from here on."""
        self.state = GateState(
            is_serving=False,
            master_epoch=master_epoch,
            is_min_in_sync=False,
            master_address=master_address,
            reason=reason,
        )


class OwnWord(Protocol):
    """What this replica tells clients and probes; ``ListenService.route_moved`` is called when ``route`` changes."""

    @property
    def route(self) -> RouteState: ...

    @property
    def probe(self) -> ProbeAnswer:
        """With the incarnation of this process (R13)."""
        ...


class Topics(Protocol):
    """The topics of a set, as far as this replica knows them (``broker.consuming.topics``)."""

    def find(self, topic: str) -> TopicRow | None:
        """None: it is not there, and no send makes it; ``absence`` says why."""
        ...

    def absence(self, topic: str) -> Refused: ...

    def unsure(self) -> Refused | None:
        """Why a refusal by a topic's settings may be false: newer ones are perhaps not known yet; None: they are."""
        ...


class AnswerSink(Protocol):
    """A client's connection, as far as answers go."""

    @property
    def peer_host(self) -> bytes:
        """4 or 16 bytes of IP and an int32 port, as records carry them."""
        ...

    def write_answers(self, data: bytes) -> None:
        """Hand whole frames to the transport; dropped silently if the connection is closed."""
        ...
