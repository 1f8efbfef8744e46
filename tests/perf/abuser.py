"""
A bad neighbourhood: everything that a peer can do wrong on a controllers' broker port, at fixed rates, in one process.

    python -m tests.perf.abuser HOST:PORT...

Rates are low enough that what is measured is the port, not a machine without any processor left. Runs until it is ended.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import socket
import struct
from collections.abc import Awaitable, Callable

from rollcall_ha.controller.contract.codes import RequestCode
from rollcall_ha.node.config import split_address
from rollcall_ha.node.remoting.frame import Frame, encode_frame

IDLE_LINKS = 1_000
SLOW_SENDERS = 50
NON_READERS = 5
GARBAGE_PER_S = 20
HUGE_PER_S = 20
DEEP_PER_S = 10
PROBES_PER_S = 100
DRIP_S = 0.2
DEEP = b'{"code":1,"opaque":1,"x":' + b"[" * 50_000
DEEP_HEADER = struct.pack(">iI", 4 + len(DEEP), len(DEEP)) + DEEP
DEEP_BODY = encode_frame(Frame(code=RequestCode.SESSION_HEARTBEAT, opaque=1, body=b'{"a":' * 50_000))
QUESTION = encode_frame(Frame(code=RequestCode.FIND_LEADER, opaque=1))
RESET = struct.pack("ii", 1, 0)

Deed = Callable[[str, int], Awaitable[None]]


async def send_and_wait(host: str, port: int, data: bytes) -> None:
    """Send, and read until the other end has had enough."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(data)
        async with asyncio.timeout(2):
            await reader.read()
    except (OSError, TimeoutError):
        pass
    finally:
        writer.transport.abort()


async def garbage(host: str, port: int) -> None:
    await send_and_wait(host, port, random.Random().randbytes(400))


async def huge_length(host: str, port: int) -> None:
    await send_and_wait(host, port, struct.pack(">iI", 2**31 - 1, 10) + b"x" * 1_000)


async def deep_json(host: str, port: int) -> None:
    await send_and_wait(host, port, random.Random().choice((DEEP_HEADER, DEEP_BODY)))


async def probe(host: str, port: int) -> None:
    """Connect and leave, every second time by a reset."""
    loop = asyncio.get_running_loop()
    with socket.socket() as link:
        link.setblocking(False)
        await loop.sock_connect(link, (host, port))
        if random.Random().random() < 0.5:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


async def idle(host: str, port: int) -> None:
    """Stay; come again when sent away."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        await reader.read()
    finally:
        writer.transport.abort()


async def slow_sender(host: str, port: int) -> None:
    """Half a frame, then a byte now and then."""
    _, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(struct.pack(">iI", 100_000, 50) + b"{")
        while not writer.transport.is_closing():
            await asyncio.sleep(DRIP_S)
            writer.write(b" ")
            await writer.drain()
    finally:
        writer.transport.abort()


async def non_reader(host: str, port: int) -> None:
    """Ask and never listen."""
    _, writer = await asyncio.open_connection(host, port)
    try:
        while not writer.transport.is_closing():
            writer.write(QUESTION * 50)
            await asyncio.sleep(0.05)
    finally:
        writer.transport.abort()


async def forever(deed: Deed, addresses: list[str], pause_s: float) -> None:
    """One after the other, a link that fails is none."""
    while True:
        for address in addresses:
            try:
                await deed(*split_address(address))
            except OSError:
                pass
            await asyncio.sleep(pause_s)


async def spread(deed: Deed, addresses: list[str], per_s: float) -> None:
    """Begin ``per_s`` a second; at most as many at a time as begin in two seconds."""
    turns = asyncio.Semaphore(int(2 * per_s))

    async def one(address: str) -> None:
        try:
            await deed(*split_address(address))
        except OSError:
            pass
        finally:
            turns.release()

    async with asyncio.TaskGroup() as group:
        while True:
            for address in addresses:
                await turns.acquire()
                group.create_task(one(address))
                await asyncio.sleep(1 / per_s)


async def main(addresses: list[str]) -> None:
    """Everything at once."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    async with asyncio.TaskGroup() as group:
        for deed, count in ((idle, IDLE_LINKS), (slow_sender, SLOW_SENDERS), (non_reader, NON_READERS)):
            for number in range(count):
                group.create_task(forever(deed, addresses[number % len(addresses) :][:1], 0.5))
        for deed, per_s in (
            (garbage, GARBAGE_PER_S),
            (huge_length, HUGE_PER_S),
            (deep_json, DEEP_PER_S),
            (probe, PROBES_PER_S),
        ):
            group.create_task(spread(deed, addresses, per_s))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Behave badly towards these ports until ended.")
    parser.add_argument("addresses", nargs="+", metavar="HOST:PORT")
    asyncio.run(main(parser.parse_args().addresses))
