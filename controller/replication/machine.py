"""
The fleet's state as a Raft state machine: entries in, replies and events out, snapshots as items.

Here: the bridge between entries (``codec``) and the core (``controller.core.apply``). Not here: any rule about sets,
the content of a snapshot (``controller.core.snapshot``).
Rule 1 (R15): apply is total. An entry that cannot be decoded stops this node, and so does one that needs a higher
feature level: another controller, or this one before a downgrade, may have applied it.
Rule 2: a snapshot whose state breaks an invariant is refused when it is loaded. A group that runs is never stopped by
this check: it looks at each entry only behind a debug switch (``checks_entries``).
Rule 3: a document of a snapshot that is longer than ``ITEM_BYTES_MAX`` goes on in the next item: the thread that writes
it must never hold the interpreter lock for long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rollcall_ha.controller.core.apply import Applied, apply_operations
from rollcall_ha.controller.core.invariants import check_entry, check_state
from rollcall_ha.controller.core.snapshot import decode_state, encode_state
from rollcall_ha.controller.core.state import EMPTY_FLEET, FleetState
from rollcall_ha.controller.replication.codec import AboveFeatureLevel, Undecodable, decode_operations
from rollcall_ha.controller.replication.ports import UnsoundStateError

ITEM_BYTES_MAX = 64 * 1024

_LAST = b"."
_MORE = b"+"

_SHOWN_MAX = 5
"""Broken invariants that a message shows: a fault in one rule may break it in each of 10,000 sets."""


class FleetMachine:
    """Implements ``ports.StateMachine[FleetState]``; it has no memory."""

    def __init__(self, *, checks_entries: bool = False) -> None:
        """``checks_entries``: check the invariants after each entry, and stop at the first that breaks one."""
        self._checks_entries = checks_entries

    def initial(self) -> FleetState:
        """State before the first entry."""
        return EMPTY_FLEET

    def feature_level(self, state: FleetState) -> int:
        return state.feature_level

    def apply(self, state: FleetState, payload: str, *, term: int, index: int) -> Applied[FleetState]:
        """Apply one entry. Never raises; an entry that cannot be decoded changes nothing, and says why to stop."""
        operations = decode_operations(payload)
        match operations:
            case Undecodable(reason=why):
                # The leader that proposed it could read it. Taken for a no-op here, an election in it would be lost on
                # this node alone: it would go on with another state under each later index, and one day lead.
                reason = (
                    f"entry {index} of term {term} cannot be decoded: {why}; another program wrote it. Start the "
                    "newest version that runs in this fleet here, with the directory as it is; if no controller can "
                    "read the entry, report it with its index"
                )
                return Applied(state=state, replies=(), records=(), stop_reason=reason)
            case AboveFeatureLevel(needed=needed, supported=supported):
                # Not a no-op: during an upgrade the nodes with the newer program would apply it, this one would not.
                reason = (
                    f"entry {index} needs feature level {needed}, this program has {supported}: upgrade this controller"
                )
                return Applied(state=state, replies=(), records=(), stop_reason=reason)
        result = apply_operations(state, operations, term=term, index=index)
        if self._checks_entries and result.stop_reason is None:
            broken = check_entry(state, result.state, result.records)
            if broken:
                reason = f"entry {index} of term {term} breaks an invariant: {_shown(broken)}; report it with the entry"
                return Applied(state=state, replies=(), records=(), stop_reason=reason, is_fault=True)
        return result

    def encode(self, state: FleetState) -> Iterator[bytes]:
        """Snapshot items; equal states give equal ones."""
        for document in encode_state(state):
            yield from _split(document)

    def decode(self, items: Iterable[bytes]) -> FleetState:
        """
        Inverse of ``encode``. Raises ``ValueError`` if it is damaged, cut short or above the feature level.

        Also (``UnsoundStateError``) if the state breaks an invariant. Checking takes about 90 ms for 10,000 sets, a
        third of reading them, and happens at a start and when a follower is given a snapshot, never while it leads.
        """
        state = decode_state(_join(items))
        # Served from, a set that records broker 2 as the master of the epoch in which broker 1 was elected would give
        # that epoch a second master: both ack, with two starts, and no cut notices. A controller that stays away costs
        # redundancy only: the others have their own copy.
        broken = check_state(state)
        if broken:
            raise UnsoundStateError(
                f"the snapshot of entry {state.index} breaks an invariant: {_shown(broken)}; restore it from a peer. "
                "If every controller says so, report it and start the version that wrote it"
            )
        return state


def _shown(broken: tuple[str, ...]) -> str:
    more = f"; and {len(broken) - _SHOWN_MAX} more" if len(broken) > _SHOWN_MAX else ""
    return f"{'; '.join(broken[:_SHOWN_MAX])}{more}"


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
            # An item of an older form, or one that lost its first byte: joined all the same it is another state.
            raise ValueError("snapshot item has no continuation mark")
    if parts:
        raise ValueError("snapshot ends within an item")
