"""Addresses of controllers by name: asked for beside the Raft thread, and again when a peer may have moved."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from rollcall_ha.controller.replication.raft.resolver import ASKED_SECONDS, Resolver

RECONNECTED_SECONDS = 10.0
"""S53: the longest that a moved controller may stay unreachable."""


class NameServer:
    """Answers ``getaddrinfo`` and says when; ``address`` None: it is dead."""

    def __init__(self, patch: pytest.MonkeyPatch, address: str | None) -> None:
        self.address = address
        self.answered = threading.Semaphore(0)
        patch.setattr(socket, "getaddrinfo", self._answer)

    def _answer(self, *_args: Any, **_named: Any) -> list[Any]:
        self.answered.release()
        if self.address is None:
            raise socket.gaierror("temporary failure in name resolution")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (self.address, 0))]

    def asked(self) -> None:
        """Wait until it was asked and its answer is known."""
        assert self.answered.acquire(timeout=10), "nobody asked"
        for thread in threading.enumerate():
            if thread.name == "raft-resolver":
                thread.join(30)


def test_s53_a_peer_that_moved_was_dialled_at_its_old_address_for_half_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S53: an address counted as fresh for 30 s; a controller that came back elsewhere was away for as long."""
    now = [0.0]
    server = NameServer(monkeypatch, "10.0.0.1")
    resolve = Resolver(lambda: now[0])
    resolve("c2.example")
    server.asked()
    assert resolve("c2.example") == "10.0.0.1"

    server.address = "10.0.0.2"
    now[0] += ASKED_SECONDS
    resolve("c2.example")
    server.asked()

    assert resolve("c2.example") == "10.0.0.2"
    assert now[0] < RECONNECTED_SECONDS


def test_a_dead_name_server_forgets_nobody_and_is_not_flooded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known goes on, and dialling every few milliseconds asks once per pause."""
    now = [0.0]
    server = NameServer(monkeypatch, "10.0.0.1")
    resolve = Resolver(lambda: now[0])
    resolve("c2.example")
    server.asked()

    server.address = None
    now[0] += ASKED_SECONDS
    addresses = {resolve("c2.example") for _ in range(100)}
    server.asked()

    assert addresses == {"10.0.0.1"}
    assert not server.answered.acquire(blocking=False)
