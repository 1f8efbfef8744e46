"""
The routes that read topics and groups; the masters of the sets are asked (``masters``).

Here: parameters. Not here: orders about them (``orders``, by their table), roles (``roles``).

Rule: any controller answers, also without a leader: the masters know, and the state names them (adr/0039).
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from rollcall_ha.api.rest.masters import Masters
from rollcall_ha.api.rest.requests import NamePath, as_json
from rollcall_ha.api.rest.schemas import answers
from rollcall_ha.controller.contract.consuming import NAMES_PAGE_MAX, GroupAnswer, GroupPage, TopicAnswer, TopicPage

NamePart = Annotated[str, Query(max_length=255)]
FromSet = Annotated[str | None, Query(alias="fromSet", max_length=520)]
Limit = Annotated[int, Query(ge=1, le=NAMES_PAGE_MAX)]


def consumer_routes(masters: Masters) -> APIRouter:
    """GET /v1/topics and /v1/groups, of all and of one."""

    async def topics(
        name: NamePart = "", after: NamePart = "", limit: Limit = NAMES_PAGE_MAX, from_set: FromSet = None
    ) -> Response:
        """Topics of 16 sets at most; ``name``: those that contain it."""
        return as_json(await masters.ask(TopicPage, from_set, part=name, after=after, limit=limit))

    async def topic(topic: NamePath, from_set: FromSet = None) -> Response:
        """A topic: its queues, and who reads it."""
        return as_json(await masters.ask(TopicAnswer, from_set, topic=topic))

    async def groups(
        name: NamePart = "", after: NamePart = "", limit: Limit = NAMES_PAGE_MAX, from_set: FromSet = None
    ) -> Response:
        """Groups of consumers of 16 sets at most; ``name``: those that contain it."""
        return as_json(await masters.ask(GroupPage, from_set, part=name, after=after, limit=limit))

    async def group(group: NamePath, topic: NamePart = "", from_set: FromSet = None) -> Response:
        """A group: members, lag per queue, which queues stand still; ``topic``: in this one alone."""
        return as_json(await masters.ask(GroupAnswer, from_set, group=group, topic=topic))

    router = APIRouter(prefix="/v1")
    add = partial(router.add_api_route, methods=["GET"], tags=["consume"])
    add("/topics", topics, operation_id="listTopics", responses=answers(TopicPage, problems=(422,)))
    add("/topics/{topic}", topic, operation_id="getTopic", responses=answers(TopicAnswer, problems=(404, 422)))
    add("/groups", groups, operation_id="listGroups", responses=answers(GroupPage, problems=(422,)))
    add("/groups/{group}", group, operation_id="getGroup", responses=answers(GroupAnswer, problems=(404, 422)))
    return router
