"""
Manual pages of every command, made of the same texts as ``--help``: one page for each, in roff.

Here: walking the commands, and writing roff. Not here: the texts (``main``). Why not a library: adr/0019.

Rule: the same program makes the same bytes: a page has the version, and no date.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from rollcall_ha import __version__
from rollcall_ha.cli.groups import SUMMARY_MAX

PROGRAM = "rollcall"
SECTION = "1"


def write(app: typer.Typer, directory: Path) -> tuple[Path, ...]:
    """Write all pages of ``app`` into ``directory``, which is made if it is missing. Raises ``OSError``."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, page in pages(app).items():
        file = directory / f"{name}.{SECTION}"
        file.write_text(page, encoding="utf-8")
        written.append(file)
    return tuple(written)


def pages(app: typer.Typer) -> dict[str, str]:
    """``rollcall-certs-issue`` and its text, for every command that is not hidden."""
    command = typer.main.get_command(app)
    return dict(_walk(command, command.context_class(command, info_name=PROGRAM)))


def _walk(command: Any, caller: Any) -> Iterator[tuple[str, str]]:
    """Commands have the type Any: typer keeps click's own classes to itself."""
    below = [(name, command.get_command(caller, name)) for name in _names(command, caller)]
    known = [(name, one) for name, one in below if one is not None and not one.hidden]
    yield caller.command_path.replace(" ", "-"), _page(command, caller, known)
    for name, one in known:
        yield from _walk(one, one.context_class(one, info_name=name, parent=caller))


def _names(command: Any, caller: Any) -> list[str]:
    return list(command.list_commands(caller)) if hasattr(command, "list_commands") else []


def _page(command: Any, caller: Any, below: list[tuple[str, Any]]) -> str:
    path = caller.command_path
    name = path.replace(" ", "-")
    lines = [
        f'.TH "{_escaped(name.upper())}" "{SECTION}" "" "{PROGRAM} {_escaped(__version__)}" "Rollcall"',
        ".SH NAME",
        f"{_escaped(name)} \\- {_escaped(command.get_short_help_str(SUMMARY_MAX))}",
        ".SH SYNOPSIS",
        f"\\fB{_escaped(path)}\\fR {_escaped(' '.join(command.collect_usage_pieces(caller)))}",
        ".SH DESCRIPTION",
        *_joined(_paragraphs(command.help or "")),
    ]
    for title, kind in (("ARGUMENTS", "argument"), ("OPTIONS", "option")):
        found = [one for one in command.get_params(caller) if one.param_type_name == kind]
        records = [record for one in found if (record := one.get_help_record(caller)) is not None]
        lines += _section(title, records)
    lines += _section("COMMANDS", [(f"{name}-{one}", made.get_short_help_str(SUMMARY_MAX)) for one, made in below])
    if command.epilog:
        lines += [".SH NOTES", *_joined(_paragraphs(command.epilog))]
    if caller.parent is not None:
        lines += [".SH SEE ALSO", f"\\fB{_escaped(caller.parent.command_path.replace(' ', '-'))}\\fR({SECTION})"]
    return "".join(f"{line}\n" for line in lines)


def _section(title: str, records: list[tuple[str, str]]) -> list[str]:
    made = [f".SH {title}"] if records else []
    for words, text in records:
        made += [".TP", f"\\fB{_escaped(words)}\\fR", _escaped(" ".join(text.split())) or "\\&"]
    return made


def _paragraphs(text: str) -> list[str]:
    """Each on one line: where a line of the source ends is nothing to a reader."""
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip())] or [""]


def _joined(paragraphs: list[str]) -> list[str]:
    lines: list[str] = []
    for text in paragraphs:
        lines += ([".PP"] if lines else []) + [_escaped(text)]
    return lines


def _escaped(text: str) -> str:
    """Plain text: a hyphen that can be copied into a shell, and no line that roff takes for an order."""
    plain = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    # In ASCII: what a page is encoded in, is guessed by each formatter for itself.
    plain = "".join(one if one.isascii() else f"\\[u{ord(one):04X}]" for one in plain)
    return f"\\&{plain}" if plain[:1] in (".", "'") else plain
