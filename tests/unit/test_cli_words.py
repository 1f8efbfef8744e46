"""Words of a command line become the values that typer makes of them, without its models."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
import typer
from typer.core import TyperArgument, TyperOption
from typer.main import get_command

from rollcall_ha.cli.main import app

GOOD: dict[Any, tuple[str, ...]] = {str: ("", "x", " x ", "5", "数据"), Path: ("a/b", "..", "no such file")}


@cache
def program() -> Any:
    return get_command(app)


@cache
def parameters() -> dict[str, Any]:
    """Every option and argument of every command, by its place."""

    def below(words: tuple[str, ...], command: Any) -> Iterator[tuple[str, Any]]:
        caller = command.context_class(command)
        for one in command.get_params(caller):
            yield " ".join((*words, one.name)), one
        for name in command.list_commands(caller) if hasattr(command, "list_commands") else ():
            yield from below((*words, name), command.get_command(caller, name))

    return dict(below((), program()))


@cache
def typers(place: str) -> Any:
    param = parameters()[place]
    return type(param).get_runtime_param(param)


def value_of(place: str, typed: Any, *, by_typer: bool) -> Any:
    """The value that the command gets; a list where typer's own callback makes one of its tuple."""
    param = parameters()[place]
    reader = typers(place) if by_typer else param.get_runtime_param()
    found = reader.coerce(typed, param=param, ctx=program().context_class(program()))
    return list(found) if isinstance(found, tuple) else found


def words_for(param: Any) -> Iterator[str]:
    kind, annotation = param.type_descriptor, param.type_descriptor.annotation
    limits = kind.parameter_info
    if kind.choices:
        yield from (str(getattr(one, "value", one)) for one in kind.choices)
    elif annotation in (int, float):
        yield from map(str, (limits.min, limits.max, limits.max if annotation is int else limits.min + 0.25))
    else:
        yield from GOOD[get_args(annotation)[0] if get_origin(annotation) is list else annotation]


def has_word(param: Any) -> bool:
    return not getattr(param, "is_flag", False)


def test_no_parameter_is_left_to_models() -> None:
    """Of another kind than those that there are: ``words`` learns it, or the command pays for pydantic."""
    kinds = {type(one.get_runtime_param()).__name__ for one in parameters().values()}

    assert len(parameters()) > 400
    assert {type(one) for one in parameters().values()} == {TyperArgument, TyperOption}
    assert kinds == {"_Plain"}


@pytest.mark.slow
def test_words_and_defaults_are_what_typer_makes_of_them() -> None:
    for place, param in parameters().items():
        is_many = param.multiple or param.nargs == -1
        typed: list[Any] = (
            [(word, word) if is_many else word for word in words_for(param)] if has_word(param) else [True]
        )
        for one in (*typed, param.default):
            ours, theirs = (value_of(place, one, by_typer=way) for way in (False, True))
            assert (ours, type(ours)) == (theirs, type(theirs)), (place, one)


@pytest.mark.slow
def test_what_typer_refuses_is_refused() -> None:
    refused = 0
    for place, param in parameters().items():
        kind = param.type_descriptor
        if not has_word(param) or not (kind.choices or kind.annotation in (int, float)):
            continue
        for word in ("", "x", "nan", "-1", "9" * 5_000, "TABLE"):
            for way in (False, True):
                with pytest.raises(typer.BadParameter):
                    value_of(place, word, by_typer=way)
                refused += 1
    assert refused > 1_000


def test_a_file_that_may_not_be_read_is_refused_as_it_is_typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.touch()
    monkeypatch.setattr("os.access", lambda *_: False)
    for way in (False, True):
        with pytest.raises(typer.BadParameter, match="is not readable"):
            value_of("authority", str(file), by_typer=way)
