"""
Who may speak in the name of a RocketMQ replica: the peer that did so last, while it goes on.

Here: one claim for each replica. Not here: who the peer is (``access``), rights (``access.rights``).

RocketMQ's protocol names no session, and one broker may use several connections: heartbeats go to the controllers that
its configuration names, orders to the address that the leader told. So a claim belongs to a host, or to whoever is
proven, and not to a connection.

Rule 1: a claim passes to another link of the same host, if nobody was proven, or of the same proven name.
Rule 2: a broker on the host of the registered address takes the claim from a host that is not: nobody keeps it outside
by speaking first.
Rule 3: anybody else may register once the claim has been silent for ``SILENCE_MS``, and say nothing else.
Rule 4: heartbeats may come from one other host than orders, for a host on two networks has two addresses: the first
that sends one while the claim's host itself has sent none for ``SILENCE_MS`` since it registered.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from rollcall_ha.controller.contract.codes import RequestCode
from rollcall_ha.controller.contract.principals import Principal, ProvedBy
from rollcall_ha.controller.contract.timing import NS_PER_MS
from rollcall_ha.controller.contract.values import peer_host
from rollcall_ha.controller.runtime.session_state import ReplicaKey

SILENCE_MS = 3_000
"""Three heartbeats of RocketMQ's default."""


class _Claim(msgspec.Struct):
    host: str
    name: str
    """Proven; empty: nothing was."""
    since_ns: int
    """When it registered, or spoke here first."""
    heard_ns: int
    beats_from: str = ""
    """The host of its heartbeats; empty: none came yet."""


class Claims:
    """The claims that one controller has heard, one for each replica that spoke here. Runs on the loop."""

    def __init__(self) -> None:
        self._claims: dict[ReplicaKey, _Claim] = {}
        self.refused: Counter[str] = Counter()
        """Words in the name of another host's replica, by kind; a metric."""

    def refuse(self, key: ReplicaKey, caller: Principal, *, address: str, now_ns: int, code: int) -> str:
        """
        Why ``caller`` may not speak for this replica; empty: it may, and has the claim from here on.

        ``address``: where the replica is registered, host:port. ``code``: of the request.
        """
        host, home = peer_host(caller.address), peer_host(address)
        name = "" if caller.proved_by is ProvedBy.NOTHING else caller.name
        is_beat, registers = code == RequestCode.BROKER_HEARTBEAT, code == RequestCode.REGISTER_BROKER
        claim = self._claims.setdefault(key, _Claim(host, name, now_ns, now_ns))
        is_silent = now_ns - claim.heard_ns > SILENCE_MS * NS_PER_MS
        is_holder = self._passes(claim, host, name, home=home) or (registers and is_silent)
        if not is_holder and not (is_beat and self._is_second_network(claim, host, name, now_ns)):
            self.refused[str(code)] += 1
            holder = claim.name or claim.host
            return f"replica {key[1]} of {key[0]} speaks from {holder}, this came from {name or host}"
        if registers:
            claim = self._claims[key] = _Claim(host, name, now_ns, now_ns)
        elif is_holder:
            claim.host, claim.name = host, name
        claim.heard_ns = now_ns
        if is_beat:
            claim.beats_from = host
        return ""

    def _passes(self, claim: _Claim, host: str, name: str, *, home: str) -> bool:
        # Ids, addresses and epochs are no secrets: a 1001 or 904 in the name of the master, from anybody who reaches
        # this port, would shrink its set to itself, or keep a dead one alive.
        if claim.name or name:
            return claim.name == name
        return host in (claim.host, home)

    def _is_second_network(self, claim: _Claim, host: str, name: str, now_ns: int) -> bool:
        if claim.name or name:
            return False
        # Rule 4. Without it a living broker on two networks counts as silent. With any host's heartbeats, or before the
        # broker had time for its own, a stranger could keep a dead one alive.
        is_due = now_ns - claim.since_ns > SILENCE_MS * NS_PER_MS
        return claim.beats_from == host or (not claim.beats_from and is_due)
