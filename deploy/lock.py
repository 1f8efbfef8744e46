"""
Print the part of requirements.lock that some extras of pyproject.toml need.

    python3 deploy/lock.py base build server
    python3 deploy/lock.py analytics -base      # without what base needs

Here: reading both files and following "# via". Not here: making the lock (``make lock``) and the check that it is
current (``tests/unit/test_packaging.py``). This file is for a checkout, and the wheel leaves it out.

Rule 1: the standard library only: setup runs this file before anything is installed.
Rule 2: an entry is printed as it stands, with every hash: pip reads the part with ``--require-hashes --no-deps``.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
_ENTRY = re.compile(r"^(?P<name>[a-z0-9][a-z0-9.-]*)==.*\n(?:[ ]+.*\n)*", re.MULTILINE)
_VIA = re.compile(r"^ +# +(?:via )?([a-z0-9][a-z0-9.-]*)", re.MULTILINE)


def canonical(name: str) -> str:
    """``PyYAML`` and ``prometheus_client`` as the lock writes them."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_lock(text: str) -> dict[str, str]:
    """Name to entry: the pin, its hashes, and the comment that says for which packages it is there."""
    return {found["name"]: found[0] for found in _ENTRY.finditer(text)}


def read_tables(project: Mapping[str, Any]) -> dict[str, list[str]]:
    """Every named list of requirements: the extras, the groups, and ``base``."""
    tables = {"base": project["project"]["dependencies"], **project["project"]["optional-dependencies"]}
    return {**tables, **project.get("dependency-groups", {})}


def roots(tables: Mapping[str, list[str]], names: Iterable[str]) -> set[str]:
    """
    The packages that these tables, and the tables that they name, ask for.

    Raises ``KeyError`` for a table that is not there.
    """
    wanted: set[str] = set()
    for name in names:
        for requirement in tables[name]:
            own = re.fullmatch(r"rollcall-ha\[(.*)\]", requirement)
            if own:
                wanted |= roots(tables, own[1].split(","))
            else:
                wanted.add(canonical(re.split(r"[^\w.-]", requirement)[0]))
    return wanted


def closure(entries: Mapping[str, str], wanted: Iterable[str]) -> set[str]:
    """The packages asked for and everything that they need, by the lock's own comments."""
    needed: set[str] = set()
    users = {name: set(_VIA.findall(entry)) for name, entry in entries.items()}
    more = set(wanted)
    while more:
        needed |= more
        more = {name for name, of in users.items() if of & more} - needed
    return needed


def main() -> None:
    """Print the entries for the tables that the arguments name, without those of tables behind a dash."""
    entries = read_lock(LOCK.read_text())
    tables = read_tables(tomllib.loads((ROOT / "pyproject.toml").read_text()))
    left_out = [name[1:] for name in sys.argv[1:] if name.startswith("-")]
    named = [name for name in sys.argv[1:] if not name.startswith("-")]
    needed = closure(entries, roots(tables, named)) - closure(entries, roots(tables, left_out))
    sys.stdout.write("".join(entries[name] for name in sorted(needed)))


if __name__ == "__main__":
    main()
