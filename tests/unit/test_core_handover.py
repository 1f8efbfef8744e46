"""
A master that stops on purpose: its election is a handover, whenever it is held.
"""

from __future__ import annotations

from rollcall_ha.controller.contract.events import ElectionFailed
from rollcall_ha.controller.contract.replies import Elected
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.controller.core.history import history_of
from tests.support.core_builders import Fleet
from tests.support.core_fleets import alone


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
