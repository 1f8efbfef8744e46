"""
``make prove PARTS=analytics-truth``: a million synthetic failovers through bronze, silver and gold, and beside them what really happened.

    python -m tests.perf.analytics_truth [--failovers 1000000] [--fleets 32] [--sets 200] [--days 30] [--folder DIRECTORY]

Writes journals and truth with the real decision core, builds a lake of them, compares every reign, walks every hash chain and
repeats every election, and asks what history looks like at its own settings. Without ``--folder`` everything is removed at
the end; a million failovers take about 12 GB of journals before compression, 2 GB after it. Exit code 1: the truth was not
recovered.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from rollcall_ha.analytics.bronze.tables import BRONZE_EVENTS
from rollcall_ha.analytics.checks.verify import verify
from rollcall_ha.analytics.checks.what_if import WHAT_IF
from rollcall_ha.analytics.lake.session import spark_session
from tests.support.analytics_truth import Comparison, build_lake, compare
from tests.synthetic.files import generate, prepare
from tests.synthetic.plan import Plan

T = TypeVar("T")


def main() -> int:
    """Run it; returns the exit code."""
    parser = argparse.ArgumentParser(prog="tests.perf.analytics_truth", description=__doc__)
    for name, default in (("failovers", 1_000_000), ("fleets", 32), ("sets", 200), ("days", 30), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--folder", type=Path, help="work here and leave the files; a history that is there goes on")
    parser.add_argument("--memory", default="3g", help="heap of the Java process")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="rollcall-truth-"))
    plan = Plan(seed=options.seed, fleets=options.fleets, sets=options.sets, days=options.days)
    spark = spark_session(app="truth", settings={"spark.driver.memory": options.memory})
    try:
        return _run(spark, plan.for_failovers(options.failovers), folder)
    finally:
        spark.stop()
        if options.folder is None:
            shutil.rmtree(folder)


def _run(spark: Any, plan: Plan, folder: Path) -> int:
    prepare(folder / "history", plan)
    counts = _timed("generate", lambda: generate(spark, plan, folder / "history"))
    print(", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in counts.items()))
    lake = _timed("bronze, silver, gold", lambda: build_lake(spark, folder / "history" / "journals", folder / "lake"))
    found: Comparison = _timed("compare", lambda: compare(spark, lake, folder / "history" / "truth"))
    print(found.table(), flush=True)
    events = lake.read(spark, BRONZE_EVENTS)
    violations = _timed("verify", lambda: _violations(events))
    print(f"{violations} violations of the rules of the record", flush=True)
    differing = _timed("what-if at the real settings", lambda: _differing(lake.read(spark, WHAT_IF), plan.preset))
    print(f"{differing} failovers differ from history at its own settings")
    wrong = found.wrong()
    wrong += [f"{violations} violations"] if violations else []
    wrong += [f"{differing} failovers are not history at its own settings"] if differing else []
    print("".join(f"FAILED {line}\n" for line in wrong), end="")
    result = {"reigns": found.reigns, "wrong": len(wrong), "violations": violations, "differing": differing}
    print(f"RESULT {json.dumps(result)}")
    return 1 if wrong else 0


def _violations(events: Any) -> int:
    return int(verify(events).violations.count())


def _differing(asked: Any, preset: str) -> int:
    row = asked.where(f"real_preset = '{preset}' and preset = '{preset}'").first()
    return int(row["failovers"] - row["same"] - row["unknown"])


def _timed(what: str, work: Callable[[], T]) -> T:
    began = time.monotonic()
    result = work()
    print(f"{what}: {time.monotonic() - began:,.0f} s", file=sys.stderr)
    return result


if __name__ == "__main__":
    sys.exit(main())
