"""
The controllers of ``tests/support/fake_rocketmq`` answer as a real RocketMQ controller does.

Plans and exports are tested against the fake ones; here both are asked the same things in the same order.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.deploy.local.processes import wait_until
from rollcall_ha.node.remoting.asking import BlockingLink
from rollcall_ha.node.remoting.fastjson import quote_keys
from rollcall_ha.node.remoting.frame import Frame
from tests.interop_java import asking
from tests.interop_java.artifacts import JavaUnavailableError, obtain
from tests.interop_java.fleet import JavaFleet
from tests.support.fake_rocketmq import FakeControllers, serving

pytestmark = [pytest.mark.cluster, pytest.mark.prove]

LEADER_DEADLINE_S = 120.0
COMPARED = ("masterBrokerId", "masterAddress", "masterEpoch", "syncStateSetEpoch", "nextBrokerId")
SET: dict[str, object] = {"clusterName": "c1", "brokerName": "broker-a"}
NOBODY: dict[str, object] = {**SET, "brokerId": -1, "designateElect": "false", "invokeTime": 0}


def applies(number: int, code: str = "") -> tuple[int, dict[str, object], bytes]:
    check = code or f"127.0.0.1:{number};x-{number}"
    return 1013, {**SET, "appliedBrokerId": number, "registerCheckCode": check}, b""


def elects(number: int) -> tuple[int, dict[str, object], bytes]:
    return 1002, {**NOBODY, "brokerId": number}, b""


def cleans(ids: str = "") -> tuple[int, dict[str, object], bytes]:
    named = {"brokerControllerIdsToClean": ids} if ids else {}
    return 1011, {**SET, **named, "isCleanLivingBroker": "false", "invokeTime": 0}, b""


STATE: Sequence[tuple[int, Mapping[str, object], bytes]] = (
    (1006, {}, b'["broker-a"]'),
    (1004, {"brokerName": "broker-a"}, b""),
    (1012, SET, b""),
)
EXPORT: Sequence[tuple[int, Mapping[str, object], bytes]] = (
    (1012, SET, b""),
    (1004, {"brokerName": "broker-a"}, b""),
    applies(2),
    applies(1),
    applies(1),
    applies(1, "127.0.0.1:1;another"),
    applies(2),
    applies(4),
    *STATE,
    elects(1),
    *STATE,
    cleans("2"),
    *STATE,
    cleans(),
    (1002, NOBODY, b""),
    (1002, NOBODY, b""),
    *STATE,
    elects(4),
    (1003, {**SET, "brokerId": 4, "brokerAddress": "127.0.0.1:44", "invokeTime": 0}, b""),
    (1003, {**SET, "brokerId": 2, "brokerAddress": "127.0.0.1:22", "invokeTime": 0}, b""),
    *STATE,
    cleans(),
    *STATE,
)
"""What an export does, with what it relies on being refused."""


def meaning(answer: Frame) -> dict[str, Any]:
    """What a mover reads: code, the fields that matter, the body without what only describes."""
    fields = answer.ext_fields or {}
    if answer.code != 0:
        return {"code": answer.code}
    body = msgspec.json.decode(quote_keys(answer.body)) if answer.body else {}
    if isinstance(body, dict):
        body.pop("brokerMemberGroup", None)
        for info in body.get("replicasInfoTable", {}).values():
            for replicas in ("inSyncReplicas", "notInSyncReplicas"):
                info[replicas].sort(key=lambda replica: replica["brokerId"])
    return {"code": 0, "body": body} | {name: fields[name] for name in COMPARED if name in fields}


def answers(address: str) -> list[dict[str, Any]]:
    with BlockingLink(address, timeout_ms=10_000) as link:
        return [meaning(link.ask(code, fields, body)) for code, fields, body in EXPORT]


def serves(leader: str) -> bool:
    """Whether it answers what only a leader answers; this reads, and changes nothing."""
    answer = asking.ask(leader, 1012, SET)
    return answer is not None and answer.code != RefusalCode.NOT_LEADER


@pytest.fixture
def java_controller(tmp_path: Path) -> Iterator[str]:
    """One real controller that leads."""
    if shutil.which("java") is None:
        pytest.skip("no Java on this machine")
    try:
        rocketmq = obtain()
    except JavaUnavailableError as error:
        pytest.skip(str(error))
    with JavaFleet(tmp_path / "java", rocketmq) as java:
        address = java.start_controllers(1)
        java.wait_listening("jc0", deadline_s=LEADER_DEADLINE_S)
        leader = asking.wait_leader(address, deadline_s=LEADER_DEADLINE_S)
        # It names itself as the leader a moment before it serves as one, and refuses orders until then.
        wait_until(lambda: serves(leader), deadline_s=LEADER_DEADLINE_S, what="a leader of Java that serves")
        yield leader
        # Told to end, a controller of Java takes ten seconds; nobody needs what it keeps.
        java.kill("jc0")


def test_fake_controllers_answer_as_java_does(java_controller: str) -> None:
    """Every step of an export, and what it must be refused."""
    fake = FakeControllers()
    with serving(fake.serve) as fake.address:
        expected = answers(fake.address)

    found = answers(java_controller)

    for request, ours, theirs in zip(EXPORT, expected, found, strict=True):
        assert ours == theirs, request
