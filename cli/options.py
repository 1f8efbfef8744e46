"""
Options that several commands share, in one wording.

Here: each option once, and those of every order as one value (``takes_order``). Not here: names and help of commands
(``main``, and for groups their modules), what they do (``orders`` and others).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from enum import StrEnum
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer

from rollcall_ha.cli.output import Format
from rollcall_ha.controller.contract.ids import BrokerId, MasterEpoch, RequestId
from rollcall_ha.controller.contract.values import Frozen

FLEET_FILE = Path("rollcall.toml")

SetArgument = Annotated[str, typer.Argument(metavar="SET", help="broker-a, or cluster/broker-a.")]
ConfigOption = Annotated[Path, typer.Option("--config", help="The fleet file.")]
OutputOption = Annotated[Format, typer.Option("-o", "--output", help="How to print the answer.")]
WatchOption = Annotated[
    str | None,
    typer.Option("--watch", metavar="[=2s]", help="Print again and again; alone it means every 2 s."),
]
LastingOption = Annotated[str, typer.Option("--for", metavar="TIME", help="How long: 30m, 2h, at most 7d.")]
PassphraseOption = Annotated[
    Path | None, typer.Option("--passphrase-file", metavar="FILE", help="Passphrase of the encrypted backup.")
]
LagOption = Annotated[int, typer.Option("--max-lag", metavar="BYTES", help="Refuse a target that is further behind.")]


class PlainOutput(StrEnum):
    """How commands print that ask no controller."""

    TABLE = "table"
    JSON = "json"


PlainOption = Annotated[PlainOutput, typer.Option("-o", "--output", help="How to print it.")]


class OperatorOptions(Frozen):
    """Options that orders share."""

    form: Format
    expected_master: BrokerId | None = None
    expected_epoch: MasterEpoch | None = None
    reason: str = ""
    is_dry_run: bool = False
    is_confirmed: bool = False
    request_id: RequestId | None = None


Command = Callable[..., None]


def _option(name: str, kind: Any, default: object, *flags: str, help: str) -> Parameter:  # noqa: A002 - as typer's
    annotation = Annotated[kind, typer.Option(*flags, help=help)]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


_EXPECT_MASTER = _option(
    "expected_master", int | None, None, "--expect-master", help="Refuse unless this broker is master."
)
_EXPECT_EPOCH = _option(
    "expected_epoch", int | None, None, "--expect-epoch", help="Refuse unless this is the masterEpoch."
)
_REASON = _option("reason", str, "", help="Goes into the record.")
_YES = _option("yes", bool, False, "--yes", help="Do not ask.")
_REQUEST_ID = _option(
    "request_id", str | None, None, help="Repeat a request whose outcome is unknown; it never executes twice."
)
_OUTPUT = Parameter("output", Parameter.KEYWORD_ONLY, default=Format.TABLE, annotation=OutputOption)
_FIELDS = {"dry_run": "is_dry_run", "yes": "is_confirmed", "output": "form"}
"""Fields of ``OperatorOptions`` that are not named as their options."""


def takes_order(
    *,
    expects: bool = False,
    reason: bool = True,
    dry_run: str = "Say what would happen; change nothing.",
    yes: bool = True,
    repeats: bool = True,
) -> Callable[[Command], Command]:
    """
    A command whose parameter ``order`` is an ``OperatorOptions``: its options stand behind the command's own.

    Args:
        expects: It has ``--expect-master`` and ``--expect-epoch``.
        reason: It has ``--reason``.
        dry_run: Help of ``--dry-run``; empty: it has none.
        yes: It has ``--yes``.
        repeats: It has ``--request-id``.
    """
    offered = (
        (_EXPECT_MASTER, expects),
        (_EXPECT_EPOCH, expects),
        (_REASON, reason),
        (_option("dry_run", bool, False, "--dry-run", help=dry_run), dry_run),
        (_YES, yes),
        (_REQUEST_ID, repeats),
        (_OUTPUT, True),
    )
    shared = [option for option, is_taken in offered if is_taken]

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(**given: Any) -> None:
            order = {_FIELDS.get(one.name, one.name): given.pop(one.name) for one in shared}
            command(**given, order=OperatorOptions(**order))

        signature = inspect.signature(command, eval_str=True)
        own = [one for one in signature.parameters.values() if one.name != "order"]
        # Typer reads both: the options of the signature, and the types of the annotations.
        run.__signature__ = signature.replace(parameters=[*own, *shared])  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in (*own, *shared)}
        return run

    return decorate
