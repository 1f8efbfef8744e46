"""
TLS from files: mutual between processes of one fleet, with the name that a peer proved; one-sided for the broker port.

Rule: between controllers TLS 1.3, a certificate on both sides, signed by the fleet's own authority; the identity is the
DNS name in it.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files of one process."""

    authority: Path
    certificate: Path
    key: Path


def mutual_context(files: TlsFiles, *, is_server: bool) -> ssl.SSLContext:
    """
    A context that trusts the fleet's authority only. The caller checks the name (``peer_name``).

    Raises ``OSError`` or ``ssl.SSLError`` if a file is missing, or is no certificate or key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # The name is not that of a host: the caller compares it with the name of the controller that it dialled.
    context.check_hostname = False
    # Without it, anybody who reaches the Raft port could vote.
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(files.authority)
    context.load_cert_chain(files.certificate, files.key)
    return context


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """
    A context that shows a certificate and asks for none, from TLS 1.2 on, as RocketMQ's clients expect it.

    Raises ``OSError`` or ``ssl.SSLError`` if a file is missing, or is no certificate or key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    return context


def peer_name(certificate: Mapping[str, Any] | None) -> str | None:
    """First DNS name of ``SSLSocket.getpeercert()``'s answer; None if there is none."""
    for kind, name in (certificate or {}).get("subjectAltName", ()):
        if kind == "DNS":
            return str(name)
    return None
