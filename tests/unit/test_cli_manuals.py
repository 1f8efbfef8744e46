"""Manual pages and completion: made of the commands as they are, and understood by the programs that read them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from rollcall_ha.cli import manpages
from rollcall_ha.cli.groups import SUMMARY_MAX, Panel
from rollcall_ha.cli.main import app
from rollcall_ha.cli.shells import Shell
from tests.support.cli import CliRunner

PAGES = manpages.pages(app)
BEGUN = "wai"
"""What a user has typed of ``wait``."""


def commands(command: Any, path: tuple[str, ...] = ("rollcall",)) -> dict[str, Any]:
    """Every command by its words, as the program itself finds it."""
    found = {"-".join(path): command}
    for name, verb in _verbs(command).items():
        found |= commands(verb, (*path, name))
    return found


def _verbs(command: Any) -> dict[str, Any]:
    names = command.list_commands(None) if hasattr(command, "list_commands") else ()
    return {name: command.get_command(None, name) for name in names}


COMMANDS = commands(typer.main.get_command(app))


def plain(page: str) -> str:
    text = page.replace("\\-", "-").replace("\\(dq", '"').replace("\\&", "")
    return re.sub(r"\\\[u([0-9A-F]+)\]", lambda found: chr(int(found[1], 16)), text)


def test_every_command_has_a_page() -> None:
    """Those of analytics too, which are imported late."""
    assert set(PAGES) == set(COMMANDS)
    assert {"rollcall", "rollcall-certs-issue", "rollcall-analytics-verify", "rollcall-context-add"} <= set(PAGES)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_page_has_every_option_and_the_whole_help(name: str) -> None:
    """A generator that did not know the classes of typer wrote pages without a single option."""
    page, command = plain(PAGES[name]), COMMANDS[name]
    options = [one for param in command.params if not getattr(param, "hidden", False) for one in param.opts]

    assert [one for one in options if one.startswith("-") and one not in page] == []
    assert " ".join(command.help.split()) in " ".join(page.replace(".PP", "").split())


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_summary_fits_a_terminal_of_80_columns(name: str) -> None:
    """Half of them ended in dots: what a verb is for was to be guessed, or asked of each by --help."""
    summary = COMMANDS[name].get_short_help_str(10 * SUMMARY_MAX)

    assert 0 < len(summary) <= SUMMARY_MAX or name == "rollcall", f"{summary} ({len(summary)})"


def test_every_verb_is_in_a_panel() -> None:
    """Forty verbs in one list were in the order in which they had been written."""
    shown = CliRunner().invoke(app, ["--help"], terminal_width=80).output
    panels = {part.partition(":\n")[0]: part for part in shown.split("\n\n")}
    words = [line.split()[0] for panel in Panel for line in panels[panel].splitlines()[1:]]

    assert sorted(words) == sorted(typer.main.get_command(app).list_commands(None))  # type: ignore[attr-defined]
    assert "Commands:" not in shown
    assert "..." not in shown.partition("Look:")[2]
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("name", sorted(name for name, one in COMMANDS.items() if hasattr(one, "list_commands")))
def test_a_group_lists_its_verbs(name: str) -> None:
    """Those of a group have no panel, which typer says with a value of its own: they were not listed at all."""
    shown = CliRunner().invoke(app, [*name.split("-")[1:], "--help"], terminal_width=80).output
    summaries = {verb: one.get_short_help_str(SUMMARY_MAX) for verb, one in _verbs(COMMANDS[name]).items()}

    assert [
        verb
        for verb, text in summaries.items()
        if not re.search(rf"^  {verb} +{re.escape(text)}$", shown, re.MULTILINE)
    ] == []


def test_the_page_of_the_program_tells_exit_codes_and_its_commands() -> None:
    """As ``rollcall --help`` does."""
    page = plain(PAGES["rollcall"])

    assert "8 timed out, only for wait" in page
    assert "rollcall-elect" in page.partition(".SH COMMANDS")[2]


def test_no_line_is_an_order_that_was_not_meant() -> None:
    """A help that begins with a dot would vanish, and a backslash would begin a request."""
    command = typer.Typer()

    @command.command(help=".toml is read; C:\\n is not.\n\n'quoted' at the beginning")
    def run() -> None: ...

    page = manpages.pages(command)["rollcall"]
    orders = {line.split()[0] for line in page.splitlines() if line[:1] in (".", "'")}

    assert orders <= {".TH", ".SH", ".TP", ".PP"}
    assert "\\&.toml is read; C:\\en is not." in page


@pytest.mark.slow
def test_the_command_writes_them(tmp_path: Path) -> None:
    """All files, the same bytes each time."""
    first = CliRunner().invoke(app, ["man", str(tmp_path / "a")])
    second = CliRunner().invoke(app, ["man", str(tmp_path / "b")])
    files = {file.name: file.read_bytes() for file in (tmp_path / "a").iterdir()}

    assert (first.exit_code, second.exit_code) == (0, 0)
    assert files == {file.name: file.read_bytes() for file in (tmp_path / "b").iterdir()}
    assert set(files) == {f"{name}.1" for name in PAGES}
    (tmp_path / "file").write_text("")
    assert CliRunner().invoke(app, ["man", str(tmp_path / "file")]).exit_code == 2


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("groff") is None, reason=f"groff is not installed: {len(PAGES)} pages not formatted")
def test_groff_formats_every_page_without_a_warning() -> None:
    """What man does with them."""
    for name, page in PAGES.items():
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", "-rLL=100n"], input=page.encode(), capture_output=True, check=False
        )
        assert (name, done.returncode, done.stderr) == (name, 0, b"")
        assert name.upper().encode() in done.stdout


# --- completion ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", list(Shell))
def test_the_script_of_each_shell_asks_the_program(shell: Shell) -> None:
    """It holds no command by itself, so that it need not be renewed with each version."""
    done = CliRunner().invoke(app, ["completion", shell])

    assert done.exit_code == 0
    assert f"_ROLLCALL_COMPLETE=complete_{shell}" in done.stdout
    assert "elect" not in done.stdout


def completed(shell: Shell, *typed: str) -> str:
    """What the program answers to the script of a shell."""
    line = " ".join(("rollcall", *typed))
    asked = {
        Shell.BASH: {"COMP_WORDS": line, "COMP_CWORD": str(len(typed))},
        Shell.ZSH: {"_TYPER_COMPLETE_ARGS": line},
        Shell.FISH: {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }
    done = subprocess.run(
        [sys.executable, "-m", "rollcall_ha.cli.main"],
        env={**os.environ, "_ROLLCALL_COMPLETE": f"complete_{shell}", **asked[shell]},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("shell", list(Shell))
def test_each_shell_hears_commands_options_and_choices(shell: Shell) -> None:
    """By the words that its script sends, whether or not the shell is on this machine."""
    for typed, expected in (
        ((BEGUN,), "wait"),
        (("wait", "broker-a", "--unt"), "--until"),
        (("wait", "broker-a", "--until", "in"), "in-sync"),
        (("context", "re"), "remove"),
    ):
        assert re.search(rf'(?m)(^|["\s]){expected}\b', completed(shell, *typed)), (typed, completed(shell, *typed))


TRIED = {
    Shell.BASH: f'eval "$(rollcall completion bash)"; COMP_WORDS=(rollcall {BEGUN}); COMP_CWORD=1; '
    '_rollcall_completion rollcall; echo "${COMPREPLY[@]}"',
    Shell.ZSH: 'autoload -Uz compinit; compinit -u; eval "$(rollcall completion zsh)"; echo ${_comps[rollcall]:+wait}',
    Shell.FISH: f'rollcall completion fish | source; complete -C "rollcall {BEGUN}"',
}


@pytest.mark.slow
@pytest.mark.parametrize("shell", list(Shell))
def test_the_shell_itself_takes_its_script(shell: Shell, tmp_path: Path) -> None:
    """In a shell of its own; where it is not installed, it is one shell that was not tried."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here: 1 of {len(Shell)} shells not tried")
    program = tmp_path / "rollcall"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m rollcall_ha.cli.main "$@"\n')
    program.chmod(0o755)
    done = subprocess.run(
        [shell, "-c", TRIED[shell]],
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert "wait" in done.stdout.split(), done.stdout + done.stderr
