"""
Routes of orders that hold until a time: pauses of elections, maintenances.

Here: parameters and bodies. Not here: reading a body and proposing an order, which all orders share (``routes``),
decisions (``controller.core``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Protocol, TypeVar

import msgspec
from fastapi import Path, Query, Request
from starlette.responses import Response

from rollcall_ha.api.rest.requests import (
    BeginMaintenanceBody,
    ConfigureSetBody,
    EndMaintenanceBody,
    PauseBody,
    RequestBody,
    ResumeBody,
)
from rollcall_ha.controller.contract.commands import (
    BeginMaintenance,
    ConfigureSet,
    EndMaintenance,
    OperatorCommand,
    PauseElections,
    ResumeElections,
)
from rollcall_ha.controller.contract.ids import BrokerName, ClusterName, SetKey
from rollcall_ha.controller.runtime.queries import Consistency, Queries

T = TypeVar("T")

ClusterPath = Annotated[str, Path(min_length=1, max_length=255)]
SetPath = Annotated[str, Path(alias="set", min_length=1, max_length=255)]
How = Annotated[Consistency, Query()]


class ReadsBody(Protocol):
    """Reads the body of a changing request as a value."""

    async def __call__(self, request: Request, kind: type[T]) -> T: ...


Orders = Callable[[Request, RequestBody, OperatorCommand], Awaitable[Response]]
"""Proposes a command, or previews it, and answers."""


def set_key(cluster: str, name: str) -> SetKey:
    """Of the two parts of a path."""
    return SetKey(ClusterName(cluster), BrokerName(name))


def as_json(value: object, headers: dict[str, str] | None = None) -> Response:
    """An answer of 200."""
    return Response(msgspec.json.encode(value), media_type="application/json", headers=headers)


class StandingOrders:
    """The handlers; their names are those of operations (``schemas``)."""

    def __init__(self, queries: Queries, *, read_body: ReadsBody, order: Orders) -> None:
        self._queries = queries
        self._read_body = read_body
        self._order = order

    async def pause_set(self, request: Request, cluster: ClusterPath, name: SetPath) -> Response:
        """Elect in this set by word only, until a time; detection goes on."""
        return await self._pause(request, set_key(cluster, name))

    async def pause_fleet(self, request: Request) -> Response:
        """Elect by word only, in every set, until a time."""
        return await self._pause(request, None)

    async def _pause(self, request: Request, key: SetKey | None) -> Response:
        order = await self._read_body(request, PauseBody)
        command = PauseElections(set_key=key, expires_at_ms=order.expires_at_ms, reason=order.reason)
        return await self._order(request, order, command)

    async def resume_set(self, request: Request, cluster: ClusterPath, name: SetPath) -> Response:
        """End the pause of this set; the fleet's goes on."""
        return await self._resume(request, set_key(cluster, name))

    async def resume_fleet(self, request: Request) -> Response:
        """End the pause of the fleet; those of single sets go on."""
        return await self._resume(request, None)

    async def _resume(self, request: Request, key: SetKey | None) -> Response:
        order = await self._read_body(request, ResumeBody)
        return await self._order(request, order, ResumeElections(set_key=key, reason=order.reason))

    async def configure_set(self, request: Request, cluster: ClusterPath, name: SetPath) -> Response:
        """Change how many replicas the set expects, and how many have to hold a message."""
        order = await self._read_body(request, ConfigureSetBody)
        command = ConfigureSet(
            set_key=set_key(cluster, name),
            expected_replicas=order.expected_replicas,
            min_in_sync=order.min_in_sync,
            reason=order.reason,
        )
        return await self._order(request, order, command)

    async def maintenances(self, consistency: How = Consistency.LINEARIZABLE) -> Response:
        """Every maintenance in force: whose, until when, by whom."""
        return as_json(await self._queries.maintenances(consistency))

    async def begin_maintenance(self, request: Request) -> Response:
        """Elect a replica, or those of a host, by word only, and do not miss them, until a time."""
        order = await self._read_body(request, BeginMaintenanceBody)
        command = BeginMaintenance(
            scope=order.scope,
            expires_at_ms=order.expires_at_ms,
            spends_last=order.spends_last,
            reason=order.reason,
        )
        return await self._order(request, order, command)

    async def end_maintenance(self, request: Request) -> Response:
        """Elect and expect its replicas again."""
        order = await self._read_body(request, EndMaintenanceBody)
        return await self._order(request, order, EndMaintenance(scope=order.scope, reason=order.reason))
