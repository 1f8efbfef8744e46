"""Progress of a job: lines for a log, a moving line for a person, nothing when quiet."""

from __future__ import annotations

import re
from functools import partial
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest

from rollcall_ha.analytics.lake.progress import PARTS_AT_ONCE, Progress


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


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> Progress:
    """Without a Java whose threads would have properties."""
    util = pytest.importorskip("pyspark.util", reason="pyspark is not installed: the analytics extra is optional")
    monkeypatch.setattr(util, "inheritable_thread_target", lambda _: lambda part: part)
    return Progress(spark_with(0, 0), is_quiet=True)


def test_parts_of_a_step_run_side_by_side(apart: Progress) -> None:
    """One after the other, the first would wait for ever."""
    met = Barrier(PARTS_AT_ONCE)
    with apart.step("silver"):
        apart.together({f"silver/{n}": lambda: met.wait(timeout=30) for n in range(PARTS_AT_ONCE)})
    apart.together({})


def test_a_part_that_fails_ends_the_step_and_none_is_begun_after_it(apart: Progress) -> None:
    """Its error is the step's; a part that runs comes to its end."""
    begun: list[int] = []

    def part(number: int) -> None:
        begun.append(number)
        raise ValueError(number)

    with pytest.raises(ValueError, match=r"\d"):
        apart.together({str(number): partial(part, number) for number in range(1_000)})
    assert len(begun) <= PARTS_AT_ONCE
