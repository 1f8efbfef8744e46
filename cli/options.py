"""
Options that several commands share, in one wording, and those that a command hands on as one value.

Here: each option once, those of every order (``takes_order``), values whose fields are options (``takes``). Not here:
names and help of commands (``main``, and for groups their modules), what they do (``orders`` and others).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from enum import StrEnum
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
import typer

from rollcall_ha.cli.output import Format
from rollcall_ha.controller.contract.commands import (
    SWITCHOVER_DEADLINE_MS,
    SWITCHOVER_DEADLINE_MS_MAX,
    SWITCHOVER_DEADLINE_MS_MIN,
    SWITCHOVER_LAG_BYTES,
)
from rollcall_ha.controller.contract.ids import MasterEpoch, RequestId
from rollcall_ha.controller.contract.settings import RETENTION_HOURS_MAX
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.epoch.codec import NUMBER_MAX
from rollcall_ha.node.segments import FOUNDED_BYTES_MIN, SEGMENT_BYTES_MAX

FLEET_FILE = Path("rollcall.toml")

SetArgument = Annotated[str, typer.Argument(metavar="SET", help="broker-a, or cluster/broker-a.")]
LogFormatOption = Annotated[
    str | None,
    typer.Option(
        metavar="text|json", help="How the log looks; else ROLLCALL_LOG_FORMAT; text on a terminal, json else."
    ),
]
LogLevelOption = Annotated[
    str | None,
    typer.Option(
        metavar="debug|info|warning|error", help="The least level that is written; else ROLLCALL_LOG_LEVEL, info."
    ),
]
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
LagOption = Annotated[
    int,
    typer.Option("--max-lag", min=0, max=NUMBER_MAX, metavar="BYTES", help="Refuse a target that is further behind."),
]


def deadline_option(words: str) -> Any:
    """``--deadline-ms`` of a switchover, within what controllers take: another one is wrong use."""
    least, most = SWITCHOVER_DEADLINE_MS_MIN, SWITCHOVER_DEADLINE_MS_MAX
    return typer.Option("--deadline-ms", min=least, max=most, metavar="MS", help=words)


def broker_option(words: str, *flags: str) -> Any:
    """An option that takes a broker; ``cli.brokers`` makes an id of it. ``words``: its help but for how it is named."""
    return typer.Option(*flags, metavar="BROKER", help=f"{words.rstrip('.')}: name or id.")


class PlainOutput(StrEnum):
    """How commands print that ask no controller."""

    TABLE = "table"
    JSON = "json"


PlainOption = Annotated[PlainOutput, typer.Option("-o", "--output", help="How to print it.")]


class Founding(Frozen):
    """Those of ``rollcall init``: settings of all brokers; the fleet file may be edited afterwards."""

    name: Annotated[str, typer.Option(help="Name of the fleet, and of its brokers' cluster.")] = "fleet"
    controllers: Annotated[
        list[str],
        typer.Option("--controller", metavar="NAME=RAFT,BROKER,REST", help="host:port three times; repeat for each."),
    ] = msgspec.field(default_factory=list)
    brokers: Annotated[
        list[str],
        typer.Option("--broker", metavar="SET-N=LISTEN,HA,HEALTH", help="host:port three times; repeat for each."),
    ] = msgspec.field(default_factory=list)
    machines: Annotated[
        list[str],
        typer.Option("--machine", metavar="NAME=HOST", help="Instead: lay nodes out over machines; repeat it."),
    ] = msgspec.field(default_factory=list)
    sets: Annotated[
        list[str],
        typer.Option("--brokers", metavar="SET=REPLICAS", help="With --machine: a broker set; repeat for each."),
    ] = msgspec.field(default_factory=list)
    bind_any: Annotated[bool, typer.Option("--bind-any", help="Listen on every address of a machine.")] = False
    insecure: Annotated[bool, typer.Option("--insecure", help="Plain ports that believe everybody; loopback only.")] = (
        False
    )
    passphrase_file: Annotated[
        Path | None, typer.Option(help="Encrypts the authority's key; or set ROLLCALL_AUTHORITY_PASSPHRASE.")
    ] = None
    timing: Annotated[str, typer.Option(help="fast, normal or safe.")] = "normal"
    ack_mode: Annotated[str, typer.Option(help="Only all is served.")] = "all"
    min_in_sync: Annotated[int, typer.Option(min=0, max=NUMBER_MAX, help="0 = half of the replicas, rounded up.")] = 0
    flush: Annotated[str, typer.Option(help="async or sync.")] = "async"
    segment_bytes: Annotated[
        int, typer.Option(min=FOUNDED_BYTES_MIN, max=SEGMENT_BYTES_MAX, help="Size of a segment of the log.")
    ] = 64 * 1024 * 1024
    retention_hours: Annotated[
        int,
        typer.Option(
            min=0, max=RETENTION_HOURS_MAX, help="Messages are kept so long, or while the disk has room; 0 = for ever."
        ),
    ] = 72
    name_service: Annotated[bool, typer.Option("--name-service", help="Controllers serve RocketMQ's names too.")] = (
        False
    )
    rocketmq: Annotated[
        list[str], typer.Option(metavar="NETWORK", help="RocketMQ's peers come from it, unproven; repeat it.")
    ] = msgspec.field(default_factory=list)
    rocketmq_keys: Annotated[
        bool, typer.Option("--rocketmq-keys", help="RocketMQ's peers sign; writes access keys and secrets.")
    ] = False
    rocketmq_tls: Annotated[str, typer.Option(help="disabled, permissive or enforcing.")] = "permissive"


class BackupOptions(Frozen):
    """Those of ``rollcall backup``."""

    by: Annotated[
        str, typer.Option("--from", metavar="NAME|HOST:PORT", help="Which controller; else the one that knows most.")
    ] = ""
    has_history: Annotated[bool, typer.Option("--with-history", help="The record of events, too.")] = False
    has_secrets: Annotated[bool, typer.Option("--with-secrets", help="Tokens, too; the file is encrypted.")] = False
    passphrase_file: PassphraseOption = None
    takes_stale: Annotated[bool, typer.Option("--stale", help="Also of a controller that hears no leader.")] = False


class BatchOptions(Frozen):
    """Those of ``rollcall drain`` and ``rollcall rebalance``."""

    at_a_time: Annotated[int, typer.Option(min=1, max=64, metavar="N", help="So many sets at once.")] = 4
    budget_least: Annotated[
        int,
        typer.Option(
            "--min-budget", min=0, max=64, metavar="N", help="Leave sets that may lose fewer replicas than this."
        ),
    ] = 1
    deadline_ms: Annotated[int, deadline_option("For each set; not done by then: its old master serves again.")] = (
        SWITCHOVER_DEADLINE_MS
    )
    max_lag_bytes: LagOption = SWITCHOVER_LAG_BYTES


class DrillOptions(Frozen):
    """Those of ``rollcall drill``."""

    is_hard: Annotated[bool, typer.Option("--hard", help="The stop command stops the master; else it hands over.")] = (
        False
    )
    stop_command: Annotated[
        str, typer.Option(metavar="CMD", help="Run here, without a shell; {master} and {host} are the master's.")
    ] = ""
    spends_last: Annotated[
        bool, typer.Option("--spend-last", help="With --hard: also if another loss meanwhile stops the set.")
    ] = False
    goes_back: Annotated[bool, typer.Option("--back", help="Once it is whole, switch back.")] = False
    at_most_ms: Annotated[
        int | None, typer.Option(min=1, max=3_600_000, metavar="MS", help="Not passed if a client felt more.")
    ] = None
    within: Annotated[str, typer.Option(metavar="TIME", help="Not passed if the set is not whole by then.")] = "120s"
    interval_ms: Annotated[int, typer.Option(min=10, max=1_000, help="Between two messages of the probe.")] = 20


class BrokerOptions(Frozen):
    """Where brokers are: those of ``rollcall produce`` and ``consume``."""

    brokers: Annotated[str, typer.Option(metavar="HOST:PORT,…", help="Brokers, without asking controllers.")] = ""
    name_servers: Annotated[
        str, typer.Option(metavar="HOST:PORT,…", help="RocketMQ's name servers: messages of its brokers.")
    ] = ""


class SendOptions(Frozen):
    """What every message of a ``produce`` has."""

    key: Annotated[str, typer.Option(help="Words by which brokers find the messages.")] = ""
    tag: Annotated[str, typer.Option(help="By which consumers choose.")] = ""
    properties: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="One more property; repeat it.")
    ] = None
    queue: Annotated[int | None, typer.Option(min=0, max=255, help="Always this queue; else each in turn.")] = None
    delay_level: Annotated[int, typer.Option(min=0, max=18, help="RocketMQ's: 1 is 1 s, 4 is 30 s, 18 is 2 h.")] = 0
    file: Annotated[Path | None, typer.Option(help="Lines of this file instead of standard input.")] = None
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print message id, queue and offset of each.")] = (
        False
    )


class ReadOptions(Frozen):
    """What a ``consume`` reads, and how it prints it."""

    start: Annotated[
        str, typer.Option("--from", metavar="first|last|TIME", help="Where a new group begins; TIME in ISO 8601.")
    ] = "last"
    count: Annotated[int, typer.Option(min=0, max=NUMBER_MAX, help="End after so many; 0: never.")] = 0
    tags: Annotated[str, typer.Option("--filter", metavar="'A || B'", help="Only with one of these tags.")] = ""
    sql: Annotated[str, typer.Option(help="Only those whose properties fulfil this SQL92.")] = ""
    form: Annotated[
        str, typer.Option("--format", help="With {body} {topic} {queue} {offset} {tag} {key} {id} {time}.")
    ] = "{body}"
    is_json: Annotated[bool, typer.Option("--json", help="A line of JSON for each, with its properties.")] = False
    follow: Annotated[bool, typer.Option("--follow/--no-wait", help="--no-wait ends at the end of the queues.")] = True


class OperatorOptions(Frozen):
    """Options that orders share."""

    form: Format
    expected_master: str | None = None
    """A name or an id, as it was typed."""
    expected_epoch: MasterEpoch | None = None
    reason: str = ""
    is_dry_run: bool = False
    is_confirmed: bool = False
    request_id: RequestId | None = None


Command = Callable[..., None]


def _option(name: str, kind: Any, default: object, *flags: str, help: str) -> Parameter:  # noqa: A002 - as typer's
    annotation = Annotated[kind, typer.Option(*flags, help=help)]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


_EXPECT_MASTER = Parameter(
    "expected_master",
    Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[str | None, broker_option("Refuse unless this one is master", "--expect-master")],
)
_EXPECT_EPOCH = Parameter(
    "expected_epoch",
    Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        int | None,
        typer.Option("--expect-epoch", min=0, max=NUMBER_MAX, help="Refuse unless this is the masterEpoch."),
    ],
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

    def order_of(**given: Any) -> OperatorOptions:
        return OperatorOptions(**{_FIELDS.get(name, name): value for name, value in given.items()})

    return lambda command: _Taking(command, "order", lambda: shared, order_of, is_last=True)


def takes(name: str, kind: type[Frozen]) -> Callable[[Command], Command]:
    """A command whose parameter ``name`` is a ``kind``: its fields are options, in the place of the parameter."""

    def options() -> list[Parameter]:
        types = get_type_hints(kind, include_extras=True)
        return [
            Parameter(
                one.name,
                Parameter.KEYWORD_ONLY,
                default=one.default if one.default_factory is msgspec.NODEFAULT else one.default_factory(),
                annotation=types[one.name],
            )
            for one in msgspec.structs.fields(kind)
        ]

    return lambda command: _Taking(command, name, options, kind)


class _Taking:
    """
    A command with ``options`` in the place of its parameter ``name``, which is made of their values.

    Types of options and signatures are read when typer asks for them: for each command that is imported, and not run,
    they would be a twentieth of the time of the one that is.
    """

    def __init__(
        self,
        command: Command,
        name: str,
        options: Callable[[], Sequence[Parameter]],
        make: Callable[..., object],
        *,
        is_last: bool = False,
    ) -> None:
        """``is_last``: the options stand behind those of the command."""
        functools.update_wrapper(self, command, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
        self._command, self._name, self._find, self._make, self._is_last = command, name, options, make, is_last

    @functools.cached_property
    def _options(self) -> Sequence[Parameter]:
        return self._find()

    def __call__(self, **given: Any) -> None:
        made = self._make(**{one.name: given.pop(one.name) for one in self._options})
        self._command(**given, **{self._name: made})

    # Typer reads both: the options of the signature, and the types of the annotations.

    @property
    def __signature__(self) -> inspect.Signature:
        signature = inspect.signature(self._command, eval_str=True)
        names = list(signature.parameters)
        own = [one for one in signature.parameters.values() if one.name != self._name]
        place = len(own) if self._is_last else names.index(self._name)
        return signature.replace(parameters=[*own[:place], *self._options, *own[place:]])

    @property
    def __annotations__(self) -> dict[str, Any]:  # type: ignore[override]
        return {one.name: one.annotation for one in self.__signature__.parameters.values()}
