"""
Every unhappy answer of REST, as one document (RFC 9457).

Here: refusals, missing authority, unknown outcomes and bad requests as ``Problem`` with its status and headers.
Not here: deciding any of it.

Rule 1: a problem has the code, both values and the remedy; the code of a request that was not executed says so.
Rule 2: a caller that should ask the leader learns its address: 307 with ``Location``, or 503 with ``Retry-After``.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from rollcall_ha.controller.contract.codes import HTTP_STATUS, REQUEST_ID_HEADER, RefusalCode
from rollcall_ha.controller.contract.ids import BrokerId, RequestId
from rollcall_ha.controller.contract.replies import Refused
from rollcall_ha.controller.contract.views import Problem
from rollcall_ha.controller.runtime.authority import Authority
from rollcall_ha.controller.runtime.queries import NotFound

PROBLEM_MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 1
_MEANWHILE = "retry after a second; over REST a read with ?consistency=local is answered meanwhile"


def _respond(
    code: str,
    status: int,
    *,
    detail: str,
    hint: str,
    title: str = "",
    request_id: RequestId | None = None,
    refusal: Refused | None = None,
    leader: str | None = None,
    location: str | None = None,
    requested: str | None = None,
    current: str | None = None,
    names: Mapping[BrokerId, str] | None = None,
    more_headers: Mapping[str, str] | None = None,
) -> Response:
    """The document with its status; ``type`` names the kind of problem for ever, ``title`` is the code in words."""
    problem = Problem(
        type=f"urn:rollcall:problem:{code.lower().replace('_', '-')}",
        title=title or code.replace("_", " ").capitalize(),
        status=status,
        detail=detail,
        code=code,
        hint=hint,
        request_id=request_id,
        requested=refusal.requested if refusal is not None else requested,
        current=refusal.current if refusal is not None else current,
        leader=leader,
        verdict=refusal.verdict if refusal is not None else None,
        names=dict(names or {}),
    )
    headers = {
        REQUEST_ID_HEADER: request_id,
        "Location": location,
        # Each 503 means "nothing was executed": without a pause a caller would ask a fleet that elects its leader in a
        # tight loop, and slow down the election that it waits for.
        "Retry-After": str(RETRY_AFTER_SECONDS) if status == 503 else None,
    }
    return Response(
        msgspec.json.encode(problem),
        status_code=status,
        media_type=PROBLEM_MEDIA_TYPE,
        headers={name: value for name, value in headers.items() if value is not None} | dict(more_headers or {}),
    )


def refused(refusal: Refused, *, request_id: RequestId | None, names: Mapping[BrokerId, str] | None = None) -> Response:
    """A definite no of apply, or of the leader's sessions; ``names``: of the brokers of the set that it is about."""
    return _respond(
        refusal.code.name,
        HTTP_STATUS.get(refusal.code, 409),
        detail=refusal.reason,
        hint=refusal.hint,
        request_id=request_id,
        refusal=refusal,
        names=names,
    )


def no_authority(
    authority: Authority, *, leader: str | None, location: str | None, request_id: RequestId | None
) -> Response:
    """Another controller leads: 307 to ``location``. No leader is known: 503. Nothing was executed."""
    detail = authority.reason or "this controller does not answer with authority"
    if location is None:
        hint = _MEANWHILE
        title = "No controller leads"
        return _respond("NO_LEADER", 503, title=title, detail=detail, hint=hint, request_id=request_id, leader=leader)
    # 307, never 302: with 302 a client repeats a POST as a GET, and the election is not asked for at all.
    return _respond(
        RefusalCode.NOT_LEADER.name,
        307,
        title="Another controller leads",
        detail=detail,
        hint="follow Location",
        request_id=request_id,
        leader=leader,
        location=location,
    )


def outcome_unknown(request_id: RequestId, reason: str) -> Response:
    """It may be executed now, later or never; the request id is how a caller finds out."""
    hint = f"ask again with request id {request_id}: it is never executed twice while it is remembered"
    return _respond("OUTCOME_UNKNOWN", 504, detail=reason, hint=hint, request_id=request_id)


def no_answer(leader: str, reason: str) -> Response:
    """A read that was passed on to the leader, without an answer."""
    hint = _MEANWHILE
    return _respond("NO_ANSWER", 503, title="The leader gave no answer", detail=reason, hint=hint, leader=leader)


def overloaded(request_id: RequestId | None, reason: str) -> Response:
    """Certainly not executed: too much waits already."""
    hint = "nothing was proposed; retry after a pause"
    return _respond(RefusalCode.OVERLOADED.name, 503, detail=reason, hint=hint, request_id=request_id)


def not_found(error: NotFound) -> Response:
    """There is no such set or epoch."""
    return _respond(RefusalCode.SET_NOT_FOUND.name, 404, title="Not found", detail=error.what, hint=error.hint)


def bad_request(status: int, detail: str, *, request_id: RequestId | None = None) -> Response:
    """The request is not what this interface understands."""
    return _respond("BAD_REQUEST", status, detail=detail, hint="see /openapi.json", request_id=request_id)


def tls_only(detail: str) -> Response:
    """Plain HTTP on a port with certificates: asked without an authority, as by ``--controllers`` alone."""
    hint = "https; of rollcall: --authority ca.pem --identity admin.pem, or --config with the fleet file beside them"
    return _respond("BAD_REQUEST", 400, detail=detail, hint=hint)


def not_json(detail: str) -> Response:
    """The body has a media type that a form, or a page of another site, can send without asking first."""
    return _respond("UNSUPPORTED_MEDIA_TYPE", 415, detail=detail, hint="send Content-Type: application/json")


def misdirected(detail: str) -> Response:
    """``Host`` names somebody else (421)."""
    hint = "ask by the configured address, or add the name to fleet.rest_names in the fleet file"
    return _respond("MISDIRECTED_REQUEST", 421, detail=detail, hint=hint)


def cross_site(detail: str) -> Response:
    """A browser sends this for a page of another site (403)."""
    return _respond("CROSS_SITE", 403, detail=detail, hint="send it from a program, or from a page of this address")


def unauthenticated(detail: str) -> Response:
    """Nobody known asks (401)."""
    hint = "show a client certificate of the fleet (--identity), or a token (ROLLCALL_TOKEN_FILE)"
    challenge = {"WWW-Authenticate": 'Bearer realm="rollcall"'}
    return _respond("UNAUTHENTICATED", 401, detail=detail, hint=hint, more_headers=challenge)


def forbidden(detail: str, *, requested: str | None = None, current: str | None = None) -> Response:
    """Somebody known asks, without the role (403)."""
    hint = "ask with a certificate or token of that role; an admin issues both"
    return _respond(RefusalCode.FORBIDDEN.name, 403, detail=detail, hint=hint, requested=requested, current=current)


def too_many(detail: str, *, wait_s: int) -> Response:
    """One caller asks too often, or too much at once (429)."""
    hint = "nothing was done; ask again after the seconds of Retry-After, and less often"
    return _respond(
        "TOO_MANY_REQUESTS", 429, detail=detail, hint=hint, more_headers={"Retry-After": str(max(1, wait_s))}
    )


def not_ready(reason: str) -> Response:
    """Alive, but not able to serve (S60)."""
    return _respond("NOT_READY", 503, detail=reason, hint="wait; see /v1/controllers for what the others say")
