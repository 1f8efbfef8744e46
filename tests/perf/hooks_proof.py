"""
``make prove PARTS=hooks-proof``: 1,000 failovers told to a receiver that fails, hangs and restarts, and what that costs elections.

    python -m tests.perf.hooks_proof [--runs 3] [--waves 10] [--sets 200]

Three controllers as processes; the replicas are played by the contract's protocol (``tests.perf.replicas``): one process
has all slaves, and each wave of masters one that is killed, which is ``sets`` real failovers at once. In every second wave
the hooks' process runs, with its unit's scheduling class; in the others it is stopped, and reads later what it missed. In
each wave with it, it is killed as soon as all are elected, while it delivers, and so is the receiver a little later.

Judged: each election and each master that serves, by the fleet's own record, was taken by the receiver at least once; of
each set in order; nothing is a dead letter. Measured: from the kill until each set's slave heard that it is master, with
and without hooks, as a ratio within one run.
"""

from __future__ import annotations

import argparse
import base64
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from rollcall_ha.controller.contract.events import EventRecord, MasterElected, MilestoneReached
from rollcall_ha.controller.contract.values import EventRef, Phase
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.deploy.local.fleet import Fleet, Layout
from rollcall_ha.deploy.local.processes import free_ports, python_module, wait_until
from rollcall_ha.hooks.settings import load
from rollcall_ha.hooks.store import Store
from rollcall_ha.node.authority import Authority
from rollcall_ha.node.certified import CertifiedName, PeerKind
from rollcall_ha.node.files import DirectoryError
from tests.perf.machine import describe
from tests.perf.replicas import Crowd, CrowdProcess
from tests.perf.results import percentile
from tests.support import hook_receiver

DEADLINE_S = 300.0
PAGE = 500
HOOKS, RECEIVER = "hooks", "receiver"
SECRET = bytes(range(32))
TIMEOUT_MS = 1_000
IDLE = ("chrt", "--idle", "0")
"""As deploy/systemd/rollcall-hooks.service has it; so has the receiver, which stands on another machine in a real fleet."""


@dataclass(slots=True)
class Proof:
    """One run."""

    fleet: Fleet
    waves: int
    sets: int
    port: int
    kills: int = 0
    restarts: int = 0
    deposed_before: int = 0
    """Masters that were deposed before their process was killed."""
    elected_beside: int = 0
    """Replicas that were elected in a wave for another reason than its kill."""
    waits_ms: dict[bool, list[float]] = field(default_factory=lambda: {True: [], False: []})
    """By whether hooks ran: from the kill to each slave's hearing that it is master; without the first wave."""

    @property
    def file(self) -> Path:
        """What the receiver has."""
        return self.fleet.directory / "received.jsonl"

    @property
    def settings(self) -> Path:
        return self.fleet.directory / "hooks.toml"

    def prepare(self) -> None:
        """Settings, a viewer's certificate, the secret."""
        folder = self.fleet.directory
        authority = Authority.load(folder / "authority" / "ca.pem", folder / "authority" / "ca.key")
        name = CertifiedName(fleet=self.fleet.file.fleet.name, kind=PeerKind.VIEWER, name="hooks")
        authority.issue(name).write(folder / "viewer.pem", folder / "viewer.key")
        secret = folder / "secret"
        secret.write_text(f"whsec_{base64.b64encode(SECRET).decode()}\n")
        secret.chmod(0o600)
        controllers = ", ".join(f'"{address}"' for address in self.fleet.rest_addresses())
        trust = "" if self.fleet.file.fleet.insecure else 'authority = "authority/ca.pem"\nidentity = "viewer.pem"\n'
        self.settings.write_text(
            f"version = 1\n[fleet]\ncontrollers = [{controllers}]\n{trust}"
            "[limits]\nfirst_pause_ms = 50\npause_ms_max = 1000\ntries_max = 1000\n"
            f'[[hooks]]\nname = "bad"\nkinds = ["elections", "serving", "exposure"]\nsecret_file = "secret"\n'
            f'url = "http://127.0.0.1:{self.port}/"\ntimeout_ms = {TIMEOUT_MS}\nat_a_time = 16\n'
        )

    def start(self, name: str) -> None:
        """One of the two; until the receiver listens, and hooks have begun to read."""
        if name == HOOKS:
            argv = [*IDLE, *python_module("rollcall_ha.hooks", "run", "--file", str(self.settings))]
            self.fleet.processes.start(name, argv)
            return
        argv = [*IDLE, sys.executable, hook_receiver.__file__, str(self.port), str(self.file), SECRET.hex()]
        self.fleet.processes.start(name, argv)

    def wait_begun(self) -> int:
        """Until the hooks' process has its place in the record: its index."""
        found: list[int] = []

        def has_begun() -> bool:
            cursor, _ = self.state()
            found[:] = [cursor]
            return cursor > 0

        wait_until(has_begun, deadline_s=DEADLINE_S, what="the hooks to begin")
        return found[0]

    def state(self) -> tuple[int, int]:
        """Index up to which is read, and how many deliveries wait."""
        made = load(self.settings)
        try:
            store = Store.visit(made.path(made.data))
        except DirectoryError:
            return 0, 0  # not made yet
        try:
            cursor = store.cursor()
            return 0 if cursor is None else cursor.index, len(store.waiting_after(0))
        finally:
            store.close()

    def is_delivered(self) -> bool:
        """Whether all that is on record is."""
        newest = self.fleet.client().events(limit=1, is_newest=True).last
        assert newest is not None
        index, waiting = self.state()
        return index >= newest.index and waiting == 0

    def wait_delivered(self) -> None:
        """Until all that is on record is delivered."""
        wait_until(self.is_delivered, deadline_s=DEADLINE_S, what="everything on record to be delivered")

    def lines(self) -> list[dict[str, Any]]:
        """What the receiver wrote down; the last line may be torn by a kill."""
        if not self.file.exists():
            return []
        text = self.file.read_text()
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def wave(self, slaves: CrowdProcess, masters: CrowdProcess, *, has_hooks: bool) -> None:
        """All masters of one process are lost at once."""
        before, lost = slaves.told().masters, masters.told().masters
        # On a machine that stood still for seconds some were found silent before; with a tenth fewer it is another wave.
        assert lost >= self.sets * 9 // 10, f"{lost} of {self.sets} are masters"
        self.deposed_before += self.sets - lost
        killed_ns = time.monotonic_ns()
        masters.process.kill()
        wait_until(
            lambda: slaves.told().masters >= before + lost, deadline_s=DEADLINE_S, what=f"{lost} slaves to be elected"
        )
        waits = [(at - killed_ns) / 1e6 for at in slaves.told().elected_at_ns if at > killed_ns]
        assert len(waits) >= lost, f"{lost} masters were killed, {len(waits)} replicas were elected"
        self.elected_beside += len(waits) - lost
        self.waits_ms[has_hooks] += waits
        if not has_hooks:
            return
        # At once, while it reads and delivers; the receiver then, while hooks come back.
        self.fleet.processes.kill(HOOKS)
        self.kills += 1
        self.start(HOOKS)
        received = len(self.lines())
        wait_until(
            lambda: len(self.lines()) > received + self.sets // 4 or self.is_delivered(),
            deadline_s=DEADLINE_S,
            what="deliveries of the process that came back",
        )
        self.fleet.processes.kill(RECEIVER)
        self.restarts += 1
        self.fleet.processes.kill(HOOKS)
        self.kills += 1
        self.start(HOOKS)
        self.start(RECEIVER)


def record_from(fleet: Fleet, index: int) -> Iterator[EventRecord]:
    """Every event behind ``index``."""
    start: EventRef | None = EventRef(term=0, index=index + 1, ordinal=0)
    while start is not None:
        page = fleet.client().events(start=start, limit=PAGE)
        yield from page.events
        start = page.next_from


def expected(records: Sequence[EventRecord]) -> dict[str, set[str]]:
    """Ids of what must have been taken, by type; not by the code that made the deliveries."""
    found: dict[str, set[str]] = {"master-elected": set(), "master-serving": set()}
    serving = set()
    for record in records:
        event = record.event
        place = f"{record.fleet_incarnation}.{record.index}.{record.ordinal}"
        if isinstance(event, MasterElected):
            found["master-elected"].add(f"{place}.master-elected")
        elif isinstance(event, MilestoneReached) and event.milestone.phase is Phase.SERVING:
            # A report whose answer was lost is made again, and is on record twice: its master began to serve once (S81).
            reign = (record.set_key, event.milestone.master_epoch)
            if reign not in serving:
                found["master-serving"].add(f"{place}.master-serving")
            serving.add(reign)
    return found


def judge(proof: Proof, begun: int) -> dict[str, object]:
    """What came of it; ``fails`` counts what must not be."""
    records = list(record_from(proof.fleet, begun))
    failovers = [
        record
        for record in records
        if isinstance(record.event, MasterElected) and record.event.verdict.kind is ElectionKind.FAILOVER
    ]
    lines = proof.lines()
    taken = [line for line in lines if line["taken"]]
    ids = {line["id"] for line in taken}
    wanted = expected(records)
    missing = sum(len(found - ids) for found in wanted.values())
    by_set: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for line in taken:
        by_set[line["set"]].append((line["at"][0], line["at"][1]))
    disordered = 0
    for found in by_set.values():
        # By first receptions: a request of a killed process may lie in a socket until after its repetition.
        first = list(dict.fromkeys(found))
        disordered += sum(before > after for before, after in pairwise(first))
    made = load(proof.settings)
    store = Store.visit(made.path(made.data))
    dead = len(store.dead_letters(limit=1_000))
    store.close()
    bad = sum(not line["good"] for line in lines)
    return {
        "failovers": len(failovers),
        "events": {kind: len(found) for kind, found in wanted.items()},
        "deliveries": len(lines),
        "refused_or_lost": len(lines) - len(taken),
        "taken": len(taken),
        "taken_again": len(taken) - len(ids),
        "missing": missing,
        "out_of_order": disordered,
        "bad_signatures": bad,
        "dead_letters": dead,
        "hooks_killed": proof.kills,
        "receiver_killed": proof.restarts,
        "deposed_before": proof.deposed_before,
        "elected_beside": proof.elected_beside,
        "fails": missing + disordered + bad + dead,
    }


def run(directory: Path, waves: int, sets: int, *, is_insecure: bool = False) -> dict[str, object]:
    """One fleet, all waves; ``is_insecure``: with plain ports, which a busy machine is sooner done with."""
    with ExitStack() as stack:
        fleet = stack.enter_context(Fleet.create(directory, Layout(name="hooks", is_insecure=is_insecure)))
        fleet.up_controllers()
        proof = Proof(fleet=fleet, waves=waves, sets=sets, port=free_ports(1)[0])
        proof.prepare()
        # One wave more, the first: in it everything is done for the first time, and it is not counted.
        names = tuple(f"s{number:04d}" for number in range((waves + 1) * sets))
        port, authority = (
            fleet.file.controllers[fleet.leader()].broker,
            None if is_insecure else fleet.directory / "authority",
        )

        def crowd(some: tuple[str, ...], priority: int) -> CrowdProcess:
            made = Crowd(
                cluster=fleet.file.fleet.name, names=some, priority=priority, controller=port, authority=authority
            )
            return stack.enter_context(CrowdProcess(made))

        masters = [crowd(names[number * sets : (number + 1) * sets], 1) for number in range(waves + 1)]
        slaves = crowd(names, 100)
        for one, count in (*((one, sets) for one in masters), (slaves, len(names))):
            one.tell("join")
            wait_until(
                lambda one=one, count=count: one.told().registered == count,  # type: ignore[misc]
                deadline_s=DEADLINE_S,
                what=f"{count} replicas to be registered",
            )
        wait_until(lambda: slaves.told().entered == len(names), deadline_s=DEADLINE_S, what="all sets to serve")
        proof.start(RECEIVER)
        proof.start(HOOKS)
        begun = proof.wait_begun()
        for number, one in enumerate(masters):
            has_hooks = number % 2 == 1
            if has_hooks:
                if fleet.pid(HOOKS) is None:
                    proof.start(HOOKS)
                proof.wait_delivered()
            elif fleet.pid(HOOKS) is not None:
                proof.wait_delivered()
                fleet.processes.terminate(HOOKS)
            proof.wave(slaves, one, has_hooks=has_hooks)
            waits = sorted(proof.waits_ms[has_hooks][-sets:])
            if number == 0:
                proof.waits_ms[has_hooks].clear()
            word = "with" if has_hooks else "without"
            print(f"  wave {number}, {word} hooks: {percentile(waits, 0.5):.0f} ms, {waits[-1]:.0f} ms", flush=True)
        wait_until(
            lambda: slaves.told().entered == len(names), deadline_s=DEADLINE_S, what="all winners to have entered"
        )
        if fleet.pid(HOOKS) is None:
            proof.start(HOOKS)
        proof.wait_delivered()
        fleet.processes.terminate(HOOKS)
        found = judge(proof, begun)
    with_, without = (sorted(proof.waits_ms[has_hooks]) for has_hooks in (True, False))
    for share, name in ((0.5, "p50"), (0.99, "p99")):
        found |= {
            f"elected_{name}_with_ms": round(percentile(with_, share), 1),
            f"elected_{name}_without_ms": round(percentile(without, share), 1),
            f"ratio_{name}": round(percentile(with_, share) / percentile(without, share), 3),
        }
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 if nothing is missing, out of order, badly signed or dead."""
    parser = argparse.ArgumentParser(prog="python -m tests.perf.hooks_proof")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--waves", type=int, default=10)
    parser.add_argument("--sets", type=int, default=200, help="Of one wave.")
    parser.add_argument("--insecure", action="store_true", help="Plain ports: for a machine that is busy.")
    options = parser.parse_args(arguments)
    found = []
    with tempfile.TemporaryDirectory(prefix="rollcall-hooks-") as directory:
        print(describe(Path(directory)).text(), flush=True)
        for number in range(options.runs):
            print(f"run {number + 1}", flush=True)
            fleet = Path(directory) / f"run-{number + 1}"
            found.append(run(fleet, options.waves, options.sets, is_insecure=options.insecure))
            print(json.dumps(found[-1]), flush=True)
    medians = {}
    for key in ("elected_p50_with_ms", "elected_p50_without_ms", "ratio_p50", "elected_p99_with_ms",
                "elected_p99_without_ms", "ratio_p99"):  # fmt: skip
        values = [float(str(one[key])) for one in found]
        medians[key] = statistics.median(values)
        print(f"{key:<24} min {min(values):8.3f}  median {medians[key]:8.3f}  max {max(values):8.3f}")
    sums = {"runs": len(found), "fails": sum(int(str(one["fails"])) for one in found)}
    print(f"RESULT {json.dumps(sums | medians)}")
    return int(any(one["fails"] for one in found))


if __name__ == "__main__":
    sys.exit(main())
