"""A master that is ordered to switch over (R29): it drains, tells it, and takes sends again when the order is over."""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.broker.core.role_io import (
    Drained,
    RoleTick,
    SessionEstablished,
    SessionLost,
    StartDraining,
    Stop,
    StopAnswered,
    StopDraining,
    TellDrained,
    TellStop,
    ViewArrived,
)
from rollcall_ha.controller.contract.ids import BrokerId, MasterEpoch, RequestId
from rollcall_ha.controller.contract.replies import SetView, SwitchoverView
from rollcall_ha.controller.contract.session import BrokerState
from tests.property.test_broker_role import ME, OTHER, registered, view_of
from tests.unit.test_broker_role_memory import Recording

EPOCH = MasterEpoch(4)
DEADLINE_MS = 3_000


def master() -> Recording:
    """Master of epoch 4; what it did to get there is forgotten."""
    replica = Recording()
    replica.settle()
    replica.view(ME, EPOCH)
    assert replica.is_master()
    replica.seen.clear()
    return replica


def view(replica: Recording, order: str | None, *, epoch: int = EPOCH, elected: int | None = None) -> SetView:
    """The newest view of its own reign, with this order under way."""
    replica.index += 1
    shown = None
    if order is not None:
        shown = SwitchoverView(
            order=RequestId(order),
            master=ME,
            master_epoch=EPOCH,
            target=OTHER,
            deadline_ms=DEADLINE_MS,
            elected_epoch=None if elected is None else MasterEpoch(elected),
        )
    return replace(view_of(ME, epoch, replica.index), switchover=shown)


def hear(replica: Recording, order: str | None) -> None:
    replica.hear(ViewArrived(view=view(replica, order)))


def acts(replica: Recording) -> list[object]:
    """What it did about orders."""
    return [
        action for action in replica.seen if isinstance(action, StartDraining | StopDraining | TellStop | TellDrained)
    ]


def draining(*, is_drained: bool = True) -> Recording:
    replica = master()
    hear(replica, "o1")
    if is_drained:
        replica.hear(Drained(master_epoch=EPOCH))
    return replica


START, RESUME = StartDraining(master_epoch=EPOCH), StopDraining(master_epoch=EPOCH)


def told(order: str) -> TellDrained:
    return TellDrained(master_epoch=EPOCH, order=RequestId(order))


def test_r29_a_master_tells_that_it_has_drained_when_its_last_byte_is_confirmed_and_not_before() -> None:
    replica = draining(is_drained=False)
    assert acts(replica) == [START]

    replica.hear(Drained(master_epoch=EPOCH))

    assert acts(replica) == [START, told("o1")]
    assert replica.is_master(), "it serves who reads, and its slaves, until there is another one"


def test_r29_a_master_takes_sends_again_when_its_order_is_withdrawn() -> None:
    for is_drained in (True, False):
        replica = draining(is_drained=is_drained)
        hear(replica, None)
        assert acts(replica)[-1] == RESUME
        replica.hear(Drained(master_epoch=EPOCH))
        assert acts(replica)[-1] == RESUME, "a drain that was given up is told to nobody"


def test_r29_a_second_order_is_drained_for_anew() -> None:
    """Sends were taken in between: what was drained for the first order says nothing."""
    replica = draining()
    hear(replica, None)
    replica.seen.clear()
    hear(replica, "o2")
    assert acts(replica) == [START]

    replica.hear(Drained(master_epoch=EPOCH))

    assert acts(replica) == [START, told("o2")]


def test_r29_cut_off_from_the_controllers_it_serves_again_at_its_own_deadline() -> None:
    """Promise 3: nobody can tell it that the order is withdrawn."""
    replica = draining()
    replica.hear(SessionLost())
    due_us = replica.machine.next_due_us
    assert due_us is not None
    assert due_us <= replica.now_us + DEADLINE_MS * 1_000
    replica.now_us = due_us

    replica.hear(RoleTick())

    assert acts(replica)[-1] == RESUME
    replica.seen.clear()
    replica.hear(SessionEstablished(registered=registered(view(replica, "o1"))))
    assert acts(replica) == [], "the order that it has given up is not drained for again"
    hear(replica, "o2")
    assert acts(replica) == [START]


def test_an_unknown_outcome_is_told_again_and_so_is_a_session_that_was_lost() -> None:
    replica = draining()
    replica.hear(StopAnswered(is_over=False))
    due_us = replica.machine.next_due_us
    assert due_us is not None
    replica.now_us = due_us
    replica.hear(RoleTick())
    assert acts(replica) == [START, told("o1"), told("o1")]

    replica.hear(SessionLost())
    replica.hear(SessionEstablished(registered=registered(view(replica, "o1"))))

    assert acts(replica)[-1] == told("o1")
    assert len(acts(replica)) == 4


def test_asked_to_stop_while_it_drains_it_asks_for_a_successor_instead() -> None:
    replica = draining()

    replica.hear(Stop(leave_ms=2_000))

    assert acts(replica) == [START, told("o1"), TellStop(master_epoch=EPOCH)]


def test_r29_the_way_back_into_its_role_begins_undrained() -> None:
    """The target did not enter, and this replica is elected again: the order is still under way, and asks for nothing."""
    replica = draining()
    replica.view(OTHER, 5)
    assert not replica.is_master()
    replica.seen.clear()

    replica.hear(ViewArrived(view=view(replica, "o1", epoch=6, elected=6)))

    assert replica.machine.published.state is BrokerState.MASTER
    assert acts(replica) == []
    replica.index += 1
    replica.hear(
        ViewArrived(
            view=replace(
                view_of(ME, 6, replica.index),
                switchover=SwitchoverView(
                    order=RequestId("o2"),
                    master=BrokerId(ME),
                    master_epoch=MasterEpoch(6),
                    target=OTHER,
                    deadline_ms=DEADLINE_MS,
                    elected_epoch=None,
                ),
            )
        )
    )
    assert acts(replica) == [StartDraining(master_epoch=MasterEpoch(6))], "nothing of epoch 4 counts as drained"
