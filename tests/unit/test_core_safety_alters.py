"""R1, and what a set contains: alters are decided once, by compare and set, for the present mastership."""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import AlterSyncStateSet
from rollcall_ha.controller.contract.events import (
    AlterRefused,
    CommandRefused,
)
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    Incarnation,
    SyncStateSetEpoch,
)
from rollcall_ha.controller.contract.replies import AlterDecided, Refused
from rollcall_ha.controller.contract.values import Joining
from rollcall_ha.controller.core.alters import SEQUENCE_STEP_MAX
from tests.support.core_builders import Fleet, ids
from tests.support.core_fleets import (
    TWO,
    alone,
    refusal_of,
)

# --- R1 --------------------------------------------------------------------------------------------------------------


def test_r1_a_retry_hears_the_stored_verdict_and_nothing_is_recorded() -> None:
    """S01, S02: the answer to {A} -> {A,B} is lost; the retry hears that it was committed, whatever happened since."""
    fleet = alone()
    expand = fleet.alter(1, 2, seq=2)
    first = fleet.want(fleet.do(expand), AlterDecided)

    again = fleet.want(fleet.do(expand), AlterDecided)

    assert again.verdict == first.verdict
    assert first.verdict.is_accepted
    assert fleet.events == []
    assert fleet.set.sync_state_set == ids(1, 2)


def test_r1_a_refusal_is_stored_like_an_acceptance() -> None:
    """The late duplicate of a refused alter is refused again, although it would be possible by now."""
    fleet = alone()
    fleet.silence(2)
    expand = fleet.alter(1, 2, seq=2)
    assert refusal_of(fleet.do(expand)) is RefusalCode.BROKER_NOT_ALIVE
    assert isinstance(fleet.events[0], AlterRefused)
    fleet.revive(2)

    late = fleet.do(expand)

    assert refusal_of(late) is RefusalCode.BROKER_NOT_ALIVE
    assert fleet.set.sync_state_set == ids(1)


def test_r1_stored_verdict_survives_the_next_election() -> None:
    """R2, refusal by epoch: B is elected with {A,B}; A's retry still hears that {A,B} was committed, not a refusal."""
    fleet = alone()
    expand = fleet.alter(1, 2, seq=2)
    fleet.do(expand)
    fleet.silence(1)
    fleet.elect()

    late = fleet.want(fleet.do(expand), AlterDecided)

    assert late.verdict.is_accepted
    assert late.verdict.sync_state_set == ids(1, 2)


def test_r1_content_is_bound_to_its_seq() -> None:
    """{A,B} commits as seq 2; seq 2 with {A,C} is refused, so A cannot stop requiring B."""
    fleet = alone()
    fleet.do(fleet.alter(1, 2, seq=2))

    reply = fleet.do(replace(fleet.alter(1, 2, 3, seq=2), sync_state_set_epoch=SyncStateSetEpoch(99)))

    assert refusal_of(reply) is RefusalCode.SEQUENCE_REUSED
    assert fleet.set.sync_state_set == ids(1, 2)


def test_r1_a_lower_seq_is_refused() -> None:
    """An alter that was overtaken by a later one of its own master never applies."""
    fleet = alone()
    late = fleet.alter(1, 3, seq=2)
    fleet.do(fleet.alter(1, 2, seq=3))

    assert refusal_of(fleet.do(late)) is RefusalCode.STALE_SEQUENCE


def test_r1_a_seq_far_ahead_is_refused_and_not_stored() -> None:
    """A forged alter with seq 2**62 was stored: no later one of its epoch fitted above it, and the set stayed as it was."""
    fleet = alone()
    last = fleet.set.last_alter
    assert last is not None

    forged = fleet.do(fleet.alter(1, 2, seq=last.verdict.seq + SEQUENCE_STEP_MAX + 1))

    assert refusal_of(forged) is RefusalCode.INVALID_ARGUMENT
    assert fleet.set.last_alter == last
    fleet.want(fleet.do(fleet.alter(1, 2, seq=last.verdict.seq + SEQUENCE_STEP_MAX)), AlterDecided)


def test_r1_the_first_seq_of_an_epoch_is_bounded_too() -> None:
    """Nothing is decided yet in this epoch: the verdict that is stored belongs to an older one."""
    fleet = Fleet().serving()

    forged = fleet.do(fleet.alter(1, 2, seq=SEQUENCE_STEP_MAX + 1))

    assert refusal_of(forged) is RefusalCode.INVALID_ARGUMENT
    assert fleet.set.last_alter is None


def test_r1_a_refusal_by_the_seq_carries_the_verdict_that_is_stored() -> None:
    """The true master goes on above it: repeated at seq 2 its alter would be refused for the rest of the reign."""
    fleet = Fleet().serving()
    own = fleet.alter(1, 2, seq=1)
    fleet.do(fleet.alter(1, seq=900))
    stored = fleet.set.last_alter
    assert stored is not None

    reply = fleet.want(fleet.do(own), Refused)

    assert (reply.code, reply.alter) == (RefusalCode.STALE_SEQUENCE, stored.verdict)


def test_r1_compare_and_set_on_the_set_epoch() -> None:
    """{A,B}; alter {A} is delayed; A registers without proof and leaves: {B}. The alter must miss."""
    fleet = Fleet().serving(replicas=(1, 2), configuration=TWO)
    delayed = fleet.alter(1)
    fleet.do(fleet.registration(1, incarnation="i1.2", boot="boot-2"))
    assert fleet.set.sync_state_set == ids(2)

    assert refusal_of(fleet.do(delayed)) is RefusalCode.INVALID_MASTER
    assert fleet.set.sync_state_set == ids(2)


def test_r1_a_stale_set_epoch_of_the_present_master_is_refused_and_stored() -> None:
    """A member leaves between proposal and apply: the proposal was made on another set."""
    fleet = Fleet().serving()
    delayed = fleet.alter(1, 2)
    fleet.do(fleet.registration(3, incarnation="i3.2", boot="boot-2"))

    assert refusal_of(fleet.do(delayed)) is RefusalCode.FENCED_SYNC_STATE_SET_EPOCH
    assert fleet.set.last_alter is not None
    assert fleet.set.last_alter.verdict.refusal is RefusalCode.FENCED_SYNC_STATE_SET_EPOCH


def test_r1_a_joining_member_is_named_by_the_incarnation_that_passed_the_test() -> None:
    """B acks 1; A proposes {A,B}; B loses its tail and registers again; the alter must not admit what B is now (S12)."""
    fleet = alone()
    expand = fleet.alter(1, 2, seq=2)
    fleet.do(fleet.registration(2, incarnation="i2.2", boot="boot-2"))

    assert refusal_of(fleet.do(expand)) is RefusalCode.FENCED_INCARNATION
    assert fleet.set.sync_state_set == ids(1)


def test_r1_joining_names_exactly_the_members_that_are_added() -> None:
    """No incarnation, one too many, or one twice: refused."""
    fleet = alone()
    good = fleet.alter(1, 2, seq=2)
    stranger = Joining(broker_id=BrokerId(3), incarnation=Incarnation("i3.1"))
    for seq, joining in enumerate(((), (*good.joining, stranger), (*good.joining, *good.joining)), start=2):
        reply = fleet.do(replace(good, seq=seq, joining=joining))
        assert refusal_of(reply) is RefusalCode.INVALID_REPLICAS


def test_r1_malformed_alters_of_the_master_are_refused() -> None:
    """Unsorted, without the master, without a change, with a seq below 1, with a learner or an unknown replica."""
    fleet = alone()
    fleet.grant("code-4")
    fleet.do(fleet.registration(4, is_learner=True))
    good = fleet.alter(1, 2, seq=2)
    learner = (Joining(broker_id=BrokerId(4), incarnation=Incarnation("i4.1")),)
    unknown = (Joining(broker_id=BrokerId(9), incarnation=Incarnation("i9.1")),)
    cases = (
        (replace(good, new_set=ids(2, 1)), RefusalCode.INVALID_ARGUMENT),
        (replace(good, new_set=ids(2)), RefusalCode.MIN_IN_SYNC),
        (replace(good, new_set=ids(1), joining=()), RefusalCode.ALTER_REFUSED),
        (replace(good, new_set=ids(1, 4), joining=learner), RefusalCode.INVALID_REPLICAS),
        (replace(good, new_set=ids(1, 9), joining=unknown), RefusalCode.INVALID_REPLICAS),
    )
    for seq, (command, code) in enumerate(cases, start=2):
        assert refusal_of(fleet.do(replace(command, seq=seq))) is code
    elected = Fleet().serving()
    assert refusal_of(elected.do(elected.alter(1, 2, seq=0))) is RefusalCode.INVALID_ARGUMENT


def test_r1_only_the_present_mastership_may_alter() -> None:
    """Another epoch, another id, another incarnation: refused without a trace in the stored verdict."""
    fleet = Fleet().serving()
    good = fleet.alter(1, 2)
    cases: tuple[tuple[AlterSyncStateSet, RefusalCode], ...] = (
        (replace(good, master_epoch=fleet.set.master_epoch - 1), RefusalCode.FENCED_MASTER_EPOCH),
        (replace(good, broker_id=BrokerId(2)), RefusalCode.INVALID_MASTER),
        (replace(good, incarnation=Incarnation("i1.9")), RefusalCode.FENCED_INCARNATION),
    )
    for command, code in cases:
        assert refusal_of(fleet.do(command)) is code
        assert isinstance(fleet.events[0], CommandRefused)
        assert fleet.set.last_alter is None


def test_r1_a_request_id_never_answers_an_alter_with_another_content() -> None:
    """Safety never rests on the window of request ids: an alter under a used id is decided by its seq."""
    fleet = alone()
    fleet.do(fleet.alter(1, 2, seq=2), request_id="same")

    reply = fleet.do(fleet.alter(1, 2, 3, seq=3), request_id="same")

    assert fleet.want(reply, AlterDecided).verdict.sync_state_set == ids(1, 2, 3)


def test_s07_members_that_merely_stay_are_not_checked_for_liveness() -> None:
    """B in the set is dying; A's proposal to add C is not refused because of B."""
    fleet = alone()
    fleet.do(fleet.alter(1, 2, seq=2))
    fleet.silence(2)

    assert refusal_of(fleet.do(fleet.alter(1, 2, 3, seq=3))) is None
    assert fleet.set.sync_state_set == ids(1, 2, 3)


def test_r22_the_new_set_contains_its_master() -> None:
    """How small it may be is the broker's to check; without the master it is refused here."""
    fleet = Fleet().serving()

    assert refusal_of(fleet.do(fleet.alter(2, 3))) is RefusalCode.MIN_IN_SYNC


def test_r23_who_registers_as_a_learner_leaves_the_set() -> None:
    """Also the same process, also the master: then its mastership is over."""
    fleet = Fleet().serving()
    fleet.do(fleet.registration(2, is_learner=True))
    assert fleet.set.sync_state_set == ids(1, 3)

    fleet.do(fleet.registration(1, is_learner=True))

    assert fleet.set.sync_state_set == ids(3)
    assert fleet.set.master is None


def test_r23_the_last_member_cannot_become_a_learner() -> None:
    """Its set would be forgotten, and with it who holds every record."""
    fleet = alone()

    assert refusal_of(fleet.do(fleet.registration(1, is_learner=True))) is RefusalCode.INVALID_REPLICAS
