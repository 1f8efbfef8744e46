"""Sets that move here from RocketMQ's controllers: nobody is elected before everybody is here, and epochs only count on."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import CleanReplicas, ImportSet, RegisterReplica
from rollcall_ha.controller.contract.events import CommandRefused, SetImported
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    BrokerName,
    ClusterName,
    MasterEpoch,
    RegisterCode,
    ReplicaKind,
    SetKey,
    SyncStateSetEpoch,
)
from rollcall_ha.controller.contract.replies import Condition, Done, Elected, Refused, Registered
from rollcall_ha.controller.contract.values import ImportedReplica, SetConfiguration
from rollcall_ha.controller.core.importing import followed_elsewhere
from rollcall_ha.controller.core.state import FleetState
from rollcall_ha.controller.core.views import condition_of
from tests.support.core_builders import SET_A, SET_B, Fleet, ids, positions

ONE = SetConfiguration(expected_replicas=1)


def order(
    epoch: int = 7, *members: int, master: int = 1, replicas: tuple[int, ...] = (1, 2, 3), next_id: int = 4
) -> ImportSet:
    """What other controllers say; by default everybody is in sync."""
    return ImportSet(
        set_key=SET_A,
        replicas=tuple(
            ImportedReplica(broker_id=BrokerId(number), address=f"10.0.0.{number}:911") for number in replicas
        ),
        next_id=BrokerId(next_id),
        master=BrokerId(master),
        master_epoch=MasterEpoch(epoch),
        sync_state_set=ids(*(members or replicas)),
        sync_state_set_epoch=SyncStateSetEpoch(12),
    )


def moves(fleet: Fleet, broker_id: int, end: int, *, epoch: int = 7) -> Registered:
    """A broker is restarted with our addresses: its 1003, then its first 904."""
    code = fleet.replica(broker_id).register_code
    said = fleet.registration(broker_id, kind=ReplicaKind.ROCKETMQ, configuration=ONE, code=code)
    fleet.want(fleet.do(replace(said, are_positions_known=False)), Registered)
    said = fleet.registration(broker_id, kind=ReplicaKind.ROCKETMQ, configuration=ONE, code=code)
    told: RegisterReplica = replace(said, positions=positions(end, epoch=epoch))
    return fleet.want(fleet.do(told), Registered)


def refusal(fleet: Fleet, code: RefusalCode) -> Refused:
    """The last reply refuses with this code, and that is on record."""
    reply = fleet.want(fleet.last.replies[0], Refused)
    assert reply.code is code
    fleet.event(CommandRefused)
    return reply


def test_set_is_known_with_its_ids_and_nobody_is_elected_before_all_are_here() -> None:
    """Two control planes know the set while it moves: only the one that the master listens to may elect."""
    fleet = Fleet()
    fleet.want(fleet.do(order()), Done)
    assert [replica.broker_id for replica in fleet.set.replicas] == [1, 2, 3]
    assert (fleet.set.next_id, fleet.set.master, fleet.set.master_epoch, fleet.set.sync_state_set) == (4, None, 7, ())

    for broker_id in (3, 2):
        moves(fleet, broker_id, 900)
        fleet.elect()
        refusal(fleet, RefusalCode.WAITING_FOR_REPORTS)
        elsewhere = followed_elsewhere(fleet.set)
        assert elsewhere is not None
        assert (elsewhere.master, elsewhere.address, elsewhere.master_epoch) == (1, "10.0.0.1:911", 7)
    condition, reason = condition_of(fleet.set)
    assert condition is Condition.WAITING_FOR_REPORTS
    assert reason.endswith("replicas 1 must register here, the master last")


def test_master_that_came_last_reigns_on_in_the_next_epoch_alone() -> None:
    """No jump: every broker was asked. It acked without those who had left before it, whatever the import said."""
    fleet = Fleet()
    fleet.do(order())
    for broker_id, end in ((3, 900), (2, 950), (1, 940)):
        moves(fleet, broker_id, end)
    assert followed_elsewhere(fleet.set) is None

    elected = fleet.want(fleet.elect(), Elected)

    assert (elected.view.master, elected.view.master_epoch, elected.view.sync_state_set) == (1, 8, ids(1))
    assert elected.view.sync_state_set_epoch > 12
    assert fleet.set.recovery is None


def test_registering_without_a_heartbeat_is_no_report() -> None:
    """What the master holds is not known yet: neither it nor anybody else is elected."""
    fleet = Fleet()
    fleet.do(order())
    moves(fleet, 2, 900)
    moves(fleet, 3, 900)
    said = fleet.registration(1, kind=ReplicaKind.ROCKETMQ, code=fleet.replica(1).register_code)
    fleet.do(replace(said, are_positions_known=False))

    fleet.elect()

    refusal(fleet, RefusalCode.WAITING_FOR_REPORTS)


def test_dead_master_of_an_import_is_replaced_by_the_unclean_verb_only() -> None:
    """It may have acked what nobody else holds."""
    fleet = Fleet()
    fleet.do(order())
    for broker_id in (3, 2, 1):
        moves(fleet, broker_id, 900)
    fleet.silence(1)

    assert isinstance(fleet.elect(), Refused)
    fleet.want(fleet.elect_unclean(10_000), Elected)
    assert fleet.set.master in (2, 3)
    assert fleet.set.master_epoch == 8


def test_election_of_the_other_controllers_after_the_import_calls_for_another_one() -> None:
    """A broker shows a higher epoch than was read: who is master, and since when, is not known here any more."""
    fleet = Fleet()
    fleet.do(order())
    for broker_id, epoch in ((3, 7), (1, 7), (2, 9)):
        moves(fleet, broker_id, 900, epoch=epoch)
    condition, reason = condition_of(fleet.set)
    assert condition is Condition.WAITING_FOR_REPORTS
    assert "shows epoch 9, the import knew of 7" in reason
    fleet.elect()
    reply = refusal(fleet, RefusalCode.WAITING_FOR_REPORTS)
    assert (reply.requested, reply.current) == ("7", "9")

    fleet.want(fleet.do(order(9, 2, master=2)), Done)
    elected = fleet.want(fleet.elect(), Elected)

    assert (elected.view.master, elected.view.master_epoch, elected.view.sync_state_set) == (2, 10, ids(2))


def test_import_repeats_until_the_set_has_been_elected_in() -> None:
    """The same again changes nothing, news are taken, old news and a set of ours are refused."""
    fleet = Fleet()
    fleet.do(order())
    fleet.want(fleet.do(order()), Done)
    assert fleet.events == []

    moves(fleet, 3, 900)
    fleet.want(fleet.do(order(8, 1, replicas=(1, 2, 3, 4), next_id=5)), Done)
    assert fleet.event(SetImported).awaited_reports == (1, 2, 4)
    assert fleet.replica(3).is_registered
    assert fleet.set.next_id == 5
    fleet.do(order(7))
    refusal(fleet, RefusalCode.EXPECTATION_FAILED)

    for broker_id in (4, 2, 1):
        moves(fleet, broker_id, 900, epoch=8)
    fleet.want(fleet.elect(), Elected)
    fleet.do(order(9))
    refusal(fleet, RefusalCode.INVALID_REQUEST)
    assert fleet.set.master_epoch == 9


def test_replica_that_the_other_controllers_cleaned_is_not_awaited_any_more() -> None:
    """A dead broker would keep the set from ever electing."""
    fleet = Fleet()
    fleet.do(order())
    moves(fleet, 2, 900)
    fleet.do(order(7, 1, 2, replicas=(1, 2)))
    assert fleet.set.replica(BrokerId(3)) is None
    moves(fleet, 1, 900)
    fleet.want(fleet.elect(), Elected)


def test_no_id_is_granted_while_the_set_moves() -> None:
    """The other controllers grant ids too."""
    fleet = Fleet()
    fleet.do(order())
    fleet.grant("a newcomer")
    refusal(fleet, RefusalCode.WAITING_FOR_REPORTS)


def test_cleaned_set_can_move_in_again_and_its_epochs_still_only_grow() -> None:
    """There and back and there: the tombstone's epochs count too."""
    fleet = Fleet()
    fleet.do(order())
    for broker_id in (3, 2, 1):
        moves(fleet, broker_id, 900)
    fleet.want(fleet.elect(), Elected)
    fleet.silence(1)
    fleet.silence(2)
    fleet.silence(3)
    fleet.want(fleet.clean(is_unclean=True), Done)
    epoch = fleet.set.master_epoch

    fleet.want(fleet.do(order(5)), Done)
    for broker_id in (3, 2, 1):
        moves(fleet, broker_id, 900, epoch=5)
    elected = fleet.want(fleet.elect(), Elected)

    assert elected.view.master_epoch == epoch + 1


def test_a_set_cleaned_and_imported_in_one_entry_was_taken_for_ids_that_changed_hands() -> None:
    """A cleaned id is given out anew by the import, in the same Raft entry as well as in two."""
    fleet = Fleet()
    fleet.do(order(replicas=(1,), next_id=2))
    moves(fleet, 1, 900)
    fleet.silence(1)
    other = replace(order(replicas=(1,), next_id=2), replicas=(ImportedReplica(broker_id=BrokerId(1), address="b:1"),))
    cleaned = CleanReplicas(set_key=SET_A, broker_ids=(), is_unclean=True)

    fleet.apply([fleet.operation(cleaned), fleet.operation(other)])

    assert fleet.last.replies == (Done(), Done())


@pytest.mark.parametrize(
    "wrong",
    [
        replace(order(), replicas=()),
        replace(order(), replicas=order().replicas[::-1]),
        replace(order(), replicas=(ImportedReplica(broker_id=BrokerId(1), address=""),), sync_state_set=ids(1)),
        replace(order(), next_id=BrokerId(3)),
        replace(order(), sync_state_set=ids(2, 3)),
        replace(order(), sync_state_set=ids(1, 9)),
        replace(order(), master_epoch=MasterEpoch(0)),
        replace(order(), set_key=SetKey(ClusterName(""), BrokerName("broker-a"))),
    ],
)
def test_what_cannot_be_is_refused(wrong: ImportSet) -> None:
    """Nothing of it is taken."""
    fleet = Fleet()
    fleet.do(wrong)
    refusal(fleet, RefusalCode.INVALID_ARGUMENT)
    assert not fleet.state.sets.get(SET_A, None)


def test_broker_name_of_another_cluster_is_refused() -> None:
    """RocketMQ's 1001 and 1004 name no cluster."""
    fleet = Fleet()
    fleet.do(order())
    fleet.do(replace(order(), set_key=SetKey(ClusterName("other"), SET_A.name)))
    refusal(fleet, RefusalCode.CLUSTER_MISMATCH)


def test_import_says_nothing_about_other_sets() -> None:
    """Only its own."""
    fleet = Fleet(key=SET_B)
    fleet.grant("code-1")
    before: FleetState = fleet.state
    fleet.do(order())
    assert fleet.state.sets[SET_B] == before.sets[SET_B]
    assert fleet.state.sets[SET_A].replicas[0].register_code == RegisterCode("imported:c/broker-a#1")
