"""Callers of a controller without sockets: what the TLS door would have said of their links."""

from __future__ import annotations

import time
from collections.abc import Mapping

import httpx
from starlette.types import ASGIApp, Receive, Scope, Send

from rollcall_ha.api.rest.listening import CERTIFICATE, COMPLAINT
from rollcall_ha.node.certified import CertifiedName, PeerCertificate, PeerKind
from tests.support.runtime_controller import Controller

PEOPLE = (PeerKind.VIEWER, PeerKind.OPERATOR, PeerKind.ADMIN)


def certificate(
    kind: PeerKind, name: str = "", *, set_key: str = "", serial: str = "", days: float = 9
) -> PeerCertificate:
    """Of fleet ``demo``; by default it is called like its kind."""
    name = name or kind.value
    key = set_key or ("demo/broker-a" if kind is PeerKind.BROKER else "")
    return PeerCertificate(
        name=CertifiedName(fleet="demo", kind=kind, name=name, set_key=key),
        serial=serial or f"{sum(map(ord, kind + name)):x}",
        expires_at_ms=int((time.time() + days * 86_400) * 1000),
    )


def caller(
    controller: Controller,
    shown: PeerCertificate | None = None,
    *,
    token: str = "",
    complaint: str = "",
    headers: Mapping[str, str] | None = None,
) -> httpx.AsyncClient:
    """Who asks ``controller`` over a link on which ``shown`` was shown. Close it."""
    app: ASGIApp = controller.app

    async def secured(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "state": {CERTIFICATE: shown, COMPLAINT: complaint}}, receive, send)

    bearer = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app=secured, client=("192.0.2.7", 4711)),
        base_url=f"https://{controller.service.settings.own.rest}",
        headers=bearer | dict(headers or {}),
    )
