"""
Paths and bodies of requests, as the client writes them; the server reads bodies in ``api.rest.requests``.

Here: the options of elections and switchovers, and the JSON that they become. Not here: sending it (``client.client``).
"""

from __future__ import annotations

from typing import Any, TypedDict
from urllib.parse import quote

import msgspec

from rollcall_ha.controller.contract.commands import ImportSet
from rollcall_ha.controller.contract.ids import BrokerId, MasterEpoch, SetKey
from rollcall_ha.controller.contract.values import MaintenanceScope
from rollcall_ha.controller.contract.views import PAGE_SETS_MAX


class ElectionGuards(TypedDict, total=False):
    """An election is refused if another broker would win, or if the set has moved on."""

    to: BrokerId | None
    expected_master: BrokerId | None
    expected_epoch: MasterEpoch | None


class SwitchoverOptions(TypedDict, total=False):
    """As the fields of ``SwitchoverBody``."""

    to: BrokerId | None
    expected_master: BrokerId | None
    expected_epoch: MasterEpoch | None
    deadline_ms: int
    max_lag_bytes: int


def import_body(command: ImportSet) -> dict[str, Any]:
    """All of the command but its set, which is in the path."""
    body: dict[str, Any] = msgspec.to_builtins(command)
    del body["command"], body["setKey"]
    return body


def election_body(guards: ElectionGuards) -> dict[str, Any]:
    """The guards that are set."""
    named = {
        "to": guards.get("to"),
        "expectedMaster": guards.get("expected_master"),
        "expectedEpoch": guards.get("expected_epoch"),
    }
    return {name: value for name, value in named.items() if value is not None}


def switchover_body(order: SwitchoverOptions) -> dict[str, Any]:
    """The options that are set."""
    names = {
        "to": "to",
        "expected_master": "expectedMaster",
        "expected_epoch": "expectedEpoch",
        "deadline_ms": "deadlineMs",
        "max_lag_bytes": "maxLagBytes",
    }
    return {names[name]: value for name, value in order.items() if value is not None}


def page_params(consistency: str, after: str | None) -> dict[str, str]:
    """Of a page of sets; ``after`` None: of the first one."""
    return {"consistency": consistency, "limit": str(PAGE_SETS_MAX)} | ({"after": after} if after else {})


def maintenance_body(scope: MaintenanceScope) -> dict[str, Any]:
    """Of an order about this replica or host."""
    return {"scope": msgspec.to_builtins(scope)}


def scope_path(key: SetKey | None) -> str:
    """Of what is about one set, or (None) about the fleet."""
    return "/v1" if key is None else set_path(key)


def set_path(key: SetKey) -> str:
    """Of one set."""
    return f"/v1/sets/{quoted(key.cluster)}/{quoted(key.name)}"


def quoted(part: str) -> str:
    """One part of a path, its slashes too."""
    return quote(part, safe="")
