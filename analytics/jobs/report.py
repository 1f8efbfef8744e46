"""
The lake as one HTML page with pictures, and the tables behind them.

Here: their order. Not here: reading the lake (``report.gather``), the page (``report.page``), the files
(``report.files``).
"""

from __future__ import annotations

import time
from pathlib import Path

from rollcall_ha.analytics.lake.lake import Lake
from rollcall_ha.analytics.report.files import write_report
from rollcall_ha.analytics.report.gather import gather
from rollcall_ha.analytics.report.summary import print_summary, summary_of


def run(lake: Path, *, out: Path | None) -> None:
    """Write the report of ``lake`` and print its summary. Raises ``JobRefused``, ``OSError``."""
    found = gather(Lake(lake), made_at_ms=round(time.time() * 1000))
    page = write_report(found, out or lake / "report")
    print_summary(summary_of(found))
    print(f"WROTE {page}")
