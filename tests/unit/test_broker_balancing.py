"""The answers to load balancers: 200 for what a replica can do now, 503 with the reason for everything else."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rollcall_ha.broker.core.balancing import PATHS, ReplicaFacts, judge
from rollcall_ha.controller.contract.ids import BrokerId, MasterEpoch
from rollcall_ha.controller.contract.session import BrokerState

MASTER = ReplicaFacts(
    state=BrokerState.MASTER,
    reason="serves",
    master_epoch=MasterEpoch(7),
    takes_sends=True,
    is_min_in_sync=True,
    stopped="",
    has_full_disk=False,
    lag_bytes=None,
    heard_age_us=None,
    heard_age_ms_max=3_000,
    has_session=True,
    broker_id=BrokerId(1),
    sync_state_set=(BrokerId(1), BrokerId(2)),
)
SLAVE = replace(
    MASTER,
    state=BrokerState.SLAVE,
    reason="follows broker 1",
    takes_sends=False,
    is_min_in_sync=False,
    lag_bytes=100,
    heard_age_us=20_000,
    broker_id=BrokerId(2),
)
LEARNER = replace(SLAVE, state=BrokerState.LEARNER, reason="follows broker 1", broker_id=BrokerId(4))


def statuses(facts: ReplicaFacts | None) -> tuple[int, ...]:
    """Of /master, /replica and /in-sync."""
    return tuple(int(judge(path, "", facts).status) for path in PATHS)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (MASTER, (200, 503, 200)),
        (SLAVE, (503, 200, 200)),
        (LEARNER, (503, 503, 503)),
        (None, (503, 503, 503)),
        (replace(MASTER, state=BrokerState.FENCED, takes_sends=False), (503, 503, 503)),
        (replace(MASTER, state=BrokerState.PROMISED, takes_sends=False), (503, 503, 503)),
        # Its role is master until another one is elected.
        (replace(MASTER, takes_sends=False), (503, 503, 503)),
        (replace(MASTER, stopped="not-acknowledged: nothing is heard of broker 2"), (503, 503, 503)),
        (replace(MASTER, is_min_in_sync=False), (503, 503, 503)),
        # Controllers that are all away change no role: promise 3.
        (replace(MASTER, has_session=False), (200, 503, 200)),
        (replace(SLAVE, has_session=False), (503, 200, 503)),
        (replace(SLAVE, sync_state_set=(BrokerId(1),)), (503, 200, 503)),
        (replace(SLAVE, broker_id=None), (503, 200, 503)),
        (replace(SLAVE, has_full_disk=True), (503, 503, 503)),
    ],
)
def test_what_a_replica_can_do_now_is_200(facts: ReplicaFacts | None, expected: tuple[int, int, int]) -> None:
    assert statuses(facts) == expected


@pytest.mark.parametrize(
    "facts",
    [
        replace(SLAVE, lag_bytes=None),
        replace(SLAVE, heard_age_us=None),
        # The link of a master that was stopped by a signal stays open, and its last known end is of the time before.
        replace(SLAVE, lag_bytes=0, heard_age_us=3_000_001),
    ],
)
def test_a_slave_that_does_not_know_its_lag_is_not_fresh(facts: ReplicaFacts) -> None:
    """Patroni calls such a replica one; a reader would get what was true an hour ago."""
    assert judge("/replica", "", facts).status == 503
    assert judge("/replica", "lag=999999999", facts).status == 503


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("lag=100", 200),
        ("lag=99", 503),
        ("lag=0", 503),
        ("lag=", 400),
        ("lag=-1", 400),
        ("lag=1MB", 400),
        ("lag=\u0661", 400),
        ("lag=" + "9" * 30, 400),
        ("max=5", 400),
    ],
)
def test_the_lag_that_is_asked_for_is_judged_in_bytes(query: str, expected: int) -> None:
    answer = judge("/replica", query, SLAVE)
    assert answer.status == expected
    assert answer.text.isascii()
    assert "lag" in answer.text or "behind" in answer.text
