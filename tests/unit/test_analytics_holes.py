"""Missing elections of a set, asked by DuckDB of rows by hand."""

from __future__ import annotations

import pytest

pytest.importorskip("jinja2", reason="jinja2 is not installed: the analytics extra is optional")

from rollcall_ha.analytics.gold.tables import GOLD_HOLES
from rollcall_ha.analytics.silver.tables import SILVER_BROKER_SETS, SILVER_REIGNS
from tests.support.report_rows import instant, row
from tests.unit.test_report_questions import asked


def test_ten_missing_hours_hid_three_failovers_and_nothing_was_said() -> None:
    """Epoch 6 follows 5, and 2 is the last known; epochs may leave numbers out, and the first may follow any."""
    epochs = {1: ((1, 0), (2, 1), (6, 5)), 2: ((9, 7), (12, 9))}
    reigns = [
        row(SILVER_REIGNS, set_id=of, master_epoch=epoch, previous_epoch=before, elected_at=instant(epoch * 1_000))
        for of, held in epochs.items()
        for epoch, before in held
    ]
    sets = [row(SILVER_BROKER_SETS, set_id=of, fleet="f", cluster="c", broker_set=f"s{of}") for of in epochs]
    (hole,) = asked(GOLD_HOLES, (SILVER_REIGNS, reigns), (SILVER_BROKER_SETS, sets))

    assert (hole["broker_set"], hole["master_epoch"], hole["known_epoch"], hole["previous_epoch"]) == ("s1", 6, 2, 5)
    assert (hole["from_at"], hole["to_at"]) == (instant(2_000), instant(6_000))
