"""
The folder of a fleet's authority, and what it has signed.

Here: opening and making it, its passphrase, certificates for nodes and people, the register of what was issued. Not
here: commands (``certs``, ``founding``), the signature (``node.authority``).

Rule 1: the folder stays away from every machine of the fleet; processes need ``ca.pem`` only, which their bundles have.
Rule 2: a passphrase comes from a file or the environment, never from a command line, which every user of the machine
reads.
Rule 3: what is signed is registered (``issued/SERIAL.pem``) before anybody has it: a certificate that nobody knows of
could not be revoked.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rollcall_ha.node import sealing
from rollcall_ha.node.authority import CERTIFICATE_DAYS, Authority, AuthorityError, FoundCertificate, Issued
from rollcall_ha.node.authority import read_certificate as read
from rollcall_ha.node.certified import CertifiedName, PeerKind
from rollcall_ha.node.config import FleetFile, split_address
from rollcall_ha.node.credentials import node_name
from rollcall_ha.node.files import atomic_replace

AUTHORITY_DIRECTORY = "authority"
AUTHORITY_FILE = "ca.pem"
KEY_FILE = "ca.key"
REGISTER = "issued"
MACHINES_DIRECTORY, OPERATOR_DIRECTORY, CLIENT_DIRECTORY = "machines", "operator", "client"
"""Bundles beside the authority, of a fleet that was laid out over machines."""

PASSPHRASE_VARIABLE = "ROLLCALL_AUTHORITY_PASSPHRASE"  # noqa: S105 - the name of a variable
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
PEOPLE = (PeerKind.VIEWER, PeerKind.OPERATOR, PeerKind.ADMIN, PeerKind.CLIENT)
FORGOTTEN_AFTER_DAYS = 30
"""How long an expired certificate stays in the register."""
_PERSON = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class AuthorityFolder:
    """An authority that was made or opened."""

    def __init__(self, directory: Path, authority: Authority) -> None:
        """``create`` and ``open`` make one."""
        self.directory = directory
        self._authority = authority

    @classmethod
    def create(cls, directory: Path, fleet: str, *, passphrase: bytes | None) -> AuthorityFolder:
        """Durable on return. Raises ``OSError``."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for found in registered(directory):  # of an init that was interrupted, whose authority is replaced here
            found.file.unlink()
        authority = Authority.create(fleet)
        authority.write(directory / AUTHORITY_FILE, directory / KEY_FILE, passphrase=passphrase)
        return cls(directory, authority)

    @classmethod
    def open(cls, directory: Path, *, passphrase: bytes | None) -> AuthorityFolder:
        """Raises ``AuthorityError``."""
        return cls(directory, Authority.load(directory / AUTHORITY_FILE, directory / KEY_FILE, passphrase=passphrase))

    @property
    def certificate(self) -> bytes:
        """PEM of ``ca.pem``."""
        return self._authority.certificate

    def issue(self, document: FleetFile, name: CertifiedName, *, days: float = CERTIFICATE_DAYS) -> Issued:
        """Sign and register; the key is nowhere but in the answer. Raises ``OSError``."""
        issued = self._authority.issue(name, hosts=_hosts(document, name), days=days)
        register = self.directory / REGISTER
        register.mkdir(mode=0o700, exist_ok=True)
        self._forget_expired()
        atomic_replace(register / f"{issued.serial}.pem", issued.certificate, mode=0o644)
        return issued

    def _forget_expired(self) -> None:
        oldest_ms = time.time() * 1000 - FORGOTTEN_AFTER_DAYS * 86_400_000
        for found in registered(self.directory):
            if found.expires_at_ms < oldest_ms:
                found.file.unlink(missing_ok=True)


def registered(directory: Path) -> Iterator[FoundCertificate]:
    """What the authority in ``directory`` has signed; nothing if the folder is not here. Blocks."""
    yield from found_in(directory / REGISTER)


def found_in(folder: Path) -> Iterator[FoundCertificate]:
    """Every certificate in a folder, in the order of its file names; files that hold none are left out. Blocks."""
    for file in sorted(folder.glob("*.pem")):
        if file.name != AUTHORITY_FILE:
            with suppress(AuthorityError):
                yield read(file)


def read_passphrase(file: Path | None) -> bytes | None:
    """From the file, without its line end, or else from the environment. Raises ``AuthorityError``."""
    if file is None:
        return os.environ.get(PASSPHRASE_VARIABLE, "").encode() or None
    try:
        return sealing.read_passphrase(file)
    except sealing.SealError as error:
        raise AuthorityError(str(error)) from error


def person_name(document: FleetFile, kind: PeerKind, name: str) -> CertifiedName:
    """The name of somebody who is no node. Raises ``AuthorityError``."""
    if not _PERSON.fullmatch(name):
        raise AuthorityError(f"{name!r} is not 1 to 63 letters, digits, '.', '-' and '_'")
    if kind not in PEOPLE:
        raise AuthorityError(f"kind {kind.value} is one of the fleet file's nodes; leave --kind out")
    if node_name(document, name) is not None:
        # Their files would lie over each other in one folder.
        raise AuthorityError(f"{name} is a node of the fleet file; choose another name, or leave --kind out")
    return CertifiedName(fleet=document.fleet.name, kind=kind, name=name)


def _hosts(document: FleetFile, name: CertifiedName) -> tuple[str, ...]:
    """Under which its HTTPS port is dialled by programs that compare host names: browsers, curl, monitoring."""
    if name.kind is PeerKind.BROKER:
        return (name.name, split_address(document.broker(name.name).health)[0], *LOOPBACK_NAMES)
    if name.kind is not PeerKind.CONTROLLER:
        return ()
    section = document.controller(name.name)
    return (name.name, split_address(section.rest)[0], *document.fleet.rest_names, *LOOPBACK_NAMES)
