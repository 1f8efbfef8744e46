"""
Offsets of consumers and topics are a fold of the log; an acknowledged offset is never told lower.

A set lives through commits, confirms, cuts of what is not confirmed, changes of master, and replicas that begin anew;
groups are told again in between, so that rebuilds begin somewhere in the middle.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcall_ha.broker.consuming import offsets_log
from rollcall_ha.broker.consuming.offsets_core import Consumers, GroupChange
from rollcall_ha.broker.consuming.offsets_log import TOPIC
from rollcall_ha.broker.protocol.topics import TopicRow
from tests.support.consumer_set import Client, Member, SetLog, Time

GROUPS = ("g", "h")
COMMIT = st.tuples(st.just("commit"), st.sampled_from(GROUPS), st.integers(0, 2))
QUERY = st.tuples(st.just("query"), st.sampled_from(GROUPS))
PASS = st.tuples(st.just("pass"), st.sampled_from([30, 60]))
CONFIRM = st.tuples(st.just("confirm"), st.integers(1, 2))
ORDER = st.tuples(st.just("order"), st.sampled_from("TUV"), st.integers(0, 3))
RARE = st.one_of(
    ORDER,
    st.tuples(st.just("again")),
    st.tuples(st.just("nonsense")),
    st.tuples(st.just("take over"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("begin anew")),
)
# As often as not a record is written and confirmed between two steps of interest.
STEPS = st.lists(st.one_of(COMMIT, COMMIT, QUERY, PASS, CONFIRM, st.just(("settle",)), RARE), min_size=40, max_size=100)


class World:
    """The set, and what its clients may rely on."""

    def __init__(self) -> None:
        self.time, self.log = Time(), SetLog()
        self.master = Member(self.log, self.time, is_master=True)
        self.acknowledged: dict[tuple[str, int], int] = {}
        """The highest offset; commits of a key only rise."""
        self.next: dict[tuple[str, int], int] = {}
        self.asked: list[tuple[Client, tuple[str, int], int]] = []
        """Questions without an answer, and what was acknowledged when they were asked."""
        self.ordered: dict[str, TopicRow] = {}
        """What was answered as done, the last of each topic."""
        self.committing: list[tuple[Client, tuple[str, int], int]] = []

    def commit(self, group: str, more: int) -> None:
        key = (group, 0)
        self.next[key] = offset = self.next.get(key, 0) + more
        client = Client(self.master)
        client.commit(offset, group)
        self.committing.append((client, key, offset))

    def order(self, topic: str, queues: int) -> None:
        """A topic is made, or deleted."""
        row = TopicRow(read_queue_nums=queues, is_deleted=not queues)
        self.master.consumers.note_topic(
            topic, row, lambda reason: None if reason else self.ordered.update({topic: row})
        )

    def query(self, group: str) -> None:
        client = Client(self.master)
        client.query(group)
        self.asked.append((client, (group, 0), self.acknowledged.get((group, 0), -1)))

    def again(self) -> None:
        """All groups are told again as soon as they can be."""
        self.master.consumers._told_again_ms -= offsets_log.AGAIN_MS
        self.master.consumers.tick()

    def take_over(self, keep: int, *, is_new: bool) -> None:
        """Another replica is master; ``keep`` records that were not confirmed are in its log, and will be."""
        self.log.cut(min(len(self.log.records), self.log.confirmed + keep))
        self.master.is_master = False
        self.log.end_epoch()
        if is_new or len(self.log.readers) < 2:
            Member(self.log, self.time)
        self.master = next(reader for reader in reversed(self.log.readers) if reader is not self.master)
        del self.log.readers[:-3]
        if self.master not in self.log.readers:
            self.log.readers.append(self.master)
        self.master.is_master = True

    def look(self) -> None:
        """Answers that have come are held against what was promised."""
        for client, key, offset in self.committing:
            if client.answers and client.answers[0].code == 0:
                self.acknowledged[key] = max(self.acknowledged.get(key, -1), offset)
        self.committing = [each for each in self.committing if not each[0].answers]
        for client, key, at_least in self.asked:
            if not client.answers:
                continue
            answer = client.answers[0]
            assert answer.code in (0, 2, 22), answer
            if answer.code != 2:
                told = int((answer.ext_fields or {"offset": "-1"})["offset"])
                assert at_least <= told <= self.confirmed(key), (key, at_least, told)
        self.asked = [each for each in self.asked if not each[0].answers]

    def confirmed(self, key: tuple[str, int]) -> int:
        """What the log's confirmed records say, read from its start."""
        offset = self.fold().offset(key[0], "T", key[1])
        return -1 if offset is None else offset

    def fold(self) -> Consumers:
        known = Consumers()
        visible = sum(each[0][0] == TOPIC for each in self.log.records[: self.log.confirmed])
        for at, body in enumerate(self.log.bodies(TOPIC)[:visible]):
            known.fold(at, body)
        return known

    def check(self) -> None:
        """Every replica, and one that begins now, knows what the whole log says."""
        whole = self.fold()
        for reader in [*self.log.readers, Member(self.log, self.time)]:
            while not reader.consumers.follow():
                self.time.run(1)
            assert tidy(reader.consumers.known) == tidy(whole)
            assert reader.consumers.known.topics == whole.topics
            assert reader.consumers.is_whole
        del self.log.readers[-1]
        assert self.ordered.keys() <= whole.topics.keys()


def tidy(known: Consumers) -> dict[str, GroupChange]:
    return {name: group for name, group in known.groups.items() if group != GroupChange()}


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_an_acknowledged_offset_is_never_told_lower_and_all_is_in_the_log(steps: list[tuple[object, ...]]) -> None:
    world = World()
    for step in steps:
        match step:
            case ("commit", str() as group, int() as more):
                world.commit(group, more)
            case ("order", str() as topic, int() as queues):
                world.order(topic, queues)
            case ("query", str() as group):
                world.query(group)
            case ("settle",):
                world.time.run(60)
                world.log.confirm()
            case ("confirm", int() as count):
                world.log.confirm(count)
            case ("pass", int() as ms):
                world.time.run(ms)
            case ("again",):
                world.again()
            case ("nonsense",):
                world.log.append((TOPIC, 0), b'{"since":1000000}')
            case ("take over", int() as keep, bool() as is_new):
                world.take_over(keep, is_new=is_new)
            case ("begin anew",):
                world.log.readers[:] = [world.master]
        world.look()
        world.check()
    world.log.confirm()
    world.time.run(1_000)
    world.look()
    world.check()
