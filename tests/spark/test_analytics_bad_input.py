"""What is wrong with files: each kind is named and counted, and costs no good line."""

from __future__ import annotations

import gzip
import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")

from rollcall_ha.analytics.bronze import events as bronze
from rollcall_ha.analytics.bronze.events import Why
from rollcall_ha.analytics.bronze.lines import RECORD, NoJournals, file_of, find_journals, pieces, read_lines
from tests.support.analytics_cli import code_of
from tests.support.analytics_story import HOLE, lines_of, story

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def spoiled(line: str, part: str, by: str) -> str:
    """A line with another text in one place: left as it is, it would be a good copy."""
    assert part in line
    return line.replace(part, by)


def bad_lines(lines: list[str]) -> list[tuple[str, str]]:
    """Text and why it is no event."""
    granted, registered = lines[2:4]
    return [
        (registered[:-20], Why.NOT_A_RECORD),
        ("null", Why.NOT_A_RECORD),
        ("[1]", Why.NOT_A_RECORD),
        ('{"a":1}', Why.NOT_A_RECORD),
        ("not JSON at all", Why.NOT_A_RECORD),
        ("\0\0\0\0", Why.NOT_A_RECORD),
        (spoiled(registered, '"sessionOrdinal":1', '"sessionOrdinal":"x"'), Why.NOT_A_RECORD),
        (spoiled(granted, '"index":2', '"index":"two"'), Why.NOT_A_RECORD),
        (spoiled(granted, '"index":2', '"index":99999999999999'), Why.RANGE),
        (spoiled(granted, '"version":1', '"version":0'), Why.VERSION),
        (spoiled(granted, '"stampedAtMs":1000001', '"stampedAtMs":-1'), Why.STAMP),
        (granted + " trailing", Why.TRAILING),
        (granted + '{"other":1}', Why.TRAILING),
        (granted + registered[-30:], Why.TRAILING),
        (spoiled(granted, '"requestId":"r3"', '"requestId":"r3x"'), Why.DIFFERS),
        (HOLE, Why.HOLE),
    ]


NAMES = (
    *("prod [eu]/e.jsonl", "a{b,c}/e.jsonl", "f/e[1].jsonl", "w*t?/e.jsonl", "back\\\\slash/e.jsonl", "[z.jsonl"),
    *("_page.jsonl", ".page.jsonl", "_d/e.jsonl", ".d/e.jsonl", "_[x]/_{y}.jsonl", "50 %#2F é 订.jsonl", "a=b.jsonl"),
    # Files that the names above would find, if they were read as patterns.
    *("prod e/e.jsonl", "ab/e.jsonl", "ac/e.jsonl", "f/e1.jsonl", "wit!/e.jsonl", "plain.jsonl"),
)


def test_a_path_is_a_path_and_no_pattern(spark: Any, tmp_path: Path) -> None:
    """Spark found nothing, or another folder's files, and leaves out what begins with _ or . without a word."""
    files = {tmp_path / name: f"{RECORD}{number}}}\n" for number, name in enumerate(NAMES)}
    for file, text in files.items():
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)

    rows = read_lines(spark, find_journals([tmp_path])).collect()

    assert len(rows) == len(files)
    assert {file_of(row["source_file"]): f"{row['text']}\n" for row in rows} == files


def test_what_is_not_read_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A compression that is not known, a link that leads nowhere, and a ledger beside the journals."""
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "e.jsonl").write_text(f"{RECORD}1}}\n")
    for name in ("e.jsonl.bz2", "ledger.jsonl"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "events" / "gone.jsonl").symlink_to("nowhere")

    assert find_journals([tmp_path]) == [tmp_path / "events" / "e.jsonl"]

    told = capsys.readouterr().err
    assert all(name in told for name in ("e.jsonl.bz2", "ledger.jsonl", "gone.jsonl"))


def test_a_pipe_is_refused_with_the_remedy(tmp_path: Path) -> None:
    """Java cannot open a descriptor of ours, as <(zcat ...) gives one."""
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(NoJournals, match="into a file"):
        find_journals([tmp_path / "pipe"])


def test_every_bad_line_is_named_and_no_good_one_is_lost(spark: Any, tmp_path: Path) -> None:
    """
    Truncated lines, two records on one, wrong types, versions, holes, copies that differ, bytes that are no text, a page,
    gzip and zstd, whole and damaged.

    A record of a newer version with a field that nobody knows is read, and its line is kept as it is; that field's text
    looks like the place between two objects.
    """
    lines = lines_of(story().records)
    bad = bad_lines(lines)
    newer = lines[4].replace('"version":1', '"version":99,"colour":{"is":"} {"}')
    torn_then_good = lines[5][:60] + lines[5]
    good = [lines[0] + " " + lines[1], "", lines[2], lines[3], newer, "   ", torn_then_good, *lines[6:9]]
    (tmp_path / "a.jsonl").write_text("\n".join([*good, *(text for text, _ in bad)]) + "\n")
    page = '{"freshness":{"index":1},"events":[' + ",".join(lines[9:12]) + '],"nextFrom":null,"gap":"1 to 3"}'
    (tmp_path / "pages.json").write_text(page + page)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(("\n".join(lines[12:16]) + "\n").encode()))
    # Compressed files that end in the middle, and in something else.
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(("\n".join(lines[16:20]) + "\n").encode())[:-8])
    (tmp_path / "c.jsonl").write_text("\n".join(lines[20:]) + "\n")
    subprocess.run(["zstd", "-q", "--rm", str(tmp_path / "c.jsonl")], check=True)
    with (tmp_path / "c.jsonl.zst").open("ab") as file:
        file.write(b"garbage")
    files = find_journals([tmp_path, tmp_path / "pages.json"])

    rows = bronze.kept(bronze.once(bronze.judged(pieces(read_lines(spark, files))))).collect()

    events = sorted((row for row in rows if row["why"] is None), key=lambda row: row["seq"])
    assert [(row["index"], row["ordinal"]) for row in events] == [
        (record["index"], record["ordinal"]) for record in map(msgspec.json.decode, lines)
    ]
    assert events[4]["line"] == newer
    assert (events[4]["version"], {row["version"] for row in events}) == (99, {1, 99})
    breaks = sorted((Path(row["source_file"]).name, row["line"]) for row in rows if row["why"] == Why.BREAK)
    assert breaks == [
        ("c.jsonl.zst", '{"break":"ZSTD decompress failed: Unknown frame descriptor"}'),
        ("cut.jsonl.gz", '{"break":"Truncated compressed stream"}'),
    ]
    rejected = sorted((row["why"], row["line"]) for row in rows if row["why"] not in (None, Why.BREAK))
    hole = '{"gap":{"gap":"1 to 3"}}'
    expected = [(str(why), text) for text, why in bad] + [
        (Why.NOT_A_RECORD, lines[5][:60]),
        (Why.HOLE, hole),
        (Why.HOLE, hole),
    ]
    # Of copies that differ one stays, whichever: here the one whose text is smaller.
    assert [why for why, _ in rejected] == sorted(why for why, _ in expected)
    differing = {text for text, why in bad if why is Why.DIFFERS} | {lines[1]}
    assert {line for why, line in rejected if why == Why.DIFFERS} < differing
    assert [one for one in rejected if one[0] != Why.DIFFERS] == sorted(
        one for one in expected if one[0] != Why.DIFFERS
    )


def test_nothing_to_read_is_an_error_with_its_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty folder is not an empty lake, and no lake is not an empty one."""
    lake = str(tmp_path / "lake")
    assert code_of(["run", str(tmp_path), "--lake", lake]) == 2
    assert "no journals" in capsys.readouterr().err
    assert code_of(["gold", "--lake", lake]) == 2
    assert "make one with: rollcall analytics run" in capsys.readouterr().err
    assert code_of(["stream", str(tmp_path / "none"), "--lake", lake]) == 2
    assert "neither a folder nor host:port" in capsys.readouterr().err
    assert not (tmp_path / "lake").exists()


def test_missing_java_is_an_error_with_its_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the package to install."""
    (tmp_path / "a.jsonl").write_text("{}\n")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert code_of(["run", str(tmp_path), "--lake", str(tmp_path / "lake")]) == 2
    assert "apt-get install openjdk" in capsys.readouterr().err
