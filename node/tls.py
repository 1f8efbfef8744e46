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

from cryptography import x509
from cryptography.exceptions import InvalidSignature


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files of one process."""

    authority: Path
    certificate: Path
    key: Path


class TlsFilesError(ValueError):
    """The files cannot prove who this process is; the message names the file and the reason."""


def check_mutual(files: TlsFiles, name: str) -> None:
    """
    Whether these files let this process be ``name`` among the others.

    Raises ``TlsFilesError``. Unchecked, a certificate of another controller, or of another fleet's authority, would be
    refused by every peer, in their logs only.
    """
    for file in (files.authority, files.certificate, files.key):
        try:
            file.read_bytes()
        except OSError as error:
            raise TlsFilesError(f"{file} cannot be read: {error.strerror}") from error
    try:
        mutual_context(files, is_server=True)
        certificate, *chain = x509.load_pem_x509_certificates(files.certificate.read_bytes())
        issuers = (*x509.load_pem_x509_certificates(files.authority.read_bytes()), *chain)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound) as error:
        raise TlsFilesError(
            f"{files.authority.name}, {files.certificate.name} and {files.key.name} in {files.certificate.parent} are "
            f"no PEM files that belong together: {error}"
        ) from error
    if not any(_is_issued_by(certificate, issuer) for issuer in issuers):
        raise TlsFilesError(f"{files.certificate} was not signed by {files.authority}")
    known = names.get_values_for_type(x509.DNSName)
    if known[:1] != [name]:
        raise TlsFilesError(f"{files.certificate} is the certificate of {', '.join(known) or 'nobody'}, not of {name}")


def _is_issued_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


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
