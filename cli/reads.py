"""
Commands that look: status, sets, history, explain, events, trace, controllers.

Here: which questions are asked and in which order. Not here: how answers look (``tables``, ``decisions``).
``main`` imports this module: heavy ones are imported inside the functions, so that ``rollcall --help`` is fast.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from rollcall_ha.cli import context, watching
from rollcall_ha.cli.options import OutputOption, SetArgument, WatchOption
from rollcall_ha.cli.output import CommandExit, Format, Report, fail, print_report
from rollcall_ha.epoch.codec import NUMBER_MAX

if TYPE_CHECKING:
    from rollcall_ha.cli.tables import ControllerRow
    from rollcall_ha.client.client import Client, Reached
    from rollcall_ha.controller.contract.values import EventRef
    from rollcall_ha.controller.contract.views import ControllerStatus, FleetStatus

FOLLOW_WAIT_MS = 10_000
EpochArgument = Annotated[
    int | None, typer.Argument(min=0, max=NUMBER_MAX, metavar="[EPOCH]", help="A masterEpoch; by default the newest.")
]


def show(fetch: Callable[[Client], Report], form: Format, watch: str | None) -> None:
    """Print once, or again and again until interrupted."""
    pause_s = None if watch is None else context.decode_duration_s("--watch", watch)
    with context.client(form) as asking:
        if pause_s is None:
            print_report(fetch(asking), form)
        else:
            watching.watch(lambda: fetch(asking), form, pause_s)


def status(
    form: OutputOption = Format.TABLE,
    watch: WatchOption = None,
    check: Annotated[bool, typer.Option("--check", help="Exit with 6 if something is degraded.")] = False,
) -> None:
    """The fleet on one page: masters, replicas, what is wrong. Without a leader it answers too, marked STALE."""
    from rollcall_ha.cli import tables

    degraded = False
    before: FleetStatus | None = None
    asked_s = time.monotonic()

    def fetch(asking: Client) -> Report:
        nonlocal degraded, before, asked_s
        reached = asking.survey()
        rows = controller_rows(asking, reached)
        fleet = _fleet_of(asking, reached, rows)
        degraded = tables.judge(fleet, rows).is_degraded
        last_s, asked_s = asked_s, time.monotonic()
        change = watching.change_of(before, fleet, asked_s - last_s)
        before = fleet
        return tables.status_report(fleet, rows, is_wide=form in (Format.WIDE, Format.TSV), change=change)

    show(fetch, form, watch)
    if check and degraded:
        raise typer.Exit(int(CommandExit.DEGRADED))


def _fleet_of(asking: Client, reached: tuple[Reached, ...], rows: tuple[ControllerRow, ...]) -> FleetStatus:
    """The leader's view; without a leader, the view of the controller that has applied most."""
    from rollcall_ha.client.errors import NoLeader, OutcomeUnknown, Unreachable

    answers = [(answer.status, answer.address) for answer in reached if answer.status is not None]
    if not answers:
        raise Unreachable("; ".join(answer.trouble for answer in reached))
    if any(row.status is not None and row.status.has_authority for row in rows):
        try:
            return asking.status()
        except (NoLeader, OutcomeUnknown, Unreachable):
            pass  # It lost its majority in between: the page must not go dark with the quorum.
    # Not the first that answers: a controller that has been away for an hour would show the masters of an hour ago.
    _, address = max(answers, key=lambda answer: (answer[0].controller.applied_index, answer[1]))
    return asking.status_from(address)


def controller_rows(asking: Client, reached: tuple[Reached, ...]) -> tuple[ControllerRow, ...]:
    """The survey as rows, by name; the controllers that cannot be reached from here by the word of one that can."""
    from rollcall_ha.cli.tables import ControllerRow
    from rollcall_ha.controller.contract.views import ControllerRole

    rows = [
        ControllerRow(
            address=answer.address.partition("://")[2],
            status=None if answer.status is None else answer.status.controller,
            trouble=answer.trouble,
        )
        for answer in reached
    ]
    known = {row.status.name for row in rows if row.status is not None}
    # One address may be all that a caller has: of a load balancer, or of the controller on its own machine.
    if known and (len(known) < len(rows) or len(rows) == 1):
        told = {one.rest_address: one for one in _members(asking, reached) if one.name not in known}
        rows = [row for row in rows if row.status is not None or row.address not in told]
        rows += [
            ControllerRow(address=address, status=None if one.role is ControllerRole.UNREACHABLE else one)
            for address, one in told.items()
        ]
    return tuple(sorted(rows, key=lambda row: row.name))


def _members(asking: Client, reached: tuple[Reached, ...]) -> tuple[ControllerStatus, ...]:
    from rollcall_ha.client.errors import ClientError

    witness = next(answer.address for answer in reached if answer.status is not None)
    try:
        return asking.members_by(witness)
    except ClientError:
        return ()  # it answered a moment ago: the page shows what it has


def sets(form: OutputOption = Format.TABLE, watch: WatchOption = None) -> None:
    """One line per broker set: its master, members and problems."""
    from rollcall_ha.cli import tables

    show(lambda asking: tables.sets_report(asking.sets()), form, watch)


def history(
    name: SetArgument,
    form: OutputOption = Format.TABLE,
    watch: WatchOption = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="How many reigns.")] = 20,
    before: Annotated[
        int | None, typer.Option(min=0, max=NUMBER_MAX, help="Only reigns before this masterEpoch.")
    ] = None,
) -> None:
    """The masters of a set: when, why, how long, bytes lost. Each row is one change of master."""
    from rollcall_ha.cli import tables
    from rollcall_ha.controller.contract.ids import MasterEpoch

    bound = None if before is None else MasterEpoch(before)

    def fetch(asking: Client) -> Report:
        return tables.history_report(asking.history(context.set_key(asking, name), limit=limit, before=bound))

    show(fetch, form, watch)


def explain(
    name: SetArgument,
    epoch: EpochArgument = None,
    form: OutputOption = Format.TABLE,
) -> None:
    """Why this master: evidence, candidates, phases, proof. Every candidate has its reason."""
    from rollcall_ha.cli import decisions
    from rollcall_ha.controller.contract.ids import MasterEpoch

    def fetch(asking: Client) -> Report:
        key = context.set_key(asking, name)
        now = asking.set(key).set if epoch is None else None
        wanted = MasterEpoch(epoch or 0) if now is None else now.view.master_epoch
        return decisions.explanation_report(asking.explain(key, wanted), now)

    show(fetch, form, None)


def trace(
    name: SetArgument,
    epoch: EpochArgument = None,
    collector: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Its route for traces; by default as OTEL_EXPORTER_OTLP_ENDPOINT says."),
    ] = None,
) -> None:
    """Send one change of master to OpenTelemetry as a trace. Each phase is a span, made of the change's own events."""
    from rollcall_ha.controller.contract.ids import MasterEpoch

    with context.client(Format.TABLE) as asking:
        key = context.set_key(asking, name)
        page = asking.history(key, limit=1, before=None if epoch is None else MasterEpoch(epoch + 1))
    row = next((one for one in page.rows if epoch is None or one.master_epoch == epoch), None)
    if row is None:
        asked = "no masterEpoch at all" if epoch is None else f"no masterEpoch {epoch}"
        raise fail(f"rollcall: {key} has {asked} in the record; rollcall history {name}", CommandExit.REFUSED)
    try:
        from rollcall_ha.cli import traces
    except ModuleNotFoundError as missing:
        remedy = "install 'rollcall-ha[otlp]', or read the same figures with rollcall explain"
        raise fail(f"rollcall: {missing.name} is not installed; {remedy}", CommandExit.WRONG_USE) from None
    spans = traces.spans_of(key, row)
    if not traces.send(spans, collector):
        where = collector or "the collector of OTEL_EXPORTER_OTLP_ENDPOINT"
        remedy = "see that it listens there for OTLP over HTTP"
        raise fail(f"rollcall: {where} did not take the trace; {remedy}", CommandExit.UNREACHABLE)
    typer.echo(f"OK  trace {traces.id_of(spans)} of {key}, masterEpoch {row.master_epoch}: {len(spans)} spans")


def controllers(form: Format, watch: str | None) -> None:
    """Each controller as it tells of itself."""
    from rollcall_ha.cli import tables
    from rollcall_ha.client.errors import Unreachable

    def fetch(asking: Client) -> Report:
        reached = asking.survey()
        if all(answer.status is None for answer in reached):
            raise Unreachable("; ".join(answer.trouble for answer in reached))
        return tables.controllers_report(controller_rows(asking, reached))

    show(fetch, form, watch)


def events(
    *,
    form: OutputOption = Format.TABLE,
    start: Annotated[
        str | None, typer.Option("--from", help="From here on: term.index.ordinal, or an index; to page through.")
    ] = None,
    oldest: Annotated[bool, typer.Option("--oldest", help="From the beginning of the record on.")] = False,
    of_set: Annotated[str | None, typer.Option("--set", help="Only this broker set.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="How many at once.")] = 200,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more.")] = False,
    request: Annotated[str | None, typer.Option(help="Only what came of this request id.")] = None,
    by: Annotated[str | None, typer.Option(metavar="[ROLE:]NAME", help="Only what this caller asked for.")] = None,
) -> None:
    """The newest events of the record, in their order. With --from they begin at a mark."""
    import msgspec

    from rollcall_ha.cli import records

    if oldest and start is not None:
        raise typer.BadParameter("--oldest and --from exclude each other")
    position = None if start is None else decode_event_ref(start)
    with context.client(form) as asking:
        key = None if of_set is None else context.set_key(asking, of_set)
        wait_ms, has_shown = 0, False
        # A request id may be anywhere in the record: it is looked for from the beginning.
        is_newest = position is None and not oldest and request is None and by is None
        while True:
            page = asking.events(start=position, key=key, limit=limit, wait_ms=wait_ms, is_newest=is_newest, by=by)
            if request is not None:
                page = msgspec.structs.replace(page, events=tuple(e for e in page.events if e.request_id == request))
            # A page without a match is not the end: the order whose outcome is unknown may be 10,000 events further on,
            # and "No events." would be read as "it was not executed".
            # Who asks for one caller wants everything: its orders are on every page.
            is_searching = page.next_from is not None and (by is not None or (request is not None and not page.events))
            if page.events or not (follow or is_searching or has_shown):
                print_report(records.events_report(page, is_wide=form is Format.WIDE), form)
                has_shown = True
            if not follow and not is_searching:
                return
            position = page.next_from or position
            is_newest = is_newest and position is None
            wait_ms = FOLLOW_WAIT_MS if follow else 0


def decode_event_ref(text: str) -> EventRef:
    """``term.index.ordinal``, or ``index`` for the first event from there on. Raises ``typer.BadParameter``."""
    from rollcall_ha.controller.contract.values import EventRef

    parts = text.split(".")
    if not all(part.isdigit() for part in parts) or len(parts) not in (1, 3):
        raise typer.BadParameter(f"{text!r} is not term.index.ordinal as in: rollcall events")
    if len(parts) == 1:
        return EventRef(term=0, index=int(parts[0]), ordinal=0)
    return EventRef(term=int(parts[0]), index=int(parts[1]), ordinal=int(parts[2]))
