"""
Telling RocketMQ brokers of an election: 1008 to every living member, 906 to slaves, on connections to their ports.

Here: which broker was told which epoch, the order of the messages, tries. Not here: when something was committed
(``controller.runtime.pushes``), what it means for records (``replicas``). Codes: docs/wire.md, controller codes.

Rule 1: 1008 is sent as a request: its answer says that the role has been applied or is older news.
Rule 2: the master first. It is asked for its HA address by 906 until it answers as master; then each slave gets its
1008, and right behind it that address by 906. A slave waits ``MASTER_FIRST_MS`` at most.
Rule 3: a process is told of one masterEpoch once; a broker that cannot be reached is tried ``ATTEMPTS_MAX`` times, and
then left to its own poll of 5 s. Losing all of this costs time only.
Rule 4: a view of a newer masterEpoch is pushed at once: what an older one waits for is given up.
Rule 5: each broker has a task of its own and waits for no other one's answer; later tries wait behind first ones. So a
broker that takes a 1008 and is silent costs nobody else anything. Above ``LINKS_MAX`` the oldest link makes room.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec

from rollcall_ha.api.broker_port.headers import Header, header_fields, read_header
from rollcall_ha.api.rocketmq.controller.beans import ExchangeHaHeader, MasterHeader, sync_state_set_body
from rollcall_ha.api.rocketmq.controller.replicas import RocketmqReplicas
from rollcall_ha.controller.contract.codes import RequestCode
from rollcall_ha.controller.contract.commands import RecordMilestones
from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, MasterEpoch, ReplicaKind, SetKey
from rollcall_ha.controller.contract.replies import MemberView, SetView
from rollcall_ha.controller.contract.timing import NS_PER_US
from rollcall_ha.controller.contract.values import Milestone, Phase
from rollcall_ha.controller.replication.proposer import ProposeError
from rollcall_ha.controller.runtime import broker_requests
from rollcall_ha.controller.runtime.ports import NoAuthority
from rollcall_ha.controller.runtime.service import ControllerService
from rollcall_ha.node.config import ConfigError
from rollcall_ha.node.remoting.asking import LATE_MS_MAX, dial, running_timeout
from rollcall_ha.node.remoting.codes import SystemCode
from rollcall_ha.node.remoting.connection import RemotingConnection, RemotingError
from rollcall_ha.node.remoting.frame import Frame
from rollcall_ha.node.telemetry import get_logger

ATTEMPTS_MAX = 12
PAUSE_MS = 50
PAUSE_MS_MAX = 1_000
"""Between two tries; doubles from ``PAUSE_MS``: about 7 s in all, longer than a broker's own poll."""
MASTER_FIRST_MS = 500
CONNECT_MS_MAX = 500
"""Both of the time for which the loop runs."""
ANSWER_MS_MAX = 2_000
DIALS_MAX = 128
DIALS_AGAIN_MAX = 16
"""Under way at the same time: first tries, and later ones of masters and of slaves; more wait for their turn."""
LINKS_MAX = 1_024
"""Open at the same time."""

_UNREACHABLE = (OSError, TimeoutError, RemotingError, ConfigError)

Told = dict[BrokerId, tuple[Incarnation, MasterEpoch]]


class _Run(msgspec.Struct, eq=False):
    """The pushes of one set for one masterEpoch: a task for each broker that is still to be told."""

    view: SetView
    was_entered: bool
    """Before these pushes began: a new leader tells the master of a reign that it did not begin."""
    tasks: dict[BrokerId, asyncio.Task[None]] = msgspec.field(default_factory=dict)
    master_tried: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Slaves need not wait for their master any more: it has answered, or was not reached."""
    exchange: ExchangeHaHeader | None = None
    """The master's HA address, once it answered as master."""


class _SetMemory(msgspec.Struct):
    """Which process was told which epoch, by 1008 and by 906."""

    roles: Told = msgspec.field(default_factory=dict)
    links: Told = msgspec.field(default_factory=dict)


class RocketmqPushes:
    """The pushes of one controller. Runs on the loop."""

    def __init__(self, service: ControllerService, replicas: RocketmqReplicas) -> None:
        """Sends when told of a view."""
        self._service = service
        self._replicas = replicas
        self._logger = get_logger("gateway")
        self._memory: dict[SetKey, _SetMemory] = {}
        self._runs: dict[SetKey, _Run] = {}
        self._dials = asyncio.Semaphore(DIALS_MAX)
        # Apart: a winner that must be asked again would stand behind the slaves of all sets, which wait for winners.
        self._dials_again = {is_master: asyncio.Semaphore(DIALS_AGAIN_MAX) for is_master in (True, False)}
        self._links: dict[RemotingConnection, None] = {}
        """The open ones, the oldest first."""
        self.sent: Counter[str] = Counter()
        """By code and outcome; a metric."""

    def announce(self, view: SetView) -> None:
        """This view was committed. Returns at once."""
        master = _living_master(view)
        untold = self._untold(view) if master is not None else []
        if master is None or not untold:
            return
        run = self._runs.get(view.set_key)
        if run is not None and run.view.master_epoch < view.master_epoch:
            # Ended, not waited for: the winner of 4 would hear of it only when a broker that is told of 3 has been
            # silent for 2 s. And never both at once: a slave told of 4 and then of 3 ignores the older 1008, and takes
            # the older HA address, for 906 carries no epoch. A frame that a link has not delivered yet is lost with it.
            self._end(run)
            run = None
        if run is None:
            run = self._runs[view.set_key] = _Run(view, view.has_entered)
        elif run.view.master_epoch == view.master_epoch:
            run.view = view
        # The master's task also asks it for the HA address, which the slaves need: it runs for each of them.
        for broker_id in {master.broker_id, *(member.broker_id for member in untold)}:
            if broker_id not in run.tasks:
                run.tasks[broker_id] = asyncio.get_running_loop().create_task(self._tell(run, broker_id))

    def needs_telling(self, key: SetKey, broker_id: BrokerId, epoch: MasterEpoch) -> bool:
        """Whether this replica has not been told of ``epoch`` by this controller."""
        told = self._memory[key].roles.get(broker_id) if key in self._memory else None
        return told is None or told[1] < epoch

    @property
    def under_way(self) -> int:
        """Brokers that are still to be told."""
        return sum(len(run.tasks) for run in self._runs.values())

    async def stop(self) -> None:
        """End what is under way."""
        tasks = [task for run in self._runs.values() for task in run.tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _untold(self, view: SetView) -> list[MemberView]:
        memory = self._memory.setdefault(view.set_key, _SetMemory())
        return [
            member
            for member in view.members
            if member.is_alive
            and member.description.kind is ReplicaKind.ROCKETMQ
            and (
                # The incarnation too: a broker that has started again has forgotten its role, and is told anew.
                memory.roles.get(member.broker_id) != (member.incarnation, view.master_epoch)
                or memory.links.get(member.broker_id) != (member.incarnation, view.master_epoch)
            )
        ]

    def _end(self, run: _Run) -> None:
        for task in run.tasks.values():
            task.cancel()
        del self._runs[run.view.set_key]

    async def _tell(self, run: _Run, broker_id: BrokerId) -> None:
        """One broker, until it knows everything, in at most ``ATTEMPTS_MAX`` tries."""
        try:
            for attempt in range(ATTEMPTS_MAX):
                # Not after a loss of leadership: the next leader pushes an epoch that this one has not heard of.
                again = self._dials_again[broker_id == run.view.master]
                if not self._service.duties.is_active or await self._is_told(
                    run, broker_id, again if attempt else self._dials
                ):
                    return
                await asyncio.sleep(min(PAUSE_MS << attempt, PAUSE_MS_MAX) / 1000)
            self._give_up(run.view, broker_id)
        finally:
            del run.tasks[broker_id]
            if not run.tasks and self._runs.get(run.view.set_key) is run:
                del self._runs[run.view.set_key]

    def _give_up(self, view: SetView, broker_id: BrokerId) -> None:
        """Rule 3: a broker that was not reached by now is not tried for this epoch again."""
        # Noted as told: else each later change of the set would begin twelve attempts more.
        for member in self._untold(view):
            if member.broker_id == broker_id:
                told = (member.incarnation, view.master_epoch)
                self.sent["given up"] += 1
                self._memory[view.set_key].roles[broker_id] = told
                self._memory[view.set_key].links[broker_id] = told

    async def _is_told(self, run: _Run, broker_id: BrokerId, turn: asyncio.Semaphore) -> bool:
        """One try. Whether nothing is left to tell this broker."""
        view = run.view
        master = _living_master(view)
        member = next((one for one in view.members if one.broker_id == broker_id), None)
        if master is None or member is None or not member.is_alive:
            return True
        try:
            if member is master:
                return await self._tell_master(run, view, master, turn)
            return await self._tell_slave(run, view, master, member, turn)
        except _UNREACHABLE:
            return False
        except Exception as error:
            self._logger.exception("push_failed", set=str(view.set_key), broker_id=broker_id, error=repr(error))
            return False

    async def _tell_master(self, run: _Run, view: SetView, master: MemberView, turn: asyncio.Semaphore) -> bool:
        began_ns = self._service.now_ns()
        try:
            async with self._link_to(master.description.address, turn) as link:
                if self._is_role_due(view, master):
                    # BEFORE the write: the winner's own clock runs from the notice on. Stamped after the answer, its
                    # time would be counted twice in the failover's phases.
                    self._service.duties.handle_notified(view.set_key, view.master_epoch, began_ns)
                if not await self._tell_role(link, view, master, master):
                    return False
                run.exchange = await self._ask_ha_address(link)
        finally:
            # Also on failure: the slaves wait for it, and would stay without their role for the whole timeout.
            run.master_tried.set()
        if run.exchange is None:
            return False
        told, memory = (master.incarnation, view.master_epoch), self._memory[view.set_key]
        if memory.links.get(master.broker_id) != told:
            memory.links[master.broker_id] = told
            # Told again by the next leader, it would be on record a second time, with the time that the second telling
            # took: 73 ms in the place of 926.
            if not run.was_entered:
                await self._record(view, master, elapsed_us=(self._service.now_ns() - began_ns) // NS_PER_US)
        return True

    async def _tell_slave(
        self, run: _Run, view: SetView, master: MemberView, member: MemberView, turn: asyncio.Semaphore
    ) -> bool:
        # A slave that dials before its master is one is sent away, and Java comes back after 5 s: so long the set would
        # have one copy. A master that hangs must not keep the others from their role, so the wait has an end.
        with suppress(TimeoutError):
            async with running_timeout(MASTER_FIRST_MS):
                await run.master_tried.wait()
        # Without a link while there is nothing to say: its master may be silent for all of its tries.
        if run.exchange is None and not self._is_role_due(view, member):
            return False
        async with self._link_to(member.description.address, turn) as link:
            if not await self._tell_role(link, view, master, member) or run.exchange is None:
                return False
            answer = await self._ask(link, RequestCode.EXCHANGE_BROKER_HA_INFO, run.exchange)
            is_told = answer.code == SystemCode.SUCCESS
            self.sent["906 taken" if is_told else "906 refused"] += 1
        if is_told:
            self._memory[view.set_key].links[member.broker_id] = (member.incarnation, view.master_epoch)
        return is_told

    @asynccontextmanager
    async def _link_to(self, address: str, turn: asyncio.Semaphore) -> AsyncIterator[RemotingConnection]:
        """A connection to one broker's listen port (rule 5). Raises ``_UNREACHABLE``."""
        # By the clock, the dials of a mass failover failed because this loop was busy with it, and their winners heard
        # last.
        async with turn, running_timeout(CONNECT_MS_MAX):
            link = await dial(address, timeout_ms=LATE_MS_MAX)
        while len(self._links) >= LINKS_MAX:
            # It has been silent for longest. Its broker has the 1008, and is tried again.
            oldest = next(iter(self._links))
            del self._links[oldest]
            oldest.close("a broker that has not answered makes room for the next one")
        self._links[link] = None
        try:
            yield link
        finally:
            self._links.pop(link, None)
            link.close("the push is done")

    def _is_role_due(self, view: SetView, member: MemberView) -> bool:
        told = self._memory[view.set_key].roles.get(member.broker_id)
        return told != (member.incarnation, view.master_epoch)

    async def _tell_role(self, link: RemotingConnection, view: SetView, master: MemberView, member: MemberView) -> bool:
        if not self._is_role_due(view, member):
            return True
        header = MasterHeader(
            master_broker_id=master.broker_id,
            master_address=master.description.address,
            master_epoch=view.master_epoch,
            sync_state_set_epoch=view.sync_state_set_epoch,
        )
        body = sync_state_set_body(view.sync_state_set, view.sync_state_set_epoch)
        answer = await self._ask(link, RequestCode.NOTIFY_BROKER_ROLE_CHANGED, header, body)
        is_told = answer.code == SystemCode.SUCCESS
        self.sent["1008 taken" if is_told else "1008 refused"] += 1
        if is_told:
            self._memory[view.set_key].roles[member.broker_id] = (member.incarnation, view.master_epoch)
        return is_told

    async def _ask_ha_address(self, link: RemotingConnection) -> ExchangeHaHeader | None:
        """The answer of a master to 906 without an address; None: it is not master yet."""
        answer = await self._ask(link, RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHaHeader())
        found = read_header(ExchangeHaHeader, answer.ext_fields)
        # Success alone is not enough: a slave answers 0 as well, with an empty header.
        return found if answer.code == SystemCode.SUCCESS and found.master_ha_address else None

    async def _ask(self, link: RemotingConnection, code: int, header: Header, body: bytes = b"") -> Frame:
        return await link.request(code, ext_fields=header_fields(header), body=body, timeout_ms=ANSWER_MS_MAX)

    async def _record(self, view: SetView, master: MemberView, *, elapsed_us: int) -> None:
        """The winner answers as master, so it has applied its role."""
        milestone = Milestone(
            master_epoch=view.master_epoch,
            phase=Phase.ROLE_APPLIED,
            elapsed_us=elapsed_us,
            broker_id=master.broker_id,
            incarnation=master.incarnation,
        )
        try:
            await self._replicas.entered(view.set_key, view.master_epoch)
            await broker_requests.submit(
                self._service,
                RecordMilestones(set_key=view.set_key, milestones=(milestone,)),
                request_id=self._service.ports.new_request_id(),
                requested_by=f"broker:{master.broker_id}",
                connection=None,
            )
        except (NoAuthority, ProposeError) as error:
            self._logger.info("milestone_not_taken", set=str(view.set_key), reason=str(error))


def _living_master(view: SetView) -> MemberView | None:
    return next((member for member in view.members if member.broker_id == view.master and member.is_alive), None)
