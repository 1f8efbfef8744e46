"""What a batch costs on a link with TLS: calls of the kernel, and turns of the loop."""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from rollcall_ha.ha.channels import FETCH_BYTES, Parts, SecuredChannel
from rollcall_ha.ha.ports import FileRegion
from tests.support.ha_certs import BrokerAuthority


class CountingSocket:
    """A socket that counts what it is asked, and gives no more than ``most`` bytes at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self.calls: list[str] = []
        self.most = FETCH_BYTES
        self._sock = sock
        sock.setblocking(False)

    def recv(self, length: int) -> bytes:
        self.calls.append("recv")
        return self._sock.recv(min(length, self.most))

    def send(self, data: memoryview) -> int:
        self.calls.append("send")
        return self._sock.send(data)

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()


class Pair:
    """Both ends of a link behind their handshake."""

    def __init__(self, directory: Path) -> None:
        authority = BrokerAuthority(directory)
        self.sockets = tuple(map(CountingSocket, socket.socketpair()))
        master, slave = (cast("socket.socket", each) for each in self.sockets)
        ours, theirs = authority.peers("broker-a-1").credentials, authority.peers("broker-a-2").credentials
        self.master = SecuredChannel(master, ours.server_context(), is_server=True)
        self.slave = SecuredChannel(slave, theirs.client_context(), is_server=False)
        for _ in range(3):
            self.slave.shake_hands()
            self.master.shake_hands()
        assert self.slave.is_ready
        assert self.master.is_ready
        self.forget()

    def forget(self) -> None:
        for each in self.sockets:
            each.calls.clear()
        self.master.is_drained = self.slave.is_drained = False


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.master.close()
    made.slave.close()


def test_a_batch_and_its_ack_are_one_call_at_each_side_of_each(pair: Pair, tmp_path: Path) -> None:
    """Five records: OpenSSL's own sockets took 5 calls to write them, 10 to read them and one to see that it was all."""
    body = os.urandom(70_000 - 25)
    log = tmp_path / "log"
    log.write_bytes(body)
    room = memoryview(bytearray(len(body)))
    with log.open("rb") as file:
        parts: Parts = deque([memoryview(b"h" * 25), FileRegion(fd=file.fileno(), position=0, length=len(body))])
        assert pair.master.send(parts, 1 << 20) == 70_000
    assert not parts
    # As the slave's end reads it: header, body, and a look for the next header.
    assert pair.slave.receive(25) == b"h" * 25
    taken = pair.slave.receive_into(room)
    with pytest.raises(BlockingIOError):
        pair.slave.receive(25)
    assert bytes(room[:taken]) == body[:taken]
    assert taken == len(body)
    assert pair.slave.send(deque([memoryview(b"ack")]), 100) == 3
    assert pair.master.receive(100) == b"ack"
    assert pair.sockets[0].calls == ["send", "recv"]
    # 70,000 bytes are one call, and another one for what is above ``FETCH_BYTES``.
    assert pair.sockets[1].calls == ["recv", "recv", "send"]


def test_half_of_a_record_is_no_reason_to_read_again(pair: Pair) -> None:
    """The loop would turn without an end until the other half comes."""
    assert pair.master.send(deque([memoryview(b"x" * 1_000)]), 1 << 20) == 1_000
    pair.sockets[1].most = 600
    seen = []
    for length in (1_000, 900, 900):
        pair.slave.is_drained = False
        try:
            seen.append((len(pair.slave.receive(length)), pair.slave.has_unread))
        except BlockingIOError:
            seen.append((0, pair.slave.has_unread))
    assert seen == [(0, False), (900, True), (100, False)]


def test_records_that_found_no_room_leave_first_and_count_once(pair: Pair) -> None:
    content = os.urandom(3_000_000)
    parts: Parts = deque([memoryview(content)])
    told, received = 0, bytearray()
    while len(received) < len(content):
        try:
            while parts or pair.master.held_bytes:
                told += pair.master.send(parts, 1 << 20)
        except BlockingIOError:
            pass
        pair.slave.is_drained = False
        try:
            while True:
                received += pair.slave.receive(1 << 20)
        except BlockingIOError:
            pass
    assert received == content
    assert told == len(content)


def test_the_end_of_a_link_is_nothing_and_no_error(pair: Pair) -> None:
    """With a goodbye: the caller reads an empty answer, as often as it asks."""
    pair.master.close()
    assert pair.slave.receive(10) == b""
    pair.slave.is_drained = False
    assert pair.slave.receive_into(memoryview(bytearray(10))) == 0


def test_a_cut_link_is_nothing_and_no_error(pair: Pair) -> None:
    pair.sockets[0].close()
    assert pair.slave.receive(10) == b""
