"""
The commands ``backup``, ``restore`` and ``verify``: their options.

Here: options and help. Not here: taking a backup (``backup``), restoring and judging
(``controller.runtime.restore``, ``controller.runtime.verify``), which need no controller.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rollcall_ha.cli.options import OutputOption
from rollcall_ha.cli.output import Format


class PlainOutput(StrEnum):
    """How commands print that ask no controller."""

    TABLE = "table"
    JSON = "json"


PassphraseOption = Annotated[
    Path | None, typer.Option("--passphrase-file", metavar="FILE", help="Passphrase of the encrypted backup.")
]
PlainOption = Annotated[PlainOutput, typer.Option("-o", "--output", help="How to print it.")]


def backup(
    file: Annotated[Path, typer.Argument(help="Where it is written, with mode 0600; it must not exist.")],
    *,
    by: Annotated[
        str, typer.Option("--from", metavar="NAME|HOST:PORT", help="Which controller; else the one that knows most.")
    ] = "",
    with_history: Annotated[bool, typer.Option("--with-history", help="The record of events, too.")] = False,
    with_secrets: Annotated[bool, typer.Option("--with-secrets", help="Tokens, too; the file is encrypted.")] = False,
    passphrase_file: PassphraseOption = None,
    stale: Annotated[bool, typer.Option("--stale", help="Also of a controller that hears no leader.")] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Back up the controllers' state, at one index, from any controller while it runs; an admin's."""
    from rollcall_ha.cli import backup as taking

    wanted = taking.Wanted(
        by=by, has_history=with_history, has_secrets=with_secrets, passphrase_file=passphrase_file, takes_stale=stale
    )
    taking.backup(file, wanted, output)


def restore(
    file: Annotated[Path, typer.Argument(help="A backup.")],
    *,
    name: Annotated[
        list[str] | None, typer.Option(help="A controller of this machine; repeat it. Without: all of the fleet file.")
    ] = None,
    config: Annotated[Path, typer.Option(help="The fleet file; it gets a new fleet.incarnation.")] = Path(
        "rollcall.toml"
    ),
    token: Annotated[str, typer.Option(help="As the first machine printed it.")] = "",
    accept_fleet: Annotated[
        str, typer.Option(metavar="INCARNATION", help="The backup's, where the fleet file has another.")
    ] = "",
    passphrase_file: PassphraseOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    output: PlainOption = PlainOutput.TABLE,
) -> None:
    """
    Let founded, empty controllers begin with a backup, under a new fleet incarnation; epochs only grow.

    Exit codes: 0 restored; 1 refused, with the reason; 2 nothing to read, or wrong use.
    """
    from rollcall_ha.cli import run

    options = {"--config": str(config), "--token": token, "--accept-fleet": accept_fleet}
    arguments = [f"{option}={value}" for option, value in options.items() if value]
    arguments += [f"--name={one}" for one in name or ()]
    arguments += ["--dry-run"] if dry_run else []
    run.module("rollcall_ha.controller.runtime.restore", *arguments, *_common(passphrase_file, output), "--", str(file))


def verify(
    path: Annotated[
        Path, typer.Argument(help="A controller's data directory, its events, a file of events, a backup.")
    ],
    passphrase_file: PassphraseOption = None,
    output: PlainOption = PlainOutput.TABLE,
) -> None:
    """
    Check a record or a backup without a controller: hash chain, one master per epoch, elections from their evidence.

    Exit codes: 0 every rule holds; 1 a rule is broken, with file and line; 2 nothing to read.
    """
    from rollcall_ha.cli import run

    run.module("rollcall_ha.controller.runtime.verify", *_common(passphrase_file, output), "--", str(path))


def _common(passphrase_file: Path | None, output: PlainOutput) -> list[str]:
    found = ["--json"] if output is PlainOutput.JSON else []
    return found + ([] if passphrase_file is None else [f"--passphrase-file={passphrase_file}"])
