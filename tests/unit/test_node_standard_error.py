"""Standard error that cannot be written: no line is on the path of a decision."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollcall_ha.node.standard_error import LINES_DROPPED, WAITING_BYTES_MAX, LineWriter
from rollcall_ha.node.telemetry import Telemetry

CONFIGURED = "from rollcall_ha.node.telemetry import *\nconfigure_logs(process='c1', log_format=LogFormat.JSON)\nlog = get_logger('x')\n"


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for descriptor in (reader, writer):
        with contextlib.suppress(OSError):
            os.close(descriptor)


def take(lines: LineWriter, text: str) -> None:
    """A line in the middle of a promotion."""
    try:
        lines.write(text)
    except OSError as error:
        pytest.fail(f"the line raised {error}")


def dropped() -> float:
    return sum(
        sample.value for family in LINES_DROPPED.collect() for sample in family.samples if "total" in sample.name
    )


def test_a_line_for_a_reader_that_died_is_dropped_and_counted(pipe: tuple[int, int]) -> None:
    before = dropped()
    os.close(pipe[0])
    lines = LineWriter(pipe[1])

    take(lines, "master_elected\n")

    assert lines.drain()
    assert dropped() == before + 1
    assert f"rollcall_log_lines_dropped_total {dropped()}".encode() in Telemetry().exposition()[0]


def test_a_reader_that_stopped_to_read_holds_nobody_up(pipe: tuple[int, int]) -> None:
    """A hung log shipper: its pipe is full, and the writer of the line is the loop that elects."""
    before = dropped()
    lines = LineWriter(pipe[1])

    for _ in range(2 * WAITING_BYTES_MAX // 1000):
        lines.write("x" * 999 + "\n")

    assert dropped() > before
    assert not lines.drain()
    awake = threading.Thread(target=lambda: [None for _ in iter(lambda: os.read(pipe[0], 65536), b"")])
    awake.start()
    assert any(lines.drain() for _ in range(30))
    os.close(pipe[1])
    awake.join(30)


def test_lines_that_were_dropped_are_told_by_the_next_one_that_is_written(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition that was full: the torn line ends, the number is told once, and the next line is whole."""
    real, room = os.write, [3]

    def short(descriptor: int, data: memoryview) -> int:
        if not room:
            return real(descriptor, data)
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken, room[0] = room[0], 0
        return real(descriptor, data[:taken])

    monkeypatch.setattr(os, "write", short)
    lines = LineWriter(pipe[1], lambda count, error: f"dropped {count}: {error}\n")

    take(lines, "first\n")
    take(lines, "second\n")
    assert lines.drain()
    room.clear()
    lines.write("third\n")
    lines.write("fourth\n")
    assert lines.drain()

    assert os.read(pipe[0], 1000) == b"fir\ndropped 2: No space left on device\nthird\nfourth\n"


@pytest.mark.slow
def test_a_descriptor_that_somebody_made_non_blocking_loses_no_line(pipe: tuple[int, int]) -> None:
    """Whoever shares the terminal may have done so (ssh, node)."""
    fcntl.fcntl(pipe[1], fcntl.F_SETFL, os.O_NONBLOCK)
    lines = LineWriter(pipe[1])
    whole = b"".join(b"%05d\n" % number for number in range(40_000))

    for line in whole.splitlines(keepends=True):
        lines.write(line.decode())
    got = bytearray()
    while len(got) < len(whole):
        got += os.read(pipe[0], 65536)

    assert bytes(got) == whole


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "seen"),
    [("'\\udcff'", "udcff"), ("1 << 70", str(1 << 70)), ("type('T', (), {'__str__': lambda s: 1 / 0})()", "T object")],
    ids=["a file name that is no Unicode", "a number of 70 bits", "a value that cannot be shown"],
)
def test_a_value_that_cannot_be_rendered_is_a_line_all_the_same(value: str, seen: str) -> None:
    line = ran(f"{CONFIGURED}log.info('looked', value={value})")

    entry = json.loads(line)
    assert (entry["process"], seen in line) == ("c1", True)


def test_lines_of_other_threads_say_their_process_too() -> None:
    line = ran(f"{CONFIGURED}import threading\nt = threading.Thread(target=log.info, args=('x',))\nt.start(); t.join()")

    assert json.loads(line)["process"] == "c1"


@pytest.mark.slow
def test_the_last_line_before_the_end_is_written() -> None:
    assert json.loads(ran(f"{CONFIGURED}log.info('last')"))["event"] == "last"


@pytest.mark.parametrize("broken", ["2>&-", "2>/dev/full", "2> >(exec sleep 0)"])
def test_a_process_that_must_end_ends_whatever_standard_error_is(broken: str) -> None:
    """A controller whose journal failed would go on without one."""
    program = f"{CONFIGURED}from rollcall_ha.node.standard_error import leave\nleave(72, 'no journal')"

    done = subprocess.run(
        ["bash", "-c", f'exec "$0" -c "$1" {broken}', sys.executable, program], timeout=60, check=False
    )

    assert done.returncode == 72


@pytest.mark.slow
def test_a_process_that_must_end_does_not_wait_for_a_reader_that_hangs(pipe: tuple[int, int]) -> None:
    program = (
        f"{CONFIGURED}from rollcall_ha.node.standard_error import leave\nlog.info('x' * 200_000)\nleave(72, 'end')"
    )

    done = subprocess.run([sys.executable, "-c", program], stderr=pipe[1], timeout=60, check=False)

    assert done.returncode == 72


def test_with_a_closed_standard_error_no_file_gets_its_number(tmp_path: Path) -> None:
    """What complains on descriptor 2 (the interpreter, a library) would write into the journal."""
    program = f"{CONFIGURED}import sys\nopened = open(sys.argv[1], 'w')\nprint(opened.fileno())"

    done = subprocess.run(
        ["bash", "-c", 'exec "$0" -c "$1" "$2" 2>&-', sys.executable, program, str(tmp_path / "journal")],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )

    assert int(done.stdout) > 2


def ran(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True
    ).stderr
