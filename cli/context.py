"""
Where the controllers are, who asks them, and which exit code an outcome has.

Here: addresses, authority, certificate and token from options, environment, a context or a fleet file; errors of the
client as messages and exit codes. Not here: commands (``reads``, ``orders``, ``run``), texts of answers (``tables``,
``decisions``), use of certificates (``client.identity``), the file of contexts (``contexts``).

Exit codes: 0 done; 1 refused, with the reason; 2 wrong use; 3 no controller leads; 4 unreachable; 5 outcome unknown;
6 degraded, only for ``status --check`` and ``doctor``; 7 not permitted: nobody known asks, or without the role, or the
controller is not proved; 8 timed out, only for ``wait``; 141 standard output was closed by its reader.
Rule 1: a token is never an option: command lines are seen by every user of a machine.
Rule 2: options count before the environment, that before a context that is named (``--context``, ``ROLLCALL_CONTEXT``),
that before a fleet file of the current directory, and that before the context in use. The nearest counts: with ``prod``
in use, an election in the demo's directory must not be one in production.
"""

from __future__ import annotations

import getpass
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

import msgspec
import typer

from rollcall_ha.cli.output import TYPED_SHOWN_MAX, CommandExit, Format, complain, fail, wrong_use

if TYPE_CHECKING:
    from rollcall_ha.cli.contexts import Context
    from rollcall_ha.client.client import Client
    from rollcall_ha.client.errors import RefusedError
    from rollcall_ha.client.identity import Identity
    from rollcall_ha.controller.contract.ids import SetKey
    from rollcall_ha.controller.contract.views import SetPage, SetStatus
    from rollcall_ha.node.config import FleetFile

ENVIRONMENT = "ROLLCALL_CONTROLLERS"
TOKEN_VARIABLE = "ROLLCALL_TOKEN"  # noqa: S105 (the name of a variable)
OPERATOR_FILE = "admin.pem"
"""The certificate in the folder of a fleet's certificates that a caller shows who names none."""
FLEET_FILES = (Path("rollcall.toml"), Path(".demo") / "rollcall.toml")
"""Where a fleet file is looked for, in the current directory; the first that is there counts."""


class CommonOptions(msgspec.Struct):
    """Options of all commands; tests replace ``make_client``."""

    controllers: str = ""
    config: Path | None = None
    authority: Path | None = None
    identity: Path | None = None
    context: str = ""


OPTIONS = CommonOptions()


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
    From ``--controllers``, else the environment, else by rule 2.

    Raises:
        typer.Exit: none of them is there (2); the message names them.
    """
    named = OPTIONS.controllers or os.environ.get(ENVIRONMENT, "")
    if named:
        from rollcall_ha.client.addresses import with_port

        with wrong_use(ValueError):
            return tuple(with_port(address.strip()) for address in named.split(",") if address.strip())
    chosen = chosen_context()
    if chosen is not None:
        complain(f"(context {chosen.name})")
        return chosen.controllers
    found = fleet_file()
    if found is not None:
        path, fleet = found
        # Said, on standard error: an operator in the wrong directory would elect in the demo, or believe that it is
        # calm.
        complain(f"(controllers from {path})")
        return tuple(section.rest for section in fleet.controllers.values())
    raise fail(
        f"rollcall: where are the controllers? Use --controllers host:port,… or set {ENVIRONMENT}, "
        f"or name a context (rollcall context add), or work in the directory of a fleet file: "
        f"{' or '.join(map(str, FLEET_FILES))} (make demo-up).",
        CommandExit.WRONG_USE,
    )


def fleet_file() -> tuple[Path, FleetFile] | None:
    """
    That of ``--config``, else one in the current directory, the demo's last; None: there is none, or a context counts.

    Raises ``typer.Exit``: unusable (2).
    """
    path = _fleet_file_path()
    if path is None or chosen_context() is not None:
        return None
    from rollcall_ha.node.config import ConfigError, load_fleet_file

    with wrong_use(ConfigError):
        return path, load_fleet_file(path)


def _fleet_file_path() -> Path | None:
    return OPTIONS.config or next((path for path in FLEET_FILES if path.exists()), None)


def chosen_context() -> Context | None:
    """The context that counts by rule 2. Raises ``typer.Exit``: it, or the file of contexts, cannot be used (2)."""
    from rollcall_ha.cli import contexts

    named = OPTIONS.context or ("" if OPTIONS.config else os.environ.get(contexts.CONTEXT_VARIABLE, ""))
    # One says where the fleet is, and so does the other: whichever were taken, an order could go to the wrong one.
    if OPTIONS.context and OPTIONS.config is not None:
        raise fail(
            f"rollcall: --context {OPTIONS.context} and --config {OPTIONS.config} are two fleets; name one of them",
            CommandExit.WRONG_USE,
        )
    if not named and _fleet_file_path() is not None:
        return None
    with wrong_use(contexts.ContextError):
        return contexts.chosen(os.environ, named)


def identity() -> Identity:
    """
    Whom to trust and what to show: by options, else the environment, else by the context or the files beside the fleet
    file (rule 2).

    Raises ``typer.Exit``: the context or the fleet file is there and unusable (2).
    """
    from rollcall_ha.client.identity import Identity

    named = Identity.of_environment(os.environ)
    authority, certificate = OPTIONS.authority or named.authority, OPTIONS.identity or named.certificate
    chosen = chosen_context() if authority is None else None
    if chosen is not None and chosen.authority:
        # Only with its own authority, as below. A token of the environment counts before its file (``make_client``).
        return Identity(
            authority=Path(chosen.authority),
            certificate=certificate or (Path(chosen.identity) if chosen.identity else None),
            token_file=named.token_file or (Path(chosen.token_file) if chosen.token_file else None),
        )
    found = fleet_file() if authority is None or certificate is None else None
    if found is not None and found[1].tls is not None and not found[1].fleet.insecure:
        _, fleet = found
        assert fleet.tls is not None
        if authority is None:
            authority = fleet.path(fleet.tls.authority)
            beside = fleet.path(fleet.tls.directory) / OPERATOR_FILE
            # Only with its own authority: to another fleet, this certificate is a stranger's.
            if certificate is None and beside.exists():
                certificate = beside
    return Identity(authority=authority, certificate=certificate, token_file=named.token_file)


def make_client() -> Client:
    """A client of the controllers that this call is about. Raises ``typer.Exit``: wrong use (2)."""
    from rollcall_ha.client.identity import checked_token
    from rollcall_ha.node.left_out import left_out

    # httpx has a command line, too, and imports it where click is installed, with rich and pygments: a sixth of the
    # time that a command takes.
    with left_out("click"):
        from rollcall_ha.client.client import Client

    with wrong_use(ValueError):
        text = os.environ.get(TOKEN_VARIABLE, "")
        token = checked_token(text, TOKEN_VARIABLE) if text else ""
        return Client(controller_addresses(), requested_by=_user(), identity=identity(), token=token)


@contextmanager
def client(form: Format = Format.TABLE) -> Iterator[Client]:
    """A client whose errors end the command with their exit code."""
    from rollcall_ha.client.errors import BadAnswer, NoLeader, OutcomeUnknown, RefusedError, Unreachable
    from rollcall_ha.client.identity import NotTrusted

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
    except NotTrusted as error:
        raise fail(f"NOT PERMITTED  {error}", CommandExit.NOT_PERMITTED) from None
    except (Unreachable, BadAnswer) as error:
        raise fail(f"UNREACHABLE  {error}", CommandExit.UNREACHABLE) from None
    finally:
        made.close()


def _refused(error: RefusedError, form: Format) -> typer.Exit:
    from rollcall_ha.cli.decisions import refusal_report
    from rollcall_ha.cli.output import print_report

    # A program reads the refusal where it reads answers; a person's pipe must not get it as data.
    stream, shown = (sys.stdout, form) if form.is_for_programs else (sys.stderr, Format.TABLE)
    print_report(refusal_report(error.problem), shown, stream=stream)
    is_about_rights = error.problem.status in (401, 403)
    return typer.Exit(int(CommandExit.NOT_PERMITTED if is_about_rights else CommandExit.REFUSED))


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


_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def decode_duration_s(option: str, text: str, *, least: str = "100ms", most: str = "3600s") -> float:
    """``500ms``, ``2s``, ``30m``, ``2h``, ``1d``, or ``2``, which is seconds. Raises ``typer.BadParameter``."""
    seconds = _seconds(text)
    if not _seconds(least) <= seconds <= _seconds(most):
        raise typer.BadParameter(
            f"{option} is {text[:TYPED_SHOWN_MAX]!r} and takes a time from {least} to {most}, as 500ms, 2s, 30m, 2h, 1d"
        )
    return seconds


def _seconds(text: str) -> float:
    """NaN, which is in no range: it is no time."""
    digits = text.rstrip("dhms")
    try:
        return float(msgspec.convert(digits, float, strict=False) * _UNITS_S[text[len(digits) :] or "s"])
    except (msgspec.ValidationError, KeyError):
        return math.nan
