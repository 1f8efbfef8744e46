"""
The demo: a fleet on this machine, its master killed under load, and the record that the controllers kept of it.

    python3 -m rollcall_ha.deploy.local.demo run|up|down|kill NAME|stop NAME|cont NAME|start [NAME]  [--directory .demo]

Here: the story and its counts. Not here: processes (``fleet``), its clients (``producer``, ``consumer``), faults
(``faults``), the audit (``audit``, which is run as a program of its own).

Rule 1: the demo never tells the system which fault it made; the system finds out.
Rule 2: the demo stamps no phase: phases come from ``rollcall history``, the total from the producer's ledger.
Rule 3: a count of zero where something should have happened is a failure.
Rule 4: the times in the last line are means. On a busy machine the leader waits for a core before it sees a death, and
the producer before it reads an answer: a millisecond or several of some fifty, in no phase. Masters are killed until
the mean of that remainder is known to 1 % of a failover (``is_measured``), however large it is.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from rollcall_ha.client.errors import ClientError
from rollcall_ha.controller.contract.ids import BrokerId, MasterEpoch, SetKey
from rollcall_ha.controller.contract.values import Frozen, Phase
from rollcall_ha.controller.contract.views import HistoryRow, SetStatus
from rollcall_ha.deploy.local import audit, consumer, faults, ledger, producer, sites
from rollcall_ha.deploy.local.fleet import Fleet, on_machines
from rollcall_ha.deploy.local.ledger import Interruption
from rollcall_ha.deploy.local.machines import sweep
from rollcall_ha.deploy.local.processes import LauncherError, Processes, python_module, wait_until
from rollcall_ha.deploy.local.walk import WalkCounts, walk
from rollcall_ha.node.config import FLEET_FILE_NAME, ConfigError

DEFAULT_DIRECTORY = Path(".demo")
PRODUCER = "producer"
CONSUMER = "consumer"
MASTER = "master"
"""Instead of a name: whichever broker is master now."""
STEADY_ACKS = 3_000
"""Acknowledged before and after each fault, so that there is something to lose."""
STEADY_DEADLINE_S = 30.0
FAILOVER_DEADLINE_S = 20.0
RECORD_DEADLINE_S = 10.0
KILLS_MIN = 5
KILLS_MAX = 15
STANDARD_ERROR_SHARE_MAX = 0.01
"""Of the mean of what no phase explains, as a share of the mean total."""
TAIL_ATTEMPTS = 5
AHEAD_BYTES = 16 * 1024 * 1024
"""The master's tail in the last act; sockets on loopback hold some 10 MiB."""
UNATTRIBUTED_SHARE_MAX = 0.05
"""Of the mean total: more than this, beyond doubt, that no phase explains is a record that is wrong."""
DOUBT_ERRORS = 2.0
"""Standard errors of that mean: five failovers that agreed by chance had 3.0 ms of 53.4, fifteen others 1.3 of 58.4."""


class MasterKill(Frozen):
    """One SIGKILL of a master: the interruption of the client, and the row of the record."""

    felt: Interruption
    dying_ms: float
    """From the signal to the moment at which the kernel had closed the victim's connections."""
    row: HistoryRow

    @property
    def phases_ms(self) -> dict[str, float]:
        """The phases of ``recorded_ms``: those of the outage, and after SERVING the wait of a sender."""
        spans = {str(span.phase): (span.duration_us or 0) / 1000 for span in self.row.phases}
        return spans | {str(Phase.FIRST_ACK): self.waited_ms}

    @property
    def waited_ms(self) -> float:
        """From SERVING to the first acknowledgement; all of it where no wait was told: the producer never rests."""
        if self.row.waited_us is not None:
            return self.row.waited_us / 1000
        return sum((span.duration_us or 0) / 1000 for span in self.row.phases if span.phase is Phase.FIRST_ACK)

    @property
    def recorded_ms(self) -> float:
        """The time without an acknowledgement, as the record has it: outage and wait."""
        return (self.row.total_us or 0) / 1000 + self.waited_ms

    @property
    def unattributed_ms(self) -> float:
        """The client's time without its phases; below 0 if the leader saw the fault before our witness did."""
        return self.felt.total_ms - sum(self.phases_ms.values())


class Story(msgspec.Struct):
    """Findings of the acts, for the last line."""

    fleet: Fleet
    key: SetKey
    failovers: list[MasterKill] = msgspec.field(default_factory=list)
    audit: dict[str, Any] = msgspec.field(default_factory=dict)
    truncated_bytes: int = 0
    walk: WalkCounts | None = None
    """Of every command, where it was asked for."""


def say(text: str = "") -> None:
    """A line of the story."""
    print(text, flush=True)


def is_checkout() -> bool:
    """Whether we run in a checkout, with its shim and its Makefile, or from a wheel, anywhere."""
    return Path("rollcall").is_file() and Path("Makefile").is_file()


def rollcall() -> str:
    """The command as it is called here."""
    return "./rollcall" if is_checkout() else "rollcall"


def demo_verb(verb: str, directory: Path) -> str:
    """A verb of the demo as it is called here."""
    if not is_checkout():
        return f"rollcall demo {verb} --directory {directory}"
    return f"make demo-{verb}" + ("" if directory == DEFAULT_DIRECTORY else f" DEMO={directory}")


def audit_command(directory: Path) -> str:
    """The audit as it is called here."""
    script = Path(audit.__file__).resolve()  # where it lies, not the link in src through which it was imported
    here = Path.cwd()
    return f"python3 {script.relative_to(here) if script.is_relative_to(here) else script} {directory}"


def tables_command(directory: Path) -> str:
    """The events as tables, by Spark, with what installs Spark where it is not: the demo does without."""
    setup = "make setup && " if is_checkout() and find_spec("pyspark") is None else ""
    return f"{setup}{rollcall()} analytics run {directory}"


def show(fleet: Fleet, *arguments: str) -> int:
    """Run a command of the CLI as a user would, and print it with its output; returns its exit code."""
    say(f"\n$ {rollcall()} {' '.join(arguments)}")
    # As on a terminal of that width: its tables are read on a page.
    done = fleet.run_command(*arguments, COLUMNS="100")
    say((done.stdout + done.stderr).rstrip())
    return done.returncode


# --- acts ------------------------------------------------------------------------------------------------------------


def start(fleet: Fleet) -> Story:
    """Act 1: three controllers, three brokers, a producer that waits for the whole SyncStateSet, a consumer."""
    place = "process" if fleet.machines is None else "machine"
    say(f"1  Three controllers and three brokers, each a {place} of its own")
    if fleet.machines is not None:
        for name in (*fleet.controllers, *fleet.brokers, sites.CLIENT, sites.OPERATOR):
            say(f"   {fleet.machines.address(fleet.machine(name)):11} {name}")
        say(f"   The operator's machine reaches {', '.join(fleet.asked)} and no other; no disk is shared.")
    began = time.monotonic()
    fleet.up()
    story = Story(fleet=fleet, key=fleet.set_keys()[0])
    say(f"   ready after {time.monotonic() - began:.1f} s; logs in {fleet.processes.log}")
    start_producer(fleet)
    argv = python_module("rollcall_ha.deploy.local.consumer", "--directory", str(fleet.seen_directory))
    fleet.processes.start(CONSUMER, fleet.inside(sites.CLIENT, argv))
    wait_acks(story, STEADY_ACKS)
    show(fleet, "status")
    return story


def start_producer(fleet: Fleet) -> None:
    """Start the small producer; its log, log/producer.log, shows what a client feels."""
    # The counts of an earlier run would be waited for: after 75,000 acknowledgements, the first of this run is no news,
    # and "make demo-up" behind "make demo" ended with "waited 30.0 s for 1 more acknowledgements".
    (fleet.books / producer.COUNTS_FILE_NAME).unlink(missing_ok=True)
    argv = python_module("rollcall_ha.deploy.local.producer", "--directory", str(fleet.seen_directory))
    fleet.processes.start(PRODUCER, fleet.inside(sites.CLIENT, argv))


def fail_over(story: Story, kills_max: int) -> None:
    """Acts 2 and 3: SIGKILL for the master with sends in flight, without notice. Then again: once could be luck."""
    fleet, key = story.fleet, story.key
    say("\n2  The master is killed")
    master = kill_master(story)
    show(fleet, "history", key.name)
    say("\n   The dead one is not eligible, and that is said with its reason:")
    status = fleet.set_status(key)
    dead = dead_replica(status)
    if dead is not None and show(fleet, "elect", key.name, "--to", str(dead)) != 1:
        raise LauncherError(f"electing broker {dead}, which is dead, was not refused")
    say(f"\n3  {master} comes back, and the next masters are killed, until the mean of what is unexplained is known")
    bring_back(story, master)
    while not is_measured(
        [each.unattributed_ms for each in story.failovers],
        [each.felt.total_ms for each in story.failovers],
        kills_max=kills_max,
    ):
        bring_back(story, kill_master(story))


def kill_master(story: Story) -> str:
    """Kill it, and wait until another broker acknowledges and the record is complete; returns the victim's name."""
    fleet, key = story.fleet, story.key
    master = fleet.master(key)
    epoch = current_epoch(story)
    say(f"   kill -9 {fleet.pid(master)}   ({master}, the master, with sends in flight)")
    killed_at_ns = time.monotonic_ns()
    fault_at_ns = faults.kill_and_see(fleet, master)
    dying_ms = (fault_at_ns - killed_at_ns) / 1e6
    wait_acks(story, STEADY_ACKS)
    felt = felt_since(story, master, fault_at_ns)
    say(f"   gone after {dying_ms:.0f} ms; acknowledgements again {felt.total_ms:.0f} ms later")
    say(f"   the producer felt {felt.gap_ms:.0f} ms without one")
    row = wait_row(story, MasterEpoch(epoch + 1), is_complete)
    story.failovers.append(MasterKill(felt=felt, dying_ms=dying_ms, row=row))
    return master


def dead_replica(status: SetStatus | None) -> BrokerId | None:
    """Id of a replica that is not alive."""
    replicas = status.replicas if status is not None else ()
    return next((replica.broker_id for replica in replicas if not replica.is_alive), None)


def fail_over_with_a_tail(story: Story) -> None:
    """Act 4: the master dies with records that no slave has: they were never acknowledged, and are cut."""
    fleet, key = story.fleet, story.key
    master = fleet.master(key)
    epoch = current_epoch(story)
    slaves = [name for name in fleet.brokers if name != master]
    say(f"\n4  {' and '.join(slaves)} hang while the producer pushes; then kill -9 {fleet.pid(master)} ({master})")
    for _ in range(TAIL_ATTEMPTS):
        ahead = partial(faults.has_written, fleet.data(master), max_offset(story, master) + AHEAD_BYTES)
        push = partial(fleet.processes.signal, PRODUCER, signal.SIGUSR1)
        if faults.kill_ahead_of_slaves(fleet, master, slaves, push=push, is_ahead=ahead):
            break
        fleet.wait_redundant(key)
    else:
        raise LauncherError(f"{master} did not get {AHEAD_BYTES:,} bytes ahead in {TAIL_ATTEMPTS} attempts")
    wait_acks(story, STEADY_ACKS)
    wait_row(story, MasterEpoch(epoch + 1), is_complete)
    bring_back(story, master)
    row = wait_row(story, MasterEpoch(epoch + 1), lambda row: bool(row.cut_bytes))
    story.truncated_bytes = row.cut_bytes or 0
    say(f"   {master} cut {story.truncated_bytes:,} bytes, none of them acknowledged, and is in sync again")
    show(fleet, "history", key.name)
    show(fleet, "explain", key.name, str(epoch + 1))


def bring_back(story: Story, name: str) -> None:
    """Start a dead broker again, and wait until the set has all replicas in sync."""
    began = time.monotonic()
    story.fleet.restart(name)
    story.fleet.wait_redundant(story.key, deadline_s=STEADY_DEADLINE_S)
    say(f"   in sync again after {time.monotonic() - began:.1f} s")


def ask_every_command(story: Story) -> None:
    """Between acts 4 and 5, while the producer goes on: every command of the CLI, on the operator's machine."""
    say("\n   Every command of the CLI, with its exit code:")
    story.walk = walk(story.fleet, story.key, say)
    say(f"   {story.walk.commands} commands, {story.walk.questions} questions, {story.walk.failed} failed")
    story.fleet.wait_redundant(story.key, deadline_s=STEADY_DEADLINE_S)


def judge(story: Story) -> None:
    """Act 5: stop the producer, and let a program that imports nothing of ours read ledger and disks."""
    fleet = story.fleet
    say("\n5  Every acknowledged message, on every replica, by the raw files")
    fleet.processes.terminate(PRODUCER)
    # It reads to the end, and ends.
    fleet.processes.terminate(CONSUMER, deadline_s=producer.DRAIN_DEADLINE_S + STEADY_DEADLINE_S)
    read = consumer.read_counts(fleet.books)
    say(
        f"   The consumer followed the master: {read.consumed:,} messages, {read.missing:,} missing, "
        f"{read.twice:,} given twice"
    )
    # Else the audit would call a slave short that only had not received the last batch yet.
    wait_level(story)
    say(f"$ {audit_command(fleet.directory)}")
    done = subprocess.run(
        [sys.executable, "-I", audit.__file__, str(fleet.directory), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise LauncherError(f"the audit did not work: {done.stderr.strip()}")
    story.audit = json.loads(done.stdout)
    counted = "  ".join(f"{name} {count:,}" for name, count in story.audit.items())
    say(f"   {counted}")


# --- waiting and measuring -------------------------------------------------------------------------------------------


def wait_acks(story: Story, count: int) -> None:
    """Until ``count`` more messages were acknowledged than now."""
    fleet = story.fleet

    def acked() -> int:
        if fleet.processes.pid(PRODUCER) is None:
            raise LauncherError(f"the producer ended:\n{fleet.processes.tail(PRODUCER)}")
        return producer.read_counts(fleet.books).acked

    goal = producer.read_counts(fleet.books).acked + count
    wait_until(lambda: acked() >= goal, deadline_s=STEADY_DEADLINE_S, what=f"{count:,} more acknowledgements")


def felt_since(story: Story, dead: str, fault_at_ns: int) -> Interruption:
    """The interruption, by the ledger. Raises ``LauncherError`` if no other broker took over."""
    fleet = story.fleet
    found = ledger.failover(ledger.read(fleet.books), fleet.file.broker(dead).listen, fault_at_ns)
    if found is None:
        raise LauncherError(f"no acknowledgement of {dead} before the fault, or of another broker after it")
    return found


def current_epoch(story: Story) -> MasterEpoch:
    return story.fleet.wait_set(story.key, lambda _: True, what="to be known").view.master_epoch


def max_offset(story: Story, name: str) -> int:
    """End of a broker's log by its last heartbeat; 0 if that is not known."""
    status = story.fleet.set_status(story.key)
    listen = story.fleet.file.broker(name).listen
    replicas = status.replicas if status is not None else ()
    return next((replica.max_offset or 0 for replica in replicas if replica.address == listen), 0)


def wait_level(story: Story) -> None:
    """Until all replicas report the same end and confirm it."""

    def is_level(status: SetStatus) -> bool:
        ends = {replica.max_offset for replica in status.replicas}
        confirms = {replica.confirm_offset for replica in status.replicas}
        return len(ends) == 1 and ends == confirms and None not in ends

    story.fleet.wait_set(story.key, is_level, what="all replicas at the same confirmed end")


def is_complete(row: HistoryRow) -> bool:
    """Whether the record knows the failover up to the first acknowledgement, and its grade."""
    return Phase.FIRST_ACK not in row.missing and row.total_us is not None and row.grade is not None


def wait_row(story: Story, epoch: MasterEpoch, condition: Callable[[HistoryRow], bool]) -> HistoryRow:
    """The record of an epoch, once ``condition`` holds for it."""
    found: list[HistoryRow] = []

    def holds() -> bool:
        try:
            page = story.fleet.client().history(story.key)
        except ClientError:
            return False
        found[:] = [row for row in page.rows if row.master_epoch == epoch]
        return bool(found) and condition(found[0])

    wait_until(holds, deadline_s=RECORD_DEADLINE_S, what=f"the record of masterEpoch {epoch} to be complete")
    return found[0]


def is_measured(unattributed_ms: Sequence[float], total_ms: Sequence[float], *, kills_max: int = KILLS_MAX) -> bool:
    """Whether these failovers are enough: the mean of what is unexplained is known well, or there are ``kills_max``."""
    if len(unattributed_ms) < KILLS_MIN:
        return False
    is_known = standard_error(unattributed_ms) <= STANDARD_ERROR_SHARE_MAX * statistics.fmean(total_ms)
    return is_known or len(unattributed_ms) >= kills_max


def standard_error(values: Sequence[float]) -> float:
    """The standard error of their mean. Raises ``StatisticsError`` for fewer than two."""
    return statistics.stdev(values) / math.sqrt(len(values))


# --- the last line ---------------------------------------------------------------------------------------------------


def result_of(story: Story) -> dict[str, Any]:
    """The content of the last line (rule 4)."""
    counts, read = producer.read_counts(story.fleet.books), consumer.read_counts(story.fleet.books)
    found = story.failovers
    if len(found) < KILLS_MIN:
        raise LauncherError(f"{len(found)} failovers left a record, {KILLS_MIN} are the least")
    names = dict.fromkeys(name for each in found for name in each.phases_ms)
    phases_ms = {name: statistics.fmean(each.phases_ms.get(name, 0.0) for each in found) for name in names}
    total_ms = statistics.fmean(each.felt.total_ms for each in found)
    unattributed_ms = [each.unattributed_ms for each in found]
    return {
        "acked": story.audit.get("acked", 0),
        "lost": story.audit.get("lost", 0),
        "duplicated": story.audit.get("duplicated", 0),
        "retried": counts.retried,
        "duplicate_answers": counts.duplicate_answers,
        "consumed": read.consumed,
        "consumed_missing": read.missing,
        "consumed_twice": read.twice,
        "truncated_bytes": story.truncated_bytes,
        "failovers": len(found),
        "gap_ms": round(statistics.fmean(each.felt.gap_ms for each in found), 3),
        "gap_ms_max": round(max(each.felt.gap_ms for each in found), 3),
        "total_ms": round(total_ms, 3),
        "phases_ms": {name: round(value, 3) for name, value in phases_ms.items()},
        "dying_ms": round(statistics.fmean(each.dying_ms for each in found), 3),
        "recorded_total_ms": round(statistics.fmean(each.recorded_ms for each in found), 3),
        "unattributed_ms": round(statistics.fmean(unattributed_ms), 3),
        "unattributed_error_ms": round(standard_error(unattributed_ms), 3),
        "unattributed_each_ms": [round(each, 3) for each in unattributed_ms],
        "grade": "/".join(sorted({str(each.row.grade) for each in found})),
        "audited_replicas": story.audit.get("audited_replicas", 0),
        "audit_troubles": story.audit.get("troubles", 0),
    }


def result_of_machines(story: Story) -> dict[str, Any]:
    """What is added to it on machines."""
    if story.fleet.machines is None:
        return {}
    found: dict[str, Any] = {"machines": len(story.fleet.machines.names), "reached_controllers": len(story.fleet.asked)}
    if story.walk is not None:
        found |= {"commands": story.walk.commands, "questions": story.walk.questions}
        found |= {"questions_failed": story.walk.failed}
    return found


def faults_of(result: dict[str, Any]) -> list[str]:
    """Why the demo failed; empty = it did not."""
    wrong = [
        f"{name} is 0"
        for name in ("acked", "consumed", "retried", "duplicate_answers", "truncated_bytes")
        if not result[name]
    ]
    zeros = ("lost", "duplicated", "consumed_missing", "audit_troubles", "questions_failed")
    wrong += [f"{name} is {result[name]}" for name in zeros if result.get(name)]
    wrong += [f"{name} is 0" for name in ("machines", "commands", "questions") if result.get(name) == 0]
    if result["audited_replicas"] != 3:
        wrong.append(f"audited_replicas is {result['audited_replicas']}, not 3")
    doubt_ms = DOUBT_ERRORS * result["unattributed_error_ms"]
    if abs(result["unattributed_ms"]) - doubt_ms > UNATTRIBUTED_SHARE_MAX * result["total_ms"]:
        unexplained = f"{result['unattributed_ms']} (+-{doubt_ms:.3f}) ms of {result['total_ms']} ms"
        wrong.append(f"{unexplained} are not explained by any phase; {UNATTRIBUTED_SHARE_MAX:.0%} are the most")
    return wrong


def run(
    directory: Path, *, kills_max: int = KILLS_MAX, has_machines: bool = False, asks_every_command: bool = False
) -> int:
    """
    The whole story, from an empty directory to RESULT; everything is stopped at the end.

    Masters are killed ``KILLS_MIN`` times, and up to ``kills_max`` times while what is unexplained is not known well.
    ``has_machines``: each node is on a machine of its own; raises ``MachinesError`` where there can be none.
    """
    if has_machines:
        sweep()  # a killed run left its nodes behind: they are not found running here, but removed
    discard(directory)
    with on_machines(directory) if has_machines else Fleet.create(directory) as fleet:
        story = start(fleet)
        fail_over(story, kills_max)
        fail_over_with_a_tail(story)
        if asks_every_command:
            ask_every_command(story)
        judge(story)
        result = result_of(story) | result_of_machines(story)
    say("\nNext:")
    say(f"  {audit_command(directory)} --self-test")
    if not has_machines:
        say(f"  {tables_command(directory)}\n  {demo_verb('up', directory)}")
    say()
    wrong = faults_of(result)
    for line in wrong:
        say(f"FAILED  {line}")
    say(f"RESULT {json.dumps(result)}")
    return 1 if wrong else 0


# --- verbs -----------------------------------------------------------------------------------------------------------


def discard(directory: Path) -> None:
    """Remove an earlier demo. Raises ``LauncherError`` if it runs, or if the directory is not a demo's."""
    if not directory.exists() or not any(directory.iterdir()):
        return
    # "make demo DEMO=/home/alice" must not remove a home directory.
    if not (directory / FLEET_FILE_NAME).exists():
        raise LauncherError(f"{directory} is not empty and holds no fleet; choose another --directory")
    require_down(directory)
    shutil.rmtree(directory)


def require_down(directory: Path) -> None:
    """Raises ``LauncherError`` with the processes that run."""
    if running := Processes(directory).running():
        raise LauncherError(
            f"{', '.join(running)} of {directory} still run; stop them with: {demo_verb('down', directory)}"
        )


def up(directory: Path) -> int:
    """Start the fleet with a producer and leave it running; an earlier one is started again with its data."""
    if (directory / FLEET_FILE_NAME).exists():
        require_down(directory)
        fleet = Fleet(directory)
    else:
        fleet = Fleet.create(directory)
    key = fleet.set_keys()[0]
    try:
        fleet.up()
        start_producer(fleet)
        wait_acks(Story(fleet=fleet, key=key), 1)
        master = fleet.master(key)
    except BaseException:
        # Ctrl-C too: six processes without a terminal would go on, and hold their ports.
        fleet.down()
        raise
    show(fleet, "status")
    other = max(fleet.brokers, key=lambda name: (name != master, name))
    identity = fleet.identity()
    say(
        f"""
It runs. What a client feels: tail -f {directory}/log/{PRODUCER}.log
  kill -9 $(cat {directory}/run/{master}.pid)   # the master
  {rollcall()} history {key.name}
  {rollcall()} demo start --directory {directory}   # it comes back, and follows
  {rollcall()} elect {key.name} --to {other} --dry-run
  curl -s --cacert {identity.authority} --cert {identity.certificate} --key {identity.key} \\
    {fleet.rest(fleet.controllers[0]).url(f"/v1/sets/{fleet.file.fleet.name}/{key.name}")}
  {demo_verb("down", directory)}"""
    )
    return 0


def down(directory: Path) -> int:
    """Stop the processes that were started in ``directory``; its data stays."""
    fleet = Fleet(directory)
    running = fleet.processes.running()
    fleet.down()
    say(f"stopped {len(running)}: {', '.join(running) or 'nothing ran'}")
    return 0


def send_signal(directory: Path, verb: str, name: str) -> int:
    """kill, stop or cont one process of the demo, by its name or as ``MASTER``."""
    fleet = Fleet(directory)
    number = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "cont": signal.SIGCONT}[verb]
    name = fleet.master(fleet.set_keys()[0]) if name == MASTER else name
    pid = fleet.processes.signal(name, number)
    say(f"{number.name} to {name}, pid {pid}")
    return 0


def start_again(directory: Path, name: str | None) -> int:
    """
    Start a controller or broker that is down, with its data.

    Without a name all that are down, and wait until every set has all its replicas in sync: a replica that is stopped
    before that is behind, and the audit says so. Raises ``LauncherError``, ``ConfigError``.
    """
    fleet = Fleet(directory)
    if name is not None and (pid := fleet.pid(name)) is not None:
        raise LauncherError(f"{name} runs already, pid {pid}")
    nodes = (*fleet.controllers, *fleet.brokers)
    started = {
        node: fleet.restart(node) for node in nodes if (fleet.pid(node) is None if name is None else node == name)
    }
    if name is not None and not started:
        raise LauncherError(f"there is no {name}; there are: {', '.join(nodes)}")
    fleet.wait_ready(started)
    for node, pid in started.items():
        say(f"{node} is ready, pid {pid}")
    if name is None:
        for key in fleet.set_keys():
            fleet.wait_redundant(key)
            say(f"{key.name}: all replicas are in sync")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: as it should be; 1: not; 2: wrong use."""
    parser = argparse.ArgumentParser(prog="rollcall demo", description="Play with a fleet on this machine.")
    parser.add_argument("verb", choices=("run", "up", "down", "kill", "start", "stop", "cont"))
    parser.add_argument(
        "name",
        nargs="?",
        help=f"for kill, stop and cont: c1, broker-a-1, … or {MASTER}; start without one: all that are down",
    )
    parser.add_argument("--directory", type=Path, default=DEFAULT_DIRECTORY)
    kills = f"run: masters to kill at most, {KILLS_MIN} to {KILLS_MAX}; more make its times surer"
    machines = "run: each node on a machine of its own, a network namespace; needs root"
    parser.add_argument("--machines", action="store_true", help=machines)
    every = "run, with --machines: also ask every command of the CLI, where one controller is reached"
    parser.add_argument("--every-command", action="store_true", help=every)
    parser.add_argument("--kills", type=int, choices=range(KILLS_MIN, KILLS_MAX + 1), default=KILLS_MAX, help=kills)
    options = parser.parse_args(arguments)
    if options.verb != "start" and (options.name is not None) != (options.verb in ("kill", "stop", "cont")):
        parser.error("kill, stop and cont want the name of one process, start may have one, the others none")
    if (options.machines and options.verb != "run") or (options.every_command and not options.machines):
        parser.error("--machines is of run, and --every-command of run --machines")
    try:
        if options.verb == "start":
            return start_again(options.directory, options.name)
        if options.name is not None:
            return send_signal(options.directory, options.verb, options.name)
        if options.verb == "run":
            return run(
                options.directory,
                kills_max=options.kills,
                has_machines=options.machines,
                asks_every_command=options.every_command,
            )
        return {"up": up, "down": down}[options.verb](options.directory)
    except (LauncherError, ConfigError) as error:
        sys.stderr.write(f"demo: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
