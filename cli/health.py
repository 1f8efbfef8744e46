"""
``rollcall health``: asks a server of this machine how it is, for supervisors that run a command.

Here: where a node of the fleet file answers, and that it is really that node. Not here: what it answers (``api.rest``,
``broker.health``), probes that ask by themselves (docs/containers.md).

Rule: yes is the answer of the node itself. Without its certificate, another process on its port would pass for it.
"""

from __future__ import annotations

import http.client
import socket
import sys
from http import HTTPStatus
from pathlib import Path

from rollcall_ha.cli.output import CommandExit, fail, wrong_use
from rollcall_ha.node.certified import CertifiedName, PeerKind, PeerRefused
from rollcall_ha.node.config import ConfigError, FleetFile, bind_address, load_fleet_file, split_address
from rollcall_ha.node.credentials import credentials_of, node_name, of_ports
from rollcall_ha.node.terminal import harmless
from rollcall_ha.node.tls import Credentials

ANSWER_S_MAX = 3.0
ANSWER_BYTES_MAX = 4096
LOOPBACK_OF = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def health(config: Path, name: str | None, *, is_ready: bool) -> None:
    """
    Print what the node says of itself.

    Args:
        config: The fleet file.
        name: Of the node; None = the name of this machine, as containers and pods have it.
        is_ready: Ask whether it is ready, and not only whether it is alive.

    Raises:
        typer.Exit: it says no (1); there is no such node, or no certificate of it (2); it does not answer (4).
    """
    with wrong_use(ConfigError):
        document = load_fleet_file(config)
        certified, (host, port) = _node(document, name or socket.gethostname())
        credentials = of_ports(document, credentials_of(document, certified))
    path = "/readyz" if is_ready else "/livez"
    try:
        status, text = _ask(host, port, path, credentials, certified)
    except (OSError, http.client.HTTPException, PeerRefused) as error:
        raise fail(f"rollcall: {certified.name} at {host}:{port}: {error}", CommandExit.UNREACHABLE) from None
    sys.stdout.write(f"{certified.name} {status}: {harmless(text)}\n")
    if status != HTTPStatus.OK:
        raise fail(f"rollcall: {certified.name} answers {status} to {path}", CommandExit.REFUSED)


def _node(document: FleetFile, name: str) -> tuple[CertifiedName, tuple[str, int]]:
    """Whom to ask, and where. Raises ``ConfigError``."""
    certified = node_name(document, name)
    if certified is None:
        known = ", ".join((*document.controllers, *document.brokers)) or "none"
        raise ConfigError(f"no node {name!r} in the fleet file, which has: {known}; name it: rollcall health NAME")
    if certified.kind is PeerKind.CONTROLLER:
        host, port = split_address(bind_address(document.controller(name), "rest"))
    else:
        host, port = split_address(bind_address(document.broker(name), "health"))
    # Bound to every address of the machine, it is asked at loopback.
    return certified, (LOOPBACK_OF.get(host, host), port)


def _ask(host: str, port: int, path: str, credentials: Credentials | None, expected: CertifiedName) -> tuple[int, str]:
    """Status and text. Raises ``OSError``, ``http.client.HTTPException`` and ``PeerRefused``."""
    connection = http.client.HTTPConnection(host, port, timeout=ANSWER_S_MAX)
    try:
        connection.connect()
        if credentials is not None:
            secured = credentials.client_context().wrap_socket(connection.sock)
            connection.sock = secured
            credentials.judge(secured.getpeercert(), expected=expected)
        connection.request("GET", path, headers={"Host": "localhost"})
        answer = connection.getresponse()
        return answer.status, answer.read(ANSWER_BYTES_MAX).decode(errors="replace").strip()
    finally:
        connection.close()
