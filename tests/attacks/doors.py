"""
Attacks on the doors: every port by every kind of wrong certificate, plain bytes, and bytes that were recorded.

Here: what may knock at which port. Not here: what a peer says behind the door (``claims``), REST's callers (``web``).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

from rollcall_ha.deploy.local.processes import our_environment, python_module
from rollcall_ha.node.certified import CertifiedName, PeerKind
from rollcall_ha.node.config import split_address
from tests.attacks.claims import another, handshake_as
from tests.attacks.enemy import TIMEOUT_S, Papers, answers, context_with, dial, error_of, frame, hear, tell
from tests.attacks.scene import Attack, Scene

DRIP_S = 0.2
DRIPS_S_MAX = 60.0
BACK_S_MAX = 90.0
FIND_LEADER, PROBE = 3110, 3190
HELLO = b"\x00\x00\x00\x00"
GET = b"GET /v1/sets HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
METRICS = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
FENCE = bytes.fromhex("52434841") + bytes(40)
"""44 bytes: as many as once fenced a master."""

LABELS = {"sessions": "broker"}
"""What metrics call a port, where it is another word."""
ADDRESSES: dict[str, Callable[[Scene], str]] = {
    "raft": lambda scene: scene.fleet.file.controllers["c1"].raft,
    "sessions": lambda scene: scene.leader_sessions,
    "rest": lambda scene: scene.leader_rest,
    "listen": lambda scene: scene.fleet.file.broker(scene.fleet.master(scene.key)).listen,
    "ha": lambda scene: scene.master_ha,
    "health": lambda scene: scene.fleet.file.broker(scene.fleet.master(scene.key)).health,
}
PAYLOADS = {
    "raft": HELLO, "sessions": frame(FIND_LEADER), "rest": GET, "listen": frame(PROBE), "ha": FENCE, "health": METRICS,
}  # fmt: skip


def right_name(scene: Scene, port: str) -> CertifiedName:
    """Whom this port would take."""
    name = scene.forger.name
    return {
        "raft": lambda: name(PeerKind.CONTROLLER, "c3"),
        "sessions": lambda: name(PeerKind.BROKER, "broker-a-1", "broker-a"),
        "rest": lambda: name(PeerKind.ADMIN, "mallory"),
        "listen": lambda: name(PeerKind.CLIENT, "client"),
        "ha": lambda: name(PeerKind.BROKER, "broker-a-1", "broker-a"),
        "health": lambda: name(PeerKind.VIEWER, "mallory"),
    }[port]()


def wrong_name(scene: Scene, port: str) -> CertifiedName:
    """Our authority signed it, and it has no business here."""
    name = scene.forger.name
    return {
        "raft": lambda: name(PeerKind.BROKER, "broker-a-1", "broker-a"),
        "sessions": lambda: CertifiedName(fleet="other", kind=PeerKind.BROKER, name="x", set_key="other/broker-a"),
        "rest": lambda: name(PeerKind.CLIENT, "client"),
        "listen": lambda: CertifiedName(fleet="other", kind=PeerKind.CLIENT, name="client"),
        "ha": lambda: name(PeerKind.CONTROLLER, "c1"),
        "health": lambda: CertifiedName(fleet="other", kind=PeerKind.VIEWER, name="mallory"),
    }[port]()


def _words(port: str, heard: bytes | str) -> str:
    """An answer as the table shows it."""
    if isinstance(heard, str):
        return heard
    if heard.startswith(b"HTTP/1.1 "):
        return f"status {heard[9:12].decode()}"
    if port in ("sessions", "listen") and (found := answers(heard)):
        return f"code {found[0][0]}"
    if port == "ha" and (code := error_of(heard)) is not None:
        return f"error {code}"
    return f"{len(heard)} bytes: {heard[:24]!r}"


def plain(port: str, scene: Scene) -> str:
    """Bytes without TLS."""
    return _words(port, tell(ADDRESSES[port](scene), None, PAYLOADS[port]))


def shown(port: str, make: Callable[[Scene, str], Papers | None], scene: Scene) -> str:
    """TLS with some papers."""
    return _words(port, tell(ADDRESSES[port](scene), context_with(make(scene, port)), PAYLOADS[port]))


def nothing(_: Scene, __: str) -> None:
    return None


def foreign(scene: Scene, port: str) -> Papers:
    return scene.forger.papers(right_name(scene, port), is_foreign=True)


def expired(scene: Scene, port: str) -> Papers:
    return scene.forger.papers(right_name(scene, port), days=-1)


def misnamed(scene: Scene, port: str) -> Papers:
    return scene.forger.papers(wrong_name(scene, port))


def revoked(scene: Scene, port: str) -> Papers:
    """A good one, that an operator has revoked; returns when a controller says so."""
    papers = scene.forger.papers(right_name(scene, port))
    revoke(scene, papers)
    return papers


def revoke(scene: Scene, papers: Papers) -> None:
    """By the command line, as an operator does; returns when every process had time to hear of it (2 s)."""
    command = ("certs", "revoke", str(papers.certificate), "--reason", "stolen", "--yes")
    done = subprocess.run(
        python_module("rollcall_ha.cli.main", *command),
        capture_output=True, text=True, check=False, timeout=30, env=our_environment(), cwd=scene.fleet.directory,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"certs revoke ended with {done.returncode}: {done.stderr.strip()}")
    time.sleep(2.0)  # the promise itself: what is let in later than this is let in wrongly


def revoked_while_open(port: str, scene: Scene) -> str:
    """A link that stands already, and is in use: a silent one would be closed for its silence."""
    name = right_name(scene, port)
    with contextlib.ExitStack() as stack:
        # Both ports have one link to a peer of that name: it is to be this one.
        if port == "raft":
            stack.enter_context(without(scene, name.name))
        elif port == "ha":
            name = scene.forger.name(PeerKind.BROKER, another(scene), scene.key.name)
            stack.enter_context(without(scene, name.name))
        papers = scene.forger.papers(name)
        link = stack.enter_context(dial(ADDRESSES[port](scene), context_with(papers)))
        link.settimeout(DRIP_S)
        first, rest = half_said(scene, port, name.name)
        link.sendall(first)
        revoking = threading.Thread(target=revoke, args=(scene, papers))
        revoking.start()
        stack.callback(revoking.join)
        deadline = time.monotonic() + DRIPS_S_MAX
        for byte in itertools.chain(rest, itertools.repeat(None)):
            heard = hear(link)
            if heard != "silence" and isinstance(heard, str):
                return heard
            if time.monotonic() > deadline:
                return "NOT CLOSED"
            with contextlib.suppress(OSError):
                link.sendall(b"" if byte is None else bytes([byte]))
    raise AssertionError("the loop has no end")


def half_said(scene: Scene, port: str, name: str) -> tuple[bytes, bytes]:
    """What makes this a link of its port, and what is then said byte by byte."""
    if port == "raft":
        said = json.dumps({"type": "hello", "version": 1, "name": name}).encode()
        hello = struct.pack(">II", len(said) + 4, len(said)) + said
        return hello, struct.pack(">I", 4_096) + bytes(1_000)
    # A slave that has been answered may be silent for as long as it cuts its log.
    return (handshake_as(scene, name) if port == "ha" else b""), b""


@contextlib.contextmanager
def without(scene: Scene, name: str) -> Iterator[None]:
    """A controller or slave is down meanwhile."""
    scene.fleet.terminate(name)
    try:
        yield
    finally:
        scene.fleet.start(name)
        scene.fleet.wait_ready([name], deadline_s=BACK_S_MAX)
        scene.fleet.wait_redundant(scene.key, deadline_s=BACK_S_MAX)


def replayed(port: str, scene: Scene) -> str:
    """The bytes of a good link, recorded on the way and sent again."""
    papers = scene.forger.papers(right_name(scene, port))
    return replay_of(ADDRESSES[port](scene), context_with(papers), PAYLOADS[port])


def replay_of(address: str, context: ssl.SSLContext, payload: bytes) -> str:
    """A link with ``payload``, and all that it sent once more on another."""
    recorded = _recorded(address, context, payload)
    with socket.create_connection(split_address(address), timeout=TIMEOUT_S) as again:
        again.sendall(recorded)
        heard = b""
        end: bytes | str = b""
        while isinstance(end := hear(again), bytes):
            heard += end
        # The server's half of a handshake is no answer: it proves nothing to, and tells nothing of, a replayer.
        is_handshake_only = _records(heard) <= {20, 21, 22} or _application_bytes(heard) < 4096
        return f"{end}, {'handshake only' if is_handshake_only else f'{len(heard)} bytes'}"


def _recorded(address: str, context: ssl.SSLContext, payload: bytes) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    end = context.wrap_bio(incoming, outgoing, server_hostname="enemy")
    sent = b""
    with socket.create_connection(split_address(address), timeout=TIMEOUT_S) as link:

        def flush() -> None:
            nonlocal sent
            data = outgoing.read()
            sent += data
            link.sendall(data)

        while True:
            try:
                end.do_handshake()
                break
            except ssl.SSLWantReadError:
                flush()
                incoming.write(link.recv(65_536))
        end.write(payload)
        flush()
        with contextlib.suppress(OSError):
            link.recv(65_536)
    return sent


def _records(data: bytes) -> set[int]:
    return {kind for kind, _ in _split(data)}


def _application_bytes(data: bytes) -> int:
    """TLS 1.3 wraps its handshake in records of type 23: a certificate and its proof are some 1.5 KiB."""
    return sum(length for kind, length in _split(data) if kind == 23)


def _split(data: bytes) -> Iterator[tuple[int, int]]:
    at = 0
    while len(data) - at >= 5:
        length = int.from_bytes(data[at + 3 : at + 5], "big")
        yield data[at], length
        at += 5 + length


CLOSED = ("closed", "alert: ")
HTTP_PORTS = ("rest", "health")
NOBODY = 'rollcall_rest_refused_total{reason="nobody"}'
NO_ROLE = 'rollcall_rest_refused_total{reason="no-role"}'
ON_HEALTH = "rollcall_broker_metrics_refused_total"


def closed_by(port: str, reason: str) -> str:
    """The counter of links that a port closed for this reason."""
    return f'rollcall_links_closed_total{{port="{LABELS.get(port, port)}",reason="{reason}"}}'


def attacks() -> Iterator[Attack]:
    """The matrix: REST and health answer a link without a certificate, and every other port closes it."""
    for port in ADDRESSES:
        is_http, is_rest = port in HTTP_PORTS, port == "rest"
        yield Attack(
            name="plain bytes", port=port, run=partial(plain, port),
            refused_with=("status 400", *CLOSED) if is_http else CLOSED, counted=closed_by(port, "tls"),
        )  # fmt: skip
        yield Attack(
            name="no certificate", port=port, run=partial(shown, port, nothing),
            refused_with=("status 401" if is_rest else "status 403",) if is_http else CLOSED,
            counted={"rest": NOBODY, "health": ON_HEALTH}.get(port, closed_by(port, "tls")),
        )  # fmt: skip
        for name, make in (("foreign authority", foreign), ("expired", expired)):
            yield Attack(name=f"certificate: {name}", port=port, run=partial(shown, port, make),
                         refused_with=CLOSED, counted=closed_by(port, "tls"))  # fmt: skip
        # The HA port says why before it closes: the slave that hears it stops asking.
        judged = ("error 17",) if port == "ha" else ("closed",)
        yield Attack(
            name="certificate: right authority, wrong name", port=port, run=partial(shown, port, misnamed),
            refused_with=("status 403",) if is_rest else judged,
            counted=NO_ROLE if is_rest else closed_by(port, "certificate"),
        )  # fmt: skip
        yield Attack(
            name="certificate: revoked", port=port, run=partial(shown, port, revoked),
            refused_with=("status 401",) if is_rest else judged,
            counted=NOBODY if is_rest else closed_by(port, "revoked"),
        )  # fmt: skip
        if port != "health":  # its links end with their one answer
            yield Attack(name="certificate: revoked while the link stands", port=port,
                         run=partial(revoked_while_open, port), refused_with=CLOSED,
                         counted=closed_by(port, "revoked"))  # fmt: skip
        yield Attack(name="recorded bytes sent again", port=port, run=partial(replayed, port),
                     refused_with=("handshake only",), counted=closed_by(port, "tls"))  # fmt: skip
