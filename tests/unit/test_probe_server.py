"""Whom the stopwatch of a set follows, and what is said of sets that have none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec
import pytest
from prometheus_client.registry import CollectorRegistry

from rollcall_ha.broker.client import routes
from rollcall_ha.broker.client.sets import FoundSet
from rollcall_ha.client.client import Client
from rollcall_ha.client.errors import ClientError
from rollcall_ha.controller.contract.views import SetPage, SetStatus
from rollcall_ha.node.remoting.secured import ExpectedPeer
from rollcall_ha.probe import server
from rollcall_ha.probe.gaps import Limits
from rollcall_ha.probe.sending import REMEDY
from rollcall_ha.probe.server import Plan, Probe, routes_of
from tests.support.fake_controllers import set_page, set_status
from tests.support.ha_replica import until
from tests.support.java_set import JavaSet

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


def probe_of(*names: JavaSet) -> Probe:
    addresses = tuple(one.address for one in names)
    plan = Plan(limits=Limits(interval_ms=10, threshold_ms=30), ack_timeout_ms=1_000, brokers=addresses)
    return Probe(plan, None, CollectorRegistry())


async def run_until(probe: Probe, condition: Callable[[], bool]) -> None:
    stop = asyncio.Event()
    running = asyncio.create_task(probe.run(stop))
    try:
        await until(condition)
    finally:
        stop.set()
        await running


def test_a_new_master_of_rocketmqs_is_asked_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name servers tell nobody: found with the next of their turns, each failover was felt for up to 2 s more."""
    monkeypatch.setattr(routes, "NAMES_INTERVAL_MS", 3_600_000)

    async def story() -> None:
        first, second = JavaSet(refuses_once=False), JavaSet(refuses_once=False)
        for each in (first, second):
            await each.server.start("127.0.0.1", 0)
        probe = probe_of(first)

        def has_moved() -> bool:
            if probe.watches.get("j") and probe.watches["j"].acks > 3:
                first.master = second.address
            return second.seen[b"?"] > 3

        await run_until(probe, has_moved)
        assert probe.watches["j"].failures > 0
        for each in (first, second):
            await each.server.stop()

    asyncio.run(story())


def test_a_set_that_makes_no_topic_is_told_with_the_remedy() -> None:
    """ "No set was found; rollcall status says why", it said, and status said that all was well."""

    async def story() -> None:
        java = JavaSet(refuses_once=False)
        java.has_topics = False
        await java.server.start("127.0.0.1", 0)
        probe = probe_of(java)
        await run_until(probe, lambda: bool(probe.trouble))
        assert probe.trouble == f"{java.address}: No topic route info in name server for the topic: it; {REMEDY}"
        assert not probe.watches
        # Found while there was one, and then deleted.
        java.has_topics = True
        probe = probe_of(java)

        def is_refused() -> bool:
            watch = probe.watches.get("j")
            java.has_topics = watch is None or not watch.acks
            return not java.has_topics and watch is not None and watch.failures > 5

        await run_until(probe, is_refused)
        told = f"{java.address}: topic[it] not exist, apply first please!; {REMEDY}"
        assert (probe.gaps[-1].reason, probe.gaps[-1].is_over) == (told, False)
        await java.server.stop()

    asyncio.run(story())


def of_rocketmq(status: SetStatus) -> SetStatus:
    replicas = tuple(msgspec.structs.replace(one, kind="rocketmq") for one in status.replicas)
    return msgspec.structs.replace(status, replicas=replicas)


@pytest.mark.parametrize(
    ("sets", "seeds", "told"),
    [
        ([set_status(master=2)], ("10.0.0.12:911",), []),
        ([of_rocketmq(set_status())], (), ["demo/broker-a is RocketMQ's; --name-servers finds it"]),
        (None, (), ["nobody answers"]),
    ],
)
def test_a_set_of_the_controllers_that_is_not_watched_is_told(
    sets: Sequence[SetStatus] | None, seeds: tuple[str, ...], told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a set that is left out in silence, no gap reads as health."""

    def page(*_: object, **__: object) -> SetPage:
        if sets is None:
            raise ClientError("nobody answers")
        return set_page(*sets)

    monkeypatch.setattr(Client, "sets", page)
    plan = msgspec.structs.replace(PLAN, brokers=(), controllers=("127.0.0.1:1",))
    assert Probe(plan, None, CollectorRegistry())._seeds() == (seeds, told)
