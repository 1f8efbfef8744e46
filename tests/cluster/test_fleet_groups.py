"""Topics and groups by the command line at a living fleet with certificates: over the death of a master, without a leader."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from rollcall_ha.broker.client.consumer import Consumer, Start
from rollcall_ha.deploy.local.fleet import Fleet
from rollcall_ha.deploy.local.processes import wait_until
from rollcall_ha.node.credentials import client_name, credentials_of, of_ports
from tests.support.fleet_story import heal, only_set, plain, rollcall, shell
from tests.support.fleet_trials import kill_master

pytestmark = pytest.mark.cluster

TOPIC, GROUP = "invoices", "billing"
MESSAGES, READ = 40, 10


def told(fleet: Fleet, *arguments: str) -> dict[str, Any]:
    """What a command says, as a document."""
    done = rollcall(fleet, *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def lag(fleet: Fleet) -> int:
    (line,) = told(fleet, "groups", "show", GROUP, "--topic", TOPIC)["groups"]
    found: int = line["lag"]
    return found


def test_a_topic_is_made_a_group_lags_and_is_reset_by_the_command_line(fleet: Fleet) -> None:
    key = only_set(fleet)
    heal(fleet)
    create = ("topics", "create", TOPIC, "--queues", "4")
    assert rollcall(fleet, *create, "--dry-run").stdout.startswith("Would do it")
    assert rollcall(fleet, "topics", "show", TOPIC).returncode == 1
    done = rollcall(fleet, *create, "--set", key.name)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, f"OK  topic {TOPIC} is made"), done.stderr
    assert rollcall(fleet, *create).returncode == 1, "it is there"
    shell(fleet, "produce", TOPIC, given="\n".join(map(str, range(MESSAGES))))
    found = told(fleet, "topics", "show", TOPIC)
    assert len(found["queues"]) == 4
    assert sum(queue["maxOffset"] for queue in found["queues"]) == MESSAGES

    shell(fleet, "consume", TOPIC, "--group", GROUP, "--from", "first", "--count", str(READ))
    wait_until(lambda: lag(fleet) == MESSAGES - READ, deadline_s=10, what="the last commit")
    kill_master(fleet)
    assert lag(fleet) == MESSAGES - READ, "a new master knows it"
    sample = f'rollcall_broker_group_lag_messages{{group="{GROUP}",topic="{TOPIC}"}} {MESSAGES - READ}.0'
    health = fleet.health(fleet.master(key))
    wait_until(lambda: sample in plain(health, "/metrics")[1], deadline_s=10, what=sample)
    assert GROUP in rollcall(fleet, "groups", "list", "-o", "name").stdout.split()

    reset = ("groups", "reset", GROUP, TOPIC, "--to")
    assert rollcall(fleet, *reset, "last").returncode == 2, "a script says --yes"
    for start, left in (("first", MESSAGES), ("last", 0)):
        assert rollcall(fleet, *reset, start, "--yes").returncode == 0
        assert lag(fleet) == left
    heal(fleet)


def test_a_group_is_made_before_its_first_member_and_not_twice(fleet: Fleet) -> None:
    heal(fleet)
    create = ("groups", "create", "early", "--retries", "3", "--no-broadcast")
    assert rollcall(fleet, *create, "--dry-run").stdout.startswith("Would do it")
    assert rollcall(fleet, "groups", "show", "early").returncode == 1, "a dry run makes nothing"
    done = rollcall(fleet, *create)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "OK  group early is made"), done.stderr
    again = rollcall(fleet, *create)
    assert again.returncode == 1
    assert "it is there: retryMaxTimes 3" in again.stdout + again.stderr
    (settings,) = told(fleet, "groups", "show", "early")["settings"]
    assert (settings["retriesMax"], settings["mayBroadcast"], settings["mayConsume"]) == (3, False, True)
    assert rollcall(fleet, "groups", "delete", "early", "--yes").returncode == 0


def test_a_member_that_holds_queues_is_named_also_without_a_leader(fleet: Fleet) -> None:
    heal(fleet)
    shell(fleet, "produce", "held", given="\n".join(map(str, range(MESSAGES))))
    seeds = [section.listen for section in fleet.file.brokers.values()]
    proof = of_ports(fleet.file, credentials_of(fleet.file, client_name(fleet.file)))

    def look() -> dict[str, Any]:
        return told(fleet, "groups", "show", "holders", "--topic", "held")

    async def story() -> None:
        topics = {"held": "*"}
        async with Consumer(seeds, group="holders", topics=topics, start=Start.FIRST, credentials=proof) as one:
            assert await one.poll(1, 30_000)
            await asyncio.to_thread(
                wait_until,
                lambda: {queue["holder"] for queue in look()["queues"]} == {one.client_id},
                deadline_s=10,
                what="each queue to be held",
            )
            *others, _ = fleet.controllers
            for name in others:
                fleet.kill(name)
            (member,) = (await asyncio.to_thread(look))["members"]
            assert (member["clientId"], member["queues"]) == (one.client_id, 8)

    asyncio.run(story())
    heal(fleet)
