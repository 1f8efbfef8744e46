"""
Commands that move many masters: drain, rebalance.

Here: a batch of switchovers, so many sets at a time, until each has ended. Not here: which master goes where
(``cli.plans``), whether one may and how (``controller.core.decide_switchover``, R29).

Rule 1: the batch is this process. Each order is one command with a request id, an expected master and epoch: it is
repeated to whichever controller leads, and executes once. Begun again after a crash, the plan is what is left to do.
Rule 2: a set is looked at again before its order: its master may have gone, its budget may be spent, the plan is old.
Rule 3: Ctrl-C, or a pause of the fleet from anywhere, stops it: no further order is given, those under way are waited
for. A second Ctrl-C leaves at once; the orders under way end by their deadlines.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeVar

import typer
from msgspec.structs import replace

from rollcall_ha.cli import context, output
from rollcall_ha.cli.brokers import brokers_of, scope_of
from rollcall_ha.cli.options import BatchOptions, OperatorOptions
from rollcall_ha.cli.orders import confirm, may_ask
from rollcall_ha.cli.output import CommandExit, Format, Mood, Report, Table, fail, print_report
from rollcall_ha.controller.contract.commands import OrderSwitchover
from rollcall_ha.controller.contract.labels import label, scope_words
from rollcall_ha.controller.contract.values import SwitchoverEnd, Value, host_of
from rollcall_ha.node.terminal import harmless

if TYPE_CHECKING:
    from rollcall_ha.cli.plans import Move, Plan
    from rollcall_ha.client.client import Client
    from rollcall_ha.controller.contract.ids import SetKey
    from rollcall_ha.controller.contract.views import SetStatus

ROUNDS = 3
"""Plans that one batch makes: a switchover that failed, or a set that was in the way, is tried in the next one."""
ASK_S_MAX = 60.0
"""How long one set is asked for while no controller leads."""
PAUSE_S = 0.25
SHOWN_MOVES_MAX = 500

RETRY_S_MAX = 15.0
"""How long a set is tried whose refusal passes: a new leader has not heard everybody yet, or facts moved meanwhile."""
_PASSING = ("EVIDENCE_MOVED", "NOT_ELIGIBLE")

T = TypeVar("T")


class Outcome(StrEnum):
    """How a batch went on with one set."""

    DONE = "done"
    ROLLED_BACK = "rolled-back"
    """The switchover ended, and the old master serves; the reason says why."""
    ELSEWHERE = "elsewhere"
    """Its master is where it should be, by whatever moved it."""
    LEFT = "left"
    """No order was given, or it was refused."""
    UNKNOWN = "unknown"
    """No controller could be asked how it ended."""


class Moved(Value):
    """One set of a batch."""

    set_key: SetKey
    outcome: Outcome
    reason: str
    took_ms: int = 0
    to_host: str = ""


class Batch(Value):
    """What a batch has come to: the last word on each set."""

    what: str
    moved: tuple[Moved, ...]
    stopped: str = ""
    """By what it was stopped; empty: it went on to its end."""

    @property
    def missed(self) -> tuple[Moved, ...]:
        """Sets whose masters are not where they should be, as far as is known."""
        return tuple(one for one in self.moved if one.outcome not in (Outcome.DONE, Outcome.ELSEWHERE))


def drain(what: str, order: OperatorOptions, options: BatchOptions) -> None:
    """Move every master that is on a host elsewhere, or the mastership of one broker."""
    from rollcall_ha.cli.plans import plan_drain

    with context.client(order.form) as asking:
        scope = scope_of(asking, what)
        names = {} if scope.set_key is None else brokers_of(asking, str(scope.set_key)).names

    def plan(sets: list[SetStatus]) -> Plan:
        return plan_drain(sets, scope, budget_least=options.budget_least)

    _run(f"drain {scope_words(scope, names)}", plan, order, options, host=scope.host)


def rebalance(order: OperatorOptions, options: BatchOptions) -> None:
    """Spread masters evenly over hosts, by preferences."""
    from rollcall_ha.cli.plans import plan_rebalance

    def plan(sets: list[SetStatus]) -> Plan:
        return plan_rebalance(sets, budget_least=options.budget_least)

    _run("rebalance", plan, order, options)


def _run(
    what: str,
    plan_of: Callable[[list[SetStatus]], Plan],
    order: OperatorOptions,
    options: BatchOptions,
    *,
    host: str = "",
) -> None:
    with context.client(order.form) as asking:
        sets = asking.sets().sets
        # A slip in the name would be a host without masters: "done", and then the right one is switched off.
        hosts = {host_of(one.address) for status in sets for one in status.replicas}
        if host and host not in hosts:
            known = ", ".join(sorted(hosts)[:20]) or "none"
            told = f"rollcall: no replica has an address on host {host}, nor is it the name of one; hosts: {known}"
            raise fail(told, CommandExit.WRONG_USE)
        plan = plan_of(list(sets))
        if order.is_dry_run:
            print_report(_plan_report(what, plan, _asked(asking, plan, options)), order.form)
            return
        if not order.is_confirmed and may_ask() and plan.moves:
            print_report(_plan_report(what, plan, {}), Format.TABLE, stream=sys.stderr)
            confirm(f"Move {len(plan.moves)} masters, {options.at_a_time} at a time?", order)
        runner = Runner(asking, what, plan_of, order.reason, options, say=_say)
        with _stops_at_ctrl_c(runner):
            batch = runner.run()
    print_report(_batch_report(batch), order.form)
    # A script that switches the host off goes on by the exit code.
    if batch.stopped or batch.missed:
        raise typer.Exit(CommandExit.REFUSED)


class Runner:
    """One batch. ``stop`` may be called from any thread."""

    def __init__(
        self,
        asking: Client,
        what: str,
        plan_of: Callable[[list[SetStatus]], Plan],
        reason: str,
        options: BatchOptions,
        *,
        say: Callable[[str], None],
    ) -> None:
        self._asking = asking
        self._plan_of = plan_of
        self._options = options
        self._say = say
        self._what = what
        self._reason = f"{what}: {reason}" if reason else what
        self._stopped = threading.Event()
        self._why = ""
        self._ended = 0
        self._counting = threading.Lock()

    def stop(self, why: str) -> None:
        """Give no further order (rule 3)."""
        if not self._stopped.is_set():
            self._why = why
            self._stopped.set()

    def run(self) -> Batch:
        """Plan and order, until nothing is left to do, or ``ROUNDS`` plans were made. Raises ``ClientError``."""
        found: dict[SetKey, Moved] = {}
        for number in range(ROUNDS + 1):
            plan = self._plan_of(list(self._patiently(self._asking.sets).sets))
            for one in plan.left:
                found[one.set_key] = Moved(set_key=one.set_key, outcome=Outcome.LEFT, reason=one.reason)
            if number == ROUNDS or self._stopped.is_set() or not plan.moves:
                break
            self._ended = 0
            with ThreadPoolExecutor(self._options.at_a_time, thread_name_prefix="move") as pool:
                for moved in pool.map(partial(self._one, total=len(plan.moves)), plan.moves):
                    if moved is not None:
                        found[moved.set_key] = moved
        settled = _settled(found, plan)
        return Batch(what=self._what, moved=tuple(settled[key] for key in sorted(settled)), stopped=self._why)

    def _one(self, move: Move, *, total: int) -> Moved | None:
        """None: it was not begun, because the batch is stopped."""
        began = time.monotonic()
        outcome, reason = self._carry_out(move)
        if outcome is None:
            return None
        took_ms = int((time.monotonic() - began) * 1000)
        with self._counting:
            self._ended += 1
            number = self._ended
        told = f": {reason}" if reason else ""
        brokers = f"broker {label(move.master, move.names)} -> {label(move.to, move.names)}"
        way = f"{brokers}, {move.from_host} -> {move.to_host}"
        self._say(f"[{number}/{total}] {move.set_key}: {way}: {outcome}{told} ({took_ms:,} ms)")
        return Moved(set_key=move.set_key, outcome=outcome, reason=reason, took_ms=took_ms, to_host=move.to_host)

    def _carry_out(self, move: Move) -> tuple[Outcome | None, str]:
        from rollcall_ha.client.errors import ClientError, RefusedError

        until = time.monotonic() + RETRY_S_MAX
        while not self._stopped.is_set():
            try:
                # Rule 2. An old plan would order what its set cannot bear any more.
                status = self._patiently(lambda: self._asking.set(move.set_key)).set
                if status.pause is not None and status.pause.set_key is None:
                    self.stop(f"a pause of the fleet by {status.pause.paused_by}")
                    continue
                if reason := self._why_not_now(move, status):
                    return Outcome.LEFT, reason
                return self._order(move)
            except RefusedError as error:
                if error.problem.code not in _PASSING or time.monotonic() >= until:
                    return Outcome.LEFT, str(error)
            except ClientError as error:
                return Outcome.UNKNOWN, str(error)
            self._stopped.wait(PAUSE_S)
        return None, ""

    def _why_not_now(self, move: Move, status: SetStatus) -> str:
        from rollcall_ha.cli.plans import why_not
        from rollcall_ha.controller.contract.hosts import heirs

        if (status.view.master, status.view.master_epoch) != (move.master, move.master_epoch):
            master = "nobody" if status.view.master is None else label(status.view.master, move.names)
            return f"its master is {master} in masterEpoch {status.view.master_epoch} now"
        if reason := why_not(status, budget_least=self._options.budget_least):
            return reason
        is_able = move.to in {one.broker_id for one in heirs(status)}
        return "" if is_able else f"broker {label(move.to, move.names)} may not be elected any more"

    def _order(self, move: Move) -> tuple[Outcome, str]:
        """Raises ``ClientError``."""
        from rollcall_ha.client.client import new_request_id

        # One id for all attempts (rule 1); another one for an order that was refused, whose answer is remembered.
        identity = new_request_id()
        answer = self._patiently(
            lambda: self._asking.order(_ordered(move, self._options, self._reason), request_id=identity)
        )
        if answer.row.end is SwitchoverEnd.DONE:
            return Outcome.DONE, ""
        if answer.row.end is None:
            return Outcome.UNKNOWN, f"request {identity} goes on"
        return Outcome.ROLLED_BACK, f"{answer.row.end}: {answer.row.reason}"

    @staticmethod
    def _patiently(ask: Callable[[], T]) -> T:
        """``ask`` until a leader answers (rule 1). Raises ``ClientError``: refused, or none leads for ``ASK_S_MAX``."""
        from rollcall_ha.client.errors import NoLeader, OutcomeUnknown, RefusedError, Unreachable

        until = time.monotonic() + ASK_S_MAX
        while True:
            try:
                return ask()
            except (NoLeader, Unreachable, OutcomeUnknown):
                if time.monotonic() >= until:
                    raise
            except RefusedError as error:
                is_busy = error.problem.status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
                if not is_busy or time.monotonic() >= until:
                    raise
            threading.Event().wait(PAUSE_S)


def _settled(found: Mapping[SetKey, Moved], plan: Plan) -> dict[SetKey, Moved]:
    """The last word on each set: ``plan`` is what is still to do at the end."""
    due = plan.keys
    settled = {
        key: one if one.outcome is Outcome.DONE or key in due else replace(one, outcome=Outcome.ELSEWHERE)
        for key, one in found.items()
    }
    for move in plan.moves:
        # Not begun; or done, and a failover took the master back.
        if settled.get(move.set_key) is None or settled[move.set_key].outcome is Outcome.DONE:
            settled[move.set_key] = Moved(set_key=move.set_key, outcome=Outcome.LEFT, reason="still to be moved")
    return settled


@contextmanager
def _stops_at_ctrl_c(runner: Runner) -> Iterator[None]:
    def stop(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        runner.stop("Ctrl-C")
        _say("Stopping: no further order is given; Ctrl-C again leaves at once.")

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _say(line: str) -> None:
    """Progress: on standard error, standard output is the answer."""
    sys.stderr.write(harmless(line) + "\n")
    sys.stderr.flush()


def _ordered(move: Move, options: BatchOptions, reason: str = "") -> OrderSwitchover:
    return OrderSwitchover(
        set_key=move.set_key,
        to=move.to,
        expected_master=move.master,
        expected_epoch=move.master_epoch,
        deadline_ms=options.deadline_ms,
        max_lag_bytes=options.max_lag_bytes,
        reason=reason,
    )


def _asked(asking: Client, plan: Plan, options: BatchOptions) -> dict[SetKey, str]:
    """What the leader would answer to each order of the plan: empty, or its refusal. Raises ``ClientError``."""
    from rollcall_ha.client.errors import RefusedError

    found = {}
    for move in plan.moves[:SHOWN_MOVES_MAX]:
        try:
            asking.preview(_ordered(move, options))
            found[move.set_key] = "would be taken"
        except RefusedError as error:
            found[move.set_key] = str(error)
    return found


_PLAN_COLUMNS = output.columns("SET", "MASTER", ">EPOCH", "TO", "FROM HOST", "TO HOST", "ANSWER?")
_LEFT_COLUMNS = output.columns("SET", "STAYS, BECAUSE")


def _plan_report(what: str, plan: Plan, answers: dict[SetKey, str]) -> Report:
    rows = tuple(
        (
            str(move.set_key),
            output.Figure(label(move.master, move.names), move.master),
            str(move.master_epoch),
            output.Figure(label(move.to, move.names), move.to),
            move.from_host,
            move.to_host,
            answers.get(move.set_key, ""),
        )
        for move in plan.moves
    )
    left = tuple((str(one.set_key), one.reason) for one in plan.left)
    parts = [Table(columns=_PLAN_COLUMNS, rows=rows)] if rows else []
    parts += [Table(columns=_LEFT_COLUMNS, rows=left)] if left else []
    verdict = f"{what}: {len(plan.moves)} masters would be moved, {len(plan.left)} left where they are"
    names = tuple(str(move.set_key) for move in plan.moves)
    return Report(document=plan, verdict=verdict, parts=tuple(parts), names=names)


def _batch_report(batch: Batch) -> Report:
    missed, moved = batch.missed, len(batch.moved) - len(batch.missed)
    rows = tuple((str(one.set_key), str(one.outcome), one.reason) for one in missed)
    parts = (Table(columns=output.columns("SET", "OUTCOME", "REASON?"), rows=rows),) if rows else ()
    names = tuple(str(one.set_key) for one in batch.moved if one.outcome is Outcome.DONE)
    told = f"{moved} masters moved" + (f", {len(missed)} not" if missed else "")
    if batch.stopped:
        verdict = f"STOPPED  {batch.what}, by {batch.stopped}: {told}. The same command goes on with what is left"
        return Report(document=batch, verdict=verdict, mood=Mood.BAD, parts=parts, names=names)
    mood, word = (Mood.BAD, "NOT DONE") if missed else (Mood.GOOD, "OK")
    return Report(document=batch, verdict=f"{word}  {batch.what}: {told}", mood=mood, parts=parts, names=names)
