"""
RocketMQ brokers of the simulation: a small model that speaks the real frames to the product's controllers.

Here: what a RocketMQ broker says and does as far as controllers see it (docs/wire.md, controller codes), and what must
hold of its set. Not here: faults (``faults``), the gateway (``api.rocketmq.controller``), which runs as it is.

Rule 1: the order of a start is RocketMQ's: 1005, 1012 and 1013 once, 1003, 904, then 1002 unless a master was named.
Rule 2: a process forgets its role when it ends; its id, its check code and its log stay on the disk.
Rule 3: the log is its length and its epochs. A slave takes over its master's, which cuts what the master has not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rollcall_ha.controller.contract.codes import RefusalCode, RequestCode
from rollcall_ha.controller.contract.events import (
    AnyEvent,
    BrokerIdGranted,
    CommandRefused,
    MasterElected,
    MasterEntered,
    ReplicaRegistered,
    SyncStateSetAltered,
)
from rollcall_ha.controller.contract.ids import BrokerId, MasterEpoch, SetKey
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.node.remoting.asking import dial
from rollcall_ha.node.remoting.codes import SystemCode
from rollcall_ha.node.remoting.connection import RemotingConnection, RemotingError, RemotingServer
from rollcall_ha.node.remoting.frame import Frame
from tests.sim.machine import Machine
from tests.sim.violation import Violation
from tests.support.frames import QuietHandler
from tests.support.sim_kernel import Counts, Kernel, Process
from tests.support.sim_loop import SimLoop
from tests.support.sim_net import SimNet

HEARTBEAT_MS = 400
HEARTBEAT_TIMEOUT_MS = 1_500
POLL_MS = 400
"""Between two 1004; RocketMQ's 5 s would be half of a seed."""
COPY_MS = 200
LEADER_MS = 2_000
"""Between two 1005."""
IN_SYNC_MS = 800
"""A slave that has not reached its master's end for so long leaves the set."""
ANSWER_MS = 1_000
COPY_CODE = 20_001
"""Of the model's own: a slave asks its master for its log."""
LISTEN_PORT = 10911

_UNREACHABLE = (OSError, TimeoutError, RemotingError)


@dataclass(slots=True)
class RocketmqDisk:
    """What outlives a process."""

    temporary: tuple[int, str] | None = None
    """Id and check code, written before 1013 is sent."""
    broker_id: int | None = None
    epochs: list[tuple[int, int]] = field(default_factory=list)
    end: int = 0


class RocketmqLaws:
    """What holds of the set, seen from the record and from its brokers."""

    def __init__(self, key: SetKey, counts: Counts) -> None:
        self.key = key
        self.counts = counts
        self._members: set[BrokerId] = set()
        self._fallen: set[BrokerId] = set()
        """Left because they started again; former members still (R3)."""
        self._elected: dict[int, int] = {}
        self._granted: dict[str, int] = {}
        self._id_of: dict[str, int] = {}

    def happened(self, event: AnyEvent) -> None:
        """An event of this set was applied."""
        if isinstance(event, MasterElected):
            self._master_elected(event)
        elif isinstance(event, SyncStateSetAltered):
            self._altered(event)
        elif isinstance(event, ReplicaRegistered):
            self.counts.add("rocketmq registrations")
            after = set(event.sync_state_set)
            self._fallen |= self._members - after
            self._members = after
        elif isinstance(event, BrokerIdGranted):
            known = self._granted.setdefault(event.register_code, event.broker_id)
            if known != event.broker_id or list(self._granted.values()).count(event.broker_id) > 1:
                raise Violation(f"C6: id {event.broker_id} goes to {event.register_code}, granted are {self._granted}")
        elif isinstance(event, MasterEntered):
            self.counts.add("rocketmq epochs entered")
            if self._elected.get(event.master_epoch) != event.broker_id:
                raise Violation(f"C1: {event.broker_id} enters rocketmq epoch {event.master_epoch} of {self._elected}")
        elif isinstance(event, CommandRefused) and "internal fault" in event.reason:
            raise Violation(f"apply: {event.reason} in {event.command}")

    def _master_elected(self, event: MasterElected) -> None:
        """C1, C2, C4: epochs grow, and outside of a first election the winner was a member on record."""
        kind = event.verdict.kind
        self.counts.add(f"rocketmq elections {kind.value}")
        if event.master_epoch <= max(self._elected, default=0):
            raise Violation(f"C1: rocketmq epoch {event.master_epoch} comes behind {max(self._elected)}")
        if kind is not ElectionKind.FIRST and event.master not in self._members | self._fallen:
            raise Violation(
                f"C4: {event.master} wins rocketmq epoch {event.master_epoch}, members are {sorted(self._members)}, "
                f"fallen {sorted(self._fallen)}"
            )
        self._elected[event.master_epoch] = event.master
        self._members, self._fallen = set(event.sync_state_set), set()

    def _altered(self, event: SyncStateSetAltered) -> None:
        """C7: on exactly the set on record, by the master of the newest epoch."""
        self.counts.add("rocketmq alters")
        if set(event.previous_set) != self._members or event.verdict.master_epoch != max(self._elected, default=0):
            raise Violation(
                f"C7: a rocketmq alter of epoch {event.verdict.master_epoch} replaces {event.previous_set}, on record are "
                f"{sorted(self._members)} of epoch {max(self._elected, default=0)}"
            )
        self._members, self._fallen = set(event.verdict.sync_state_set), set()

    def became_master(self, broker_id: int, epoch: int) -> None:
        """I4: one master per masterEpoch, the one that was elected for it."""
        self.counts.add("rocketmq masters")
        if self._elected.get(epoch) != broker_id:
            raise Violation(f"I4: rocketmq broker {broker_id} is master in epoch {epoch}, elected were {self._elected}")

    def registered(self, name: str, broker_id: int) -> None:
        """C6: a broker has one id for ever, and nobody else has it."""
        self.counts.add("rocketmq old ids kept", int(name in self._id_of))
        owner = next((one for one, known in self._id_of.items() if known == broker_id), name)
        if self._id_of.setdefault(name, broker_id) != broker_id or owner != name:
            raise Violation(f"C6: {name} registers as {broker_id}, known are {self._id_of}")


class RocketmqBroker(QuietHandler):
    """One life of a broker. Made anew for each life of the process."""

    def __init__(
        self,
        *,
        name: str,
        address: str,
        process: Process,
        net: SimNet,
        disk: RocketmqDisk,
        laws: RocketmqLaws,
        controllers: tuple[str, ...],
        on_violation: Callable[[Violation], None],
    ) -> None:
        """``start`` begins; ``address`` is an IP."""
        self.name = name
        self.disk = disk
        self.epoch = 0
        """Of the role; 0 = none (rule 2)."""
        self.master: int | None = None
        self.members: tuple[int, ...] = ()
        self._ip, self._listen = address, f"{address}:{LISTEN_PORT}"
        self._master_address = ""
        self._set_epoch = 0
        self._process, self._laws, self._controllers = process, laws, controllers
        self._on_violation = on_violation
        self._leader: str | None = None
        self._links: dict[str, RemotingConnection] = {}
        self._dialling: dict[str, asyncio.Lock] = {}
        self._caught_up: dict[int, float] = {}
        self._sent_end: dict[int, int] = {}
        self._confirm = 0
        process.life = self
        self.loop = SimLoop(process, net, address=address, on_fault=self._fault)

    def start(self) -> None:
        self.loop.create_task(self._main())

    @property
    def is_master(self) -> bool:
        return self.master is not None and self.master == self.disk.broker_id

    def _fault(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self._on_violation(Violation(f"{self.name}: {context.get('message')}: {type(error).__name__}: {error}"))

    # --- its work ---

    async def _main(self) -> None:
        while not await self._tried(self._register()):  # noqa: ASYNC110 - an attempt, and a pause
            await asyncio.sleep(POLL_MS / 1000)
        # RocketMQ opens its listen port behind the first attempt to run: a 1008 before it finds nobody.
        await RemotingServer(self).start(self._ip, LISTEN_PORT)
        for controller in self._controllers:
            self._every(HEARTBEAT_MS, lambda controller=controller: self._beat(controller))  # type: ignore[misc]
        self._every(LEADER_MS, self._find_leader)
        self._every(COPY_MS, self._work_on_log)
        self._every(POLL_MS, self._poll)

    def _every(self, pause_ms: int, work: Callable[[], Any]) -> None:
        async def repeat() -> None:
            while True:
                await self._tried(work())
                await asyncio.sleep(pause_ms / 1000)

        self.loop.create_task(repeat())

    async def _tried(self, work: Any) -> bool:
        """Whether it came to its end, and did not say that it failed."""
        try:
            return await work is not False
        except _UNREACHABLE:
            return False

    async def _link(self, address: str) -> RemotingConnection:
        """One link per peer: a controller takes another one for another process."""
        async with self._dialling.setdefault(address, asyncio.Lock()):
            link = self._links.get(address)
            if link is None or not link.is_open:
                link = self._links[address] = await dial(address, timeout_ms=ANSWER_MS)
            return link

    async def _ask(self, address: str, code: int, body: bytes = b"", /, **fields: object) -> Frame:
        link = await self._link(address)
        texts = {name: str(value) for name, value in fields.items()}
        return await link.request(code, body=body, ext_fields=texts, timeout_ms=ANSWER_MS)

    async def _ask_leader(self, code: int, body: bytes = b"", /, **fields: object) -> Frame:
        if self._leader is None:
            await self._find_leader()
        if self._leader is None:
            raise RemotingError("no controller leads")
        try:
            answer = await self._ask(self._leader, code, body, **fields)
        except _UNREACHABLE:
            self._leader = None
            raise
        if answer.code == RefusalCode.NOT_LEADER:
            self._leader = None
        return answer

    @property
    def _names(self) -> dict[str, str]:
        return {"clusterName": self._laws.key.cluster, "brokerName": self._laws.key.name}

    # --- controllers ---

    async def _find_leader(self) -> None:
        for controller in self._controllers:
            with suppress(*_UNREACHABLE):
                fields = (await self._ask(controller, RequestCode.GET_METADATA_INFO)).ext_fields or {}
                if fields.get("controllerLeaderAddress"):
                    self._leader = fields["controllerLeaderAddress"]
                    return

    async def _register(self) -> bool:
        if self.disk.broker_id is None and not await self._has_got_an_id():
            return False
        broker_id = self.disk.broker_id
        answer = await self._ask_leader(
            RequestCode.REGISTER_BROKER, **self._names, brokerId=broker_id, brokerAddress=self._listen, invokeTime=1
        )
        if answer.code == RefusalCode.NEED_TO_BE_REGISTERED:
            self._on_violation(Violation(f"C6: {self.name} is told that its id {broker_id} was never granted"))
        if answer.code != SystemCode.SUCCESS:
            return False
        assert broker_id is not None
        self._look(lambda: self._laws.registered(self.name, broker_id))
        self._hear(answer)
        return True

    async def _has_got_an_id(self) -> bool:
        """1012 and 1013. Killed between the two, it asks again with the same code, and gets the same id."""
        disk = self.disk
        if disk.temporary is None:
            found = await self._ask_leader(RequestCode.GET_NEXT_BROKER_ID, **self._names)
            if found.code != SystemCode.SUCCESS:
                return False
            code = f"{self._listen};{self._process.kernel.hex_digits(10)}"
            disk.temporary = int((found.ext_fields or {})["nextBrokerId"]), code
        number, code = disk.temporary
        answer = await self._ask_leader(
            RequestCode.APPLY_BROKER_ID, **self._names, appliedBrokerId=number, registerCheckCode=code
        )
        if answer.code == RefusalCode.BROKER_ID_INVALID:
            disk.temporary = None
            self._laws.counts.add("rocketmq ids taken by another broker")
        elif answer.code == SystemCode.SUCCESS:
            disk.broker_id = number
        return answer.code == SystemCode.SUCCESS

    async def _beat(self, controller: str) -> None:
        link = await self._link(controller)
        disk = self.disk
        fields: dict[str, object] = {
            **self._names, "brokerAddr": self._listen, "brokerId": disk.broker_id,
            "epoch": disk.epochs[-1][0] if disk.epochs else -1, "maxOffset": disk.end, "confirmOffset": self._confirm,
            "heartbeatTimeoutMills": HEARTBEAT_TIMEOUT_MS, "electionPriority": 2_147_483_647,
        }  # fmt: skip
        texts = {name: str(value) for name, value in fields.items()}
        link.send_one_way(RequestCode.BROKER_HEARTBEAT, ext_fields=texts)

    async def _poll(self) -> None:
        answer = await self._ask_leader(RequestCode.GET_REPLICA_INFO, brokerName=self._laws.key.name)
        if answer.code == RefusalCode.SET_NOT_FOUND:
            await self._register()
        elif answer.code == SystemCode.SUCCESS:
            self._hear(answer)
            if not (answer.ext_fields or {}).get("masterBrokerId") or self.master is None:
                await self._elect()

    async def _elect(self) -> None:
        answer = await self._ask_leader(
            RequestCode.ELECT_MASTER, **self._names, brokerId=self.disk.broker_id, designateElect="false", invokeTime=1
        )
        if answer.code in (SystemCode.SUCCESS, RefusalCode.MASTER_STILL_EXISTS):
            self._laws.counts.add("rocketmq masters asked for")
            self._hear(answer)

    # --- the role ---

    def _hear(self, frame: Frame) -> None:
        """The answer to 1002, 1003 or 1004, or a 1008: only a higher epoch changes the role."""
        fields = frame.ext_fields or {}
        if not fields.get("masterBrokerId"):
            return
        epoch, master = int(fields["masterEpoch"]), int(fields["masterBrokerId"])
        body = msgspec.json.decode(frame.body) if frame.body else {}
        set_epoch = int(fields.get("syncStateSetEpoch") or body.get("syncStateSetEpoch") or 0)
        if epoch > self.epoch:
            self.epoch, self.master, self._master_address = epoch, master, fields["masterAddress"]
            self._caught_up, self._sent_end, self._set_epoch = {}, {}, -1
            self._process.kernel.note(f"{self.name} follows {master} in epoch {epoch}")
            if self.is_master:
                self._look(lambda: self._laws.became_master(master, epoch))
                if not self.disk.epochs or self.disk.epochs[-1][0] < epoch:
                    self.disk.epochs.append((epoch, self.disk.end))
        if epoch == self.epoch and set_epoch > self._set_epoch and "syncStateSet" in body:
            self.members, self._set_epoch = tuple(sorted(body["syncStateSet"])), set_epoch

    def _look(self, check: Callable[[], None]) -> None:
        try:
            check()
        except Violation as violation:
            self._on_violation(violation)

    # --- the log ---

    async def _work_on_log(self) -> None:
        if self.is_master:
            self.disk.end += 100
            await self._alter()
        elif self.master is not None:
            await self._copy()

    async def _alter(self) -> None:
        """The slaves that reached the end a moment ago, and itself: where that is another set, it asks for it."""
        now, own_id = self.loop.time(), self.disk.broker_id
        in_sync = [one for one, at in self._caught_up.items() if now - at <= IN_SYNC_MS / 1000]
        wanted = tuple(sorted({*in_sync, own_id or 0}))
        if len(self.members) == len(wanted):
            self._confirm = self.disk.end
        if wanted == self.members or self._set_epoch < 0:
            return
        epoch = self.epoch
        answer = await self._ask_leader(
            RequestCode.ALTER_SYNC_STATE_SET,
            msgspec.json.encode({"syncStateSet": wanted, "syncStateSetEpoch": self._set_epoch}),
            brokerName=self._laws.key.name, masterBrokerId=own_id, masterEpoch=epoch,
        )  # fmt: skip
        if answer.code == SystemCode.SUCCESS and epoch == self.epoch:
            body = msgspec.json.decode(answer.body)
            self.members, self._set_epoch = tuple(sorted(body["syncStateSet"])), body["syncStateSetEpoch"]
        elif answer.code != SystemCode.SUCCESS:
            self._laws.counts.add("rocketmq alters not taken")

    async def _copy(self) -> None:
        epoch, disk = self.epoch, self.disk
        has_epoch = bool(disk.epochs) and disk.epochs[-1][0] == epoch
        end = disk.end if has_epoch else -1
        answer = await self._ask(self._master_address, COPY_CODE, brokerId=disk.broker_id, epoch=epoch, end=end)
        if answer.code == SystemCode.SUCCESS and epoch == self.epoch:
            ends, epochs, self._confirm = msgspec.json.decode(answer.body)
            disk.end, disk.epochs = ends, [(one, start) for one, start in epochs]

    def _serve_copy(self, fields: dict[str, str]) -> bytes | None:
        """A slave says how far it got; it is in sync if that is as far as it was sent. None: not by this one."""
        slave, end = int(fields["brokerId"]), int(fields["end"])
        if not self.is_master or int(fields["epoch"]) != self.epoch:
            return None
        if end >= self._sent_end.get(slave, self.disk.end) and end >= 0:
            self._caught_up[slave] = self.loop.time()
        self._sent_end[slave] = self.disk.end
        return msgspec.json.encode((self.disk.end, self.disk.epochs, self._confirm))

    # --- its listen port ---

    def handle_requests(self, connection: RemotingConnection, frames: Sequence[Frame]) -> None:
        """1008, 906, and the model's own."""
        for frame in frames:
            fields = frame.ext_fields or {}
            if frame.code == RequestCode.NOTIFY_BROKER_ROLE_CHANGED:
                self._laws.counts.add("rocketmq notices of a role")
                self._hear(frame)
                connection.respond(frame, SystemCode.SUCCESS)
            elif frame.code == RequestCode.EXCHANGE_BROKER_HA_INFO:
                is_asked = not fields and self.is_master
                own = {"masterHaAddress": f"{self._ip}:10912", "masterFlushOffset": "0"} if is_asked else None
                connection.respond(frame, SystemCode.SUCCESS, ext_fields=own)
            elif frame.code == COPY_CODE:
                log = self._serve_copy(fields)
                connection.respond(frame, SystemCode.SUCCESS if log is not None else 1, body=log or b"")
            else:
                connection.respond(frame, 3)

    # --- what the end looks at ---

    def follows(self, master: BrokerId | None, epoch: MasterEpoch) -> bool:
        """Whether it knows this master of this epoch."""
        return (self.master, self.epoch) == (master, epoch)


class RocketmqMachine(Machine):
    """A RocketMQ broker's host, and what it keeps."""

    def __init__(self, kernel: Kernel, name: str, address: str, laws: RocketmqLaws) -> None:
        super().__init__(kernel, name)
        self.disk = RocketmqDisk()
        self.node: RocketmqBroker | None = None
        self._address = address
        self._laws = laws

    def power_lost(self, *, forgets_all: bool) -> int:
        """What its disk holds was synced."""
        return 0

    def mend(self) -> None:
        """Nothing is wrong with its disk."""

    def begin(
        self, net: SimNet, controllers: tuple[str, ...], on_violation: Callable[[Violation], None]
    ) -> RocketmqBroker:
        """The next life, in the process that has just been made."""
        node = RocketmqBroker(
            name=self.name,
            address=self._address,
            process=self.process,
            net=net,
            disk=self.disk,
            laws=self._laws,
            controllers=controllers,
            on_violation=on_violation,
        )
        node.start()
        return node
