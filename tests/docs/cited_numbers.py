"""
Which numbered rules are cited where: R, C, D, L, I, P, S and W numbers in code, tests and pages.

``python -m tests.docs.cited_numbers --write`` (``make cited-numbers``) puts the tables "number, code, test" into
``docs/citations.md``. They name paths and functions, never lines, so that ordinary edits leave them as they are.

A citation is a number in a comment, a docstring or another text, in the name of a test (``test_r3_...``) or of a story.
A text that looks like a number and is something else (a percentile, an object store) is in ``OTHER_MEANINGS``.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = ("analytics", "api", "broker", "cli", "client", "controller", "deploy", "epoch", "ha", "hooks", "node", "probe")
PAGES = {
    "R": "docs/safety.md",
    "C": "docs/invariants.md",
    "D": "docs/invariants.md",
    "L": "docs/invariants.md",
    "I": "docs/invariants.md",
    "P": "docs/pysyncobj.md",
    "S": "docs/scenarios.md",
    "W": "DIVERGENCE.md",
}
"""The page that defines the numbers of each letter."""

CITATIONS = ROOT / "docs" / "citations.md"
"""The page that has the tables."""

OTHER_MEANINGS: dict[tuple[str, str], str] = {
    ("analytics/report/summary.py", "P50"): "a percentile",
    ("analytics/report/summary.py", "P90"): "a percentile",
    ("analytics/report/summary.py", "P95"): "a percentile",
    ("analytics/report/summary.py", "P99"): "a percentile",
    ("adr/0031-object-stores-get-copies-of-a-lake.md", "S3"): "an object store's interface",
    ("docs/analytics.md", "S3"): "an object store's interface",
    ("tests/unit/test_analytics_copies.py", "S3"): "an object store's interface",
}
"""(path, number) of a text that means something else -> what it means."""

NOT_SERVED = "(not served)"
"""How the title of a rule ends that nothing has to keep today."""

EVERY_SEED = ("tests/sim/oracle.py", "tests/sim/log_laws.py", "tests/sim/world.py", "tests/sim/amnesia.py")
"""Checks of the simulation that run in all seeds."""

COLUMNS = {"R": ("number", "rule", "code", "test"), "S": ("number", "code"), "W": ("number", "code", "test")}
"""The columns of the table of these letters. Those of S and W leave out what the page that defines them says already."""

TESTS_NAMED_MAX = 3
"""A number with more tests than this is shown with their files."""

_NUMBER = re.compile(r"(?<![\w.$#/<-])([RCDLIPW]\d{1,2}|S\d{1,2})([a-d]?)(?![\w])")
_RANGE = re.compile(r"(?<![\w.$#/<-])([RCDLIPSW])(\d{1,2}) ?(?:-|to) ?\1(\d{1,2})(?!\w)")
_IN_A_NAME = re.compile(r"^(?:test_)?((?:[rcdlipsw]\d{1,2}[a-d]?_)+)")
_MARKERS = re.compile(r"(<!-- cited numbers: ([A-Z ]+) -->\n).*?(<!-- end of cited numbers -->)", re.DOTALL)

_UNNOTICED = re.compile(r"(<!-- mutants that survived once -->\n).*?(<!-- end of mutants -->)", re.DOTALL)
EMPTY = ast.Tuple(elts=[], ctx=ast.Load())


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Citation:
    """One place that names a number. ``function`` is empty for the head of a file and for what stands outside."""

    number: str
    path: str
    function: str = ""


def numbers_in(text: str) -> Iterator[str]:
    """Every number that ``text`` cites, those within a range like C1-C7 too."""
    for letter, first, last in _RANGE.findall(text):
        width = len(first) if letter == "S" else 1
        yield from (f"{letter}{number:0{width}}" for number in range(int(first), int(last) + 1))
    for number, part in _NUMBER.findall(text):
        # R3b is a part of R3; W6b is a weak spot of its own.
        yield number + part if number.startswith("W") else number


def key_of(number: str) -> tuple[int, int, str]:
    """The order of numbers: by letter as in ``PAGES``, then by size."""
    digits = re.sub(r"\D", "", number)
    return list(PAGES).index(number[0]), int(digits), number


def python_files(*tops: str) -> list[Path]:
    return [path for top in tops for path in sorted((ROOT / top).rglob("*.py")) if "docs" not in path.parts[-2:]]


def other_files() -> list[Path]:
    """Pages, settings, scripts and transcripts that people read."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("adr/*.md"), ROOT / "Makefile"]
    found += [ROOT / "pyproject.toml", *ROOT.glob("tests/scenario/*.txt"), *ROOT.glob("tests/sim/*.txt")]
    found += [
        path for ending in ("sh", "toml", "yaml", "yml", "service") for path in ROOT.glob(f"deploy/**/*.{ending}")
    ]
    return sorted(found)


def _scopes(module: ast.Module) -> dict[int, str]:
    """Line -> name of the innermost function or class that it is in."""
    scopes: dict[int, str] = {}

    def visit(node: ast.AST, within: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = within
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{within}.{child.name}" if within else child.name
                scopes.update(dict.fromkeys(range(child.lineno, (child.end_lineno or child.lineno) + 1), name))
            visit(child, name)

    visit(module, "")
    return scopes


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of every comment and string."""
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type in kinds:
                for offset, line in enumerate(token.string.splitlines()):
                    yield token.start[0] + offset, line


def _named(name: str) -> list[str]:
    match = _IN_A_NAME.match(name)
    if match is None:
        return []
    parts = [part for part in match[1].split("_") if part]
    return [found for part in parts for found in numbers_in(_plain(part[0].upper() + part[1:]))]


def _plain(number: str) -> str:
    """Files of stories are named with two digits, scenarios are written with two, rules with as many as they have."""
    return number if number.startswith("S") else re.sub(r"^([A-Z])0+", r"\1", number)


def _citations_in_python(path: Path) -> Iterator[Citation]:
    place = path.relative_to(ROOT).as_posix()
    source = path.read_text()
    module = ast.parse(source)
    if next(numbers_in(source), None) is None and "def test_" not in source:
        return
    scopes = _scopes(module)
    for line, text in _texts(path):
        for number in numbers_in(text):
            yield Citation(number=number, path=place, function=scopes.get(line, ""))
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            for number in _named(node.name):
                yield Citation(number=number, path=place, function=node.name)


@cache
def look_alikes() -> tuple[Citation, ...]:
    """Every text in the repository that looks like a citation, each once, in order."""
    found = {one for path in python_files(*CODE, "tests") for one in _citations_in_python(path)}
    for path in other_files():
        place = path.relative_to(ROOT).as_posix()
        found |= {Citation(number=number, path=place) for number in (*numbers_in(path.read_text()), *_named(path.stem))}
    return tuple(sorted(found))


@cache
def citations() -> tuple[Citation, ...]:
    """Every citation in the repository, each once, in order."""
    return tuple(one for one in look_alikes() if (one.path, one.number) not in OTHER_MEANINGS)


@cache
def defined() -> Mapping[str, str]:
    """Number -> title or sentence, from the pages."""
    found: dict[str, str] = {}
    safety = (ROOT / PAGES["R"]).read_text()
    found |= dict(re.findall(r"^### (R\d+) (.+)$", safety, re.MULTILINE))
    for page in dict.fromkeys(PAGES.values()):
        text = (ROOT / page).read_text()
        for cell, sentence in re.findall(r"^\| ([CDLIPSW][\dCDLIPSWb, -]*) \| (.*?) \|", text, re.MULTILINE):
            for number in numbers_in(cell):
                if PAGES[number[0]] == page:
                    found.setdefault(number, sentence)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One entry of ``tests/sim/mutations_*.py``."""

    name: str
    what: str
    path: str
    function: str
    case: str
    story: str
    tests: tuple[str, ...]
    once_unnoticed: str

    @property
    def ways(self) -> str:
        """What kills it, as a table shows it."""
        named = [f"case {self.case}"] * bool(self.case) + [f"story {self.story}"] * bool(self.story)
        return ", ".join([*named, *(test.rpartition("::")[2] for test in self.tests)])


@cache
def mutants() -> tuple[Mutant, ...]:
    parts = sorted(ROOT.glob("tests/sim/mutations*.py"))
    calls = [node for part in parts for node in ast.walk(ast.parse(part.read_text())) if _is_mutation(node)]
    return tuple(_mutant(call) for call in calls if isinstance(call, ast.Call))


def _is_mutation(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Mutation"


def _mutant(call: ast.Call) -> Mutant:
    values = {
        keyword.arg: str(keyword.value.value) for keyword in call.keywords if isinstance(keyword.value, ast.Constant)
    }
    module, _, function = values["target"].partition(":")
    path = _path_of(module)
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        # The place that the mutant patches may only have imported the function.
        if isinstance(node, ast.ImportFrom) and node.module and function in {alias.name for alias in node.names}:
            path = _path_of(node.module)
    return Mutant(
        name=values["name"],
        what=values["what"],
        path=path,
        function=function,
        case=values.get("case", ""),
        story=values.get("story", ""),
        tests=tuple(ast.literal_eval(next((word.value for word in call.keywords if word.arg == "tests"), EMPTY))),
        once_unnoticed=values.get("once_unnoticed", ""),
    )


def _path_of(module: str) -> str:
    return module.removeprefix("rollcall_ha.").replace(".", "/") + ".py"


def mutants_of(number: str) -> list[Mutant]:
    return [one for one in mutants() if re.match(rf"{number}(?![0-9a-z])", one.name)]


def _code_cell(number: str) -> str:
    places: dict[str, set[str]] = {}
    for one in citations():
        if one.number == number and one.path.startswith(tuple(f"{top}/" for top in CODE)):
            places.setdefault(one.path, set()).add(one.function.rpartition(".")[2])
    for mutant in mutants_of(number):
        places.setdefault(mutant.path, set()).add(mutant.function.rpartition(".")[2])
    cells = []
    for path in sorted(places):
        names = ", ".join(f"`{name}`" for name in sorted(places[path] - {""}))
        cells.append(f"`{path}` ({names})" if names else f"`{path}`")
    return " · ".join(cells)


def _test_cell(number: str) -> str:
    found = [one for one in citations() if one.number == number and one.path.startswith("tests/")]
    cells = [f"mutant `{mutant.name}` ({mutant.ways})" for mutant in mutants_of(number)]
    cells += [f"`{path}`" for path in sorted({one.path for one in found if one.path.startswith("tests/scenario/")})]
    tests = {one for one in found if not one.path.startswith(("tests/scenario/", "tests/sim/"))}
    files_with_names = {one.path for one in tests if one.function}
    tests = {one for one in tests if one.function or one.path not in files_with_names}
    if len(tests) <= TESTS_NAMED_MAX:
        cells += [f"`{one.path}::{one.function}`" if one.function else f"`{one.path}`" for one in sorted(tests)]
    else:
        cells += [f"`{path}`" for path in sorted({one.path for one in tests})]
    cells += [f"`{path}` (every seed)" for path in EVERY_SEED if any(one.path == path for one in found)]
    return " · ".join(cells)


def table(letters: str) -> str:
    """The generated table for the numbers of these letters."""
    numbers = sorted((number for number in defined() if number[0] in letters.split()), key=key_of)
    columns = COLUMNS.get(letters, ("number", "code", "test"))
    lines = [columns, ("---",) * len(columns)]
    for number in numbers:
        is_served = not defined()[number].endswith(NOT_SERVED)
        cells = {
            "number": number,
            "rule": defined()[number],
            "code": _code_cell(number) or ("" if is_served else "none"),
            "test": _test_cell(number) or ("" if is_served else "none"),
        }
        if letters not in COLUMNS or letters == "R" or any(cells[column] for column in columns[1:]):
            lines.append(tuple(cells[column] for column in columns))
    return "".join("| " + " | ".join(line) + " |\n" for line in lines).replace("|  |", "| |")


def table_of_unnoticed() -> str:
    """The mutants that once survived everything, with what kills each now."""
    lines = ["| what is left out | mutant | what goes wrong | killed by |", "| --- | --- | --- | --- |"]
    for mutant in mutants():
        if mutant.once_unnoticed:
            by = [f"case `{mutant.case}`"] * bool(mutant.case) + [f"story `{mutant.story}`"] * bool(mutant.story)
            by += [f"`{test}`" for test in mutant.tests]
            lines.append(f"| {mutant.once_unnoticed} | `{mutant.name}` | {mutant.what} | {' · '.join(by)} |")
    return "\n".join(lines) + "\n"


def renewed(text: str) -> str:
    """``text`` of a page with its tables made anew."""
    text = _UNNOTICED.sub(lambda match: match[1] + table_of_unnoticed() + match[2], text)
    return _MARKERS.sub(lambda match: match[1] + table(match[2]) + match[3], text)


def main(arguments: list[str]) -> int:
    """Exit 1 if a table is stale and was not written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the tables into the page")
    options = parser.parse_args(arguments)
    before = CITATIONS.read_text()
    after = renewed(before)
    if before == after:
        return 0
    page = CITATIONS.relative_to(ROOT)
    if options.write:
        CITATIONS.write_text(after)
        sys.stdout.write(f"{page}: written\n")
        return 0
    sys.stdout.write(f"{page}: stale, run: make cited-numbers\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
