"""
`make attacks`: every attack that we know of, on a fleet under load; each is refused, counted, and not felt.

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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rollcall_ha.controller.contract.ids import BrokerName, ClusterName, SetKey
from rollcall_ha.deploy.local import audit
from rollcall_ha.deploy.local.fleet import Fleet, Layout
from rollcall_ha.deploy.local.processes import wait_until
from tests.attacks import claims, doors, web
from tests.attacks.enemy import Counters, Forger
from tests.attacks.scene import Attack, NotHere, Scene
from tests.support.descriptors import many_descriptors
from tests.support.fleet_story import Load, load

DEFAULT_DIRECTORY = Path(".attacks")
GAP_MS_MAX = 500.0
UP_DEADLINE_S = 60.0
COUNTED_WITHIN_S = 8.0
DESCRIPTORS = 6_000
SHOWN_MAX = 92


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def counted(scene: Scene, attack: Attack, before: Counter[str]) -> dict[str, int]:
    """Counters that moved; waits for the one that must."""
    found: dict[str, int] = {}

    def has_moved() -> bool:
        after = scene.counters.read()
        moved = {key: after[key] - before[key] for key in after if after[key] > before[key]}
        found.clear()
        found.update({key: by for key, by in moved.items() if attack.counted in key and 'reason="peer"' not in key})
        return bool(found)

    if attack.counted:
        try:
            wait_until(has_moved, deadline_s=COUNTED_WITHIN_S, what=f"a counter with {attack.counted}")
        except Exception as error:  # noqa: BLE001 (told in the row)
            return {f"NOT COUNTED: {error}": 0}
    return found


def run_one(scene: Scene, work: Load, attack: Attack) -> tuple[bool, str]:
    """Whether it was refused, counted and not felt; and the row."""
    before = scene.counters.read()
    since_ns = time.monotonic_ns()
    try:
        came_back = attack.run(scene)
    except NotHere as error:
        return True, f"skip   {attack.port:<9} {attack.name:<62} {error}"
    except Exception as error:  # noqa: BLE001 (an attack that could not be made is a failure of the table)
        came_back = f"NOT MADE: {type(error).__name__}: {error}"
    moved = counted(scene, attack, before)
    work.wait_more(20)
    gap_ms = work.longest_gap_ms(since_ns)
    is_refused = any(text in came_back for text in attack.refused_with) and "NOT " not in came_back
    is_good = is_refused and gap_ms < GAP_MS_MAX and not any("NOT COUNTED" in key for key in moved)
    shown = ", ".join(f"{key} +{by}" for key, by in list(moved.items())[:2])
    row = f"{'ok    ' if is_good else 'FAILED'} {attack.port:<9} {attack.name:<62} {came_back[:SHOWN_MAX]}  [{shown}] gap {gap_ms:.0f} ms"
    return is_good, row


def audited(fleet: Fleet) -> dict[str, Any]:
    """The raw files of all replicas against the ledger, by the program that shares no code with us."""
    for key in fleet.set_keys():
        fleet.wait_redundant(key, deadline_s=UP_DEADLINE_S)
    fleet.down()
    done = subprocess.run(
        [sys.executable, "-I", audit.__file__, str(fleet.directory), "--json"],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    # Not the sum of all troubles: the second set has no messages, and that nothing could be compared there is one.
    wrong = ("lost", "duplicated", "altered", "unequal", "damaged", "epochs")
    return {name: found[name] for name in ("acked", "audited_replicas", *wrong)} | {
        "wrong": sum(found[name] for name in wrong)
    }


def run(directory: Path, only: Sequence[str]) -> int:
    """Exit code."""
    shutil.rmtree(directory, ignore_errors=True)
    wanted = [
        attack
        for attack in (*doors.attacks(), *claims.attacks(), *web.attacks())
        if not only or any(text in f"{attack.port} {attack.name}" for text in only)
    ]
    failed = skipped = 0
    layout = Layout(sets={"broker-a": 3, "broker-b": 1})
    with many_descriptors(DESCRIPTORS), Fleet.create(directory, layout) as fleet:
        fleet.up(deadline_s=UP_DEADLINE_S)
        papers = directory / "enemy"
        papers.mkdir()
        key = SetKey(ClusterName(fleet.file.fleet.name), BrokerName("broker-a"))
        scene = Scene(fleet=fleet, key=key, forger=Forger(fleet, papers.resolve()), counters=Counters(fleet))
        with load(fleet) as work:
            for attack in wanted:
                is_good, row = run_one(scene, work, attack)
                say(row)
                failed += not is_good
                skipped += row.startswith("skip")
            acked = work.acked()
        found = audited(fleet)
    say(
        f"RESULT {json.dumps({'attacks': len(wanted), 'failed': failed, 'skipped': skipped, 'acked': acked, 'audit': found})}"
    )
    return 0 if wanted and not failed and acked and not found["wrong"] else 1


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Every attack that we know of, on a fleet under load.")
    parser.add_argument("--directory", type=Path, default=DEFAULT_DIRECTORY)
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="only rows that hold this")
    options = parser.parse_args(arguments)
    return run(options.directory, options.only)


if __name__ == "__main__":
    sys.exit(main())
