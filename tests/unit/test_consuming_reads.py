"""Which replica a consumer reads from: who gives, and who is named for the next pull."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import msgspec
import pytest

from rollcall_ha.broker.consuming.reads_core import Place, gives_as_slave, next_reader
from rollcall_ha.broker.consuming.room import GateStanding
from rollcall_ha.broker.core.role import RoleMachine
from rollcall_ha.broker.handlers.ports import Gate, GateState
from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.broker.protocol.codes import ClientCode
from rollcall_ha.broker.protocol.record import RecordView
from rollcall_ha.broker.status import ReplicaReporter
from rollcall_ha.controller.contract.ids import BrokerId, MasterEpoch
from rollcall_ha.controller.contract.session import BrokerState
from rollcall_ha.epoch.model import LogOffset
from rollcall_ha.node.remoting.asking import TOOL_LIMITS, dial
from tests.support.consumer_set import KEY
from tests.support.log_broker import LogBroker
from tests.support.log_tools import append_all, draft

SLAVE = Place(broker_id=3, is_slave=True, is_member=True, has_confirm=True)
FIELDS = {"consumerGroup": "g", "topic": "TopicA", "queueId": "0", "maxMsgNums": "32", "suspendTimeoutMillis": "0"}
REIGN = Place(broker_id=2, is_member=True, has_confirm=True)


@pytest.mark.parametrize(
    "missing", ["is_slave", "is_member", "has_confirm"], ids=["no-slave", "no-member", "no-confirm"]
)
def test_a_slave_gives_as_a_member_with_a_confirm_and_only_if_it_is_told_to(missing: str) -> None:
    assert gives_as_slave(SLAVE, is_on=True)
    assert not gives_as_slave(SLAVE, is_on=False)
    assert not gives_as_slave(msgspec.structs.replace(SLAVE, **{missing: False}), is_on=True)


@pytest.mark.parametrize(
    ("place", "in_sync", "wished", "named"),
    [
        (REIGN, (1, 2, 3), 1, 1),
        (REIGN, (2, 3, 4), 4, 4),
        (REIGN, (2, 3, 4), 1, 3),  # not there, or not in sync: RocketMQ would name it all the same
        (REIGN, (1, 2, 3), 2, 1),  # itself: clients know it as 0
        (REIGN, (2,), 1, 0),
        (REIGN, (), 1, 0),
        (SLAVE, (), 1, 3),
        (msgspec.structs.replace(SLAVE, is_member=False), (), 1, 0),
    ],
)
def test_a_reader_far_behind_goes_to_a_slave_that_gives(
    place: Place, in_sync: tuple[int, ...], wished: int, named: int
) -> None:
    assert next_reader(place, in_sync, is_on=True, is_far=True, wished=wished) == named
    assert next_reader(place, in_sync, is_on=True, is_far=False, wished=wished) == 0
    assert next_reader(place, in_sync, is_on=False, is_far=True, wished=wished) == 0


def test_a_master_names_those_that_are_linked_and_nobody_once_it_serves_no_more() -> None:
    gate = Gate()
    standing = GateStanding(gate, KEY, lambda: REIGN)
    standing.slave_reads = True
    gate.state = GateState(
        is_serving=True, master_epoch=MasterEpoch(1), is_min_in_sync=True, in_sync=(BrokerId(2), BrokerId(3))
    )
    assert standing.next_reader(1, is_far=True) == 3
    assert not standing.knows_master
    gate.close("slave", MasterEpoch(2), "127.0.0.1:1")
    assert standing.next_reader(1, is_far=True) == 0
    assert standing.knows_master


def test_a_replica_tells_its_place_by_its_role_and_the_newest_word_of_the_controllers() -> None:
    """A learner, a slave that was removed, and one that has heard of no confirm, are none to read from."""
    role = msgspec.defstruct("Role", [("state", BrokerState)])
    view = msgspec.defstruct("View", [("sync_state_set", tuple[int, ...])])
    log = msgspec.defstruct("Log", [("confirm_offset", int), ("min_offset", int, 0)])

    def place(state: BrokerState, *members: int, confirm: int = 1) -> Place:
        machine = msgspec.defstruct("Machine", [("published", role), ("view", view)])(role(state), view(members))
        reporter = ReplicaReporter.__new__(ReplicaReporter)
        reporter._machine, reporter._log = cast("RoleMachine", machine), cast("CommitLog", log(confirm))
        reporter._broker_id = lambda: BrokerId(3)
        return reporter.place

    assert place(BrokerState.SLAVE, 2, 3) == SLAVE
    assert not place(BrokerState.LEARNER, 2, 3).is_slave
    assert not place(BrokerState.SLAVE, 2).is_member
    assert not place(BrokerState.SLAVE, 2, 3, confirm=0).has_confirm


def test_a_slave_gives_nothing_beyond_its_confirm(tmp_path: Path) -> None:
    """Of bytes that came over the link, a reader sees those that a failover leaves."""

    async def story() -> None:
        async with LogBroker(tmp_path, 3) as broker:
            broker.room.standing.slave_reads, broker.room.standing._place = True, lambda: SLAVE
            _, (second, _) = append_all(broker.log, draft(b"one"), draft(b"two"))
            broker.log.note_confirm(LogOffset(second + 1), LogOffset(0))
            fields = FIELDS | {"queueOffset": "0", "sysFlag": "4"}
            link = await dial(broker.address, timeout_ms=1_000, limits=TOOL_LIMITS)
            found = await link.request(ClientCode.PULL_MESSAGE, ext_fields=fields, timeout_ms=10_000)
            link.close("it was asked")
        assert (found.code, found.remark) == (0, None)
        assert bytes(RecordView(memoryview(found.body)).body) == b"one"
        assert len(found.body) == second
        assert (found.ext_fields or {})["maxOffset"] == "1"

    asyncio.run(story())
