"""``rollcall analytics``: its verbs, their exit codes, and what it may not import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import rollcall_ha.analytics.cli as cli
from tests.support.analytics_cli import code_of

VERBS = ("run", "ingest", "silver", "gold", "stream", "report", "verify")
HEAVY = ("pyspark", "pandas", "pyarrow", "numpy")


def test_the_verbs_are_imported_without_spark() -> None:
    """``rollcall status`` does not wait for libraries of which it needs none."""
    script = f"import sys, rollcall_ha.analytics.cli; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_and_its_exit_codes(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Help needs no Spark, nor does a report."""
    assert code_of([verb, "--help"]) == 0
    told = capsys.readouterr().out
    assert f"rollcall analytics {verb}" in told
    assert "xit codes" in told
    assert ("--master" in told) == (verb != "report")


def test_without_spark_a_verb_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Exit code 2, and help still answers."""
    monkeypatch.setattr(cli, "find_spec", lambda _: None)

    assert code_of(["gold", "--lake", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "rollcall: needs Spark; install it with: pip install 'rollcall-ha[analytics]'\n"
    assert code_of(["gold", "--help"]) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["no-such-verb"],
        ["report", "lake", "--what-if", "fast"],
        ["verify", ".", "-o", "yaml"],
        ["run", ".", "--until", "tomorrow"],
        ["silver", "--until", "now"],
    ],
)
def test_wrong_use_is_two(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """As with every other command; nothing on stdout."""
    assert code_of(arguments) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "job", "code"),
    [(["gold"], "run", 130), (["verify", "."], "verify", 130), (["stream", "."], "stream", 0)],
)
def test_an_interrupted_job_says_so_and_a_stream_has_no_other_end(
    arguments: list[str], job: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C leaves no traceback."""
    pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")

    def interrupted(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"rollcall_ha.analytics.jobs.{job}.run", interrupted)

    assert code_of(arguments) == code
    assert ("interrupted" in capsys.readouterr().err) == bool(code)
