"""Whoever speaks in the name of a RocketMQ replica: another host, another key, another kind of broker, a stranger."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from rollcall_ha.api.rocketmq.access.accounts import Account
from rollcall_ha.api.rocketmq.access.judging import AccessRules, RocketmqAccess
from rollcall_ha.api.rocketmq.controller.claims import SILENCE_MS, Claims
from rollcall_ha.api.rocketmq.controller.leader_check import LeaderCheck
from rollcall_ha.controller.contract.ids import BrokerId, BrokerName, ClusterName, ControllerName, SetKey
from rollcall_ha.controller.contract.principals import Principal, ProvedBy, Role
from rollcall_ha.controller.contract.session import LeaderHint
from rollcall_ha.controller.contract.timing import NS_PER_MS
from rollcall_ha.controller.runtime.service import ControllerService
from rollcall_ha.node.authority import Authority
from rollcall_ha.node.certified import CertifiedName, PeerKind
from rollcall_ha.node.remoting.secured import Door
from rollcall_ha.node.tls import Credentials, TlsFiles
from tests.support.rocketmq_wire import JavaPeer, Port, address_of, on_port, with_port
from tests.support.runtime_controller import until

NAMES = {"clusterName": "c1", "brokerName": "broker-z"}
ELECT = {**NAMES, "designateElect": False, "invokeTime": 1}
ALTER = {"brokerName": "broker-z", "masterBrokerId": 1, "masterEpoch": 1, "invokeTime": 1}
ALONE = b'{"syncStateSet":[1],"syncStateSetEpoch":2}'
ELSEWHERE = "127.0.0.2"
SECRET = "secret-of-brokers"
KEY = (SetKey(ClusterName("c1"), BrokerName("broker-z")), BrokerId(1))


async def pair(port: Port) -> tuple[JavaPeer, JavaPeer]:
    """Broker 1 is master, both are in the set."""
    first = await port.joined(1)
    first.beat(1)
    await until(lambda: port.set().replicas[0].positions is not None)
    assert (await first.request(1002, **ELECT, brokerId=1)).code == 0
    second = await port.joined(2)
    first.beat(1, epoch=1)
    second.beat(2)
    await until(lambda: port.set().replicas[1].positions is not None)
    both = b'{"syncStateSet":[1,2],"syncStateSetEpoch":1}'
    assert (await first.request(1001, both, **ALTER)).code == 0
    return first, second


def refused_hosts(port: Port) -> list[tuple[BrokerId | None, str]]:
    """As ``rollcall status`` names them, the newest first."""
    service = port.leader.service
    view = service.view_of(port.set().set_key)
    assert view is not None
    return [(one.broker_id, one.host) for one in service.refusals.of(view, service.now_ns())]


# --- an open port ----------------------------------------------------------------------------------------------------


@on_port()
async def test_words_from_another_host_move_nothing(port: Port) -> None:
    """A forged 1001 shrank the set to its master; a forged 904 kept a dead broker alive; a 1003 deposed the master."""
    first, _ = await pair(port)
    before = port.set()
    stranger = await port.peer(ELSEWHERE)
    for code, body, fields in (
        (1001, ALONE, ALTER),
        (1003, b"", {**NAMES, "brokerId": 1, "brokerAddress": f"{ELSEWHERE}:1", "invokeTime": 1}),
        (1002, b"", {**ELECT, "brokerId": 1}),
    ):
        answer = await stranger.request(code, body, **fields)
        assert (answer.code, "speaks from 127.0.0.1" in (answer.remark or "")) == (16, True), code
    session = port.leader.service.duties.sessions.get(before.set_key, BrokerId(2))
    assert session is not None
    heard_ns = session.heard_ns
    stranger.beat(2, epoch=1, maxOffset=7_000)
    await until(lambda: port.rocketmq.replicas.ignored["another host or name"] or session.heard_ns != heard_ns)
    assert session.heard_ns == heard_ns
    assert refused_hosts(port) == [(2, ELSEWHERE), (1, ELSEWHERE)], "a 904 has no answer: status names it"
    assert port.set() == before
    assert port.rocketmq.replicas.claims.refused == {"1001": 1, "1002": 1, "1003": 1, "904": 1}
    assert (await first.request(1001, ALONE, **ALTER)).code == 0


@on_port()
async def test_a_broker_speaks_on_all_its_connections(port: Port) -> None:
    """Heartbeats go to the addresses of its configuration, orders to the one that the leader told: two connections."""
    await pair(port)
    other = await port.peer()
    assert (await other.request(1001, ALONE, **ALTER)).code == 0


@on_port()
async def test_heartbeats_from_a_second_network_keep_the_master(port: Port) -> None:
    """On the wire: orders from one source address, 904 from another."""
    first = await port.joined(1)
    second = await port.peer("127.0.9.5")
    key = port.set().set_key, BrokerId(1)
    refused = port.rocketmq.replicas.claims.refused
    second.beat(1)
    await until(lambda: refused["904"])
    assert refused_hosts(port) == [(1, "127.0.9.5")], "its own host had no time for a heartbeat yet"
    claim = port.rocketmq.replicas.claims._claims[key]
    claim.since_ns -= 2 * SILENCE_MS * NS_PER_MS
    second.beat(1)
    await until(lambda: refused["904"] > 1 or port.set().replicas[0].positions is not None)
    assert refused["904"] == 1
    assert refused_hosts(port) == []
    assert (await first.request(1002, **ELECT, brokerId=1)).code == 0
    session = port.leader.service.duties.sessions.get(*key)
    assert session is not None
    heard_ns = session.heard_ns
    second.beat(1, epoch=1)
    await until(lambda: refused["904"] > 1 or session.heard_ns != heard_ns)
    assert refused["904"] == 1


def open_caller(host: str) -> Principal:
    return Principal(name="rocketmq", role=Role.ADMIN, proved_by=ProvedBy.NOTHING, address=f"{host}:40000")


def test_whoever_speaks_first_does_not_keep_the_broker_outside() -> None:
    """After a change of leader nobody has a claim: a stranger that is quick would be the broker."""
    for home, seen_as in (("10.0.0.5", "10.0.0.5"), ("10.0.0.5", "::ffff:10.0.0.5"), ("[fd00::5]", "fd00::5")):
        claims = Claims()
        for host, is_refused in (("10.0.0.9", False), (seen_as, False), ("10.0.0.9", True), (seen_as, False)):
            complaint = claims.refuse(KEY, open_caller(host), address=f"{home}:10911", now_ns=0, code=904)
            assert bool(complaint) == is_refused, (home, host)


class Asked:
    """Claims of one broker at home on 10.0.0.5, asked host by host."""

    def __init__(self) -> None:
        self.claims = Claims()

    def __call__(self, host: str, at_ms: int, code: int) -> str:
        now_ns = at_ms * NS_PER_MS
        return self.claims.refuse(KEY, open_caller(host), address="10.0.0.5:10911", now_ns=now_ns, code=code)


def test_a_broker_that_moves_registers_when_its_old_host_is_silent() -> None:
    ask = Asked()
    assert not ask("10.0.0.5", 0, 1003)
    assert ask("10.0.0.6", SILENCE_MS, 1003)
    assert ask("10.0.0.6", SILENCE_MS + 1, 1001)
    assert not ask("10.0.0.6", SILENCE_MS + 1, 1003)
    assert not ask("10.0.0.6", SILENCE_MS + 2, 1001)


NETWORK_B = "10.0.9.5"


def test_a_living_broker_on_two_networks_does_not_count_as_silent() -> None:
    """Its 904 came from another source address than its orders, and was not counted: it was deposed again and again."""
    ask = Asked()
    assert not ask("10.0.0.5", 0, 1003)
    assert ask(NETWORK_B, SILENCE_MS, 904), "its own host had no time for a heartbeat yet"
    for at_ms in (SILENCE_MS + 1, SILENCE_MS + 1_001, 60_000):
        assert not ask(NETWORK_B, at_ms, 904)
        assert not ask("10.0.0.5", at_ms, 1001)
        assert ask("10.0.9.6", at_ms, 904), "a third host"
        assert ask(NETWORK_B, at_ms, 1001), "an order from the second network"
        assert ask(NETWORK_B, at_ms, 1002)
    assert not ask("10.0.0.5", 60_001, 1003)
    assert ask(NETWORK_B, 60_002, 904), "another process may have another second network"


def test_a_broker_on_two_networks_is_heard_by_a_new_leader_whatever_comes_first() -> None:
    for first, second in (((NETWORK_B, 904), ("10.0.0.5", 1001)), (("10.0.0.5", 1001), (NETWORK_B, 904))):
        ask = Asked()
        assert not ask(first[0], 0, first[1])
        for code, host in ((second[1], second[0]), (904, NETWORK_B), (1001, "10.0.0.5")):
            assert not ask(host, SILENCE_MS + 1, code), (first, code)


def test_nobody_keeps_a_dead_broker_alive_that_sent_its_own_heartbeats() -> None:
    """A second network is believed only of a broker whose own host sends none."""
    ask = Asked()
    assert not ask("10.0.0.5", 0, 1003)
    assert not ask("10.0.0.5", 1, 904)
    for at_ms in (2, SILENCE_MS + 2, 100_000):
        assert ask(NETWORK_B, at_ms, 904)
    assert ask.claims.refused == {"904": 3}
    # A stranger that was quicker after a change of leader is put out by the broker's first own heartbeat.
    ask = Asked()
    for host, is_refused in ((NETWORK_B, False), ("10.0.0.5", False), (NETWORK_B, True)):
        assert bool(ask(host, 0, 904)) == is_refused


# --- signed ----------------------------------------------------------------------------------------------------------


def signed_access(*sets: str) -> RocketmqAccess:
    account = Account(secret=SECRET, role=Role.BROKER, sets=sets)
    return RocketmqAccess(AccessRules(takes_plain=True, accounts={"broker-key": account}))


@on_port(access=signed_access("broker-z"))
async def test_a_broker_that_signs_is_served_and_on_record(port: Port) -> None:
    """All that a broker asks, signed; the same without a signature, or with another secret, is refused with 16."""
    signing = await port.peer(secret=SECRET)
    address = address_of(1)
    for peer, code in ((signing, 0), (await port.peer(), 16), (await port.peer(secret="guessed"), 16)):
        assert (await peer.request(1012, **NAMES)).code == code
        fields = {"appliedBrokerId": 1, "registerCheckCode": f"{address};1"}
        assert (await peer.request(1013, **NAMES, **fields)).code == code
        fields = {"brokerId": 1, "brokerAddress": address, "invokeTime": 1}
        assert (await peer.request(1003, **NAMES, **fields)).code == code
    (await port.peer()).beat(1, maxOffset=7_000)
    await until(lambda: port.access.refused["not signed"] == 4)
    assert port.set().replicas[0].positions is None
    signing.beat(1)
    await until(lambda: port.set().replicas[0].positions is not None)
    assert (await signing.request(1002, **ELECT, brokerId=1)).code == 0
    elsewhere = await port.peer(ELSEWHERE, secret=SECRET)
    assert (await elsewhere.request(1001, b'{"syncStateSet":[1],"syncStateSetEpoch":1}', **ALTER)).code != 16
    assert port.access.refused == {"not signed": 4, "signature": 3}


@on_port(access=signed_access("broker-y"))
async def test_a_key_of_one_set_does_not_speak_for_another(port: Port) -> None:
    peer = await port.peer(secret=SECRET)
    answer = await peer.request(1013, **NAMES, appliedBrokerId=1, registerCheckCode="x;1")
    assert (answer.code, answer.remark) == (
        16,
        "broker:broker-key may speak for broker-y; this request names broker-z",
    )


# --- certificates ----------------------------------------------------------------------------------------------------


@pytest.fixture
def credentials(tmp_path: Path) -> dict[str, Credentials]:
    """Of a controller, and of brokers of two sets."""
    authority = Authority.create("c1")
    authority.write(tmp_path / "ca.pem", tmp_path / "ca.key")
    found = {}
    for name, kind, key in (
        ("c1", PeerKind.CONTROLLER, ""),
        ("c2", PeerKind.CONTROLLER, ""),
        ("broker-z", PeerKind.BROKER, "c1/broker-z"),
        ("broker-y", PeerKind.BROKER, "c1/broker-y"),
    ):
        pair = (tmp_path / f"{name}.pem", tmp_path / f"{name}.key")
        authority.issue(CertifiedName(fleet="c1", kind=kind, name=name, set_key=key), hosts=["localhost"]).write(*pair)
        files = TlsFiles(authority=tmp_path / "ca.pem", certificate=pair[0], key=pair[1])
        found[name] = Credentials(files, fleet="c1", name=None)
    return found


def test_a_certificate_of_another_set_is_no_broker_of_this_one(
    tmp_path: Path, credentials: dict[str, Credentials]
) -> None:
    """And nobody without one comes, where the fleet file says nothing of RocketMQ."""

    async def scenario(port: Port) -> None:
        fields = {"appliedBrokerId": 1, "registerCheckCode": "x;1"}
        for name, code in (("broker-y", 16), ("broker-z", 0)):
            peer = await port.peer(tls=credentials[name].client_context())
            assert (await peer.request(1013, **NAMES, **fields)).code == code
        assert port.set().replicas[0].owner == "broker-z"
        assert port.access.refused == {"set": 1}

    with_port(tmp_path, scenario, door=Door(credentials=credentials["c1"]))


class Follower:
    """As much of a follower's service as the question for the leader needs."""

    def __init__(self, leader: str, address: str) -> None:
        self.hint = LeaderHint(
            controller=ControllerName("c2"),
            leader=ControllerName(leader),
            leader_broker_address=address,
            term=1,
        )

    def leader_hint(self) -> LeaderHint:
        return self.hint

    def now_ns(self) -> int:
        return 0


def test_a_follower_proves_itself_to_the_leader_that_it_names(
    tmp_path: Path, credentials: dict[str, Credentials]
) -> None:
    """It asked plain: in a fleet with certificates no follower named a leader, and mqadmin was sent to null."""

    async def scenario(port: Port) -> None:
        for leader, found in (("c1", "c1"), ("c3", None)):
            service = cast("ControllerService", Follower(leader, f"127.0.0.1:{port.number}"))
            check = LeaderCheck(service, credentials["c2"])
            assert await check.confirmed() == found
            await check.stop()

    with_port(tmp_path, scenario, door=Door(credentials=credentials["c1"]))
