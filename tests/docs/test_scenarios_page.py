"""``docs/scenarios.md``: every scenario once, and every test, case, mutant and story that it names is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NEVER_GIVEN = {11, 19, 27, 30, 45, 48, 58, 59, 77}
NUMBERS = [f"S{number:02}" for number in range(1, 87) if number not in NEVER_GIVEN]
ROWS = re.findall(
    r"^\| (S\d+) \| (.*?) \| (.*?) ?\| (.*?) ?\|$", (ROOT / "docs" / "scenarios.md").read_text(), re.MULTILINE
)


@cache
def tree(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text())


def functions_of(path: str) -> set[str]:
    return {node.name for node in tree(path).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@cache
def mutants() -> set[str]:
    """``name=`` of every ``Mutation(...)``."""
    parts = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/sim/mutations*.py"))
    calls = (node for part in parts for node in ast.walk(tree(part)) if isinstance(node, ast.Call))
    return {
        str(keyword.value.value)
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "Mutation"
        for keyword in call.keywords
        if keyword.arg == "name" and isinstance(keyword.value, ast.Constant)
    }


@cache
def cases() -> set[str]:
    """Keys of ``CASES`` and ``DISK_CASES``."""
    tables = [
        node.value
        for path in ("tests/sim/directed.py", "tests/sim/directed_disks.py")
        for node in tree(path).body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id.endswith("CASES")
    ]
    return {
        str(key.value)
        for table in tables
        if isinstance(table, ast.Dict)
        for key in table.keys
        if isinstance(key, ast.Constant)
    }


def proofs(cell: str) -> list[str]:
    """What stands in backticks and claims to prove something."""
    return re.findall(r"`((?:tests/|case |mutant )[^`]*)`", cell)


def layer_of(proof: str) -> str:
    return proof.split("/")[1] if proof.startswith("tests/") else "sim"


def is_there(proof: str) -> bool:
    kind, _, name = proof.partition(" ")
    if kind == "case":
        return name in cases()
    if kind == "mutant":
        return name in mutants()
    path, _, test = proof.partition("::")
    return (ROOT / path).is_file() and (path.endswith(".txt") or test in functions_of(path))


def test_every_scenario_is_listed_once_and_in_order() -> None:
    """None is forgotten, none told twice, none invented."""
    assert [number for number, _, _, _ in ROWS] == NUMBERS


@pytest.mark.parametrize(("number", "promise", "cell", "layers"), ROWS, ids=lambda word: word if len(word) == 3 else "")
def test_what_is_named_is_there(number: str, promise: str, cell: str, layers: str) -> None:
    """A test that was renamed takes its proof with it; a row without one says what is missing."""
    named = proofs(cell)

    assert promise
    assert [proof for proof in named if not is_there(proof)] == []
    assert named or cell.startswith("Not yet: ")
    assert layers == ", ".join(dict.fromkeys(map(layer_of, named)))
