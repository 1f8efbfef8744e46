"""R7: controllers that have lost what they knew, or know less than a replica."""

from __future__ import annotations

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import FEATURE_LEVEL
from rollcall_ha.controller.contract.events import (
    ReplicaRegistered,
)
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    FleetIncarnation,
    MasterEpoch,
)
from rollcall_ha.controller.contract.replies import Condition, Done, Elected, IdGranted, Refused, Registered
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.controller.core.recovery import EPOCH_JUMP, begin_again, lacks_confirmed
from rollcall_ha.controller.core.state import REPLICAS_PER_SET_MAX
from rollcall_ha.controller.core.views import condition_of
from tests.support.core_builders import NOTHING, OLD_FLEET, Fleet, ids, positions, refusal, stored
from tests.support.core_fleets import (
    TWO,
    refusal_of,
    wiped,
)

# --- R7 --------------------------------------------------------------------------------------------------------------


def test_r7_after_a_wipe_nothing_is_decided_before_all_named_replicas_have_reported() -> None:
    """No election, no id, no cleaning; alone {A} of a later view could have shrunk the set that the others name."""
    fleet = wiped((2, 9, 4, (1, 2)))
    assert condition_of(fleet.set)[0] is Condition.WAITING_FOR_REPORTS
    assert fleet.event(ReplicaRegistered).awaited_reports == ids(1)

    assert refusal_of(fleet.elect()) is RefusalCode.WAITING_FOR_REPORTS
    assert refusal_of(fleet.grant("code-new")) is RefusalCode.WAITING_FOR_REPORTS
    assert refusal_of(fleet.clean()) is RefusalCode.WAITING_FOR_REPORTS
    assert refusal_of(fleet.bootstrap(2)) is RefusalCode.NOT_BOOTSTRAPPABLE


def test_r7_the_newest_view_wins_and_its_longest_member_is_elected_in_an_epoch_that_jumps() -> None:
    """The set was {1,2,3}, shrunk to {1,3} just before the wipe: 2 must not be elected though it is alive."""
    fleet = wiped((2, 9, 4, (1, 2, 3)), (1, 9, 5, (1, 3)), (3, 9, 4, (1, 2, 3)))
    assert fleet.set.sync_state_set == ids(1, 3)

    elected = fleet.want(fleet.elect(evidence=fleet.evidence(draw=7)), Elected)

    assert elected.verdict.winner == 3
    assert elected.verdict.policy == "restored@1"
    assert elected.verdict.master_epoch == 8 * EPOCH_JUMP
    assert elected.verdict.sync_state_set_epoch > 5
    assert elected.verdict.sync_state_set == ids(3)
    assert fleet.set.recovery is None
    assert isinstance(fleet.grant("code-new"), IdGranted)


def test_r7_whoever_is_heard_first_was_elected_although_another_member_had_reported_more() -> None:
    """2 lost its tail and its heartbeat comes first; 3 has registered with more and has yet to say that it is ready."""
    fleet = wiped((2, 9, 4, (2, 3)), (3, 9, 4, (2, 3)))

    for evidence in (fleet.evidence(unready=(3,)), fleet.evidence(unheard=(3,))):
        reply = fleet.elect(evidence=evidence)
        assert refusal_of(reply) is RefusalCode.NO_ELIGIBLE_REPLICA
        assert isinstance(reply, Refused)
        assert reply.verdict is not None
        reasons = {candidate.broker_id: candidate.reason for candidate in reply.verdict.candidates}
        assert reasons[BrokerId(2)] == "ends in epoch 9 at 200; member 3 reported epoch 9, 300"
    assert fleet.want(fleet.elect(), Elected).verdict.winner == 3


def test_r7_a_member_that_died_after_its_report_is_not_replaced_by_one_that_holds_less() -> None:
    """What it reported may have been acknowledged by a set that was smaller than the newest view says."""
    fleet = wiped((2, 9, 4, (2, 3)), (3, 9, 4, (2, 3)))
    fleet.silence(3)

    assert refusal_of(fleet.elect()) is RefusalCode.NO_ELIGIBLE_REPLICA
    assert refusal_of(fleet.elect(2)) is RefusalCode.NOT_ELIGIBLE
    assert fleet.want(fleet.elect_unclean(1 << 40), Elected).verdict.winner == 2


def test_r7_an_operator_may_force_it_with_the_unclean_verb() -> None:
    """The missing replica never comes: the loss is accepted, the kind says so."""
    fleet = wiped((2, 9, 4, (1, 2)))

    elected = fleet.want(fleet.elect_unclean(0, evidence=fleet.evidence(draw=15)), Elected)

    assert elected.verdict.kind is ElectionKind.UNCLEAN
    assert elected.verdict.master_epoch == 16 * EPOCH_JUMP


def test_r7_an_operator_may_stop_waiting_for_one_replica_by_cleaning_it() -> None:
    """Once nobody is awaited any more the newest view is adopted."""
    fleet = wiped((2, 9, 4, (1, 2, 3)), (3, 9, 4, (1, 2, 3)))

    assert isinstance(fleet.clean(1, is_unclean=True), Done)

    assert fleet.set.sync_state_set == ids(2, 3)
    assert fleet.want(fleet.elect(), Elected).verdict.winner == 3


def test_r7_a_late_replica_of_the_old_fleet_is_admitted_after_the_recovery() -> None:
    """It keeps its id, follows the new epoch, and disturbs nobody."""
    fleet = wiped((2, 9, 4, (2,)))
    fleet.elect()

    reply = fleet.want(
        fleet.do(fleet.registration(3, holds=positions(50, epoch=8), view=stored(8, 2, 2, 3))), Registered
    )

    assert reply.broker_id == 3
    assert fleet.set.recovery is None


def test_r7_a_restored_backup_waits_for_its_members_and_adopts_what_they_know() -> None:
    """The backup knows {1,2,3} in epoch 1; the fleet went on to {2} in epoch 4."""
    fleet = Fleet().serving()
    fleet.state = begin_again(fleet.state, FleetIncarnation("e" * 32))
    assert condition_of(fleet.set)[0] is Condition.WAITING_FOR_REPORTS
    assert refusal_of(fleet.elect()) is RefusalCode.WAITING_FOR_REPORTS

    fleet.do(fleet.registration(1, holds=positions(10)))
    fleet.do(fleet.registration(2, incarnation="i2.7", holds=positions(40, epoch=4), view=stored(4, 9, 2)))
    fleet.do(fleet.registration(3, holds=positions(10)))

    assert fleet.set.sync_state_set == ids(2)
    elected = fleet.want(fleet.elect(), Elected)
    assert elected.verdict.winner == 2
    assert elected.verdict.master_epoch == EPOCH_JUMP
    assert elected.verdict.sync_state_set_epoch > 9


def test_r7_a_member_that_restarts_during_the_recovery_stays_named() -> None:
    """Nobody leaves the set while it is taken over; a member without proof is a suspect that may win by its length."""
    fleet = wiped((1, 9, 4, (1, 2)), (2, 9, 4, (1, 2)))
    fleet.do(fleet.registration(1, incarnation="i1.2", boot="boot-2", holds=positions(400, epoch=9)))

    assert fleet.set.sync_state_set == ids(1, 2)
    assert fleet.want(fleet.elect(), Elected).verdict.winner == 1


def test_r7_a_member_that_knows_a_higher_epoch_starts_a_recovery_of_a_serving_set() -> None:
    """The controllers were rolled back under a living master: it is adopted again in a new epoch, alters wait."""
    fleet = Fleet().serving(replicas=(1, 2), configuration=TWO)
    fleet.do(fleet.registration(2, incarnation="i2.2", holds=positions(10, epoch=5)))
    assert fleet.set.recovery is not None

    assert refusal_of(fleet.do(fleet.alter(1))) is RefusalCode.WAITING_FOR_REPORTS
    fleet.do(fleet.registration(1, holds=positions(70, epoch=5)))

    elected = fleet.want(fleet.elect(evidence=fleet.evidence({1: positions(70, epoch=5)})), Elected)
    assert (elected.verdict.winner, elected.verdict.master_epoch) == (1, EPOCH_JUMP)


def test_r7_members_with_open_sessions_were_awaited_for_ever() -> None:
    """They had registered before somebody showed what the controllers had forgotten; nobody asked them again."""
    fleet = Fleet().serving()
    before = fleet.replica(1).session_ordinal

    fleet.do(fleet.registration(2, incarnation="i2.2", holds=positions(10, epoch=5)))

    assert fleet.replica(1).session_ordinal > before, "its next heartbeat is refused, and it registers again"
    fleet.do(fleet.registration(1, holds=positions(70, epoch=5)))
    fleet.do(fleet.registration(3, holds=positions(70, epoch=5)))
    assert fleet.set.recovery is not None
    assert fleet.set.recovery.awaited == ()


def test_r21_an_alter_of_a_later_epoch_does_not_end_its_reign() -> None:
    """The controllers are the ones who have forgotten (R7); "stop acknowledging" was the answer."""
    fleet = Fleet().serving()
    alter = replace(fleet.alter(1, 2), master_epoch=MasterEpoch(fleet.set.master_epoch + 1))
    before = fleet.set

    assert refusal_of(fleet.do(alter)) is RefusalCode.WAITING_FOR_REPORTS
    assert fleet.set == before


def test_r7_a_view_of_this_fleet_with_a_higher_set_epoch_starts_a_recovery() -> None:
    """Rolled back within one epoch: the set that it names is not the one that is stored here."""
    fleet = Fleet().serving(replicas=(1, 2), configuration=TWO)
    view = stored(1, 7, 1, fleet=fleet.state.fleet_incarnation)

    fleet.do(fleet.registration(2, incarnation="i2.2", view=view))

    assert fleet.set.recovery is not None
    assert fleet.set.recovery.awaited == ids(1)


def test_r7_a_stranger_of_another_fleet_is_refused_by_a_settled_set() -> None:
    """Its higher epoch must not drag a healthy set into a recovery (S64)."""
    fleet = Fleet().serving()

    reply = fleet.do(fleet.registration(9, holds=positions(10, epoch=50), view=stored(50, 1, 9)))

    assert refusal_of(reply) is RefusalCode.WRONG_FLEET


def test_r7_learners_are_not_adopted_into_the_set() -> None:
    """R23 also while a set is taken over."""
    fleet = Fleet()
    fleet.do(fleet.registration(1, holds=positions(10, epoch=9), view=stored(9, 4, 1, 2)))
    fleet.do(fleet.registration(2, holds=positions(10, epoch=9), view=stored(9, 4, 1, 2), is_learner=True))

    assert fleet.set.sync_state_set == ids(1)


SHORT = "ends at 500, below the known confirm offset 900"


def put_back() -> Fleet:
    """Controllers put back from a copy, one member back as a learner; then the other one's volume is put back as well."""
    fleet = Fleet().serving(replicas=(1, 2), configuration=TWO)
    view = stored(1, 7, 1, 2, fleet=fleet.state.fleet_incarnation)
    whole = positions(900, confirm=900)
    fleet.do(fleet.registration(1, incarnation="i1.2", holds=whole, view=view))
    fleet.do(fleet.registration(2, incarnation="i2.2", holds=whole, view=view, is_learner=True))
    assert (fleet.set.sync_state_set, fleet.set.known_confirm) == (ids(1), 900)
    assert fleet.set.recovery is not None
    fleet.do(fleet.registration(1, incarnation="i1.3", holds=positions(500, confirm=500), view=view))
    return fleet


def test_r7_the_only_member_of_a_set_that_recovers_was_elected_with_less_than_was_confirmed() -> None:
    """It had reported all that was acknowledged; then its volume was put back, and as the last member it was the longest."""
    fleet = put_back()
    reply = fleet.elect()
    assert refusal_of(reply) is RefusalCode.NO_ELIGIBLE_REPLICA
    assert isinstance(reply, Refused)
    assert SHORT in reply.reason
    assert fleet.want(fleet.elect_unclean(1 << 40), Elected).verdict.kind is ElectionKind.UNCLEAN


def test_r7_a_member_that_lacks_what_was_confirmed_was_said_to_be_electable() -> None:
    assert condition_of(put_back().set) == (Condition.NO_ELIGIBLE_REPLICA, f"in SyncStateSet: 1 {SHORT}")


def lost_reign(*, wiped: bool = False, level: int = FEATURE_LEVEL) -> Fleet:
    """
    Of epoch 4, which the controllers have lost, the only member had reported all; then its volume is put back.

    2 follows it and was no member, 3 is a learner.
    """
    fleet = Fleet() if wiped else Fleet().serving()
    fleet.state = replace(fleet.state, feature_level=level)
    view = stored(4, 9, 1, fleet=OLD_FLEET if wiped else fleet.state.fleet_incarnation)
    fleet.do(fleet.registration(1, incarnation="i1.2", holds=positions(900, epoch=4, confirm=900), view=view))
    fleet.do(fleet.registration(2, incarnation="i2.2", holds=positions(300, epoch=4, confirm=300), view=view))
    fleet.do(fleet.registration(3, incarnation="i3.2", holds=NOTHING, view=view, is_learner=True))
    fleet.do(fleet.registration(1, incarnation="i1.3", holds=positions(500, epoch=4, confirm=500), view=view))
    assert (fleet.set.sync_state_set, fleet.set.master_epoch) == (ids(1), 0 if wiped else 1)
    return fleet


LOST_SHORT = "ends in epoch 4 at 500, below the known confirm offset 900 of epoch 4"


@pytest.mark.parametrize("wiped", [False, True])
def test_r7_a_member_was_elected_with_less_than_it_had_reported_of_a_reign_that_the_controllers_lost(
    *, wiped: bool
) -> None:
    """Of a later reign than their own nothing was held against a log, also not what was reported a moment ago."""
    fleet = lost_reign(wiped=wiped)
    assert condition_of(fleet.set) == (Condition.NO_ELIGIBLE_REPLICA, f"in SyncStateSet: 1 {LOST_SHORT}")

    for reply in (refusal(fleet.elect()), refusal(fleet.elect(1))):
        assert LOST_SHORT in reply.reason
        assert "rollcall elect --unclean" in reply.hint
    refused = refusal(fleet.elect_unclean(399, 1))
    assert (refused.code, refused.current) == (RefusalCode.NOT_CONFIRMED, "400")
    assert fleet.want(fleet.elect_unclean(400, 1), Elected).verdict.kind is ElectionKind.UNCLEAN


def test_r7_a_longer_log_of_an_older_reign_was_taken_for_one_that_holds_what_was_confirmed() -> None:
    """950 bytes of epoch 3 are more than 900, and lack what epoch 4 has confirmed of its own."""
    fleet = lost_reign()
    fleet.do(fleet.registration(1, incarnation="i1.4", holds=positions(950, epoch=3), view=stored(4, 9, 1)))

    assert "ends in epoch 3 at 950, below the known confirm offset 900 of epoch 4" in refusal(fleet.elect()).reason


def test_r7_a_log_of_a_reign_after_the_confirmed_one_is_not_measured_by_it() -> None:
    """1 and 2 had 900 confirmed bytes in epoch 4; 3 was elected uncleanly in 5, which the controllers lost as well."""
    fleet = Fleet().serving()
    for broker_id in (1, 2):
        holds = positions(900, epoch=4, confirm=900)
        fleet.do(fleet.registration(broker_id, incarnation=f"i{broker_id}.2", holds=holds, view=stored(4, 9, 1, 2)))
    fleet.do(fleet.registration(3, incarnation="i3.2", holds=positions(500, epoch=5), view=stored(5, 10, 3)))

    assert fleet.want(fleet.elect(), Elected).verdict.winner == 3


@pytest.mark.parametrize("epoch", [1, 4])
def test_r7_a_survivor_that_lacks_what_was_confirmed_stood_in_the_new_set(epoch: int) -> None:
    """Its volume was put back before it reported; when it was judged, nobody had told of the 900 confirmed bytes yet."""
    fleet = Fleet().serving(replicas=(1, 2), configuration=TWO)
    view = stored(epoch, 7, 1, 2, fleet=fleet.state.fleet_incarnation)
    fleet.do(fleet.registration(2, incarnation="i2.2", holds=positions(500, epoch=epoch, confirm=500), view=view))
    fleet.do(fleet.registration(1, incarnation="i1.2", holds=positions(900, epoch=epoch, confirm=900), view=view))
    assert fleet.set.is_intact_member(fleet.replica(2))

    elected = fleet.want(fleet.elect(), Elected)

    assert (elected.verdict.winner, elected.verdict.sync_state_set) == (1, ids(1))


def test_r7_below_level_2_a_recovery_does_not_keep_what_was_confirmed() -> None:
    """R15: an older controller in the quorum elects; one that does not would have a state of its own."""
    fleet = lost_reign(level=1)
    assert fleet.set.recovery is not None
    assert (fleet.set.recovery.confirmed, fleet.event(ReplicaRegistered).confirmed) == (UNSET, UNSET)

    assert fleet.want(fleet.elect(), Elected).verdict.winner == 1


def test_r7_a_log_of_a_later_reign_is_not_measured_by_what_was_confirmed_before_it() -> None:
    """The backup knows 900 confirmed bytes of epoch 1; in epoch 4 an unclean election had taken half of them."""
    fleet = Fleet().serving(replicas=(1, 2), configuration=TWO)
    fleet.state = replace(
        fleet.state, sets={key: replace(one, known_confirm=900) for key, one in fleet.state.sets.items()}
    )
    view = stored(4, 9, 2, fleet=fleet.state.fleet_incarnation)
    for broker_id in (1, 2):
        holds = positions(500, epoch=4)
        fleet.do(fleet.registration(broker_id, incarnation=f"i{broker_id}.2", holds=holds, view=view))

    assert fleet.want(fleet.elect(), Elected).verdict.winner == 2


def test_r7_an_id_whose_grant_was_lost_with_the_controllers_entries_waited_for_a_person() -> None:
    """They were put back from a copy and the set has gone on since: nothing of what the replica shows is news."""
    fleet = Fleet().serving(replicas=(1, 2), configuration=TWO)
    members, view = fleet.set.sync_state_set, stored(1, 1, 1, 2, fleet=fleet.state.fleet_incarnation)

    reply = fleet.want(fleet.do(fleet.registration(3, view=view)), Registered)

    assert (reply.broker_id, reply.is_in_sync) == (3, False)
    assert (fleet.set.recovery, fleet.set.sync_state_set) == (None, members)
    assert isinstance(fleet.grant("code-new"), IdGranted)
    assert fleet.set.next_id == 5


def test_r7_an_id_whose_grant_was_lost_is_no_second_one_of_the_same_directory() -> None:
    fleet = Fleet().serving(replicas=(1, 2), configuration=TWO)
    view = stored(1, 1, 1, 2, fleet=fleet.state.fleet_incarnation)

    reply = fleet.do(fleet.registration(3, code="code-2", view=view))

    assert refusal_of(reply) is RefusalCode.BROKER_ID_INVALID


def test_r7_an_id_far_ahead_is_no_lost_grant() -> None:
    """Taken, a forged 2**62 would leave no id to grant."""
    fleet = Fleet().serving(replicas=(1, 2), configuration=TWO)
    view = stored(1, 1, 1, 2, fleet=fleet.state.fleet_incarnation)

    reply = fleet.do(fleet.registration(3 + REPLICAS_PER_SET_MAX, view=view))

    assert refusal_of(reply) is RefusalCode.NEED_TO_BE_REGISTERED
    assert fleet.set.next_id == 3


def test_r7_replicas_of_rocketmq_are_not_measured_by_what_was_confirmed() -> None:
    """A power cut may take the tails of all of them; outside of a recovery the longest log is elected as well."""
    fleet = Fleet().serving_java(TWO)
    found = replace(fleet.set, known_confirm=900)

    assert lacks_confirmed(found, fleet.replica(1), positions(500)) == ""


def test_r7_a_cleaned_replica_was_awaited_again_and_let_in_because_a_later_report_named_it() -> None:
    """The set waited for a machine that an operator had given up, until somebody cleaned it once more."""
    fleet = wiped((2, 9, 4, (1, 2, 3)))
    assert isinstance(fleet.clean(1, is_unclean=True), Done)
    fleet.do(fleet.registration(3, holds=positions(300, epoch=9), view=stored(9, 4, 1, 2, 3)))

    assert fleet.set.recovery is not None
    assert fleet.set.recovery.awaited == ()
    late = fleet.do(fleet.registration(1, holds=positions(100, epoch=9), view=stored(9, 4, 1, 2, 3)))
    assert refusal_of(late) is RefusalCode.TOMBSTONED
    assert fleet.want(fleet.elect(), Elected).verdict.winner == 3


def test_r7_a_replica_that_was_cleaned_before_the_recovery_began_was_awaited_in_it() -> None:
    """1 was down when 3 was cleaned; controllers that are put back hear its old view."""
    fleet = Fleet().serving()
    fleet.silence(3)
    assert isinstance(fleet.clean(3), Done)
    fleet.do(fleet.registration(2, incarnation="i2.2", holds=positions(100, epoch=9), view=stored(9, 20, 1, 2)))
    fleet.do(fleet.registration(1, incarnation="i1.2", holds=positions(90, epoch=1), view=stored(1, 1, 1, 2, 3)))

    assert fleet.set.recovery is not None
    assert fleet.set.recovery.awaited == ()


def test_r7_at_feature_level_1_a_cleaned_replica_is_awaited_as_the_older_program_has_it() -> None:
    fleet = wiped((2, 9, 4, (1, 2, 3)))
    fleet.state = replace(fleet.state, feature_level=1)
    assert isinstance(fleet.clean(1, is_unclean=True), Done)
    fleet.do(fleet.registration(3, holds=positions(300, epoch=9), view=stored(9, 4, 1, 2, 3)))

    assert fleet.set.kept_out is UNSET
    assert fleet.set.recovery is not None
    assert fleet.set.recovery.awaited == ids(1)


def test_r7_a_replica_that_is_awaited_was_refused_as_cleaned_because_another_one_was() -> None:
    """Its id lay below the next one, and it had not registered yet: the set waited for it, and never let it in."""
    fleet = wiped((2, 9, 4, (1, 2, 3)), (4, 9, 4, (1, 2, 3)))

    assert isinstance(fleet.clean(1, is_unclean=True), Done)
    assert fleet.set.recovery is not None
    assert fleet.set.recovery.awaited == ids(3)
    late = fleet.do(fleet.registration(3, holds=positions(40, epoch=9), view=stored(9, 4, 1, 2, 3)))

    assert fleet.want(late, Registered).broker_id == 3


def with_a_newcomer(level: int | None = None) -> Fleet:
    """Wiped controllers gave id 1 to an empty machine; then 2 tells that it was in {1,2} until then."""
    fleet = Fleet()
    if level is not None:
        fleet.state = replace(fleet.state, feature_level=level)
    assert fleet.grant("code-new") == IdGranted(broker_id=BrokerId(1))
    fleet.want(fleet.do(fleet.registration(1, code="code-new", incarnation="new")), Registered)
    fleet.do(fleet.registration(2, holds=positions(100, epoch=9), view=stored(9, 4, 1, 2)))
    # A recovery has begun: whoever registered before it registers again.
    fleet.do(fleet.registration(1, code="code-new", incarnation="new"))
    return fleet


def test_r7_an_empty_machine_that_was_first_after_a_wipe_spoke_for_the_member_whose_id_it_got() -> None:
    """The member was "another register code" until a person emptied it, with all that it alone held."""
    fleet = with_a_newcomer()
    assert fleet.set.recovery is not None
    assert fleet.set.recovery.awaited == ids(1)
    assert refusal_of(fleet.elect()) is RefusalCode.WAITING_FOR_REPORTS

    member = fleet.registration(1, holds=positions(300, epoch=9), view=stored(9, 4, 1, 2), lives=())
    assert fleet.want(fleet.do(replace(member, replaces=None)), Registered).broker_id == 1

    assert fleet.want(fleet.elect(), Elected).verdict.winner == 1
    late = fleet.do(fleet.registration(1, code="code-new", incarnation="newer"))
    assert refusal_of(late) is RefusalCode.BROKER_ID_INVALID
    assert fleet.grant("code-new") == IdGranted(broker_id=BrokerId(3))


def test_r7_a_newcomer_yields_its_id_to_nobody_who_tells_no_past() -> None:
    fleet = with_a_newcomer()

    late = fleet.do(fleet.registration(1, code="code-other", incarnation="other"))

    assert refusal_of(late) is RefusalCode.BROKER_ID_INVALID


def test_r7_at_feature_level_1_a_newcomer_reports_as_the_older_program_has_it() -> None:
    fleet = with_a_newcomer(1)

    assert fleet.set.recovery is not None
    assert (fleet.set.recovery.awaited, fleet.set.recovery.newcomers) == ((), UNSET)


def test_r7_a_replica_that_the_copy_of_put_back_controllers_knew_was_not_awaited() -> None:
    """1 and 2 tell {1,2}; 3 may have come in after they died, and been left alone: nobody else would know."""
    fleet = Fleet().serving()
    fleet.do(fleet.registration(3, incarnation="i3.2", holds=positions(80, epoch=1), boot="boot-2"))
    assert fleet.set.sync_state_set == ids(1, 2)
    for broker_id in (1, 2):
        incarnation = f"i{broker_id}.2"
        holds, view = positions(100, epoch=9), stored(9, 20, 1, 2)
        fleet.do(fleet.registration(broker_id, incarnation=incarnation, holds=holds, view=view))

    assert fleet.set.recovery is not None
    assert fleet.set.recovery.awaited == ids(3)


def test_r7_an_empty_replica_that_the_copy_knew_was_taken_for_a_newcomer() -> None:
    """3 had just come when the copy was taken; it may have become a member since, and been left alone."""
    fleet = Fleet().serving(replicas=(1, 2), configuration=TWO)
    fleet.grant("code-3")
    fleet.want(fleet.do(fleet.registration(3)), Registered)
    fleet.do(fleet.registration(1, incarnation="i1.2", holds=positions(100, epoch=9), view=stored(9, 20, 1, 2)))
    fleet.do(fleet.registration(2, incarnation="i2.2", holds=positions(100, epoch=9), view=stored(9, 20, 1, 2)))

    assert fleet.set.recovery is not None
    assert fleet.set.recovery.awaited == ids(3)
