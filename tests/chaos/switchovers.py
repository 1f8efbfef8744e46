"""
Switchovers under load, and switchovers that fail: nothing acknowledged may be missing, and the old master serves again.

    python3 -m tests.chaos.switchovers --rounds 20

Here: the rounds, the five faults and their counts. The load is 1,000 sends a second; what a send waits at most is the
longest time without an acknowledgement, from the order on. Each fault hits an order that is under way: its target is
stopped, so that the master cannot drain.
Where there is no iptables, or no right to use it, the cut link is SKIPPED, and says so.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rollcall_ha.client.client import Client
from rollcall_ha.client.errors import ClientError
from rollcall_ha.controller.contract.commands import OrderSwitchover
from rollcall_ha.controller.contract.ids import BrokerId, SetKey
from rollcall_ha.controller.contract.replies import SwitchoverAnswer, SwitchoverRow
from rollcall_ha.controller.contract.values import SwitchoverEnd
from rollcall_ha.deploy.local import producer
from rollcall_ha.deploy.local.fleet import Fleet
from rollcall_ha.deploy.local.processes import wait_until
from rollcall_ha.node.config import split_address
from tests.support.fleet_story import Load, heal, judge, load, only_set, running

IN_FLIGHT = 32
PAUSE_MS = 28.0
"""After each answer, which takes two: 1,000 sends a second and some more, as long as nothing holds them up."""
MEDIAN_MS_MAX = 250.0
DEADLINE_MS = 8_000
SHORT_DEADLINE_MS = 300
END_DEADLINE_S = 60.0
STILL_LOOKS = 10
ACKS_BEHIND = 300
"""Acknowledgements behind each order: the gap that it made has ended by then."""

ROLLED_BACK = frozenset({SwitchoverEnd.TARGET_LOST, SwitchoverEnd.DEADLINE, SwitchoverEnd.NOT_ENTERED})


@dataclass(slots=True)
class Result:
    """Sums over all orders."""

    waits_ms: list[float] = field(default_factory=list)
    rollbacks: dict[str, str] = field(default_factory=dict)
    rollback_waits_ms: dict[str, float] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def other_member(fleet: Fleet, key: SetKey) -> BrokerId:
    """The member behind the master, round and round."""
    view = fleet.wait_redundant(key).view
    assert view.master is not None
    later = [one for one in view.sync_state_set if one > view.master]
    return later[0] if later else view.sync_state_set[0]


def switch(fleet: Fleet, key: SetKey, to: BrokerId, *, deadline_ms: int = DEADLINE_MS) -> SwitchoverAnswer:
    """One order, at its end."""
    return fleet.client().order(OrderSwitchover(set_key=key, to=to, deadline_ms=deadline_ms, reason="drill"))


def one_switchover(fleet: Fleet, work: Load, result: Result) -> SwitchoverAnswer:
    """The next member becomes master; notes what a send waited."""
    key = only_set(fleet)
    to = other_member(fleet, key)
    since_ns = time.monotonic_ns()
    answer = switch(fleet, key, to)
    work.wait_more(ACKS_BEHIND)
    result.waits_ms.append(work.longest_gap_ms(since_ns))
    if answer.row.end is not SwitchoverEnd.DONE or answer.view.master != to:
        result.wrong.append(f"to {to}: {answer.row.end}, {answer.row.reason}")
    return answer


class Order:
    """One order in a thread of its own, so that something can be done to it."""

    def __init__(self, client: Client, key: SetKey, to: BrokerId, deadline_ms: int) -> None:
        self.answer: SwitchoverAnswer | None = None
        self.error: ClientError | None = None
        self._thread = threading.Thread(target=self._run, args=(client, key, to, deadline_ms), daemon=True)
        self._thread.start()

    def _run(self, client: Client, key: SetKey, to: BrokerId, deadline_ms: int) -> None:
        try:
            self.answer = client.order(OrderSwitchover(set_key=key, to=to, deadline_ms=deadline_ms, reason="drill"))
        except ClientError as error:
            self.error = error

    def ended(self) -> SwitchoverAnswer:
        """Its answer. Raises the error of the call."""
        self._thread.join(END_DEADLINE_S)
        if self.error is not None:
            raise self.error
        assert self.answer is not None, f"the order was not answered within {END_DEADLINE_S} s"
        return self.answer


@contextmanager
def target_hangs(fleet: Fleet, target: str) -> Iterator[None]:
    """SIGSTOP: the master cannot drain."""
    fleet.stop(target)
    try:
        yield
    finally:
        if fleet.pid(target) is not None:
            fleet.cont(target)


def wait_stalled(work: Load) -> None:
    """Until every sender waits: with nothing unconfirmed a master has drained at once, and no fault is in the way."""
    seen: list[int] = []

    def is_still() -> bool:
        seen.append(work.acked())
        return len(seen) > STILL_LOOKS and seen[-1] == seen[-STILL_LOOKS]

    wait_until(is_still, deadline_s=10, what="every send to wait")


def is_draining(fleet: Fleet, key: SetKey) -> bool:
    """The order is under way."""
    status = fleet.set_status(key)
    return status is not None and status.view.switchover is not None


def rolled_back(
    fleet: Fleet, work: Load, name: str, result: Result, hurt: Callable[[str, Order], None], **order: int
) -> SwitchoverRow:
    """An order whose target hangs, and ``hurt`` while it is under way; the old master must serve again."""
    heal(fleet)
    key = only_set(fleet)
    to = other_member(fleet, key)
    target, before = fleet.broker_by_id(key, to), fleet.master(key)
    since_ns = time.monotonic_ns()
    with target_hangs(fleet, target):
        wait_stalled(work)
        asked = Order(fleet.client(), key, to, order.get("deadline_ms", DEADLINE_MS))
        wait_until(
            lambda: is_draining(fleet, key) or asked.answer or asked.error,
            deadline_s=10,
            what="the order to be under way",
        )
        hurt(target, asked)
        answer = asked.ended()
    work.wait_more(ACKS_BEHIND)
    fleet.leader()
    after = fleet.master(key)
    rows = fleet.client().history(key).switchovers
    told = next((row for row in rows if row.order == answer.row.order), None)
    result.rollbacks[name] = f"{answer.row.end}: {answer.row.reason}"
    result.rollback_waits_ms[name] = round(work.longest_gap_ms(since_ns), 1)
    if answer.row.end not in ROLLED_BACK or after != before:
        result.wrong.append(f"{name}: {answer.row.end} ({answer.row.reason}), master {before} -> {after}")
    if told is None or (told.end, told.reason) != (answer.row.end, answer.row.reason):
        result.wrong.append(f"{name}: the record says {told}")
    print(f"rollback {name}: {result.rollbacks[name]}; waited {result.rollback_waits_ms[name]} ms", flush=True)
    heal(fleet)
    return answer.row


def _nothing(_target: str, _order: Order) -> None:
    pass


def why_no_cut() -> str:
    """Why links cannot be cut here; empty = they can."""
    if os.geteuid() != 0:
        return "cutting a link needs root"
    if shutil.which("iptables") is None:
        return "iptables is not installed"
    probe = subprocess.run(["iptables", "-n", "-L", "INPUT"], capture_output=True, text=True, check=False)
    return "" if probe.returncode == 0 else f"iptables: {probe.stderr.strip()[:80]}"


@contextmanager
def ha_port_cut(fleet: Fleet, name: str) -> Iterator[None]:
    """Nothing arrives at the HA port of ``name``, nor from it."""
    port = str(split_address(fleet.file.broker(name).ha)[1])
    with ExitStack() as rules:
        for side in ("--dport", "--sport"):
            rule = ["INPUT", "-p", "tcp", side, port, "-j", "DROP"]
            subprocess.run(["iptables", "-A", *rule], check=True)
            rules.callback(subprocess.run, ["iptables", "-D", *rule], check=True)
        yield


def all_rollbacks(fleet: Fleet, work: Load, result: Result) -> None:
    """The five faults."""

    def die(target: str, _order: Order) -> None:
        fleet.kill(target)

    def lose_leader(_target: str, _order: Order) -> None:
        fleet.processes.signal(fleet.leader(), signal.SIGKILL)

    rolled_back(fleet, work, "target hangs", result, _nothing)
    rolled_back(fleet, work, "target dies", result, die)
    rolled_back(fleet, work, "leader dies", result, lose_leader)
    rolled_back(fleet, work, "deadline", result, _nothing, deadline_ms=SHORT_DEADLINE_MS)
    why = why_no_cut()
    if why:
        result.skipped.append(f"link cut: {why}")
        print(f"SKIPPED link cut: {why}", flush=True)
        return
    cut_rollback(fleet, work, result)


def cut_rollback(fleet: Fleet, work: Load, result: Result) -> None:
    """The links of the master are cut, and all processes live."""
    heal(fleet)
    key = only_set(fleet)
    to, before = other_member(fleet, key), fleet.master(key)
    with ha_port_cut(fleet, before):
        wait_stalled(work)
        answer = switch(fleet, key, to)
    work.wait_more(ACKS_BEHIND)
    after = fleet.master(key)
    result.rollbacks["link cut"] = f"{answer.row.end}: {answer.row.reason}"
    print(f"rollback link cut: {result.rollbacks['link cut']}", flush=True)
    if answer.row.end not in ROLLED_BACK or after != before:
        result.wrong.append(f"link cut: {answer.row.end} ({answer.row.reason}), master {before} -> {after}")
    heal(fleet)


def run(directory: Path, rounds: int) -> int:
    """Exit code 0 if nothing was lost, and every order ended as it must."""
    result = Result()
    with running(directory) as fleet:
        with load(fleet, in_flight=IN_FLIGHT, pause_ms=PAUSE_MS) as work:
            for number in range(1, rounds + 1):
                row = one_switchover(fleet, work, result).row
                print(
                    f"{number}: {row.from_master} -> {row.to_master} {row.end}, waited {result.waits_ms[-1]:.1f} ms",
                    flush=True,
                )
            done = producer.read_counts(fleet.books)
            all_rollbacks(fleet, work, result)
            sent = producer.read_counts(fleet.books)
        audit = judge(fleet)
    waits = sorted(result.waits_ms)
    summary = {
        "switchovers": len(waits),
        "acked": audit["acked"],
        "lost": audit["lost"],
        "duplicated": audit["duplicated"],
        "waited_ms": {
            "min": round(waits[0], 1),
            "median": round(statistics.median(waits), 1),
            "max": round(waits[-1], 1),
        },
        "failed_sends_in_switchovers": done.unknown + done.not_appended,
        "failed_sends": sent.unknown + sent.not_appended,
        "rollbacks": result.rollbacks,
        "rollbacks_waited_ms": result.rollback_waits_ms,
        "skipped": result.skipped,
        "wrong": result.wrong,
    }
    print(f"RESULT {json.dumps(summary)}")
    is_slow = statistics.median(waits) >= MEDIAN_MS_MAX
    return int(bool(result.wrong or audit["lost"] or is_slow))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.switchovers")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="rollcall-switchovers-") as directory:
        return run(Path(directory) / "fleet", options.rounds)


if __name__ == "__main__":
    sys.exit(main())
