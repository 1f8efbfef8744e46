"""What was measured last, as docs/bench-field.md shows it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tests.perf.field.rows import Report, table

MEASURED = Path(__file__).resolve().parent / "measured.json"


def read(path: Path) -> Report:
    """A JSON file of ``write_report``; one that is not there has nothing in it."""
    if not path.exists():
        return Report(systems=[], rows=[])
    return msgspec.json.decode(path.read_bytes(), type=Report)


def published_table() -> str:
    """The tables of the page."""
    return table(read(MEASURED))
