"""
The edge of REST against foreign web pages: the checks of every request before a route sees it.

Here: the names in ``Host``, the sites in ``Origin`` and ``Sec-Fetch-Site``. Not here: the media type of a body
(``routes``), half and slow requests (``listening``), who the caller is: whoever reaches the port is believed
(docs/threats.md).

Rule 1: ``Host`` is a name of this controller, or the answer is 421, for reads as well. A page whose name was rebound to
127.0.0.1 has the same origin as what it asks for; only the name in ``Host`` shows that it was loaded from elsewhere.
421, not 403 (RFC 9110, 15.5.20): the target is not served here, and no right of the caller would change that.
Rule 2: a changing request that a browser sends for another site is 403. Without ``Origin`` and ``Sec-Fetch-Site`` no
browser sent it, and it passes.
Rule 3: no CORS header is ever sent: a page of another site may ask, and cannot read the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter
from starlette.types import ASGIApp, Receive, Scope, Send

from rollcall_ha.api.rest import problems
from rollcall_ha.controller.contract.values import Frozen

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""RFC 9110, 9.2.1: they change nothing."""
OWN_SITES = frozenset({"same-origin", "none"})
"""``Sec-Fetch-Site`` of a page of ours, and of an address that a person typed. A neighbour on ``same-site`` is not us:
``http://localhost:8000`` is on the site of ``http://localhost:7101``."""
SHOWN_CHARACTERS_MAX = 100
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]{1,5})?")


class RefusedFor(StrEnum):
    """Why the edge refused a request: the closed vocabulary of ``rollcall_rest_requests_refused_total``."""

    HOST = "host"
    CROSS_SITE = "cross-site"
    MEDIA_TYPE = "media-type"
    """Refused by ``routes``, and counted with the others."""


class EdgeRefusal(Frozen):
    """``detail`` names both values."""

    reason: RefusedFor
    detail: str


def judge(method: str, headers: Iterable[tuple[bytes, bytes]], names: frozenset[str]) -> EdgeRefusal | None:
    """
    Why this request must not reach a route; None: it may.

    ``headers`` as ASGI has them, names in lower case; ``names`` are the hosts of this controller, without brackets.
    """
    found: dict[bytes, list[str]] = {}
    for name, value in headers:
        found.setdefault(name, []).append(value.decode("latin-1"))
    hosts = found.get(b"host", [])
    if len(hosts) != 1 or _host_name(hosts[0]) not in names:
        told = f"Host is {_shown(hosts)}; this controller is {', '.join(sorted(names))}"
        return EdgeRefusal(reason=RefusedFor.HOST, detail=told)
    if method in SAFE_METHODS:
        return None
    sites = found.get(b"sec-fetch-site", [])
    if any(site not in OWN_SITES for site in sites):
        told = f"Sec-Fetch-Site is {_shown(sites)}; a changing request must be same-origin"
        return EdgeRefusal(reason=RefusedFor.CROSS_SITE, detail=told)
    origins = found.get(b"origin", [])
    # Beside Sec-Fetch-Site, not instead of it: browsers before 2023 send Origin alone. "null", of a sandboxed frame,
    # is nobody's.
    if any(origin.lower().partition("://")[2] != hosts[0].lower() for origin in origins):
        told = f"Origin is {_shown(origins)}, Host is {hosts[0]}: a changing request must be same-origin"
        return EdgeRefusal(reason=RefusedFor.CROSS_SITE, detail=told)
    return None


def _host_name(host: str) -> str | None:
    """Without port and brackets, in lower case. Any port: behind a tunnel it is another one."""
    match = _HOST.fullmatch(host)
    return (match[1] or match[2]).lower() if match is not None else None


def _shown(values: list[str]) -> str:
    return repr(", ".join(values)[:SHOWN_CHARACTERS_MAX]) if values else "missing"


class EdgeCounts:
    """Refused requests by reason, as a metric."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._refused = Counter(
            "rollcall_rest_requests_refused", "Requests that the edge refused.", ["reason"], registry=registry
        )
        for reason in RefusedFor:
            self._refused.labels(reason)

    def refused(self, reason: RefusedFor) -> None:
        """Count a request that was refused for ``reason``."""
        self._refused.labels(reason).inc()


class Edge:
    """ASGI: rules 1 and 2 before everything else."""

    def __init__(self, app: ASGIApp, *, names: frozenset[str], counts: EdgeCounts) -> None:
        self._app = app
        self._names = names
        self._counts = counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = judge(scope["method"], scope["headers"], self._names) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
            return
        self._counts.refused(refusal.reason)
        of = problems.misdirected if refusal.reason is RefusedFor.HOST else problems.cross_site
        await of(refusal.detail)(scope, receive, send)
