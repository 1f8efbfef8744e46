"""TLS in front of REST: half handshakes have limits, strangers end with a cause, and rights end with their certificate."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rollcall_ha.api.rest.listening import CERTIFICATE, COMPLAINT, REQUEST_MS_MAX
from rollcall_ha.node.certified import PeerKind
from rollcall_ha.node.remoting.links import CloseCause
from tests.support.fleet_certs import FleetCertificates
from tests.support.rest_port import Link, RestPort
from tests.support.runtime_controller import until

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Port(RestPort):
    """Its application answers with who asks."""

    def __init__(self, directory: Path) -> None:
        self.certificates = FleetCertificates(directory)
        self.credentials = self.certificates.credentials()
        super().__init__(self.credentials)

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = scope["state"][CERTIFICATE]
        told = scope["state"][COMPLAINT] or ("nobody" if found is None else str(found.name))
        body = told.encode() * (100_000 if scope["path"] == "/large" else 1)
        await Response(body)(scope, receive, send)


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Callable[[Port], Awaitable[None]]], None]:
    def of(scenario: Callable[[Port], Awaitable[None]]) -> None:
        async def main() -> None:
            async with asyncio.timeout(60), Port(tmp_path).running() as port:
                await scenario(port)

        asyncio.run(main())

    return of


Run = Callable[[Callable[[Port], Awaitable[None]]], None]


async def _answer(link: Link) -> bytes:
    head = await link[0].readuntil(b"\r\n\r\n")
    size = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return await link[0].readexactly(int(size.partition(b":")[2]))


async def _rest(link: Link) -> bytes:
    """What comes until the other end closes."""
    try:
        return await link[0].read()
    except (ConnectionError, ssl.SSLError):
        return b""


def test_a_certificate_is_asked_for_and_told_to_the_application(run: Run) -> None:
    """With one, without one, and over an answer of many records; a second request on the link is the same caller's."""

    async def scenario(port: Port) -> None:
        alice = port.certificates.issue(PeerKind.OPERATOR, "alice")
        named = await port.link(GET, context=port.certificates.caller(alice))
        assert await _answer(named) == b"rollcall://demo/operator/alice"
        named[1].write(GET.replace(b"/ ", b"/large "))
        assert await _answer(named) == b"rollcall://demo/operator/alice" * 100_000
        assert await _answer(await port.link(GET, context=port.certificates.caller())) == b"nobody"

    run(scenario)


def test_plain_http_is_told_what_it_missed_and_half_handshakes_end_in_time(run: Run) -> None:
    """asyncio's own TLS would keep a half handshake for a minute, beyond every limit of the table."""

    async def scenario(port: Port) -> None:
        plain = await port.link(GET)
        told = await _rest(plain)
        assert told.startswith(b"HTTP/1.1 400")
        assert b"speaks TLS only" in told
        assert b"--authority ca.pem --identity admin.pem" in told, "it did not say what to give"
        await until(lambda: port.closed[CloseCause.TLS] == 1)
        half = [await port.link(b"\x16\x03\x01\x02\x00\x01"), await port.link()]
        await until(lambda: len(port.server.links) == 2)
        port.pass_ms(REQUEST_MS_MAX + 1_500)
        assert [await _rest(link) for link in half] == [b"", b""]
        await until(lambda: (port.closed[CloseCause.TLS], port.closed[CloseCause.SAID_NOTHING]) == (2, 1))
        garbage = await port.link(b"\x16\x03\x01\x00\x05nonsense")
        assert await _rest(garbage) != b"", "an alert says that it is no TLS"
        await until(lambda: port.closed[CloseCause.TLS] == 3)

    run(scenario)


def test_a_stranger_and_an_expired_certificate_get_no_link(run: Run, tmp_path: Path) -> None:
    """The alert names the fault; nothing of the request is read."""

    async def scenario(port: Port) -> None:
        other = FleetCertificates(tmp_path / "other")
        foreign = port.certificates.caller()
        stranger = other.issue(PeerKind.ADMIN, "mallory")
        foreign.load_cert_chain(stranger, stranger.with_suffix(".key"))
        late = port.certificates.caller(port.certificates.issue(PeerKind.ADMIN, "late", days=-1))
        for context, alert in ((foreign, "UNKNOWN_CA"), (late, "CERTIFICATE_EXPIRED")):
            link = await port.link(GET, context=context)
            with pytest.raises(ssl.SSLError, match=alert):
                await link[0].read()
        await until(lambda: port.closed[CloseCause.TLS] == 2)

    run(scenario)


def test_a_certificate_of_another_fleet_is_nobodys_and_told_so(run: Run, tmp_path: Path) -> None:
    """One authority may sign for two fleets."""

    async def scenario(port: Port) -> None:
        port.certificates.fleet = "other"
        alice = port.certificates.issue(PeerKind.ADMIN, "alice")
        told = await _answer(await port.link(GET, context=port.certificates.caller(alice)))
        assert told.endswith(b"names rollcall://other/admin/alice; this fleet is demo")

    run(scenario)


def test_open_links_end_when_their_certificate_is_revoked_or_expires(run: Run) -> None:
    """A stream of a day would keep the rights of one that was revoked in the morning; others stay open."""

    async def scenario(port: Port) -> None:
        links = {}
        for name in ("alice", "bob"):
            file = port.certificates.issue(PeerKind.ADMIN, name)
            links[name] = await port.link(GET, context=port.certificates.caller(file))
            await _answer(links[name])
        nobody = await port.link(GET, context=port.certificates.caller())
        await _answer(nobody)
        (serial,) = {
            link.certificate.serial
            for link in port.server.links.snapshot()
            if link.certificate is not None and link.certificate.name.name == "alice"
        }
        port.credentials.revoke({serial})
        port.pass_ms(1_000)
        assert await _rest(links["alice"]) == b""
        assert port.closed[CloseCause.REVOKED] == 1
        port.server.links._wall_ms = lambda: time.time_ns() // 1_000_000 + 91 * 86_400_000
        port.pass_ms(1_000)
        assert await _rest(links["bob"]) == b""
        assert port.closed[CloseCause.EXPIRED] == 1
        nobody[1].write(GET)
        assert await _answer(nobody) == b"nobody"
        again = await port.link(GET, context=port.certificates.caller(port.certificates.directory / "alice.pem"))
        assert (await _answer(again)).endswith(b"is revoked")

    run(scenario)


def test_renewed_files_are_shown_to_the_next_link(run: Run) -> None:
    """Without a restart, and without touching the links that are open."""

    async def scenario(port: Port) -> None:
        context = port.certificates.caller()
        old = await port.link(GET, context=context)
        await _answer(old)
        port.certificates.issue(PeerKind.CONTROLLER, "c1")
        assert port.credentials.renew_if_changed()
        new = await port.link(GET, context=context)
        await _answer(new)
        shown = [link[1].get_extra_info("ssl_object").getpeercert()["serialNumber"] for link in (old, new)]
        assert shown[0] != shown[1]
        assert int(shown[1], 16) == int(port.credentials.own.serial, 16)
        old[1].write(GET)
        assert await _answer(old) == b"nobody"

    run(scenario)
