"""What the core says of loss: grades, what is inherited, and what an old master that returns corrects."""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import RecordMilestones, ReportEntered
from rollcall_ha.controller.contract.events import (
    LossGraded,
)
from rollcall_ha.controller.contract.ids import (
    AckMode,
    BrokerId,
    Incarnation,
    LogOffset,
    MasterEpoch,
    ReplicaKind,
)
from rollcall_ha.controller.contract.replies import Done
from rollcall_ha.controller.contract.values import SetConfiguration
from rollcall_ha.controller.contract.verdicts import Grade, LossVerdict
from tests.support.core_builders import SET_A, SET_B, Fleet, positions, stored
from tests.support.core_fleets import failed_over, refusal_of, truncated


def grade(fleet: Fleet) -> LossVerdict:
    """The grade of the last entry."""
    return fleet.event(LossGraded).verdict


# --- grades ----------------------------------------------------------------------------------------------------------


def test_a_clean_failover_in_mode_all_is_proven() -> None:
    """Facts 1-3 are complete; fact 4 is not needed."""
    for released in (90, None):
        verdict = grade(failed_over(released=released))

        assert (verdict.grade, verdict.bound_bytes, verdict.missing) == (Grade.PROVEN, 0, ())
        assert "ack mode all" in verdict.facts


def test_a_first_election_has_nothing_to_lose() -> None:
    """Every log was empty."""
    fleet = Fleet().joined(1, 2, 3)
    fleet.elect()
    fleet.enter()

    assert grade(fleet).grade is Grade.PROVEN


def test_weak_modes_are_never_proven() -> None:
    """Without an enforced bound nothing is bounded either."""
    for mode in (AckMode.N, AckMode.ASYNC):
        verdict = grade(failed_over(ack_mode=mode, released=500))

        assert (verdict.grade, verdict.bound_bytes) == (Grade.UNKNOWN, None)
        assert mode.value in verdict.missing[0]


def test_an_unconfirmed_mode_is_unknown() -> None:
    """Fact 1 comes from the old master, replicated when it entered."""
    fleet = Fleet().joined(1, 2, 3)
    fleet.elect(to=1)
    fleet.enter(is_mode_confirmed=False)
    fleet.silence(1)
    fleet.elect()
    fleet.enter()

    assert grade(fleet).missing == ("the last master did not confirm the ack mode",)


def test_unclean_suspect_restored_java_and_bootstrap_are_unknown() -> None:
    """Each names what is missing."""
    unclean = Fleet().serving()
    unclean.do(unclean.alter(1))
    unclean.silence(1)
    unclean.elect_unclean(0)
    unclean.enter()
    suspect = Fleet().serving(replicas=(1,), configuration=SetConfiguration())
    suspect.do(suspect.registration(1, incarnation="i1.2", boot="boot-2"))
    suspect.elect_unclean(0)
    suspect.enter()
    restored = Fleet()
    restored.do(restored.registration(1, holds=positions(5, epoch=3), view=stored(3, 1, 1)))
    restored.elect()
    restored.enter()
    boot = Fleet()
    boot.grant("code-1")
    boot.do(boot.registration(1, holds=positions(5)))
    boot.bootstrap(1)
    boot.enter()
    java = Fleet()
    for broker_id in (1, 2):
        java.grant(f"code-{broker_id}")
        java.do(
            java.registration(broker_id, kind=ReplicaKind.ROCKETMQ, configuration=SetConfiguration(expected_replicas=2))
        )
    java.elect()
    java.enter()
    java.do(java.alter(1, 2))
    java.silence(1)
    java.elect()
    java.enter()
    for fleet, word in (
        (unclean, "unclean election"),
        (suspect, "suspect"),
        (restored, "stored views"),
        (boot, "bootstrapped"),
        (java, "Java"),
    ):
        verdict = grade(fleet)
        assert verdict.grade is Grade.UNKNOWN
        assert any(word in missing for missing in verdict.missing), verdict


def test_a_start_below_what_was_released_refutes() -> None:
    """In mode all: acknowledged up to 150, the epoch starts at 100."""
    verdict = grade(failed_over(released=150))

    assert (verdict.grade, verdict.bound_bytes) == (Grade.REFUTED, 50)


def test_a_winner_that_acked_beyond_its_own_end_is_not_proven() -> None:
    """It lost what it had acked."""
    assert grade(failed_over(acked=101)).grade is Grade.UNKNOWN


def test_what_a_never_entered_reign_leaves_unproven_is_inherited() -> None:
    """Unclean, never entered; the clean election on top of it proves nothing about what was lost before."""
    fleet = Fleet().serving()
    fleet.do(fleet.alter(1))
    fleet.silence(1)
    fleet.elect_unclean(0, to=2)
    fleet.elect(epoch=2)
    fleet.enter()

    assert any("epoch 2 was never entered" in missing for missing in grade(fleet).missing)


def test_a_first_reign_that_was_never_entered_leaves_nothing() -> None:
    """But the mode was not confirmed by anybody."""
    fleet = Fleet().joined(1, 2, 3)
    fleet.elect()
    fleet.silence(1)
    fleet.elect()
    fleet.enter()

    assert grade(fleet).missing == ("the last master did not confirm the ack mode",)


def test_an_old_master_that_returns_fills_in_what_was_cut() -> None:
    """Cut bytes above what was released were never acknowledged: still proven. Said once."""
    fleet = failed_over()
    fleet.milestones(truncated(2, 1, (100, 130), released=90))

    assert (grade(fleet).grade, grade(fleet).cut_bytes) == (Grade.PROVEN, 30)

    fleet.milestones(truncated(2, 1, (0, 130), released=90))
    assert not [event for event in fleet.events if isinstance(event, LossGraded)]


def test_an_old_master_that_returns_without_a_cut_says_so() -> None:
    """Zero bytes is an answer; unknown is another one."""
    fleet = failed_over()
    fleet.milestones(truncated(2, 1, None))

    assert grade(fleet).cut_bytes == 0


def test_a_cut_below_what_was_released_refutes_the_proof() -> None:
    """By the returning master's own word, else by what the evidence said."""
    for released in (120, None):
        fleet = failed_over(released=95)
        fleet.milestones(truncated(2, 1, (80, 130), released=released))

        assert grade(fleet).grade is Grade.REFUTED
        assert grade(fleet).bound_bytes == (released or 95) - 80


def test_the_cut_of_a_mere_slave_grades_nothing() -> None:
    """Only who was deposed can refute."""
    fleet = failed_over()
    fleet.milestones(truncated(2, 3, (80, 130), released=120))

    assert not [event for event in fleet.events if isinstance(event, LossGraded)]


def test_milestones_that_cannot_be_are_refused() -> None:
    """None, too many, a future epoch, an unknown replica, an unknown set."""
    fleet = Fleet().serving()
    one = truncated(1, 1, None)
    assert refusal_of(fleet.milestones()) is RefusalCode.INVALID_ARGUMENT
    assert refusal_of(fleet.milestones(*[one] * 257)) is RefusalCode.INVALID_ARGUMENT
    assert refusal_of(fleet.milestones(truncated(2, 1, None))) is RefusalCode.FENCED_MASTER_EPOCH
    assert refusal_of(fleet.milestones(truncated(1, 9, None))) is RefusalCode.UNKNOWN_REPLICA
    assert refusal_of(fleet.do(RecordMilestones(set_key=SET_B, milestones=(one,)))) is RefusalCode.SET_NOT_FOUND


def test_entering_is_for_the_elected_incarnation_only() -> None:
    """Epoch, id, incarnation, set; and a start below 0 is nonsense."""
    fleet = Fleet().joined(1, 2, 3)
    fleet.elect()
    good = ReportEntered(
        set_key=SET_A,
        broker_id=BrokerId(1),
        incarnation=Incarnation("i1.1"),
        master_epoch=MasterEpoch(1),
        start_offset=LogOffset(0),
        acked_end_max=LogOffset(0),
    )
    for bad, code in (
        (replace(good, set_key=SET_B), RefusalCode.SET_NOT_FOUND),
        (replace(good, master_epoch=MasterEpoch(2)), RefusalCode.FENCED_MASTER_EPOCH),
        (replace(good, broker_id=BrokerId(2)), RefusalCode.INVALID_MASTER),
        (replace(good, incarnation=Incarnation("i1.2")), RefusalCode.FENCED_INCARNATION),
        (replace(good, start_offset=LogOffset(-1)), RefusalCode.INVALID_REQUEST),
    ):
        assert refusal_of(fleet.do(bad)) is code
    assert isinstance(fleet.do(good), Done)
