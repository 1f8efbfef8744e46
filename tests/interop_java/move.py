"""
A live fleet moves from RocketMQ's controllers to Rollcall's and back, producer and consumer at work all the time.

Here: the procedure of docs/moving-from-rocketmq.md, step by step, by the commands that it names, and what must hold
after each. Not here: the commands (``rollcall import rocketmq``, ``rollcall export rocketmq``).

Rule 1: the name server stays RocketMQ's all the time; one thing moves.
Rule 2: slaves are restarted before the master, one after the other, each with the new controllers' addresses.
Rule 3: ids never change, the masterEpoch never falls, and every acknowledged message is consumed at the end.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rollcall_ha.deploy.local.processes import LauncherError, python_module, wait_until
from tests.interop_java import asking
from tests.interop_java.admin import BROKERS
from tests.interop_java.fleet import SET, JavaFleet
from tests.interop_java.sides import JavaSide, Side, rollcall_side
from tests.interop_java.story import HEALED_DEADLINE_S, HEALTHY_ACKS, Audit, Plan, Story

COMMAND_DEADLINE_S = 120.0
ACKS_BETWEEN = 200
WAITS = "moves here"
REFRESH = "refresh"
NOTHING = "nothing to do"
FAULTS = Plan(kills=1, stops=0, leaders=1, restarts=0)
"""What strikes the fleet while it is Rollcall's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step and what it left."""

    name: str
    seconds: float
    epoch: int
    ids: dict[int, str]


@dataclass
class Move:
    """There and back."""

    java: JavaFleet
    directory: Path
    say: Callable[[str], object]
    steps: list[Step] = field(default_factory=list)

    def run(self) -> Audit:
        """Raises ``LauncherError`` with the step that did not end well."""
        there = JavaSide(self.java)
        there.up()
        self.story = Story(there, self.java, FAULTS, self.say)
        self.story.start_brokers()
        self.story.start_clients()
        self.names = there.namesrv
        before = self.story.ids()
        self._done("start", time.monotonic())
        with rollcall_side(self.directory / "rollcall") as ours:
            self.ours = ours
            self._there(there)
            for number, kind in enumerate(FAULTS.faults(), start=1):
                self.story.strike(number, kind)
            back = self._back()
            return self._audit(back, before)

    def _there(self, there: JavaSide) -> None:
        """The page's section "There"."""
        words = ("import", "rocketmq", "--controllers", there.controllers, "--namesrv", self.names)
        self._step("import --dry-run", (*words, "--dry-run"))
        self._step("import", words)
        self._must_say(WAITS, "status")
        self._roll(
            self.ours, "to Rollcall", lambda: self._step("import again", words, must_say=REFRESH), is_followed=True
        )
        self._rollcall("status", "--check")
        self._must_say(SET, "history", SET)
        self.java.terminate(*there.names())

    def _back(self) -> JavaSide:
        """The page's section "Back"."""
        back = JavaSide(self.java, prefix="back")
        back.up(namesrv=self.names)
        words = ("export", "rocketmq", "--controllers", back.controllers)
        self._step("export --dry-run", (*words, "--dry-run"))
        self._step("export", (*words, "--yes"))
        self._roll(
            back,
            "back to RocketMQ",
            lambda: self._step("export again", (*words, "--dry-run"), must_say=NOTHING),
            is_followed=False,
        )
        self._step("clean", ("clean", SET, "--unclean", "--yes"))
        return back

    def _audit(self, back: JavaSide, before: dict[int, str]) -> Audit:
        """What is left without our controllers."""
        assert self.story.side is back, "the fleet is RocketMQ's again"
        for name in self.ours.names():
            self.ours.fleet.terminate(name)
        self.story.wait_acks(ACKS_BETWEEN)
        return self.story.finish(before)

    def _step(self, name: str, words: tuple[str, ...], *, must_say: str = "") -> None:
        began = time.monotonic()
        self._must_say(must_say, *words)
        self._done(name, began)

    def _must_say(self, text: str, *words: str) -> None:
        """What the page promises. Raises ``LauncherError`` with what was said instead."""
        said = self._rollcall(*words)
        if text not in said:
            raise LauncherError(f"rollcall {' '.join(words)} does not say {text!r}:\n{said}")

    def _rollcall(self, *words: str) -> str:
        """What a command prints. Raises ``LauncherError`` if it ends with another code than 0."""
        done = subprocess.run(
            python_module("rollcall_ha.cli.main", *words),
            capture_output=True,
            text=True,
            timeout=COMMAND_DEADLINE_S,
            check=False,
            env=self.ours.fleet.commands_environment(),
        )
        self.say(f"rollcall {' '.join(words)}\n{done.stdout}{done.stderr}")
        if done.returncode != 0:
            said = done.stderr + done.stdout
            raise LauncherError(f"rollcall {' '.join(words)} ended with {done.returncode}: {said}")
        return done.stdout

    def _roll(self, to: Side, name: str, before_master: Callable[[], None], *, is_followed: bool) -> None:
        """
        Every broker restarted with the new addresses, the master last.

        ``is_followed``: slaves follow the master where it still is, as ours tell them; RocketMQ's let them wait, fenced.
        """
        began = time.monotonic()
        seen = self.java.wait_in_sync(self.story.side.controllers, len(BROKERS), deadline_s=HEALED_DEADLINE_S)
        master = self.java.name_of(seen.master_address or "")
        for broker in (*(other for other in BROKERS if other != master), master):
            if broker == master:
                before_master()
            self.java.terminate(broker)
            self.java.start_broker(broker, controllers=to.controllers, namesrv=self.names)
            self.java.wait_serving(broker)
            if broker != master:
                if is_followed:
                    self._wait_caught_up(broker, master)
                self.story.wait_acks(HEALTHY_ACKS)
        self.story.side = to
        self.java.wait_in_sync(to.controllers, len(BROKERS), deadline_s=HEALED_DEADLINE_S)
        self.story.wait_acks(ACKS_BETWEEN)
        self._done(name, began)

    def _wait_caught_up(self, slave: str, master: str) -> None:
        """The slave holds what the master held when it was asked."""
        end = asking.log_end_of(self.java.address(master))
        wait_until(
            lambda: asking.log_end_of(self.java.address(slave)) >= end,
            deadline_s=HEALED_DEADLINE_S,
            what=f"{slave} to have {end} bytes of log as {master} had",
        )

    def _done(self, name: str, began: float) -> None:
        seen = self.java.wait_in_sync(self.story.side.controllers, 1)
        self.story.epochs.append(seen.master_epoch)
        self.steps.append(
            Step(name=name, seconds=time.monotonic() - began, epoch=seen.master_epoch, ids=dict(seen.ids))
        )
        self.say(f"{name}: masterEpoch {seen.master_epoch}, ids {sorted(seen.ids)}")


def table(steps: Sequence[Step]) -> str:
    """One line per step."""
    lines = [f"{'STEP':<20} {'TOOK':>8}  MASTER EPOCH  IDS"]
    for step in steps:
        ids = ", ".join(f"{number} at {address}" for number, address in sorted(step.ids.items()))
        lines.append(f"{step.name:<20} {step.seconds:>6.1f} s  {step.epoch:>12}  {ids}")
    return "\n".join(lines)
