"""
The command ``rollcall probe``.

Here: its options and help. Not here: what it does (``rollcall_ha.probe``, a program of its own, reached by exec).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from rollcall_ha.cli import context, run
from rollcall_ha.cli.options import BrokerOptions, LogFormatOption, LogLevelOption, PlainOption, PlainOutput, takes
from rollcall_ha.node.log_options import log_arguments

PROGRAM = "rollcall_ha.probe"


@takes("where", BrokerOptions)
def probe(
    *,
    once: Annotated[
        float | None, typer.Option(min=1, max=86_400, metavar="SECONDS", help="So long; then print a table and end.")
    ] = None,
    directory: Annotated[Path, typer.Option(help="Of its journal; one process has it.")] = Path("probe-data"),
    metrics: Annotated[str, typer.Option(metavar="HOST:PORT", help="Of /metrics, on loopback.")] = "",
    interval_ms: Annotated[int, typer.Option(min=10, max=60_000, help="Between two messages to a set.")] = 100,
    ack_timeout_ms: Annotated[
        int | None, typer.Option(min=1, max=60_000, help="An ack after it is late; 3 intervals by default.")
    ] = None,
    threshold_ms: Annotated[
        int | None, typer.Option(min=1, max=60_000, help="A gap is longer; 3 intervals by default.")
    ] = None,
    where: BrokerOptions,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
    output: PlainOption = PlainOutput.TABLE,
) -> None:
    """
    Feel what clients feel, by tiny messages to each set.

    It runs in this process, where clients are. Times in which a set took none are lines of its journal, and metrics.

    Exit codes of --once: 0 no gap; 1 a gap; 2 wrong use; 4 no set was found.
    """
    asked = "" if where.brokers or where.name_servers else ",".join(context.controller_addresses())
    options: dict[str, object] = {
        "once-s": once,
        "directory": directory,
        "metrics": metrics,
        "interval-ms": interval_ms,
    }
    options |= {"ack-timeout-ms": ack_timeout_ms, "threshold-ms": threshold_ms, "controllers": asked}
    options |= {"brokers": where.brokers, "name-servers": where.name_servers}
    told = [*arguments_of(options), *log_arguments(log_format, log_level)]
    run.module(PROGRAM, *told, *(["--json"] if output is PlainOutput.JSON else []))


def arguments_of(options: Mapping[str, object]) -> list[str]:
    """``options`` with who asks, for the program; what is None or empty is left out. Raises ``typer.Exit`` (2)."""
    identity = context.identity()
    proof = {"authority": identity.authority, "identity": identity.certificate, "token-file": identity.token_file}
    return [f"--{name}={value}" for name, value in {**options, **proof}.items() if value not in (None, "")]
