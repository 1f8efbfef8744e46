"""Paths for Spark's readers, which take patterns; without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rollcall_ha.analytics.bronze.tables import BRONZE_EVENTS
from rollcall_ha.analytics.jobs.stream import of_files
from rollcall_ha.analytics.lake.lake import Lake
from rollcall_ha.analytics.lake.session import as_path


@pytest.mark.parametrize(
    ("path", "escaped"),
    [("/plain/e.jsonl", "/plain/e.jsonl"), ("/prod [eu]", r"/prod \[eu\]"), (r"/a{b,c}*?\d", r"/a\{b,c\}\*\?\\d")],
)
def test_signs_of_patterns_are_escaped(path: str, escaped: str) -> None:
    assert as_path(Path(path)) == escaped


def test_a_lake_below_a_folder_with_brackets_is_read_by_its_paths(tmp_path: Path) -> None:
    class Spark:
        """Keeps what it is asked to read."""

        def __init__(self) -> None:
            self.read = self
            self.paths: tuple[str, ...] = ()

        def schema(self, _schema: Any) -> Spark:
            return self

        def parquet(self, *paths: str) -> None:
            self.paths = paths

    spark = Spark()

    Lake(tmp_path / "[lake]").read_files(spark, BRONZE_EVENTS, {"d": ["run/part.parquet"]})

    assert [r"/\[lake\]/" in path for path in spark.paths] == [True]


def test_a_stream_left_out_what_spark_hides_without_a_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Read(Exception):
        pass

    class Spark:
        @property
        def readStream(self) -> Any:  # noqa: N802 (Spark's own name)
            raise Read

    for name in ("_a.jsonl", "b.jsonl", ".c/d.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    spark: Any = Spark()
    with pytest.raises(Read):
        of_files(spark, str(tmp_path))
    said = capsys.readouterr().err
    assert said.startswith("not read (Spark hides names that begin with _ or .; rename them, or read them by run): ")
    assert [name in said for name in ("_a.jsonl", "/b.jsonl", ".c/d.jsonl")] == [True, False, True]
