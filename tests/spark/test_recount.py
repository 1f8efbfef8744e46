"""Gold is what its journals say: counted a second time without Spark, and, of small stories, worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")

from rollcall_ha.analytics.lake.lake import Lake
from tests.recount.compare import COMPARED, compare, counted, published, rows_of, wrong
from tests.recount.stories import STORIES, Story, misses, write
from tests.spark.lakes import build
from tests.support.analytics_plans import ROUGH
from tests.synthetic.files import write_fleet

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.prove]

PLAN = msgspec.structs.replace(ROUGH, faults_per_day=40)


class Made:
    """Journals of the stories and of a rough fleet, and their lake."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.stories: Sequence[Story] = write(folder / "stories")
        write_fleet(PLAN, 0, folder / "fleet")
        self.journals = [folder / "stories", folder / "fleet" / "journals"]
        build(spark, Lake(folder / "lake"), *self.journals)
        self.gold: Mapping[str, Any] = published(folder / "lake")


@pytest.fixture(scope="module")
def made(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(spark, tmp_path_factory.mktemp("recount"))


@pytest.mark.parametrize("number", range(len(STORIES)), ids=[make.__name__ for make in STORIES])
def test_gold_is_right_about(made: Made, number: int) -> None:
    assert list(misses(made.stories[number], made.gold)) == []


def test_gold_is_what_is_counted_from_the_lines(made: Made) -> None:
    """Every row and column of all tables but ``quality``."""
    _, figures = counted(made.journals)
    compared = compare(rows_of(figures), made.gold)

    assert wrong(compared) == []
    assert compared.keys() == set(COMPARED)
    assert compared["failovers"].rows > 100
    assert [case for case, count in figures.cases.items() if not count] == []
