"""How a broker dials its controllers: one name with several addresses, IPv6, certificates, and their revocation."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from rollcall_ha.broker.core.registration import Registration
from rollcall_ha.broker.core.session import SessionMachine
from rollcall_ha.broker.session import ControllerSession, SessionOwner
from rollcall_ha.controller.contract.codes import RequestCode
from rollcall_ha.controller.contract.ids import BrokerName, ClusterName, ControllerName, SetKey
from rollcall_ha.controller.contract.session import LeaderHint
from rollcall_ha.controller.contract.timing import PRESETS, Preset
from rollcall_ha.controller.contract.values import Positions
from rollcall_ha.deploy.local.processes import free_ports
from rollcall_ha.node.certified import CertifiedName, PeerKind
from rollcall_ha.node.remoting.connection import RemotingConnection, RemotingServer
from rollcall_ha.node.remoting.frame import Frame
from rollcall_ha.node.remoting.names import addresses_of, looked_up
from rollcall_ha.node.remoting.secured import Door
from rollcall_ha.node.tls import Credentials
from tests.support.frames import QuietHandler
from tests.support.raft_certs import make_certificates, more_credentials, named
from tests.support.runtime_controller import until

TIMING = PRESETS[Preset.FAST]
KEY = SetKey(ClusterName("test"), BrokerName("broker-a"))
NAME = "controllers.example"
CONTROLLER = named(PeerKind.CONTROLLER, "c1")
BROKER = named(PeerKind.BROKER, "broker-a-1", set_key=str(KEY))


class Leaderless(QuietHandler):
    """A controller that knows of no leader: each question for one is counted."""

    leader: ControllerName | None = None
    leader_address: str | None = None

    def __init__(self) -> None:
        self.asked = 0

    def handle_requests(self, connection: RemotingConnection, frames: Sequence[Frame]) -> None:
        hint = LeaderHint(
            controller=ControllerName("c1"), leader=self.leader, leader_broker_address=self.leader_address, term=1
        )
        for frame in frames:
            assert frame.code == RequestCode.FIND_LEADER
            self.asked += 1
            connection.respond(frame, 0, body=msgspec.json.encode(hint))


class Nobody:
    """An owner and a registration to whom nothing happens: no session opens."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


def session_with(addresses: tuple[str, ...], credentials: Credentials | None) -> ControllerSession:
    machine = SessionMachine(
        addresses=addresses,
        registration=cast("Registration", Nobody()),
        timing=TIMING,
        holdings=lambda: (cast("Positions", None), None),
    )
    return ControllerSession(
        machine=machine,
        owner=cast("SessionOwner", Nobody()),
        set_key=KEY,
        timing=TIMING,
        now_us=lambda: 0,
        held_since_us=0,
        credentials=credentials,
    )


def running(scenario: Callable[[int], Awaitable[None]], names: dict[str, list[str]] | None = None) -> None:
    """On a loop whose resolver knows these names alone."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        real = loop.getaddrinfo

        async def getaddrinfo(host: Any, port: Any, **options: Any) -> Any:
            known = (names or {}).get(str(host))
            if known is None:
                return await real(host, port, **options)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in known]

        loop.getaddrinfo = getaddrinfo  # type: ignore[method-assign]
        (number,) = free_ports(1)
        await scenario(number)

    asyncio.run(main())


async def listening(host: str, number: int, credentials: Credentials | None) -> tuple[Leaderless, RemotingServer]:
    handler = Leaderless()
    server = RemotingServer(handler, door=None if credentials is None else Door(credentials=credentials))
    await server.start(host, number)
    return handler, server


def test_a_name_is_tried_with_each_of_its_addresses(tmp_path: Path) -> None:
    """The first is down, at the second listens a broker of the fleet: the third is the controller."""
    make_certificates(tmp_path, [])
    ours = more_credentials(tmp_path, BROKER)

    async def scenario(number: int) -> None:
        thief, at_thief = await listening("127.0.0.2", number, ours)
        controller, at_controller = await listening("127.0.0.3", number, more_credentials(tmp_path, CONTROLLER))
        session = session_with((f"{NAME}:{number}",), ours)
        session.start()
        await until(lambda: controller.asked >= 2)
        assert thief.asked == 0
        await session.stop("seen")
        await asyncio.gather(at_thief.stop(), at_controller.stop())

    running(scenario, {NAME: ["127.0.0.1", "127.0.0.2", "127.0.0.3"]})


def test_the_addresses_of_a_name_are_begun_with_in_turn() -> None:
    async def scenario(number: int) -> None:
        address = f"{NAME}:{number}"
        first, second = [await addresses_of(address, first=first, timeout_ms=1_000) for first in (0, 4)]
        assert first == (f"10.0.0.1:{number}", f"10.0.0.2:{number}", f"10.0.0.3:{number}")
        assert second == (f"10.0.0.2:{number}", f"10.0.0.3:{number}", f"10.0.0.1:{number}")
        assert await addresses_of("[::1]:80", timeout_ms=1) == ("[::1]:80",)

    running(scenario, {NAME: ["10.0.0.1", "10.0.0.2", "10.0.0.3"]})


@pytest.mark.parametrize("host", ["a..b", "x" * 80, "nobody.invalid"])
def test_a_name_that_is_none_costs_a_dial_and_not_the_process(host: str) -> None:
    async def scenario(number: int) -> None:
        with pytest.raises(OSError, match=r"\w"):
            await addresses_of(f"{host}:{number}", timeout_ms=5_000)

    running(scenario)


@pytest.mark.parametrize("address", ["", "nowhere", "c9:0", "c9:x"])
def test_a_leader_at_an_address_that_is_none_costs_a_dial_and_not_the_process(address: str) -> None:
    """A controller whose place in the log names no broker port led, and each broker that was sent there ended."""

    async def scenario(number: int) -> None:
        controller, at_controller = await listening("127.0.0.1", number, None)
        controller.leader, controller.leader_address = ControllerName("c9"), address
        session = session_with((f"127.0.0.1:{number}",), None)
        session.start()
        await until(lambda: controller.asked >= 2)
        await session.stop("seen")
        await at_controller.stop()

    running(scenario)


@pytest.mark.parametrize("host", ["::1", "127.0.0.1"])
@pytest.mark.parametrize("is_secured", [True, False])
def test_controllers_are_dialled_at_addresses_of_both_families(tmp_path: Path, host: str, is_secured: bool) -> None:
    make_certificates(tmp_path, [])

    def of(name: CertifiedName) -> Credentials | None:
        return more_credentials(tmp_path, name) if is_secured else None

    async def scenario(number: int) -> None:
        controller, port = await listening(host, number, of(CONTROLLER))
        address = f"[{host}]:{number}" if ":" in host else f"{host}:{number}"
        session = session_with((address,), of(BROKER))
        session.start()
        await until(lambda: controller.asked >= 1)
        await session.stop("seen")
        await port.stop()

    running(scenario)


def test_a_controller_whose_certificate_is_revoked_is_hung_up_on_and_not_asked_again(tmp_path: Path) -> None:
    make_certificates(tmp_path, [])
    ours, theirs = more_credentials(tmp_path, BROKER), more_credentials(tmp_path, CONTROLLER)

    async def scenario(number: int) -> None:
        controller, port = await listening("127.0.0.1", number, theirs)
        session = session_with((f"127.0.0.1:{number}",), ours)
        session.start()
        await until(lambda: controller.asked >= 1)
        ours.revoke({theirs.own.serial})
        asked = controller.asked
        closed = port.links.closed_by_cause.total()
        await until(lambda: port.links.closed_by_cause.total() >= closed + 2)
        assert controller.asked <= asked + 1, "a question may have been under way"
        await session.stop("seen")
        await port.stop()

    running(scenario)


@pytest.mark.parametrize("is_slow", [True, False], ids=["a name server that hangs", "a name server that refuses"])
def test_a_name_keeps_its_addresses_while_no_name_server_answers(is_slow: bool) -> None:
    """A failover in an outage of name servers: the slave would have looked for its new master in vain."""

    async def scenario(number: int) -> None:
        loop, asked = asyncio.get_running_loop(), 0
        known = await looked_up(NAME, number, timeout_ms=1_000)
        never = loop.create_future()

        async def dead(*_: object, **__: object) -> Any:
            nonlocal asked
            asked += 1
            if is_slow:
                await never
            raise OSError("no name server")

        loop.getaddrinfo = dead  # type: ignore[method-assign]
        for _ in range(3):
            try:
                assert await looked_up(NAME, number, timeout_ms=20) == known
            except (OSError, TimeoutError) as error:
                pytest.fail(f"forgotten: {error!r}")
            assert await addresses_of(f"{NAME}:{number}", timeout_ms=20) == (f"127.0.0.9:{number}",)
        assert asked == (1 if is_slow else 6)
        with pytest.raises((OSError, TimeoutError)):
            await looked_up("another", number, timeout_ms=20)
        never.cancel()

    running(scenario, {NAME: ["127.0.0.9"]})


def test_a_dial_that_was_lost_in_a_cut_outlasted_the_patience_of_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    All controllers were cut off for a while. The last dial into the cut ended a second later, and by then a healthy
    master had been found silent and replaced.
    """
    limits_ms: list[int] = []

    async def connect(*_address: object, timeout_ms: int, **_named: object) -> None:
        limits_ms.append(timeout_ms)
        raise TimeoutError

    async def scenario(number: int) -> None:
        session = session_with((f"127.0.0.1:{number}",), None)
        session.start()
        await until(lambda: len(limits_ms) >= 2)
        await session.stop("seen")
        assert set(limits_ms) == {TIMING.heartbeat_timeout_ms // 2}

    monkeypatch.setattr("rollcall_ha.broker.session.connect", connect)
    running(scenario)


@pytest.mark.parametrize("preset", list(Preset))
def test_a_dial_leaves_the_leader_half_of_its_patience(preset: Preset) -> None:
    timing = PRESETS[preset]
    assert 2 * timing.session_dial_timeout_ms <= timing.heartbeat_timeout_ms
    assert timing.session_dial_timeout_ms <= timing.session_rpc_timeout_ms
