"""A replica that was asked to stop goes on until nobody waits for it: a master hands over, a slave leaves the set."""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.broker.core.role_io import (
    Drained,
    ExitProcess,
    IncarnationEnded,
    LeaveMaster,
    LinkOpened,
    ResumeSlaveLink,
    RoleTick,
    SessionEstablished,
    SessionLost,
    StartDraining,
    Stop,
    StopAnswered,
    TellStop,
    TruncationPlanned,
    ViewArrived,
)
from rollcall_ha.controller.contract.ids import BrokerId, LogOffset, MasterEpoch
from rollcall_ha.controller.contract.replies import SetView
from rollcall_ha.controller.contract.session import BrokerState
from rollcall_ha.controller.contract.values import SetConfiguration
from rollcall_ha.ha.truncation import Keep
from tests.property.test_broker_role import ME, OTHER, registered, view_of
from tests.unit.test_broker_role_memory import Recording

EPOCH = MasterEpoch(4)
LEAVE_MS = 2_000


def _in_role(master: BrokerId) -> Recording:
    """Master, or slave of replica 2, in epoch 4; what it did to get there is forgotten."""
    replica = Recording()
    replica.settle()
    replica.view(master, EPOCH)
    if master != ME:
        assert replica.link is not None
        generation = replica.link.generation
        replica.may_resume = True
        replica.give(TruncationPlanned(generation=generation, plan=Keep(point=LogOffset(0)), released=LogOffset(0)))
        replica.give(LinkOpened(generation=generation))
        replica.settle()
    assert replica.machine.published.state is (BrokerState.MASTER if master == ME else BrokerState.SLAVE)
    replica.seen.clear()
    return replica


def _view(replica: Recording, master: BrokerId, epoch: int, **changes: object) -> SetView:
    replica.index += 1
    return replace(view_of(master, epoch, replica.index), **changes)


def _names(replica: Recording) -> list[str]:
    return [type(action).__name__ for action in replica.seen if not isinstance(action, ResumeSlaveLink)]


_STOPPED = ["CloseLog", "WriteCleanMark", "SayGoodbyeTo", "ExitProcess"]


def test_a_master_drains_and_asks_for_a_successor_before_it_leaves_its_reign() -> None:
    replica = _in_role(ME)

    replica.hear(Stop(leave_ms=LEAVE_MS))
    assert replica.seen == [StartDraining(master_epoch=EPOCH)], "not asked before the last byte is confirmed"
    replica.hear(Drained(master_epoch=EPOCH))
    assert replica.seen[1:] == [TellStop(master_epoch=EPOCH)]
    assert replica.is_master(), "it serves who reads, and its slaves, until there is another one"

    replica.seen.clear()
    replica.hear(ViewArrived(view=_view(replica, OTHER, 5)))
    assert [name for name in _names(replica) if name not in ("PersistView", "PublishRole")] == [
        "LeaveMaster",
        *_STOPPED,
    ]


def test_nobody_to_hand_over_to_is_not_waited_for() -> None:
    """A set of one; the others silent, or about to stop; no controllers; a learner is no member."""
    for changes in (
        {"sync_state_set": (ME,)},
        {"members": tuple(replace(one, is_alive=False) for one in view_of(ME, 4, 0).members)},
        {"members": tuple(replace(one, is_stopping=True) for one in view_of(ME, 4, 0).members)},
    ):
        replica = _in_role(ME)
        replica.hear(ViewArrived(view=_view(replica, ME, EPOCH, **changes)))
        replica.seen.clear()

        replica.hear(Stop(leave_ms=LEAVE_MS))

        assert isinstance(replica.seen[0], LeaveMaster), changes
    replica = _in_role(ME)
    replica.hear(SessionLost())
    replica.hear(Stop(leave_ms=LEAVE_MS))
    assert isinstance(replica.seen[0], LeaveMaster)


def test_a_refusal_ends_the_wait_and_an_unknown_outcome_is_asked_again() -> None:
    replica = _in_role(ME)
    replica.hear(Stop(leave_ms=LEAVE_MS))
    replica.hear(Drained(master_epoch=EPOCH))
    replica.hear(StopAnswered(is_over=False))
    assert replica.machine.next_due_us is not None
    replica.now_us = replica.machine.next_due_us
    replica.hear(RoleTick())
    assert _names(replica) == ["StartDraining", "TellStop", "TellStop"]

    replica.hear(StopAnswered(is_over=True))

    assert _names(replica)[-4:] == _STOPPED


def test_its_time_is_limited_and_a_second_stop_ends_it() -> None:
    for is_second in (True, False):
        replica = _in_role(ME)
        replica.hear(Stop(leave_ms=LEAVE_MS))
        began_us = replica.now_us
        if is_second:
            replica.hear(Stop(leave_ms=LEAVE_MS))
        else:
            assert replica.machine.next_due_us == began_us + LEAVE_MS * 1_000
            replica.now_us = replica.machine.next_due_us
            replica.hear(RoleTick())

        assert _names(replica)[-4:] == _STOPPED
        assert isinstance(replica.seen[-1], ExitProcess)


def test_a_session_that_is_lost_meanwhile_is_asked_again_when_it_is_back() -> None:
    """The leading controller died between the question and its answer: the next one is asked."""
    replica = _in_role(ME)
    replica.hear(Stop(leave_ms=LEAVE_MS))
    replica.hear(Drained(master_epoch=EPOCH))
    replica.hear(SessionLost())

    replica.hear(SessionEstablished(registered=registered(_view(replica, ME, EPOCH))))

    assert [name for name in _names(replica) if name == "TellStop"] == ["TellStop", "TellStop"]


def test_a_slave_keeps_acking_until_its_master_has_removed_it() -> None:
    replica = _in_role(OTHER)

    replica.hear(Stop(leave_ms=LEAVE_MS))
    assert replica.seen == [TellStop(master_epoch=EPOCH)]
    replica.hear(ViewArrived(view=_view(replica, OTHER, EPOCH)))
    assert replica.link is not None

    replica.hear(ViewArrived(view=_view(replica, OTHER, EPOCH, sync_state_set=(OTHER,))))

    assert _names(replica)[-5:] == ["StopSlaveLink", *_STOPPED]


def test_a_slave_that_its_set_cannot_spare_does_not_wait_to_be_removed() -> None:
    """R22: its master does not remove it, and each stop of a fleet would last for the whole time."""
    replica = _in_role(OTHER)
    pair = SetConfiguration(expected_replicas=2, min_in_sync=2)
    replica.hear(ViewArrived(view=_view(replica, OTHER, EPOCH, configuration=pair)))
    replica.hear(Stop(leave_ms=LEAVE_MS))

    assert "TellStop" not in _names(replica)
    assert _names(replica)[-4:] == _STOPPED


def test_a_slave_whose_master_is_gone_waits_for_nobody() -> None:
    replica = _in_role(OTHER)
    replica.hear(Stop(leave_ms=LEAVE_MS))

    silent = tuple(replace(one, is_alive=False) for one in view_of(OTHER, 4, 0).members)
    replica.hear(ViewArrived(view=_view(replica, OTHER, EPOCH, members=silent)))

    assert _names(replica)[-4:] == _STOPPED


def test_an_incarnation_that_was_replaced_while_it_leaves_ends_all_the_same() -> None:
    """Isolated instead, a process that was asked to stop would run until it is killed."""
    replica = _in_role(ME)
    replica.hear(Stop(leave_ms=LEAVE_MS))

    replica.hear(IncarnationEnded(reason="i2 is registered"))

    assert isinstance(replica.seen[-1], ExitProcess)
