"""R6, R8 and S08: whom an election leaves in the set, and the first one."""

from __future__ import annotations

from msgspec import UNSET

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.events import (
    ElectionFailed,
)
from rollcall_ha.controller.contract.ids import ReplicaKind
from rollcall_ha.controller.contract.replies import Condition, Done, Elected, Refused
from rollcall_ha.controller.contract.verdicts import CandidateOutcome, ElectionKind
from rollcall_ha.controller.core.ranking import elect_again
from rollcall_ha.controller.core.views import condition_of
from tests.support.core_builders import Fleet, ids, positions
from tests.support.core_fleets import (
    ONE,
    TWO,
    alone,
    java_with_a_warm_slave,
    refusal_of,
)

# --- R6, S08 ---------------------------------------------------------------------------------------------------------


def test_r6_the_new_set_is_the_winner_and_the_alive_intact_members() -> None:
    """Redundancy does not drop to one; who is silent is not waited for."""
    fleet = Fleet().serving()
    fleet.silence(1)

    elected = fleet.want(fleet.elect(), Elected)

    assert elected.verdict.winner == 2
    assert elected.view.sync_state_set == ids(2, 3)


def test_r6_a_drained_old_master_stays_in_the_set() -> None:
    """Switchover: the old master is alive and intact."""
    fleet = Fleet().serving()

    elected = fleet.want(fleet.elect(to=2, master=1, epoch=1), Elected)

    assert elected.verdict.kind is ElectionKind.REQUESTED
    assert elected.verdict.sync_state_set == ids(1, 2, 3)


def test_r6_members_that_are_not_intact_do_not_survive() -> None:
    """v1 acked; A loses it; B elected: {B} without A, so that A cannot be elected next."""
    fleet = Fleet().serving()
    fleet.do(fleet.registration(1, incarnation="i1.2", boot="boot-2"))

    fleet.elect()

    assert 1 not in fleet.set.sync_state_set


def test_r6_an_outsider_is_never_added_by_a_clean_election() -> None:
    """A elected again with {A,B,C}, C without v1: C is alive but was not a member."""
    fleet = Fleet().serving()
    fleet.do(fleet.alter(1, 2))
    fleet.silence(1)

    fleet.elect()

    assert fleet.set.sync_state_set == ids(2)


def test_r6_a_java_winner_stands_alone() -> None:
    """C5 holds for Java masters."""
    fleet = Fleet().serving_java(TWO)
    fleet.do(fleet.alter(1, 2))
    fleet.silence(1)

    elected = fleet.want(fleet.elect(), Elected)

    assert elected.verdict.sync_state_set == ids(2)
    assert elected.verdict.policy == "data-first@2"


# --- warm replicas ---------------------------------------------------------------------------------------------------


def reason_of(elected: Elected, broker_id: int) -> str:
    """Why this candidate has its place."""
    return next(one.reason for one in elected.verdict.candidates if one.broker_id == broker_id)


def test_among_equal_logs_a_replica_that_was_master_in_its_process_wins() -> None:
    """2 has the smaller id, 3 has loaded what a master runs: its first answer came 0.02 s after it was elected, not 0.2."""
    fleet = java_with_a_warm_slave()
    fleet.silence(1)

    elected = fleet.want(fleet.elect(), Elected)

    warm = "warm: master before in its present process, before one that was not"
    assert elected.verdict.winner == 3
    assert reason_of(elected, 3) == f"in SyncStateSet, alive, {warm}"
    assert reason_of(elected, 2) == f"in SyncStateSet, alive; replica 3 is before it: {warm}"
    assert elect_again(elected.verdict) is not None


def test_a_warm_replica_goes_before_no_longer_log_and_no_smaller_priority() -> None:
    """A byte more in 2, or the operator's own word for it."""
    fleet = java_with_a_warm_slave()
    fleet.silence(1)
    longer = fleet.evidence({2: positions(11), 3: positions(10)})
    assert fleet.want(fleet.elect(evidence=longer), Elected).verdict.winner == 2

    fleet = java_with_a_warm_slave(priority_of_2=1)
    fleet.silence(1)
    elected = fleet.want(fleet.elect(), Elected)
    assert (elected.verdict.winner, elected.verdict.policy) == (2, "data-first@2")


def test_a_replica_that_has_started_again_is_warm_no_more() -> None:
    """The process that had loaded a master's code is gone."""
    fleet = java_with_a_warm_slave()
    assert fleet.replica(3).is_warm is True

    fleet.do(fleet.registration(3, incarnation="i3.2", kind=ReplicaKind.ROCKETMQ))

    assert fleet.replica(3).is_warm is UNSET


def test_a_winner_that_never_entered_is_not_warm() -> None:
    """It has served nobody."""
    fleet = Fleet().serving_java(replicas=(1, 2, 3))
    fleet.do(fleet.alter(1, 2, 3))
    fleet.elect(to=3)
    fleet.do(fleet.alter(1, 2, 3, seq=2))
    fleet.elect(to=2)

    assert (fleet.replica(1).is_warm, fleet.replica(3).is_warm) == (True, UNSET)


def test_below_feature_level_2_nobody_is_warm() -> None:
    """An older controller of the same quorum elects the smaller id, and its state has no such field."""
    fleet = java_with_a_warm_slave(level=1)
    assert fleet.replica(3).is_warm is UNSET
    fleet.silence(1)

    elected = fleet.want(fleet.elect(), Elected)

    assert (elected.verdict.winner, elected.verdict.policy) == (2, "data-first@1")
    assert all(one.is_warm is UNSET for one in elected.verdict.candidates)


def test_r6_a_winner_that_did_not_enter_is_replaced_by_who_names_its_epoch() -> None:
    """The guard is ``expected_epoch``; without it a master that is alive stays."""
    fleet = Fleet().serving()
    fleet.silence(1)
    fleet.elect()
    assert fleet.set.master == 2

    assert refusal_of(fleet.elect()) is RefusalCode.MASTER_STILL_EXISTS
    elected = fleet.want(fleet.elect(epoch=2), Elected)

    assert elected.verdict.winner == 3
    aside = next(c for c in elected.verdict.candidates if c.broker_id == 2)
    assert aside.outcome is CandidateOutcome.EXCLUDED
    assert elected.verdict.sync_state_set == ids(2, 3)


def test_r6_a_winner_that_did_not_enter_is_elected_again_if_nobody_else_can_be() -> None:
    """Late is better than nobody; it gets a new epoch."""
    fleet = Fleet().serving()
    fleet.silence(1)
    fleet.silence(3)
    fleet.elect()

    elected = fleet.want(fleet.elect(epoch=2), Elected)

    assert (elected.verdict.winner, elected.verdict.master_epoch) == (2, 3)


def test_r6_a_killed_winner_is_survived_by_another() -> None:
    """The winner dies before it entered: another one serves."""
    fleet = Fleet().serving()
    fleet.silence(1)
    fleet.elect()
    fleet.silence(2)

    fleet.elect()
    fleet.enter(10)

    assert (fleet.set.master, fleet.set.has_entered) == (3, True)


def test_s08_nobody_eligible_changes_no_epoch_and_keeps_the_set() -> None:
    """The reasons are on record; the old member is elected on its return, without the unclean verb."""
    fleet = alone()
    fleet.silence(1)
    before = fleet.set

    reply = fleet.want(fleet.elect(), Refused)

    assert reply.code is RefusalCode.NO_ELIGIBLE_REPLICA
    assert reply.verdict is not None
    assert {c.broker_id: c.reason for c in reply.verdict.candidates} == {
        1: "silent (timeout)",
        2: "not in SyncStateSet; unclean election is off",
        3: "not in SyncStateSet; unclean election is off",
    }
    assert fleet.event(ElectionFailed).verdict == reply.verdict
    assert fleet.set == before
    assert condition_of(fleet.set)[0] is Condition.NO_ELIGIBLE_REPLICA

    fleet.do(fleet.registration(1, incarnation="i1.2"))
    assert condition_of(fleet.set)[0] is Condition.MASTER_SILENT
    assert fleet.want(fleet.elect(), Elected).verdict.winner == 1


# --- R8 --------------------------------------------------------------------------------------------------------------


def test_r8_the_first_election_waits_for_the_expected_replicas_and_takes_all_of_them() -> None:
    """Two of three are not enough; the first set is all of them."""
    fleet = Fleet().joined(1, 2)
    assert condition_of(fleet.set)[0] is Condition.WAITING_FOR_REPLICAS
    assert refusal_of(fleet.elect()) is RefusalCode.NO_ELIGIBLE_REPLICA

    fleet.joined(3)
    elected = fleet.want(fleet.elect(), Elected)

    assert elected.verdict.kind is ElectionKind.FIRST
    assert (fleet.set.master_epoch, fleet.set.sync_state_set) == (1, ids(1, 2, 3))


def test_r8_a_log_with_records_needs_bootstrap() -> None:
    """By its registration or by the evidence; nothing is elected, nothing is cut."""
    fleet = Fleet().joined(1, configuration=TWO)
    fleet.grant("code-2")
    fleet.do(fleet.registration(2, holds=positions(10, epoch=5), configuration=TWO))
    assert condition_of(fleet.set)[0] is Condition.NEEDS_BOOTSTRAP
    assert refusal_of(fleet.elect()) is RefusalCode.NO_ELIGIBLE_REPLICA

    elected = fleet.want(fleet.bootstrap(2), Elected)

    assert elected.verdict.kind is ElectionKind.BOOTSTRAP
    assert fleet.set.sync_state_set == ids(2)
    assert fleet.set.master_epoch == 6  # above every epoch in its log
    assert refusal_of(fleet.bootstrap(1)) is RefusalCode.NOT_BOOTSTRAPPABLE


def test_r8_bootstrap_names_a_replica_that_can_be_master() -> None:
    """Unknown, silent: refused."""
    fleet = Fleet().joined(1)
    assert refusal_of(fleet.bootstrap(7)) is RefusalCode.UNKNOWN_REPLICA
    fleet.silence(1)
    assert refusal_of(fleet.bootstrap(1)) is RefusalCode.NOT_ELIGIBLE


def test_r8_a_first_election_without_anybody_alive_is_refused() -> None:
    """All have registered, all are gone."""
    fleet = Fleet().joined(1, configuration=ONE)
    fleet.silence(1)

    assert refusal_of(fleet.elect()) is RefusalCode.NO_ELIGIBLE_REPLICA
    assert condition_of(fleet.set)[0] is Condition.NO_ELIGIBLE_REPLICA


def test_r8_a_replica_with_unknown_records_is_refused_never_cut() -> None:
    """Its last epoch is none that this set has issued."""
    for epoch in (-1, 0, 2):
        fleet = Fleet().serving()
        fleet.grant("code-4")
        reply = fleet.do(fleet.registration(4, holds=positions(10, epoch=epoch)))
        assert refusal_of(reply) is RefusalCode.UNKNOWN_RECORDS
        assert refusal_of(fleet.do(fleet.registration(4, holds=positions(10, epoch=1)))) is None


def test_r8_cleaning_a_master_that_is_not_fenced_counts_as_unclean() -> None:
    """A timeout is no proof that it stopped; a goodbye is."""
    fleet = Fleet().serving()
    assert refusal_of(fleet.clean()) is RefusalCode.MASTER_NOT_FENCED
    fleet.silence(1)
    assert refusal_of(fleet.clean(1)) is RefusalCode.MASTER_NOT_FENCED

    assert isinstance(fleet.clean(1, is_unclean=True), Done)
    assert fleet.set.master is None
    assert fleet.set.master_epoch == 2
