"""
Where host:port leads to: a name may have several addresses, and the one that is down may be the first of them.

Here: looking a name up, off the loop. Not here: dialling (``connection``), which of several peers is the right one.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket

from rollcall_ha.node.config import split_address

ADDRESSES_MAX = 16
"""The most of one name that are tried: the resolver's first ones."""


async def addresses_of(address: str, *, first: int = 0, timeout_ms: int) -> tuple[str, ...]:
    """
    host:port of each address of the name in ``address``, beginning with number ``first`` of them, modulo their count.

    An address without a name is returned as it is. Raises ``OSError``: no such name; ``TimeoutError``; ``ConfigError``.
    """
    host, port = split_address(address)
    try:
        ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return (address,)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        # A name such as "a..b" raises this: it is no error of a look-up, and would end the process.
        raise OSError(f"{host!r} is no host name: {error}") from error
    hosts = list(dict.fromkeys(str(where[0]) for *_, where in found))[:ADDRESSES_MAX]
    if not hosts:
        raise OSError(f"{host!r} has no address")
    start = first % len(hosts)
    return tuple(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host in hosts[start:] + hosts[:start])
