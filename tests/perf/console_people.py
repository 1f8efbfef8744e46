"""
People at consoles, as a process of its own: those who look at a fleet, or those whose orders are its events.

    python -m tests.perf.console_people viewers ADDRESS AUTHORITY TOKEN_FILE COUNT
    python -m tests.perf.console_people orders ADDRESS AUTHORITY TOKEN_FILE RATE SETS

It prints ``ready``, then a number for each line of its standard input (bytes that were heard, orders that were done), and
ends with it. A viewer is the stream of events and the page of the worst sets, as often as the console asks for it. Here
nothing is drawn: twenty browsers would measure this machine, and not what they cost the controller.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
from pathlib import Path
from typing import Any

PAUSE_S = 2.0
"""As ``api/console/fleet.js``: between two questions in a storm of events."""
OVERVIEW = "/v1/overview?order=worst&limit=100&consistency=local"
ORDER_LINKS = 24
HOUR_MS = 3_600_000


class Link:
    """One connection to a controller."""

    def __init__(self, address: str, context: ssl.SSLContext, token: str) -> None:
        self._address, self._context, self._token = address, context, token

    async def open(self) -> None:
        """Dial."""
        host, _, port = self._address.rpartition(":")
        self.reader, self._writer = await asyncio.open_connection(host, int(port), ssl=self._context)

    def ask(self, path: str, body: object = None) -> None:
        """Send a GET, or a POST of ``body``."""
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: {self._address}\r\n"
        head += f"Authorization: Bearer {self._token}\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        self._writer.write(head.encode() + content)

    async def answer(self) -> bytes:
        """One answer with a length; empty: not known, or not now. Raises ``RuntimeError`` for any other but 200."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length"))
        content = await self.reader.readexactly(length)
        # A leader that a busy machine made stand down, an answer that was lost: not done, not counted.
        if head.startswith((b"http/1.1 503", b"http/1.1 504")):
            return b""
        if not head.startswith(b"http/1.1 200"):
            raise RuntimeError(content.decode(errors="replace"))
        return content


class Viewer:
    """One tab with the fleet in it."""

    def __init__(self, *link: Any) -> None:
        self._stream, self._page = Link(*link), Link(*link)
        self.has_begun = asyncio.Event()
        self._has_news = asyncio.Event()
        self.count = 0

    async def listen(self) -> None:
        """Read the stream for ever."""
        await self._stream.open()
        self._stream.ask("/v1/events?newest=true&limit=200")
        mark = json.loads(await self._stream.answer())["nextFrom"]
        self._stream.ask(f"/v1/events/stream?from={mark['term']}.{mark['index']}.{mark['ordinal']}")
        await self._stream.reader.readuntil(b"\r\n\r\n")
        self.has_begun.set()
        while data := await self._stream.reader.read(262_144):
            self.count += len(data)
            self._has_news.set()
        raise RuntimeError("the stream has ended")

    async def look(self) -> None:
        """Ask for the worst sets after news, at most every ``PAUSE_S``."""
        await self._page.open()
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            self._page.ask(OVERVIEW)
            await self._page.answer()
            await asyncio.sleep(PAUSE_S)


class Orders:
    """Pauses and ends pauses of the first ``sets``: each is an event; ``rate`` a second over ``ORDER_LINKS`` links."""

    def __init__(self, rate: int, sets: int, *link: Any) -> None:
        self._rate, self._sets, self._link = rate, sets, link
        self.count = 0
        self.has_begun = asyncio.Event()
        self.has_begun.set()

    async def give(self, first: int) -> None:
        """One link's share of them, for ever."""
        link, due, at = Link(*self._link), time.monotonic(), 0
        await link.open()
        while True:
            key = f"s{first + at // 2 * ORDER_LINKS % (self._sets - self._sets % ORDER_LINKS):04d}"
            body = {} if at % 2 else {"expiresAtMs": int(time.time() * 1000) + HOUR_MS}
            link.ask(f"/v1/sets/perf/{key}/{'resume' if at % 2 else 'pause'}", body)
            # Awaited first: added to what the count was before the wait, the orders of other links would be lost from it.
            is_done = bool(await link.answer())
            self.count += is_done
            at += 1
            due = max(due + ORDER_LINKS / self._rate, time.monotonic() - 1)
            await asyncio.sleep(max(0, due - time.monotonic()))


async def main(what: str, address: str, authority: str, token: str, *numbers: int) -> None:
    """Begin, say so, and go on until nobody asks any more."""
    link = (address, ssl.create_default_context(cafile=authority), token)
    people: list[Viewer | Orders] = []
    tasks: list[asyncio.Task[None]] = []
    if what == "viewers":
        for _ in range(numbers[0]):
            viewer = Viewer(*link)
            people.append(viewer)
            tasks += [asyncio.create_task(viewer.listen()), asyncio.create_task(viewer.look())]
    else:
        orders = Orders(numbers[0], numbers[1], *link)
        people.append(orders)
        tasks += [asyncio.create_task(orders.give(first)) for first in range(ORDER_LINKS)]
    for one in people:
        begun = asyncio.create_task(one.has_begun.wait())
        await asyncio.wait([begun, *tasks], return_when=asyncio.FIRST_COMPLETED)
    print("ready", flush=True)
    while True:
        line = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
        await asyncio.wait([line, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
        if not line.result():
            return
        print(sum(one.count for one in people), flush=True)


if __name__ == "__main__":
    kind, where, trusted, file, *counts = sys.argv[1:]
    asyncio.run(main(kind, where, trusted, Path(file).read_text().strip(), *map(int, counts)))
