"""Whom the stopwatch of a set follows."""

from __future__ import annotations

import asyncio

import pytest

from rollcall_ha.broker.client.sets import FoundSet
from rollcall_ha.node.remoting.secured import ExpectedPeer
from rollcall_ha.probe import server
from rollcall_ha.probe.gaps import Limits
from rollcall_ha.probe.server import Plan, routes_of

PLAN = Plan(limits=Limits(interval_ms=100, threshold_ms=300), ack_timeout_ms=300, brokers=("a:1", "b:1"))


@pytest.mark.parametrize(
    ("told", "seeds"),
    [
        pytest.param(True, ("a:1",), id="ours: a broker of another set would lead to that set's master"),
        pytest.param(False, ("a:1", "b:1"), id="RocketMQ's: its name servers"),
        pytest.param(None, None, id="nobody answers"),
    ],
)
def test_a_set_is_followed_by_those_who_know_it(
    told: bool | None, seeds: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def is_ours(found: FoundSet, expected: ExpectedPeer | None = None) -> bool | None:
        assert (found.name, expected) == ("broker-a", None)
        return told

    monkeypatch.setattr(server, "is_ours", is_ours)
    routes = asyncio.run(routes_of(FoundSet("broker-a", ("a:1",)), PLAN))
    assert (None if routes is None else routes._seeds) == seeds
