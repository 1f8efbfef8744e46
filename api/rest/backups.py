"""
The route that a backup is read by.

Here: parameters and encoding. Not here: which states are open (``controller.runtime.backups``), the other routes
(``routes``).

Rule: any controller answers by its own state, also without a leader: a backup is wanted most when a fleet is not well.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from rollcall_ha.api.rest.guard import caller_of
from rollcall_ha.api.rest.schemas import answers
from rollcall_ha.controller.contract.backups import BackupPage
from rollcall_ha.controller.runtime.backups import Backups
from rollcall_ha.controller.runtime.service import ControllerService
from rollcall_ha.node.telemetry import get_logger

PAGES_MAX = 1_000_000


def backup_routes(service: ControllerService) -> APIRouter:
    """GET /v1/backup of one controller."""
    backups = Backups(service)
    logger = get_logger("rollcall.backup")

    async def backup(
        request: Request,
        *,
        name: Annotated[str | None, Query(alias="backup", max_length=64)] = None,
        page: Annotated[int, Query(ge=0, le=PAGES_MAX)] = 0,
        secrets: Annotated[bool, Query()] = False,
    ) -> Response:
        """A page of the state; without ``backup``, the first one of the state as it is on this controller now."""
        found = await backups.page(name, page, has_secrets=secrets)
        # It changes nothing, so it is no event; but it may carry off what lets everybody in.
        if name is None:
            caller = str(caller_of(request.scope))
            logger.info("backup_begun", caller=caller, index=found.header.index, has_secrets=secrets)
        return Response(msgspec.json.encode(found), media_type="application/json")

    router = APIRouter(prefix="/v1")
    responses = answers(BackupPage, problems=(404, 422))
    router.add_api_route(
        "/backup", backup, operation_id="getBackup", methods=["GET"], tags=["access"], responses=responses
    )
    return router
