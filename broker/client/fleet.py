"""
The access of a program of its own to a fleet: addresses of brokers and a certificate, by the fleet file.

Here: reading the file. Not here: its shape (``node.config``), whose certificate is where (``node.credentials``).
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from rollcall_ha.node.config import BrokerSection, ConfigError, load_fleet_file
from rollcall_ha.node.credentials import client_name, credentials_of, of_ports
from rollcall_ha.node.tls import Credentials


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """How brokers are reached."""

    seeds: tuple[str, ...]
    """Their listen addresses, host:port."""
    credentials: Credentials | None
    """None: the fleet is insecure, and its links are plain."""
    set_key: str
    """CLUSTER/SET that they belong to; empty: to more than one."""


def access_of(path: str | Path, set_name: str = "") -> Access:
    """
    All brokers of a fleet file, or those of one set, and the certificate ``client`` beside it. Blocks.

    Raises ``ConfigError``: a file cannot be read or used, or has no broker, or none of that set.
    """
    document = load_fleet_file(Path(path))

    def key(section: BrokerSection) -> str:
        return f"{section.cluster or document.fleet.name}/{section.set}"

    found = [section for section in document.brokers.values() if set_name in ("", section.set)]
    if not found:
        known = ", ".join(sorted({section.set for section in document.brokers.values()})) or "none"
        raise ConfigError(f"no broker of the set {set_name!r} is in {path}; its sets: {known}")
    keys = {key(section) for section in found}
    return Access(
        seeds=tuple(section.listen for section in found),
        credentials=of_ports(document, credentials_of(document, client_name(document))),
        set_key=keys.pop() if len(keys) == 1 else "",
    )
