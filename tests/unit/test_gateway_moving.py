"""A set of RocketMQ's controllers moves here, seen from its brokers: whom they are told to follow, and when."""

from __future__ import annotations

import json

from rollcall_ha.api.rocketmq.names.name_service import CommittedSets
from rollcall_ha.controller.contract.commands import ImportSet
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    BrokerName,
    ClusterName,
    MasterEpoch,
    RequestId,
    SetKey,
    SyncStateSetEpoch,
)
from rollcall_ha.controller.contract.replies import Done
from rollcall_ha.controller.contract.values import ImportedReplica
from tests.support.rocketmq_wire import Port, address_of, on_port
from tests.support.runtime_controller import until

NAMES = {"clusterName": "c1", "brokerName": "broker-z"}


def reported(port: Port) -> tuple[int, ...]:
    """Who has said what he holds; nobody is asked outside a recovery."""
    recovery = port.set().recovery
    return recovery.reported if recovery is not None else ()


async def imported(port: Port) -> None:
    """Broker 1 is master in epoch 7 of other controllers, both are in sync."""
    reply = await port.leader.service.submit(
        ImportSet(
            set_key=SetKey(ClusterName("c1"), BrokerName("broker-z")),
            replicas=tuple(
                ImportedReplica(broker_id=BrokerId(number), address=address_of(number)) for number in (1, 2)
            ),
            next_id=BrokerId(3),
            master=BrokerId(1),
            master_epoch=MasterEpoch(7),
            sync_state_set=(BrokerId(1), BrokerId(2)),
            sync_state_set_epoch=SyncStateSetEpoch(12),
        ),
        request_id=RequestId("import"),
        requested_by="admin",
    )
    assert isinstance(reply, Done)


@on_port()
async def test_slave_that_comes_first_follows_the_master_where_it_is(port: Port) -> None:
    """It catches up there; it is not made master by its own 1002, and nobody grants further ids."""
    await imported(port)
    slave = await port.peer()
    said = await slave.request(1003, **NAMES, brokerId=2, brokerAddress=address_of(2), invokeTime=1)
    expected = {"masterBrokerId": "1", "masterAddress": address_of(1), "masterEpoch": "7"}
    assert said.code == 0
    assert expected.items() <= (said.ext_fields or {}).items()
    assert json.loads(said.body) == {"syncStateSet": [1, 2], "syncStateSetEpoch": 12}
    slave.beat(2, epoch=7, maxOffset=500)
    await until(lambda: reported(port) == (2,))
    polled = await slave.request(1004, brokerName="broker-z")
    assert (polled.code, polled.ext_fields) == (0, expected)
    asked = await slave.request(1002, **NAMES, brokerId=2, designateElect=False, invokeTime=1)
    assert asked.code == 2012
    applied = await slave.request(1013, **NAMES, appliedBrokerId=3, registerCheckCode="127.0.0.1:9;1")
    assert applied.code != 0


@on_port()
async def test_master_that_comes_last_is_elected_in_the_next_epoch(port: Port) -> None:
    """Not told to be master in its old epoch by its own registration (W3), and alone in the set."""
    await imported(port)
    slave = await port.peer()
    await slave.request(1003, **NAMES, brokerId=2, brokerAddress=address_of(2), invokeTime=1)
    slave.beat(2, epoch=7, maxOffset=500)
    await until(lambda: reported(port) == (2,))
    master = await port.peer()
    said = await master.request(1003, **NAMES, brokerId=1, brokerAddress=address_of(1), invokeTime=1)
    assert said.code == 0
    assert "masterBrokerId" not in (said.ext_fields or {})
    master.beat(1, epoch=7, maxOffset=400)
    elected = await master.request(1002, **NAMES, brokerId=1, designateElect=False, invokeTime=1)
    assert elected.code in (0, 2011)
    assert (elected.ext_fields or {})["masterEpoch"] == "8"
    assert json.loads(elected.body)["syncStateSet"] == [1]
    polled = await slave.request(1004, brokerName="broker-z")
    assert (polled.ext_fields or {})["masterEpoch"] == "8"


@on_port()
async def test_name_service_says_nothing_of_its_own_about_a_set_that_moves(port: Port) -> None:
    """Who is master is what the other controllers say; brokers claim it."""
    word = CommittedSets(lambda: port.leader.service.published)
    await imported(port)
    assert word("broker-z") is None
