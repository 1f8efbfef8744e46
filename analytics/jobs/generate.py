"""
``rollcall analytics generate FOLDER``: years of many synthetic fleets, with the truth beside them.

Exit codes: 0 written; 2 no such plan, a folder that holds something else, or no Spark.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rollcall_ha.analytics.generate import SUFFIXES, FolderInUse, generate, prepare
from rollcall_ha.analytics.session import NoSpark, spark_session
from rollcall_ha.analytics.synthetic.plan import Plan
from rollcall_ha.controller.contract.timing import Preset

_DEFAULT = Plan()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; returns the exit code."""
    options = _parser().parse_args(arguments)
    plan = plan_of(options)
    violations = plan.violations()
    if violations:
        print(f"rollcall analytics generate: {'; '.join(violations)}", file=sys.stderr)
        return 2
    try:
        prepare(options.folder, plan)
        spark = spark_session(app="rollcall generate", master=options.master)
    except (FolderInUse, NoSpark, OSError) as error:
        print(f"rollcall analytics generate: {error}", file=sys.stderr)
        return 2
    print(
        f"{plan.fleets:,} fleets of {plan.sets:,} sets, {plan.days:,} days, {plan.faults_per_day:.3g} faults per set "
        f"and day, seed {plan.seed} ...",
        file=sys.stderr,
    )
    began = time.monotonic()
    try:
        counts = generate(spark, plan, options.folder.absolute(), compression=options.compression)
    finally:
        spark.stop()
    counts["elapsed_ms"] = round((time.monotonic() - began) * 1000)
    if options.output == "json":
        print(msgspec.json.encode(counts).decode())
        return 0
    print(f"WROTE {counts['reigns']:,} elections in {counts['events']:,} events to {options.folder}")
    print(", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in counts.items() if name != "reigns"))
    return 0


def plan_of(options: argparse.Namespace) -> Plan:
    """The plan that the options ask for."""
    plan = Plan(
        seed=options.seed,
        fleets=options.fleets,
        sets=options.sets,
        replicas=options.replicas,
        days=options.days,
        preset=Preset(options.preset),
        faults_per_day=options.faults_per_day,
        flapping_factor=options.flapping_factor,
        controller_changes_per_day=options.controller_changes_per_day,
    )
    return plan if options.failovers is None else plan.for_failovers(options.failovers)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rollcall analytics generate", description=__doc__)
    parser.add_argument("folder", type=Path, help="a new folder for journals/, truth/ and plan.json")
    for name, kind, text in (
        ("seed", int, "the same seed and plan give the same bytes"),
        ("fleets", int, "control planes; the unit of parallel work"),
        ("sets", int, "broker sets per fleet"),
        ("replicas", int, "replicas per set"),
        ("days", int, "length of the history"),
        ("faults-per-day", float, "per set"),
        ("flapping-factor", float, "the first set of each fleet has so many times the faults"),
        ("controller-changes-per-day", float, "per fleet"),
    ):
        default = getattr(_DEFAULT, name.replace("-", "_"))
        parser.add_argument(f"--{name}", type=kind, default=default, help=f"{text} (default: {default:,})")
    parser.add_argument("--failovers", type=int, help="about so many in all; takes the place of --faults-per-day")
    parser.add_argument("--preset", choices=[preset.value for preset in Preset], default=_DEFAULT.preset.value)
    parser.add_argument("--compression", choices=list(SUFFIXES), default="zstd")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--master", default="local[*]", help="Spark master, e.g. spark://host:7077")
    return parser


if __name__ == "__main__":
    sys.exit(main())
