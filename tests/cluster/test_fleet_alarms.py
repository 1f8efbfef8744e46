"""
Alarms and dashboard in a real Prometheus that scrapes a real fleet: each fault fires its own alarms, and no other.

The rules are those of ``deploy/prometheus``, with each ``for`` shortened.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rollcall_ha.deploy.local.fleet import Fleet, Layout
from rollcall_ha.deploy.local.processes import wait_until
from tests.support.fleet_story import counted, heal, load, only_set, running
from tests.support.prometheus import Prometheus, panels, scraping, why_not

pytestmark = [
    pytest.mark.prove,
    pytest.mark.cluster,
    pytest.mark.skipif(bool(why_not("prometheus")), reason=why_not("prometheus")),
]

FACTOR = 20
"""15 s become 2 s, a minute 3 s, five minutes 15 s."""
FIRE_DEADLINE_S = 60.0
GONE = "RollcallProcessGone"


@contextmanager
def watched(directory: Path, *, min_in_sync: int) -> Iterator[tuple[Fleet, Prometheus]]:
    """Three controllers and three brokers on the normal preset, all well, and who looks at them."""
    with (
        running(directory / "fleet", Layout(min_in_sync=min_in_sync)) as fleet,
        scraping(fleet, factor=FACTOR) as prometheus,
    ):
        heal(fleet)
        yield fleet, prometheus


def wait_firing(prometheus: Prometheus, expected: set[str]) -> float:
    """Seconds until exactly these fire, and none is on its way."""
    seen: list[set[str]] = []

    def fires() -> bool:
        seen[:] = [prometheus.firing(), prometheus.pending()]
        return seen == [expected, set()]

    try:
        return wait_until(fires, deadline_s=FIRE_DEADLINE_S, what=f"alarms {sorted(expected)} alone")
    except Exception as error:
        raise AssertionError(f"expected {sorted(expected)}, firing and pending: {seen}") from error


def is_without_data(prometheus: Prometheus) -> list[str]:
    """Panels whose queries have no number."""
    return [f"{title}: {query}" for title, query in panels() if not prometheus.values(query)]


def kill_a_slave(fleet: Fleet) -> str:
    """Of those that run; the master's name."""
    master = fleet.master(only_set(fleet))
    fleet.kill(next(name for name in fleet.brokers if name != master and fleet.pid(name) is not None))
    return master


def test_each_fault_fires_its_alarms_alone_and_every_panel_has_data(tmp_path: Path) -> None:
    """A master is killed, then a slave, then the last replica; a controller, and a second one; and all is well again."""
    with watched(tmp_path, min_in_sync=1) as (fleet, prometheus):
        took = {"well": wait_firing(prometheus, set())}
        with load(fleet) as work:
            # A failover is nobody's alarm; that a machine has lost its broker is.
            fleet.kill(fleet.master(only_set(fleet)))
            work.wait_more()
            took["a broker"] = wait_firing(prometheus, {GONE})
            wait_until(lambda: not is_without_data(prometheus), deadline_s=FIRE_DEADLINE_S, what="data in every panel")
            master = kill_a_slave(fleet)
            took["last replica"] = wait_firing(prometheus, {GONE, "RollcallSetExposed"})
        fleet.kill(master)
        took["no replica"] = wait_firing(prometheus, {GONE, "RollcallSetWithoutMaster"})
        heal(fleet)
        took["whole again"] = wait_firing(prometheus, set())

        leader = fleet.leader()
        others = [name for name in fleet.controllers if name != leader]
        fleet.kill(others[0])
        took["a controller"] = wait_firing(prometheus, {GONE, "RollcallControllersMissing"})
        fleet.kill(others[1])
        took["no quorum"] = wait_firing(prometheus, {GONE, "RollcallNoLeader"})
        heal(fleet)
        took["well again"] = wait_firing(prometheus, set())
    counted(panels=len(panels()), seconds={name: round(one, 1) for name, one in took.items()})


def test_a_set_below_min_in_sync_is_told_as_a_stop_of_writes(tmp_path: Path) -> None:
    """Both slaves are gone, and two copies were promised."""
    with watched(tmp_path, min_in_sync=2) as (fleet, prometheus):
        with load(fleet):
            kill_a_slave(fleet)
            kill_a_slave(fleet)
            stopped_s = wait_firing(prometheus, {GONE, "RollcallWritesStopped"})
        heal(fleet)
        well_s = wait_firing(prometheus, set())
    counted(stopped_s=round(stopped_s, 1), well_s=round(well_s, 1))
