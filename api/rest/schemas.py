"""
The parts of the OpenAPI document, made from the values that are really sent.

Here: component schemas generated from the contract by msgspec, and how routes refer to them. Not here: routes
(``routes``). No model is written twice: what the contract gains, the document gains.
"""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Route

from rollcall_ha.controller.contract.values import Value
from rollcall_ha.controller.contract.views import Problem
from rollcall_ha.controller.runtime.overview import SetOrder
from rollcall_ha.controller.runtime.queries import Consistency

REF_TEMPLATE = "#/components/schemas/{name}"


class Liveness(Value):
    """GET /livez, /readyz and /leader when all is well."""

    status: str
    reason: str = ""


_referred: dict[str, type] = {}
"""By name: what the routes of this process take and give."""
_WITHOUT_ID = {"openapi": "getOpenApi"}
"""The route that FastAPI adds by itself, without an operation id."""


def operation_id(route: BaseRoute) -> str:
    """The id that a route was added with; one without it gets a name that no table has."""
    found = route.operation_id if isinstance(route, APIRoute) else None
    name = route.name if isinstance(route, Route) else ""
    return found or _WITHOUT_ID.get(name, f"unnamed:{name}")


def components() -> dict[str, Any]:
    """JSON Schema (2020-12) of every value that a route refers to and of all that they consist of."""
    # FastAPI refers to the choices of a parameter by itself.
    kinds = (Consistency, SetOrder, *_referred.values())
    _, found = msgspec.json.schema_components(kinds, ref_template=REF_TEMPLATE)
    return dict(sorted(found.items()))


def ref(kind: type) -> dict[str, Any]:
    """Reference to a component, which the document has from then on."""
    _referred[kind.__name__] = kind
    return {"$ref": REF_TEMPLATE.format(name=kind.__name__)}


def answers(*kinds: type, problems: tuple[int, ...] = ()) -> dict[int | str, dict[str, Any]]:
    """The answers of a route: 200 with one of ``kinds``, these problem statuses, and those of the edge for all."""
    schema = ref(kinds[0]) if len(kinds) == 1 else {"anyOf": [ref(kind) for kind in kinds]}
    found: dict[int | str, dict[str, Any]] = {
        200: {"description": "Done.", "content": {"application/json": {"schema": schema}}}
    }
    return found | only_problems(*problems, 421)


def only_problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The part of ``answers`` that is not 200."""
    content = {"application/problem+json": {"schema": ref(Problem)}}
    return {status: {"description": _STATUS_WORDS[status], "content": content} for status in sorted(statuses)}


def body(kind: type) -> dict[str, Any]:
    """``openapi_extra`` of a route that takes a JSON body."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": ref(kind)}}}}


_STATUS_WORDS = {
    307: "Another controller leads: follow Location.",
    400: "The body is not JSON.",
    401: "Nobody known asks: no certificate and no token, or one that is not good.",
    403: "The caller lacks the role, or a browser sends it for a page of another site.",
    404: "There is no such thing.",
    409: "Refused: it conflicts with the state; both values and the remedy are in the document.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    421: "Host is no name of this controller.",
    422: "A value is not acceptable.",
    429: "This caller asks too often, or too much at once: nothing was executed.",
    503: "No controller leads, or too much is waiting: nothing was executed.",
    504: "The outcome is unknown: ask again with the same request id.",
}
