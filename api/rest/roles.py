"""
Who may call which operation of REST.

Here: one table, by operation id; orders bring theirs (``controller.contract.orders``). Not here: who the caller is
(``principals``), refusing it (``guard``), what replicated state adds about sets and owners
(``controller.core.callers``).

Rule 1: what is not in the table is refused to everybody, also what was forgotten here.
Rule 2: the roles of people include each other, viewer < operator < admin; a broker's own operations are for brokers.
Rule 3: the OpenAPI document says the same: its ``security`` is made from this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollcall_ha.controller.contract.orders import ORDERS
from rollcall_ha.controller.contract.principals import Role

_PEOPLE = (Role.VIEWER, Role.OPERATOR, Role.ADMIN)
"""Each may do what those before it may (rule 2)."""
_VIEWERS = _PEOPLE
_ADMINS = (Role.ADMIN,)
_BROKERS = (Role.BROKER,)

OPEN = frozenset({"getLiveness", "getReadiness", "getLeader", "getConsole", "getConsoleFile"})
"""
For everybody: a load balancer and a supervisor have no certificate, and learn only whether it serves or leads. The
files of the console are those of the program; a browser needs them before anybody can sign in.
"""

_OTHERS: dict[str, tuple[Role, ...]] = {
    "getStatus": _VIEWERS,
    "listControllers": _VIEWERS,
    "getOverview": _VIEWERS,
    "listSets": _VIEWERS,
    "getSet": _VIEWERS,
    "getHistory": _VIEWERS,
    "explainEpoch": _VIEWERS,
    "listEvents": _VIEWERS,
    "streamEvents": _VIEWERS,
    "getCaller": _VIEWERS,
    "getMetrics": _VIEWERS,
    "getOpenApi": _VIEWERS,
    "listCertificates": _VIEWERS,
    "listMaintenances": _VIEWERS,
    "getSettings": _VIEWERS,
    "listTopics": _VIEWERS,
    "getTopic": _VIEWERS,
    "listGroups": _VIEWERS,
    "getGroup": _VIEWERS,
    # Names of everybody who has a token are a list of whom to rob.
    "listTokens": _ADMINS,
    # The whole state; with secrets, what lets everybody in.
    "getBackup": _ADMINS,
    "applyBrokerId": _BROKERS,
    "registerReplica": _BROKERS,
    "sendHeartbeat": _BROKERS,
    "alterSyncStateSet": _BROKERS,
    "sayGoodbye": _BROKERS,
}
"""Reads, and the operations of brokers."""

ROLES: Mapping[str, tuple[Role, ...]] = _OTHERS | {
    order.operation: _PEOPLE[_PEOPLE.index(order.role) :] for order in ORDERS
}
"""By operation id. An insecure fleet proves nobody, and its callers are believed to be whom an operation needs."""

SECURITY_SCHEMES: dict[str, Any] = {
    "certificate": {
        "type": "mutualTLS",
        "description": "A client certificate of the fleet's authority; its URI name says the role.",
    },
    "token": {"type": "http", "scheme": "bearer", "description": "A token of rollcall tokens issue."},
}


def allowed(operation: str) -> tuple[Role, ...]:
    """The roles that may call it; nobody for one that is not in the table (rule 1)."""
    return ROLES.get(operation, ())


def security_of(operation: str) -> list[dict[str, list[str]]]:
    """``security`` of the operation in the OpenAPI document; empty: it is open."""
    if operation in OPEN:
        return []
    roles = [role.value for role in allowed(operation)]
    return [{scheme: roles} for scheme in SECURITY_SCHEMES]
