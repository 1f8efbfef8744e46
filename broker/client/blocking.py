"""
A consumer for plain threads: the one of ``consumer``, with a loop on a thread of its own.

Here: ``poll``, ``commit`` and the messages one by one, for callers without a loop. Not here: what they do.

Rule: for one thread at a time. What ``poll`` gave is finished by the next call of it, so a caller that hands messages
to other threads waits for them before.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

from rollcall_ha.broker.client.consumer import Consumer
from rollcall_ha.broker.client.messages import Message

T = TypeVar("T")


class BlockingConsumer:
    """``with BlockingConsumer(Consumer(...)) as it: for message in it: ...``."""

    def __init__(self, consumer: Consumer) -> None:
        """``consumer`` was not entered yet; with a handler it runs on this one's thread."""
        self._consumer = consumer
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="consumer", daemon=True)

    def __enter__(self) -> Self:
        """Begin to read."""
        self._thread.start()
        self._run(self._consumer.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """As the consumer's end; blocks until it has committed."""
        try:
            self._run(self._consumer.__aexit__(kind, error, trace))
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __iter__(self) -> Iterator[Message]:
        """Every message, for ever. One is finished when all that came with it have been taken."""
        while True:
            yield from self.poll()

    def poll(self, max_messages: int = 256, wait_ms: int = 1_000) -> list[Message]:
        """As ``Consumer.poll``."""
        return self._run(self._consumer.poll(max_messages, wait_ms))

    def commit(self) -> bool:
        """As ``Consumer.commit``, with all that ``poll`` gave."""
        self._loop.call_soon_threadsafe(self._consumer.done)
        return self._run(self._consumer.commit())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
