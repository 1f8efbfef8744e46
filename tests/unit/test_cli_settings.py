"""The commands ``rollcall config``: what they print, what they send, what they refuse before they send."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rollcall_ha.cli import settings
from rollcall_ha.controller.contract.replies import Done
from rollcall_ha.controller.contract.settings import KEYS, AppliedSettings, changes, settings_of
from rollcall_ha.controller.contract.timing import PRESETS, Preset
from rollcall_ha.controller.contract.views import SettingsAnswer
from tests.support.cli import scripted
from tests.support.fake_controllers import EACH, everywhere, freshness, noted

FOUNDED = settings_of(PRESETS[Preset.NORMAL])
CHANGED = replace(FOUNDED, heartbeat_timeout_ms=2_000)
HISTORY = (
    AppliedSettings(
        version=1, settings=FOUNDED, worst_case_rto_ms=3_700, applied_at_ms=1, applied_by="admin:ann", reason="file"
    ),
    AppliedSettings(
        version=2,
        settings=CHANGED,
        worst_case_rto_ms=2_700,
        applied_at_ms=2,
        applied_by="admin:ann",
        changed=changes(FOUNDED, CHANGED),
        reason="night",
    ),
)
ANSWER = SettingsAnswer(
    freshness=freshness(),
    version=2,
    settings=CHANGED,
    worst_case_rto_ms={"detect": 2_100, "decide": 50, "enter": 550},
    file=FOUNDED,
    history=HISTORY,
    brokers=3,
    brokers_behind=("demo/broker-a 2",),
)
NEVER = replace(ANSWER, version=0, settings=FOUNDED, history=(), brokers_behind=())


class Ran:
    """One command against a script of controllers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: SettingsAnswer, *arguments: str) -> None:
        self.bodies: list[dict[str, object]] = []
        hear = noted(self.bodies, Done())
        script = EACH | everywhere("GET", "/v1/settings", answer) | everywhere("POST", "/v1/settings", hear)
        ran = scripted(monkeypatch)(script, "config", *arguments)
        self.code, self.out, self.err = ran.code, ran.out, ran.err


def test_show_has_every_key_the_worst_case_and_who_works_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = Ran(monkeypatch, ANSWER, "show")
    lines = ran.out.splitlines()

    assert lines[0].startswith("OK  version 2, applied by admin:ann")
    for name in KEYS:
        assert any(line.startswith(f"{name} ") for line in lines), name
    assert any(line.split()[:4] == ["heartbeat_timeout_ms", "2000", "ms", "3000"] for line in lines)
    assert "Worst case of a silent master: 2700 ms (detect 2100, decide 50, enter 550)." in ran.out
    assert "Taken by 0 of 3 controllers and 2 of 3 brokers." in ran.out
    assert "Not taken yet: demo/broker-a 2." in ran.out


def test_before_the_first_change_the_file_is_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = Ran(monkeypatch, NEVER, "show")
    assert ran.out.startswith("OK  the fleet file is in force")
    assert "FILE" not in ran.out.splitlines()[2]
    assert "OK  nothing was changed yet" in Ran(monkeypatch, NEVER, "history").out
    undone = Ran(monkeypatch, NEVER, "undo", "--yes")
    assert (undone.code, undone.bodies, "nothing to undo" in undone.err) == (1, [], True)


def test_a_change_names_the_version_that_was_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the second of two people would undo what the first one has just done."""
    ran = Ran(monkeypatch, ANSWER, "apply", "handover_ms=500", "--preset", "fast", "--reason", "x", "--yes")
    (body,) = ran.bodies
    assert (ran.code, body["values"], body["preset"]) == (0, {"handover_ms": 500}, "fast")
    assert (body["expectedVersion"], body["reason"]) == (2, "x")
    (told,) = Ran(monkeypatch, ANSWER, "apply", "handover_ms=500", "--expect-version", "1", "--yes").bodies
    assert told["expectedVersion"] == 1


def test_undo_goes_back_to_the_version_before_in_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = Ran(monkeypatch, ANSWER, "undo", "--yes")
    assert [(body["version"], body["expectedVersion"]) for body in ran.bodies] == [(1, 2)]


def test_history_and_diff_name_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    history = Ran(monkeypatch, ANSWER, "history").out
    assert "heartbeat_timeout_ms 3000 -> 2000" in history
    assert history.index("night") < history.index("file")
    found = Ran(monkeypatch, ANSWER, "diff", "1").out
    assert found.startswith("version 1 and version 2 differ in 1 keys")
    assert "the fleet file and version 1 are the same" in Ran(monkeypatch, ANSWER, "diff", "0", "1").out
    missing = Ran(monkeypatch, ANSWER, "diff", "7")
    assert (missing.code, "version 7 is not kept; kept are: 1 to 2" in missing.err) == (1, True)


@pytest.mark.parametrize("words", [(), ("handover_ms",), ("handover_ms=fast",), ("handover_ms=1.5",)])
def test_what_is_no_change_is_wrong_use_and_nothing_is_sent(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    ran = Ran(monkeypatch, ANSWER, "apply", *words)
    assert (ran.code, ran.bodies) == (2, [])


def test_a_preview_shows_both_values_and_the_worst_case() -> None:
    from rollcall_ha.controller.contract.events import SettingsApplied
    from rollcall_ha.controller.contract.views import OrderPreview

    event = SettingsApplied(
        version=3, settings=CHANGED, changed=changes(FOUNDED, CHANGED), worst_case_rto_ms=2_700, reason=""
    )
    report = settings.preview_report(OrderPreview(freshness=freshness(), events=(event,)))
    assert report.verdict == "Would apply version 3."
    assert report.parts[1] == "Worst case of a silent master: 2700 ms."
    assert settings.preview_report(OrderPreview(freshness=freshness(), events=())).verdict == "Would change nothing."
