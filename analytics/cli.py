"""
The verbs of ``rollcall analytics``: names, options, help and exit codes.

Here: the surface. Not here: the work (``jobs``). ``cli.main`` mounts ``app``; it is a program of its own as well:
``python -m rollcall_ha.analytics.cli VERB``.

Rule 1: neither Spark nor pandas nor pyarrow is imported before a verb runs: ``--help`` answers at once, and without
the extra.
Rule 2: a job that cannot begin (``JobRefused``) is one line on stderr and exit code 2, never a traceback.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import typer

from rollcall_ha.analytics.checks.alerts import Limits
from rollcall_ha.analytics.refusals import JobRefused
from rollcall_ha.node.terminal import keep_printing

LAKE = Path("lake")
CANNOT_RUN = 2
INTERRUPTED = 130

app = typer.Typer(
    name="analytics",
    help="Spark over event journals: tables of failovers, a report, alerts, checks of the record.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Journals = Annotated[
    list[Path],
    typer.Argument(metavar="PATH", help="Journals, pages of /v1/events, or folders of journals.", show_default=False),
]
JournalsOrLake = Annotated[
    list[Path] | None,
    typer.Argument(metavar="PATH", help="Journals, or folders of journals; without any, the lake is read."),
]
LakeFolder = Annotated[Path, typer.Option("--lake", help="Folder of the tables.")]
Until = Annotated[
    str | None,
    typer.Option(help="Count up to: now, last (event of each fleet), or a UTC time; by default now, of living fleets."),
]
Full = Annotated[bool, typer.Option("--full", help="Compute everything again.")]
Master = Annotated[str, typer.Option("--master", help="Spark master, e.g. spark://host:7077.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress on stderr.")]
Answer = Annotated[Literal["table", "json"], typer.Option("-o", "--output", help="How to print the answer.")]
LOCAL = "local[*]"
_LIMITS = Limits()
_DAY_MS = 86_400_000


@contextmanager
def _job(verb: str, *, refused: type[Exception] = JobRefused) -> Iterator[None]:
    """Around a job: its ``JobRefused``, and errors of the type ``refused``, become exit code 2 (rule 2)."""
    if find_spec("pyspark") is None:
        typer.echo("rollcall: needs Spark; install it with: pip install 'rollcall-ha[analytics]'", err=True)
        raise typer.Exit(CANNOT_RUN)
    try:
        yield
    except (JobRefused, refused) as error:
        typer.echo(f"rollcall analytics {verb}: {error}", err=True)
        raise typer.Exit(CANNOT_RUN) from error
    except KeyboardInterrupt:
        typer.echo(f"rollcall analytics {verb}: interrupted; published tables stay, the next run goes on", err=True)
        raise typer.Exit(INTERRUPTED) from None


# --- the lake --------------------------------------------------------------------------------------------------------


def _add_verb(verb: str, *layers: str, help: str) -> None:  # noqa: A002 - as typer's
    """A verb that brings ``layers`` up to date: of journals if it ingests them, else of a lake that is there."""

    def of_journals(
        paths: Journals,
        *,
        lake: LakeFolder = LAKE,
        full: Full = False,
        until: Until = None,
        master: Master = LOCAL,
        quiet: Quiet = False,
        output: Answer = "table",
    ) -> None:
        if until is not None and "gold" not in layers:
            raise typer.BadParameter(f"--until {until}: gold counts, {verb} does not")
        until_ms = None if until is None else until_of(until)
        with _job(verb):
            from rollcall_ha.analytics.jobs import run as job

            job.run(
                layers,
                paths,
                lake=lake,
                is_full=full,
                until_ms=until_ms,
                master=master,
                is_quiet=quiet,
                is_json=output == "json",
            )

    def of_lake(
        *,
        lake: LakeFolder = LAKE,
        full: Full = False,
        until: Until = None,
        master: Master = LOCAL,
        quiet: Quiet = False,
        output: Answer = "table",
    ) -> None:
        of_journals([], lake=lake, full=full, until=until, master=master, quiet=quiet, output=output)

    app.command(verb, help=help)(of_journals if "ingest" in layers else of_lake)


def until_of(text: str) -> int:
    """In ms since 1970: ``now``, ``last`` (0: of each fleet its last event) or a UTC time. Raises ``BadParameter``."""
    if text == "last":
        return 0
    try:
        at = dt.datetime.now(dt.UTC) if text == "now" else dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(f"--until {text!r}: now, last, or a time as 2026-01-31T12:00") from error
    return round((at if at.tzinfo else at.replace(tzinfo=dt.UTC)).timestamp() * 1000)


_add_verb(
    "run",
    "ingest",
    "silver",
    "gold",
    help="""
    Journals into a lake: bronze, silver, gold and a summary.

    Sets without a new event keep their facts. Each layer is published as a whole: a killed run leaves the lake
    readable, and the next run goes on from there.

    Exit codes: 0 the lake is up to date; 2 nothing to read, no lake, another writer, or no Spark; 130 interrupted.
    """,
)
_add_verb("ingest", "ingest", help="Journals into bronze, and no further; exit codes as run.")
_add_verb("silver", "silver", help="Bring silver up to date with bronze; exit codes as run.")
_add_verb("gold", "gold", help="Bring gold up to date with silver. Prints the summary; exit codes as run.")


@app.command()
def copy(
    target: Annotated[
        str, typer.Argument(help="s3://BUCKET/PREFIX, with ?endpoint_override=HOST:PORT if it is not AWS's.")
    ],
    *,
    lake: LakeFolder = LAKE,
    quiet: Quiet = False,
    output: Answer = "table",
) -> None:
    """
    Copy the lake to an object store; later, what is new.

    Programs read it there.

    Readers of the copy see one snapshot or the next one, never half. The store's keys are given as to AWS's programs:
    AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile.

    Exit codes: 0 it is there; 2 no lake, another writer, another lake in the target, or a store that refuses.
    """
    with _job("copy", refused=OSError):
        from rollcall_ha.analytics.jobs import copies as job

        job.run(target, lake=lake, is_quiet=quiet, is_json=output == "json")


@app.command()
def stream(
    source: Annotated[str, typer.Argument(help="host:port,... of the controllers, or a folder of closed journals.")],
    *,
    lake: LakeFolder = LAKE,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder of the offsets that were read.", show_default="LAKE/checkpoint")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Read to the present end, then stop.")] = False,
    every_ms: Annotated[
        int, typer.Option(min=1, max=_DAY_MS, help="Pause between micro-batches, and between looks for alerts.")
    ] = 10_000,
    open_ms: Annotated[
        int, typer.Option(min=1, max=_DAY_MS, help="Alert: no serving master for so long.")
    ] = _LIMITS.open_ms,
    exposed_ms: Annotated[
        int, typer.Option(min=1, max=_DAY_MS, help="Alert: one member in sync for so long.")
    ] = _LIMITS.exposed_ms,
    flaps: Annotated[
        int, typer.Option(min=1, max=1_000, help="Alert: so many failovers of one set ...")
    ] = _LIMITS.flaps,
    flap_window_ms: Annotated[
        int, typer.Option(min=1, max=_DAY_MS, help="... within so long.")
    ] = _LIMITS.flap_window_ms,
    master: Master = LOCAL,
    quiet: Quiet = False,
) -> None:
    """
    Keep bronze and silver up to date; print alerts as JSON.

    Each alert is one line, once while it lasts.

    Alerts: a set without a serving master, a set that flaps, a set with one member in sync. A file is read once: lines
    that are appended later are missed here, and read by run. Gold is not touched: run gold at any time.

    Exit codes: 0 all was read (--once) or it was interrupted; 1 the stream failed; 2 no source, another writer, or no
    Spark.
    """
    with _job("stream"):
        from rollcall_ha.analytics.jobs import stream as job

        limits = Limits(open_ms=open_ms, exposed_ms=exposed_ms, flaps=flaps, flap_window_ms=flap_window_ms)
        try:
            code = job.run(
                source,
                lake=lake,
                checkpoint=checkpoint,
                is_once=once,
                every_ms=every_ms,
                limits=limits,
                master=master,
                is_quiet=quiet,
            )
        except KeyboardInterrupt:
            # A stream without --once has no other end: a supervisor that stops it must not see a failure.
            code = 0
        raise typer.Exit(code)


# --- answers ---------------------------------------------------------------------------------------------------------


@app.command()
def report(
    lake: Annotated[Path, typer.Argument(help="Folder of the tables, made by: rollcall analytics run.")],
    *,
    out: Annotated[Path | None, typer.Option(help="Folder of the report.", show_default="LAKE/report")] = None,
) -> None:
    """
    The lake as one page with pictures, and their tables.

    The page is HTML, the tables behind the pictures are CSV and Parquet; a summary is printed.

    The page needs a browser only, and no network.

    Exit codes: 0 written; 2 no lake, wrong use, or a folder that cannot be written.
    """
    with _job("report", refused=OSError):
        from rollcall_ha.analytics.jobs import report as job

        job.run(lake, out=out)


@app.command()
def verify(
    paths: JournalsOrLake = None, *, lake: LakeFolder = LAKE, master: Master = LOCAL, output: Answer = "table"
) -> None:
    """
    Whether the record of all fleets keeps the rules.

    Walks every hash chain, repeats every election from its evidence, and looks for epochs with two masters or two
    starts, and for epochs that fell.

    Exit codes: 0 every rule holds; 1 a rule is broken, with the places, or there was no event; 2 nothing to read, or no
    Spark.
    """
    with _job("verify"):
        from rollcall_ha.analytics.jobs import verify as job

        raise typer.Exit(job.run(paths or (), lake=lake, master=master, is_json=output == "json"))


if __name__ == "__main__":
    keep_printing()
    app(prog_name="rollcall analytics")
