"""
``rollcall wait``: ends when a broker set is as a script needs it, or when the time is over.

Here: when that is so (``missing``, pure), and asking until then. Not here: reading a set (``client.client``), how it
looks (``tables``).

Rule 1: only the leader's word counts. By the word of a controller that has been away for an hour, a set serves that is
down.
Rule 2: outages are waited through: no leader, no answer, an overloaded leader and an unknown set are reasons to ask
again. Other refusals are not.
Rule 3: the wait has an end, ``--timeout``, and then says what was missing last.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from http import HTTPStatus
from threading import Event
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from rollcall_ha.cli import context
from rollcall_ha.cli.options import OutputOption, SetArgument
from rollcall_ha.cli.output import CommandExit, Format, fail, print_report
from rollcall_ha.controller.contract.labels import in_words, labels, names_of
from rollcall_ha.controller.contract.problems import ProblemCode

if TYPE_CHECKING:
    from rollcall_ha.client.client import Client
    from rollcall_ha.client.errors import ClientError
    from rollcall_ha.controller.contract.ids import SetKey
    from rollcall_ha.controller.contract.views import SetAnswer, SetStatus

Answer = TypeVar("Answer")
POLL_S = 0.25
QUESTION_MS_MAX = 2_000
"""How long one question looks for a leader."""
QUESTION_MS_MIN = 500
"""However little is left: a question of 1 ms would find nobody. So a wait lasts this much longer at most, for each
controller that hangs."""


class Until(StrEnum):
    """What is waited for."""

    SERVING = "serving"
    """The master has entered, and acknowledges sends."""
    IN_SYNC = "in-sync"
    """It serves, and every expected replica is in the SyncStateSet."""


def missing(status: SetStatus, until: Until) -> str:
    """What the set lacks, in words; empty: it is as wanted."""
    from rollcall_ha.controller.contract.replies import Condition

    view = status.view
    if view.condition is not Condition.SERVING:
        reason = in_words(view.condition_reason, names_of(view.members))
        return f"it is {view.condition}" + (f": {reason}" if reason else "")
    # Replicated state calls both served: a script that begins to send would be refused by the master.
    if ProblemCode.MASTER_NOT_SERVING in status.problems:
        return "the master on record has stopped itself"
    in_sync, expected = len(view.sync_state_set), view.configuration.expected_replicas
    if ProblemCode.BELOW_MIN_IN_SYNC in status.problems:
        return f"writes are refused: {in_sync} in sync, min_in_sync {view.configuration.effective_min_in_sync}"
    if until is Until.SERVING:
        return ""
    # A script that waits for the end of a failover would wait for as long as a disk is being changed.
    missed = [one for one in status.replicas if one.maintenance is None]
    expected -= sum(not one.is_in_sync for one in status.replicas if one.maintenance is not None)
    behind = [one.broker_id for one in missed if one.is_alive and not (one.is_in_sync or one.is_learner)]
    if in_sync < expected or behind:
        names = names_of(view.members)
        told = f"{in_sync} of {expected} replicas are in sync: {labels(view.sync_state_set, names)}"
        return told + (f"; not yet: {labels(behind, names)}" if behind else "")
    return ""


def wait(
    name: SetArgument,
    *,
    until: Annotated[Until, typer.Option(help="serving: it takes sends; in-sync: with every expected replica.")],
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=0, max=86_400, help="Exit with 8 after these.")] = 60,
    form: OutputOption = Format.TABLE,
) -> None:
    """Wait until a set serves, or is in sync. Outages of controllers are waited through."""
    from rollcall_ha.cli import tables
    from rollcall_ha.controller.contract.views import SetPage

    with context.client(form) as asking:
        answer = wait_for(asking, name, until, timeout)
        page = SetPage(freshness=answer.freshness, sets=(answer.set,), sets_total=1, next_after=None)
        print_report(tables.sets_report(page), form)


def wait_for(
    asking: Client,
    name: str,
    until: Until,
    timeout_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] | None = None,
) -> SetAnswer:
    """
    The leader's answer once the set is as wanted; it is asked at least once.

    Args:
        asking: The controllers.
        name: Of the set, as a user types it.
        until: What is waited for.
        timeout_s: Seconds.
        clock: Monotonic seconds.
        pause: Waits the given seconds.

    Raises:
        typer.Exit: not within ``timeout_s`` (8), or its name is ambiguous (2).
        ClientError: a refusal, or what kept the last question from an answer.
    """
    key: SetKey | None = None

    def look(limit_ms: int) -> tuple[SetAnswer | None, str]:
        nonlocal key
        # Asked by its key from then on: a list of 2,000 sets four times a second is what a leader needs least
        # while it elects.
        key = key or _key(asking, name, limit_ms)
        answer = None if key is None else _answer(asking, key, limit_ms)
        return answer, f"no broker set {name!r} is registered" if answer is None else missing(answer.set, until)

    answer, trouble = patiently(look, timeout_s, clock=clock, pause=pause)
    if answer is not None and not trouble:
        return answer
    raise _timed_out(name, until, timeout_s, trouble) if isinstance(trouble, str) else trouble


def patiently(
    look: Callable[[int], tuple[Answer | None, str]],
    timeout_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] | None = None,
) -> tuple[Answer | None, str | ClientError]:
    """
    Look again and again, at least once, until nothing is missing or the time is over (rules 2 and 3).

    ``look`` takes the milliseconds that its question may last, and gives its answer and what is missing. Returned are
    the last answer and what was missing: empty, words, or what kept the question from an answer. Raises
    ``ClientError``: a refusal.
    """
    from rollcall_ha.client.errors import NoLeader, RefusedError, Unreachable

    pause = pause or Event().wait
    deadline = clock() + timeout_s
    while True:
        limit_ms = max(QUESTION_MS_MIN, min(QUESTION_MS_MAX, int((deadline - clock()) * 1000)))
        answer: Answer | None = None
        trouble: str | ClientError
        try:
            answer, trouble = look(limit_ms)
            if not trouble:
                return answer, ""
        except (NoLeader, Unreachable) as error:
            trouble = error  # rule 2: the failover that is waited for may be the controllers' own
        except RefusedError as error:
            if error.problem.status not in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
                raise
            trouble = error  # too many ask just now, as after an outage
        if clock() + POLL_S >= deadline:
            return answer, trouble
        pause(POLL_S)


def _key(asking: Client, name: str, limit_ms: int) -> SetKey | None:
    """None: no such set, which in a fleet that just starts may come. Raises ``ClientError``, ``typer.Exit``."""
    if "/" in name:
        return context.set_key(asking, name)
    page = asking.sets(limit_ms=limit_ms)
    is_known = any(name == status.view.set_key.name for status in page.sets)
    return context.find_set(page, name).view.set_key if is_known else None


def _answer(asking: Client, key: SetKey, limit_ms: int) -> SetAnswer | None:
    """None: no such set. Raises ``ClientError``."""
    from rollcall_ha.client.errors import RefusedError

    try:
        return asking.set(key, limit_ms=limit_ms)
    except RefusedError as error:
        if error.problem.status == HTTPStatus.NOT_FOUND:
            return None
        raise


def _timed_out(name: str, until: Until, timeout_s: float, told: str) -> typer.Exit:
    return fail(
        f"TIMED OUT  {name} is not {until} after {timeout_s:g} s: {told}\nSee: rollcall status", CommandExit.TIMED_OUT
    )
