"""Single values as text, and tables as lines."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from rollcall_ha.cli import output
from rollcall_ha.cli.output import Column, Report, Table
from rollcall_ha.deploy.local.processes import our_environment, python_module
from rollcall_ha.node.terminal import for_stream

FIGURES: dict[str, list[tuple[int | None, str]]] = json.loads(Path("tests/unit/figures.json").read_text())
FORMATS = {"duration": output.duration_us, "size": output.size, "age": output.age_ms, "epochOf": output.epoch}


@pytest.mark.parametrize("kind", FORMATS)
def test_figures_have_two_or_three_digits_and_a_unit(kind: str) -> None:
    """Never 1000 ms, never 60.0 s; tests/blackbox/console/test_console.py holds the console to the same file."""
    assert [(value, str(FORMATS[kind](value))) for value, _ in FIGURES[kind]] == [tuple(one) for one in FIGURES[kind]]


def test_an_age_before_now_keeps_its_sign() -> None:
    """The clocks of two machines differ by some milliseconds."""
    assert output.age_ms(-500) == "-0.5 s"


def test_instants_are_utc() -> None:
    """Local time is what operators curse."""
    assert output.utc(1_763_651_400_000) == "2025-11-20T15:10:00Z"
    assert output.utc(None) == "unknown"


def test_numbers_are_right_aligned_and_silent_columns_left_out() -> None:
    """A column appears only when it says something."""
    columns = (Column(title="NAME"), Column(title="N", is_right=True), Column(title="LAG", is_optional=True))
    table = Table(columns=columns, rows=(("a", "1,000", "-"), ("long name", "7", "")))

    text = output.render_text(Report(document=None, verdict="OK  fine", read="read", parts=(table, "footer")))

    assert text.splitlines() == [
        "OK  fine" + " " * (output.LINE_WIDTH - 12) + "read",
        "",
        "NAME           N",
        "a          1,000",
        "long name      7",
        "footer",
    ]


def test_wide_characters_take_two_places() -> None:
    """Columns stay straight on a terminal, where a Chinese character is twice as wide as a letter."""
    table = Table(
        columns=(Column(title="SET"), Column(title="N", is_right=True)), rows=(("数据", "1"), ("data-a", "22"))
    )

    text = output.render_text(Report(document=None, parts=(table,)))

    assert text.splitlines() == ["SET      N", "数据     1", "data-a  22"]


@pytest.mark.parametrize("form", [output.Format.TABLE, output.Format.TSV])
def test_a_name_cannot_clear_the_screen(form: output.Format) -> None:
    """Control characters are written out, those of a whole line and of a column's end too."""
    hostile = "c\x1b[2J\x9b2J\u202e\tx\ny"
    table = Table(columns=(Column(title="SET"),), rows=((hostile,),))
    stream = io.StringIO()

    output.print_report(Report(document=None, verdict=hostile, parts=(hostile, table)), form, stream=stream)

    assert set(stream.getvalue()) <= {"\n", *map(chr, range(0x20, 0x7F))}
    assert "c\\x1b[2J\\x9b2J\\u202e\\tx\\ny" in stream.getvalue()


@pytest.mark.parametrize("form", [output.Format.JSON, output.Format.YAML])
def test_json_and_yaml_turned_the_text_of_a_terminal(form: output.Format) -> None:
    """They printed controls above 0x7f and turned text as they came; a program reads what was sent all the same."""
    hostile = "c\x1b[2J\x9b2J\u202e\tx\n\x7f\u2066y 数据"
    document = {"name": hostile, "plain": "数据", hostile: ["yes", 1, None]}
    stream = io.StringIO()

    output.print_report(Report(document=document), form, stream=stream)

    assert not set(stream.getvalue()) & {"\x1b", "\x9b", "\x7f", "\u202e", "\u2066", "\t"}
    assert "数据" in stream.getvalue(), "what is harmless stays readable"
    read = msgspec.json.decode if form is output.Format.JSON else yaml.safe_load
    assert read(stream.getvalue()) == {"format": output.FORMAT_VERSION, **document}


def test_numbers_of_tsv_are_plain() -> None:
    """It printed ``597,027``, ``0 B``, ``0.1 s`` and ``2 min``; what is unknown or does not apply is an empty cell."""
    cells = (
        output.number(597_027),
        output.size(0),
        output.size(21_800),
        output.age_ms(90),
        output.duration_us(120_000_000),
        output.number(None),
        output.age_ms(None),
        output.NOT_APPLICABLE,
    )
    table = Table(columns=output.columns(*"abcdefgh"), rows=(cells,))
    stream = io.StringIO()

    output.print_report(Report(document=None, parts=(table,)), output.Format.TSV, stream=stream)

    assert stream.getvalue().splitlines()[1].split("\t") == [
        "597027", "0", "21800", "0.090", "120.000000", "", "", "",
    ]  # fmt: skip
    assert list(cells)[:5] == ["597,027", "0 B", "21.8 K", "0.1 s", "2 min"]


def test_long_cells_are_neither_wrapped_nor_cut() -> None:
    """What a program cuts out of a line is there whole."""
    table = Table(columns=(Column(title="REASON"), Column(title="X")), rows=(("r" * 5_000, "x"),))

    assert output.render_text(Report(document=None, parts=(table,))).splitlines()[1] == "r" * 5_000 + "  x"


def test_colour_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first word only; none with NO_COLOR, and none in a pipe."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def printed(stream: io.StringIO) -> str:
        report = Report(document=None, verdict="OK  fine", mood=output.Mood.GOOD)
        output.print_report(report, output.Format.TABLE, stream=stream)
        return stream.getvalue()

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert printed(Terminal()) == "\x1b[1;32mOK\x1b[0m  fine\n"
    assert printed(io.StringIO()) == "OK  fine\n"
    monkeypatch.setenv("NO_COLOR", "1")
    assert printed(Terminal()) == "OK  fine\n"


def test_instants_of_programs_are_integers_and_dates() -> None:
    """At every depth, behind the integer; what is no date of the calendar is null, and what is null has none."""
    document = {"a": [{"electedAtMs": 1_763_651_400_042, "ageMs": 5}], "beganAtMs": None, "lastElectionMs": 2**60}

    assert output.for_programs(document) == {
        "format": "rollcall/v1",
        "a": [{"electedAtMs": 1_763_651_400_042, "electedAt": "2025-11-20T15:10:00.042Z", "ageMs": 5}],
        "beganAtMs": None,
        "lastElectionMs": 2**60,
        "lastElectionAt": None,
    }


NAMES = ("订单", "é", "\U0001f600", "mixed-订-é-\U0001f600", "not Unicode: \udcff")


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "gbk", "utf-8"])
@pytest.mark.parametrize("form", output.Format)
def test_a_name_that_standard_output_cannot_encode_is_printed(form: output.Format, encoding: str, name: str) -> None:
    """A job of cron has an ASCII locale: it ended in a traceback, in JSON and YAML, too."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    rows = (output.Table(columns=output.columns("NAME"), rows=((name,),)),)
    document = {"name": name} if name.isprintable() else {"name": "x"}

    report = Report(document=document, verdict=f"OK  {name}", names=(name,), parts=rows)
    try:
        output.print_report(report, form, stream=stream)
    except UnicodeEncodeError as error:
        pytest.fail(str(error))

    text = raw.getvalue().decode(encoding)
    if form is output.Format.JSON:
        assert json.loads(text)["name"] == document["name"]
    elif form is output.Format.YAML:
        assert yaml.safe_load(text)["name"] == document["name"]
    else:
        assert for_stream(name, stream) in text


def rollcall(*arguments: str, redirect: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f'exec "$@" {redirect}', "-", *python_module("rollcall_ha.cli.main", *arguments)],
        env={**our_environment(), **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_every_command_keeps_printing_where_characters_are_lacking() -> None:
    """Not reports alone: a plain ``write`` and the texts of help go the same way."""
    text = (
        "import sys\nfrom rollcall_ha.node.terminal import *\nkeep_printing()\nprint('订单')\nprint_json({'n': '订单'})"
    )
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={**our_environment(), "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=True,
    )

    shown, _, document = done.stdout.partition("\n")
    assert (shown, json.loads(document)) == ("\\u8ba2\\u5355", {"n": "订单"})


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("status", "--controllers", "127.0.0.1:1")])
def test_a_closed_standard_output_is_no_traceback(arguments: tuple[str, ...]) -> None:
    done = rollcall(*arguments, redirect=">&-")

    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("elect", "broker-\udcff", "--yes"),
        ("status", "\udcff"),
        ("status", "--config", "/tmp/\udcff"),
        ("verify", "/tmp/\udcff"),
    ],
)
def test_an_argument_that_is_no_unicode_is_no_traceback(arguments: tuple[str, ...]) -> None:
    done = rollcall(*arguments, ROLLCALL_CONTROLLERS="127.0.0.1:1")

    assert "Traceback" not in done.stderr
    assert done.returncode in (1, 2, 3, 4)


HISTORY = Table(
    columns=output.columns("EPOCH", "CAUSE", ">DETECT?", ">TOTAL", "PROOF"),
    rows=(
        ("2", "session closed, probe refused, HA link closed", "1.4 ms", "15 ms", "proven"),
        ("1", "first", "-", "12 ms", "-"),
    ),
    leaving=("DETECT", "PROOF"),
    cut="CAUSE",
)


@pytest.mark.parametrize(
    ("width", "titles", "cause"),
    [
        (200, ["EPOCH", "CAUSE", "DETECT", "TOTAL", "PROOF"], "session closed, probe refused, HA link closed"),
        (70, ["EPOCH", "CAUSE", "DETECT", "TOTAL", "PROOF"], "session closed, probe refused, HA lin..."),
        (46, ["EPOCH", "CAUSE", "DETECT", "TOTAL", "PROOF"], "session close..."),
        (45, ["EPOCH", "CAUSE", "TOTAL", "PROOF"], "session closed, prob..."),
        (30, ["EPOCH", "CAUSE", "TOTAL"], "session close..."),
        (1, ["EPOCH", "CAUSE", "TOTAL"], "session close..."),
    ],
)
def test_a_narrow_terminal_shows_the_columns_that_matter(width: int, titles: list[str], cause: str) -> None:
    """``history`` was 194 places wide, and a terminal of 80 made soup of it."""
    shown = HISTORY.fitted(width)

    assert [column.title for column in shown.columns] == titles
    assert shown.rows[0][1] == cause
    lines = output.render_text(Report(document=None, parts=(HISTORY,)), width=width).splitlines()
    assert max(map(len, lines[:3])) <= max(width, 30)


@pytest.mark.slow
@settings(derandomize=True)
@given(
    width=st.integers(20, 220),
    rows=st.lists(st.tuples(*[st.text("ab 数", max_size=60)] * 4), max_size=4),
    leaving=st.permutations(["B", "C", "D"]),
)
def test_no_line_is_wider_than_the_terminal_unless_what_stays_is(
    width: int, rows: list[tuple[str, ...]], leaving: list[str]
) -> None:
    table = Table(columns=output.columns(*"ABCD"), rows=tuple(rows), leaving=tuple(leaving[:2]), cut="A")

    shown = table.fitted(width)

    text = output.render_text(Report(document=None, parts=(shown,)))
    widest = max(map(cell_len, text.splitlines()))
    assert widest <= width or {column.title for column in shown.columns} == set("ABCD") - set(leaving[:2])


def test_a_table_that_says_nothing_of_its_width_was_soup_on_a_narrow_terminal() -> None:
    """``doctor`` has four columns of sentences, and each of its lines went round three times."""
    found = (
        "warning",
        "demo/broker-a",
        "replica broker-a-2 (2) is gone since 5 min",
        "every replica is alive",
        "restart it",
    )
    table = Table(
        columns=output.columns("SEVERITY", "WHERE", "FOUND", "EXPECTED", "REMEDY", ">LAG"), rows=((*found, "7"),)
    )

    assert output.render_text(Report(document=None, parts=(table,)), width=80) == (
        "SEVERITY  WHERE          FOUND               EXPECTED          REMEDY      LAG\n"
        "warning   demo/broker-a  replica broker-a-2  every replica is  restart it    7\n"
        "                         (2) is gone since   alive\n"
        "                         5 min\n"
    )
    assert output.render_text(Report(document=None, parts=(table,)), width=200).count("\n") == 2


def test_words_and_instants_were_broken_where_a_whole_column_could_leave() -> None:
    """``config history`` had "2026-11-28T19:" above "06:05Z", in 83 of 80 places; of all columns one is not shown."""
    changed = "heartbeat_timeout_ms 3000 -> 2000, handover_writes_stopped_ms 0 -> 8000"
    table = Table(
        columns=output.columns(">VERSION", "APPLIED", "BY", "CHANGED", "REASON?"),
        rows=(("2", "2026-11-28T19:06:05Z", "admin:admin", changed, "faster failovers"),),
        leaving=("SHOWN BY NOBODY", "BY"),
    )

    text = output.render_text(Report(document=None, parts=(table,)), width=80)

    assert text == (
        "VERSION  APPLIED               CHANGED                          REASON\n"
        "      2  2026-11-28T19:06:05Z  heartbeat_timeout_ms 3000 ->     faster failovers\n"
        "                               2000,\n"
        "                               handover_writes_stopped_ms 0 ->\n"
        "                               8000\n"
        "(1 more column: -o wide)\n"
    )


def test_a_verdict_and_its_age_went_round_in_the_middle_of_a_word() -> None:
    """A command stays whole: it is copied."""
    command = "What to do: " + "rollcall elect broker-a " * 4
    report = Report(
        document=None, verdict="UP  " + "word " * 15 + "end", read="read at index 7", parts=("ab " * 20, command)
    )

    assert output.render_text(report, width=60).splitlines() == [
        "UP  " + ("word " * 11).rstrip(),
        "  word word word word end",
        "read at index 7",
        ("ab " * 20).rstrip(),
        "What to do:",
        "  " + command.removeprefix("What to do: ").rstrip(),
    ]
    assert output.render_text(report, width=102).splitlines()[0].endswith("end     read at index 7")


def test_what_is_not_shown_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal and where ``COLUMNS`` says so; a pipe, a file and ``wide`` have all of it."""

    def printed(form: output.Format) -> list[str]:
        stream = io.StringIO()
        output.print_report(Report(document=None, parts=(HISTORY,)), form, stream=stream)
        return stream.getvalue().splitlines()

    monkeypatch.delenv("COLUMNS", raising=False)
    whole = printed(output.Format.TABLE)
    assert "DETECT" in whole[0]
    assert len(whole) == 3
    monkeypatch.setenv("COLUMNS", "45")
    assert printed(output.Format.TABLE)[-1] == "(1 more column: -o wide)"
    assert printed(output.Format.WIDE) == whole
    monkeypatch.setenv("COLUMNS", "70")
    assert printed(output.Format.TABLE)[-1] == "(all of CAUSE: -o wide)"
