"""
The FastAPI application of one controller.

Here: routes joined with failures, probes, metrics, and the complete OpenAPI document. Not here: what routes do
(``routes``), listening (``api.server``).

Rule 1: any controller takes any request: one that another controller leads passes it on (``forwarding``), and if that
cannot be, sends its caller there by 307. Nobody waits for a leader to be elected.
Rule 2: every failure is a problem document; a fault of ours is a 500 that says nothing of our insides.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from rollcall_ha.api.rest import problems
from rollcall_ha.api.rest.backups import backup_routes
from rollcall_ha.api.rest.console import Console
from rollcall_ha.api.rest.consumers import consumer_routes
from rollcall_ha.api.rest.counting import Counting
from rollcall_ha.api.rest.edge import Edge, EdgeCounts, RefusedFor
from rollcall_ha.api.rest.forwarding import forward, target_of
from rollcall_ha.api.rest.guard import Guard, RefusalLog
from rollcall_ha.api.rest.masters import Masters
from rollcall_ha.api.rest.peers import Peers
from rollcall_ha.api.rest.relay import is_relayed
from rollcall_ha.api.rest.requests import BadRequestBody, NotJson, as_json
from rollcall_ha.api.rest.roles import OPEN, SECURITY_SCHEMES, security_of
from rollcall_ha.api.rest.routes import Routes
from rollcall_ha.api.rest.schemas import Liveness, answers, components, only_problems
from rollcall_ha.controller.contract.ids import RequestId
from rollcall_ha.controller.replication.proposer import EntryOutcomeUnknown, NotLeader, Overloaded
from rollcall_ha.controller.runtime.authority import Authority
from rollcall_ha.controller.runtime.ports import NoAuthority
from rollcall_ha.controller.runtime.queries import NotFound, Queries
from rollcall_ha.controller.runtime.service import ControllerService
from rollcall_ha.node.telemetry import Telemetry, get_logger
from rollcall_ha.node.tls import Credentials

API_VERSION = "1"
"""The version of the interface, not of the program: JSON keys never change within it."""


def make_app(
    *, service: ControllerService, queries: Queries, peers: Peers, telemetry: Telemetry, tls: Credentials | None = None
) -> FastAPI:
    """The application; it does not listen. ``tls``: for links to brokers, None in an insecure fleet."""
    masters = Masters(service, tls)
    app = FastAPI(
        title="Rollcall controller",
        version=API_VERSION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    # Its routes themselves, not the router: included, they are found behind it only, where the guard does not see them.
    app.router.routes.extend(Routes(service, queries, peers, masters).router.routes)
    app.router.routes.extend(consumer_routes(masters).routes)
    app.router.routes.extend(backup_routes(service).routes)
    app.router.routes.extend(Console().router.routes)
    _add_health(app, service, queries, telemetry)
    counts = EdgeCounts(telemetry.registry)
    refusals = RefusalLog(get_logger("rollcall.refused"), telemetry.registry, time.monotonic)
    _add_failures(app, service, peers, counts)
    app.add_middleware(
        Guard,
        of=app,
        fleet=lambda: service.published.state,
        is_insecure=service.settings.is_insecure,
        log=refusals,
    )
    # Around the guard: a page of another site is refused whoever's browser it is in.
    app.add_middleware(Edge, names=service.settings.rest_hosts, counts=counts)
    app.add_middleware(Counting, registry=telemetry.registry)
    _document(app)
    return app


def _add_health(app: FastAPI, service: ControllerService, queries: Queries, telemetry: Telemetry) -> None:
    async def livez() -> Response:
        """The process runs and its loop turns."""
        return as_json(Liveness(status="alive"))

    async def readyz() -> Response:
        """It leads with authority, or follows a leader that it has heard lately."""
        authority = service.authority()
        # A leader without a majority names itself: counted as a follower of itself, it would look ready for ever.
        follows = authority.leader not in (None, service.settings.name)
        if authority.is_held or follows:
            return as_json(
                Liveness(status="ready", reason="leads" if authority.is_held else f"follows {authority.leader}")
            )
        return problems.not_ready(authority.reason)

    async def leader() -> Response:
        """This controller leads, and a majority has said so lately: for load balancers that want one place to ask."""
        authority = service.authority()
        if authority.is_held:
            return as_json(Liveness(status="leader", reason=f"leads in term {authority.term}"))
        return problems.not_ready(authority.reason)

    async def metrics() -> Response:
        await queries.look()
        content, media_type = telemetry.exposition()
        return Response(content, media_type=media_type)

    text: dict[int | str, dict[str, Any]] = {
        200: {"description": "Exposition.", "content": {"text/plain": {"schema": {"type": "string"}}}},
        **only_problems(421),
    }
    add = partial(app.add_api_route, methods=["GET"], tags=["health"])
    probes = (("/livez", livez, "getLiveness"), ("/readyz", readyz, "getReadiness"), ("/leader", leader, "getLeader"))
    for path, probe, operation in probes:
        problem = () if probe is livez else (503,)
        add(path, probe, operation_id=operation, responses=answers(Liveness, problems=problem))
        # Not in the document: of every GET it is known (RFC 9110), and a generated client would have each twice.
        add(path, probe, methods=["HEAD"], operation_id=operation, include_in_schema=False)
    add("/metrics", metrics, operation_id="getMetrics", responses=text)


def _add_failures(app: FastAPI, service: ControllerService, peers: Peers, counts: EdgeCounts) -> None:
    def request_id_of(request: Request) -> RequestId | None:
        found: RequestId | None = getattr(request.state, "request_id", None)
        return found

    async def elsewhere(request: Request, authority: Authority) -> Response:
        settings = service.settings
        request_id = request_id_of(request)
        # A leader that has lost its majority knows no better one than itself: sent there, the caller would go round in
        # a circle until its limit, instead of hearing 503 at once.
        leader = authority.leader if authority.leader != settings.name else None
        # One that came from a controller goes no further: the two may take each other for the leader.
        if is_relayed(request):
            return problems.no_authority(authority, leader=None, location=None, request_id=request_id)
        if leader is not None:
            content = getattr(request.state, "content", b"")
            identity = request_id or service.ports.new_request_id()
            if answer := await forward(request, content, peers, leader=leader, request_id=identity):
                return answer
        base = settings.rest_base(leader)
        location = f"{base}{target_of(request)}" if base is not None else None
        return problems.no_authority(authority, leader=base, location=location, request_id=request_id)

    def invalid(error: RequestValidationError) -> Response:
        found = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        return problems.bad_request(422, found)

    def not_json(error: NotJson) -> Response:
        counts.refused(RefusedFor.MEDIA_TYPE)
        return problems.not_json(str(error))

    def http_error(error: HTTPException) -> Response:
        answer = problems.bad_request(error.status_code, str(error.detail))
        answer.headers.update(error.headers or {})
        return answer

    # NotLeader and Overloaded mean that nothing was proposed. EntryOutcomeUnknown must never fall among them: a caller
    # that is told 503 sends its election again under a new id, while the first one may commit.
    answers_to: dict[type[Exception], Callable[[Request, Any], Response | Awaitable[Response]]] = {
        NoAuthority: lambda request, error: elsewhere(request, error.authority),
        NotLeader: lambda request, _: elsewhere(request, service.authority()),
        EntryOutcomeUnknown: lambda _, error: problems.outcome_unknown(error.request_id, str(error)),
        Overloaded: lambda request, error: problems.overloaded(request_id_of(request), str(error)),
        NotFound: lambda _, error: problems.not_found(error),
        NotJson: lambda _, error: not_json(error),
        BadRequestBody: lambda _, error: problems.bad_request(error.status, str(error)),
        RequestValidationError: lambda _, error: invalid(error),
        ValueError: lambda request, error: problems.bad_request(422, str(error), request_id=request_id_of(request)),
        HTTPException: lambda _, error: http_error(error),
        # The link was closed with half a body on it. Not caught, each of 2,000 would be a traceback in the log.
        ClientDisconnect: lambda _, __: problems.bad_request(400, "the body did not come to its end"),
    }

    async def answer(request: Request, error: Exception) -> Response:
        """On the loop, which owns the state that is asked; plain functions would run on a thread of their own."""
        kind = next(kind for kind in type(error).__mro__ if kind in answers_to)
        answer = answers_to[kind](request, error)
        return answer if isinstance(answer, Response) else await answer

    for kind in answers_to:
        app.add_exception_handler(kind, answer)


def _document(app: FastAPI) -> None:
    """Replace the generated document by one with the contract's own schemas."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, routes=app.routes)
            document["components"] = {"schemas": components(), "securitySchemes": SECURITY_SCHEMES}
            for operations in document["paths"].values():
                for operation in operations.values():
                    _without_generated(operation)
                    _with_guard(operation)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _with_guard(operation: dict[str, Any]) -> None:
    """What ``guard`` asks for and answers with."""
    name = operation["operationId"]
    operation["security"] = security_of(name)
    refusals = (429,) if name in OPEN else (401, 403, 429)
    for status, answer in only_problems(*refusals).items():
        operation["responses"].setdefault(str(status), answer)
    operation["responses"] = dict(sorted(operation["responses"].items()))


def _without_generated(operation: dict[str, Any]) -> None:
    """FastAPI documents its own 422, which ``_add_failures`` never sends."""
    unprocessable = operation["responses"].get("422", {}).get("content", {})
    if "application/json" in unprocessable:
        del operation["responses"]["422"]
