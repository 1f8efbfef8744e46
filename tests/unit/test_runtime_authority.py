"""R5: who may answer with authority."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.replication.ports import Leadership, RaftRole
from rollcall_ha.controller.runtime.authority import judge_authority
from rollcall_ha.controller.runtime.watchdog import STRIKES_MAX, WatchdogReading, look

MS = 1_000_000


def _leadership(role: RaftRole = RaftRole.LEADER, asked_at_ns: int | None = 1_000 * MS) -> Leadership:
    return Leadership(role=role, term=7, leader=ControllerName("c1"), commit_index=9, majority_asked_at_ns=asked_at_ns)


@pytest.mark.parametrize(
    ("leadership", "taken_term", "now_ms", "missing"),
    [
        (_leadership(), 7, 1_299, ""),
        (_leadership(), 7, 1_300, "300 ms ago"),
        (_leadership(), 6, 1_000, "has not applied its own entry"),
        (_leadership(), None, 1_000, "has not applied its own entry"),
        (_leadership(asked_at_ns=None), 7, 1_000, "no majority"),
        (_leadership(RaftRole.FOLLOWER), 7, 1_000, "is a follower"),
        (_leadership(RaftRole.CANDIDATE), 7, 1_000, "is a candidate"),
    ],
)
def test_authority_needs_the_role_the_own_entry_and_a_fresh_majority(
    leadership: Leadership, taken_term: int | None, now_ms: int, missing: str
) -> None:
    """Each of the three alone is not enough, and the age counts from the sending, to the millisecond."""
    authority = judge_authority(leadership, taken_term=taken_term, now_ns=now_ms * MS, election_timeout_ms_min=300)

    assert authority.is_held == (not missing)
    assert missing in authority.reason


def test_watchdog_forgives_a_pause_and_ends_a_stall() -> None:
    """One late look after a paused process is no stall; a log thread that stays silent is."""
    watch = look(WatchdogReading(), tick_age_ms=20_000, commit_index=5, applied_index=5)
    watch = look(watch, tick_age_ms=10, commit_index=5, applied_index=5)
    assert watch.strikes == 0
    for _ in range(STRIKES_MAX):
        assert not watch.is_over
        watch = look(watch, tick_age_ms=2_000, commit_index=5, applied_index=5)

    assert watch.is_over
    assert "2000 ms" in watch.reason


def test_watchdog_ends_a_log_that_commits_and_does_not_apply() -> None:
    """Commits that nobody applies are a stall, also while the thread ticks; progress is none."""
    watch = WatchdogReading()
    for index in range(STRIKES_MAX + 2):
        watch = look(watch, tick_age_ms=1, commit_index=100, applied_index=index)
    assert not watch.is_over
    for _ in range(STRIKES_MAX):
        watch = look(watch, tick_age_ms=1, commit_index=100, applied_index=STRIKES_MAX + 1)

    assert watch.is_over


def test_a_leader_whose_followers_wait_for_longer_answers_for_as_long_as_they_do() -> None:
    """It came 2 s late to its answers: by the shortest timeout alone, it had authority for moments, though all followed."""
    late = replace(_leadership(), followed_until_ns=9_600 * MS)
    held = {
        now_ms: judge_authority(late, taken_term=taken, now_ns=now_ms * MS, election_timeout_ms_min=300).is_held
        for now_ms, taken in ((3_000, 7), (9_599, 7), (9_600, 7), (3_001, 6))
    }
    assert held == {3_000: True, 9_599: True, 9_600: False, 3_001: False}
