"""Compressed journals that were cut off or damaged: every line that can be had is had, and what cannot is said."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from rollcall_ha.analytics.bronze import lines
from rollcall_ha.analytics.bronze.lines import BREAK, file_of, find_broken, readable_lines, source_of

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: the analytics extra is optional")

LINES = [f'{{"version":1,"number":{number},"text":"{number**40:x}"}}' for number in range(2_500)]
TEXT = ("\n".join(LINES) + "\n").encode()


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many chunks in a small file."""
    monkeypatch.setattr(lines, "CHUNK_BYTES", 1 << 12)


def compressed(name: str) -> bytes:
    packed = gzip.compress(TEXT) if name.endswith(".gz") else pa.compress(TEXT, codec="zstd", asbytes=True)
    return bytes(packed)


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_a_cut_file_gives_its_lines_up_to_the_cut(name: str, tmp_path: Path) -> None:
    """A prefix of the file's text, and then the reason; longer files give no fewer lines."""
    whole = compressed(name)
    counts = []
    for size in (5, len(whole) // 3, len(whole) // 2, len(whole) - 2):
        file = tmp_path / name
        file.write_bytes(whole[:size])
        assert find_broken([file]) == [file]
        *found, last = readable_lines(file)
        assert TEXT.startswith("\n".join(found).encode())
        assert last == BREAK + '"Truncated compressed stream"}'
        counts.append(len(found))
    assert counts[0] == 0
    assert counts == sorted(counts)
    # Gzip gives all but what is missing, zstd what is in whole blocks of 128 KiB.
    assert counts[-1] >= (len(LINES) if name.endswith(".gz") else len(LINES) // 3)


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_what_follows_the_compressed_data_costs_no_line(name: str, tmp_path: Path) -> None:
    """Spark's reader lost the whole last buffer of such a file, without a word when it was told to ignore the damage."""
    file = tmp_path / name
    file.write_bytes(compressed(name) + b"garbage")

    assert find_broken([file]) == [file]
    *found, last = readable_lines(file)
    assert found == LINES
    assert last.startswith(BREAK)


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_whole_files_are_not_broken(name: str, tmp_path: Path) -> None:
    """Also two that were put behind each other, an empty one, and a plain one."""
    for number, content in enumerate((compressed(name), compressed(name) * 2, b"")):
        (tmp_path / f"{number}{name}").write_bytes(content)
    (tmp_path / "plain.jsonl").write_bytes(TEXT[:-7])

    assert find_broken(sorted(tmp_path.iterdir())) == []


def test_a_file_is_named_as_spark_names_it() -> None:
    """A damaged file that is repaired and read again is the same file: its old trouble is forgotten."""
    file = Path("/tmp/17 a%41#b?c[d]+&ü.jsonl.gz")

    assert source_of(file) == "file:/tmp/17%20a%2541%23b%3Fc%5Bd%5D+&ü.jsonl.gz"
    assert file_of(source_of(file)) == file
