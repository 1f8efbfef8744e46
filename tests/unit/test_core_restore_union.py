"""
R2, R7: an alter that committed in a history that a restore has lost, and whose answer was lost, too.

The restored controllers refused the retry by a stored verdict; the master took it for knowledge and dropped the union.
Another member's stored view then brought the committed set back, and its new member was elected without 100 released
bytes.
"""

from __future__ import annotations

from rollcall_ha.api.rocketmq.controller.beans import SyncStateSetBody
from rollcall_ha.api.rocketmq.controller.broker_sets import code_of_alter
from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import AlterSyncStateSet
from rollcall_ha.controller.contract.ids import FleetIncarnation
from rollcall_ha.controller.contract.replies import AlterDecided, Refused
from rollcall_ha.controller.contract.values import StoredView
from rollcall_ha.controller.core.recovery import begin_again
from rollcall_ha.node.remoting.codes import SystemCode
from tests.support.core_builders import Fleet, positions

RESTORED = FleetIncarnation("e" * 32)


def restored() -> tuple[Fleet, AlterSyncStateSet, StoredView]:
    """{1,2} was backed up, {1,2,3} committed since with seq 2; master 1 has registered at the restored controllers."""
    fleet = Fleet().serving()
    fleet.do(fleet.alter(1, 2, seq=1))
    backup, before = fleet.state, fleet.set
    alter = fleet.alter(1, 2, 3, seq=2)
    committed = fleet.want(fleet.do(alter), AlterDecided)
    assert committed.verdict.is_accepted
    view = StoredView(
        fleet_incarnation=backup.fleet_incarnation,
        master_epoch=before.master_epoch,
        sync_state_set_epoch=before.sync_state_set_epoch,
        sync_state_set=before.sync_state_set,
    )
    fleet.state = begin_again(backup, RESTORED)
    fleet.do(fleet.registration(1, holds=positions(100), view=view))
    return fleet, alter, view


def test_restored_controllers_decide_no_alter_of_the_history_that_they_lost() -> None:
    """The retry is refused without a verdict, and nothing about its seq is stored."""
    fleet, alter, _ = restored()
    stored = fleet.set.last_alter

    reply = fleet.do(alter)

    assert isinstance(reply, Refused)
    assert reply.code is RefusalCode.WAITING_FOR_REPORTS
    assert fleet.set.last_alter == stored


def test_when_all_have_reported_the_retry_is_still_not_decided_before_a_new_epoch() -> None:
    """Replica 2 reports {1,2}, too, so that nobody is awaited: replica 3 with {1,2,3} may still come."""
    fleet, alter, view = restored()
    fleet.do(fleet.registration(2, holds=positions(100), view=view))
    assert fleet.set.recovery is not None
    assert not fleet.set.recovery.awaited

    assert isinstance(fleet.do(alter), Refused)


def test_a_java_master_is_told_busy_and_not_that_its_alter_was_refused() -> None:
    """It was answered 2013, or 2001 by the older epoch of the backup: a verdict on an alter that nobody has decided."""
    fleet, alter, _ = restored()
    reply = fleet.want(fleet.do(alter), Refused)
    for set_epoch in (alter.sync_state_set_epoch, alter.sync_state_set_epoch + 7):
        asked = SyncStateSetBody(sync_state_set=alter.new_set, sync_state_set_epoch=set_epoch)
        code = code_of_alter(fleet.set, asked, master=alter.broker_id, epoch=alter.master_epoch, refusal=reply.code)
        assert code == SystemCode.SYSTEM_BUSY
