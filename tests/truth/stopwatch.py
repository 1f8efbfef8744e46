"""
A stopwatch for service: a program of its own, which shares no code with the product.

    python3 -I stopwatch.py send|knock OUT BODY_BYTES AUTHORITY CERTIFICATE KEY HOST:PORT...

Here: raw RocketMQ frames to every broker by mutual TLS (three PEM files; three empty words: plain links), one under way
per broker, each 2 ms. Not here: faults (``faults``), what the controllers say (``recorded``).

Rule 1: only the standard library; a test holds that. Two programs that share the code which times them agree when both
are wrong.
Rule 2: ``send`` sends messages; an event is an answer with code 0. ``knock`` sends a message without a topic: the
serving master answers "illegal" (13), any other broker answers that it is not the master. Nothing is written by it.
Rule 3: each event is one line in OUT, written when it happens: CLOCK_MONOTONIC in ns, and the number of the link that it
came by. Standard input closed = stop.
Rule 4: the send says how long somebody has waited: since the last acknowledgement of any broker (field ``waitUs``).
"""

import json
import selectors
import socket
import ssl
import struct
import sys
import time

PAUSE_NS = 2_000_000
"""Between an answer and the next frame to the same broker."""
RECONNECT_NS = 4_000_000
ILLEGAL = 13
FRAME_BYTES_MAX = 1 << 20


class Broker:
    """One broker's address, its link, and the frame that is under way on it."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.address = (host, int(port))
        self.link: socket.socket | None = None
        self.number = 0
        self.descriptor = -1
        self.is_open = False
        """The handshake is over."""
        self.is_waiting = False
        self.due_ns = 0
        self.buffer = b""


class Stopwatch:
    """Asks all brokers on one thread; see the rules of the module."""

    def __init__(self, mode: str, out: str, body_bytes: int, tls: ssl.SSLContext | None, addresses: list[str]) -> None:
        self.mode = mode
        self.tls = tls
        self.body = bytes(body_bytes)
        self.brokers = [Broker(address) for address in addresses]
        self.selector = selectors.DefaultSelector()
        self.selector.register(sys.stdin, selectors.EVENT_READ)
        self.out = open(out, "w", buffering=1)  # noqa: SIM115 (open as long as the program)
        self.opaque = self.links = 0
        self.last_event_ns = time.monotonic_ns()

    def run(self) -> None:
        """Until standard input is closed."""
        while True:
            now_ns = time.monotonic_ns()
            for broker in self.brokers:
                if broker.due_ns <= now_ns and not broker.is_waiting:
                    self.step(broker, now_ns)
            for key, _ in self.selector.select(0.001):
                if key.data is None:
                    if not sys.stdin.read(1):
                        return
                elif not key.data.is_open:
                    self.open(key.data)
                else:
                    self.readable(key.data)

    def step(self, broker: Broker, now_ns: int) -> None:
        """Connect, or send the next frame."""
        if broker.link is None:
            link = socket.socket()
            link.setblocking(False)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.links += 1
            broker.link, broker.descriptor, broker.is_waiting = link, link.fileno(), True
            broker.number = self.links
            link.connect_ex(broker.address)
            self.selector.register(link, selectors.EVENT_WRITE, broker)
            return
        broker.is_waiting = True
        try:
            broker.link.sendall(self.frame(now_ns))
        except OSError:
            self.closed(broker)

    def open(self, broker: Broker) -> None:
        """Connected, or one step further in the handshake."""
        link = broker.link
        assert link is not None
        try:
            if self.tls is None:
                link.getpeername()
                self.selector.modify(broker.descriptor, selectors.EVENT_READ, broker)
                broker.is_open, broker.is_waiting = True, False
                return
            if not isinstance(link, ssl.SSLSocket):
                # Same descriptor, which stays registered. It raises if nobody has answered the connection.
                link = broker.link = self.tls.wrap_socket(link, do_handshake_on_connect=False)
            link.do_handshake()
        except ssl.SSLWantReadError:
            self.selector.modify(broker.descriptor, selectors.EVENT_READ, broker)
        except ssl.SSLWantWriteError:
            self.selector.modify(broker.descriptor, selectors.EVENT_WRITE, broker)
        except OSError:
            self.closed(broker)
        else:
            self.selector.modify(broker.descriptor, selectors.EVENT_READ, broker)
            broker.is_open, broker.is_waiting = True, False

    def closed(self, broker: Broker) -> None:
        if broker.link is not None:
            self.selector.unregister(broker.descriptor)
            broker.link.close()
        broker.link, broker.is_open, broker.is_waiting, broker.buffer = None, False, False, b""
        broker.due_ns = time.monotonic_ns() + RECONNECT_NS

    def readable(self, broker: Broker) -> None:
        assert broker.link is not None
        try:
            data = broker.link.recv(65536)  # an answer is one record, and less: nothing is left within TLS
        except ssl.SSLWantReadError:
            return
        except OSError:
            data = b""
        if not data:
            self.closed(broker)
            return
        broker.buffer += data
        while len(broker.buffer) >= 4:
            (length,) = struct.unpack_from(">i", broker.buffer)
            if not 4 <= length <= FRAME_BYTES_MAX:
                raise SystemExit(f"{broker.address} sent a frame of {length} bytes")
            if len(broker.buffer) < 4 + length:
                return
            (word,) = struct.unpack_from(">I", broker.buffer, 4)
            header = json.loads(broker.buffer[8 : 8 + (word & 0xFFFFFF)])
            broker.buffer = broker.buffer[4 + length :]
            self.answered(broker, header["code"])

    def answered(self, broker: Broker, code: int) -> None:
        now_ns = time.monotonic_ns()
        broker.is_waiting, broker.due_ns = False, now_ns + PAUSE_NS
        if code == (0 if self.mode == "send" else ILLEGAL):
            self.last_event_ns = now_ns
            self.out.write(f"{now_ns} {broker.number}\n")

    def frame(self, now_ns: int) -> bytes:
        self.opaque += 1
        fields = {"a": "truth", "b": "truth" if self.mode == "send" else "", "c": "TBW102", "d": "4", "e": "0"}
        fields |= {"f": "0", "g": str(time.time_ns() // 1_000_000), "h": "0", "i": "", "j": "0", "k": "false"}
        fields |= {"m": "false", "waitUs": str((now_ns - self.last_event_ns) // 1000)}
        header = {"code": 310, "extFields": fields, "flag": 0, "language": "OTHER", "opaque": self.opaque, "version": 0}
        encoded, body = json.dumps(header, separators=(",", ":")).encode(), self.body
        return struct.pack(">iI", 4 + len(encoded) + len(body), len(encoded)) + encoded + body


def context(authority: str, certificate: str, key: str) -> ssl.SSLContext | None:
    """Whom to trust, and what to show. Names are left aside: it is a stopwatch, and the fleet is the test's own."""
    if not authority:
        return None
    made = ssl.create_default_context(cafile=authority)
    made.check_hostname = False
    made.load_cert_chain(certificate, key)
    return made


if __name__ == "__main__":
    Stopwatch(sys.argv[1], sys.argv[2], int(sys.argv[3]), context(*sys.argv[4:7]), sys.argv[7:]).run()
