"""Python's producer and consumers, and the shell's, at a living fleet with certificates, over the death of its master."""

from __future__ import annotations

import asyncio
import subprocess
from collections import Counter

import pytest

from rollcall_ha.broker.client.consumer import Consumer, Start
from rollcall_ha.broker.client.producer import Producer
from rollcall_ha.deploy.local.fleet import Fleet
from rollcall_ha.node.credentials import client_name, credentials_of, of_ports
from rollcall_ha.node.tls import Credentials
from tests.support.fleet_reads import ConsumerLink
from tests.support.fleet_story import counted, heal, only_set
from tests.support.fleet_trials import kill_master
from tests.support.ha_replica import until

pytestmark = pytest.mark.cluster

TOPIC = "orders"
QUEUES = 8
MESSAGES = 600


def credentials(fleet: Fleet) -> Credentials | None:
    return of_ports(fleet.file, credentials_of(fleet.file, client_name(fleet.file)))


def test_a_group_of_python_consumers_follows_the_master_and_loses_nothing(fleet: Fleet) -> None:
    """Two members, a producer that goes on, the master killed in the middle; what came twice is counted."""
    key = only_set(fleet)
    heal(fleet)
    seeds = [section.listen for section in fleet.file.brokers.values()]
    proof = credentials(fleet)
    got: Counter[bytes] = Counter()
    at_kill: dict[int, int] = {}

    async def read(consumer: Consumer) -> None:
        while True:
            got.update(message.body for message in await consumer.poll(64, 200))
            consumer.done()

    async def story() -> None:
        async with (
            Consumer(seeds, group="py", topics={TOPIC: "*"}, start=Start.FIRST, credentials=proof) as one,
            Consumer(seeds, group="py", topics={TOPIC: "*"}, start=Start.FIRST, credentials=proof) as two,
            Producer(seeds, credentials=proof) as producer,
        ):
            readers = [asyncio.create_task(read(each)) for each in (one, two)]
            await until(lambda: len(one._works) == len(two._works) == QUEUES // 2)
            sent = asyncio.create_task(send(producer))
            await until(lambda: one.messages > 50 and two.messages > 50)
            assert all([await each.commit() for each in (one, two)])
            at_kill.update(
                (queue.queue_id, work.progress.committed)
                for each in (one, two)
                for queue, work in each._works.items()
                if work.progress is not None and work.progress.committed is not None
            )
            await asyncio.to_thread(kill_master, fleet)
            with ConsumerLink(fleet, fleet.master(key), group="py", client="looks") as link:
                for queue_id, offset in at_kill.items():
                    committed = link.committed(TOPIC, queue_id)
                    assert committed is not None
                    assert committed >= offset
            await sent
            await until(lambda: len(got) == MESSAGES)
            for each in readers:
                each.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
        assert one.uncommitted == two.uncommitted == 0

    async def send(producer: Producer) -> None:
        for number in range(MESSAGES):
            await producer.send(TOPIC, b"%d" % number, queue_id=number % QUEUES)
            await asyncio.sleep(0.005)

    asyncio.run(story())
    assert len(at_kill) == QUEUES
    assert set(got) == {b"%d" % number for number in range(MESSAGES)}
    with ConsumerLink(fleet, fleet.master(key), group="py", client="looks") as link:
        assert [link.committed(TOPIC, queue_id) for queue_id in range(QUEUES)] == [MESSAGES // QUEUES] * QUEUES
    counted(messages=MESSAGES, given_twice=sum(got.values()) - len(got), before=sum(at_kill.values()))


def test_lines_of_a_shell_go_through_a_fleet(fleet: Fleet) -> None:
    """Brokers from the fleet file's controllers, certificates from its folder."""
    heal(fleet)

    def rollcall(*words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        environment = fleet.commands_environment()
        return subprocess.run(
            fleet.command(*words), input=given, env=environment, capture_output=True, text=True, check=False, timeout=60
        )

    lines = [f"line {number}" for number in range(100)]
    sent = rollcall("produce", "lines", given="\n".join(lines))
    assert (sent.returncode, sent.stderr.splitlines()[-1]) == (0, "lines: 100 acknowledged"), sent.stderr
    read = rollcall("consume", "lines", "--group", "shell", "--from", "first", "--count", "100")
    assert (read.returncode, sorted(read.stdout.splitlines())) == (0, sorted(lines)), read.stderr
    again = rollcall("consume", "lines", "--group", "shell", "--from", "first", "--no-wait")
    assert (again.returncode, again.stdout) == (0, ""), again.stderr
