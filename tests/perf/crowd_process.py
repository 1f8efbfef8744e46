"""A crowd of replicas in a process of its own: it is told what to do, and asked how it is, over a pipe."""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import sys
from collections.abc import Callable, Coroutine
from multiprocessing.connection import Connection
from typing import Any, Generic, Self, TypeVar

import uvloop

TOLD = TypeVar("TOLD")


class OtherProcess(Generic[TOLD]):
    """``main(crowd, pipe)`` runs there for as long as the ``with`` block."""

    def __init__(self, main: Callable[[Any, Connection], Coroutine[Any, Any, None]], crowd: object) -> None:
        """``main`` says that it is ready when every replica listens, and answers "tell" with a ``TOLD``."""
        context = multiprocessing.get_context("spawn")
        self._pipe, self._theirs = context.Pipe()
        self.process = context.Process(target=_run, args=(main, crowd, self._theirs), daemon=True)

    def __enter__(self) -> Self:
        self.process.start()
        self._theirs.close()
        self._pipe.recv()
        return self

    def __exit__(self, *_: object) -> None:
        """Every replica dies."""
        self.process.kill()
        self.process.join()

    def tell(self, what: str) -> None:
        """An order, as ``join``: all register at once."""
        self._pipe.send(what)

    def told(self) -> TOLD:
        """How things are."""
        self._pipe.send("tell")
        told: TOLD = self._pipe.recv()
        return told


def _run(main: Callable[[Any, Connection], Coroutine[Any, Any, None]], crowd: object, pipe: Connection) -> None:
    sys.setswitchinterval(0.0005)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(crowd, pipe))
