"""
Bodies of mutating requests, as JSON in camelCase.

Here: what a caller may send. Not here: the answers (``controller.contract.views``, ``replies``), documentation of both
(``schemas``). The broker operations take the commands of the contract as they are.

Rule 1: ``request_id`` is drawn by the server if it is missing, and is in every answer (header ``X-Request-Id``,
problem ``requestId``).
Rule 2: the caller is never in the body. In an insecure fleet its name for the record comes from the header
``X-Requested-By``, ``admin`` without one, and proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, dataclass_transform

import msgspec

from rollcall_ha.controller.contract.commands import SWITCHOVER_DEADLINE_MS, SWITCHOVER_LAG_BYTES
from rollcall_ha.controller.contract.ids import BrokerId, ControllerName, MasterEpoch, SetKey, SyncStateSetEpoch
from rollcall_ha.controller.contract.principals import Role
from rollcall_ha.controller.contract.values import ImportedReplica, MaintenanceScope

REQUEST_ID_CHARACTERS_MAX = 64
RequestIdText = Annotated[str, msgspec.Meta(pattern=r"^[!-~]+$", max_length=REQUEST_ID_CHARACTERS_MAX)]
"""Printable ASCII without spaces: it also travels in a header."""


# Unknown members are refused: a misspelt "expectedEpoch" would expect nothing, and the guarded election run unguarded.
@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class RequestBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of all bodies."""

    reason: str = ""
    request_id: RequestIdText | None = None
    dry_run: bool = False
    """Decide as for the real order, and answer with a preview or the refusal; nothing is proposed."""


class ElectBody(RequestBody):
    """POST /v1/sets/{cluster}/{set}/elect: a clean election, by policy or of ``to``, while the guards hold."""

    to: BrokerId | None = None
    expected_master: BrokerId | None = None
    expected_epoch: MasterEpoch | None = None


class SwitchoverBody(RequestBody):
    """POST /v1/sets/{cluster}/{set}/switchover: the master drains, ``to`` is elected, and the old master follows it."""

    to: BrokerId | None = None
    """None: by policy, among the members."""
    expected_master: BrokerId | None = None
    expected_epoch: MasterEpoch | None = None
    deadline_ms: int = SWITCHOVER_DEADLINE_MS
    """Of the whole switchover; then the old master serves again."""
    max_lag_bytes: int = SWITCHOVER_LAG_BYTES


class ElectUncleanBody(ElectBody):
    """POST .../elect-unclean: the only request that can lose messages (S72)."""

    accepted_loss_bytes: int = 0
    """0 by default: a caller that names no loss has accepted none."""


class BootstrapBody(RequestBody):
    """POST .../bootstrap: first election by an operator's decision (R8)."""

    master: BrokerId


class CleanBody(RequestBody):
    """POST .../clean: forget replicas, or the whole set if none is named; epochs stay (S78)."""

    broker_ids: tuple[BrokerId, ...] = ()
    is_unclean: bool = False


class RaiseLevelBody(RequestBody):
    """POST /v1/feature-level: from here on, what this level brought may appear; it never falls (R15)."""

    level: int | None = None
    """None: the leader's own."""
    assume_upgraded: bool = False
    """Controllers whose REST port the leader cannot reach have the level, by the caller's word."""


class AddControllerBody(RequestBody):
    """POST /v1/controllers/add: takes entries from now on, and votes when it has caught up."""

    name: ControllerName
    raft: str
    """host:port of its three ports, as others reach them."""
    broker: str
    rest: str


class RemoveControllerBody(RequestBody):
    """POST /v1/controllers/remove: the controller that leaves the group for good."""

    name: ControllerName


class TransferBody(RequestBody):
    """POST /v1/controllers/transfer: another controller leads."""

    to: ControllerName | None = None
    """None: the one that has the fewest entries to come."""


class ConfigureSetBody(RequestBody):
    """POST .../configuration: how many replicas are expected, and have to hold a message; null: as it is."""

    expected_replicas: int | None = None
    min_in_sync: int | None = None
    """0 = half of the expected replicas, rounded up."""


class PauseBody(RequestBody):
    """POST .../pause and /v1/pause: nobody is elected but by word, until a time."""

    expires_at_ms: int
    """UTC; at most seven days ahead."""


class ResumeBody(RequestBody):
    """POST .../resume and /v1/resume."""


class BeginMaintenanceBody(RequestBody):
    """POST /v1/maintenance: a replica, or each on a host, is elected by word only and not missed, until a time."""

    scope: MaintenanceScope
    expires_at_ms: int
    """UTC; at most seven days ahead."""
    spends_last: bool = False
    """Also if a set may then lose no further replica."""


class EndMaintenanceBody(RequestBody):
    """POST /v1/maintenance/end."""

    scope: MaintenanceScope


class ApplySettingsBody(RequestBody):
    """
    POST /v1/settings: those in force, or of ``version``, then of ``preset``, then ``values``; judged as a whole.

    Keys are those of docs/settings.md, such as ``heartbeat_timeout_ms``.
    """

    values: dict[str, int] = {}
    preset: str | None = None
    version: int | None = None
    """Go back to this one; it becomes a new version."""
    expected_version: int | None = None
    """Refuse if another one is in force. None: of whichever is."""


class RevokeCertificateBody(RequestBody):
    """POST /v1/certificates/revoke: believe it no longer, on any port."""

    serial: str
    """Hex digits, lower case, without leading zeros."""
    expires_at_ms: int
    """UTC; some time after it the entry is forgotten."""
    name: str = ""
    """Its URI name, for people."""


class IssueTokenBody(RequestBody):
    """POST /v1/tokens: whoever has the token with this digest acts in the role until it expires."""

    token_id: str
    digest: str
    """SHA-256 of the token's text, 64 hex digits; the token itself stays with who has drawn it."""
    role: Role
    name: str
    expires_at_ms: int
    """UTC."""
    set_key: SetKey | None = None
    """Of role broker: the set that it may speak for."""


class RevokeTokenBody(RequestBody):
    """POST /v1/tokens/{id}/revoke."""


class ImportBody(RequestBody):
    """POST .../import: what a set's present controllers, RocketMQ's, say of it."""

    replicas: tuple[ImportedReplica, ...]
    next_id: BrokerId
    master: BrokerId
    master_epoch: MasterEpoch
    sync_state_set: tuple[BrokerId, ...]
    sync_state_set_epoch: SyncStateSetEpoch


def _kinds_of(kind: type[RequestBody]) -> Iterator[type[RequestBody]]:
    for one in kind.__subclasses__():
        yield one
        yield from _kinds_of(one)


BODIES: tuple[type, ...] = tuple(_kinds_of(RequestBody))
"""Every kind of body."""
