"""
Certificates of brokers for tests of HA links: an authority, and whoever it signs.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from rollcall_ha.controller.contract.ids import BrokerName, ClusterName, SetKey
from rollcall_ha.node.authority import Authority
from rollcall_ha.node.certified import CertifiedName, PeerKind
from rollcall_ha.node.remoting.secured import ExpectedPeer
from rollcall_ha.node.tls import Credentials, TlsFiles

FLEET = "test"
SET_KEY = SetKey(ClusterName("c1"), BrokerName("broker-a"))
"""Of ``tests.support.ha_pair.identity``."""


class BrokerAuthority:
    """One authority in a directory of its own."""

    def __init__(self, directory: Path, *, fleet: str = FLEET) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.fleet = fleet
        self._authority = Authority.create(fleet)
        self._authority.write(directory / "authority.pem", directory / "authority.key")

    def issue(
        self,
        name: str,
        *,
        kind: PeerKind = PeerKind.BROKER,
        set_key: SetKey = SET_KEY,
        days: float = 1,
        fleet: str = "",
        file: str = "",
    ) -> TlsFiles:
        """Files of a new certificate; those of the same ``file`` (or name) are replaced."""
        key = str(set_key) if kind is PeerKind.BROKER else ""
        who = CertifiedName(fleet=fleet or self.fleet, kind=kind, name=name, set_key=key)
        files = TlsFiles(
            authority=self.directory / "authority.pem",
            certificate=self.directory / f"{file or name}.pem",
            key=self.directory / f"{file or name}.key",
        )
        self._authority.issue(who, days=days).write(files.certificate, files.key)
        return files

    def peers(self, name: str, *, set_key: SetKey = SET_KEY) -> ExpectedPeer:
        """What broker ``name`` shows with a new certificate, and asks of the other end."""
        credentials = Credentials(self.issue(name, set_key=set_key), fleet=self.fleet, name=None)
        return ExpectedPeer(credentials=credentials, kinds=frozenset({PeerKind.BROKER}), set_key=str(set_key))


def stranger_context(files: TlsFiles | None, *, is_server: bool = False) -> ssl.SSLContext:
    """Of somebody who shows these files, or none, and believes everybody: also an expired certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if files is not None:
        context.load_cert_chain(files.certificate, files.key)
    return context
