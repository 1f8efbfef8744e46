"""``rollcall drill``: what speaks against one, what one has shown, and what is refused before anything is begun."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from rollcall_ha.cli import drilling
from rollcall_ha.cli.drilling import Felt, FeltGap, Judgement, Shown
from rollcall_ha.cli.output import render_text
from rollcall_ha.controller.contract.ids import BrokerId, MasterEpoch
from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.controller.contract.settings import settings_of
from rollcall_ha.controller.contract.timing import PRESETS, Preset
from rollcall_ha.controller.contract.values import ElectionPause, Maintenance, MaintenanceScope, Phase
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.controller.contract.views import HistoryPage, PhaseSpan, SetAnswer, SetStatus, SettingsAnswer
from tests.docs.transcripts import assert_shown
from tests.support.cli import scripted
from tests.support.fake_controllers import (
    EACH,
    KEY,
    SET_PATH,
    SETS,
    everywhere,
    freshness,
    history_row,
    problem,
    set_status,
)

WHOLE = set_status()
SETTINGS = settings_of(PRESETS[Preset.NORMAL])
BRAKE = replace(SETTINGS, flap_failovers=2, flap_window_ms=60_000)
ROW = history_row()
PAUSE = ElectionPause(set_key=None, expires_at_ms=2, reason="", paused_at_ms=1, paused_by="operator:ann")
KEPT = Maintenance(
    scope=MaintenanceScope(host="10.0.0.12"), expires_at_ms=2, reason="", begun_at_ms=1, begun_by="operator:bob"
)
GAP = FeltGap(from_ms=1_700_000_000_000, felt_ms=219, sends_failed=2, stalled_ms=0, is_over=True, reason="refused")
FELT = Felt(interval_ms=20, threshold_ms=40, sends=100, acks=98, failures=2, gaps=(GAP,))


def in_maintenance(status: SetStatus) -> SetStatus:
    kept = (*status.replicas[:1], replace(status.replicas[1], maintenance=KEPT), *status.replicas[2:])
    return replace(status, replicas=kept)


def judged(status: SetStatus = WHOLE, **other: Any) -> Judgement:
    given: dict[str, Any] = {"rows": (), "settings": SETTINGS, "is_hard": False, "spends_last": False}
    return drilling.judge(status, **{**given, "now_ms": ROW.elected_at_ms + 1_000, **other})


@pytest.mark.parametrize(
    ("found", "against"),
    [
        (judged(), ()),
        (judged(set_status(in_sync=(1, 2))), ("2 replicas are in sync and alive; at least 3 are needed, for it takes one away",)),
        (judged(is_hard=True), ("its failure budget is 1, and 0 while the master is away; --spend-last accepts that",)),
        (judged(is_hard=True, spends_last=True), ()),
        (judged(replace(WHOLE, pause=PAUSE)), ("elections are paused by operator:ann; end that with: rollcall resume",)),
        (
            judged(replace(WHOLE, replicas=tuple(replace(one, kind="rocketmq") for one in WHOLE.replicas))),
            ("its brokers are RocketMQ's, whose masters cannot hand over, and whose routes name servers have",),
        ),
        (judged(in_maintenance(WHOLE)), ("10.0.0.12 is in maintenance by operator:bob",)),
        (
            judged(set_status(master=None, condition=Condition.NO_ELIGIBLE_REPLICA, reason="1 gone")),
            ("it is no-eligible-replica: 1 gone",),
        ),
        (
            judged(is_hard=True, spends_last=True, rows=(ROW,), settings=BRAKE),
            ("1 failovers within 60000 ms; with this one 2 block it (flap_failovers)",),
        ),
        # What is no failover, is older than the window, or a switchover, which is none: nothing is counted.
        (judged(is_hard=True, spends_last=True, rows=(replace(ROW, kind=ElectionKind.HANDOVER),), settings=BRAKE), ()),
        (judged(is_hard=True, spends_last=True, rows=(replace(ROW, elected_at_ms=0),), settings=BRAKE), ()),
        (judged(rows=(ROW,), settings=BRAKE), ()),
    ],
)  # fmt: skip
def test_what_speaks_against_a_drill_is_told_with_both_figures(found: Judgement, against: tuple[str, ...]) -> None:
    assert found.against == against


def test_all_that_speaks_against_it_is_told_at_once() -> None:
    told = judged(replace(in_maintenance(set_status(in_sync=(1,))), pause=PAUSE))
    assert len(told.against) == 4
    text = render_text(drilling.judgement_report(told))
    assert text.startswith("REFUSED  no drill of demo/broker-a: 1 replicas are in sync and alive; at least 3")
    assert text.count("And: ") == 3


def later(status: SetStatus) -> SetStatus:
    return replace(status, view=replace(status.view, master_epoch=MasterEpoch(8)))


@pytest.mark.parametrize(
    ("now", "lacks"),
    [
        (WHOLE, "its masterEpoch is 7, as before"),
        (later(set_status(in_sync=(2, 3), master=2)), "not in sync again: {1}"),
        (later(set_status(condition=Condition.NO_ELIGIBLE_REPLICA, reason="2 gone")), "it is no-eligible-replica: 2 gone"),
        (later(set_status(master=2)), ""),
    ],
)  # fmt: skip
def test_a_set_is_whole_again_when_all_who_were_in_sync_are_so_under_a_later_master(now: SetStatus, lacks: str) -> None:
    assert drilling.not_yet(WHOLE, now) == lacks


@pytest.mark.parametrize(
    ("felt", "at_most_ms", "troubles", "failures"),
    [
        (FELT, None, ("", ""), ()),
        (FELT, 219, (), ()),
        (FELT, 218, (), ("a client felt 219 ms, at most 218 ms are allowed",)),
        (FELT, None, ("the stop command ended with 3", ""), ("the stop command ended with 3",)),
        (replace(FELT, gaps=(replace(GAP, is_over=False),)), None, (), ("clients were not served when it ended",)),
        (
            Felt(interval_ms=20, threshold_ms=40),
            1_000,
            (),
            ("none of 0 sends was acknowledged, so nothing is known of what clients feel",),
        ),
    ],
)
def test_a_drill_is_passed_by_what_was_felt_and_not_by_silence(
    felt: Felt, at_most_ms: int | None, troubles: tuple[str, ...], failures: tuple[str, ...]
) -> None:
    assert drilling.failures_of(felt, at_most_ms=at_most_ms, troubles=troubles) == failures


def test_the_report_has_the_felt_gap_the_budget_and_the_phases_of_the_record() -> None:
    shown = Shown(
        judgement=judged(), felt=FELT, felt_ms=219, whole_after_ms=2_340, budget_after=1, reigns=(ROW,), failures=()
    )
    text = render_text(drilling.shown_report(shown, {}))
    assert text.startswith("PASSED  drill of demo/broker-a: a client felt 219 ms, and the set was whole after 2.3 s\n")
    for part in ("Failure budget: 1 before, 1 after.", "100 sends, one each 20 ms; 2 failed.", "219 ms", "detected"):
        assert part in text, part
    failed = replace(
        shown, whole_after_ms=None, budget_after=None, failures=("one thing",), felt=replace(FELT, gaps=())
    )
    text = render_text(drilling.shown_report(failed, {}))
    assert text.startswith(
        "NOT PASSED  drill of demo/broker-a: a client felt no gap longer than 40 ms, and the set is not whole"
    )
    assert "Not passed: one thing\n" in text


def test_the_page_shows_what_a_drill_prints() -> None:
    """The figures are those of a drill on real processes; that they are printed so is this test's."""
    first = replace(GAP, from_ms=1_795_852_870_000, felt_ms=170, reason="no master is known")
    reason = "127.0.0.1:25016: broker 1 is master of masterEpoch 3"
    second = replace(first, from_ms=first.from_ms + 1_000, felt_ms=243, stalled_ms=23, sends_failed=3, reason=reason)
    took_us = (0, 0, 4_600, 4_200, 21_000, 40_000, 0, 116_000)
    phases = tuple(
        PhaseSpan(phase=phase, duration_us=us)
        for phase, us in zip(list(Phase)[:5] + list(Phase)[6:9], took_us, strict=True)
    )
    moved = {"master_epoch": MasterEpoch(2), "from_master": BrokerId(1), "to_master": BrokerId(3), "phases": phases}
    row = replace(ROW, kind=ElectionKind.SWITCHOVER, total_us=71_000, total_us_max=71_000, missing=(), **moved)
    felt = Felt(interval_ms=20, threshold_ms=40, sends=31, acks=25, failures=6, stalls=4, gaps=(first, second))
    shown = Shown(
        judgement=judged(), felt=felt, felt_ms=243, whole_after_ms=400, budget_after=1, reigns=(row,), failures=()
    )
    names = {BrokerId(1): "broker-a-1", BrokerId(3): "broker-a-3"}
    assert_shown(render_text(drilling.shown_report(shown, names)))


# --- the command ------------------------------------------------------------------------------------------------------


def fleet_of(status: SetStatus, preview: object) -> dict[tuple[str, str, str], object]:
    answer = SettingsAnswer(
        freshness=freshness(),
        version=0,
        settings=SETTINGS,
        worst_case_rto_ms={},
        file=SETTINGS,
        history=(),
        brokers=3,
        brokers_behind=(),
    )
    page = HistoryPage(freshness=freshness(), set_key=KEY, rows=(ROW,), next_before=None)
    return (
        EACH
        | SETS
        | everywhere("GET", SET_PATH, SetAnswer(freshness=freshness(), set=status))
        | everywhere("GET", f"{SET_PATH}/history", page)
        | everywhere("GET", "/v1/settings", answer)
        | everywhere("POST", f"{SET_PATH}/switchover", preview)
    )


def test_a_dry_run_says_the_judgement_and_a_refusal_is_a_document(monkeypatch: pytest.MonkeyPatch) -> None:
    rollcall = scripted(monkeypatch)
    refused = rollcall(fleet_of(set_status(in_sync=(1, 2)), problem(409, "X")), "drill", "broker-a", "--dry-run")
    assert (refused.code, refused.out, refused.err.splitlines()[0]) == (
        1,
        "",
        "REFUSED  no drill of demo/broker-a: 2 replicas are in sync and alive; at least 3 are needed, for it takes one away",
    )
    told = rollcall(fleet_of(set_status(in_sync=(1, 2)), problem(409, "X")), "drill", "broker-a", "-o", "json")
    document = json.loads(told.out)
    assert (told.code, document["inSync"], document["minInSync"], len(document["against"])) == (1, 2, 2, 1)
    # What the leader would refuse is refused as its own refusal.
    by_leader = rollcall(fleet_of(WHOLE, problem(409, "NOT_ELIGIBLE")), "drill", "broker-a", "--dry-run")
    assert (by_leader.code, by_leader.err.startswith("REFUSED  NOT_ELIGIBLE")) == (1, True)
    hard = ("drill", "broker-a", "--dry-run", "--hard", "--stop-command", "true", "--spend-last")
    may = rollcall(fleet_of(WHOLE, problem(409, "X")), *hard)
    assert (may.code, may.out.splitlines()[0]) == (0, "A drill of demo/broker-a by a stop of its master may begin")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--hard",), "belong together"),
        (("--stop-command", "true"), "belong together"),
        (("--hard", "--stop-command", "no-such-program-here {master}"), "there is no program"),
        (("--hard", "--stop-command", "'open"), "No closing quotation"),
        (("--at-most-ms", "119"), "finer than the probe's grain of 120 ms"),
        (("--within", "1y"), "and takes a time from 1s to 3600s"),
    ],
)
def test_what_cannot_be_is_wrong_use_before_anything_is_asked(
    options: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = scripted(monkeypatch)({}, "drill", "broker-a", *options)
    assert (ran.code, told in " ".join(ran.err.split())) == (2, True), ran.err
