"""
Addresses of controllers as the client reads them: given, named by DNS, hinted at by a peer.

Here: pure functions but for the look-up of a name. Not here: which one is asked (``client.client``).
"""

from __future__ import annotations

import socket
from urllib.parse import urlsplit


def base_url(address: str, scheme: str = "http") -> str:
    """``host:port`` as a URL; a URL stays one. Never ends in a slash. Raises ``ValueError`` with the value."""
    base = (address if "://" in address else f"{scheme}://{address}").rstrip("/")
    try:
        parts = urlsplit(base)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, or brackets that do not close
        is_good = False
    if not is_good or not base.isprintable() or " " in base:
        raise ValueError(f"{address!r} is not the address of a controller: host:port, or https://host:port")
    return base


def with_port(address: str) -> str:
    """``address`` as a person typed it. Raises ``ValueError`` as ``base_url``, and if ``host:port`` has no port."""
    # Without one the scheme's own is dialled: "connection refused" of a port 443 that nobody named.
    if "://" not in address and urlsplit(base_url(address)).port is None:
        raise ValueError(
            f"{address!r} has no port: {address}:PORT, the REST port of a controller (9200 by rollcall init)"
        )
    return address


def resolved(host: str, port: int) -> tuple[str, ...]:
    """The addresses of a name, in their order; nothing for one that cannot be resolved: the call will tell why."""
    # The two of loopback are one machine's, and each would be asked twice.
    if host == "localhost":
        return ()
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return ()
    return tuple(dict.fromkeys(str(where[0]) for *_, where in found))


def hinted(address: str | None) -> str | None:
    """The base of a leader's address or of a ``Location``; None without one. A peer's nonsense is no hint."""
    try:
        parts = urlsplit(base_url(address or ""))
    except ValueError:
        return None
    return f"{parts.scheme}://{parts.netloc}"
