"""
Contexts: fleets by name, with their addresses and the caller's files, in one file of the user.

Here: the file, and the commands ``rollcall context``. Not here: which of option, environment, context and fleet file
counts (``context``), what the named files hold (``client.identity``).

Rule 1: it names files of credentials, and holds none: a copy of it opens nothing. It says where to find all of them,
so it is for its owner alone (0600), and refused when others can read it.
Rule 2: nothing of it is used in silence: a command says on standard error which context it takes.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from rollcall_ha.cli.groups import Verbs
from rollcall_ha.cli.options import OutputOption
from rollcall_ha.cli.output import Format, Mood, Report, Table, columns, print_report, wrong_use
from rollcall_ha.controller.contract.values import Value

FILE_VARIABLE = "ROLLCALL_CONTEXTS"
CONTEXT_VARIABLE = "ROLLCALL_CONTEXT"
FILE_VERSION = 1
CONTEXTS_MAX = 1_000
app = Verbs(no_args_is_help=True, rich_markup_mode=None)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the context.")]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class ContextError(ValueError):
    """The contexts cannot be used; the message names the file, the reason and the remedy."""


class Context(Value, forbid_unknown_fields=True):
    """One fleet. Paths are absolute, or empty where there is none."""

    name: str
    controllers: tuple[str, ...]
    """host:port of REST ports."""
    authority: str = ""
    identity: str = ""
    """PEM of the caller's certificate, its key beside it."""
    token_file: str = ""


class Contexts(Value, forbid_unknown_fields=True):
    """The whole file."""

    version: int = FILE_VERSION
    current: str = ""
    """Empty: none is in use."""
    contexts: tuple[Context, ...] = ()

    def find(self, name: str) -> Context | None:
        return next((one for one in self.contexts if one.name == name), None)


_decode = msgspec.json.Decoder(Contexts).decode


def contexts_file(variables: Mapping[str, str]) -> Path:
    """``ROLLCALL_CONTEXTS``, else below ``XDG_CONFIG_HOME``, else below the home directory."""
    if named := variables.get(FILE_VARIABLE):
        return Path(named)
    base = variables.get("XDG_CONFIG_HOME") or ""
    # As XDG says: a relative one is not valid. Taken, each working directory would have contexts of its own.
    try:
        folder = Path(base) if base.startswith("/") else Path(variables.get("HOME") or "~").expanduser() / ".config"
    except RuntimeError:
        # A user id that an orchestrator has drawn, and no HOME: nobody has contexts.
        folder = Path("/nonexistent")
    return folder / "rollcall" / "contexts.json"


def load(file: Path) -> Contexts:
    """What the file holds; nothing if there is none. Blocks. Raises ``ContextError``."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except OSError as error:
        raise ContextError(f"{file} cannot be read: {error.strerror}") from error
    with open(descriptor, "rb") as opened:  # noqa: PTH123 (judged and read is the same file)
        judged = os.fstat(descriptor)
        # Whoever could write it would send this user's certificate, or token, to a controller of his own.
        if judged.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            mode = stat.S_IMODE(judged.st_mode)
            raise ContextError(f"{file} has mode {mode:04o}, so others can use it; it must be 0600: chmod 600 {file}")
        if judged.st_uid not in (os.geteuid(), 0):
            raise ContextError(f"{file} belongs to user {judged.st_uid}, and you are {os.geteuid()}; make your own")
        content = opened.read()
    try:
        found = _decode(content)
    except msgspec.MsgspecError as error:
        raise ContextError(f"{file}: {error}; correct it, or remove it and add the contexts again") from error
    if found.version != FILE_VERSION:
        raise ContextError(f"{file} has version {found.version}, this program reads version {FILE_VERSION}")
    return found


def store(file: Path, contexts: Contexts) -> None:
    """Durable on return, for its owner alone. Raises ``ContextError``."""
    from rollcall_ha.node.files import atomic_replace

    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        text = msgspec.json.format(msgspec.json.encode(contexts), indent=2)
        atomic_replace(file, text + b"\n", mode=0o600)
    except OSError as error:
        raise ContextError(f"{file} cannot be written: {error.strerror}; name another with {FILE_VARIABLE}") from error


def chosen(variables: Mapping[str, str], wanted: str = "") -> Context | None:
    """
    The context that this call is in: ``wanted``, else ``ROLLCALL_CONTEXT``, else the one in use; None: in none.

    Blocks. Raises ``ContextError``.
    """
    file = contexts_file(variables)
    found = load(file)
    name = wanted or variables.get(CONTEXT_VARIABLE, "") or found.current
    if not name:
        return None
    return _require(found, name, file)


def _require(known: Contexts, name: str, file: Path) -> Context:
    """The context of that name. Raises ``ContextError``."""
    found = known.find(name)
    if found is None:
        raise ContextError(f"{file} has no context {name!r}; it has: {_names(known)}")
    return found


# --- commands --------------------------------------------------------------------------------------------------------


@app.command()
def add(
    name: NameArgument,
    *,
    controllers: Annotated[str, typer.Option(help="host:port,… of the controllers' REST ports.")],
    authority: Annotated[Path | None, typer.Option(help="ca.pem of the fleet.")] = None,
    identity: Annotated[Path | None, typer.Option(help="NAME.pem, its key beside it.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="As rollcall tokens issue --out wrote it.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Also if there is one of that name.")] = False,
    form: OutputOption = Format.TABLE,
) -> None:
    """Remember where a fleet is, and who asks it. The first one is in use at once."""
    with wrong_use(ValueError):
        made = _made(name, controllers, authority=authority, identity=identity, token_file=token_file)
        file = contexts_file(os.environ)
        known = load(file)
        # Replaced without a word, "prod" would be another fleet tomorrow.
        if known.find(name) is not None and not replace:
            raise ContextError(f"{file} has a context {name!r}; replace it with --replace, or take another name")
        others = tuple(one for one in known.contexts if one.name != name)
        if len(others) >= CONTEXTS_MAX:
            raise ContextError(f"{file} has {len(others)} contexts, which is the limit; remove one")
        kept = tuple(sorted((*others, made), key=lambda one: one.name))
        store(file, msgspec.structs.replace(known, contexts=kept, current=known.current or name))
    line = f"OK  context {name}: {', '.join(made.controllers)}"
    print_report(Report(document=made, verdict=line, mood=Mood.GOOD, names=(name,)), form)


def _made(
    name: str, controllers: str, *, authority: Path | None, identity: Path | None, token_file: Path | None
) -> Context:
    """Checked, so that a slip shows up now and not in the middle of an outage. Raises ``ValueError``."""
    from rollcall_ha.client.addresses import with_port
    from rollcall_ha.client.identity import Identity

    if not _NAME.fullmatch(name):
        raise ContextError(f"{name!r} is no name of a context: up to 64 letters, digits, and . _ - behind the first")
    addresses = tuple(one.strip() for one in controllers.split(",") if one.strip())
    if not addresses:
        raise ContextError("name the controllers: --controllers host:port,…")
    for address in addresses:
        with_port(address)
    # Absolute: used from another directory, a relative one would be another file, or none.
    files = [None if path is None else path.absolute() for path in (authority, identity, token_file)]
    found = Identity(authority=files[0], certificate=files[1], token_file=files[2])
    found.context()
    found.token()
    return Context(
        name=name,
        controllers=addresses,
        authority=str(files[0] or ""),
        identity=str(files[1] or ""),
        token_file=str(files[2] or ""),
    )


@app.command()
def use(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Name of the context.")] = "",
    *,
    none: Annotated[bool, typer.Option("--none", help="No context from now on.")] = False,
    form: OutputOption = Format.TABLE,
) -> None:
    """Take this context for the following commands."""
    if none == bool(name):
        raise typer.BadParameter("name a context, or say --none")
    with wrong_use(ValueError):
        file = contexts_file(os.environ)
        known = load(file)
        if not none:
            _require(known, name, file)
        store(file, msgspec.structs.replace(known, current=name))
    line = "OK  no context is in use" if none else f"OK  context {name} is in use"
    print_report(Report(document={"current": name}, verdict=line, mood=Mood.GOOD), form)


@app.command()
def remove(name: NameArgument, form: OutputOption = Format.TABLE) -> None:
    """Forget a context. Its certificates and tokens stay where they are."""
    with wrong_use(ValueError):
        file = contexts_file(os.environ)
        known = load(file)
        _require(known, name, file)
        kept = tuple(one for one in known.contexts if one.name != name)
        # Never the next one in its place: the following command would go to a fleet that nobody named.
        current = "" if known.current == name else known.current
        store(file, msgspec.structs.replace(known, contexts=kept, current=current))
    line = f"OK  context {name} is removed; its certificates and tokens lie where they were"
    print_report(Report(document={"removed": name}, verdict=line, mood=Mood.GOOD), form)


@app.command("list")
def show(form: OutputOption = Format.TABLE) -> None:
    """All contexts, and which one is in use."""
    with wrong_use(ValueError):
        file = contexts_file(os.environ)
        known = load(file)
    current = os.environ.get(CONTEXT_VARIABLE, "") or known.current
    rows = tuple(
        (
            "*" if one.name == current else "",
            one.name,
            ", ".join(one.controllers),
            one.authority,
            one.identity,
            one.token_file,
        )
        for one in known.contexts
    )
    titles = columns("NOW", "CONTEXT", "CONTROLLERS", "AUTHORITY?", "IDENTITY?", "TOKEN FILE?")
    verdict = f"{len(rows)} contexts in {file}"
    names = tuple(one.name for one in known.contexts)
    parts = (
        (Table(columns=titles, rows=rows),) if rows else ("Add one: rollcall context add NAME --controllers host:port",)
    )
    print_report(Report(document=known, verdict=verdict, parts=parts, names=names), form)


def _names(known: Contexts) -> str:
    return ", ".join(one.name for one in known.contexts) or "none; add one: rollcall context add"
