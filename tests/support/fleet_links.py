"""Links of tests to the listen ports of a fleet's brokers, as its clients make them: by TLS, unless it is insecure."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from rollcall_ha.node.certified import PeerKind
from rollcall_ha.node.config import FLEET_FILE_NAME, FleetFile, load_fleet_file, split_address
from rollcall_ha.node.credentials import client_name, credentials_of, of_ports
from rollcall_ha.node.tls import Credentials


def client_credentials(document: FleetFile) -> Credentials | None:
    """The certificate of ``client``; None: the fleet is insecure."""
    return of_ports(document, credentials_of(document, client_name(document)))


def credentials_in_fleet(directory: Path | None) -> Credentials | None:
    """The same, of the fleet in this folder, for a process of its own; None: of no fleet of ours."""
    return None if directory is None else client_credentials(load_fleet_file(directory / FLEET_FILE_NAME))


def secured(link: socket.socket, credentials: Credentials | None) -> socket.socket:
    """This socket behind its handshake with a broker of the fleet. Raises ``OSError``, ``PeerRefused``."""
    if credentials is None:
        return link
    found: ssl.SSLSocket = credentials.client_context().wrap_socket(link)
    credentials.judge(found.getpeercert(), kinds={PeerKind.BROKER})
    return found


def listen_socket(document: FleetFile, name: str, *, timeout_s: float = 5.0) -> socket.socket:
    """A blocking link to the listen port of broker ``name``."""
    plain = socket.create_connection(split_address(document.broker(name).listen), timeout=timeout_s)
    return secured(plain, client_credentials(document))
