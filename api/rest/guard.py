"""
The door of every operation: who asks, whether the role fits, whether it is too much; before a route sees the request.

Here: refusing, counting, the log of refusals. Not here: proofs (``principals``), the table of roles (``roles``),
buckets (``limits``), web pages (``edge``).

Rule 1: an operation that the table does not have is refused to everybody. Paths and methods that no route has are left
to the application: 404 and 405 tell nothing.
Rule 2: nobody known is 401; known and without the role 403, with both roles; too much 429 with a time to wait. None of
them has read the body, and nothing was done.
Rule 3: refusals of rights are lines of the component ``rollcall.refused``, at most ``LINES_PER_SECOND``; what was left
out is counted in the next line. Unbounded, whoever is refused would write our disk full.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from enum import StrEnum

from fastapi import FastAPI
from prometheus_client import CollectorRegistry, Counter
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rollcall_ha.api.rest import problems
from rollcall_ha.api.rest.counting import OPERATION
from rollcall_ha.api.rest.limits import PROVED, UNPROVED, Limits, Rates
from rollcall_ha.api.rest.listening import CERTIFICATE, COMPLAINT
from rollcall_ha.api.rest.principals import NoRole, NotKnown, Shown, identify
from rollcall_ha.api.rest.roles import OPEN, allowed
from rollcall_ha.api.rest.schemas import operation_id
from rollcall_ha.controller.contract.codes import REQUESTED_BY_HEADER
from rollcall_ha.controller.contract.principals import Principal, ProvedBy
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.controller.core.state import FleetState
from rollcall_ha.node.remoting.links import FewLines
from rollcall_ha.node.telemetry import Logger

PRINCIPAL = "principal"
"""Key in the state of each request: its ``Principal``. In what a controller passes on it is that one's word."""
RELAYED_BY = "relayed_by"
"""Key in the same state: which controller has passed it on; no key = it came from outside."""
LINES_PER_SECOND = 10


class Denied(StrEnum):
    """Why: the closed vocabulary of ``rollcall_rest_refused_total``."""

    NOBODY = "nobody"
    """No certificate and no token, or one that is not good."""
    NO_ROLE = "no-role"
    """Known, and the role does not fit."""
    NOT_IN_TABLE = "not-in-table"
    BY_STATE = "by-state"
    """The role fits, and the set, the owner or a revocation does not."""
    TOO_MUCH = "too-much"


class RefusalLog:
    """Says who was refused, within a limit (rule 3)."""

    def __init__(self, logger: Logger, registry: CollectorRegistry, clock: Callable[[], float]) -> None:
        """``clock``: monotonic seconds."""
        self._logger = logger
        self._clock = clock
        self._lines = FewLines(1.0, LINES_PER_SECOND)
        self._refused = Counter(
            "rollcall_rest_refused", "Requests refused by who asks, or how often.", ["reason"], registry=registry
        )
        for reason in Denied:
            self._refused.labels(reason)

    def note(self, reason: Denied, *, who: str, address: str, operation: str, detail: str) -> None:
        """Count it, and write it down while there is room in this second."""
        self._refused.labels(reason).inc()
        if (left_out := self._lines.take(self._clock())) is not None:
            self._logger.warning(
                "refused",
                reason=reason.value,
                principal=who,
                address=address,
                operation=operation,
                detail=detail,
                left_out=left_out,
            )


class _Refusal(Frozen):
    reason: Denied
    detail: str
    answer: Response


class Guard:
    """ASGI: the rules above, around the whole application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        of: FastAPI,
        fleet: Callable[[], FleetState],
        is_insecure: bool,
        log: RefusalLog,
        clock: Callable[[], float] = time.monotonic,
        utc_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """``of``: whose routes are guarded; ``fleet``: the newest state that was applied here."""
        self._app = app
        self._of = of
        self._fleet = fleet
        self._is_insecure = is_insecure
        self._log = log
        self._limits = Limits(clock)
        self._utc_ms = utc_ms

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        operation = self._operation(scope) if scope["type"] == "http" else None
        if operation is None:
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state[OPERATION] = operation
        shown = _shown(scope)
        caller: Principal | None = None
        refusal: _Refusal | None = None
        if operation not in OPEN:
            caller, refusal = self._judge(operation, shown)
        # Rule 3 of ``limits``.
        if shown.relayed_by is not None and refusal is None:
            state[PRINCIPAL] = caller
            await self._app(scope, receive, send)
            return
        key, rates = self._limit_of(caller, shown, is_known=refusal is None or refusal.reason is not Denied.NOBODY)
        if wait_s := self._limits.enter(key, rates):
            told = f"{caller or shown.address} asks more than {rates.requests_per_second:g} times a second, or more "
            told += f"than {rates.in_flight_max} times at once"
            refusal = _Refusal(
                reason=Denied.TOO_MUCH, detail=told, answer=problems.too_many(told, wait_s=math.ceil(wait_s))
            )
            await self._refuse(refusal, operation, caller, shown)(scope, receive, send)
            return
        try:
            if refusal is not None:
                await self._refuse(refusal, operation, caller, shown)(scope, receive, send)
                return
            state[PRINCIPAL] = caller
            await self._app(scope, receive, self._watching(send, operation, caller, shown))
        finally:
            self._limits.leave(key)

    def _operation(self, scope: Scope) -> str | None:
        """Id of the operation that a route would run; None: no route would, or by another method."""
        for route in self._of.routes:
            match, _ = route.matches(scope)
            if match is Match.FULL:
                # Rule 1: whatever has no id of an operation is one that the table does not have.
                return operation_id(route)
        return None

    def _judge(self, operation: str, shown: Shown) -> tuple[Principal | None, _Refusal | None]:
        try:
            caller = identify(shown, self._fleet(), is_insecure=self._is_insecure, now_ms=self._utc_ms())
        except NotKnown as error:
            told = str(error)
            return None, _Refusal(reason=Denied.NOBODY, detail=told, answer=problems.unauthenticated(told))
        except NoRole as error:
            told = str(error)
            return None, _Refusal(reason=Denied.NO_ROLE, detail=told, answer=problems.forbidden(told))
        roles = allowed(operation)
        if not roles:
            told = f"{operation} is for nobody: it is not in the table of roles"
            return caller, _Refusal(reason=Denied.NOT_IN_TABLE, detail=told, answer=problems.forbidden(told))
        if caller.role in roles or caller.proved_by is ProvedBy.NOTHING:
            return caller, None
        told = f"{operation} needs role {' or '.join(roles)}; {caller.name} has role {caller.role}"
        answer = problems.forbidden(told, requested=" or ".join(roles), current=caller.role)
        return caller, _Refusal(reason=Denied.NO_ROLE, detail=told, answer=answer)

    @staticmethod
    def _limit_of(caller: Principal | None, shown: Shown, *, is_known: bool) -> tuple[str, Rates]:
        host = shown.address.rpartition(":")[0]
        if caller is not None and caller.proved_by is not ProvedBy.NOTHING:
            return f"{caller.proved_by}:{caller.serial}", PROVED
        return (f"address:{host}", PROVED) if is_known else (f"nobody:{host}", UNPROVED)

    def _refuse(self, refusal: _Refusal, operation: str, caller: Principal | None, shown: Shown) -> Response:
        who = str(caller) if caller is not None else ""
        self._log.note(refusal.reason, who=who, address=shown.address, operation=operation, detail=refusal.detail)
        return refusal.answer

    def _watching(self, send: Send, operation: str, caller: Principal | None, shown: Shown) -> Send:
        """``send`` that also notes what the state refused."""

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 403:
                detail = "by replicated state: see the answer"
                self._log.note(
                    Denied.BY_STATE, who=str(caller), address=shown.address, operation=operation, detail=detail
                )
            await send(message)

        return watched


def _shown(scope: Scope) -> Shown:
    state = scope.get("state", {})
    headers: dict[bytes, list[str]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name, []).append(value.decode("latin-1"))
    client = scope.get("client")
    return Shown(
        address=f"{client[0]}:{client[1]}" if client else "?",
        certificate=state.get(CERTIFICATE),
        complaint=state.get(COMPLAINT, ""),
        authorization=tuple(headers.get(b"authorization", ())),
        requested_by=" ".join(headers.get(REQUESTED_BY_HEADER.lower().encode(), ())),
        relayed_by=state.get(RELAYED_BY),
        relayed=state.get(PRINCIPAL),
    )


def caller_of(scope: Scope) -> Principal:
    """Who asks, behind the guard."""
    found: Principal = scope["state"][PRINCIPAL]
    return found
