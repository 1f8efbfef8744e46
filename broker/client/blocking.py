"""
A consumer for plain threads, with a loop on a thread of its own.

Here: calls from that thread to the loop, and how much of a poll its owner has taken. Not here: the consumer itself
(``consumer``).

Rule 1: a message is finished when its owner got it. Messages that an iterator did not hand out yet are given again; so
are those of an answer that an error took on its way (the handler of a signal raises while ``poll`` waits).
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Coroutine, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

from rollcall_ha.broker.client.consumer import Consumer
from rollcall_ha.broker.client.messages import Message

__all__ = ["BlockingConsumer"]

T = TypeVar("T")


class BlockingConsumer:
    """
    For plain threads: ``with BlockingConsumer(Consumer(...)) as it: it.poll()``.

    One thread at a time calls it. What ``poll`` gave is finished by its next call: a caller that hands messages to
    other threads waits for them before.
    """

    def __init__(self, consumer: Consumer) -> None:
        """``consumer`` was not entered yet; with a handler it runs on this one's thread."""
        self._consumer = consumer
        self._taken = 0
        """Messages of the last poll that the owner got."""
        self._untaken: deque[Message] = deque()
        """Messages that an iterator has for its owner."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="consumer", daemon=True)

    def __enter__(self) -> Self:
        """Start the thread, and look for queues on it."""
        self._thread.start()
        self._run(self._consumer.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """As the consumer's end, of what was taken; blocks until it has committed."""
        try:
            self._run(self._close(self._settle(), kind, error, trace))
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __iter__(self) -> Iterator[Message]:
        """Every message, for ever. Those taken are finished by the next look for more, ``commit`` or the end."""
        while True:
            self._untaken.extend(self._ask(256, 1_000))
            while self._untaken:
                message = self._untaken.popleft()
                self._taken += 1
                yield message

    def poll(self, max_messages: int = 256, wait_ms: int = 1_000) -> list[Message]:
        """``Consumer.poll``, blocking for ``wait_ms`` at most. Raises ``ConsumerError``."""
        found = self._ask(max_messages, wait_ms)
        self._taken = len(found)
        return found

    def commit(self) -> bool:
        """As ``Consumer.commit``, with all that was taken."""
        return self._run(self._commit(self._settle()))

    # --- on the loop; each settles before it waits, so that nothing comes in between ---------------------------------

    async def _poll(self, taken: int, max_messages: int, wait_ms: int) -> list[Message]:
        self._consumer.done(taken)
        return await self._consumer.poll(max_messages, wait_ms)

    async def _commit(self, taken: int) -> bool:
        self._consumer.done(taken)
        return await self._consumer.commit()

    async def _close(
        self, taken: int, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._consumer.done(taken)
        await self._consumer.__aexit__(kind, error, trace)

    # --- the rest ----------------------------------------------------------------------------------------------------

    def _settle(self) -> int:
        """How many of the last poll were taken; an iterator looks for the others again."""
        taken, self._taken = self._taken, 0
        self._untaken.clear()
        return taken

    def _ask(self, max_messages: int, wait_ms: int) -> list[Message]:
        return self._run(self._poll(self._settle(), max_messages, wait_ms))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            # The handler of a signal raised: nobody waits for the answer, and what it brings would be nobody's.
            future.cancel()
            raise
