"""
A fleet of two programs: an older one, and a newer one, which is this one with a feature level more.

Here: ``TwoVersions``, the newer program's command line, and the last release out of the history. Not here: what an upgrade
must keep (`tests/cluster/test_mixed_versions.py`, `tests/chaos/net`).

The newer program has a command that the older one lacks by its table (``NEWER_COMMAND``), and after the level is raised
the older one stops. It is made in the started process alone: the product has no switch for it.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

from rollcall_ha.controller.contract.commands import FEATURE_LEVEL
from rollcall_ha.deploy.local.fleet import Fleet

RELEASE = "592a968"
"""Commit of 0.2.0, the last release."""
RELEASE_LEVEL = 1
ROOT = Path(__file__).parents[2]
NEWER_LEVEL = FEATURE_LEVEL + 1
NEWER_COMMAND = "ImportSet"
# Before any other module of ours is imported: each takes the level by its value.
_NEWER = (
    "import runpy, sys; from rollcall_ha.controller.contract import commands, levels; "
    f"commands.FEATURE_LEVEL = {NEWER_LEVEL}; "
    f"levels.COMMANDS_SINCE[commands.{NEWER_COMMAND}] = {NEWER_LEVEL}; "
    "del sys.argv[0]; runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)


def unpack_release(directory: Path) -> None:
    """
    Write the files of the last release into a folder, out of the history of this repository.

    ``LookupError``: the history does not have it (a shallow clone, a tarball), or there is no git.
    """
    try:
        archive = subprocess.run(["git", "-C", str(ROOT), "archive", RELEASE], capture_output=True, check=False)
    except FileNotFoundError:
        raise LookupError("git is not installed") from None
    if archive.returncode != 0:
        raise LookupError(f"the history has no release {RELEASE}: {archive.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(directory, filter="data")


class TwoVersions(Fleet):
    """A fleet of which the nodes in ``newer`` run the newer program from their next start on."""

    newer: frozenset[str] = frozenset()
    release: Path | None = None
    """Where the release lies that the others run; without one they run this program."""

    def program(self, name: str, module: str) -> list[str]:
        if name in self.newer:
            return newer_program(module)
        ours = super().program(name, module)
        return ours if self.release is None else ["env", f"PYTHONPATH={self.release / 'src'}", *ours]


def newer_program(module: str, *arguments: str) -> list[str]:
    """Command line that runs a module by the newer program."""
    return [sys.executable, "-P", "-c", _NEWER, module, *arguments]
