"""
Since when a set has been without a master that serves, as replicated state.

Here: ``noted`` keeps it, ``completed`` puts it into the events that a later reader starts from. Not here: what a leader
itself saw (``controller.runtime.sessions``), the arithmetic of phases (``history``).

A leader that dies takes its stamps along. So the beginning is state: an election by the next leader, by an operator, or
after elections that failed names the same one.
Rule 1: an outage begins when the master is found gone, or its writes stop, and lasts until a master has entered, or the
writes resume. A winner that dies while it enters, or a second silence, begins no other one.
Rule 2: the proposer's own stamps are better than ours if they tell of the same beginning, and not of a later sign: they
come from one monotonic clock. Ours are stamps of entries; between two leaders they are off by as much as their clocks.
Rule 3: an entry shows that the master was alive when it says so itself, or when its leader had heard everybody
(``Barrier.heard_within_ms``). That bounds an outage whose beginning no leader saw.
Rule 4: a master whose writes were stopped, and who is then lost, may have resumed them since it was last heard. That
time is between the bounds of its outage, which begins with the stop.
Rule 5: times are stamps of entries less the steps of their clock that are on record (``FleetState.stepped_ms``). By the
stamps alone, an outage in which the clock was set ahead by an hour would be an hour long.
Rule 6: a master that was found silent, and that its slaves heard later, served on: its outage begins behind that.
Rule 7: in a recovery (R7) the master is the one that the newest view names, and nobody here heard it: its outage has no
upper bound.
"""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from rollcall_ha.controller.contract.commands import Barrier, Command, RegisterReplica
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
from rollcall_ha.controller.contract.ids import BrokerId, Incarnation
from rollcall_ha.controller.contract.values import DetectionStamps, SilenceCause
from rollcall_ha.controller.contract.verdicts import ElectionKind, Intactness
from rollcall_ha.controller.core.recovery import RECOVERED_LEVEL, after_report, newest_reign
from rollcall_ha.controller.core.state import FleetState, Outage, Recovery, SetState, WritesState

CLOCK_DIFFERENCE_MS = 1_000
"""How far the clocks of two controllers may be apart unseen: more is put on record as a step (rule 5)."""

SAME_SIGN_MS = 5
"""Between a stamp of a leader and that of its own entry."""

LATER_LIFE_LEVEL = 2
"""Feature level from which a next leader's own signs of life count for rule 6."""

US_PER_MS = 1_000


def heard(fleet: FleetState, command: Barrier, at_ms: int) -> FleetState:
    """Note that every replica that counts as alive was heard shortly before this entry."""
    if command.heard_within_ms is None:
        return fleet
    return replace(fleet, heard_at_ms=max(0, at_ms - command.heard_within_ms))


def completed(fleet: FleetState, set_state: SetState, event: AnyEvent, at_ms: int, command: Command) -> AnyEvent:
    """The event with what the state before it knows of the beginning: bounds of an end, the beginning of an outage."""
    if isinstance(event, ReplicaSilent) and _is_master(set_state, event) and event.detection is not None:
        return replace(event, detection=_bounded(fleet, set_state, event.detection, at_ms))
    if isinstance(event, ReplicaRegistered) and _ends_master(set_state, _recovery_after(set_state, event), event):
        ended = DetectionStamps(cause=SilenceCause.REPLACED, first_sign_age_us=_gone_us(event, command))
        return replace(event, ended=_bounded(fleet, set_state, ended, at_ms))
    recovery = set_state.recovery
    is_of_past = recovery is not None and recovery.elsewhere is None and fleet.feature_level >= RECOVERED_LEVEL
    if isinstance(event, MasterElected) and is_of_past:
        return replace(event, detection=_of_past(fleet, set_state, at_ms))
    if isinstance(event, MasterElected) and set_state.outage is not None:
        stamps = _detection(fleet, set_state, set_state.outage, event.detection, at_ms)
        return replace(event, detection=stamps, triggered_by=event.triggered_by or set_state.outage.found_by)
    if isinstance(event, ElectionFailed) and set_state.outage is not None:
        return replace(event, triggered_by=event.triggered_by or set_state.outage.found_by)
    return event


def noted(before: SetState, after: SetState, record: EventRecord, at_ms: int) -> SetState:
    """``after`` the event of ``record``, with the outage that it began or ended."""
    event = record.event
    if isinstance(event, MasterEntered):
        # A reign may begin with too few in sync, and its master tell that before it tells that it has entered.
        return replace(after, outage=_stopped(after.writes), alive_at_ms=at_ms)
    if isinstance(event, MasterElected):
        return replace(after, alive_at_ms=None, outage=_drained(before, record, event, at_ms))
    if isinstance(event, SyncStateSetAltered):
        return replace(after, alive_at_ms=at_ms)
    newest = newest_reign(after.recovery)
    is_back = isinstance(event, ReplicaAlive | SessionOpened) and (
        event.broker_id == after.master if newest is None else newest == (event.broker_id, event.incarnation)
    )
    if is_back:
        # Back without an election. One that has not entered yet serves nobody: the outage goes on (rule 1).
        outage = _stopped(after.writes) if after.has_entered else after.outage
        return replace(after, outage=outage, alive_at_ms=at_ms)
    if isinstance(event, WritesStopped | WritesResumed):
        # A winner that cannot enter says so, too: what began before its election goes on (rule 1).
        is_own = before.outage is None or (before.outage.cause is SilenceCause.WRITES_STOPPED and before.has_entered)
        return replace(after, outage=_stopped(after.writes)) if is_own else after
    if isinstance(event, ReplicasCleaned):
        return after if after.replicas and after.is_established else replace(after, outage=None, alive_at_ms=None)
    begun, known = _begun(before, after.recovery, record, at_ms), before.outage
    if newest is not None and newest != newest_reign(before.recovery):
        # The end of the backup's master, which had been followed by this one: the outage began at another time.
        after, known = replace(after, outage=None), None
    if begun is None:
        return after
    return replace(after, outage=begun if known is None else _joined(known, begun, record, at_ms))


def _drained(before: SetState, record: EventRecord, event: MasterElected, at_ms: int) -> Outage | None:
    """
    The outage of a switchover, before which the old master took no sends. If its successor does not enter, the election
    after it ends the same outage (rule 1).
    """
    if newest_reign(before.recovery) is not None and event.detection is not None:
        return _outage(record, at_ms, event.detection.cause, event.detection)
    if event.verdict.kind is not ElectionKind.SWITCHOVER or before.outage is not None or event.detection is None:
        return before.outage
    since_ms = at_ms - event.detection.first_sign_age_us // US_PER_MS
    return Outage(
        found_by=record.ref,
        found_at_ms=at_ms,
        cause=SilenceCause.DRAINED,
        first_sign_at_ms=since_ms,
        alive_at_ms=since_ms,
    )


def _joined(known: Outage, begun: Outage, record: EventRecord, at_ms: int) -> Outage:
    """The outage that goes on when another end of a master, ``begun``, is told (rule 1)."""
    if known.cause is SilenceCause.WRITES_STOPPED:
        return _of_stopped(known, begun, record, at_ms)
    if isinstance(record.event, ReplicaRegistered):
        # Found gone late, by a leader that never heard it; now its next process says that it was gone before.
        return replace(known, first_sign_at_ms=min(known.first_sign_at_ms, begun.first_sign_at_ms))
    return known


def _begun(before: SetState, recovery: Recovery | None, record: EventRecord, at_ms: int) -> Outage | None:
    """The outage that begins with the end of the master that this event tells; None = it tells of none."""
    event = record.event
    if isinstance(event, ReplicaSilent) and _is_master(before, event):
        return _outage(record, at_ms, event.cause, event.detection)
    if isinstance(event, GoodbyeSaid) and _is_master(before, event):
        # It took no sends before it said so: its log had to be synced, and perhaps nobody took its set over in time.
        age_us = event.stopped_us or 0
        said = DetectionStamps(cause=SilenceCause.GOODBYE, first_sign_age_us=age_us, alive_age_us=age_us)
        return _outage(record, at_ms, SilenceCause.GOODBYE, said)
    if isinstance(event, ReplicaRegistered) and _ends_master(before, recovery, event):
        return _outage(record, at_ms, SilenceCause.REPLACED, event.ended)
    return None


def _of_stopped(stop: Outage, begun: Outage, record: EventRecord, at_ms: int) -> Outage:
    """Disk full for a minute, and then its process dies: one outage; ``begun`` is how it was found (rule 4)."""
    off_ms = 0 if stop.found_by.term == record.term else CLOCK_DIFFERENCE_MS
    stopped_at_ms, lost_at_ms = stop.first_sign_at_ms, begun.first_sign_at_ms
    # Up to its report it was stopped: a duration on the clock of one leader.
    begins = [lost_at_ms - max(0, stop.found_at_ms - stopped_at_ms)]
    # Up to the last word with it, too. Where another leader's clock put the stop is a bound on this one's.
    begins += [stopped_at_ms + off_ms + max(0, lost_at_ms - heard_ms) for heard_ms in _heard(record.event, at_ms)]
    return replace(begun, first_sign_at_ms=min(begins), alive_at_ms=stopped_at_ms - off_ms, was_stopped=True)


def _heard(event: AnyEvent, at_ms: int) -> list[int]:
    """When the lost master would have told this leader that its writes had resumed."""
    if isinstance(event, GoodbyeSaid):
        return [at_ms]
    if not isinstance(event, ReplicaSilent) or event.detection is None:
        return []
    # Not bytes of a HA link: the slaves hear a master that no controller can reach.
    ages = (event.detection.session_closed_age_us, event.detection.last_heartbeat_age_us)
    return [at_ms - age_us // US_PER_MS for age_us in ages if age_us is not None]


def _knows_later_life(fleet: FleetState, own: DetectionStamps, first_us: int) -> bool:
    """
    Whether another leader than the one that found the outage saw the master alive behind its beginning.

    One that knows no sign of life saw only that it began to look: its first sign may come long behind the end.
    """
    is_known = own.alive_age_us is not None and own.alive_age_us < first_us
    return is_known and fleet.feature_level >= LATER_LIFE_LEVEL


def _lived_on(set_state: SetState, outage: Outage, own: DetectionStamps) -> bool:
    """Whether the master served on until a later sign of the leader that found it silent: its slaves heard it."""
    # A winner that falls silent before it has entered has never served: the outage is that of the master before it.
    is_silence = outage.cause is SilenceCause.TIMEOUT and own.cause is SilenceCause.TIMEOUT
    # Nor does one serve whose writes had stopped before: heard for a minute with a full disk, it took no send in it.
    is_of_service = set_state.has_entered and not outage.was_stopped
    return is_silence and is_of_service


def _stopped(writes: WritesState | None) -> Outage | None:
    """The outage of a living master whose writes are stopped; the moment is its own word, so a point."""
    if writes is None or writes.is_over or writes.told_by is None:
        return None
    return Outage(
        found_by=writes.told_by,
        found_at_ms=writes.told_at_ms,
        cause=SilenceCause.WRITES_STOPPED,
        first_sign_at_ms=writes.began_at_ms,
        alive_at_ms=writes.began_at_ms,
    )


def _is_master(set_state: SetState, event: ReplicaSilent | GoodbyeSaid) -> bool:
    return _reign(set_state, set_state.recovery) == (event.broker_id, event.incarnation)


def _ends_master(set_state: SetState, recovery: Recovery | None, event: ReplicaRegistered) -> bool:
    master, incarnation = _reign(set_state, recovery)
    return master == event.broker_id and incarnation != event.incarnation


def _reign(set_state: SetState, recovery: Recovery | None) -> tuple[BrokerId | None, Incarnation | None]:
    """The master whose end begins an outage, and its process (rule 7)."""
    return newest_reign(recovery) or (set_state.master, set_state.master_incarnation)


def _recovery_after(set_state: SetState, event: ReplicaRegistered) -> Recovery | None:
    """As ``evolve`` will have it: the master's own report may be the one that names it."""
    if not event.is_recovering:
        return set_state.recovery
    known = event.positions if event.are_positions_known else None
    return after_report(set_state, event.broker_id, event.stored, known, newcomers=event.newcomers)


def _gone_us(event: ReplicaRegistered, command: Command) -> int:
    """For how long the process before this one has been gone at the least."""
    # A directory on another machine may be a copy: its lock says nothing of a process that holds the first one.
    if event.intactness is not Intactness.SAME_BOOT or not isinstance(command, RegisterReplica):
        return 0
    return command.held_us or 0


def _outage(record: EventRecord, at_ms: int, cause: SilenceCause, stamps: DetectionStamps | None) -> Outage:
    first_us = stamps.first_sign_age_us if stamps is not None else 0
    alive_us = stamps.alive_age_us if stamps is not None else None
    return Outage(
        found_by=record.ref,
        found_at_ms=at_ms,
        cause=cause,
        first_sign_at_ms=at_ms - first_us // US_PER_MS,
        alive_at_ms=None if alive_us is None else at_ms - alive_us // US_PER_MS,
    )


def _bounded(fleet: FleetState, set_state: SetState, stamps: DetectionStamps, at_ms: int) -> DetectionStamps:
    """``stamps``; if their leader knew no sign of life, with the last one that an entry shows (rule 3)."""
    if stamps.alive_age_us is not None:
        return stamps
    # A mark from before its election is about the master before it. After a step back a true one may be taken for such.
    is_marked = fleet.heard_at_ms > max(0, (set_state.last_elected_at_ms or 0) - fleet.stepped_ms)
    marks = [set_state.alive_at_ms, fleet.heard_at_ms if is_marked else None]
    alive_at_ms = max((mark for mark in marks if mark is not None), default=None)
    if alive_at_ms is None:
        return stamps
    age_us = (at_ms - alive_at_ms + CLOCK_DIFFERENCE_MS) * US_PER_MS
    return replace(stamps, alive_age_us=max(stamps.first_sign_age_us, age_us))


def _of_past(fleet: FleetState, set_state: SetState, at_ms: int) -> DetectionStamps:
    """The end of a master that these controllers, or the newest view, remember (rule 7)."""
    recovery, outage = set_state.recovery, set_state.outage
    newest = recovery.newest if recovery is not None else None
    # A broker of an older version names no master: what is known here is the end of the one before it.
    is_unknown = newest is not None and newest.master is UNSET and newest.master_epoch > set_state.master_epoch
    if outage is None or is_unknown:
        return DetectionStamps(cause=SilenceCause.TIMEOUT, first_sign_age_us=0)
    # The backup's own marks lie before it, and a master that was heard since need not have served.
    return replace(_detection(fleet, set_state, outage, None, at_ms), alive_age_us=None)


def _detection(
    fleet: FleetState, set_state: SetState, outage: Outage, own: DetectionStamps | None, at_ms: int
) -> DetectionStamps:
    """The better one of the proposer's stamps and ours (rule 2)."""
    is_same_leader = outage.found_by.term == fleet.term
    off_ms = 0 if is_same_leader else CLOCK_DIFFERENCE_MS
    first_us = max(0, at_ms - outage.first_sign_at_ms - off_ms) * US_PER_MS
    if own is None:
        found_us = max(0, at_ms - outage.found_at_ms) * US_PER_MS
        own = DetectionStamps(cause=outage.cause, detected_age_us=min(found_us, first_us), first_sign_age_us=first_us)
    elif own.first_sign_age_us < first_us - SAME_SIGN_MS * US_PER_MS and not (
        (is_same_leader or _knows_later_life(fleet, own, first_us)) and _lived_on(set_state, outage, own)
    ):
        own = replace(own, first_sign_age_us=first_us, alive_age_us=None)
    # A stopped master's own sign of life bounds its death alone: by it an hour without writes would be 20 ms.
    own_us = own.alive_age_us
    if (own_us is not None and not outage.was_stopped) or outage.alive_at_ms is None:
        return own
    alive_us = (at_ms - outage.alive_at_ms + off_ms) * US_PER_MS
    return replace(own, alive_age_us=max(alive_us, own_us or 0, own.first_sign_age_us))
