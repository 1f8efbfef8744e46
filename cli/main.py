"""
The command ``rollcall``: names, options and help of every command.

Here: the surface, for groups only their names. Not here: verbs that look or order (``reads``, ``orders``), what the
others do (``run``, ``founding``), the verbs of groups (``groups`` imports them late), how answers look (``tables``,
``decisions``).
Rule: nothing heavy is imported before a command needs it; servers are reached by HTTP and exec only.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rollcall_ha import VERSION_LINE
from rollcall_ha.cli import context, messages, orders, probe, reads, run, waiting
from rollcall_ha.cli.groups import Panel, VerbGroup, Verbs, lazy
from rollcall_ha.cli.options import (
    FLEET_FILE,
    BackupOptions,
    BatchOptions,
    ConfigOption,
    DrillOptions,
    Founding,
    LogFormatOption,
    LogLevelOption,
    OperatorOptions,
    OutputOption,
    PassphraseOption,
    PlainOption,
    PlainOutput,
    SetArgument,
    takes,
    takes_order,
)
from rollcall_ha.cli.output import CommandExit, Format, fail
from rollcall_ha.cli.shells import Shell
from rollcall_ha.node.log_options import log_arguments
from rollcall_ha.node.terminal import keep_printing

app = Verbs(
    name="rollcall",
    cls=VerbGroup,
    help="High-availability control plane for replicated logs: which broker is master, why, and how to change it.",
    epilog="Exit codes: 0 done; 1 refused, with the reason; 2 wrong use; 3 no controller leads; 4 unreachable; "
    "5 outcome unknown; 6 degraded, only for status --check and doctor; 7 not permitted; 8 timed out, only for wait; "
    "141 standard output was closed.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(VERSION_LINE)
        raise typer.Exit


@app.callback()
def _options(
    *,
    controllers: Annotated[
        str,
        typer.Option(
            help="host:port,… of the controllers' REST ports; else ROLLCALL_CONTROLLERS, a context, or a fleet file."
        ),
    ] = "",
    config: Annotated[
        Path | None, typer.Option("--config", help="The fleet file: addresses, and the authority to trust.")
    ] = None,
    authority: Annotated[
        Path | None, typer.Option(help="ca.pem of the fleet; else ROLLCALL_AUTHORITY, or the fleet file's.")
    ] = None,
    identity: Annotated[
        Path | None, typer.Option(help="NAME.pem, its key beside it; else ROLLCALL_IDENTITY, or the fleet's admin.pem.")
    ] = None,
    of_context: Annotated[
        str, typer.Option("--context", help="A fleet of rollcall context list; else ROLLCALL_CONTEXT.")
    ] = "",
    version: Annotated[  # noqa: ARG001 - the callback answers before anything else is read
        bool, typer.Option("--version", help="Print the version and end.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    context.OPTIONS.controllers, context.OPTIONS.context = controllers, of_context
    context.OPTIONS.config, context.OPTIONS.authority, context.OPTIONS.identity = config, authority, identity


# --- reads -----------------------------------------------------------------------------------------------------------

for look in (reads.status, reads.sets, reads.history, reads.explain, reads.events, reads.trace, waiting.wait):
    app.command(rich_help_panel=Panel.LOOK)(look)


@app.command(rich_help_panel=Panel.LOOK)
def doctor(output: OutputOption = Format.TABLE) -> None:
    """
    Find what is wrong and its remedy, on one page for a report.

    It looks at ports, certificates, clocks, disks, versions, quorum, sets and settings. Each finding has a severity,
    both values and a remedy. The page holds no key and no token. Exit codes: 0 nothing found, or notes only; 6 a
    warning or worse; 2 wrong use.
    """
    from rollcall_ha.cli import doctor as page

    page.doctor(output)


# --- messages --------------------------------------------------------------------------------------------------------

for move in (messages.produce, messages.consume):
    app.command(rich_help_panel=Panel.MESSAGES)(move)
app.command(rich_help_panel=Panel.LOOK)(probe.probe)


# --- orders ----------------------------------------------------------------------------------------------------------


for act in orders.VERBS:
    app.command(rich_help_panel=Panel.ORDER)(act)
app.command("raise-level", rich_help_panel=Panel.MAINTAIN)(orders.raise_level)


# --- admin -----------------------------------------------------------------------------------------------------------


@app.command(rich_help_panel=Panel.INSTALL)
@takes("plan", Founding)
def init(
    *,
    directory: Annotated[Path, typer.Option(help="Where the fleet file goes.")] = Path(),
    plan: Founding,
    output: OutputOption = Format.TABLE,
) -> None:
    """Found a fleet: its identity, certificates and fleet file. Done once; it makes one bundle for each machine."""
    from rollcall_ha.cli import founding

    founding.init(directory, plan, form=output)


@app.command(rich_help_panel=Panel.MAINTAIN)
@takes("wanted", BackupOptions)
def backup(
    file: Annotated[Path, typer.Argument(help="Where it is written, with mode 0600; it must not exist.")],
    *,
    wanted: BackupOptions,
    output: OutputOption = Format.TABLE,
) -> None:
    """Write the controllers' state to a file while they run. It is the state at one index; only an admin may ask."""
    from rollcall_ha.cli import backup as taking

    taking.backup(file, wanted, output)


@app.command(rich_help_panel=Panel.MAINTAIN)
def restore(
    file: Annotated[Path, typer.Argument(help="A backup.")],
    *,
    name: Annotated[
        list[str] | None, typer.Option(help="A controller of this machine; repeat it. Without: all of the fleet file.")
    ] = None,
    config: Annotated[Path, typer.Option(help="The fleet file; it gets a new fleet.incarnation.")] = FLEET_FILE,
    token: Annotated[str, typer.Option(help="As the first machine printed it.")] = "",
    accept_fleet: Annotated[
        str, typer.Option(metavar="INCARNATION", help="The backup's, where the fleet file has another.")
    ] = "",
    passphrase_file: PassphraseOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    output: PlainOption = PlainOutput.TABLE,
) -> None:
    """
    Let new controllers begin with a backup; epochs only grow.

    They are founded and empty, and the fleet gets a new incarnation.

    Exit codes: 0 restored; 1 refused, with the reason; 2 nothing to read, or wrong use.
    """
    options = {"--config": str(config), "--token": token, "--accept-fleet": accept_fleet}
    arguments = [f"{option}={value}" for option, value in options.items() if value]
    arguments += [f"--name={one}" for one in name or ()]
    arguments += ["--dry-run"] if dry_run else []
    run.module("rollcall_ha.controller.runtime.restore", *arguments, *_common(passphrase_file, output), "--", str(file))


@app.command(rich_help_panel=Panel.MAINTAIN)
def verify(
    path: Annotated[
        Path, typer.Argument(help="A controller's data directory, its events, a file of events, a backup.")
    ],
    passphrase_file: PassphraseOption = None,
    output: PlainOption = PlainOutput.TABLE,
) -> None:
    """
    Check a record or a backup; no controller is needed.

    It checks the hash chain, that each epoch has one master, and that elections follow from their evidence.

    Exit codes: 0 every rule holds; 1 a rule is broken, with file and line; 2 nothing to read.
    """
    run.module("rollcall_ha.controller.runtime.verify", *_common(passphrase_file, output), "--", str(path))


def _common(passphrase_file: Path | None, output: PlainOutput) -> list[str]:
    found = ["--json"] if output is PlainOutput.JSON else []
    return found + ([] if passphrase_file is None else [f"--passphrase-file={passphrase_file}"])


DRY_RUN = "Print the plan and what each order would be answered."


@app.command(rich_help_panel=Panel.MAINTAIN)
@takes_order(dry_run=DRY_RUN, repeats=False)
@takes("options", BatchOptions)
def drain(
    what: Annotated[
        str, typer.Argument(metavar="HOST|BROKER", help="The host of replicas' addresses: 10.0.0.5; or one's name.")
    ],
    *,
    order: OperatorOptions,
    options: BatchOptions,
) -> None:
    """Move every master off a host or broker, by switchovers. Some sets at a time; Ctrl-C stops it."""
    from rollcall_ha.cli import moving

    moving.drain(what, order, options)


@app.command(rich_help_panel=Panel.MAINTAIN)
@takes_order(dry_run=DRY_RUN, repeats=False)
@takes("options", BatchOptions)
def rebalance(*, order: OperatorOptions, options: BatchOptions) -> None:
    """Spread masters evenly over hosts, by switchovers. Within their zones and by priority; Ctrl-C stops it."""
    from rollcall_ha.cli import moving

    moving.rebalance(order, options)


@app.command(rich_help_panel=Panel.MAINTAIN)
@takes_order(dry_run="Say whether it may begin; change nothing.", repeats=False)
@takes("options", DrillOptions)
def drill(name: SetArgument, *, order: OperatorOptions, options: DrillOptions) -> None:
    """
    Rehearse a failover, and see what clients feel of it.

    By a switchover, or with --hard by a command that stops the master. Not begun in a set that would not survive it.
    Exit codes: 0 passed; 1 refused, or not passed; 2 wrong use; 3 to 5 and 7 as of orders.
    """
    from rollcall_ha.cli import drill as rehearsal

    rehearsal.drill(name, order, options)


# --- run and play ----------------------------------------------------------------------------------------------------


def _runs(kind: str, server: str) -> None:
    """The verb that becomes a node of this kind, by exec."""

    @app.command(kind, help=f"Run a {kind} in this process.", rich_help_panel=Panel.INSTALL)
    def become(
        name: Annotated[str, typer.Argument(help="Its name in the fleet file.")],
        config: ConfigOption = FLEET_FILE,
        log_format: LogFormatOption = None,
        log_level: LogLevelOption = None,
    ) -> None:
        told = log_arguments(log_format, log_level)
        run.module(server, "--config", str(config), "--name", name, *told)


_runs("controller", "rollcall_ha.api.server")
_runs("broker", "rollcall_ha.broker.server")


@app.command("health", rich_help_panel=Panel.INSTALL)
def ask_health(
    name: Annotated[str | None, typer.Argument(help="Its name in the fleet file; by default this machine's.")] = None,
    config: ConfigOption = FLEET_FILE,
    ready: Annotated[bool, typer.Option("--ready", help="Whether it is ready, and not only alive.")] = False,
) -> None:
    """Ask a controller or broker of this machine how it is. Made for the health checks of containers."""
    from rollcall_ha.cli import health

    health.health(config, name, is_ready=ready)


for group, place, panel, text in (
    (
        "topics",
        "rollcall_ha.cli.consuming:topics",
        Panel.MESSAGES,
        "See, create, change and delete topics. They are in every set.",
    ),
    (
        "groups",
        "rollcall_ha.cli.consuming:groups",
        Panel.MESSAGES,
        "See groups of consumers: lag, members, who is stuck; reset.",
    ),
    (
        "analytics",
        "rollcall_ha.analytics.cli",
        Panel.LOOK,
        "Tables, a report and checks of all failovers, by Spark. They come from event journals.",
    ),
    (
        "maintenance",
        "rollcall_ha.cli.maintenance",
        Panel.MAINTAIN,
        "Work on a replica or host: not elected, not missed. It ends by itself.",
    ),
    (
        "controllers",
        "rollcall_ha.cli.members",
        Panel.MAINTAIN,
        "See, add, remove and replace controllers; move the lead.",
    ),
    (
        "config",
        "rollcall_ha.cli.settings",
        Panel.MAINTAIN,
        "See and change settings while the fleet runs. They are durations and limits.",
    ),
    (
        "certs",
        "rollcall_ha.cli.certs",
        Panel.MAINTAIN,
        "Issue, renew and revoke certificates. Needs the folder of the fleet's authority.",
    ),
    ("tokens", "rollcall_ha.cli.tokens", Panel.MAINTAIN, "Issue and revoke tokens for REST, of people and programs."),
    (
        "hooks",
        "rollcall_ha.cli.hooks",
        Panel.INSTALL,
        "Webhooks and commands on elections, losses, write stops. A process of its own.",
    ),
    ("context", "rollcall_ha.cli.contexts", Panel.INSTALL, "Give fleets names, by which commands find them."),
    ("import", "rollcall_ha.cli.move:imports", Panel.INSTALL, "Take sets over from RocketMQ's controllers."),
    ("export", "rollcall_ha.cli.move:exports", Panel.INSTALL, "Hand sets over to RocketMQ's controllers."),
):
    app.add_typer(lazy(place, text), name=group, rich_help_panel=panel)


@app.command(rich_help_panel=Panel.INSTALL)
def completion(shell: Annotated[Shell, typer.Argument(help="The shell that reads it.")]) -> None:
    """Print the script by which bash, zsh or fish completes words. They are commands and options."""
    from rollcall_ha.cli import shells

    typer.echo(shells.script_of(shell), nl=False)


@app.command("man", rich_help_panel=Panel.INSTALL)
def manual_pages(directory: Annotated[Path, typer.Argument(help="A folder; it is made if it is missing.")]) -> None:
    """Write the manual page of every command. Its texts are those of --help."""
    from rollcall_ha.cli import manpages

    try:
        written = manpages.write(app, directory)
    except OSError as error:
        told = f"rollcall: {directory} cannot be written: {error.strerror}; name another folder"
        raise fail(told, CommandExit.WRONG_USE) from None
    typer.echo(f"OK  {len(written)} pages in {directory}; read one: man {directory / 'rollcall.1'}")


@app.command(
    "demo",
    rich_help_panel=Panel.INSTALL,
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "help_option_names": ["--help-rollcall"],
    },
)
def run_demo(
    caller: typer.Context, verb: Annotated[str, typer.Argument(help="run, up, kill, start, stop, cont or down.")]
) -> None:
    """Play with a fleet on this machine, and see it fail over. up, kill NAME, start, stop NAME, cont NAME, down."""
    run.module("rollcall_ha.deploy.local.demo", verb, *caller.args)


def main() -> None:
    """Entry point. ``--watch`` alone means ``--watch=2s``: options with an optional value are not in typer."""
    arguments = ["--watch=2s" if argument == "--watch" else argument for argument in sys.argv[1:]]
    keep_printing()
    stdout = sys.stdout
    try:
        try:
            app(args=arguments, prog_name="rollcall")
        finally:
            # Typer, if it finds that the reader has gone, puts something else in its place, and exits with 1.
            if sys.stdout is not stdout:
                raise BrokenPipeError
            # Here, not at the interpreter's end: there a reader that has gone, as head -1, ends in a traceback.
            stdout.flush()
    except OSError as error:
        context.end_without_output(stdout, error)


if __name__ == "__main__":
    main()
