"""The files of a probe's journal: what is in them, and which go."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollcall_ha.probe import journal
from rollcall_ha.probe.__main__ import main
from rollcall_ha.probe.journal import DAY_MS, Journal, Spot, end_of, read_on
from rollcall_ha.probe.lines import WatchedLine, decode_line, encode_line

LINE = WatchedLine(to_ms=1, watched_ms=1, interval_ms=100, sets=())


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob(journal.GLOB))


def test_each_day_each_life_and_each_full_file_begins_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Journal(tmp_path)
    for now_ms in (0, 1, DAY_MS):
        first.append(LINE, now_ms=now_ms)
    first.close()
    assert [len(one.read_bytes().splitlines()) for one in files(tmp_path)] == [2, 1]
    second = Journal(tmp_path)
    second.append(LINE, now_ms=5)  # the clock was set back
    monkeypatch.setattr(journal, "FILE_BYTES_MAX", 1)
    second.append(LINE, now_ms=6)
    second.close()
    assert [decode_line(one.read_bytes().splitlines()[0]) for one in files(tmp_path)] == [LINE] * 4


def test_the_oldest_files_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "FILES_MAX", 3)
    one = Journal(tmp_path)
    for day in range(5):
        one.append(LINE, now_ms=day * DAY_MS)
    assert [int(path.stem.removeprefix("probe-")) // DAY_MS for path in files(tmp_path)] == [2, 3, 4]
    one.append(LINE, now_ms=200 * DAY_MS)
    one.close()
    assert len(files(tmp_path)) == 1


def test_a_reader_goes_on_where_it_was_and_passes_by_what_is_no_line(tmp_path: Path) -> None:
    assert (end_of(tmp_path), read_on(tmp_path, Spot())) == (Spot(), (Spot(), []))
    life = Journal(tmp_path)
    for now_ms in (0, 1):
        life.append(LINE, now_ms=now_ms)
    spot, lines = read_on(tmp_path, Spot())
    assert (lines, spot) == ([LINE] * 2, end_of(tmp_path))
    (file,) = files(tmp_path)
    with file.open("ab") as torn:
        torn.write(b"{}\n" + encode_line(LINE) + b'{"kind":')
    spot, lines = read_on(tmp_path, spot)
    # The half of a line may be written on.
    assert (lines, read_on(tmp_path, spot)) == ([LINE], (spot, []))
    life.append(LINE, now_ms=DAY_MS)
    later, lines = read_on(tmp_path, spot)
    assert (lines, later) == ([LINE], end_of(tmp_path))
    file.unlink()
    assert read_on(tmp_path, spot) == (later, [LINE])
    life.close()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "where are the sets?"),
        (["--brokers=a:1", "--name-servers=b:1"], "exclude each other"),
        (["--brokers=a:1", "--metrics=0.0.0.0:1"], "127.0.0.1:PORT"),
        (["--brokers=a:1", "--threshold-ms=60001"], "threshold_ms is 60001 ms; 1 to 60000"),
        (["--brokers=a:1", "--authority=ca.pem"], "certificate"),
    ],
)
def test_wrong_use_is_refused_before_anything_is_dialled(
    arguments: list[str], told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["--once-s=1", *arguments]) == 2
    assert told in capfd.readouterr().err
