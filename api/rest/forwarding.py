"""
Passing a caller's request on to the leader, so that any controller takes any request.

Here: which headers go along, how long it may take, what each end of it tells the caller. Not here: the link
(``relay``).

Rule 1: None if the leader certainly did not take it: the caller is then told where the leader is, as if nothing had
been tried.
Rule 2: the caller goes along as this controller has proved it (``relay``); of its headers only those that say what is
asked.
Rule 3: an order whose answer was lost may be executed: 504 with its request id, never 503, which says that nothing was.
"""

from __future__ import annotations

import asyncio

from fastapi import Request
from starlette.responses import Response

from rollcall_ha.api.rest import problems
from rollcall_ha.api.rest.guard import caller_of
from rollcall_ha.api.rest.peers import Peers
from rollcall_ha.api.rest.relay import AnswerLost, NotTaken
from rollcall_ha.controller.contract.codes import LEADER_HEADER, REQUEST_ID_HEADER, REQUESTED_BY_HEADER
from rollcall_ha.controller.contract.ids import ControllerName, RequestId

FORWARD_MS_MAX = 1_000
_THERE = ("content-type", "accept", REQUESTED_BY_HEADER)
_BACK = ("content-type", "retry-after", REQUEST_ID_HEADER.lower())


async def forward(
    request: Request, content: bytes, peers: Peers, *, leader: ControllerName, request_id: RequestId
) -> Response | None:
    """The leader's answer, or what is known without one (rules 1 and 3). ``content``: the body, already read."""
    headers = {name: request.headers[name] for name in _THERE if name in request.headers}
    headers[REQUEST_ID_HEADER] = request_id
    try:
        async with asyncio.timeout(FORWARD_MS_MAX / 1000):
            answer = await peers.send(
                leader,
                request.method,
                target_of(request),
                headers=headers,
                content=content,
                caller=caller_of(request.scope),
            )
    except NotTaken:
        return None
    except (AnswerLost, TimeoutError) as error:
        told = f"{leader} leads and gave no answer within {FORWARD_MS_MAX} ms ({type(error).__name__})"
        if request.method == "GET":
            return problems.no_answer(leader, told)
        return problems.outcome_unknown(request_id, told)
    kept = {name: value for name, value in answer.headers if name in _BACK}
    return Response(answer.content, status_code=answer.status, headers={**kept, LEADER_HEADER: leader})


def target_of(request: Request) -> str:
    """Path and query as they were sent: decoded, a set name with an escaped slash in it would be another path."""
    path: str = request.scope.get("raw_path", request.url.path.encode()).decode("ascii").partition("?")[0]
    return f"{path}?{request.url.query}" if request.url.query else path
