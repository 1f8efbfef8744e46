"""W3, R9, proof: what the role machine remembers of the epochs that it left and of the acks that it gave."""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.broker.core.role_io import RoleAction, RoleInput, SendEntered, StepDone, StopSlaveLink, ViewArrived
from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, LogOffset
from rollcall_ha.controller.contract.session import BrokerState
from tests.property.test_broker_role import ME, OTHER, Replica, view_of


class Recording(Replica):
    """Keeps the actions too."""

    def __init__(self) -> None:
        self.seen: list[RoleAction] = []
        super().__init__()

    def _check(self, action: RoleAction) -> None:
        self.seen.append(action)
        super()._check(action)

    def settle(self) -> None:
        while self.step is not None:
            self.answer(is_done=True)

    def is_master(self) -> bool:
        return self.machine.published.state is BrokerState.MASTER

    def hear(self, event: RoleInput) -> None:
        self.give(event)
        self.settle()

    def view(self, master: BrokerId, epoch: int, incarnation: str | None = None) -> None:
        self.index += 1
        view = view_of(master, epoch, self.index)
        if incarnation is not None:
            view = replace(view, master_incarnation=Incarnation(incarnation))
        self.hear(ViewArrived(view=view))


def test_w3_an_epoch_that_was_left_is_not_entered_again() -> None:
    """
    Master of epoch 4 hears that epoch 4 was given to another incarnation, leaves, and is named in epoch 4 again.

    A second entering would record a second start for epoch 4: two replicas could hold different bytes under it.
    """
    replica = Recording()
    replica.settle()
    replica.view(ME, 4)
    assert replica.is_master()
    replica.view(ME, 4, incarnation="i0")
    assert not replica.is_master()

    replica.view(ME, 4)

    assert not replica.is_master()
    replica.view(ME, 5)
    assert replica.is_master()


def test_the_winner_reports_the_highest_end_that_it_acked_to_the_old_master() -> None:
    """Replica 1 acked 777 in epoch 1 and wins epoch 2: without 777 in its report a loss would be graded as proven."""
    replica = Recording()
    replica.settle()
    replica.view(OTHER, 1)
    assert replica.link is not None
    replica.index += 1
    replica.give(ViewArrived(view=view_of(ME, 2, replica.index)))
    while (step := replica.step) is not None:
        if isinstance(step, StopSlaveLink):
            replica.step, replica.link = None, None
            replica.give(StepDone(step=step.step, offset=LogOffset(777)))
        else:
            replica.answer(is_done=True)

    (entered,) = [action for action in replica.seen if isinstance(action, SendEntered)]

    assert entered.report.master_epoch == 2
    assert entered.report.acked_end_max == 777
