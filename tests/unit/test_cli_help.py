"""The help of ``rollcall``: what it tells, what it costs, what it imports; its version and its completion."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer

import rollcall_ha
from rollcall_ha.analytics import cli as analytics_cli
from rollcall_ha.cli.groups import LaterVerb, LazyGroup
from rollcall_ha.cli.main import app
from rollcall_ha.cli.output import CommandExit
from tests.support.cli import Run, scripted


@pytest.fixture
def rollcall(monkeypatch: pytest.MonkeyPatch) -> Run:
    return scripted(monkeypatch)


@pytest.mark.parametrize("words", [("-h",), ("elect", "-h"), ("controllers", "list", "-h"), ("analytics", "-h")])
def test_help_has_a_short_option(rollcall: Run, words: tuple[str, ...]) -> None:
    """As every other command line of a server has."""
    ran = rollcall({}, *words)

    assert (ran.code, "Usage: " in ran.out) == (0, True)


@pytest.mark.slow
def test_the_shell_completes_commands_and_options() -> None:
    """bash looks a command with a path up by its last part, so ``./rollcall`` completes as ``rollcall``."""
    for typed, expected in ((("sta",), ["status"]), (("events", "--old"), ["--oldest"])):
        words = {
            "_ROLLCALL_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(("./rollcall", *typed)),
            "COMP_CWORD": str(len(typed)),
        }
        done = subprocess.run(
            [sys.executable, "-m", "rollcall_ha.cli.main"],
            env={**os.environ, **words},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == expected


SERVERS = {"fastapi", "pysyncobj", "starlette", "uvicorn", "uvloop"}


LIBRARIES = {"cryptography", "httpx", "pandas", "psutil", "pyarrow", "pydantic", "pyspark", "rich", "structlog", "yaml"}


GROUPS = {f"rollcall_ha.cli.{module}" for module in ("certs", "hooks", "members")} | {analytics_cli.__name__}


HEAVY = {"asyncio", "multiprocessing", "ssl", *SERVERS, *LIBRARIES, *GROUPS}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], []])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    """It is fast because neither HTTP, nor servers, nor the verbs of groups are imported for it."""
    code = (
        "import sys\nfrom rollcall_ha.cli.main import app\n"
        f"try: app(args={arguments})\nexcept SystemExit: pass\n"
        f"heavy = sys.modules.keys() & {HEAVY}\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=Path.cwd())

    assert done.returncode == 0, done.stderr


def test_a_verb_read_the_options_of_all_others() -> None:
    """It reads its own."""
    program: Any = typer.main.get_command(app)
    verb = program.get_command(None, "history")

    assert [one.name for one in verb.params] == ["name", "form", "watch", "limit", "before"]
    assert program.get_command(None, "history") is verb
    assert [n for n, one in program.commands.items() if not isinstance(one, LaterVerb | LazyGroup)] == ["history"]


HELP_RATIO_MAX = 18
"""Processor time of both: 11 to 13 was measured, 21 to 24 with httpx alone, 32 to 35 with the verbs of all groups."""


@pytest.mark.slow
def test_help_costs_a_few_starts_of_the_interpreter() -> None:
    """Processor time, not the clock's: on a busy machine both wait. Measured in turn, and the middle one counts."""
    show = "import sys; sys.argv = ['rollcall', '--help']; from rollcall_ha.cli.entry import main; main()"
    spent: dict[str, list[float]] = {"pass": [], show: []}
    for _ in range(5):
        for code, found in spent.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    ratio = statistics.median(spent[show]) / statistics.median(spent["pass"])

    assert ratio < HELP_RATIO_MAX, spent


@pytest.mark.slow
def test_analytics_verbs_are_listed_and_only_then_imported() -> None:
    """The help of the verbs needs neither Spark nor pandas, and another command's help does not need the verbs."""
    code = (
        "import sys\nfrom rollcall_ha.cli.main import app\n"
        "def run(*arguments):\n    try: app(args=list(arguments))\n    except SystemExit: pass\n"
        "run('--help')\nassert 'rollcall_ha.analytics.cli' not in sys.modules\n"
        "run('analytics', '--help')\n"
        "heavy = {'pyspark', 'pandas', 'pyarrow', 'numpy'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    verbs = set(typer.main.get_group(analytics_cli.app).commands)

    assert done.returncode == 0, done.stderr
    assert "analytics" in done.stdout.split("Usage: ")[1]
    assert verbs <= set(done.stdout.split("Usage: ")[2].split())
    assert {"run", "report", "stream", "verify"} <= verbs


def test_analytics_verb_has_its_own_help(rollcall: Run) -> None:
    """Options of the verb, under the name by which it is called."""
    ran = rollcall({}, "analytics", "verify", "--help")

    assert ran.code == 0
    assert "analytics verify" in ran.out
    assert "--master" in ran.out


def test_help_tells_the_exit_codes(rollcall: Run) -> None:
    """README sends operators there for them."""
    told = " ".join(rollcall({}, "--help").out.split())

    assert [f" {int(code)} " in told.split("Exit codes:")[1] for code in CommandExit] == [True] * 10


@pytest.mark.slow
def test_a_reader_that_goes_away_ends_the_command_quietly() -> None:
    """``rollcall events | head -1`` ended in a traceback; a full disk has its line."""
    show = partial(
        subprocess.run, [sys.executable, "-m", "rollcall_ha.cli.main", "--help"], stderr=subprocess.PIPE, text=True
    )
    read_end, write_end = os.pipe()
    os.close(read_end)
    gone = show(stdout=write_end, check=False)
    os.close(write_end)
    assert (gone.returncode, gone.stderr) == (141, "")
    with Path("/dev/full").open("wb") as full:
        none_left = show(stdout=full, check=False)
    assert (none_left.returncode, none_left.stderr.count("\n")) == (1, 1)
    assert "No space left on device; free space" in none_left.stderr


def test_version_is_that_of_the_package(rollcall: Run) -> None:
    """One line, without a controller and without anything heavy."""
    assert rollcall({}, "--version").out == f"rollcall {rollcall_ha.__version__}\n"
