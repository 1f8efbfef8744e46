"""Ids, registration, liveness and cleaning, by the core."""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import ApplyBrokerId, CleanReplicas, MarkAlive, SayGoodbye
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    Incarnation,
    LogOffset,
    RegisterCode,
    SessionOrdinal,
)
from rollcall_ha.controller.contract.replies import Done, Elected, IdGranted, Registered
from rollcall_ha.controller.contract.values import CleanMark, SetConfiguration
from rollcall_ha.controller.core.state import REPLICAS_PER_SET_MAX
from tests.support.core_builders import SET_A, SET_B, Fleet, ids, positions, stored
from tests.support.core_fleets import (
    refusal_of,
)

# --- ids, registration, liveness, cleaning ---------------------------------------------------------------------------


def test_s62_s63_c6_an_id_belongs_to_one_register_code_for_ever() -> None:
    """A repeat gets the same id, the next one the next, a free one far above is refused."""
    fleet = Fleet()
    assert fleet.grant("a") == IdGranted(broker_id=BrokerId(1))
    assert fleet.grant("a") == IdGranted(broker_id=BrokerId(1))
    assert fleet.grant("b", applied=2) == IdGranted(broker_id=BrokerId(2))
    assert fleet.grant("b", applied=2) == IdGranted(broker_id=BrokerId(2))
    assert refusal_of(fleet.grant("b", applied=1)) is RefusalCode.BROKER_ID_INVALID
    assert refusal_of(fleet.grant("c", applied=7)) is RefusalCode.BROKER_ID_INVALID
    assert refusal_of(fleet.grant("")) is RefusalCode.INVALID_ARGUMENT


def test_a_set_has_a_limit_of_ids() -> None:
    """The limit is named; cleaning makes room."""
    fleet = Fleet()
    fleet.apply(
        [
            fleet.operation(ApplyBrokerId(set_key=SET_A, register_code=RegisterCode(f"x{n}"), address=""))
            for n in range(REPLICAS_PER_SET_MAX)
        ]
    )
    assert refusal_of(fleet.grant("more")) is RefusalCode.INVALID_REQUEST
    late = fleet.registration(99, code="late", view=stored(3, 1, 99), holds=positions(1))
    assert refusal_of(fleet.do(late)) is RefusalCode.BROKER_ID_INVALID


def test_malformed_registrations_are_refused() -> None:
    """Empty names, ids and ends below their range, a configuration that cannot be met, too many names."""
    fleet = Fleet()
    fleet.grant("code-1")
    good = fleet.registration(1)
    for bad in (
        replace(good, incarnation=Incarnation("")),
        replace(good, broker_id=BrokerId(0)),
        replace(good, positions=positions(-1)),
        replace(good, configuration=SetConfiguration(expected_replicas=2, min_in_sync=3)),
        replace(good, stored=stored(1, 1, *range(1, 70))),
    ):
        assert refusal_of(fleet.do(bad)) is RefusalCode.INVALID_ARGUMENT
    assert refusal_of(fleet.do(replace(good, register_code=RegisterCode("other")))) is RefusalCode.BROKER_ID_INVALID
    assert refusal_of(fleet.do(fleet.registration(2))) is RefusalCode.NEED_TO_BE_REGISTERED
    same_code = fleet.registration(5, code="code-1", view=stored(3, 1, 5))
    assert refusal_of(fleet.do(same_code)) is RefusalCode.BROKER_ID_INVALID


def test_s78_a_cleaned_set_keeps_its_epochs_and_gives_fresh_ids() -> None:
    """L6: it may come back. Ids go on, epochs lie above the old ones, the old id is refused."""
    fleet = Fleet().serving()
    for broker_id in (1, 2, 3):
        fleet.goodbye(broker_id)
    assert isinstance(fleet.clean(), Done)
    assert fleet.set.is_tombstone
    assert refusal_of(fleet.clean()) is RefusalCode.TOMBSTONED
    assert refusal_of(fleet.elect(evidence=Fleet().joined(1).evidence())) is RefusalCode.TOMBSTONED
    assert refusal_of(fleet.do(fleet.registration(1))) is RefusalCode.TOMBSTONED

    assert fleet.grant("code-1") == IdGranted(broker_id=BrokerId(4))
    fleet.do(fleet.registration(4, code="code-1", configuration=SetConfiguration()))
    elected = fleet.want(fleet.elect(), Elected)

    assert elected.verdict.master_epoch == 3
    assert elected.verdict.sync_state_set_epoch > 2


def test_a_cleaned_id_is_not_admitted_again_by_a_foreign_view() -> None:
    """Its sessions would count from 1 again, and a late report of the old ones would be taken for the new one's."""
    fleet = Fleet().serving()
    fleet.silence(3)
    fleet.clean(3)

    late = fleet.do(fleet.registration(3, incarnation="i3.2", view=stored(1, 1, 3)))

    assert refusal_of(late) is RefusalCode.TOMBSTONED


def test_cleaning_is_careful_without_the_unclean_word() -> None:
    """A living replica, the rest of the set, somebody unknown, a set that does not exist."""
    fleet = Fleet().serving()
    fleet.do(fleet.alter(1, 2))
    assert refusal_of(fleet.clean(3)) is RefusalCode.INVALID_CLEAN
    assert refusal_of(fleet.clean(9)) is RefusalCode.UNKNOWN_REPLICA
    assert refusal_of(fleet.do(CleanReplicas(set_key=SET_B))) is RefusalCode.SET_NOT_FOUND
    fleet.silence(3)
    before = fleet.set
    assert isinstance(fleet.clean(3), Done)
    assert (fleet.set.master, fleet.set.master_epoch) == (1, before.master_epoch)
    assert fleet.set.sync_state_set_epoch == before.sync_state_set_epoch + 1
    fleet.do(fleet.alter(1, seq=2))
    fleet.goodbye(1)
    assert refusal_of(fleet.clean(1)) is RefusalCode.INVALID_CLEAN
    assert isinstance(fleet.clean(1, is_unclean=True), Done)
    assert (fleet.set.sync_state_set, fleet.set.is_established) == ((), False)


def test_s13_an_alter_on_its_way_misses_after_a_member_was_cleaned() -> None:
    """ABA: the set looks the same to the master, its epoch does not."""
    fleet = Fleet().serving()
    late = fleet.alter(1, 2)
    fleet.silence(3)
    fleet.clean(3)

    fleet.do(late)

    assert fleet.set.sync_state_set == ids(1, 2)
    assert fleet.set.last_alter is not None
    assert fleet.set.last_alter.verdict.refusal is RefusalCode.FENCED_SYNC_STATE_SET_EPOCH


def test_liveness_transitions_apply_once() -> None:
    """A repeat is answered and not recorded; after a goodbye only a registration brings it back."""
    fleet = Fleet().serving()
    assert isinstance(fleet.revive(2), Done)
    assert fleet.events == []
    fleet.silence(2)
    fleet.silence(2)
    assert fleet.events == []
    mark = fleet.goodbye(2)
    fleet.goodbye(2)
    assert fleet.events == []
    assert refusal_of(fleet.revive(2)) is RefusalCode.FENCED_SESSION
    assert mark == fleet.replica(2).goodbye
    reply = fleet.want(fleet.do(fleet.registration(2)), Registered)
    assert (reply.session_ordinal, fleet.replica(2).goodbye) == (2, None)
    nobody = MarkAlive(
        set_key=SET_A, broker_id=BrokerId(9), incarnation=Incarnation("x"), session_ordinal=SessionOrdinal(1)
    )
    assert refusal_of(fleet.do(nobody)) is RefusalCode.UNKNOWN_REPLICA
    blank = SayGoodbye(
        set_key=SET_A,
        broker_id=BrokerId(2),
        incarnation=Incarnation("i2.1"),
        session_ordinal=SessionOrdinal(2),
        clean_mark=CleanMark(nonce="", end_offset=LogOffset(0)),
    )
    assert refusal_of(fleet.do(blank)) is RefusalCode.INVALID_ARGUMENT
    stale = replace(blank, session_ordinal=SessionOrdinal(1))
    assert refusal_of(fleet.do(stale)) is RefusalCode.FENCED_SESSION
