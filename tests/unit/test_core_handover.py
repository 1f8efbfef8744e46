"""
Replicas that stop on purpose: the election that follows is a handover, and nobody waits for them.
"""

from __future__ import annotations

import copy

from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import AnnounceStop, SayGoodbye
from rollcall_ha.controller.contract.events import ElectionFailed, StopAnnounced
from rollcall_ha.controller.contract.ids import LogOffset, MasterEpoch
from rollcall_ha.controller.contract.replies import Done, Elected
from rollcall_ha.controller.contract.values import CleanMark
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.controller.core.history import history_of
from rollcall_ha.controller.core.views import set_view
from tests.support.core_builders import Fleet, ids
from tests.support.core_fleets import alone, last_election, refusal_of


def test_a_clean_stop_of_the_master_is_no_failover() -> None:
    fleet = Fleet().serving()
    fleet.goodbye(1)

    elected = fleet.want(fleet.elect(), Elected)

    assert elected.verdict.kind is ElectionKind.HANDOVER
    row = history_of(fleet.records)[0]
    assert (row.kind, row.cause) == (ElectionKind.HANDOVER, "stopped cleanly")


def test_a_restart_of_the_only_member_is_a_handover_to_itself() -> None:
    """It said goodbye and came back before anybody could be elected: the reason is known although it registered."""
    fleet = alone()
    mark = fleet.goodbye(1)
    fleet.elect()
    assert fleet.event(ElectionFailed).verdict.kind is ElectionKind.HANDOVER
    fleet.do(fleet.registration(1, incarnation="i1.2", mark=mark))

    elected = fleet.want(fleet.elect(), Elected)

    assert (elected.verdict.winner, elected.verdict.kind) == (1, ElectionKind.HANDOVER)


def test_a_master_that_is_lost_right_after_a_handover_is_a_failover() -> None:
    fleet = Fleet().serving()
    fleet.goodbye(1)
    fleet.elect()
    fleet.silence(2)

    assert fleet.want(fleet.elect(), Elected).verdict.kind is ElectionKind.FAILOVER


def test_a_goodbye_of_a_master_that_was_found_silent_before_stays_a_failover() -> None:
    """Its set had lost it for a minute when it said goodbye: that minute was not planned."""
    fleet = Fleet().serving()
    fleet.silence(1)
    fleet.goodbye(1)

    assert fleet.want(fleet.elect(), Elected).verdict.kind is ElectionKind.FAILOVER


def test_a_goodbye_that_was_taken_back_plans_nothing() -> None:
    """The same process opened a session again, and was lost later."""
    fleet = Fleet().serving()
    fleet.goodbye(1)
    fleet.do(fleet.registration(1))
    fleet.silence(1)

    assert fleet.want(fleet.elect(), Elected).verdict.kind is ElectionKind.FAILOVER


def test_a_slave_that_stops_plans_nothing_for_its_master() -> None:
    fleet = Fleet().serving()
    fleet.goodbye(2)
    fleet.silence(1)

    assert fleet.want(fleet.elect(), Elected).verdict.kind is ElectionKind.FAILOVER


def _stopping(fleet: Fleet, broker_id: int, *, epoch: int = 1) -> AnnounceStop:
    replica = fleet.replica(broker_id)
    assert replica.incarnation is not None
    return AnnounceStop(
        set_key=fleet.key,
        broker_id=replica.broker_id,
        incarnation=replica.incarnation,
        session_ordinal=replica.session_ordinal,
        master_epoch=MasterEpoch(epoch),
    )


def test_a_master_that_is_about_to_stop_gets_a_successor_and_leaves_the_set_with_its_reign() -> None:
    """Were it left in the set, the winner would wait for it from the moment that it is gone until it is removed."""
    fleet = Fleet().serving()

    elected = fleet.want(fleet.do(_stopping(fleet, 1), evidence=fleet.evidence()), Elected)

    assert (elected.verdict.kind, elected.verdict.winner) == (ElectionKind.HANDOVER, 2)
    assert elected.view.sync_state_set == ids(2, 3)
    assert history_of(fleet.records)[0].cause == "handed over: asked to stop"
    assert fleet.replica(1).is_alive


def test_nobody_to_hand_over_to_leaves_the_master_as_it_is_and_no_failed_election() -> None:
    """A set of one; a set whose other members are silent, or about to stop themselves."""
    lonely, silent, shut_down = alone(), Fleet().serving(), Fleet().serving()
    silent.silence(2)
    silent.silence(3)
    for broker_id in (2, 3):
        assert isinstance(shut_down.do(_stopping(shut_down, broker_id)), Done)

    for fleet in (lonely, silent, shut_down):
        reply = fleet.do(_stopping(fleet, 1), evidence=fleet.evidence())

        assert refusal_of(reply) is RefusalCode.NO_ELIGIBLE_REPLICA
        assert (fleet.set.master, fleet.set.master_epoch) == (1, 1)
        assert not any(isinstance(record.event, ElectionFailed) for record in fleet.records)


def test_r1_a_stop_that_was_announced_in_an_older_reign_deposes_nobody() -> None:
    """It drained the reign of epoch 1, was deposed, and is master again: of this reign nothing is drained."""
    fleet = Fleet().serving()
    late = _stopping(fleet, 1)
    fleet.elect(to=2, master=1, epoch=1)
    fleet.elect(to=1, master=2, epoch=2)

    assert refusal_of(fleet.do(late, evidence=fleet.evidence())) is RefusalCode.FENCED_MASTER_EPOCH
    assert fleet.set.master_epoch == 3


def test_a_slave_that_is_about_to_stop_is_shown_to_its_master_and_elected_last() -> None:
    fleet = Fleet().serving()
    assert isinstance(fleet.do(_stopping(fleet, 2)), Done)
    assert isinstance(fleet.do(_stopping(fleet, 2)), Done)

    view = set_view(fleet.state, fleet.set, term=1, index=1)
    assert [member.is_stopping for member in view.members] == [False, True, False]
    assert sum(isinstance(record.event, StopAnnounced) for record in fleet.records) == 1
    fleet.silence(1)
    elected = fleet.want(fleet.elect(), Elected)
    assert (elected.verdict.winner, elected.view.sync_state_set) == (3, ids(3))


def test_the_only_member_left_is_elected_although_it_is_about_to_stop() -> None:
    fleet = Fleet().serving()
    fleet.do(_stopping(fleet, 2))
    fleet.silence(1)
    fleet.silence(3)

    assert fleet.want(fleet.elect(), Elected).verdict.winner == 2


def test_a_stop_that_was_announced_ends_with_the_next_session() -> None:
    fleet = Fleet().serving()
    fleet.do(_stopping(fleet, 2))

    fleet.do(fleet.registration(2))

    assert not fleet.replica(2).is_stopping


def test_a_goodbye_after_a_handover_that_nobody_took_is_an_outage_from_the_last_send() -> None:
    """Both slaves hung: the master drained for 2 s in vain. From its goodbye on, the record would be 2 s short."""
    fleet = Fleet().serving()
    replica = fleet.replica(1)
    assert replica.incarnation is not None
    goodbye = SayGoodbye(
        set_key=fleet.key,
        broker_id=replica.broker_id,
        incarnation=replica.incarnation,
        session_ordinal=replica.session_ordinal,
        clean_mark=CleanMark(nonce="n", end_offset=LogOffset(0)),
        stopped_us=2_100_000,
    )
    for told, expected in ((2_100_000, 2_100_000), (-5, 0), (2**62, 0)):
        again = copy.deepcopy(fleet)
        again.do(replace(goodbye, stopped_us=told))
        again.elect()
        stamps = last_election(again)[1].detection
        assert stamps is not None
        entry_us = 1_000  # between the two entries of this fleet
        assert (stamps.first_sign_age_us, stamps.uncertainty_us) == (expected + entry_us, 0)
