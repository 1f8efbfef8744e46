"""
`make prove PARTS=attacks`: every attack that we know of, on a fleet under load; each is refused, counted, and not felt.

    python -m tests.attacks [--directory .attacks] [--only TEXT]...

Three controllers, a set of three brokers under load and a second set of one. Printed per attack: what came back, which
counter moved, the longest time without an acknowledgement meanwhile. Exit code 1 if an attack was not refused with a
documented answer, was not counted, or was felt for 500 ms; or if nothing was tried. At the end every acknowledged
message is on every replica, by the audit.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rollcall_ha.controller.contract.ids import BrokerName, ClusterName, SetKey
from rollcall_ha.deploy.local import audit
from rollcall_ha.deploy.local.fleet import Fleet, Layout
from rollcall_ha.deploy.local.processes import LauncherError, wait_until
from tests.attacks import claims, doors, rocketmq, terminals, web
from tests.attacks.enemy import Counters, Forger
from tests.attacks.page import Row, write_page
from tests.attacks.peer import RocketmqMaster, write_keys
from tests.attacks.scene import Attack, NotHere, Scene
from tests.support.descriptors import many_descriptors
from tests.support.fleet_story import Load, load

DEFAULT_DIRECTORY = Path(".attacks")
GAP_MS_MAX = 500.0
UP_DEADLINE_S = 60.0
COUNTED_WITHIN_S = 8.0
DESCRIPTORS = 6_000
SHOWN_MAX = 92
AUDIT_S_MAX = 600
IN_FLIGHT = 2
"""A steady trickle: an audit of all its bytes comes behind it, in plain Python."""


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def counted(scene: Scene, attack: Attack, before: Counter[str]) -> dict[str, int]:
    """
    Counters that moved, by how much; waits for the one that must.

    Raises ``LauncherError`` with those that moved instead.
    """
    moved: dict[str, int] = {}

    def found() -> dict[str, int]:
        after = scene.counters.read()
        moved.update({key: after[key] - before[key] for key in after if after[key] > before[key]})
        # That a peer left is counted for every link of the table's own, too: it must be meant.
        ours = "peer" if "peer" not in attack.counted else "nothing"
        return {key: by for key, by in moved.items() if attack.counted in key and f'reason="{ours}"' not in key}

    if attack.counted:
        try:
            wait_until(found, deadline_s=COUNTED_WITHIN_S, what=f"a counter with {attack.counted}")
        except LauncherError as error:
            raise LauncherError(f"{error}; moved: {moved}") from None
    return found() if attack.counted else {}


def run_one(scene: Scene, work: Load, attack: Attack) -> Row:
    """Whether it was refused, counted and not felt."""
    before = scene.counters.read()
    since_ns = time.monotonic_ns()
    try:
        came_back = attack.run(scene)
    except NotHere as error:
        return Row(attack=attack, verdict="SKIPPED", came_back=str(error))
    except Exception as error:  # noqa: BLE001 (an attack that could not be made is a failure of the table)
        came_back = f"NOT MADE: {type(error).__name__}: {error}"
    try:
        moved = counted(scene, attack, before)
    except LauncherError as error:
        moved, came_back = {}, f"NOT COUNTED: {error}; {came_back}"
    work.wait_more(20)
    gap_ms = work.longest_gap_ms(since_ns)
    is_refused = any(text in came_back for text in attack.refused_with) and "NOT " not in came_back
    shown = came_back if "NOT " in came_back else came_back[:SHOWN_MAX]
    return Row(
        attack=attack,
        verdict="FAILED" if not is_refused or gap_ms >= GAP_MS_MAX else "open" if attack.is_open else "ok",
        came_back=shown,
        counted=", ".join(f"{key} +{by}" for key, by in list(moved.items())[:2]),
        gap_ms=gap_ms,
    )


def audited(fleet: Fleet, key: SetKey) -> dict[str, Any]:
    """The raw files of all replicas against the ledger, by the program that shares no code with us."""
    fleet.wait_redundant(key, deadline_s=UP_DEADLINE_S)
    fleet.down()
    done = subprocess.run(
        [sys.executable, "-I", audit.__file__, str(fleet.directory), "--json"],
        capture_output=True, text=True, check=False, timeout=AUDIT_S_MAX,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    # Not the sum of all troubles: the second set has no messages, and that nothing could be compared there is one.
    wrong = ("lost", "duplicated", "altered", "unequal", "damaged", "epochs")
    return {name: found[name] for name in ("acked", "audited_replicas", *wrong)} | {
        "wrong": sum(found[name] for name in wrong)
    }


@contextmanager
def scenes(directory: Path, *, takes_rocketmq: bool) -> Iterator[Scene]:
    """A fleet with its enemy; one that takes RocketMQ's peers has an honest one, too."""
    layout = Layout(sets={"broker-a": 3, "broker-b": 1})
    if takes_rocketmq:
        layout = Layout(sets={"broker-a": 3}, name_service=True, rocketmq=("127.0.0.1",), rocketmq_keys=True,
                        rocketmq_tls="enforcing")  # fmt: skip
    with ExitStack() as stack:
        fleet = stack.enter_context(Fleet.create(directory, layout))
        if takes_rocketmq:
            write_keys(directory)
        fleet.up(deadline_s=UP_DEADLINE_S)
        papers = directory / "enemy"
        papers.mkdir()
        key = SetKey(ClusterName(fleet.file.fleet.name), BrokerName("broker-a"))
        scene = Scene(fleet=fleet, key=key, forger=Forger(fleet, papers.resolve()), counters=Counters(fleet))
        if takes_rocketmq:
            first = scene.leader_sessions
            others = tuple(one.broker for one in fleet.file.controllers.values() if one.broker != first)
            scene = replace(scene, peer=RocketmqMaster(first, others, fleet.file.fleet.name))
        if scene.peer is not None:
            stack.callback(scene.peer.stop)
        yield scene


def run_all(directory: Path, attacks: Sequence[Attack], *, takes_rocketmq: bool) -> tuple[list[Row], dict[str, Any]]:
    """Each row as it comes, and what was acknowledged and found in the files afterwards."""
    rows = []
    with scenes(directory, takes_rocketmq=takes_rocketmq) as scene:
        with load(scene.fleet, in_flight=IN_FLIGHT) as work:
            for attack in attacks:
                rows.append(run_one(scene, work, attack))
                say(rows[-1].line)
            acked = work.acked()
        return rows, audited(scene.fleet, scene.key) | {"acked": acked}


def run(directory: Path, only: Sequence[str], page: Path | None) -> int:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    wanted = [
        (name, [attack for attack in group if not only or any(text in f"{attack.port} {attack.name}" for text in only)])
        for name, group in (
            ("certificates", (*doors.attacks(), *claims.attacks(), *web.attacks(), *terminals.attacks())),
            ("rocketmq", tuple(rocketmq.attacks())),
        )
    ]
    rows: list[Row] = []
    audits: dict[str, Any] = {}
    began = time.monotonic()
    with many_descriptors(DESCRIPTORS):
        for name, group in wanted:
            if group:
                found, audits[name] = run_all(directory / name, group, takes_rocketmq=name == "rocketmq")
                rows += found
    verdicts = Counter(row.verdict for row in rows)
    command = (
        " ".join(("python -m tests.attacks", *(f"--only '{text}'" for text in only)))
        if only
        else "make prove PARTS=attacks"
    )
    totals = {"command": command, "attacks": len(rows), "refused": verdicts["ok"], "open": verdicts["open"], "skipped": verdicts["SKIPPED"],
              "failed": verdicts["FAILED"], "longest_gap_ms": round(max((row.gap_ms for row in rows), default=0)),
              "seconds": round(time.monotonic() - began), "audits": audits}  # fmt: skip
    say(f"RESULT {json.dumps(totals)}")
    if page is not None:
        write_page(page, rows, totals, is_whole=not only)
    is_sound = all(audit["acked"] and not audit["wrong"] for audit in audits.values())
    return 0 if verdicts["ok"] and not verdicts["FAILED"] and is_sound else 1


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Every attack that we know of, on a fleet under load.")
    parser.add_argument("--directory", type=Path, default=DEFAULT_DIRECTORY)
    parser.add_argument("--page", type=Path, help="write the table into this file, too")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="only rows that hold this")
    options = parser.parse_args(arguments)
    return run(options.directory, options.only, options.page)


if __name__ == "__main__":
    sys.exit(main())
