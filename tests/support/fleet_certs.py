"""Certificates of every kind for tests, of one authority: files, credentials of a port, contexts of callers."""

from __future__ import annotations

import ssl
from pathlib import Path

from rollcall_ha.cli.issuing import AUTHORITY_DIRECTORY, AUTHORITY_FILE, KEY_FILE
from rollcall_ha.client.identity import Identity
from rollcall_ha.deploy.local.endpoints import Endpoint
from rollcall_ha.deploy.local.fleet import Fleet
from rollcall_ha.node.authority import Authority
from rollcall_ha.node.certified import CertifiedName, PeerKind
from rollcall_ha.node.tls import Credentials, TlsFiles

HOSTS = ("localhost", "127.0.0.1")


class FleetCertificates:
    """An authority in ``directory``, and whatever is asked of it."""

    def __init__(self, directory: Path, fleet: str = "demo") -> None:
        self.directory = directory
        self.fleet = fleet
        directory.mkdir(parents=True, exist_ok=True)
        self._authority = Authority.create(fleet)
        self.authority_file = directory / "ca.pem"
        self._authority.write(self.authority_file, directory / "ca.key")

    def issue(self, kind: PeerKind, name: str, *, set_key: str = "", days: float = 90) -> Path:
        """A new certificate; returns its file, with the key beside it."""
        certified = CertifiedName(fleet=self.fleet, kind=kind, name=name, set_key=set_key)
        hosts = HOSTS if kind is PeerKind.CONTROLLER else ()
        issued = self._authority.issue(certified, hosts=hosts, days=days)
        file = self.directory / f"{name}.pem"
        issued.write(file, file.with_suffix(".key"))
        return file

    def credentials(self, name: str = "c1") -> Credentials:
        """Those of controller ``name``."""
        file = self.issue(PeerKind.CONTROLLER, name)
        files = TlsFiles(authority=self.authority_file, certificate=file, key=file.with_suffix(".key"))
        return Credentials(files, fleet=self.fleet, name=None)

    def caller(self, certificate: Path | None = None) -> ssl.SSLContext:
        """The context of somebody who trusts the authority, and shows ``certificate``."""
        context = Identity(authority=self.authority_file, certificate=certificate).context()
        assert context is not None
        return context


def identity_in(fleet: Fleet, kind: PeerKind, name: str, *, set_name: str = "broker-a") -> Identity:
    """Of a running fleet: a further certificate by its own authority, beside those of its nodes; brokers of a set."""
    own = fleet.file.fleet.name
    key = f"{own}/{set_name}" if kind is PeerKind.BROKER else ""
    found = fleet.identity(name)
    assert found.certificate is not None
    if not found.certificate.exists():
        # Not by the folder of the authority: it knows nodes of the fleet file only, and these need not be there.
        folder = fleet.directory / AUTHORITY_DIRECTORY
        authority = Authority.load(folder / AUTHORITY_FILE, folder / KEY_FILE)
        issued = authority.issue(CertifiedName(fleet=own, kind=kind, name=name, set_key=key))
        issued.write(found.certificate, found.certificate.with_suffix(".key"))
    return found


def as_broker(fleet: Fleet, controller: str, number: int) -> Endpoint:
    """The REST port of a controller, asked as broker ``broker-a-NUMBER``."""
    identity = identity_in(fleet, PeerKind.BROKER, f"broker-a-{number}")
    return Endpoint(address=fleet.file.controllers[controller].rest, context=identity.context())
