"""
``rollcall completion``: what a shell has to be told, so that it completes our words.

Here: the scripts, which are typer's. Not here: what is completed: each shell asks the program itself, so that a script
of last year completes the commands of today.
"""

from __future__ import annotations

from enum import StrEnum

# The public module has it too, and does not name it among what it gives; the script by --show-completion is this one.
from typer._completion_shared import get_completion_script

PROGRAM = "rollcall"
COMPLETE_VARIABLE = "_ROLLCALL_COMPLETE"


class Shell(StrEnum):
    """The shells that are served."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def script_of(shell: Shell) -> str:
    """For ``eval``, or for the file that the shell reads."""
    return get_completion_script(prog_name=PROGRAM, complete_var=COMPLETE_VARIABLE, shell=shell.value) + "\n"
