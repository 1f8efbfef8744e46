"""Progress of a job: lines for a log, a moving line for a person, nothing when quiet."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from rollcall_ha.analytics.lake.progress import Progress


def spark_with(done: int, of: int) -> Any:
    """A session with one running stage, and one that has just ended."""
    stages = {1: SimpleNamespace(numTasks=of, numCompletedTasks=done), 2: None}
    tracker = SimpleNamespace(getActiveStageIds=lambda: list(stages), getStageInfo=stages.get)
    return SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))


def test_a_log_gets_a_plain_line_per_step(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """On stderr, with nothing that moves a cursor, and names as they are."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    progress = Progress(spark_with(1, 3))
    progress.say("1 of 2 files are new [bold]")
    with progress.step("silver: reigns"):
        pass
    told = capsys.readouterr()

    assert told.out == ""
    assert told.err.splitlines()[0] == "1 of 2 files are new [bold]"
    assert told.err.splitlines()[1].startswith("silver: reigns                    0.")
    assert "\x1b" not in told.err
    assert "tasks" not in told.err


def test_one_failover_was_thirty_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A step within another one is a part of it: it changes the line that moves, and leaves none."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    progress = Progress(spark_with(1, 3))
    for name in ("silver", "gold"):
        with progress.step(name), progress.step(f"{name}: reigns"):
            pass

    assert [line.split()[0] for line in capsys.readouterr().err.splitlines()] == ["silver", "gold"]


def test_a_terminal_sees_how_far_a_step_is(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks of running stages; the line of the step itself stays when it is done."""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    with Progress(spark_with(1_000, 3_000)).step("gold: totals"):
        pass

    told = capsys.readouterr().err
    assert "1,000/3,000 tasks" in told
    assert re.fullmatch(r"(\x1b\[\d?\w)*gold: totals +0\.\d s", told.splitlines()[-1])


def test_what_is_printed_meanwhile_stays_on_stdout(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alerts of a stream are read by a program from stdout, whatever stderr shows."""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    with Progress(spark_with(1, 3)).step("silver: reigns"):
        print('{"alert":"flapping"}')

    assert capsys.readouterr().out == '{"alert":"flapping"}\n'


def test_quiet_is_silent(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal too."""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    progress = Progress(spark_with(1, 3), is_quiet=True)
    progress.say("words")
    with progress.step("bronze"):
        pass

    assert capsys.readouterr() == ("", "")
