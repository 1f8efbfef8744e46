"""
Who asks: the caller of one request, by its link, its header, or the word of another controller.

Here: ``identify``, pure, and whose replica a broker may speak for. Not here: what a role may do (``roles``), TLS
(``node.remoting.secured``, ``listening``), tokens (``controller.core.tokens``).

Rule 1: a certificate is judged by the link, at its handshake; nothing that a request says adds to it.
Rule 2: a bearer token is somebody by itself: with one, the certificate of the link counts for nothing. So a proxy that
has a certificate passes its callers on as themselves.
Rule 3: only a controller's link brings a caller's name along (``relay``). What comes over it without one the controller
asks for itself, with the rights of a viewer.
Rule 4: an insecure fleet believes everybody; the name is what ``X-Requested-By`` says.
"""

from __future__ import annotations

from rollcall_ha.controller.contract.ids import BrokerId, BrokerName, ClusterName, ControllerName, SetKey
from rollcall_ha.controller.contract.principals import Principal, ProvedBy, Role
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.controller.core.state import FleetState
from rollcall_ha.controller.core.tokens import TokenRefused, digest_of, judge_token
from rollcall_ha.node.certified import PeerCertificate, PeerKind, no_longer

REQUESTED_BY_CHARACTERS_MAX = 64
_ROLES = {
    PeerKind.VIEWER: Role.VIEWER,
    PeerKind.OPERATOR: Role.OPERATOR,
    PeerKind.ADMIN: Role.ADMIN,
    PeerKind.BROKER: Role.BROKER,
    # For whoever looks from a controller's machine. Controllers ask each other by ``relay``.
    PeerKind.CONTROLLER: Role.VIEWER,
}


class NotKnown(Exception):
    """Nobody known asks (401); the message says why, and never holds a secret."""


class NoRole(Exception):
    """Somebody known asks who has no role at all (403)."""


class Shown(Frozen):
    """What one request shows of its caller."""

    address: str
    """host:port of the caller's end of the link."""
    certificate: PeerCertificate | None = None
    complaint: str = ""
    """Why the certificate of the link is nobody's."""
    authorization: tuple[str, ...] = ()
    """The header, as often as it came."""
    requested_by: str = ""
    relayed_by: ControllerName | None = None
    relayed: Principal | None = None
    """Whom the controller that passes it on has proved."""


def identify(shown: Shown, fleet: FleetState, *, is_insecure: bool, now_ms: int) -> Principal:
    """The caller. ``now_ms``: UTC. Raises ``NotKnown``, ``NoRole``."""
    if is_insecure:
        return shown.relayed or Principal(
            name=printable(shown.requested_by).partition(":")[2] or printable(shown.requested_by) or Role.ADMIN,
            role=Role.ADMIN,
            proved_by=ProvedBy.NOTHING,
            address=shown.address,
        )
    if shown.relayed_by is not None:
        return _relayed(shown, fleet)
    if shown.authorization:
        return _by_token(shown, fleet, now_ms)
    if shown.complaint:
        raise NotKnown(shown.complaint)
    if shown.certificate is None:
        raise NotKnown("neither a client certificate nor a bearer token was shown")
    found = shown.certificate
    # The link is closed at the next sweep; a request that came before it is refused here.
    if (ended := no_longer(found, revoked=fleet.revoked, now_ms=now_ms)) is not None:
        raise NotKnown(str(ended))
    role = _ROLES.get(found.name.kind)
    if role is None:
        raise NoRole(f"certificate {found.serial} names {found.name}, which has no role at this port")
    return Principal(
        name=found.name.name,
        role=role,
        proved_by=ProvedBy.CERTIFICATE,
        serial=found.serial,
        address=shown.address,
        set_key=set_key_of(found.name.set_key) if role is Role.BROKER else None,
    )


def _by_token(shown: Shown, fleet: FleetState, now_ms: int) -> Principal:
    if len(shown.authorization) > 1:
        raise NotKnown(f"{len(shown.authorization)} Authorization headers; one is taken")
    scheme, _, token = shown.authorization[0].partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise NotKnown("the Authorization header is not 'Bearer TOKEN'")
    try:
        return judge_token(fleet, digest_of(token.strip()), now_ms=now_ms, address=shown.address)
    except TokenRefused as error:
        raise NotKnown(str(error)) from None


def _relayed(shown: Shown, fleet: FleetState) -> Principal:
    assert shown.relayed_by is not None
    found = shown.relayed
    if found is None:
        # Rule 3. Believed as anything more, a request that lost its caller would be the way around every role.
        return Principal(name=shown.relayed_by, role=Role.VIEWER, proved_by=ProvedBy.CERTIFICATE, address=shown.address)
    # A follower that is behind may not know yet what was revoked.
    if found.proved_by is ProvedBy.CERTIFICATE and found.serial in fleet.revoked:
        raise NotKnown(f"certificate {found.serial} of {found} is revoked")
    token = fleet.tokens.get(found.serial)
    if found.proved_by is ProvedBy.TOKEN and (token is None or token.revoked_at_ms is not None):
        raise NotKnown(f"token {found.serial} of {found} is revoked")
    return found


def set_key_of(text: str) -> SetKey:
    """``CLUSTER/SET`` of a certificate."""
    cluster, _, name = text.partition("/")
    return SetKey(ClusterName(cluster), BrokerName(name))


def printable(text: str) -> str:
    """A name for the record, of printable ASCII: it is kept for ever and shown on terminals."""
    return "".join(letter for letter in text if letter.isascii() and letter.isprintable())[:REQUESTED_BY_CHARACTERS_MAX]


def complaint_of_replica(fleet: FleetState, caller: Principal, key: SetKey, broker_id: BrokerId) -> str:
    """
    Why ``caller`` may not speak for this replica; empty: it may.

    By REST no link belongs to a replica: without this a broker of the set would say goodbye in the name of another one.
    """
    if caller.role is not Role.BROKER:
        return ""
    if caller.set_key != key:
        return f"{caller} speaks for {caller.set_key or 'no set'}, not for {key}"
    state = fleet.sets.get(key)
    replica = state.replica(broker_id) if state is not None else None
    if replica is None or not isinstance(replica.owner, str) or replica.owner == caller.name:
        return ""
    return f"broker id {broker_id} belongs to {Role.BROKER}:{replica.owner}, it was claimed by {caller}"
