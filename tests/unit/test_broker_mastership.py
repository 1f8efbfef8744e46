"""One reign's shell: what the gate shows when the controllers change the set."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

from rollcall_ha.broker.core.role_io import PrepareMaster
from rollcall_ha.broker.handlers.ports import Gate
from rollcall_ha.broker.handlers.put import PutPath
from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.broker.mastership import Mastership, ReignContext
from rollcall_ha.broker.session import SessionUnavailable
from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import AlterSyncStateSet
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    Incarnation,
    LogOffset,
    MasterEpoch,
    SyncStateSetEpoch,
)
from rollcall_ha.controller.contract.replies import AlterVerdict, AnyReply, Refused, SetView
from rollcall_ha.controller.contract.timing import PRESETS, Preset
from rollcall_ha.controller.contract.values import SetConfiguration, Value
from rollcall_ha.ha.links import LinkReign
from rollcall_ha.ha.service import HaServer
from rollcall_ha.ha.sync_state import SyncOutput
from tests.support.set_views import KEY, shown

ME = BrokerId(1)
INCARNATION = Incarnation("i1")
EPOCH = MasterEpoch(3)


class Log:
    """An empty log, as far as a reign asks."""

    max_offset = ackable_offset = flushed_offset = confirm_offset = released_offset = LogOffset(0)

    def note_confirm(self, confirm: LogOffset, released: LogOffset) -> None:
        """Nobody asks for it here."""


class Links:
    """Nobody is connected."""

    def open_reign(self, reign: LinkReign, confirm: LogOffset) -> None: ...

    def replicas_changed(self, reign: LinkReign) -> None: ...

    def end_reign(self, detail: str) -> None: ...

    def log_extended(self) -> None: ...

    def confirm_moved(self, offset: LogOffset) -> None: ...


class Waiters:
    """Nobody waits, or a test says so."""

    waiting_messages = 0

    def __init__(self) -> None:
        self.released: list[LogOffset] = []
        self.expired = asyncio.Event()

    def enter_epoch(self, master_epoch: MasterEpoch) -> None: ...

    def leave_epoch(self) -> None: ...

    def expire(self) -> None:
        self.expired.set()

    def release(self, confirm: LogOffset) -> None:
        self.released.append(confirm)


def view_of(members: tuple[BrokerId, ...], version: int, *, min_in_sync: int = 2) -> SetView:
    """The set as the controllers have it; two of its members must have a message."""
    return shown(
        index=version,
        master=ME,
        master_incarnation=INCARNATION,
        master_epoch=EPOCH,
        sync_state_set=members,
        sync_state_set_epoch=SyncStateSetEpoch(version),
        configuration=SetConfiguration(expected_replicas=2, min_in_sync=min_in_sync),
        has_entered=True,
        start_offset=LogOffset(0),
    )


def never(_command: Value) -> asyncio.Future[AnyReply]:
    """No answer."""
    return asyncio.get_running_loop().create_future()


BOTH, ALONE = (ME, BrokerId(2)), (ME,)


def reign_of(
    gate: Gate,
    ask: Callable[[Value], asyncio.Future[AnyReply]] = never,
    *,
    waiters: Waiters | None = None,
    drained: Callable[[MasterEpoch], None] = lambda _epoch: None,
    moved: Callable[[], None] = lambda: None,
    min_in_sync: int = 2,
) -> Mastership:
    """Of two members."""
    return Mastership(
        ReignContext(
            set_key=KEY,
            broker_id=ME,
            incarnation=INCARNATION,
            address="127.0.0.1:1",
            log=cast("CommitLog", Log()),
            links=cast("HaServer", Links()),
            waiters=cast("PutPath", waiters or Waiters()),
            gate=gate,
            timing=PRESETS[Preset.NORMAL],
            ask=ask,
            on_phase=lambda _epoch, _phase: None,
            on_drained=drained,
            on_refused=lambda _epoch, _reason: None,
            on_moved=moved,
        ),
        PrepareMaster(
            step=1, master_epoch=EPOCH, start_offset=LogOffset(0), view=view_of(BOTH, 1, min_in_sync=min_in_sync)
        ),
    )


def test_the_gate_shows_at_once_what_the_controllers_made_of_the_set() -> None:
    """W12, R22: a member left by registering anew; sends were taken that could not be released, instead of refused."""

    async def story() -> None:
        gate = Gate()
        reign = reign_of(gate)
        reign.serve()
        assert gate.state.is_min_in_sync
        reign.adopt(view_of(ALONE, 2))
        assert (gate.state.is_min_in_sync, gate.state.in_sync) == (False, ALONE)
        reign.adopt(view_of(BOTH, 3))
        assert (gate.state.is_min_in_sync, gate.state.in_sync) == (True, BOTH)
        reign.leave("the test ends", "")

    asyncio.run(story())


def test_a_minimum_that_was_changed_opens_and_closes_the_gate_of_a_reign_at_once() -> None:
    """A set that had lost a slave refused sends until its master was restarted, whatever was ordered."""

    async def story() -> None:
        gate, waiters = Gate(), Waiters()
        reign = reign_of(gate, waiters=waiters)
        reign.serve()

        def is_open_with(least: int, epoch: int = EPOCH) -> bool:
            view = view_of(ALONE, 2, min_in_sync=least)
            reign.adopt(msgspec.structs.replace(view, master_epoch=MasterEpoch(epoch)))
            return gate.state.is_min_in_sync

        assert not is_open_with(2)
        before = len(waiters.released)
        assert is_open_with(1)
        assert len(waiters.released) == before + 1, "the sends that waited for the set are answered"
        assert not is_open_with(2)
        assert not is_open_with(1, EPOCH + 1), "of a later reign its winner takes them"
        reign.leave("the test ends", "")

    asyncio.run(story())


def test_a_member_that_is_lost_and_stays_in_the_set_closes_the_gate() -> None:
    """Sends were taken, and each waited for its whole time."""

    async def story() -> None:
        gate, closed = Gate(), asyncio.Event()
        reign = reign_of(gate, moved=lambda: None if gate.state.is_min_in_sync else closed.set())
        reign.serve()
        assert gate.state.is_min_in_sync
        # Broker 2 never shakes hands.
        async with asyncio.timeout(30):
            await closed.wait()
        facts = reign.write_facts()
        assert (gate.state.in_sync, reign.sync.local_set) == (ALONE, BOTH)
        assert facts is not None
        assert (facts.is_min_in_sync, facts.in_sync) == (False, ALONE)
        reign.leave("the test ends", "")

    asyncio.run(story())


@pytest.mark.slow
def test_a_reign_goes_on_above_a_seq_that_somebody_else_used_in_its_name() -> None:
    """A forged alter was decided as 900; the master's own, refused as stale, was sent again for the rest of the reign."""

    async def story() -> None:
        asked: list[AlterSyncStateSet] = []
        ours = asyncio.Event()
        forged = AlterVerdict(
            master_epoch=EPOCH, seq=900, is_accepted=True, refusal=None, sync_state_set=BOTH,
            sync_state_set_epoch=SyncStateSetEpoch(2),
        )  # fmt: skip

        async def answer(command: AlterSyncStateSet) -> AnyReply:
            asked.append(command)
            if command.seq > forged.seq:
                ours.set()
            return Refused(code=RefusalCode.STALE_SEQUENCE, reason="stale", hint="go above", alter=forged)

        def ask(command: Value) -> asyncio.Future[AnyReply]:
            assert isinstance(command, AlterSyncStateSet)
            return asyncio.get_running_loop().create_task(answer(command))

        reign = reign_of(Gate(), ask=ask, min_in_sync=1)
        reign.serve()
        # Broker 2 never shakes hands: it is proposed for removal.
        async with asyncio.timeout(30):
            await ours.wait()
        assert (asked[0].seq, asked[-1].seq) == (1, 901)
        reign.leave("the test ends", "")

    asyncio.run(story())


def test_an_alter_that_is_lost_after_its_reign_was_a_traceback_in_the_log() -> None:
    """The answer was not looked at any more, and neither was the exception in its place."""

    async def story() -> None:
        faults: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: faults.append(context))
        reign = reign_of(Gate())
        reign.leave("another master", "")
        lost: asyncio.Future[AnyReply] = asyncio.get_running_loop().create_future()
        lost.add_done_callback(reign._answered)
        lost.set_exception(SessionUnavailable("no answer in time"))
        await asyncio.sleep(0)
        del lost
        gc.collect()
        assert faults == []

    asyncio.run(story())


def test_a_fault_in_one_look_at_the_set_does_not_end_the_looking() -> None:
    """S04: one exception ended the periodic check of the reference for ever; the fault goes to the loop's handler."""

    async def story() -> None:
        faults: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: faults.append(context))
        reign = reign_of(Gate())
        looked_again = asyncio.Event()
        looks = 0

        def look(now_ms: int) -> list[SyncOutput]:
            nonlocal looks
            looks += 1
            if looks == 1:
                raise ZeroDivisionError
            looked_again.set()
            return []

        reign.sync.tick = look  # type: ignore[method-assign]
        await asyncio.wait_for(looked_again.wait(), 20)
        reign.leave("the test ends", "")
        assert [type(fault["exception"]) for fault in faults] == [ZeroDivisionError]

    asyncio.run(story())


def test_a_reign_is_drained_when_no_sender_waits_and_takes_no_new_sends_from_the_first_moment() -> None:
    """Handed over earlier, its last sends would be cut from it, and be told "outcome unknown"."""

    async def story() -> None:
        gate, waiters = Gate(), Waiters()
        drained: list[MasterEpoch] = []
        waiters.waiting_messages = 3
        reign = reign_of(gate, waiters=waiters, drained=drained.append)
        reign.serve()
        reign.drain(may_serve_again=False)
        assert (gate.state.is_serving, gate.state.is_draining, gate.state.is_min_in_sync) == (False, True, True)
        assert drained == []
        waiters.waiting_messages = 0
        reign.log_synced(LogOffset(0))
        reign.log_synced(LogOffset(0))
        assert drained == [EPOCH]
        reign.leave("the test ends", "127.0.0.1:2")
        assert (gate.state.is_draining, gate.state.master_address) == (False, "127.0.0.1:2")

    asyncio.run(story())


def test_a_reign_looks_by_itself_for_sends_that_have_waited_too_long() -> None:
    """Nothing else happens while nobody acknowledges."""

    async def story() -> None:
        waiters = Waiters()
        reign = reign_of(Gate(), waiters=waiters)
        await asyncio.wait_for(waiters.expired.wait(), 30)
        reign.leave("the test ends", "")

    asyncio.run(story())
