"""
Messages out of a broker: RocketMQ's brokers before RocketMQ's controllers, ours before ours; the same thin client.

On the way (a send until its reader has it), read again (hot, and from the disk after a restart), puts beside readers, and
10,000 queues. Every replica has a message before it is acknowledged, on both sides.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rollcall_ha.controller.contract.consuming import CreateTopic
from tests.interop_java import asking
from tests.interop_java.admin import BROKERS
from tests.interop_java.sides import JavaSide
from tests.perf import pulls
from tests.perf.bench_put import KIB, Target, put_at
from tests.perf.machine import cpu_s, resident_mib
from tests.perf.results import Measure
from tests.perf.section import Context, Section
from tests.perf.versus.fleets import DEADLINE_S, MIB, java_brokers, our_brokers

FOUR = Target(queues=range(4))
IN_FLIGHT = 64
FILL_IN_FLIGHT = 512
"""RocketMQ's replicas take 20 ms for a round trip of this: with 64 in flight filling would take minutes."""
PER_S, CAME_LEAST = 1_000, 100
ROUNDS = 5
SMALL_TOPIC, SMALL_QUEUES = "Few", 16
MANY_TOPICS, MANY_QUEUES = 40, 250
UPDATE_TOPIC = 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Brokers:
    """Three replicas of one set that serve."""

    master: Callable[[], str]
    """The address that its clients dial."""
    pids: Callable[[], list[int]]
    master_pid: Callable[[], int]
    directory: Path | None
    """Of a fleet of ours."""
    create: Callable[[str, int], object]
    """A topic with so many queues."""
    start_cold: Callable[[], None]
    """Stop all, let the kernel forget their files, start them."""

    def put(self, seconds: float, *, target: Target = FOUR, in_flight: int = IN_FLIGHT) -> tuple[float, float]:
        """(messages a second, CPU µs of the three brokers for each)."""
        told, cpu = put_at(self.master(), self.pids(), in_flight, KIB, seconds, directory=self.directory, target=target)
        return told.acked / told.seconds, cpu * 1e6

    def work(self, *, is_to_end: bool = False, per_s: int = 0, seconds: float | None = None) -> pulls.Work:
        """Of a reader of the four queues."""
        return pulls.Work(
            address=self.master(), directory=self.directory, target=FOUR,
            is_to_end=is_to_end, per_s=per_s, seconds=seconds,
        )  # fmt: skip


def forget_files(directory: Path) -> None:
    """The kernel keeps no page of these files; nobody may have them mapped."""
    for path in directory.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fdatasync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


@contextmanager
def _java(context: Context) -> Iterator[Brokers]:
    with java_brokers(context) as (side, java):

        def master() -> str:
            return java.wait_in_sync(side.controllers, len(BROKERS)).master_address or ""

        def create(topic: str, queues: int) -> None:
            fields = {
                "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6,
                "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
            }  # fmt: skip
            answer = asking.ask(master(), UPDATE_TOPIC, fields)
            if answer is None or answer.code:
                raise RuntimeError(f"topic {topic} was not made: {answer}")

        def start_cold() -> None:
            java.terminate(*BROKERS, deadline_s=DEADLINE_S)
            for name in BROKERS:
                forget_files(java.data(name))
            for name in BROKERS:
                java.restart(name)
                java.wait_serving(name)
            master()

        def pids() -> list[int]:
            return [pid for name in BROKERS if (pid := java.processes.pid(name)) is not None]

        yield Brokers(
            master=master,
            pids=pids,
            master_pid=lambda: java.processes.pid(java.name_of(master())) or 0,
            directory=None,
            create=create,
            start_cold=start_cold,
        )


@contextmanager
def _ours(context: Context) -> Iterator[Brokers]:
    with our_brokers(context) as fleet:

        def name() -> str:
            return fleet.master(fleet.set_keys()[0])

        def start_cold() -> None:
            fleet.down()
            for broker in fleet.brokers:
                forget_files(fleet.data(broker))
            fleet.up()

        yield Brokers(
            master=lambda: fleet.file.broker(name()).listen,
            pids=lambda: [pid for broker in fleet.brokers if (pid := fleet.pid(broker)) is not None],
            master_pid=lambda: fleet.pid(name()) or 0,
            directory=fleet.directory,
            create=lambda topic, queues: fleet.client().order(CreateTopic(topic=topic, queues=queues)),
            start_cold=start_cold,
        )


@contextmanager
def _brokers(context: Context) -> Iterator[Brokers]:
    with (_java if context.side == JavaSide.name else _ours)(context) as brokers:
        # Java compiles what is used; ours makes the topic.
        brokers.put(1.0 if context.is_quick else 4.0, target=FOUR)
        yield brokers


def run_on_the_way(context: Context) -> dict[str, float]:
    """1,000 messages a second, each timed by the one clock of this machine from its send until a reader has it."""
    with _brokers(context) as brokers:
        before = cpu_s(brokers.pids())
        told = pulls.pull(brokers.work(per_s=PER_S, seconds=4.0 if context.is_quick else 10.0))
        cpu = cpu_s(brokers.pids()) - before
    context.say(f"{told.messages:,} messages, p50 {told.p50_ms:.2f} ms, p99 {told.p99_ms:.2f} ms")
    # Fewer than were sent is a finding: a broker that cannot keep up is behind, and its times say by how much.
    if told.messages < CAME_LEAST:
        raise RuntimeError(f"{told.messages} messages came through")
    return {
        "way_rate": told.messages / told.seconds,
        "way_p50": told.p50_ms,
        "way_p99": told.p99_ms,
        "way_cpu": cpu / told.messages * 1e6,
    }


def run_read_again(context: Context) -> dict[str, float]:
    """One client drains four queues: out of memory, and from the disk."""
    values: dict[str, float] = {}
    with _brokers(context) as brokers:
        seconds = 3.0 if context.is_quick else 8.0
        least = brokers.put(seconds, in_flight=FILL_IN_FLIGHT)[0] * seconds
        for name in ("hot", "cold"):
            if name == "cold":
                brokers.start_cold()
            before = cpu_s(brokers.pids())
            told = pulls.pull(brokers.work(is_to_end=True, seconds=DEADLINE_S))
            if told.messages < least:
                raise RuntimeError(f"{told.messages} of {least:.0f} messages came")
            values |= {
                f"{name}_rate": told.messages / told.seconds,
                f"{name}_mib": told.payload / MIB / told.seconds,
                f"{name}_cpu": (cpu_s(brokers.pids()) - before) / told.messages * 1e6,
            }
            context.say(f"{name}: {told.messages:,} messages, {told.messages / told.seconds:,.0f}/s")
    return values


def run_beside_readers(context: Context) -> dict[str, float]:
    """Puts without and with a reader of every queue, in turn on the same brokers."""
    shares: list[float] = []
    alone: list[float] = []
    cpus: list[float] = []
    seconds = 1.5 if context.is_quick else 2.5
    with _brokers(context) as brokers:
        for _ in range(2 if context.is_quick else ROUNDS):
            rate, _ = brokers.put(seconds)
            with pulls.pulling(brokers.work()) as told:
                beside, cpu = brokers.put(seconds)
            if told[0].messages < beside * seconds:
                raise RuntimeError(f"the reader was given {told[0].messages} of {beside * seconds:.0f} messages")
            alone.append(rate)
            shares.append(beside / rate)
            cpus.append(cpu)
    context.say(f"{statistics.median(alone):,.0f}/s alone, shares {[round(share, 2) for share in shares]}")
    context.detail |= {"shares": shares}
    return {
        "alone": statistics.median(alone),
        "beside": statistics.median(share * rate for share, rate in zip(shares, alone, strict=True)),
        "share": statistics.median(shares),
        "whole_cpu": statistics.median(cpus),
    }


def run_queues(context: Context) -> dict[str, float]:
    """Puts to 16 queues and to 10,000, in turn on the same brokers, and the memory of the master."""
    few = Target(topics=(SMALL_TOPIC,), queues=range(SMALL_QUEUES))
    many = Target(topics=tuple(f"Many{number}" for number in range(MANY_TOPICS)), queues=range(MANY_QUEUES))
    seconds = 1.5 if context.is_quick else 3.0
    with _brokers(context) as brokers:
        brokers.create(SMALL_TOPIC, SMALL_QUEUES)
        brokers.put(seconds, target=few)
        before = resident_mib(brokers.master_pid())[1]
        for topic in many.topics:
            brokers.create(topic, MANY_QUEUES)
        # Each queue has its first messages: files are made once.
        filled = 0.0
        while filled < 2 * len(many.all):
            filled += brokers.put(seconds, target=many, in_flight=FILL_IN_FLIGHT)[0] * seconds
        rates: dict[int, list[float]] = {SMALL_QUEUES: [], len(many.all): []}
        for _ in range(2 if context.is_quick else ROUNDS):
            for target in (few, many):
                rates[len(target.all)].append(brokers.put(seconds, target=target)[0])
        memory = resident_mib(brokers.master_pid())[1]
    shares = [there / here for here, there in zip(*rates.values(), strict=True)]
    context.detail |= {"shares": shares}
    context.say(f"{len(many.all):,} queues: shares {[round(share, 2) for share in shares]}, {memory:.0f} MiB")
    return {
        "few": statistics.median(rates[SMALL_QUEUES]),
        "many": statistics.median(rates[len(many.all)]),
        "many_share": statistics.median(shares),
        "memory": memory,
        "memory_grown": memory - before,
    }


ON_THE_WAY = Section(
    name="on-the-way",
    title="1,000 messages of 1 KiB a second, from a send to its reader",
    measures=(
        Measure(key="way_rate", what="came through", unit="/s", is_floor=True),
        Measure(key="way_p50", what="p50", unit="ms", aim=2),
        Measure(key="way_p99", what="p99", unit="ms"),
        Measure(key="way_cpu", what="CPU of the three brokers per message", unit="us"),
    ),
    run=run_on_the_way,
)
READ_AGAIN = Section(
    name="read-again",
    title="four queues of messages of 1 KiB, drained by one client",
    measures=(
        Measure(key="hot_rate", what="out of memory", unit="/s", is_floor=True),
        Measure(key="hot_mib", what="  records", unit="MiB/s", is_floor=True),
        Measure(key="hot_cpu", what="  CPU of the three brokers per message", unit="us"),
        Measure(key="cold_rate", what="from the disk, after a restart", unit="/s", is_floor=True),
        Measure(key="cold_mib", what="  records", unit="MiB/s", is_floor=True),
        Measure(key="cold_cpu", what="  CPU of the three brokers per message", unit="us"),
    ),
    run=run_read_again,
)
BESIDE_READERS = Section(
    name="beside-readers",
    title="puts of 1 KiB, 64 in flight, beside a reader of their queues",
    measures=(
        Measure(key="alone", what="without a reader", unit="/s", is_floor=True),
        Measure(key="beside", what="with one", unit="/s", is_floor=True),
        Measure(key="share", what="  share of that without", unit="", aim=0.8, is_floor=True),
        Measure(key="whole_cpu", what="  CPU of the three brokers per message, in and out", unit="us"),
    ),
    run=run_beside_readers,
)
QUEUES = Section(
    name="queues",
    title="puts of 1 KiB, 64 in flight, to 10,000 queues",
    measures=(
        Measure(key="few", what="to 16 queues", unit="/s", is_floor=True),
        Measure(key="many", what="to 10,000", unit="/s", is_floor=True),
        Measure(key="many_share", what="  share of that to 16", unit="", aim=0.95, is_floor=True),
        Measure(key="memory", what="  memory of the master without files", unit="MiB"),
        Measure(key="memory_grown", what="  grown by the 10,000", unit="MiB"),
    ),
    run=run_queues,
)
MESSAGES = (ON_THE_WAY, READ_AGAIN, BESIDE_READERS, QUEUES)
