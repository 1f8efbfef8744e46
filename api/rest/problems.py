"""
Every unhappy answer of REST, as one document (RFC 9457).

Here: refusals, missing authority, unknown outcomes and bad requests as ``Problem`` with its status and headers.
Not here: deciding any of it.

Rule 1: a problem has the code, both values and the remedy; what was not executed says so by its code.
Rule 2: whoever should ask the leader hears where it is: 307 with ``Location``, or 503 with ``Retry-After``.
"""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from rollcall_ha.controller.contract.codes import HTTP_STATUS, RefusalCode
from rollcall_ha.controller.contract.ids import RequestId
from rollcall_ha.controller.contract.replies import Refused
from rollcall_ha.controller.contract.views import Problem
from rollcall_ha.controller.runtime.authority import Authority
from rollcall_ha.controller.runtime.queries import NotFound

PROBLEM_MEDIA_TYPE = "application/problem+json"
REQUEST_ID_HEADER = "X-Request-Id"
RETRY_AFTER_SECONDS = 1


def problem_type(code: str) -> str:
    """A URI that names the kind of problem for ever."""
    return f"urn:rollcall:problem:{code.lower().replace('_', '-')}"


def respond(problem: Problem, *, headers: dict[str, str] | None = None) -> Response:
    """The document with its status."""
    extra = dict(headers or {})
    if problem.request_id is not None:
        extra[REQUEST_ID_HEADER] = problem.request_id
    if problem.status == 503:
        extra["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return Response(
        msgspec.json.encode(problem), status_code=problem.status, media_type=PROBLEM_MEDIA_TYPE, headers=extra
    )


def refused(refusal: Refused, *, request_id: RequestId | None, leader: str | None = None) -> Response:
    """A definite no of apply, or of the leader's sessions."""
    return respond(
        Problem(
            type=problem_type(refusal.code.name),
            title=refusal.code.name.replace("_", " ").capitalize(),
            status=HTTP_STATUS.get(refusal.code, 409),
            detail=refusal.reason,
            code=refusal.code.name,
            hint=refusal.hint,
            request_id=request_id,
            requested=refusal.requested,
            current=refusal.current,
            leader=leader,
            verdict=refusal.verdict,
        )
    )


def no_authority(
    authority: Authority, *, leader: str | None, location: str | None, request_id: RequestId | None
) -> Response:
    """Another one leads: 307 to ``location``. Nobody is known to lead: 503. Nothing was executed."""
    is_redirect = location is not None
    return respond(
        Problem(
            type=problem_type(RefusalCode.NOT_LEADER.name if is_redirect else "NO_LEADER"),
            title="Another controller leads" if is_redirect else "No controller leads",
            status=307 if is_redirect else 503,
            detail=authority.reason or "this controller does not answer with authority",
            code=RefusalCode.NOT_LEADER.name if is_redirect else "NO_LEADER",
            hint="follow Location" if is_redirect else "retry after a second; read with consistency=local meanwhile",
            request_id=request_id,
            leader=leader,
        ),
        headers={"Location": location} if location is not None else None,
    )


def outcome_unknown(request_id: RequestId, reason: str) -> Response:
    """It may be executed now, later or never."""
    return respond(
        Problem(
            type=problem_type("OUTCOME_UNKNOWN"),
            title="Outcome unknown",
            status=504,
            detail=reason,
            code="OUTCOME_UNKNOWN",
            hint=f"ask again with request id {request_id}: it is never executed twice while it is remembered",
            request_id=request_id,
        )
    )


def overloaded(request_id: RequestId | None, reason: str) -> Response:
    """Certainly not executed: too much waits already."""
    return respond(
        Problem(
            type=problem_type(RefusalCode.OVERLOADED.name),
            title="Overloaded",
            status=503,
            detail=reason,
            code=RefusalCode.OVERLOADED.name,
            hint="nothing was proposed; retry after a pause",
            request_id=request_id,
        )
    )


def not_found(error: NotFound) -> Response:
    """There is no such thing."""
    return respond(
        Problem(
            type=problem_type(RefusalCode.SET_NOT_FOUND.name),
            title="Not found",
            status=404,
            detail=error.what,
            code=RefusalCode.SET_NOT_FOUND.name,
            hint=error.hint,
        )
    )


def bad_request(status: int, detail: str, *, request_id: RequestId | None = None) -> Response:
    """The request is not what this interface understands."""
    return respond(
        Problem(
            type=problem_type("BAD_REQUEST"),
            title="Bad request",
            status=status,
            detail=detail,
            code="BAD_REQUEST",
            hint="see /openapi.json",
            request_id=request_id,
        )
    )


def not_ready(reason: str) -> Response:
    """Alive, but not able to serve (S60)."""
    return respond(
        Problem(
            type=problem_type("NOT_READY"),
            title="Not ready",
            status=503,
            detail=reason,
            code="NOT_READY",
            hint="wait; see /v1/controllers for what the others say",
        )
    )
