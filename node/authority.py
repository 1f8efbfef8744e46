"""
The private certificate authority of a fleet: made once, kept apart from all machines, signs everything else.

Here: making it, reading it, issuing certificates, reading what was issued. Not here: names (``certified``), use of
certificates (``tls``), which certificates a fleet needs (``cli.founding``), where they lie (``cli.issuing``).

Rule 1: a certificate names one process or person by its URI name; only a controller's names hosts, too, so that a
caller of its REST port who compares host names cannot be met by a broker.
Rule 2: private keys are readable by their owner only; that of the authority is encrypted if a passphrase is given.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rollcall_ha.node.certified import CertifiedName, parse_certified_name, serial_text
from rollcall_ha.node.files import atomic_replace, read_secret

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 90
BACKDATED = timedelta(days=1)
"""Clocks of machines differ, and are set: by five minutes alone, a leader whose clock went back by an hour refused each
certificate of the last hour, a whole fleet right after ``certs renew --all``."""
_PEM = serialization.Encoding.PEM


class AuthorityError(ValueError):
    """The authority's files cannot be used; the message names the file, the reason and the remedy."""


class Issued(msgspec.Struct, frozen=True, kw_only=True):
    """A new certificate with its key, PEM; nothing of it is on a disk yet."""

    name: CertifiedName
    serial: str
    expires_at_ms: int
    certificate: bytes
    key: bytes

    def write(self, certificate_file: Path, key_file: Path) -> None:
        """Durable on return, the key first. Raises ``OSError``."""
        # A process that looks in between finds a key that does not fit, keeps its old pair, and looks again.
        atomic_replace(key_file, self.key, mode=0o600)
        atomic_replace(certificate_file, self.certificate, mode=0o644)


class ShownCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate as it is: nobody has judged its signature, its dates or its fleet."""

    name: CertifiedName | None
    """None: it has no URI name of ours."""
    subject: str
    """Its common name, or empty."""
    serial: str
    expires_at_ms: int


class FoundCertificate(ShownCertificate, frozen=True, kw_only=True):
    """The first certificate of a file."""

    file: Path


def read_certificate(file: Path) -> FoundCertificate:
    """Raises ``AuthorityError``: it cannot be read, or is no certificate."""
    try:
        found = x509.load_pem_x509_certificate(file.read_bytes())
    except OSError as error:
        raise AuthorityError(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise AuthorityError(f"{file} holds no certificate (PEM): {error}") from error
    shown = _shown(found)
    return FoundCertificate(
        file=file,
        name=shown.name,
        subject=shown.subject,
        serial=shown.serial,
        expires_at_ms=shown.expires_at_ms,
    )


def read_shown(der: bytes) -> ShownCertificate:
    """A peer's certificate as it came over the link. Raises ``AuthorityError``: it cannot be read."""
    try:
        return _shown(x509.load_der_x509_certificate(der))
    except ValueError as error:
        raise AuthorityError(f"the peer's certificate cannot be read: {error}") from error


def _shown(found: x509.Certificate) -> ShownCertificate:
    common = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return ShownCertificate(
        name=_uri_name(found),
        subject=str(common[0].value) if common else "",
        serial=serial_text(found.serial_number),
        expires_at_ms=int(found.not_valid_after_utc.timestamp() * 1000),
    )


def _uri_name(certificate: x509.Certificate) -> CertifiedName | None:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
        return parse_certified_name(uris[0]) if len(uris) == 1 else None
    except (x509.ExtensionNotFound, ValueError):
        return None


class Authority:
    """Certificate and key in memory."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        """Made by ``create`` and ``load``."""
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls, fleet: str, *, days: int = AUTHORITY_DAYS) -> Authority:
        """A new one, which signs itself."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{fleet} authority")])
        builder = _builder(subject, subject, key.public_key(), key.public_key(), days, is_authority=True)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, certificate_file: Path, key_file: Path, *, passphrase: bytes | None = None) -> Authority:
        """Raises ``AuthorityError``."""
        for file in (certificate_file, key_file):
            if not file.is_file():
                raise AuthorityError(f"{file} is not there; name the folder with the authority's ca.pem and ca.key")
        try:
            certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
            key = serialization.load_pem_private_key(read_secret(key_file), passphrase)
        except TypeError as error:
            remedy = "it is encrypted: give its passphrase" if passphrase is None else "it is not: give no passphrase"
            raise AuthorityError(f"{key_file}: {remedy}") from error
        except (OSError, ValueError) as error:
            raise AuthorityError(f"{certificate_file} and {key_file} cannot be used: {error}") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise AuthorityError(f"{key_file} is not the elliptic-curve key of {certificate_file}")
        return cls(certificate, key)

    @property
    def certificate(self) -> bytes:
        """PEM: what every process of the fleet trusts."""
        return self._certificate.public_bytes(_PEM)

    def write(self, certificate_file: Path, key_file: Path, *, passphrase: bytes | None = None) -> None:
        """Durable on return. Raises ``OSError``."""
        encryption = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
        private = self._key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, encryption)
        atomic_replace(key_file, private, mode=0o600)
        atomic_replace(certificate_file, self.certificate, mode=0o644)

    def issue(self, name: CertifiedName, *, hosts: Iterable[str] = (), days: float = CERTIFICATE_DAYS) -> Issued:
        """``hosts``: names and addresses under which a controller's REST port is reached. ``days`` < 0: expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name.name)])
        builder = _builder(
            subject, self._certificate.subject, key.public_key(), self._key.public_key(), days, is_authority=False
        )
        names = [x509.UniformResourceIdentifier(str(name)), *_host_names(hosts)]
        certificate = builder.add_extension(x509.SubjectAlternativeName(names), critical=False).sign(
            self._key, hashes.SHA256()
        )
        return Issued(
            name=name,
            serial=serial_text(certificate.serial_number),
            expires_at_ms=int(certificate.not_valid_after_utc.timestamp() * 1000),
            certificate=certificate.public_bytes(_PEM),
            key=key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        )


def _host_names(hosts: Iterable[str]) -> Sequence[x509.GeneralName]:
    found: list[x509.GeneralName] = []
    for host in dict.fromkeys(hosts):
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            found.append(x509.DNSName(host))
    return found


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
    days: float,
    *,
    is_authority: bool,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    ends = now + timedelta(days=days)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, ends) - BACKDATED)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=is_authority,
                crl_sign=is_authority,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
    )
    if is_authority:
        return builder
    usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    return builder.add_extension(usages, critical=False)
