"""
Applying one replicated entry: operations in, next state, replies and events out.

Here: order within a batch, dedupe, chain hashes, totality. Not here: any rule about sets (``decide``, ``evolve``), bytes (``replication``).
Imported by: ``controller.replication``, ``controller.runtime``, tests. Imports: ``controller.contract``, ``controller.core``.

Rule 1: total. Whatever comes in, a state comes out, the same on every controller (C8). A bug of ours in one item becomes a
refusal on record and changes nothing; only what may differ between nodes (no memory, no stack) makes this node stop.
Rule 2: elections come before alters, items are independent, replies keep the order of the operations (R25).
Rule 3: an answered request id is answered again, and nothing is recorded (R24).
Rule 4: an operation above this node's feature level stops the node before anything of the entry is applied (R15).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controller.contract.commands import Operation
from controller.contract.events import EventRecord
from controller.contract.replies import AnyReply
from controller.core.state import FleetState


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedOperations:
    """Result of one entry."""

    state: FleetState
    replies: tuple[AnyReply, ...]
    """One per operation, in the order of the operations; empty if ``stop_reason`` is set."""
    records: tuple[EventRecord, ...]
    """In the order in which they happened; ``ordinal`` counts from 0."""
    stop_reason: str | None = None
    """Set if this node must stop: nothing of the entry was applied."""


def apply_operations(state: FleetState, operations: Sequence[Operation], *, term: int, index: int) -> AppliedOperations:
    """
    Apply the operations of the entry (``term``, ``index``). Never raises.

    Args:
        state: The state after the entry before; it is not changed.
        operations: The items of one entry, already decoded.
        term: Raft term of the entry: part of every event's name.
        index: Raft index of the entry.

    Keeps: R14 (time), R15, R24, R25, C8, C10.
    """
    raise NotImplementedError
