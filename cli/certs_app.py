"""
``rollcall certs``: names, options and help of its verbs.

Here: the surface. Not here: what they do (``certs``).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollcall_ha.cli.options import FLEET_FILE, ConfigOption, OperatorOptions, OutputOption, takes_order
from rollcall_ha.cli.output import Format

if TYPE_CHECKING:
    from rollcall_ha.cli.certs import Workshop

app = typer.Typer(
    help="Certificates of nodes, people and programs; needs the folder of the fleet's authority.",
    rich_markup_mode=None,
    no_args_is_help=True,
)
AuthorityOption = Annotated[
    Path | None, typer.Option("--authority-directory", help="Folder of ca.pem and ca.key; else authority beside it.")
]
PassphraseOption = Annotated[
    Path | None, typer.Option("--passphrase-file", help="Of ca.key; or set ROLLCALL_AUTHORITY_PASSPHRASE.")
]
DaysOption = Annotated[int, typer.Option(min=1, max=3650, help="How long it is valid.")]
DAYS = 90


def _workshop(config: Path, authority_directory: Path | None, passphrase_file: Path | None, output: Format) -> Workshop:
    from rollcall_ha.cli.certs import Workshop

    return Workshop(
        config=config, authority_directory=authority_directory, passphrase_file=passphrase_file, form=output
    )


@app.command()
def issue(
    name: Annotated[str, typer.Argument(help="A node of the fleet file; with --kind a person or program.")],
    *,
    kind: Annotated[str, typer.Option(help="viewer, operator, admin or client.")] = "",
    days: DaysOption = DAYS,
    into: Annotated[Path, typer.Option(help="Folder for NAME.pem and NAME.key; of a node, for its bundle.")] = Path(),
    config: ConfigOption = FLEET_FILE,
    authority_directory: AuthorityOption = None,
    passphrase_file: PassphraseOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """A first certificate for a person or program, or a new bundle for a node whose machine was replaced."""
    from rollcall_ha.cli import certs
    from rollcall_ha.node.certified import PeerKind

    if kind and kind not in list(PeerKind):
        raise typer.BadParameter(f"--kind {kind!r} is not viewer, operator, admin or client")
    shop = _workshop(config, authority_directory, passphrase_file, output)
    certs.issue(shop, name, kind=PeerKind(kind) if kind else None, days=days, into=into)


@app.command()
def renew(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME…]")] = None,
    *,
    is_all: Annotated[bool, typer.Option("--all", help="Every certificate that lies here with its key.")] = False,
    days: DaysOption = DAYS,
    into: Annotated[Path | None, typer.Option(help="Write NAME.pem and NAME.key here, not in their places.")] = None,
    config: ConfigOption = FLEET_FILE,
    authority_directory: AuthorityOption = None,
    passphrase_file: PassphraseOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """New keys and certificates of the same names; processes take them while they run."""
    from rollcall_ha.cli import certs

    shop = _workshop(config, authority_directory, passphrase_file, output)
    certs.renew(shop, names or (), is_all=is_all, days=days, into=into)


@app.command()
@takes_order(dry_run="", repeats=False)
def revoke(
    whose: Annotated[str, typer.Argument(metavar="SERIAL|NAME|FILE.pem", help="Of a name: all that have not expired.")],
    *,
    order: OperatorOptions,
    config: ConfigOption = FLEET_FILE,
    authority_directory: AuthorityOption = None,
) -> None:
    """Have a certificate believed no longer: the controllers tell every node, which closes its links within 2 s."""
    from rollcall_ha.cli import certs

    certs.revoke(_workshop(config, authority_directory, None, order.form), whose, order)


@app.command("list")
def list_all(
    *,
    config: ConfigOption = FLEET_FILE,
    authority_directory: AuthorityOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """What the authority has signed, and what lies here: serial, expiry, files, and whether it is revoked."""
    from rollcall_ha.cli import certs

    certs.show(_workshop(config, authority_directory, None, output))
