"""
What the same clients, under the same faults, counted before our brokers and before RocketMQ's: two tables in Markdown.

Here: rows and columns. Not here: counting (``groups``, ``clients``), who runs both (``__main__``).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from tests.interop_java.story import EVERYTHING, KILL, LEADER, STOP, Strike

ROWS = (
    ("acknowledged", "acked", None),
    ("given to groups", "deliveries", None),
    ("acknowledged, and not in the master's log where its sender was told", "misplaced", "acked"),
    ("acknowledged, and neither given to a group nor buried; of these", "lost", None),
    ("dead letters that are missing", "unburied", None),
    ("given with another body", "changed", "deliveries"),
    ("given again, and no fault explains it", "unexplained", None),
    ("given again around a fault", "given_again", None),
    ("in the log twice, and taken twice", "sent_twice", None),
    ("given back once, and come twice", "given_back_twice", "refused"),
    ("sent with a number (our client's), and in the log twice", "numbered_doubled", None),
    ("first deliveries of a sharding key out of order", "out_of_order", "ordered"),
    ("offsets that the next master told lower, at once", "offsets_fell_at_once", "offsets_asked_at_once"),
    ("offsets that were lower when all were at work again", "offsets_fell", "offsets_asked"),
    ("delayed messages before their time", "delayed_early", "delayed"),
    ("delayed messages that were delivered twice", "delayed_doubled", "delayed"),
    ("delayed messages more than a second behind their time", "delayed_late", "delayed"),
    ("the latest of them, ms", "delayed_late_ms_max", None),
    ("masterEpoch fell", "epochs_fell", None),
    ("Go's consumer had to be started again", "go_started_again", None),
)
"""What is promised or told, its count, and of how many."""
KINDS = (KILL, STOP, LEADER, EVERYTHING)


def promises(sides: Mapping[str, Mapping[str, int]]) -> str:
    """``sides``: label -> what was counted."""
    lines = [f"| promise | {' | '.join(sides)} |", f"| --- |{' ---: |' * len(sides)}"]
    for words, name, whole in ROWS:
        cells = (
            f"{counts[name]:,}" + (f" of {counts[whole]:,}" if whole is not None else "") for counts in sides.values()
        )
        lines.append(f"| {words} | {' | '.join(cells)} |")
    return "\n".join(lines)


def pauses(sides: Mapping[str, Sequence[Strike]]) -> str:
    """The longest pause of each client after each fault, in seconds: median/greatest, one side after the other."""
    by_kind = {
        kind: {label: [one for one in found if one.kind == kind] for label, found in sides.items()} for kind in KINDS
    }
    heads = [f"{kind} ({max(map(len, found.values()))})" for kind, found in by_kind.items()]
    lines = [f"| longest pause, s: {', '.join(sides)} | {' | '.join(heads)} |", f"| --- |{' ---: |' * len(heads)}"]
    names = dict.fromkeys(name for found in sides.values() for strike in found for name in strike.gaps)
    for name in names:
        cells = (", ".join(_cell(name, found) for found in of_kind.values()) for of_kind in by_kind.values())
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(name: str, strikes: Sequence[Strike]) -> str:
    found = [gap for strike in strikes if not math.isnan(gap := strike.gaps.get(name, math.nan))]
    return f"{statistics.median(found):.1f}/{max(found):.1f}" if found else "-"
