"""A broker that leads, with its retention: the test moves its clock, and says what its links and its disk are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from rollcall_ha.broker.live_settings import LiveSettings
from rollcall_ha.broker.retention.shell import Retention
from rollcall_ha.controller.contract.ids import BrokerId
from rollcall_ha.controller.contract.session import BrokerState
from rollcall_ha.controller.contract.timing import PRESETS, Preset
from rollcall_ha.epoch.model import LogOffset
from tests.support.ha_replica import until
from tests.support.log_broker import LogBroker

STORED_MS = 1_700_000_000_001
HOUR_MS = 3_600_000
GIB = 1024**3


class OneCopy:
    """The links of a master."""

    def __init__(self) -> None:
        self.copies: list[tuple[BrokerId, LogOffset]] = []
        self.let_go_of: list[int] = []

    def let_go(self, start: LogOffset) -> None:
        self.let_go_of.append(start)
        self.copies = [(broker, at) for broker, at in self.copies if at >= start]


class Old:
    """See the module. RocketMQ's limits are in force."""

    def __init__(self, broker: LogBroker, disk_room: Callable[[], tuple[int, int]] | None = None) -> None:
        """``disk_room`` None: what ``room`` says."""
        self.broker = broker
        self.links = OneCopy()
        self.room = (100 * GIB, 50 * GIB)
        self.now_ms = STORED_MS
        broker.wall_ms = lambda: self.now_ms
        self.role = BrokerState.MASTER
        self.failures: list[BaseException] = []
        self.settings = LiveSettings(PRESETS[Preset.NORMAL], lambda *_: None)
        self.settings.is_known = True
        self.settings.settings = msgspec.structs.replace(
            self.settings.settings, retention_hours=72, retention_forced_percent=85, sends_refused_percent=90
        )
        self.retention = Retention(
            log=broker.log,
            folds=broker.folds,
            put=broker.put,
            room=broker.room,
            copies=self.links,
            settings=self.settings,
            role=lambda: self.role,
            disk=broker._marks,
            disk_room=disk_room or (lambda: self.room),
            now_ms=lambda: self.now_ms,
            failed=self.failures.append,
        )

    async def look(self, times: int = 1) -> None:
        for _ in range(times):
            await self.retention._look()
            for _ in range(5):
                await asyncio.sleep(0)
            self.broker.log._sync()
            await until(lambda: not self.broker.folds.catch_up())
