"""Topics by order at a living fleet with a name service: over the death of the master, and without a leader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rollcall_ha.broker.protocol.codes import ClientCode
from rollcall_ha.deploy.local.fleet import Fleet, Layout
from rollcall_ha.deploy.local.processes import wait_until
from rollcall_ha.node.certified import CertifiedName, PeerKind
from rollcall_ha.node.credentials import credentials_of
from rollcall_ha.node.remoting.asking import BlockingLink
from rollcall_ha.node.remoting.secured import ExpectedPeer
from tests.support.fleet_reads import ConsumerLink
from tests.support.fleet_story import counted, heal, only_set, running
from tests.support.fleet_trials import kill_master

pytestmark = pytest.mark.cluster

TOPIC = "orders"
CREATE, ROUTE, CLUSTER, ALL, DELETE, DESCRIBE = 17, 105, 106, 206, 215, 351
DENIED, ABSENT = 16, 17
TOLD_S = 10.0


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with running(tmp_path_factory.mktemp("named") / "fleet", Layout(name_service=True)) as found:
        yield found


@contextmanager
def asking(fleet: Fleet, address: str, kind: PeerKind = PeerKind.ADMIN) -> Iterator[BlockingLink]:
    """A link to a port, as ``admin`` or ``client``, whose certificates ``rollcall init`` makes."""
    name = CertifiedName(fleet=fleet.file.fleet.name, kind=kind, name=kind.value)
    credentials = credentials_of(fleet.file, name)
    assert credentials is not None
    kinds = frozenset({PeerKind.BROKER, PeerKind.CONTROLLER})
    with BlockingLink(address, expected=ExpectedPeer(credentials=credentials, kinds=kinds)) as link:
        yield link


def order(queues: int) -> dict[str, object]:
    counts = {"readQueueNums": queues, "writeQueueNums": queues}
    return {"topic": TOPIC, "perm": 6, "topicSysFlag": 0, "order": "false", "attributes": "", **counts}


def route(fleet: Fleet, controller: str) -> tuple[str, int] | None:
    """The master and the queues by one controller's word; None: it knows no such topic."""
    with asking(fleet, fleet.file.controllers[controller].broker) as link:
        answer = link.ask(ROUTE, {"topic": TOPIC})
    if answer.code == ABSENT:
        return None
    assert answer.code == 0, answer
    # Go cuts the addresses out of the text, and takes a blank for a part of one.
    assert b" " not in answer.body
    told: dict[str, Any] = json.loads(answer.body)
    return told["brokerDatas"][0]["brokerAddrs"].get("0"), told["queueDatas"][0]["readQueueNums"]


def wait_routed(fleet: Fleet, expected: tuple[str, int] | None) -> None:
    def is_routed() -> bool:
        try:
            return all(route(fleet, name) == expected for name in fleet.controllers)
        except OSError:
            return False  # one that has just been started does not listen yet

    wait_until(is_routed, deadline_s=TOLD_S, what=f"every controller to answer {expected}")


def test_a_topic_by_order_is_there_after_the_death_of_its_master_and_routed_by_every_controller(fleet: Fleet) -> None:
    key = only_set(fleet)
    heal(fleet)
    listen = {name: fleet.file.broker(name).listen for name in fleet.brokers}
    first = listen[fleet.master(key)]
    with asking(fleet, first, PeerKind.CLIENT) as client:
        assert client.ask(CREATE, order(3)).code == DENIED
    with asking(fleet, first) as admin:
        assert admin.ask(CREATE, order(3)).code == 0
    wait_routed(fleet, (first, 3))
    kill_master(fleet)
    second = listen[fleet.master(key)]
    wait_routed(fleet, (second, 3))
    with asking(fleet, second) as admin:
        assert json.loads(admin.ask(DESCRIBE, {"topic": TOPIC}).body)["readQueueNums"] == 3
        assert admin.ask(DELETE, {"topic": TOPIC}).code == 0
    wait_routed(fleet, None)
    heal(fleet)
    kill_master(fleet)
    third = listen[fleet.master(key)]
    with asking(fleet, third) as admin:
        assert admin.ask(DESCRIBE, {"topic": TOPIC}).code == ABSENT
        assert admin.ask(CREATE, order(5)).code == 0
    wait_routed(fleet, (third, 5))
    heal(fleet)
    counted(masters=[first, second, third])


def test_a_controller_without_a_leader_answers_what_it_knew_last(fleet: Fleet) -> None:
    key = only_set(fleet)
    heal(fleet)
    master = fleet.file.broker(fleet.master(key)).listen
    with asking(fleet, master) as admin:
        assert admin.ask(CREATE, order(4)).code == 0
    wait_routed(fleet, (master, 4))
    *others, left = fleet.controllers
    for name in others:
        fleet.kill(name)
    with asking(fleet, master) as admin:
        assert admin.ask(CREATE, order(6)).code == 0, "brokers of a healthy set need no controllers"
    wait_until(lambda: route(fleet, left) == (master, 6), deadline_s=TOLD_S, what="the last controller to be told")
    with asking(fleet, fleet.file.controllers[left].broker) as link:
        assert b" " not in link.ask(CLUSTER).body
        assert TOPIC in json.loads(link.ask(ALL).body)["topicList"]
    # Told anew by the brokers, or read from its file: a controller that comes back answers, too.
    heal(fleet)
    wait_routed(fleet, (master, 6))


def test_a_broker_shares_out_the_queues_that_the_controllers_route(fleet: Fleet) -> None:
    """A slave, too: members hear of themselves at every broker."""
    key = only_set(fleet)
    heal(fleet)
    master = fleet.master(key)
    with asking(fleet, fleet.file.broker(master).listen) as admin:
        assert admin.ask(CREATE, order(6)).code == 0
    asked = {"clientId": "one", "consumerGroup": "readers", "topic": TOPIC, "strategyName": "AVG"}
    for name in fleet.brokers:
        with ConsumerLink(fleet, name) as link:
            assert link.heartbeat(TOPIC).code == 0

            def is_told(link: ConsumerLink = link) -> bool:
                answer = link.ask(ClientCode.QUERY_ASSIGNMENT, json.dumps(asked).encode())
                assert answer.code == 0, answer
                told = json.loads(answer.body)["messageQueueAssignments"] or ()
                return [one["messageQueue"]["queueId"] for one in told] == list(range(6))

            wait_until(is_told, deadline_s=TOLD_S, what=f"{name} to share out six queues")
