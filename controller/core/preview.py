"""
Dry runs: what a command would be answered now, without doing it.

Here: ``preview``, ``foresee``. Not here: evidence (the caller gathers it as for the real command).

Rule: a dry run is decided by the same ``decide``: on an unchanged state the real command gives the same answer (S68).
"""

from __future__ import annotations

from rollcall_ha.controller.contract.commands import Operation
from rollcall_ha.controller.contract.events import AnyEvent
from rollcall_ha.controller.contract.ids import SetKey
from rollcall_ha.controller.contract.replies import AnyReply, SetView
from rollcall_ha.controller.core.decide import decide
from rollcall_ha.controller.core.state import FleetState, SetState
from rollcall_ha.controller.core.views import set_view


def preview(fleet: FleetState, operation: Operation) -> AnyReply:
    """Decide without evolving. Nothing is recorded; the ``view`` inside a reply is that of the present."""
    return foresee(fleet, operation)[0]


def foresee(fleet: FleetState, operation: Operation) -> tuple[AnyReply, tuple[AnyEvent, ...]]:
    """``preview``, with the events that the real command would put on record."""
    decision = decide(fleet, operation)
    key: SetKey | None = getattr(operation.command, "set_key", None)
    return decision.reply_with(lambda: _present_view(fleet, key)), decision.events


def _present_view(fleet: FleetState, key: SetKey | None) -> SetView:
    assert key is not None, "only commands on a set are answered with its view"
    present = fleet.sets.get(key) or SetState(set_key=key)
    return set_view(fleet, present, term=fleet.term, index=fleet.index)
