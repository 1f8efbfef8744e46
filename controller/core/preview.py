"""
Dry runs: what a command would be answered now, without doing it.

Here: ``preview``. Not here: evidence (the caller gathers it as for the real command).

Rule: on an unchanged state the real command gives the same answer (S68), with one exception. If the master is alive and
no replica is designated, the preview of an election assumes that the master is lost.
"""

from __future__ import annotations

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import ElectMaster, ElectUnclean, Operation
from rollcall_ha.controller.contract.ids import SetKey
from rollcall_ha.controller.contract.replies import AnyReply, Refused, SetView
from rollcall_ha.controller.core.decide import decide
from rollcall_ha.controller.core.decide_election import decide_elect, decide_elect_unclean
from rollcall_ha.controller.core.state import FleetState, SetState
from rollcall_ha.controller.core.views import set_view


def preview(fleet: FleetState, operation: Operation) -> AnyReply:
    """Decide without evolving. Nothing is recorded; the ``view`` inside a reply is that of the present."""
    command = operation.command
    key: SetKey | None = getattr(command, "set_key", None)
    decision = decide(fleet, operation)
    if isinstance(decision.answer, Refused) and decision.answer.code is RefusalCode.MASTER_STILL_EXISTS:
        if isinstance(command, ElectMaster):
            decision = decide_elect(fleet, operation, command, assumes_master_lost=True)
        if isinstance(command, ElectUnclean):
            decision = decide_elect_unclean(fleet, operation, command, assumes_master_lost=True)
    return decision.reply_with(lambda: _present_view(fleet, key))


def _present_view(fleet: FleetState, key: SetKey | None) -> SetView:
    assert key is not None, "only commands on a set are answered with its view"
    present = fleet.sets.get(key) or SetState(set_key=key)
    return set_view(fleet, present, term=fleet.term, index=fleet.index)
