"""
The certificate of one process of a fleet, by its fleet file.

Here: which files and which name belong to a process. Not here: contexts (``tls``), names (``certified``), looking for
renewed files (``renewal``), which logs: a producer's program has no library of logs.

Rule: a fleet is insecure only by its own word. Without certificates, and without that word, nothing starts.
"""

from __future__ import annotations

from pathlib import Path

from rollcall_ha.node.certified import CertifiedName, PeerKind
from rollcall_ha.node.config import BrokerSection, ConfigError, FleetFile
from rollcall_ha.node.tls import Credentials, TlsFiles, TlsFilesError


def controller_name(document: FleetFile, name: str) -> CertifiedName:
    """The name in the certificate of controller ``name``."""
    return CertifiedName(fleet=document.fleet.name, kind=PeerKind.CONTROLLER, name=name)


def broker_name(document: FleetFile, name: str, section: BrokerSection) -> CertifiedName:
    """The name in the certificate of broker ``name``."""
    set_key = f"{section.cluster or document.fleet.name}/{section.set}"
    return CertifiedName(fleet=document.fleet.name, kind=PeerKind.BROKER, name=name, set_key=set_key)


def node_name(document: FleetFile, name: str) -> CertifiedName | None:
    """The name in the certificate of the controller or broker ``name``; None: the fleet file has none of that name."""
    if name in document.controllers:
        return controller_name(document, name)
    section = document.brokers.get(name)
    return None if section is None else broker_name(document, name, section)


def client_name(document: FleetFile, name: str = "client") -> CertifiedName:
    """The name in the certificate of a producer or consumer; ``rollcall init`` makes that of ``client``."""
    return CertifiedName(fleet=document.fleet.name, kind=PeerKind.CLIENT, name=name)


def files_of(document: FleetFile, name: str) -> TlsFiles:
    """Where the files of a process or person are. Raises ``ConfigError``: the fleet file has no ``tls``."""
    if document.tls is None:
        raise ConfigError(
            "the fleet file has no [tls] and does not say fleet.insecure = true; rollcall init writes both the "
            "certificates and [tls]; without them every port believes whoever connects, which the fleet file must say"
        )
    folder = document.path(document.tls.directory)
    return TlsFiles(
        authority=document.path(document.tls.authority), certificate=folder / f"{name}.pem", key=folder / f"{name}.key"
    )


def credentials_of(document: FleetFile, name: CertifiedName) -> Credentials | None:
    """
    The credentials of a process; None: the fleet is insecure and has no certificates at all. Blocks.

    In an insecure fleet with certificates the Raft links use them, and no other port does (``of_ports``).
    Raises ``ConfigError``: no ``tls`` in the fleet file, or files that do not prove ``name``.
    """
    if document.fleet.insecure and document.tls is None:
        return None
    files = files_of(document, name.name)
    try:
        return Credentials(files, fleet=document.fleet.name, name=name)
    except TlsFilesError as error:
        raise ConfigError(
            f"tls: {error}; rollcall init made these files where the fleet was founded, rollcall certs renew makes new "
            f"ones: copy {', '.join(_names(files))} from there to {files.certificate.parent}"
        ) from error


def of_ports(document: FleetFile, credentials: Credentials | None) -> Credentials | None:
    """What every port but Raft's uses; None: it is plain, and believes whoever connects."""
    return None if document.fleet.insecure else credentials


def _names(files: TlsFiles) -> tuple[str, ...]:
    return tuple(Path(file).name for file in (files.authority, files.certificate, files.key))
