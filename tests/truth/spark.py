"""
The same rows out of Spark.

Here: the fleet's journals through ``rollcall analytics``, and what differs from ``history``. Not here: whether either is
true (``recorded``).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

from rollcall_ha.deploy.local import analytics_demo
from tests.truth.faults import Stage

COPY_ATTEMPTS = 10


def differences(stage: Stage, history: Callable[[Stage], dict[str, Any]]) -> list[str]:
    """Each value of a failover that the two sides give differently; "nothing was compared" if there was none."""
    directory = stage.fleet.directory
    stage.heal()
    before = history(stage)
    for _ in range(COPY_ATTEMPTS):
        shutil.rmtree(directory / "journals", ignore_errors=True)
        for name in stage.fleet.controllers:
            shutil.copytree(stage.fleet.data(name) / "events", directory / "journals" / name / "events")
        after = history(stage)
        if after == before:
            break
        before = after
    analytics_demo.analyse("run", str(directory / "journals"), "--lake", str(directory / "lake"))
    analytics_demo.analyse("report", str(directory / "lake"), "--out", str(directory / "report"))
    compared = analytics_demo.compare(before["rows"], analytics_demo.rows_of(directory / "report", "failovers"))
    return compared.differences if compared.values else ["nothing was compared"]
