"""
`python -m tests.chaos.net --rounds n`: every fault of ``faults`` once a round, on a fleet of machines under load.

    python -m tests.chaos.net [--rounds N] [--seconds S] [--seed N] [--only TEXT]... [--file FILE] [--table]
                              [--policies | --alarms | --field] [--fleets N]

Each fault, under load: the fault, the fleet has to serve, heal, the fleet has to be whole; then the record is read against
the producer's stopwatch. After ``AUDITED_FAULTS`` of them, and before one that destroys a disk, the load ends, and the raw
files of every replica are read against the producer's whole ledger, which lies on another machine: what was lost or doubled
by any fault of the round is still so. A line for each fault is added to FILE (of the verb: tests/chaos/net/rounds.jsonl) with
its commit, so that rounds of many days add up; ``--table`` prints them all. Of a fault that is not good, record and logs are
kept in DIRECTORY-failed. Exit code 1: lost, doubled, stuck, or a record that is wrong; or nothing was tried. 3: no master changed.
``--field``: the twelve of RocketMQ's authors alone, on their scale (``faults`` rule 3); a master that a fault of controllers
changed is exit code 1, too.
``--fleets``: the rounds are shared out to so many fleets at once, each on machines, directory and seeds of its own (200 faults of a
minute take 50 minutes on eight fleets, seven hours on one). Their senders pause so many times longer: the load stays that of one.
``--policies``: the faults of ``leaving`` instead, on a fleet whose masters are left by policy.
``--alarms``: a Prometheus with our rules looks on, and its alarms are set beside the faults (``alarms``); each fault lasts
longer, and an alarm that belongs to none, or is owed and did not come, is exit code 1.
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
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from rollcall_ha.client.errors import ClientError
from rollcall_ha.controller.contract.views import HistoryPage
from rollcall_ha.deploy.local import ledger
from rollcall_ha.deploy.local.machines import MachinesError
from rollcall_ha.deploy.local.processes import LauncherError, wait_until
from tests.chaos.net import faults, leaving
from tests.chaos.net.alarms import CAUSES, Beside, Happened, victims_of
from tests.chaos.net.faults import DESTROYS, FAULTS, FIELD, FIELD_KEPT_S, HEAL_S, PAUSE_MS, UPGRADE, NotHere, Stage
from tests.chaos.net.stage import NAMESPACE, staged
from tests.chaos.net.verdict import ROCKETMQ_RTO_MS, Trial, append, longest_gap_ms, read, table, untrue
from tests.chaos.net.watch import FACTOR, WAITS_S, watched
from tests.support.fleet_story import Load, judge, load, plain
from tests.support.prometheus import why_not

DEFAULT_DIRECTORY = Path(".chaos-net")
ROOT = Path(__file__).parents[3]
ROUNDS_FILE = Path(__file__).with_name("rounds.jsonl")
AUDITED_FAULTS = 8
"""Between two audits: each reads the files from their beginning."""
RECORD_S = 12.0
EVERY = FAULTS | leaving.LEAVING
UNTOLD, HEARD = "rollcall_broker_write_stops_untold", "rollcall_controllers_heard"
NOTHING_CHANGED = 3
"""Exit code of a run that was good and in which no master changed: too little was tried. Of one of several it is fair."""
MORE_ACKS = 10
"""More than were in flight."""


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def commit() -> str:
    """The one that is tried; with ``+`` if files differ from it, but for those of the rounds, which grow with each line."""
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    command = [
        "git",
        "status",
        "--porcelain",
        "-uno",
        "--",
        ":/",
        f":(exclude,top){ROUNDS_FILE.parent.relative_to(ROOT)}/*.jsonl",
    ]
    status = subprocess.run(command, capture_output=True, text=True, check=False)
    return (head.stdout.strip() or "unknown") + ("+" if status.stdout.strip() else "")


def now() -> str:
    """UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")


def record(stage: Stage) -> tuple[dict[int, Any], dict[str, Any]]:
    """Reigns by epoch and stops by their event, as JSON. Raises ``LauncherError``: no controller tells."""
    pages: list[HistoryPage] = []

    def is_told() -> bool:
        with contextlib.suppress(ClientError):
            pages[:] = [stage.fleet.client().history(stage.key)]
        return bool(pages)

    wait_until(is_told, deadline_s=RECORD_S, what="the history")
    found = msgspec.to_builtins(pages[0])
    rows = {row["masterEpoch"]: row for row in found["rows"]}
    stops = {json.dumps(stop["event"]): stop for stop in found.get("stops", ())}
    return rows, stops


def new_record(stage: Stage, before: tuple[dict[int, Any], dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    """What came on record since, when the newest of it is complete, and no broker has a stop to tell."""
    found: list[Any] = [[], []]

    def is_whole() -> bool:
        # Asked first: a master whose session was lost tells a stop up to 5 s later, and it would be on the record of the
        # next fault.
        if any(gauge(stage, name, UNTOLD) != 0 for name in stage.fleet.brokers):
            return False
        rows, stops = record(stage)
        found[0] = [row for epoch, row in sorted(rows.items()) if epoch not in before[0]]
        found[1] = [stop for event, stop in stops.items() if event not in before[1]]
        return all(row["totalUs"] is not None and row["waitedUs"] is not None for row in found[0][-1:])

    with contextlib.suppress(LauncherError):
        wait_until(is_whole, deadline_s=RECORD_S, what="the record to be whole")
    return found[0], found[1]


def gauge(stage: Stage, name: str, metric: str) -> float | None:
    """Of a process, by its metrics; None if it does not say."""
    with contextlib.suppress(OSError):
        _, text = plain(stage.fleet.health(name), "/metrics")
        found = [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(f"{metric} ")]
        return float(found[0]) if found else None
    return None


def is_whole_again(stage: Stage) -> str:
    """What does not come back; empty: everything has."""
    try:
        for name in stage.nodes():
            if stage.fleet.pid(name) is None:
                faults.restart(stage, name)
        stage.fleet.wait_live(stage.nodes(), deadline_s=HEAL_S)
        leader = stage.fleet.leader(deadline_s=HEAL_S)
        # Else the next fault is that of a fleet which has lost a controller already.
        count = len(stage.fleet.controllers)
        what = f"{leader} to hear all {count} controllers"
        wait_until(
            lambda: any(gauge(stage, name, HEARD) == count for name in stage.fleet.controllers),
            deadline_s=HEAL_S,
            what=what,
        )
        stage.fleet.wait_redundant(stage.key, deadline_s=HEAL_S)
    except LauncherError as error:
        return str(error).splitlines()[0]
    return ""


def tried(stage: Stage, work: Load, scenario: str, seed: int, failed: Path) -> Trial:
    """One fault from beginning to end, not audited yet. Raises ``NotHere``."""
    stage.hit.clear()
    before = record(stage)
    stuck, held_s = "", 0.0
    began_s, began_ns = time.time(), time.monotonic_ns()
    there_s = began_s
    try:
        with EVERY[scenario](stage):
            there_s = time.time()
            held_s = _keep_up(work, stage.kept_s(scenario))
    except (LauncherError, ClientError) as error:
        stuck = str(error).splitlines()[0]
    stage.machines.heal()
    healed_ns = time.monotonic_ns()
    stuck = stuck or is_whole_again(stage)
    try:
        work.wait_more(MORE_ACKS)
    except (LauncherError, AssertionError) as error:
        stuck = stuck or f"the load: {str(error).splitlines()[0]}"
    ended_ns = time.monotonic_ns()
    could_serve = not stage.is_of_the_field or faults.could_serve(stage, scenario)
    stamps = [line.acked_at_ns for line in ledger.read(stage.fleet.books) if line.acked_at_ns > began_ns - 10**9]
    gap_ms = longest_gap_ms(stamps, began_ns, ended_ns)
    rows, stops = new_record(stage, before)
    hit = ", ".join(stage.hit)
    stage.log.append(
        Happened(
            scenario=scenario, hit=hit, victims=victims_of(hit, stage.nodes()), began_s=began_s, there_s=there_s,
            held_s=held_s, whole_s=time.time(),
        )
    )  # fmt: skip
    trial = Trial(
        commit=commit(), at=now(), seed=seed, scenario=scenario,
        hit=hit, gap_ms=round(gap_ms, 1), elections=len(rows),
        acked=sum(began_ns < stamp < ended_ns for stamp in stamps), lost=0, doubled=0, stuck=stuck,
        record=untrue(gap_ms, rows, stops),
        recovered_ms=None if could_serve else round(longest_gap_ms([*stamps, healed_ns], healed_ns, ended_ns), 1),
    )  # fmt: skip
    if not trial.is_good:
        keep(stage, trial, failed, rows=rows, stops=stops)
    return trial


def _keep_up(work: Load, kept_s: float) -> float:
    """The fault lasts, and 10 s longer while nobody is served, until the fleet has found its way around it; seconds."""
    began = time.monotonic()
    time.sleep(kept_s)  # the length of the fault
    with contextlib.suppress(LauncherError, AssertionError):
        work.wait_more(MORE_ACKS, deadline_s=10.0)
    return time.monotonic() - began


def keep(stage: Stage, trial: Trial, failed: Path, **found: Any) -> None:
    """What explains a fault that is not good: record, events, logs. The next round makes the directory anew."""
    folder = failed / f"{trial.seed}-{trial.scenario.replace(', ', '-').replace(' ', '-')}"
    shutil.copytree(stage.fleet.processes.log, folder / "log", dirs_exist_ok=True)
    with contextlib.suppress(ClientError):
        found["events"] = json.loads(stage.fleet.client().events_text(limit=500, is_newest=True))
    (folder / "found.json").write_text(json.dumps({"trial": asdict(trial), **found}, indent=1))


def batch(stage: Stage, scenarios: Sequence[str], seed: int, failed: Path, ends_at: float) -> Iterator[Trial | str]:
    """
    Some faults under one load, and the audit behind them; each as it is done, the last one when it is audited.

    Text stands for a fault that this machine cannot do. What the audit finds is put down to the last one.
    """
    trial, scenario = None, "none"
    try:
        with load(stage.fleet, in_flight=2, body_bytes=64, pause_ms=stage.pause_ms) as work:
            for scenario in scenarios:
                if time.monotonic() > ends_at or (trial is not None and trial.stuck):
                    break
                try:
                    one = tried(stage, work, scenario, seed, failed)
                except NotHere as error:
                    yield f"{scenario}: {error}"
                    continue
                if trial is not None:
                    yield trial
                trial = one
    except LauncherError as error:
        # Nothing is acknowledged, or no controller tells the record: between two faults, and the fleet was whole.
        if trial is not None:
            yield trial
        trial = unfinished(scenario, seed, str(error).splitlines()[0])
        keep(stage, trial, failed)
    if trial is not None:
        yield audited(stage, trial, failed)


def unfinished(scenario: str, seed: int, stuck: str) -> Trial:
    """A fault that did not come to its end."""
    return Trial(
        commit=commit(), at=now(), seed=seed, scenario=scenario, hit="", gap_ms=0.0, elections=0, acked=0, lost=0,
        doubled=0, stuck=stuck, record="",
    )  # fmt: skip


def audited(stage: Stage, trial: Trial, failed: Path) -> Trial:
    """With what the files of all replicas say of the whole ledger."""
    try:
        found = judge(stage.fleet)
    except (AssertionError, LauncherError) as error:
        stuck, lost, doubled = _verdict_of(str(error), trial.stuck)
        trial = replace(trial, stuck=stuck, lost=lost, doubled=doubled)
        keep(stage, trial, failed)
        return trial
    say(f"audit  {found['acked']:,} acknowledged messages on {found['audited_replicas']} replicas: lost 0, doubled 0")
    return trial


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
        f"{verdict} {trial.scenario:<22} gap {trial.gap_ms:>8,.0f} ms  RTO {trial.rto_ms:>8,.0f} ms  elections {trial.elections}  acked {trial.acked:>7,} "
        f"lost {trial.lost} doubled {trial.doubled}  {trial.hit}  {bad}"
    )


def show_alarms(seen: Beside, log: Sequence[Happened]) -> None:
    """Each that fired behind the newest fault that had begun, and the counts."""
    by_fault: dict[str, list[str]] = {fault.scenario: [] for fault in log}
    for one in seen.fired:
        after = max((fault for fault in log if fault.began_s <= one.since_s), key=lambda f: f.began_s, default=None)
        name = f"{one.alarm} {'as shipped' if one.is_shipped else 'hurried'}"
        behind = (
            "before any fault"
            if after is None
            else f"{one.since_s - after.began_s:.1f} s after {after.scenario} ({after.hit})"
        )
        verdict = "FAILED unexplained" if one in seen.unexplained else "alarm "
        say(f"{verdict} {name} {one.about}: {behind}, for {one.until_s - one.since_s:.1f} s")
        if after is not None:
            by_fault[after.scenario].append(name.removeprefix("Rollcall").removesuffix(" hurried"))
    for scenario, names in by_fault.items():
        say(f"raised {scenario}: {', '.join(sorted(names)) or 'nothing'}")
    for text in seen.missed:
        say(f"FAILED missed {text}")
    say(f"ALARMS {json.dumps({'faults': len(log), 'rules': len(WAITS_S), 'for_divided_by': FACTOR, **seen.counts()})}")


def batches(scenarios: Sequence[str]) -> list[list[str]]:
    """In their order; ``AUDITED_FAULTS`` each, and one that destroys files is the first of its batch."""
    found: list[list[str]] = [[]]
    for scenario in scenarios:
        if found[-1] and (len(found[-1]) == AUDITED_FAULTS or scenario == DESTROYS):
            found.append([])
        found[-1].append(scenario)
    return found


def run(
    directory: Path,
    *,
    rounds: int,
    seconds: float,
    seed: int,
    only: Sequence[str],
    file: Path | None,
    has_policies: bool,
    has_alarms: bool = False,
    is_of_the_field: bool = False,
    pause_ms: float = PAUSE_MS,
) -> int:
    known = leaving.LEAVING if has_policies else FIELD if is_of_the_field else FAULTS
    wanted = [name for name in known if not only or any(text in name for text in only)]
    failed = directory.with_name(f"{directory.name}-failed")
    trials: list[Trial] = []
    skipped: dict[str, str] = {}
    seen: list[Beside] = []
    ends_at = time.monotonic() + seconds if seconds else float("inf")
    for number in range(rounds):
        if time.monotonic() > ends_at:
            break
        of_round = seed + number
        say(f"round {number + 1} of {rounds}, seed {of_round}")
        order = list(wanted)
        # Cut off by the clock, the last scenarios of a fixed order would never be tried.
        random.Random(of_round).shuffle(order)
        order.sort(key=lambda name: name != UPGRADE)
        policies = leaving.ON if has_policies else None
        with contextlib.ExitStack() as stack:
            stage = stack.enter_context(staged(directory, of_round, policies=policies))
            stage.pause_ms = pause_ms
            if is_of_the_field:
                stage.is_of_the_field, stage.kept_s = True, lambda _: FIELD_KEPT_S
            alarms = stack.enter_context(watched(stage)) if has_alarms else None
            for scenarios in batches(order):
                for found in batch(stage, scenarios, of_round, failed, ends_at):
                    if isinstance(found, str):
                        skipped[found.partition(":")[0]] = found
                        say(f"SKIPPED {found}")
                        continue
                    trials.append(found)
                    show(found)
                    if file is not None:
                        append(file, [found])
                if time.monotonic() > ends_at or (trials and trials[-1].stuck):
                    break  # what follows would be judged on a broken fleet
            if alarms is not None:
                seen.append(alarms())
                show_alarms(seen[-1], stage.log)
    say(table(trials))
    result, is_good = judged(trials, skipped, is_of_the_field=is_of_the_field)
    are_alarms_good = True
    if has_alarms:
        result["alarms"] = {
            "owed": sum(len(one.owed) for one in seen), "missed": sum(len(one.missed) for one in seen),
            "fired": sum(len(one.fired) for one in seen), "unexplained": sum(len(one.unexplained) for one in seen),
        }  # fmt: skip
        # A run that owed no alarm has checked none.
        are_alarms_good = (
            bool(result["alarms"]["owed"]) and not result["alarms"]["missed"] + result["alarms"]["unexplained"]
        )
    say(f"RESULT {json.dumps(result)}")
    if not (is_good and are_alarms_good):
        return 1
    return 0 if result["masters_changed"] else NOTHING_CHANGED


def judged(
    trials: Sequence[Trial], skipped: Mapping[str, str], *, is_of_the_field: bool
) -> tuple[dict[str, Any], bool]:
    """The counts of a run, and whether all of it was as it has to be."""
    bad = [trial for trial in trials if not trial.is_good]
    result: dict[str, Any] = {
        "faults": len(trials), "scenarios": len({trial.scenario for trial in trials}), "masters_changed": sum(t.elections > 0 for t in trials),
        "lost": sum(t.lost for t in trials), "doubled": sum(t.doubled for t in trials), "stuck": sum(bool(t.stuck) for t in trials),
        "record_wrong": sum(bool(t.record) for t in trials), "skipped": skipped,
        "rto_over_rocketmqs_3_s": sum(t.rto_ms > ROCKETMQ_RTO_MS for t in trials),
    }  # fmt: skip
    if is_of_the_field:
        # Promise 3: the absence of controllers is not felt, and not when it ends either.
        deposed = [trial for trial in trials if trial.scenario.endswith(" controller") and trial.elections]
        result["masters_changed_by_controllers"] = len(deposed)
        bad += deposed
    return result, bool(trials) and not bad


def side_by_side(given: Sequence[str], options: argparse.Namespace) -> int:
    """Exit code of ``fleets`` programs like this one, which share the rounds. A Ctrl-C reaches each of them, too."""
    fleets = min(options.fleets, options.rounds)
    with tempfile.TemporaryDirectory() as folder:
        file = options.file or Path(folder) / "faults.jsonl"
        before = len(read(file))
        first = options.seed
        running: list[subprocess.Popen[bytes]] = []
        for number in range(fleets):
            rounds = options.rounds // fleets + (number < options.rounds % fleets)
            own: dict[str, object] = {
                "--fleets": 1, "--rounds": rounds, "--seed": first, "--file": file, "--pause-ms": options.pause_ms * fleets,
                "--directory": options.directory.with_name(f"{options.directory.name}-{number + 1}"),
            }  # fmt: skip
            words = [str(word) for pair in own.items() for word in pair]
            running.append(subprocess.Popen([sys.executable, "-m", "tests.chaos.net", *given, *words]))
            first += rounds
        codes = [program.wait() for program in running]
        trials = read(file)[before:]
    say(table(trials))
    result, is_good = judged(trials, {}, is_of_the_field=options.field)
    say(f"RESULT {json.dumps(result | {'fleets': fleets})}")
    return 0 if is_good and result["masters_changed"] and set(codes) <= {0, NOTHING_CHANGED} else 1


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Every fault once a round, on a fleet of machines under load.")
    parser.add_argument("--directory", type=Path, default=DEFAULT_DIRECTORY)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.0, help="no new fault after this time; 0 = no limit")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="only scenarios that hold this")
    parser.add_argument("--file", type=Path, default=None, help="add a line for each fault to this file")
    parser.add_argument("--fleets", type=int, default=1, help="so many at once share the rounds")
    parser.add_argument("--pause-ms", type=float, default=PAUSE_MS, help="of each of two senders of a fleet")
    parser.add_argument("--may-skip", action="store_true", help="exit code 0 where there can be no machines")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--policies", action="store_true", help="faults for which a master is left by policy")
    kind.add_argument("--field", action="store_true", help="twelve faults on the scale that RocketMQ's authors publish")
    kind.add_argument("--alarms", action="store_true", help="a Prometheus looks on; its alarms beside the faults")
    parser.add_argument("--table", action="store_true", help="print all rounds of the file, and do nothing")
    options = parser.parse_args(arguments)
    if options.table:
        say(table(read(options.file or ROUNDS_FILE)))
        return 0
    no_machines = "machines are network namespaces: chaos-net needs root" if os.geteuid() != 0 else ""
    no_alarms = no_machines or why_not("prometheus")
    if options.alarms and no_alarms and NAMESPACE not in os.environ:
        say(f"SKIPPED: {len(CAUSES)} alarms, which were to be set beside the faults: {no_alarms}")
    if no_machines:
        say(
            f"SKIPPED: {len(leaving.LEAVING if options.policies else FIELD if options.field else FAULTS)} faults: {no_machines}"
        )
        say(f"RESULT {json.dumps({'skipped_because': no_machines})}")
        return 0 if options.may_skip else 1
    given = sys.argv[1:] if arguments is None else list(arguments)
    if options.fleets > 1:
        return side_by_side(given, options)
    if shutil.which("unshare") and NAMESPACE not in os.environ:
        # Mounts of its own: a full disk of a test must reach nothing else.
        command = ["unshare", "--mount", "--propagation", "private", sys.executable, "-m", "tests.chaos.net", *given]
        os.execvpe(command[0], command, os.environ | {NAMESPACE: "1"})
    try:
        return run(
            options.directory, rounds=options.rounds, seconds=options.seconds, seed=options.seed, only=options.only,
            file=options.file, has_policies=options.policies, has_alarms=options.alarms and not no_alarms,
            is_of_the_field=options.field, pause_ms=options.pause_ms,
        )  # fmt: skip
    except MachinesError as error:
        say(f"SKIPPED: {error}\nRESULT {json.dumps({'skipped_because': str(error)})}")
        return 0 if options.may_skip else 1


if __name__ == "__main__":
    sys.exit(main())
