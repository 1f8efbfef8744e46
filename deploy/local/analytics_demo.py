"""
The demo of the analytics: a fleet, five faults, its journals in Spark, and a report.

    python3 -m rollcall_ha.deploy.local.analytics_demo [--directory .demo-analytics]

Here: the faults, and the comparison of Spark's tables with the output of ``rollcall history``. Not here: single steps
(``demo``, ``faults``), Spark (``rollcall analytics``, started as a program).

Rule 1: no process is told of a fault; controllers find out, and Spark finds it in their journals.
Rule 2: journals are copied while the fleet is at rest: history says the same before and after the copy.
Rule 3: compared values are counted, and a count of zero is a failure. So is a kind of fault that Spark did not find.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rollcall_ha.controller.contract.ids import MasterEpoch
from rollcall_ha.deploy.local import faults
from rollcall_ha.deploy.local.demo import (
    PRODUCER,
    RECORD_DEADLINE_S,
    STEADY_ACKS,
    Story,
    bring_back,
    current_epoch,
    discard,
    is_complete,
    rollcall,
    say,
    show,
    start_producer,
    wait_acks,
    wait_row,
)
from rollcall_ha.deploy.local.fleet import Fleet
from rollcall_ha.deploy.local.processes import LauncherError, our_environment, python_module, wait_until
from rollcall_ha.node.config import ConfigError

DEFAULT_DIRECTORY = Path(".demo-analytics")
FAILOVER_DEADLINE_S = 30.0
"""A hanging master is found after 3 s on the ``normal`` preset, later on a busy machine."""
REDUNDANT_DEADLINE_S = 60.0
SPARK_DEADLINE_S = 900.0
COPY_ATTEMPTS = 10
JOURNALS, LAKE, REPORT = "journals", "lake", "report"

PHASES = ("detected", "proposed", "committed", "notified", "promised", "role-applied", "serving", "first-ack")
_COMPARED = ("kind", "from_master", "to_master", "total_us", "unattributed_us", "grade", "loss_bytes", "cut_bytes")
PLAIN = {name: re.sub("_(.)", lambda found: found[1].upper(), name) for name in _COMPARED}
"""Column of the report's table of failovers -> key of ``rollcall history -o json``."""

FAILOVERS = frozenset({"failover", "unclean"})


class Compared(msgspec.Struct):
    """The comparison of both sides, value by value."""

    rows: int = 0
    values: int = 0
    differences: list[str] = msgspec.field(default_factory=list)


def compare(history: Sequence[Mapping[str, Any]], table: Sequence[Mapping[str, str]]) -> Compared:
    """
    Every failover of a history with its row of ``tables/failovers.csv``: phases, RTO, what no phase explains, proof.

    An empty field stands for null, or for a missing key of the history. Rows that only one side has are differences.
    """
    compared = Compared()
    told = {str(row["masterEpoch"]): row for row in history if row["kind"] in FAILOVERS}
    found = {row["master_epoch"]: row for row in table}
    for epoch in sorted({*told, *found}, key=int):
        if epoch not in told or epoch not in found:
            compared.differences.append(f"epoch {epoch} is only in {'history' if epoch in told else 'the report'}")
            continue
        spans = {span["phase"]: span["durationUs"] for span in told[epoch]["phases"]}
        expected = {f"{phase.replace('-', '_')}_us": spans.get(phase) for phase in PHASES}
        expected |= {ours: told[epoch][theirs] for ours, theirs in PLAIN.items()}
        compared.rows += 1
        for name, value in expected.items():
            compared.values += 1
            text = "" if value is None else str(value)
            if found[epoch][name] != text:
                compared.differences.append(
                    f"epoch {epoch} {name}: history {text or 'unknown'}, report {found[epoch][name] or 'unknown'}"
                )
    return compared


# --- faults ----------------------------------------------------------------------------------------------------------


def kill_master(story: Story, number: int) -> None:
    """SIGKILL: found at once, because its connections close."""
    fleet = story.fleet
    master, epoch = fleet.master(story.key), current_epoch(story)
    say(f"\n{number}  kill -9 {fleet.pid(master)}   ({master}, the master)")
    faults.kill_and_see(fleet, master)
    told(story, epoch)
    bring_back(story, master)


def hang_master(story: Story, number: int) -> None:
    """SIGSTOP: found by the heartbeat timeout; then the process is killed and restarted."""
    fleet = story.fleet
    master, epoch = fleet.master(story.key), current_epoch(story)
    say(f"\n{number}  kill -STOP {fleet.pid(master)}   ({master}, the master: it hangs, and is restarted later)")
    fleet.stop(master)
    told(story, epoch)
    fleet.kill(master)
    bring_back(story, master)


def alarm_falsely(story: Story, number: int) -> None:
    """SIGSTOP until a successor is elected, then SIGCONT: the old master lived all the time."""
    fleet = story.fleet
    master, epoch = fleet.master(story.key), current_epoch(story)
    say(f"\n{number}  kill -STOP {fleet.pid(master)}   ({master}, the master: a pause just over the timeout)")
    with faults.hanging(fleet, [master]):
        wait_until(
            lambda: current_epoch(story) > epoch, deadline_s=FAILOVER_DEADLINE_S, what=f"a successor of {master}"
        )
    say(f"   kill -CONT: {master} goes on, and finds another master")
    told(story, epoch)
    fleet.wait_redundant(story.key, deadline_s=REDUNDANT_DEADLINE_S)


def kill_leader(story: Story, number: int) -> None:
    """SIGKILL for the leading controller: no broker may lose its role by it."""
    fleet = story.fleet
    leader, epoch = fleet.leader(), current_epoch(story)
    say(f"\n{number}  kill -9 {fleet.pid(leader)}   ({leader}, the leading controller)")
    fleet.kill(leader)
    wait_until(lambda: fleet.leader() != leader, deadline_s=FAILOVER_DEADLINE_S, what=f"a successor of {leader}")
    wait_acks(story, STEADY_ACKS)
    fleet.restart(leader)
    fleet.wait_live([leader])
    after = current_epoch(story)
    say(f"   {fleet.leader()} leads; masterEpoch {epoch} before, {after} after; acknowledgements went on")


def told(story: Story, epoch: MasterEpoch) -> None:
    """Acknowledgements go on, and the record of the new epoch is complete."""
    wait_acks(story, STEADY_ACKS)
    row = wait_row(story, MasterEpoch(epoch + 1), is_complete)
    say(f"   masterEpoch {row.master_epoch}: {row.cause}; {(row.total_us or 0) / 1000:,.0f} ms, {row.grade}")


# --- from the fleet to the report ------------------------------------------------------------------------------------


def history_of(story: Story) -> list[dict[str, Any]]:
    """The rows of ``rollcall history -o json`` now. Raises ``LauncherError`` if it prints none."""
    done = story.fleet.run_command("history", story.key.name, "-o", "json", "--limit", "500")
    if done.returncode != 0:
        raise LauncherError(f"rollcall history failed: {done.stderr.strip()}")
    rows: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    return rows


def copy_journals(story: Story, target: Path) -> list[dict[str, Any]]:
    """
    The event journals of all controllers, and the history that belongs to them.

    Raises:
        LauncherError: the fleet did not come to rest.
    """
    history = history_of(story)
    for _ in range(COPY_ATTEMPTS):
        shutil.rmtree(target, ignore_errors=True)
        for name in story.fleet.controllers:
            shutil.copytree(story.fleet.data(name) / "events", target / name / "events")
        again = history_of(story)
        # An event between the copies of c1 and c2 would be a difference that is nobody's fault (rule 2).
        if again == history:
            return history
        history = again
    raise LauncherError(f"the history changed during each of {COPY_ATTEMPTS} copies of the journals")


def analyse(*arguments: str) -> None:
    """Run a job of ``rollcall analytics`` with its output on ours. Raises ``LauncherError`` if it fails."""
    say(f"\n$ {rollcall()} analytics {' '.join(arguments)}")
    done = subprocess.run(
        python_module("rollcall_ha.cli.main", "analytics", *arguments),
        check=False,
        env=our_environment(),
        timeout=SPARK_DEADLINE_S,
    )
    if done.returncode != 0:
        raise LauncherError(f"rollcall analytics {arguments[0]} ended with {done.returncode}")


def rows_of(report: Path, name: str) -> list[dict[str, str]]:
    """A table beside the report."""
    with (report / "tables" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def leaders_in(journals: Path) -> int:
    """How many times a controller took the lead, by any journal."""
    taken = set()
    for file in journals.glob("*/events/*.jsonl"):
        for line in file.read_text().splitlines():
            record = json.loads(line)
            if record.get("event", {}).get("kind") == "leadership-taken":
                taken.add((record["fleetIncarnation"], record["term"]))
    return len(taken)


def judge(directory: Path, history: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The content of the last line."""
    report = directory / REPORT
    found = rows_of(report, "failovers")
    compared = compare(history, found)
    whole = next((row for row in rows_of(report, "clusters") if row["fleet"] == "*"), {})
    causes = Counter(row["cause"] for row in found)
    for line in compared.differences:
        say(f"DIFFERENT  {line}")
    return {
        "rows_compared": compared.rows,
        "values_compared": compared.values,
        "differences": len(compared.differences),
        "failovers": int(whole.get("failovers") or 0),
        "kills": causes["dead-at-once"],
        "timeouts": causes["timeout"],
        "false_positives": int(whole.get("false_positives") or 0),
        "changes_of_leader": leaders_in(directory / JOURNALS) - 1,
        "controller_caused": int(whole.get("controller_caused") or 0),
        "refuted": int(whole.get("refuted") or 0),
        "report": str(report / "index.html"),
    }


NEEDED = {
    "rows_compared": 1,
    "values_compared": 1,
    "failovers": 4,
    "kills": 2,
    "timeouts": 2,
    "false_positives": 1,
    "changes_of_leader": 1,
}
"""The least that the five faults leave: fewer, and a fault was not done or not seen."""


def faults_of(result: Mapping[str, Any]) -> list[str]:
    """Why the demo failed; empty = it did not."""
    wrong = [f"{name} is {result[name]}, not {least} or more" for name, least in NEEDED.items() if result[name] < least]
    wrong += [f"{name} is {result[name]}" for name in ("differences", "refuted") if result[name]]
    if result["rows_compared"] != result["failovers"]:
        wrong.append(f"{result['rows_compared']} of {result['failovers']} failovers were compared")
    if result["false_positives"] >= result["timeouts"]:
        wrong.append(
            f"{result['false_positives']} of {result['timeouts']} timeouts count as false: one process was killed"
        )
    return wrong


def live(directory: Path) -> list[dict[str, Any]]:
    """The fleet and its faults; journals and history are there at the end, and nothing runs."""
    fleet = Fleet.create(directory)
    with fleet:
        say("A fleet of three controllers and three brokers, with a producer")
        fleet.up(deadline_s=REDUNDANT_DEADLINE_S)
        story = Story(fleet=fleet, key=fleet.set_keys()[0])
        start_producer(fleet)
        wait_acks(story, STEADY_ACKS)
        kill_master(story, 1)
        hang_master(story, 2)
        alarm_falsely(story, 3)
        kill_leader(story, 4)
        kill_master(story, 5)
        fleet.processes.terminate(PRODUCER, deadline_s=RECORD_DEADLINE_S)
        show(fleet, "history", story.key.name)
        return copy_journals(story, directory / JOURNALS)


def run(directory: Path) -> int:
    """The whole story; exit code 0 if Spark says what history said."""
    discard(directory)
    history = live(directory)
    lake, report = directory / LAKE, directory / REPORT
    analyse("run", str(directory / JOURNALS), "--lake", str(lake))
    analyse("report", str(lake), "--out", str(report))
    result = judge(directory, history)
    wrong = faults_of(result)
    say(f"\nCOMPARED {result['rows_compared']} failovers, {result['values_compared']} values with rollcall history")
    for line in wrong:
        say(f"FAILED  {line}")
    say(f"RESULT {json.dumps(result)}")
    return 1 if wrong else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: as it should be; 1: not; 2: wrong use."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--directory", type=Path, default=DEFAULT_DIRECTORY)
    options = parser.parse_args(arguments)
    try:
        return run(options.directory)
    except (LauncherError, ConfigError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"analytics demo: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
