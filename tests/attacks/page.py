"""
The rows of the attack table: as they are printed, and as a page of the documentation.

Here: how a result looks. Not here: verdicts (``__main__``).
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.attacks.scene import Attack

BEGIN, END = "<!-- attacks -->", "<!-- end of attacks -->"
CELL_CHARS_MAX = 110


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What came of one attack."""

    attack: Attack
    verdict: str
    """ok, open, SKIPPED or FAILED."""
    came_back: str
    counted: str = ""
    gap_ms: float = 0.0

    @property
    def line(self) -> str:
        """As it is printed."""
        counted = f"  [{self.counted}] gap {self.gap_ms:.0f} ms" if self.verdict != "SKIPPED" else ""
        return f"{self.verdict:<7} {self.attack.port:<9} {self.attack.name:<64} {self.came_back}{counted}"


def write_page(page: Path, rows: Sequence[Row], totals: Mapping[str, Any], *, is_whole: bool) -> None:
    """
    Put the table between the two marks of ``page``, with date, machine and command; the rest stays. Needs both marks.

    Not ``is_whole``: only these rows take the places of those of the same names, and a line says so.
    """
    before, _, rest = page.read_text().partition(BEGIN)
    known, _, after = rest.partition(END)
    table = [*HEAD, *map(_line, rows)]
    if not is_whole:
        newer = {_name(line): line for line in table[2:]}
        kept = [line for line in known.splitlines() if line]
        first = kept.index(HEAD[0])
        table = [*kept[:first], _summary(totals), "", *(newer.get(_name(line), line) for line in kept[first:])]
        table[1:1] = [""]
    else:
        table = [_summary(totals), "", *table]
    page.write_text("\n".join((f"{before}{BEGIN}", "", *table, "", f"{END}{after}")))


HEAD = ("| port | attack | what comes back | counted under | gap ms |", "| --- | --- | --- | --- | --- |")


def _name(line: str) -> tuple[str, ...]:
    """Port and attack of a line of the table."""
    return tuple(line.split(" | ")[:2])


def _line(row: Row) -> str:
    return f"| {row.attack.port} | {row.attack.name} | {_cell(row)} | {_counter(row)} | {row.gap_ms:.0f} |"


def _summary(totals: Mapping[str, Any]) -> str:
    # Of what is attacked: the attacks themselves and the page may be newer.
    of_product = ("git", "log", "-1", "--format=%h", "--", ".", ":!tests", ":!docs", ":!CHANGELOG.md")
    commit = subprocess.run(of_product, capture_output=True, text=True, check=False)
    audits = totals["audits"].values()
    has_priority = os.getpriority(os.PRIO_PROCESS, 0) < 0
    return (
        f"`{totals['command']}`, {datetime.now(UTC):%Y-%m-%d}, commit {commit.stdout.strip()}, {os.cpu_count()} cores "
        f"({platform.machine()}) with other work (load {os.getloadavg()[2]:.0f}"
        f"{', over which this had priority' if has_priority else ''}), {totals['seconds']} s: {totals['attacks']} attacks, "
        f"{totals['refused']} refused, {totals['open']} open, {totals['skipped']} skipped, {totals['failed']} failed; "
        f"{sum(audit['acked'] for audit in audits):,} messages acknowledged meanwhile, lost, doubled or altered: "
        f"{sum(audit['wrong'] for audit in audits)}; the longest time without an acknowledgement "
        f"{totals['longest_gap_ms']} ms."
    )


def _cell(row: Row) -> str:
    told = row.came_back if row.verdict == "ok" else f"{row.verdict}: {row.came_back}"
    return (
        (told if len(told) <= CELL_CHARS_MAX else told[: CELL_CHARS_MAX - 1] + "…").replace("|", "/").replace("\n", " ")
    )


def _counter(row: Row) -> str:
    names = re.findall(r"(rollcall_\w+(?:\{[^}]*\})?) \+", row.counted)
    return ", ".join(f"`{name}`" for name in names)
