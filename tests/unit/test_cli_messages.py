"""``rollcall produce`` and ``rollcall consume``, as programs, at a real listen port, log and room of consumers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from rollcall_ha.broker.client.consumer import Start
from rollcall_ha.cli.messaging import check_form, decode_start
from tests.support.cli import Run, scripted
from tests.support.log_broker import LogBroker
from tests.unit.test_client_producer import bodies, run, serving


async def start(broker: LogBroker | str, *words: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "rollcall_ha.cli.main", *words, "--brokers",
        broker if isinstance(broker, str) else broker.address, stdin=PIPE, stdout=PIPE,
        stderr=PIPE, cwd="/", env=os.environ | {"XDG_CONFIG_HOME": "nowhere"},
        # Begun in the background of a shell, this process and its children would not hear of an interrupt.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


async def ran(broker: LogBroker | str, *words: str, given: bytes = b"") -> tuple[int | None, bytes, str]:
    program = await start(broker, *words)
    out, err = await asyncio.wait_for(program.communicate(given), 60)
    return program.returncode, out, err.decode()


@pytest.mark.slow
def test_lines_go_in_and_come_out_as_they_were(tmp_path: Path) -> None:
    """Bytes that are no text, an empty line, and a last line without an end included."""

    async def body() -> None:
        async with serving(tmp_path) as broker:
            lines = [b"%d" % number for number in range(97)] + [b"\xff\x1b[2J", b"", "\u6e2f".encode()]
            code, out, err = await ran(broker, "produce", "T", given=b"\n".join(lines))
            assert (code, out, err) == (0, b"", "T: 100 acknowledged\n")
            words = ("consume", "T", "--group", "g", "--from", "first")
            code, out, err = await ran(broker, *words, "--count", "100")
            assert (code, err) == (0, "T: 100 messages for g\n")
            assert sorted(out.split(b"\n")[:-1]) == sorted(lines)
            # The group goes on behind them; another one begins anew, and ends with the queues.
            assert (await ran(broker, *words, "--no-wait"))[:2] == (0, b"")
            words = ("consume", "T", "--group", "h", "--from", "first")
            assert len((await ran(broker, *words, "--no-wait"))[1].split(b"\n")) == 101

    run(body)


@pytest.mark.slow
def test_what_a_message_has_is_given_and_printed(tmp_path: Path) -> None:
    async def body() -> None:
        async with serving(tmp_path) as broker:
            facts = ("--key", "k1 k2", "--tag", "red", "--property", "amount=5", "--queue", "3", "-v")
            code, out, _ = await ran(broker, "produce", "T", *facts, given=b"one\n")
            assert code == 0
            message_id, queue, offset = out.decode().split()
            assert (queue, offset) == ("3", "0")
            assert (await ran(broker, "produce", "T", "--tag", "blue", given=b"two\n"))[0] == 0
            words = ("consume", "T", "--from", "first", "--no-wait", "--group")
            _, out, _ = await ran(broker, *words, "g", "--sql", "amount > 1", "--json")
            told = json.loads(out)
            assert told["properties"].items() >= {"KEYS": "k1 k2", "TAGS": "red", "amount": "5"}.items()
            assert (told["body"], told["id"], told["queue"], told["tag"]) == ("one", message_id, "b:3", "red")
            _, out, _ = await ran(broker, *words, "h", "--filter", "blue", "--format", "{tag}/{body}/{offset}")
            assert out == b"blue/two/0\n"

    run(body)


@pytest.mark.slow
def test_a_line_that_is_refused_ends_it_and_is_named(tmp_path: Path) -> None:
    async def body() -> None:
        async with serving(tmp_path) as broker:
            code, _, err = await ran(broker, "produce", "T", given=b"one\n" + b"x" * (4 * 1024 * 1024 + 1))
            assert code == 1
            assert "T: 1 acknowledged, 1 not in the log" in err
            assert "line 2: a body of" in err
            assert bodies(broker) == [b"one"]

    run(body)


@pytest.mark.slow
def test_a_file_that_cannot_be_read_hung_for_ever(tmp_path: Path) -> None:
    async def body() -> None:
        async with serving(tmp_path) as broker:
            code, out, err = await ran(broker, "produce", "T", "--file", str(tmp_path))
            assert (code, out) == (1, b"")
            assert err.startswith("T: 0 acknowledged\nrollcall: line 1: cannot be read: ")
            assert "Is a directory" in err

    run(body)


@pytest.mark.slow
def test_a_long_file_whose_first_line_is_refused_ended_with_a_traceback(tmp_path: Path) -> None:
    """Of the thread that reads: the end of the loop broke its wait for room."""

    async def body() -> None:
        async with serving(tmp_path) as broker:
            lines = tmp_path / "lines"
            lines.write_bytes((b"y" * 1_000 + b"\n") * 9_000)
            code, _, err = await ran(broker, "produce", "T", "--queue", "99", "--file", str(lines))
            assert (code, "Traceback" in err) == (1, False)

    run(body)


@pytest.mark.slow
def test_an_interrupt_commits_what_was_printed_and_a_reader_that_goes_loses_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        async with serving(tmp_path) as broker:
            await ran(broker, "produce", "T", given=b"1\n2\n3\n4\n5\n6\n7\n8\n")
            words = ("consume", "T", "--group", "g", "--from", "first")
            for number, code in ((signal.SIGINT, 0), (signal.SIGTERM, 143)):
                program = await start(broker, *words)
                assert program.stdout is not None
                printed = [await asyncio.wait_for(program.stdout.readline(), 30) for _ in range(8)]
                assert sorted(printed) == [b"%d\n" % each for each in range(1, 9)]
                program.send_signal(number)
                _, err = await asyncio.wait_for(program.communicate(), 30)
                assert (program.returncode, b"Traceback" in err) == (code, False)
                await ran(broker, "produce", "T", given=b"1\n2\n3\n4\n5\n6\n7\n8\n")
            program = await start(broker, *words)
            assert program.stdout is not None
            program.stdout._transport.close()  # type: ignore[attr-defined]
            assert program.stderr is not None
            err = await program.stderr.read()
            assert (await program.wait(), err) == (141, b"")
            assert len((await ran(broker, *words, "--no-wait"))[1].split()) == 8

    run(body)


@pytest.mark.slow
def test_nobody_at_the_address_is_said_with_the_reason() -> None:
    async def body() -> None:
        code, _, err = await ran("127.0.0.1:9", "produce", "T", given=b"one\n")
        assert code == 4
        assert "no broker for T: 127.0.0.1:9: " in err

    run(body)


@pytest.fixture
def rollcall(monkeypatch: pytest.MonkeyPatch) -> Run:
    return scripted(monkeypatch)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("consume", "T", "--group", "g", "--filter", "a", "--sql", "b = 1"), "--filter and --sql exclude"),
        (("consume", "T", "--group", "g", "--format", "{colour}"), "--format has {colour}"),
        (("consume", "T", "--group", "g", "--from", "yesterday"), "--from 'yesterday' is not"),
        (("consume", "T", "--group", "my group", "--brokers", "h:1"), "group 'my group'"),
        (("produce", "T", "--brokers", "nowhere"), "nowhere"),
        (("produce", "T", "--property", "a"), "--property 'a' is not NAME=VALUE"),
        (("produce", "T", "--brokers", "h:1", "--name-servers", "h:2"), "exclude each other"),
    ],
)
def test_wrong_use_is_told_before_anything_is_dialled(rollcall: Run, words: tuple[str, ...], told: str) -> None:
    done = rollcall({}, *words)
    assert (done.code, told in done.err) == (2, True), done.err


def test_a_start_is_a_word_or_a_time() -> None:
    assert decode_start("first") is Start.FIRST
    assert decode_start("1970-01-01T00:00:01") == decode_start("1970-01-01T01:00:01+01:00") == 1_000
    check_form("{topic}{{x}}{body}")
    with pytest.raises(ValueError, match="Single '}'"):
        check_form("}")


@pytest.mark.parametrize("form", ["{body:d}", "{offset:s}", "{body!z}", "{body:{topic}}", "{body:{}}"])
def test_a_form_that_a_field_cannot_have_ended_consume_with_a_traceback(form: str) -> None:
    with pytest.raises(ValueError, match=r"--format|format|conversion"):
        check_form(form)
