"""R3: who comes back with everything it has acknowledged, and who cannot prove it."""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    FlushMode,
    LogOffset,
    ReplicaKind,
)
from rollcall_ha.controller.contract.replies import Condition, Elected, Refused
from rollcall_ha.controller.contract.values import CleanMark, RegisteredAs, SetConfiguration
from rollcall_ha.controller.contract.verdicts import ElectionKind, Intactness
from rollcall_ha.controller.core.views import condition_of
from tests.support.core_builders import Fleet, ids, positions
from tests.support.core_fleets import (
    ONE,
    TWO,
    alone,
    judged,
    refusal_of,
)

# --- R3 --------------------------------------------------------------------------------------------------------------


def test_r3_a_restart_without_proof_leaves_the_set() -> None:
    """{A,B} ack v1; A loses it in a power loss: it leaves, and registering it moves the SyncStateSetEpoch."""
    fleet = Fleet().serving()
    before = fleet.set.sync_state_set_epoch

    fleet.do(fleet.registration(2, incarnation="i2.2", boot="boot-2"))

    assert judged(fleet) is Intactness.NOT_INTACT
    assert fleet.set.sync_state_set == ids(1, 3)
    assert fleet.set.sync_state_set_epoch == before + 1
    assert fleet.set.fallen == ids(2)


def test_r3a_a_clean_stop_is_the_mark_that_the_goodbye_named() -> None:
    """Nonce and end offset must both match what was said, and the log must end there."""
    for brought, end, expected in (
        (CleanMark(nonce="n", end_offset=LogOffset(10)), 10, Intactness.CLEAN_STOP),
        (CleanMark(nonce="other", end_offset=LogOffset(10)), 10, Intactness.NOT_INTACT),
        (CleanMark(nonce="n", end_offset=LogOffset(11)), 11, Intactness.NOT_INTACT),
        (CleanMark(nonce="n", end_offset=LogOffset(10)), 9, Intactness.NOT_INTACT),
        (None, 10, Intactness.NOT_INTACT),
    ):
        fleet = Fleet().serving()
        fleet.goodbye(2, end=10)
        fleet.do(fleet.registration(2, incarnation="i2.2", boot="boot-2", holds=positions(end), mark=brought))
        assert judged(fleet) is expected


def test_r3a_a_mark_without_its_goodbye_proves_nothing() -> None:
    """An old mark that lies on the disk was never compared with anything."""
    fleet = Fleet().serving()
    mark = fleet.goodbye(2, end=0)
    fleet.do(fleet.registration(2))  # the same process opens a session again: its goodbye is void
    fleet.do(fleet.registration(2, incarnation="i2.2", boot="boot-2", mark=mark))

    assert judged(fleet) is Intactness.NOT_INTACT


def test_r3b_same_boot_and_same_store_is_intact() -> None:
    """The process died, the mapped pages did not; the membership moves to the new incarnation."""
    fleet = Fleet().serving()

    fleet.do(fleet.registration(2, incarnation="i2.2"))

    assert judged(fleet) is Intactness.SAME_BOOT
    assert fleet.set.bound_incarnation(BrokerId(2)) == "i2.2"


def test_r3b_same_boot_is_judged_against_the_registered_incarnation() -> None:
    """A loses its tail in a power loss, its process dies again before registering: boot 2 is not the registered boot 1."""
    fleet = Fleet().serving()

    fleet.do(fleet.registration(2, incarnation="i2.3", boot="boot-2"))
    fleet.do(fleet.registration(2, incarnation="i2.4", boot="boot-2"))

    assert fleet.set.sync_state_set == ids(1, 3)


def test_r3b_another_store_is_not_intact() -> None:
    """S65: an empty disk in the place of the old one; nor do empty ids prove anything."""
    for boot, store in (("boot-1", "store-new"), ("boot-1", ""), ("", "store-2")):
        fleet = Fleet().serving()
        fleet.do(fleet.registration(2, incarnation="i2.2", boot=boot, store=store))
        assert judged(fleet) is Intactness.NOT_INTACT


def test_r3_an_older_copy_of_the_directory_is_not_intact() -> None:
    """Same boot, same store, sync flush: all of it holds for a copy that was put back; what it acked since is gone."""
    for flush in FlushMode:
        fleet = Fleet().serving(configuration=SetConfiguration(expected_replicas=3, flush=flush))
        fleet.do(fleet.registration(2, incarnation="i2.2"))
        assert judged(fleet) is Intactness.SAME_BOOT

        fleet.do(fleet.registration(2, incarnation="i2.3", lives=("i2.1",)))

        assert judged(fleet) is Intactness.NOT_INTACT
        assert fleet.set.sync_state_set == ids(1, 3)


def test_r3_lives_that_never_registered_do_not_matter() -> None:
    """A process that died before it registered has acked nothing: the membership is that of the life before."""
    fleet = Fleet().serving()

    fleet.do(fleet.registration(2, incarnation="i2.4", lives=("i2.1", "i2.2", "i2.3")))

    assert judged(fleet) is Intactness.SAME_BOOT


def test_r3c_a_set_that_syncs_before_it_acks_is_intact() -> None:
    """Flush mode of the set, not of what the replica says now."""
    fleet = Fleet().serving(configuration=SetConfiguration(expected_replicas=3, flush=FlushMode.SYNC))

    fleet.do(fleet.registration(2, incarnation="i2.2", boot="boot-2"))
    assert judged(fleet) is Intactness.SYNC_FLUSH

    fleet.do(fleet.registration(2, incarnation="i2.3", boot="boot-3", store="store-new"))
    assert judged(fleet) is Intactness.NOT_INTACT


def test_r3_an_end_below_the_known_confirm_is_a_veto() -> None:
    """Same boot or not: bytes that every member had are missing."""
    fleet = Fleet().serving()
    fleet.do(fleet.registration(3, incarnation="i3.2", holds=positions(500, confirm=500)))
    assert fleet.set.known_confirm == 500

    fleet.do(fleet.registration(2, incarnation="i2.2", holds=positions(499)))

    assert judged(fleet) is Intactness.NOT_INTACT
    assert fleet.set.sync_state_set == ids(1, 3)


def test_r3_an_end_above_the_known_confirm_is_no_proof() -> None:
    """Acked 5000, reported 1000, power loss: who comes with 1200 has lost records all the same (KIP-966)."""
    fleet = Fleet().serving()
    fleet.do(fleet.registration(3, incarnation="i3.2", holds=positions(1000, confirm=1000)))

    fleet.do(fleet.registration(2, incarnation="i2.2", boot="boot-2", holds=positions(1200)))

    assert judged(fleet) is Intactness.NOT_INTACT


def test_r3_the_last_member_stays_as_a_suspect_and_only_the_unclean_verb_elects_it() -> None:
    """S34: it keeps the set, it is no candidate of a clean election, a further clean restart changes nothing."""
    fleet = alone()
    fleet.do(fleet.registration(1, incarnation="i1.2", boot="boot-2", holds=positions(80)))
    assert judged(fleet) is Intactness.SUSPECT
    assert fleet.set.sync_state_set == ids(1)
    assert fleet.set.master is None
    assert condition_of(fleet.set)[0] is Condition.NO_ELIGIBLE_REPLICA

    fleet.do(fleet.registration(1, incarnation="i1.3", boot="boot-2", holds=positions(80)))
    assert judged(fleet) is Intactness.SUSPECT

    assert refusal_of(fleet.elect()) is RefusalCode.NO_ELIGIBLE_REPLICA
    elected = fleet.want(fleet.elect_unclean(0), Elected)
    assert elected.verdict.kind is ElectionKind.UNCLEAN
    assert not fleet.replica(1).is_suspect


def test_r3_java_replicas_prove_nothing_and_the_longest_is_elected_once_all_members_have_reported() -> None:
    """Kind rocketmq: by default, without the unclean verb, and not before everybody who fell is back."""
    fleet = Fleet().serving_java(TWO)
    fleet.do(fleet.alter(1, 2))
    fleet.do(fleet.registration(2, incarnation="i2.2", kind=ReplicaKind.ROCKETMQ, holds=positions(120)))
    fleet.silence(2)
    fleet.do(fleet.registration(1, incarnation="i1.2", kind=ReplicaKind.ROCKETMQ, holds=positions(100)))
    assert judged(fleet) is Intactness.SUSPECT

    assert refusal_of(fleet.elect()) is RefusalCode.NO_ELIGIBLE_REPLICA
    fleet.revive(2)
    elected = fleet.want(fleet.elect(), Elected)

    assert elected.verdict.winner == 2
    assert elected.verdict.policy == "longest@1"
    assert elected.verdict.sync_state_set == ids(2)


def test_r3_a_java_replica_that_never_was_a_member_is_not_the_longest() -> None:
    """Only members are asked: a log that nobody waited for may be longer and wrong."""
    fleet = Fleet().serving_java(ONE)
    fleet.do(fleet.registration(1, incarnation="i1.2", kind=ReplicaKind.ROCKETMQ, holds=positions(10)))

    elected = fleet.want(fleet.elect(evidence=fleet.evidence({2: positions(900)})), Elected)

    assert elected.verdict.winner == 1


def test_r3_an_ended_process_may_come_back_only_when_its_id_is_nobodys_and_another_master_lives() -> None:
    """Else two processes on copies of one directory end each other in turns, or the copy costs the only whole log its proof."""
    fleet = Fleet().serving()

    def vacated() -> RegisteredAs | None:
        refused = fleet.want(fleet.do(fleet.registration(2)), Refused)
        assert refused.code is RefusalCode.FENCED_INCARNATION
        return refused.registered

    fleet.do(fleet.registration(2, incarnation="i2.2"))
    assert vacated() is None, "the one in its place lives"
    assert "end the one that is not to run" in fleet.want(fleet.do(fleet.registration(2)), Refused).hint
    fleet.silence(2)
    assert vacated() == fleet.replica(2).registered_as
    fleet.state = replace(fleet.state, feature_level=1)
    assert vacated() is None, "the release before does not say so"
    assert "every start draws" in fleet.want(fleet.do(fleet.registration(2)), Refused).hint
    fleet.state = replace(fleet.state, feature_level=2)
    fleet.silence(1)
    assert vacated() is None, "no other master lives"
    fleet.do(fleet.registration(2, incarnation="i2.3", lives=("i2.1",)))
    assert judged(fleet) is Intactness.NOT_INTACT
