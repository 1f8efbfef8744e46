"""
RocketMQ's controller protocol on the broker port: 904, 1002-1006, 1012, 1013.

Here: one handler per code: header and body to a command, reply to header, body, code and remark. Not here: 1001
(``alters``), 1009-1011 (``admin``), rules (``controller.core``), brokers as replicas (``replicas``), pushes
(``pushes``), which controller leads (``leader_check``). Codes and answers: docs/wire.md, controller codes.

Rule 1: reads (1004, 1006, 1012) are answered in the turn in which they come, from applied state and with authority:
they never wait for the log. A slow 1004 costs the connection.
Rule 2: an answer of success has the header and the body that RocketMQ reads: a SyncStateSet also when it is empty, a
masterEpoch also without a master.
Rule 3: an election that a broker asks for and that would be refused is answered without being put on record; an
election that mqadmin asks for is on record, refused or not (R24).
Rule 4: a broker that asks for a first election counts as heard, if its 904 does not come in time.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import msgspec

from rollcall_ha.api.broker_port.code_table import CodeTable, Handler, Request, Served
from rollcall_ha.api.broker_port.headers import read_header
from rollcall_ha.api.rocketmq.controller.beans import (
    ApplyBrokerIdHeader,
    BrokerHeartbeatHeader,
    BrokerMemberGroup,
    ElectedBody,
    ElectMasterHeader,
    MasterHeader,
    MetadataInfoHeader,
    NextBrokerIdHeader,
    RegisterBrokerHeader,
    RegisteredHeader,
    SetHeader,
    SyncStateDataBody,
    encode_body,
    read_names,
)
from rollcall_ha.api.rocketmq.controller.broker_sets import (
    belongs_to,
    code_of,
    is_master_named,
    master_header,
    set_body,
    set_of,
)
from rollcall_ha.api.rocketmq.controller.leader_check import LeaderCheck
from rollcall_ha.api.rocketmq.controller.leading import at_once, for_leader
from rollcall_ha.api.rocketmq.controller.replicas import RocketmqReplicas
from rollcall_ha.controller.contract.codes import RefusalCode, RequestCode
from rollcall_ha.controller.contract.commands import (
    ApplyBrokerId,
    ElectMaster,
)
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    BrokerName,
    ClusterName,
    RegisterCode,
    SetKey,
)
from rollcall_ha.controller.contract.names import key_complaint
from rollcall_ha.controller.contract.replies import AnyReply, Elected, Refused
from rollcall_ha.controller.core.decide import decide
from rollcall_ha.controller.runtime import broker_requests
from rollcall_ha.controller.runtime.service import ControllerService
from rollcall_ha.node.remoting.codes import SystemCode

FIRST_HEARTBEAT_WAIT_MS = 200
"""How long a 1002 waits for its broker's first 904 (R8): RocketMQ sends both at once, in any order."""
ELECT_ATTEMPTS = 3
"""Evidence that has moved before the entry was applied (R14) is gathered anew."""
NAMES_MAX = 1_000
"""Broker names in one 1006."""


class ControllerCodes:
    """The handlers. Runs on the loop; serves once ``register`` has put them into a table."""

    def __init__(self, service: ControllerService, replicas: RocketmqReplicas, leader: LeaderCheck) -> None:
        self.service = service
        self._replicas = replicas
        self._leader = leader

    def register(self, codes: CodeTable) -> None:
        handlers: dict[RequestCode, Handler] = {
            RequestCode.BROKER_HEARTBEAT: self._heartbeat,
            RequestCode.ELECT_MASTER: self._elect,
            RequestCode.REGISTER_BROKER: self._register,
            RequestCode.GET_REPLICA_INFO: self._replica_info,
            RequestCode.GET_METADATA_INFO: self._metadata,
            RequestCode.GET_SYNC_STATE_DATA: self._sync_state_data,
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
        # Before it is counted, and without a look at authority: brokers send 904 to every controller, each second, and
        # a follower that refused it would fill their logs.
        request.answer(remark="Heart beat success")
        return self._replicas.heard(beat, request)

    async def _metadata(self, request: Request) -> None:
        """Every controller answers; a follower names a leader only if that controller confirms that it leads."""
        settings = self.service.settings
        # With authority, not by Raft's role: cut off from its majority, an old leader would keep all brokers that can
        # still reach it, and each election would run into its 2007.
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

    @at_once
    def _next_id(self, request: Request) -> None:
        header = read_header(SetHeader, request.fields)
        key = _key_of(header.cluster_name, header.broker_name)
        if self._refuse_name(request, key):
            return
        found = self._replicas.fleet.sets.get(key)
        request.answer(
            header=NextBrokerIdHeader(
                cluster_name=header.cluster_name,
                broker_name=header.broker_name,
                next_broker_id=found.next_id if found is not None else BrokerId(1),
            )
        )

    @for_leader
    async def _apply_id(self, request: Request) -> None:
        header = read_header(ApplyBrokerIdHeader, request.fields)
        key = _key_of(header.cluster_name, header.broker_name)
        if self._refuse_name(request, key):
            return
        code = header.register_check_code or ""
        names = SetHeader(cluster_name=header.cluster_name, broker_name=header.broker_name)
        # The code binds the id to one broker. With none, two new brokers that both read "next id 3" would both be 3.
        if not code or header.applied_broker_id is None:
            request.answer(
                RefusalCode.INVALID_REQUEST, header=names, remark="appliedBrokerId or registerCheckCode is null"
            )
            return
        address = code.partition(";")[0]
        reply = await broker_requests.submit(
            self.service,
            ApplyBrokerId(
                set_key=key,
                register_code=RegisterCode(code),
                address=address,
                applied_broker_id=BrokerId(header.applied_broker_id),
            ),
            request_id=self.service.ports.new_request_id(),
            requested_by=f"broker@{address}",
            connection=None,
            principal=request.caller,
        )
        if isinstance(reply, Refused):
            # 2014 for a taken id and for nothing else: Java deletes its temporary identity on it and asks for the next.
            is_taken = reply.code is RefusalCode.BROKER_ID_INVALID
            taken = f"Fail to apply brokerId: {header.applied_broker_id} in broker-set: {header.broker_name}"
            request.answer(code_of(reply), header=names, remark=taken if is_taken else reply.reason)
        else:
            request.answer(header=names)

    @for_leader
    async def _register(self, request: Request) -> None:
        header = read_header(RegisterBrokerHeader, request.fields)
        key = _key_of(header.cluster_name, header.broker_name)
        names = RegisteredHeader(cluster_name=header.cluster_name, broker_name=header.broker_name)
        if self._refuse_name(request, key):
            return
        found = self._replicas.find(header.broker_name)
        broker_id = BrokerId(header.broker_id or 0)
        # Ids come from 1013 alone. A 1003 that made one, from a broker with a copied identity file, would put its log
        # beside that of the broker to which the id was granted.
        if found is None or found.replica(broker_id) is None or not header.broker_address:
            request.answer(
                RefusalCode.NEED_TO_BE_REGISTERED,
                header=names,
                remark="Broker-set hasn't been registered in controller"
                if found is None
                else f"BrokerId {header.broker_id} hasn't been registered in controller",
            )
            return
        if complaint := self._replicas.refuse_speaker(found, broker_id, request):
            request.answer(SystemCode.NO_PERMISSION, header=names, remark=complaint)
            return
        reply = await self._replicas.register(key, broker_id, header.broker_address, request)
        if isinstance(reply, Refused):
            request.answer(code_of(reply), header=names, remark=reply.reason)
            return
        # Read again: the registration may have taken the office from the broker that registered. By the state from
        # before the await, a master that started anew would be told that it is master still.
        found = self._replicas.fleet.sets[key]
        if is_master_named(found):
            master = msgspec.structs.asdict(master_header(found))
            names = RegisteredHeader(cluster_name=header.cluster_name, broker_name=header.broker_name, **master)
        request.answer(header=names, body=set_of(found))

    def _refuse_name(self, request: Request, key: SetKey) -> bool:
        """Whether the name is not taken, or belongs to another cluster; if so, the request has its answer."""
        if complaint := key_complaint(key):
            request.answer(RefusalCode.INVALID_REQUEST, remark=complaint)
            return True
        owner = self._replicas.conflicting_set(key)
        if owner is None:
            return False
        request.answer(
            RefusalCode.INVALID_REQUEST,
            remark=f"broker name {key.name} belongs to cluster {owner.cluster}, not to {key.cluster}: "
            "choose another brokerName, or correct brokerClusterName",
        )
        return True

    # --- 1002 --------------------------------------------------------------------------------------------------------

    @for_leader
    async def _elect(self, request: Request) -> None:
        header = read_header(ElectMasterHeader, request.fields)
        found = self._replicas.find(header.broker_name)
        if found is None or not belongs_to(found, header.cluster_name):
            request.answer(
                RefusalCode.NEED_TO_BE_REGISTERED, header=MasterHeader(), remark="Broker hasn't been registered"
            )
            return
        named = BrokerId(header.broker_id) if header.broker_id is not None and header.broker_id > 0 else None
        is_designated = bool(header.designate_elect)
        if named is not None and not is_designated:
            if complaint := self._replicas.refuse_speaker(found, named, request):
                request.answer(SystemCode.NO_PERMISSION, header=MasterHeader(), remark=complaint)
                return
            key = found.set_key, named
            # The 904 may be behind the 1002. Without the wait the election finds a silent replica, elects nobody, and
            # the set has no master for the 5 s until the broker asks again.
            is_heard = await self._replicas.wait_heard(key, FIRST_HEARTBEAT_WAIT_MS)
            # Never in a set that has had a master: what this broker holds is not known, and it must not be elected by
            # it.
            if not is_heard and not found.is_established:
                self._replicas.heard_by_its_request(key, request.link)
        reply = await self._elected(found.set_key, named, request, is_designated=is_designated)
        self._answer_elect(request, found.set_key, reply)

    async def _elected(
        self, key: SetKey, named: BrokerId | None, request: Request, *, is_designated: bool
    ) -> AnyReply | None:
        """The reply to the last attempt; None if the set is gone."""
        requested_by = "admin:mqadmin" if is_designated else f"broker:{named}"
        reply: AnyReply | None = None
        for _ in range(ELECT_ATTEMPTS):
            # In each round: every await may have ended this controller's leadership.
            self.service.require_authority()
            if self.service.view_of(key) is None:
                break
            is_first = not self._replicas.fleet.sets[key].is_established
            command = ElectMaster(
                set_key=key,
                # A broker's own id is no wish but its signature: designated, whichever broker asked first would win,
                # and not the one with the longest log. In a first election nobody has a log to compare.
                to=named if is_designated or is_first else None,
                reason="asked by mqadmin" if is_designated else f"asked by broker {named}",
            )
            operation = self.service.operation(
                command,
                request_id=self.service.ports.new_request_id(),
                requested_by=requested_by,
                evidence=self.service.evidence_for(command),
                principal=request.caller,
            )
            # Decided here first, as apply would: brokers ask at each start and every 5 s, and 100 brokers without an
            # electable replica would write 72,000 refusals an hour into the journal.
            refused = decide(self._replicas.fleet, operation).answer
            if not is_designated and isinstance(refused, Refused):
                return refused
            reply = await self.service.submit(
                operation.command,
                request_id=operation.request_id,
                requested_by=requested_by,
                evidence=operation.evidence,
                principal=request.caller,
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
            # Java takes 2011 for "that is the master" and reads the body: without the SyncStateSet in it the broker
            # counts a failure, and does not follow anybody.
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

    @at_once
    def _replica_info(self, request: Request) -> None:
        found = self._replicas.find(read_header(SetHeader, request.fields).broker_name)
        if found is None:
            request.answer(RefusalCode.SET_NOT_FOUND, header=MasterHeader(), remark="Broker metadata is not existed")
            return
        request.answer(header=master_header(found, with_set_epoch=False), body=set_of(found))

    @at_once
    def _sync_state_data(self, request: Request) -> None:
        try:
            names = read_names(request.frame.body)
        except msgspec.MsgspecError as error:
            request.answer(SystemCode.SYSTEM_ERROR, remark=f"the body is no list of broker names: {error}")
            return
        # Answered in one turn of the loop (rule 1): a list of 100,000 names would hold all heartbeats for so long.
        if not 0 < len(names) <= NAMES_MAX:
            request.answer(SystemCode.SYSTEM_ERROR, remark=f"{len(names)} broker names, 1 to {NAMES_MAX} are answered")
            return
        found = {name: known for name in names if (known := self._replicas.find(name)) is not None}
        table = SyncStateDataBody(replicas_info_table={name: set_body(known) for name, known in found.items()})
        request.answer(body=encode_body(table))


def _key_of(cluster: str | None, name: str | None) -> SetKey:
    return SetKey(cluster=ClusterName(cluster or ""), name=BrokerName(name or ""))
