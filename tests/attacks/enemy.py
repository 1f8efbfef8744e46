"""
An enemy on the network: its certificates, its links, and what it hears. Standard library sockets only.

Here: what an attacker has and sees. Not here: single attacks (``doors``, ``claims``, ``web``), verdicts (``__main__``).

Rule: of the product only the signing of certificates is used (an enemy may have a good one that was stolen); frames are
made by hand, so that a fault in our codec cannot hide one in our doors.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rollcall_ha.deploy.local.endpoints import Endpoint
from rollcall_ha.deploy.local.fleet import Fleet
from rollcall_ha.node.authority import Authority
from rollcall_ha.node.certified import CertifiedName, PeerKind
from rollcall_ha.node.config import split_address

TIMEOUT_S = 4.0
READ_BYTES = 65_536
_COUNTED = re.compile(
    r"^(rollcall_\w*(?:closed|refused|strangers|requests|ignored)\w*_total(?:\{[^}]*\})?) ([0-9.e+]+)$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Papers:
    """A certificate with its key, and the serial number that would revoke it."""

    certificate: Path
    key: Path
    serial: str


class Forger:
    """Makes certificates: by the fleet's own authority, whose key was stolen, and by one of its own."""

    def __init__(self, fleet: Fleet, directory: Path) -> None:
        """``directory``: where its files go."""
        authority = fleet.directory / "authority"
        self._fleet = fleet.file.fleet.name
        self._ours = Authority.load(authority / "ca.pem", authority / "ca.key")
        self._foreign = Authority.create(self._fleet)
        self._directory = directory
        self.authority_file = authority / "ca.pem"

    def name(self, kind: PeerKind, name: str, set_name: str = "") -> CertifiedName:
        set_key = f"{self._fleet}/{set_name}" if set_name else ""
        return CertifiedName(fleet=self._fleet, kind=kind, name=name, set_key=set_key)

    def papers(self, name: CertifiedName, *, days: float = 1, is_foreign: bool = False) -> Papers:
        """``days`` below 0: expired."""
        issued = (self._foreign if is_foreign else self._ours).issue(name, hosts=["127.0.0.1"], days=days)
        stem = self._directory / issued.serial
        found = Papers(stem.with_suffix(".pem"), stem.with_suffix(".key"), issued.serial)
        issued.write(found.certificate, found.key)
        return found


def context_with(papers: Papers | None) -> ssl.SSLContext:
    """TLS that trusts whoever answers, as an attacker does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if papers is not None:
        context.load_cert_chain(papers.certificate, papers.key)
    return context


def dial(address: str, context: ssl.SSLContext | None) -> socket.socket:
    """Raises ``OSError`` (which ``ssl.SSLError`` is)."""
    raw = socket.create_connection(split_address(address), timeout=TIMEOUT_S)
    if context is None:
        return raw
    try:
        return context.wrap_socket(raw, server_hostname="enemy")
    except OSError:
        raw.close()
        raise


def hear(link: socket.socket) -> bytes | str:
    """The next bytes, or in words how the link ended."""
    try:
        return link.recv(READ_BYTES) or "closed"
    except ssl.SSLError as error:
        return f"alert: {(error.reason or str(error)).lower().replace('_', ' ')}"
    except ConnectionError:
        return "closed"
    except TimeoutError:
        return "silence"


def tell(address: str, context: ssl.SSLContext | None, payload: bytes) -> bytes | str:
    """What comes back for ``payload`` on a new link."""
    try:
        link = dial(address, context)
    except ssl.SSLError as error:
        return f"alert: {(error.reason or str(error)).lower().replace('_', ' ')}"
    except ConnectionError:
        return "closed"
    with link:
        try:
            link.sendall(payload)
        except OSError:
            return "closed"
        return hear(link)


# --- frames ----------------------------------------------------------------------------------------------------------


def frame(code: int, body: bytes = b"", fields: Mapping[str, str] | None = None, *, opaque: int = 1) -> bytes:
    """RocketMQ remoting, JSON header."""
    header = {"code": code, "flag": 0, "language": "OTHER", "opaque": opaque, "version": 0}
    encoded = json.dumps(header | ({"extFields": dict(fields)} if fields else {})).encode()
    return struct.pack(">iI", 4 + len(encoded) + len(body), len(encoded)) + encoded + body


def answers(data: bytes) -> list[tuple[int, bytes]]:
    """(code, body) of each whole frame."""
    found, at = [], 0
    while len(data) - at >= 8:
        length, word = struct.unpack_from(">iI", data, at)
        head = word & 0xFFFFFF
        if length < 4 or len(data) - at < 4 + length:
            break
        header = json.loads(data[at + 8 : at + 8 + head])
        found.append((int(header["code"]), data[at + 8 + head : at + 4 + length]))
        at += 4 + length
    return found


def error_of(data: bytes) -> int | None:
    """The code of an HA link's last frame, which says why it ends: type 5, the code behind a length of eight bytes."""
    return int.from_bytes(data[14:18], "big") if data[:6] == b"RCHA\x01\x05" else None


# --- counters --------------------------------------------------------------------------------------------------------


class Counters:
    """Counters of refusals of all processes together, as an admin reads them."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def read(self) -> Counter[str]:
        """Sum over all processes that answer, by name with labels."""
        found: Counter[str] = Counter()
        for name in (*self._fleet.controllers, *self._fleet.brokers):
            for key, value in _COUNTED.findall(_metrics(self._fleet.health(name))):
                found[key] += int(float(value))
        return found


def _metrics(endpoint: Endpoint) -> str:
    connection = endpoint.connection(timeout_s=TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    except (OSError, http.client.HTTPException):
        return ""
    finally:
        connection.close()
