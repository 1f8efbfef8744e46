"""
The routes under /v1: parse, ask the service, encode.

Here: parameters, bodies, headers. Not here: decisions, state, documents for failures (``problems``), schemas
(``schemas``).

Rule 1: every route is ``async def`` and answers with bytes that msgspec encoded: nothing heavy runs on the loop.
Rule 2: mutating routes take a request id (body, or header ``X-Request-Id``), draw one if there is none, and return it.
Rule 3: an order with ``dryRun`` is decided as the real one, on the same state and evidence, and proposes nothing (S68).
Rule 4: reads are linearizable unless ``consistency=local``; each controller answers for events from its own journal.
Rule 5: a changing request has a body of ``application/json``, at most ``BODY_BYTES_MAX``.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from rollcall_ha.api.rest.controller_orders import ControllerOrders
from rollcall_ha.api.rest.edge import SHOWN_CHARACTERS_MAX
from rollcall_ha.api.rest.guard import caller_of
from rollcall_ha.api.rest.peers import Peers
from rollcall_ha.api.rest.principals import complaint_of_replica, printable
from rollcall_ha.api.rest.problems import refused
from rollcall_ha.api.rest.relay import is_relayed
from rollcall_ha.api.rest.requests import (
    BODIES,
    AddControllerBody,
    ApplySettingsBody,
    BeginMaintenanceBody,
    BootstrapBody,
    CleanBody,
    ConfigureSetBody,
    ElectBody,
    ElectUncleanBody,
    EndMaintenanceBody,
    ImportBody,
    IssueTokenBody,
    PauseBody,
    RaiseLevelBody,
    RemoveControllerBody,
    RequestBody,
    RequestIdText,
    ResumeBody,
    RevokeCertificateBody,
    RevokeTokenBody,
    SwitchoverBody,
    TransferBody,
)
from rollcall_ha.api.rest.schemas import answers, body, only_problems
from rollcall_ha.api.rest.settings_orders import settings_command
from rollcall_ha.api.rest.standing import ClusterPath, How, SetPath, StandingOrders, as_json, set_key
from rollcall_ha.api.rest.streaming import EventStream, FromMark, mark_of
from rollcall_ha.controller.contract.codes import REQUEST_ID_HEADER, REQUESTED_BY_HEADER, RefusalCode
from rollcall_ha.controller.contract.commands import (
    FEATURE_LEVEL,
    AlterSyncStateSet,
    AnyCommand,
    ApplyBrokerId,
    Bootstrap,
    CleanReplicas,
    Electing,
    ElectMaster,
    ElectUnclean,
    ImportSet,
    IssueToken,
    OperatorCommand,
    OrderSwitchover,
    RaiseFeatureLevel,
    RegisterReplica,
    RevokeCertificate,
    RevokeToken,
    SayGoodbye,
)
from rollcall_ha.controller.contract.ids import MasterEpoch, RequestId
from rollcall_ha.controller.contract.names import TEXT_CHARS_MAX
from rollcall_ha.controller.contract.principals import ProvedBy
from rollcall_ha.controller.contract.replies import (
    AlterDecided,
    AnyReply,
    Done,
    Elected,
    IdGranted,
    Refused,
    Registered,
)
from rollcall_ha.controller.contract.session import Heartbeat, HeartbeatAck
from rollcall_ha.controller.contract.views import (
    PAGE_SETS_MAX,
    CertificatesAnswer,
    ControllersAnswer,
    ControllersChanged,
    ElectionPreview,
    EventPage,
    Explanation,
    FleetStatus,
    HistoryPage,
    LeadershipTransferred,
    MaintenancesAnswer,
    OrderPreview,
    Overview,
    SetAnswer,
    SetPage,
    SettingsAnswer,
    SwitchoverAnswer,
    TokensAnswer,
)
from rollcall_ha.controller.core.fleet import below_level
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

BODY_BYTES_MAX = 64 * 1024
"""More does not fit into a log entry."""
SWITCHOVER_WAIT_MS_MAX = 2_500
SWITCHOVER_RELAYED_WAIT_MS_MAX = 500
INT64_MAX = 2**63 - 1

T = TypeVar("T")

_READ = (307, 404, 422, 503)
_WRITE = (307, 400, 403, 404, 409, 413, 415, 422, 503, 504)

TokenPath = Annotated[str, Path(alias="id", min_length=1, max_length=64)]
Limit = Annotated[int, Query(ge=1, le=PAGE_SETS_MAX)]


class NotJson(Exception):
    """The body does not say that it is JSON; the message names what it says."""


class BadRequestBody(Exception):
    """The body cannot be used; ``status`` is 400 (not JSON), 413 or 422."""

    def __init__(self, status: int, detail: str) -> None:
        """Becomes a problem document."""
        super().__init__(detail)
        self.status = status


_DECODERS: dict[type, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind)
    for kind in (*BODIES, ApplyBrokerId, RegisterReplica, AlterSyncStateSet, SayGoodbye, Heartbeat)
}


async def _read_body(request: Request, kind: type[T]) -> T:
    # Rule 5. A form, text/plain and a body without a type are all that a page may send to another site without being
    # asked for CORS first: one of text/plain moved a master.
    types = request.headers.getlist("Content-Type")
    if [one.partition(";")[0].strip().lower() for one in types] != ["application/json"]:
        told = repr(", ".join(types)[:SHOWN_CHARACTERS_MAX]) if types else "missing"
        raise NotJson(f"Content-Type is {told}; a changing request must be application/json")
    content = bytearray()
    async for chunk in request.stream():
        # Counted as it comes: a body without a Content-Length, or with a wrong one, would fill the leader's memory.
        content += chunk
        if len(content) > BODY_BYTES_MAX:
            raise BadRequestBody(413, f"the body is larger than {BODY_BYTES_MAX} bytes")
    try:
        decoded: T = _DECODERS[kind].decode(content)
    except msgspec.ValidationError as error:
        raise BadRequestBody(422, str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # RecursionError: 64 KiB of "[" are nested deeper than the decoder goes, and would be reported as a fault of
        # ours.
        raise BadRequestBody(400, f"the body is not JSON: {error}") from error
    # Kept, for it cannot be read twice: another controller may have to answer.
    request.state.content = bytes(content)
    return decoded


class Routes:
    """The handlers, bound to one controller."""

    def __init__(self, service: ControllerService, queries: Queries, peers: Peers) -> None:
        self._service = service
        self._queries = queries
        self._peers = peers
        self.router = APIRouter(prefix="/v1")
        self._add_reads()
        self._add_orders()
        self._add_access()
        self._add_broker_operations()

    # An operation's id is the name of its method in a generated client. It is kept: a program was written against it.

    def _add_get(
        self, tag: str, operation: str, path: str, handler: Any, responses: dict[int | str, dict[str, Any]]
    ) -> None:
        self.router.add_api_route(
            path, handler, operation_id=operation, methods=["GET"], tags=[tag], responses=responses
        )

    def _add_post(self, tag: str, operation: str, path: str, handler: Any, takes: type, *gives: type) -> None:
        self.router.add_api_route(
            path,
            handler,
            operation_id=operation,
            methods=["POST"],
            tags=[tag],
            responses=answers(*gives, problems=_WRITE),
            openapi_extra=body(takes),
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
        consistency: How = Consistency.LINEARIZABLE,
    ) -> Response:
        """A line for each set, the worst first, filtered by part of the name or by a problem; counts of all sets."""
        key = parse_set_key(after) if after is not None else None
        question = Question(order=order, name=name, problem=problem, after=key, limit=limit)
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

    # --- orders of operators -----------------------------------------------------------------------------------------

    def _add_orders(self) -> None:
        add, of_set = partial(self._add_post, "act"), "/sets/{cluster}/{set}"
        add("electMaster", f"{of_set}/elect", self.elect, ElectBody, Elected, ElectionPreview)
        add("switchOver", f"{of_set}/switchover", self.switch_over, SwitchoverBody, SwitchoverAnswer, OrderPreview)
        add(
            "electMasterUnclean",
            f"{of_set}/elect-unclean",
            self.elect_unclean,
            ElectUncleanBody,
            Elected,
            ElectionPreview,
        )
        add("bootstrapSet", f"{of_set}/bootstrap", self.bootstrap, BootstrapBody, Elected, ElectionPreview)
        add("cleanReplicas", f"{of_set}/clean", self.clean, CleanBody, Done, OrderPreview)
        add("importSet", f"{of_set}/import", self.import_set, ImportBody, Done, OrderPreview)
        ours = ControllerOrders(self._service, read_body=_read_body, order=self._order, request_id=self._request_id)
        of_members = (ControllersChanged, OrderPreview)
        add(
            "transferLeadership",
            "/controllers/transfer",
            ours.transfer,
            TransferBody,
            LeadershipTransferred,
            OrderPreview,
        )
        add("addController", "/controllers/add", ours.add_controller, AddControllerBody, *of_members)
        add("removeController", "/controllers/remove", ours.remove_controller, RemoveControllerBody, *of_members)
        add("raiseFeatureLevel", "/feature-level", self.raise_level, RaiseLevelBody, Done, OrderPreview)
        standing = StandingOrders(self._queries, read_body=_read_body, order=self._order)
        add("pauseSet", f"{of_set}/pause", standing.pause_set, PauseBody, Done, OrderPreview)
        add("resumeSet", f"{of_set}/resume", standing.resume_set, ResumeBody, Done, OrderPreview)
        add("pauseFleet", "/pause", standing.pause_fleet, PauseBody, Done, OrderPreview)
        add("resumeFleet", "/resume", standing.resume_fleet, ResumeBody, Done, OrderPreview)
        add("configureSet", f"{of_set}/configuration", standing.configure_set, ConfigureSetBody, Done, OrderPreview)
        add("beginMaintenance", "/maintenance", standing.begin_maintenance, BeginMaintenanceBody, Done, OrderPreview)
        add("endMaintenance", "/maintenance/end", standing.end_maintenance, EndMaintenanceBody, Done, OrderPreview)
        self._add_get(
            "read",
            "listMaintenances",
            "/maintenance",
            standing.maintenances,
            answers(MaintenancesAnswer, problems=_READ),
        )
        self._add_get("read", "getSettings", "/settings", self.settings, answers(SettingsAnswer, problems=_READ))
        add("applySettings", "/settings", self.apply_settings, ApplySettingsBody, Done, OrderPreview)

    async def elect(self, request: Request, cluster: ClusterPath, name: SetPath) -> Response:
        """Elect by policy, clean only."""
        order = await _read_body(request, ElectBody)
        command = ElectMaster(
            set_key=set_key(cluster, name),
            to=order.to,
            expected_master=order.expected_master,
            expected_epoch=order.expected_epoch,
            reason=order.reason,
        )
        return await self._order(request, order, command)

    async def switch_over(self, request: Request, cluster: ClusterPath, name: SetPath) -> Response:
        """
        Let the master drain and hand over; answered at its end (R29).

        After ``SWITCHOVER_WAIT_MS_MAX``, or half a second through another controller, the answer says that it goes on
        (``row.end`` is null): the same request, with the same request id, waits on.
        """
        order = await _read_body(request, SwitchoverBody)
        command = OrderSwitchover(
            set_key=set_key(cluster, name),
            to=order.to,
            expected_master=order.expected_master,
            expected_epoch=order.expected_epoch,
            deadline_ms=order.deadline_ms,
            max_lag_bytes=order.max_lag_bytes,
            reason=order.reason,
        )
        answer = await self._order(request, order, command)
        if order.dry_run or answer.status_code != 200:
            return answer
        request_id = self._request_id(request, order)
        # The controller in between gives up after ``FORWARD_MS_MAX``, and says that the outcome is unknown.
        wait_ms = SWITCHOVER_RELAYED_WAIT_MS_MAX if is_relayed(request) else SWITCHOVER_WAIT_MS_MAX
        found = await self._queries.switchover(command.set_key, request_id, wait_ms=wait_ms)
        return _answer_of_query(found, request_id)

    async def elect_unclean(self, request: Request, cluster: ClusterPath, name: SetPath) -> Response:
        """Elect outside the SyncStateSet: the only verb that can lose."""
        order = await _read_body(request, ElectUncleanBody)
        command = ElectUnclean(
            set_key=set_key(cluster, name),
            accepted_loss_bytes=order.accepted_loss_bytes,
            to=order.to,
            expected_master=order.expected_master,
            expected_epoch=order.expected_epoch,
            reason=order.reason,
        )
        return await self._order(request, order, command)

    async def bootstrap(self, request: Request, cluster: ClusterPath, name: SetPath) -> Response:
        """First election by an operator's word (R8)."""
        order = await _read_body(request, BootstrapBody)
        command = Bootstrap(set_key=set_key(cluster, name), master=order.master, reason=order.reason)
        return await self._order(request, order, command)

    async def clean(self, request: Request, cluster: ClusterPath, name: SetPath) -> Response:
        """Forget replicas, or the whole set; epochs stay in a tombstone."""
        order = await _read_body(request, CleanBody)
        command = CleanReplicas(
            set_key=set_key(cluster, name),
            # Sorted and without repeats: members decide on equal bytes, and [2,1] means what [1,2,2] means.
            broker_ids=tuple(sorted(set(order.broker_ids))),
            is_unclean=order.is_unclean,
            reason=order.reason,
        )
        return await self._order(request, order, command)

    async def import_set(self, request: Request, cluster: ClusterPath, name: SetPath) -> Response:
        """Take over a set of RocketMQ's controllers; it elects when all of its brokers have come."""
        order = await _read_body(request, ImportBody)
        command = ImportSet(
            set_key=set_key(cluster, name),
            replicas=tuple(sorted(order.replicas, key=lambda replica: replica.broker_id)),
            next_id=order.next_id,
            master=order.master,
            master_epoch=order.master_epoch,
            sync_state_set=tuple(sorted(set(order.sync_state_set))),
            sync_state_set_epoch=order.sync_state_set_epoch,
            reason=order.reason,
        )
        return await self._order(request, order, command)

    async def settings(self, consistency: How = Consistency.LINEARIZABLE) -> Response:
        """The settings in force, the versions before, and whether every broker works by them."""
        return as_json(await self._queries.settings(consistency))

    async def apply_settings(self, request: Request) -> Response:
        """Set the fleet to other values, or back to those of a version; judged as a whole."""
        order = await _read_body(request, ApplySettingsBody)
        try:
            command = settings_command(self._service, order)
        except ValueError as error:
            raise BadRequestBody(422, str(error)) from error
        return await self._order(request, order, command)

    async def raise_level(self, request: Request) -> Response:
        """Allow what a feature level brought, once every controller has it (R15)."""
        order = await _read_body(request, RaiseLevelBody)
        request_id = self._request_id(request, order)
        self._service.require_authority()
        command = RaiseFeatureLevel(level=FEATURE_LEVEL if order.level is None else order.level)
        members = (self._queries.controller(), *await self._peers.statuses())
        # Committed, the level stops a controller that does not have it, and one that is away as soon as it is back.
        if below := below_level(command.level, members, trusts_silent=order.assume_upgraded):
            return refused(below, request_id=request_id)
        return await self._order(request, order, command)

    async def _order(self, request: Request, order: RequestBody, command: OperatorCommand) -> Response:
        request_id = self._request_id(request, order)
        requested_by, caller = _requested_by(request), caller_of(request.scope)
        # BEFORE anything is submitted or recorded: a dry run that fell through would elect.
        if order.dry_run:
            found = await self._queries.preview_order(
                command, request_id=request_id, requested_by=requested_by, principal=caller
            )
            if isinstance(found, Refused):
                return refused(found, request_id=request_id)
            return as_json(found, {REQUEST_ID_HEADER: request_id})
        if isinstance(command, Electing):
            self._service.duties.handle_requested(command.set_key, self._service.now_ns())
        # Evidence last: apply compares it with the state (R14) and refuses the election if a broker has registered anew
        # since. Taken before the body was read, it would be stale whenever a caller sends slowly.
        evidence = self._service.evidence_for(command)
        reply = await self._service.submit(
            command, request_id=request_id, requested_by=requested_by, evidence=evidence, principal=caller
        )
        return _answer(reply, request_id)

    def _request_id(self, request: Request, order: RequestBody | None) -> RequestId:
        """
        The id of an order; asked for BEFORE anything is done with it.

        It is kept with the request: an exception on the way must answer with the id, or the caller whose outcome is
        unknown has nothing to ask again with.
        """
        if not hasattr(request.state, "request_id"):
            request.state.request_id = self._given_request_id(request, order)
        found: RequestId = request.state.request_id
        return found

    def _given_request_id(self, request: Request, order: RequestBody | None) -> RequestId:
        # The body's id wins: a proxy may add a header of this name to each attempt, and a retry would be a new order.
        given = order.request_id if order is not None else None
        if given is None:
            given = request.headers.get(REQUEST_ID_HEADER)
        if given is None:
            return self._service.ports.new_request_id()
        # Checked, for it comes back in a header: with a line end in it, a caller could write headers of our answer.
        try:
            return RequestId(msgspec.convert(given, RequestIdText))
        except msgspec.ValidationError as error:
            raise BadRequestBody(422, f"header {REQUEST_ID_HEADER}: {error}") from error

    # --- certificates and tokens -------------------------------------------------------------------------------------

    def _add_access(self) -> None:
        add = partial(self._add_post, "access")
        read = partial(self._add_get, "access")
        read("listCertificates", "/certificates", self.certificates, answers(CertificatesAnswer, problems=_READ))
        add(
            "revokeCertificate",
            "/certificates/revoke",
            self.revoke_certificate,
            RevokeCertificateBody,
            Done,
            OrderPreview,
        )
        read("listTokens", "/tokens", self.tokens, answers(TokensAnswer, problems=_READ))
        add("issueToken", "/tokens", self.issue_token, IssueTokenBody, Done, OrderPreview)
        add("revokeToken", "/tokens/{id}/revoke", self.revoke_token, RevokeTokenBody, Done, OrderPreview)

    async def certificates(self, consistency: How = Consistency.LINEARIZABLE) -> Response:
        """The certificates that are revoked."""
        return as_json(await self._queries.certificates(consistency))

    async def revoke_certificate(self, request: Request) -> Response:
        """Believe a certificate no longer (R28); every node closes its links."""
        order = await _read_body(request, RevokeCertificateBody)
        command = RevokeCertificate(
            serial=order.serial, name=order.name, expires_at_ms=order.expires_at_ms, reason=order.reason
        )
        return await self._order(request, order, command)

    async def tokens(self, consistency: How = Consistency.LINEARIZABLE) -> Response:
        """Every token that is kept, without its digest."""
        return as_json(await self._queries.tokens(consistency))

    async def issue_token(self, request: Request) -> Response:
        """Let whoever has this token act in a role. The token was drawn by the caller: it is not sent here."""
        order = await _read_body(request, IssueTokenBody)
        command = IssueToken(
            token_id=order.token_id,
            digest=order.digest,
            role=order.role,
            name=order.name,
            expires_at_ms=order.expires_at_ms,
            set_key=order.set_key,
        )
        return await self._order(request, order, command)

    async def revoke_token(self, request: Request, token_id: TokenPath) -> Response:
        order = await _read_body(request, RevokeTokenBody)
        return await self._order(request, order, RevokeToken(token_id=token_id, reason=order.reason))

    # --- broker operations as plain REST -----------------------------------------------------------------------------

    def _add_broker_operations(self) -> None:
        add = partial(self._add_post, "broker")
        add("applyBrokerId", "/broker-ids", self.apply_broker_id, ApplyBrokerId, IdGranted)
        add("registerReplica", "/replicas", self.register, RegisterReplica, Registered)
        add("sendHeartbeat", "/heartbeat", self.heartbeat, Heartbeat, HeartbeatAck)
        add("alterSyncStateSet", "/sync-state-set", self.alter, AlterSyncStateSet, AlterDecided)
        add("sayGoodbye", "/goodbye", self.goodbye, SayGoodbye, Done)

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
        beat = await _read_body(request, Heartbeat)
        answer = self._refuse_replica(request, beat) or self._service.brokers.handle_heartbeat(beat, None)
        return refused(answer, request_id=None) if isinstance(answer, Refused) else as_json(answer)

    async def _broker_order(self, request: Request, kind: type[AnyCommand]) -> Response:
        command: AnyCommand = await _read_body(request, kind)
        request_id = self._request_id(request, None)
        if isinstance(command, AlterSyncStateSet | SayGoodbye) and (refusal := self._refuse_replica(request, command)):
            return refused(refusal, request_id=request_id)
        reply = await self._service.brokers.submit(
            command,
            request_id=request_id,
            requested_by=_requested_by(request, "broker"),
            connection=None,
            principal=caller_of(request.scope),
        )
        return _answer(reply, request_id)

    def _refuse_replica(self, request: Request, claim: AlterSyncStateSet | SayGoodbye | Heartbeat) -> Refused | None:
        """Ids are bound by ``apply`` (R27); what comes in their name by REST is compared here."""
        caller = caller_of(request.scope)
        complaint = complaint_of_replica(self._service.published.state, caller, claim.set_key, claim.broker_id)
        if not complaint:
            return None
        hint = "ask with the certificate of the replica's owner"
        return Refused(code=RefusalCode.NOT_THE_OWNER, reason=complaint, hint=hint, requested=caller.name)


def _answer(reply: AnyReply, request_id: RequestId) -> Response:
    if isinstance(reply, Refused):
        return refused(reply, request_id=request_id)
    return as_json(reply, {REQUEST_ID_HEADER: request_id})


def _answer_of_query(found: SwitchoverAnswer | Refused, request_id: RequestId) -> Response:
    if isinstance(found, Refused):
        return refused(found, request_id=request_id)
    return as_json(found, {REQUEST_ID_HEADER: request_id})


def _requested_by(request: Request, kind: str = "admin") -> str:
    """For the record; where nobody is proved, a name that proves nothing (rule 2 of ``requests``)."""
    caller = caller_of(request.scope)
    if caller.proved_by is not ProvedBy.NOTHING:
        return str(caller)
    name = printable(request.headers.get(REQUESTED_BY_HEADER, ""))
    if not name:
        return kind
    return name if ":" in name else f"{kind}:{name}"


_TEXT = {"type": "string"}
