"""
``rollcall analytics verify [PATH...] [--lake FOLDER]``: does the record of all fleets keep the rules?

Walks every hash chain, repeats every election from its evidence, and looks for epochs with two masters or two starts,
and for epochs that fell.

Exit codes: 0 every rule holds; 1 some do not, and are shown, or there was no event; 2 nothing to read, or no Spark.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from enum import StrEnum

import msgspec

from rollcall_ha.analytics.core.verification import Rule
from rollcall_ha.analytics.inputs import add_inputs, check_inputs, read_events
from rollcall_ha.analytics.lake import NoLake
from rollcall_ha.analytics.lines import NoJournals
from rollcall_ha.analytics.session import NoSpark, spark_session
from rollcall_ha.analytics.verify import verify

SHOWN_MAX = 100
"""Violations that are printed; all are counted."""


class RecordVerdict(StrEnum):
    """The first word that is printed."""

    SOUND = "SOUND"
    BROKEN = "BROKEN"
    EMPTY = "EMPTY"
    """There was no event: nothing has been found out."""


def verdict_of(events: int, violations: int) -> RecordVerdict:
    """What a verification of so many events says."""
    if violations:
        return RecordVerdict.BROKEN
    return RecordVerdict.SOUND if events else RecordVerdict.EMPTY


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="rollcall analytics verify", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_inputs(parser)
    options = parser.parse_args(arguments)
    try:
        files = check_inputs(options)
        spark = spark_session(app="rollcall verify", master=options.master)
    except (NoJournals, NoLake, NoSpark) as error:
        print(f"rollcall analytics verify: {error}", file=sys.stderr)
        return 2
    try:
        events = read_events(spark, options, files).persist()
        checked = verify(events)
        violations = checked.violations.persist()
        counts = {row["rule"]: row["count"] for row in violations.groupBy("rule").count().collect()}
        shown = [row.asDict() for row in violations.orderBy("fleet", "index", "ordinal").limit(SHOWN_MAX).collect()]
        total = events.count()
        verdict = verdict_of(total, len(shown))
        facts = {
            "verdict": verdict,
            "events": total,
            "fleets": events.select("fleet").distinct().count(),
            "begun_inside": checked.begun_inside.count(),
            "violations": {rule: counts.get(rule, 0) for rule in Rule.ALL},
        }
    finally:
        spark.stop()
    if options.output == "json":
        print(msgspec.json.encode({**facts, "shown": shown}).decode())
    else:
        _print(facts, shown)
    return 0 if verdict is RecordVerdict.SOUND else 1


def _print(facts: dict[str, object], shown: Sequence[dict[str, object]]) -> None:
    print(f"{facts['verdict']}  {facts['events']:,} events of {facts['fleets']:,} fleets")
    violations = facts["violations"]
    assert isinstance(violations, dict)
    for rule, count in violations.items():
        print(f"  {rule:<26} {'holds' if not count else f'{count:,} violations'}")
    if facts["begun_inside"]:
        print(f"  {facts['begun_inside']:,} fleets begin inside their history: the chain before was not walked")
    for row in shown:
        where = "/".join(str(row[name]) for name in ("cluster", "broker_set") if row[name] is not None)
        print(f"{where} {row['index']}.{row['ordinal']} {row['rule']}: {row['text']}")


if __name__ == "__main__":
    sys.exit(main())
