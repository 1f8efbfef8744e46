"""
The leader's refusals of words from a session that is not the current one.

Here: each of them, with both values and the remedy. Not here: which session is current (``sessions``).
"""

from __future__ import annotations

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, SessionOrdinal, SetKey
from rollcall_ha.controller.contract.replies import Refused, SetView
from rollcall_ha.controller.contract.session import Heartbeat
from rollcall_ha.controller.runtime.session_state import ReplicaSession


def fenced(session: ReplicaSession | None, incarnation: Incarnation, ordinal: SessionOrdinal) -> Refused | None:
    """A refusal if ``session``, the current one, is not that of these two; None: it is, or there is none."""
    if session is None:
        return None
    if session.incarnation != incarnation:
        return Refused(
            code=RefusalCode.FENCED_INCARNATION,
            reason=f"incarnation {incarnation} has ended, current is {session.incarnation}",
            hint="register again with your own incarnation",
            requested=incarnation,
            current=session.incarnation,
        )
    if session.ordinal != ordinal:
        return Refused(
            code=RefusalCode.FENCED_SESSION,
            reason=f"session {ordinal} was replaced, current is {session.ordinal}",
            hint="register again to open a session",
            requested=str(ordinal),
            current=str(session.ordinal),
        )
    return None


def knows_more(beat: Heartbeat, view: SetView) -> Refused:
    """A refusal of a heartbeat that knows a later masterEpoch than this leader."""
    return Refused(
        code=RefusalCode.WAITING_FOR_REPORTS,
        reason=f"masterEpoch {beat.known_master_epoch} is not known here, the newest is {view.master_epoch}",
        hint="register again: that reports it",
        requested=str(beat.known_master_epoch),
        current=str(view.master_epoch),
    )


def not_registered(key: SetKey, broker_id: BrokerId) -> Refused:
    """A refusal of a word in the name of a replica that replicated state does not have."""
    reason, requested = f"replica {broker_id} of {key} is not registered", f"{key}/{broker_id}"
    return Refused(code=RefusalCode.NEED_TO_BE_REGISTERED, reason=reason, hint="register first", requested=requested)
