"""Certificates for tests: one authority, one certificate per name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rollcall_ha.node.authority import Authority
from rollcall_ha.node.certified import CertifiedName, PeerKind
from rollcall_ha.node.tls import Credentials, TlsFiles

FLEET = "test"


def make_certificates(directory: Path, names: Iterable[str]) -> dict[str, TlsFiles]:
    """A new authority in ``directory``, and a controller's certificate for each of ``names``."""
    directory.mkdir(parents=True, exist_ok=True)
    authority = Authority.create(FLEET)
    authority.write(directory / "authority.pem", directory / "authority.key")
    for name in names:
        issued = authority.issue(CertifiedName(fleet=FLEET, kind=PeerKind.CONTROLLER, name=name), hosts=[name])
        issued.write(directory / f"{name}.pem", directory / f"{name}.key")
    return {name: files_in(directory, name) for name in names}


def files_in(directory: Path, name: str) -> TlsFiles:
    """Where ``make_certificates`` put them."""
    return TlsFiles(
        authority=directory / "authority.pem", certificate=directory / f"{name}.pem", key=directory / f"{name}.key"
    )


def credentials_in(directory: Path, name: str) -> Credentials:
    """Of ``make_certificates``."""
    return Credentials(files_in(directory, name), fleet=FLEET, name=None)


def named(kind: PeerKind, name: str, *, set_key: str = "", fleet: str = FLEET) -> CertifiedName:
    """A name of the tests' fleet."""
    return CertifiedName(fleet=fleet, kind=kind, name=name, set_key=set_key)


def issue_more(directory: Path, name: CertifiedName, *, days: float = 90) -> TlsFiles:
    """One more certificate of the authority that ``make_certificates`` has made."""
    authority = Authority.load(directory / "authority.pem", directory / "authority.key")
    file = f"{name.name}-{name.kind}-{days}"
    authority.issue(name, days=days).write(directory / f"{file}.pem", directory / f"{file}.key")
    return files_in(directory, file)


def more_credentials(directory: Path, name: CertifiedName) -> Credentials:
    """A process or person with a certificate of its own, of the authority that ``make_certificates`` has made."""
    return Credentials(issue_more(directory, name), fleet=name.fleet, name=name)
