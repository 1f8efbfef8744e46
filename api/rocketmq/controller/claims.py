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
"""

from __future__ import annotations

from collections import Counter

import msgspec

from rollcall_ha.controller.contract.principals import Principal, ProvedBy
from rollcall_ha.controller.contract.timing import NS_PER_MS
from rollcall_ha.controller.runtime.session_state import ReplicaKey

SILENCE_MS = 3_000
"""Three heartbeats of RocketMQ's default."""


class _Claim(msgspec.Struct):
    host: str
    name: str
    """Proven; empty: nothing was."""
    heard_ns: int


class Claims:
    """The claims that one controller has heard, one for each replica that spoke here. Runs on the loop."""

    def __init__(self) -> None:
        self._claims: dict[ReplicaKey, _Claim] = {}
        self.refused: Counter[str] = Counter()
        """Words in the name of another host's replica, by kind; a metric."""

    def refuse(
        self, key: ReplicaKey, caller: Principal, *, address: str, now_ns: int, what: str, is_registration: bool = False
    ) -> str:
        """
        Why ``caller`` may not speak for this replica; empty: it may, and has the claim from here on.

        ``address``: where the replica is registered, host:port. ``what``: the kind of word, as it is counted.
        """
        host = host_of(caller.address)
        name = "" if caller.proved_by is ProvedBy.NOTHING else caller.name
        claim = self._claims.get(key)
        if claim is None or self._passes(claim, host, name, home=host_of(address)) or (
            is_registration and now_ns - claim.heard_ns > SILENCE_MS * NS_PER_MS
        ):  # fmt: skip
            self._claims[key] = _Claim(host, name, now_ns)
            return ""
        self.refused[what] += 1
        holder = claim.name or claim.host
        return f"replica {key[1]} of {key[0]} speaks from {holder}, this came from {name or host}"

    def _passes(self, claim: _Claim, host: str, name: str, *, home: str) -> bool:
        # Ids, addresses and epochs are no secrets: a 1001 or 904 in the name of the master, from anybody who reaches
        # this port, would shrink its set to itself, or keep a dead one alive.
        if claim.name or name:
            return claim.name == name
        return host in (claim.host, home)


def host_of(address: str) -> str:
    """The host of host:port, in one spelling."""
    # A port that is bound to "::" sees 10.0.0.5 as ::ffff:10.0.0.5, and brokers write [fd00::5]:10911: no broker would
    # be at home on its own host.
    return address.rpartition(":")[0].strip("[]").removeprefix("::ffff:")
