"""
Where the controllers are, and which exit code an outcome has.

Here: addresses from option, environment or the demo's fleet file; errors of the client as messages and exit codes.
Not here: commands (``reads``, ``orders``, ``run``), texts of answers (``tables``, ``decisions``).

Exit codes: 0 done; 1 refused, with the reason; 2 wrong use; 3 no controller leads; 4 unreachable; 5 outcome unknown;
6 degraded, only for ``status --check``; 141 standard output was closed by its reader.
"""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

import msgspec
import typer

from rollcall_ha.api.cli.output import Format, harmless

if TYPE_CHECKING:
    from rollcall_ha.api.client import Client
    from rollcall_ha.api.errors import RefusedError
    from rollcall_ha.controller.contract.ids import SetKey
    from rollcall_ha.controller.contract.views import SetPage, SetStatus

ENVIRONMENT = "ROLLCALL_CONTROLLERS"
FLEET_FILES = (Path("rollcall.toml"), Path(".demo") / "rollcall.toml")
"""Where a fleet file is looked for, in the current directory; the first that is there counts."""


class CommandExit(IntEnum):
    DONE = 0
    REFUSED = 1
    WRONG_USE = 2
    NO_LEADER = 3
    UNREACHABLE = 4
    OUTCOME_UNKNOWN = 5
    DEGRADED = 6
    OUTPUT_CLOSED = 141
    """As a shell says it of a program that SIGPIPE ended: ``rollcall events | head -1``."""


@dataclass(slots=True)
class CommonOptions:
    """Options of all commands; tests replace ``make_client``."""

    controllers: str = ""


OPTIONS = CommonOptions()


def complain(message: str) -> None:
    """Lines for a human, on standard error."""
    sys.stderr.write("".join(harmless(line) + "\n" for line in message.rstrip().splitlines()))


def fail(message: str, code: CommandExit) -> typer.Exit:
    """Print the reason, and return the exception to raise."""
    complain(message)
    return typer.Exit(int(code))


def end_without_output(stdout: TextIO, error: OSError) -> NoReturn:
    """Standard output cannot be written: quietly if its reader has gone, with the reason otherwise (1)."""
    # The rest of the buffer goes nowhere: flushed again at the end, it would raise again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())
    if isinstance(error, BrokenPipeError):
        raise SystemExit(int(CommandExit.OUTPUT_CLOSED))
    complain(f"rollcall: standard output cannot be written: {error.strerror}; free space, or write elsewhere")
    raise SystemExit(int(CommandExit.REFUSED))


def controller_addresses() -> tuple[str, ...]:
    """
    From ``--controllers``, else the environment, else a fleet file in the current directory, the demo's last.

    Raises:
        typer.Exit: none of them is there (2); the message names all three.
    """
    named = OPTIONS.controllers or os.environ.get(ENVIRONMENT, "")
    if named:
        return tuple(address.strip() for address in named.split(",") if address.strip())
    found = next((path for path in FLEET_FILES if path.exists()), None)
    if found is not None:
        from rollcall_ha.node.config import ConfigError, load_fleet_file

        try:
            fleet = load_fleet_file(found)
        except ConfigError as error:
            raise fail(f"rollcall: {error}", CommandExit.WRONG_USE) from None
        # Said, on standard error: an operator in the wrong directory would elect in the demo, or believe that it is
        # calm.
        complain(f"(controllers from {found})")
        return tuple(section.rest for section in fleet.controllers.values())
    raise fail(
        f"rollcall: where are the controllers? Use --controllers host:port,… or set {ENVIRONMENT}, "
        f"or work in the directory of a fleet file: {' or '.join(map(str, FLEET_FILES))} (make demo-up).",
        CommandExit.WRONG_USE,
    )


def make_client() -> Client:
    """A client of the controllers that this call is about; the record will name the user."""
    from rollcall_ha.api.client import Client

    try:
        return Client(controller_addresses(), requested_by=_user())
    except ValueError as error:
        raise fail(f"rollcall: {error}", CommandExit.WRONG_USE) from None


@contextmanager
def client(form: Format = Format.TABLE) -> Iterator[Client]:
    """A client whose errors end the command with their exit code."""
    from rollcall_ha.api.errors import BadAnswer, NoLeader, OutcomeUnknown, RefusedError, Unreachable

    made = make_client()
    try:
        yield made
    except RefusedError as error:
        raise _refused(error, form) from None
    except OutcomeUnknown as error:
        # An exit code of its own, with the id: a script that takes it for a failure elects a second time.
        raise fail(
            f"OUTCOME UNKNOWN  request {error.request_id}: {error}\n"
            f"It may have been executed. Find out with: rollcall events --request {error.request_id}\n"
            f"or repeat it with: --request-id {error.request_id}",
            CommandExit.OUTCOME_UNKNOWN,
        ) from None
    except NoLeader as error:
        raise fail(f"NO LEADER  no controller leads: {error}\nTry: rollcall status", CommandExit.NO_LEADER) from None
    except (Unreachable, BadAnswer) as error:
        raise fail(f"UNREACHABLE  {error}", CommandExit.UNREACHABLE) from None
    finally:
        made.close()


def _refused(error: RefusedError, form: Format) -> typer.Exit:
    from rollcall_ha.api.cli.decisions import refusal_report
    from rollcall_ha.api.cli.output import print_report

    # A program reads the refusal where it reads answers; a person's pipe must not get it as data.
    is_for_programs = form in (Format.JSON, Format.YAML, Format.TSV)
    print_report(refusal_report(error.problem), form, stream=sys.stdout if is_for_programs else sys.stderr)
    return typer.Exit(int(CommandExit.REFUSED))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def find_set(page: SetPage, name: str) -> SetStatus:
    """
    The set that ``broker-a`` or ``cluster/broker-a`` means.

    Raises:
        typer.Exit: there is none, or several clusters have one of that name (2).
    """
    found = [status for status in page.sets if name in (str(status.view.set_key), status.view.set_key.name)]
    if len(found) == 1:
        return found[0]
    # Never the first of two: a clean in the wrong cluster cannot be undone.
    if found:
        names = ", ".join(str(status.view.set_key) for status in found)
        raise fail(f"rollcall: {name} is ambiguous; name the cluster too: {names}", CommandExit.WRONG_USE)
    known = ", ".join(str(status.view.set_key) for status in page.sets[:20]) or "none yet"
    raise fail(f"rollcall: no broker set {name!r}; known: {known}", CommandExit.WRONG_USE)


def set_key(asking: Client, name: str) -> SetKey:
    """Key of the set that ``name`` means; a full name is taken as it is. Raises ``typer.Exit``, ``ClientError``."""
    from rollcall_ha.controller.contract.ids import BrokerName, ClusterName, SetKey

    cluster, slash, short = name.partition("/")
    if slash:
        return SetKey(ClusterName(cluster), BrokerName(short))
    return find_set(asking.sets(consistency="local"), name).view.set_key


def decode_duration_s(text: str) -> float:
    """``2s``, ``500ms`` or ``2``. Raises ``typer.BadParameter``."""
    scale, digits = (0.001, text[:-2]) if text.endswith("ms") else (1.0, text.removesuffix("s"))
    try:
        seconds = msgspec.convert(digits, float, strict=False) * scale
    except msgspec.ValidationError:
        raise typer.BadParameter(f"{text!r} is not a duration such as 2s or 500ms") from None
    if not 0.1 <= seconds <= 3600:
        raise typer.BadParameter(f"{text!r} is not between 100ms and 3600s")
    return float(seconds)
