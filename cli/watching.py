"""
``--watch``: one report drawn over the one before, until interrupted, and what changed between the two.

Here: the terminal (its second screen, so that the first is as it was afterwards), what happens while nobody answers,
rates. Not here: questions (``reads``), reports (``tables``).

Rule 1: whatever ends the command, the terminal is given back: cursor, wrapping and first screen.
Rule 2: a controller that dies is news, not an end: the last page stays, with its age and what went wrong.
Rule 3: a page is never longer than the screen: what is pushed out at the top could not be drawn over.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from rollcall_ha.cli.output import Format, Report, print_report, render_text, width_of
from rollcall_ha.controller.contract.labels import Names, label, labels, names_of
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.node.terminal import harmless

if TYPE_CHECKING:
    from rollcall_ha.controller.contract.ids import BrokerId, SetKey
    from rollcall_ha.controller.contract.views import FleetStatus

ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l"
"""The second screen, without cursor, and lines that are cut instead of wrapped."""
LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
HOME, END_OF_LINE, END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
LINES_MIN = 3


class Change(Frozen):
    """Growth and news between two answers of the controllers."""

    seconds: float
    written: Mapping[tuple[SetKey, BrokerId], float]
    """Bytes a second by which the log of each replica grew; not of one whose log was cut, or was not known."""
    news: tuple[str, ...]
    """A sentence for each thing that is another one now: a set, its master, the term."""


def change_of(before: FleetStatus | None, after: FleetStatus, seconds: float) -> Change | None:
    """None: there is nothing to compare with."""
    if before is None or seconds <= 0:
        return None
    known = {status.view.set_key: status for status in before.sets}
    written: dict[tuple[SetKey, BrokerId], float] = {}
    news = []
    for status in after.sets:
        old = known.get(status.view.set_key)
        if old is None:
            news.append(f"{status.view.set_key} is new")
            continue
        names = names_of(status.view.members)
        ends = {replica.broker_id: replica.max_offset for replica in old.replicas}
        for replica in status.replicas:
            first, last = ends.get(replica.broker_id), replica.max_offset
            if first is not None and last is not None and last >= first:
                written[status.view.set_key, replica.broker_id] = (last - first) / seconds
        if status.view.master_epoch != old.view.master_epoch:
            news.append(
                f"{status.view.set_key}: master {_who(old.view.master, names)} -> {_who(status.view.master, names)}, "
                f"masterEpoch {old.view.master_epoch} -> {status.view.master_epoch}"
            )
        if set(status.view.sync_state_set) != set(old.view.sync_state_set):
            in_sync = [labels(one.sync_state_set, names) for one in (old.view, status.view)]
            news.append(f"{status.view.set_key}: in sync {in_sync[0]} -> {in_sync[1]}")
    if before.freshness.term != after.freshness.term:
        news.append(f"term {before.freshness.term} -> {after.freshness.term}, led by {after.controller.leader or '?'}")
    return Change(seconds=seconds, written=written, news=tuple(news))


def _who(broker_id: int | None, names: Names) -> str:
    return "nobody" if broker_id is None else label(broker_id, names)


def watch(
    fetch: Callable[[], Report],
    form: Format,
    pause_s: float,
    *,
    stream: TextIO | None = None,
    wait: Callable[[float], Any] | None = None,
) -> None:
    """
    Show what ``fetch`` returns every ``pause_s``, until interrupted.

    Raises the errors of the first ``fetch``; later ones are shown.
    """
    stream, wait = stream or sys.stdout, wait or threading.Event().wait
    report = fetch()
    with _screen(stream, form) if stream.isatty() and not form.is_for_programs else _pages(stream, form) as draw:
        asked_s, trouble = time.monotonic(), ""
        while True:
            age_s = time.monotonic() - asked_s
            draw(report, f"{trouble}; shown is what was known {age_s:.0f} s ago" if trouble else "")
            wait(pause_s)
            found = _asked(fetch)
            if isinstance(found, str):
                trouble = found
            else:
                report, asked_s, trouble = found, time.monotonic(), ""


def _asked(fetch: Callable[[], Report]) -> Report | str:
    """The report, or why there is none now."""
    from rollcall_ha.client.errors import BadAnswer, NoLeader, OutcomeUnknown, Unreachable

    try:
        return fetch()
    except (Unreachable, NoLeader, OutcomeUnknown, BadAnswer) as error:
        return f"NO ANSWER  {error}"


Draw = Callable[[Report, str], None]


@contextmanager
def _pages(stream: TextIO, form: Format) -> Iterator[Draw]:
    """No terminal, or a format for programs: one report behind the other."""

    def draw(report: Report, trouble: str) -> None:
        # Never the old answer once more: whoever reads the stream would take it for a new one.
        if trouble:
            sys.stderr.write(f"{harmless(trouble)}\n")
        else:
            print_report(report, form, stream=stream)

    with suppress(KeyboardInterrupt):
        yield draw


@contextmanager
def _screen(stream: TextIO, form: Format) -> Iterator[Draw]:
    """A terminal (rule 1)."""

    def draw(report: Report, trouble: str) -> None:
        width = width_of(form, is_terminal=True)
        text = render_text(report, has_colour=not os.environ.get("NO_COLOR"), width=width)
        lines = [*([harmless(trouble), ""] if trouble else []), *text.splitlines()]
        stream.write(framed(lines, shutil.get_terminal_size().lines))
        stream.flush()

    def ended(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    # By default SIGTERM ends the process at once, and the shell goes on without a cursor.
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, ended) if is_main else None
    stream.write(ENTER)
    try:
        with suppress(KeyboardInterrupt):
            yield draw
    finally:
        stream.write(LEAVE)
        stream.flush()
        if is_main:
            signal.signal(signal.SIGTERM, before)


def framed(lines: Sequence[str], height: int) -> str:
    """The bytes that draw these lines over the ones before, on a screen of ``height`` lines (rule 3)."""
    height = max(height, LINES_MIN)
    if len(lines) > height:
        left_out = len(lines) - height + 1
        lines = [*lines[: height - 1], f"... {left_out} more lines: make the window higher, or ask without --watch"]
    # Each line to its end, and the rest of the screen behind the last: cleared before, the page would flicker.
    return HOME + "\n".join(f"{line}{END_OF_LINE}" for line in lines) + END_OF_SCREEN
