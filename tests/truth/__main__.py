"""
`make prove PARTS=record-truth`: is the record of outages true for somebody outside?

    python -m tests.truth [--directory .truth] [--only NAME]... [--no-spark] [--probe] [--java]
    make record-truth [PROBE=1] [ONLY=NAME]

A fleet of real processes comes to every end that is known to us, once while a stopwatch sends messages and once while it
only knocks. The stopwatch (``stopwatch.py``) shares no code with the product. Printed per row: felt, recorded, bounds,
kinds, verdict; with ``--probe`` what ``rollcall probe`` felt beside it, where messages are sent. Then the same rows out of
Spark. With ``--java`` the same for RocketMQ's brokers before our controllers (``java``). At the end a table: felt by the
probe, felt by a producer, on record, out of Spark. Exit code 1 if any row is not true, or if nothing was compared.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollcall_ha.deploy.local.fleet import Fleet, Layout
from rollcall_ha.deploy.local.processes import LauncherError, wait_until
from rollcall_ha.probe.lines import GapLine
from tests.truth import faults, java, probe, spark
from tests.truth.faults import Fault, SkipError, Stage
from tests.truth.java import JavaStage, java_stage
from tests.truth.recorded import Event, Felt, Recorded, felt, judge, longest_gaps, recorded
from tests.truth.samples import Sampled, Sampler, get

DEFAULT_DIRECTORY = Path(".truth")
SEGMENT_BYTES = 1 << 20
DISK_BYTES = 192 << 20
EVENTS_MIN = 150
RECORD_DEADLINE_S = 10.0
KINDS_MIN = 12
UP_DEADLINE_S = 60.0

FAILOVER = frozenset({"failover"})
REQUESTED = frozenset({"requested"})
STOPS = frozenset(
    {f"writes-stopped:{reason}" for reason in ("too-few-in-sync", "not-acknowledged", "disk-full", "fenced")}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One kind of end."""

    name: str
    fault: Fault
    expected: frozenset[str]
    is_felt_by_knocks: bool = True
    """A gate that is open does not tell that nobody acks."""
    is_bounded: bool = True
    """False: the controllers that heard the master are gone, and what is left knows no upper bound."""
    needs_sends: bool = False
    """A disk is not full for a log that nobody writes to."""


ROWS = (
    Row(name="kill -9 master", fault=faults.kill_master, expected=FAILOVER),
    Row(name="kill -9 and restart at once", fault=faults.kill_and_restart_master, expected=FAILOVER),
    Row(name="master hangs", fault=faults.hang_master, expected=FAILOVER),
    Row(name="leader and master", fault=faults.kill_leader_and_master, expected=FAILOVER),
    Row(name="controllers and master", fault=faults.kill_controllers_and_master, expected=FAILOVER | STOPS),
    Row(name="whole fleet killed", fault=faults.kill_whole_fleet, expected=FAILOVER | STOPS),
    Row(name="whole fleet hangs", fault=faults.hang_whole_fleet, expected=FAILOVER | STOPS, is_felt_by_knocks=False),
    Row(name="slave hangs", fault=faults.hang_slave, expected=STOPS, is_felt_by_knocks=False),
    Row(name="master cut from slaves", fault=faults.cut_master_from_slaves, expected=STOPS, is_felt_by_knocks=False),
    Row(name="planned restart", fault=faults.restart_master, expected=frozenset({"handover"})),
    Row(name="elect --to", fault=faults.elect_another, expected=REQUESTED),
    Row(name="elect --to, master hangs", fault=faults.elect_while_master_hangs, expected=REQUESTED | FAILOVER),
    Row(name="unclean election", fault=faults.elect_unclean, expected=frozenset({"unclean"}) | STOPS),
    Row(name="disk full", fault=faults.fill_disk, expected=STOPS, needs_sends=True),
    Row(name="clock jump", fault=faults.jump_clock_and_kill, expected=FAILOVER),
    Row(name="leader behind the commit", fault=faults.kill_leader_behind_election, expected=FAILOVER),
    Row(name="leader's disk full", fault=faults.fill_leaders_disk_and_kill_master, expected=FAILOVER),
    Row(name="controllers cut, master killed", fault=faults.cut_controllers_and_kill_master, expected=FAILOVER | STOPS),
    Row(name="master cut from controllers", fault=faults.cut_master_from_controllers, expected=FAILOVER),
    Row(name="master cloned", fault=faults.clone_master, expected=FAILOVER | STOPS),
    Row(name="hot copy of a slave", fault=faults.put_slave_back_and_kill_master, expected=FAILOVER | STOPS),
    Row(name="controllers put back", fault=faults.put_controllers_back, expected=REQUESTED | FAILOVER | STOPS, is_bounded=False),
    Row(name="controllers restored", fault=faults.restore_controllers, expected=REQUESTED | FAILOVER | STOPS, is_bounded=False),
)  # fmt: skip
"""With and without sends each; and the idle set, of which nobody asks anything."""

JAVA_ROWS = (
    Row(name="RocketMQ's: kill -9 master", fault=faults.kill_master, expected=FAILOVER, is_bounded=False),
    Row(name="RocketMQ's: master hangs", fault=java.hang_master, expected=FAILOVER, is_bounded=False),
    Row(name="RocketMQ's: slave hangs", fault=java.hang_slave, expected=frozenset(), is_bounded=False),
    Row(name="RocketMQ's: planned restart", fault=java.restart_master, expected=FAILOVER, is_bounded=False),
    Row(name="RocketMQ's: elect --to", fault=faults.elect_another, expected=REQUESTED, is_bounded=False),
)
"""With sends. Of a stop within a reign nothing is on record."""


@dataclass(slots=True, kw_only=True)
class Line:
    """One printed row."""

    name: str
    mode: str
    felt: Felt
    found: Recorded
    complaints: tuple[str, ...]
    sampled: Sampled
    probed: str = ""
    """What the probe felt of it, for people; empty: none ran."""
    gap: GapLine | None = None
    """The same gap; None: it felt nothing of it."""
    found_by_spark: dict[str, Any] | None = None
    """Its row of ``gold.felt``."""


class Stopwatch:
    """The program, and its events."""

    def __init__(self, stage: Stage, mode: str, *, body_bytes: int) -> None:
        self._out = stage.fleet.directory / f"stopwatch-{mode}"
        self._out.unlink(missing_ok=True)
        program, asked = Path(__file__).with_name("stopwatch.py"), [*stage.proofs(), *stage.addresses()]
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(program), mode, str(self._out), str(body_bytes), *asked],
            stdin=subprocess.PIPE,
        )

    def events(self) -> list[Event]:
        if not self._out.exists():
            return []
        lines = self._out.read_text().split("\n")[:-1]
        return [Event(*map(int, line.split())) for line in lines]

    def wait_more(self) -> None:
        """It runs, and is served."""
        least = len(self.events()) + EVENTS_MIN
        wait_until(lambda: len(self.events()) >= least, deadline_s=UP_DEADLINE_S, what="the stopwatch to be served")

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=10)


def history(stage: Stage) -> dict[str, Any]:
    """The leader's answer."""
    for name in stage.fleet.controllers:
        status, body = get(stage.fleet.rest(name), f"/v1/sets/{stage.key.cluster}/{stage.key.name}/history?limit=500")
        if status == 200:
            answer: dict[str, Any] = json.loads(body)
            if answer["freshness"]["isAuthoritative"]:
                return answer
    return {"rows": [], "stops": []}


def new_since(stage: Stage, before: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Reigns and stops that were not there ``before``, oldest first, when the newest of them are complete."""
    known = {row["masterEpoch"] for row in before["rows"]}
    stopped = {json.dumps(stop["event"]) for stop in before.get("stops", ())}

    def fresh() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        now = history(stage)
        rows = [row for row in reversed(now["rows"]) if row["masterEpoch"] not in known]
        stops = [stop for stop in reversed(now.get("stops", ())) if json.dumps(stop["event"]) not in stopped]
        return rows, stops

    def is_whole() -> bool:
        rows, stops = fresh()
        is_timed = all(row["totalUs"] is not None for row in rows[-1:])
        return bool(rows or stops) and (is_timed or isinstance(stage, JavaStage))

    with contextlib.suppress(LauncherError):
        wait_until(is_whole, deadline_s=RECORD_DEADLINE_S, what="the record")
    return fresh()


def sampler(stage: Stage) -> Sampler:
    fleet = stage.fleet
    return Sampler(
        controllers=[fleet.rest(name) for name in fleet.controllers],
        health={fleet.file.broker(name).listen: fleet.health(name) for name in fleet.brokers},
        path=f"/v1/sets/{stage.key.cluster}/{stage.key.name}",
        check=lambda: stage.command("status", "--check").returncode,
    )


def felt_row(stage: Stage, row: Row, mode: str, *, with_probe: bool = False) -> Line:
    """The fault while a stopwatch runs, and, where it sends, the probe."""
    stage.heal()
    stage.gone_ns = None
    before = history(stage)
    fills = row.fault is faults.fill_disk
    watch = Stopwatch(stage, mode, body_bytes=4096 if fills else 16)
    # A probe's few bytes fit where 4 KiB do not: writes would have stopped for the stopwatch 0.4 s before they did on record.
    beside = probe.Beside(stage) if with_probe and mode == "send" and not fills else None
    # What is asked of RocketMQ's brokers has no answers to compare.
    samples = None if isinstance(stage, JavaStage) else sampler(stage)
    if samples is not None:
        samples.start()
    gaps: list[GapLine] = []
    try:
        watch.wait_more()
        since_ns = time.monotonic_ns()
        row.fault(stage)
        stage.heal()
        watch.wait_more()
    finally:
        sampled = Sampled() if samples is None else samples.stop()
        watch.stop()
        gaps = beside.stop() if beside is not None else []
    outage = felt(watch.events(), since_ns, stage.gone_ns)
    rows, stops = new_since(stage, before)
    found = java.known(rows) if isinstance(stage, JavaStage) else recorded(rows, stops)
    with_sends = mode == "send"
    if not with_sends and not row.is_felt_by_knocks:
        # The gate stood open all the time; what a sender would have felt, no stopwatch can say. Kinds are judged.
        outage = Felt(found.lower_ms, found.lower_ms)
    verdict = judge(found, felt=outage, with_sends=with_sends, expected=row.expected, is_bounded=row.is_bounded)
    line = Line(name=row.name, mode=mode, felt=outage, found=found, complaints=verdict.complaints, sampled=sampled)
    if beside is not None:
        wall_ms = (time.time_ns() - time.monotonic_ns()) / 1e6
        gap = probe.meeting(gaps, outage, wall_ms=wall_ms, coarse=stage.coarse)
        line.gap, line.probed = gap, "-" if gap is None else f"{gap.felt_ms:,} ms"
        longest_ms = probe.longest_ms(watch.events(), outage, coarse=stage.coarse)
        line.complaints += probe.complaints(gap, outage, longest_ms=longest_ms, coarse=stage.coarse)
    if line.complaints:
        line.complaints += (longest_gaps(watch.events(), since_ns),)
    return line


def idle_row(stage: Stage) -> Line:
    """The master of a set that nobody writes to dies; knocks time the outage, and the first message comes much later."""
    stage.heal()
    stage.gone_ns = None
    before = history(stage)
    samples = sampler(stage)
    samples.start()
    try:
        knocks = Stopwatch(stage, "knock", body_bytes=16)
        try:
            knocks.wait_more()
            since_ns = time.monotonic_ns()
            stage.kill(stage.master())
            stage.pause()
            stage.heal()
            knocks.wait_more()
        finally:
            knocks.stop()
        outage = felt(knocks.events(), since_ns, stage.gone_ns)
        stage.pause()
        asked_ns = time.monotonic_ns()
        sends = Stopwatch(stage, "send", body_bytes=16)
        try:
            sends.wait_more()
        finally:
            sends.stop()
    finally:
        sampled = samples.stop()
    found = recorded(*new_since(stage, before))
    complaints = judge(found, felt=outage, with_sends=False, expected=FAILOVER).complaints
    waited_ms = (sends.events()[0].at_ns - asked_ns) / 1e6
    if found.waited_ms > waited_ms:
        complaints += (f"a sender waited {waited_ms:,.0f} ms, {found.waited_ms:,.0f} are on record",)
    return Line(name="idle set", mode="idle", felt=outage, found=found, complaints=complaints, sampled=sampled)


def broken(name: str, mode: str, error: Exception) -> Line:
    """A row that came to no end: the fleet did not do what the fault waits for."""
    found = recorded((), ())
    complaint = f"no end: {error}"
    return Line(name=name, mode=mode, felt=Felt(0.0, 0.0), found=found, complaints=(complaint,), sampled=Sampled())


def show(line: Line) -> None:
    found = line.found
    upper = "unknown" if found.upper_ms is None else f"{found.upper_ms:,.0f}"
    bounds = "exact" if found.is_exact else f"{found.lower_ms:,.0f} to {upper}"
    agree = sum(line.sampled.compared.values())
    say(
        f"{'true ' if not line.complaints else 'FALSE'}  {line.name:<28} {line.mode:<6} felt {line.felt.most_ms:>8,.0f} ms  "
        f"{f'probe {line.probed:>9}  ' if line.probed else ''}"
        f"recorded {found.lower_ms:>8,.0f} + waited {found.waited_ms:>5,.0f} ms  {bounds:<18} "
        f"{', '.join(f'{kind} x{count}' if count > 1 else kind for kind, count in Counter(found.kinds).items()) or '-'}  "
        f"[{line.sampled.samples} samples, {agree} answers compared]"
    )
    for complaint in line.complaints:
        say(f"       {complaint}")
    for text, count in line.sampled.disagreements.items():
        say(f"       DISAGREE {count} times: {text}")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@contextmanager
def disks(fleet: Fleet) -> Iterator[None]:
    """A small disk for each process, where this process may mount one: it does in a namespace of its own."""
    mounted = []
    try:
        if os.geteuid() == 0 and "TRUTH_NAMESPACE" in os.environ:
            for name in (*fleet.controllers, *fleet.brokers):
                fleet.data(name).mkdir(parents=True, exist_ok=True)
                command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(fleet.data(name))]
                # A controller's directory holds its mark of the founding: behind the mount, none would lead.
                founded = shutil.copytree(fleet.data(name), fleet.directory / "founded" / name)
                subprocess.run(command, check=True, timeout=10)
                mounted.append(fleet.data(name))
                shutil.copytree(founded, fleet.data(name), dirs_exist_ok=True)
        yield
    finally:
        for path in mounted:
            subprocess.run(["umount", str(path)], check=False, timeout=10)


@contextmanager
def our_stage(directory: Path) -> Iterator[Stage]:
    """Three controllers and three brokers of ours."""
    fleet = Fleet.create(directory, Layout(name="truth", segment_bytes=SEGMENT_BYTES, min_in_sync=2))
    with disks(fleet), fleet:
        for name in fleet.controllers:
            with faults.movable_clock(fleet, name):
                fleet.start(name)
        fleet.up(deadline_s=UP_DEADLINE_S)
        yield Stage(fleet=fleet, key=fleet.set_keys()[0])


def run_rows(
    stage: Stage, rows: Sequence[Row], only: Sequence[str], *, with_probe: bool = False
) -> tuple[list[Line], list[str]]:
    """Those of ``rows`` that are wanted, and why some were skipped."""
    lines: list[Line] = []
    skipped: list[str] = []
    for row in rows:
        for mode in ("send",) if isinstance(stage, JavaStage) else ("send", "knock"):
            if not is_wanted(row.name, only) or (row.needs_sends and mode != "send"):
                continue
            try:
                lines.append(felt_row(stage, row, mode, with_probe=with_probe))
                show(lines[-1])
            except (LauncherError, RuntimeError) as error:
                lines.append(broken(row.name, mode, error))
                show(lines[-1])
            except SkipError as error:
                skipped.append(f"{row.name}: {error}")
                say(f"skip   {row.name}: {error}")
                break
    return lines, skipped


def is_wanted(name: str, only: Sequence[str]) -> bool:
    return not only or any(part in name for part in only)


def beside_each_other(lines: Sequence[Line]) -> Iterator[str]:
    """The rows with sends as a table in Markdown: what each of four has of the same outage, in ms."""
    yield "| end of the master | probe | a producer | on record | out of Spark | felt less recorded | on record as |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | --- |"
    for line in lines:
        if line.mode != "send":
            continue
        found, spark_row = line.found, line.found_by_spark or {}
        known = (
            f"{found.lower_ms:,.0f} + {found.waited_ms:,.0f}"
            if found.upper_ms is not None
            else f">= {found.lower_ms:,.0f}"
        )
        told = (spark_row.get(name) for name in ("recorded_ms", "difference_ms"))
        cells = (line.name, "-" if line.gap is None else f"{line.gap.felt_ms:,}", f"{line.felt.most_ms:,.0f}",
                 known if found.kinds else "nothing", *("-" if one is None else f"{one:,}" for one in told),
                 ", ".join(found.kinds) or "-")  # fmt: skip
        yield f"| {' | '.join(cells)} |"


def run_side(
    stage: Stage, rows: Sequence[Row], only: Sequence[str], *, with_spark: bool, with_probe: bool
) -> tuple[list[Line], list[str], int, list[str]]:
    """Its rows, why some were skipped, how many values Spark has, and those that differ."""
    is_theirs = isinstance(stage, JavaStage)
    told = [row for row in rows if row.is_bounded or is_theirs]
    lines, skipped = run_rows(stage, told, only, with_probe=with_probe)
    if is_wanted("idle set", only) and not is_theirs:
        lines.append(idle_row(stage))
        show(lines[-1])
    compared, differences = with_lake(stage, lines) if with_spark else (0, [])
    # Behind these our controllers have lost their record.
    more = run_rows(stage, [row for row in rows if row not in told], only, with_probe=with_probe)
    return lines + more[0], skipped + more[1], compared, differences


def run(directory: Path, only: Sequence[str], *, with_spark: bool, with_probe: bool, with_java: bool) -> int:
    """Exit code 0 if every row is true and, with Spark, equal."""
    shutil.rmtree(directory, ignore_errors=True)
    lines: list[Line] = []
    skipped: list[str] = []
    compared, differences = 0, list[str]()
    sides: list[tuple[tuple[Row, ...], AbstractContextManager[Stage]]] = [(ROWS, our_stage(directory))]
    sides += [(JAVA_ROWS, java_stage(directory / "java"))] if with_java else []
    for rows, side in sides:
        if not any(
            is_wanted(name, only) for name in (*(row.name for row in rows), *(["idle set"] if rows is ROWS else []))
        ):
            continue
        try:
            with side as stage:
                found = run_side(stage, rows, only, with_spark=with_spark, with_probe=with_probe)
        except SkipError as error:
            say(f"skip   {error}")
            skipped.append(str(error))
            continue
        lines, skipped = lines + found[0], skipped + found[1]
        compared, differences = compared + found[2], differences + found[3]
    if with_probe:
        say("\n".join(beside_each_other(lines)))
    for text in differences:
        say(f"SPARK  {text}")
    untrue = [line for line in lines if line.complaints]
    disagreed = sum(sum(line.sampled.disagreements.values()) for line in lines)
    kinds = {line.name for line in lines}
    result = {
        "rows": len(lines), "kinds_of_ends": len(kinds), "untrue": len(untrue), "disagreements": disagreed,
        "passing_disagreements": sum(line.sampled.passing for line in lines),
        "answers_compared": sum(sum(line.sampled.compared.values()) for line in lines),
        "skipped": len(skipped), "spark_values_compared": compared, "spark_differences": len(differences) if with_spark else None,
    }  # fmt: skip
    say(f"RESULT {json.dumps(result)}")
    is_enough = bool(lines) and (bool(only) or len(kinds) >= KINDS_MIN) and (bool(compared) or not with_spark)
    return 0 if is_enough and not untrue and not disagreed and not differences else 1


def with_lake(stage: Stage, lines: Sequence[Line]) -> tuple[int, list[str]]:
    """How many values Spark has, and which differ; to each line the row of what its probe felt."""
    compared, differences, felt_rows = spark.differences(stage, history)
    for line in lines:
        if line.gap is not None:
            line.found_by_spark = felt_rows.get((line.gap.from_ms, line.gap.felt_ms))
            differences += [] if line.found_by_spark else [f"{line.name}: gold.felt has no gap of {line.probed}"]
    return compared, differences


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Is the record of outages true for somebody outside?")
    parser.add_argument("--directory", type=Path, default=DEFAULT_DIRECTORY)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="only rows whose name holds this")
    parser.add_argument("--no-spark", action="store_true")
    parser.add_argument("--probe", action="store_true", help="rollcall probe beside the stopwatch that sends")
    parser.add_argument("--java", action="store_true", help="and RocketMQ's brokers before our controllers")
    options = parser.parse_args(arguments)
    if os.geteuid() == 0 and shutil.which("unshare") and "TRUTH_NAMESPACE" not in os.environ:
        # Network and mounts of its own: a packet filter or a full disk of a test must reach nothing else.
        inner = 'ip link set lo up; exec "$@"'
        given = sys.argv[1:] if arguments is None else list(arguments)
        command = ["unshare", "--net", "--mount", "sh", "-c", inner, "sh", sys.executable, "-m", "tests.truth", *given]
        os.execvpe(command[0], command, os.environ | {"TRUTH_NAMESPACE": "1"})
    with_spark = not options.no_spark
    return run(options.directory, options.only, with_spark=with_spark, with_probe=options.probe, with_java=options.java)


if __name__ == "__main__":
    sys.exit(main())
