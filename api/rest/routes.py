"""
The routes under /v1: reads, and the operations of brokers; those of orders are made from their table (``orders``).

Here: parameters, which question each asks. Not here: bodies and headers (``requests``), decisions, state, documents for
failures (``problems``), schemas (``schemas``).

Rule 1: every route is ``async def`` and answers with bytes that msgspec encoded: nothing heavy runs on the loop.
Rule 2: reads are linearizable unless ``consistency=local``; each controller answers for events from its own journal.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from rollcall_ha.api.rest.guard import caller_of
from rollcall_ha.api.rest.masters import Masters
from rollcall_ha.api.rest.orders import WRITE_PROBLEMS, OrderRoutes
from rollcall_ha.api.rest.peers import Peers
from rollcall_ha.api.rest.principals import complaint_of_replica
from rollcall_ha.api.rest.problems import refused
from rollcall_ha.api.rest.requests import (
    BadRequestBody,
    ClusterPath,
    How,
    SetPath,
    answered,
    as_json,
    read_body,
    requested_by,
    set_key,
    take_request_id,
)
from rollcall_ha.api.rest.schemas import answers, body, only_problems
from rollcall_ha.api.rest.streaming import EventStream, FromMark, mark_of
from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import (
    AlterSyncStateSet,
    AnyCommand,
    ApplyBrokerId,
    RegisterReplica,
    SayGoodbye,
)
from rollcall_ha.controller.contract.ids import MasterEpoch
from rollcall_ha.controller.contract.names import TEXT_CHARS_MAX
from rollcall_ha.controller.contract.replies import AlterDecided, Done, IdGranted, Refused, Registered
from rollcall_ha.controller.contract.session import Heartbeat, HeartbeatAck
from rollcall_ha.controller.contract.views import (
    PAGE_SETS_MAX,
    CallerAnswer,
    CertificatesAnswer,
    ControllersAnswer,
    EventPage,
    Explanation,
    FleetStatus,
    HistoryPage,
    MaintenancesAnswer,
    Overview,
    SetAnswer,
    SetPage,
    SettingsAnswer,
    TokensAnswer,
)
from rollcall_ha.controller.runtime import broker_requests
from rollcall_ha.controller.runtime.event_journal import PAGE_EVENTS_MAX
from rollcall_ha.controller.runtime.overview import Question, SetOrder
from rollcall_ha.controller.runtime.queries import (
    EVENTS_WAIT_MS_MAX,
    HISTORY_ROWS_MAX,
    Consistency,
    Queries,
    parse_set_key,
)
from rollcall_ha.controller.runtime.service import ControllerService

INT64_MAX = 2**63 - 1

_READ = (307, 404, 422, 503)

Limit = Annotated[int, Query(ge=1, le=PAGE_SETS_MAX)]


# Built here, under the import lock: see ``client.client``.
_DECODERS: dict[type, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind) for kind in (ApplyBrokerId, RegisterReplica, AlterSyncStateSet, SayGoodbye)
}
_HEARTBEAT = msgspec.json.Decoder(Heartbeat)


class Routes:
    """The handlers, bound to one controller."""

    def __init__(self, service: ControllerService, queries: Queries, peers: Peers, masters: Masters) -> None:
        self._service = service
        self._queries = queries
        self._peers = peers
        self.router = APIRouter(prefix="/v1")
        self._add_reads()
        OrderRoutes(service, queries, peers, masters).add_to(self.router)
        self._add_broker_operations()

    def _add_get(
        self, tag: str, operation: str, path: str, handler: Any, responses: dict[int | str, dict[str, Any]]
    ) -> None:
        self.router.add_api_route(
            path, handler, operation_id=operation, methods=["GET"], tags=[tag], responses=responses
        )

    # --- reads -------------------------------------------------------------------------------------------------------

    def _add_reads(self) -> None:
        add, of_set = partial(self._add_get, "read"), "/sets/{cluster}/{set}"
        add("getStatus", "/status", self.status, answers(FleetStatus, problems=_READ))
        add("listControllers", "/controllers", self.controllers, answers(ControllersAnswer))
        add("getOverview", "/overview", self.overview, answers(Overview, problems=_READ))
        add("listSets", "/sets", self.sets, answers(SetPage, problems=_READ))
        add("getSet", of_set, self.set, answers(SetAnswer, problems=_READ))
        add("getHistory", f"{of_set}/history", self.history, answers(HistoryPage, problems=_READ))
        add("explainEpoch", f"{of_set}/epochs/{{epoch}}", self.explain, answers(Explanation, problems=_READ))
        add("listEvents", "/events", self.events, answers(EventPage, problems=(404, 422)))
        stream: dict[int | str, dict[str, Any]] = {
            200: {"description": "Server-sent events.", "content": {"text/event-stream": {"schema": _TEXT}}}
        }
        stream |= only_problems(421, 422, 503)
        add("streamEvents", "/events/stream", EventStream(self._service, self._queries).stream, stream)
        add("listMaintenances", "/maintenance", self.maintenances, answers(MaintenancesAnswer, problems=_READ))
        add("getSettings", "/settings", self.settings, answers(SettingsAnswer, problems=_READ))
        add = partial(self._add_get, "access")
        add("getCaller", "/caller", self.caller, answers(CallerAnswer))
        add("listCertificates", "/certificates", self.certificates, answers(CertificatesAnswer, problems=_READ))
        add("listTokens", "/tokens", self.tokens, answers(TokensAnswer, problems=_READ))

    async def status(
        self,
        after: Annotated[str | None, Query(max_length=520)] = None,
        limit: Limit = PAGE_SETS_MAX,
        consistency: How = Consistency.LINEARIZABLE,
    ) -> Response:
        """This controller and a page of its sets."""
        return as_json(await self._queries.status(consistency, after=after, limit=limit))

    async def controllers(self) -> Response:
        """Every controller by its own word; those that do not answer in time are marked unreachable."""
        own = self._queries.controller()
        others = await self._peers.statuses()
        return as_json(ControllersAnswer(read_from=own.name, controllers=(own, *others)))

    async def sets(
        self,
        after: Annotated[str | None, Query(max_length=520)] = None,
        limit: Limit = PAGE_SETS_MAX,
        consistency: How = Consistency.LINEARIZABLE,
    ) -> Response:
        """Sets in the order of their keys."""
        return as_json(await self._queries.sets(consistency, after=after, limit=limit))

    async def overview(
        self,
        *,
        order: Annotated[SetOrder, Query()] = SetOrder.WORST,
        name: Annotated[str, Query(max_length=520)] = "",
        problem: Annotated[str, Query(max_length=64)] = "",
        after: Annotated[str | None, Query(max_length=520)] = None,
        limit: Limit = 100,
        hosts: Annotated[bool, Query()] = False,
        consistency: How = Consistency.LINEARIZABLE,
    ) -> Response:
        """
        A line for each set, the worst first, filtered by part of the name or by a problem; counts of all sets.

        ``hosts``: each line tells, too, what its set does if one of its hosts goes.
        """
        key = parse_set_key(after) if after is not None else None
        question = Question(order=order, name=name, problem=problem, after=key, limit=limit, has_hosts=hosts)
        return Response(await self._queries.overview(question, consistency), media_type="application/json")

    async def set(self, cluster: ClusterPath, name: SetPath, consistency: How = Consistency.LINEARIZABLE) -> Response:
        return as_json(await self._queries.set(set_key(cluster, name), consistency))

    async def history(
        self,
        cluster: ClusterPath,
        name: SetPath,
        limit: Annotated[int, Query(ge=1, le=HISTORY_ROWS_MAX)] = 50,
        before: Annotated[int | None, Query(ge=0, le=INT64_MAX)] = None,
        consistency: How = Consistency.LINEARIZABLE,
    ) -> Response:
        """The reigns of a set, newest first, with the phases of how each came about."""
        mark = MasterEpoch(before) if before is not None else None
        return as_json(await self._queries.history(set_key(cluster, name), consistency, limit=limit, before=mark))

    async def explain(
        self,
        cluster: ClusterPath,
        name: SetPath,
        epoch: Annotated[int, Path(ge=0, le=INT64_MAX - 1)],
        consistency: How = Consistency.LINEARIZABLE,
    ) -> Response:
        """The decision record of one masterEpoch."""
        return as_json(await self._queries.explanation(set_key(cluster, name), MasterEpoch(epoch), consistency))

    async def events(
        self,
        *,
        start: FromMark = None,
        limit: Annotated[int, Query(ge=1, le=PAGE_EVENTS_MAX)] = PAGE_EVENTS_MAX,
        wait_ms: Annotated[int, Query(alias="waitMs", ge=0, le=EVENTS_WAIT_MS_MAX)] = 0,
        set_key: Annotated[str | None, Query(alias="set", max_length=520)] = None,
        newest: Annotated[bool, Query()] = False,
        by: Annotated[str | None, Query(max_length=TEXT_CHARS_MAX)] = None,
    ) -> Response:
        """
        Events from a mark on, or the newest ones; with none there, the answer is held for up to ``waitMs``.

        ``by``: only those that this caller (name, or role:name) asked for; nextFrom says where the search goes on.
        """
        if newest and start is not None:
            raise BadRequestBody(422, "newest and from exclude each other: from a mark on, or the last ones")
        if newest and by is not None:
            raise BadRequestBody(
                422, "newest and by exclude each other: one caller's events are searched from a mark on"
            )
        key = parse_set_key(set_key) if set_key is not None else None
        page = await self._queries.events(
            mark_of(start), limit=limit, wait_ms=wait_ms, set_key=key, is_newest=newest, by=by
        )
        return as_json(page)

    async def settings(self, consistency: How = Consistency.LINEARIZABLE) -> Response:
        """The settings in force, the versions before, and whether every broker works by them."""
        return as_json(await self._queries.settings(consistency))

    async def maintenances(self, consistency: How = Consistency.LINEARIZABLE) -> Response:
        """Every maintenance in force: whose, until when, by whom."""
        return as_json(await self._queries.maintenances(consistency))

    async def caller(self, request: Request) -> Response:
        """Whom this controller takes the caller for: a page offers no order that its reader may not give."""
        told = caller_of(request.scope)
        return as_json(CallerAnswer(name=told.name, role=told.role, proved_by=told.proved_by))

    async def certificates(self, consistency: How = Consistency.LINEARIZABLE) -> Response:
        """The certificates that are revoked."""
        return as_json(await self._queries.certificates(consistency))

    async def tokens(self, consistency: How = Consistency.LINEARIZABLE) -> Response:
        """Every token that is kept, without its digest."""
        return as_json(await self._queries.tokens(consistency))

    # --- broker operations as plain REST -----------------------------------------------------------------------------

    def _add_broker_operations(self) -> None:
        for operation, path, handler, takes, gives in (
            ("applyBrokerId", "/broker-ids", self.apply_broker_id, ApplyBrokerId, IdGranted),
            ("registerReplica", "/replicas", self.register, RegisterReplica, Registered),
            ("sendHeartbeat", "/heartbeat", self.heartbeat, Heartbeat, HeartbeatAck),
            ("alterSyncStateSet", "/sync-state-set", self.alter, AlterSyncStateSet, AlterDecided),
            ("sayGoodbye", "/goodbye", self.goodbye, SayGoodbye, Done),
        ):
            self.router.add_api_route(
                path,
                handler,
                operation_id=operation,
                methods=["POST"],
                tags=["broker"],
                responses=answers(gives, problems=WRITE_PROBLEMS),
                openapi_extra=body(takes),
            )

    async def apply_broker_id(self, request: Request) -> Response:
        """Bind a broker id to a register code, once and for ever."""
        return await self._broker_order(request, ApplyBrokerId)

    async def register(self, request: Request) -> Response:
        """Register an incarnation, or open a further session of it."""
        return await self._broker_order(request, RegisterReplica)

    async def alter(self, request: Request) -> Response:
        """A master's compare-and-set on its SyncStateSet (R1)."""
        return await self._broker_order(request, AlterSyncStateSet)

    async def goodbye(self, request: Request) -> Response:
        return await self._broker_order(request, SayGoodbye)

    async def heartbeat(self, request: Request) -> Response:
        """Count a replica as heard. No connection: one that closes says nothing of a broker that speaks plain REST."""
        beat = await read_body(request, _HEARTBEAT)
        answer = self._refuse_replica(request, beat) or broker_requests.handle_heartbeat(self._service, beat, None)
        return refused(answer, request_id=None) if isinstance(answer, Refused) else as_json(answer)

    async def _broker_order(self, request: Request, kind: type[AnyCommand]) -> Response:
        command: AnyCommand = await read_body(request, _DECODERS[kind])
        request_id = take_request_id(request, None, self._service.ports.new_request_id)
        if isinstance(command, AlterSyncStateSet | SayGoodbye) and (refusal := self._refuse_replica(request, command)):
            return answered(refusal, request_id)
        reply = await broker_requests.submit(
            self._service,
            command,
            request_id=request_id,
            requested_by=requested_by(request, "broker"),
            connection=None,
            principal=caller_of(request.scope),
        )
        return answered(reply, request_id)

    def _refuse_replica(self, request: Request, claim: AlterSyncStateSet | SayGoodbye | Heartbeat) -> Refused | None:
        """Ids are bound by ``apply`` (R27); what comes in their name by REST is compared here."""
        caller = caller_of(request.scope)
        complaint = complaint_of_replica(self._service.published.state, caller, claim.set_key, claim.broker_id)
        if not complaint:
            return None
        hint = "ask with the certificate of the replica's owner"
        return Refused(code=RefusalCode.NOT_THE_OWNER, reason=complaint, hint=hint, requested=caller.name)


_TEXT = {"type": "string"}
