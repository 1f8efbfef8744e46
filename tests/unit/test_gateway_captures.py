"""
Every captured frame that a controller answers, replayed on the broker port in both header forms.

What a Java controller answered in the same state is compared with our answer field by field: code, flag, opaque,
header fields, remark, body. Where ours is another on purpose, the test says so, and DIVERGENCE.md why.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from rollcall_ha.node.remoting.fastjson import quote_keys
from rollcall_ha.node.remoting.frame import Frame, HeaderForm, decode_frame
from tests.support.rocketmq_wire import (
    CAPTURES,
    JavaListener,
    JavaPeer,
    Port,
    address_of,
    captured,
    silenced,
    with_port,
)
from tests.support.runtime_controller import until

FORMS = pytest.mark.parametrize("form", HeaderForm)
NAMES = {"clusterName": "c1", "brokerName": "broker-z"}

Scenario = Callable[[Port], Awaitable[None]]


def document(body: bytes) -> Any:
    """A body as Java would read it; None if there is none."""
    return json.loads(quote_keys(body)) if body else None


def assert_same(ours: Frame, java: Frame, *, fields: dict[str, str] | None = None, remark: str | None = None) -> None:
    """Field by field. ``fields``, ``remark``: what ours says instead."""
    assert ours.code == java.code
    assert ours.flag == java.flag == 1
    assert (ours.ext_fields or {}) == ((java.ext_fields or {}) if fields is None else fields)
    assert ours.remark == (java.remark if remark is None else remark)
    assert document(ours.body) == document(java.body)


def captured_bytes(title: str) -> bytes:
    """As they were on the wire."""
    (found,) = (entry["hex"] for entry in json.loads(CAPTURES.read_text()) if entry["title"] == title)
    return bytes.fromhex(found)


def run(directory: Path, scenario: Scenario, form: HeaderForm) -> None:
    with_port(directory, scenario, form=form)


async def mastered(port: Port) -> JavaPeer:
    """Broker 1 is master in epoch 1."""
    peer = await port.joined(1)
    assert (await peer.request(1002, **NAMES, brokerId=1, designateElect=False, invokeTime=1)).code == 0
    return peer


async def paired(port: Port) -> tuple[JavaPeer, JavaPeer]:
    """And broker 2 follows it: registered, heard, not in the set."""
    first = await mastered(port)
    second = await port.joined(2)
    first.beat(1, epoch=1)
    second.beat(2)
    await until(lambda: all(replica.positions is not None for replica in port.set().replicas))
    return first, second


@FORMS
def test_start_of_a_java_broker(tmp_path: Path, form: HeaderForm) -> None:
    """In the order in which a broker with an empty disk sends it: each is answered as Java needs it."""

    async def scenario(port: Port) -> None:
        peer = await port.peer()
        found = await peer.ask(captured("1005 CONTROLLER"))
        address = (found.ext_fields or {})["controllerLeaderAddress"]
        assert found.ext_fields == {
            "controllerLeaderAddress": address, "controllerLeaderId": "c1", "group": "demo", "isLeader": "true",
            "peers": f"c1:{address};",
        }  # fmt: skip
        names = {"clusterName": "c1", "brokerName": "broker-a"}
        assert (await peer.ask(captured("1012 GET_NEXT"))).ext_fields == names | {"nextBrokerId": "1"}
        assert (await peer.ask(captured("1013 APPLY"))).ext_fields == names
        registered = await peer.ask(captured("1003 REGISTER"))
        assert (registered.code, registered.ext_fields) == (0, names)
        assert document(registered.body) == {"syncStateSet": [], "syncStateSetEpoch": 0}
        elected = await peer.ask(captured("1002 ELECT_MASTER"))
        assert (elected.code, (elected.ext_fields or {})["masterEpoch"]) == (0, "1")
        peer.tell(captured("904 heartbeat"))
        info = await peer.ask(captured("1004 GET"))
        assert info.ext_fields == {"masterAddress": "127.0.0.1:31911", "masterBrokerId": "1", "masterEpoch": "1"}
        await until(lambda: port.set("broker-a").has_entered)
        # A 904 is never answered: the next answer on the link was that to 1004.
        refused = await peer.ask(captured("1001 ALTER"))
        assert (refused.code, refused.ext_fields) == (2003, {"newSyncStateSetEpoch": "0"})

    run(tmp_path, scenario, form)


@FORMS
def test_registration_of_release_5_1_4(tmp_path: Path, form: HeaderForm) -> None:
    """Without invokeTime; to a set that has nobody of that id it says 2010, for which the broker has a remedy."""

    async def scenario(port: Port) -> None:
        peer = await port.peer()
        frame = captured("1003 as 5.1.4")
        assert (await peer.ask(frame)).code == 2010
        await port.joined(1, name="broker-o", address="127.0.0.1:31941")
        assert (await peer.ask(frame)).code == 0

    run(tmp_path, scenario, form)


@FORMS
def test_1005(tmp_path: Path, form: HeaderForm) -> None:
    """The same fields; names and addresses are the fleet's."""

    async def scenario(port: Port) -> None:
        ours, java = await (await port.peer()).ask(captured("1005 CONTROLLER")), captured("to 1005")
        assert (ours.ext_fields or {}).keys() == (java.ext_fields or {}).keys()
        assert_same(replace(ours, ext_fields=java.ext_fields), java)

    run(tmp_path, scenario, form)


@FORMS
def test_1012_and_1013(tmp_path: Path, form: HeaderForm) -> None:
    """An unknown set's next id is 1; who asks for an id that is taken hears 2014."""

    async def scenario(port: Port) -> None:
        peer = await port.peer()
        assert_same(await peer.request(1012, **NAMES), captured("to 1012, unknown set"))
        await port.joined(1)
        taken = await peer.request(1013, **NAMES, appliedBrokerId=1, registerCheckCode="127.0.0.1:9;1")
        assert_same(taken, captured("to 1013, id taken"))
        again = f"{address_of(1)};1795220982059"
        assert (await peer.request(1013, **NAMES, appliedBrokerId=1, registerCheckCode=again)).code == 0
        free = await peer.request(1013, **NAMES, appliedBrokerId=7, registerCheckCode="127.0.0.1:9;1")
        assert free.code == 2014

    run(tmp_path, scenario, form)


@FORMS
def test_1003(tmp_path: Path, form: HeaderForm) -> None:
    """No master fields before there is a living master; all four then."""

    async def scenario(port: Port) -> None:
        peer = await port.joined(1)
        fields = {**NAMES, "brokerAddress": address_of(1), "invokeTime": 1}
        assert_same(await peer.request(1003, **fields, brokerId=1), captured("to 1003, no master yet"))
        await peer.request(1002, **NAMES, brokerId=1, designateElect=False, invokeTime=1)
        assert_same(await peer.request(1003, **fields, brokerId=1), captured("to 1003, master alive"))

    run(tmp_path, scenario, form)


@pytest.mark.slow
@FORMS
def test_1002(tmp_path: Path, form: HeaderForm) -> None:
    """Elected, and still alive: both with the SyncStateSet in the body, without which a broker asks for ever."""

    async def scenario(port: Port) -> None:
        peer = await port.joined(1)
        fields = {**NAMES, "brokerId": 1, "invokeTime": 1}
        assert_same(await peer.request(1002, **fields, designateElect=False), captured("to 1002, elected"))
        again = captured("to 1002, master still alive")
        assert_same(await peer.request(1002, **fields, designateElect=False), again)
        assert_same(await peer.request(1002, **fields, designateElect=True), again)
        frame = captured("1002 electMaster, designated")
        elsewhere = await peer.ask(frame)
        assert (frame.ext_fields or {})["brokerName"] == "broker-a"
        assert elsewhere.code == 2010

    run(tmp_path, scenario, form)


@FORMS
def test_1004(tmp_path: Path, form: HeaderForm) -> None:
    """Master, epoch and set; an unknown name is 2008, on which a broker registers again."""

    async def scenario(port: Port) -> None:
        peer = await mastered(port)
        assert_same(await peer.request(1004, brokerName="broker-z"), captured("to 1004"))
        assert_same(await peer.request(1004, brokerName="broker-y"), captured("to 1004, unknown"))

    run(tmp_path, scenario, form)


@FORMS
def test_1001(tmp_path: Path, form: HeaderForm) -> None:
    """Accepted with the next epoch; a member that is silent is named in the refusal, whose epoch is 0."""

    async def scenario(port: Port) -> None:
        first, _ = await paired(port)
        fields = {"brokerName": "broker-z", "masterBrokerId": 1, "masterEpoch": 1, "invokeTime": 1}
        body = b'{"syncStateSet":[1,2],"syncStateSetEpoch":1}'
        await silenced(port, port.set().replicas[1])
        assert_same(await first.request(1001, body, **fields), captured("to 1001, member not alive"))
        await port.joined_again(2)
        assert_same(await first.request(1001, body, **fields), captured("to 1001"))
        # What was lost on its way is asked again (R1).
        assert_same(await first.request(1001, body, **fields), captured("to 1001"))

    run(tmp_path, scenario, form)


@FORMS
def test_1006(tmp_path: Path, form: HeaderForm) -> None:
    """
    The last member of a set without a master, silent.

    masterEpoch is another one: RocketMQ counts every failed attempt of an election as an epoch (W28).
    """

    async def scenario(port: Port) -> None:
        first, second = await paired(port)
        fields = {"brokerName": "broker-z", "masterBrokerId": 1, "masterEpoch": 1, "invokeTime": 1}
        await first.request(1001, b'{"syncStateSet":[1,2],"syncStateSetEpoch":1}', **fields)
        await silenced(port, port.set().replicas[0])
        await until(lambda: port.set().master == 2)
        first.close()
        cleaned = await second.request(1011, **NAMES, brokerControllerIdsToClean="1", isCleanLivingBroker=False)
        assert cleaned.code == 0
        again = await port.peer()
        await again.request(1003, **NAMES, brokerId=2, brokerAddress=address_of(2), invokeTime=1)
        await silenced(port, port.set().replicas[0])
        java = captured("to 1006")
        table = document(java.body)["replicasInfoTable"]["broker-z"]
        mine = {"masterEpoch": port.set().master_epoch, "syncStateSetEpoch": port.set().sync_state_set_epoch}
        java = replace(java, body=msgspec.json.encode({"replicasInfoTable": {"broker-z": table | mine}}))
        assert_same(await again.request(1006, b'["broker-z","broker-y"]'), java)
        asked = await again.ask(captured("1006 getSyncStateSet"))
        assert document(asked.body) == {"replicasInfoTable": {}}

    run(tmp_path, scenario, form)


@pytest.mark.slow
@FORMS
def test_1008(tmp_path: Path, form: HeaderForm) -> None:
    """
    What the survivor is told when the first master is gone: fields and body are those that a Java controller pushes.

    Ours is a request and no one-way (flag 0, not 2): its answer tells that the role was applied.
    """

    async def scenario(port: Port) -> None:
        winner = JavaListener(ha_address="127.0.0.1:7")
        address = await port.listener(winner)
        first = await mastered(port)
        first.beat(1, epoch=1)
        second = await port.joined(2, address=address)
        second.beat(2, brokerAddr=address)
        await until(lambda: all(replica.positions is not None for replica in port.set().replicas))
        fields = {"brokerName": "broker-z", "masterBrokerId": 1, "masterEpoch": 1, "invokeTime": 1}
        assert (await first.request(1001, b'{"syncStateSet":[1,2],"syncStateSetEpoch":1}', **fields)).code == 0
        first.close()
        await silenced(port, port.set().replicas[0])
        java = captured("1008 NOTIFY")

        def pushed() -> list[Frame]:
            epoch = (java.ext_fields or {})["masterEpoch"]
            return [f for f in winner.pushed if f.code == 1008 and (f.ext_fields or {})["masterEpoch"] == epoch]

        await until(pushed)
        (ours,) = pushed()
        assert ours.ext_fields == (java.ext_fields or {}) | {"masterAddress": address}
        assert document(ours.body) == document(java.body)
        assert (ours.flag, java.flag) == (0, 2)

    run(tmp_path, scenario, form)


@FORMS
def test_1010(tmp_path: Path, form: HeaderForm) -> None:
    """Lines ``key=value``: mqadmin fails without a body."""

    async def scenario(port: Port) -> None:
        answer = await (await port.peer()).ask(captured("1010 getControllerConfig"))
        lines = answer.body.decode().splitlines()
        assert answer.code == 0
        assert "controllerDLegerGroup=demo" in lines
        assert lines == sorted(lines)

    run(tmp_path, scenario, form)


@FORMS
def test_1011(tmp_path: Path, form: HeaderForm) -> None:
    """A living replica is not cleaned; an unknown set cannot be."""

    async def scenario(port: Port) -> None:
        _, second = await paired(port)
        fields = {**NAMES, "brokerControllerIdsToClean": "2", "isCleanLivingBroker": False, "invokeTime": 1}
        assert_same(await second.request(1011, **fields), captured("to 1011, id alive"))
        assert (await second.ask(captured("1011 cleanBrokerMetadata"))).code == 2009

    run(tmp_path, scenario, form)


def test_request_in_the_binary_form(tmp_path: Path) -> None:
    """A broker with binary headers, its bytes as they came: the answer comes in the form of the question."""

    async def scenario(port: Port) -> None:
        peer = await port.peer()
        raw = captured_bytes("1012 request")
        peer.writer.write(raw)
        answer = await peer.answer(decode_frame(raw[4:]).opaque)
        assert (answer.code, answer.form) == (0, HeaderForm.BINARY)
        assert answer.ext_fields == {"clusterName": "c1", "brokerName": "broker-s", "nextBrokerId": "1"}

    run(tmp_path, scenario, HeaderForm.BINARY)


def test_every_capture_of_a_controller_is_replayed() -> None:
    """A capture that is added and not replayed would look as if it were."""
    here = Path(__file__).read_text()
    titles = [entry["title"] for entry in json.loads(CAPTURES.read_text()) if entry["section"] in "123"]
    asked = re.findall(r'captured\("([^"]+)"\)', here)
    assert len(titles) == 28
    assert [title for title in titles if not any(title.startswith(begin) for begin in asked)] == []


def test_unknown_code(tmp_path: Path) -> None:
    """Answered as RocketMQ answers it. A code above 32767 cannot travel in the binary header."""

    async def scenario(port: Port) -> None:
        assert_same(await (await port.peer()).request(9999), captured("to an unknown code"))

    run(tmp_path, scenario, HeaderForm.JSON)
    run(tmp_path / "binary", scenario, HeaderForm.BINARY)
