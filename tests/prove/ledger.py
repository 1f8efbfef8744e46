"""
The ledger of what was proved (``tests/proofs.jsonl``), and the page that is made of it (``docs/proof.md``).

Rule 1: a line is only ever added. A run that failed or could not be made stays in it.
Rule 2: a skip proves nothing: the page counts it apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from tests.perf.machine import ROOT, Machine
from tests.prove.parts import PARTS, Part

LEDGER = ROOT / "tests/proofs.jsonl"
PAGE = ROOT / "docs/proof.md"
SHOWN_MAX = 6
"""Counts of a cell; the ledger has all."""

Outcome = Literal["ok", "failed", "skipped"]


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """One line: a part that was run once."""

    part: str
    outcome: Outcome
    why: str = ""
    """Why it failed or was skipped."""
    counts: dict[str, Any]
    seconds: float
    seed: int
    is_dirty: bool
    """The checkout held changes that its commit does not."""
    java: str
    machine: Machine
    """With commit and date."""


def judge(code: int | None, output: str) -> tuple[Outcome, str, dict[str, Any]]:
    """What a part's exit code (``None``: ended by us) and its output say: outcome, why, counts."""
    counts = _counts(output)
    if code is None:
        return "failed", "not done in its time", counts
    if why := counts.get("skipped_because", ""):
        return ("skipped" if code == 0 else "failed"), str(why), counts
    if code:
        lines = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return "failed", lines[0][:300] if lines else f"exit code {code}", counts
    if not _has_amount({name: count for name, count in counts.items() if name not in ("seconds", "skipped")}):
        return "failed", "it counted nothing", counts
    return "ok", "", counts


def _counts(output: str) -> dict[str, Any]:
    """Those of the last line RESULT, or of pytest's last one; pytest that has only skipped says so."""
    told = re.findall(r"^RESULT +(\{.*\})$", output, re.MULTILINE)
    if told:
        found: dict[str, Any] = json.loads(told[-1])
        return found
    ends = re.findall(r"^(?:=+ )?(\d+ \w+(?:, \d+ \w+)*) in [\d.]+s", output, re.MULTILINE)
    counts: dict[str, Any] = {
        word: int(number) for number, word in re.findall(r"(\d+) (\w+)", ends[-1] if ends else "")
    }
    if set(counts) == {"skipped"}:
        reasons = re.findall(r"^SKIPPED .*?: (.+)$", output, re.MULTILINE)
        counts["skipped_because"] = reasons[0] if reasons else "all tests were skipped"
    return counts


def _has_amount(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_amount, value.values()))
    return isinstance(value, int | float) and value != 0


def read(path: Path = LEDGER) -> list[Proof]:
    """All lines, the oldest first."""
    return [msgspec.json.decode(line, type=Proof) for line in path.read_bytes().splitlines()] if path.exists() else []


def append(proof: Proof, path: Path = LEDGER) -> None:
    """One line more."""
    with path.open("ab") as file:
        file.write(msgspec.json.encode(proof) + b"\n")


HEAD = """\
# What was proved, and when

`make test` proves what can be proved in minutes, from fixed seeds. What takes longer, or draws its faults by chance, are the
parts of `make prove`: all of them, or some (`make prove PARTS=sim,interop`). Each run of a part adds a line to
`tests/proofs.jsonl`, with its counts, commit, seed and machine; this page is made of those lines
(`python -m tests.prove --page`). `make prove PARTS=chaos-net SEED=4711` repeats what a run has drawn.

Before something is called done, its part is run. A part that cannot run on a machine says why, and is counted as skipped:
that proves nothing. A commit with a `+` had changes beside it.
"""


def page(proofs: Sequence[Proof], parts: Sequence[Part] = PARTS) -> str:
    """The page."""
    lines = [
        HEAD,
        "| part | last proved | what it counted | ok | failed | skipped |",
        "| --- | --- | --- | ---: | ---: | ---: |",
    ]
    for part in parts:
        own = [proof for proof in proofs if proof.part == part.name]
        good = [proof for proof in own if proof.outcome == "ok"]
        last = _when(good[-1]) if good else "never"
        if own and own[-1].outcome != "ok":
            last += f"; {own[-1].outcome} {_when(own[-1])}"
        often = [sum(proof.outcome == outcome for proof in own) for outcome in ("ok", "failed", "skipped")]
        lines.append(f"| `{part.name}` | {last} | {_shown(good[-1]) if good else ''} | {' | '.join(map(str, often))} |")
    lines += ["", "| part | what it proves | about |", "| --- | --- | ---: |"]
    lines += [f"| `{part.name}` | {part.proves} | {part.minutes:g} min |" for part in parts]
    return "\n".join(lines) + "\n"


def _when(proof: Proof) -> str:
    return f"{proof.machine.date[:10]}, {proof.machine.commit}{'+' if proof.is_dirty else ''}"


def _shown(proof: Proof) -> str:
    flat = [
        f"{name.replace('_', ' ')} {count:,}"
        for name, count in proof.counts.items()
        if isinstance(count, int | float) and not isinstance(count, bool)
    ]
    return ", ".join(flat[:SHOWN_MAX])
