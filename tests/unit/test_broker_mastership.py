"""One reign's shell: what the gate shows when the controllers change the set."""

from __future__ import annotations

import asyncio
from typing import cast

from broker.core.role_io import PrepareMaster
from broker.log.ports import BrokerLog
from broker.mastership import Gate, Mastership, ReignContext
from controller.contract.codes import RequestCode
from controller.contract.commands import SetConfiguration, Value
from controller.contract.ids import (
    BrokerId,
    BrokerName,
    ClusterName,
    FleetIncarnation,
    Incarnation,
    LogOffset,
    MasterEpoch,
    SetKey,
    SyncStateSetEpoch,
)
from controller.contract.replies import AnyReply, Condition, SetView
from controller.contract.timing import PRESETS, Preset
from ha.links import LinkReign

KEY = SetKey(cluster=ClusterName("c"), name=BrokerName("broker-a"))
ME = BrokerId(1)
INCARNATION = Incarnation("i1")
EPOCH = MasterEpoch(3)


class Log:
    """An empty log, as far as a reign asks."""

    max_offset = flushed_offset = confirm_offset = released_offset = LogOffset(0)

    def note_confirm(self, confirm: LogOffset, released: LogOffset) -> None:
        """Nobody asks for it here."""


class Links:
    """Nobody is connected."""

    def open_reign(self, reign: LinkReign, confirm: LogOffset) -> None: ...

    def end_reign(self, detail: str) -> None: ...

    def log_extended(self) -> None: ...

    def confirm_moved(self, offset: LogOffset) -> None: ...


class Waiters:
    """Nobody waits."""

    def enter_epoch(self, master_epoch: MasterEpoch) -> None: ...

    def leave_epoch(self) -> None: ...

    def release(self, confirm: LogOffset) -> None: ...


def view_of(members: tuple[BrokerId, ...], version: int) -> SetView:
    """The set as the controllers have it; two of its members must have a message."""
    return SetView(
        set_key=KEY,
        fleet_incarnation=FleetIncarnation("f"),
        term=1,
        index=version,
        master=ME,
        master_incarnation=INCARNATION,
        master_epoch=EPOCH,
        sync_state_set=members,
        sync_state_set_epoch=SyncStateSetEpoch(version),
        configuration=SetConfiguration(expected_replicas=2, min_in_sync=2),
        members=(),
        has_entered=True,
        start_offset=LogOffset(0),
        last_alter=None,
        condition=Condition.SERVING,
        condition_reason="",
    )


def never(_code: RequestCode, _command: Value) -> asyncio.Future[AnyReply]:
    """No answer."""
    return asyncio.get_running_loop().create_future()


def test_the_gate_shows_at_once_what_the_controllers_made_of_the_set() -> None:
    """W12, R22: a member left by registering anew; sends were taken that could not be released, instead of refused."""

    async def story() -> None:
        gate = Gate()
        both, alone = (ME, BrokerId(2)), (ME,)
        reign = Mastership(
            ReignContext(
                set_key=KEY,
                broker_id=ME,
                incarnation=INCARNATION,
                address="127.0.0.1:1",
                log=cast("BrokerLog", Log()),
                links=Links(),
                waiters=Waiters(),
                gate=gate,
                timing=PRESETS[Preset.NORMAL],
                ask=never,
                on_phase=lambda _epoch, _phase: None,
                on_refused=lambda _epoch, _reason: None,
            ),
            PrepareMaster(step=1, master_epoch=EPOCH, start_offset=LogOffset(0), view=view_of(both, 1)),
        )
        reign.serve()
        assert gate.state.is_min_in_sync
        reign.adopt(view_of(alone, 2))
        assert (gate.state.is_min_in_sync, gate.state.sync_state_set) == (False, alone)
        reign.adopt(view_of(both, 3))
        assert (gate.state.is_min_in_sync, gate.state.sync_state_set) == (True, both)
        reign.leave("the test ends", "")

    asyncio.run(story())
