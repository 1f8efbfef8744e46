"""
Byte streams between simulated processes, as an event loop and as a socket sees them.

Here: ``Stream`` (one end of a ``SimNet`` connection, with a window), transports and servers for protocols, sockets for
shells that read and write themselves. Not here: latency, cuts and breaks (``sim_net``), turns (``sim_loop``).
Rule 1: bytes are cut where chance likes, at sending and at reading, as a kernel cuts them.
Rule 2: at most ``WINDOW_BYTES`` are under way in one direction: a writer in front of a peer that does not read waits.
Rule 3: a close is heard behind the bytes that were sent before it; a reset may take them.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rollcall_ha.ha import channels, service
from tests.support.sim_net import End

if TYPE_CHECKING:
    from tests.support.sim_loop import SimLoop

WINDOW_BYTES = 256 * 1024
READ_BYTES_MAX = 64 * 1024
SPLIT_PROBABILITY = 0.05
"""Of a write, or a read, to be cut in two."""

Address = tuple[str, int]


class Stream:
    """One end of a connection: bytes that came and were not read, and the room of the window to the peer."""

    def __init__(self, loop: SimLoop, end: End, local: Address, remote: Address) -> None:
        self.loop = loop
        self.end = end
        self.local = local
        self.remote = remote
        self.received = bytearray()
        self.is_at_end = False
        """The peer has closed, or the connection was reset."""
        self.error: ConnectionResetError | None = None
        self.on_readable: Callable[[], None] = _nothing
        self.on_writable: Callable[[], None] = _nothing
        self._sent = 0
        end.on_message = self._arrived
        end.on_closed = self._closed
        end.owner = self

    def _arrived(self, data: Any) -> None:
        self.received += data
        self.on_readable()

    def _closed(self) -> None:
        self.is_at_end = True
        if self.end.is_broken:
            self.error = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        self.on_readable()
        self.on_writable()

    @property
    def unread_by_peer(self) -> int:
        """Bytes that were sent and not read yet."""
        return self._sent - self.end.peer.taken_bytes

    def room(self) -> int:
        """How much may be sent now."""
        return max(0, WINDOW_BYTES - self.unread_by_peer)

    def send(self, data: bytes) -> None:
        """Send all of it, in one piece or in two (rule 1)."""
        random = self.loop.kernel.random
        self._sent += len(data)
        if len(data) > 1 and random.random() < SPLIT_PROBABILITY:
            at = random.randrange(1, len(data))
            self.end.send(data[:at])
            data = data[at:]
        self.end.send(data)

    def take(self, length_max: int) -> bytes:
        """Up to ``length_max`` bytes of those that came; the peer may send as many more."""
        length = min(length_max, len(self.received))
        random = self.loop.kernel.random
        if length > 1 and random.random() < SPLIT_PROBABILITY:
            length = random.randrange(1, length)
        data = bytes(self.received[:length])
        del self.received[:length]
        was_full = self.end.taken_bytes + WINDOW_BYTES <= _sent_by(self.end.peer)
        self.end.taken_bytes += length
        if was_full:
            peer = self.end.peer
            peer.process.run("window", lambda: peer.owner.on_writable() if peer.owner is not None else None)
        return data

    def close(self) -> None:
        """The peer hears of it behind what was sent."""
        self.on_readable = self.on_writable = _nothing
        self.end.on_message, self.end.on_closed = _ignore, _nothing
        self.end.close()


def _sent_by(end: End) -> int:
    owner = end.owner
    return owner._sent if isinstance(owner, Stream) else 0


def _nothing() -> None:
    """Nobody waits."""


def _ignore(_data: Any) -> None:
    """Nobody reads."""


class SimTransport(asyncio.Transport):
    """A connection of a protocol, buffered or not."""

    def __init__(self, stream: Stream, protocol: asyncio.BaseProtocol) -> None:
        super().__init__({"peername": stream.remote, "sockname": stream.local})
        self._stream = stream
        self._loop = stream.loop
        self._protocol: Any = protocol
        self._is_paused = False
        self._is_closing = False
        self._is_read_due = False
        self._waiting = bytearray()
        stream.on_readable = self._readable
        stream.on_writable = self._writable
        self._loop.call_soon(self._made)

    def _made(self) -> None:
        self._protocol.connection_made(self)
        self._readable()

    # --- reading ---

    def _readable(self) -> None:
        if not self._is_read_due and not self._is_paused and not self._is_closing:
            self._is_read_due = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._is_read_due = False
        stream = self._stream
        if self._is_paused or self._is_closing:
            return
        if stream.received:
            try:
                self._hand_over()
            except Exception as error:  # noqa: BLE001 (as asyncio: a protocol that raises loses its link)
                self._loop.call_exception_handler({"message": "a protocol raised", "exception": error})
                self._force_close(error)
                return
            if stream.received or stream.is_at_end:
                self._readable()
        elif stream.is_at_end:
            if stream.error is None and isinstance(self._protocol, asyncio.Protocol) and self._protocol.eof_received():
                return
            self._force_close(stream.error)

    def _hand_over(self) -> None:
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            room = memoryview(protocol.get_buffer(-1))
            data = self._stream.take(min(len(room), READ_BYTES_MAX))
            room[: len(data)] = data
            protocol.buffer_updated(len(data))
        else:
            protocol.data_received(self._stream.take(READ_BYTES_MAX))

    def is_reading(self) -> bool:
        return not self._is_paused and not self._is_closing

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._readable()

    # --- writing ---

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or not data:
            return
        self._waiting += data
        self._writable()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def _writable(self) -> None:
        room = self._stream.room()
        if self._waiting and room:
            data = bytes(self._waiting[:room])
            del self._waiting[:room]
            self._stream.send(data)
        if self._is_closing and not self._waiting:
            self._stream.close()

    def get_write_buffer_size(self) -> int:
        return len(self._waiting)

    def can_write_eof(self) -> bool:
        return False

    # --- the end ---

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """What is written leaves first."""
        if not self._is_closing:
            self._is_closing = True
            self._writable()
            self._loop.call_soon(self._lost, None)

    def abort(self) -> None:
        self._waiting.clear()
        if not self._is_closing:
            self._force_close(None)

    def _force_close(self, error: Exception | None) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._waiting.clear()
            self._stream.close()
            self._loop.call_soon(self._lost, error)

    def _lost(self, error: Exception | None) -> None:
        self._protocol.connection_lost(error)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol


class SimServer:
    """A listening address; ``close`` leaves its connections alone."""

    def __init__(self, loop: SimLoop, address: Address, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        """Raises ``OSError``: the address is taken."""
        self._loop = loop
        self._address = address
        self._factory = factory
        loop.listen(address, self._accept)

    def _accept(self, end: End) -> None:
        stream = Stream(self._loop, end, self._address, self._loop.peer_of(end))
        SimTransport(stream, self._factory())

    def close(self) -> None:
        self._loop.unlisten(self._address)

    async def wait_closed(self) -> None:
        """Nothing is left to wait for."""


class SimSocket:
    """A socket of a shell that reads and writes by itself: the calls that ``ha`` makes, and their errors."""

    def __init__(
        self, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM, protocol: int = 0, *, loop: SimLoop
    ) -> None:
        del family, kind, protocol
        self.stream: Stream | None = None
        self.accepted: list[Stream] = []
        self._loop = loop
        self._number = loop.new_number()
        self._bound: Address | None = None
        self._is_listening = False
        self._is_closed = False
        loop.sockets[self._number] = self

    @classmethod
    def of(cls, stream: Stream) -> SimSocket:
        """The socket of a connection that stands."""
        made = cls(loop=stream.loop)
        made.attach(stream)
        return made

    def attach(self, stream: Stream) -> None:
        """It is connected."""
        self.stream = stream
        stream.on_readable = self._changed
        stream.on_writable = self._changed

    def _changed(self) -> None:
        self._loop.look_at(self._number)

    @property
    def is_readable(self) -> bool:
        stream = self.stream
        return bool(self.accepted) if stream is None else bool(stream.received) or stream.is_at_end

    @property
    def is_writable(self) -> bool:
        stream = self.stream
        return stream is not None and (stream.is_at_end or stream.room() > 0)

    def fileno(self) -> int:
        return -1 if self._is_closed else self._number

    def setblocking(self, _flag: bool) -> None:
        """It never blocks."""

    def setsockopt(self, *_options: int) -> None:
        """Nothing that matters here."""

    def bind(self, address: Address) -> None:
        self._bound = (address[0], address[1])

    def listen(self, _backlog: int) -> None:
        """Raises ``OSError``: the address is taken."""
        assert self._bound is not None
        self._loop.listen(self._bound, self._arrived)
        self._is_listening = True

    def _arrived(self, end: End) -> None:
        assert self._bound is not None
        self.accepted.append(Stream(self._loop, end, self._bound, self._loop.peer_of(end)))
        self._changed()

    def accept(self) -> tuple[SimSocket, Address]:
        if not self.accepted:
            raise BlockingIOError(errno.EAGAIN, "nobody waits")
        stream = self.accepted.pop(0)
        return SimSocket.of(stream), stream.remote

    def getsockname(self) -> Address:
        assert self._bound is not None
        return self._bound

    def _open_stream(self) -> Stream:
        if self._is_closed or self.stream is None:
            raise OSError(errno.EBADF, "bad file descriptor")
        return self.stream

    def recv(self, length_max: int) -> bytes:
        stream = self._open_stream()
        if stream.received:
            return stream.take(length_max)
        if stream.error is not None:
            raise stream.error
        if stream.is_at_end:
            return b""
        raise BlockingIOError(errno.EAGAIN, "nothing to read")

    def recv_into(self, view: memoryview) -> int:
        data = self.recv(len(view))
        view[: len(data)] = data
        return len(data)

    def send(self, data: bytes | memoryview, _flags: int = 0) -> int:
        stream = self._open_stream()
        if stream.error is not None:
            raise stream.error
        if stream.is_at_end:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        length = min(len(data), stream.room())
        if length == 0 and data:
            raise BlockingIOError(errno.EAGAIN, "the window is full")
        stream.send(bytes(data[:length]))
        return length

    def sendfile(self, descriptor: int, position: int, length: int) -> int:
        """``os.sendfile`` to this socket."""
        stream = self._open_stream()
        room = min(length, stream.room())
        if room == 0 and stream.error is None and not stream.is_at_end:
            raise BlockingIOError(errno.EAGAIN, "the window is full")
        data = os.pread(descriptor, room, position)
        return self.send(data) if data else 0

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.forget_socket(self._number)
        if self._is_listening and self._bound is not None:
            self._loop.unlisten(self._bound)
        for waiting in self.accepted:
            waiting.close()
        if self.stream is not None:
            self.stream.close()


class _Module:
    """A module of the standard library with some of its names replaced."""

    def __init__(self, module: Any, **replaced: Any) -> None:
        self.__dict__.update(replaced)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _new_socket(family: int, kind: int, protocol: int) -> SimSocket:
    loop: Any = asyncio.get_running_loop()
    return SimSocket(family, kind, protocol, loop=loop)


def _sendfile(out: int, source: int, position: int, length: int) -> int:
    loop: Any = asyncio.get_running_loop()
    sock: SimSocket = loop.sockets[out]
    return sock.sendfile(source, position, length)


@contextmanager
def simulated_sockets() -> Iterator[None]:
    """Within: the HA links, which own their sockets, get those of the loop that runs."""
    ha_service: Any = service
    ha_channels: Any = channels
    ha_service.socket = _Module(socket, socket=_new_socket)
    ha_channels.os = _Module(os, sendfile=_sendfile)
    try:
        yield
    finally:
        ha_service.socket, ha_channels.os = socket, os
