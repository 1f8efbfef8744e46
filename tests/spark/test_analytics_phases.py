"""Phases of reigns, read from journals that the real core wrote, are what ``history`` folds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")

from rollcall_ha.analytics.bronze import events as bronze
from rollcall_ha.analytics.bronze.lines import find_journals, pieces, read_lines
from rollcall_ha.analytics.lake.tables import in_ms
from rollcall_ha.analytics.silver import facts as silver
from rollcall_ha.analytics.silver.phases import SPANS, span_column
from rollcall_ha.analytics.silver.tables import SILVER_PHASES
from rollcall_ha.controller.core.history import history_of
from tests.support.analytics_cli import code_of
from tests.support.analytics_story import lines_of, story, write_journals

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_the_table_is_what_history_folds(spark: Any, tmp_path: Path) -> None:
    """Row by row and phase by phase; copies count once, also two on one line; what is no event is counted."""
    fleet = story()
    write_journals(lines_of(fleet.records), tmp_path)
    expected = {row.master_epoch: row for row in history_of(fleet.records)}

    judged = bronze.kept(bronze.once(bronze.judged(pieces(read_lines(spark, find_journals([tmp_path])))))).persist()
    reigns = silver.reigns(in_ms(judged.where("why is null")))
    rows = SILVER_PHASES.rows(spark, lambda _: reigns).collect()
    rejected = sorted(row["why"] for row in judged.where("why is not null").collect())
    events = judged.where("why is null").count()
    judged.unpersist()

    assert events == len(fleet.records)
    assert rejected == ["hole", "not an event record"]
    assert len(rows) == len(expected) == 3
    for row in rows:
        history = expected[row["master_epoch"]]
        spans = {span.phase: span.duration_us for span in history.phases}
        assert {phase: row[span_column(phase)] for phase in SPANS} == {phase: spans.get(phase) for phase in SPANS}
        assert (row["total_us"], row["unattributed_us"]) == (history.total_us, history.unattributed_us)
        assert (row["total_us_max"], row["waited_us"]) == (history.total_us_max, history.waited_us)
        assert (row["kind"], row["from_master"], row["to_master"]) == (
            history.kind,
            history.from_master,
            history.to_master,
        )
        assert (row["grade"], row["loss_bytes"], row["cut_bytes"]) == (
            history.grade,
            history.loss_bytes,
            history.cut_bytes,
        )


def test_nothing_to_read_is_an_error_with_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty folder is not an empty table."""
    assert code_of(["verify", str(tmp_path)]) == 2
    assert "no journals" in capsys.readouterr().err
    assert code_of(["verify", str(tmp_path / "none")]) == 2
    assert "does not exist" in capsys.readouterr().err
