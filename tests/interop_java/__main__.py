"""
``make prove PARTS=interop,interop-short,interop-move``: unmodified Java brokers, clients, mqadmin before our controllers.

    python -m tests.interop_java failovers|admin|brokers|all|short|signed|move|record|winners|ours|clients [--side rocketmq|rollcall]
        [--brokers RELEASE] [--few] [--kills N] [--keep DIRECTORY]

``failovers``: three Rollcall controllers with name service, three Java brokers, a Java producer and a push consumer
under faults; ``admin``: what mqadmin says beside what it says against RocketMQ's own; ``brokers``: what it says of our brokers
beside RocketMQ's (``make prove PARTS=interop-admin``); ``all``: the first two; ``short``: a few of each on one fleet, beside what ``record`` kept of RocketMQ's own; ``signed``: access keys and TLS alone open the ports,
mqadmin with right, wrong and no keys, and faults, which ``all`` does, too; ``move``: a live fleet there and back;
``ours``: RocketMQ's clients for Java and Go beside ours at our brokers (``make interop-clients``);
``clients``: the same under fewer faults, and then before RocketMQ's brokers behind our controllers: tables of what differs.
What RocketMQ's brokers lose or double is counted, and is no failure;
``winners``: next masters that were master before in their process, beside those that were not (``--kills`` of each).
Exit code 0: everything held, or Java or Maven cannot be had, which is said and counted. 1: it did not hold.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from rollcall_ha.deploy.local.processes import LauncherError
from tests.interop_go.build import GoUnavailableError, build
from tests.interop_java import admin, admin_brokers, compare, signed
from tests.interop_java.artifacts import VERSION, JavaUnavailableError, RocketMq, obtain
from tests.interop_java.brokers import Brokers, java_brokers, our_brokers
from tests.interop_java.clients import Clients, Outcome
from tests.interop_java.differences import pauses, promises
from tests.interop_java.fleet import LIGHT_JVM, JavaFleet
from tests.interop_java.move import Move
from tests.interop_java.move import table as move_table
from tests.interop_java.mqadmin import Asked, to_stderr
from tests.interop_java.sides import JavaSide, RollcallSide, rollcall_side, sides
from tests.interop_java.story import EVERYTHING, KILL, LEADER, STOP, Audit, Plan, Story, Winners, table, winners_table

LONG = Plan(kills=20, stops=5, leaders=5, restarts=1)
SHORT = Plan(kills=2, stops=1, leaders=1, restarts=0, route_poll_ms=1000)
"""The short form's producer asks for routes each second: with RocketMQ's 30 s most of six minutes would be waiting."""
OURS_SHORT = Plan(kills=1, stops=1, leaders=1, restarts=1, route_poll_ms=1000)
BOTH = Plan(kills=6, stops=2, leaders=2, restarts=1)
"""Before either brokers: RocketMQ's take a minute and more to be whole again, and clients that ask for routes each 30 s."""
COMMANDS_MIN = 14
COUNTS: Counter[str] = Counter()
"""What this process did and found: the line RESULT."""


def failovers(rocketmq: RocketMq, release: RocketMq, directory: Path, side: str, plan: Plan) -> list[str]:
    """Faults and audit on one side; returns what did not hold."""
    with sides(directory, rocketmq, side, brokers=release) as (controllers, java):
        story = Story(controllers, java, plan, to_stderr)
        return _told(story, release.version, story.run)


def _told(story: Story, version: str, run: Callable[[], Audit]) -> list[str]:
    began = time.monotonic()
    try:
        audit = run()
    finally:
        print(f"\nFaults of a fleet of RocketMQ {version} brokers before {story.side.name}'s controllers")
        print(table(story.strikes), flush=True)
    print(_audit_line(audit))
    counted = {kind: sum(strike.kind == kind for strike in story.strikes) for kind in (KILL, STOP, LEADER, EVERYTHING)}
    print(f"{', '.join(f'{kind} {count}' for kind, count in counted.items())}; {time.monotonic() - began:.0f} s")
    COUNTS.update({"faults": sum(counted.values())})
    wanted = story.plan.counts().items()
    wrong = [f"{kind}: {counted[kind]} instead of {count}" for kind, count in wanted if counted[kind] != count]
    return wrong + _complaints(audit)


def questions(rocketmq: RocketMq, directory: Path) -> list[str]:
    """mqadmin on both sides; returns what nothing explains."""
    asked: dict[str, tuple[Asked, ...]] = {}
    for side in (JavaSide.name, RollcallSide.name):
        with sides(directory / side, rocketmq, side) as (controllers, java):
            admin.build(controllers, java, to_stderr)
            asked[side] = admin.interrogate(controllers, java, to_stderr)
    heading = "its own controllers and name server, then Rollcall's"
    return _compared(rocketmq.version, heading, asked[JavaSide.name], asked[RollcallSide.name])


def questions_of_brokers(rocketmq: RocketMq, directory: Path) -> list[str]:
    """mqadmin at RocketMQ's brokers and at ours; returns what nothing explains."""
    asked: dict[str, tuple[Asked, ...]] = {}
    for side in (JavaSide.name, RollcallSide.name):
        with admin_brokers.broker_sides(directory / side, rocketmq, side) as found:
            admin_brokers.build(found, to_stderr)
            asked[side] = admin_brokers.interrogate(found, to_stderr)
    heading = "its own brokers, then Rollcall's"
    wrong = _compared(
        rocketmq.version, heading, asked[JavaSide.name], asked[RollcallSide.name], file=admin_brokers.ALLOWED_FILE
    )
    print("\nLeft out:", *(f"  {command:<32} {why}" for command, why in admin_brokers.LEFT_OUT.items()), sep="\n")
    COUNTS.update(left_out=len(admin_brokers.LEFT_OUT))
    return wrong


def record(rocketmq: RocketMq, directory: Path) -> list[str]:
    """Keep what the short form needs of what mqadmin says before RocketMQ's own controllers and name server."""
    with sides(directory, rocketmq, JavaSide.name) as (controllers, java):
        admin.build(controllers, java, to_stderr)
        admin.record(admin.interrogate(controllers, java, to_stderr, is_short=True))
    return []


def _compared(
    version: str, heading: str, theirs: Sequence[Asked], ours: Sequence[Asked], *, file: Path = compare.ALLOWED_FILE
) -> list[str]:
    compared = compare.compare(theirs, ours, compare.allowed(file))
    print(f"\nmqadmin of RocketMQ {version}: {heading}\n")
    print(compare.report(compared))
    print(compare.summary(compared))
    names = {one.rollcall.command.split()[0] for one in compared}
    wrong = [f"mqadmin {one.rollcall.command}: {line}" for one in compared for line in one.unexplained]
    verdicts = Counter(one.verdict.partition(":")[0] for one in compared)
    equal, explained, differing = (verdicts[word] for word in ("same", "explained", "DIFFERS"))
    COUNTS.update(questions=len(compared), commands=len(names), equal=equal, explained=explained, unexplained=differing)
    if len(names) < COMMANDS_MIN:
        wrong.append(f"{len(names)} different commands, fewer than {COMMANDS_MIN}")
    if not equal:
        wrong.append("no question was answered the same")
    return wrong


def short(rocketmq: RocketMq, directory: Path) -> list[str]:
    """One fleet before our controllers: some questions, compared with what was recorded, then some faults."""
    with sides(directory, rocketmq, RollcallSide.name) as (controllers, java):
        admin.build(controllers, java, to_stderr)
        ours = admin.interrogate(controllers, java, to_stderr, is_short=True)
        theirs = {asked.label: asked for asked in admin.recorded()}
        wrong = _compared(
            rocketmq.version, "recorded, then before Rollcall's", [theirs[asked.label] for asked in ours], ours
        )
        java.terminate("consumer")
        story = Story(controllers, java, SHORT, to_stderr)
        story.start_clients()
        return wrong + _told(story, rocketmq.version, story.faults)


def signed_fleet(rocketmq: RocketMq, directory: Path) -> list[str]:
    """A fleet in which everything of RocketMQ's signs and speaks TLS; returns what did not hold."""
    with signed.signed_side(directory, rocketmq) as (controllers, java):
        story = Story(controllers, java, dataclasses.replace(SHORT, kills=1, stops=0), to_stderr)
        story.start_brokers()
        wrong, asked = signed.interrogate(controllers, java, to_stderr)
        COUNTS.update(asked_with_keys=asked, unexpected=len(wrong))
        story.start_clients()
        return wrong + _told(story, rocketmq.version, story.faults)


def there_and_back(rocketmq: RocketMq, directory: Path) -> list[str]:
    """From RocketMQ's controllers to ours and back under load; returns what did not hold."""
    with JavaFleet(directory / "java", rocketmq) as java:
        move = Move(java, directory, to_stderr)
        try:
            audit = move.run()
        finally:
            print(f"\nA RocketMQ {rocketmq.version} fleet moves to Rollcall's controllers and back")
            print(move_table(move.steps), flush=True)
    print(_audit_line(audit))
    COUNTS.update(steps=len(move.steps))
    return _complaints(audit)


def clients_at_ours(rocketmq: RocketMq, directory: Path, plan: Plan) -> list[str]:
    """RocketMQ's clients and ours share topics at our brokers under faults; returns what did not hold."""
    found = _share(our_brokers, rocketmq, directory, _go(directory), plan)
    COUNTS.update(found.counts)
    return found.wrong


def clients_at_both(rocketmq: RocketMq, directory: Path, plan: Plan) -> list[str]:
    """The same before our brokers and RocketMQ's, and what differs; returns what did not hold at ours, or never happened."""
    go = _go(directory)
    sides = [
        _share(brokers, rocketmq, directory / brokers.__name__, go, plan) for brokers in (our_brokers, java_brokers)
    ]
    for found, prefix in zip(sides, ("", "rocketmq_"), strict=True):
        COUNTS.update({prefix + name: count for name, count in found.counts.items()})
    faults = ", ".join(f"{kind} {count}" for kind, count in plan.counts().items())
    print(f"\nThe same clients and faults ({faults}) behind three controllers of Rollcall's\n")
    print(promises({found.label: found.counts for found in sides}))
    print(f"\n{pauses({found.label: found.strikes for found in sides})}")
    return [f"{found.label}: {line}" for found in sides for line in found.wrong]


def _go(directory: Path) -> Path | None:
    try:
        return build(directory)
    except GoUnavailableError as error:
        print(f"SKIPPED  the Go pair: {error}")
        COUNTS.update(skipped=1)
        return None


def _share(
    whose: Callable[[Path, RocketMq], AbstractContextManager[tuple[Brokers, JavaFleet]]],
    rocketmq: RocketMq,
    directory: Path,
    go: Path | None,
    plan: Plan,
) -> Outcome:
    with whose(directory, rocketmq) as (brokers, java):
        run = Clients(brokers, java, go, plan, to_stderr)
        try:
            found = run.run()
        finally:
            names = f"clients of RocketMQ {rocketmq.version}, {'' if go is None else 'Go, '}and ours"
            print(f"\nFaults of {brokers.label} under {names}")
            print(table(run.strikes), flush=True)
    print("  ".join(f"{name} {count:,}" for name, count in found.counts.items()))
    return found


def warm_winners(rocketmq: RocketMq, directory: Path, kills: int) -> None:
    """How soon a next master acknowledges that was master before in its process, and one that was not."""
    # As Java chooses for itself, but for the keys: what is compiled, and when, is what is looked at.
    with (
        JavaFleet(directory / "java", rocketmq, jvm=LIGHT_JVM[2:]) as java,
        rollcall_side(directory / "rollcall") as side,
    ):
        winners = Winners(side, java, to_stderr)
        try:
            winners.run(kills)
        finally:
            print(
                f"\nKills of a RocketMQ {rocketmq.version} master before Rollcall's controllers, its slaves equal otherwise"
            )
            print(winners_table(winners.won), flush=True)
    COUNTS.update(kills=len(winners.won), warm=sum(one.is_warm for one in winners.won))


def _complaints(audit: Audit) -> list[str]:
    COUNTS.update({name: getattr(audit, name) for name in ("acked", "consumed", "lost", "changed")})
    zero = [f"{name} is 0" for name in ("acked", "consumed") if not getattr(audit, name)]
    return zero + [
        f"{name} is {getattr(audit, name)}, not 0"
        for name in ("lost", "changed", "epochs_fell", "ids_changed")
        if getattr(audit, name)
    ]


def _audit_line(audit: Audit) -> str:
    return (
        f"acknowledged {audit.acked:,}  consumed {audit.consumed:,}  lost {audit.lost}  changed {audit.changed}  "
        f"consumed twice {audit.twice:,}  epochs that fell {audit.epochs_fell}  ids changed {audit.ids_changed}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.interop_java", description=(__doc__ or "").strip().splitlines()[0]
    )
    whats = ("failovers", "admin", "brokers", "all", "short", "signed", "move", "record", "winners", "ours", "clients")
    parser.add_argument("what", choices=whats)
    parser.add_argument("--side", choices=(JavaSide.name, RollcallSide.name), default=RollcallSide.name)
    parser.add_argument("--kills", type=int, help="instead of the plan's")
    parser.add_argument("--few", action="store_true", help="failovers with the short form's few faults")
    parser.add_argument("--brokers", default=VERSION, metavar="RELEASE", help=f"of the brokers, {VERSION}")
    parser.add_argument("--keep", type=Path, help="where data and logs are left; default: removed unless it fails")
    options = parser.parse_args(arguments)
    try:
        rocketmq, release = obtain(), obtain(options.brokers)
    except JavaUnavailableError as error:
        print(f"SKIPPED  {error}\nRESULT {json.dumps({'skipped_because': str(error)})}")
        return 0
    directory = options.keep or Path(tempfile.mkdtemp(prefix="rollcall-interop-"))
    plan = SHORT if options.few else BOTH if options.what == "clients" else LONG
    if options.few and options.what in ("ours", "clients"):
        plan = OURS_SHORT
    if options.kills is not None:
        plan = dataclasses.replace(plan, kills=options.kills)
    wrong: list[str] = []
    try:
        if options.what in ("failovers", "all"):
            wrong += failovers(rocketmq, release, directory / "failovers", options.side, plan)
        if options.what in ("admin", "all"):
            wrong += questions(rocketmq, directory / "admin")
        if options.what == "brokers":
            wrong += questions_of_brokers(rocketmq, directory / "brokers")
        if options.what == "short":
            wrong += short(rocketmq, directory / "short")
        if options.what in ("signed", "all"):
            wrong += signed_fleet(rocketmq, directory / "signed")
        if options.what == "record":
            wrong += record(rocketmq, directory / "record")
        if options.what == "winners":
            warm_winners(rocketmq, directory / "winners", plan.kills)
        if options.what == "ours":
            wrong += clients_at_ours(rocketmq, directory / "clients", plan)
        if options.what == "clients":
            wrong += clients_at_both(rocketmq, directory / "clients", plan)
        if options.what == "move":
            wrong += there_and_back(rocketmq, directory / "move")
    except LauncherError as error:
        wrong.append(str(error))
    for line in wrong:
        print(f"FAILED  {line}")
    print(f"RESULT {json.dumps({**COUNTS, 'wrong': len(wrong)})}")
    if wrong:
        print(f"logs are in {directory}")
    elif options.keep is None:
        shutil.rmtree(directory, ignore_errors=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
