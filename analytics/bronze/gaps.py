"""
Gaps that probes felt, out of their journals, as rows of ``bronze.gaps``.

Here: lines to rows, by the probe's own schema (``probe.lines``). Not here: finding files (``lines``), publishing
(``jobs.layers``). Without Spark: a journal of a probe has a few lines a day.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rollcall_ha.analytics.bronze.lines import readable_lines, tell_unread
from rollcall_ha.analytics.bronze.tables import BRONZE_GAPS
from rollcall_ha.probe.lines import GapLine, LineError, decode_line

NEAR_MS = 1_000
"""By so much the clocks of a probe and of controllers may differ, and a gap still meets its outage."""
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

Row = dict[str, Any]


def gaps_of(files: Sequence[Path], known: Iterable[Mapping[str, Any]]) -> list[Row]:
    """
    The rows that are ``known``, and those of these files, each once. Says which files hold lines that are none.

    Raises ``OSError`` if a file cannot be opened.
    """
    unread: list[Path] = []
    fresh = (row for file in files for row in _rows(file, unread))
    found = {tuple(row[name] for name in BRONZE_GAPS.key): dict(row) for row in (*known, *fresh)}
    tell_unread(unread, "not all of their lines are a probe's")
    return [found[key] for key in sorted(found)]


def _rows(file: Path, unread: list[Path]) -> Iterator[Row]:
    for text in readable_lines(file):
        try:
            line = decode_line(text.encode())
        except LineError:
            # A life of the probe that was killed leaves half a line at the end of its file.
            unread += [] if file in unread or not text.strip() else [file]
            continue
        if isinstance(line, GapLine):
            yield _row(line)


def _row(line: GapLine) -> Row:
    begun = _EPOCH + dt.timedelta(milliseconds=line.from_ms)
    near, felt = dt.timedelta(milliseconds=NEAR_MS), dt.timedelta(milliseconds=line.felt_ms)
    told = {name: getattr(line, name) for name in BRONZE_GAPS.column_names if name in line.__struct_fields__}
    instants = {"from_at": begun, "near_from_at": begun - near, "near_to_at": begun + felt + near}
    return {**told, **instants, "broker_set": line.set_name, "day": begun.date()}
