"""Every number that code, tests and pages cite is defined on one page, and what is defined is cited, kept and tested."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.docs.cited_numbers import (
    CITATIONS,
    CODE,
    NOT_SERVED,
    OTHER_MEANINGS,
    PAGES,
    ROOT,
    citations,
    defined,
    key_of,
    look_alikes,
    mutants,
    other_files,
    python_files,
    renewed,
)
from tests.docs.test_scenarios_page import is_there

UNCITED = {
    "R16": "there are no leases",
    "P9": "the tests of transport and messages are about nothing else",
    "P10": "the tests of authority are about nothing else",
}
"""Defined, and cited nowhere in code or tests -> why that is right."""

SAFETY = (ROOT / PAGES["R"]).read_text()
RULES = re.findall(r"^### (R\d+) (.+?)\n(.*?)(?=^##)", SAFETY, re.MULTILINE | re.DOTALL)
"""(number, title, text) of every rule."""

NUMBER_ONLY = re.compile(r"(Rules? )?\(?[A-Z]?\d+[a-d]?\)?(( and |, | \(|-)[A-Z]?\d+[a-d]?\)?)*[.:]?")


@cache
def names_in(path: str) -> frozenset[str]:
    """Names of functions, classes and constants of a file, alone and with their class."""
    found: set[str] = set()

    def visit(node: ast.AST, within: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = within
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{within}.{child.name}".lstrip(".")
                found.update((name, child.name))
            elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                found.add(child.id)
            visit(child, name)

    visit(ast.parse((ROOT / path).read_text()), "")
    return frozenset(found)


def test_every_cited_number_is_defined() -> None:
    """A stranger who reads "R3" finds one page that says what R3 is."""
    unknown = {f"{one.number} in {one.path} {one.function}" for one in citations() if one.number not in defined()}

    assert len(citations()) > 1_000
    assert sorted(unknown) == [], f"define it in one of {sorted(set(PAGES.values()))}, or add it to OTHER_MEANINGS"


def test_no_other_meaning_is_left_over() -> None:
    """An exception that nothing needs would hide the next mistake."""
    assert set(OTHER_MEANINGS) - {(one.path, one.number) for one in look_alikes()} == set()


def test_no_number_is_missing() -> None:
    """R1 to R31, C1 to C15, D1 to D14, L1 to L7: none was dropped on the way into the pages."""
    for letter, last in {"R": 31, "C": 15, "D": 14, "L": 7}.items():
        numbers = [number for number in sorted(defined(), key=key_of) if number[0] == letter]
        assert numbers == [f"{letter}{number}" for number in range(1, last + 1)]


def test_every_defined_number_is_cited() -> None:
    """A rule that no code and no test names is kept by nobody, or nobody knows where."""
    cited = {one.number for one in citations() if one.path.endswith(".py") or one.path.startswith("tests/")}
    # Rows of scenarios and weak spots name their tests and their code themselves: test_scenarios_page, test_documents.
    bare = {number for number in defined() if number[0] in "RCDLIP"} - cited

    assert bare - set(UNCITED) == set()
    assert set(UNCITED) - bare == set(), "cited after all: take it out of UNCITED"


def test_promises_have_one_of_four_numbers() -> None:
    """ "promise 3" in a docstring is the third one of docs/safety.md."""
    named = {
        number
        for path in (*python_files(*CODE, "tests"), *other_files())
        for number in re.findall(r"\bpromise (\d+)\b", path.read_text())
    }
    told = re.findall(r"^(\d)\. \*\*", SAFETY.split("## The argument")[0], re.MULTILINE)

    assert told == ["1", "2", "3", "4"]
    assert named
    assert named <= set(told)


@pytest.mark.parametrize(("number", "title", "text"), RULES, ids=[number for number, _, _ in RULES])
def test_a_rule_says_why_where_and_what_kills_its_absence(number: str, title: str, text: str) -> None:
    """A rule that is not served says so; every other one has a story, a place and a proof that exist."""
    if title.endswith(NOT_SERVED):
        assert not re.search(r"\*\*Kept by", text)
        return
    where = re.search(r"\*\*Kept by:\*\*(.*?)\*\*Its absence is killed by\*\*", text, re.DOTALL)
    killers = re.findall(r"`((?:tests/|case |mutant )[^`]*)`", text.partition("**Its absence is killed by**")[2])
    own_mutants = [mutant for mutant in mutants() if re.match(rf"{number}(?!\d)", mutant.name)]

    assert "**Without it:**" in text
    assert where is not None
    assert re.search(r"`\w+/[\w/]+\.py`", where[1])
    assert killers
    assert [proof for proof in killers if not is_there(proof) and not (ROOT / proof).is_file()] == []
    assert not own_mutants or any(proof.startswith("mutant ") for proof in killers)


@pytest.mark.parametrize(
    "page", [*dict.fromkeys(PAGES.values()), "docs/citations.md", "docs/wire.md", "ARCHITECTURE.md"]
)
def test_functions_that_are_named_behind_a_path_exist(page: str) -> None:
    """``ha/sync_state.py`` (``SyncState.tick``): a function that was renamed takes its place in the pages with it."""
    text = re.sub(r"\s+", " ", (ROOT / page).read_text())
    named = re.findall(r"`((?:\w+/)+\w+\.py)` \(((?:`[\w.]+`(?:, )?)+)\)", text)
    missing = [
        f"{path}: {name}"
        for path, names in named
        for name in re.findall(r"[\w.]+", names)
        if not (ROOT / path).is_file() or name not in names_in(path)
    ]

    assert missing == [], "name what is there now (in a table: make cited-numbers)"


def test_the_tables_are_fresh() -> None:
    """ "number, code, test" is what code and tests cite now."""
    text = CITATIONS.read_text()

    assert renewed(text) == text, "docs/citations.md is stale; run: make cited-numbers"


def test_no_docstring_is_only_a_number() -> None:
    """ "R13." tells a reader to open another page before the sentence has begun."""
    found = []
    for path in python_files(*CODE):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text is not None and NUMBER_ONLY.fullmatch(text):
                    found.append(f"{path.relative_to(ROOT)} {getattr(node, 'name', '')}: {text}")

    assert found == []
