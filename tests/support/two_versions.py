"""
A fleet of two programs: this one, and a newer one, which is this one with a feature level more.

Here: ``TwoVersions`` and the newer program's command line. Not here: what an upgrade must keep
(`tests/cluster/test_mixed_versions.py`, `tests/chaos/net`).

The newer program has a command that this one lacks by its table (``NEWER_COMMAND``), and after the level is raised this
program stops. It is made in the started process alone: the product has no switch for it.
"""

from __future__ import annotations

import sys

from rollcall_ha.controller.contract.commands import FEATURE_LEVEL
from rollcall_ha.deploy.local.fleet import Fleet

NEWER_LEVEL = FEATURE_LEVEL + 1
NEWER_COMMAND = "ImportSet"
# Before any other module of ours is imported: each takes the level by its value.
_NEWER = (
    "import runpy, sys; from rollcall_ha.controller.contract import commands, levels; "
    f"commands.FEATURE_LEVEL = {NEWER_LEVEL}; "
    f"levels.COMMANDS_SINCE[commands.{NEWER_COMMAND}] = {NEWER_LEVEL}; "
    "del sys.argv[0]; runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)


class TwoVersions(Fleet):
    """A fleet of which the nodes in ``newer`` run the newer program from their next start on."""

    newer: frozenset[str] = frozenset()

    def program(self, name: str, module: str) -> list[str]:
        return newer_program(module) if name in self.newer else super().program(name, module)


def newer_program(module: str, *arguments: str) -> list[str]:
    """Command line that runs a module by the newer program."""
    return [sys.executable, "-P", "-c", _NEWER, module, *arguments]
