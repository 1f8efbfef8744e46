"""
Faults again and again, on one fleet for each kind: ``make prove PARTS=chaos``. The single tries are in ``tests/cluster``.

S24, S84.
"""

from __future__ import annotations

import random
import signal
import statistics
import time
from collections.abc import Iterator

import pytest

from rollcall_ha.controller.contract.ids import MasterEpoch
from rollcall_ha.deploy.local.faults import hanging
from rollcall_ha.deploy.local.fleet import Fleet, Layout
from rollcall_ha.deploy.local.processes import wait_until
from tests.support.fleet_story import (
    FLAT_OUT,
    DirectSends,
    counted,
    heal,
    judge,
    load,
    only_set,
    phases_ms,
    running,
    timing_of,
    wait_row,
)
from tests.support.fleet_trials import kill_leader, kill_master

pytestmark = pytest.mark.cluster

TRIES = 10
RTO_MS_MAX = 2_000
NEXT_AUTHORITY_MS_MAX = 1_000
GAP_MS_MAX = 500
STOPS = 3
STORM_FAULTS = 12
STORM_SEED = 20_261_121


@pytest.fixture
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Three controllers and three brokers on the normal preset."""
    with running(tmp_path_factory.mktemp("chaos") / "fleet") as found:
        yield found


def test_nine_of_ten_kills_of_the_master_are_survived_within_two_seconds(fleet: Fleet) -> None:
    """By REST alone; the tenth has an explanation in its history; nothing is ever lost."""
    trials, rows = [], []
    with load(fleet, pause_ms=FLAT_OUT) as work:
        for _ in range(TRIES):
            trial = kill_master(fleet)
            work.wait_more()
            row = wait_row(fleet, trial.epoch)
            counted(trial=trial, phases_ms=phases_ms(row), total_us=row.total_us, cause=row.cause, grade=row.grade)
            trials.append(trial)
            rows.append(row)
            heal(fleet)
    found = judge(fleet)
    times = sorted(trial.by_rest_ms for trial in trials)
    late = [row for trial, row in zip(trials, rows, strict=True) if trial.by_rest_ms >= RTO_MS_MAX]
    counted(
        tries=len(trials), min=times[0], median=statistics.median(times), max=times[-1], late=len(late), audit=found
    )
    assert len(late) <= TRIES // 10
    assert all(row.cause for row in late), "history does not say what was late"
    assert all(trial.is_next_epoch for trial in trials)
    assert all(row.grade == "proven" for row in rows)


def test_ten_kills_of_the_leading_controller_elect_nobody_and_are_not_felt(fleet: Fleet) -> None:
    """Next authority below a second in the median, elections 0, no gap of half a second."""
    with load(fleet, pause_ms=FLAT_OUT) as work:
        trials = [kill_leader(fleet, work) for _ in range(TRIES)]
    times = sorted(trial.authority_ms for trial in trials)
    gaps = [trial.gap_ms for trial in trials]
    counted(
        tries=len(trials),
        min=times[0],
        median=statistics.median(times),
        max=times[-1],
        gap_max=max(gaps),
        audit=judge(fleet),
    )
    assert statistics.median(times) < NEXT_AUTHORITY_MS_MAX
    assert sum(trial.elections for trial in trials) == 0
    assert max(gaps) < GAP_MS_MAX


def test_stopped_masters_acknowledge_nothing_when_they_wake(fleet: Fleet) -> None:
    """Three times in a row: each time another one serves within the preset's worst case."""
    key = only_set(fleet)
    bound_ms = sum(timing_of(fleet).worst_case_rto_ms().values()) + RTO_MS_MAX
    served_ms: list[int] = []
    acknowledged = refused_or_unknown = 0
    with load(fleet, pause_ms=FLAT_OUT) as work:
        for _ in range(STOPS):
            epoch = heal(fleet).view.master_epoch
            old = fleet.master(key)
            direct = DirectSends(fleet, old)
            began_ns = time.monotonic_ns()
            with hanging(fleet, [old]):
                direct.send(100)
                wait_for_reign_after(fleet, epoch)
                served_ms.append(round((time.monotonic_ns() - began_ns) / 1e6))
                work.wait_more()
            fates = direct.settle(limit_s=20)
            acknowledged += fates.acknowledged
            refused_or_unknown += fates.refused + fates.unknown
            work.wait_more()
    counted(served_ms=served_ms, acknowledged=acknowledged, refused_or_unknown=refused_or_unknown, audit=judge(fleet))
    assert acknowledged == 0
    assert refused_or_unknown == STOPS * 100
    assert max(served_ms) <= bound_ms


def wait_for_reign_after(fleet: Fleet, epoch: MasterEpoch) -> None:
    """Until a later reign has begun."""
    fleet.wait_set(
        only_set(fleet),
        lambda status: status.view.master_epoch > epoch and status.view.has_entered,
        what="another master to serve",
        deadline_s=40,
    )


def test_a_storm_of_kills_and_stops_of_brokers_and_controllers_loses_nothing(fleet: Fleet) -> None:
    """S84: faults drawn by a seed, at most one broker and one controller away at a time; then the audit."""
    draw = random.Random(STORM_SEED)
    told: list[str] = []
    epochs = [heal(fleet).view.master_epoch]
    with load(fleet, pause_ms=FLAT_OUT) as work:
        for _ in range(STORM_FAULTS):
            broker, controller = draw.choice(fleet.brokers), draw.choice(fleet.controllers)
            names = draw.choice([(broker,), (controller,), (broker, controller)])
            kind = draw.choice([signal.SIGKILL, signal.SIGSTOP])
            told.append(f"{kind.name} {' '.join(names)}")
            for name in names:
                fleet.processes.signal(name, kind)
            work.wait_more(500, deadline_s=60)
            epochs.append(heal(fleet).view.master_epoch)
        work.wait_more()
    found = judge(fleet)
    counted(faults=told, epochs=epochs, audit=found)
    assert epochs == sorted(epochs)
    assert epochs[-1] > epochs[0], "no fault hit a master: nothing was tested"


def test_everything_dies_again_and_again_with_small_segments(tmp_path_factory: pytest.TempPathFactory) -> None:
    """S24, S49: kill -9 of all six at once, three times; epoch files and logs are byte-equal, nothing is missing."""
    layout = Layout(segment_bytes=256 * 1024)
    with running(tmp_path_factory.mktemp("deaths") / "fleet", layout) as fleet:
        epochs = [heal(fleet).view.master_epoch]
        everybody = (*fleet.controllers, *fleet.brokers)
        with load(fleet, pause_ms=FLAT_OUT) as work:
            for _ in range(3):
                work.wait_more(500)
                for name in everybody:
                    fleet.processes.signal(name, signal.SIGKILL)
                wait_until(lambda: not any(map(fleet.pid, everybody)), deadline_s=10, what="everything to be gone")
                epochs.append(heal(fleet).view.master_epoch)
            work.wait_more()
        counted(epochs=epochs, audit=judge(fleet))
        assert epochs == sorted(set(epochs)), "an epoch was issued twice, or fell"
