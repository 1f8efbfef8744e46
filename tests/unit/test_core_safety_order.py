"""R3, R6, R7: the order of candidates, the members that an unclean election keeps, and what an election makes known."""

from __future__ import annotations

from rollcall_ha.controller.contract.ids import BrokerId, LogOffset, MasterEpoch, ReplicaKind
from rollcall_ha.controller.contract.replies import Elected
from rollcall_ha.controller.contract.verdicts import CandidateOutcome, CandidateVerdict, ElectionKind, Intactness
from rollcall_ha.controller.core.policies import DATA_FIRST, LONGEST, RESTORED
from rollcall_ha.controller.core.ranking import elect
from tests.support.core_builders import Fleet, ids, positions
from tests.support.core_fleets import TWO, judged, wiped


def candidate(broker_id: int, epoch: int, end: int) -> CandidateVerdict:
    return CandidateVerdict(
        broker_id=BrokerId(broker_id),
        outcome=CandidateOutcome.REJECTED,
        reason="",
        is_alive=True,
        is_in_sync=True,
        heartbeat_age_ms=100,
        last_epoch=MasterEpoch(epoch),
        max_offset=LogOffset(end),
    )


def test_the_epoch_is_compared_before_the_offset() -> None:
    """
    Replica 1 ends in epoch 5 at 100, replica 2 in epoch 4 at 900: the 800 bytes more were never acknowledged in 5.

    By the offset first, replica 2 would win, and what epoch 5 acknowledged would be cut.
    """
    for policy in (DATA_FIRST, LONGEST, RESTORED):
        ranking = elect([candidate(1, 5, 100), candidate(2, 4, 900)], policy=policy)

        assert ranking.winner == 1, policy.name


def test_r7_after_a_wipe_the_longest_is_found_by_epoch_first() -> None:
    """Replica 1 was master of epoch 5 at 100; replica 2 still has 900 bytes of epoch 4."""
    fleet = wiped((1, 5, 9, (1, 2)), (2, 4, 7, (1, 2)))
    evidence = fleet.evidence({1: positions(100, epoch=5), 2: positions(900, epoch=4)})

    elected = fleet.want(fleet.elect(evidence=evidence), Elected)

    assert elected.verdict.winner == 1
    loser = next(each for each in elected.verdict.candidates if each.broker_id == 2)
    assert loser.outcome is CandidateOutcome.EXCLUDED
    assert "member 1 reported epoch 5, 100" in loser.reason


def test_r7_the_later_epoch_is_waited_for_even_if_it_cannot_win_now() -> None:
    """Replica 1 with epoch 5 reported and is silent since: replica 2 with epoch 4 and more bytes is not elected."""
    fleet = wiped((1, 5, 9, (1, 2)), (2, 4, 7, (1, 2)))
    fleet.do(fleet.registration(1, holds=positions(100, epoch=5), incarnation="i1.2"))
    fleet.silence(1)
    evidence = fleet.evidence({2: positions(900, epoch=4)}, unheard=(1,))

    reply = fleet.elect(evidence=evidence)

    assert not isinstance(reply, Elected)


def test_r6_an_unclean_winner_stands_alone_although_an_intact_member_lives() -> None:
    """
    Replica 3 lacks what {1, 2} acknowledged and is designated. Were replica 2 kept as a member, the next failover
    could elect it in a set in which it was never cut to the log of 3.
    """
    fleet = Fleet().serving()
    fleet.do(fleet.alter(1, 2))
    fleet.silence(1)
    evidence = fleet.evidence({1: positions(1000), 2: positions(1000), 3: positions(400)})

    elected = fleet.want(fleet.elect_unclean(600, 3, evidence=evidence), Elected)

    assert elected.verdict.kind is ElectionKind.UNCLEAN
    assert elected.verdict.sync_state_set == ids(3)
    assert fleet.set.sync_state_set == ids(3)


def test_r3_an_election_makes_the_confirm_offset_known_for_the_veto() -> None:
    """
    Confirm was 700 when master 1 was replaced. Replica 3, whose log then ends at 500, has lost something.

    Without the rise at the election, 500 would not be below any known confirm, and 3 would stay a member.
    """
    fleet = Fleet().serving()
    fleet.silence(1)
    evidence = fleet.evidence(
        {1: positions(900, confirm=700), 2: positions(900, confirm=700), 3: positions(900, confirm=600)}
    )
    fleet.elect(evidence=evidence)

    fleet.do(fleet.registration(3, incarnation="i3.2", holds=positions(500)))

    assert judged(fleet) is not Intactness.SAME_BOOT
    assert 3 not in fleet.set.sync_state_set


def test_java_members_are_compared_by_epoch_first() -> None:
    """Both restarted without proof: the one with the later epoch wins, the longer log of an older epoch does not."""
    fleet = Fleet().serving_java(TWO)
    fleet.do(fleet.alter(1, 2))
    for broker_id in (1, 2):
        fleet.do(
            fleet.registration(
                broker_id, incarnation=f"i{broker_id}.2", boot="boot-2", kind=ReplicaKind.ROCKETMQ, configuration=TWO
            )
        )

    elected = fleet.want(
        fleet.elect(evidence=fleet.evidence({1: positions(900, epoch=4), 2: positions(100, epoch=5)})), Elected
    )

    assert elected.verdict.winner == 2
