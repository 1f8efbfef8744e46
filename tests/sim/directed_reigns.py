"""
Directed cases of one reign, for the mutants of ``mutations_reigns``: see ``directed``.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from rollcall_ha.broker.core.durable import EpochMarks
from rollcall_ha.broker.core.goals import GoalKind
from rollcall_ha.broker.core.role import RoleMachine
from rollcall_ha.broker.core.role_io import (
    Recovered,
    RecoveryStarted,
    ReignRefused,
    SessionEstablished,
    StepDone,
    ViewArrived,
)
from rollcall_ha.controller.contract.ids import LogOffset
from rollcall_ha.controller.contract.replies import Registered, SetView
from rollcall_ha.controller.core.views import view_of
from rollcall_ha.ha.sync_state import ConfirmMoved
from tests.sim.violation import must
from tests.support.core_builders import Fleet
from tests.unit.test_ha_sync_state import joined, proposals

A, B = 1, 2


def view_of_the_same_version() -> None:
    """{A} proposes {A,B}; its link breaks, and a heartbeat brings {A} of the version that it was proposed on: B is still required."""
    master = joined((A,))
    master.link(B)
    must(proposals(master.ack(B, 0)), "B is proposed")
    master.unlink(B)
    outputs = [*master.hear((A,), 10), *master.write(100)]
    is_confirmed = any(isinstance(output, ConfirmMoved) for output in outputs)
    must(not is_confirmed, "R2: A took a state from before its alter for the alter's end, and releases alone")


def _through_steps(machine: RoleMachine, now_us: int) -> int:
    while (step := machine.pending) is not None and now_us < 1_000:
        machine.handle(StepDone(step=step.step, offset=LogOffset(0)), now_us=now_us)
        now_us += 1
    return now_us


def epoch_left_and_shown_again() -> None:
    """A reigns, hears that its reign is over, and then a late view that calls it the master of that very epoch."""
    fleet = Fleet().serving()
    view: SetView | None = view_of(fleet.state, fleet.key)
    replica = fleet.replica(A)
    assert view is not None
    assert replica.incarnation is not None
    machine = RoleMachine(set_key=fleet.key, incarnation=replica.incarnation)
    machine.handle(RecoveryStarted(), now_us=1)
    machine.handle(Recovered(marks=EpochMarks(), has_clean_mark=False), now_us=2)
    registered = Registered(
        broker_id=replica.broker_id,
        session_ordinal=replica.session_ordinal,
        intactness=replica.intactness,
        is_in_sync=True,
        view=view,
    )
    machine.handle(SessionEstablished(registered=registered), now_us=3)
    now_us = _through_steps(machine, 4)
    epoch = view.master_epoch
    must(machine.goal.kind is GoalKind.REIGN, f"A reigns in epoch {epoch}")
    machine.handle(ReignRefused(master_epoch=epoch, reason="masterEpoch is higher now"), now_us=now_us)
    now_us = _through_steps(machine, now_us + 1)
    machine.handle(ViewArrived(view=replace(view, index=view.index + 1)), now_us=now_us)
    must(machine.goal.kind is not GoalKind.REIGN, f"W3: epoch {epoch} was left, and is entered again")


REIGN_CASES: dict[str, Callable[[], None]] = {
    "view-of-the-same-version": view_of_the_same_version,
    "epoch-left-and-shown-again": epoch_left_and_shown_again,
}
"""By name, as ``directed.CASES``."""
