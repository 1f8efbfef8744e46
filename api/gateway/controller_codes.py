"""
RocketMQ's controller protocol on the broker port: 904, 1001-1006, 1009-1013 (rocketmq-wire section 2.4).

Here: one handler per code: header and body to a command, reply to header, body, code and remark. Not here: rules
(``controller.core``), brokers as replicas (``rocketmq_replicas``), pushes (``rocketmq_pushes``), who leads
(``leader_check``).
Imported by: ``rocketmq``. Source: rocketmq-wire sections 2.3-2.6.

Rule 1: reads (1004, 1006, 1012) are answered in the turn in which they come, from applied state and with authority:
they never wait for the log. A slow 1004 costs the connection.
Rule 2: everything that succeeds has the header and the body that RocketMQ reads: a SyncStateSet also when it is empty,
a masterEpoch also without a master.
Rule 3: an outcome that is unknown, and a full buffer, are "busy": brokers ask again.
Rule 4: a repeat of the last accepted 1001 succeeds again; a repeat of a refused one is decided anew.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any

import msgspec

from api.gateway.controller_headers import (
    AlteredHeader,
    AlterSyncStateSetHeader,
    ApplyBrokerIdHeader,
    BrokerHeartbeatHeader,
    BrokerMemberGroup,
    BrokerNameHeader,
    CleanBrokerDataHeader,
    ElectedBody,
    ElectMasterHeader,
    MasterHeader,
    MetadataInfoHeader,
    NextBrokerIdHeader,
    RegisterBrokerHeader,
    RegisteredHeader,
    SetNameHeader,
    SyncStateDataBody,
    SyncStateSetBody,
    configuration_body,
    encode_body,
    read_names,
    read_sync_state_set,
    sync_state_set_body,
)
from api.gateway.dispatch import CodeTable, Handler, Request, Served
from api.gateway.headers import read_header
from api.gateway.leader_check import LeaderCheck
from api.gateway.rocketmq_replicas import RocketmqReplicas
from api.gateway.rocketmq_sets import belongs_to, code_of, code_of_alter, living_master, master_header, set_body
from controller.contract.codes import RefusalCode, RequestCode
from controller.contract.commands import (
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanReplicas,
    ElectMaster,
    Joining,
)
from controller.contract.ids import (
    BrokerId,
    BrokerName,
    ClusterName,
    Incarnation,
    MasterEpoch,
    RegisterCode,
    SetKey,
    SyncStateSetEpoch,
)
from controller.contract.replies import AlterDecided, AnyReply, Elected, Refused
from controller.core.state import SetState
from controller.replication.proposer import NotLeader, OutcomeUnknown, Overloaded
from controller.runtime.ports import NoAuthority
from controller.runtime.service import ControllerService
from node.remoting.codes import SystemCode

FIRST_HEARTBEAT_WAIT_MS = 200
"""How long a 1002 waits for its broker's first 904 (R8): RocketMQ sends both at once, in any order."""
ELECT_ATTEMPTS = 3
"""Evidence that moved meanwhile is gathered anew."""
IDS_MAX = 64
"""Ids in one 1011."""
NAMES_MAX = 1_000
"""Broker names in one 1006."""
NO_PERMISSION = 16
NOT_LEADER_REMARK = "The controller is not in leader state"
BLACK_LIST = frozenset({"configBlackList", "configStorePath", "rocketmqHome"})
"""Keys that RocketMQ lets nobody change."""

_NOBODY = Incarnation("")

_Work = Callable[["ControllerCodes", Request], Awaitable[None]]


def _for_leader(work: _Work) -> Callable[[ControllerCodes, Request], Coroutine[Any, Any, None]]:
    """Answer for ``work`` what keeps it from an outcome (rule 3)."""

    @wraps(work)
    async def answered(codes: ControllerCodes, request: Request) -> None:
        try:
            await work(codes, request)
        except (NoAuthority, NotLeader):
            request.answer(RefusalCode.NOT_LEADER, remark=NOT_LEADER_REMARK)
        except (Overloaded, OutcomeUnknown) as error:
            request.answer(SystemCode.SYSTEM_BUSY, remark=str(error))
        except ValueError as error:
            request.answer(RefusalCode.INVALID_REQUEST, remark=str(error))

    return answered


def _at_once(work: Callable[[ControllerCodes, Request], None]) -> Callable[[ControllerCodes, Request], None]:
    """A read: answered in its turn, by a leader with authority only (rule 1)."""

    @wraps(work)
    def answered(codes: ControllerCodes, request: Request) -> None:
        try:
            codes.service.require_authority()
        except NoAuthority:
            request.answer(RefusalCode.NOT_LEADER, remark=NOT_LEADER_REMARK)
        else:
            work(codes, request)

    return answered


class ControllerCodes:
    """The handlers. Runs on the loop."""

    def __init__(self, service: ControllerService, replicas: RocketmqReplicas, leader: LeaderCheck) -> None:
        """Serves once ``register`` has put it into a table."""
        self.service = service
        self._replicas = replicas
        self._leader = leader

    def register(self, codes: CodeTable) -> None:
        """Serve all codes of the controller."""
        handlers: dict[RequestCode, Handler] = {
            RequestCode.BROKER_HEARTBEAT: self._heartbeat,
            RequestCode.ALTER_SYNC_STATE_SET: self._alter,
            RequestCode.ELECT_MASTER: self._elect,
            RequestCode.REGISTER_BROKER: self._register,
            RequestCode.GET_REPLICA_INFO: self._replica_info,
            RequestCode.GET_METADATA_INFO: self._metadata,
            RequestCode.GET_SYNC_STATE_DATA: self._sync_state_data,
            RequestCode.UPDATE_CONTROLLER_CONFIG: self._update_configuration,
            RequestCode.GET_CONTROLLER_CONFIG: self._configuration,
            RequestCode.CLEAN_BROKER_DATA: self._clean,
            RequestCode.GET_NEXT_BROKER_ID: self._next_id,
            RequestCode.APPLY_BROKER_ID: self._apply_id,
        }
        codes.register(*(Served(code=code, name=code.name, handler=handler) for code, handler in handlers.items()))

    # --- 904, 1005 ---------------------------------------------------------------------------------------------------

    def _heartbeat(self, request: Request) -> Coroutine[Any, Any, None] | None:
        beat = read_header(BrokerHeartbeatHeader, request.fields)
        if beat.broker_id is None:
            request.answer(RefusalCode.INVALID_REQUEST, remark="Heart beat with empty brokerId")
            return None
        request.answer(remark="Heart beat success")
        return self._replicas.heard(beat, request.link)

    async def _metadata(self, request: Request) -> None:
        """Every member answers; one that does not lead names a leader only if that one says so itself."""
        settings = self.service.settings
        is_leader = self.service.authority().is_held
        leader = settings.name if is_leader else await self._leader.confirmed()
        addresses = settings.controllers.get(leader) if leader is not None else None
        request.answer(
            header=MetadataInfoHeader(
                group=settings.fleet_name,
                controller_leader_id=leader if addresses is not None else None,
                controller_leader_address=addresses.broker if addresses is not None else None,
                is_leader=is_leader,
                peers="".join(f"{name}:{peer.broker};" for name, peer in settings.controllers.items()),
            )
        )

    # --- 1012, 1013, 1003 --------------------------------------------------------------------------------------------

    @_at_once
    def _next_id(self, request: Request) -> None:
        header = read_header(BrokerNameHeader, request.fields)
        key = _key_of(header.cluster_name, header.broker_name)
        if self._refuse_stranger(request, key):
            return
        found = self._replicas.fleet.sets.get(key)
        request.answer(
            header=NextBrokerIdHeader(
                cluster_name=header.cluster_name,
                broker_name=header.broker_name,
                next_broker_id=found.next_id if found is not None else BrokerId(1),
            )
        )

    @_for_leader
    async def _apply_id(self, request: Request) -> None:
        header = read_header(ApplyBrokerIdHeader, request.fields)
        key = _key_of(header.cluster_name, header.broker_name)
        self.service.require_authority()
        if self._refuse_stranger(request, key):
            return
        code = header.register_check_code or ""
        names = SetNameHeader(cluster_name=header.cluster_name, broker_name=header.broker_name)
        if not code or header.applied_broker_id is None:
            request.answer(
                RefusalCode.INVALID_REQUEST, header=names, remark="appliedBrokerId or registerCheckCode is null"
            )
            return
        address = code.partition(";")[0]
        reply = await self.service.submit(
            ApplyBrokerId(
                set_key=key,
                register_code=RegisterCode(code),
                address=address,
                applied_broker_id=BrokerId(header.applied_broker_id),
            ),
            request_id=self._replicas.new_request_id(),
            requested_by=f"broker@{address}",
        )
        if isinstance(reply, Refused):
            is_taken = reply.code is RefusalCode.BROKER_ID_INVALID
            taken = f"Fail to apply brokerId: {header.applied_broker_id} in broker-set: {header.broker_name}"
            request.answer(code_of(reply), header=names, remark=taken if is_taken else reply.reason)
        else:
            request.answer(header=names)

    @_for_leader
    async def _register(self, request: Request) -> None:
        header = read_header(RegisterBrokerHeader, request.fields)
        key = _key_of(header.cluster_name, header.broker_name)
        names = RegisteredHeader(cluster_name=header.cluster_name, broker_name=header.broker_name)
        self.service.require_authority()
        if self._refuse_stranger(request, key):
            return
        found = self._replicas.find(header.broker_name)
        broker_id = BrokerId(header.broker_id or 0)
        if found is None or found.replica(broker_id) is None or not header.broker_address:
            request.answer(
                RefusalCode.NEED_TO_BE_REGISTERED,
                header=names,
                remark="Broker-set hasn't been registered in controller"
                if found is None
                else f"BrokerId {header.broker_id} hasn't been registered in controller",
            )
            return
        reply = await self._replicas.register(key, broker_id, header.broker_address, request.link)
        if isinstance(reply, Refused):
            request.answer(code_of(reply), header=names, remark=reply.reason)
            return
        found = self._replicas.fleet.sets[key]
        if living_master(found) is not None and found.recovery is None:
            master = master_header(found)
            names = RegisteredHeader(
                cluster_name=header.cluster_name,
                broker_name=header.broker_name,
                master_broker_id=master.master_broker_id,
                master_address=master.master_address,
                master_epoch=master.master_epoch,
                sync_state_set_epoch=master.sync_state_set_epoch,
            )
        request.answer(header=names, body=_set_of(found))

    def _refuse_stranger(self, request: Request, key: SetKey) -> bool:
        """Whether the name belongs to another cluster; then that was answered."""
        owner = self._replicas.stranger(key)
        if owner is None:
            return False
        request.answer(
            RefusalCode.INVALID_REQUEST,
            remark=f"broker name {key.name} belongs to cluster {owner.cluster}, not to {key.cluster}: "
            "choose another brokerName, or correct brokerClusterName",
        )
        return True

    # --- 1002 --------------------------------------------------------------------------------------------------------

    @_for_leader
    async def _elect(self, request: Request) -> None:
        header = read_header(ElectMasterHeader, request.fields)
        self.service.require_authority()
        found = self._replicas.find(header.broker_name)
        if found is None or not belongs_to(found, header.cluster_name):
            request.answer(
                RefusalCode.NEED_TO_BE_REGISTERED, header=MasterHeader(), remark="Broker hasn't been registered"
            )
            return
        named = BrokerId(header.broker_id) if header.broker_id is not None and header.broker_id > 0 else None
        is_designated = bool(header.designate_elect)
        if named is not None and not is_designated:
            key = found.set_key, named
            is_heard = await self._replicas.wait_heard(key, FIRST_HEARTBEAT_WAIT_MS)
            if not is_heard and not found.is_established:
                self._replicas.asked(key, request.link)
        reply = await self._elected(
            found.set_key, named, is_designated=is_designated, requested_by=_requested_by(header)
        )
        self._answer_elect(request, found.set_key, reply)

    async def _elected(
        self, key: SetKey, named: BrokerId | None, *, is_designated: bool, requested_by: str
    ) -> AnyReply | None:
        """The reply to the last attempt; None if the set is gone."""
        reply: AnyReply | None = None
        for _ in range(ELECT_ATTEMPTS):
            view = self.service.view_of(key)
            if view is None:
                break
            is_first = not self._replicas.fleet.sets[key].is_established
            reply = await self.service.submit(
                ElectMaster(
                    set_key=key,
                    designated=named if is_designated or is_first else None,
                    reason="asked by mqadmin" if is_designated else f"asked by broker {named}",
                ),
                request_id=self._replicas.new_request_id(),
                requested_by=requested_by,
                evidence=self.service.evidence(view),
            )
            if not (isinstance(reply, Refused) and reply.code is RefusalCode.EVIDENCE_MOVED):
                break
        return reply

    def _answer_elect(self, request: Request, key: SetKey, reply: AnyReply | None) -> None:
        found = self._replicas.fleet.sets.get(key)
        if isinstance(reply, Elected) and found is not None:
            group = BrokerMemberGroup(
                broker_addrs={str(replica.broker_id): replica.address for replica in found.replicas},
                broker_name=key.name,
                cluster=key.cluster,
            )
            body = ElectedBody(broker_member_group=group, sync_state_set=tuple(found.sync_state_set))
            request.answer(header=master_header(found), body=encode_body(body))
        elif isinstance(reply, Refused) and reply.code is RefusalCode.MASTER_STILL_EXISTS and found is not None:
            request.answer(
                RefusalCode.MASTER_STILL_EXISTS,
                header=master_header(found),
                body=encode_body(ElectedBody(sync_state_set=tuple(found.sync_state_set))),
                remark=f"The old master {found.master} is still alive, "
                f"not need to elect new master for broker {key.name}",
            )
        else:
            reason = reply.reason if isinstance(reply, Refused) else f"set {key} is gone"
            request.answer(RefusalCode.NO_ELIGIBLE_REPLICA, header=MasterHeader(), remark=reason)

    # --- 1004, 1006 --------------------------------------------------------------------------------------------------

    @_at_once
    def _replica_info(self, request: Request) -> None:
        found = self._replicas.find(read_header(BrokerNameHeader, request.fields).broker_name)
        if found is None:
            request.answer(RefusalCode.SET_NOT_FOUND, header=MasterHeader(), remark="Broker metadata is not existed")
            return
        request.answer(header=master_header(found, with_set_epoch=False), body=_set_of(found))

    @_at_once
    def _sync_state_data(self, request: Request) -> None:
        try:
            names = read_names(request.frame.body)
        except msgspec.MsgspecError as error:
            request.answer(SystemCode.SYSTEM_ERROR, remark=f"the body is no list of broker names: {error}")
            return
        if not 0 < len(names) <= NAMES_MAX:
            request.answer(SystemCode.SYSTEM_ERROR, remark=f"{len(names)} broker names, 1 to {NAMES_MAX} are answered")
            return
        found = {name: known for name in names if (known := self._replicas.find(name)) is not None}
        table = SyncStateDataBody(replicas_info_table={name: set_body(known) for name, known in found.items()})
        request.answer(body=encode_body(table))

    # --- 1001 --------------------------------------------------------------------------------------------------------

    @_for_leader
    async def _alter(self, request: Request) -> None:
        header = read_header(AlterSyncStateSetHeader, request.fields)
        self.service.require_authority()
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
        if _is_repeat(found, asked, master, epoch):
            self._answer_alter(request, asked.sync_state_set, found.sync_state_set_epoch)
            return
        reply = await self.service.submit(
            _alter_of(found, asked, master, epoch),
            request_id=self._replicas.new_request_id(),
            requested_by=f"broker:{master}",
        )
        if isinstance(reply, AlterDecided) and reply.verdict.is_accepted:
            self._answer_alter(request, reply.verdict.sync_state_set, reply.verdict.sync_state_set_epoch)
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

    # --- 1009, 1010, 1011 --------------------------------------------------------------------------------------------

    def _settings(self) -> dict[str, Any]:
        """What ``mqadmin getControllerConfig`` shows of ours, under RocketMQ's keys. Set by the fleet file."""
        settings, timing = self.service.settings, self.service.settings.timing
        return {
            "controllerDLegerGroup": settings.fleet_name,
            "controllerDLegerPeers": ";".join(f"{n}-{peer.broker}" for n, peer in settings.controllers.items()),
            "controllerDLegerSelfId": settings.name,
            "controllerType": "Rollcall",
            "enableElectUncleanMaster": "false",
            "isProcessReadEvent": "false",
            "notifyBrokerRoleChanged": "true",
            "scanInactiveMasterInterval": timing.scan_interval_ms,
            "scanNotActiveBrokerInterval": timing.scan_interval_ms,
        }

    def _configuration(self, request: Request) -> None:
        request.answer(body=configuration_body(self._settings()))

    def _update_configuration(self, request: Request) -> None:
        """Unknown keys do nothing, as in RocketMQ; ours are fixed by the fleet file, and that is said."""
        try:
            lines = [line for line in request.frame.body.decode().splitlines() if line.strip()]
        except UnicodeDecodeError as error:
            request.answer(SystemCode.SYSTEM_ERROR, remark=f"the body is not UTF-8: {error}")
            return
        asked = {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}
        known = self._settings()
        fixed = [key for key, value in asked.items() if key in known and str(known[key]) != value]
        if BLACK_LIST & asked.keys():
            request.answer(NO_PERMISSION, remark="Can not update config in black list.")
        elif fixed:
            request.answer(NO_PERMISSION, remark=f"{', '.join(sorted(fixed))}: set by the fleet file; change it there")
        else:
            request.answer()

    @_for_leader
    async def _clean(self, request: Request) -> None:
        header = read_header(CleanBrokerDataHeader, request.fields)
        self.service.require_authority()
        found = self._replicas.find(header.broker_name)
        ids = [text.strip() for text in (header.broker_controller_ids_to_clean or "").split(";") if text.strip()]
        if found is None or not belongs_to(found, header.cluster_name):
            request.answer(
                RefusalCode.INVALID_CLEAN,
                remark=f"Broker set {header.broker_name} is not existed, clean broker data failure.",
            )
            return
        if len(ids) > IDS_MAX or not all(text.isdecimal() and text.isascii() and len(text) < 10 for text in ids):
            request.answer(
                RefusalCode.INVALID_CLEAN, remark=f"When clean broker ids, each is a number; came: {ids[:8]}"
            )
            return
        named = {BrokerId(int(text)) for text in ids}
        broker_ids = tuple(sorted(replica.broker_id for replica in found.replicas if replica.broker_id in named))
        if named and not broker_ids:
            # As in RocketMQ: what is not there need not be removed.
            request.answer()
            return
        reply = await self.service.submit(
            CleanReplicas(
                set_key=found.set_key,
                broker_ids=broker_ids,
                is_unclean=bool(header.is_clean_living_broker),
                reason="asked by mqadmin",
            ),
            request_id=self._replicas.new_request_id(),
            requested_by="admin:mqadmin",
        )
        if isinstance(reply, Refused):
            remark = _clean_remark(found, broker_ids) or reply.reason
            request.answer(RefusalCode.INVALID_CLEAN, remark=remark)
        else:
            request.answer()


def _key_of(cluster: str | None, name: str | None) -> SetKey:
    return SetKey(cluster=ClusterName(cluster or ""), name=BrokerName(name or ""))


def _set_of(found: SetState) -> bytes:
    return sync_state_set_body(found.sync_state_set, found.sync_state_set_epoch)


def _requested_by(header: ElectMasterHeader) -> str:
    return "admin:mqadmin" if header.designate_elect else f"broker:{header.broker_id}"


def _is_repeat(found: SetState, asked: SyncStateSetBody, master: BrokerId, epoch: MasterEpoch) -> bool:
    """Rule 4: the state is exactly what this request made of it."""
    last = found.last_alter.verdict if found.last_alter is not None else None
    return (
        last is not None
        and last.is_accepted
        and (found.master, found.master_epoch, last.master_epoch) == (master, epoch, epoch)
        and found.sync_state_set == last.sync_state_set == asked.sync_state_set
        and found.sync_state_set_epoch == last.sync_state_set_epoch == asked.sync_state_set_epoch + 1
    )


def _alter_of(found: SetState, asked: SyncStateSetBody, master: BrokerId, epoch: MasterEpoch) -> AlterSyncStateSet:
    """The command. RocketMQ counts no proposals and names no incarnations: those of the state stand for them (R1)."""
    last = found.last_alter.verdict if found.last_alter is not None else None
    members = tuple(BrokerId(member) for member in asked.sync_state_set)
    added = (found.replica(member) for member in members if member not in found.sync_state_set)
    replica = found.replica(master)
    return AlterSyncStateSet(
        set_key=found.set_key,
        broker_id=master,
        incarnation=(replica.incarnation if replica is not None else None) or found.master_incarnation or _NOBODY,
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
    added = (found.replica(BrokerId(m)) for m in asked.sync_state_set if BrokerId(m) not in found.sync_state_set)
    silent = ", ".join(
        str(r.broker_id) for r in added if r is not None and not (r.is_alive and r.positions is not None)
    )
    return f"Rejecting alter syncStateSet request because the replicas {{{silent}}} don't alive"


def _clean_remark(found: SetState, broker_ids: tuple[BrokerId, ...]) -> str | None:
    living = [r.broker_id for r in found.replicas if r.is_alive and r.broker_id in broker_ids]
    if not living:
        return None
    return f"Broker [{found.set_key.name},  {living[0]}] is still alive, clean up failure"
