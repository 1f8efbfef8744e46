"""
Commands about certificates: issue, renew, revoke, list.

Here: which certificates a command means, where new ones go, what is shown. Not here: the authority's folder
(``issuing``), what a process does with renewed files (``node.tls``).

Rule 1: keys are made where the authority is, and written to the folder that a machine's files are copied from; each
renewal is a new key.
Rule 2: renewal in place writes one pair after the other, the key first: a process that reads half of a pair keeps its
old one.
Rule 3: nothing is signed that the folder it goes to would not trust.
Rule 4: a name is revoked with all its certificates that have not expired: a replaced one would open links, too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from rollcall_ha.cli import context
from rollcall_ha.cli.groups import Verbs
from rollcall_ha.cli.issuing import (
    AUTHORITY_DIRECTORY,
    AUTHORITY_FILE,
    CLIENT_DIRECTORY,
    MACHINES_DIRECTORY,
    OPERATOR_DIRECTORY,
    REGISTER,
    AuthorityFolder,
    found_in,
    person_name,
    read_passphrase,
    registered,
)
from rollcall_ha.cli.options import FLEET_FILE, ConfigOption, OperatorOptions, OutputOption, takes_order
from rollcall_ha.cli.orders import confirm
from rollcall_ha.cli.output import Column, CommandExit, Format, Mood, Report, Table, columns, fail, number, print_report
from rollcall_ha.controller.contract.commands import RevokeCertificate
from rollcall_ha.controller.contract.values import Value
from rollcall_ha.node.authority import AUTHORITY_DAYS, AuthorityError, FoundCertificate, Issued, read_certificate
from rollcall_ha.node.certified import CertifiedName, PeerKind, serial_text, utc_text
from rollcall_ha.node.config import FLEET_FILE_NAME, ConfigError, FleetFile, load_fleet_file
from rollcall_ha.node.credentials import node_name
from rollcall_ha.node.files import atomic_replace

app = Verbs(no_args_is_help=True, rich_markup_mode=None)
AuthorityOption = Annotated[
    Path | None, typer.Option("--authority-directory", help="Folder of ca.pem and ca.key; else authority beside it.")
]
PassphraseOption = Annotated[
    Path | None, typer.Option("--passphrase-file", help="Opens ca.key; or set ROLLCALL_AUTHORITY_PASSPHRASE.")
]
DaysOption = Annotated[int, typer.Option(min=1, max=3650, help="How long it is valid.")]
DAYS = 90
ASKING_MS_MAX = 2_000
"""How long the controllers are asked for what is revoked: the list is useful without it."""
COLUMNS: tuple[Column, ...] = columns("NAME", "KIND", "SERIAL", "EXPIRES", ">DAYS LEFT", "REVOKED?", "FILES?")


class CertificateRow(Value):
    """One certificate, as ``json`` prints it."""

    name: str
    kind: str
    serial: str
    expires_at_ms: int
    days_left: float
    """Below 0: it has expired."""
    uri: str
    """Empty: it has no name of a fleet."""
    files: tuple[str, ...] = ()
    is_revoked: bool | None = None
    """None: no controller was asked, or none answered."""


class Workshop(msgspec.Struct, frozen=True):
    """Options that these commands share."""

    config: Path
    """The fleet file."""
    authority_directory: Path | None = None
    """None: ``authority`` beside the fleet file, or beside its folder, if that is a bundle."""
    passphrase_file: Path | None = None

    def document(self) -> FleetFile:
        """Raises ``typer.Exit``."""
        try:
            return load_fleet_file(self.config)
        except ConfigError as error:
            raise fail(f"rollcall: {error}", CommandExit.WRONG_USE) from None

    def place(self) -> Path:
        """Where the authority is."""
        if self.authority_directory is not None:
            return self.authority_directory
        beside = self.config.parent / AUTHORITY_DIRECTORY
        above = self.config.resolve().parent.parent / AUTHORITY_DIRECTORY
        return above if above.is_dir() and not beside.is_dir() else beside

    def base(self) -> Path:
        """Where the bundles are, if the fleet has any."""
        return self.place().parent

    def open(self) -> AuthorityFolder:
        """Raises ``AuthorityError``."""
        return AuthorityFolder.open(self.place(), passphrase=read_passphrase(self.passphrase_file))


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
    form: OutputOption = Format.TABLE,
) -> None:
    """Certify a person or program, or a node's new machine. A node gets a new bundle, as its machine was replaced."""
    if kind and kind not in list(PeerKind):
        raise typer.BadParameter(f"--kind {kind!r} is not viewer, operator, admin or client")
    shop = Workshop(config, authority_directory, passphrase_file)
    document = shop.document()
    try:
        certified = person_name(document, PeerKind(kind), name) if kind else _known_node(document, name)
        authority = shop.open()
        issued = authority.issue(document, certified, days=days)
        folder = into if kind else _write_bundle(config, document, authority, into)
        into.mkdir(parents=True, exist_ok=True)
        issued.write(folder / f"{name}.pem", folder / f"{name}.key")
    except (AuthorityError, OSError) as error:
        raise _failed(error) from None
    row = _row_of_issued(issued, (folder / f"{name}.pem",))
    _print((row,), form, f"OK  {certified} until {utc_text(issued.expires_at_ms)}: {folder / name}.pem and .key")


def _known_node(document: FleetFile, name: str) -> CertifiedName:
    certified = node_name(document, name)
    if certified is None:
        nodes = ", ".join((*document.controllers, *document.brokers)) or "none"
        raise AuthorityError(f"{name} is no node of the fleet file (it has: {nodes}); for a person give --kind")
    return certified


def _write_bundle(config: Path, document: FleetFile, authority: AuthorityFolder, into: Path) -> Path:
    """Fleet file and authority of a machine whose files are lost; its folder for certificates."""
    # No mark of founding: a controller that had voted, and lost its disk, must not vote as if it were new.
    assert document.tls is not None
    tls = into / document.tls.directory
    tls.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic_replace(into / FLEET_FILE_NAME, config.read_bytes(), mode=0o644)
    atomic_replace(into / document.tls.authority, authority.certificate, mode=0o644)
    return tls


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
    form: OutputOption = Format.TABLE,
) -> None:
    """Make new keys and certificates of the same names. Processes take them while they run."""
    shop = Workshop(config, authority_directory, passphrase_file)
    document = shop.document()
    if is_all == bool(names):
        raise fail("rollcall: name certificates, or say --all, not both", CommandExit.WRONG_USE)
    rows: list[CertificateRow] = []
    try:
        wanted = _wanted(document, shop.base(), names or (), into)
        authority = shop.open()
        for folder in {folder for folders in wanted.values() for folder in folders}:
            _require_trust(folder / AUTHORITY_FILE, authority, shop.place())
        for certified, folders in wanted.items():
            for folder in folders:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                file = folder / f"{certified.name}.pem"
                issued = authority.issue(document, certified, days=days)
                issued.write(file, file.with_suffix(".key"))
                rows.append(_row_of_issued(issued, (file,)))
    except (AuthorityError, OSError) as error:
        raise _failed(error) from None
    line = f"OK  renewed {len(rows)}; a running process takes the new files on its disk within 1 s"
    _print(rows, form, line, *_copying(shop.base(), rows))


def _wanted(
    document: FleetFile, base: Path, names: Sequence[str], into: Path | None
) -> dict[CertifiedName, tuple[Path, ...]]:
    """Which certificates to make, and the folders that they go to. Raises ``AuthorityError``."""
    held: dict[CertifiedName, tuple[Path, ...]] = {}
    for found in _held(document, base):
        certified = _name_of(document, found)
        if certified is not None:
            held[certified] = (*held.get(certified, ()), found.file.parent)
    if names:
        missing = [name for name in names if all(name not in (one.name, str(one)) for one in held)]
        if missing:
            raise AuthorityError(
                f"no certificate of {', '.join(missing)} lies here with its key; there are: "
                f"{', '.join(sorted(one.name for one in held)) or 'none'}; rollcall certs issue makes a first one"
            )
        held = {one: folders for one, folders in held.items() if one.name in names or str(one) in names}
    return dict.fromkeys(held, (into,)) if into is not None else held


def _held(document: FleetFile, base: Path) -> Iterator[FoundCertificate]:
    """Certificates with their keys, in the fleet's own folder and in its bundles."""
    for folder in certificate_folders(document, base):
        yield from (found for found in found_in(folder) if found.file.with_suffix(".key").exists())


def certificate_folders(document: FleetFile, base: Path) -> tuple[Path, ...]:
    """Those that are there: the fleet file's own, and those of the bundles that ``init`` laid out beside it."""
    if document.tls is None:
        return ()
    inner = document.tls.directory
    bundles = (*sorted((base / MACHINES_DIRECTORY).glob("*")), base / OPERATOR_DIRECTORY, base / CLIENT_DIRECTORY)
    folders = (document.path(inner), *(bundle / inner for bundle in bundles))
    return tuple(dict.fromkeys(folder for folder in folders if folder.is_dir()))


def _name_of(document: FleetFile, found: FoundCertificate) -> CertifiedName | None:
    """Whom a certificate is for by today's fleet file; None: nobody of this fleet."""
    node = node_name(document, found.file.stem)
    if node is not None:
        return node
    return found.name if found.name is not None and found.name.fleet == document.fleet.name else None


def _require_trust(file: Path, authority: AuthorityFolder, place: Path) -> None:
    """Raises ``AuthorityError``: who trusts ``file`` would refuse what this authority signs."""
    if file.exists() and authority.certificate.strip() not in file.read_bytes():
        raise AuthorityError(
            f"{file} does not trust the authority in {place}; add that one's {AUTHORITY_FILE} to it on every machine, "
            "let every process take it, and renew then"
        )


def _copying(base: Path, rows: Sequence[CertificateRow]) -> Iterator[str]:
    """Which files go where, if they were written into bundles."""
    machines = base / MACHINES_DIRECTORY
    folders = {Path(file).parent for row in rows for file in row.files}
    for folder in sorted(folders):
        if folder.is_relative_to(machines):
            machine = folder.relative_to(machines).parts[0]
            yield f"Next: copy {folder}/* to the folder {folder.name} of machine {machine}"


@app.command()
@takes_order(dry_run="", repeats=False)
def revoke(
    whose: Annotated[
        str, typer.Argument(metavar="SERIAL|NAME|FILE.pem", help="A name stands for all that have not expired.")
    ],
    *,
    order: OperatorOptions,
    config: ConfigOption = FLEET_FILE,
    authority_directory: AuthorityOption = None,
) -> None:
    """Have a certificate believed no longer, anywhere. Every node hears of it, and closes its links within 2 s."""
    shop = Workshop(config, authority_directory)
    try:
        rows = _meant(shop, whose)
    except AuthorityError as error:
        raise _failed(error) from None
    whom = ", ".join(f"{row.serial} of {row.uri or row.name or 'nobody known here'}" for row in rows)
    confirm(f"Revoke {whom}? There is no way back; a new certificate is needed then.", order)
    _work_as_operator(shop)
    done = []
    with context.client(order.form) as asking:
        for row in rows:
            asking.order(
                RevokeCertificate(serial=row.serial, name=row.uri, expires_at_ms=row.expires_at_ms, reason=order.reason)
            )
            done.append(msgspec.structs.replace(row, is_revoked=True))
    _print(done, order.form, f"OK  revoked {len(done)}; every node closes their links within 2 s")


def _meant(shop: Workshop, whose: str) -> list[CertificateRow]:
    """What ``whose`` stands for, and has not expired. Raises ``AuthorityError``."""
    if whose.endswith(".pem"):
        return [_row_of_found([read_certificate(Path(whose))])]
    known = [row for row in _known(shop) if row.days_left > 0]
    found = [row for row in known if whose in (row.serial, row.uri, row.name)]
    names = sorted({row.uri for row in found})
    if len(names) > 1:
        raise AuthorityError(f"{whose} is ambiguous; give one of: {', '.join(names)}, or a serial number")
    if not found and re.fullmatch(r"[0-9A-Fa-f]{8,40}", whose):
        # Its file is gone with its machine, and another authority may have signed it. Nobody knows when it expires: it
        # is kept for as long as an authority lives.
        ends_ms = int(time.time() * 1000) + AUTHORITY_DAYS * 86_400_000
        row = CertificateRow(
            name="", kind="", serial=serial_text(whose), expires_at_ms=ends_ms, days_left=_days_left(ends_ms), uri=""
        )
        return [row]
    if not found:
        names = sorted({row.name for row in known})
        raise AuthorityError(
            f"no certificate of {whose} is known here that has not expired; there are: {', '.join(names) or 'none'}. "
            "Give a name, a serial number or a file NAME.pem"
        )
    return found


def _work_as_operator(shop: Workshop) -> None:
    """Have the client trust and show the files of the fleet, or of its operator's bundle."""
    operator = shop.base() / OPERATOR_DIRECTORY / FLEET_FILE_NAME
    if context.OPTIONS.config is None:
        context.OPTIONS.config = operator if operator.is_file() else shop.config


@app.command("list")
def show(
    *,
    config: ConfigOption = FLEET_FILE,
    authority_directory: AuthorityOption = None,
    form: OutputOption = Format.TABLE,
) -> None:
    """Every certificate: serial, expiry, files, whether revoked. What was signed, and what lies here."""
    shop = Workshop(config, authority_directory)
    rows = _known(shop)
    revoked = _revoked(shop)
    if revoked is not None:
        rows = [msgspec.structs.replace(row, is_revoked=row.serial in revoked) for row in rows]
    expired = sum(row.days_left < 0 for row in rows)
    line = f"OK  {len(rows)} certificates" + (f", {expired} of them expired" if expired else "")
    _print(
        rows,
        form,
        line,
        *(() if revoked is not None else ("What is revoked is not known: no controller said it.",)),
    )


def _revoked(shop: Workshop) -> frozenset[str] | None:
    """Serial numbers, by any controller's word; None: none answered, or none may be asked from here."""
    from rollcall_ha.client.client import Client
    from rollcall_ha.client.errors import ClientError

    _work_as_operator(shop)
    try:
        with Client(context.controller_addresses(), identity=context.identity(), limit_ms=ASKING_MS_MAX) as asking:
            return frozenset(one.serial for one in asking.certificates(consistency="local").revoked)
    except (ClientError, ValueError):
        return None


def _known(shop: Workshop) -> list[CertificateRow]:
    """What lies here and what is registered, the first to expire first. Raises ``typer.Exit``."""
    found: dict[str, list[FoundCertificate]] = {}
    for folder in certificate_folders(shop.document(), shop.base()):
        for one in found_in(folder):
            found.setdefault(one.serial, []).append(one)
    for one in registered(shop.place()):
        found.setdefault(one.serial, [one])
    return sorted((_row_of_found(same) for same in found.values()), key=lambda row: (row.expires_at_ms, row.name))


def _row_of_found(same: Sequence[FoundCertificate]) -> CertificateRow:
    one = same[0]
    return CertificateRow(
        name=one.name.name if one.name else one.subject,
        kind=one.name.kind.value if one.name else "",
        serial=one.serial,
        expires_at_ms=one.expires_at_ms,
        days_left=_days_left(one.expires_at_ms),
        uri=str(one.name or ""),
        # The register's own copy is no file that a process reads.
        files=tuple(str(found.file) for found in same if found.file.parent.name != REGISTER),
    )


def _row_of_issued(issued: Issued, files: Iterable[Path]) -> CertificateRow:
    return CertificateRow(
        name=issued.name.name,
        kind=issued.name.kind.value,
        serial=issued.serial,
        expires_at_ms=issued.expires_at_ms,
        days_left=_days_left(issued.expires_at_ms),
        uri=str(issued.name),
        files=tuple(map(str, files)),
    )


def _days_left(expires_at_ms: int) -> float:
    return round((expires_at_ms - time.time() * 1000) / 86_400_000, 1)


def _print(rows: Iterable[CertificateRow], form: Format, verdict: str, *footers: str) -> None:
    rows = tuple(rows)
    revoked = {True: "yes", False: "no", None: ""}
    lines = tuple(
        (
            row.name,
            row.kind or "-",
            row.serial,
            utc_text(row.expires_at_ms),
            number(int(row.days_left)),
            revoked[row.is_revoked],
            ", ".join(row.files),
        )
        for row in rows
    )
    parts: tuple[str | Table, ...] = (Table(columns=COLUMNS, rows=lines, leaving=("SERIAL", "KIND", "FILES")), *footers)
    names = tuple(row.name for row in rows)
    print_report(Report(document=rows, verdict=verdict, mood=Mood.GOOD, parts=parts, names=names), form)


def _failed(error: AuthorityError | OSError) -> Exception:
    if isinstance(error, AuthorityError):
        return fail(f"rollcall: {error}", CommandExit.WRONG_USE)
    return fail(
        f"rollcall: {error.filename}: {error.strerror}; choose a folder that can be written", CommandExit.WRONG_USE
    )
