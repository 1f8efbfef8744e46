"""Journals by path without Spark: each event once over tasks and copies, no text lost; files however deep."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rollcall_ha.analytics.bronze import journals
from rollcall_ha.analytics.bronze.journals import Share, pieces_of, read_share
from rollcall_ha.analytics.bronze.lines import BREAK, find_journals
from rollcall_ha.analytics.bronze.live import ReadFailed
from tests.support.analytics_story import HOLE, lines_of, story, write_journals

pytest.importorskip("pyarrow", reason="pyarrow is not installed: the analytics extra is optional")

LINES = lines_of(story().records)


def read(folder: Path, *, tasks: int = 1, **options: Any) -> list[tuple[str, dict[str, Any]]]:
    """Of all tasks."""
    files = find_journals([folder])
    shares = [Share(files=files, number=number, tasks=tasks) for number in range(tasks)]
    return [(line.decode(), record) for share in shares for line, record in read_share(share, **options)]


@pytest.mark.parametrize("tasks", [1, 3, 50])
def test_three_journals_give_each_event_once_and_every_other_text(tasks: int, tmp_path: Path) -> None:
    """A count over the folder of three controllers was three times that of the live record."""
    write_journals(LINES, tmp_path)
    found = read(tmp_path, tasks=tasks)

    assert sorted(line for line, record in found if record) == sorted(LINES)
    assert all(msgspec.json.decode(line) == record for line, record in found if record)
    assert sorted(line for line, record in found if not record) == sorted([HOLE, LINES[2][:40]])


def test_only_what_was_asked_for(tmp_path: Path) -> None:
    """From an index on; of a cluster, to which events of the whole fleet do not belong."""
    write_journals(LINES, tmp_path)
    records = [msgspec.json.decode(line) for line in LINES]
    index = records[len(records) // 2]["index"]
    clusters = Counter((record["setKey"] or {}).get("cluster") for record in records)
    (cluster,) = clusters.keys() - {None}

    late = [record for _, record in read(tmp_path, from_index=index) if record]
    assert len(late) == sum(record["index"] >= index for record in records) > 0
    assert sum(bool(record) for _, record in read(tmp_path, cluster=cluster)) == clusters[cluster]


def test_a_damaged_copy_hides_no_good_one(tmp_path: Path) -> None:
    """Its place can be read, the rest cannot: in the place of the event it would be the one that is kept."""
    at = LINES[3].index('"event":')
    damaged = LINES[3][:at] + r'"text":"\ud800",' + LINES[3][at:]
    assert '"ordinal"' in damaged[:at] or '"ordinal"' in damaged[at:]
    (tmp_path / "a.jsonl").write_text("\n".join([damaged, *LINES]) + "\n")

    found = read(tmp_path)
    assert [line for line, record in found if record] == LINES
    assert [line for line, record in found if not record] == [damaged]


def test_a_cut_file_gives_its_lines_and_says_so(tmp_path: Path) -> None:
    """Beside whole ones, plain and compressed."""
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(("\n".join(LINES[:9]) + "\n").encode())[:-8])
    (tmp_path / "whole.jsonl.gz").write_bytes(gzip.compress(("\n".join(LINES[9:12]) + "\n").encode()))
    (tmp_path / "plain.jsonl").write_text("\n".join(LINES[12:]))

    found = read(tmp_path)
    assert sorted(line for line, record in found if record) == sorted(LINES)
    assert [line for line, record in found if not record] == [BREAK + '"Truncated compressed stream"}']


def test_too_many_events_for_a_task_name_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With more tasks they fit."""
    write_journals(LINES, tmp_path)
    monkeypatch.setattr(journals, "EVENTS_PER_TASK_MAX", len(LINES) // 2)
    with pytest.raises(ReadFailed, match="greater option partitions, or make a lake"):
        read(tmp_path)
    assert sum(bool(record) for _, record in read(tmp_path, tasks=20)) == len(LINES)


def test_a_page_is_its_events_and_its_hole() -> None:
    """Half a page stays one text: its events would count, and the lost half would leave no trace."""
    page = '{"freshness":{"index":1},"events":[' + ",".join(LINES[:2]) + '],"nextFrom":null,"gap":"1 to 3"}'

    assert pieces_of(page + page) == [*LINES[:2], '{"gap":{"gap":"1 to 3"}}'] * 2
    assert pieces_of(page[:-30]) == [page[:-30]]
    assert pieces_of(LINES[0][:50] + LINES[1]) == [LINES[0][:50], LINES[1]]
    assert pieces_of("   ") == []


def test_folders_of_folders_are_searched(tmp_path: Path) -> None:
    """Copies that somebody sorted by machine and month were "no journals" two folders down."""
    for name in ("2026/c1/a.jsonl", "2026/c2/b.jsonl.gz", "c.jsonl.zst"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "2026/c1/notes.txt").touch()

    found = [str(file.relative_to(tmp_path)) for file in find_journals([tmp_path])]
    assert found == ["2026/c1/a.jsonl", "2026/c2/b.jsonl.gz", "c.jsonl.zst"]


def test_beside_folders_of_events_other_files_are_no_journals(tmp_path: Path) -> None:
    """A demo keeps what its producer was promised in a ``.jsonl``, beside the controllers' data."""
    for name in ("ledger.jsonl", "data/c1/events/a.jsonl", "data/c2/events/a.jsonl.zst"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    assert [file.parent.name for file in find_journals([tmp_path])] == ["events", "events"]


@pytest.mark.parametrize("folder", ["events", "plain [eu]/{a}"])
def test_a_file_of_a_persons_folder_was_left_out_without_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], folder: str
) -> None:
    """Beside journals by place it is no journal, and is named; without any it is one, whatever signs its path has."""
    for name in (f"{folder}/_a.jsonl", "notes/.b.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = [file.name for file in find_journals([tmp_path])]
    said = capsys.readouterr().err
    if folder == "events":
        assert (found, said) == (["_a.jsonl"], f"not read (no journals by place or name): {tmp_path}/notes/.b.jsonl\n")
    else:
        assert (sorted(found), said) == ([".b.jsonl", "_a.jsonl"], "")
