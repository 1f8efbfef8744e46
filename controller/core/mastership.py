"""
Which process speaks for an epoch: a master is (id, incarnation) in one masterEpoch (R1, R9).

Here: ``refuse_other_mastership``. Not here: what the present master may do (``alters``, ``milestones``).
"""

from __future__ import annotations

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import (
    AlterSyncStateSet,
    ReportDrained,
    ReportEntered,
    ReportWrites,
)
from rollcall_ha.controller.contract.replies import AlterVerdict
from rollcall_ha.controller.core.decision import Refusal
from rollcall_ha.controller.core.state import SetState


def refuse_other_mastership(
    set_state: SetState,
    claim: AlterSyncStateSet | ReportDrained | ReportEntered | ReportWrites,
    hint: str,
    alter: AlterVerdict | None = None,
) -> None:
    """Refuse a claim that the present mastership did not make, by the first value that differs."""
    # All three. Without the epoch, broker 1, deposed and elected again, would alter the set by a proposal of its old
    # reign. Without the incarnation, a late "entered" of broker 1's dead process would start the epoch at an end that
    # its restarted process no longer has.
    checks = (
        (RefusalCode.FENCED_MASTER_EPOCH, "masterEpoch", claim.master_epoch, set_state.master_epoch),
        (RefusalCode.INVALID_MASTER, "master", claim.broker_id, set_state.master),
        (RefusalCode.FENCED_INCARNATION, "master's incarnation", claim.incarnation, set_state.master_incarnation),
    )
    for code, name, requested, current in checks:
        if requested != current:
            reason = f"{name} {requested} is not the current one, {current}"
            raise Refusal(code, reason, hint, requested=requested, current=current, alter=alter)
