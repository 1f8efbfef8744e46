"""
Years of many synthetic fleets, with the truth beside them.

    python -m tests.synthetic FOLDER [--seed 1] [--fleets 4] [--sets 20] [--days 7] [--failovers 20000] [--compression zstd]

The same seed and plan give the same bytes. Exit code 2: no such plan, or a folder that holds something else.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rollcall_ha.analytics.lake.session import spark_session
from rollcall_ha.analytics.refusals import JobRefused
from tests.synthetic.files import SUFFIXES, generate, prepare
from tests.synthetic.plan import Plan

_SIZES = ("seed", "fleets", "sets", "replicas", "days")


def main(arguments: list[str] | None = None) -> int:
    """Write the plan's history, or one with about so many failovers; returns the exit code."""
    parser = argparse.ArgumentParser(prog="tests.synthetic", description=__doc__)
    parser.add_argument("folder", type=Path)
    for name in _SIZES:
        parser.add_argument(f"--{name}", type=int, default=getattr(Plan(), name))
    parser.add_argument("--failovers", type=int)
    parser.add_argument("--compression", choices=SUFFIXES, default="zstd")
    options = parser.parse_args(arguments)
    plan = Plan(**{name: getattr(options, name) for name in _SIZES})
    if violations := plan.violations():
        parser.error("; ".join(violations))
    if options.failovers is not None:
        plan = plan.for_failovers(options.failovers)
    try:
        prepare(options.folder, plan)
    except JobRefused as error:
        parser.error(str(error))
    with spark_session(app="synthetic fleets") as spark:
        counts = generate(spark, plan, options.folder.absolute(), compression=options.compression)
    print(f"WROTE {', '.join(f'{value:,} {name}' for name, value in counts.items())} to {options.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
