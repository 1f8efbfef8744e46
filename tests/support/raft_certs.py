"""Certificates for tests: one authority, one certificate per controller name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import trustme

from rollcall_ha.node.tls import TlsFiles


def make_certificates(directory: Path, names: Iterable[str]) -> dict[str, TlsFiles]:
    """A new authority in ``directory`` and, per name, a certificate whose only DNS name is that name."""
    directory.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    authority_file = directory / "authority.pem"
    authority.cert_pem.write_to_path(str(authority_file))
    made = {}
    for name in names:
        certificate = authority.issue_cert(name)
        key_file, certificate_file = directory / f"{name}.key", directory / f"{name}.pem"
        certificate.private_key_pem.write_to_path(str(key_file))
        certificate_file.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
        made[name] = TlsFiles(authority=authority_file, certificate=certificate_file, key=key_file)
    return made
