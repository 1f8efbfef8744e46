"""
A host with 200 masters is drained under load, while the command, and then the leading controller, is killed.

    python3 -m tests.chaos.drain --sets 200

Here: the drill and its counts. One set is of real brokers under 1,000 sends a second; the others are played by two
processes (``tests.perf.replicas``): sessions, links and roles by the contract's protocol, without logs behind them. All
masters are on 127.0.0.2. The drain is stopped once by a pause of the fleet, killed once, and meets a leader that is
killed once; each time the same command goes on with what is left. A watch reads all sets all the time: no more may be
without a spare replica than are moved at a time, and each of those has an order or an election under way.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rollcall_ha.client.errors import ClientError
from rollcall_ha.controller.contract.commands import OrderSwitchover, PauseElections, ResumeElections
from rollcall_ha.controller.contract.hosts import master_of, spare_of
from rollcall_ha.controller.contract.ids import BrokerId
from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.controller.contract.values import host_of
from rollcall_ha.controller.contract.views import SetStatus
from rollcall_ha.deploy.local import producer
from rollcall_ha.deploy.local.fleet import Fleet, Layout
from rollcall_ha.deploy.local.processes import wait_until
from rollcall_ha.node.config import load_fleet_file
from tests.perf.replicas import Crowd, CrowdProcess
from tests.support.fleet_story import Load, judge, load, only_set, running

SETS = 200
AT_A_TIME = 8
HOST, ELSEWHERE = "127.0.0.2", "127.0.0.3"
IN_FLIGHT = 32
PAUSE_MS = 28.0
"""After each answer, which takes two: 1,000 sends a second and some more, as long as nothing holds them up."""
REGISTER_DEADLINE_S = 180.0
SEGMENT_DEADLINE_S = 300.0
WATCH_S = 0.2
_PROGRESS = re.compile(rb"^\[\d+/\d+\] .*: done", re.MULTILINE)


@dataclass(slots=True)
class Watch:
    """What the sets looked like, again and again."""

    samples: int = 0
    unanswered: int = 0
    without_spare_most: int = 0
    without_reason: list[str] = field(default_factory=list)
    whole_least: int = 1_000
    """Replicas that are in sync and alive, of the set that had fewest."""

    def look(self, sets: Sequence[SetStatus]) -> None:
        """One sample."""
        self.samples += 1
        bare = [status for status in sets if spare_of(status) < 1]
        self.without_spare_most = max(self.without_spare_most, len(bare))
        for status in bare:
            if status.view.switchover is None and status.view.condition is not Condition.ENTERING:
                self.without_reason.append(f"{status.view.set_key}: {status.view.condition_reason}")
        for status in sets:
            whole = sum(one.is_in_sync and one.is_alive for one in status.replicas)
            self.whole_least = min(self.whole_least, whole)


@contextmanager
def watching(fleet: Fleet) -> Iterator[Watch]:
    """A thread that reads all sets from the leader."""
    watch, over = Watch(), threading.Event()

    def run() -> None:
        with Fleet(fleet.directory).client() as asking:
            while not over.wait(WATCH_S):
                try:
                    watch.look(asking.sets().sets)
                except ClientError:
                    watch.unanswered += 1

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        over.set()
        thread.join()


@dataclass(slots=True)
class Segment:
    """One ``rollcall drain``."""

    process: subprocess.Popen[bytes]
    errors: Path
    output: Path

    def moved(self) -> int:
        """Sets that it said to have moved."""
        return len(_PROGRESS.findall(self.errors.read_bytes()))

    def wait_moved(self, count: int) -> None:
        """Until it has moved so many, or has ended."""
        wait_until(
            lambda: self.moved() >= count or self.process.poll() is not None,
            deadline_s=SEGMENT_DEADLINE_S,
            what=f"{count} sets to be moved",
        )

    def ended(self) -> int:
        """Its exit code."""
        return self.process.wait(SEGMENT_DEADLINE_S)


def begin(fleet: Fleet, name: str) -> Segment:
    """The command, with its progress in a file."""
    errors, output = fleet.directory / f"{name}.err", fleet.directory / f"{name}.out"
    command = fleet.command("drain", HOST, "--at-a-time", str(AT_A_TIME), "--reason", name, "-o", "json")
    with errors.open("wb") as err, output.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=fleet.commands_environment()
        )
    return Segment(process=process, errors=errors, output=output)


def on_another_host(fleet: Fleet, *names: str) -> None:
    """These brokers get an address on the host that is drained; ``rollcall.toml`` has them on 127.0.0.1."""
    path = fleet.directory / "rollcall.toml"
    text = path.read_text()
    for name in names:
        head, section, rest = text.partition(f"[brokers.{name}]\n")
        own, end, others = rest.partition("\n[")
        assert section
        text = head + section + own.replace('listen = "127.0.0.1:', f'listen = "{HOST}:') + end + others
    path.write_text(text)
    fleet.file = load_fleet_file(path)


@contextmanager
def crowds(fleet: Fleet, sets: int) -> Iterator[None]:
    """``sets`` played sets, their masters on ``HOST``."""
    names = tuple(f"s{number:04d}" for number in range(sets))
    leader = fleet.leader()
    ports = {name: section.broker for name, section in fleet.file.controllers.items()}
    make = partial(
        Crowd,
        cluster=fleet.file.fleet.name,
        names=names,
        controller=ports[leader],
        others=tuple(port for name, port in ports.items() if name != leader),
        authority=fleet.directory / "authority",
    )
    with CrowdProcess(make(priority=1, host=HOST)) as masters, CrowdProcess(make(priority=100, host=ELSEWHERE)) as rest:
        for crowd in (masters, rest):
            crowd.tell("join")
            wait_until(
                lambda crowd=crowd: crowd.told().registered == sets,  # type: ignore[misc]
                deadline_s=REGISTER_DEADLINE_S,
                what=f"{sets} replicas to be registered",
            )
        wait_until(lambda: rest.told().entered == sets, deadline_s=REGISTER_DEADLINE_S, what=f"{sets} sets to serve")
        yield
        told = (masters.told(), rest.told())
        assert [one.broken for one in told] == [0, 0], [one.reason for one in told]


def masters_on(fleet: Fleet, host: str) -> int:
    """By the leader's word."""
    masters = [master_of(status) for status in fleet.client().sets().sets]
    return sum(master is not None and host_of(master.address) == host for master in masters)


def drill(fleet: Fleet, work: Load, sets: int) -> dict[str, object]:
    """Drain, with everything that is done to it; what came of it."""
    part, wrong = max(1, sets // 5), []
    began = time.monotonic()
    first = begin(fleet, "stopped")
    first.wait_moved(part)
    until_ms = int(time.time() * 1000) + 600_000
    fleet.client().order(PauseElections(set_key=None, expires_at_ms=until_ms, reason="stop the drain"))
    if (code := first.ended()) != 1 or not json.loads(first.output.read_bytes())["stopped"]:
        wrong.append(f"paused, the drain ended with {code}")
    fleet.client().order(ResumeElections(set_key=None))
    print(f"stopped by a pause after {first.moved()} sets", flush=True)

    second = begin(fleet, "killed")
    second.wait_moved(part)
    second.process.send_signal(signal.SIGKILL)
    second.ended()
    print(f"killed after {second.moved()} more", flush=True)

    third = begin(fleet, "leader-killed")
    third.wait_moved(part)
    leader = fleet.leader()
    fleet.kill(leader)
    killed_after = third.moved()
    code = third.ended()
    batch = json.loads(third.output.read_bytes())
    left = [one for one in batch["moved"] if one["outcome"] not in ("done", "elsewhere")]
    if code != 0 or left:
        wrong.append(f"the drain ended with {code}: {left[:5]}")
    print(f"controller {leader} killed after {killed_after} more; the drain ended with {code}", flush=True)
    took_s = time.monotonic() - began
    fleet.restart(leader)
    work.wait_more()
    if (still := masters_on(fleet, HOST)) != 0:
        wrong.append(f"{still} masters are on {HOST} still")
    return {
        "sets": sets,
        "moved": {"until stopped": first.moved(), "until killed": second.moved(), "to the end": third.moved()},
        "left": len(left),
        "controllers_killed": 1,
        "took_s": round(took_s, 1),
        "wrong": wrong,
    }


def run(directory: Path, sets: int) -> int:
    """Exit code 0 if every master was moved, nothing was lost, and no set was without a spare that was not its turn."""
    layout = Layout(timing="safe")
    with running(directory, layout, prepare=lambda made: on_another_host(made, "broker-a-1")) as fleet:
        key = only_set(fleet)
        if fleet.master(key) != "broker-a-1":
            home = next(one.broker_id for one in fleet.wait_redundant(key).replicas if host_of(one.address) == HOST)
            fleet.client().order(OrderSwitchover(set_key=key, to=BrokerId(home), reason="begin there"))
        with crowds(fleet, sets - 1):
            print(f"{sets} masters on {HOST}", flush=True)
            assert masters_on(fleet, HOST) == sets
            with load(fleet, in_flight=IN_FLIGHT, pause_ms=PAUSE_MS) as work, watching(fleet) as watch:
                found = drill(fleet, work, sets)
                sent = producer.read_counts(fleet.books)
        audit = judge(fleet)
    found |= {
        "acked": audit["acked"],
        "lost": audit["lost"],
        "failed_sends": sent.unknown + sent.not_appended,
        "samples": watch.samples,
        "samples_unanswered": watch.unanswered,
        "at_a_time": AT_A_TIME,
        "without_spare_most": watch.without_spare_most,
        "without_spare_and_reason": len(watch.without_reason),
        "whole_replicas_least": watch.whole_least,
    }
    is_bare = watch.without_spare_most > AT_A_TIME or bool(watch.without_reason) or watch.whole_least < 2
    fails = len(found["wrong"]) + is_bare + bool(audit["lost"])  # type: ignore[arg-type]
    print(*watch.without_reason[:5], sep="\n")
    print(f"RESULT {json.dumps(found | {'fails': fails})}")
    return int(fails > 0)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.drain")
    parser.add_argument("--sets", type=int, default=SETS)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="rollcall-drain-") as directory:
        return run(Path(directory) / "fleet", options.sets)


if __name__ == "__main__":
    sys.exit(main())
