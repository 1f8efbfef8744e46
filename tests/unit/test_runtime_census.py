"""All sets of a fleet in a few numbers, and which of them get series of their own."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from rollcall_ha.controller.contract.ids import BrokerName, ClusterName, SetKey
from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.controller.contract.values import ElectionPause
from rollcall_ha.controller.contract.views import SetStatus
from rollcall_ha.controller.runtime.metrics import METRIC_SETS_MAX, Census, ControllerMetrics, Reading
from rollcall_ha.controller.runtime.views import is_blocked, is_served
from tests.support.fake_controllers import set_status


def named(name: str, status: SetStatus) -> SetStatus:
    return replace(status, view=replace(status.view, set_key=SetKey(ClusterName("demo"), BrokerName(name))))


def without_master() -> SetStatus:
    return set_status(master=None, condition=Condition.NO_ELIGIBLE_REPLICA, problems=("NO_ELIGIBLE_REPLICA",))


def reading(census: Census) -> Reading:
    return Reading(role="leader", gauges=(), events_dropped=0, graces=0, census=census)


def shown(census: Census) -> CollectorRegistry:
    """As a scrape sees it."""
    registry = CollectorRegistry()
    ControllerMetrics(registry).read_from(lambda: reading(census))
    return registry


def test_the_last_of_many_sets_lost_its_master_and_no_series_said_so() -> None:
    """Gauges were of the first 500 names, and conditions were counted in them alone."""
    census = Census()
    for number in range(METRIC_SETS_MAX):
        census.add(named(f"broker-{number:04}", set_status()))
    census.add(named("zulu", without_master()))
    registry = shown(census)
    serving = {"cluster": "demo", "set": "zulu"}
    assert registry.get_sample_value("rollcall_set_master_serving", serving) == 0
    assert registry.get_sample_value("rollcall_sets_by_condition", {"condition": "serving"}) == METRIC_SETS_MAX
    assert registry.get_sample_value("rollcall_sets_by_problem", {"problem": "NO_ELIGIBLE_REPLICA"}) == 1
    assert len(census.worst(METRIC_SETS_MAX)) == METRIC_SETS_MAX


def test_a_cleaned_set_would_have_been_an_alarm_for_ever() -> None:
    """It serves nobody, and never will."""
    census = Census()
    census.add(set_status(master=None, in_sync=(), condition=Condition.CLEANED))
    assert census.worst(10) == []
    assert census.exposed == 0
    assert census.conditions == {Condition.CLEANED.value: 1}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (set_status(), True),
        (set_status(condition=Condition.WRITES_STOPPED, problems=("WRITES_STOPPED",)), True),
        (set_status(problems=("MASTER_NOT_SERVING",)), False),
        (set_status(condition=Condition.ENTERING, problems=("ENTERING",)), False),
        (without_master(), False),
    ],
)
def test_a_set_is_served_by_a_master_that_has_entered_and_has_not_stopped_itself(
    status: SetStatus, *, expected: bool
) -> None:
    assert is_served(status) is expected


def test_one_member_in_sync_of_three_is_exposure() -> None:
    census = Census()
    census.add(set_status(in_sync=(1,)))
    census.add(named("whole", set_status()))
    assert census.exposed == 1
    assert shown(census).get_sample_value("rollcall_sets_exposed") == 1


@pytest.mark.parametrize(
    ("paused_by", "is_of_set", "expected"),
    [("controller:c1", True, True), ("admin:alice", True, False), ("controller:c1", False, False)],
)
def test_a_pause_by_a_person_is_no_set_that_waits_for_one(paused_by: str, *, is_of_set: bool, expected: bool) -> None:
    status = set_status()
    pause = ElectionPause(
        set_key=status.view.set_key if is_of_set else None,
        expires_at_ms=1,
        reason="",
        paused_at_ms=0,
        paused_by=paused_by,
    )
    assert is_blocked(replace(status, pause=pause)) is expected
