"""The demo of the analytics compares what it says it compares, and a difference fails it."""

from __future__ import annotations

from typing import Any

from rollcall_ha.deploy.local.analytics_demo import PHASES, PLAIN, compare, faults_of


def told(epoch: int, **changes: Any) -> dict[str, Any]:
    """A row as ``rollcall history -o json`` prints it."""
    spans = [{"phase": phase, "durationUs": 1_000 + n} for n, phase in enumerate(PHASES)]
    row = {
        "masterEpoch": epoch, "phases": spans, "kind": "failover", "fromMaster": 1, "toMaster": 3, "totalUs": 9_000,
        "unattributedUs": -28, "grade": "proven", "lossBytes": 0, "cutBytes": None,
    }  # fmt: skip
    return {**row, **changes}


def found(epoch: int, **changes: str) -> dict[str, str]:
    """The same as a line of the report's table."""
    row = {f"{phase.replace('-', '_')}_us": str(1_000 + n) for n, phase in enumerate(PHASES)}
    row |= {
        "master_epoch": str(epoch), "kind": "failover", "from_master": "1", "to_master": "3", "total_us": "9000",
        "unattributed_us": "-28", "grade": "proven", "loss_bytes": "0", "cut_bytes": "",
    }  # fmt: skip
    return {**row, **changes}


def test_equal_rows_are_counted() -> None:
    """Every phase and every plain value of each failover; first elections have no RTO and are left out."""
    compared = compare([told(3), told(2), told(1, kind="first")], [found(2), found(3)])

    assert (compared.rows, compared.values) == (2, 2 * (len(PHASES) + len(PLAIN)))
    assert compared.differences == []


def test_a_microsecond_is_a_difference() -> None:
    """Also a phase that only one side knows."""
    spans = told(2)["phases"]
    unknown = [{**span, "durationUs": None} if span["phase"] == "serving" else span for span in spans]

    assert compare([told(2)], [found(2, committed_us="1003")]).differences == [
        "epoch 2 committed_us: history 1002, report 1003"
    ]
    assert compare([told(2, phases=unknown)], [found(2)]).differences == [
        "epoch 2 serving_us: history unknown, report 1006"
    ]


def test_a_row_of_one_side_is_a_difference() -> None:
    """A failover that Spark lost, and one that it made up."""
    assert compare([told(2)], []).differences == ["epoch 2 is only in history"]
    assert compare([], [found(4)]).differences == ["epoch 4 is only in the report"]


def test_a_fault_that_was_not_seen_fails() -> None:
    """Nothing compared, a kind of fault that is missing, fewer rows than failovers, or a hang that was called a false alarm."""
    good = {
        "rows_compared": 4, "values_compared": 64, "differences": 0, "failovers": 4, "kills": 2, "timeouts": 2,
        "false_positives": 1, "changes_of_leader": 1, "refuted": 0,
    }  # fmt: skip

    assert faults_of(good) == []
    assert faults_of({**good, "rows_compared": 0})[0] == "rows_compared is 0, not 1 or more"
    for name in ("false_positives", "changes_of_leader"):
        assert faults_of({**good, name: 0}) == [f"{name} is 0, not 1 or more"]
    for name in ("kills", "timeouts"):
        assert faults_of({**good, name: 1})[0] == f"{name} is 1, not 2 or more"
    assert faults_of({**good, "differences": 2}) == ["differences is 2"]
    assert faults_of({**good, "rows_compared": 3}) == ["3 of 4 failovers were compared"]
    assert len(faults_of({**good, "false_positives": 2})) == 1
