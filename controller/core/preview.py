"""
Dry runs: what a command would be answered now, without doing it.

Here: ``preview``. Not here: evidence (the caller gathers it as for the real command).
Imported by: ``controller.runtime``, ``api``. Imports: ``decide``, ``elections``.

Rule: on an unchanged state the real command gives the same answer (S68), except that the preview of an election
assumes the current master to be lost if it is alive and nobody is designated.
"""

from __future__ import annotations

from controller.contract.codes import RefusalCode
from controller.contract.commands import ElectMaster, ElectUnclean, Operation
from controller.contract.replies import AnyReply, Refused
from controller.core.decide import decide
from controller.core.elections import decide_elect, decide_elect_unclean
from controller.core.state import FleetState


def preview(fleet: FleetState, operation: Operation) -> AnyReply:
    """Decide without evolving. Nothing is recorded; the ``view`` inside a reply is that of the present."""
    reply = decide(fleet, operation).reply
    if not isinstance(reply, Refused) or reply.code is not RefusalCode.MASTER_STILL_EXISTS:
        return reply
    command = operation.command
    if isinstance(command, ElectMaster):
        return decide_elect(fleet, operation, command, assumes_master_lost=True).reply
    if isinstance(command, ElectUnclean):
        return decide_elect_unclean(fleet, operation, command, assumes_master_lost=True).reply
    return reply
