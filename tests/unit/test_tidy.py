"""
The house is tidy: arrows, lengths, banned calls, names, no dead files.

What ruff, mypy and import-linter do not say, or do not say as fast. Limits go down, never up: a module or function that
is still above one is in ``ALLOWED`` with its present length, and an entry that is no longer needed fails too.
"""

from __future__ import annotations

import ast
import gc
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("tidy")
"""On one worker: each would read and parse every file of the repository."""

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
NAMESPACE = "rollcall_ha"
PACKAGES: list[str] = sorted(
    link.name for link in (ROOT / "src" / NAMESPACE).iterdir() if link.is_dir() and link.name != "__pycache__"
)
"""The folders at the top that are imported as sub-packages of ``NAMESPACE``."""
FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 700
ALLOWED: dict[str, int] = {}
"""``path`` or ``path::function`` -> its length today."""

SLEEPERS = {"rollcall_ha.controller.replication.raft.log"}
"""The Raft thread, which is nobody's loop, pauses after a tick that failed: nothing would wake it."""

TALKERS = ("rollcall_ha.cli", "rollcall_ha.deploy", "rollcall_ha.analytics")
"""Programs that may print: people read their output."""

HOST_NAMES = {"broker.example:9", "controller.example", "hooks.toml", "client.pem", "client.key"}
"""Texts that look like a module without the namespace."""


@cache
def files(*tops: str) -> tuple[Path, ...]:
    """Every Python file below these folders."""
    return tuple(path for top in tops for path in sorted((ROOT / top).rglob("*.py")))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a file, walked once for all tests."""
    return tuple(ast.walk(tree(path)))


@pytest.fixture(scope="module", autouse=True)
def _trees() -> Iterator[None]:
    """A million nodes live until the last test here, and no longer: the collector would walk them while they are made."""
    gc.disable()
    yield
    for cached in (nodes, tree):
        cached.cache_clear()
    gc.enable()


@cache
def name_of(path: Path) -> str:
    """``broker/log/__init__.py`` is ``rollcall_ha.broker.log``; tests keep their own top."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts if parts[0] == "tests" else (NAMESPACE, *parts)).removesuffix(".__init__")


def where(path: Path, node: ast.AST | None = None) -> str:
    line = getattr(node, "lineno", None)
    return str(path.relative_to(ROOT)) + (f":{line}" if line else "")


@cache
def imports(path: Path) -> tuple[tuple[str, int], ...]:
    """(module, line) of everything that a file imports, late imports too, those for types only as well."""
    found = []
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append((node.module, node.lineno))
            found += [(f"{node.module}.{alias.name}", node.lineno) for alias in node.names]
    return tuple(found)


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


ARROWS = [
    contract
    for contract in PROJECT["tool"]["importlinter"]["contracts"]
    if contract["type"] != "acyclic_siblings"  # import-linter alone looks for circles
]


@pytest.mark.parametrize("contract", ARROWS, ids=lambda contract: contract["id"])
def test_arrows_go_one_way(contract: dict[str, Any]) -> None:
    """No file imports what the contract of its package in pyproject.toml forbids, late or for types either."""
    if contract["type"] == "layers":
        layers = contract["layers"]
        rules = [(low, high) for number, low in enumerate(layers) for high in layers[:number]]
    else:
        rules = [(source, taboo) for source in contract["source_modules"] for taboo in contract["forbidden_modules"]]

    broken = [
        f"{where(path)}:{line} imports {module}, forbidden for {source}"
        for source, taboo in rules
        for path in files(*PACKAGES)
        if is_within(name_of(path), source)
        for module, line in imports(path)
        if is_within(module, taboo)
        and not any(
            name_of(path) == edge.split(" -> ")[0] and is_within(module, edge.split(" -> ")[1])
            for edge in contract.get("ignore_imports", ())
        )
    ]

    assert broken == []


def test_nothing_imports_tests() -> None:
    """The wheel leaves them out."""
    broken = [where(path) for path in files(*PACKAGES) for module, _ in imports(path) if is_within(module, "tests")]

    assert broken == []


MODULE_TEXT = re.compile(rf"(?:{'|'.join(PACKAGES)})(?:\.[a-z_]+)+(?::[A-Za-z_.]+)?")
"""A text that names a module of ours without the namespace: for ``-m``, ``setattr`` of a path, or a mutant's target."""

_NAMES = "|".join(PACKAGES)
BARE = re.compile(rf"""['"](?:{_NAMES})\.|^\s*(?:from\s+|import\s+(?:\S.*,\s*)?)(?:{_NAMES})\b""", re.MULTILINE)
"""The beginning of every such text and of every bare import: a file without it needs no parsing."""


@pytest.mark.slow
def test_everything_is_imported_through_the_namespace() -> None:
    """``api`` or ``node`` alone is whatever lies first on the path: another distribution's, or a file of the user's."""
    suspects = [path for path in files(*PACKAGES, "tests") if BARE.search(path.read_text())]
    texts = [
        (path, node.value, node.lineno)
        for path in suspects
        for node in nodes(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and MODULE_TEXT.fullmatch(node.value)
    ]
    bare = [
        f"{where(path)}:{line} names {module}"
        for path, module, line in [
            *((path, module, line) for path in suspects for module, line in imports(path)),
            *((path, text, line) for path, text, line in texts if text not in HOST_NAMES),
        ]
        if module.split(".")[0] in PACKAGES
    ]

    assert suspects, "texts of hosts look like it"
    assert bare == []


def test_the_namespace_is_ours_alone() -> None:
    """No other installed distribution has a package of its name."""
    assert set(packages_distributions().get(NAMESPACE, ())) <= {"rollcall-ha"}


def test_every_folder_of_the_namespace_is_a_link_to_the_top() -> None:
    """The layout that users see and the one that Python imports are the same files."""
    for name in PACKAGES:
        link = ROOT / "src" / NAMESPACE / name

        assert link.is_symlink()
        assert link.resolve() == ROOT / name


def test_no_module_is_named_like_the_standard_library() -> None:
    """A ``types.py`` shadows the real one as soon as a file beside it is run as a program."""
    shadowing = [where(path) for path in files(*PACKAGES, "tests") if path.stem in sys.stdlib_module_names]

    assert shadowing == []


def lengths() -> Iterator[tuple[str, int, int]]:
    """(what, its lines, its limit) of every module and function of ours."""
    for path in files(*PACKAGES):
        yield where(path), len(path.read_text().splitlines()), MODULE_LINES_MAX
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{where(path)}::{node.name}", (node.end_lineno or 0) - node.lineno + 1, FUNCTION_LINES_MAX


def test_functions_fit_a_screen_and_modules_a_reading() -> None:
    """Nothing is longer than its limit or than its entry in ``ALLOWED``."""
    too_long = [f"{what} has {lines} lines" for what, lines, limit in lengths() if lines > ALLOWED.get(what, limit)]

    assert too_long == []


def test_allowances_are_still_needed() -> None:
    """The ratchet goes one way."""
    found = {what: (lines, limit) for what, lines, limit in lengths()}
    spent = [what for what, allowed in ALLOWED.items() if found.get(what, (0, 0))[0] < allowed]

    assert spent == []


def calls(path: Path) -> Iterator[ast.Call]:
    return (node for node in nodes(path) if isinstance(node, ast.Call))


def is_named(call: ast.Call, name: str) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == name


def is_call_of(call: ast.Call, owner: str, method: str) -> bool:
    function = call.func
    return (
        isinstance(function, ast.Attribute)
        and function.attr == method
        and isinstance(function.value, ast.Name)
        and function.value.id == owner
    )


def test_no_map_is_flushed() -> None:
    """``mmap.flush`` holds the interpreter lock for a quarter of a second; files are synced by descriptor."""
    mapping = [path for path in files(*PACKAGES) if any(module == "mmap" for module, _ in imports(path))]
    flushed = [
        where(path, call)
        for path in mapping
        for call in calls(path)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == "flush"
        and not is_call_of(call, "stdout", "flush")
    ]

    assert mapping
    assert flushed == []


def test_nobody_sleeps() -> None:
    """A server waits for something, and is woken; the launcher polls, and so does who has nothing to wait for."""
    asleep = [
        where(path, call)
        for path in files(*PACKAGES)
        if not is_within(name_of(path), "rollcall_ha.deploy") and name_of(path) not in SLEEPERS
        for call in calls(path)
        if is_call_of(call, "time", "sleep")
    ]

    assert asleep == []


def test_only_what_talks_to_people_prints() -> None:
    """Servers and libraries log or answer."""
    printing = [
        where(path, call)
        for path in files(*PACKAGES)
        if not any(is_within(name_of(path), talker) for talker in TALKERS)
        for call in calls(path)
        if isinstance(call.func, ast.Name) and call.func.id == "print"
    ]

    assert printing == []


SCALARS = {"float", "RequestIdText"}
"""Types of ``convert`` that are no struct: msgspec keeps nothing of them between two calls."""


def test_types_of_msgspec_are_built_at_import() -> None:
    """
    Two threads that decode into a struct for the first time at once crash the interpreter: msgspec builds a type when
    it first meets it, and shows the half-built one to the other thread. A decoder at the top of a module builds it.
    """
    lazy = []
    for path in files(*PACKAGES):
        at_import = [statement for statement in tree(path).body if not isinstance(statement, ast.FunctionDef)]
        first = [call for each in at_import for call in ast.walk(each) if isinstance(call, ast.Call)]
        # ``broker.protocol.consumers.header_of`` builds what it is given.
        built = {
            getattr(call.args[0], "id", "")
            for call in first
            if call.args and (getattr(call.func, "attr", None) == "Decoder" or is_named(call, "header_of"))
        }
        lazy += [where(path, call) for call in calls(path) if is_named(call, "header_of") and call not in first]
        for call in calls(path):
            method = getattr(call.func, "attr", None)
            kinds = [keyword.value for keyword in call.keywords if keyword.arg == "type"]
            if is_call_of(call, "msgspec", "convert"):
                kinds += call.args[1:2]
            if method in {"decode", "convert"} and any(
                getattr(kind, "id", None) not in built | SCALARS for kind in kinds
            ):
                lazy.append(where(path, call))

    assert lazy == []


def test_no_file_is_dead() -> None:
    """Every module is imported by another one of the product, or by a page for users, is a group of the CLI, or a program."""
    used = {module for path in files(*PACKAGES) for module, _ in imports(path)}
    used |= set(re.findall(r'"(rollcall_ha\.[\w.]+)[":]', Path("cli/main.py").read_text()))
    used |= {entry.partition(":")[0] for entry in PROJECT["project"]["scripts"].values()}
    used |= {
        module
        for page in Path("docs").glob("*.md")
        for module in re.findall(r"^from (rollcall_ha[\w.]+) import", page.read_text(), re.MULTILINE)
    }
    dead = [
        where(path)
        for path in files(*PACKAGES)
        if path.name != "__init__.py"
        and name_of(path) not in used
        and path.name != "__main__.py"
        and '__name__ == "__main__"' not in path.read_text()
    ]

    assert dead == []


AT_TOP = re.compile(r'(?:#.*\n|\s)*(?:r?"""\s*\S|\Z)')
"""Comments, then a docstring or nothing: to parse a hundred thousand lines for this would take seconds."""


def test_every_module_says_what_is_here() -> None:
    """A docstring at the top of every module that has something in it."""
    silent = [where(path) for path in files(*PACKAGES, "tests") if not AT_TOP.match(path.read_text())]

    assert silent == []


def test_no_function_within_another_is_forgotten() -> None:
    """A scenario was written, never played, and green."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    forgotten = [
        where(path, inner)
        for path in files(*PACKAGES, "tests")
        for outer in nodes(path)
        if isinstance(outer, functions)
        for inner in outer.body
        if isinstance(inner, functions) and not inner.decorator_list
        if inner.name not in {node.id for node in ast.walk(outer) if isinstance(node, ast.Name)}
    ]

    assert forgotten == []
