"""R3: a directory that was put back from a copy of when its broker ran, as far as the core can tell."""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import ElectMaster, NoteConfirms
from rollcall_ha.controller.contract.events import (
    ConfirmsNoted,
    ElectionFailed,
    MasterElected,
    ReplicaRegistered,
)
from rollcall_ha.controller.contract.ids import FlushMode, LogOffset, MasterEpoch, ReplicaKind, SetKey
from rollcall_ha.controller.contract.levels import fitted
from rollcall_ha.controller.contract.replies import Done, Elected
from rollcall_ha.controller.contract.values import KnownConfirm, SetConfiguration
from rollcall_ha.controller.contract.verdicts import ElectionKind, Intactness
from rollcall_ha.controller.core.ranking import elect_again
from tests.support.core_builders import SET_A, SET_B, Fleet, ids, positions, refusal
from tests.support.core_fleets import TWO, alone, judged

# --- elections -----------------------------------------------------------------------------------------------------------


def test_a_member_that_ends_below_what_was_confirmed_is_not_elected_cleanly() -> None:
    """F: 300 of 400 acknowledged messages were gone, "proven, 0 B lost"; the dead master's last word named them."""
    fleet = Fleet().serving(configuration=TWO, replicas=(1, 2))
    fleet.silence(1)
    epoch = fleet.set.master_epoch

    refused = refusal(fleet.elect(evidence=fleet.evidence({2: positions(1_600)}, confirmed=3_000)))

    assert refused.code is RefusalCode.NO_ELIGIBLE_REPLICA
    assert "ends at 1600, below 3000" in refused.reason
    failed = fleet.event(ElectionFailed).verdict
    again = elect_again(failed)
    assert again is not None
    assert again.candidates == failed.candidates
    assert fleet.set.master_epoch == epoch
    assert fleet.set.sync_state_set == ids(1, 2)


def test_a_member_that_ends_at_what_was_confirmed_is_elected() -> None:
    fleet = Fleet().serving()
    fleet.silence(1)

    elected = fleet.want(fleet.elect(evidence=fleet.evidence({2: positions(3_000)}, confirmed=3_000)), Elected)

    assert elected.verdict.kind is ElectionKind.FAILOVER
    # 3, which told no more than its start, is not in the new set, and what was heard is known from now on.
    assert elected.verdict.sync_state_set == ids(2)
    assert fleet.set.known_confirm == 3_000


def test_the_unclean_word_for_a_copy_names_what_is_lost_and_takes_a_whole_member_first() -> None:
    """By its membership alone the copy would be elected before replica 3, and the loss be 0."""
    fleet = Fleet().serving()
    fleet.silence(1)
    copy_only = fleet.evidence({2: positions(1_600)}, unheard=(3,), confirmed=3_000)

    refused = refusal(fleet.elect_unclean(1_399, evidence=copy_only))
    assert (refused.code, refused.current) == (RefusalCode.NOT_CONFIRMED, "1400")

    both = fleet.evidence({2: positions(1_600), 3: positions(3_000)}, confirmed=3_000)
    elected = fleet.want(fleet.elect_unclean(0, evidence=both), Elected)
    assert (elected.verdict.winner, elected.verdict.kind) == (3, ElectionKind.FAILOVER)

    fleet = Fleet().serving()
    fleet.silence(1)
    elected = fleet.want(fleet.elect_unclean(1_400, evidence=copy_only), Elected)
    assert (elected.verdict.winner, elected.verdict.kind) == (2, ElectionKind.UNCLEAN)
    assert fleet.event(MasterElected).sync_state_set == ids(2)


def test_java_replicas_and_outsiders_are_not_measured_by_a_confirm() -> None:
    """Java's confirm is another promise; who is no member owes nothing to anybody."""
    fleet = Fleet().serving_java(TWO)
    fleet.do(fleet.alter(1, 2))
    fleet.silence(1)
    fleet.want(fleet.elect(evidence=fleet.evidence({2: positions(10)}, confirmed=3_000)), Elected)

    fleet = Fleet().serving()
    fleet.do(fleet.alter(1, 2))
    refused = refusal(fleet.elect(3, evidence=fleet.evidence({3: positions(10)}, confirmed=3_000)))
    assert "not in SyncStateSet" in refused.reason
    assert all(replica.kind is ReplicaKind.NATIVE for replica in fleet.set.replicas)


def cut_off() -> Fleet:
    """
    1, master of epoch 1 with 950 bytes, was cut off; epoch 2 of 2 began at 700, and has confirmed 900, with 1 and 3.

    Now 2 is gone.
    """
    fleet = Fleet().serving()
    fleet.elect(2)
    fleet.enter(700)
    note(fleet, 900, epoch=2)
    fleet.silence(2)
    return fleet


COPY_OF_BEFORE = positions(950, epoch=1, confirm=700)
OF_BEFORE = "ends at 950 in epoch 1, which ended at 700, below"


def test_a_copy_from_before_its_own_tail_was_cut_was_elected_for_its_length() -> None:
    """A volume as it was taken while 1 was cut off has more bytes than were confirmed, and lacks 200 that were."""
    fleet = cut_off()
    evidence = fleet.evidence({1: COPY_OF_BEFORE, 3: positions(900, epoch=2)}, confirmed=900)

    refused = refusal(fleet.elect(1, evidence=evidence))
    assert f"{OF_BEFORE} 900, which all members had before" in refused.reason
    assert fleet.want(fleet.elect(evidence=evidence), Elected).verdict.winner == 3


def test_a_copy_from_before_its_own_tail_was_cut_was_intact_for_its_length() -> None:
    """Its incarnation is the registered one: cut off, it had not restarted."""
    fleet = cut_off()
    copy = fleet.registration(1, incarnation="i1.2", holds=COPY_OF_BEFORE)
    fleet.state = replace(fleet.state, feature_level=1)
    fleet.do(copy)
    assert judged(fleet) is Intactness.SAME_BOOT, "the release before says so (R15)"

    fleet = cut_off()
    fleet.do(copy)

    assert judged(fleet) is Intactness.NOT_INTACT
    assert fleet.event(ReplicaRegistered).intactness_reason == f"{OF_BEFORE} the known confirm offset 900"
    assert fleet.set.sync_state_set == ids(2, 3)


def test_the_unclean_word_for_a_copy_from_before_its_tail_was_cut_names_what_is_lost() -> None:
    fleet = cut_off()
    fleet.do(fleet.registration(1, incarnation="i1.2", holds=COPY_OF_BEFORE))

    refused = refusal(fleet.elect_unclean(0, 1))

    assert (refused.code, refused.current) == (RefusalCode.NOT_CONFIRMED, "200")


def test_below_level_2_an_election_knows_nothing_of_it() -> None:
    """R15: an older controller in the quorum elects the copy; one that does not would be a state of its own."""
    fleet = Fleet().serving(configuration=TWO, replicas=(1, 2))
    fleet.silence(1)
    evidence = fleet.evidence({2: positions(1_600)}, confirmed=3_000)
    operation, needed = fitted(fleet.operation(ElectMaster(set_key=SET_A), evidence=evidence), 1)

    assert needed == 1
    assert isinstance(fleet.apply([operation]).replies[0], Elected)
    assert fleet.set.known_confirm == 0


# --- registrations -------------------------------------------------------------------------------------------------------


def test_a_copy_that_lacks_what_the_leader_heard_is_not_intact() -> None:
    """Same boot, same store, and it knows the incarnation that is registered: every proof was true of the copy."""
    for flush in FlushMode:
        fleet = Fleet().serving(configuration=SetConfiguration(expected_replicas=3, flush=flush))
        heard = fleet.evidence(confirmed=3_000)
        fleet.do(fleet.registration(2, incarnation="i2.2", holds=positions(2_999)), evidence=heard)

        assert judged(fleet) is Intactness.NOT_INTACT
        assert fleet.set.sync_state_set == ids(1, 3)

        fleet.do(
            fleet.registration(3, incarnation="i3.2", holds=positions(3_000)), evidence=fleet.evidence(confirmed=3_000)
        )
        assert judged(fleet) is Intactness.SAME_BOOT


def test_the_last_member_that_lacks_what_the_leader_heard_is_a_suspect() -> None:
    fleet = alone()

    fleet.do(
        fleet.registration(1, incarnation="i1.2", holds=positions(1_600)), evidence=fleet.evidence(confirmed=3_000)
    )

    assert judged(fleet) is Intactness.SUSPECT
    assert refusal(fleet.elect()).code is RefusalCode.NO_ELIGIBLE_REPLICA


def test_what_was_heard_in_a_reign_that_is_over_is_no_veto() -> None:
    """An unclean election came between: no log has those bytes any more, and each honest restart would be a suspect's."""
    fleet = Fleet().serving()
    heard = fleet.evidence(confirmed=3_000)
    fleet.silence(1)
    fleet.elect()
    fleet.enter()

    fleet.do(fleet.registration(3, incarnation="i3.2", holds=positions(500)), evidence=heard)

    assert judged(fleet) is Intactness.SAME_BOOT


# --- what replicated state knows -----------------------------------------------------------------------------------------


def note(fleet: Fleet, confirm: int, *, epoch: int = 1, key: SetKey = SET_A) -> None:
    told = KnownConfirm(set_key=key, master_epoch=MasterEpoch(epoch), confirm_offset=LogOffset(confirm))
    assert isinstance(fleet.do(NoteConfirms(confirms=(told,))), Done)


def test_a_copy_is_found_by_a_leader_that_has_heard_nobody() -> None:
    """Brokers and leader died together: what was noted is all that tells a copy from the whole log."""
    fleet = Fleet().serving()
    note(fleet, 3_000)
    assert fleet.event(ConfirmsNoted).confirms[0].confirm_offset == 3_000

    fleet.do(fleet.registration(2, incarnation="i2.2", holds=positions(2_999)))

    assert judged(fleet) is Intactness.NOT_INTACT


def test_what_does_not_rise_or_is_of_another_reign_or_of_no_set_is_no_event() -> None:
    fleet = Fleet().serving()
    note(fleet, 3_000)
    for confirm, epoch, key in ((3_000, 1, SET_A), (9_000, 0, SET_A), (9_000, 2, SET_A), (9_000, 1, SET_B)):
        note(fleet, confirm, epoch=epoch, key=key)
        assert not fleet.events
    assert fleet.set.known_confirm == 3_000
    assert SET_B not in fleet.state.sets


def test_an_entry_tells_of_many_sets_and_all_of_them_are_in_the_digest() -> None:
    fleets = [Fleet().serving(), Fleet().serving()]
    for fleet, confirm in zip(fleets, (1_000, 2_000), strict=True):
        fleet.key = SET_B
        fleet.serving()
        fleet.key = SET_A
        note(fleet, confirm, epoch=1)
    told = [
        KnownConfirm(set_key=key, master_epoch=MasterEpoch(1), confirm_offset=LogOffset(5_000))
        for key in (SET_A, SET_B)
    ]
    for fleet in fleets:
        fleet.do(NoteConfirms(confirms=tuple(told)))
        assert [fleet.state.sets[key].known_confirm for key in (SET_A, SET_B)] == [5_000, 5_000]
    assert fleets[0].state.state_digest != fleets[1].state.state_digest


def test_an_unclean_election_sets_down_what_was_noted() -> None:
    """Measured by bytes that no log has any more, each member that restarts would have lost records."""
    fleet = Fleet().serving()
    note(fleet, 3_000)
    fleet.do(fleet.alter(1))
    fleet.silence(1)
    fleet.want(fleet.elect_unclean(9_000, 2, evidence=fleet.evidence({2: positions(700)})), Elected)

    assert fleet.set.known_confirm == 700
