"""A listen port on a real log without controllers: the test is the role machine and the confirm offset."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from rollcall_ha.broker.consuming.reads_core import Place
from rollcall_ha.broker.consuming.room import ConsumerRoom, GateStanding
from rollcall_ha.broker.consuming.tools import About
from rollcall_ha.broker.handlers.listen import ListenService, listen_server
from rollcall_ha.broker.handlers.own_sends import OwnSends
from rollcall_ha.broker.handlers.ports import Gate, GateState
from rollcall_ha.broker.handlers.put import PutLimits, PutPath
from rollcall_ha.broker.parts import Parts
from rollcall_ha.broker.protocol.routes import RouteBroker, RouteState
from rollcall_ha.controller.contract.ids import BrokerId, BrokerName, ClusterName, Incarnation, MasterEpoch, SetKey
from rollcall_ha.controller.contract.session import BrokerState, ProbeAnswer
from rollcall_ha.node.remoting.secured import Door
from tests.support.fold_tools import open_folds
from tests.support.log_tools import STORE_HOST, open_log


class LogBroker:
    """One replica; ``confirms_at_once`` stands for a set of one."""

    def __init__(
        self,
        root: Path,
        broker_id: int,
        *,
        limits: PutLimits | None = None,
        door: Door | None = None,
        segment_bytes: int = 256 * 1024,
    ) -> None:
        """``door`` None: its port is plain."""
        self.log = open_log(root, segment_bytes=segment_bytes)
        self.broker_id = BrokerId(broker_id)
        self.confirms_at_once = True
        self.first_acks: list[tuple[MasterEpoch, int, int | None]] = []
        self.woken = 0
        self.wall_ms: Callable[[], int] = lambda: 1_700_000_000_001
        self.gate = Gate()
        self._marks = ThreadPoolExecutor(max_workers=1)
        self.route = RouteState(cluster="c", broker_name="b", master_epoch=MasterEpoch(0), master=None, replicas=())
        self.probe = ProbeAnswer(
            set_key=SetKey(ClusterName("c"), BrokerName("b")),
            broker_id=self.broker_id,
            incarnation=Incarnation("0" * 32),
            state=BrokerState.MASTER,
        )
        self.put = PutPath(
            self.log,
            self.gate,
            store_host=STORE_HOST,
            broker_properties=b"CLUSTER\x01c\x02",
            now_ms=self._now_ms,
            now_us=Parts().now_us,
            wake_links=self.wake,
            on_first_ack=lambda *seen: self.first_acks.append(seen),
            limits=limits,
        )
        self.folds = open_folds(root, self.log)
        self.room = ConsumerRoom(
            log=self.log,
            folds=self.folds,
            appender=OwnSends(self.put, host=STORE_HOST, now_ms=self._now_ms),
            standing=GateStanding(self.gate, self.probe.set_key, Place),
            about=About(
                config=dict,
                disk_share=lambda: None,
                wall_ms=lambda: 1_700_000_000_001,
            ),
            broker_id=lambda: 1,
            put_total=lambda: self.put.counters.appended,
            limits=self.put.delay_limits,
            now_ms=Parts().now_ms,
            wall_ms=self._now_ms,
        )
        self.put.topics = self.room.topics
        self.put.retry_times_max = self.room.retry_times_max
        self.service = ListenService(
            put=self.put, word=self, responders=self.room.responders, on_disconnected=self.room.disconnected
        )
        self.server = listen_server(self.service, door=door)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def _now_ms(self) -> int:
        return self.wall_ms()

    def wake(self) -> None:
        self.woken += 1
        if self.confirms_at_once:
            self.put.release(self.log.max_offset)

    def lead(self, epoch: int) -> None:
        self.gate.state = GateState(is_serving=True, master_epoch=MasterEpoch(epoch), is_min_in_sync=True)
        self.put.enter_epoch(MasterEpoch(epoch))
        self.room.standing_moved()

    def follow(self) -> None:
        self.gate.state = msgspec.structs.replace(self.gate.state, is_serving=False)
        self.put.leave_epoch()
        self.room.standing_moved()

    def set_route(self, epoch: int, master: int, *brokers: LogBroker) -> None:
        self.route = RouteState(
            cluster="c",
            broker_name="b",
            master_epoch=MasterEpoch(epoch),
            master=BrokerId(master),
            replicas=tuple(RouteBroker(broker_id=each.broker_id, address=each.address) for each in brokers),
        )
        self.service.route_moved()

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.log.subscribe_room(lambda: loop.call_soon_threadsafe(self.service.room_is_ready))
        self.folds.start(self._marks)
        self.room.start()
        await self.server.start("127.0.0.1", 0)

    async def __aenter__(self) -> LogBroker:
        """For a test that a mutant fails: a flush thread that outlives the loop breaks whatever runs next."""
        await self.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        await self.server.stop()
        self.room.close()
        self.folds.rest(is_resting=True)
        self._marks.shutdown()
        self.log.close(is_clean=False)
