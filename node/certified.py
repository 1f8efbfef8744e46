"""
Names in certificates: which process, or which person, a certificate speaks for.

Here: the URI names of a fleet, and the judgement of a peer's certificate. Not here: files and contexts (``tls``), what
a name may do (each port decides that).

Rule 1: a certificate of a fleet has exactly one URI name, ``rollcall://FLEET/KIND/...``; of brokers
``rollcall://FLEET/broker/SET/NAME``, of all other kinds ``rollcall://FLEET/KIND/NAME``. SET is the name of the set, or
``CLUSTER%2FSET`` if its cluster is not called like the fleet.
Rule 2: a revoked serial number is nobody's, however valid its certificate is.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from enum import StrEnum
from ssl import cert_time_to_seconds
from typing import Any
from urllib.parse import quote, unquote

import msgspec

SCHEME = "rollcall://"
WARNING_DAYS = 14
"""Before a certificate expires, its process and ``rollcall status`` warn of it."""


class PeerKind(StrEnum):
    """For whom a certificate speaks. The last three are people and programs that operate the fleet, by their role."""

    CONTROLLER = "controller"
    BROKER = "broker"
    CLIENT = "client"
    """A producer or consumer: it may use the listen ports of brokers, and nothing else."""
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


class CertifiedName(msgspec.Struct, frozen=True, kw_only=True):
    """One URI name. ``set_key`` is CLUSTER/SET of a broker, empty for every other kind."""

    fleet: str
    kind: PeerKind
    name: str
    set_key: str = ""

    def __str__(self) -> str:
        """As the URI that certificates carry."""
        cluster, _, name = self.set_key.partition("/")
        parts = [self.fleet, self.kind.value]
        if self.set_key:
            parts.append(name if cluster == self.fleet else self.set_key)
        return SCHEME + "/".join(quote(part, safe="") for part in (*parts, self.name))


def parse_certified_name(uri: str) -> CertifiedName:
    """Raises ``ValueError`` with the text."""
    parts = [unquote(part) for part in uri.removeprefix(SCHEME).split("/")] if uri.startswith(SCHEME) else []
    kind = parts[1] if len(parts) > 2 else ""
    is_broker = kind == PeerKind.BROKER
    if kind not in list(PeerKind) or len(parts) != (4 if is_broker else 3) or not all(parts):
        raise ValueError(f"{uri!r} is not {SCHEME}FLEET/KIND/NAME or {SCHEME}FLEET/broker/SET/NAME")
    key = (parts[2] if "/" in parts[2] else f"{parts[0]}/{parts[2]}") if is_broker else ""
    found = CertifiedName(fleet=parts[0], kind=PeerKind(kind), name=parts[-1], set_key=key)
    # Another spelling of the same name: two texts of one principal would pass by each other in the record.
    if str(found) != uri:
        raise ValueError(f"{uri!r} is not the spelling of {found}")
    return found


class PeerCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """What a certificate that our authority signed says."""

    name: CertifiedName
    serial: str
    """Hex digits, lower case, without leading zeros."""
    expires_at_ms: int
    """UTC."""

    def expires_in_days(self, now_ms: int) -> float:
        """Below 0: it has expired."""
        return (self.expires_at_ms - now_ms) / 86_400_000

    def is_half_over(self, held_ms: int, now_ms: int) -> bool:
        """Whether half of the time that it had left ``held_ms`` ago is over: its owner has probably renewed it."""
        return held_ms >= self.expires_at_ms - now_ms


class PeerRefused(ValueError):
    """This certificate does not give the peer a right to this link; the message names both values."""


class PeerRevoked(PeerRefused):
    """It would, but its serial number is revoked."""


class PeerExpired(PeerRefused):
    """It did, until it expired while the link stood."""


def serial_text(serial: int | str) -> str:
    """A serial number as it is written everywhere: hex digits, lower case, without leading zeros."""
    number = int(serial, 16) if isinstance(serial, str) else serial
    return f"{number:x}"


def judge_peer(
    found: Mapping[str, Any] | None,
    *,
    fleet: str,
    revoked: AbstractSet[str],
    expected: CertifiedName | None = None,
    kinds: AbstractSet[PeerKind] | None = None,
) -> PeerCertificate:
    """
    The peer of a link, by ``SSLSocket.getpeercert()`` behind a handshake, which has judged signature and dates.

    Args:
        found: The answer of ``getpeercert()``.
        fleet: Name of our fleet.
        revoked: Serial numbers, as ``serial_text`` writes them.
        expected: Whom we dialled; None = whoever it is.
        kinds: Who may come here; None = every kind.

    Raises:
        PeerRefused: no certificate, none of this fleet, a revoked one, or not the one that is expected.
    """
    if not found:
        raise PeerRefused("the peer showed no certificate")
    serial = serial_text(str(found["serialNumber"]))
    uris = [str(value) for kind, value in found.get("subjectAltName", ()) if kind == "URI"]
    if len(uris) != 1:
        raise PeerRefused(f"certificate {serial} has {len(uris)} URI names; it must have one, {SCHEME}FLEET/KIND/NAME")
    try:
        name = parse_certified_name(uris[0])
    except ValueError as error:
        raise PeerRefused(f"certificate {serial}: {error}") from None
    if serial in revoked:
        raise PeerRevoked(f"certificate {serial} of {name} is revoked")
    # One authority may sign for two fleets (bring your own): a broker of the other one is a stranger here.
    if name.fleet != fleet:
        raise PeerRefused(f"certificate {serial} names {name}; this fleet is {fleet}")
    if expected is not None and name != expected:
        raise PeerRefused(f"certificate {serial} names {name}; expected is {expected}")
    if kinds is not None and name.kind not in kinds:
        raise PeerRefused(f"certificate {serial} names {name}; here come: {', '.join(sorted(kinds))}")
    return PeerCertificate(name=name, serial=serial, expires_at_ms=cert_time_to_seconds(str(found["notAfter"])) * 1000)


def no_longer(certificate: PeerCertificate, *, revoked: Container[str], now_ms: int) -> PeerRefused | None:
    """
    Why a certificate that was good at its handshake gives no right any more; None: it still does. ``now_ms``: UTC.

    A handshake judges once. Not asked again, whoever is revoked would keep its rights for as long as its link holds.
    """
    if certificate.serial in revoked:
        return PeerRevoked(f"certificate {certificate.serial} of {certificate.name} is revoked")
    if certificate.expires_at_ms <= now_ms:
        at = utc_text(certificate.expires_at_ms)
        return PeerExpired(f"certificate {certificate.serial} of {certificate.name} expired at {at}")
    return None


def utc_text(at_ms: int) -> str:
    """``2026-11-22 18:25 UTC``."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
