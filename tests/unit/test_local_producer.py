"""The demo's producer keeps its books beside its loop, which is the client's stopwatch."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any, cast

import pytest

from rollcall_ha.broker.client.producer import Producer, ProducerCounters, SendResult
from rollcall_ha.deploy.local import ledger
from rollcall_ha.deploy.local.producer import Load, read_counts

DEADLINE_S = 30.0


class Echo:
    """A producer whose sends are acknowledged a millisecond later."""

    def __init__(self) -> None:
        self.counters = ProducerCounters()
        self.is_writing = threading.Event()
        self.answered_meanwhile = threading.Event()

    async def send(self, _topic: str, _body: bytes, *, properties: dict[str, str]) -> SendResult:
        assert properties["UNIQ_KEY"]
        await asyncio.sleep(0.001)
        self.counters.acked += 1
        if self.is_writing.is_set():
            self.answered_meanwhile.set()
        return SendResult(
            answered_at_ns=time.monotonic_ns(),
            answered_by="127.0.0.1:1",
            message_id="",
            queue_id=0,
            queue_offset=self.counters.acked,
            attempts=1,
            sequence=self.counters.acked,
            producer_epoch=1,
        )


def load_of(echo: Echo, directory: Path) -> Load:
    return Load(cast("Producer", echo), directory, "broker-a", 64)


def test_no_answer_was_read_while_a_file_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first write waits here for an answer that only the loop can bring: on the loop it would wait for itself."""
    echo, stop = Echo(), asyncio.Event()
    was_answered: list[bool] = []
    load = load_of(echo, tmp_path)
    write = load._write

    def slow_write(*books: Any) -> None:
        echo.is_writing.set()
        was_answered.append(echo.answered_meanwhile.wait(DEADLINE_S))
        write(*books)

    monkeypatch.setattr(load, "_write", slow_write)

    async def story() -> None:
        running = asyncio.create_task(load.run(2, stop))
        assert await asyncio.to_thread(echo.answered_meanwhile.wait, 2 * DEADLINE_S)
        stop.set()
        async with asyncio.timeout(DEADLINE_S):
            await running

    asyncio.run(story())

    assert was_answered
    assert all(was_answered)
    lines = ledger.read(tmp_path)
    assert len(lines) == read_counts(tmp_path).acked == echo.counters.acked > 0


def test_books_that_cannot_be_kept_end_the_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It went on until it was stopped, with acknowledgements that were in no ledger."""
    load = load_of(Echo(), tmp_path)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(load, "_write", full)

    async def story() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await load.run(2, asyncio.Event())

    with pytest.raises(OSError, match="No space left"):
        asyncio.run(story())
