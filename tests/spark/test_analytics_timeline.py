"""The first Spark table: read from journals that the real core wrote, and equal to what ``history`` folds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")

from analytics import bronze
from analytics.jobs import timeline
from analytics.lines import find_journals, pieces, read_lines
from analytics.silver import SPANS, span_column
from controller.contract.commands import DetectionStamps, Milestone, Phase, SilenceCause
from controller.contract.ids import BrokerId, Incarnation, LogOffset
from controller.core.history import history_of
from tests.support.core_builders import Fleet, positions

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def reached(epoch: int, phase: Phase, elapsed: int, *, by: int | None, observed: int | None = None) -> Milestone:
    return Milestone(
        master_epoch=epoch,  # type: ignore[arg-type]  # plain numbers read best in a table
        phase=phase,
        elapsed_us=elapsed,
        broker_id=None if by is None else BrokerId(by),
        incarnation=None if by is None else Incarnation(f"i{by}.1"),
        observed_us=observed,
    )


def story() -> Fleet:
    """A first election, a kill with all stamps, and a silence with a missing and a backward stamp."""
    fleet = Fleet().serving()
    ends = {number: positions(1_000, confirm=900) for number in (1, 2, 3)}
    fleet.silence(1, SilenceCause.DEAD_AT_ONCE)
    kill = DetectionStamps(
        cause=SilenceCause.DEAD_AT_ONCE,
        last_heartbeat_age_us=400_000,
        session_closed_age_us=9_000,
        link_closed_age_us=8_500,
        probe_refused_age_us=7_000,
        detected_age_us=2_000,
    )
    fleet.elect(evidence=fleet.evidence(ends, detection=kill))
    fleet.enter(1_000, acked=1_000)
    winner = int(fleet.set.master or 0)
    fleet.milestones(reached(2, Phase.COMMITTED, 1_500, by=None), reached(2, Phase.NOTIFIED, 1_900, by=None))
    fleet.milestones(
        reached(2, Phase.PROMISED, 700, by=winner),
        reached(2, Phase.PROMISED, 300, by=5 - winner),
        reached(2, Phase.ROLE_APPLIED, 4_000, by=winner),
        reached(2, Phase.SERVING, 4_100, by=winner),
        reached(2, Phase.FIRST_ACK, 30_000, by=winner, observed=41_000),
    )
    fleet.milestones(
        msgspec.structs.replace(
            reached(2, Phase.TRUNCATED, 1, by=1),
            cut_from=LogOffset(1_000),
            cut_to=LogOffset(1_200),
            released=LogOffset(900),
        )
    )
    fleet.silence(winner)
    hang = DetectionStamps(cause=SilenceCause.TIMEOUT, last_heartbeat_age_us=3_050_000, detected_age_us=1_000)
    fleet.elect(evidence=fleet.evidence(ends, detection=hang))
    other = int(fleet.set.master or 0)
    fleet.milestones(
        reached(3, Phase.COMMITTED, 2_000, by=None),
        reached(3, Phase.NOTIFIED, 1_000, by=None),
        reached(3, Phase.FIRST_ACK, 9_000, by=other, observed=3_070_000),
    )
    return fleet


def write_journals(fleet: Fleet, directory: Path) -> None:
    """Three controllers journal the same history: one has a torn line, one two records on a line, one a hole."""
    lines = [msgspec.json.encode(record).decode() for record in fleet.records]
    hole = '{"gap":{"after":null,"toIndex":3,"chain":"","reason":"installed a snapshot"}}\n'
    for name, extra in (("c1", hole), ("c2", lines[0] + lines[1] + "\n"), ("c3", lines[2][:40] + "\n")):
        folder = directory / "data" / name / "events"
        folder.mkdir(parents=True)
        (folder / "000001.jsonl").write_text("\n".join(lines) + "\n" + extra)


def test_the_table_is_what_history_folds(spark: Any, tmp_path: Path) -> None:
    """Row by row and phase by phase; copies count once, also two on one line; what is no event is counted."""
    fleet = story()
    write_journals(fleet, tmp_path)
    expected = {row.master_epoch: row for row in history_of(fleet.records)}

    judged = bronze.once(bronze.judged(pieces(read_lines(spark, find_journals([tmp_path]))))).persist()
    rows = timeline.timeline(judged.where("why is null")).collect()
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
    assert timeline.main([str(tmp_path)]) == 2
    assert "no journals" in capsys.readouterr().err
    assert timeline.main([str(tmp_path / "none")]) == 2
    assert "does not exist" in capsys.readouterr().err
