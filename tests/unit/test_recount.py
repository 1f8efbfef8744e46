"""The second count of gold by itself: right about every story that was worked out by hand, and its comparison can fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb", reason="duckdb is not installed: the extra dev has it and analytics")

from tests.recount import figures
from tests.recount.compare import COMPARED, compare, counted, rows_of, wrong
from tests.recount.stories import STORIES, write
from tests.recount.telling import Story, misses


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Sequence[Story], figures.Figures]:
    """All stories, and the figures of their journals."""
    folder = tmp_path_factory.mktemp("stories")
    return write(folder), counted([folder], {})[1]


@pytest.fixture(scope="module")
def rows(told: tuple[Sequence[Story], figures.Figures]) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    return rows_of(told[1])


@pytest.mark.parametrize("number", range(len(STORIES)), ids=[make().name for make in STORIES])
def test_the_recount_is_right_about(
    number: int, told: tuple[Sequence[Story], figures.Figures], rows: Mapping[str, Sequence[Mapping[str, Any]]]
) -> None:
    """Both sides of a comparison could be wrong alike: these figures were worked out by hand."""
    story = told[0][number]
    assert len(story.right) > 0
    assert list(misses(story, rows)) == []


def test_every_case_is_among_the_stories(told: tuple[Sequence[Story], figures.Figures]) -> None:
    assert [case for case, count in told[1].cases.items() if not count] == []


def test_a_difference_is_shown_with_both_values(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Another value, a row too many, and a row that is missing."""
    lake = {name: [dict(row) for row in of] for name, of in rows.items()}
    changed = lake["sets"][0]
    before = changed["available_ms"]
    changed["available_ms"] = before + 1
    lake["failovers"][0]["master_epoch"] = 99
    found = wrong(compare({name: list(map(dict, of)) for name, of in rows.items()}, lake))
    assert len(found) == 3
    assert f"available_ms: counted {before}, lake {before + 1}" in found[-1]
    assert ["not in the lake" in found[0], "not counted" in found[1]] == [True, True]


def test_a_comparison_of_nothing_fails() -> None:
    """A wrong folder has no journals: 0 differences in 0 rows."""
    empty: dict[str, list[dict[str, Any]]] = {name: [] for name in COMPARED}
    assert len(wrong(compare(empty, empty))) == len(COMPARED)


def test_files_of_another_kind_are_no_journals(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("{}\n")
    assert counted([tmp_path], {})[0].read == {}
