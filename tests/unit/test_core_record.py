"""What the core says afterwards: history, explanations, views."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rollcall_ha.cli import output
from rollcall_ha.cli.decisions import explanation_report
from rollcall_ha.controller.contract.ids import (
    AckMode,
    BrokerId,
    Incarnation,
    MasterEpoch,
)
from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.controller.contract.values import Milestone, Phase, SilenceCause
from rollcall_ha.controller.contract.verdicts import ElectionKind, Grade
from rollcall_ha.controller.core.explain import checked_rules, explain
from rollcall_ha.controller.core.history import history_of
from rollcall_ha.controller.core.views import condition_of, view_of
from tests.support.core_builders import SET_A, SET_B, Fleet, positions
from tests.support.core_fleets import FRESH, TIMEOUT, failed_over, last_election, truncated

# --- history and explanations ----------------------------------------------------------------------------------------


def reported(phase: Phase, elapsed_us: int, *, by_leader: bool = False, observed_us: int | None = None) -> Milestone:
    """A milestone of epoch 2."""
    return Milestone(
        master_epoch=MasterEpoch(2),
        phase=phase,
        elapsed_us=elapsed_us,
        broker_id=None if by_leader else BrokerId(2),
        incarnation=None if by_leader else Incarnation("i2.1"),
        observed_us=observed_us,
    )


def test_phases_chain_on_their_clocks_and_the_rest_is_unattributed() -> None:
    """S79: oldest stamp -> detected -> proposed -> committed -> notified | push -> promised -> role -> serving."""
    fleet = failed_over()
    fleet.milestones(
        reported(Phase.COMMITTED, 9_000, by_leader=True),
        reported(Phase.NOTIFIED, 9_500, by_leader=True),
        reported(Phase.PROMISED, 2_000),
        reported(Phase.ROLE_APPLIED, 5_000),
        reported(Phase.SERVING, 6_000, observed_us=3_117_000),
        reported(Phase.FIRST_ACK, 50_000, observed_us=3_170_000),
        reported(Phase.FIRST_ACK, 90_000, observed_us=9_999_999),
    )

    row = history_of(fleet.records)[0]

    assert [(span.phase, span.duration_us) for span in row.phases] == [
        (Phase.DETECTED, 3_099_600),
        (Phase.PROPOSED, 400),
        (Phase.COMMITTED, 9_000),
        (Phase.NOTIFIED, 500),
        (Phase.PROMISED, 2_000),
        (Phase.ROLE_APPLIED, 3_000),
        (Phase.SERVING, 1_000),
        (Phase.FIRST_ACK, 44_000),
    ]
    assert row.total_us == 3_117_000
    assert row.unattributed_us == 3_117_000 - 3_115_500
    assert (row.cause, row.grade, row.loss_bytes) == ("no heartbeat for 3.1 s", Grade.PROVEN, 0)
    assert (row.from_master, row.to_master, row.kind) == (1, 2, ElectionKind.FAILOVER)


def test_a_send_31_s_after_the_failover_does_not_make_it_an_outage_of_31_s() -> None:
    """The outage ends when the gate opens; after it counts what somebody waited, and nobody was sending."""
    fleet = failed_over()
    fleet.milestones(
        reported(Phase.SERVING, 14_000, observed_us=3_114_000),
        replace(reported(Phase.FIRST_ACK, 31_600_000, observed_us=34_700_000), waited_us=2_000),
    )

    row = history_of(fleet.records)[0]

    assert (row.total_us, row.waited_us) == (3_114_000, 2_000)
    assert row.phases[-1].duration_us == 31_600_000 - 14_000


@pytest.mark.parametrize(
    ("told_us", "waited_us"),
    [(None, None), (7_000, 7_000), (36_000, 36_000), (3_150_000, 36_000)],
)
def test_a_sender_that_waited_through_the_outage_waited_only_the_rest_after_it(
    told_us: int | None, waited_us: int | None
) -> None:
    """Otherwise the outage would be felt twice; and a client that cannot say leaves it unknown, not 0."""
    fleet = failed_over()
    fleet.milestones(
        reported(Phase.SERVING, 14_000, observed_us=3_114_000),
        replace(reported(Phase.FIRST_ACK, 50_000, observed_us=3_150_000), waited_us=told_us),
    )

    assert history_of(fleet.records)[0].waited_us == waited_us


@pytest.mark.parametrize(
    ("first_sign_us", "alive_us", "total_us", "total_us_max", "missing_fault"),
    [
        (3_099_600, 3_099_600, 3_120_000, 3_120_000, False),  # the close was seen when it happened
        (2_600_000, 3_100_000, 3_120_000, 3_620_000, True),  # a hang: it lies between two heartbeats
        (3_100_000, None, 3_120_000, None, True),  # no sign of life was known
    ],
)
def test_a_beginning_that_was_not_seen_is_a_lower_and_an_upper_bound(
    first_sign_us: int,
    alive_us: int | None,
    total_us: int,
    total_us_max: int | None,
    missing_fault: bool,
) -> None:
    """Never a small number with a straight face: ``missing`` names the fault."""
    fleet = Fleet().serving()
    fleet.silence(1)
    stamps = replace(TIMEOUT, first_sign_age_us=first_sign_us, alive_age_us=alive_us)
    fleet.elect(evidence=fleet.evidence(detection=stamps))
    fleet.milestones(reported(Phase.SERVING, 6_000, observed_us=total_us))

    row = history_of(fleet.records)[0]

    assert (row.total_us, row.total_us_max, Phase.FAULT in row.missing) == (total_us, total_us_max, missing_fault)


@pytest.mark.parametrize(("alive_us", "total_us_max"), [(3_600_000, 4_620_000), (None, None)])
def test_the_bounds_of_the_fault_and_of_its_end_add_up(alive_us: int | None, total_us_max: int | None) -> None:
    """Another leader than the one that saw the fault timed the end: an interval at both ends."""
    fleet = Fleet().serving()
    fleet.silence(1)
    stamps = replace(TIMEOUT, first_sign_age_us=3_100_000, alive_age_us=alive_us)
    fleet.elect(evidence=fleet.evidence(detection=stamps))
    fleet.milestones(replace(reported(Phase.SERVING, 6_000, observed_us=3_102_000), uncertainty_us=1_018_000))

    row = history_of(fleet.records)[0]

    assert (row.total_us, row.total_us_max, row.missing[0]) == (3_102_000, total_us_max, Phase.FAULT)
    assert row.unattributed_us == 0, "4 ms of the phases lie beyond the lower bound"


def test_a_failover_whose_fault_nobody_saw_has_no_upper_bound_and_a_requested_election_is_exact() -> None:
    """What begins with the election itself is known from its beginning; a master that was lost was lost before it."""
    fleet = Fleet().serving()
    fleet.silence(1)
    fleet.elect()
    fleet.milestones(reported(Phase.SERVING, 6_000, observed_us=9_000))
    lost = history_of(fleet.records)[0]
    fleet = Fleet().serving()
    fleet.elect(to=2)
    fleet.milestones(reported(Phase.SERVING, 6_000, observed_us=9_000))
    moved = history_of(fleet.records)[0]

    assert (lost.total_us, lost.total_us_max, lost.missing[0]) == (9_000, None, Phase.FAULT)
    assert (moved.kind, moved.total_us, moved.total_us_max) == (ElectionKind.REQUESTED, 9_000, 9_000)
    assert Phase.FAULT not in moved.missing


def test_stamps_that_are_missing_or_run_backwards_are_named_not_guessed() -> None:
    """A milestone of another incarnation is not the winner's either."""
    fleet = failed_over()
    fleet.milestones(
        reported(Phase.PROMISED, 5_000),
        reported(Phase.ROLE_APPLIED, 4_000),
        replace(reported(Phase.SERVING, 6_000), incarnation=Incarnation("i2.0")),
    )

    row = history_of(fleet.records)[0]

    assert row.missing == (
        Phase.FAULT,
        Phase.COMMITTED,
        Phase.NOTIFIED,
        Phase.ROLE_APPLIED,
        Phase.SERVING,
        Phase.FIRST_ACK,
    )
    assert (row.total_us, row.unattributed_us) == (None, None)


def test_history_names_causes_and_is_newest_first() -> None:
    """Every kind of silence, a request, and a failover without stamps."""
    causes = []
    for detection in (
        replace(TIMEOUT, last_heartbeat_age_us=None),
        replace(TIMEOUT, cause=SilenceCause.DEAD_AT_ONCE),
        replace(TIMEOUT, cause=SilenceCause.REPLACED),
        replace(TIMEOUT, cause=SilenceCause.GOODBYE),
        None,
    ):
        fleet = Fleet().serving()
        fleet.silence(1)
        fleet.elect(evidence=fleet.evidence(detection=detection))
        row = history_of(fleet.records)[0]
        causes.append(row.cause)
        assert Phase.DETECTED not in row.missing, "without stamps of its own it has those of the silence"
        assert (row.grade, row.loss_bytes, row.cut_bytes) == (None, None, None)
    assert causes == [
        "no heartbeat in time",
        "session closed, probe refused, HA link closed",
        "restarted as a new incarnation",
        "stopped cleanly",
        "no heartbeat in time",
    ]
    fleet.elect(to=3)
    rows = history_of([*fleet.records, *fleet.records])
    assert [(row.master_epoch, row.cause) for row in rows] == [(3, "requested"), (2, "failover"), (1, "requested")] or [
        row.master_epoch for row in rows
    ] == [3, 2, 1]


def test_loss_in_history_follows_the_grade() -> None:
    """Unknown is no number; refuted is one."""
    assert history_of(failed_over(released=150).records)[0].loss_bytes == 50
    assert history_of(failed_over(ack_mode=AckMode.N).records)[0].loss_bytes is None


def test_an_explanation_holds_the_trigger_the_rules_and_the_correction() -> None:
    """From the event that triggered it to the grade that was corrected epochs later."""
    fleet = Fleet().serving()
    fleet.silence(1)
    trigger = fleet.last.records[0].ref
    fleet.elect(evidence=replace(fleet.evidence({1: positions(9, released=9), 2: positions(9)}), triggered_by=trigger))
    fleet.enter(9)
    fleet.elect(to=3)
    fleet.enter(9)
    fleet.milestones(truncated(2, 1, None))

    told = explain(fleet.records, master_epoch=MasterEpoch(2), freshness=FRESH)

    assert told is not None
    assert told.events[0].ref == trigger
    assert told.loss is not None
    assert told.loss.cut_bytes == 0
    assert told.election.event == next(r.event for r in told.events if r.ref == told.row.event)
    assert all(line.startswith("holds") for line in told.invariants), told.invariants
    shown = output.render_text(explanation_report(told))
    assert [shown.count(line) for line in ("Proof: proven", told.loss.facts[0])] == [1, 1], "it was printed twice"
    assert any("elected again from the stored evidence by preference-first@1: replica 2" in t for t in told.invariants)
    assert explain(fleet.records, master_epoch=MasterEpoch(77), freshness=FRESH) is None


def test_an_explanation_says_what_does_not_hold() -> None:
    """A doctored record: outcome that the evidence does not give, evidence of another epoch, an unknown policy."""
    fleet = failed_over()
    record, event = last_election(fleet)
    doctored = replace(
        event,
        evidence=replace(event.evidence, master_epoch=MasterEpoch(7)),
        verdict=replace(event.verdict, winner=BrokerId(3)),
    )
    unknown = replace(event, verdict=replace(event.verdict, policy="other@9"))

    broken = [t for t in checked_rules([replace(record, event=doctored)]) if t.startswith("BROKEN")]

    assert [text.split()[1] for text in broken] == ["C4", "R14", "S68"]
    assert "not repeated: policy other@9 is not known here" in checked_rules([replace(record, event=unknown)])


# --- views -----------------------------------------------------------------------------------------------------------


def test_conditions_say_why() -> None:
    """Each state of a set has a condition and words."""
    fleet = Fleet()
    fleet.grant("code-1")
    assert condition_of(fleet.set) == (Condition.WAITING_FOR_REPLICAS, "0 of 1 expected replicas have registered")
    assert view_of(fleet.state, SET_B) is None
    fleet = Fleet().serving()
    fleet.silence(1)
    assert condition_of(fleet.set)[0] is Condition.MASTER_SILENT
    fleet.silence(2)
    fleet.silence(3)
    condition, reason = condition_of(fleet.set)
    assert condition is Condition.NO_ELIGIBLE_REPLICA
    assert reason == "in SyncStateSet: 1 is silent (timeout); 2 is silent (timeout); 3 is silent (timeout)"
    fleet.clean(is_unclean=True)
    assert condition_of(fleet.set)[0] is Condition.CLEANED
    view = view_of(fleet.state, SET_A)
    assert view is not None
    assert (view.index, view.members) == (fleet.index, ())
