"""Batches of Python's producer at a living fleet with certificates, over the deaths of its masters."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from rollcall_ha.broker.client.consumer import Consumer, Start
from rollcall_ha.broker.client.packing import PackLimits
from rollcall_ha.broker.client.producer import Producer, SendFailedError, SendResult
from rollcall_ha.deploy.local.fleet import Fleet
from tests.cluster.test_fleet_consumers import credentials
from tests.support.fleet_story import counted, heal
from tests.support.fleet_trials import kill_master
from tests.support.ha_replica import until

pytestmark = pytest.mark.cluster

TOPIC = "batches"
KILLS = 2
BETWEEN_KILLS = 5_000
"""Messages acknowledged before each kill, and after the last one."""


def test_under_batches_a_killed_master_takes_no_acknowledged_message_and_doubles_none(fleet: Fleet) -> None:
    """R18: what was under way is sent again as the same batches; the log of the last master has each once."""
    heal(fleet)
    seeds = [section.listen for section in fleet.file.brokers.values()]
    proof = credentials(fleet)
    acked: dict[bytes, SendResult] = {}
    unknown: list[bytes] = []
    numbers = itertools.count()
    places: dict[tuple[int, int], bytes] = {}

    def note(bodies: list[bytes], outcomes: list[SendResult | SendFailedError]) -> None:
        for body, outcome in zip(bodies, outcomes, strict=True):
            if isinstance(outcome, SendResult):
                acked[body] = outcome
            else:
                unknown.append(body)

    async def many(producer: Producer, stop: asyncio.Event) -> None:
        while not stop.is_set():
            bodies = [b"%d" % next(numbers) for _ in range(300)]
            note(bodies, await producer.send_many(TOPIC, bodies))

    async def callers(producer: Producer, stop: asyncio.Event) -> None:
        while not stop.is_set():
            body = b"%d" % next(numbers)
            try:
                note([body], [await producer.send(TOPIC, body, queue_id=3)])
            except SendFailedError:
                unknown.append(body)

    async def story() -> int:
        stop = asyncio.Event()
        async with Producer(seeds, credentials=proof, pack=PackLimits(messages_max=200)) as producer:
            work = [asyncio.create_task(many(producer, stop)) for _ in range(4)]
            work += [asyncio.create_task(callers(producer, stop)) for _ in range(16)]
            try:
                for kill in range(KILLS + 1):
                    wanted = len(acked) + BETWEEN_KILLS
                    await until(lambda wanted=wanted: len(acked) >= wanted)  # type: ignore[misc]
                    if kill < KILLS:
                        await asyncio.to_thread(kill_master, fleet)
                        # Whole again before the next one dies: it would else be the last but one.
                        await asyncio.to_thread(heal, fleet)
            finally:
                stop.set()
                await asyncio.gather(*work)
            links = producer.counters.links
        async with Consumer(seeds, group="reads", topics={TOPIC: "*"}, start=Start.FIRST, credentials=proof) as reader:
            while len(places) < len(acked):
                for message in await asyncio.wait_for(reader.poll(1_000, 500), 20):
                    places[message.queue.queue_id, message.queue_offset] = message.body
                reader.done()
        return links

    links = asyncio.run(asyncio.wait_for(story(), 120))
    assert links > KILLS
    assert len(set(places.values())) == len(places), "no message has two places"
    assert set(places.values()) <= acked.keys() | set(unknown)
    told = {body: (each.queue_id, each.queue_offset) for body, each in acked.items() if each.queue_offset is not None}
    assert {body: place for body, place in told.items() if places[place] != body} == {}
    counted(
        acked=len(acked),
        unknown=len(unknown),
        retried=sum(each.attempts > 1 for each in acked.values()),
        duplicates=len(acked) - len(told),
    )
