"""
Applying one replicated entry: operations in, next state, replies and events out.

Here: order within a batch, answers to repeated requests, chain hashes, totality. Not here: any rule about sets
(``decide``, ``evolve``), bytes (``replication``).

Rule 1: every entry gives a state, the same one on every controller (C8). A fault of this program in one item becomes a
refusal on record and changes nothing. A node stops only for a fault that the others may not have (no memory, no stack).
Rule 2: elections come before alters, items are independent, replies keep the order of the operations (R25).
Rule 3: a repeated request id gets the first answer again, and nothing is recorded (R24).
Rule 4: an operation above this node's feature level stops the node before anything of the entry is applied (R15).
Rule 5: one entry may hold "replica 1 is silent" and the election that follows from it. The proposer could not name the
first event, it had no index yet; so apply writes its name into the election (``triggered_by``).
Rule 6: the dictionaries of the state are copied once per entry, never per operation; that of answered requests only for
an entry that adds one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec
from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import (
    FEATURE_LEVEL,
    AlterSyncStateSet,
    Barrier,
    MarkAlive,
    MarkSilent,
    NoteConfirms,
    Operation,
    RaiseFeatureLevel,
    TakeLeadership,
)
from rollcall_ha.controller.contract.events import (
    SCHEMA_VERSION,
    AnyEvent,
    ConfirmsNoted,
    ElectionFailed,
    EventRecord,
    MasterElected,
    ReplicaSilent,
    chain_of,
)
from rollcall_ha.controller.contract.ids import BrokerName, ClusterName, RequestId, SetKey
from rollcall_ha.controller.contract.replies import AnyReply
from rollcall_ha.controller.contract.values import EventRef, Frozen
from rollcall_ha.controller.core import outages
from rollcall_ha.controller.core.callers import refuse_caller
from rollcall_ha.controller.core.decide import decide
from rollcall_ha.controller.core.decision import Decision, Refusal
from rollcall_ha.controller.core.digest import digest_after
from rollcall_ha.controller.core.evolve import evolve, evolve_all
from rollcall_ha.controller.core.fleet import evolve_fleet
from rollcall_ha.controller.core.state import REQUEST_WINDOW_ENTRIES, AnsweredRequest, FleetState, SetState
from rollcall_ha.controller.core.views import set_view

_ENCODER = msgspec.json.Encoder(order="deterministic")

_NOT_REMEMBERED = (Barrier, TakeLeadership, MarkSilent, MarkAlive, AlterSyncStateSet, NoteConfirms)
"""
Commands whose repetition is answered from the object that they change. An alter's retry must hear the verdict of its
seq, however many other requests came between: the window of request ids forgets, the set does not (R1).
"""

_NO_SET = SetState(set_key=SetKey(cluster=ClusterName(""), name=BrokerName("")))
"""Stands in for the set of a command that is about the fleet."""


S = TypeVar("S")


class Applied(Frozen, Generic[S]):
    """Result of applying one entry to a state; that of the fleet is a ``FleetState``."""

    state: S
    replies: tuple[AnyReply, ...]
    """One per operation, in the order of the operations; empty if ``stop_reason`` is set."""
    records: tuple[EventRecord, ...]
    """In the order in which they happened; ``ordinal`` counts from 0."""
    stop_reason: str | None = None
    """Set if this node must stop: it cannot read the entry, or is below its level (R15). Nothing of it was applied."""
    is_fault: bool = False
    """The reason is this process (an invariant broke, no memory, no stack), not an entry of another program."""


def apply_operations(
    state: FleetState, operations: Sequence[Operation], *, term: int, index: int
) -> Applied[FleetState]:
    """
    Apply the operations of the entry (``term``, ``index``). Never raises.

    Args:
        state: The state after the entry before; it is not changed.
        operations: The items of one entry, already decoded.
        term: Raft term of the entry: part of every event's name.
        index: Raft index of the entry.

    Keeps: R14 (time), R15, R24, R25, C8, C10.
    """
    # Before the first item is applied: half an entry on this node and the whole on the others would be two states under
    # one index, and the next snapshot would carry the difference on (R15).
    stop_reason = _stop_reason(operations)
    if stop_reason is not None:
        return Applied(state=state, replies=(), records=(), stop_reason=stop_reason)
    entry = _Entry(state, term=term, index=index)
    replies: dict[int, AnyReply] = {}
    try:
        for position, operation in enumerate(operations):
            if not isinstance(operation.command, AlterSyncStateSet):
                replies[position] = entry.run(operation)
        # R25: an alter that shares its entry with an election is decided against the new epoch, and refused. Taken in
        # order, "{1,2} becomes {1}" would commit just before "elect 2", and 2 would be elected outside of the set.
        for position, operation in enumerate(operations):
            if isinstance(operation.command, AlterSyncStateSet):
                replies[position] = entry.run(operation)
        finished = entry.finished()
    except Exception as error:  # noqa: BLE001 - no memory or no stack: another node may have had more, so stop here
        reason = f"entry {index} of term {term} could not be applied: {type(error).__name__}: {error}"
        return Applied(state=state, replies=(), records=(), stop_reason=reason, is_fault=True)
    return Applied(
        state=finished,
        replies=tuple(replies[position] for position in range(len(operations))),
        records=tuple(entry.records),
    )


def _stop_reason(operations: Sequence[Operation]) -> str | None:
    for operation in operations:
        level = operation.version
        if isinstance(operation.command, RaiseFeatureLevel):
            level = max(level, operation.command.level)
        if level > FEATURE_LEVEL:
            return (
                f"operation {operation.request_id} needs feature level {level}, this controller understands "
                f"{FEATURE_LEVEL}: upgrade it; it stops so that it does not diverge"
            )
    return None


class _Entry:
    """One entry while it is applied. Its dictionaries are private until ``finished``."""

    def __init__(self, state: FleetState, *, term: int, index: int) -> None:
        self._sets = dict(state.sets)
        self._requests = state.requests
        """Those of the state before, until ``_remember`` has copied them."""
        self._fleet = replace(state, sets=self._sets, term=term, index=index)
        self._before = state
        self._changed: set[SetKey] = set()
        self._silences: dict[SetKey, EventRef] = {}
        self.records: list[EventRecord] = []

    def finished(self) -> FleetState:
        """The state after the entry."""
        # By count, the oldest first: both are replicated. By a clock, two nodes would forget different requests, and
        # one would execute a repeated command that the other one only answers. With the entry's end, as any release: an
        # item may repeat a request that an earlier item of the same entry pushes out.
        while self._requests is not self._before.requests and len(self._requests) > REQUEST_WINDOW_ENTRIES:
            del self._requests[next(iter(self._requests))]
        digest = digest_after(self._before, self._fleet, self._changed)
        return replace(self._fleet, requests=self._requests, state_digest=digest)

    def run(self, operation: Operation) -> AnyReply:
        """Apply one item: all of it, or nothing but a refusal."""
        try:
            return self._run(operation)
        except (MemoryError, RecursionError):
            # Not a property of the entry: another node may have had more. Diverging is worse than stopping.
            raise
        except Exception as error:  # noqa: BLE001 - rule 1: equal on every node, and visible
            # An exception that left this method would end every controller, and end it again after each start: the
            # entry is in the log. ``_commit`` changes nothing before everything that can fail is done.
            fault = Refusal(
                RefusalCode.INVALID_REQUEST,
                f"internal fault: {type(error).__name__}",
                "nothing was changed; report this with the event's index",
            )
            return self._commit(operation, fault.decision(operation))

    def _run(self, operation: Operation) -> AnyReply:
        if isinstance(operation.command, _NOT_REMEMBERED):
            return self._commit(operation, decide(self._fleet, operation))
        digest = hashlib.sha256(_ENCODER.encode(operation.command)).hexdigest()
        answered = self._requests.get(operation.request_id)
        if answered is None:
            reply = self._commit(operation, decide(self._fleet, operation))
            self._remember(operation.request_id, AnsweredRequest(digest=digest, reply=reply))
            return reply
        if answered.digest == digest:
            # The answer may be the session of a replica: a stranger who repeats its request must not have it (R27).
            try:
                refuse_caller(self._fleet, operation)
            except Refusal as refusal:
                return self._commit(operation, refusal.decision(operation))
            # The first answer was lost and the caller asks again. Decided anew, an election that was held would be
            # refused ("is master already"), and a forced clean would remove a set that has registered again since.
            return answered.reply
        # Another command under a used id: the first answer would tell its caller that this one was done.
        reused = Refusal(
            RefusalCode.INVALID_REQUEST,
            f"request id {operation.request_id} was used for another command",
            "draw a new request id for every request",
        )
        return self._commit(operation, reused.decision(operation))

    def _remember(self, request_id: RequestId, answered: AnsweredRequest) -> None:
        # A state that was handed out never changes; most entries of a failover, silences and alters, add nothing here.
        if self._requests is self._before.requests:
            self._requests = dict(self._requests)
        self._requests[request_id] = answered

    def _commit(self, operation: Operation, decision: Decision) -> AnyReply:
        """Make the decision true. Everything that can fail comes before the first change."""
        key: SetKey | None = getattr(operation.command, "set_key", None)
        # As it is, not raised to the last one: after a clock that was an hour ahead for a moment, every event of the
        # next hour would have the same time, and each outage in it no length. Order comes from (term, index, ordinal).
        stamp = operation.stamped_at_ms
        steady_ms = stamp - self._fleet.stepped_ms
        before = _NO_SET if key is None else self._sets.get(key) or SetState(set_key=key)
        events = tuple(
            outages.completed(self._fleet, before, self._with_trigger(event, key), steady_ms, operation.command)
            for event in decision.events
        )
        records, chain_head = self._records_of(operation, events, key, stamp_ms=stamp)
        fleet = self._fleet
        for record in records:
            fleet = evolve_fleet(fleet, record)
        fleet = replace(fleet, chain_head=chain_head, last_stamp_ms=stamp)
        if isinstance(operation.command, Barrier):
            fleet = outages.heard(fleet, operation.command, steady_ms)
        # Of many sets in one event: an event for each would be a thousand lines every few seconds.
        noted = {
            one.set_key: evolve(self._sets[one.set_key], event)
            for event in events
            if isinstance(event, ConfirmsNoted)
            for one in event.confirms
        }
        after = evolve_all(before, records, stepped_ms=self._fleet.stepped_ms)
        # The reply is made here, from the state after the events, and nowhere else: a leader that computed it earlier
        # would show a broker an epoch that the entry before this one had already ended.
        reply = decision.reply_with(lambda: set_view(fleet, after, term=fleet.term, index=fleet.index))
        # From here on nothing can fail: an item is applied as a whole or not at all.
        if key is not None and after is not before:
            self._sets[key] = after
            self._changed.add(key)
        self._sets.update(noted)
        self._changed.update(noted)
        self._fleet = fleet
        self.records.extend(records)
        if key is not None:
            self._silences.update((key, record.ref) for record in records if isinstance(record.event, ReplicaSilent))
        return reply

    def _with_trigger(self, event: AnyEvent, key: SetKey | None) -> AnyEvent:
        """The election with the name of the silence that it follows, if both are in this entry (rule 5)."""
        if not isinstance(event, MasterElected | ElectionFailed) or event.triggered_by is not None or key is None:
            return event
        return replace(event, triggered_by=self._silences.get(key))

    def _records_of(
        self, operation: Operation, events: Sequence[AnyEvent], set_key: SetKey | None, *, stamp_ms: int
    ) -> tuple[list[EventRecord], str]:
        records: list[EventRecord] = []
        chain = self._fleet.chain_head
        for ordinal, event in enumerate(events, start=len(self.records)):
            record = EventRecord(
                version=SCHEMA_VERSION,
                fleet_incarnation=self._fleet.fleet_incarnation,
                term=self._fleet.term,
                index=self._fleet.index,
                ordinal=ordinal,
                stamped_at_ms=stamp_ms,
                set_key=set_key,
                request_id=operation.request_id,
                requested_by=operation.requested_by,
                event=event,
                principal=operation.principal,
            )
            # Each record's hash covers the one before: a journal that lost or changed a line no longer ends in the
            # chain head, which is replicated state (R24).
            chain = chain_of(chain, record)
            records.append(replace(record, chain=chain))
        return records, chain
