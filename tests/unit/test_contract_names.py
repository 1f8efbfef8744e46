"""One alphabet for what callers name: what it takes, what it refuses, and at which doors it is asked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rollcall_ha.broker.config import broker_config
from rollcall_ha.controller.contract.commands import ApplyBrokerId, CleanReplicas
from rollcall_ha.controller.contract.events import EventRecord
from rollcall_ha.controller.contract.ids import BrokerName, ClusterName, RegisterCode, SetKey
from rollcall_ha.controller.contract.names import (
    REASON_CHARS_MAX,
    TEXT_CHARS_MAX,
    name_complaint,
    refusal_of_texts,
    text_complaint,
)
from rollcall_ha.controller.contract.views import EventPage, Problem
from rollcall_ha.controller.runtime.settings import settings_from
from rollcall_ha.node.config import BrokerSection, ConfigError, ControllerSection, FleetFile, FleetSection
from tests.support.names_world import NameWorld
from tests.support.rocketmq_wire import Port, on_port
from tests.support.runtime_controller import NAMES, Controller, broker_id_body, make_set, recorded, running_group

SCREEN_CLEARED = "\x1b[2J"
BAD = (SCREEN_CLEARED, "a\nOK  forged", "a/b", "", " a", "a ", "a\u202eb", "a\u200bb", "\ud800", "a" * 256)
GOOD = ("broker-a", "DefaultCluster", "host.example_1", "%RETRY%|x", "\u96c6\u7fa4", "a b", "a" * 255)


@pytest.mark.parametrize("name", GOOD)
def test_names_that_rocketmq_takes_are_taken(name: str) -> None:
    """Unmodified brokers choose them: RocketMQ checks topics and groups, not clusters and brokers."""
    assert name_complaint("cluster", name) == ""


@pytest.mark.parametrize("name", BAD)
def test_names_that_a_terminal_obeys_or_a_key_cannot_hold_are_refused(name: str) -> None:
    """The refusal names the value, written out, and the rule."""
    complaint = name_complaint("cluster", name)

    assert complaint.isprintable()
    assert complaint.isascii()
    assert complaint.startswith("cluster is '")
    assert "1 to 255 printable characters" in complaint


def test_every_text_of_a_command_is_looked_at() -> None:
    """Nested ones and lists too; a reason may be longer than a name, and has an end as well."""
    key = SetKey(ClusterName("c1"), BrokerName("broker-a"))
    good = ApplyBrokerId(set_key=key, register_code=RegisterCode("10.0.0.1:1;u-1"), address="10.0.0.1:1")
    clean = CleanReplicas(set_key=key, reason="because " + "x" * 900)
    replace = msgspec.structs.replace

    assert refusal_of_texts(good) is None
    assert refusal_of_texts(clean) is None
    for bad in (
        replace(good, set_key=SetKey(ClusterName(SCREEN_CLEARED), BrokerName("x"))),
        replace(good, register_code=RegisterCode("a\nb")),
        replace(good, address="x" * (TEXT_CHARS_MAX + 1)),
        replace(clean, reason="x" * (REASON_CHARS_MAX + 1)),
        replace(clean, reason="one\nOK  two"),
    ):
        refused = refusal_of_texts(bad)
        assert refused is not None
        assert refused.reason.isprintable()
        assert refused.hint
    assert text_complaint("zone", "") == ""


def test_rest_refuses_an_order_whose_names_are_not_taken(tmp_path: Path) -> None:
    """S62, S78: 422 with the value written out; nothing is stored, dry runs included."""

    async def story() -> None:
        async with running_group(tmp_path, NAMES[:1]) as group:
            leader = await group.elect(NAMES[0])
            await make_set(leader)
            before = await _events_of_callers(leader)
            path = "/v1/sets/demo/broker-a"
            bodies: tuple[tuple[str, dict[str, Any]], ...] = (
                ("/v1/broker-ids", broker_id_body(1, f"x{SCREEN_CLEARED}")),
                (f"{path}/elect", {"to": 2, "reason": "a\nOK  broker 1 is master"}),
                (f"{path}/elect", {"to": 2, "reason": "a\nOK  broker 1 is master", "dryRun": True}),
                (f"{path}/clean", {"reason": "x" * 1_001}),
                ("/v1/sets/de%1b%5b2Jmo/x/clean", {}),
            )
            for where, body in bodies:
                answer = await leader.http.post(where, json=body)
                problem = msgspec.json.decode(answer.content, type=Problem)
                assert (answer.status_code, problem.code) == (422, "INVALID_ARGUMENT"), (where, problem)
                assert problem.detail.isprintable()
            assert await _events_of_callers(leader) == before != []

    asyncio.run(story())


@pytest.mark.parametrize("code", [1012, 1013, 1003])
@on_port()
async def test_rocketmqs_codes_refuse_names_that_are_not_taken(port: Port, code: int) -> None:
    """2005 with the rule as its remark: nothing is stored under such a name, and 1012 grants no hope of it."""
    peer = await port.peer()
    names = {"clusterName": "c1", "brokerName": f"b{SCREEN_CLEARED}"}
    answer = await peer.request(
        code, **names, brokerId=1, appliedBrokerId=1, registerCheckCode="10.0.0.1:1;u", brokerAddress="10.0.0.1:1"
    )
    assert answer.code == 2005
    assert "broker name is 'b\\x1b[2J'" in str(answer.remark)
    assert not port.leader.service.published.state.sets


def test_103_refuses_names_that_are_not_taken() -> None:
    """They would be in every route and in the table's file."""
    world = NameWorld()

    for field in ("clusterName", "brokerName", "brokerAddr", "haServerAddr"):
        odd: dict[str, Any] = {field: f"x{SCREEN_CLEARED}"}
        answer = world.register(1, role=0, **odd)
        assert (answer.code, "printable" in str(answer.remark)) == (1, True), field
    assert world.register(1, role=0).code == 0


def test_the_fleet_file_is_held_to_the_same_rule() -> None:
    """A broker that started with such a name would be refused for ever by its controllers."""
    broker = BrokerSection(set="broker-a", listen="127.0.0.1:1", ha="127.0.0.1:2", health="127.0.0.1:3", data="d")
    own = ControllerSection(raft="127.0.0.1:4", broker="127.0.0.1:5", rest="127.0.0.1:6", data="c1")
    fleet = FleetFile(
        version=1, fleet=FleetSection(name="demo", incarnation="0" * 32), controllers={"c1": own}, directory="/nowhere"
    )
    replace = msgspec.structs.replace
    for bad in (replace(broker, set="a/b"), replace(broker, cluster="c\n"), replace(broker, zone="\x07")):
        with pytest.raises(ConfigError, match=r"brokers.b: .* printable"):
            broker_config(replace(fleet, brokers={"b": bad}), "b")
    with pytest.raises(ConfigError, match=r"fleet.name is 'de/mo'"):
        settings_from(replace(fleet, fleet=FleetSection(name="de/mo", incarnation="0" * 32)), "c1")


async def _events_of_callers(leader: Controller) -> list[EventRecord]:
    """Not those of the leader itself: on a slow machine it finds the replicas silent meanwhile."""
    await recorded(leader)
    page = msgspec.json.decode((await leader.http.get("/v1/events")).content, type=EventPage)
    return [record for record in page.events if not record.requested_by.startswith("controller:")]
