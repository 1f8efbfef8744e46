"""
Typed words: the values of options and arguments, and the refusal of a word that is none.

Here: ``read_plainly``, by which a command reads its words itself, and ``told_of`` a refusal of typer's. Not here:
which options there are (``options``), how verbs are found and refusals end a command (``groups``).

Rule 1: typer reads a word by a model of pydantic, whose import takes longer than all that a command prints. Texts,
numbers, files and choices need none: a parameter of these reads plainly, and one of another kind as typer does.
Rule 2: a number has a least and a greatest value, and a refusal names what was typed and what is taken.
Parameters, contexts and refusals have the type Any: typer keeps click's own classes to itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

import typer

from rollcall_ha.cli.output import TYPED_SHOWN_MAX

_NUMBERS = {int: "a whole number", float: "a number"}


def read_plainly(command: Any) -> Any:
    """The same verb or group, whose parameters read their words by rule 1."""
    params_of = command.get_params
    command.get_params = lambda ctx: [_plain(param) for param in params_of(ctx)]
    return command


def _plain(param: Any) -> Any:
    kind, is_flag = param.type_descriptor, getattr(param, "is_flag", False)  # a flag has no word
    if is_flag or kind.choices or _kind_of(param) in {str, Path, *_NUMBERS}:
        param.get_runtime_param = lambda: _PLAIN
    return param


class _Plain:
    """Typer asks it for the value of a parameter."""

    def coerce(self, value: Any, *, param: Any, ctx: Any) -> Any:
        """The value of a word, or of each of them; a default is one already. Raises ``typer.BadParameter``."""

        def of(word: Any) -> Any:
            if isinstance(word, str):
                return _read(word, param, ctx)
            return float(word) if isinstance(word, int) and _kind_of(param) is float else word

        if param.multiple or param.nargs == -1:
            return [of(word) for word in value or ()]
        return of(value)


_PLAIN = _Plain()


def _read(word: str, param: Any, ctx: Any) -> Any:
    kind, annotation = param.type_descriptor, _kind_of(param)
    if kind.choices:
        by_word = {_word_of(one): one for one in kind.choices}
        if word in by_word:
            return by_word[word]
    elif annotation is str:
        return word
    elif annotation is Path:
        if os.path.exists(word) and not os.access(word, os.R_OK):  # noqa: PTH110 (in a closed folder Path raises)
            raise typer.BadParameter(f"{word!r} is not readable", ctx=ctx, param=param)
        return Path(word)
    else:
        number: Callable[[str], float] = annotation
        with suppress(ValueError):
            found, limits = number(word), kind.parameter_info
            # Asked for what is true: "nan" is neither less nor more than a limit.
            if (limits.min is None or limits.min <= found) and (limits.max is None or found <= limits.max):
                return found
    told = f"{name_of(param)} is {word[:TYPED_SHOWN_MAX]!r} and takes {taken(param)}"
    raise typer.BadParameter(told, ctx=ctx, param=param)


def _kind_of(param: Any) -> Any:
    """The type of one word."""
    annotation = param.type_descriptor.annotation
    return get_args(annotation)[0] if get_origin(annotation) is list else annotation


def _word_of(choice: Any) -> str:
    return str(choice.value if isinstance(choice, Enum) else choice)


def told_of(error: typer.TyperException) -> str:
    """The sentence for a refusal of typer's."""
    param = getattr(error, "param", None)
    if param is not None and hasattr(error, "param_type"):
        return f"{name_of(param)} is missing: {param.help or 'it has to be named'}"
    likely = ", ".join(getattr(error, "possibilities", None) or ())
    return f"{error.message}; did you mean {likely}?" if likely else error.message


def name_of(param: Any) -> str:
    """``--deadline-ms``, or an argument as the usage has it: ``SET``."""
    if param.param_type_name == "option":
        return str(max(param.opts, key=len))
    return str(param.metavar or param.name.upper()).strip("[]")


def taken(param: Any) -> str:
    """The values that an option or argument takes."""
    kind = param.type_descriptor
    if kind.choices:
        return ", ".join(map(_word_of, kind.choices))
    least, most = kind.parameter_info.min, kind.parameter_info.max
    return f"{_NUMBERS[_kind_of(param)]} from {least} to {most}"
