"""
Dry runs: what a command would be answered now, without doing it.

Here: ``preview``. Not here: evidence (the caller gathers it as for the real command).
Imported by: ``controller.runtime``, ``api``. Imports: ``decide``.

Rule: on an unchanged state the real command gives the same answer (S68), except that the preview of an election
assumes the current master to be lost if it is alive and nobody is designated.
"""

from __future__ import annotations

from controller.contract.commands import Operation
from controller.contract.replies import AnyReply
from controller.core.state import FleetState


def preview(fleet: FleetState, operation: Operation) -> AnyReply:
    """Decide without evolving. Nothing is recorded; the ``view`` inside a reply is that of the present. Never raises."""
    raise NotImplementedError
