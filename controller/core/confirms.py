"""
Noting the confirm offsets that the leader has heard.

Here: the decision. Not here: hearing and telling them (``controller.runtime.confirms``), measuring members by them
(``intactness``, rule 1), elections that set them down (``evolve``).
"""

from __future__ import annotations

from rollcall_ha.controller.contract.commands import NoteConfirms
from rollcall_ha.controller.contract.events import ConfirmsNoted
from rollcall_ha.controller.contract.values import KnownConfirm
from rollcall_ha.controller.core.decision import Decision, done
from rollcall_ha.controller.core.state import FleetState


def decide_confirms(fleet: FleetState, command: NoteConfirms) -> Decision:
    """Keep those that rise. One that is known, or of another reign, is no fault: the entry has waited behind others."""
    rising = tuple(one for one in command.confirms if _rises(fleet, one))
    return done(ConfirmsNoted(confirms=rising)) if rising else done()


def _rises(fleet: FleetState, told: KnownConfirm) -> bool:
    set_state = fleet.sets.get(told.set_key)
    # Of this reign: an unclean election that was applied before this took bytes that had been confirmed. Measured by
    # them, each member that restarts would have lost records (R3).
    if set_state is None or set_state.recovery is not None or set_state.master_epoch != told.master_epoch:
        return False
    return told.confirm_offset > set_state.known_confirm
