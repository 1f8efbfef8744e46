"""
A lake's gold beside the rows that were counted from its journals.

Here: reading the newest snapshot by ``deltalake`` and DuckDB, as any program may, views by the SELECTs of the page; rows by
their keys, and what differs. Not here: the counting (``figures``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
from deltalake import DeltaTable

from tests.recount.dictionary import VIEWS, described
from tests.recount.figures import Figures, Row, felt_of, figures_of, totals
from tests.recount.journal import Journals, read
from tests.recount.lived import lived
from tests.recount.sets import story_of

COMPARED = (
    *("failovers", "failovers_daily", "rto_daily", "dominance_daily", "elections_daily", "sets_daily", "quiet_daily"),
    *("nodes_daily", "rto", "clusters", "sets", "nodes", "set_days", "sets_monthly", "holes", "felt"),
    *("fleets", "restores", "pauses", "maintenances", "switchovers", "settings", "orders"),
)
"""Tables of gold; the one that is left, ``quality``, is about files. And those of silver that nothing in gold shows."""
SHOWN_MAX = 20


class Compared(NamedTuple):
    """One table on both sides."""

    rows: int
    """Keys that both sides have."""
    values: int
    differences: Sequence[str]


def untils(lake: Path) -> Mapping[str, int]:
    """Up to when a lake counts each fleet, in ms since 1970: a setting of its run, and no figure."""
    with opened(lake) as database:
        rows = database.sql("SELECT fleet, unix_millis(until_at) FROM counted_until").fetchall()
    return dict(rows)


def counted(paths: Iterable[Path], until: Mapping[str, int]) -> tuple[Journals, Figures]:
    """All journals below these paths, and their figures up to ``untils``. Raises ``ValueError`` if two copies of an event differ."""
    journals, found = read(paths), Figures()
    fleets = [story_of(name, events, until.get(name, 0)) for name, events in sorted(lived(journals.fleets).items())]
    found.rows["felt"] += felt_of(journals.gaps, fleets)
    for fleet in fleets:
        of_fleet = figures_of(fleet)
        for table, rows in of_fleet.rows.items():
            found.rows[table] += rows
        found.join(of_fleet)
    return journals, found


def rows_of(found: Figures) -> Mapping[str, list[Row]]:
    """All tables of ``COMPARED`` as rows in the columns of the page."""
    tables = dict(found.rows) | totals(found)
    for name in COMPARED:
        key, columns = described(name)
        if name in found.sums and name not in tables:
            sums = found.sums[name].items()
            tables[name] = [
                dict(zip(key, of, strict=True)) | {c: n[c] for c in columns if c not in key} for of, n in sums
            ]
        # A column that the page has and nobody counts is no agreement: it fails here by its name.
        tables[name] = [{column: row[column] for column in columns} for row in tables.get(name, ())]
    return {name: tables[name] for name in COMPARED}


@contextmanager
def opened(lake: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """The newest snapshot of a lake as a database of its tables and views."""
    snapshots = DeltaTable(lake / "snapshots").to_pyarrow_dataset().to_table().to_pylist()
    newest = max(row["snapshot"] for row in snapshots)
    with duckdb.connect() as database:
        # By layer: of two tables with one name that of gold is asked for.
        for row in sorted(
            (row for row in snapshots if row["snapshot"] == newest), key=lambda row: row["table"] > "gold"
        ):
            files = DeltaTable(lake / row["table"], version=row["version"]).to_pyarrow_dataset()
            database.register(row["table"].rpartition("/")[2], files)
        for statement in VIEWS:
            database.execute(statement)
        yield database


def published(lake: Path) -> Mapping[str, list[Row]]:
    """The same tables and views as the newest snapshot of a lake has them."""
    with opened(lake) as database:
        return {name: _rows(database, name) for name in COMPARED}


def _rows(database: duckdb.DuckDBPyConnection, name: str) -> list[Row]:
    # By way of Arrow: DuckDB itself makes instants with a package that nothing else here needs.
    rows: list[Row] = database.sql(f"SELECT * FROM {name}").to_arrow_table().to_pylist()
    return rows


def compare(
    ours: Mapping[str, Sequence[Row]], theirs: Mapping[str, Sequence[Row]], tables: Sequence[str] = COMPARED
) -> dict[str, Compared]:
    """Table by table; ``ours`` was counted from journals."""
    return {name: _compared(name, ours[name], theirs[name]) for name in tables}


def _compared(name: str, ours: Sequence[Row], theirs: Sequence[Row]) -> Compared:
    key, columns = described(name)
    sides = [_by_key(name, key, rows) for rows in (ours, theirs)]
    both = sorted(sides[0].keys() & sides[1].keys(), key=str)
    differences = [f"{name} {_shown(key, of)}: {what}" for of, what in _alone(*sides)]
    for of in both:
        mine, its = (side[of] for side in sides)
        differences += [
            f"{name} {_shown(key, of)} {column}: counted {mine[column]}, lake {its[column]}"
            for column in columns
            if mine[column] != its[column]
        ]
    return Compared(rows=len(both), values=len(both) * len(columns), differences=differences)


def _by_key(name: str, key: Sequence[str], rows: Sequence[Row]) -> dict[tuple[Any, ...], Row]:
    found = {tuple(row[column] for column in key): row for row in rows}
    if len(found) != len(rows):
        raise ValueError(f"{name} has {len(rows)} rows of {len(found)} keys: a row is there twice")
    return found


def _alone(ours: Mapping[Any, Row], theirs: Mapping[Any, Row]) -> Iterator[tuple[Any, str]]:
    for of in sorted(ours.keys() ^ theirs.keys(), key=str):
        yield of, f"counted, not in the lake: {ours[of]}" if of in ours else f"in the lake, not counted: {theirs[of]}"


def _shown(key: Sequence[str], of: Sequence[Any]) -> str:
    return " ".join(f"{column}={value}" for column, value in zip(key, of, strict=True))


def wrong(compared: Mapping[str, Compared]) -> list[str]:
    """What keeps both sides from being equal, in words: differences, and tables in which nothing was compared."""
    empty = [f"{name}: no row was compared" for name, one in compared.items() if not one.rows]
    return empty + [difference for one in compared.values() for difference in one.differences]


def table(compared: Mapping[str, Compared]) -> str:
    """Rows, values and differences of each table, as a table in Markdown."""
    head = ["| table | rows compared | values | differ |", "| --- | ---: | ---: | ---: |"]
    rows = [f"| {name} | {c.rows:,} | {c.values:,} | {len(c.differences):,} |" for name, c in compared.items()]
    return "\n".join([*head, *rows])
