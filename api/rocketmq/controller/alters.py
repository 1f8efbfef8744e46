"""
1001: a RocketMQ master's compare-and-set on the SyncStateSet (R1; docs/wire.md, controller codes).

Here: its command, its answer, and the number of a refusal. Not here: the decision (``controller.core.alters``).

Rule 1: a repeat of the last accepted 1001 succeeds again while the state is what that one made of it; a repeat of a
refused one is decided anew.
Rule 2: RocketMQ counts no proposals and names no incarnations, so those of our own state are put in. A member that has
registered anew since is not admitted before its first heartbeat.
Rule 3: a 1001 that would change nothing is refused as RocketMQ refuses it, and is not put on record.
"""

from __future__ import annotations

import msgspec

from rollcall_ha.api.broker_port.code_table import CodeTable, Request, Served
from rollcall_ha.api.broker_port.headers import read_header
from rollcall_ha.api.rocketmq.controller.beans import (
    AlteredHeader,
    AlterSyncStateSetHeader,
    SyncStateSetBody,
    read_sync_state_set,
    sync_state_set_body,
)
from rollcall_ha.api.rocketmq.controller.broker_sets import code_of_alter, silent_additions
from rollcall_ha.api.rocketmq.controller.leading import for_leader
from rollcall_ha.api.rocketmq.controller.replicas import RocketmqReplicas
from rollcall_ha.controller.contract.codes import RefusalCode, RequestCode
from rollcall_ha.controller.contract.commands import AlterSyncStateSet
from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, MasterEpoch, SyncStateSetEpoch
from rollcall_ha.controller.contract.replies import AlterDecided, AnyReply, Refused
from rollcall_ha.controller.contract.values import Joining
from rollcall_ha.controller.core.state import SetState
from rollcall_ha.controller.runtime.service import ControllerService
from rollcall_ha.node.remoting.codes import SystemCode

_UNKNOWN = Incarnation("")
"""Stands for a broker that was never registered; apply refuses it."""


class AlterCodes:
    """The handler of 1001. Runs on the loop; serves once ``register`` has put it into a table."""

    def __init__(self, service: ControllerService, replicas: RocketmqReplicas) -> None:
        self.service = service
        self._replicas = replicas

    def register(self, codes: CodeTable) -> None:
        code = RequestCode.ALTER_SYNC_STATE_SET
        codes.register(Served(code=code, name=code.name, handler=self._alter))

    @for_leader
    async def _alter(self, request: Request) -> None:
        header = read_header(AlterSyncStateSetHeader, request.fields)
        found = self._replicas.find(header.broker_name)
        if found is None:
            self._refuse_alter(request, RefusalCode.ALTER_REFUSED, "Broker metadata is not existed")
            return
        try:
            asked = read_sync_state_set(request.frame.body)
        except msgspec.MsgspecError as error:
            self._refuse_alter(request, RefusalCode.INVALID_REQUEST, f"the body is no SyncStateSet: {error}")
            return
        master, epoch = BrokerId(header.master_broker_id or 0), MasterEpoch(header.master_epoch or 0)
        # Before the repeat, whose answer tells the set: also that is for the master.
        if complaint := self._replicas.refuse_speaker(found, master, request):
            self._refuse_alter(request, SystemCode.NO_PERMISSION, complaint)
            return
        # Its answer was lost: told "fenced", the master would go on with the old set, while ours has committed. It
        # waits for a slave that is a member no longer, or, worse, does not wait for one that is (R1).
        if _is_repeat(found, asked, master, epoch):
            self._answer_alter(request, asked.sync_state_set, found.sync_state_set_epoch)
            return
        # A master sends one for each acknowledgement that came while it waited: thousands, and each would be an entry
        # of the Raft log and a line of the record.
        if _is_so_already(found, asked, master, epoch):
            self._refuse_alter(request, RefusalCode.ALTER_REFUSED, f"the set is {found.sync_state_set} already")
            return
        reply = await self.service.submit(
            _alter_of(found, asked, master, epoch),
            request_id=self.service.ports.new_request_id(),
            requested_by=f"broker:{master}",
            principal=request.caller,
        )
        if isinstance(reply, AlterDecided) and reply.verdict.is_accepted:
            self._answer_alter(request, reply.verdict.sync_state_set, reply.verdict.sync_state_set_epoch)
            # A broker alters a set only once it has applied its role, so it has entered. AFTER the answer, for which
            # the broker's acknowledgements wait.
            await self._replicas.entered(found.set_key, epoch)
            return
        refusal, reason = _refusal_of(reply)
        code = code_of_alter(found, asked, master=master, epoch=epoch, refusal=refusal)
        self._refuse_alter(request, code, _alter_remark(found, asked, code) or reason)

    def _answer_alter(self, request: Request, members: tuple[int, ...], set_epoch: int) -> None:
        request.answer(
            header=AlteredHeader(new_sync_state_set_epoch=set_epoch), body=sync_state_set_body(members, set_epoch)
        )

    def _refuse_alter(self, request: Request, code: int, remark: str) -> None:
        request.answer(code, header=AlteredHeader(), remark=remark)


def _is_repeat(found: SetState, asked: SyncStateSetBody, master: BrokerId, epoch: MasterEpoch) -> bool:
    """Rule 1: the state is exactly what this request made of it."""
    # Every number is compared: if the set went {1,2}, {1}, {1,2} meanwhile, the members alone would look the same, and
    # the master would be told an epoch in which broker 2 had not been required.
    last = found.last_alter.verdict if found.last_alter is not None else None
    return (
        last is not None
        and last.is_accepted
        and (found.master, found.master_epoch, last.master_epoch) == (master, epoch, epoch)
        and found.sync_state_set == last.sync_state_set == asked.sync_state_set
        and found.sync_state_set_epoch == last.sync_state_set_epoch == asked.sync_state_set_epoch + 1
    )


def _is_so_already(found: SetState, asked: SyncStateSetBody, master: BrokerId, epoch: MasterEpoch) -> bool:
    """Rule 3: nothing would change, and the sender knows the newest epochs."""
    return (found.master, found.master_epoch) == (master, epoch) and (
        (found.sync_state_set, found.sync_state_set_epoch) == (asked.sync_state_set, asked.sync_state_set_epoch)
    )


def _alter_of(found: SetState, asked: SyncStateSetBody, master: BrokerId, epoch: MasterEpoch) -> AlterSyncStateSet:
    """The command (rule 2)."""
    last = found.last_alter.verdict if found.last_alter is not None else None
    members = tuple(BrokerId(member) for member in asked.sync_state_set)
    added = (found.replica(member) for member in members if member not in found.sync_state_set)
    replica = found.replica(master)
    return AlterSyncStateSet(
        set_key=found.set_key,
        broker_id=master,
        # Java names none. The one that is registered now: if the broker has started again since its election, that is
        # not the incarnation that was elected, and apply refuses the alter.
        incarnation=(replica.incarnation if replica is not None else None) or found.master_incarnation or _UNKNOWN,
        master_epoch=epoch,
        seq=(last.seq if last is not None and last.master_epoch == epoch else 0) + 1,
        sync_state_set_epoch=SyncStateSetEpoch(asked.sync_state_set_epoch),
        new_set=members,
        joining=tuple(
            Joining(broker_id=one.broker_id, incarnation=one.incarnation)
            for one in added
            if one is not None and one.incarnation is not None
        ),
    )


def _refusal_of(reply: AnyReply) -> tuple[RefusalCode, str]:
    if isinstance(reply, AlterDecided):
        return reply.verdict.refusal or RefusalCode.ALTER_REFUSED, reply.reason
    if isinstance(reply, Refused):
        return reply.code, reply.reason
    return RefusalCode.ALTER_REFUSED, "not decided"


def _alter_remark(found: SetState, asked: SyncStateSetBody, code: int) -> str | None:
    """RocketMQ's own words, where operators search for them."""
    if code != RefusalCode.BROKER_NOT_ALIVE:
        return None
    silent = ", ".join(map(str, silent_additions(found, asked)))
    return f"Rejecting alter syncStateSet request because the replicas {{{silent}}} don't alive"
