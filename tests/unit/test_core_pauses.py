"""Pauses of elections in the controllers' core: what they withhold, and how they end."""

from __future__ import annotations

import pytest

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import (
    AnnounceStop,
    AnyCommand,
    ElectMaster,
    MarkSilent,
    PauseElections,
    ResumeElections,
)
from rollcall_ha.controller.contract.events import (
    ElectionsPaused,
    ElectionsResumed,
    ElectionWithheld,
    MasterElected,
    ReplicaSilent,
)
from rollcall_ha.controller.contract.ids import BrokerId, SetKey
from rollcall_ha.controller.contract.labels import in_words
from rollcall_ha.controller.contract.replies import AnyReply, Done, Elected
from rollcall_ha.controller.contract.values import SilenceCause
from rollcall_ha.controller.core.invariants import check_transition
from rollcall_ha.controller.core.pauses import PAUSE_MS_MAX, pause_of
from rollcall_ha.controller.core.snapshot import decode_state, encode_state
from rollcall_ha.controller.core.state import PAUSES_MAX
from tests.support.core_builders import SET_A, SET_B, Fleet, refusal

ALICE = "operator:alice"


def ask(fleet: Fleet, command: AnyCommand, by: str = ALICE) -> AnyReply:
    """As an operator, or another caller."""
    is_election = isinstance(command, ElectMaster | AnnounceStop)
    evidence = fleet.evidence() if is_election else None
    return fleet.apply([fleet.operation(command, requested_by=by, evidence=evidence)]).replies[0]


def paused(*, set_key: SetKey | None = SET_A, reason: str = "new switch") -> Fleet:
    """A set that serves, paused until far ahead."""
    fleet = Fleet().serving()
    assert ask(fleet, PauseElections(set_key=set_key, expires_at_ms=2_000_000, reason=reason)) == Done()
    assert isinstance(fleet.events[-1], ElectionsPaused)
    return fleet


def lose_master(fleet: Fleet) -> None:
    replica = fleet.set.replica(BrokerId(1))
    assert replica is not None
    assert replica.incarnation is not None
    silence = MarkSilent(
        set_key=fleet.key,
        broker_id=replica.broker_id,
        incarnation=replica.incarnation,
        session_ordinal=replica.session_ordinal,
        cause=SilenceCause.DEAD_AT_ONCE,
    )
    fleet.do(silence)
    assert isinstance(fleet.events[-1], ReplicaSilent)


def test_a_persons_broker_1_became_the_name_of_another_machine_where_a_pause_was_told() -> None:
    """The note meant the first broker of a rack; it was shown as said of ``orders-3``, whose id is 1."""
    fleet = paused(reason="disk of broker 1 swapped; master 2 of the rack stays")
    lose_master(fleet)

    told = in_words(refusal(ask(fleet, ElectMaster(set_key=SET_A), "controller:c1")).reason, {BrokerId(2): "orders-1"})
    assert told == (
        "elections of c/broker-a are paused by operator:alice: disk of broker 1 swapped; master 2 of the rack stays; "
        "else replica orders-1 (2) would be master now"
    )


@pytest.mark.parametrize("whose", [SET_A, None])
def test_a_dead_master_in_a_pause_has_no_successor_and_the_record_names_who_it_would_be(whose: SetKey | None) -> None:
    fleet = paused(set_key=whose)
    lose_master(fleet)
    before = fleet.set

    for by in ("controller:c1", "broker:2", "broker@10.0.0.1:5"):
        answer = refusal(ask(fleet, ElectMaster(set_key=SET_A), by))
        (withheld,) = fleet.events
        assert answer.code is RefusalCode.PAUSED
        assert "new switch" in answer.reason
        assert isinstance(withheld, ElectionWithheld)
        assert (withheld.verdict.winner, withheld.verdict.master_epoch, withheld.paused_set) == (2, 2, whose)
        assert fleet.set == before


def test_an_operators_word_elects_in_a_pause() -> None:
    fleet = paused()
    lose_master(fleet)

    assert isinstance(ask(fleet, ElectMaster(set_key=SET_A)), Elected)
    assert fleet.set.master == 2


def test_a_master_that_stops_in_a_pause_goes_without_a_successor() -> None:
    fleet = paused()
    master = fleet.set.replica(BrokerId(1))
    assert master is not None
    assert master.incarnation is not None
    stop = AnnounceStop(
        set_key=SET_A,
        broker_id=master.broker_id,
        incarnation=master.incarnation,
        session_ordinal=master.session_ordinal,
        master_epoch=fleet.set.master_epoch,
    )

    assert refusal(ask(fleet, stop, "broker:1")).code is RefusalCode.PAUSED
    assert fleet.set.master == 1


def test_a_pause_of_another_set_withholds_nothing() -> None:
    fleet = paused()
    other = Fleet(key=SET_B)
    other.state, other.index, other.requests = fleet.state, fleet.index, fleet.requests + 1_000
    other.serving()
    assert other.set.master == 1
    assert pause_of(other.state, SET_B) is None


def test_what_was_withheld_is_held_when_the_pause_is_over() -> None:
    fleet = paused()
    lose_master(fleet)
    refusal(ask(fleet, ElectMaster(set_key=SET_A), "controller:c1"))

    assert ask(fleet, ResumeElections(set_key=SET_A, reason="switch works")) == Done()
    assert fleet.event(ElectionsResumed) == ElectionsResumed(paused_set=SET_A, is_expired=False, reason="switch works")
    assert isinstance(ask(fleet, ElectMaster(set_key=SET_A), "controller:c1"), Elected)


def test_a_leaders_end_of_a_pause_that_was_prolonged_meanwhile_ends_nothing() -> None:
    fleet = paused()
    ask(fleet, PauseElections(set_key=SET_A, expires_at_ms=3_000_000, reason="longer"))

    assert ask(fleet, ResumeElections(set_key=SET_A, expired_at_ms=2_000_000), "controller:c1") == Done()
    assert fleet.events == []
    assert fleet.state.pauses[SET_A].reason == "longer"
    ask(fleet, ResumeElections(set_key=SET_A, expired_at_ms=3_000_000), "controller:c1")
    assert fleet.event(ElectionsResumed).is_expired
    assert fleet.state.pauses == {}


def test_a_set_is_not_said_to_elect_again_while_the_fleet_is_paused() -> None:
    fleet = paused(set_key=None)

    answer = refusal(ask(fleet, ResumeElections(set_key=SET_A)))
    assert (answer.code, "--fleet" in answer.hint) == (RefusalCode.PAUSED, True)


@pytest.mark.parametrize("ends_in_ms", [0, -5, PAUSE_MS_MAX + 1])
def test_a_pause_without_a_sensible_end_is_refused_with_both_times(ends_in_ms: int) -> None:
    fleet = Fleet().serving()
    command = PauseElections(set_key=SET_A, expires_at_ms=5_000_000 + ends_in_ms)
    operation = fleet.operation(command, requested_by=ALICE, stamped_at_ms=5_000_000)

    answer = refusal(fleet.apply([operation]).replies[0])
    assert answer.code is RefusalCode.INVALID_ARGUMENT
    assert str(5_000_000) in answer.reason
    assert str(5_000_000 + ends_in_ms) in answer.reason


def test_a_pause_of_a_set_that_does_not_exist_is_refused() -> None:
    fleet = Fleet().serving()

    answer = refusal(ask(fleet, PauseElections(set_key=SET_B, expires_at_ms=2_000_000)))
    assert answer.code is RefusalCode.SET_NOT_FOUND


def test_the_same_pause_again_changes_nothing_and_pauses_are_bounded() -> None:
    fleet = paused()
    assert ask(fleet, PauseElections(set_key=SET_A, expires_at_ms=2_000_000, reason="new switch")) == Done()
    assert fleet.events == []
    pause = fleet.state.pauses[SET_A]
    many: dict[SetKey | None, object] = {SetKey(SET_A.cluster, f"b{n}"): pause for n in range(PAUSES_MAX)}  # type: ignore[arg-type]
    fleet.state = type(fleet.state)(
        **{name: getattr(fleet.state, name) for name in fleet.state.__struct_fields__} | {"pauses": many}
    )
    answer = refusal(ask(fleet, PauseElections(set_key=SET_A, expires_at_ms=2_000_000)))
    assert (answer.code, answer.current) == (RefusalCode.INVALID_REQUEST, str(PAUSES_MAX))


def test_a_snapshot_keeps_pauses() -> None:
    fleet = paused(set_key=None)
    ask(fleet, PauseElections(set_key=SET_A, expires_at_ms=2_500_000))

    assert decode_state(encode_state(fleet.state)).pauses == fleet.state.pauses
    assert list(fleet.state.pauses) == [None, SET_A]


def test_the_invariants_notice_an_election_in_a_pause() -> None:
    fleet = paused()
    lose_master(fleet)
    ask(fleet, ElectMaster(set_key=SET_A))
    record = next(
        one for one in fleet.records if isinstance(one.event, MasterElected) and one.event.verdict.winner == 2
    )

    forged = type(record)(
        **{name: getattr(record, name) for name in record.__struct_fields__} | {"requested_by": "controller:c1"}
    )
    assert any("C12" in text for text in check_transition(fleet.state, fleet.state, [forged]))
