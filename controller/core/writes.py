"""
Writes that stop without an election: the word of a master about itself, judged and kept.

Here: ``decide_writes`` and the words for the reasons. Not here: when a master calls its writes stopped
(``broker.core.write_watch``), the list of stops in a history (``stops``).

Rule 1: the present mastership alone speaks, by id, incarnation and epoch. Its word changes no decision: a master
whose writes are stopped reigns on.
Rule 2: a stop is named by (masterEpoch, seq). A repeat changes nothing and is not recorded; a lower seq is over.
Rule 3: the next election and the cleaning of the set end a stop: its master may never speak again.
"""

from __future__ import annotations

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import STOP_DETAIL_CHARS_MAX, ReportWrites
from rollcall_ha.controller.contract.events import AnyEvent, WritesResumed, WritesStopped
from rollcall_ha.controller.contract.values import StopReason, made_from
from rollcall_ha.controller.core.decision import Decision, Refusal, done, find_set
from rollcall_ha.controller.core.mastership import refuse_other_mastership
from rollcall_ha.controller.core.registration import AGE_US_MAX
from rollcall_ha.controller.core.state import FleetState, WritesState

REASON_WORDS = {
    StopReason.TOO_FEW_IN_SYNC: "fewer replicas are in sync than min_in_sync",
    StopReason.NOT_ACKNOWLEDGED: "a replica that must have each message does not acknowledge",
    StopReason.DISK_FULL: "its log cannot grow",
    StopReason.FENCED: "it has stopped itself",
    StopReason.OWN_DISK: "its own disk keeps it waiting",
}


def decide_writes(fleet: FleetState, command: ReportWrites) -> Decision:
    """Put the beginning of a stop on record, its end, or both at once."""
    set_state = find_set(fleet, command.set_key)
    refuse_other_mastership(set_state, command, "nothing to do: the record of this reign is over")
    complaint = _complaint(command)
    if complaint:
        raise Refusal(RefusalCode.INVALID_ARGUMENT, complaint, "report the stop as it was, from seq 1 on")
    known = set_state.writes or WritesState(seq=0, reason=command.reason, detail="", is_over=True)
    # The answer was lost, or an older report comes late: told twice, one stop would count as two (rule 2).
    is_over = command.stopped_us is not None
    if command.seq < known.seq or (command.seq == known.seq and (known.is_over or not is_over)):
        return done()
    events: list[AnyEvent] = []
    if command.seq > known.seq:
        events.append(made_from(command, WritesStopped))
    if command.stopped_us is not None:
        events.append(made_from(command, WritesResumed, age_us=command.age_us - command.stopped_us))
    return done(*events)


def _complaint(command: ReportWrites) -> str:
    """Why this can be no stop; empty if it can."""
    stopped_us = command.stopped_us or 0
    if command.seq < 1 or not 0 <= stopped_us <= command.age_us <= AGE_US_MAX:
        return f"stop {command.seq} began {command.age_us} us ago and took {command.stopped_us} us"
    # In replicated state for as long as the reign lasts. Whether it can be printed is asked at the edge.
    if len(command.detail) > STOP_DETAIL_CHARS_MAX:
        return f"the detail has {len(command.detail)} characters, {STOP_DETAIL_CHARS_MAX} are allowed"
    return ""


def stop_words(writes: WritesState) -> str:
    """Why writes are stopped, for people."""
    words = REASON_WORDS[writes.reason]
    return f"{words}: {writes.detail}" if writes.detail else words
