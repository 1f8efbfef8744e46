"""Synthetic fleets: the real core decided all of it, it repeats, and the truth beside it is the truth."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: the analytics extra is optional")

import pyarrow as pa
from pyarrow import parquet

from rollcall_ha.analytics.refusals import JobRefused
from rollcall_ha.controller.contract.events import EventRecord, MasterElected, ReplicaSilent
from rollcall_ha.controller.contract.ids import SetKey
from rollcall_ha.controller.contract.values import EventRef, Phase, SilenceCause
from rollcall_ha.controller.core.history import history_of
from rollcall_ha.controller.core.invariants import check_state, check_transition
from rollcall_ha.controller.core.views import condition_of
from tests.support.analytics_plans import ROUGH
from tests.synthetic.__main__ import main
from tests.synthetic.files import prepare, write_fleet
from tests.synthetic.fleet import SyntheticFleet
from tests.synthetic.plan import Fault, Mix, Plan
from tests.synthetic.truth import ReignTruth

pytestmark = pytest.mark.slow


@cache
def lived(plan: Plan) -> tuple[SyntheticFleet, tuple[EventRecord, ...]]:
    """One fleet to its end, with every invariant of the controllers checked after each entry."""
    fleet = SyntheticFleet(plan, 0)
    records: list[EventRecord] = []
    before = fleet.state
    for entry in fleet.entries():
        assert check_transition(before, fleet.state, entry) == ()
        before = fleet.state
        records += entry
    assert check_state(fleet.state) == ()
    return fleet, tuple(records)


def by_set(records: tuple[EventRecord, ...]) -> dict[SetKey, list[EventRecord]]:
    found = defaultdict(list)
    for record in records:
        if record.set_key is not None:
            found[record.set_key].append(record)
    return found


def test_an_election_was_told_of_a_detection_that_had_come_to_nothing_hours_before() -> None:
    """
    What an election says of its detection is what the silence said that triggered it; seed 3 had one that was not.

    Of elections of the leader that found the silence: to a later one it is a time of another clock.
    """
    _, records = lived(msgspec.structs.replace(ROUGH, seed=3))
    silences = {record.ref: record for record in records if isinstance(record.event, ReplicaSilent)}
    detected = [record for record in records if isinstance(record.event, MasterElected) and record.event.detection]

    found = [record for record in detected if trigger_of(record) in silences and trigger_of(record).term == record.term]
    assert len(found) > 500
    for record in found:
        cause, at_us = detection_of(record)
        silent_cause, silent_at_us = detection_of(silences[trigger_of(record)])
        assert cause == silent_cause
        # Both are ages at the proposal, beside stamps of entries, which are a few steps later, in whole milliseconds.
        assert abs(at_us - silent_at_us) < 100_000


def test_a_silence_was_found_long_before_the_timeout() -> None:
    """
    The look that was due after an earlier silence found a replica that had been heard since, and had just fallen silent
    anew: 4 of 576,505 silences of a million failovers, and one of seed 3.
    """
    plan = msgspec.structs.replace(ROUGH, seed=3)
    _, records = lived(plan)
    events = [record.event for record in records]
    ages_us = [
        event.detection.last_heartbeat_age_us - event.detection.detected_age_us
        for event in events
        if isinstance(event, ReplicaSilent)
        and event.detection is not None
        and event.cause is SilenceCause.TIMEOUT
        and event.detection.last_heartbeat_age_us is not None
    ]

    assert len(ages_us) > 500
    assert min(ages_us) >= plan.timing.heartbeat_timeout_ms * 1_000


def trigger_of(record: EventRecord) -> EventRef:
    assert isinstance(record.event, MasterElected)
    assert record.event.triggered_by is not None
    return record.event.triggered_by


def detection_of(record: EventRecord) -> tuple[SilenceCause, int]:
    """Its cause, and when it was, in microseconds UTC."""
    assert isinstance(record.event, MasterElected | ReplicaSilent)
    detection = record.event.detection
    assert detection is not None
    return detection.cause, record.stamped_at_ms * 1_000 - detection.detected_age_us


def test_the_core_keeps_every_invariant_and_comes_to_rest() -> None:
    """Every entry is sound (C1-C7, C10, R24), and at the end every set is served by a master with all its replicas."""
    fleet, records = lived(ROUGH)

    assert len(records) > 2_000
    for state in fleet.state.sets.values():
        assert condition_of(state)[0].value == "serving"
        assert len(state.sync_state_set) == ROUGH.replicas


def test_every_kind_of_trouble_is_there() -> None:
    """A truth test without a false alarm, a lost byte or an election without a winner would prove nothing."""
    fleet, records = lived(ROUGH)
    reigns = fleet.truth.reigns
    kinds = {type(record.event).__name__ for record in records}

    assert {fault.value for fault in Fault} - {"member-crash", "member-pause", "switchover"} <= {
        r.fault for r in reigns
    }
    assert {"first", "failover", "requested", "unclean"} <= {r.kind for r in reigns}
    assert {"ElectionFailed", "SessionOpened", "ReplicaAlive", "GoodbyeSaid"} <= kinds
    assert any(r.is_false for r in reigns)
    assert any(r.is_controller_caused for r in reigns)
    assert any(r.regret_bytes for r in reigns)
    assert any(r.lost_bytes for r in reigns)
    assert any(r.total_us is None for r in reigns)
    assert {"proven", "unknown", "refuted"} <= {r.grade for r in reigns}
    assert fleet.truth.exposures
    assert {gap.is_detected for gap in fleet.truth.gaps} == {True, False}


def test_a_living_master_stopped_its_writes_because_a_new_leader_did_not_hear_it() -> None:
    """
    A session that does not come about stops no write: the old master serves until the election that deposes it.

    It used to stop at the change of the leader: 29 million ms of outages in 42,000 failovers that nobody had.
    """
    fleet, _ = lived(ROUGH)
    elected = sorted(
        (row.broker_set, row.elected_at_ms * 1_000) for row in fleet.truth.reigns if row.is_controller_caused
    )
    begun = sorted((row.broker_set, row.from_us) for row in fleet.truth.outages if row.fault == "controller")

    assert elected
    assert [key for key, _ in begun] == [key for key, _ in elected]
    # Entries of one moment are stamped a few milliseconds apart.
    assert max(abs(at - of) for (_, at), (_, of) in zip(begun, elected, strict=True)) < 20_000


def test_a_plan_gives_one_history() -> None:
    """The same plan and number give the same bytes; another seed or number gives another history."""
    plan = Plan(sets=2, days=1, faults_per_day=20)

    def text(fleet: SyntheticFleet) -> bytes:
        return b"\n".join(msgspec.json.encode(record) for entry in fleet.entries() for record in entry)

    assert text(SyntheticFleet(plan, 0)) == text(SyntheticFleet(plan, 0))
    assert text(SyntheticFleet(plan, 0)) != text(SyntheticFleet(plan, 1))
    assert text(SyntheticFleet(plan, 0)) != text(SyntheticFleet(msgspec.structs.replace(plan, seed=2), 0))


def test_truth_is_what_history_folds() -> None:
    """Phase by phase, total, grade and cut of every reign: known from the world, and read from events."""
    fleet, records = lived(ROUGH)
    truths = {(row.broker_set, row.master_epoch): row for row in fleet.truth.reigns}
    seen = 0

    for key, own in by_set(records).items():
        for row in history_of(own):
            truth = truths[key.name, row.master_epoch]
            spans = {span.phase: span.duration_us for span in row.phases}
            assert {phase: spans.get(phase) for phase in PHASES} == {
                phase: getattr(truth, PHASES[phase]) for phase in PHASES
            }
            assert (row.total_us, row.grade, row.cut_bytes) == (truth.total_us, truth.grade, truth.cut_bytes)
            assert (row.kind, row.from_master, row.to_master) == (truth.kind, truth.from_master, truth.to_master)
            seen += 1

    assert seen == len(truths)


PHASES = {
    phase: f"{phase.value.replace('-', '_')}_us"
    for phase in (
        Phase.DETECTED,
        Phase.PROPOSED,
        Phase.COMMITTED,
        Phase.NOTIFIED,
        Phase.PROMISED,
        Phase.ROLE_APPLIED,
        Phase.SERVING,
        Phase.FIRST_ACK,
    )
}


def test_a_proven_failover_lost_nothing() -> None:
    """The grade is the product's word, the lost bytes are the world's: promise 1, checked from outside."""
    fleet, _ = lived(ROUGH)
    proven = [row for row in fleet.truth.reigns if row.grade == "proven"]

    assert proven
    assert [row for row in proven if row.lost_bytes] == []


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Plan(fleets=0), "fleets is 0"),
        (Plan(replicas=9), "replicas is 9"),
        (Plan(async_share=1.5), "async_share is 1.5"),
        (Plan(mix=Mix(crash=-1)), "negative weight"),
    ],
)
def test_an_impossible_plan_says_why(plan: Plan, words: str) -> None:
    """Both values are named."""
    assert words in "; ".join(plan.violations())


def test_about_as_many_failovers_as_were_asked_for() -> None:
    """``--failovers`` is an aim, within a fifth."""
    plan = Plan(seed=3, fleets=1, sets=4, days=10).for_failovers(300)
    fleet = SyntheticFleet(plan, 0)
    for _ in fleet.entries():
        pass
    moved: list[ReignTruth] = [row for row in fleet.truth.reigns if row.kind != "first"]

    assert 240 <= len(moved) <= 360


def test_a_folder_holds_one_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same plan may go on where it was killed; another one, or anything else that lies there, is refused."""
    prepare(tmp_path / "new", Plan())
    prepare(tmp_path / "new", Plan())

    with pytest.raises(JobRefused, match="another plan"):
        prepare(tmp_path / "new", Plan(seed=2))
    with pytest.raises(JobRefused, match="not empty"):
        prepare(tmp_path, Plan())
    for arguments in ([str(tmp_path), "--fleets", "1"], [str(tmp_path / "x"), "--fleets", "0"]):
        with pytest.raises(SystemExit, match="2"):
            main(arguments)
    assert "fleets is 0, must be at least 1" in capsys.readouterr().err


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_files_are_whole_and_the_same_each_time(tmp_path: Path, compression: str) -> None:
    """What a task writes twice is the same; no temporary file stays; the lines are the records."""
    plan = Plan(sets=1, days=1, faults_per_day=10)
    for name in ("a", "b"):
        counts = write_fleet(plan, 0, tmp_path / name, compression=compression)
    files = [path.relative_to(tmp_path / "a") for path in sorted((tmp_path / "a").rglob("*.*"))]
    (journal,) = [path for path in files if ".jsonl" in path.name]
    with pa.input_stream(str(tmp_path / "a" / journal), compression="detect") as stream:
        lines = stream.read().splitlines()

    assert [(tmp_path / "a" / path).read_bytes() for path in files] == [
        (tmp_path / "b" / path).read_bytes() for path in files
    ]
    assert not [path for path in files if path.suffix == ".tmp"]
    assert len(lines) == counts["events"]
    assert lines == [msgspec.json.encode(record) for record in lived(plan)[1]]
    assert counts["reigns"] == parquet.read_table(tmp_path / "a" / "truth" / "reigns").num_rows


def test_a_stopped_run_goes_on_with_the_fleets_that_are_not_whole(tmp_path: Path) -> None:
    """A fleet whose counts are there is not lived again; one that was stopped before them is, to the same end."""
    plan = Plan(sets=1, days=1, faults_per_day=10)
    counts = write_fleet(plan, 0, tmp_path)
    (journal,) = (tmp_path / "journals").rglob("*.jsonl*")
    whole = journal.read_bytes()

    journal.write_bytes(b"untouched")
    assert write_fleet(plan, 0, tmp_path) == counts
    assert journal.read_bytes() == b"untouched"

    (counted,) = (tmp_path / "counts").iterdir()
    counted.unlink()
    assert write_fleet(plan, 0, tmp_path) == counts
    assert journal.read_bytes() == whole
