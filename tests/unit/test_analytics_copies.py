"""A lake in an object store: each reader finds one snapshot whole, whenever the copy was ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from pyarrow import fs

from rollcall_ha.analytics.lake.copies import Copied, WrongTarget, copy
from rollcall_ha.analytics.lake.lake import SNAPSHOTS_KEPT, Lake, LakeBusy, NoLake
from rollcall_ha.analytics.lake.tables import SNAPSHOTS
from tests.support.analytics_cli import code_of
from tests.unit.test_analytics_lake import DAYS, FIRST, SECOND, publish, publish_both, rows

pytestmark = pytest.mark.slow

TABLES = (FIRST, SECOND)


class Killed(Exception):
    """In place of a signal: what was put is there, and nothing follows."""


class Store:
    """A bucket of a server with S3's interface, and a reader of it that knows Delta only."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.endpoint = f"http://{address[0]}:{address[1]}"
        self.query = f"?scheme=http&endpoint_override={address[0]}:{address[1]}&region=us-east-1"
        self.files = fs.S3FileSystem(endpoint_override=self.endpoint, allow_bucket_creation=True, region="us-east-1")
        self.files.create_dir("bucket")

    def uri(self, prefix: str = "lake") -> str:
        return f"s3://bucket/{prefix}{self.query}"

    def names(self, prefix: str = "lake") -> set[str]:
        found = self.files.get_file_info(fs.FileSelector(f"bucket/{prefix}", recursive=True, allow_not_found=True))
        return {one.path.removeprefix(f"bucket/{prefix}/") for one in found if one.is_file}

    def table(self, path: str, version: int | None = None) -> DeltaTable:
        options = {"AWS_ENDPOINT_URL": self.endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
        return DeltaTable(f"s3://bucket/lake/{path}", version=version, storage_options=options)

    def newest(self) -> dict[str, int]:
        """Version of each table in the newest snapshot, as DuckDB reads it; empty: there is none yet."""
        if not any(name.startswith(f"{SNAPSHOTS.path}/_delta_log/") for name in self.names()):
            return {}
        snapshots = self.table(SNAPSHOTS.path).to_pyarrow_dataset()  # noqa: F841 (DuckDB finds it by its name)
        newest = 'SELECT "table", version FROM snapshots QUALIFY snapshot = max(snapshot) OVER ()'
        return dict(duckdb.execute(newest).fetchall())

    def rows(self) -> dict[str, dict[str, int]]:
        """Of each table in the newest snapshot: day -> the number in its row."""
        found = {path: self.table(path, version).to_pyarrow_table() for path, version in self.newest().items()}
        return {path: {str(row["day"]): row["number"] for row in one.to_pylist()} for path, one in found.items()}


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, int]]:
    moto = pytest.importorskip("moto.server", reason="moto is not installed: a development tool")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    yield server.get_host_and_port()
    server.stop()


@pytest.fixture
def store(server: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    found = Store(server)
    yield found
    found.files.delete_dir_contents("bucket")


def quietly(_: str, items: Iterable[None], __: int) -> Iterable[None]:
    return items


def of_lake(lake: Lake) -> dict[str, dict[str, int]]:
    return {table.path: found for table in TABLES if (found := rows(lake, table))}


def test_a_copy_is_the_lake_and_the_next_one_puts_what_is_new(tmp_path: Path, store: Store) -> None:
    """Files that the lake let go are gone, others' are not."""
    lake = Lake(tmp_path)
    publish_both(lake)
    (tmp_path / FIRST.path / "._SUCCESS.crc").touch()
    store.files.open_output_stream("bucket/lake/silver/first/notes.parquet").close()

    first = copy(lake, store.uri(), quietly)
    assert (first.snapshot, first.removed, first.kept) == (1, 0, 0)
    assert store.rows() == of_lake(lake) == {table.path: dict.fromkeys(DAYS, 1) for table in TABLES}
    assert copy(lake, store.uri(), quietly) == Copied(snapshot=1, put=0, put_bytes=0, removed=0, kept=first.put)

    for _ in range(SNAPSHOTS_KEPT + 1):
        publish(lake, DAYS[0])
    later = copy(lake, store.uri(), quietly)
    assert store.rows() == of_lake(lake)
    assert store.rows()[FIRST.path] == {DAYS[0]: SNAPSHOTS_KEPT + 2, DAYS[1]: 1}
    assert later.removed > 0
    assert later.put > SNAPSHOTS_KEPT
    mine = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()}
    assert store.names() - mine == {"silver/first/notes.parquet"}
    assert mine - store.names() == {"lock", "silver/first/._SUCCESS.crc"}


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.prove)])
def test_a_copy_that_is_killed_at_any_object_leaves_one_snapshot(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """The old one or the new one, of both tables, after each ``step`` objects; the next copy ends it."""
    lake = Lake(tmp_path)
    real, kills, shown = fs.copy_files, 0, set()
    before: dict[str, dict[str, int]] = {}
    for _ in range(2):
        publish_both(lake)
        while True:
            left = iter(range(step))

            def limited(*of: Any, left: Iterator[int] = left) -> None:
                if next(left, None) is None:
                    raise Killed
                real(*of)

            monkeypatch.setattr(fs, "copy_files", limited)
            try:
                copy(lake, store.uri(), quietly)
            except Killed:
                # So many more objects are there each time.
                kills += 1
                found = store.rows()
                assert found in (before, of_lake(lake))
                shown.add(found == before)
            else:
                break
        before = store.rows()
        assert before == of_lake(lake)
    assert kills > 10 // step
    assert shown == {True}, "the log of snapshots comes last"


def test_two_lakes_in_one_target_are_refused(tmp_path: Path, store: Store) -> None:
    """So is a target that is no store, a lake that is being written, and one that is none."""
    mine, other = Lake(tmp_path / "mine"), Lake(tmp_path / "other")
    for lake in (mine, other):
        publish_both(lake)
    copy(mine, store.uri(), quietly)
    before = store.names()
    with pytest.raises(WrongTarget, match=r"holds another lake than .*other: name an empty prefix"):
        copy(other, store.uri(), quietly)
    assert store.names() == before
    with pytest.raises(WrongTarget, match="copy is no target: name s3://BUCKET/PREFIX"):
        copy(mine, str(tmp_path / "copy"), quietly)
    with pytest.raises(WrongTarget, match=r"^bucket/lake is no target: .* without keys") as refused:
        copy(mine, "s3://NAME:SECRET@bucket/lake", quietly)
    assert "SECRET" not in str(refused.value)
    with mine.writer(), pytest.raises(LakeBusy):
        copy(mine, store.uri(), quietly)
    with pytest.raises(NoLake, match="no lake in"):
        copy(Lake(tmp_path / "none"), store.uri(), quietly)


def test_the_verb_says_what_it_put_and_what_the_store_refused(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = str(tmp_path / "lake")
    publish_both(Lake(Path(lake)))
    assert code_of(["copy", store.uri("deep/er"), "--lake", lake, "--quiet"]) == 0
    assert capsys.readouterr().out.startswith(f"snapshot 1 is in {store.uri('deep/er')}: ")
    assert "silver/first/_delta_log/00000000000000000000.json" in store.names("deep/er")
    assert code_of(["copy", store.uri().replace("bucket", "nobucket"), "--lake", lake, "--quiet"]) == 2
    assert "nobucket" in capsys.readouterr().err
