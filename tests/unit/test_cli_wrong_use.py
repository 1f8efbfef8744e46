"""Wrong use of any command: one line with what was typed, what is taken and where that stands, and nothing was asked."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from typer.main import get_command

from rollcall_ha.cli import context
from rollcall_ha.cli.main import app
from rollcall_ha.cli.output import CommandExit
from tests.support.cli import CliRunner, Ran, Run, scripted

NUMBERS = (int, float)
WRONG = ("-5", "9" * 26, "soon", "nan")
TIMES = {"TIME", "[=2s]"}
"""So a help calls the value of an option that takes a duration."""


@pytest.fixture
def rollcall(monkeypatch: pytest.MonkeyPatch) -> Run:
    return scripted(monkeypatch)


@cache
def verbs() -> tuple[tuple[tuple[str, ...], Any], ...]:
    """Every command with the words by which it is called."""

    def below(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
        if not hasattr(command, "list_commands"):
            yield words, command
            return
        for name in command.list_commands(None):
            yield from below((*words, name), command.get_command(None, name))

    return tuple(below((), get_command(app)))


def parameters(*, metavars: set[str] | None = None) -> list[tuple[tuple[str, ...], Any]]:
    """Options and arguments that take a number, or those with such a metavar."""
    return [
        (words, one)
        for words, command in verbs()
        for one in command.params
        if (one.type_descriptor.annotation in NUMBERS if metavars is None else one.metavar in metavars)
    ]


def called(parameter: Any) -> str:
    name = max(parameter.opts, key=len) if parameter.param_type_name == "option" else parameter.metavar or "LEVEL"
    return str(name).strip("[]")


def named(found: tuple[tuple[str, ...], Any]) -> str:
    return " ".join((*found[0], called(found[1])))


def typed(words: tuple[str, ...], wrong: Any, value: str) -> list[str]:
    """The command with ``value``, and a word for all else that it needs."""
    arguments: list[str] = []
    command = next(command for known, command in verbs() if known == words)
    options = [] if wrong.param_type_name == "argument" else [f"{called(wrong)}={value}"]
    for one in command.params:
        if one is wrong and one.param_type_name == "argument":
            arguments.append(value)
        elif one.param_type_name == "argument" and (one.required or wrong.param_type_name == "argument"):
            least = one.type_descriptor.parameter_info.min
            arguments.append("x" if least is None else str(least))
        elif one is not wrong and one.required:
            choices = one.type_descriptor.choices
            options.append(f"{max(one.opts, key=len)}={choices[0].value if choices else '1h'}")
    return [*words, *options, "--", *arguments]


def refused(ran: Ran) -> str:
    """The only line that a refusal prints."""
    assert (ran.code, ran.out, ran.err.count("\n")) == (int(CommandExit.WRONG_USE), "", 1), ran
    assert ran.err.startswith("rollcall: "), ran.err
    return ran.err


@pytest.mark.parametrize("found", parameters(), ids=named)
def test_a_number_had_no_limit_and_went_out_as_it_was_typed(rollcall: Run, found: tuple[tuple[str, ...], Any]) -> None:
    words, parameter = found
    limits = parameter.type_descriptor.parameter_info
    assert limits.min is not None, f"{named(found)} has no least value"
    assert limits.max is not None, f"{named(found)} has no greatest value"
    for value in (*WRONG, *(["0"] if limits.min > 0 else [])):
        told = refused(rollcall({}, *typed(words, parameter, value)))
        assert f"{called(parameter)} is {value!r} and takes a" in told
        assert f"number from {limits.min} to {limits.max}. See: rollcall {' '.join(words)} --help" in told


@pytest.mark.parametrize("found", parameters(metavars=TIMES), ids=named)
def test_a_time_that_can_not_be_was_told_without_its_option(rollcall: Run, found: tuple[tuple[str, ...], Any]) -> None:
    words, parameter = found
    for value in ("-5", "0", "9" * 26, "soon", "nan", "400d"):
        told = refused(rollcall({}, *typed(words, parameter, value)))
        assert f"{called(parameter)} is {value!r} and takes a time from 1" in told
        assert f"See: rollcall {' '.join(words)} --help" in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("status", "-o", "xml"),
            "--output is 'xml' and takes table, wide, json, yaml, tsv, name. See: rollcall status",
        ),
        (("tokens", "issue", "--role", "god"), "--role is 'god' and takes "),
        (("config", "apply", "--preset", "quick"), "--preset is 'quick' and takes fast, normal, safe. "),
        (("topics", "create", "T", "--permission", "all"), "--permission is 'all' and takes "),
        (("wait", "a", "--until", "insync"), "--until is 'insync' and takes serving, in-sync"),
        (
            ("analytics", "verify", "lake", "--output", "xml"),
            "--output is 'xml' and takes table, json",
        ),
        (("swichover", "a"), "'swichover'. Did you mean 'switchover'? See: rollcall --help"),
        (("controllers", "ad"), "'ad'. Did you mean 'add'? See: rollcall controllers --help"),
        (("elect", "a", "--dryrun"), "--dryrun; did you mean --dry-run? See: rollcall elect --help"),
        (("--contollers", "h:1", "status"), "--contollers; did you mean --controllers"),
        (("groups", "show", "g", "--watched"), "--watched; did you mean --watch? See: rollcall groups show --help"),
        (("switchover",), "SET is missing: broker-a, or cluster/broker-a. See: rollcall switchover --help"),
        (("pause", "a"), "--for is missing: How long: 30m, 2h, at most 7d. See: rollcall pause --help"),
        (("elect", "a", "--to"), "'--to' requires an argument. See: rollcall elect --help"),
        (("groups", "show", "g", "--topic"), "'--topic' requires an argument. See: rollcall groups show --help"),
        (("clean", "broker-a", "3"), "(3). See: rollcall clean --help"),
        (("elect", "a", "--unclean"), "--unclean and --accept-loss BYTES belong together. See: rollcall elect --help"),
    ],
)
def test_wrong_use_was_typers_three_lines_without_a_remedy(
    rollcall: Run, arguments: tuple[str, ...], words: str
) -> None:
    assert words in refused(rollcall({}, *arguments))


def test_a_group_without_a_verb_answers_by_its_help(rollcall: Run) -> None:
    for arguments in ((), ("config",), ("groups",)):
        ran = rollcall({}, *arguments)
        assert "Usage: " in ran.out + ran.err


def test_no_controller_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all the tests above: a client that is made would have been the first step."""

    def make() -> None:
        raise AssertionError("a controller is asked")

    monkeypatch.setattr(context, "make_client", make)
    for words, parameter in parameters() + parameters(metavars=TIMES):
        assert CliRunner().invoke(app, typed(words, parameter, "-5")).exit_code == CommandExit.WRONG_USE
