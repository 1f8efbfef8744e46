"""Laws of the controller's core over random lives of a broker set (C1-C10, docs/invariants.md)."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from rollcall_ha.controller.contract.commands import Operation
from rollcall_ha.controller.contract.events import AnyEvent, EventRecord, MasterElected
from rollcall_ha.controller.contract.ids import BrokerId, LogOffset, MasterEpoch, ReplicaKind, SetKey
from rollcall_ha.controller.contract.replies import AlterDecided, Elected
from rollcall_ha.controller.contract.verdicts import CandidateOutcome, CandidateVerdict
from rollcall_ha.controller.core.apply import apply_operations
from rollcall_ha.controller.core.evolve import evolve, evolve_all
from rollcall_ha.controller.core.explain import checked_rules
from rollcall_ha.controller.core.history import history_of
from rollcall_ha.controller.core.policies import DATA_FIRST, DATA_FIRST_THEN_WARM, POLICIES
from rollcall_ha.controller.core.preview import preview
from rollcall_ha.controller.core.ranking import elect, elect_again
from rollcall_ha.controller.core.snapshot import decode_state, encode_state
from rollcall_ha.controller.core.state import EMPTY_FLEET, FleetState, SetState
from rollcall_ha.controller.core.views import condition_of
from tests.support.core_builders import SET_A, Fleet, positions
from tests.support.core_strategies import Step, live, lives, operation_of, settled

LAW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])

candidates = st.builds(
    CandidateVerdict,
    outcome=st.sampled_from(CandidateOutcome),
    reason=st.just("current master"),
    broker_id=st.integers(1, 9).map(BrokerId),
    is_alive=st.booleans(),
    is_in_sync=st.booleans(),
    is_suspect=st.booleans(),
    is_learner=st.booleans(),
    is_ready=st.booleans(),
    heartbeat_age_ms=st.none() | st.integers(0, 3),
    last_epoch=st.none() | st.integers(-1, 2).map(MasterEpoch),
    max_offset=st.none() | st.sampled_from([0, 1, 2**31, 2**40]).map(LogOffset),
    priority=st.integers(0, 2),
    zone=st.sampled_from(["", "a", "b"]),
    kind=st.sampled_from(ReplicaKind),
    is_set_aside=st.sampled_from([False, False, True]),
    is_warm=st.sampled_from([UNSET, False, True]),
)


def ranked_by(candidate: CandidateVerdict) -> tuple[int, int, int]:
    """Epoch, end and priority; -1 = unknown."""
    epoch, end = candidate.last_epoch, candidate.max_offset
    return (-1 if epoch is None else epoch, -1 if end is None else end, candidate.priority)


@pytest.mark.slow
@LAW
@given(lives())
def test_random_lives_keep_every_invariant(life: list[list[Step]]) -> None:
    """From a serving set: C1-C7, C10, R3, R6, R12, R13, R24 after every entry; every condition can be told."""
    fleet = live(settled(), life)

    condition_of(fleet.set)


@LAW
@given(lives())
def test_random_lives_from_nothing_keep_every_invariant(life: list[list[Step]]) -> None:
    """From an empty fleet: first elections, bootstrap, recoveries."""
    live(Fleet(), life)


@pytest.mark.slow
@LAW
@given(lives(20))
def test_the_events_of_a_set_rebuild_its_state(life: list[list[Step]]) -> None:
    """Folding ``evolve`` over the journal gives the state that apply has."""
    fleet = live(settled(), life)

    assert fleet.state.sets == _folded(fleet.records)


@LAW
@given(lives(20))
def test_equal_logs_give_equal_states_and_replies(life: list[list[Step]]) -> None:
    """C8: full replay, and snapshot plus suffix, end in equal bytes; so do the replies."""
    fleet = live(settled(), life)
    middle = len(fleet.entries) // 2

    replayed, replies = _replayed(EMPTY_FLEET, fleet.entries, first_index=1)
    half, _ = _replayed(EMPTY_FLEET, fleet.entries[:middle], first_index=1)
    resumed, late_replies = _replayed(decode_state(encode_state(half)), fleet.entries[middle:], first_index=middle + 1)

    assert list(encode_state(replayed)) == list(encode_state(fleet.state)) == list(encode_state(resumed))
    assert replies[middle:] == late_replies


@LAW
@given(lives(20))
def test_a_state_survives_its_snapshot(life: list[list[Step]]) -> None:
    """State -> JSON -> state is the same value."""
    fleet = live(settled(), life)

    assert decode_state(encode_state(fleet.state)) == fleet.state


@pytest.mark.slow
@LAW
@given(lives(15), lives(15))
def test_evolve_is_total(life: list[list[Step]], other: list[list[Step]]) -> None:
    """The events of one life on the states of another: a state comes out, and it can be written."""
    events: list[AnyEvent] = [record.event for record in live(Fleet(), life).records]
    state = live(settled(), other).set
    for event in events:
        state = evolve(state, event)

    assert msgspec.json.decode(msgspec.json.encode(state), type=SetState) == state


@pytest.mark.slow
@LAW
@given(lives(20))
def test_elections_repeat_from_their_own_record(life: list[list[Step]]) -> None:
    """S68: the stored evidence elects the stored winner again; explain says so; history tells each epoch once."""
    fleet = live(settled(), life)
    for record in fleet.records:
        if isinstance(record.event, MasterElected):
            again = elect_again(record.event.verdict)

            assert again is not None
            assert again.winner == record.event.master
            assert not [line for line in checked_rules([record]) if line.startswith("BROKEN")]
    epochs = [row.master_epoch for row in history_of(fleet.records)]

    assert epochs == sorted(set(epochs), reverse=True)


@LAW
@given(lives(15), st.tuples(*[st.integers(0, 16)] * 5))
def test_a_preview_changes_nothing_and_says_what_the_command_would(life: list[list[Step]], step: Step) -> None:
    """S68: on unchanged state the dry run and the real one give the same kind of answer, and refuse alike."""
    fleet = live(settled(), life)
    operation = operation_of(fleet, step)
    before = list(encode_state(fleet.state))

    dry = preview(fleet.state, operation)

    assert list(encode_state(fleet.state)) == before
    if operation.request_id not in fleet.state.requests:
        real = fleet.apply([operation]).replies[0]
        assert type(dry) is type(real)
        assert getattr(dry, "code", None) == getattr(real, "code", None)


@LAW
@given(
    st.lists(candidates, max_size=6, unique_by=lambda candidate: candidate.broker_id),
    st.sampled_from(sorted(POLICIES)),
    st.randoms(use_true_random=False),
    st.none() | st.integers(1, 9).map(BrokerId),
)
def test_elect_is_a_total_order_with_a_reason_for_everybody(
    everybody: list[CandidateVerdict], policy: str, random: st.DataObject, designated: BrokerId | None
) -> None:
    """Independent of the input's order; each candidate once; a winner is alive, ready, heard and no learner."""
    shuffled = list(everybody)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    ranking = elect(everybody, policy=POLICIES[policy], designated=designated, previous_master=BrokerId(1))
    other = elect(shuffled, policy=POLICIES[policy], designated=designated, previous_master=BrokerId(1))

    assert ranking == other
    assert sorted(c.broker_id for c in ranking.candidates) == sorted(c.broker_id for c in everybody)
    assert all(candidate.reason for candidate in ranking.candidates)
    elected = [c for c in ranking.candidates if c.outcome is CandidateOutcome.ELECTED]
    assert [c.broker_id for c in elected] == ([] if ranking.winner is None else [ranking.winner])
    for winner in elected:
        assert winner.is_alive
        assert winner.is_ready
        assert not winner.is_learner
        assert not winner.is_set_aside
        assert winner.is_in_sync or POLICIES[policy].allows_outsiders
    # Warmth decides among equals alone: who is first without it is not before the winner in anything else.
    if policy == DATA_FIRST_THEN_WARM.name and ranking.winner is not None:
        cold = elect(everybody, policy=DATA_FIRST, designated=designated, previous_master=BrokerId(1))
        by_id = {candidate.broker_id: candidate for candidate in everybody}
        first = by_id[cold.winner or BrokerId(0)]
        assert ranked_by(by_id[ranking.winner]) == ranked_by(first)


@LAW
@given(
    st.lists(st.tuples(st.integers(1, 1_000), st.integers(0, 100)), min_size=3, max_size=3),
    st.integers(1, 1_000),
)
def test_r3_what_an_election_was_told_to_be_confirmed_is_missed_in_every_later_restart(
    reports: list[tuple[int, int]], missing_bytes: int
) -> None:
    """A member that comes back with less than any member knew to be confirmed has lost it; with as much, it has not."""
    fleet = Fleet().serving()
    fleet.silence(1)
    ends = {
        broker_id: positions(confirm + tail, confirm=confirm) for broker_id, (confirm, tail) in enumerate(reports, 1)
    }
    fleet.want(fleet.elect(evidence=fleet.evidence(ends)), Elected)
    known = max(ends[member].confirm_offset for member in fleet.set.sync_state_set)
    (other,) = (member for member in fleet.set.sync_state_set if member != fleet.set.master)

    fleet.do(fleet.registration(other, incarnation="as-much", holds=positions(known)))
    assert other in fleet.set.sync_state_set
    fleet.do(fleet.registration(other, incarnation="less", holds=positions(max(0, known - missing_bytes))))

    assert other not in fleet.set.sync_state_set


@LAW
@given(st.lists(st.integers(1, 2**63 - 1), max_size=12))
def test_r1_whatever_seqs_are_shown_there_is_room_for_the_alters_of_a_reign(shown: list[int]) -> None:
    """A stranger's alters in the master's name: after them the master's next one is decided, above all of theirs."""
    fleet = Fleet().serving()
    for seq in shown:
        fleet.do(fleet.alter(1, 2, 3, seq=seq))
    last = fleet.set.last_alter
    following = 1 if last is None else last.verdict.seq + 1

    assert following < 2**62
    assert isinstance(fleet.do(fleet.alter(1, 2, 3, seq=following)), AlterDecided)


@pytest.mark.slow
def test_two_hash_seeds_give_byte_equal_states() -> None:
    """C8: nothing iterates over a set whose order matters."""
    program = (
        "from tests.support.core_strategies import live, settled\n"
        "from rollcall_ha.controller.core.snapshot import encode_state\n"
        "import hashlib, random\n"
        "r = random.Random(4711)\n"
        "life = [[(r.randrange(17), *(r.randrange(6) for _ in range(3)), r.randrange(10))] for _ in range(400)]\n"
        "fleet = live(settled(), life)\n"
        "print(hashlib.sha256(b''.join(encode_state(fleet.state))).hexdigest(), fleet.state.chain_head)\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    }

    assert len(outputs) == 1


def _folded(records: list[EventRecord]) -> dict[SetKey, SetState]:
    sets: dict[SetKey, SetState] = {}
    for record in records:
        # An event that is filed under no set may tell of many.
        for key in tuple(sets) if record.set_key is None else (record.set_key,):
            before = sets.get(key, SetState(set_key=key))
            after = evolve_all(before, (record,))
            if key in sets or after != before:
                sets[key] = after
    assert set(sets) <= {SET_A}
    return sets


def _replayed(
    state: FleetState, entries: list[tuple[Operation, ...]], *, first_index: int
) -> tuple[FleetState, list[object]]:
    replies: list[object] = []
    for index, entry in enumerate(entries, start=first_index):
        applied = apply_operations(state, entry, term=1, index=index)
        state = applied.state
        replies.append(applied.replies)
    return state, replies
