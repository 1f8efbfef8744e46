"""The lake's tables and codes hold together, and with the contract."""

from __future__ import annotations

import zlib

import pytest

from rollcall_ha.analytics import codes
from rollcall_ha.analytics.bronze.tables import BRONZE
from rollcall_ha.analytics.gold.tables import GOLD, GOLD_VIEWS
from rollcall_ha.analytics.lake.tables import SNAPSHOTS, LakeTable
from rollcall_ha.analytics.silver.tables import SILVER, SILVER_VIEWS
from rollcall_ha.controller.contract.values import Phase, SilenceCause
from rollcall_ha.controller.contract.verdicts import ElectionKind, Grade, Intactness

TABLES = (*BRONZE, *SILVER, *SILVER_VIEWS, *GOLD, *GOLD_VIEWS, SNAPSHOTS)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.path)
def test_keys_and_partitions_are_columns(table: LakeTable) -> None:
    """A column is named once, and says what it means."""
    names = table.column_names
    assert len(set(names)) == len(names)
    assert set(table.key) <= set(names)
    assert table.partition in (*names, "")
    assert all(column.meaning for column in table.columns)


def test_table_names_are_unique() -> None:
    """A path is one table."""
    assert len({table.path for table in TABLES}) == len(TABLES)


def test_a_kind_of_event_keeps_its_number() -> None:
    """A lake stores it: an event that is put into the union between two others would rename all behind it."""
    first = list(codes.KINDS)[:39]

    assert (first[9], first[38]) == ("master-elected", "set-configured")
    assert zlib.crc32(" ".join(first).encode()) == 4009107887
    assert list(codes.KINDS.values()) == list(range(1, len(codes.KINDS) + 1))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (codes.PHASES, list(Phase)),
        (codes.CAUSES, list(SilenceCause)),
        (codes.ELECTION_KINDS, list(ElectionKind)),
        (codes.GRADES, list(Grade)),
        (codes.INTACTNESS, list(Intactness)),
    ],
    ids=["phases", "causes", "election kinds", "grades", "intactness"],
)
def test_every_word_of_the_contract_has_a_code(table: dict[str, int], words: list[str]) -> None:
    """Codes count from 1 without a hole: their place in a list is their code."""
    assert sorted(table) == sorted(words)
    assert sorted(table.values()) == list(range(1, len(table) + 1))
