"""Pieces of the comparison with RocketMQ put together tell the same as one run of everything would."""

from __future__ import annotations

from tests.perf.machine import Machine
from tests.perf.results import Run
from tests.perf.versus.__main__ import merge
from tests.perf.versus.rows import Report

MACHINE = Machine(
    cores=2, memory_gib=24, system="Linux", python="3.11", commit="c0ffee", date="2026-11-21T00:00Z", sync_ms=1
)


def report(*runs: Run) -> Report:
    return Report(machine=MACHINE, version="5.3.3", command="piece", seconds=1.5, measured=[], runs=list(runs))


def done(section: str, side: str, **values: float) -> Run:
    return Run(section=section, side=side, number=1, seconds=1, load_before=0, cpu_of_others=0, values=values)


def test_runs_of_one_section_are_numbered_on_and_counted_together() -> None:
    merged = merge(
        [
            report(done("leader", "rollcall", next_ms=300), done("leader", "rocketmq", next_ms=9_000)),
            report(done("leader", "rollcall", next_ms=500), done("put", "rollcall", rate_64=20_001)),
        ]
    )

    rows = {(row.section, row.row.key): row for row in merged.measured}
    assert [(run.section, run.side, run.number) for run in merged.runs] == [
        ("leader", "rollcall", 1), ("leader", "rocketmq", 1), ("leader", "rollcall", 2), ("put", "rollcall", 1)
    ]  # fmt: skip
    assert rows["leader", "next_ms"].values == {"rocketmq": (9_000,), "rollcall": (300, 500)}
    assert rows["leader", "next_ms"].ratio == 9_000 / 400
    assert (rows["put", "rate_64"].verdict, rows["put", "rate_64"].ratio) == ("reached", None)
    assert (merged.seconds, merged.command) == (3.0, "piece; piece")
