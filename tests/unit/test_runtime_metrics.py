"""What a controller counts of the events that it applies."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from rollcall_ha.controller.contract.values import Milestone, Phase
from rollcall_ha.controller.runtime.metrics import ControllerMetrics
from tests.support.core_builders import Fleet


def _serve(fleet: Fleet, outage_us: int) -> None:
    """The elected master enters, and its leader sees it serve ``outage_us`` after the beginning of the outage."""
    fleet.enter()
    assert fleet.set.master is not None
    fleet.milestones(
        Milestone(
            master_epoch=fleet.set.master_epoch,
            phase=Phase.SERVING,
            elapsed_us=1_000,
            observed_us=outage_us,
            broker_id=fleet.set.master,
            incarnation=fleet.set.master_incarnation,
        )
    )


def test_the_outages_of_planned_and_of_unplanned_ends_were_in_one_histogram() -> None:
    """A handover of 20 ms and a failover of 2 s: their quantile said nothing of either."""
    fleet = Fleet().serving()
    fleet.goodbye(1)
    fleet.elect()
    _serve(fleet, 20_000)
    fleet.silence(2)
    fleet.elect()
    _serve(fleet, 2_000_000)
    registry = CollectorRegistry()

    ControllerMetrics(registry).observe(fleet.records, fleet.state)

    for kind, seconds in (("handover", 0.02), ("failover", 2.0)):
        labels = {"phase": "serving", "kind": kind}
        assert registry.get_sample_value("rollcall_rto_phase_seconds_count", labels) == 1
        assert registry.get_sample_value("rollcall_rto_phase_seconds_sum", labels) == seconds
