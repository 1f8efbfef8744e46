"""Rules of safety.md that the controllers keep, one test each, named after the rule; and the table "Model-checked"."""

from __future__ import annotations

from msgspec.structs import replace

from controller.contract.codes import RefusalCode
from controller.contract.commands import (
    AlterSyncStateSet,
    AnyCommand,
    CleanMark,
    ElectMaster,
    Evidence,
    Joining,
    MarkSilent,
    SetConfiguration,
    SilenceCause,
)
from controller.contract.events import (
    AlterRefused,
    CommandRefused,
    ElectionFailed,
    MasterElected,
    ReplicaRegistered,
)
from controller.contract.ids import (
    AckMode,
    BrokerId,
    FleetIncarnation,
    FlushMode,
    Incarnation,
    LogOffset,
    MasterEpoch,
    ReplicaKind,
    SessionOrdinal,
    SyncStateSetEpoch,
)
from controller.contract.replies import AlterDecided, AnyReply, Condition, Done, Elected, IdGranted, Refused, Registered
from controller.contract.verdicts import CandidateOutcome, ElectionKind, Intactness
from controller.core.apply import apply_operations
from controller.core.recovery import EPOCH_JUMP, begin_again
from controller.core.views import condition_of, view_of
from tests.support.core_builders import OLD_FLEET, Fleet, ids, positions, stored

ONE = SetConfiguration(expected_replicas=1)
TWO = SetConfiguration(expected_replicas=2)


def refusal_of(reply: AnyReply) -> RefusalCode | None:
    """The code of a refusal, of an alter's too."""
    if isinstance(reply, AlterDecided):
        return reply.verdict.refusal
    return reply.code if isinstance(reply, Refused) else None


def alone(master: int = 1) -> Fleet:
    """Three replicas, one member: the master."""
    fleet = Fleet().serving(master=master)
    fleet.do(fleet.alter(master))
    return fleet


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


# --- R3 --------------------------------------------------------------------------------------------------------------


def judged(fleet: Fleet) -> Intactness:
    """Judgement of the last registration."""
    return fleet.event(ReplicaRegistered).intactness


def test_r3_a_restart_without_proof_leaves_the_set() -> None:
    """{A,B} ack v1; A loses it in a power loss: it leaves, and registering it moves the SyncStateSetEpoch."""
    fleet = Fleet().serving()
    before = fleet.set.sync_state_set_epoch

    fleet.do(fleet.registration(2, incarnation="i2.2", boot="boot-2"))

    assert judged(fleet) is Intactness.NOT_INTACT
    assert fleet.set.sync_state_set == ids(1, 3)
    assert fleet.set.sync_state_set_epoch == before + 1
    assert fleet.set.fallen == ids(2)


def test_r3a_a_clean_stop_is_the_mark_that_the_goodbye_named() -> None:
    """Nonce and end offset must both match what was said, and the log must end there."""
    for brought, end, expected in (
        (CleanMark(nonce="n", end_offset=LogOffset(10)), 10, Intactness.CLEAN_STOP),
        (CleanMark(nonce="other", end_offset=LogOffset(10)), 10, Intactness.NOT_INTACT),
        (CleanMark(nonce="n", end_offset=LogOffset(11)), 11, Intactness.NOT_INTACT),
        (CleanMark(nonce="n", end_offset=LogOffset(10)), 9, Intactness.NOT_INTACT),
        (None, 10, Intactness.NOT_INTACT),
    ):
        fleet = Fleet().serving()
        fleet.goodbye(2, end=10)
        fleet.do(fleet.registration(2, incarnation="i2.2", boot="boot-2", holds=positions(end), mark=brought))
        assert judged(fleet) is expected


def test_r3a_a_mark_without_its_goodbye_proves_nothing() -> None:
    """An old mark that lies on the disk was never compared with anything."""
    fleet = Fleet().serving()
    mark = fleet.goodbye(2, end=0)
    fleet.do(fleet.registration(2))  # the same process opens a session again: its goodbye is void
    fleet.do(fleet.registration(2, incarnation="i2.2", boot="boot-2", mark=mark))

    assert judged(fleet) is Intactness.NOT_INTACT


def test_r3b_same_boot_and_same_store_is_intact() -> None:
    """The process died, the mapped pages did not; the membership moves to the new incarnation."""
    fleet = Fleet().serving()

    fleet.do(fleet.registration(2, incarnation="i2.2"))

    assert judged(fleet) is Intactness.SAME_BOOT
    assert fleet.set.bound_incarnation(BrokerId(2)) == "i2.2"


def test_r3b_same_boot_is_judged_against_the_registered_incarnation() -> None:
    """A loses its tail in a power loss, its process dies again before registering: boot 2 is not the registered boot 1."""
    fleet = Fleet().serving()

    fleet.do(fleet.registration(2, incarnation="i2.3", boot="boot-2"))
    fleet.do(fleet.registration(2, incarnation="i2.4", boot="boot-2"))

    assert fleet.set.sync_state_set == ids(1, 3)


def test_r3b_another_store_is_not_intact() -> None:
    """S65: an empty disk in the place of the old one; nor do empty ids prove anything."""
    for boot, store in (("boot-1", "store-new"), ("boot-1", ""), ("", "store-2")):
        fleet = Fleet().serving()
        fleet.do(fleet.registration(2, incarnation="i2.2", boot=boot, store=store))
        assert judged(fleet) is Intactness.NOT_INTACT


def test_r3_an_older_copy_of_the_directory_is_not_intact() -> None:
    """Same boot, same store, sync flush: all of it holds for a copy that was put back; what it acked since is gone."""
    for flush in FlushMode:
        fleet = Fleet().serving(configuration=SetConfiguration(expected_replicas=3, flush=flush))
        fleet.do(fleet.registration(2, incarnation="i2.2"))
        assert judged(fleet) is Intactness.SAME_BOOT

        fleet.do(fleet.registration(2, incarnation="i2.3", lives=("i2.1",)))

        assert judged(fleet) is Intactness.NOT_INTACT
        assert fleet.set.sync_state_set == ids(1, 3)


def test_r3_lives_that_never_registered_do_not_matter() -> None:
    """A process that died before it registered has acked nothing: the membership is that of the life before."""
    fleet = Fleet().serving()

    fleet.do(fleet.registration(2, incarnation="i2.4", lives=("i2.1", "i2.2", "i2.3")))

    assert judged(fleet) is Intactness.SAME_BOOT


def test_r3c_a_set_that_syncs_before_it_acks_is_intact() -> None:
    """Flush mode of the set, not of what the replica says now."""
    fleet = Fleet().serving(configuration=SetConfiguration(expected_replicas=3, flush=FlushMode.SYNC))

    fleet.do(fleet.registration(2, incarnation="i2.2", boot="boot-2"))
    assert judged(fleet) is Intactness.SYNC_FLUSH

    fleet.do(fleet.registration(2, incarnation="i2.3", boot="boot-3", store="store-new"))
    assert judged(fleet) is Intactness.NOT_INTACT


def test_r3_an_end_below_the_known_confirm_is_a_veto() -> None:
    """Same boot or not: bytes that every member had are missing."""
    fleet = Fleet().serving()
    fleet.do(fleet.registration(3, incarnation="i3.2", holds=positions(500, confirm=500)))
    assert fleet.set.known_confirm == 500

    fleet.do(fleet.registration(2, incarnation="i2.2", holds=positions(499)))

    assert judged(fleet) is Intactness.NOT_INTACT
    assert fleet.set.sync_state_set == ids(1, 3)


def test_r3_an_end_above_the_known_confirm_is_no_proof() -> None:
    """Acked 5000, reported 1000, power loss: who comes with 1200 has lost records all the same (KIP-966)."""
    fleet = Fleet().serving()
    fleet.do(fleet.registration(3, incarnation="i3.2", holds=positions(1000, confirm=1000)))

    fleet.do(fleet.registration(2, incarnation="i2.2", boot="boot-2", holds=positions(1200)))

    assert judged(fleet) is Intactness.NOT_INTACT


def test_r3_the_last_member_stays_as_a_suspect_and_only_the_unclean_verb_elects_it() -> None:
    """S34: it keeps the set, it is no candidate of a clean election, a further clean restart changes nothing."""
    fleet = alone()
    fleet.do(fleet.registration(1, incarnation="i1.2", boot="boot-2", holds=positions(80)))
    assert judged(fleet) is Intactness.SUSPECT
    assert fleet.set.sync_state_set == ids(1)
    assert fleet.set.master is None
    assert condition_of(fleet.set)[0] is Condition.NO_ELIGIBLE_REPLICA

    fleet.do(fleet.registration(1, incarnation="i1.3", boot="boot-2", holds=positions(80)))
    assert judged(fleet) is Intactness.SUSPECT

    assert refusal_of(fleet.elect()) is RefusalCode.NO_ELIGIBLE_REPLICA
    elected = fleet.want(fleet.elect_unclean(0), Elected)
    assert elected.verdict.kind is ElectionKind.UNCLEAN
    assert not fleet.replica(1).is_suspect


def test_r3_java_replicas_prove_nothing_and_the_longest_is_elected_once_all_members_have_reported() -> None:
    """Kind rocketmq: by default, without the unclean verb, and not before everybody who fell is back."""
    fleet = Fleet()
    for broker_id in (1, 2):
        fleet.grant(f"code-{broker_id}")
        fleet.do(fleet.registration(broker_id, kind=ReplicaKind.ROCKETMQ, configuration=TWO))
    fleet.elect(to=1)
    fleet.enter()
    fleet.do(fleet.alter(1, 2))
    fleet.do(fleet.registration(2, incarnation="i2.2", kind=ReplicaKind.ROCKETMQ, holds=positions(120)))
    fleet.silence(2)
    fleet.do(fleet.registration(1, incarnation="i1.2", kind=ReplicaKind.ROCKETMQ, holds=positions(100)))
    assert judged(fleet) is Intactness.SUSPECT

    assert refusal_of(fleet.elect()) is RefusalCode.NO_ELIGIBLE_REPLICA
    fleet.revive(2)
    elected = fleet.want(fleet.elect(), Elected)

    assert elected.verdict.winner == 2
    assert elected.verdict.policy == "longest@1"
    assert elected.verdict.sync_state_set == ids(2)


def test_r3_a_java_replica_that_never_was_a_member_is_not_the_longest() -> None:
    """Only members are asked: a log that nobody waited for may be longer and wrong."""
    fleet = Fleet()
    for broker_id in (1, 2):
        fleet.grant(f"code-{broker_id}")
        fleet.do(fleet.registration(broker_id, kind=ReplicaKind.ROCKETMQ, configuration=ONE))
    fleet.elect(to=1)
    fleet.enter()
    fleet.do(fleet.registration(1, incarnation="i1.2", kind=ReplicaKind.ROCKETMQ, holds=positions(10)))

    elected = fleet.want(fleet.elect(evidence=fleet.evidence({2: positions(900)})), Elected)

    assert elected.verdict.winner == 1


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
    fleet = Fleet()
    for broker_id in (1, 2):
        fleet.grant(f"code-{broker_id}")
        fleet.do(fleet.registration(broker_id, kind=ReplicaKind.ROCKETMQ, configuration=TWO))
    fleet.elect()
    fleet.enter()
    fleet.do(fleet.alter(1, 2))
    fleet.silence(1)

    elected = fleet.want(fleet.elect(), Elected)

    assert elected.verdict.sync_state_set == ids(2)
    assert elected.verdict.policy == "data-first@1"


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


# --- R7 --------------------------------------------------------------------------------------------------------------


def wiped(*views: tuple[int, int, int, tuple[int, ...]]) -> Fleet:
    """Controllers without memory, and replicas (id, epoch, set epoch, set) that register with what they kept."""
    fleet = Fleet()
    for broker_id, epoch, set_epoch, members in views:
        fleet.do(
            fleet.registration(
                broker_id, holds=positions(100 * broker_id, epoch=epoch), view=stored(epoch, set_epoch, *members)
            )
        )
    return fleet


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


# --- R9, R12, R13, R14, R15 ------------------------------------------------------------------------------------------


def test_r9_a_new_incarnation_is_never_given_an_old_epoch() -> None:
    """The recorded master restarts: its mastership is over, and its election is a new epoch."""
    fleet = Fleet().serving()
    fleet.do(fleet.registration(1, incarnation="i1.2"))
    assert fleet.set.master is None

    elected = fleet.want(fleet.elect(to=1), Elected)

    assert (elected.verdict.master_epoch, fleet.set.master_incarnation) == (2, "i1.2")


def test_r12_an_epoch_is_entered_by_the_named_incarnation_with_one_start() -> None:
    """A repeat is answered, another start is refused."""
    fleet = Fleet().serving()
    fleet.silence(1)
    fleet.elect()
    assert condition_of(fleet.set)[0] is Condition.ENTERING
    assert isinstance(fleet.enter(100), Done)
    assert isinstance(fleet.enter(100), Done)
    assert fleet.events == []

    assert refusal_of(fleet.enter(90)) is RefusalCode.INVALID_REQUEST
    assert fleet.set.start_offset == 100


def test_r13_a_newer_incarnation_ends_the_older_ones_life_at_once() -> None:
    """Its late silence and its late registration mean nothing any more."""
    fleet = Fleet().serving()
    old = fleet.replica(2)
    fleet.do(fleet.registration(2, incarnation="i2.2"))
    late = MarkSilent(
        set_key=fleet.key,
        broker_id=old.broker_id,
        incarnation=Incarnation("i2.1"),
        session_ordinal=old.session_ordinal,
        cause=SilenceCause.TIMEOUT,
    )

    assert refusal_of(fleet.do(late)) is RefusalCode.FENCED_INCARNATION
    assert refusal_of(fleet.do(fleet.registration(2))) is RefusalCode.FENCED_INCARNATION
    assert fleet.replica(2).is_alive


def test_s33_a_late_close_of_an_old_session_means_nothing() -> None:
    """The broker reconnected before the old channel closed."""
    fleet = Fleet().serving()
    old = fleet.replica(1)
    fleet.do(fleet.registration(1))
    late = MarkSilent(
        set_key=fleet.key,
        broker_id=old.broker_id,
        incarnation=Incarnation("i1.1"),
        session_ordinal=old.session_ordinal,
        cause=SilenceCause.DEAD_AT_ONCE,
    )

    assert refusal_of(fleet.do(late)) is RefusalCode.FENCED_SESSION
    assert condition_of(fleet.set)[0] is Condition.SERVING


def moved(evidence: Evidence, **changes: object) -> Evidence:
    """Evidence whose first replica differs."""
    return replace(evidence, replicas=(replace(evidence.replicas[0], **changes), *evidence.replicas[1:]))


def test_r14_evidence_that_moved_is_refused() -> None:
    """masterEpoch, SyncStateSetEpoch, and each replica's incarnation and session."""
    fleet = Fleet().serving()
    fleet.silence(1)
    good = fleet.evidence()
    for stale in (
        replace(good, master_epoch=good.master_epoch - 1),
        replace(good, sync_state_set_epoch=SyncStateSetEpoch(good.sync_state_set_epoch + 1)),
        moved(good, incarnation=Incarnation("i1.9")),
        moved(good, session_ordinal=SessionOrdinal(9)),
        moved(good, broker_id=BrokerId(9)),
    ):
        assert refusal_of(fleet.elect(evidence=stale)) is RefusalCode.EVIDENCE_MOVED
    assert isinstance(fleet.elect(evidence=good), Elected)


def test_r14_elect_b_is_delayed_past_an_alter() -> None:
    """ "Elect B" is delayed; alter {A} commits; the entry applies: B must not win, for A acks alone by now."""
    fleet = Fleet().serving()
    late = fleet.evidence()
    fleet.do(fleet.alter(1))

    assert refusal_of(fleet.elect(to=2, evidence=late)) is RefusalCode.EVIDENCE_MOVED


def test_r14_malformed_evidence_is_refused() -> None:
    """None at all, a replica twice, a draw out of range."""
    fleet = Fleet().serving()
    good = fleet.evidence()
    for bad in (
        replace(good, replicas=(good.replicas[0], good.replicas[0])),
        replace(good, epoch_jump_draw=16),
        replace(good, epoch_jump_draw=-1),
    ):
        assert refusal_of(fleet.elect(to=2, evidence=bad)) is RefusalCode.INVALID_ARGUMENT
    without = fleet.operation(elect_command(fleet))
    assert refusal_of(fleet.apply([without]).replies[0]) is RefusalCode.INVALID_ARGUMENT


def elect_command(fleet: Fleet) -> AnyCommand:
    """An election of replica 2."""
    return ElectMaster(set_key=fleet.key, designated=BrokerId(2))


def test_r15_an_operation_above_the_feature_level_stops_the_node_and_changes_nothing() -> None:
    """It must not diverge: nothing of the entry is applied."""
    fleet = Fleet().serving()
    good = fleet.operation(elect_command(fleet), evidence=fleet.evidence())
    high = fleet.operation(elect_command(fleet), version=2)

    applied = apply_operations(fleet.state, (good, high), term=1, index=99)

    assert applied.stop_reason is not None
    assert "feature level 2" in applied.stop_reason
    assert (applied.state, applied.replies, applied.records) == (fleet.state, (), ())


def test_r25_elections_come_before_alters_in_a_batch_and_replies_keep_their_order() -> None:
    """The alter of the old master shares the entry with the election that deposes it: it is refused."""
    fleet = Fleet().serving()
    alter = fleet.operation(fleet.alter(1))
    elect = fleet.operation(elect_command(fleet), evidence=fleet.evidence())

    applied = fleet.apply([alter, elect])

    assert refusal_of(applied.replies[0]) is RefusalCode.FENCED_MASTER_EPOCH
    assert isinstance(applied.replies[1], Elected)
    assert isinstance(applied.records[0].event, MasterElected)


def test_r24_refusals_are_on_record_and_repeated_answers_are_not() -> None:
    """One refusal, one event; the same request id again: none."""
    fleet = Fleet().serving()
    fleet.do(elect_command(fleet), request_id="x")
    assert isinstance(fleet.events[0], CommandRefused)

    fleet.do(elect_command(fleet), request_id="x")

    assert fleet.events == []


# --- the rest of the model's table: the controllers' part ------------------------------------------------------------


def test_model_r2_state_of_another_epoch_names_its_own_master_and_incarnation() -> None:
    """{A,B}; B elected (2), then A (3, {A}): the view that A hears says epoch 3, so A in 1 cannot take it for its own."""
    fleet = Fleet().serving(replicas=(1, 2), configuration=TWO)
    fleet.elect(to=2)
    fleet.silence(2)
    fleet.elect()

    view = view_of(fleet.state, fleet.key)

    assert view is not None
    assert (view.master, view.master_epoch, view.master_incarnation) == (1, 3, "i1.1")


def test_model_suspect_as_the_only_member_while_another_holds_everything() -> None:
    """{winner} alone loses nothing, but strands; the survivors in the set make the other one electable."""
    fleet = Fleet().serving()
    fleet.silence(1)
    fleet.elect()
    fleet.enter(10)
    fleet.do(fleet.registration(2, incarnation="i2.2", boot="boot-2"))

    assert fleet.want(fleet.elect(), Elected).verdict.winner == 3


def test_ack_modes_n_and_async_rank_the_longest_log_first() -> None:
    """R10: (epoch, end) ranks first, zones and priorities after it."""
    for mode, winner in ((AckMode.ALL, 2), (AckMode.N, 3), (AckMode.ASYNC, 3)):
        fleet = Fleet()
        for broker_id in (1, 2, 3):
            fleet.grant(f"code-{broker_id}")
            fleet.do(
                fleet.registration(
                    broker_id, priority=broker_id, configuration=SetConfiguration(expected_replicas=3, ack_mode=mode)
                )
            )
        fleet.elect()
        fleet.silence(1)
        elected = fleet.want(fleet.elect(evidence=fleet.evidence({2: positions(10), 3: positions(20)})), Elected)
        assert elected.verdict.winner == winner


def test_a_wiped_fleet_is_told_by_its_incarnation() -> None:
    """What replicas kept names the old fleet; the state is the new one's."""
    fleet = wiped((1, 3, 2, (1,)))

    assert fleet.set.recovery is not None
    assert fleet.set.recovery.newest is not None
    assert fleet.set.recovery.newest.fleet_incarnation == OLD_FLEET


def test_r1_a_late_duplicate_of_an_earlier_lifes_registration_is_refused() -> None:
    """Simulation seed 424: it had never been applied, so it was new, and ended the life of who had come after it."""
    fleet = Fleet().serving()
    late = fleet.registration(2, incarnation="i2.2")
    fleet.do(fleet.registration(2, incarnation="i2.3"))
    before = fleet.set

    reply = fleet.want(fleet.do(late), Refused)

    assert reply.code is RefusalCode.EVIDENCE_MOVED
    assert reply.registered == fleet.replica(2).registered_as
    assert fleet.set == before


def test_r1_a_late_duplicate_opens_no_session_and_voids_no_goodbye() -> None:
    """A stopped replica must not look alive again, nor its clean stop be forgotten."""
    fleet = Fleet().serving()
    late = fleet.registration(2)
    fleet.do(late)
    mark = fleet.goodbye(2, end=0)

    assert refusal_of(fleet.do(late)) is RefusalCode.EVIDENCE_MOVED

    assert not fleet.replica(2).is_alive
    assert fleet.replica(2).goodbye == mark


def test_r1_who_was_refused_registers_by_what_the_refusal_says() -> None:
    """An answer that was lost, a wiped controller: the living process is told what it has to replace."""
    fleet = Fleet().serving()
    command = replace(fleet.registration(2, incarnation="i2.2"), replaces=None)
    refused = fleet.want(fleet.do(command), Refused)

    fleet.want(fleet.do(replace(command, replaces=refused.registered)), Registered)

    assert judged(fleet) is Intactness.SAME_BOOT
