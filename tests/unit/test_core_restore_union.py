"""
R2, R7: an alter that committed in a history that a restore has lost, and whose answer was lost, too.

The restored controllers refused the retry by a stored verdict; the master took it for knowledge and dropped the union.
Another member's stored view then brought the committed set back, and its new member was elected without 100 released
bytes.
"""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.api.rocketmq.controller.beans import SyncStateSetBody
from rollcall_ha.api.rocketmq.controller.broker_sets import code_of_alter
from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import AlterSyncStateSet
from rollcall_ha.controller.contract.ids import FleetIncarnation, MasterEpoch, SyncStateSetEpoch
from rollcall_ha.controller.contract.replies import AlterDecided, Elected, Refused
from rollcall_ha.controller.contract.values import StoredView
from rollcall_ha.controller.core.recovery import begin_again
from rollcall_ha.node.remoting.codes import SystemCode
from tests.support.core_builders import Fleet, ids, positions

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
    """Replicas 2 and 3 report {1,2}, too, so that nobody is awaited."""
    fleet, alter, view = restored()
    for broker_id in (2, 3):
        fleet.do(fleet.registration(broker_id, holds=positions(100), view=view))
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


def test_r7_a_restore_forgot_what_a_replica_had_told_that_is_dead_by_now() -> None:
    """It named 3 as a member in a later epoch. Begun anew without that, 1 and 2 were elected as the older set."""
    fleet = Fleet().serving()
    late = StoredView(
        fleet_incarnation=fleet.state.fleet_incarnation,
        master_epoch=MasterEpoch(9),
        sync_state_set_epoch=SyncStateSetEpoch(20),
        sync_state_set=ids(2, 3),
    )
    fleet.do(fleet.registration(2, incarnation="i2.2", holds=positions(100, epoch=9), view=late))
    before = fleet.set.recovery
    assert before is not None

    fleet.state = begin_again(fleet.state, RESTORED)

    recovery = fleet.set.recovery
    assert recovery is not None
    assert (recovery.named, recovery.newest, recovery.highest_epoch) == (before.named, before.newest, 9)
    assert recovery.reported == (), "each of them reports again"


def test_r7_a_member_since_the_backup_was_not_awaited_when_nobody_else_had_heard_so() -> None:
    """
    The backup has {1,2}. 3 joined, 1 and 2 died before they heard so, and 3 acked alone: 1 and 2 were elected without it.
    """
    fleet, _, view = restored()
    fleet.do(fleet.registration(2, holds=positions(100), view=view))
    recovery = fleet.set.recovery
    assert recovery is not None
    assert recovery.awaited == ids(3), "the backup knows it as a replica, so it may have become a member since"
    assert isinstance(fleet.elect(), Refused)

    later = replace(view, master_epoch=MasterEpoch(2), sync_state_set=ids(3))
    fleet.do(fleet.registration(3, holds=positions(300, epoch=2), view=later))

    assert fleet.set.sync_state_set == ids(3)
    assert fleet.want(fleet.elect(), Elected).verdict.winner == 3
