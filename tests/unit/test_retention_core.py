"""What is deleted from the front of a log, and when sends are refused: by age, by disk, never what somebody needs."""

from __future__ import annotations

from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rollcall_ha.broker.config import broker_config
from rollcall_ha.broker.live_settings import LiveSettings
from rollcall_ha.broker.retention.core import (
    CLOCK,
    HOUR_MS,
    Decision,
    Facts,
    Freed,
    Need,
    Rules,
    SegmentAge,
    decide,
    rules_of,
)
from rollcall_ha.cli import founding
from rollcall_ha.cli.options import Founding
from rollcall_ha.controller.contract.settings import faults_of, settings_of
from rollcall_ha.controller.contract.timing import PRESETS, Preset
from rollcall_ha.controller.runtime.settings import settings_from
from rollcall_ha.node.config import load_fleet_file

GIB = 1024**3
NOW_MS = 1_700_000_000_000
FILE = PRESETS[Preset.NORMAL]
ROCKETMQS = replace(settings_of(FILE), retention_hours=72, retention_forced_percent=85, sends_refused_percent=90)
RULES = rules_of(ROCKETMQS)


def segments(*hours: int | None, base: int = 0) -> tuple[SegmentAge, ...]:
    """Of 1 GiB each; ``hours``: how long ago the next one was begun."""
    return tuple(
        SegmentAge(
            base=base + n * GIB, end=base + (n + 1) * GIB, closed_ms=None if ago is None else NOW_MS - ago * HOUR_MS
        )
        for n, ago in enumerate(hours)
    )


def facts(*hours: int | None, used_percent: int = 50, needs: tuple[Need, ...] = (), is_refusing: bool = False) -> Facts:
    return Facts(
        segments=segments(*hours),
        confirm=len(hours) * GIB,
        now_ms=NOW_MS,
        disk_bytes=100 * GIB,
        free_bytes=(100 - used_percent) * GIB,
        needs=needs,
        is_refusing=is_refusing,
        newest_ms=NOW_MS,
    )


def test_rules_are_the_settings_and_nothing_is_deleted_or_refused_before_somebody_sets_them() -> None:
    assert Rules(keep_ms=72 * HOUR_MS, forced_percent=85, refused_percent=90, segments_max=10) == RULES
    unset = rules_of(settings_of(FILE))
    assert unset == Rules(segments_max=10)
    assert decide(facts(100_000, None, used_percent=100), unset) == Decision()


def test_a_segment_goes_when_its_newest_record_is_old() -> None:
    decision = decide(facts(100, 73, 71, None), RULES)
    assert decision.delete_to == 2 * GIB
    assert decision.why == (
        "its newest record is 100 h old, 72 h are kept",
        "its newest record is 73 h old, 72 h are kept",
    )
    assert decide(facts(71, 100, None), RULES).delete_to is None, "behind a young one nothing goes: a hole"


def test_the_last_segment_and_what_is_not_confirmed_stay() -> None:
    assert decide(facts(None, used_percent=99), RULES).delete_to is None
    assert decide(replace(facts(100, 100, None), confirm=2 * GIB - 1), RULES).delete_to == GIB


def test_a_full_disk_takes_young_segments_and_no_more_than_it_needs() -> None:
    assert decide(facts(1, 1, 1, 1, None, used_percent=86), RULES).delete_to == 2 * GIB
    assert decide(facts(1, 1, None, used_percent=84), RULES).delete_to is None
    assert decide(facts(100, None, used_percent=95), replace(RULES, keep_ms=0, forced_percent=0)).delete_to is None


def test_a_copy_gives_way_to_a_full_disk_alone() -> None:
    """R31: deleted before it has it, it would begin anew each time, and never come into the set."""
    copy = Need(who="broker 3", offset=GIB // 2, is_copy=True)
    held = decide(facts(100, 100, None, used_percent=86, needs=(copy,)), RULES)
    assert (held.delete_to, held.held_by, held.wanted_to) == (None, (copy,), 2 * GIB)

    urgent = decide(facts(1, 1, 1, None, used_percent=91, needs=(copy,)), RULES)
    # Below 90 % again it would be safe, but what it lacks is gone.
    assert (urgent.delete_to, urgent.passed) == (2 * GIB, ("broker 3",))
    assert decide(facts(100, None, needs=(replace(copy, offset=GIB),)), RULES).delete_to == GIB


def test_between_both_shares_a_copy_held_the_segment_by_which_sends_would_have_been_taken_again() -> None:
    """At 89 %, sends refused until it is 85: no copy gave way below 90, so neither ever ended."""
    copy = Need(who="broker 3", offset=0, is_copy=True)
    decision = decide(facts(1, 1, None, used_percent=89, is_refusing=True, needs=(copy,)), RULES)
    assert (decision.delete_to, decision.passed) == (2 * GIB, ("broker 3",))
    assert decide(facts(1, 1, None, used_percent=89, needs=(copy,)), RULES).held_by == (copy,)


def test_one_damaged_record_stopped_all_deletions_behind_it() -> None:
    """And one that was stamped a year ahead did for a year: their segments are as old as the next ones."""
    assert decide(facts(100, None, 100, None, used_percent=95), RULES).delete_to == 3 * GIB
    assert decide(facts(100, None, 99, None), RULES).delete_to == 3 * GIB
    assert decide(facts(100, -9_000, 71, None), RULES).delete_to == GIB, "as young as the next one"
    assert decide(facts(100, -9_000, None, None), RULES).delete_to == GIB, "nobody knows how old"


def test_a_clock_a_year_ahead_deleted_the_whole_log() -> None:
    """Of one machine: ten segments each second, on its own word."""
    year_ms = 365 * 24 * HOUR_MS
    here = facts(2, 1, None)
    ahead = replace(here, now_ms=NOW_MS + year_ms)
    decision = decide(ahead, RULES)
    assert (decision.delete_to, decision.wanted_to) == (None, 2 * GIB)
    assert [need.who for need in decision.held_by] == [CLOCK]
    assert decide(replace(ahead, newest_ms=NOW_MS + year_ms), RULES).delete_to == 2 * GIB, "somebody wrote since"
    assert decide(replace(facts(200, 100, None), newest_ms=0), RULES).delete_to is None, "nobody knows how late it is"
    assert decide(replace(facts(200, 100, None, used_percent=95), newest_ms=0), RULES).delete_to == 2 * GIB


def test_a_disk_that_frees_late_lost_ten_more_segments_each_second() -> None:
    """Down to the last one, and sends were taken for space that did not come."""
    full = facts(*[1] * 20, None, used_percent=91)
    assert decide(full, RULES).delete_to == 7 * GIB
    waits = replace(full, unshown_bytes=7 * GIB)
    assert decide(waits, RULES).delete_to is None
    assert decide(replace(full, unshown_bytes=2 * GIB), RULES).delete_to == 5 * GIB
    assert "91.0 % full" in decide(waits, RULES).refused
    assert not decide(replace(full, unshown_bytes=GIB), RULES).refused, "most of it will come"


def test_on_a_disk_of_five_segments_the_next_one_never_fitted_and_nothing_was_deleted_for_it() -> None:
    """80 % full, and no send was taken any more."""
    small = replace(facts(1, 1, 1, None), disk_bytes=5 * GIB, free_bytes=GIB - 1, next_bytes=GIB)
    decision = decide(small, RULES)
    assert (decision.delete_to, decision.refused) == (GIB, "")
    assert "the next segment does not fit" in decision.why[0]
    copy = Need(who="broker 3", offset=0, is_copy=True)
    assert decide(replace(small, needs=(copy,)), RULES).passed == ("broker 3",)
    assert decide(replace(small, next_bytes=0), RULES).delete_to is None, "it is there already"
    assert decide(small, replace(RULES, forced_percent=0)).delete_to is None


def test_what_was_deleted_counts_until_the_disk_shows_it_or_for_a_minute() -> None:
    freed = Freed()
    assert freed.unshown_bytes(0, 50) == 0
    freed.note(0, 50, 10)
    assert (freed.unshown_bytes(1, 60), freed.unshown_bytes(1, 53), freed.unshown_bytes(1, 50)) == (10, 3, 0)
    assert freed.unshown_bytes(1, 500) == 10, "somebody else fills the disk"
    freed.note(30, 60, 10)
    assert (freed.unshown_bytes(31, 70), freed.unshown_bytes(61, 70), freed.unshown_bytes(91, 70)) == (20, 10, 0)


def test_no_more_go_in_a_turn_than_may_and_all_that_is_due_is_wanted() -> None:
    decision = decide(facts(*[100] * 30, None), RULES)
    assert (decision.delete_to, decision.wanted_to, len(decision.why)) == (10 * GIB, 30 * GIB, 10)
    kept = decide(facts(*[100] * 30, None, used_percent=95), replace(RULES, segments_max=0))
    assert (kept.delete_to, kept.wanted_to, bool(kept.refused)) == (None, 30 * GIB, True)


def test_what_the_log_needs_to_be_whole_stays_on_the_fullest_disk() -> None:
    need = Need(who="queues' offsets", offset=GIB)
    decision = decide(facts(100, 100, None, used_percent=99, needs=(need,)), RULES)
    assert (decision.delete_to, decision.held_by, decision.wanted_to) == (GIB, (need,), 2 * GIB)
    assert decision.refused


def test_sends_are_refused_before_the_disk_is_full_and_taken_again_below_the_lower_mark() -> None:
    """Taken again at 89 %, a set would stop and go with each segment."""
    assert "90.0 % full" in decide(facts(None, used_percent=90), RULES).refused
    assert not decide(facts(None, used_percent=89), RULES).refused
    assert decide(facts(None, used_percent=89, is_refusing=True), RULES).refused
    assert not decide(facts(None, used_percent=84, is_refusing=True), RULES).refused
    assert not decide(facts(1, 1, 1, 1, 1, 1, None, used_percent=90), RULES).refused, "it has room in a moment"
    assert not decide(facts(None, used_percent=99), replace(RULES, refused_percent=0)).refused


def test_settings_that_refuse_sends_before_anything_is_deleted_for_them_are_faults() -> None:
    settings = ROCKETMQS
    assert not faults_of(settings, FILE)
    assert not faults_of(msgspec.structs.replace(settings, sends_refused_percent=0, retention_hours=0), FILE)
    (fault,) = faults_of(msgspec.structs.replace(settings, sends_refused_percent=80), FILE)
    assert fault.startswith("retention_forced_percent is 85, must be at most sends_refused_percent, which is 80: lower")
    assert fault.endswith("raise sends_refused_percent to 85")
    assert faults_of(msgspec.structs.replace(settings, retention_hours=-1), FILE)


AGES = st.lists(st.one_of(st.none(), st.integers(0, 200)), max_size=12)
NEEDS = st.lists(
    st.builds(Need, who=st.sampled_from("abc"), offset=st.integers(0, 12 * GIB), is_copy=st.booleans()), max_size=4
)


@given(AGES, st.integers(0, 100), NEEDS, st.booleans(), st.integers(0, 12), st.integers(0, 100), st.integers(0, 100))
def test_whatever_the_facts_are_nothing_needed_goes(
    ages: list[int | None], used: int, needs: list[Need], is_refusing: bool, confirmed: int, forced: int, refused: int
) -> None:
    rules = Rules(keep_ms=72 * HOUR_MS, forced_percent=forced, refused_percent=refused, segments_max=10)
    here = replace(
        facts(*ages, used_percent=used, needs=tuple(needs), is_refusing=is_refusing), confirm=confirmed * GIB
    )
    decision = decide(here, rules)

    start = decision.delete_to or 0
    assert start % GIB == 0
    assert start <= min(here.confirm, decision.wanted_to)
    assert len(decision.why) == start // GIB <= 10
    for n, ago in enumerate(ages[: start // GIB]):
        assert n + 1 < len(ages), "the log ends in it"
        told = next((later for later in ages[n:] if later is not None), 0)
        assert (ago is None and told >= 72) or (ago or 0) >= 72 or (forced and used - n >= forced)
    for need in needs:
        is_passed = need.offset < start
        assert not is_passed or (need.is_copy and need.who in decision.passed)
        assert not is_passed or (refused and used >= (rules.resumed_percent if is_refusing else refused))
    assert decide(here, Rules()) == Decision()


def test_a_new_fleet_keeps_messages_as_rocketmq_does_and_an_older_one_all_of_them(tmp_path: Path) -> None:
    """With defaults in the program, the first start of a newer one would have deleted what an operator kept for years."""
    plan = Founding(
        name="lab",
        controllers=["c1=127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"],
        brokers=["a-1=127.0.0.1:4,127.0.0.1:5,127.0.0.1:6"],
    )
    for hours, kept in ((72, (72, 85, 90)), (24, (24, 85, 90)), (0, (0, 0, 0))):
        path = tmp_path / f"{hours}.toml"
        path.write_text(founding.render_fleet_file(founding.describe(replace(plan, retention_hours=hours))))
        assert ("[retention]" in path.read_text()) == bool(hours)
        fleet = load_fleet_file(path)
        founded = broker_config(replace(fleet, tls=None, fleet=replace(fleet.fleet, insecure=True)), "a-1").founded
        assert founded is not None
        assert founded == settings_from(fleet, "c1").founded
        rules = rules_of(LiveSettings(PRESETS[Preset.NORMAL], lambda *_: None, founded).settings)
        assert (rules.keep_ms // HOUR_MS, rules.forced_percent, rules.refused_percent) == kept
        assert rules.is_off == (not hours)
