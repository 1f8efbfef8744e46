"""
A replica with real sockets, a log and nothing else: records what the links tell it and answers at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, LogOffset, MasterEpoch
from rollcall_ha.ha.actions import (
    ConfirmHeard,
    HigherEpochSeen,
    IsolationWanted,
    LinkReady,
    LogGrew,
    MasterAnswered,
    RecordEpoch,
    SlaveAction,
    TruncateLog,
)
from rollcall_ha.ha.catch_up import CatchUpLimits
from rollcall_ha.ha.confirm_offset import MemberAck
from rollcall_ha.ha.errors import ErrorCode
from rollcall_ha.ha.frames import Handshake
from rollcall_ha.ha.links import FollowTarget, LinkSettings
from rollcall_ha.ha.service import HaClient, HaServer
from rollcall_ha.ha.transport import monotonic_ms
from rollcall_ha.ha.truncation import ExecutablePlan
from rollcall_ha.node.remoting.secured import ExpectedPeer
from tests.support.ha_logs import MappedLog
from tests.support.ha_pair import identity

SOCKET_SETTINGS = LinkSettings(heartbeat_interval_ms=50, idle_timeout_ms=2000, handshake_timeout_ms=500)


class MasterReplica:
    def __init__(
        self,
        log: MappedLog,
        broker_id: int = 1,
        *,
        clock_ms: Callable[[], int] = monotonic_ms,
        slaves: ExpectedPeer | None = None,
        catch_up: CatchUpLimits | None = None,
    ) -> None:
        self.log = log
        self.required: set[BrokerId] = set()
        self.acks: dict[BrokerId, LogOffset] = {}
        self.opened: list[tuple[BrokerId, int]] = []
        self.closed: list[tuple[BrokerId, int, ErrorCode | None]] = []
        self.higher: list[MasterEpoch] = []
        self.on_ack: Callable[[MemberAck], None] = lambda ack: None
        self.server = HaServer(
            identity=identity(broker_id),
            log=log,
            events=self,
            settings=SOCKET_SETTINGS,
            clock_ms=clock_ms,
            slaves=slaves,
            catch_up=catch_up,
        )

    def slave_opened(self, handshake: Handshake, link_generation: int) -> None:
        self.opened.append((handshake.broker_id, link_generation))

    def slave_acked(self, ack: MemberAck) -> None:
        self.acks[ack.broker_id] = ack.offset
        self.on_ack(ack)

    def slave_closed(self, broker_id: BrokerId, link_generation: int, code: ErrorCode | None, detail: str) -> None:
        self.closed.append((broker_id, link_generation, code))

    def is_required(self, broker_id: BrokerId) -> bool:
        return broker_id in self.required

    def higher_epoch_seen(self, master_epoch: MasterEpoch, broker_id: BrokerId, incarnation: Incarnation) -> None:
        self.higher.append(master_epoch)


class SlaveReplica:
    def __init__(
        self,
        log: MappedLog,
        broker_id: int = 2,
        *,
        clock_ms: Callable[[], int] = monotonic_ms,
        masters: ExpectedPeer | None = None,
    ) -> None:
        self.log = log
        self.told: list[str] = []
        self.confirm = LogOffset(0)
        self.closed: list[ErrorCode | None] = []
        self.higher: list[MasterEpoch] = []
        self.answers_at_once = True
        self.plans: list[ExecutablePlan] = []
        self.client = HaClient(
            identity=identity(broker_id),
            log=log,
            events=self,
            settings=SOCKET_SETTINGS,
            reconnect_delay_ms=5,
            reconnect_delay_ms_max=20,
            clock_ms=clock_ms,
            masters=masters,
        )
        self.owners: dict[BrokerId, str] = {}
        self.details: list[str] = []

    def owner_of(self, broker_id: BrokerId) -> str:
        return self.owners.get(broker_id, "")

    def durable_confirm(self) -> LogOffset:
        return LogOffset(0)

    def is_promise_durable(self, master_epoch: MasterEpoch) -> bool:
        return True

    def slave_acted(self, target: FollowTarget, action: SlaveAction) -> None:
        match action:
            case MasterAnswered():
                self.told.append("answered")
            case TruncateLog(plan=plan):
                self.plans.append(plan)
                if self.answers_at_once:
                    self.log.execute(plan)
                    self.client.truncation_done()
            case IsolationWanted():
                self.told.append("isolated")
            case RecordEpoch(entry=entry):
                self.log.record(entry)
                # As a broker does it: the answer comes later, from another turn of the loop.
                asyncio.get_running_loop().call_soon(self.client.epoch_recorded)
            case LinkReady():
                self.told.append("ready")
            case LogGrew(start=start, end=end):
                assert start < end
            case ConfirmHeard(offset=offset):
                self.confirm = offset
            case HigherEpochSeen(master_epoch=epoch):
                self.higher.append(epoch)

    def link_closed(self, target: FollowTarget, code: ErrorCode | None, detail: str) -> None:
        self.closed.append(code)
        self.details.append(detail)


async def until(condition: Callable[[], bool], *, deadline_s: float = 30.0) -> None:
    """Wait for a condition by turns of the loop, with a deadline."""
    loop = asyncio.get_running_loop()
    end = loop.time() + deadline_s
    while not condition():
        assert loop.time() < end, "the condition did not come true in time"
        await asyncio.sleep(0.001)
