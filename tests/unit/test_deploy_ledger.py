"""The ledger and what it tells about an interruption."""

from __future__ import annotations

from pathlib import Path

from rollcall_ha.deploy.local import audit, ledger
from rollcall_ha.deploy.local.ledger import Interruption, Line, failover, interruption

MS = 1_000_000


def line(number: int, acked_at_ns: int = 0, acked_by: str = "a") -> Line:
    return Line(
        key=f"K{number}",
        set="broker-a",
        topic="T",
        queue_id=0,
        queue_offset=number,
        physical_offset=100 * number,
        body_sha256="00",
        acked_at_ns=acked_at_ns,
        acked_by=acked_by,
    )


def test_audit_reads_what_producers_write(tmp_path: Path) -> None:
    """Two programs, one format: the audit has its own reader."""
    writer = ledger.LedgerWriter(tmp_path)
    writer.append([line(1), line(2)])
    writer.append([line(3)])
    writer.close()

    promises = list(audit.read_ledger(tmp_path / "ledger.jsonl"))

    assert [(promise.key, promise.offset, promise.set_name) for promise in promises] == [
        ("K1", 100, "broker-a"),
        ("K2", 200, "broker-a"),
        ("K3", 300, "broker-a"),
    ]
    assert ledger.read(tmp_path) == [line(1), line(2), line(3)]


def test_interruption_is_the_longest_gap_that_ended_after_the_fault() -> None:
    """A longer gap before the fault does not count; acks under way when it struck do not end it."""
    stamps = [0, 500 * MS, 501 * MS, 510 * MS, 590 * MS, 591 * MS]

    assert interruption(stamps, fault_at_ns=505 * MS) == Interruption(gap_ms=80.0, total_ms=85.0)


def test_no_acknowledgement_after_the_fault_is_no_interruption_but_an_outage() -> None:
    """None instead of a number that would look good."""
    assert interruption([0, 10], fault_at_ns=20) is None
    assert interruption([30], fault_at_ns=20) is None


def test_a_longer_pause_after_the_failover_was_taken_for_it() -> None:
    """What counts is who acknowledged: a busy machine made a pause of 270 ms 3.5 s after a failover of 90 ms."""
    lines = [
        line(1, 500 * MS),
        line(2, 506 * MS),
        line(3, 590 * MS, "b"),
        line(4, 591 * MS, "b"),
        line(5, 900 * MS, "b"),
    ]

    assert failover(lines, "a", fault_at_ns=505 * MS) == Interruption(gap_ms=84.0, total_ms=85.0)
    assert failover(lines[:2], "a", fault_at_ns=505 * MS) is None
    assert failover(lines[2:], "a", fault_at_ns=505 * MS) is None
