"""
Who speaks on a link of the broker port, and what that lets it say.

Here: pure functions of a link's certificate. Not here: the door that judged it (``node.remoting.secured``), ids and
their owners (``controller.core.callers``), RocketMQ's peers, who show none (``api.rocketmq.access``).

Rule 1: in a fleet with certificates a session is a broker's, and its certificate names the only set that it speaks of.
Rule 2: where the leader is, is told to every certificate of the fleet.
"""

from __future__ import annotations

from rollcall_ha.controller.contract.codes import RefusalCode, RequestCode
from rollcall_ha.controller.contract.ids import BrokerName, ClusterName, SetKey
from rollcall_ha.controller.contract.principals import Principal, ProvedBy, Role
from rollcall_ha.controller.contract.replies import Refused
from rollcall_ha.node.certified import PeerCertificate, PeerKind

HINT = "start it with the certificate that rollcall init or rollcall certs made for a broker of this set"


def refusal_of_link(certificate: PeerCertificate | None, code: RequestCode) -> Refused | None:
    """Why this link may not ask ``code`` at all; None: it may."""
    if certificate is None:
        return _forbidden(f"{code.name} on a link without a certificate of this fleet")
    # Rule 1. A certificate of kind client lies on every machine that sends messages: with it, whoever has that machine
    # could register as a replica, and report an empty log as the truth.
    if code is not RequestCode.FIND_LEADER and certificate.name.kind is not PeerKind.BROKER:
        return _forbidden(f"{code.name} by {certificate.name}, which is no broker")
    return None


def refusal_of_set(certificate: PeerCertificate, set_key: SetKey, what: str) -> Refused | None:
    """Why a broker with this certificate may not say ``what`` of ``set_key``; None: it may."""
    if certificate.name.set_key == str(set_key):
        return None
    return _forbidden(
        f"{what} of set {set_key} by {certificate.name}", requested=str(set_key), current=certificate.name.set_key
    )


def principal_of(certificate: PeerCertificate | None, peer: str, name: str) -> Principal:
    """The caller for the record; ``name``: as it calls itself, where nobody has to prove anything."""
    # An insecure fleet: everybody is an admin (R27). As a broker without proof it would not be the owner of an id that
    # was bound while the fleet had certificates.
    if certificate is None:
        return Principal(name=name, role=Role.ADMIN, proved_by=ProvedBy.NOTHING, address=peer)
    cluster, _, set_name = certificate.name.set_key.partition("/")
    return Principal(
        name=certificate.name.name,
        role=Role.BROKER,
        proved_by=ProvedBy.CERTIFICATE,
        serial=certificate.serial,
        address=peer,
        set_key=SetKey(cluster=ClusterName(cluster), name=BrokerName(set_name)),
    )


def _forbidden(reason: str, *, requested: str | None = None, current: str | None = None) -> Refused:
    return Refused(code=RefusalCode.FORBIDDEN, reason=reason, hint=HINT, requested=requested, current=current)
