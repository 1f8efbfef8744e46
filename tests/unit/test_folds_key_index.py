"""The key index: RocketMQ's files, deaths between any two writes, full disks, damage, questions with a limit."""

from __future__ import annotations

import contextlib
import errno
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rollcall_ha.broker.folds import key_index
from rollcall_ha.broker.folds.index_file import Shape
from rollcall_ha.broker.folds.key_index import HELD_FILES_MAX, MARK_FILE_NAME, Keyed, KeyIndex, keys_of
from tests.support.key_index_java import BEGAN_MS, SMALL, feed, files_below, java_files, record
from tests.support.sim_files import FileCalls, SimFiles
from tests.support.sim_kernel import Died, Kernel

WIDE = Shape(slot_count=11, unit_count=100)
LOG = [
    record(number * 100, f"k{number % 3}", "Aa", "BB", unique=f"ID{number}", at_ms=BEGAN_MS + number * 700)
    for number in range(9)
]
OTHER = [record(number * 100, f"o{number}", unique=f"NEW{number}", at_ms=BEGAN_MS + 4_000) for number in range(5, 10)]
"""What the log holds behind its first five records after a cut."""


def opened(root: Path, shape: Shape = SMALL, *, valid_to: int = 1 << 40, start: int = 0) -> KeyIndex:
    return KeyIndex.open(root, valid_to=valid_to, start=start, shape=shape)


def ask(index: KeyIndex, key: str, *, topic: bytes = b"T", begin_ms: int = 0, end_ms: int = 1 << 62) -> list[int]:
    return index.find(topic, key.encode(), begin_ms=begin_ms, end_ms=end_ms, count_max=64)


# --- format ----------------------------------------------------------------------------------------------------------


def test_a_first_file_has_every_byte_where_rocketmq_has_it(tmp_path: Path) -> None:
    """By hand, from the layout: "T#a" and "T#b" hash to 81906 and 81907."""
    index = opened(tmp_path, Shape(slot_count=4, unit_count=5))
    feed(index, [record(0, "a", at_ms=BEGAN_MS), record(100, "b", "a", at_ms=BEGAN_MS + 2_999)])
    index.flush()
    [(name, content)] = files_below(tmp_path).items()

    assert name == "20231114221320000"
    assert content == (
        struct.pack(">qqqqii", BEGAN_MS, BEGAN_MS + 2_999, 0, 100, 2, 4)
        + struct.pack(">iiii", 0, 0, 3, 2)
        + bytes(20)
        + struct.pack(">iqii", 81906, 0, 0, 0)
        + struct.pack(">iqii", 81907, 100, 2, 0)
        + struct.pack(">iqii", 81906, 100, 2, 1)
        + bytes(20)
    )


def test_files_without_parameters_are_as_large_as_those_of_rocketmq(tmp_path: Path) -> None:
    """420,000,040 bytes of which the disk has few."""
    index = KeyIndex.open(tmp_path, valid_to=0)
    feed(index, [record(0, "a")])
    index.flush()
    [path] = (tmp_path / "index").iterdir()
    index.close()

    assert path.stat().st_size == 420_000_040
    assert path.stat().st_blocks * 512 < 1_000_000
    index = KeyIndex.open(tmp_path, valid_to=100)
    assert ask(index, "a") == [0]
    index.close()


def test_a_full_file_is_followed_by_one_that_goes_on_with_its_time_and_place(tmp_path: Path) -> None:
    """A record's keys may lie in two; a clock that went back still gives the later name."""
    log = [*LOG, record(900, "x", "y", "z", "u", "v", "w", at_ms=BEGAN_MS - 5_000)]
    index = opened(tmp_path)
    feed(index, log)
    index.flush()

    assert files_below(tmp_path) == java_files(log)
    assert len(files_below(tmp_path)) == 7
    assert (index.last_ms, index.last_offset) == (BEGAN_MS - 5_000, 900)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ("", ("", "")),
        ("KEYS\x01a b\x02UNIQ_KEY\x01U\x02", ("U", "a b")),
        ("A\x01b\x02UNIQ_KEY\x01U\x02KEYS\x01a", ("U", "a")),
        ("MYKEYS\x01a\x02X_UNIQ_KEY\x01U\x02", ("", "")),
        ("A\x01KEYS\x01a\x02", ("", "")),
        ("KEYS\x01a\x02KEYS\x01b\x02", ("", "b")),
        ("KEYS\x01a\x02KEYS\x01\x02", ("", "a")),
        ("UNIQ_KEY\x01\x02", ("", "")),
    ],
)
def test_keys_are_read_from_properties_as_java_reads_them(properties: str, expected: tuple[str, str]) -> None:
    """Another property's end is no name, the last of two counts, one without a value is none."""
    found = keys_of(properties.encode())

    assert tuple(text.decode() for text in found) == expected


def test_records_without_a_place_in_a_queue_have_no_keys_and_are_in_nevertheless(tmp_path: Path) -> None:
    """Rolled back: nobody shall find them; the offset goes on."""
    index = opened(tmp_path)
    feed(index, [record(0, "a", is_queued=False)])

    assert index.taken_offset == 100
    assert ask(index, "a") == []
    assert files_below(tmp_path) == {}


def test_records_that_are_in_already_are_left_out(tmp_path: Path) -> None:
    """The dispatcher may give a batch twice."""
    index = opened(tmp_path)
    index.take_all(LOG[:4], 400)
    index.take_all(LOG[2:6], 600)
    index.take_all(LOG[:2], 200)
    index.flush()

    assert index.taken_offset == 600
    assert files_below(tmp_path) == java_files(LOG[:6])


# --- deaths ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def calls() -> Iterator[FileCalls]:
    found = FileCalls()
    yield found
    found.close()


def live(index: KeyIndex, saw: Callable[[list[Keyed]], None]) -> None:
    """Batches, flushes, a cut, other records: ``saw`` is told of each log before the index hears of it."""
    for log, step in ((LOG[:3], 2), (LOG[:6], 1), (LOG, 4)):
        saw(log)
        feed(index, log, step=step)
        if log is not LOG:
            index.flush()
    saw(LOG[:5])
    index.cut(500)
    now = [*LOG[:5], *OTHER]
    saw(now)
    feed(index, now)
    index.flush()
    index.trim(0)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [SMALL, WIDE], ids=["many files", "one file"])
@pytest.mark.parametrize("with_power", [False, True], ids=["kill", "power"])
def test_a_death_in_front_of_any_write_costs_nothing_but_work(calls: FileCalls, shape: Shape, with_power: bool) -> None:
    """Opened again and fed again it is, byte for byte, the index of a fresh build; twice, for repairs die too."""
    number = 1
    while dies(calls.disk(Kernel(number), f"h{number}"), number, shape, with_power):
        number += 1

    assert number > 40


def dies(disk: SimFiles, number: int, shape: Shape, with_power: bool) -> bool:
    """Two deaths and a third life; whether the first one was in front of its ``number``-th call."""
    logs: list[list[Keyed]] = [[]]

    def begin() -> None:
        live(opened(disk.folder, shape, valid_to=0), logs.append)

    def go_on() -> None:
        live_on(opened(disk.folder, shape, valid_to=len(logs[-1]) * 100), logs[-1])

    died = dies_in(begin, disk, number, with_power)
    dies_in(go_on, disk, 1 + number % 7, with_power)
    disk.boot()
    index = opened(disk.folder, shape, valid_to=len(logs[-1]) * 100)
    live_on(index, logs[-1])

    assert files_below(disk.folder) == java_files(logs[-1], shape), f"died in front of call {number}"
    check_every_key(index, logs[-1])
    index.close()
    return died


def live_on(index: KeyIndex, log: list[Keyed]) -> None:
    assert index.taken_offset <= len(log) * 100
    feed(index, log)
    index.flush()


def dies_in(life: Callable[[], None], disk: SimFiles, number: int, with_power: bool) -> bool:
    """Whether that life ended in front of its ``number``-th call that changes something."""
    disk.boot()
    disk.dies_in_calls = number
    try:
        life()
    except Died:
        if with_power:
            disk.lose_power()
        else:
            disk.crash()
        return True
    return False


def check_every_key(index: KeyIndex, log: list[Keyed]) -> None:
    for _, properties, offset, *_ in log:
        unique, words = keys_of(properties)
        for key in [unique, *words.split(b" ")]:
            assert offset in ask(index, key.decode())


def test_a_death_while_old_files_are_removed_leaves_those_that_the_mark_names(calls: FileCalls) -> None:
    """All of them, or the ones that were to stay."""
    every = java_files(LOG)
    kept = dict(sorted(every.items())[3:])
    found = []
    for number in range(1, 20):
        disk = calls.disk(Kernel(number), f"h{number}")
        disk.boot()
        index = opened(disk.folder)
        feed(index, LOG)
        index.flush()
        disk.dies_in_calls = number
        with contextlib.suppress(Died):
            index.trim(450)
        disk.crash()
        disk.boot()
        index = opened(disk.folder)
        found.append(files_below(disk.folder))

        assert (index.taken_offset, ask(index, "ID8")) == (900, [800])
        index.close()
    assert found == [every] * found.count(every) + [kept] * found.count(kept)
    assert 0 < found.count(every) < 19


def test_what_is_taken_while_a_flush_runs_is_not_counted_by_its_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another thread, that is; a start behind a kill goes back to the mark, over slots that are ahead of it."""
    shape = Shape(slot_count=5, unit_count=16)
    index = opened(tmp_path, shape)
    feed(index, LOG[:3])
    fdatasync, rest = os.fdatasync, [LOG[3:5], LOG[5:8]]

    def take_meanwhile(descriptor: int) -> None:
        if rest:
            batch = rest.pop(0)
            index.take_all(batch, batch[-1][2] + 100)
        fdatasync(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", take_meanwhile)
        index.flush()
    index.close()
    again = opened(tmp_path, shape)

    assert rest == []
    assert again.taken_offset == 300
    feed(again, LOG)
    again.flush()
    assert files_below(tmp_path) == java_files(LOG, shape)


# --- disks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["pwrite", "ftruncate"])
def test_a_full_disk_takes_nothing_by_halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Whichever write it refuses, of a batch, a flush or a cut: the same works once there is room."""
    index = opened(tmp_path)
    real, rooms = getattr(os, call), [0]
    refused = {number * (number + 1) // 2 for number in range(1, 50)}

    def refuse_at_times(*arguments: int) -> int | None:
        rooms[0] += 1
        if rooms[0] in refused:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments)  # type: ignore[no-any-return]

    def insist(action: Callable[[], None]) -> None:
        before = index.taken_offset
        for _ in range(50):
            try:
                return action()
            except OSError:
                assert index.taken_offset <= before, "nothing is in by halves"
        raise AssertionError("it never worked")

    monkeypatch.setattr(os, call, refuse_at_times)
    insist(lambda: index.take_all(LOG, 900))
    insist(index.flush)
    insist(lambda: index.cut(500))
    log = [*LOG[:5], *OTHER]
    insist(lambda: index.take_all([each for each in log if each[2] >= index.taken_offset], 1_000))
    insist(index.flush)

    assert rooms[0] > 6
    assert files_below(tmp_path) == java_files(log)


def test_a_batch_that_was_refused_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java's tools read every name in the folder."""
    index = opened(tmp_path)

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", refuse)
        with pytest.raises(OSError, match="No space"):
            index.take_all(LOG, 900)

    assert index.taken_offset == 0
    assert files_below(tmp_path) == {}
    assert ask(index, "Aa") == []


def test_a_cut_that_cannot_read_its_file_costs_work_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No descriptor is left. What the old files still count is not known, so it is built anew."""
    index = opened(tmp_path)
    feed(index, LOG)
    index.flush()

    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        with pytest.raises(OSError, match="Too many"):
            index.cut(150)

    assert index.taken_offset == 0
    feed(index, LOG[:1])
    index.flush()
    assert files_below(tmp_path) == java_files(LOG[:1])


def test_slots_in_memory_have_a_limit(tmp_path: Path) -> None:
    """Nobody flushes: taking does, before it holds another file."""
    index = opened(tmp_path)
    feed(index, LOG, step=1)

    assert sum(file.heads is not None for file in index._point.files) <= HELD_FILES_MAX + 1
    assert len(index._point.files) == 6
    check_every_key(index, LOG)


# --- damage ----------------------------------------------------------------------------------------------------------


def shorten(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(50)


def miscount(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(36)
        file.write(b"\0\0\0\1")


@pytest.mark.parametrize("damage", [Path.unlink, shorten, miscount])
@pytest.mark.parametrize("number", range(6))
def test_a_damaged_file_takes_itself_and_all_newer_ones_along(
    tmp_path: Path, damage: Callable[[Path], None], number: int
) -> None:
    """What is left is a prefix, and is fed on to the same files. The newest file's header is in the mark."""
    index = opened(tmp_path)
    feed(index, LOG)
    index.flush()
    index.close()
    damage(sorted((tmp_path / "index").iterdir())[number])
    index = opened(tmp_path)

    is_harmless = damage is miscount and number == 5
    assert (index.taken_offset == 900) == is_harmless
    assert index.taken_offset >= number * 100 - 100
    feed(index, LOG)
    index.flush()
    assert files_below(tmp_path) == java_files(LOG)


@pytest.mark.parametrize("content", [b"", b"rubbish", b"00000000 {}\n"])
def test_without_a_mark_that_can_be_read_all_is_built_anew(tmp_path: Path, content: bytes) -> None:
    """Nothing says what of the files counts."""
    index = opened(tmp_path)
    feed(index, LOG)
    index.flush()
    index.close()
    (tmp_path / MARK_FILE_NAME).write_bytes(content)
    (tmp_path / "index" / "notes.txt").write_text("somebody's")
    index = opened(tmp_path)

    assert index.taken_offset == 0
    assert files_below(tmp_path) == {"notes.txt": b"somebody's"}


def test_a_slot_that_names_no_unit_costs_the_index_its_files_and_no_start(tmp_path: Path) -> None:
    """A bit that fell over, in the newest file."""
    index = opened(tmp_path, WIDE)
    feed(index, LOG)
    index.flush()
    index.close()
    [path] = (tmp_path / "index").iterdir()
    with path.open("r+b") as file:
        file.seek(40)
        file.write(b"\x7f\0\0\0")
    index = opened(tmp_path, WIDE)

    assert index.taken_offset == 0
    feed(index, LOG)
    index.flush()
    assert files_below(tmp_path) == java_files(LOG, WIDE)


def test_other_sizes_build_it_anew(tmp_path: Path) -> None:
    """Files of two sizes cannot be read by one program."""
    index = opened(tmp_path)
    feed(index, LOG)
    index.flush()
    index.close()
    index = opened(tmp_path, WIDE)

    assert index.taken_offset == 0
    assert files_below(tmp_path) == {}


# --- beginnings and ends ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", range(0, 1_000, 100))
def test_records_beyond_the_log_are_dropped_at_a_start(tmp_path: Path, end: int) -> None:
    """The log lost its end with the power, or was cut."""
    index = opened(tmp_path)
    feed(index, LOG)
    index.flush()
    index.close()
    index = opened(tmp_path, valid_to=end)

    assert end - 100 <= index.taken_offset <= end or index.taken_offset == 0
    assert set(ask(index, "Aa")) <= set(range(0, end, 100))
    feed(index, LOG[: end // 100])
    index.flush()
    assert files_below(tmp_path) == java_files(LOG[: end // 100])


def test_a_cut_of_records_without_keys_keeps_all_others(tmp_path: Path) -> None:
    """Nothing has to be taken again."""
    index = opened(tmp_path)
    feed(index, [*LOG, record(900), record(1_000)])
    index.cut(950)

    assert index.taken_offset == 950
    index.flush()
    assert files_below(tmp_path) == java_files(LOG)


def test_a_log_that_begins_anew_begins_where_it_says(tmp_path: Path) -> None:
    """Full resync of a replica; and a start with a log whose beginning moved."""
    index = opened(tmp_path)
    feed(index, LOG)
    index.flush()
    index.clear(5_000)

    assert (index.taken_offset, index.last_offset, files_below(tmp_path)) == (5_000, 0, {})
    index.close()
    assert opened(tmp_path, start=7_000).taken_offset == 7_000
    assert opened(tmp_path, valid_to=6_000, start=7_000).taken_offset == 6_000


def test_files_of_records_that_are_gone_are_removed(tmp_path: Path) -> None:
    """Never the newest: its time and place go on in the next one."""
    index = opened(tmp_path)
    feed(index, LOG)
    names = sorted(java_files(LOG))
    index.trim(450)

    assert sorted(files_below(tmp_path)) == names[3:]
    assert ask(index, "ID0") == []
    assert ask(index, "ID5") == [500]
    index.trim(5_000)
    index.close()
    index = opened(tmp_path)
    assert (index.taken_offset, list(files_below(tmp_path))) == (900, names[-1:])


# --- questions -------------------------------------------------------------------------------------------------------


def test_hits_are_the_newest_first_and_no_more_than_asked_for(tmp_path: Path) -> None:
    """From memory and from the disk alike; a record with the same key twice is one hit."""
    log = [*LOG, record(900, "Aa", "Aa", unique="Aa")]
    index = opened(tmp_path)
    feed(index, log)

    for _ in range(2):
        assert index.find(b"T", b"Aa", begin_ms=0, end_ms=1 << 62, count_max=3) == [900, 800, 700]
        assert ask(index, "Aa") == list(range(900, -1, -100))
        assert ask(index, "Aa", topic=b"Other") == []
        index.flush()


def test_a_time_that_is_asked_for_is_found_to_the_second(tmp_path: Path) -> None:
    """No record within it is missed, whatever part of a second it was stored in, the first one of a file included."""
    index = opened(tmp_path)
    feed(index, LOG)

    for begin, end in ((0, 0), (700, 2_100), (1, 6_000), (5_600, 5_600)):
        inside = [each[2] for each in reversed(LOG) if begin <= each[4] - BEGAN_MS <= end]
        around = [each[2] for each in reversed(LOG) if begin - 1_000 < each[4] - BEGAN_MS < end + 1_000]
        found = ask(index, "Aa", begin_ms=BEGAN_MS + begin, end_ms=BEGAN_MS + end)
        assert [offset for offset in found if offset in inside] == inside
        assert [offset for offset in found if offset in around] == found


def test_a_chain_of_very_many_links_is_not_followed_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop has others to serve."""
    monkeypatch.setattr(key_index, "LINKS_MAX", 10)
    index = opened(tmp_path, Shape(slot_count=1, unit_count=1_000))
    feed(index, [record(0, "rare"), *(record(at * 100, "hot") for at in range(1, 50))])
    reads, pread = [0], os.pread

    def counted(descriptor: int, size: int, at: int) -> bytes:
        reads[0] += 1
        return pread(descriptor, size, at)

    monkeypatch.setattr(os, "pread", counted)

    assert ask(index, "rare") == []
    assert reads[0] == 10
    assert len(ask(index, "hot")) == 10
