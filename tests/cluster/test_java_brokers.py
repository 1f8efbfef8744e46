"""Python's consumers and the shell at RocketMQ's own broker and name server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from rollcall_ha.broker.client.consumer import Consumer, Start
from rollcall_ha.broker.client.messages import Message
from rollcall_ha.deploy.local.processes import our_environment
from tests.interop_java.artifacts import JavaUnavailableError, obtain
from tests.interop_java.fleet import JavaFleet
from tests.support.fleet_story import counted
from tests.support.ha_replica import until

pytestmark = [pytest.mark.cluster, pytest.mark.prove]
MESSAGES = 100
LINES = b"".join(b"%d\n" % number for number in range(MESSAGES))


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name server of a set of one, with ``MESSAGES`` in the topic ``lines``, sent by the shell."""
    try:
        release = obtain()
    except JavaUnavailableError as error:
        pytest.skip(str(error))
    with JavaFleet(tmp_path_factory.mktemp("java"), release) as java:
        found = java.start_namesrv()
        java.wait_listening("namesrv")
        controllers = java.start_controllers(1)
        java.start_broker("b0", controllers=controllers, namesrv=found, settings={"enablePropertyFilter": "true"})
        java.wait_route(found)
        assert rollcall(found, "produce", "lines", "--tag", "a", "--property", "amount=5", given=LINES) == (0, b"")
        yield found


def rollcall(names: str, *words: str, given: bytes = b"") -> tuple[int, bytes]:
    command = [sys.executable, "-m", "rollcall_ha.cli.main", *words, "--name-servers", names]
    done = subprocess.run(
        command, input=given, capture_output=True, check=False, cwd="/", timeout=120, env=our_environment()
    )
    assert b"Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


def reader(names: str, group: str, **options: object) -> Consumer:
    return Consumer([names], **{"group": group, "topics": {"lines": "*"}, "start": Start.FIRST} | options)  # type: ignore[arg-type]


def test_the_shell_reads_what_it_sent(names: str) -> None:
    words = ("consume", "lines", "--from", "first", "--no-wait", "--group")
    code, out = rollcall(names, *words, "g")
    assert (code, Counter(out.splitlines())) == (0, Counter(LINES.splitlines()))
    assert rollcall(names, *words, "g") == (0, b"")
    assert len(rollcall(names, *words, "s", "--sql", "amount > 4")[1].splitlines()) == MESSAGES
    assert rollcall(names, *words, "t", "--filter", "b") == (0, b"")


def test_a_message_that_a_handler_refuses_goes_back_and_comes_again(names: str) -> None:
    """Code 36: the broker gives it again from the group's topic of retries, as the message that it was."""
    seen: list[Message] = []

    async def handle(batch: Sequence[Message]) -> None:
        seen.extend(batch)
        if batch[0].body == b"7" and not batch[0].reconsume_times:
            raise ValueError("not yet")

    async def story() -> None:
        async with reader(names, "push", handler=handle, batch_max=1):
            await until(lambda: len(seen) == MESSAGES + 1, deadline_s=90)

    asyncio.run(story())
    again = [each for each in seen if each.body == b"7"]
    assert [(each.topic, each.queue.topic, each.reconsume_times) for each in again] == [
        ("lines", "lines", 0),
        ("lines", "%RETRY%push", 1),
    ]
    counted(messages=len(seen), again=len(again))


def test_two_members_share_ordered_queues(names: str) -> None:
    seen: list[tuple[int, int]] = []

    async def handle(batch: Sequence[Message]) -> None:
        seen.extend((each.queue.queue_id, each.queue_offset) for each in batch)
        await asyncio.sleep(0.01)

    async def story() -> None:
        async with (
            reader(names, "ordered", handler=handle, is_ordered=True, batch_max=4) as one,
            reader(names, "ordered", handler=handle, is_ordered=True, batch_max=4) as two,
        ):
            await until(lambda: one.messages + two.messages >= MESSAGES)
            await until(lambda: bool(one._works) and bool(two._works) and not one._works.keys() & two._works.keys())

    asyncio.run(story())
    assert len(set(seen)) == MESSAGES
    for queue_id in {queue_id for queue_id, _ in seen}:
        first_times = list(dict.fromkeys(offset for of, offset in seen if of == queue_id))
        assert first_times == list(range(len(first_times)))
