"""One bench at several commits: what a commit's own program says, and the table of all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.perf import commits
from tests.perf.commits import Figures, known_measures, lines, measured

PROGRAM = """
import json, os, pathlib, sys
import rollcall_ha
if sys.argv[2] == "young":
    sys.exit(2)
if sys.argv[2] == "broken":
    sys.exit("no master in 30 s")
results = [{"measure": {"key": "put"}, "values": [len(rollcall_ha.OF_THIS_COMMIT)]}]
pathlib.Path(sys.argv[6]).write_text(json.dumps({"results": results}))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A commit with a bench and a program of its own."""
    (tmp_path / "tests/perf").mkdir(parents=True)
    (tmp_path / "src/rollcall_ha").mkdir(parents=True)
    (tmp_path / "tests/__init__.py").touch()
    (tmp_path / "tests/perf/__init__.py").touch()
    (tmp_path / "tests/perf/__main__.py").write_text(PROGRAM)
    (tmp_path / "src/rollcall_ha/__init__.py").write_text('OF_THIS_COMMIT = "1234567"')
    return tmp_path


def test_a_commit_is_measured_by_its_own_bench_and_with_its_own_program(folder: Path) -> None:
    assert measured(folder, "put") == {"put": 7.0}
    assert measured(folder, "young") == "not measured by this commit"
    assert measured(folder, "broken") == "exit code 1: no master in 30 s"


def test_the_table_has_each_commit_and_the_last_one_beside_the_others() -> None:
    key = next(key for key, measure in known_measures().items() if measure.aim is not None)
    by_commit = {"old": [4.0, 2.0, 3.0], "new": [1.5, 1.5, 9.0]}
    figures = Figures(machine="m", command="c", commits=("old", "mid", "new"), values={key: by_commit}, troubles=[])
    head, _, row = lines(figures, known_measures())
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert [cell.strip() for cell in head.strip("|").split("|")][2:7] == [
        "old",
        "mid",
        "new",
        "new to old",
        "new to mid",
    ]
    assert cells[2:7] == ["2 / 3 / 4", "-", "1.50 / 1.50 / 9", "0.50", "-"]
    assert cells[-1] == known_measures()[key].verdict(1.5)


@pytest.mark.parametrize(
    ("found", "code", "told"),
    [
        ({}, 1, {"measures": 0, "failed": 0, "not_there": 0}),
        ("not measured by this commit", 1, {"measures": 0, "failed": 0, "not_there": 2}),
        ("exit code 1: a fault", 1, {"measures": 0, "failed": 2, "not_there": 0}),
    ],
)
def test_a_comparison_that_found_nothing_fails(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    found: dict[str, float] | str,
    code: int,
    told: dict[str, int],
) -> None:
    monkeypatch.setattr(commits, "measured", lambda *_: found)
    monkeypatch.setattr(commits, "checked_out", lambda *_: tmp_path)
    options = ["HEAD", "HEAD", "--only", "put", "--runs", "1", "--json", str(tmp_path / "found.json")]
    assert commits.main(options) == code
    result = json.loads(capsys.readouterr().out.rpartition("RESULT ")[2])
    assert told.items() <= result.items()


@pytest.mark.parametrize(
    ("given", "told"), [(["HEAD"], "to compare takes two"), (["HEAD", "nowhere"], "no such commit: nowhere^{commit}")]
)
def test_what_cannot_be_compared_is_refused(capsys: pytest.CaptureFixture[str], given: list[str], told: str) -> None:
    with pytest.raises(SystemExit) as ended:
        commits.main(given)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err
