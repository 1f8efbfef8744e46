"""
What server, CLI and pages tell a reader to do can be done: commands, options, make targets, pages, settings.

Collected from every text in the code (docstrings, messages, parts of f-strings), in the tests and on the pages: whatever
begins with ``rollcall``, ``./rollcall`` or ``make``, and whatever a ``ConfigError`` calls a key of the fleet file.
Commands are looked up in the real typer app, options among those that the command has.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args

import msgspec
import typer.main

from rollcall_ha.cli.main import app
from rollcall_ha.controller.contract.settings import KEYS
from rollcall_ha.node import config
from tests.docs.cited_numbers import CODE, ROOT, other_files, python_files
from tests.prove.parts import PARTS

VALUE = "VALUE"
"""Stands where an f-string puts a value."""

COMMAND = re.compile(r"(?<![\w./@:-])(?<!-n )(?:\./)?rollcall((?: +(?![=#])[^\s`\"|;)\]]+)+)")
TARGET = re.compile(r"(?:(?<=`)|(?<=: )|(?<=\()|(?<=run )|(?m:^))make ([a-z][a-z-]*(?:VALUE)?)")
PROVE = re.compile(r"(?<=make prove PARTS=)[a-z,-]+")
SENTENCE = re.compile(r"[.,:;]$|^(?:and|or|then|again)$")

NO_TARGETS = {"the", "one", "journals"}
"""Words behind ``make`` in sentences about something else."""

NO_SETTINGS = {
    "analytics": "an extra of the distribution",
    "otlp": "an extra of the distribution",
    "server": "an extra of the distribution",
    "client": "an extra of the distribution",
    "project": "a section of pyproject.toml",
    "limits": "a section of hooks.toml",
    "hooks": "sections of hooks.toml, which has settings of its own (docs/hooks.md)",
    "broker_port_tls": "a section that is gone; the changelog says so",
    "cannot_start": "an event of the log",
    "runbook_url": "an annotation of alarms",
}
"""Words in square brackets that are no section of the fleet file, and what they are."""


@dataclass(frozen=True, slots=True)
class Hint:
    """A command line, and the file that shows it."""

    where: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.where}: rollcall {' '.join(self.words)}"


def _strings(path: Path) -> Iterator[str]:
    """Every text of a module; an f-string is one text with ``VALUE`` for its values."""
    inside: set[int] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            inside.update(id(part) for part in node.values)
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else VALUE for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.value


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """(file, text) of everything that people may read."""
    found = [(_name(path), text) for path in python_files(*CODE, "tests") for text in _strings(path)]
    return (*found, *((_name(path), path.read_text()) for path in other_files() if path.parent.name != "adr"))


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _command_lines(text: str) -> Iterator[tuple[str, ...]]:
    # A terminal's line that ends in a backslash goes on; a sentence in a docstring goes on by itself.
    for match in COMMAND.finditer(re.sub(r"\\\n *", "", text)):
        words = []
        for word in match[1].split():
            words.append(word.rstrip(".,:;"))
            if SENTENCE.search(word):
                break
        yield tuple(words)


@cache
def hints() -> tuple[Hint, ...]:
    """Every command line that is shown and begins with a word."""
    found = {Hint(name, words) for name, text in texts() for words in _command_lines(text)}
    return tuple(sorted(found, key=str))


def _spoken(path: str) -> tuple[set[str], set[str]]:
    """(choices of the verb, options) of a program that reads its own arguments."""
    calls = [
        node
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"
    ]
    options = {str(one.value) for call in calls for one in call.args if isinstance(one, ast.Constant)}
    choices: set[str] = set()
    for keyword in (keyword for call in calls for keyword in call.keywords if keyword.arg == "choices"):
        if isinstance(keyword.value, ast.Tuple | ast.List):
            choices |= {str(one.value) for one in keyword.value.elts if isinstance(one, ast.Constant)}
    return choices, options


def _commands_of(command: Any) -> dict[str, Any]:
    """Its sub-commands; empty if it has none. The question is what imports them, and the options of their group."""
    names = command.list_commands(None) if hasattr(command, "list_commands") else ()
    return {name: command.get_command(None, name) for name in names}


def _options_of(command: Any) -> set[str]:
    return {option for one in command.params for option in (*one.opts, *one.secondary_opts)} | {"--help"}


@cache
def _program() -> Any:
    """Made once: each verb that it has imported and made is asked for by many hints."""
    return typer.main.get_command(app)


@cache
def complaint(words: tuple[str, ...]) -> str:
    """Why ``rollcall WORDS`` would be refused; empty if it would be understood."""
    command: Any = _program()
    known = _options_of(command) | {"--watch"}
    rest = list(words)
    while rest and _commands_of(command):
        word = rest[0]
        if word.startswith("-"):
            if word.split("=")[0] not in known:
                return f"no option {word}"
            # Its value, if it has one, is not a command: it is skipped with it.
            rest = rest[1:] if word in ("--help", "--version") or "=" in word else rest[2:]
            continue
        found = _commands_of(command).get(word)
        if found is None:
            return "" if VALUE in word or not word.isascii() else f"no command {word}"
        command, rest = found, rest[1:]
        _commands_of(command)
        known |= _options_of(command)
    if command.name == "demo":
        choices, options = _spoken("deploy/local/demo.py")
        known |= options
        if rest and rest[0] not in choices and VALUE not in rest[0]:
            return f"no verb {rest[0]}"
    unknown = [word for word in rest if re.match(r"--?[a-z]", word) and word.split("=")[0] not in known]
    return f"no option {unknown[0]} of {command.name}" if unknown else ""


def test_every_command_that_is_shown_is_understood() -> None:
    """A hint that names a command of last month sends an operator to an error in the middle of an outage."""
    refused = [f"{hint} ({why})" for hint in hints() if (why := complaint(hint.words))]

    sys.stdout.write(f"{len(hints())} command lines are shown\n")
    assert len(hints()) >= 100, f"only {len(hints())} were found: the collector has lost its eyes"
    assert refused == []


def test_commands_that_are_refused_are_noticed() -> None:
    """The test itself: a wrong command, a wrong option, a wrong sub-command."""
    assert complaint(("elect", "broker-a", "--dry-run")) == ""
    assert complaint(("switch", "broker-a")) == "no command switch"
    assert complaint(("elect", "SET", "--dry")) == "no option --dry of elect"
    assert complaint(("analytics", "tabulate")) == "no command tabulate"
    assert complaint(("controllers", "--output", "json")) == ""
    assert complaint(("certs", "renew", "--everything")) == "no option --everything of renew"
    assert complaint(("demo", "explode")) == "no verb explode"


def test_every_make_target_that_is_named_exists() -> None:
    """In messages, docstrings and pages."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    parts = {part.name for part in PARTS}
    chosen = {(name, part) for name, text in texts() for some in PROVE.findall(text) for part in some.split(",")}
    named = {(name, target) for name, text in texts() for target in TARGET.findall(text) if name != "Makefile"}
    missing = [
        (name, target)
        for name, target in sorted(named)
        # Decisions are never edited: they name parts as they were called when each was a verb.
        if target not in targets | NO_TARGETS | (parts if name.startswith("adr/") else set())
        and not (target.endswith(VALUE) and any(one.startswith(target.removesuffix(VALUE)) for one in targets))
    ]

    sys.stdout.write(f"{len(named)} targets of make are named\n")
    assert len(named) >= 30
    assert len(chosen) >= 30
    assert missing == []
    assert [(name, part) for name, part in sorted(chosen) if part not in parts] == []


@cache
def settings() -> frozenset[str]:
    """Keys and sections of the fleet file, and those of the settings (docs/settings.md)."""
    names: set[str] = set()

    def visit(kind: Any) -> None:
        for field in msgspec.structs.fields(kind):
            names.add(field.encode_name)
            for inner in (field.type, *get_args(field.type)):
                if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
                    visit(inner)

    for kind in vars(config).values():
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            visit(kind)
    return frozenset(names | set(KEYS))


BETWEEN = re.compile(r"\n\n|\n(?=- )")
"""Between paragraphs, and between the items of a list: in one of them keys of a file and columns of a table are named."""


def test_every_setting_that_is_named_is_a_key_of_the_fleet_file() -> None:
    """``key = value``, ``key of [section]`` and ``[section]`` in messages and pages about the fleet file."""
    named = set()
    paragraphs = ((name, part) for name, text in texts() if name[:6] != "tests/" for part in BETWEEN.split(text))
    for name, text in paragraphs:
        flat = re.sub(r"\s+", " ", text)
        named |= {(name, key) for key in re.findall(r"\[([a-z][a-z_]+)\](?![(\w])", flat)}
        named |= {(name, key) for key in re.findall(r"\b([a-z]+(?:_[a-z]+)+)\)? of (?:the fleet file|`?\[)", flat)}
        if name.endswith(".md") and ("fleet file" in flat or "rollcall.toml" in flat):
            named |= {(name, key) for key in re.findall(r"`([a-z]+(?:_[a-z]+)+)(?: = [\w\"]+)?`(?! \()", flat)}
    # A name of a metric stands beside settings on some pages.
    named = {(name, key) for name, key in named if key not in NO_SETTINGS and not key.startswith("rollcall_")}

    sys.stdout.write(f"{len(named)} settings are named\n")
    assert named
    assert sorted((name, key) for name, key in named if key not in settings()) == []
