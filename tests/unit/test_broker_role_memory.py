"""W3, R7, R9, proof: what the role machine remembers of epochs that it left, of acks that it gave and of what it was told."""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.broker.core.role_io import (
    RaiseAlarm,
    RoleAction,
    RoleInput,
    SendEntered,
    SessionEstablished,
    SessionLost,
    StepDone,
    StopSlaveLink,
    ViewArrived,
)
from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, LogOffset
from rollcall_ha.controller.contract.session import BrokerState
from tests.property.test_broker_role import ME, OTHER, Replica, registered, view_of


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


def test_r7_controllers_that_were_put_back_are_believed_from_the_registration_on() -> None:
    """Ignored until their log was as long as the lost one, their winner entered nothing: 144 s for 133 entries."""
    replica = Recording()
    replica.settle()
    replica.index = 490
    replica.view(OTHER, 1)
    replica.hear(SessionLost())

    replica.hear(SessionEstablished(registered=registered(view_of(OTHER, 1, 357))))

    alarms = [action.reason for action in replica.seen if isinstance(action, RaiseAlarm)]
    assert ["at index 357, they were at 491" in alarm for alarm in alarms] == [True]
    assert replica.machine.seen_index == 491, "the leader is told how many it lacks"
    replica.index = 357
    replica.view(ME, 2)
    assert replica.is_master()


def test_r7_a_push_that_was_overtaken_changes_nothing() -> None:
    """Within one session an older state is late, not put back: taken, it would bring back a master that has left."""
    replica = Recording()
    replica.settle()
    replica.index = 41
    replica.view(ME, 2)

    replica.hear(ViewArrived(view=view_of(OTHER, 3, 41)))

    assert replica.machine.view is not None
    assert (replica.is_master(), replica.machine.view.index) == (True, 42)
