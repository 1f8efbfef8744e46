"""Verification at scale: each planted fault is found where it was planted, in whichever range it lies; nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")

from rollcall_ha.analytics.bronze.inputs import events_of
from rollcall_ha.analytics.checks import verify as job
from rollcall_ha.analytics.checks.verify import verify
from rollcall_ha.controller.contract.events import EventRecord, MasterElected, MasterEntered
from rollcall_ha.controller.core.verification import Rule
from tests.synthetic.fleet import SyntheticFleet
from tests.synthetic.plan import Plan

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Line = dict[str, Any]


def lived(number: int) -> list[EventRecord]:
    fleet = SyntheticFleet(Plan(seed=11, fleets=2, sets=2, days=1, faults_per_day=20, async_share=0), number)
    return [record for entry in fleet.entries() for record in entry]


def write(path: Path, lines: list[Line]) -> None:
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


def plant(lines: list[Line], at: int, change: Callable[[Line], None]) -> tuple[int, int]:
    """Change one line; where it is."""
    change(lines[at])
    return lines[at]["index"], lines[at]["ordinal"]


def last_of(records: list[EventRecord], kind: type, *, skip: int = 0) -> int:
    return [at for at, record in enumerate(records) if isinstance(record.event, kind)][-1 - skip]


def test_planted_faults_are_found_and_only_those(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fleet with a fault of each kind beside one without: rule and place of each, over many small ranges."""
    monkeypatch.setattr(job, "EVENTS_PER_RANGE", 100)
    sound, records = lived(0), lived(1)
    write(tmp_path / "sound.jsonl", [msgspec.to_builtins(record) for record in sound[40:]])
    lines = [msgspec.to_builtins(record) for record in records]
    elections = [at for at, record in enumerate(records) if isinstance(record.event, MasterElected)]
    planted = {
        Rule.CHAIN: plant(lines, 30, lambda line: line.update(requestedBy="somebody else")),
        Rule.ELECTIONS: plant(
            lines, elections[3], lambda line: line["event"]["verdict"].update(policy="first@1", designated=9)
        ),
        Rule.EPOCHS: plant(lines, elections[-1], lambda line: line["event"].update(masterEpoch=2)),
        Rule.SET_EPOCHS: plant(lines, elections[-2], lambda line: line["event"].update(syncStateSetEpoch=0)),
    }
    # An entry of an epoch that was entered already, and an election in an epoch that had one.
    entered = last_of(records, MasterEntered)
    again = appended(lines, lines[entered], 1)
    again["event"]["startOffset"] += 7
    second = appended(lines, lines[elections[-4]], 2)
    second["event"]["masterIncarnation"] = "f" * 32
    gone = lines.pop(90)
    write(tmp_path / "broken.jsonl", lines)

    checked = verify(events_of(spark, [tmp_path / "sound.jsonl", tmp_path / "broken.jsonl"]).persist())
    found = checked.violations.collect()
    begun = checked.begun_inside.collect()

    places: dict[str, set[tuple[int, int]]] = {}
    for row in found:
        places.setdefault(row["rule"], set()).add((row["index"], row["ordinal"]))
    assert {row["fleet"] for row in found} == {records[-1].fleet_incarnation}
    assert [(row["fleet"], row["index"]) for row in begun] == [(sound[-1].fleet_incarnation, sound[40].index)]
    for rule, place in planted.items():
        assert place in places[rule], rule
    assert (records[91].index, records[91].ordinal) in places[Rule.CHAIN], gone["event"]["kind"]
    assert len(places[Rule.ONE_MASTER]) >= 1
    assert (records[entered].index, records[entered].ordinal) in places[Rule.ONE_START]


def appended(lines: list[Line], line: Line, further: int) -> Line:
    """A copy of ``line`` as an entry of its own at the end."""
    copy: Line = msgspec.json.decode(msgspec.json.encode(line))
    copy.update(index=lines[-1]["index"] + further, ordinal=0)
    lines.append(copy)
    return copy
