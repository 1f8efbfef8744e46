"""
The recipes of CONTRIBUTING.md and what real changes touched, as values.

Here: reading a recipe (its paths and the commits that it is held against) and the files of a commit by their names of
today. Not here: the comparison (``test_contributing``).
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_RECIPE = re.compile(r"(?ms)^### (?P<title>To add [^\n]*)\n(?P<text>.*?)(?=^##)")
_HELD = re.compile(r"<!-- held against ([0-9a-f ]+)-->")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A recipe of CONTRIBUTING.md."""

    title: str
    paths: tuple[str, ...]
    """Files, and folders with a slash at their end, in the order of the text."""
    commits: tuple[str, ...]

    def covers(self, path: str) -> bool:
        """The recipe names this file or a folder above it."""
        return any(path == named or (named.endswith("/") and path.startswith(named)) for named in self.paths)


def recipes(text: str) -> tuple[Recipe, ...]:
    """Every recipe of the page."""
    return tuple(
        Recipe(
            title=found["title"],
            paths=tuple(re.findall(r"`([\w./-]+/[\w./-]*|[\w-]+\.(?:md|toml))`", found["text"])),
            commits=tuple(" ".join(_HELD.findall(found["text"])).split()),
        )
        for found in _RECIPE.finditer(text)
    )


def git(*arguments: str) -> str:
    """Output of git in this checkout. Raises ``subprocess.CalledProcessError`` where there is no such commit."""
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True, cwd=ROOT).stdout


@cache
def renames_since(commit: str) -> tuple[tuple[str, str], ...]:
    """(old name, new name) of every move after a commit, oldest first."""
    log = git("log", "--reverse", "--diff-filter=R", "-M40%", "--name-status", "--format=", f"{commit}..HEAD")
    return tuple((line.split("\t")[1], line.split("\t")[2]) for line in log.splitlines() if line)


def touched(commit: str) -> tuple[str, ...]:
    """The files that a commit changed, by their names of today; without those that are gone."""
    found = []
    for name in git("show", "--name-only", "--format=", commit).split():
        today = name
        for old, new in renames_since(commit):
            today = new if today == old else today
        if (ROOT / today).is_file():
            found.append(today)
    return tuple(found)
