"""What the core knows of RocketMQ brokers: they register before they tell what they hold, and prove nothing."""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import RegisterReplica, ReportEntered
from rollcall_ha.controller.contract.events import LossGraded, MasterEntered, ReplicaRegistered
from rollcall_ha.controller.contract.ids import LogOffset, ReplicaKind
from rollcall_ha.controller.contract.replies import AlterDecided, AnyReply, Done, Elected, Refused
from rollcall_ha.controller.contract.values import SetConfiguration
from rollcall_ha.controller.contract.verdicts import Grade, Intactness
from tests.support.core_builders import Fleet, ids, positions, stored

ONE = SetConfiguration(expected_replicas=1)


def silent_about_its_log(fleet: Fleet, broker_id: int, life: int = 1) -> RegisterReplica:
    """A 1003: no heartbeat has come yet."""
    command = fleet.registration(
        broker_id, incarnation=f"i{broker_id}.{life}", kind=ReplicaKind.ROCKETMQ, configuration=ONE
    )
    return replace(command, are_positions_known=False)


def telling(fleet: Fleet, broker_id: int, end: int, *, life: int = 1, epoch: int = 1) -> RegisterReplica:
    """The first 904."""
    command = silent_about_its_log(fleet, broker_id, life)
    return replace(command, are_positions_known=True, positions=positions(end, epoch=epoch))


def java_pair() -> Fleet:
    """Broker 1 is master of epoch 1 and alone in the set; broker 2 follows."""
    fleet = Fleet()
    for broker_id in (1, 2):
        fleet.grant(f"code-{broker_id}")
        fleet.do(silent_about_its_log(fleet, broker_id))
    fleet.want(fleet.elect(to=1), Elected)
    fleet.do(telling(fleet, 1, 0))
    fleet.do(telling(fleet, 2, 0))
    return fleet


def enters_without_a_start(fleet: Fleet) -> AnyReply:
    """What a controller submits when it has seen a RocketMQ broker to be master."""
    master, incarnation = fleet.set.master, fleet.set.master_incarnation
    assert master is not None
    assert incarnation is not None
    return fleet.do(
        ReportEntered(
            set_key=fleet.key,
            broker_id=master,
            incarnation=incarnation,
            master_epoch=fleet.set.master_epoch,
            start_offset=None,
            acked_end_max=LogOffset(0),
            is_mode_confirmed=False,
        )
    )


def test_telling_what_it_holds_keeps_the_membership_of_the_same_process() -> None:
    """The first heartbeat after an election that did not wait for it threw the new master out of its set."""
    fleet = Fleet()
    fleet.grant("code-1")
    fleet.do(silent_about_its_log(fleet, 1))
    assert fleet.replica(1).positions is None
    fleet.want(fleet.elect(to=1), Elected)

    fleet.do(telling(fleet, 1, 300))

    event = fleet.event(ReplicaRegistered)
    assert event.intactness is Intactness.NEW
    assert fleet.replica(1).positions == positions(300)
    assert (fleet.set.master, fleet.set.sync_state_set, fleet.set.sync_state_set_epoch) == (1, ids(1), 1)


def test_telling_what_it_holds_is_no_proof_after_a_restart() -> None:
    """The same process then, but what it was judged as when it registered stays."""
    fleet = java_pair()
    fleet.do(fleet.alter(1, 2))
    fleet.do(silent_about_its_log(fleet, 2, life=2))
    assert fleet.set.sync_state_set == ids(1)

    fleet.do(telling(fleet, 2, 50, life=2))

    assert fleet.replica(2).intactness is Intactness.NOT_INTACT
    assert fleet.set.sync_state_set == ids(1)


def test_a_master_that_tells_what_it_holds_behind_its_election_is_no_suspect_again() -> None:
    """R3: its first report came behind the election that made its log the set's, and no slave could succeed it any more."""
    fleet = java_pair()
    fleet.do(silent_about_its_log(fleet, 1, life=2))
    assert fleet.replica(1).is_suspect
    fleet.want(fleet.elect(evidence=fleet.evidence({1: positions(100)})), Elected)

    fleet.do(telling(fleet, 1, 100, life=2))
    assert not fleet.replica(1).is_suspect
    fleet.do(fleet.alter(1, 2))
    fleet.silence(1)

    assert fleet.want(fleet.elect(evidence=fleet.evidence(unheard=(1,))), Elected).verdict.winner == 2


def test_member_that_has_not_told_what_it_holds_does_not_join() -> None:
    """An alter that is older than the member's restart would give the membership to a log that nobody has compared."""
    fleet = java_pair()
    fleet.do(silent_about_its_log(fleet, 2, life=2))

    refused = fleet.want(fleet.do(fleet.alter(1, 2)), AlterDecided)
    assert refused.verdict.refusal is RefusalCode.BROKER_NOT_ALIVE

    fleet.do(telling(fleet, 2, 0, life=2))
    assert fleet.want(fleet.do(fleet.alter(1, 2, seq=2)), AlterDecided).verdict.is_accepted


def test_the_longest_waits_for_the_first_heartbeats_not_for_registrations() -> None:
    """R3: whoever registers last may hold most; its 1003 does not say."""
    fleet = java_pair()
    fleet.do(fleet.alter(1, 2))
    for broker_id in (2, 1):
        fleet.do(silent_about_its_log(fleet, broker_id, life=2))
    assert fleet.replica(1).is_suspect
    fleet.do(telling(fleet, 1, 100, life=2))

    early = fleet.want(fleet.elect(evidence=fleet.evidence(unheard=(2,))), Refused)
    assert early.code is RefusalCode.NO_ELIGIBLE_REPLICA
    assert "must report first" in early.reason

    fleet.do(telling(fleet, 2, 120, life=2))
    assert fleet.want(fleet.elect(), Elected).verdict.winner == 2


def test_recovery_awaits_what_a_replica_holds_not_its_registration() -> None:
    """R7: after a restore a 1003 alone is no report."""
    fleet = java_pair()
    fleet.do(fleet.alter(1, 2))
    ahead = replace(telling(fleet, 1, 500, epoch=4), stored=stored(4, 9, 1, 2))
    fleet.do(ahead)
    assert fleet.set.recovery is not None
    assert fleet.set.recovery.awaited == ids(2)

    fleet.do(silent_about_its_log(fleet, 2, life=2))
    assert fleet.set.recovery.awaited == ids(2)

    fleet.do(telling(fleet, 2, 400, life=2, epoch=4))
    assert fleet.set.recovery.awaited == ()
    assert fleet.want(fleet.elect(), Elected).verdict.winner == 1


def test_java_master_enters_without_a_start_and_is_never_graded_better_than_unknown() -> None:
    """Not even a first election: nobody has said that its log was empty."""
    fleet = java_pair()

    assert isinstance(enters_without_a_start(fleet), Done)

    assert fleet.event(MasterEntered).start_offset is None
    assert fleet.event(LossGraded).verdict.grade is Grade.UNKNOWN
    assert fleet.set.has_entered
    assert isinstance(enters_without_a_start(fleet), Done)


def test_native_master_must_name_its_start() -> None:
    """R12: an epoch's start is fixed once; only a program that cannot say it may leave it out."""
    fleet = Fleet()
    fleet.grant("code-1")
    fleet.do(fleet.registration(1, configuration=ONE))
    fleet.elect()

    reply = enters_without_a_start(fleet)

    assert fleet.want(reply, Refused).code is RefusalCode.INVALID_REQUEST
