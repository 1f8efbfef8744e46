"""
One command of RocketMQ's own admin tool, put into words that can be compared.

Here: what a step is, asking it, what of its output is noise. Not here: which steps there are (``admin`` of controllers and name
servers, ``brokers`` of brokers), the comparison (``compare``).

Rule: noise is what differs between two runs on the same side: addresses, pids, times, rates, sizes. Nothing else is taken
out; order of lines is not compared, because RocketMQ prints from hash maps.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from rollcall_ha.deploy.local.processes import DeadlineError, wait_until
from tests.interop_java.fleet import JavaFleet, Said

TRIES_MAX = 8
SHOWN_DEADLINE_S = 20.0
TIMEOUTS = ("RemotingTimeoutException", "RemotingConnectException", "RemotingSendRequestException")
NUMBER = (r"(?<![\w<.-])-?\d+(?:\.\d+)?%?(?![\w>])", "<n>")
VALUES = (r"(?m)^(\s*[^=:\s][^=:]*[:=]).*$", r"\1 <value>")
LOAD = (r"(V\w+) .* (true|false)\b", r"\1 <load> \2")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One command and what it printed."""

    label: str
    command: str
    """As typed, with names in place of addresses."""
    output: str
    """Without noise, its lines in one order."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Step:
    """One command line, in which names in braces stand for what differs between the sides."""

    label: str
    words: str
    noise: tuple[tuple[str, str], ...] = ()
    """(pattern, replacement) of this command alone."""
    file: str = ""
    """That it writes, and that belongs to what it says."""
    until: str = ""
    """What ends it, of a command that never ends."""
    shows: str = ""
    """Asked again until it shows this: name servers hear of an order a moment later than who gave it."""


def ask(
    java: JavaFleet, step: Step, places: Mapping[str, str], words: Mapping[str, str], aliases: Mapping[str, str]
) -> Asked:
    """
    What one step says.

    Args:
        java: Whose mqadmin is asked.
        step: What.
        places: Name in braces -> what is typed for it.
        words: Name in braces -> what it is called in a comparison, if not as it is typed.
        aliases: Text of an output -> the same in a comparison.
    """
    heard: list[Said] = []

    def shows() -> bool:
        heard.append(ask_patiently(java, *step.words.format(**places).split(" "), until=step.until))
        return step.shows in heard[-1].output

    with contextlib.suppress(DeadlineError):
        wait_until(shows, deadline_s=SHOWN_DEADLINE_S, what=f"{step.label} to show {step.shows}")
    said = heard[-1]
    written = [Path(step.file.format(**places))] if step.file else []
    output = "\n".join([said.output, *(path.read_text() if path.exists() else f"no {path}" for path in written)])
    return Asked(
        label=step.label,
        command=step.words.format(**{**places, **words}),
        output=normalised(output, aliases, step.noise),
        seconds=said.seconds,
    )


def ask_patiently(java: JavaFleet, *words: str, until: str = "") -> Said:
    """Again, a few times, while mqadmin's own timeout of some seconds was too short for this machine."""
    for _ in range(TRIES_MAX - 1):
        said = java.mqadmin(*words, until=until)
        if not any(trouble in said.output for trouble in TIMEOUTS):
            return said
    return java.mqadmin(*words, until=until)


_COMMON_NOISE: tuple[tuple[str, str], ...] = (
    (r"\d+\.\d+\.\d+\.\d+@\d+(#\d+)?", "<client>"),
    (r"127\.0\.0\.1:\d+", "<peer>"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d([,.:]\d+)?", "<time>"),
    (r"\b1[67]\d{11}\b", "<ms>"),
    (r"\b[0-9A-F]{32}\b", "<id>"),
    (r"(?m)^\s*at [\w.$]+\(.*\)$", "<trace>"),
    (r"(?m)^\s*\.\.\. \d+ more$", "<trace>"),
)


def normalised(text: str, aliases: Mapping[str, str], noise: tuple[tuple[str, str], ...] = ()) -> str:
    """Output with what differs between two runs taken out, one space for many, no empty lines."""
    for address in sorted(aliases, key=len, reverse=True):
        text = text.replace(address, aliases[address])
    for pattern, replacement in (*_COMMON_NOISE, *noise):
        text = re.sub(pattern, replacement, text)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    traced = [line for line in lines if line]
    return "\n".join(line for at, line in enumerate(traced) if line != "<trace>" or traced[at - 1] != "<trace>")


def lines(path: object) -> int:
    """How many a file has; 0: there is none."""
    try:
        with open(str(path), "rb") as file:
            return sum(1 for _ in file)
    except FileNotFoundError:
        return 0


def to_stderr(text: str) -> None:
    """A line about how far a run is."""
    sys.stderr.write(f"    {text}\n")
    sys.stderr.flush()
