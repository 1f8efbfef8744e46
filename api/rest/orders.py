"""
The routes of orders: one handler for every row of ``controller.contract.orders``.

Here: bodies, the three requests that the leader makes a command of, orders that go to brokers (by ``masters``), what is
done for an order before and after it is applied. Not here: which orders there are, their paths and roles
(``contract.orders``), reading and answering (``requests``), decisions (``controller.core``).

Rule 1: an order with ``dryRun`` is decided as the real one, on the same state and evidence, and proposes nothing (S68).
Rule 2: what goes on after it is applied is carried out once: repeated under its request id, it is answered again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from rollcall_ha.api.rest.guard import caller_of
from rollcall_ha.api.rest.masters import Masters
from rollcall_ha.api.rest.peers import Peers
from rollcall_ha.api.rest.relay import is_relayed
from rollcall_ha.api.rest.requests import (
    ClusterPath,
    NamePath,
    RequestIdText,
    SetPath,
    answered,
    read_body,
    requested_by,
    set_key,
    take_request_id,
)
from rollcall_ha.api.rest.schemas import answers, body
from rollcall_ha.controller.contract.commands import (
    FEATURE_LEVEL,
    ApplySettings,
    ChangeControllers,
    Electing,
    OperatorCommand,
    OrderSwitchover,
    RaiseFeatureLevel,
    TransferLeadership,
)
from rollcall_ha.controller.contract.consuming import BrokerOrder
from rollcall_ha.controller.contract.ids import RequestId
from rollcall_ha.controller.contract.orders import ORDERS, ChangeSettings, Order, RaiseLevel, TransferLead
from rollcall_ha.controller.contract.replies import AnsweredBy, Refused
from rollcall_ha.controller.contract.values import Value
from rollcall_ha.controller.core.fleet import below_level
from rollcall_ha.controller.core.settings import version_in_force, wanted
from rollcall_ha.controller.runtime.queries import Queries
from rollcall_ha.controller.runtime.seating import answer_again, carry_out_change, refusal_of
from rollcall_ha.controller.runtime.service import ControllerService
from rollcall_ha.controller.runtime.transfers import carry_out, leader_known, successor_now
from rollcall_ha.node.telemetry import get_logger

SWITCHOVER_WAIT_MS_MAX = 2_500
SWITCHOVER_RELAYED_WAIT_MS_MAX = 500
"""The controller in between gives up after ``FORWARD_MS_MAX``, and says that the outcome is unknown."""

WRITE_PROBLEMS = (307, 400, 403, 404, 409, 413, 415, 422, 503, 504)

TokenPath = Annotated[str, Path(alias="id", min_length=1, max_length=64)]


# Unknown members are refused: a misspelt "expectedEpoch" would expect nothing, and the guarded election run unguarded.
class OrderBody(Value, forbid_unknown_fields=True):
    """What every order may say; JSON in camelCase."""

    reason: str = ""
    request_id: RequestIdText | None = None
    dry_run: bool = False
    """Decide as for the real order, and answer with a preview or the refusal; nothing is proposed."""


def body_of(order: Order) -> type[OrderBody]:
    """The type of an order's body."""
    name = f"{order.operation[0].upper()}{order.operation[1:]}Body"
    told = {"__doc__": f"Body of POST /v1{order.path}."}
    made = msgspec.defstruct(
        name, [_field(one) for one in order.fields], bases=(OrderBody,), namespace=told, kw_only=True
    )
    assert issubclass(made, OrderBody)
    return made


def _field(one: msgspec.structs.FieldInfo) -> tuple[str, Any] | tuple[str, Any, Any]:
    if one.required:
        return one.name, one.type
    if one.default_factory is not msgspec.NODEFAULT:
        return one.name, one.type, msgspec.field(default_factory=one.default_factory)
    return one.name, one.type, one.default


_BODIES = {order.operation: body_of(order) for order in ORDERS}
# Built here, under the import lock: see ``client.client``.
_DECODERS: dict[str, msgspec.json.Decoder[OrderBody]] = {
    operation: msgspec.json.Decoder(kind) for operation, kind in _BODIES.items()
}


class OrderRoutes:
    """The handlers, bound to one controller."""

    def __init__(self, service: ControllerService, queries: Queries, peers: Peers, masters: Masters) -> None:
        self._masters = masters
        self._logger = get_logger("rollcall.brokers_ordered")
        self._service = service
        self._queries = queries
        self._peers = peers

    def add_to(self, router: APIRouter) -> None:
        """One route for each row."""
        for order in ORDERS:
            router.add_api_route(
                order.path,
                self._handler(order),
                operation_id=order.operation,
                summary=order.summary,
                methods=["POST"],
                tags=[order.tag],
                responses=answers(order.gives, order.previews, problems=WRITE_PROBLEMS),
                openapi_extra=body(_BODIES[order.operation]),
            )

    def _handler(self, order: Order) -> Callable[..., Awaitable[Response]]:
        # FastAPI reads the parameters of a path from the signature.
        async def about_set(request: Request, cluster: ClusterPath, name: SetPath) -> Response:
            return await self._take(order, request, {"set_key": set_key(cluster, name)})

        async def about_token(request: Request, token_id: TokenPath) -> Response:
            return await self._take(order, request, {"token_id": token_id})

        async def about_topic(request: Request, topic: NamePath) -> Response:
            return await self._take(order, request, {"topic": topic})

        async def about_group(request: Request, group: NamePath) -> Response:
            return await self._take(order, request, {"group": group})

        async def about_fleet(request: Request) -> Response:
            return await self._take(order, request, {})

        handlers: dict[str, Callable[..., Awaitable[Response]]]
        handlers = {"set_key": about_set, "token_id": about_token, "topic": about_topic, "group": about_group}
        return handlers[order.named[0]] if order.named else about_fleet

    async def _take(self, order: Order, request: Request, named: dict[str, object]) -> Response:
        told = await read_body(request, _DECODERS[order.operation])
        request_id = take_request_id(request, told.request_id, self._service.ports.new_request_id)
        asked = order.asked(named, told)
        if isinstance(asked, BrokerOrder):
            return answered(await self._given(order, asked, request, request_id, is_dry_run=told.dry_run), request_id)
        is_known = request_id in self._service.published.state.requests and not told.dry_run
        if is_known and (answer := await self._again(asked, request_id)) is not None:
            return answered(answer, request_id)
        command = await self._command_of(asked)
        if isinstance(command, Refused):
            return answered(command, request_id)
        names = self._queries.names_about(command)
        # BEFORE anything is submitted or recorded: a dry run that fell through would elect.
        if told.dry_run:
            return answered(await self._preview(command, request, request_id), request_id, names)
        reply = await self._submit(command, request, request_id)
        if not isinstance(reply, Refused):
            reply = await self._carried_out(command, request, request_id) or reply
        return answered(reply, request_id, names)

    async def _given(
        self, order: Order, asked: BrokerOrder, request: Request, request_id: RequestId, *, is_dry_run: bool
    ) -> object:
        """The outcome in each set. It is no entry, so who gave it is on record here alone (adr/0039)."""
        answer = await self._masters.give(asked, is_dry_run=is_dry_run)
        if not is_dry_run:
            self._logger.info(
                "brokers_ordered",
                operation=order.operation,
                asked=msgspec.to_builtins(asked),
                by=requested_by(request),
                request_id=request_id,
                outcomes={str(one.set_key): one.outcome for one in answer.outcomes},
            )
        return answer

    # --- before it is applied ----------------------------------------------------------------------------------------

    async def _again(self, asked: AnsweredBy[Any], request_id: RequestId) -> object:
        """The answer to an order that is on record already (rule 2); None: applying it answers."""
        match asked:
            case TransferLead():
                self._service.require_authority()
                # Its first answer was lost. Carried out again, the lead would go on to a third controller.
                return await leader_known(self._service, request_id)
            case ChangeControllers():
                self._service.require_authority()
                return await answer_again(self._service, asked)
        return None

    async def _command_of(self, asked: AnsweredBy[Any]) -> OperatorCommand | Refused:
        """The command that the leader makes of a request. Raises ``NoAuthority``, and ``ValueError`` for bad values."""
        service = self._service
        match asked:
            case TransferLead():
                service.require_authority()
                successor = successor_now(service, asked.to)
                if isinstance(successor, Refused):
                    return successor
                return TransferLeadership(source=service.settings.name, to=successor, reason=asked.reason)
            case ChangeControllers():
                service.require_authority()
                return refusal_of(service, asked) or asked
            case ChangeSettings():
                # A follower's state may be older: made from that, the order would name a version that is over, and be
                # refused instead of being passed on to the leader.
                service.require_authority()
                return self._settings_of(asked)
            case RaiseLevel():
                service.require_authority()
                level = FEATURE_LEVEL if asked.level is None else asked.level
                members = (self._queries.controller(), *await self._peers.statuses())
                # Committed, the level stops a controller that does not have it, and one that is away as soon as it is
                # back.
                below = below_level(level, members, trusts_silent=asked.assume_upgraded)
                return below or RaiseFeatureLevel(level=level)
        assert isinstance(asked, OperatorCommand)
        return asked

    def _settings_of(self, asked: ChangeSettings) -> ApplySettings:
        """A change that is applied meanwhile refuses it: it names the version that it was made from."""
        state, live = self._service.published.state, self._service.live
        version = version_in_force(state) if asked.expected_version is None else asked.expected_version
        return ApplySettings(
            settings=wanted(state, live.founded, values=asked.values, preset=asked.preset, version=asked.version),
            expected_version=version,
            file=live.file,
            founded=live.founded,
            reason=asked.reason,
        )

    # --- applying it, and after --------------------------------------------------------------------------------------

    async def _preview(self, command: OperatorCommand, request: Request, request_id: RequestId) -> object:
        return await self._queries.preview_order(
            command,
            request_id=request_id,
            requested_by=requested_by(request),
            principal=caller_of(request.scope),
        )

    async def _submit(self, command: OperatorCommand, request: Request, request_id: RequestId) -> object:
        service = self._service
        if isinstance(command, Electing):
            service.duties.handle_requested(command.set_key, service.now_ns())
        return await service.submit(
            command,
            request_id=request_id,
            requested_by=requested_by(request),
            # Evidence last: apply compares it with the state (R14) and refuses the election if a broker has registered
            # anew since. Taken before the body was read, it would be stale whenever a caller sends slowly.
            evidence=service.evidence_for(command),
            principal=caller_of(request.scope),
        )

    async def _carried_out(self, command: OperatorCommand, request: Request, request_id: RequestId) -> object:
        """The answer of an order that goes on after it is applied; None: it is done."""
        match command:
            case OrderSwitchover():
                wait_ms = SWITCHOVER_RELAYED_WAIT_MS_MAX if is_relayed(request) else SWITCHOVER_WAIT_MS_MAX
                return await self._queries.switchover(command.set_key, request_id, wait_ms=wait_ms)
            case TransferLeadership():
                return await carry_out(self._service, command.to, request_id)
            case ChangeControllers():
                return await carry_out_change(self._service, command, request_id)
        return None
