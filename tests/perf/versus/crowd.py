"""
A thousand RocketMQ brokers in one process, as controllers see them: remoting connections, and no log behind them.

Here: what a broker says (1012, 1013, 1003, 1002, 1001, 904 each second) and how it hears of roles (1008 on a listen port
of its own). Not here: data, disks, retries. The same crowd is put before RocketMQ's controllers and before Rollcall's.

Rule 1: each replica has its own connection and its own listen port; both end with the process.
Rule 2: frames are RocketMQ's, with JSON headers; nothing in them tells which controllers are being asked.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

import msgspec

from rollcall_ha.controller.contract.codes import RequestCode
from rollcall_ha.node.config import split_address
from rollcall_ha.node.remoting.connection import RemotingConnection, RemotingError, connect
from rollcall_ha.node.remoting.frame import Frame
from rollcall_ha.node.remoting.links import LinkLimits
from tests.perf.crowd_process import OtherProcess
from tests.support.frames import QuietHandler

HOST = "127.0.0.1"
RPC_TIMEOUT_MS = 30_000
HEARTBEAT_S = 1.0
BUSY_MAX = 64
"""Replicas that register at the same time."""
MASTER_STILL_EXISTS = 2011
ELECT_AGAIN_S = 5.0
"""RocketMQ's, between looks of a broker that knows no master."""
ELECTIONS_MAX = 6


@dataclass(slots=True, kw_only=True)
class Crowd:
    """What one process plays: one replica of each set."""

    cluster: str
    names: tuple[str, ...]
    controller: str
    """Address of the leading controller."""
    number: int
    """Smaller is preferred in elections."""


class Told(msgspec.Struct, frozen=True):
    """What a crowd says when it is asked."""

    registered: int
    masters: int
    """That have become master, by an answer or by a push."""
    grown: int
    """Masters whose SyncStateSet has two members."""
    beats: int
    refused: int
    reason: str
    """What the first of those heard."""
    pushed_at_ns: tuple[int, ...]
    """When those that were elected by a push heard of it."""


class Replica(QuietHandler):
    """One broker; also the handler of its listen port and of its connection."""

    def __init__(self, crowd: Crowd, name: str) -> None:
        self.name = name
        self.crowd = crowd
        self.broker_id = 0
        self.address = ""
        self.master_epoch = 0
        self.set_epoch = 0
        self.is_registered = False
        self.is_master = False
        self.is_grown = False
        self.pushed_at_ns = 0
        self.beats = 0
        self.refused = ""
        self._link: RemotingConnection | None = None

    # --- FrameHandler ---

    def handle_requests(self, connection: RemotingConnection, frames: Sequence[Frame]) -> None:
        """Pushes; whatever wants an answer gets success, as a Java broker's would."""
        for frame in frames:
            fields = frame.ext_fields or {}
            if frame.code == RequestCode.NOTIFY_BROKER_ROLE_CHANGED:
                self._notified(int(fields["masterEpoch"]), int(fields.get("masterBrokerId", 0)), frame.body)
            if not frame.is_one_way:
                is_asked = frame.code == RequestCode.EXCHANGE_BROKER_HA_INFO and not fields and self.is_master
                connection.respond(frame, 0, ext_fields=self._ha_fields() if is_asked else None)

    def _ha_fields(self) -> dict[str, str]:
        """What a master answers to a 906 without an address."""
        return {"masterAddress": self.address, "masterHaAddress": self.address, "masterFlushOffset": "0"}

    def _notified(self, epoch: int, master: int, body: bytes) -> None:
        if epoch <= self.master_epoch:
            return
        self.master_epoch = epoch
        self.is_master = master == self.broker_id
        if self.is_master:
            self.pushed_at_ns = time.monotonic_ns()
            self.set_epoch = json.loads(body)["syncStateSetEpoch"]

    # --- a broker's words ---

    async def listen(self) -> None:
        """On a port that the system chooses."""
        server = await asyncio.get_running_loop().create_server(
            lambda: RemotingConnection(self, LinkLimits(idle_ms_max=0), itertools.count(1)), HOST, 0
        )
        self.address = f"{HOST}:{server.sockets[0].getsockname()[1]}"

    async def join(self) -> None:
        """Id, registration, and an election if there is no master. Raises ``RemotingError``, ``OSError``."""
        host, port = split_address(self.crowd.controller)
        self._link = await connect(host, port, self, timeout_ms=RPC_TIMEOUT_MS)
        set_fields = {"clusterName": self.crowd.cluster, "brokerName": self.name}
        answer = await self._ask(RequestCode.GET_NEXT_BROKER_ID, set_fields)
        self.broker_id = int((answer.ext_fields or {})["nextBrokerId"])
        code = f"{self.address};{time.time_ns() // 1_000_000}"
        applied = {"appliedBrokerId": str(self.broker_id), "registerCheckCode": code}
        await self._ask(RequestCode.APPLY_BROKER_ID, {**set_fields, **applied})
        own = {"brokerId": str(self.broker_id), "invokeTime": str(time.time_ns() // 1_000_000)}
        answer = await self._ask(RequestCode.REGISTER_BROKER, {**set_fields, **own, "brokerAddress": self.address})
        self._learn(answer)
        self.beat()
        if not (answer.ext_fields or {}).get("masterBrokerId"):
            await self._elect({**set_fields, **own, "designateElect": "false"})
        self.is_registered = not self.refused

    async def _elect(self, fields: dict[str, str]) -> None:
        """As RocketMQ's broker, which asks again while its set has no master; the last word counts. Raises ``RemotingError``."""
        for left in reversed(range(ELECTIONS_MAX)):
            answer = await self._ask(RequestCode.ELECT_MASTER, fields, may_refuse=left > 0)
            self._learn(answer)
            if self.master_epoch or not left:
                return
            # A busy controller has not counted the first heartbeat yet.
            self.beat()
            await asyncio.sleep(ELECT_AGAIN_S)

    def _learn(self, answer: Frame) -> None:
        fields = answer.ext_fields or {}
        if not fields.get("masterBrokerId"):
            return
        self.master_epoch = int(fields.get("masterEpoch", 0))
        self.set_epoch = int(fields.get("syncStateSetEpoch", 0))
        self.is_master = int(fields["masterBrokerId"]) == self.broker_id

    async def grow(self) -> None:
        """As master: take the other one into the SyncStateSet. Raises ``RemotingError``."""
        body = {"syncStateSet": [1, 2], "syncStateSetEpoch": self.set_epoch}
        fields = {
            "brokerName": self.name,
            "masterBrokerId": str(self.broker_id),
            "masterEpoch": str(self.master_epoch),
            "invokeTime": str(time.time_ns() // 1_000_000),
        }
        answer = await self._ask(RequestCode.ALTER_SYNC_STATE_SET, fields, json.dumps(body).encode())
        self.is_grown = answer.code == 0

    def beat(self) -> None:
        """904, which nobody answers."""
        if self._link is None or not self._link.is_open:
            self.refused = self.refused or "the controller closed the connection"
            return
        self._link.send_one_way(
            RequestCode.BROKER_HEARTBEAT,
            ext_fields={
                "clusterName": self.crowd.cluster,
                "brokerAddr": self.address,
                "brokerName": self.name,
                "brokerId": str(self.broker_id),
                "epoch": str(self.master_epoch or -1),
                "maxOffset": "0",
                "confirmOffset": "0",
                "heartbeatTimeoutMills": "10000",
                "electionPriority": str(self.crowd.number),
            },
        )
        self.beats += 1

    async def _ask(
        self, code: RequestCode, fields: dict[str, str], body: bytes = b"", *, may_refuse: bool = False
    ) -> Frame:
        assert self._link is not None
        answer = await self._link.request(code, ext_fields=fields, body=body, timeout_ms=RPC_TIMEOUT_MS)
        if answer.code not in (0, MASTER_STILL_EXISTS) and not may_refuse:
            self.refused = self.refused or f"{code.name} was answered {answer.code}: {answer.remark}"
        return answer


class CrowdProcess(OtherProcess[Told]):
    """``with CrowdProcess(crowd) as process: process.tell("join"); process.told()``; ``grow`` is the other order."""

    def __init__(self, crowd: Crowd) -> None:
        super().__init__(_main, crowd)


async def _main(crowd: Crowd, pipe: Connection) -> None:
    replicas = [Replica(crowd, name) for name in crowd.names]
    for replica in replicas:
        await replica.listen()
    orders: asyncio.Queue[str] = asyncio.Queue()

    def heard() -> None:
        try:
            message = pipe.recv()
        except EOFError:
            message = "end"
        if message == "tell":
            pipe.send(_told(replicas))
        else:
            orders.put_nowait(message)

    asyncio.get_running_loop().add_reader(pipe.fileno(), heard)
    pipe.send("ready")
    busy = asyncio.Semaphore(BUSY_MAX)
    lives: list[asyncio.Task[None]] = []
    while (order := await orders.get()) != "end":
        if order == "join":
            lives += [asyncio.create_task(_live(replica, busy)) for replica in replicas]
        else:
            lives += [asyncio.create_task(_grow(replica, busy)) for replica in replicas if replica.is_master]


async def _live(replica: Replica, busy: asyncio.Semaphore) -> None:
    async with busy:
        try:
            await replica.join()
        except (OSError, RemotingError, KeyError) as error:
            replica.refused = replica.refused or repr(error)
            return
    await asyncio.sleep(HEARTBEAT_S * secrets.randbelow(1000) / 1000)
    due = time.monotonic()
    while True:
        replica.beat()
        due += HEARTBEAT_S
        await asyncio.sleep(max(0.0, due - time.monotonic()))


async def _grow(replica: Replica, busy: asyncio.Semaphore) -> None:
    async with busy:
        try:
            await replica.grow()
        except RemotingError as error:
            replica.refused = replica.refused or repr(error)


def _told(replicas: Sequence[Replica]) -> Told:
    return Told(
        registered=sum(replica.is_registered for replica in replicas),
        masters=sum(replica.is_master for replica in replicas),
        grown=sum(replica.is_grown for replica in replicas),
        beats=sum(replica.beats for replica in replicas),
        refused=sum(bool(replica.refused) for replica in replicas),
        reason=next((replica.refused for replica in replicas if replica.refused), ""),
        pushed_at_ns=tuple(replica.pushed_at_ns for replica in replicas if replica.pushed_at_ns),
    )
