"""
How a server's log looks: the options and variables that ``controller``, ``broker``, ``hooks`` and ``probe`` share.

Here: names, values, defaults. Not here: the lines themselves (``telemetry``); this module is light, for the CLI.
Rule: an option counts before its variable; without both, a terminal gets text from INFO on, everything else JSON.
"""

from __future__ import annotations

import argparse
import os
from enum import StrEnum
from typing import TypeVar

FORMAT_VARIABLE = "ROLLCALL_LOG_FORMAT"
LEVEL_VARIABLE = "ROLLCALL_LOG_LEVEL"
Word = TypeVar("Word", bound=StrEnum)


class LogOptionError(Exception):
    """Neither a form nor a level: a refusal of the start, and no wrong use, which a supervisor would try for ever."""


class LogFormat(StrEnum):
    """Lines for people, or one JSON object a line."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The least level of a line that is written; standard logging has the same names in capitals."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """
    ``--log-format`` (None: by standard error) and ``--log-level``.

    Of a wrong value, a variable's too, parsing raises ``LogOptionError``.
    """
    # By ``type`` and not by ``choices``: argparse holds no default against those, so a wrong variable would pass.
    parser.add_argument("--log-format", type=_format, default=os.environ.get(FORMAT_VARIABLE) or None)
    parser.add_argument("--log-level", type=_level, default=os.environ.get(LEVEL_VARIABLE) or LogLevel.INFO.value)


def log_arguments(log_format: str | None, log_level: str | None) -> list[str]:
    """The options again, for the program that a command becomes, and judges them; what was not given stays away."""
    given = {"--log-format": log_format, "--log-level": log_level}
    return [f"{option}={value}" for option, value in given.items() if value is not None]


def _format(text: str) -> LogFormat:
    return _one_of(LogFormat, text, FORMAT_VARIABLE)


def _level(text: str) -> LogLevel:
    return _one_of(LogLevel, text, LEVEL_VARIABLE)


def _one_of(words: type[Word], text: str, variable: str) -> Word:
    try:
        return words(text)
    except ValueError:
        known = ", ".join(words)
        # No ``ArgumentTypeError``: argparse ends with 2, and systemd starts the server again and again.
        raise LogOptionError(f"{text!r} is none of {known}: mend the option, or {variable}") from None
