"""
``rollcall drill SET``: a rehearsed failover, with a stopwatch of clients beside it.

Here: the steps, the probe beside them. Not here: what is judged (``drilling``), the probe (a program of its own),
the order to switch over (``controller.core.decide_switchover``, R29).

Rule 1: a drill kills nobody. With ``--hard`` a command does, which its caller names, and which says how it went.
Rule 2: nothing is begun before the probe is served: else a set that clients do not reach would pass.
Rule 3: no maintenance is begun for it: of a replica in maintenance nothing is expected, so nothing would be rehearsed.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import msgspec
import typer

from rollcall_ha.cli import context, drilling, probe, run
from rollcall_ha.cli.brokers import brokers_of
from rollcall_ha.cli.drilling import Felt, Judgement, Shown
from rollcall_ha.cli.options import DrillOptions, OperatorOptions
from rollcall_ha.cli.orders import is_looked_at, switchover_of
from rollcall_ha.cli.output import CommandExit, Format, complain, fail, print_report
from rollcall_ha.cli.waiting import patiently
from rollcall_ha.controller.contract.hosts import master_of
from rollcall_ha.controller.contract.ids import BrokerId
from rollcall_ha.controller.contract.values import SwitchoverEnd, host_of

if TYPE_CHECKING:
    from rollcall_ha.client.client import Client
    from rollcall_ha.controller.contract.views import SetStatus

ACK_INTERVALS, THRESHOLD_INTERVALS = 5, 2
"""The probe's times, in its intervals: it fails a send after so many, and tells a gap that is longer."""
STEP_S_MAX = 30.0
"""For the probe's first acknowledgement, and for the stop command."""
POLL_S = 0.05
_decode_felt = msgspec.json.Decoder(Felt).decode


def drill(name: str, order: OperatorOptions, options: DrillOptions) -> None:
    """Judge, rehearse, report. Raises ``typer.Exit``."""
    words, within_s = _stop_words(options), context.decode_duration_s("--within", options.within, least="1s")
    grain_ms = (ACK_INTERVALS + 1) * options.interval_ms
    if options.at_most_ms is not None and options.at_most_ms < grain_ms:
        raise typer.BadParameter(f"--at-most-ms {options.at_most_ms} is finer than the probe's grain of {grain_ms} ms")
    with context.client(order.form) as asking:
        brokers = brokers_of(asking, name)
        before = asking.set(brokers.key).set
        judged = drilling.judge(
            before,
            asking.history(brokers.key).rows,
            asking.settings().settings,
            is_hard=options.is_hard,
            spends_last=options.spends_last,
            now_ms=time.time_ns() // 1_000_000,
        )
        report = drilling.judgement_report(judged)
        if judged.against:
            # A program reads the refusal where it reads answers, as those of the leader.
            stream, form = (sys.stdout, order.form) if order.form.is_for_programs else (sys.stderr, Format.TABLE)
            print_report(report, form, stream=stream)
            raise typer.Exit(CommandExit.REFUSED)
        if not options.is_hard:
            asking.preview(switchover_of(before, None, order.reason))
        if is_looked_at(order, lambda: report, "Begin the drill?"):
            return
        shown = _Drill(asking, before, order.reason or "a drill", within_s).run(judged, words, options)
        print_report(drilling.shown_report(shown, brokers.names), order.form)
        if shown.failures:
            raise typer.Exit(CommandExit.REFUSED)


def _stop_words(options: DrillOptions) -> list[str]:
    """The words of the stop command; of a switchover none. Raises ``typer.Exit``: it cannot be run (2)."""
    if options.is_hard != bool(options.stop_command):
        raise typer.BadParameter("--hard and --stop-command CMD belong together")
    try:
        words = shlex.split(options.stop_command)
    except ValueError as error:
        raise typer.BadParameter(f"--stop-command: {error}") from None
    if words and shutil.which(words[0]) is None:
        raise typer.BadParameter(f"--stop-command: there is no program {words[0]!r}")
    return words


def _settle(options: DrillOptions) -> None:
    """Let the probe send on: the controllers know a whole set before a client has followed its master."""
    Event().wait(2 * (ACK_INTERVALS + 1) * options.interval_ms / 1000)


class _Drill:
    """One drill of a set that was ``before``; whole again ``within_s``, or not passed."""

    def __init__(self, asking: Client, before: SetStatus, reason: str, within_s: float) -> None:
        self._asking, self._before, self._reason, self._within_s = asking, before, reason, within_s

    def run(self, judged: Judgement, words: list[str], options: DrillOptions) -> Shown:
        """Raises ``ClientError``, and ``typer.Exit``: the probe is not served (1)."""
        before, whole_after_ms, now = self._before, None, None
        # By default it ends this process at once, and the probe sends on for minutes.
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        beside = _Probe(before, options.interval_ms, lasts_s=2 * (self._within_s + STEP_S_MAX))
        try:
            beside.wait_served()
            complain(f"The probe is served; {'the stop command is run' if words else 'the master hands over'}.")
            began_ns = time.monotonic_ns()
            if not (trouble := self._stopped(words) if words else self._switched(before, None)):
                now, trouble = self._whole(before)
            if now is not None and not trouble:
                whole_after_ms = (time.monotonic_ns() - began_ns) // 1_000_000
                # Of a master that came back so fast that it was elected again, there is no way back.
                if options.goes_back and now.view.master != before.view.master:
                    complain("The set is whole again; the mastership goes back.")
                    _settle(options)
                    if not (trouble := self._switched(now, before.view.master)):
                        now, trouble = self._whole(now)
            _settle(options)
        finally:
            felt, ended = beside.stop()
        rows = self._asking.history(judged.set_key, limit=10).rows
        return Shown(
            judgement=judged,
            felt=felt,
            felt_ms=drilling.longest_ms_of(felt),
            whole_after_ms=whole_after_ms,
            budget_after=None if now is None else now.failure_budget,
            reigns=tuple(row for row in reversed(rows) if row.master_epoch > before.view.master_epoch),
            failures=drilling.failures_of(felt, at_most_ms=options.at_most_ms, troubles=(trouble, ended)),
        )

    def _switched(self, status: SetStatus, to: BrokerId | None) -> str:
        """Empty: the mastership is elsewhere. Raises ``ClientError``."""
        row = self._asking.order(switchover_of(status, to, self._reason)).row
        return "" if row.end is SwitchoverEnd.DONE else f"the switchover ended as {row.end}: {row.reason}"

    def _stopped(self, words: list[str]) -> str:
        """Empty: the stop command says that it is done (rule 1)."""
        master = master_of(self._before)
        assert master is not None
        of_master = {"{master}": master.name or str(master.broker_id), "{host}": host_of(master.address)}
        for field, told in of_master.items():
            words = [word.replace(field, told) for word in words]
        try:
            # Its output goes to standard error: standard output is the report.
            done = subprocess.run(words, check=False, stdin=subprocess.DEVNULL, stdout=2, timeout=STEP_S_MAX)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"the stop command failed: {error}"
        return f"the stop command ended with {done.returncode}" if done.returncode else ""

    def _whole(self, before: SetStatus) -> tuple[SetStatus | None, str]:
        """The set, and why it is not as ``before`` under a later master. Raises ``ClientError``: a refusal."""

        def look(limit_ms: int) -> tuple[SetStatus, str]:
            status = self._asking.set(before.view.set_key, limit_ms=limit_ms).set
            return status, drilling.not_yet(before, status)

        now, trouble = patiently(look, self._within_s)
        return now, f"it is not whole after {self._within_s:g} s: {trouble}" if trouble else ""


class _Probe:
    """A ``rollcall probe`` at the brokers of one set, a process of its own. It ends after ``lasts_s``."""

    def __init__(self, status: SetStatus, interval_ms: int, *, lasts_s: float) -> None:
        self._name = status.view.set_key.name
        ack_ms, threshold_ms = ACK_INTERVALS * interval_ms, THRESHOLD_INTERVALS * interval_ms
        self._limits = {"intervalMs": interval_ms, "thresholdMs": threshold_ms}
        options: dict[str, object] = {
            "interval-ms": interval_ms,
            "ack-timeout-ms": ack_ms,
            "threshold-ms": threshold_ms,
        }
        options |= {"once-s": lasts_s, "brokers": ",".join(one.address for one in status.replicas)}
        told = ("--json", "--log-format=json", "--log-level=info")
        command, environment = run.command_of(probe.PROGRAM, *probe.arguments_of(options), *told)
        self._folder = tempfile.TemporaryDirectory(prefix="rollcall-drill-")
        self._answer, self._log = Path(self._folder.name) / "answer", Path(self._folder.name) / "log"
        with self._answer.open("wb") as out, self._log.open("wb") as log:
            # A group of its own: Ctrl-C ends the drill, which then ends the probe.
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=log, process_group=0
            )

    def wait_served(self) -> None:
        """Rule 2. Raises ``typer.Exit`` (1)."""
        deadline = time.monotonic() + STEP_S_MAX
        while b'"first_acknowledgement"' not in self._log.read_bytes():
            if self._process.poll() is not None or time.monotonic() >= deadline:
                raise fail(f"REFUSED  no drill: the probe is not served: {self._said()}", CommandExit.REFUSED)
            Event().wait(POLL_S)

    def stop(self) -> tuple[Felt, str]:
        """The probe's figures, and why they are not known; empty: they are."""
        self._process.terminate()
        try:
            code = self._process.wait(STEP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        with self._folder:
            if code not in (os.EX_OK, int(CommandExit.REFUSED)):
                return _decode_felt(json.dumps(self._limits)), f"the probe ended with {code}: {self._said()}"
            told = json.loads(self._answer.read_bytes())
        return _decode_felt(json.dumps({**self._limits, **told["sets"][self._name], "gaps": told["gaps"]})), ""

    def _said(self) -> str:
        return " ".join(self._log.read_text(errors="replace").splitlines()[-2:])
