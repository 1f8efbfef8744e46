"""
Reading a request, and writing its answer: what all routes under /v1 share.

Here: parameters of paths, bodies and their limits, request ids, the caller's name, answers of 200. Not here: routes
(``routes``, ``orders``), documents for failures (``problems``), schemas (``schemas``).

Rule 1: the id of an order is drawn by the server if it is missing, and is in every answer (header ``X-Request-Id``,
problem ``requestId``).
Rule 2: the caller is never in the body. In an insecure fleet its name for the record comes from the header
``X-Requested-By``, ``admin`` without one, and proves nothing.
Rule 3: a changing request has a body of ``application/json``, at most ``BODY_BYTES_MAX``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, TypeVar

import msgspec
from fastapi import Path, Query, Request
from starlette.responses import Response

from rollcall_ha.api.rest.edge import SHOWN_CHARACTERS_MAX
from rollcall_ha.api.rest.guard import caller_of
from rollcall_ha.api.rest.principals import printable
from rollcall_ha.api.rest.problems import refused
from rollcall_ha.controller.contract.codes import REQUEST_ID_HEADER, REQUESTED_BY_HEADER
from rollcall_ha.controller.contract.ids import BrokerId, BrokerName, ClusterName, RequestId, SetKey
from rollcall_ha.controller.contract.principals import ProvedBy
from rollcall_ha.controller.contract.replies import Refused
from rollcall_ha.controller.runtime.queries import Consistency

BODY_BYTES_MAX = 64 * 1024
"""More does not fit into a log entry."""
REQUEST_ID_CHARACTERS_MAX = 64
RequestIdText = Annotated[str, msgspec.Meta(pattern=r"^[!-~]+$", max_length=REQUEST_ID_CHARACTERS_MAX)]
"""Printable ASCII without spaces: it also travels in a header."""

ClusterPath = Annotated[str, Path(min_length=1, max_length=255)]
SetPath = Annotated[str, Path(alias="set", min_length=1, max_length=255)]
NamePath = Annotated[str, Path(min_length=1, max_length=255)]
How = Annotated[Consistency, Query()]

T = TypeVar("T")


class NotJson(Exception):
    """The body does not say that it is JSON; the message names what it says."""


class BadRequestBody(Exception):
    """The body cannot be used; ``status`` is 400 (not JSON), 413 or 422."""

    def __init__(self, status: int, detail: str) -> None:
        """Becomes a problem document."""
        super().__init__(detail)
        self.status = status


def set_key(cluster: str, name: str) -> SetKey:
    """The key that two parts of a path name."""
    return SetKey(ClusterName(cluster), BrokerName(name))


async def read_body(request: Request, decoder: msgspec.json.Decoder[T]) -> T:
    """The body as a value. Raises ``NotJson`` and ``BadRequestBody``."""
    # Rule 3. A form, text/plain and a body without a type are all that a page may send to another site without being
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
        decoded = decoder.decode(content)
    except msgspec.ValidationError as error:
        raise BadRequestBody(422, str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # RecursionError: 64 KiB of "[" are nested deeper than the decoder goes, and would be reported as a fault of
        # ours.
        raise BadRequestBody(400, f"the body is not JSON: {error}") from error
    # Kept, for it cannot be read twice: another controller may have to answer.
    request.state.content = bytes(content)
    return decoded


def take_request_id(request: Request, given: str | None, draw: Callable[[], RequestId]) -> RequestId:
    """
    The id of an order, ``given`` by its body, by its header, or drawn; asked for BEFORE anything is done with it.

    It is kept with the request: an exception on the way must answer with the id, or the caller whose outcome is unknown
    has nothing to ask again with. Raises ``BadRequestBody``.
    """
    # The body's id wins: a proxy may add a header of this name to each attempt, and a retry would be a new order.
    given = given or request.headers.get(REQUEST_ID_HEADER)
    # Checked, for it comes back in a header: with a line end in it, a caller could write headers of our answer.
    try:
        found = draw() if given is None else RequestId(msgspec.convert(given, RequestIdText))
    except msgspec.ValidationError as error:
        raise BadRequestBody(422, f"header {REQUEST_ID_HEADER}: {error}") from error
    request.state.request_id = found
    return found


def requested_by(request: Request, kind: str = "admin") -> str:
    """Who asks, for the record; where nobody is proved, a name that proves nothing (rule 2)."""
    caller = caller_of(request.scope)
    if caller.proved_by is not ProvedBy.NOTHING:
        return str(caller)
    name = printable(request.headers.get(REQUESTED_BY_HEADER, ""))
    if not name:
        return kind
    return name if ":" in name else f"{kind}:{name}"


def as_json(value: object, headers: dict[str, str] | None = None) -> Response:
    """An answer of 200."""
    return Response(msgspec.json.encode(value), media_type="application/json", headers=headers)


def answered(reply: object, request_id: RequestId, names: Mapping[BrokerId, str] | None = None) -> Response:
    """The answer to an order: what was done, or its refusal, with the ``names`` of the brokers that it tells of."""
    if isinstance(reply, Refused):
        return refused(reply, request_id=request_id, names=names)
    return as_json(reply, {REQUEST_ID_HEADER: request_id})
