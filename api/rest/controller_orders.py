"""
Routes of orders about the controllers themselves: which one leads, and which there are.

Here: parameters and bodies. Not here: reading a body and proposing an order, which all orders share (``routes``), which
controller can take over (``controller.runtime.transfers``), which change may follow (``replication.raft.membership``).
"""

from __future__ import annotations

from collections.abc import Callable

from fastapi import Request
from starlette.responses import Response

from rollcall_ha.api.rest.problems import refused
from rollcall_ha.api.rest.requests import AddControllerBody, RemoveControllerBody, RequestBody, TransferBody
from rollcall_ha.api.rest.standing import Orders, ReadsBody, as_json
from rollcall_ha.controller.contract.codes import REQUEST_ID_HEADER
from rollcall_ha.controller.contract.commands import ChangeControllers, TransferLeadership
from rollcall_ha.controller.contract.ids import RequestId
from rollcall_ha.controller.contract.replies import Refused
from rollcall_ha.controller.contract.values import MembershipVerb
from rollcall_ha.controller.contract.views import ControllersChanged, LeadershipTransferred
from rollcall_ha.controller.runtime.seating import answer_again, carry_out_change, refusal_of
from rollcall_ha.controller.runtime.service import ControllerService
from rollcall_ha.controller.runtime.transfers import carry_out, leader_known, successor_now


class ControllerOrders:
    """The handlers; their names are those of operations (``schemas``)."""

    def __init__(
        self,
        service: ControllerService,
        *,
        read_body: ReadsBody,
        order: Orders,
        request_id: Callable[[Request, RequestBody], RequestId],
    ) -> None:
        self._service = service
        self._read_body = read_body
        self._order = order
        self._request_id = request_id

    async def transfer(self, request: Request) -> Response:
        """Have another controller lead, at once; answered when a leader is known."""
        order = await self._read_body(request, TransferBody)
        request_id = self._request_id(request, order)
        self._service.require_authority()
        # Its first answer was lost. Carried out again, the lead would go on to a third controller.
        if self._is_repeated(request_id, order):
            return _answer(await leader_known(self._service, request_id), request_id)
        target = successor_now(self._service, order.to)
        if isinstance(target, Refused):
            return refused(target, request_id=request_id)
        command = TransferLeadership(source=self._service.settings.name, to=target, reason=order.reason)
        answer = await self._order(request, order, command)
        if order.dry_run or answer.status_code != 200:
            return answer
        return _answer(await carry_out(self._service, target, request_id), request_id)

    async def add_controller(self, request: Request) -> Response:
        """Let a further controller take entries; the leader gives it its vote when it has caught up."""
        order = await self._read_body(request, AddControllerBody)
        command = ChangeControllers(
            verb=MembershipVerb.ADD,
            name=order.name,
            raft=order.raft,
            broker=order.broker,
            rest=order.rest,
            reason=order.reason,
        )
        return await self._change(request, order, command)

    async def remove_controller(self, request: Request) -> Response:
        """Take a controller out; it is not asked any more, and may be stopped."""
        order = await self._read_body(request, RemoveControllerBody)
        command = ChangeControllers(verb=MembershipVerb.REMOVE, name=order.name, reason=order.reason)
        return await self._change(request, order, command)

    async def _change(self, request: Request, order: RequestBody, command: ChangeControllers) -> Response:
        request_id = self._request_id(request, order)
        self._service.require_authority()
        if self._is_repeated(request_id, order):
            return _answer(await answer_again(self._service, command), request_id)
        if refusal := refusal_of(self._service, command):
            return refused(refusal, request_id=request_id)
        answer = await self._order(request, order, command)
        if order.dry_run or answer.status_code != 200:
            return answer
        return _answer(await carry_out_change(self._service, command, request_id), request_id)

    def _is_repeated(self, request_id: RequestId, order: RequestBody) -> bool:
        return request_id in self._service.published.state.requests and not order.dry_run


def _answer(found: LeadershipTransferred | ControllersChanged | Refused, request_id: RequestId) -> Response:
    if isinstance(found, Refused):
        return refused(found, request_id=request_id)
    return as_json(found, {REQUEST_ID_HEADER: request_id})
