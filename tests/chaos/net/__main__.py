"""
`make chaos-net ROUNDS=n`: every fault of ``faults`` once a round, on a fleet of machines under load.

    python -m tests.chaos.net [--rounds N] [--seconds S] [--seed N] [--only TEXT]... [--file FILE] [--table]

Each fault: load, fault, the fleet has to serve, heal, the fleet has to be whole; then the raw files of every replica are
read against the producer's ledger, which lies on another machine, and the record against the producer's stopwatch. A line
for each is added to FILE (of the verb: tests/chaos/net/rounds.jsonl) with its commit, so that rounds of many days add up;
``--table`` prints them all. Exit code 1: lost, doubled, stuck, or a record that is wrong; or nothing was tried.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from rollcall_ha.deploy.local import ledger, sites
from rollcall_ha.deploy.local.fleet import Fleet, Layout
from rollcall_ha.deploy.local.machines import Machines, MachinesError
from rollcall_ha.deploy.local.processes import LauncherError, wait_until
from tests.chaos.net import faults
from tests.chaos.net.faults import FAULTS, NotHere, Stage
from tests.chaos.net.verdict import ROCKETMQ_RTO_MS, Trial, append, longest_gap_ms, read, table, untrue
from tests.support.fleet_story import Load, judge, load

DEFAULT_DIRECTORY = Path(".chaos-net")
ROUNDS_FILE = Path(__file__).with_name("rounds.jsonl")
NAMESPACE = "CHAOS_NAMESPACE"
DISK_BYTES = 256 << 20
SEGMENT_BYTES = 4 << 20
KEPT_S = 5.0
"""How long a fault lasts at least."""
HEAL_S = 60.0
RECORD_S = 12.0
MORE_ACKS = 50


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def commit() -> str:
    """The one that is tried; with ``+`` if files differ from it."""
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    status = subprocess.run(["git", "status", "--porcelain", "-uno"], capture_output=True, text=True, check=False)
    return (head.stdout.strip() or "unknown") + ("+" if status.stdout.strip() else "")


@contextmanager
def staged(directory: Path, seed: int) -> Iterator[Stage]:
    """A new fleet on machines, each broker with a disk that can be filled; the caller is the operator."""
    shutil.rmtree(directory, ignore_errors=True)
    layout = Layout(name="chaos", segment_bytes=SEGMENT_BYTES, min_in_sync=2)
    names = (*(f"m{number}" for number in range(1, 7)), sites.CLIENT, sites.OPERATOR)
    disks = (directory / sites.DISKS).resolve()
    with contextlib.ExitStack() as stack:
        machines = stack.enter_context(Machines(names, disks=disks))
        for name in names[3:6]:  # those of the brokers
            if NAMESPACE in os.environ:
                disk = machines.disk(name)
                command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(disk)]
                subprocess.run(command, check=True, timeout=10)
                stack.callback(subprocess.run, ["umount", "-l", str(disk)], check=False, timeout=10)
        fleet = stack.enter_context(Fleet.create(directory, layout, machines))
        stack.enter_context(machines.on(sites.OPERATOR))
        tools = directory.resolve() / "tools"
        faults.make_tools(tools, (*fleet.controllers, *fleet.brokers))
        for name in fleet.controllers:
            with faults.tooled(tools, name):
                fleet.start(name)
        fleet.up_controllers(deadline_s=HEAL_S)
        for number, name in enumerate(fleet.brokers, start=1):
            with faults.tooled(tools, name):
                fleet.start(name)
            _await_replicas(fleet, number)
        stage = Stage(
            fleet=fleet, machines=machines, key=fleet.set_keys()[0], draw=random.Random(seed), tools=tools
        )  # fmt: skip
        fleet.wait_redundant(stage.key, deadline_s=HEAL_S)
        yield stage


def _await_replicas(fleet: Fleet, count: int) -> None:
    """Ids are granted in the order of asking: one at a time, so that broker-a-1 is replica 1."""
    (key,) = fleet.set_keys()
    fleet.wait_set(key, lambda found: len(found.replicas) >= count, what=f"to have {count} replicas", deadline_s=HEAL_S)


def record(stage: Stage) -> tuple[dict[int, Any], dict[str, Any]]:
    """Reigns by epoch and stops by their event, as JSON."""
    found = msgspec.to_builtins(stage.fleet.client().history(stage.key))
    rows = {row["masterEpoch"]: row for row in found["rows"]}
    stops = {json.dumps(stop["event"]): stop for stop in found.get("stops", ())}
    return rows, stops


def new_record(stage: Stage, before: tuple[dict[int, Any], dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    """What came on record since, when the newest of it is complete."""
    found: list[Any] = [[], []]

    def is_whole() -> bool:
        rows, stops = record(stage)
        found[0] = [row for epoch, row in sorted(rows.items()) if epoch not in before[0]]
        found[1] = [stop for event, stop in stops.items() if event not in before[1]]
        return all(row["totalUs"] is not None and row["waitedUs"] is not None for row in found[0][-1:])

    with contextlib.suppress(LauncherError):
        wait_until(is_whole, deadline_s=RECORD_S, what="the record to be whole")
    return found[0], found[1]


def is_whole_again(stage: Stage) -> str:
    """What does not come back; empty: everything has."""
    try:
        for name in stage.nodes():
            if stage.fleet.pid(name) is None:
                faults.restart(stage, name)
        stage.fleet.leader(deadline_s=HEAL_S)
        stage.fleet.wait_redundant(stage.key, deadline_s=HEAL_S)
    except LauncherError as error:
        return str(error).splitlines()[0]
    return ""


def tried(stage: Stage, scenario: str, seed: int) -> Trial:
    """One fault from beginning to end. Raises ``NotHere``."""
    stage.hit.clear()
    before = record(stage)
    stuck = ""
    lost = doubled = acked = 0
    with load(stage.fleet, in_flight=2, body_bytes=64) as work:
        began_ns = time.monotonic_ns()
        try:
            with FAULTS[scenario](stage):
                _keep_up(work)
        except LauncherError as error:
            stuck = str(error).splitlines()[0]
        stage.machines.heal()
        stuck = stuck or is_whole_again(stage)
        with contextlib.suppress(LauncherError):
            work.wait_more(MORE_ACKS)
        ended_ns = time.monotonic_ns()
    stamps = [line.acked_at_ns for line in ledger.read(stage.fleet.books) if line.acked_at_ns > began_ns - 10**9]
    gap_ms = longest_gap_ms(stamps, began_ns, ended_ns)
    rows, stops = new_record(stage, before)
    try:
        found = judge(stage.fleet)
        acked = found["acked"]
    except (AssertionError, LauncherError) as error:
        stuck, lost, doubled = _verdict_of(str(error), stuck)
    return Trial(
        commit=commit(), at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S"), seed=seed, scenario=scenario,
        hit=", ".join(stage.hit), gap_ms=round(gap_ms, 1), elections=len(rows), acked=acked, lost=lost, doubled=doubled,
        stuck=stuck, record=untrue(gap_ms, rows, stops),
    )  # fmt: skip


def _keep_up(work: Load) -> None:
    """The fault lasts, and longer while nobody is served: until the fleet has found its way around it, or 15 s."""
    time.sleep(KEPT_S)  # the length of the fault
    with contextlib.suppress(LauncherError, AssertionError):
        work.wait_more(MORE_ACKS, deadline_s=10.0)


def _verdict_of(text: str, stuck: str) -> tuple[str, int, int]:
    """Stuck, lost and doubled out of what the audit said."""
    start = text.find("{")
    try:
        found = json.loads(text[start : text.rfind("}") + 1])
    except ValueError:
        return stuck or f"audit: {text[:300]}", 0, 0
    return stuck or f"audit: {json.dumps(found)[:300]}", found.get("lost", 0), found.get("duplicated", 0)


def show(trial: Trial) -> None:
    verdict = "ok    " if trial.is_good else "FAILED"
    bad = "; ".join(filter(None, (trial.stuck, trial.record)))
    say(
        f"{verdict} {trial.scenario:<22} gap {trial.gap_ms:>8,.0f} ms  elections {trial.elections}  acked {trial.acked:>7,} "
        f"lost {trial.lost} doubled {trial.doubled}  {trial.hit}  {bad}"
    )


def run(directory: Path, *, rounds: int, seconds: float, seed: int, only: Sequence[str], file: Path | None) -> int:
    """Exit code."""
    wanted = [name for name in FAULTS if not only or any(text in name for text in only)]
    trials: list[Trial] = []
    skipped: dict[str, str] = {}
    ends_at = time.monotonic() + seconds if seconds else float("inf")
    for number in range(rounds):
        if time.monotonic() > ends_at:
            break
        of_round = seed + number
        say(f"round {number + 1} of {rounds}, seed {of_round}")
        order = list(wanted)
        # Cut off by the clock, the last scenarios of a fixed order would never be tried.
        random.Random(of_round).shuffle(order)
        with staged(directory, of_round) as stage:
            for scenario in order:
                if time.monotonic() > ends_at:
                    break
                try:
                    trial = tried(stage, scenario, of_round)
                except NotHere as error:
                    skipped[scenario] = str(error)
                    say(f"skip   {scenario}: {error}")
                    continue
                trials.append(trial)
                show(trial)
                if file is not None:
                    append(file, [trial])
                if trial.stuck:
                    break  # what follows would be judged on a broken fleet
    say(table(trials))
    bad = [trial for trial in trials if not trial.is_good]
    result = {
        "faults": len(trials), "scenarios": len({trial.scenario for trial in trials}), "masters_changed": sum(t.elections > 0 for t in trials),
        "lost": sum(t.lost for t in trials), "doubled": sum(t.doubled for t in trials), "stuck": sum(bool(t.stuck) for t in trials),
        "record_wrong": sum(bool(t.record) for t in trials), "skipped": skipped,
        "rto_over_rocketmqs_3_s": sum(t.gap_ms > ROCKETMQ_RTO_MS for t in trials),
    }  # fmt: skip
    say(f"RESULT {json.dumps(result)}")
    return 0 if trials and not bad and result["masters_changed"] else 1


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Every fault once a round, on a fleet of machines under load.")
    parser.add_argument("--directory", type=Path, default=DEFAULT_DIRECTORY)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.0, help="no new fault after this time; 0 = no limit")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="only scenarios that hold this")
    parser.add_argument("--file", type=Path, default=None, help="add a line for each fault to this file")
    parser.add_argument("--may-skip", action="store_true", help="exit code 0 where there can be no machines")
    parser.add_argument("--table", action="store_true", help="print all rounds of the file, and do nothing")
    options = parser.parse_args(arguments)
    if options.table:
        say(table(read(options.file or ROUNDS_FILE)))
        return 0
    if os.geteuid() != 0:
        say("SKIPPED: machines are network namespaces: chaos-net needs root")
        return 0 if options.may_skip else 1
    if shutil.which("unshare") and NAMESPACE not in os.environ:
        # Mounts of its own: a full disk of a test must reach nothing else.
        given = sys.argv[1:] if arguments is None else list(arguments)
        command = ["unshare", "--mount", "--propagation", "private", sys.executable, "-m", "tests.chaos.net", *given]
        os.execvpe(command[0], command, os.environ | {NAMESPACE: "1"})
    try:
        return run(
            options.directory, rounds=options.rounds, seconds=options.seconds, seed=options.seed, only=options.only,
            file=options.file,
        )  # fmt: skip
    except MachinesError as error:
        say(f"SKIPPED: {error}")
        return 0 if options.may_skip else 1


if __name__ == "__main__":
    sys.exit(main())
