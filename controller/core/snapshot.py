"""
A snapshot of the replicated state as a sequence of small JSON items.

Here: ``encode_state`` and ``decode_state``. Not here: files, checksums, compression (``controller.replication``).

Rule 1: one item per set, answered request, revoked certificate and token, so a thread may write it without holding the
interpreter long.
Rule 2: equal states give equal bytes, on every node (C8). Items keep the order of the state.
Rule 3: a snapshot above this node's feature level, and a damaged one, raise ``ValueError``: the node must not start
from it (R15). What the state says is checked by ``invariants.check_state``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from rollcall_ha.controller.contract.commands import FEATURE_LEVEL
from rollcall_ha.controller.contract.ids import FleetIncarnation, RequestId, SetKey
from rollcall_ha.controller.contract.settings import AppliedSettings
from rollcall_ha.controller.contract.values import (
    ElectionPause,
    Maintenance,
    MaintenanceScope,
    RevokedCertificate,
    Value,
    made_from,
)
from rollcall_ha.controller.core.state import AnsweredRequest, FleetState, IssuedToken, SetState

SNAPSHOT_FORMAT = 1


class SnapshotHeader(Value, tag="header", tag_field="item"):
    """First item: what is common to all sets, and how many items follow."""

    format: int
    feature_level: int
    fleet_incarnation: FleetIncarnation
    chain_head: str
    last_stamp_ms: int
    term: int
    index: int
    sets: int
    requests: int
    state_digest: str = ""
    heard_at_ms: int = 0
    stepped_ms: int = 0
    revoked: int = 0
    revocations: int = 0
    tokens: int = 0
    pauses: int = 0
    settings: int = 0
    maintenances: int = 0


class SnapshotSet(Value, tag="set", tag_field="item"):
    state: SetState


class SnapshotRequest(Value, tag="request", tag_field="item"):
    request_id: RequestId
    answered: AnsweredRequest


class SnapshotRevoked(Value, tag="revoked", tag_field="item"):
    certificate: RevokedCertificate


class SnapshotToken(Value, tag="token", tag_field="item"):
    token: IssuedToken


class SnapshotPause(Value, tag="pause", tag_field="item"):
    pause: ElectionPause


class SnapshotSettings(Value, tag="settings", tag_field="item"):
    applied: AppliedSettings


class SnapshotMaintenance(Value, tag="maintenance", tag_field="item"):
    maintenance: Maintenance


_Item = (
    SnapshotHeader
    | SnapshotSet
    | SnapshotRequest
    | SnapshotRevoked
    | SnapshotToken
    | SnapshotPause
    | SnapshotSettings
    | SnapshotMaintenance
)
_DECODER: msgspec.json.Decoder[_Item] = msgspec.json.Decoder(_Item)
_ENCODER = msgspec.json.Encoder(order="deterministic")


def encode_state(state: FleetState) -> Iterator[bytes]:
    """The items of ``state``, header first. Sets are sorted by key, requests oldest first."""
    yield _ENCODER.encode(
        made_from(
            state,
            SnapshotHeader,
            format=SNAPSHOT_FORMAT,
            sets=len(state.sets),
            requests=len(state.requests),
            revoked=len(state.revoked),
            tokens=len(state.tokens),
            pauses=len(state.pauses),
            settings=len(state.settings),
            maintenances=len(state.maintenances),
        )
    )
    # Sorted: a node that started from a snapshot holds its sets in another order, and must write equal bytes (C8).
    for set_key in sorted(state.sets):
        yield _ENCODER.encode(SnapshotSet(state=state.sets[set_key]))
    for request_id, answered in state.requests.items():
        yield _ENCODER.encode(SnapshotRequest(request_id=request_id, answered=answered))
    for certificate in state.revoked.values():
        yield _ENCODER.encode(SnapshotRevoked(certificate=certificate))
    for token in state.tokens.values():
        yield _ENCODER.encode(SnapshotToken(token=token))
    for pause in state.pauses.values():
        yield _ENCODER.encode(SnapshotPause(pause=pause))
    for applied in state.settings:
        yield _ENCODER.encode(SnapshotSettings(applied=applied))
    for maintenance in state.maintenances.values():
        yield _ENCODER.encode(SnapshotMaintenance(maintenance=maintenance))


def decode_state(items: Iterable[bytes]) -> FleetState:
    """
    Inverse of ``encode_state``.

    Raises:
        ValueError: An item is damaged, missing or too many, or the snapshot is above this node's feature level.
    """
    iterator = iter(items)
    header = _decode(next(iterator, b""))
    if not isinstance(header, SnapshotHeader):
        raise ValueError("snapshot does not begin with its header; restore it from a peer")  # noqa: TRY004
    # Unknown fields are ignored: a newer snapshot would decode, and silently lose what this program cannot name.
    if header.format != SNAPSHOT_FORMAT or header.feature_level > FEATURE_LEVEL:
        raise ValueError(
            f"snapshot has format {header.format} and feature level {header.feature_level}, this node understands "
            f"{SNAPSHOT_FORMAT} and {FEATURE_LEVEL}; upgrade it"
        )
    sets: dict[SetKey, SetState] = {}
    requests: dict[RequestId, AnsweredRequest] = {}
    revoked: dict[str, RevokedCertificate] = {}
    tokens: dict[str, IssuedToken] = {}
    pauses: dict[SetKey | None, ElectionPause] = {}
    settings: list[AppliedSettings] = []
    maintenances: dict[MaintenanceScope, Maintenance] = {}
    count = 0
    for raw in iterator:
        count += 1
        item = _decode(raw)
        if isinstance(item, SnapshotSet):
            sets[item.state.set_key] = item.state
        elif isinstance(item, SnapshotRequest):
            requests[item.request_id] = item.answered
        elif isinstance(item, SnapshotRevoked):
            revoked[item.certificate.serial] = item.certificate
        elif isinstance(item, SnapshotToken):
            tokens[item.token.token_id] = item.token
        elif isinstance(item, SnapshotPause):
            pauses[item.pause.set_key] = item.pause
        elif isinstance(item, SnapshotSettings):
            settings.append(item.applied)
        elif isinstance(item, SnapshotMaintenance):
            maintenances[item.maintenance.scope] = item.maintenance
        else:
            raise ValueError("snapshot has two headers; restore it from a peer")  # noqa: TRY004
    held = (len(sets), len(requests), len(revoked), len(tokens), len(pauses), len(settings), len(maintenances))
    _validate_counts(header, held, count)
    return made_from(
        header,
        FleetState,
        sets=sets,
        requests=requests,
        revoked=revoked,
        tokens=tokens,
        pauses=pauses,
        settings=tuple(settings),
        maintenances=maintenances,
    )


def item_complaint(raw: bytes) -> str:
    """Why ``raw`` is no item as ``encode_state`` writes them; empty: it is one."""
    try:
        item = _decode(raw)
    except ValueError as error:
        return str(error)
    # A field that this program does not know would be left out without a word.
    return "" if _ENCODER.encode(item) == raw else "it is not written as this program writes it"


def _decode(raw: bytes) -> _Item:
    try:
        return _DECODER.decode(raw)
    except msgspec.DecodeError as error:
        raise ValueError(f"snapshot item cannot be read: {error}; restore it from a peer") from error


def _validate_counts(header: SnapshotHeader, held: tuple[int, ...], count: int) -> None:
    """Raises ``ValueError``: it holds other numbers of items than its header says."""
    said = (
        header.sets,
        header.requests,
        header.revoked,
        header.tokens,
        header.pauses,
        header.settings,
        header.maintenances,
    )
    # A snapshot that ends early is a fleet with fewer sets: their epochs would begin at 0 again.
    if held != said or count != sum(said):
        raise ValueError(
            f"snapshot holds {held} sets, requests, revoked certificates, tokens, pauses, versions of settings and "
            f"maintenances in {count} items, its header says {said}; restore it from a peer"
        )
