"""
Whether the record of all fleets keeps the rules: the verdict, counts by rule, and the first violations.

Here: the printing. Not here: the checks (``checks.verify``, ``controller.core.verification``).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from rollcall_ha.analytics.bronze.inputs import Source
from rollcall_ha.analytics.checks.verify import verify
from rollcall_ha.analytics.lake.session import spark_session
from rollcall_ha.controller.core.verification import Rule
from rollcall_ha.node.terminal import print_json

SHOWN_MAX = 100
"""Violations that are printed; all are counted."""


class RecordVerdict(StrEnum):
    """The first word that is printed."""

    SOUND = "SOUND"
    BROKEN = "BROKEN"
    EMPTY = "EMPTY"
    """There was no event: nothing has been found out."""


def verdict_of(events: int, violations: int) -> RecordVerdict:
    """The verdict on so many events with so many violations."""
    if violations:
        return RecordVerdict.BROKEN
    return RecordVerdict.SOUND if events else RecordVerdict.EMPTY


def run(paths: Sequence[Path], *, lake: Path, master: str, is_json: bool) -> int:
    """Print the verdict; 0 if the record is sound, else 1. Raises ``JobRefused``."""
    source = Source.of(paths, lake)
    with spark_session(app="rollcall analytics verify", master=master) as spark:
        events = source.events(spark).persist()
        checked = verify(events)
        violations = checked.violations.persist()
        counts = {row["rule"]: row["count"] for row in violations.groupBy("rule").count().collect()}
        shown = [row.asDict() for row in violations.orderBy("fleet", "index", "ordinal").limit(SHOWN_MAX).collect()]
        total = events.count()
        facts = {
            "verdict": verdict_of(total, len(shown)),
            "events": total,
            "fleets": events.select("fleet").distinct().count(),
            "begun_inside": checked.begun_inside.count(),
            "violations": {rule: counts.get(rule, 0) for rule in Rule.ALL},
        }
    if is_json:
        print_json({**facts, "shown": shown}, is_line=True)
    else:
        _print(facts, shown)
    return 0 if facts["verdict"] is RecordVerdict.SOUND else 1


def _print(facts: dict[str, Any], shown: Sequence[dict[str, Any]]) -> None:
    print(f"{facts['verdict']}  {facts['events']:,} events of {facts['fleets']:,} fleets")
    for rule, count in facts["violations"].items():
        print(f"  {rule:<26} {'holds' if not count else f'{count:,} violations'}")
    if facts["begun_inside"]:
        print(f"  {facts['begun_inside']:,} fleets begin inside their history: the chain before was not walked")
    for row in shown:
        where = "/".join(str(row[name]) for name in ("cluster", "broker_set") if row[name] is not None)
        print(f"{where} {row['index']}.{row['ordinal']} {row['rule']}: {row['text']}")
