"""
One bench at several commits, in one sitting: what became faster, and what slower.

    python -m tests.perf.commits 18a6583 e52c1cc HEAD --only kill --only put [--runs 3] [--json out/commits.json]
    python -m tests.perf.commits --markdown out/commits.json

Each commit is checked out beside this one, and measured by its own ``tests.perf`` with the programs and the fleets of that
commit; the interpreter and the libraries are those of this one. The commits take turns within each round, so that a busy
quarter of an hour touches all of them. A section that a commit does not have yet has no figures there, and is told.

The exit code is 1 if no figure was found, or a run failed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.perf.__main__ import SECTIONS
from tests.perf.machine import ROOT, describe
from tests.perf.results import Measure, number

RUNS = 3
RUN_S_MAX = 900
"""One section at one commit: longer, and it hangs."""
UNKNOWN_SECTION = 2
"""Exit code of argparse: this commit has no section of that name."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON file: each value of each run."""

    machine: str
    command: str
    commits: tuple[str, ...]
    values: dict[str, dict[str, list[float]]]
    """By ``section/key`` and commit: one value per run."""
    troubles: list[str]


def short_name(commit: str) -> str:
    """Its short hash. Raises ``CalledProcessError`` if there is no such commit."""
    command = ["git", "rev-parse", "--short", "--verify", f"{commit}^{{commit}}"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def checked_out(commit: str, root: Path) -> Path:
    """A folder with the files of ``commit``. Raises ``CalledProcessError``."""
    folder = root / commit
    folder.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
    return folder


def measured(folder: Path, section: str) -> dict[str, float] | str:
    """One run of one section: its values by key, or why there are none."""
    found = folder / "bench.json"
    # Before the installed package, which is this commit's.
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    command = [sys.executable, "-m", "tests.perf", "--only", section, "--runs", "1", "--json", str(found)]
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=RUN_S_MAX
        )
    except subprocess.TimeoutExpired:
        return f"not done within {RUN_S_MAX} s"
    if done.returncode == UNKNOWN_SECTION:
        return "not measured by this commit"
    if done.returncode:
        return f"exit code {done.returncode}: {' '.join(done.stderr.split()[-40:])}"
    results = json.loads(found.read_bytes())["results"]
    return {result["measure"]["key"]: result["values"][0] for result in results}


def lines(figures: Figures, measures: dict[str, Measure]) -> list[str]:
    """A Markdown table: per measure min, median and max at each commit, and the last one's median to the others'."""
    *before, last = figures.commits
    head = ["what", "unit", *figures.commits, *(f"{last} to {commit}" for commit in before), "aim", "verdict"]
    told = ["| " + " | ".join(head) + " |", "| --- " * 2 + "| ---: " * (len(head) - 4) + "| --- " * 2 + "|"]
    for key, by_commit in figures.values.items():
        measure = measures.get(key)
        if measure is None or last not in by_commit:
            continue
        median = statistics.median(by_commit[last])
        cells = [measure.what.strip(), measure.unit]
        cells += [_span(by_commit.get(commit, [])) for commit in figures.commits]
        cells += [_ratio(median, by_commit.get(commit, [])) for commit in before]
        told.append("| " + " | ".join([*cells, measure.aim_text, measure.verdict(median)]) + " |")
    return told


def _span(values: Sequence[float]) -> str:
    return "-" if not values else " / ".join(map(number, (min(values), statistics.median(values), max(values))))


def _ratio(median: float, others: Sequence[float]) -> str:
    other = statistics.median(others) if others else 0
    return f"{median / other:.2f}" if other else "-"


def known_measures() -> dict[str, Measure]:
    """By ``section/key``, in the order of the tables."""
    return {f"{one.name}/{measure.key}": measure for one in SECTIONS for measure in one.measures}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.perf.commits", description=(__doc__ or "").splitlines()[1])
    names = [section.name for section in SECTIONS]
    parser.add_argument("commits", nargs="*", help="the last one is the one that is judged")
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"of: {', '.join(names)}")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--json", type=Path, default=ROOT / "out" / "commits.json")
    parser.add_argument("--markdown", type=Path, metavar="JSON", help="print the table of an earlier run, and end")
    options = parser.parse_args(arguments)
    measures = known_measures()
    if options.markdown is not None:
        figures = msgspec.json.decode(options.markdown.read_bytes(), type=Figures)
        print(f"{figures.machine}\n`{figures.command}`\n\n" + "\n".join(lines(figures, measures)))
        return 0
    if len(options.commits) < 2:
        parser.error(f"{len(options.commits)} commits were given; to compare takes two")
    try:
        commits = tuple(short_name(commit) for commit in options.commits)
    except subprocess.CalledProcessError as error:
        parser.error(f"this repository has no such commit: {error.cmd[-1]}")
    values: dict[str, dict[str, list[float]]] = {}
    troubles: list[str] = []
    with tempfile.TemporaryDirectory(prefix="rollcall-commits-") as root:
        folders = {commit: checked_out(commit, Path(root)) for commit in commits}
        machine = describe(Path(root)).text()
        for run in range(options.runs):
            for section in options.only or names:
                for commit in (*commits[run % len(commits) :], *commits[: run % len(commits)]):
                    sys.stderr.write(f"run {run + 1} of {options.runs}  {section} at {commit}\n")
                    found = measured(folders[commit], section)
                    if isinstance(found, str):
                        troubles.append(f"{section} at {commit}: {found}")
                        sys.stderr.write(f"    {found}\n")
                        continue
                    for key, value in found.items():
                        values.setdefault(f"{section}/{key}", {}).setdefault(commit, []).append(value)
    ordered = {key: values[key] for key in measures if key in values}
    figures = Figures(
        machine=machine,
        command=f"python -m tests.perf.commits {' '.join(arguments)}",
        commits=commits,
        values=ordered,
        troubles=troubles,
    )
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_bytes(msgspec.json.format(msgspec.json.encode(figures)))
    print("\n".join(lines(figures, measures)))
    failed = sum("not measured by this commit" not in trouble for trouble in troubles)
    result = {"commits": len(commits), "measures": len(ordered), "failed": failed, "not_there": len(troubles) - failed}
    print(f"RESULT {json.dumps(result)}")
    return int(not ordered or failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
