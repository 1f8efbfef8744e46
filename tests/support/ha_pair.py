"""
A master's and a slave's link machine joined in memory: the smallest replication there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, Protocol, Self, TypeVar

from rollcall_ha.controller.contract.ids import (
    BrokerId,
    BrokerName,
    ClusterName,
    FleetIncarnation,
    FlushMode,
    Incarnation,
    LogOffset,
    MasterEpoch,
    SetKey,
)
from rollcall_ha.epoch.model import NO_EPOCH, EpochEntry
from rollcall_ha.ha.actions import (
    CloseLink,
    MasterAction,
    RecordEpoch,
    Send,
    SendTransfer,
    SlaveAcked,
    SlaveAction,
    TruncateLog,
)
from rollcall_ha.ha.confirm_offset import MemberAck
from rollcall_ha.ha.links import FollowTarget, LinkReign, LinkSettings, ReplicaIdentity
from rollcall_ha.ha.master_link import MasterLink, MasterLinkState
from rollcall_ha.ha.ports import FileRegion, ReplicaLog
from rollcall_ha.ha.slave_link import SlaveLink, SlaveLinkState
from rollcall_ha.ha.truncation import ExecutablePlan
from tests.support.ha_logs import MemoryLog

SETTINGS = LinkSettings(
    heartbeat_interval_ms=500, idle_timeout_ms=3000, handshake_timeout_ms=1000, transfer_bytes_max=64
)


def identity(broker_id: int, *, cluster: str = "c1", fleet: str = "f1", incarnation: str = "") -> ReplicaIdentity:
    return ReplicaIdentity(
        set_key=SetKey(ClusterName(cluster), BrokerName("broker-a")),
        fleet_incarnation=FleetIncarnation(fleet),
        broker_id=BrokerId(broker_id),
        incarnation=Incarnation(incarnation or f"inc-{broker_id}"),
    )


def target(epoch: int, *, master: int = 1, incarnation: str = "inc-1", flush: str = "async") -> FollowTarget:
    return FollowTarget(
        host="127.0.0.1",
        port=1,
        master=BrokerId(master),
        master_incarnation=Incarnation(incarnation),
        master_epoch=MasterEpoch(epoch),
        flush=FlushMode(flush),
    )


def reign(epoch: int, *, unclean: int = NO_EPOCH, owners: Mapping[int, str] | None = None) -> LinkReign:
    """Of a set of three in their first incarnations."""
    return LinkReign(
        master_epoch=MasterEpoch(epoch),
        unclean_epoch=MasterEpoch(unclean),
        incarnations={BrokerId(one): Incarnation(f"inc-{one}") for one in (1, 2, 3)},
        owners={BrokerId(one): owner for one, owner in (owners or {}).items()},
    )


class PairLog(ReplicaLog, Protocol):
    """A log, with what a broker's shell would do with it."""

    def read_region(self, region: FileRegion) -> bytes: ...

    def execute(self, plan: ExecutablePlan) -> None: ...

    def record(self, new: EpochEntry) -> None: ...


LogT = TypeVar("LogT", bound=PairLog)


class LinkPair(Generic[LogT]):
    """One link. ``run`` moves everything until nothing is left; requests are answered at once unless ``hold`` says no."""

    def __init__(
        self,
        master_log: LogT,
        slave_log: LogT,
        *,
        epoch: int,
        generation: int = 1,
        confirm: int = 0,
        durable_confirm: int = 0,
        unclean: int = NO_EPOCH,
        flush: str = "async",
        slave: ReplicaIdentity | None = None,
        follow: FollowTarget | None = None,
        has_reign: bool = True,
        promise: bool = True,
        settings: LinkSettings = SETTINGS,
    ) -> None:
        self.now_ms = 0
        self.confirm = LogOffset(confirm)
        self.master_log, self.slave_log = master_log, slave_log
        self.reign = reign(epoch, unclean=unclean)
        self.master = MasterLink(
            identity=identity(1),
            reign=self.reign if has_reign else None,
            link_generation=generation,
            log=master_log,
            settings=settings,
            now_ms=0,
        )
        self.slave = SlaveLink(
            identity=slave or identity(2),
            target=follow or target(epoch, flush=flush),
            log=slave_log,
            durable_confirm=LogOffset(durable_confirm),
            is_promise_durable=promise,
            settings=settings,
            now_ms=0,
        )
        self.to_master = bytearray()
        self.to_slave = bytearray()
        self.master_said: list[MasterAction] = []
        self.slave_said: list[SlaveAction] = []
        self.hold = False
        self.held: list[SlaveAction] = []
        self.chunk: Callable[[int], int] = lambda available: available

    # --- moving ---

    def open(self) -> Self:
        self.do_slave(self.slave.connected(self.now_ms))
        return self

    def do_slave(self, actions: list[SlaveAction]) -> None:
        for action in actions:
            self.slave_said.append(action)
            if isinstance(action, Send):
                self.to_master += action.data
            elif isinstance(action, TruncateLog | RecordEpoch):
                self.held.append(action)
                if not self.hold:
                    self.answer()

    def answer(self) -> None:
        action = self.held.pop(0)
        if isinstance(action, TruncateLog):
            self.slave_log.execute(action.plan)
            self.do_slave(self.slave.truncation_done(self.now_ms))
        elif isinstance(action, RecordEpoch):
            self.slave_log.record(action.entry)
            self.do_slave(self.slave.epoch_recorded(self.now_ms))

    def do_master(self, actions: list[MasterAction]) -> None:
        for action in actions:
            self.master_said.append(action)
            if isinstance(action, Send):
                self.to_slave += action.data
            elif isinstance(action, SendTransfer):
                self.to_slave += action.header + self.master_log.read_region(action.region)

    def step(self) -> bool:
        """Deliver one piece each way and plan one transfer; False = nothing moved."""
        moved = False
        if self.to_master:
            size = self.chunk(len(self.to_master))
            data = bytes(self.to_master[:size])
            del self.to_master[:size]
            self.do_master(self.master.bytes_received(data, self.confirm, self.now_ms))
            moved = True
        transfers = self.master.plan_transfer(self.confirm, self.now_ms)
        self.do_master(transfers)
        if self.to_slave and not self.held:
            size = self.chunk(len(self.to_slave))
            data = bytes(self.to_slave[:size])
            del self.to_slave[:size]
            self.do_slave(self.slave.bytes_received(data, self.now_ms))
            moved = True
        return moved or bool(transfers)

    def steps(self, count: int) -> Self:
        for _ in range(count):
            self.step()
        return self

    def run(self, steps_max: int = 10_000) -> Self:
        for _ in range(steps_max):
            if not self.step():
                return self
        raise AssertionError("the links never come to rest")

    # --- looking ---

    @property
    def acks(self) -> list[MemberAck]:
        return [action.ack for action in self.master_said if isinstance(action, SlaveAcked)]

    @property
    def closes(self) -> list[CloseLink]:
        return [action for action in (*self.master_said, *self.slave_said) if isinstance(action, CloseLink)]

    @property
    def is_up(self) -> bool:
        return self.master.state is MasterLinkState.TRANSFER and self.slave.state is SlaveLinkState.TRANSFER


class Pair(LinkPair[MemoryLog]):
    """Over logs in memory."""
