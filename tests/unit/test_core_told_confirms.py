"""R7: confirms that are told in a recovery, and which logs have those bytes."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from rollcall_ha.controller.contract.ids import LogOffset, MasterEpoch
from rollcall_ha.controller.contract.replies import Condition, Elected
from rollcall_ha.controller.contract.values import Positions, ToldConfirm
from rollcall_ha.controller.core.recovery import (
    CONFIRMS_MAX,
    confirmed_after,
    lacks_confirmed,
    started,
)
from rollcall_ha.controller.core.views import condition_of
from tests.support.core_builders import Fleet, ids, positions, refusal, stored
from tests.support.core_fleets import TWO


def put_back(*, confirm: int, epochs: tuple[int, ...] | None, member_epoch: int = 1, member_end: int = 900) -> Fleet:
    """
    Controllers put back to epoch 1, of which 900 bytes are confirmed. 2 entered epoch 4 at 900 and is no member any more
    when it comes back: its volume is an old copy. 1 is the only member of the newest view.
    """
    fleet = Fleet().serving(replicas=(1, 2), configuration=TWO)
    view = stored(5, 9, 1, fleet=fleet.state.fleet_incarnation)
    told = positions(1_000, epoch=4, confirm=confirm, confirm_epochs=epochs)
    fleet.do(fleet.registration(2, incarnation="i2.2", holds=told, view=view))
    holds = positions(member_end, epoch=member_epoch, confirm=700, confirm_epochs=(1,))
    fleet.do(fleet.registration(1, incarnation="i1.2", holds=holds, view=view))
    assert (fleet.set.sync_state_set, fleet.set.master_epoch) == (ids(1), 1)
    return fleet


def test_r7_a_member_with_all_that_was_confirmed_waited_for_a_person_as_a_later_epoch_had_begun() -> None:
    """Found by seed 15: nothing was written in epoch 4, and the member that never followed it was vetoed."""
    fleet = put_back(confirm=900, epochs=(1,))
    assert condition_of(fleet.set)[0] is not Condition.NO_ELIGIBLE_REPLICA
    assert fleet.want(fleet.elect(), Elected).verdict.winner == 1


def test_r7_a_member_that_lacks_a_byte_of_what_was_confirmed_is_not_elected() -> None:
    for epoch, known in ((1, "ends at 899, below the known confirm offset 900"), (2, "ends in epoch 2 at 899, below")):
        fleet = put_back(confirm=900, epochs=(epoch,), member_epoch=epoch, member_end=899)
        assert known in refusal(fleet.elect()).reason


def test_r7_what_was_confirmed_in_the_later_epoch_itself_is_in_no_log_that_ends_before_it() -> None:
    fleet = put_back(confirm=950, epochs=(), member_end=990)
    assert "below the known confirm offset 950 of epoch 4" in refusal(fleet.elect()).reason


def test_r7_a_teller_that_does_not_say_where_its_confirmed_byte_lies_is_held_as_strictly_as_before() -> None:
    fleet = put_back(confirm=900, epochs=None)
    assert "below the known confirm offset 900 of epoch 4" in refusal(fleet.elect()).reason


def test_r7_a_log_that_ends_in_an_epoch_in_between_has_nothing_of_what_was_confirmed() -> None:
    """Epoch 3 began at 700, nobody followed its master: its 950 bytes are not those of epoch 1."""
    fleet = put_back(confirm=900, epochs=(1,), member_epoch=3, member_end=950)
    assert "ends in epoch 3 at 950, below the known confirm offset 900 of epoch 4" in refusal(fleet.elect()).reason


def test_r7_a_member_waited_for_a_person_as_its_epoch_was_neither_the_first_nor_the_last_of_the_teller() -> None:
    """Found by seed 986335: the byte was confirmed in epoch 1, the teller went on to 3 and 4, the member ends in 3."""
    fleet = put_back(confirm=900, epochs=(1, 3), member_epoch=3, member_end=950)
    assert condition_of(fleet.set)[0] is not Condition.NO_ELIGIBLE_REPLICA
    assert fleet.want(fleet.elect(), Elected).verdict.winner == 1


def test_r7_nothing_is_asked_of_others_by_a_log_without_a_confirmed_byte() -> None:
    fleet = put_back(confirm=0, epochs=None)
    assert fleet.want(fleet.elect(), Elected).verdict.winner == 1


EPOCHS, OFFSETS = range(1, 5), range(5)
WORDS = st.builds(
    lambda epoch, confirm, of: positions(9, epoch=epoch, confirm=confirm, confirm_epochs=of),
    st.sampled_from(EPOCHS),
    st.sampled_from(OFFSETS),
    st.sets(st.sampled_from(EPOCHS)).map(lambda epochs: tuple(sorted(epochs))) | st.none(),
)


@pytest.mark.slow
@given(st.lists(WORDS, max_size=6))
def test_r7_what_is_kept_of_many_words_rules_out_the_logs_that_one_of_them_rules_out(words: list[Positions]) -> None:
    """In whatever order they come."""
    fleet = Fleet().serving(replicas=(1, 2), configuration=TWO)
    begun = started(fleet.set, UNSET)

    def ruled_out(told: list[Positions]) -> set[tuple[int, int]]:
        recovery = begun
        for word in told:
            recovery = replace(recovery, confirmed=confirmed_after(recovery, word))
        found = replace(fleet.set, recovery=recovery)
        logs = {(epoch, end): positions(end, epoch=epoch) for epoch, end in product(EPOCHS, OFFSETS)}
        return {log for log, holds in logs.items() if lacks_confirmed(found, fleet.replica(1), holds)}

    each = set().union(*(ruled_out([word]) for word in words))
    assert ruled_out(words) == ruled_out(words[::-1]) == each


def test_r7_of_more_words_than_are_kept_the_last_stays_as_strict_as_it_can_be() -> None:
    fleet = Fleet().serving(replicas=(1, 2), configuration=TWO)
    recovery = started(fleet.set, UNSET)
    for number in range(CONFIRMS_MAX + 1):
        # Each later log confirms bytes of an earlier epoch: none of them implies another.
        word = positions(900, epoch=1_000 + number, confirm=500, confirm_epochs=(500 - number,))
        recovery = replace(recovery, confirmed=confirmed_after(recovery, word))
    epoch = MasterEpoch(1_000 + CONFIRMS_MAX)
    assert recovery.confirmed == (ToldConfirm(log_epoch=epoch, epochs=(), offset=LogOffset(500)),)
