"""Consumers at a living fleet: what they are given, over the death of the master and a restart of everything."""

from __future__ import annotations

import asyncio

import pytest

from rollcall_ha.broker.client.questions import Questions, Start
from rollcall_ha.broker.client.routes import RouteWatcher
from rollcall_ha.broker.client.slaves import SlaveLinks
from rollcall_ha.broker.protocol.consumers import MessageQueue, Subscription
from rollcall_ha.controller.contract.orders import ChangeSettings
from rollcall_ha.deploy.local.fleet import Fleet
from rollcall_ha.deploy.local.processes import wait_until
from rollcall_ha.node.certified import PeerKind
from rollcall_ha.node.credentials import client_name, credentials_of, of_ports
from rollcall_ha.node.remoting.frame import Frame
from rollcall_ha.node.remoting.secured import ExpectedPeer
from tests.support.fleet_reads import ConsumerLink, Pulled
from tests.support.fleet_story import counted, heal, judge, load, only_set, wait_row
from tests.support.fleet_trials import kill_master
from tests.support.ha_replica import until

pytestmark = pytest.mark.cluster

TOPIC = "demo"
QUEUES = 8


def follow(link: ConsumerLink, queue_id: int, offset: int) -> tuple[list[tuple[int, bytes]], int]:
    """All records of a queue from ``offset`` on, and where it ends."""
    found: list[tuple[int, bytes]] = []
    while True:
        pulled = link.pull(TOPIC, queue_id, offset)
        assert pulled.code in (0, 19, 20, 21), pulled
        if pulled.code == 19:
            return found, pulled.next_offset
        found += pulled.records
        offset = pulled.next_offset


def pull_until_known(link: ConsumerLink, queue_id: int, offset: int, *, text: str | None) -> Pulled:
    """A new master may be behind for a moment: it says so (2), and never moves a consumer (21)."""
    while (pulled := link.pull(TOPIC, queue_id, offset, text=text)).code == 2:
        pass
    return pulled


def test_a_group_reads_on_at_the_new_master_where_it_was(fleet: Fleet) -> None:
    """Every queue from its committed offset: no message twice, none left out, no offset lower than acknowledged."""
    key = only_set(fleet)
    heal(fleet)
    offsets: dict[int, int] = {}
    seen: dict[int, list[tuple[int, bytes]]] = {}
    with load(fleet) as work:
        with ConsumerLink(fleet, fleet.master(key)) as link:
            assert link.heartbeat(TOPIC).code == 0
            assert link.members() == ["one"]
            for queue_id in range(QUEUES):
                seen[queue_id], end = follow(link, queue_id, 0)
                assert link.commit(TOPIC, queue_id, end).code == 0
                offsets[queue_id] = end
            # With the link open: a member that closes it leaves the group, and the log hears of that within a second.
            trial = kill_master(fleet)
        work.wait_more()
        with ConsumerLink(fleet, fleet.master(key), client="two") as link:
            # Before any heartbeat: by the subscription that the log remembers.
            assert pull_until_known(link, 0, offsets[0], text=None).code in (0, 19)
            assert link.members() == ["one"]
            assert link.heartbeat(TOPIC).code == 0
            for queue_id in range(QUEUES):
                assert link.committed(TOPIC, queue_id) == offsets[queue_id]
    row = wait_row(fleet, trial.epoch)
    found = judge(fleet)
    with ConsumerLink(fleet, fleet.master(key), client="two") as link:
        for queue_id in range(QUEUES):
            rest, end = follow(link, queue_id, offsets[queue_id])
            seen[queue_id] += rest
            assert [offset for offset, _body in seen[queue_id]] == list(range(end))
    messages = [body for records in seen.values() for _offset, body in records]
    counted(messages=len(messages), before=sum(offsets.values()), grade=row.grade, audit=found)
    assert len(messages) > sum(offsets.values()) > 0


def test_a_pull_that_waits_is_answered_by_the_next_message(fleet: Fleet) -> None:
    key = only_set(fleet)
    heal(fleet)
    with ConsumerLink(fleet, fleet.master(key)) as link:
        _, end = follow(link, 0, 0)
        with load(fleet):
            pulled = link.pull(TOPIC, 0, end, wait_ms=15_000)
    assert pulled.code == 0
    assert next(offset for offset, _body in pulled.records) == end


def test_everything_is_there_again_after_a_restart_of_all(fleet: Fleet) -> None:
    """Offsets of the group and the queues: from the log, and from the files that it was folded into."""
    key = only_set(fleet)
    heal(fleet)
    with ConsumerLink(fleet, fleet.master(key)) as link:
        before = {queue_id: follow(link, queue_id, 0)[1] for queue_id in range(QUEUES)}
        for queue_id, end in before.items():
            assert link.commit(TOPIC, queue_id, end // 2).code == 0
    for name in fleet.brokers:
        fleet.kill(name)
    heal(fleet)
    with ConsumerLink(fleet, fleet.master(key)) as link:
        for queue_id, end in before.items():
            assert pull_until_known(link, queue_id, end, text="*").code == 19
            assert link.committed(TOPIC, queue_id) == end // 2
            records, _ = follow(link, queue_id, 0)
            assert len(records) == end


def give_by_slaves(fleet: Fleet, value: int) -> None:
    """Set ``slave_reads``, and wait until the leader has heard of it from every broker."""
    fleet.client().order(ChangeSettings(values={"slave_reads": value}))
    wait_until(lambda: fleet.client().settings().brokers_behind == (), deadline_s=30, what="brokers to take it")


async def pull_by_id(fleet: Fleet, slave: str, offset: int) -> Frame:
    """As Python's consumer does when the master has named this slave: by its id and the route."""
    credentials = of_ports(fleet.file, credentials_of(fleet.file, client_name(fleet.file)))
    expected = (
        None if credentials is None else ExpectedPeer(credentials=credentials, kinds=frozenset({PeerKind.BROKER}))
    )
    address = fleet.file.brokers[slave].listen
    routes = RouteWatcher([section.listen for section in fleet.file.brokers.values()], expected)
    routes.start()
    links = SlaveLinks(routes, expected)
    try:
        await until(lambda: routes.route is not None and any(each.address == address for each in routes.route.replicas))
        assert routes.route is not None
        (broker_id,) = (each.broker_id for each in routes.route.replicas if each.address == address)
        link = await links.to(broker_id)
        assert link is not None
        questions = Questions("py", "one", {TOPIC: Subscription()}, is_push=False, start=Start.FIRST)
        return await questions.pull(link, MessageQueue("", 0, TOPIC), offset)
    finally:
        links.close()
        await routes.stop()


def test_a_slave_gives_what_is_confirmed_while_nobody_can_elect_a_master_and_nothing_unless_it_is_told_to(
    fleet: Fleet,
) -> None:
    """A reader goes on at a slave over the death of the master; what it read is what the next master has."""
    key = only_set(fleet)
    heal(fleet)
    with load(fleet) as work:
        master = fleet.master(key)
        slave = next(name for name in fleet.brokers if name != master)
        with ConsumerLink(fleet, slave) as link:
            sent_back = link.pull(TOPIC, 0, 0)
            assert (sent_back.code, sent_back.next_offset, sent_back.reader) == (20, 0, 0)
            give_by_slaves(fleet, 1)
            work.wait_more()
            first, end = follow(link, 0, 0)
            assert asyncio.run(pull_by_id(fleet, slave, end)).code in (0, 19, 20)
            for name in fleet.controllers:
                fleet.kill(name)
            fleet.kill(master)
            rest, after = follow(link, 0, end)
            assert link.ask_committed(TOPIC, 0).code == 2, "offsets are the master's"
            assert link.pull(TOPIC, 0, after + 1_000, wait_ms=500).code == 19, "it moves nobody"
    heal(fleet)
    with ConsumerLink(fleet, fleet.master(key)) as link:
        there, _ = follow(link, 0, 0)
    seen = first + rest
    counted(at_slave=len(seen), with_a_dead_master=len(rest))
    assert there[: len(seen)] == seen
    assert [offset for offset, _body in seen] == list(range(after))
    give_by_slaves(fleet, 0)


def test_delayed_messages_are_delivered_once_over_the_death_of_their_master(fleet: Fleet) -> None:
    """Some wait when it dies, some are being delivered."""
    key = only_set(fleet)
    heal(fleet)
    with ConsumerLink(fleet, fleet.master(key)) as link:
        sent = [b"%d" % n for n in range(40)]
        for n, body in enumerate(sent):
            link.send("later", body, level=1 + n % 2)
        link.pull_one("later", 0, 0)
    trial = kill_master(fleet)
    heal(fleet)
    with ConsumerLink(fleet, fleet.master(key)) as link:
        found = [link.pull_one("later", 0, offset).records[0][1] for offset in range(len(sent))]
        link.send("later", b"last", level=2)
        (last,) = link.pull_one("later", 0, len(sent)).records
    counted(delivered=len(found), epoch=trial.epoch)
    assert sorted(found) == sorted(sent)
    assert last == (len(sent), b"last")


def test_a_refused_message_comes_again_and_ends_among_the_dead(fleet: Fleet) -> None:
    key = only_set(fleet)
    heal(fleet)
    with ConsumerLink(fleet, fleet.master(key), group="choosy") as link:
        assert link.heartbeat("refused").code == 0
        place = link.send("refused", b"no")
        assert link.give_back(place, level=1, times_max=1) == 0
        again = link.pull_one("%RETRY%choosy", 0, 0)
        ((place, times),) = again.refusals
        assert (again.records, times) == ([(0, b"no")], 1)
        assert link.give_back(place, level=1, times_max=1) == 0
        dead = link.pull_one("%DLQ%choosy", 0, 0)
        assert [body for _, body in dead.records] == [b"no"]
