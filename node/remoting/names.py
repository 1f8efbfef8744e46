"""
Where host:port leads to: a name may have several addresses, and the one that is down may be the first of them.

Here: looking a name up, off the loop; remembering what was found. Not here: dialling (``connection``), which of several
peers is the right one.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Any

from rollcall_ha.node.config import split_address

ADDRESSES_MAX = 16
"""The most of one name that are tried: the resolver's first ones."""
NAMES_MAX = 1_024
"""Names and ports whose addresses are remembered."""

Found = tuple[Any, ...]
"""Family, kind, protocol, name, address, as ``getaddrinfo`` gives them."""


async def addresses_of(address: str, *, first: int = 0, timeout_ms: int) -> tuple[str, ...]:
    """
    host:port of each address of the name in ``address``, beginning with number ``first`` of them, modulo their count.

    An address without a name is returned as it is. Raises ``OSError``: no such name; ``TimeoutError``; ``ConfigError``.
    """
    host, port = split_address(address)
    if is_numeric(host):
        return (address,)
    found = await looked_up(host, port, timeout_ms=timeout_ms)
    hosts = list(dict.fromkeys(str(where[0]) for *_, where in found))[:ADDRESSES_MAX]
    if not hosts:
        raise OSError(f"{host!r} has no address")
    start = first % len(hosts)
    return tuple(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host in hosts[start:] + hosts[:start])


_known: dict[tuple[str, int], list[Found]] = {}
_asking: dict[tuple[str, int], asyncio.Task[list[Found]]] = {}


async def looked_up(host: str, port: int, *, timeout_ms: int) -> list[Found]:
    """
    As ``getaddrinfo``; what it said last, if it fails now or takes longer. Raises as ``addresses_of``.

    Without that memory a failover in an outage of name servers would leave a slave without its master, and a broker
    without its controllers: none of them has moved.
    """
    loop, key = asyncio.get_running_loop(), (host, port)
    if is_numeric(host):
        return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    task = _asking.get(key)
    # One look-up of a name at a time: each holds a thread, for half a minute where no name server answers.
    if task is None or task.done() or task.get_loop() is not loop:
        task = _asking[key] = loop.create_task(_ask(host, port), name=f"look up {host}")
        # Looked at here too: it may fail when nobody waits for it any more.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return await asyncio.shield(task)
    except (OSError, TimeoutError):
        if key not in _known:
            raise
        return _known[key]


async def _ask(host: str, port: int) -> list[Found]:
    key = (host, port)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        # A name such as "a..b" raises this: it is no error of a look-up, and would end the process.
        raise OSError(f"{host!r} is no host name: {error}") from error
    finally:
        _asking.pop(key, None)
    if key in _known or len(_known) < NAMES_MAX:
        _known[key] = found
    return found


def is_numeric(host: str) -> bool:
    """Whether it is an address, for which nobody is asked."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
