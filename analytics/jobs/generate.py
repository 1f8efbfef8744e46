"""Years of many synthetic fleets, with the truth beside them: the plan is judged, written, and counted."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from rollcall_ha.analytics.lake.session import spark_session
from rollcall_ha.analytics.refusals import JobRefused
from rollcall_ha.analytics.synthetic.files import generate, prepare
from rollcall_ha.analytics.synthetic.plan import Plan
from rollcall_ha.node.terminal import print_json


def run(folder: Path, plan: Plan, *, failovers: int | None, compression: str, master: str, is_json: bool) -> None:
    """Write the plan's history, or one with about so many failovers. Raises ``JobRefused``, ``OSError``."""
    if violations := plan.violations():
        raise JobRefused("; ".join(violations))
    if failovers is not None:
        plan = plan.for_failovers(failovers)
    prepare(folder, plan)
    with spark_session(app="rollcall analytics generate", master=master) as spark:
        print(
            f"{plan.fleets:,} fleets of {plan.sets:,} sets, {plan.days:,} days, {plan.faults_per_day:.3g} faults per "
            f"set and day, seed {plan.seed} ...",
            file=sys.stderr,
        )
        began = time.monotonic()
        counts = generate(spark, plan, folder.absolute(), compression=compression)
    counts["elapsed_ms"] = round((time.monotonic() - began) * 1000)
    if is_json:
        print_json(counts, is_line=True)
        return
    print(f"WROTE {counts['reigns']:,} elections in {counts['events']:,} events to {folder}")
    print(", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in counts.items() if name != "reigns"))
