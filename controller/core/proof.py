"""
What is known about loss in a failover: a grade with the facts that it rests on. Never a guess (promise 1).

Here: the facts of one reign (``reign_of``), the grade when its master has entered, and the correction when an old
master returns.
Not here: when these events are made (``milestones``). Facts and grades: docs/safety.md, "What a proof needs".

Rule 1: ``proven`` needs facts 1-3 complete, mode ``all`` and a clean election of an intact native member.
Rule 2: ``bounded`` needs a bound that was enforced throughout (R10). No set has one at this feature level.
Rule 3: in mode ``all`` bytes that are cut were never acknowledged. A cut below what was released refutes every grade.
"""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.controller.contract.commands import ReportEntered
from rollcall_ha.controller.contract.events import MasterElected
from rollcall_ha.controller.contract.ids import AckMode, ReplicaKind
from rollcall_ha.controller.contract.values import Milestone
from rollcall_ha.controller.contract.verdicts import ElectionKind, Grade, Intactness, LossVerdict
from rollcall_ha.controller.core.state import Reign, SetState

_JAVA = "a Java replica reports neither its promise nor what it acknowledged"


def reign_of(set_state: SetState, event: MasterElected) -> Reign:
    """The facts of the election in ``event``, taken from the state before it."""
    verdict = event.verdict
    winner = set_state.replica(event.master)
    previous = set_state.replica(verdict.previous_master)
    released = next((r.released for r in event.evidence.replicas if r.broker_id == verdict.previous_master), None)
    return Reign(
        kind=verdict.kind,
        master=event.master,
        master_kind=winner.kind if winner is not None else ReplicaKind.NATIVE,
        master_epoch=event.master_epoch,
        previous_master=verdict.previous_master,
        previous_epoch=verdict.previous_epoch,
        previous_kind=previous.kind if previous is not None else ReplicaKind.NATIVE,
        is_previous_mode_confirmed=set_state.is_mode_confirmed,
        previous_released=released,
        ack_mode=set_state.configuration.ack_mode if set_state.configuration is not None else AckMode.ASYNC,
        intactness=winner.intactness if winner is not None else Intactness.NOT_INTACT,
        was_in_set=event.master in verdict.previous_set,
        was_suspect=winner is not None and winner.is_suspect,
        was_restored=set_state.recovery is not None,
        inherited=_inherited(set_state),
    )


def _inherited(set_state: SetState) -> tuple[str, ...]:
    """What the current reign leaves unproven for its successor: nothing once its master has entered."""
    # Broker 2 was elected unclean and died before it entered; 3 is elected cleanly. Without this, 3's epoch would be
    # "proven", and what 2's election had lost would appear in no grade.
    if set_state.has_entered or not set_state.reigns:
        return ()
    reign = set_state.reigns[-1]
    if reign.kind is ElectionKind.FIRST:
        return ()
    missing = _missing_before_entering(reign)
    return tuple(f"epoch {reign.master_epoch} was never entered, and before it: {fact}" for fact in missing)


def grade_entered(reign: Reign, entered: ReportEntered) -> LossVerdict:
    """The grade of ``reign`` now that its master has entered (R12)."""
    if reign.kind is ElectionKind.FIRST and reign.master_kind is ReplicaKind.NATIVE:
        return _graded(reign, Grade.PROVEN, ("first election: every log was empty, nothing had been acknowledged",))
    facts = _facts(reign, entered)
    if entered.start_offset is None:
        missing = (*_missing_before_entering(reign), "where the epoch starts")
        return _graded(reign, Grade.UNKNOWN, facts, missing, bound_bytes=None)
    # Before every other fact: the old master is known to have acknowledged up to 900 and the epoch starts at 700. All
    # else may be in order; these 200 bytes are gone, and an alarm is due.
    if reign.ack_mode is AckMode.ALL and reign.previous_released is not None:
        lost_bytes = reign.previous_released - entered.start_offset
        if lost_bytes > 0:
            below = f"acknowledged up to {reign.previous_released}, but the epoch starts below it"
            return _graded(reign, Grade.REFUTED, (*facts, below), bound_bytes=lost_bytes)
    missing = _missing_before_entering(reign)
    # The winner lost bytes that it had acked to the old master, so "it was a member" says nothing about them (fact 3).
    if entered.acked_end_max > entered.start_offset:
        missing = (
            *missing,
            f"the winner acked up to {entered.acked_end_max}, but its log ends at {entered.start_offset}",
        )
    # Nothing missing is the only way to ``proven``: one fact less is ``unknown``, never "probably nothing".
    return _graded(
        reign, Grade.UNKNOWN if missing else Grade.PROVEN, facts, missing, bound_bytes=None if missing else 0
    )


def _graded(
    reign: Reign, grade: Grade, facts: tuple[str, ...], missing: tuple[str, ...] = (), *, bound_bytes: int | None = 0
) -> LossVerdict:
    return LossVerdict(
        master_epoch=reign.master_epoch, grade=grade, bound_bytes=bound_bytes, facts=facts, missing=missing
    )


def _facts(reign: Reign, entered: ReportEntered) -> tuple[str, ...]:
    facts = [f"ack mode {reign.ack_mode.value}"]
    if reign.is_previous_mode_confirmed:
        facts.append("the last master confirmed that mode, with confirm >= released")
    if reign.was_in_set and not reign.was_suspect:
        facts.append(f"replica {reign.master} was in the committed SyncStateSet, {reign.intactness.value}")
    facts.append(
        f"it entered epoch {entered.master_epoch} at {entered.start_offset}, having acked up to {entered.acked_end_max}"
        if entered.start_offset is not None
        else f"it was seen to be master in epoch {entered.master_epoch}"
    )
    if reign.previous_released is not None:
        facts.append(
            f"replica {reign.previous_master} was last heard to have acknowledged up to {reign.previous_released}"
        )
    return tuple(facts)


def _missing_before_entering(reign: Reign) -> tuple[str, ...]:
    missing = list(reign.inherited)
    if reign.ack_mode is not AckMode.ALL:
        missing.append(f"ack mode {reign.ack_mode.value} acknowledges before every member holds the records")
    if ReplicaKind.ROCKETMQ in (reign.master_kind, reign.previous_kind):
        missing.append(_JAVA)
    if reign.kind is ElectionKind.FIRST:
        return tuple(missing)
    if reign.was_restored:
        missing.append("the set was taken over from stored views after a wipe or restore (R7)")
    if reign.kind is ElectionKind.BOOTSTRAP:
        missing.append("bootstrapped: what other logs held was not compared")
        return tuple(missing)
    if not reign.is_previous_mode_confirmed and not reign.was_restored:
        missing.append("the last master did not confirm the ack mode")
    if reign.kind is ElectionKind.UNCLEAN:
        missing.append("unclean election")
    if reign.was_suspect:
        missing.append("the winner was a suspect: its last restart may have lost records")
    elif not reign.was_in_set:
        missing.append("the winner was not in the SyncStateSet")
    return tuple(missing)


def grade_returned(set_state: SetState, milestone: Milestone) -> LossVerdict | None:
    """
    The corrected grade after an old master was cut (its TRUNCATED milestone); None if that tells nothing new.

    The reign that is corrected is the newest one, up to the milestone's epoch, that deposed this replica.
    """
    reign = next(
        (
            reign
            for reign in reversed(set_state.reigns)
            if reign.previous_master == milestone.broker_id and reign.master_epoch <= milestone.master_epoch
        ),
        None,
    )
    # The first return counts. When the same replica comes back a second time it was a slave meanwhile: what is cut then
    # says nothing about the failover that deposed it.
    if reign is None or reign.loss is None or reign.loss.cut_bytes is not None:
        return None
    if milestone.cut_from is None or milestone.cut_to is None:
        return replace(reign.loss, cut_bytes=0, facts=(*reign.loss.facts, "the old master came back; nothing was cut"))
    cut_from, cut_to = milestone.cut_from, milestone.cut_to
    facts = (*reign.loss.facts, f"the old master came back and was cut from {cut_to} to {cut_from}")
    cut_bytes = max(0, cut_to - cut_from)
    # By its own checkpoint if it tells, else by its last heartbeat, which may be some acknowledgements old.
    released = milestone.released if milestone.released is not None else reign.previous_released
    # Even if all was proven: the log that comes back is the truth. It had answered "stored" for bytes that are cut now.
    if released is not None and released > cut_from:
        return LossVerdict(
            master_epoch=reign.master_epoch,
            grade=Grade.REFUTED,
            bound_bytes=released - cut_from,
            facts=(*facts, f"it had acknowledged up to {released}"),
            missing=reign.loss.missing,
            cut_bytes=cut_bytes,
        )
    return replace(reign.loss, cut_bytes=cut_bytes, facts=facts)
