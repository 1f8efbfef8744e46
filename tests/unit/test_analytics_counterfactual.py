"""One election under another policy: at the recorded one it is history."""

from __future__ import annotations

from functools import cache

import msgspec
import pytest

from rollcall_ha.analytics.checks.counterfactual import replay
from rollcall_ha.controller.contract.events import ElectionFailed, EventRecord, MasterElected
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.controller.core.policies import DATA_FIRST, PREFERENCE_FIRST
from tests.synthetic.fleet import SyntheticFleet
from tests.synthetic.plan import Mix, Plan


@cache
def elections() -> tuple[EventRecord, ...]:
    fleet = SyntheticFleet(Plan(seed=2, sets=2, days=1, faults_per_day=25, async_share=0.5, mix=Mix(switchover=30)), 0)
    records = [record for entry in fleet.entries() for record in entry]
    return tuple(record for record in records if isinstance(record.event, MasterElected | ElectionFailed))


def verdict_of(record: EventRecord) -> MasterElected:
    assert isinstance(record.event, MasterElected)
    return record.event


def test_at_the_recorded_policy_history_comes_back() -> None:
    """S83, for every kind of election."""
    kinds = set()
    for record in elections():
        again = replay(msgspec.json.encode(record), None)
        assert again is not None
        assert again.winner == verdict_of(record).verdict.winner
        assert again.policy == verdict_of(record).verdict.policy
        kinds.add(verdict_of(record).verdict.kind)

    assert {ElectionKind.FIRST, ElectionKind.FAILOVER, ElectionKind.REQUESTED} <= kinds


def test_another_policy_changes_only_what_it_may() -> None:
    """First elections and designated ones keep their winner; by data nobody who held more stands behind."""
    changed = 0
    for record in elections():
        verdict = verdict_of(record).verdict
        again = replay(msgspec.json.encode(record), DATA_FIRST.name)
        assert again is not None
        if verdict.kind is ElectionKind.FIRST or verdict.designated is not None:
            assert again.winner == verdict.winner
        else:
            assert (again.policy, again.regret_bytes) == (DATA_FIRST.name, 0)
        changed += again.winner != verdict.winner

    assert changed


def test_what_is_no_election_is_not_replayed() -> None:
    """And an unknown policy is an error, not the recorded one."""
    fleet = SyntheticFleet(Plan(sets=1, days=1, faults_per_day=0, controller_changes_per_day=0), 0)
    first = next(iter(fleet.entries()))[0]

    assert replay(msgspec.json.encode(first), PREFERENCE_FIRST.name) is None
    with pytest.raises(KeyError):
        replay(msgspec.json.encode(next(r for r in elections() if _may(r))), "best@9")


def _may(record: EventRecord) -> bool:
    return verdict_of(record).verdict.kind is ElectionKind.FAILOVER
