"""
Since when a set has been without a master that serves, as replicated state.

Here: ``noted`` keeps it, ``completed`` puts it into the events that a later reader starts from. Not here: what a leader
itself saw (``controller.runtime.sessions``), the arithmetic of phases (``history``).

A leader that dies takes its stamps along. So the beginning is state: an election by the next leader, by an operator, or
after elections that failed names the same one.
Rule 1: an outage begins when the master is found gone, or its writes stop, and lasts until a master has entered, or the
writes resume. A winner that dies while it enters, or a second silence, begins no other one.
Rule 2: the proposer's own stamps are better than ours if they are of the same beginning, and not of a later sign: they
are of one monotonic clock. Ours are stamps of entries; between two leaders they are off by as much as their clocks are.
Rule 3: an entry shows that the master was alive when it says so itself, or when its leader had heard everybody
(``Barrier.heard_within_ms``). That bounds an outage whose beginning no leader saw.
Rule 4: times are stamps of entries less the steps of their clock that are on record (``FleetState.stepped_ms``). By the
stamps alone, an outage in which the clock was set ahead by an hour would be an hour long.
"""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from rollcall_ha.controller.contract.commands import Barrier
from rollcall_ha.controller.contract.events import (
    AnyEvent,
    ElectionFailed,
    EventRecord,
    GoodbyeSaid,
    MasterElected,
    MasterEntered,
    ReplicaAlive,
    ReplicaRegistered,
    ReplicasCleaned,
    ReplicaSilent,
    SessionOpened,
    SyncStateSetAltered,
    WritesResumed,
    WritesStopped,
)
from rollcall_ha.controller.contract.values import DetectionStamps, SilenceCause
from rollcall_ha.controller.core.state import FleetState, Outage, SetState

CLOCK_DIFFERENCE_MS = 1_000
"""How far the clocks of two controllers may be apart unseen: more is put on record as a step (rule 4)."""

SAME_SIGN_MS = 5
"""Between a stamp of a leader and that of its own entry."""

US_PER_MS = 1_000


def heard(fleet: FleetState, command: Barrier, at_ms: int) -> FleetState:
    """Note that every replica that counts as alive was heard shortly before this entry."""
    if command.heard_within_ms is UNSET:
        return fleet
    return replace(fleet, heard_at_ms=max(0, at_ms - command.heard_within_ms))


def completed(fleet: FleetState, set_state: SetState, event: AnyEvent, at_ms: int) -> AnyEvent:
    """The event with what the state before it knows of the beginning: bounds of an end, the beginning of an outage."""
    if isinstance(event, ReplicaSilent) and _is_master(set_state, event) and event.detection is not None:
        return replace(event, detection=_bounded(fleet, set_state, event.detection, at_ms))
    if isinstance(event, ReplicaRegistered) and _ends_master(set_state, event):
        ended = DetectionStamps(cause=SilenceCause.REPLACED, first_sign_age_us=0)
        return replace(event, ended=_bounded(fleet, set_state, ended, at_ms))
    if isinstance(event, MasterElected) and set_state.outage is not None:
        stamps = _detection(fleet, set_state.outage, event.detection, at_ms)
        return replace(event, detection=stamps, triggered_by=event.triggered_by or set_state.outage.found_by)
    if isinstance(event, ElectionFailed) and set_state.outage is not None:
        return replace(event, triggered_by=event.triggered_by or set_state.outage.found_by)
    return event


def noted(before: SetState, after: SetState, record: EventRecord, at_ms: int) -> SetState:
    """``after`` the event of ``record``, with the outage that it began or ended."""
    event = record.event
    if isinstance(event, MasterEntered):
        return replace(after, outage=None, alive_at_ms=at_ms)
    if isinstance(event, MasterElected):
        return replace(after, alive_at_ms=None)
    if isinstance(event, SyncStateSetAltered):
        return replace(after, alive_at_ms=at_ms)
    if isinstance(event, ReplicaAlive | SessionOpened) and event.broker_id == after.master:
        # Back without an election. One that has not entered yet serves nobody: the outage goes on (rule 1).
        outage = _stopped(after, record, at_ms) if after.has_entered else after.outage
        return replace(after, outage=outage, alive_at_ms=at_ms)
    if isinstance(event, WritesStopped | WritesResumed):
        # A winner that cannot enter says so, too: what began before its election goes on (rule 1).
        is_own = before.outage is None or (before.outage.cause is SilenceCause.WRITES_STOPPED and before.has_entered)
        return replace(after, outage=_stopped(after, record, at_ms)) if is_own else after
    if isinstance(event, ReplicasCleaned):
        return after if after.replicas and after.is_established else replace(after, outage=None, alive_at_ms=None)
    begun, stop = _begun(before, record, at_ms), before.outage
    if begun is None:
        return after
    if stop is None:
        return replace(after, outage=begun)
    if stop.cause is not SilenceCause.WRITES_STOPPED:
        return after
    # Disk full for a minute, and then its process dies: one outage, of which this is how it was found.
    off_ms = 0 if stop.found_by.term == record.term else CLOCK_DIFFERENCE_MS
    # Where another leader's clock put the stop: a bound on this one's.
    first_sign_at_ms = min(begun.first_sign_at_ms, stop.first_sign_at_ms + off_ms)
    alive_at_ms = stop.first_sign_at_ms - off_ms
    return replace(after, outage=replace(begun, first_sign_at_ms=first_sign_at_ms, alive_at_ms=alive_at_ms))


def _begun(before: SetState, record: EventRecord, at_ms: int) -> Outage | None:
    """The outage that begins with the end of the master that this event tells; None = it tells of none."""
    event = record.event
    if isinstance(event, ReplicaSilent) and _is_master(before, event):
        return _outage(record, at_ms, event.cause, event.detection)
    if isinstance(event, GoodbyeSaid) and _is_master(before, event):
        # It took no sends before it said so: its log had to be synced, and perhaps nobody took its set over in time.
        age_us = event.stopped_us if isinstance(event.stopped_us, int) else 0
        said = DetectionStamps(cause=SilenceCause.GOODBYE, first_sign_age_us=age_us, alive_age_us=age_us)
        return _outage(record, at_ms, SilenceCause.GOODBYE, said)
    if isinstance(event, ReplicaRegistered) and _ends_master(before, event):
        return _outage(record, at_ms, SilenceCause.REPLACED, event.ended if event.ended is not UNSET else None)
    return None


def _stopped(set_state: SetState, record: EventRecord, at_ms: int) -> Outage | None:
    """Of a living master whose writes are stopped; the moment is its own word, so a point."""
    writes = set_state.writes
    if writes is None or writes.is_over:
        return None
    return Outage(
        found_by=record.ref,
        found_at_ms=at_ms,
        cause=SilenceCause.WRITES_STOPPED,
        first_sign_at_ms=writes.began_at_ms,
        alive_at_ms=writes.began_at_ms,
    )


def _is_master(set_state: SetState, event: ReplicaSilent | GoodbyeSaid) -> bool:
    return (set_state.master, set_state.master_incarnation) == (event.broker_id, event.incarnation)


def _ends_master(set_state: SetState, event: ReplicaRegistered) -> bool:
    return set_state.master == event.broker_id and set_state.master_incarnation != event.incarnation


def _outage(record: EventRecord, at_ms: int, cause: SilenceCause, stamps: DetectionStamps | None) -> Outage:
    first_us = stamps.fault_age_us if stamps is not None else 0
    alive_us = stamps.alive_age_us if stamps is not None else UNSET
    return Outage(
        found_by=record.ref,
        found_at_ms=at_ms,
        cause=cause,
        first_sign_at_ms=at_ms - first_us // US_PER_MS,
        alive_at_ms=None if alive_us is UNSET else at_ms - alive_us // US_PER_MS,
    )


def _bounded(fleet: FleetState, set_state: SetState, stamps: DetectionStamps, at_ms: int) -> DetectionStamps:
    """``stamps``; if their leader knew no sign of life, with the last one that an entry shows (rule 3)."""
    if stamps.alive_age_us is not UNSET:
        return stamps
    # A mark from before its election is about the master before it. After a step back a true one may be taken for such.
    is_marked = fleet.heard_at_ms > max(0, (set_state.last_elected_at_ms or 0) - fleet.stepped_ms)
    marks = [set_state.alive_at_ms, fleet.heard_at_ms if is_marked else None]
    alive_at_ms = max((mark for mark in marks if mark is not None), default=None)
    if alive_at_ms is None:
        return stamps
    age_us = (at_ms - alive_at_ms + CLOCK_DIFFERENCE_MS) * US_PER_MS
    return replace(stamps, alive_age_us=max(stamps.fault_age_us, age_us))


def _detection(fleet: FleetState, outage: Outage, own: DetectionStamps | None, at_ms: int) -> DetectionStamps:
    """The better one of the proposer's stamps and ours (rule 2)."""
    is_same_leader = outage.found_by.term == fleet.term
    off_ms = 0 if is_same_leader else CLOCK_DIFFERENCE_MS
    first_us = max(0, at_ms - outage.first_sign_at_ms - off_ms) * US_PER_MS
    if own is None:
        found_us = max(0, at_ms - outage.found_at_ms) * US_PER_MS
        own = DetectionStamps(cause=outage.cause, detected_age_us=min(found_us, first_us), first_sign_age_us=first_us)
    elif own.fault_age_us < first_us - SAME_SIGN_MS * US_PER_MS:
        own = replace(own, first_sign_age_us=first_us, alive_age_us=UNSET)
    if own.alive_age_us is not UNSET or outage.alive_at_ms is None:
        return own
    alive_us = (at_ms - outage.alive_at_ms + off_ms) * US_PER_MS
    return replace(own, alive_age_us=max(alive_us, own.fault_age_us))
