"""
A fleet of two programs: this one, and an older one, which is this one with the feature level before its own.

The older program founds a fleet of its level, has the older decisions (R15), and stops at an entry that is above it. It is
no release: those of level 2 and below speak no TLS on sessions and REST, which a fleet on machines has.
`tests/cluster/test_mixed_versions.py` runs a release, on loopback and plain ports.
"""

from __future__ import annotations

import sys

from rollcall_ha.controller.contract.commands import FEATURE_LEVEL
from rollcall_ha.deploy.local.fleet import Fleet

OLDER_LEVEL = FEATURE_LEVEL - 1
# Before any other module of ours is imported: each takes the level by its value.
_OLDER = (
    "import runpy, sys; from rollcall_ha.controller.contract import commands; "
    f"commands.FEATURE_LEVEL = {OLDER_LEVEL}; "
    "del sys.argv[0]; runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)


class TwoVersions(Fleet):
    """A fleet of which the nodes in ``older`` run the older program from their next start on."""

    older: frozenset[str] = frozenset()

    def program(self, name: str, module: str) -> list[str]:
        if name not in self.older:
            return super().program(name, module)
        return older_program(module)


def older_program(module: str, *arguments: str) -> list[str]:
    """Command line that runs a module by the older program."""
    return [sys.executable, "-P", "-c", _OLDER, module, *arguments]
