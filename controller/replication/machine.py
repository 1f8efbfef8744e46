"""
The fleet's state as a Raft state machine: entries in, replies and events out, snapshots as items.

Here: the bridge between entries (``codec``) and the core (``controller.core.apply``). Not here: any rule about sets.
Rule 1: total (R15). Rubbish is a counted no-op; what needs a higher feature level stops this node.
Rule 2: a snapshot is a header, then one item per broker set, then one per answered request id; what is longer than
``ITEM_BYTES_MAX`` goes on in the next item, so that a thread which writes it never holds the GIL for long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from controller.contract.commands import FEATURE_LEVEL
from controller.contract.ids import FleetIncarnation, RequestId
from controller.core.apply import apply_operations
from controller.core.state import EMPTY_FLEET, AnsweredRequest, FleetState, SetState
from controller.replication.codec import AboveFeatureLevel, Undecodable, decode_operations
from controller.replication.ports import Applied

ITEM_BYTES_MAX = 64 * 1024
SNAPSHOT_FORMAT = 1

_LAST = b"."
_MORE = b"+"


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    """First item: everything of ``FleetState`` that is not a collection, and how many items follow."""

    format: int
    feature_level: int
    fleet_incarnation: FleetIncarnation
    chain_head: str
    last_stamp_ms: int
    term: int
    index: int
    sets: int
    requests: int


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the request-id window."""

    request_id: RequestId
    answered: AnsweredRequest


# Built with the module, by one thread: msgspec crashes if a second one uses a type that is being looked at.
_decode_header = msgspec.json.Decoder(_Header).decode
_decode_set = msgspec.json.Decoder(SetState).decode
_decode_request = msgspec.json.Decoder(_Request).decode


class FleetMachine:
    """Implements ``ports.StateMachine[FleetState]``; the counter is its only memory."""

    def __init__(self) -> None:
        """Nothing was undecodable yet."""
        self.undecodable_entries = 0
        """Entries that were a no-op because they could not be decoded; for metrics, never for decisions."""

    def initial(self) -> FleetState:
        """State before the first entry."""
        return EMPTY_FLEET

    def apply(self, state: FleetState, payload: str, *, term: int, index: int) -> Applied[FleetState]:
        """Apply one entry. Never raises; no replies come from an entry that cannot be decoded."""
        operations = decode_operations(payload)
        match operations:
            case Undecodable():
                self.undecodable_entries += 1
                return Applied(state=state, replies=(), records=())
            case AboveFeatureLevel(needed=needed, supported=supported):
                reason = (
                    f"entry {index} needs feature level {needed}, this program has {supported}: upgrade this controller"
                )
                return Applied(state=state, replies=(), records=(), stop_reason=reason)
        result = apply_operations(state, operations, term=term, index=index)
        return Applied(
            state=result.state, replies=result.replies, records=result.records, stop_reason=result.stop_reason
        )

    def encode(self, state: FleetState) -> Iterator[bytes]:
        """Snapshot items, sets in the order of their keys."""
        encoder = msgspec.json.Encoder()
        header = _Header(
            format=SNAPSHOT_FORMAT,
            feature_level=state.feature_level,
            fleet_incarnation=state.fleet_incarnation,
            chain_head=state.chain_head,
            last_stamp_ms=state.last_stamp_ms,
            term=state.term,
            index=state.index,
            sets=len(state.sets),
            requests=len(state.requests),
        )
        yield from _split(encoder.encode(header))
        for key in sorted(state.sets):
            yield from _split(encoder.encode(state.sets[key]))
        for request_id, answered in state.requests.items():
            yield from _split(encoder.encode(_Request(request_id=request_id, answered=answered)))

    def decode(self, items: Iterable[bytes]) -> FleetState:
        """Inverse of ``encode``. Raises ``ValueError`` if it is damaged, cut short or above the feature level."""
        documents = _join(items)
        try:
            header = _decode_header(next(documents))
            if header.format != SNAPSHOT_FORMAT or header.feature_level > FEATURE_LEVEL:
                raise ValueError(
                    f"snapshot has format {header.format} and feature level {header.feature_level}, "
                    f"this program reads {SNAPSHOT_FORMAT} and {FEATURE_LEVEL}: upgrade this controller"
                )
            sets = (_decode_set(next(documents)) for _ in range(header.sets))
            by_key = {broker_set.set_key: broker_set for broker_set in sets}
            requests = [_decode_request(next(documents)) for _ in range(header.requests)]
        except (StopIteration, RuntimeError):
            raise ValueError("snapshot ends before its last item") from None
        except msgspec.MsgspecError as error:
            raise ValueError(f"snapshot item cannot be read: {error}") from error
        if next(documents, None) is not None:
            raise ValueError("snapshot has more items than its header says")
        return FleetState(
            fleet_incarnation=header.fleet_incarnation,
            feature_level=header.feature_level,
            sets=by_key,
            requests={request.request_id: request.answered for request in requests},
            chain_head=header.chain_head,
            last_stamp_ms=header.last_stamp_ms,
            term=header.term,
            index=header.index,
        )


def _split(document: bytes) -> Iterator[bytes]:
    while len(document) > ITEM_BYTES_MAX:
        yield _MORE + document[:ITEM_BYTES_MAX]
        document = document[ITEM_BYTES_MAX:]
    yield _LAST + document


def _join(items: Iterable[bytes]) -> Iterator[bytes]:
    parts: list[bytes] = []
    for item in items:
        parts.append(item[1:])
        if item[:1] == _LAST:
            yield b"".join(parts)
            parts = []
        elif item[:1] != _MORE:
            raise ValueError("snapshot item has no continuation mark")
    if parts:
        raise ValueError("snapshot ends within an item")
