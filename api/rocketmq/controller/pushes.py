"""
Telling RocketMQ brokers of an election: 1008 to every living member, 906 to slaves, on connections to their ports.

Here: which broker was told which epoch, the order of the messages, tries. Not here: when something was committed
(``controller.runtime.pushes``), what it means for records (``replicas``). Codes: docs/wire.md, controller codes.

Rule 1: 1008 is sent as a request: its answer says that the role has been applied or is older news.
Rule 2: the master first. It is asked for its HA address by 906 until it answers as master; then each slave gets its
1008, and right behind it that address by 906. A slave waits ``MASTER_FIRST_MS`` at most.
Rule 3: a process is told of one masterEpoch once; a broker that cannot be reached is tried ``ATTEMPTS_MAX`` times, and
then left to its own poll of 5 s. Losing all of this costs time only.
Rule 4: the newest view is pushed; a run for an older epoch ends.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from rollcall_ha.api.rocketmq.controller.beans import ExchangeHaHeader, MasterHeader, sync_state_set_body
from rollcall_ha.api.rocketmq.controller.replicas import RocketmqReplicas
from rollcall_ha.api.rocketmq.headers import Header, header_fields, read_header
from rollcall_ha.controller.contract.codes import RequestCode
from rollcall_ha.controller.contract.commands import RecordMilestones
from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, MasterEpoch, ReplicaKind, SetKey
from rollcall_ha.controller.contract.replies import MemberView, SetView
from rollcall_ha.controller.contract.values import Milestone, Phase
from rollcall_ha.controller.replication.proposer import ProposeError
from rollcall_ha.controller.runtime.ports import NoAuthority
from rollcall_ha.controller.runtime.service import ControllerService
from rollcall_ha.controller.runtime.session_state import NS_PER_US
from rollcall_ha.node.config import ConfigError
from rollcall_ha.node.remoting.asking import dial
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
ANSWER_MS_MAX = 2_000
LINKS_MAX = 512
"""Pushes under way; more wait for their turn."""

_UNREACHABLE = (OSError, TimeoutError, RemotingError, ConfigError)

Told = dict[BrokerId, tuple[Incarnation, MasterEpoch]]


@dataclass(slots=True, kw_only=True)
class _Run:
    """The push of one set."""

    view: SetView
    task: asyncio.Task[None] | None = None


@dataclass(slots=True)
class _SetMemory:
    """Which process was told which epoch, by 1008 and by 906."""

    roles: Told = field(default_factory=dict)
    links: Told = field(default_factory=dict)


class RocketmqPushes:
    """The pushes of one controller. Runs on the loop."""

    def __init__(self, service: ControllerService, replicas: RocketmqReplicas) -> None:
        """Sends when told of a view."""
        self._service = service
        self._replicas = replicas
        self._logger = get_logger("gateway")
        self._memory: dict[SetKey, _SetMemory] = {}
        self._runs: dict[SetKey, _Run] = {}
        self._links = asyncio.Semaphore(LINKS_MAX)
        self.sent: Counter[str] = Counter()
        """By code and outcome; a metric."""

    def announce(self, view: SetView) -> None:
        """This view was committed. Returns at once."""
        if _living_master(view) is None or not self._untold(view):
            return
        run = self._runs.get(view.set_key)
        # One run per set, with its view exchanged (rule 4). Two at once could tell a slave of epoch 4 and then of 3: it
        # ignores the older 1008, and takes the older HA address, for 906 carries no epoch.
        if run is not None:
            run.view = view
            return
        run = _Run(view=view)
        self._runs[view.set_key] = run
        run.task = asyncio.get_running_loop().create_task(self._push(run))

    def needs_telling(self, key: SetKey, broker_id: BrokerId, epoch: MasterEpoch) -> bool:
        """Whether this replica has not been told of ``epoch`` by this controller."""
        told = self._memory[key].roles.get(broker_id) if key in self._memory else None
        return told is None or told[1] < epoch

    async def stop(self) -> None:
        """End what is under way."""
        tasks = [run.task for run in self._runs.values() if run.task is not None]
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

    async def _push(self, run: _Run) -> None:
        try:
            attempts, epoch = 0, run.view.master_epoch
            # Not after a loss of leadership: the next leader pushes an epoch that this one has not heard of.
            while attempts < ATTEMPTS_MAX and self._service.duties.is_active:
                view = run.view
                if view.master_epoch != epoch:
                    attempts, epoch = 0, view.master_epoch
                if await self._push_once(view):
                    if run.view is view:
                        return
                    # Another view came while the last broker was told; ``announce`` has left it to this run.
                    continue
                await asyncio.sleep(min(PAUSE_MS << attempts, PAUSE_MS_MAX) / 1000)
                attempts += 1
            if attempts >= ATTEMPTS_MAX:
                self._give_up(run.view)
        finally:
            del self._runs[run.view.set_key]

    def _give_up(self, view: SetView) -> None:
        """Rule 3: a broker that was not reached by now is not tried for this epoch again."""
        # Noted as told: else each later change of the set would begin twelve attempts more.
        for member in self._untold(view):
            told = (member.incarnation, view.master_epoch)
            self.sent["given up"] += 1
            self._memory[view.set_key].roles[member.broker_id] = told
            self._memory[view.set_key].links[member.broker_id] = told

    async def _push_once(self, view: SetView) -> bool:
        """Whether all living members have been told everything."""
        members = self._untold(view)
        master = _living_master(view)
        if master is None or not members:
            return True
        ha_address: asyncio.Future[ExchangeHaHeader | None] = asyncio.get_running_loop().create_future()
        others = [member for member in members if member.broker_id != master.broker_id]
        results = await asyncio.gather(
            self._tell_master(view, master, ha_address),
            *(self._tell_slave(view, master, member, ha_address) for member in others),
            return_exceptions=True,
        )
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, _UNREACHABLE):
                self._logger.error("push_failed", set=str(view.set_key), error=repr(result), exc_info=result)
        return all(result is True for result in results)

    async def _tell_master(
        self, view: SetView, master: MemberView, ha_address: asyncio.Future[ExchangeHaHeader | None]
    ) -> bool:
        began_ns = self._service.now_ns()
        exchange: ExchangeHaHeader | None = None
        try:
            async with self._links, _link_to(master.description.address) as link:
                if self._is_role_due(view, master):
                    # BEFORE the write: the winner's own clock runs from the notice on. Stamped after the answer, its
                    # time would be counted twice in the failover's phases.
                    self._service.duties.handle_notified(view.set_key, view.master_epoch, began_ns)
                if not await self._tell_role(link, view, master, master):
                    return False
                exchange = await self._ask_ha_address(link)
        finally:
            # Also on failure: the slaves wait for it, and would stay without their role for the whole timeout.
            ha_address.set_result(exchange)
        if exchange is None:
            return False
        told, memory = (master.incarnation, view.master_epoch), self._memory[view.set_key]
        if memory.links.get(master.broker_id) != told:
            memory.links[master.broker_id] = told
            await self._record(view, master, elapsed_us=(self._service.now_ns() - began_ns) // NS_PER_US)
        return True

    async def _tell_slave(
        self,
        view: SetView,
        master: MemberView,
        member: MemberView,
        ha_address: asyncio.Future[ExchangeHaHeader | None],
    ) -> bool:
        # A slave that dials before its master is one is sent away, and Java comes back after 5 s: so long the set would
        # have one copy. A master that hangs must not keep the others from their role, so the wait has an end.
        await asyncio.wait((ha_address,), timeout=MASTER_FIRST_MS / 1000)
        exchange = ha_address.result() if ha_address.done() else None
        async with self._links, _link_to(member.description.address) as link:
            if not await self._tell_role(link, view, master, member) or exchange is None:
                return False
            answer = await self._ask(link, RequestCode.EXCHANGE_BROKER_HA_INFO, exchange)
            is_told = answer.code == SystemCode.SUCCESS
            self.sent["906 taken" if is_told else "906 refused"] += 1
        if is_told:
            self._memory[view.set_key].links[member.broker_id] = (member.incarnation, view.master_epoch)
        return is_told

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
            await self._service.submit_for_broker(
                RecordMilestones(set_key=view.set_key, milestones=(milestone,)),
                request_id=self._service.ports.new_request_id(),
                requested_by=f"broker:{master.broker_id}",
                connection=None,
            )
        except (NoAuthority, ProposeError) as error:
            self._logger.info("milestone_not_taken", set=str(view.set_key), reason=str(error))


def _living_master(view: SetView) -> MemberView | None:
    return next((member for member in view.members if member.broker_id == view.master and member.is_alive), None)


@asynccontextmanager
async def _link_to(address: str) -> AsyncIterator[RemotingConnection]:
    """A connection to one broker's listen port. Raises ``_UNREACHABLE``."""
    link = await dial(address, timeout_ms=CONNECT_MS_MAX)
    try:
        yield link
    finally:
        link.close("the push is done")
