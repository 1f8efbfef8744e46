"""
The ports of the service to the world, and the error that it raises when it may not answer.

Here: the broker port, clocks and draws, ``NoAuthority``. Not here: the replicated log (``replication.ports``).
Implemented by ``api.broker_port``, and by fakes in ``tests/support``.
"""

from __future__ import annotations

import itertools
import random
import secrets
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from rollcall_ha.controller.contract.codes import RequestCode
from rollcall_ha.controller.contract.ids import Incarnation, RequestId
from rollcall_ha.controller.contract.replies import SetView
from rollcall_ha.controller.contract.session import ProbeAnswer
from rollcall_ha.controller.contract.timing import NS_PER_MS
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.controller.core.actions import SendProbe
from rollcall_ha.controller.replication.raft.failstop import FailStop, exit_process
from rollcall_ha.controller.runtime.authority import Authority
from rollcall_ha.controller.runtime.session_state import ConnectionId, ProbeOutcome


class NoAuthority(Exception):
    """This controller may not answer now; ``authority`` names the reason and the leader."""

    def __init__(self, authority: Authority) -> None:
        super().__init__(authority.reason or "this controller does not answer with authority")
        self.authority = authority


class BrokerPort(Protocol):
    """The broker port as the service sees it."""

    def notify(self, connection: ConnectionId, body: bytes) -> bool:
        """Push an encoded ``RoleNotice``; False if that connection is gone. Does not block."""
        ...

    def tell_brokers(self, code: RequestCode, body: bytes) -> None:
        """Push an encoded value to every session. Does not block."""
        ...

    def announce(self, view: SetView) -> None:
        """Tell the RocketMQ brokers of this set what was committed, each on its listen port. Does not block."""
        ...

    async def probe(self, probe: SendProbe) -> tuple[ProbeOutcome, ProbeAnswer | None]:
        """Ask a listen port for its incarnation, within ``probe_timeout_ms``. Never raises."""
        ...


def request_ids(prefix: str) -> Callable[[], RequestId]:
    """
    Ids that nobody else draws: a random prefix for this process, and a count.

    One draw instead of one per order: a thousand elections at once should not cost a thousand calls for randomness.
    """
    count = itertools.count(1)
    return lambda: RequestId(f"{prefix}-{next(count)}")


class Ports(Frozen):
    """Clocks and draws: everything of the service that is not deterministic."""

    monotonic_ns: Callable[[], int] = time.monotonic_ns
    wall_ms: Callable[[], int] = lambda: time.time_ns() // NS_PER_MS
    draw_epoch_jump: Callable[[], int] = lambda: random.randrange(16)  # noqa: S311 - spreads epochs, guards nothing
    diverged: Callable[[str], None] = lambda reason: exit_process(FailStop.DIVERGED, reason)
    """Ends the process: its state is not that of the majority, for the reason given."""
    new_request_id: Callable[[], RequestId] = msgspec.field(default_factory=lambda: request_ids(secrets.token_hex(12)))
    draw_incarnation: Callable[[], Incarnation] = lambda: Incarnation(secrets.token_hex(16))
    """Draws that of a RocketMQ broker's process, which names none itself."""
