"""The broker's health address: its paths, limits as on every port, and counters of all ports."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from rollcall_ha.broker import health
from rollcall_ha.broker.health import LIMITS, HealthServer, HealthSnapshot
from rollcall_ha.broker.status import is_ready_in
from rollcall_ha.controller.contract.session import BrokerState
from rollcall_ha.node.certified import PeerKind
from rollcall_ha.node.remoting.links import CloseCause, LinkTable
from rollcall_ha.node.telemetry import Telemetry
from rollcall_ha.node.tls import Credentials
from tests.support.ha_replica import until
from tests.support.raft_certs import credentials_in, make_certificates, more_credentials, named
from tests.unit.test_broker_balancing import MASTER

SNAPSHOT = HealthSnapshot(
    state=BrokerState.MASTER,
    is_ready=True,
    reason="serving",
    values=(
        ("heartbeats_total", "Sent.", 7.0),
        ("lag_bytes", "Distance.", 5.0),
    ),
)


@pytest.mark.parametrize(
    ("state", "has_full_disk", "is_stopped", "expected"),
    [
        (BrokerState.MASTER, False, False, True),
        (BrokerState.MASTER, True, False, True),
        (BrokerState.MASTER, True, True, False),
        (BrokerState.MASTER, False, True, False),
        (BrokerState.SLAVE, False, False, True),
        (BrokerState.SLAVE, True, False, False),
        (BrokerState.FENCED, False, False, False),
    ],
)
def test_a_master_was_not_ready_while_its_set_served(
    state: BrokerState, *, has_full_disk: bool, is_stopped: bool, expected: bool
) -> None:
    """For two seconds the disk was full, the last segment took every send, and /readyz said 503."""
    assert is_ready_in(state, has_full_disk=has_full_disk, is_stopped=is_stopped) is expected


def serving(
    scene: Callable[[HealthServer], Awaitable[None]],
    snapshot: HealthSnapshot = SNAPSHOT,
    credentials: Credentials | None = None,
) -> None:
    async def body() -> None:
        server = HealthServer(Telemetry(), lambda: snapshot, credentials=credentials)
        await server.start("127.0.0.1", 0)
        try:
            async with asyncio.timeout(30):
                await scene(server)
        finally:
            await server.stop()

    asyncio.run(body())


async def asked(server: HealthServer, *pieces: bytes, tls: ssl.SSLContext | None = None) -> bytes:
    """The whole answer; the link is closed behind it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=tls)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0)
    answer = await reader.read()
    writer.close()
    return answer


def test_a_few_paths_and_nothing_else_are_answered() -> None:
    """GET and HEAD, in one piece or several; a link serves one request."""

    async def scene(server: HealthServer) -> None:
        assert (await asked(server, b"GET /livez HTTP/1.1\r\n", b"\r\n")).endswith(b"\r\n\r\nalive\n")
        assert b"200 OK" in await asked(server, b"GET /readyz?verbose HTTP/1.1\r\n\r\nGET /livez HTTP/1.1\r\n\r\n")
        assert (await asked(server, b"HEAD /readyz HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\n")
        assert b"404" in await asked(server, b"GET / HTTP/1.1\r\n\r\n")
        assert b"405" in await asked(server, b"POST /livez HTTP/1.1\r\n\r\n")
        metrics = (await asked(server, b"GET /metrics HTTP/1.1\r\n\r\n")).decode()
        assert "rollcall_broker_lag_bytes 5.0" in metrics
        assert "# TYPE rollcall_broker_heartbeats_total counter\nrollcall_broker_heartbeats_total 7.0" in metrics
        assert 'rollcall_broker_role{state="master"} 1.0' in metrics
        assert 'rollcall_links_open{port="health"} 1.0' in metrics
        assert 'rollcall_links_closed_total{port="health",reason="handler"} 5.0' in metrics

    serving(scene)


def test_a_load_balancer_hears_who_is_master_without_a_certificate(tmp_path: Path) -> None:
    """GET and HEAD by real HTTP through TLS; the query of a path that has none is not looked at."""
    make_certificates(tmp_path, ["c1"])
    broker = more_credentials(tmp_path, named(PeerKind.BROKER, "broker-a-1", set_key="test/broker-a"))

    async def scene(server: HealthServer) -> None:
        answer = await asked(server, b"GET /master?x=1 HTTP/1.1\r\n\r\n", tls=nameless())
        assert b" 200 OK\r\n" in answer
        assert answer.endswith(b"\r\n\r\nmaster of epoch 7\n")
        head = await asked(server, b"HEAD /master HTTP/1.1\r\n\r\n", tls=nameless())
        assert head == answer.removesuffix(b"master of epoch 7\n")
        assert b" 503 " in await asked(server, b"HEAD /replica?lag=0 HTTP/1.1\r\n\r\n", tls=nameless())
        assert b" 400 " in await asked(server, b"GET /replica?lag=much HTTP/1.1\r\n\r\n", tls=nameless())
        assert b" 404 " in await asked(server, b"GET /leader HTTP/1.1\r\n\r\n", tls=nameless())

    serving(scene, replace(SNAPSHOT, facts=MASTER), broker)


def test_a_broker_that_reads_its_log_is_nobodys_replica() -> None:
    async def scene(server: HealthServer) -> None:
        for path in (b"/master", b"/replica", b"/in-sync"):
            answer = await asked(server, b"GET " + path + b" HTTP/1.1\r\n\r\n")
            assert b" 503 " in answer
            assert answer.endswith(b"reading the log\n")

    serving(scene)


def test_a_broker_that_is_not_ready_says_why() -> None:
    async def scene(server: HealthServer) -> None:
        answer = await asked(server, b"GET /readyz HTTP/1.1\r\n\r\n")
        assert b"503" in answer
        assert answer.endswith(b"master: reading the log\n")

    serving(scene, replace(SNAPSHOT, is_ready=False, reason="reading the log"))


def test_half_requests_are_closed_and_counted_and_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 of them took all places: a real probe was turned away, and a supervisor would have killed a healthy broker."""
    monkeypatch.setattr(LinkTable, "SWEEP_MS", 5)
    monkeypatch.setattr(health, "LIMITS", replace(LIMITS, connections_max=8, frame_ms_max=300, first_frame_ms_max=300))

    async def scene(server: HealthServer) -> None:
        closed = server.ports["health"].closed_by_cause
        halves = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(30)]
        for _, writer in halves[-6:]:
            writer.write(b"GET /metrics HT")
        assert b"alive" in await asked(server, b"GET /livez HTTP/1.1\r\n\r\n")
        await until(lambda: len(server.ports["health"]) == 0)
        while closed[CloseCause.SLOW_FRAME] == 0:
            # The loop stood still for 300 ms between an open and its first bytes: those had said nothing.
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            halves.append((reader, writer))
            writer.write(b"GET /metrics HT")
            await reader.read()
        assert sum(closed.values()) == len(halves) + 1
        # 22 where all of them are open before the first one's time is up.
        assert closed[CloseCause.TOO_MANY_LINKS] > 0
        for _, writer in halves:
            writer.close()

    serving(scene)


def test_endless_headers_and_a_probe_of_the_port_are_counted() -> None:
    async def scene(server: HealthServer) -> None:
        closed = server.ports["health"].closed_by_cause
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /livez HTTP/1.1\r\n" + b"X: y\r\n" * 2_000)
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            pass
        writer.close()
        _, probe = await asyncio.open_connection("127.0.0.1", server.port)
        probe.close()
        await until(lambda: closed == {CloseCause.FRAME_LENGTH: 1, CloseCause.PROBE: 1})

    serving(scene)


def test_a_stop_ends_links_that_have_not_asked() -> None:
    async def scene(server: HealthServer) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        await until(lambda: len(server.ports["health"]) == 1)
        await server.stop()
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            pass
        writer.close()
        assert server.ports["health"].closed_by_cause == {CloseCause.STOPPED: 1}

    serving(scene)


async def unanswered(server: HealthServer, tls: ssl.SSLContext | None) -> bool:
    """Whether the link ends without a byte of an answer."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=tls)
    except OSError:
        return True
    try:
        writer.write(b"GET /livez HTTP/1.1\r\n\r\n")
        return not await reader.read()
    except OSError:
        return True
    finally:
        writer.transport.abort()


def nameless() -> ssl.SSLContext:
    """As kubelet asks: it checks nothing, and has no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def test_a_secured_port_tells_everybody_that_it_lives_and_its_metrics_to_the_fleet(tmp_path: Path) -> None:
    make_certificates(tmp_path, ["c1"])
    broker = more_credentials(tmp_path, named(PeerKind.BROKER, "broker-a-1", set_key="test/broker-a"))
    viewer = more_credentials(tmp_path, named(PeerKind.VIEWER, "prometheus"))

    async def scene(server: HealthServer) -> None:
        closed = server.ports["health"].closed_by_cause
        assert b"alive" in await asked(server, b"GET /livez HTTP/1.1\r\n", b"\r\n", tls=nameless())
        assert b"200 OK" in await asked(server, b"GET /readyz HTTP/1.1\r\n\r\n", tls=nameless())
        refused = await asked(server, b"GET /metrics HTTP/1.1\r\n\r\n", tls=nameless())
        assert refused.startswith(b"HTTP/1.1 403 ")
        assert b"rollcall_broker" not in refused
        shown = await asked(server, b"GET /metrics HTTP/1.1\r\n\r\n", tls=viewer.client_context())
        assert b"rollcall_broker_lag_bytes 5.0" in shown
        assert b"rollcall_broker_metrics_refused_total 1.0" in shown
        await until(lambda: closed == {CloseCause.HANDLER: 4})

        assert await unanswered(server, None)
        await until(lambda: closed[CloseCause.TLS] == 1)

    serving(scene, credentials=broker)


def test_a_revoked_or_foreign_certificate_gets_no_answer_of_a_secured_port(tmp_path: Path) -> None:
    make_certificates(tmp_path / "ours", ["c1"])
    make_certificates(tmp_path / "theirs", ["c1"])
    ours, theirs = credentials_in(tmp_path / "ours", "c1"), credentials_in(tmp_path / "theirs", "c1")
    viewer = more_credentials(tmp_path / "ours", named(PeerKind.VIEWER, "prometheus"))

    async def scene(server: HealthServer) -> None:
        closed = server.ports["health"].closed_by_cause
        ours.revoke({viewer.own.serial})
        for context in (viewer.client_context(), theirs.client_context()):
            context.verify_mode = ssl.CERT_NONE
            assert await unanswered(server, context)
        await until(lambda: closed == {CloseCause.REVOKED: 1, CloseCause.TLS: 1})

    serving(scene, credentials=ours)


def test_what_would_be_deleted_is_shown_and_for_other_values() -> None:
    server = HealthServer(Telemetry(), lambda: replace(SNAPSHOT, retention=lambda wanted: f"keeps {wanted}\n"))
    assert server.answer(b"GET /retention HTTP/1.1").endswith(b"keeps {}\n")
    assert server.answer(b"GET /retention?hours=24 HTTP/1.1").endswith(b"keeps {'hours': 24}\n")
    both = server.answer(b"GET /retention?forced=85&refused=90 HTTP/1.1")
    assert both.endswith(b"keeps {'forced': 85, 'refused': 90}\n")
    for wrong in (b"hours=-1", b"hours=", b"days=3", b"hours=123456", b"hours=1&hours=2", b"hours=1&"):
        assert server.answer(b"GET /retention?" + wrong + b" HTTP/1.1").startswith(b"HTTP/1.1 400 ")
