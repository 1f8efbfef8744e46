"""The invariants themselves notice what they are for."""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.controller.contract.events import SyncStateSetAltered
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    FleetIncarnation,
    Incarnation,
    LogOffset,
    MasterEpoch,
    RegisterCode,
    ReplicaKind,
    SessionOrdinal,
    SyncStateSetEpoch,
)
from rollcall_ha.controller.contract.values import EventRef, Evidence
from rollcall_ha.controller.core.invariants import check_entry, check_state, check_transition
from rollcall_ha.controller.core.state import REQUEST_WINDOW_ENTRIES
from tests.support.core_builders import SET_A, SET_B, Fleet, ids
from tests.support.core_fleets import (
    failed_over,
    last_election,
)

# --- the invariants themselves ---------------------------------------------------------------------------------------


def test_the_invariants_notice_what_they_are_for() -> None:
    """A checker that cannot fail proves nothing: each doctored state is named."""
    fleet = Fleet().serving()
    good = fleet.set
    first = good.replicas[0]
    learner = replace(first, description=replace(fleet.registration(1).description, is_learner=True))
    for bad, words in (
        (replace(good, set_key=SET_B), "another key"),
        (replace(good, replicas=good.replicas[::-1]), "not sorted"),
        (replace(good, next_id=BrokerId(2)), "C6: next id"),
        (
            replace(
                good, replicas=(first, *[replace(r, register_code=first.register_code) for r in good.replicas[1:]])
            ),
            "share",
        ),
        (replace(good, sync_state_set=ids(1, 2, 9)), "C3: members"),
        (replace(good, master=BrokerId(7)), "C3: master"),
        (replace(good, bound_incarnations=good.bound_incarnations[:2]), "R3: bound"),
        (replace(good, replicas=(replace(first, incarnation=Incarnation("x")), *good.replicas[1:])), "registered is x"),
        (replace(good, replicas=(learner, *good.replicas[1:])), "R23"),
        (replace(good, replicas=(replace(first, is_suspect=True), *good.replicas[1:])), "suspect"),
        (replace(good, sync_state_set=(), bound_incarnations=(), master=None), "S08"),
        (replace(good, is_tombstone=True), "W29"),
        (replace(good, master_incarnation=Incarnation("x")), "R9: master 1 rules as x"),
        (replace(good, reigns=good.reigns * 2), "C2: reigns [1, 1] do not rise"),
        (replace(good, master_epoch=MasterEpoch(0)), "C1: the newest reign"),
        (replace(good, unclean_epoch=MasterEpoch(7)), "R26: unclean epoch 7"),
        (replace(good, master=BrokerId(2), master_incarnation=good.replicas[1].incarnation), "C2: epoch 1 has two"),
    ):
        broken = check_state(replace(fleet.state, sets={SET_A: bad}))
        assert any(words in text for text in broken), (words, broken)
    window = dict.fromkeys(map(str, range(REQUEST_WINDOW_ENTRIES + 1)))
    assert "window" in check_state(replace(fleet.state, requests=window))[0]


def test_the_invariants_notice_transitions_that_cannot_be() -> None:
    """Falling epochs, two masters, a moved start, a lost set, a broken chain, a refusal that changes something."""
    fleet = Fleet().serving()
    old = replace(fleet.set, start_offset=LogOffset(5))
    before = replace(fleet.state, sets={SET_A: old})
    second = old.replicas[1]
    for changes, words in (
        ({"master_epoch": MasterEpoch(0)}, "C1: epochs fell"),
        ({"master_epoch": MasterEpoch(5)}, "without an election"),
        ({"sync_state_set": ids(1, 2)}, "within one SyncStateSetEpoch"),
        ({"master": BrokerId(2)}, "C2"),
        ({"start_offset": LogOffset(6)}, "R12"),
        ({"next_id": BrokerId(1)}, "C6: next id fell"),
        ({"replicas": (old.replicas[0], replace(second, register_code=RegisterCode("z")))}, "one register code"),
        ({"replicas": (replace(second, session_ordinal=SessionOrdinal(0)),)}, "S33"),
    ):
        broken = check_transition(before, replace(before, sets={SET_A: replace(old, **changes)}), [])
        assert any(words in text for text in broken), (words, broken)
        assert any("C10" in text for text in broken)
    assert "vanished" in check_transition(before, replace(before, sets={}), [])[0]
    assert "chain head" in check_transition(before, replace(before, chain_head="x"), [])[0]
    other = replace(before, fleet_incarnation=FleetIncarnation("x"))
    assert "fleet incarnation" in check_transition(before, other, [])[0]
    lived = replace(old, replicas=(replace(second, ended_incarnations=(Incarnation("i2.1"),)),))
    assert any("R13" in t for t in check_transition(replace(before, sets={SET_A: lived}), before, []))
    tombstone = replace(old, replicas=(), is_tombstone=True, next_id=BrokerId(2))
    assert any("forgot" in t for t in check_transition(before, replace(before, sets={SET_A: tombstone}), []))


def test_the_invariants_notice_elections_that_cannot_be() -> None:
    """The event alone gives it away."""
    fleet = failed_over()
    record, event = last_election(fleet)
    verdict = event.verdict
    dead = tuple(replace(c, is_alive=False) for c in verdict.candidates)
    java = tuple(replace(c, kind=ReplicaKind.ROCKETMQ) for c in verdict.candidates)
    for bad, words in (
        (replace(event, master_epoch=MasterEpoch(9)), "C1: an election went"),
        (replace(event, sync_state_set_epoch=SyncStateSetEpoch(0)), "C1: an election left"),
        (replace(event, sync_state_set=ids(3)), "C3: elected"),
        (replace(event, verdict=replace(verdict, candidates=dead)), "C4: elected"),
        (replace(event, verdict=replace(verdict, previous_set=ids(3))), "C4: clean winner"),
        (replace(event, verdict=replace(verdict, candidates=java)), "C5"),
        (replace(event, sync_state_set=ids(2, 3, 9)), "R6: [9] entered"),
        (replace(event, verdict=replace(verdict, candidates=dead)), "R6: silent"),
    ):
        broken = check_transition(fleet.state, fleet.state, [replace(record, event=bad)])
        assert any(words in text for text in broken), (words, broken)


def test_the_invariants_notice_alters_that_cannot_be() -> None:
    """C7: an accepted alter changes something and keeps the master."""
    fleet = Fleet().serving()
    fleet.do(fleet.alter(1, 2))
    record = fleet.records[-1]
    event = record.event
    assert isinstance(event, SyncStateSetAltered)
    for members, words in ((event.previous_set, "leaves the set at"), (ids(2, 3), "lacks the master 1")):
        bad = replace(event, verdict=replace(event.verdict, sync_state_set=members))
        broken = check_transition(fleet.state, fleet.state, [replace(record, event=bad)])
        assert any("C7" in text and words in text for text in broken), (words, broken)


def test_after_an_entry_only_the_sets_that_it_changed_are_looked_at() -> None:
    """A set that was unsound before is not what this entry broke; one that it touched is named, state and step."""
    fleet = Fleet().serving()
    bad = replace(fleet.set, is_tombstone=True)
    before = replace(fleet.state, sets={SET_A: bad, SET_B: replace(fleet.set, set_key=SET_B)})

    assert check_entry(before, before, []) == ()
    after = replace(before, sets={**before.sets, SET_B: replace(bad, set_key=SET_B, next_id=BrokerId(1))})
    broken = check_entry(before, after, [])

    assert all(text.startswith(f"{SET_B}: ") for text in broken)
    assert any("W29" in text for text in broken)
    assert any("C6: next id fell" in text for text in broken)


def test_evidence_of_an_event_ref_is_carried_through() -> None:
    """An election's event names the event that triggered it."""
    fleet = Fleet().serving()
    fleet.silence(1)
    ref = EventRef(term=1, index=2, ordinal=3)
    evidence: Evidence = replace(fleet.evidence(), triggered_by=ref)
    fleet.elect(evidence=evidence)

    assert last_election(fleet)[1].triggered_by == ref
