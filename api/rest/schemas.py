"""
The OpenAPI document, made from the values that are really sent.

Here: component schemas generated from the contract by msgspec, and how routes refer to them. Not here: routes
(``routes``). No model is written twice: what the contract gains, the document gains.
"""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi.routing import APIRoute

from rollcall_ha.api.rest.requests import (
    ApplySettingsBody,
    BeginMaintenanceBody,
    BootstrapBody,
    CleanBody,
    ElectBody,
    ElectUncleanBody,
    EndMaintenanceBody,
    ImportBody,
    IssueTokenBody,
    PauseBody,
    RaiseLevelBody,
    ResumeBody,
    RevokeCertificateBody,
    RevokeTokenBody,
    SwitchoverBody,
    TransferBody,
)
from rollcall_ha.controller.contract.backups import BackupPage
from rollcall_ha.controller.contract.commands import AlterSyncStateSet, ApplyBrokerId, RegisterReplica, SayGoodbye
from rollcall_ha.controller.contract.replies import AlterDecided, Done, Elected, IdGranted, Registered
from rollcall_ha.controller.contract.session import Heartbeat, HeartbeatAck
from rollcall_ha.controller.contract.values import Value
from rollcall_ha.controller.contract.views import (
    CertificatesAnswer,
    ControllersAnswer,
    ElectionPreview,
    EventPage,
    Explanation,
    FleetStatus,
    HistoryPage,
    LeadershipTransferred,
    MaintenancesAnswer,
    OrderPreview,
    Problem,
    SetAnswer,
    SetPage,
    SettingsAnswer,
    SwitchoverAnswer,
    TokensAnswer,
)
from rollcall_ha.controller.runtime.queries import Consistency

REF_TEMPLATE = "#/components/schemas/{name}"


class Liveness(Value):
    """GET /livez and /readyz when all is well."""

    status: str
    reason: str = ""


OPERATION_IDS = {
    "status": "getStatus",
    "controllers": "listControllers",
    "sets": "listSets",
    "set": "getSet",
    "history": "getHistory",
    "explain": "explainEpoch",
    "events": "listEvents",
    "stream": "streamEvents",
    "elect": "electMaster",
    "switch_over": "switchOver",
    "elect_unclean": "electMasterUnclean",
    "bootstrap": "bootstrapSet",
    "clean": "cleanReplicas",
    "import_set": "importSet",
    "raise_level": "raiseFeatureLevel",
    "transfer": "transferLeadership",
    "apply_broker_id": "applyBrokerId",
    "register": "registerReplica",
    "heartbeat": "sendHeartbeat",
    "alter": "alterSyncStateSet",
    "goodbye": "sayGoodbye",
    "livez": "getLiveness",
    "readyz": "getReadiness",
    "metrics": "getMetrics",
    "openapi": "getOpenApi",
    "settings": "getSettings",
    "apply_settings": "applySettings",
    "certificates": "listCertificates",
    "revoke_certificate": "revokeCertificate",
    "tokens": "listTokens",
    "issue_token": "issueToken",
    "revoke_token": "revokeToken",
    "pause_set": "pauseSet",
    "resume_set": "resumeSet",
    "pause_fleet": "pauseFleet",
    "resume_fleet": "resumeFleet",
    "maintenances": "listMaintenances",
    "begin_maintenance": "beginMaintenance",
    "end_maintenance": "endMaintenance",
    "backup": "getBackup",
}
"""The name of each handler's method in a generated client. They are kept: a program was written against them."""


def operation_id(route: APIRoute) -> str:
    """Of a route. Raises ``KeyError`` for one without."""
    return OPERATION_IDS[route.name]


DOCUMENTED: tuple[type, ...] = (
    BeginMaintenanceBody,
    EndMaintenanceBody,
    MaintenancesAnswer,
    AlterDecided,
    AlterSyncStateSet,
    ApplyBrokerId,
    ApplySettingsBody,
    BackupPage,
    BootstrapBody,
    CertificatesAnswer,
    CleanBody,
    Consistency,
    ControllersAnswer,
    Done,
    ElectBody,
    ElectUncleanBody,
    Elected,
    ElectionPreview,
    EventPage,
    Explanation,
    FleetStatus,
    Heartbeat,
    HeartbeatAck,
    HistoryPage,
    IdGranted,
    ImportBody,
    IssueTokenBody,
    LeadershipTransferred,
    Liveness,
    OrderPreview,
    PauseBody,
    Problem,
    RaiseLevelBody,
    RegisterReplica,
    Registered,
    ResumeBody,
    RevokeCertificateBody,
    RevokeTokenBody,
    SayGoodbye,
    SetAnswer,
    SetPage,
    SettingsAnswer,
    SwitchoverAnswer,
    SwitchoverBody,
    TokensAnswer,
    TransferBody,
)


def components() -> dict[str, Any]:
    """JSON Schema (2020-12) of every documented value and of all that they consist of."""
    _, found = msgspec.json.schema_components(DOCUMENTED, ref_template=REF_TEMPLATE)
    return dict(sorted(found.items()))


def ref(kind: type) -> dict[str, Any]:
    """Reference to a component."""
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
