"""
The page of definitions, ``docs/data-dictionary.md``, as values.

Here: columns and keys of tables, the limits, the SELECTs of views. Not here: what they mean.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parents[2] / "docs/data-dictionary.md"


class Described(NamedTuple):
    """A table of the page."""

    key: tuple[str, ...]
    columns: tuple[str, ...]


def tables(text: str) -> Mapping[str, Described]:
    """Path of a table -> what the page says of it."""
    return {
        name: Described(key=_key(body), columns=tuple(row[0] for row in _rows(body)))
        for name, body in _sections(text)
        if "/" in name
    }


def limits(text: str) -> Mapping[str, int]:
    """Name of a limit -> its value. Raises ``KeyError`` if the page has none."""
    return {row[0]: int(row[1].replace(",", "")) for row in _rows(dict(_sections(text))["limits"])}


def views(text: str) -> list[str]:
    """Statements that make the views, each behind those that it needs."""
    return re.findall(r"```sql\n(.*?)```", text, re.DOTALL)


def _sections(text: str) -> list[tuple[str, str]]:
    return [(name, body) for name, _, body in (part.partition("\n") for part in text.split("\n## ")[1:])]


def _rows(body: str) -> list[list[str]]:
    lines = [line for line in body.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def _key(body: str) -> tuple[str, ...]:
    return tuple(body.partition(" Key: ")[2].partition(".")[0].split(", "))


_TEXT = PAGE.read_text()
TABLES = tables(_TEXT)
LIMITS = limits(_TEXT)
VIEWS = views(_TEXT)


def described(name: str) -> Described:
    """A table of gold, or of silver where gold has none of that name."""
    return TABLES.get(f"gold/{name}") or TABLES[f"silver/{name}"]
