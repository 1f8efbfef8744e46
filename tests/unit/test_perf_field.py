"""The bench of the field: the gap is the one that a client felt, parts add up, and nobody who takes no write looks well."""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from rollcall_ha.deploy.local.processes import LauncherError, wait_until
from tests.perf.field import __main__ as bench
from tests.perf.field import kafka_frames, measuring, patroni, sentinel
from tests.perf.field.links import Links, once
from tests.perf.field.measuring import Limits
from tests.perf.field.published import MEASURED, read
from tests.perf.field.rows import Gap, Report, Row, Told, cell, gap_of, joined, table, tell
from tests.perf.field.system import Column, Fault, Kind, Master, RefusedError, UnavailableError
from tests.perf.field.writing import Writer
from tests.perf.machine import Machine

MACHINE = Machine(
    cores=2, memory_gib=24, system="Linux", python="3.11", commit="c0ffee", date="2026-11-29T00:00Z", sync_ms=1
)
MS = 1_000_000
FEW = Limits(warm_acks=20, warm_s_max=0.5)


class FakeClient:
    """Acknowledges at the addresses that it is given, and refuses elsewhere."""

    def __init__(self, takes: set[str]) -> None:
        self.takes, self.asked, self.closed = takes, list[str](), 0

    def attempt(self, address: str) -> None:
        self.asked.append(address)
        if address not in self.takes:
            raise RefusedError("no master")

    def close(self) -> None:
        self.closed += 1


class FakeSystem:
    """No process at all: whoever decides ends, and writes go on."""

    addresses = ("a:1", "b:1", "c:1")

    def __init__(self, takes: set[str]) -> None:
        self.fake = FakeClient(takes)
        self.stopped = 0

    def start(self) -> None:
        """It runs."""

    def client(self) -> FakeClient:
        return self.fake

    def master(self) -> Master:
        return Master(address="b:1", pids=())

    def decider(self) -> tuple[int, ...]:
        return ()

    def stop(self) -> None:
        self.stopped += 1


def kind(name: str, *, takes: set[str] | None = None, unavailable: str = "") -> Kind:
    def obtain() -> str:
        if unavailable:
            raise UnavailableError(unavailable)
        return "1.0"

    return Kind(
        name=name, title=name.title(), acknowledged="it is", decider="nobody", obtain=obtain, look_s=0.1,
        settings={Column.DEFAULT: "none", Column.TUNED: "fewer"}, make=lambda _, __: FakeSystem(takes or set()),
    )  # fmt: skip


def row(system: str, fault: Fault, ms: float | None, *, run: int = 1, has_end: bool = True) -> Row:
    gap = None if ms is None else Gap(ms=ms, has_end=has_end)
    return Row(system=system, column=Column.DEFAULT, fault=fault, run=run, gap=gap, error="" if gap else "it ended")


def told(name: str, *, skipped: str = "") -> Told:
    return tell(kind(name), version="1.0", skipped=skipped, machine=MACHINE, command="part")


# --- the gap ----------------------------------------------------------------------------------------------------------


def test_the_gap_is_the_longest_one_that_ended_after_the_fault() -> None:
    """One before it, and a pause that the fault found already there, are weighed as the client felt them."""
    stamps = [at * MS for at in (0, 900, 905, 935, 940, 1_000)]

    assert gap_of(stamps, 910 * MS) == Gap(ms=60, has_end=True)
    assert gap_of(stamps, 3 * MS) == Gap(ms=900, has_end=True)


def test_a_system_that_takes_no_write_any_more_has_a_gap_without_an_end() -> None:
    assert gap_of([0, 5 * MS], 6 * MS, given_up_at_ns=90_005 * MS) == Gap(ms=90_000, has_end=False)
    flickers = [0, 5 * MS, 60_005 * MS]
    assert gap_of(flickers, 6 * MS, given_up_at_ns=90_005 * MS) == Gap(ms=60_000, has_end=False)


def test_a_gap_lies_between_two_acknowledgements() -> None:
    with pytest.raises(ValueError, match="0 acknowledgements came before the fault and 1 after it"):
        gap_of([7 * MS], 6 * MS)
    with pytest.raises(ValueError, match="1 acknowledgements came before the fault and 0 after it"):
        gap_of([5 * MS], 6 * MS)


# --- cells and parts --------------------------------------------------------------------------------------------------


def test_a_cell_has_the_median_and_hides_neither_failures_nor_what_had_no_end() -> None:
    good = [row("x", Fault.KILL, ms) for ms in (30, 10, 20)]

    assert cell(good) == "20 (10-30)"
    assert cell(good[:1]) == "30"
    assert cell([*good, row("x", Fault.KILL, None)]) == "20 (10-30); 1 of 4 failed"
    assert cell([row("x", Fault.KILL, None)]) == "1 of 1 failed"
    assert cell([]) == "not measured"
    endless = row("x", Fault.KILL, 90_000, has_end=False)
    assert cell([*good, endless]) == "20 (10-30); no write for 90,000 and more in 1 of 4"


def test_a_part_replaces_its_own_cells_and_no_others() -> None:
    before = Report(
        systems=[told("x"), told("y")],
        rows=[row("x", Fault.KILL, 1), row("x", Fault.STOP, 2), row("y", Fault.KILL, 3)],
    )
    part = Report(systems=[told("x")], rows=[row("x", Fault.KILL, 8), row("x", Fault.KILL, 9, run=2)])

    found = joined(before, part, ["y", "x"])

    assert [one.name for one in found.systems] == ["y", "x"]
    assert [(one.system, one.fault, one.gap and one.gap.ms) for one in found.rows] == [
        ("y", Fault.KILL, 3), ("x", Fault.STOP, 2), ("x", Fault.KILL, 8), ("x", Fault.KILL, 9)
    ]  # fmt: skip
    assert [one.name for one in joined(before, part, ["x"]).systems] == ["x"]


def test_what_was_skipped_has_its_reason_and_no_older_figure() -> None:
    before = Report(systems=[told("x")], rows=[row("x", Fault.KILL, 77)])
    found = joined(before, Report(systems=[told("x", skipped="no Java\nhere")], rows=[]), ["x"])

    assert "skipped: no Java here" in table(found)
    assert "77" not in table(found)


def test_the_published_table_is_made_of_every_row_of_the_json() -> None:
    """Each cell of docs/bench-field.md is a cell of its rows, and each row is in a cell."""
    report = read(MEASURED)
    lines = table(report).split("\n")
    seen = 0
    for one in report.systems:
        for column in Column:
            rows = [own for own in report.rows if (own.system, own.column) == (one.name, column)]
            line = next(line for line in lines if line.startswith(f"| {one.title} {one.version} | {column} |"))
            for fault in one.faults:
                cells = [own for own in rows if own.fault is fault]
                assert f"| {cell(cells)} |" in line
                seen += len(cells)

    assert seen == len(report.rows) > 0


# --- the client -------------------------------------------------------------------------------------------------------


def test_the_client_keeps_trying_address_after_address_and_counts_what_was_acknowledged() -> None:
    fake = FakeClient({"b:1"})
    with Writer(["a:1", "b:1"], lambda: fake) as writer:
        writer.wait_acks(3, deadline_s=10)
        fake.takes.clear()
        fake.takes.add("a:1")
        wait_until(lambda: writer.acks[-1][1] == "a:1", deadline_s=10, what="the other master")

    assert fake.asked[:3] == ["a:1", "b:1", "b:1"]
    assert fake.closed == 1
    assert {by for _, by in writer.acks[:3]} == {"b:1"}
    assert writer.attempts == len(fake.asked)


def test_a_client_without_an_acknowledgement_says_what_it_was_told() -> None:
    with (
        Writer(["a:1"], lambda: FakeClient(set())) as writer,
        pytest.raises(LauncherError, match="0 came; the last failure: a:1: no master"),
    ):
        writer.wait_acks(1, deadline_s=0.1)


# --- links ------------------------------------------------------------------------------------------------------------


@contextmanager
def server(*answers: bytes) -> Iterator[tuple[str, list[int]]]:
    """(address, links so far) of one that answers each read with the next of ``answers``, then hangs."""
    left, links = list(answers), list[int]()

    def serve() -> None:
        while True:
            try:
                link, _ = door.accept()
            except OSError:
                return
            links.append(link.fileno())
            held.append(link)
            while left and link.recv(1024):
                link.sendall(left.pop(0))

    held: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as door:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{door.getsockname()[1]}", links
        door.shutdown(socket.SHUT_RDWR)
    thread.join(10)
    for link in held:
        link.close()


def test_an_attempt_at_a_member_that_hangs_ends_in_time_and_its_link_is_left() -> None:
    """Kept, it would give the answer to this attempt to the next one."""
    links = Links(timeout_ms=50)
    with server() as (address, dialled):
        for _ in range(2):
            with pytest.raises(TimeoutError), links.to(address) as link:
                sentinel.ask(link, b"SET")
        links.close()
        wait_until(lambda: len(dialled) == 2, deadline_s=10, what="two dials")


def test_a_member_that_refuses_is_asked_again_on_the_same_link() -> None:
    links = Links(timeout_ms=5_000)
    with server(b"-READONLY no\r\n", b"+OK\r\n") as (address, dialled):
        with pytest.raises(RefusedError, match="READONLY no"), links.to(address) as link:
            sentinel.ask(link, b"SET")
        with links.to(address) as link:
            assert sentinel.ask(link, b"SET") == b"OK"
        links.close()

        assert len(dialled) == 1


def test_an_error_of_postgresql_is_a_refusal_but_a_fatal_one_is_the_end_of_the_link() -> None:
    def error(severity: bytes) -> bytes:
        fields = b"S" + severity + b"\0V" + severity + b"\0C25006\0Mread-only\0\0"
        return b"E" + struct.pack(">i", len(fields) + 4) + fields

    ready = b"Z" + struct.pack(">i", 5) + b"I"
    for severity, kind in ((b"ERROR", RefusedError), (b"FATAL", ConnectionAbortedError)):
        with (
            server(error(severity) + ready) as (address, _),
            pytest.raises(kind, match="25006 read-only"),
            once(address) as link,
        ):
            patroni.query(link, patroni.INSERT)


# --- the whole bench --------------------------------------------------------------------------------------------------


def test_a_run_prints_counts_keeps_its_rows_and_names_what_it_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = [kind("here", takes={"b:1"}), kind("gone", unavailable="no such package")]
    file = tmp_path / "found.json"

    arguments = [
        "--runs",
        "2",
        "--faults",
        "decider",
        "--columns",
        "tuned",
        "--json",
        str(file),
        "--dir",
        str(tmp_path),
    ]
    code = bench.main(arguments, kinds, FEW)

    said = capsys.readouterr().out
    report = msgspec.json.decode(file.read_bytes(), type=Report)
    assert code == 0
    assert '"systems": 1, "skipped": 1, "rows": 2, "failed": 0' in said
    assert [(one.run, one.acked >= 20, one.gap is not None) for one in report.rows] == [
        (1, True, True),
        (2, True, True),
    ]
    assert [one.skipped for one in report.systems] == ["", "no such package"]
    assert report.systems[0].command == "python -m tests.perf.field --columns tuned --faults decider --runs 2"


def test_a_run_without_an_acknowledgement_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--runs", "1", "--faults", "decider", "--columns", "default", "--json", str(tmp_path / "found.json")]
    arguments += ["--dir", str(tmp_path)]

    code = bench.main(arguments, [kind("mute")], FEW)

    said = capsys.readouterr().out
    assert code == 1
    assert '"rows": 1, "failed": 1, "acked": 0' in said
    assert "FAILED  mute default decider, run 1" in said


def test_processes_that_ended_before_they_were_struck_are_no_fault() -> None:
    """A backend of one question may end between two signals; a whole master that is gone was not struck."""
    with subprocess.Popen(["sleep", "60"]) as lives, subprocess.Popen(["true"]) as ended:
        ended.wait()
        assert measuring.strike(Struck((ended.pid, lives.pid)), Fault.KILL)[1].address == "b:1"
        assert lives.wait(10) == -signal.SIGKILL
        with pytest.raises(LauncherError, match="lived when they were to be struck"):
            measuring.strike(Struck((ended.pid,)), Fault.KILL)


class Struck(FakeSystem):
    """Whose master has these processes."""

    def __init__(self, pids: tuple[int, ...]) -> None:
        super().__init__(set())
        self.pids = pids

    def master(self) -> Master:
        return Master(address="b:1", pids=self.pids)


@pytest.mark.parametrize("wrong", ["--only=nobody", "--faults=flood", "--runs=0"])
def test_a_name_that_is_none_is_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.main([wrong], [kind("here")])

    assert wrong.partition("=")[2] in capsys.readouterr().err


# --- frames -----------------------------------------------------------------------------------------------------------


def test_the_sum_of_kafkas_records_is_castagnolis() -> None:
    """The value that every implementation of it is tried with."""
    assert kafka_frames.crc32c(b"123456789") == 0xE3069283


def test_a_produced_record_is_one_batch_of_one_whose_sum_holds() -> None:
    request = kafka_frames.produce("field", b"body")
    size, key, version = struct.unpack(">ihh", request[:8])
    at = request.index(b"field\0\0\0\x01\0\0\0\0") + len(b"field") + 8
    length, _, batch, _, magic, crc = struct.unpack(">iqiibI", request[at : at + 25])

    assert (size, key, version, magic) == (len(request) - 4, kafka_frames.PRODUCE, 3, 2)
    assert (length, batch) == (len(request) - at - 4, length - 12)
    assert crc == kafka_frames.crc32c(request[at + 25 :])
    assert request[at + 25 :].endswith(bytes([4 << 1]) + b"body\0")


def test_an_answer_of_kafka_that_is_cut_off_is_no_acknowledgement() -> None:
    whole = struct.pack(">ih", 1, 5) + b"field" + struct.pack(">iihqq", 1, 0, 6, -1, -1)

    assert kafka_frames.produced(whole, "field") == 6
    with pytest.raises(ConnectionAbortedError):
        kafka_frames.produced(whole[:12], "field")


def test_a_command_of_redis_has_the_length_of_each_word() -> None:
    assert sentinel.encode(b"SET", b"k", b"") == b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n"
    assert sentinel.pairs([b"a", b"1", b"b", b"2"]) == {"a": "1", "b": "2"}
