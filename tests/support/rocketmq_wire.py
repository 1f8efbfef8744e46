"""One controller with its broker port open, and the Java ends of the wire: raw frames in, decoded answers out."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from rollcall_ha.api.broker_port.port import BrokerPortServer
from rollcall_ha.api.rocketmq.access.judging import AccessRules, RocketmqAccess
from rollcall_ha.api.rocketmq.access.signatures import signature_of
from rollcall_ha.api.rocketmq.controller.assembly import RocketmqController
from rollcall_ha.controller.contract.commands import MarkSilent
from rollcall_ha.controller.contract.ids import RequestId
from rollcall_ha.controller.contract.replies import SetView
from rollcall_ha.controller.contract.values import SilenceCause
from rollcall_ha.controller.core.state import ReplicaState, SetState
from rollcall_ha.controller.runtime.service import ControllerService
from rollcall_ha.deploy.local.processes import free_ports
from rollcall_ha.node.remoting.connection import RemotingConnection, RemotingServer
from rollcall_ha.node.remoting.frame import Frame, HeaderForm, encode_frame
from rollcall_ha.node.remoting.secured import Door
from tests.support.frames import FrameDecoder, QuietHandler
from tests.support.runtime_controller import NAMES, Controller, Group, running_group, until
from tests.support.scenarios import player

CAPTURES = Path(__file__).parents[1] / "interop" / "captures.json"
ANSWER_S_MAX = 30.0
"""A Java broker waits 3 s; a test waits for as long as a busy machine may take."""


def captured(title: str) -> Frame:
    """The captured frame of a controller's link whose title begins so, or is just that."""
    entries = [entry for entry in json.loads(CAPTURES.read_text()) if entry["section"] in "123"]
    found = [entry for entry in entries if entry["title"] == title] or [
        entry for entry in entries if entry["title"].startswith(title)
    ]
    assert len(found) == 1, [entry["title"] for entry in found]
    (frame,) = FrameDecoder().feed(bytes.fromhex(found[0]["hex"]))
    return frame


@dataclass(slots=True)
class JavaPeer:
    """A Java process's connection to the controller, frame by frame."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    form: HeaderForm = HeaderForm.JSON
    secret: str = ""
    """Of its access key ``broker-key``; empty: it signs nothing."""
    _decoder: FrameDecoder = field(default_factory=FrameDecoder)

    async def ask(self, frame: Frame) -> Frame:
        """Send ``frame`` in this peer's header form; its answer. Raises ``TimeoutError`` as a Java broker would."""
        self.writer.write(encode_frame(replace(frame, form=self.form, rpc_name=None)))
        return await self.answer(frame.opaque)

    async def answer(self, opaque: int) -> Frame:
        """The next frame, which must be the answer to ``opaque``."""
        async with asyncio.timeout(ANSWER_S_MAX):
            while True:
                data = await self.reader.read(65_536)
                assert data, "the controller closed the connection"
                frames = self._decoder.feed(data)
                if frames:
                    (frame,) = frames
                    assert frame.opaque == opaque
                    assert frame.is_response
                    return frame

    def tell(self, frame: Frame) -> None:
        """Send a one-way."""
        self.writer.write(encode_frame(replace(frame, form=self.form, rpc_name=None)))

    async def request(self, code: int, body: bytes = b"", /, **fields: object) -> Frame:
        """Ask with these header fields."""
        return await self.ask(self._signed(_frame(code, body, fields)))

    def beat(self, broker_id: int, /, **fields: object) -> None:
        """A 904 as Java 5.3.3 sends it; ``fields`` replace what is usual."""
        usual = {
            "brokerId": broker_id, "clusterName": "c1", "brokerName": "broker-z", "brokerAddr": address_of(broker_id),
            "epoch": -1, "maxOffset": 0, "confirmOffset": 0, "heartbeatTimeoutMills": 10_000,
            "electionPriority": 2_147_483_647,
        }  # fmt: skip
        self.tell(replace(self._signed(_frame(904, b"", usual | fields)), flag=2))

    def _signed(self, frame: Frame) -> Frame:
        if not self.secret:
            return frame
        fields = {**(frame.ext_fields or {}), "AccessKey": "broker-key"}
        return replace(frame, ext_fields=fields | {"Signature": signature_of(self.secret, fields, frame.body)})

    def close(self) -> None:
        """Close the connection."""
        self.writer.close()


def _frame(code: int, body: bytes, fields: dict[str, object]) -> Frame:
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in fields.items()}
    return Frame(code=code, opaque=77, body=body, ext_fields=texts or None, language="JAVA", version=479)


def address_of(broker_id: int) -> str:
    """Where that broker says it listens."""
    return f"127.0.0.1:{31_997 + broker_id}"


@dataclass(slots=True)
class JavaListener(QuietHandler):
    """A Java broker's listen port: keeps what was pushed, and answers it as Java does."""

    ha_address: str = ""
    """Answered to 906 without an address; empty: not master."""
    pushed: list[Frame] = field(default_factory=list)
    _server: RemotingServer | None = None

    async def start(self, number: int | None = None) -> str:
        """Listen, on any port if none is given; returns host:port."""
        if number is None:
            (number,) = free_ports(1)
        self._server = RemotingServer(self)
        await self._server.start("127.0.0.1", number)
        return f"127.0.0.1:{number}"

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            await self._server.stop()

    def handle_requests(self, connection: RemotingConnection, frames: Sequence[Frame]) -> None:
        for frame in frames:
            if frame.code not in (906, 1008):
                connection.respond(frame, 3, remark=f" request type {frame.code} not supported")
                continue
            self.pushed.append(frame)
            is_question = frame.code == 906 and not frame.ext_fields
            fields = {"masterHaAddress": self.ha_address, "masterFlushOffset": "0"} if self.ha_address else {}
            connection.respond(frame, 0, ext_fields=fields if is_question else None)


@dataclass(slots=True, kw_only=True)
class Port:
    """One controller, leading, with its port open."""

    group: Group
    leader: Controller
    gateway: BrokerPortServer
    rocketmq: RocketmqController
    number: int
    access: RocketmqAccess
    form: HeaderForm = HeaderForm.JSON
    _peers: list[JavaPeer] = field(default_factory=list)
    _listeners: list[JavaListener] = field(default_factory=list)

    async def listener(self, listener: JavaListener) -> str:
        """Let it listen until the scenario ends; its host:port."""
        self._listeners.append(listener)
        return await listener.start()

    async def peer(self, host: str = "127.0.0.1", *, tls: ssl.SSLContext | None = None, secret: str = "") -> JavaPeer:
        """A further Java process, which dials from ``host`` and signs as ``broker-key`` if it has a secret."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.number, local_addr=(host, 0), ssl=tls, server_hostname="" if tls is not None else None
        )
        self._peers.append(JavaPeer(reader, writer, self.form, secret))
        return self._peers[-1]

    def view(self) -> SetView:
        """What brokers and operators see of broker-z."""
        view = self.leader.service.view_of(self.set().set_key)
        assert view is not None
        return view

    def set(self, name: str = "broker-z") -> SetState:
        """Its newest applied state."""
        found = self.rocketmq.replicas.find(name)
        assert found is not None
        return found

    async def joined_again(self, broker_id: int) -> JavaPeer:
        """A broker that has started again, registered, and sent its first heartbeat."""
        peer, where = await self.peer(), address_of(broker_id)
        names = {"clusterName": "c1", "brokerName": "broker-z"}
        assert (await peer.request(1003, **names, brokerId=broker_id, brokerAddress=where, invokeTime=1)).code == 0
        peer.beat(broker_id)
        await until(lambda: any(r.broker_id == broker_id and r.positions is not None for r in self.set().replicas))
        return peer

    async def joined(self, broker_id: int, *, name: str = "broker-z", address: str = "") -> JavaPeer:
        """A broker that has an id and has registered, as Java does at its start."""
        peer = await self.peer()
        where = address or address_of(broker_id)
        names = {"clusterName": "c1", "brokerName": name}
        assert (await peer.request(1012, **names)).ext_fields == {**names, "nextBrokerId": str(broker_id)}
        code = f"{where};1795220982059"
        assert (await peer.request(1013, **names, appliedBrokerId=broker_id, registerCheckCode=code)).code == 0
        assert (await peer.request(1003, **names, brokerId=broker_id, brokerAddress=where, invokeTime=1)).code == 0
        return peer


def with_port(
    directory: Path, scenario: Callable[[Port], Awaitable[None]], *, form: HeaderForm = HeaderForm.JSON,
    expected_replicas: int = 1, leads: bool = True, door: Door | None = None, access: RocketmqAccess | None = None,
) -> None:  # fmt: skip
    """Run ``scenario`` against one leading controller."""

    async def main() -> None:
        made: list[tuple[BrokerPortServer, RocketmqController]] = []
        judge = access or RocketmqAccess(AccessRules(is_insecure=door is None, takes_plain=door is None))

        def make(service: ControllerService) -> BrokerPortServer:
            gateway = BrokerPortServer(service, door=door, access=judge)
            made.append((gateway, RocketmqController(gateway, service, expected_replicas=expected_replicas)))
            return gateway

        async with running_group(directory, NAMES[:1], make_port=make) as group:
            gateway, rocketmq = made[0]
            (number,) = free_ports(1)
            await gateway.start(f"127.0.0.1:{number}")
            if leads:
                await group.elect("c1")
            port = Port(
                group=group, leader=group["c1"], gateway=gateway, rocketmq=rocketmq, number=number, form=form, access=judge
            )  # fmt: skip
            try:
                await scenario(port)
            finally:
                for peer in port._peers:
                    peer.close()
                for listener in port._listeners:
                    await listener.stop()
                await rocketmq.stop()
                await gateway.stop()

    asyncio.run(main())


on_port = player(with_port)
"""``@on_port()`` above a coroutine makes a test of it."""


async def silenced(port: Port, replica: ReplicaState) -> None:
    """The leader finds this replica gone."""
    assert replica.incarnation is not None
    silence = MarkSilent(
        set_key=port.set().set_key,
        broker_id=replica.broker_id,
        incarnation=replica.incarnation,
        session_ordinal=replica.session_ordinal,
        cause=SilenceCause.TIMEOUT,
    )
    await port.leader.service.submit(silence, request_id=RequestId("silence"), requested_by="test")
