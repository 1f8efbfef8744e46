"""
The verbs of ``rollcall hooks``: ``python -m rollcall_ha.hooks run --file hooks.toml``.

Here: arguments, what is printed, exit codes. Not here: the work (``server``), options of the CLI
(``cli.hooks``).

Exit codes: 0 done; 1 not delivered, or nothing of that id; 2 the settings or the data directory cannot be used.
``run``: those of a server (``node.process.ExitCode``).
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import os
import secrets
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rollcall_ha.hooks.desk import Outcome
from rollcall_ha.hooks.notices import SCHEMA_VERSION, AlertNotice, trial_notice
from rollcall_ha.hooks.server import WrongFleet, letters_of, now_ms, sender_of, serve
from rollcall_ha.hooks.settings import (
    FILE_NAME,
    SECRET_PREFIX,
    HookSection,
    HooksFile,
    check_surroundings,
    load,
)
from rollcall_ha.hooks.store import DeadLetter, Store
from rollcall_ha.node.config import ConfigError
from rollcall_ha.node.files import DirectoryError
from rollcall_ha.node.log_options import LogFormat, LogLevel, LogOptionError, add_log_options
from rollcall_ha.node.process import ExitCode, StopAsked, run
from rollcall_ha.node.standard_error import say
from rollcall_ha.node.telemetry import choose_form, configure_logs, refuse_start
from rollcall_ha.node.terminal import keep_printing, print_json

REFUSED, WRONG_USE = 1, 2
SECRET_BYTES = 32
SHOWN_MAX = 1_000
LINE_BYTES_MAX = 65_536
"""A notice on standard input may have so many."""

_decode_alert = msgspec.json.Decoder(AlertNotice).decode


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    keep_printing()
    try:
        asked = _parsed(arguments)
    except LogOptionError as error:
        choose_form("hooks", None)
        return refuse_start(ExitCode.CONFIG, str(error))
    try:
        if asked.verb == "run":
            choose_form("hooks", asked.log_format)
            return _run(asked.file, asked.accept_fleet, asked.log_level, asked.log_format)
        code: int = {
            "check": _check,
            "test": _test,
            "dead-letters": _dead_letters,
            "retry": _retry,
            "take": _take,
            "secret": _secret,
        }[asked.verb](asked)
    except (ConfigError, DirectoryError) as error:
        return _fail(WRONG_USE, str(error))
    except OSError as error:
        return _fail(WRONG_USE, f"{error.filename or asked.file}: {error.strerror}")
    except sqlite3.Error as error:
        return _fail(WRONG_USE, f"the data directory of {asked.file}: {error}")
    return code


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="rollcall hooks", description="Webhooks and commands on events.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name in ("run", "check", "test", "dead-letters", "retry", "take", "secret"):
        verb = verbs.add_parser(name)
        if name == "secret":
            verb.add_argument("file", type=Path)
            continue
        verb.add_argument("--file", type=Path, default=Path(FILE_NAME))
        if name == "run":
            verb.add_argument("--accept-fleet", default="")
            add_log_options(verb)
        if name == "test":
            verb.add_argument("name")
        if name == "retry":
            verb.add_argument("identity", nargs="?")
            verb.add_argument("--all", action="store_true")
        verb.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def _fail(code: int, reason: str) -> int:
    say(f"rollcall: {reason}")
    return code


def _run(file: Path, accepts_fleet: str, level: LogLevel = LogLevel.INFO, log_format: LogFormat | None = None) -> int:
    async def life(stop: StopAsked) -> int:
        try:
            return await serve(made, accepts_fleet=accepts_fleet, stop=stop)
        except (ConfigError, WrongFleet) as error:
            return refuse_start(ExitCode.CONFIG, str(error))

    try:
        made = load(file)
        check_surroundings(made, os.environ)
        configure_logs(process="hooks", level=level, log_format=log_format)
        return run(life)
    except ConfigError as error:
        return refuse_start(ExitCode.CONFIG, str(error))
    except DirectoryError as error:
        return refuse_start(ExitCode.DIRECTORY, str(error))
    except OSError as error:
        return refuse_start(ExitCode.STORAGE, str(error))


def _check(asked: argparse.Namespace) -> int:
    made = load(asked.file)
    check_surroundings(made, os.environ)
    if asked.json:
        print_json({"file": str(asked.file), "hooks": [hook.name for hook in made.hooks]})
        return 0
    sys.stdout.write(f"OK  {asked.file}: {len(made.hooks)} hooks\n")
    for hook in made.hooks:
        goes_to = hook.url or " ".join(hook.command)
        sys.stdout.write(f"  {hook.name}: {', '.join(hook.kinds)} of {', '.join(hook.sets)} to {goes_to}\n")
    return 0


def _test(asked: argparse.Namespace) -> int:
    made = load(asked.file)
    hook = made.hook(asked.name)
    check_surroundings(made, os.environ)
    notice = trial_notice(hook.name, secrets.token_hex(8), now_ms=now_ms())
    outcome = asyncio.run(_delivered(made, hook, notice.id, msgspec.json.encode(notice)))
    if asked.json:
        print_json({"id": notice.id, "isDelivered": outcome.is_delivered, "reason": outcome.reason})
    elif outcome.is_delivered:
        sys.stdout.write(f"OK  {hook.name} took {notice.id}\n")
    else:
        sys.stdout.write(f"NOT DELIVERED  {hook.name}: {_shown(outcome.reason)}\n")
    return 0 if outcome.is_delivered else REFUSED


async def _delivered(made: HooksFile, hook: HookSection, identity: str, body: bytes) -> Outcome:
    sender = sender_of(made, hook)
    try:
        return await sender.deliver(identity, "test", body)
    finally:
        await sender.close()


def _dead_letters(asked: argparse.Namespace) -> int:
    store = _visited(asked.file)
    try:
        found = store.dead_letters(limit=SHOWN_MAX)
    finally:
        store.close()
    if asked.json:
        print_json(found)
        return 0
    sys.stdout.write(f"{len(found)} dead letters{', the oldest' if len(found) == SHOWN_MAX else ''}\n")
    sys.stdout.writelines(_line(letter) for letter in found)
    return 0


def _line(letter: DeadLetter) -> str:
    of = letter.set_key or "the fleet"
    return f"  {letter.id}  {letter.hook}  {of}  {letter.tries} tries: {_shown(letter.reason)}\n"


def _retry(asked: argparse.Namespace) -> int:
    if (asked.identity is None) != asked.all:
        raise ConfigError("name one dead letter by its id, or give --all; rollcall hooks dead-letters lists them")
    made = load(asked.file)
    store = _visited(asked.file)
    try:
        count = store.retry(asked.identity, [hook.name for hook in made.hooks], now_ms=now_ms())
    finally:
        store.close()
    if asked.json:
        print_json({"retried": count})
    else:
        sys.stdout.write(f"{'OK' if count else 'NOTHING'}  {count} dead letters wait again\n")
    return 0 if count or asked.all else REFUSED


def _take(asked: argparse.Namespace) -> int:
    """Each line is on disk before the next one is read: a pipe that breaks loses none that was taken."""
    made = load(asked.file)
    store = _visited(asked.file)
    taken = deliveries = room = 0
    try:
        while line := sys.stdin.buffer.readline(LINE_BYTES_MAX):
            letters = list(letters_of([_alert_of(line, taken + 1)], made.hooks))
            # Looked at anew when it is used up: the running process delivers meanwhile.
            if room < len(letters):
                room = made.limits.waiting_max - len(store.waiting_after(0))
            if room < len(letters):
                sys.stderr.write(
                    f"{made.limits.waiting_max - room} deliveries wait, of at most {made.limits.waiting_max}"
                    f" (limits.waiting_max): line {taken + 1} and those behind it are not taken; give them again when"
                    " rollcall hooks run has delivered\n"
                )
                return REFUSED
            store.tell(letters, now_ms=now_ms())
            taken, deliveries, room = taken + 1, deliveries + len(letters), room - len(letters)
    finally:
        store.close()
    if asked.json:
        print_json({"taken": taken, "deliveries": deliveries})
    else:
        sys.stdout.write(f"OK  {taken} notices taken, {deliveries} deliveries wait\n")
    return 0


def _alert_of(line: bytes, number: int) -> AlertNotice:
    try:
        notice = _decode_alert(line)
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"line {number} is no alert: {error}; give the output of: rollcall analytics stream"
        ) from error
    if notice.schema != SCHEMA_VERSION:
        raise ConfigError(f"line {number} has schema {notice.schema}, this program takes {SCHEMA_VERSION}")
    return notice


def _secret(asked: argparse.Namespace) -> int:
    """Never printed: a terminal keeps what it showed."""
    text = SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode() + "\n"
    descriptor = os.open(asked.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="ascii") as opened:  # noqa: PTH123 (its mode is ours from the first byte on)
        opened.write(text)
    sys.stdout.write(f"OK  {asked.file}: a new secret; give the same line to the receiver\n")
    return 0


def _visited(file: Path) -> Store:
    made = load(file)
    return Store.visit(made.path(made.data))


def _shown(text: str) -> str:
    """What a receiver answered, without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


if __name__ == "__main__":
    sys.exit(main())
