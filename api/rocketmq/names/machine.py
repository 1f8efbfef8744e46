"""
RocketMQ's name server as a pure machine: one request in, one answer out.

Here: which code does what, headers, result codes and remarks (docs/wire.md, name server codes). Not here: the table
(``table``), answers (``answers``, ``beans``), links, clocks and files (``name_service``). Codes that brokers, clients
and mqadmin of 5.1.1 to 5.3.3 do not use are not registered, so they are answered as unknown.

Rule 1: every request gets its answer in the turn in which it came, also while no controller leads.
Rule 2: the master in an answer is the controllers' (``table``, rule 1).
Rule 3: ``handle`` raises nothing, whatever bytes a peer sent.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from enum import IntEnum

from rollcall_ha.api.broker_port.headers import Header, read_header
from rollcall_ha.api.rocketmq.names.answers import (
    ORDER_NAMESPACE,
    PERMISSION_WRITE,
    all_topics,
    cluster_info,
    member_group,
    route_of,
    system_topics,
    topics_of_cluster,
    unit_sub_only_topics,
    unit_sub_topics,
    unit_topics,
    within_zone,
)
from rollcall_ha.api.rocketmq.names.beans import (
    AddedHeader,
    BadNamesBody,
    Bean,
    BrokerHeader,
    ChangedHeader,
    KeyHeader,
    KeyTable,
    MemberGroupBody,
    RegisteredNameHeader,
    RegisterHeader,
    TopicHeader,
    TopicList,
    ValueHeader,
    WipedHeader,
    encode,
    read_queues,
    read_topics,
    read_version,
)
from rollcall_ha.api.rocketmq.names.table import (
    MASTER_ID,
    TIMEOUT_MS,
    TIMEOUT_MS_MAX,
    NamesRefused,
    NameTable,
    RegisteredBroker,
)
from rollcall_ha.controller.contract.ids import BrokerName, ClusterName, SetKey
from rollcall_ha.controller.contract.names import key_complaint, text_complaint
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.controller.runtime.session_state import ConnectionId
from rollcall_ha.node.remoting.codes import SystemCode

PERMISSION_READ_WRITE = 6
TOPIC_NOT_EXIST = 17
QUERY_NOT_FOUND = 22
CRC_MASK = 0x7FFFFFFF
ZONE_NAME = "__ZONE_NAME"
ZONE_MODE = "__ZONE_MODE"


class NameCode(IntEnum):
    """Requests to a name server."""

    PUT_KV_CONFIG = 100
    GET_KV_CONFIG = 101
    DELETE_KV_CONFIG = 102
    NAMES_REGISTER_BROKER = 103
    UNREGISTER_BROKER = 104
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    WIPE_WRITE_PERM_OF_BROKER = 205
    GET_ALL_TOPIC_LIST = 206
    DELETE_TOPIC_IN_NAMESRV = 216
    REGISTER_TOPIC_IN_NAMESRV = 217
    GET_KVLIST_BY_NAMESPACE = 219
    GET_TOPICS_BY_CLUSTER = 224
    GET_SYSTEM_TOPIC_LIST = 304
    GET_UNIT_TOPIC_LIST = 311
    GET_HAS_UNIT_SUB_TOPIC_LIST = 312
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = 313
    UPDATE_NAMESRV_CONFIG = 318
    GET_NAMESRV_CONFIG = 319
    QUERY_DATA_VERSION = 322
    ADD_WRITE_PERM_OF_BROKER = 327
    GET_BROKER_MEMBER_GROUP = 901
    NAMES_BROKER_HEARTBEAT = 904


class NameRequest(Frozen):
    """One request, the connection on which it came, and the moment."""

    code: NameCode
    fields: Mapping[str, str]
    body: bytes
    version: int
    """Which RocketMQ the sender is (docs/wire.md, header forms)."""
    connection: ConnectionId
    now_ms: int


class NameAnswer(Frozen):
    """The answer. A header with nulls only is an empty header; None is no header."""

    code: int = SystemCode.SUCCESS
    header: Header | None = None
    body: bytes = b""
    remark: str | None = None


_DONE = NameAnswer()


class NameMachine:
    """The machine: a table and the codes that read and change it."""

    def __init__(self, table: NameTable, *, settings: Mapping[str, str]) -> None:
        """``settings`` are what 319 shows: the keys of this name service, which are set in the fleet file."""
        self.table = table
        self._settings = settings
        self._serves: dict[NameCode, Callable[[NameRequest], NameAnswer]] = {
            NameCode.PUT_KV_CONFIG: self._put_key,
            NameCode.GET_KV_CONFIG: self._get_key,
            NameCode.DELETE_KV_CONFIG: self._delete_key,
            NameCode.NAMES_REGISTER_BROKER: self._register,
            NameCode.UNREGISTER_BROKER: self._unregister,
            NameCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            NameCode.GET_BROKER_CLUSTER_INFO: lambda _: _body(cluster_info(self.table)),
            NameCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write,
            NameCode.GET_ALL_TOPIC_LIST: self._topics(all_topics),
            NameCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            NameCode.REGISTER_TOPIC_IN_NAMESRV: self._register_topic,
            NameCode.GET_KVLIST_BY_NAMESPACE: self._list_keys,
            NameCode.GET_TOPICS_BY_CLUSTER: self._topics_of_cluster,
            NameCode.GET_SYSTEM_TOPIC_LIST: self._topics(system_topics),
            NameCode.GET_UNIT_TOPIC_LIST: self._topics(unit_topics),
            NameCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._topics(unit_sub_topics),
            NameCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._topics(unit_sub_only_topics),
            NameCode.UPDATE_NAMESRV_CONFIG: self._refuse_settings,
            NameCode.GET_NAMESRV_CONFIG: self._show_settings,
            NameCode.QUERY_DATA_VERSION: self._query_version,
            NameCode.ADD_WRITE_PERM_OF_BROKER: self._add_write,
            NameCode.GET_BROKER_MEMBER_GROUP: self._members,
            NameCode.NAMES_BROKER_HEARTBEAT: self._heartbeat,
        }

    def handle(self, request: NameRequest) -> NameAnswer:
        """The answer (rules 1 and 3)."""
        try:
            return self._serves[request.code](request)
        except (NamesRefused, BadNamesBody) as refusal:
            # Answered, whatever it was: a broker whose 103 stays without an answer does not end its start, and each
            # send that makes a topic waits for one. A 103 needs its header also here: Java decodes it before it looks
            # at the code.
            header = RegisteredNameHeader() if request.code is NameCode.NAMES_REGISTER_BROKER else None
            return NameAnswer(code=SystemCode.SYSTEM_ERROR, header=header, remark=str(refusal))

    # --- brokers -----------------------------------------------------------------------------------------------------

    def _register(self, request: NameRequest) -> NameAnswer:
        header = read_header(RegisterHeader, dict(request.fields))
        # 0 means that the sender did not count; any other value must fit, or topics of a damaged body become routes.
        if header.body_crc32 and zlib.crc32(request.body) & CRC_MASK != header.body_crc32:
            raise NamesRefused("crc32 not match")
        if not header.broker_name or not header.broker_addr or not header.cluster_name or header.broker_id is None:
            raise NamesRefused("brokerName, brokerAddr, clusterName and brokerId must be there")
        key = SetKey(cluster=ClusterName(header.cluster_name), name=BrokerName(header.broker_name))
        addresses = (("brokerAddr", header.broker_addr), ("haServerAddr", header.ha_server_addr or ""))
        # Kept in the table, its file and every route: a name that is not taken by a controller is not routed either.
        for complaint in (key_complaint(key), *(text_complaint(*address) for address in addresses)):
            if complaint:
                raise NamesRefused(complaint)
        topics = read_topics(request.body, is_compressed=bool(header.compressed), sender_version=request.version)
        timeout_ms = header.heartbeat_timeout_millis
        entry = RegisteredBroker(
            cluster=header.cluster_name,
            name=header.broker_name,
            address=header.broker_addr,
            ha_address=header.ha_server_addr or "",
            claimed_id=header.broker_id,
            version=topics.data_version,
            acts_as_master=header.enable_acting_master,
            zone=request.fields.get(ZONE_NAME),
            # Bounded: with the 10 years that a sender may ask for, a broker that is gone stays in every route.
            timeout_ms=TIMEOUT_MS if timeout_ms is None else max(1_000, min(timeout_ms, TIMEOUT_MS_MAX)),
            seen_ms=request.now_ms,
            connection=request.connection,
        )
        is_taken = self.table.register(entry, topics, is_whole=bool(header.is_whole))
        order = self.table.keys.get(ORDER_NAMESPACE)
        return NameAnswer(
            header=self._master_for(entry) if is_taken else RegisteredNameHeader(),
            body=encode(KeyTable(table=order)) if order else b"",
        )

    def _master_for(self, entry: RegisteredBroker) -> RegisteredNameHeader:
        """The master that a slave follows, and its HA address; nothing for a master, nothing without one."""
        # By the controllers (rule 2): right after an election the new master has not registered as id 0 yet, and the
        # old one's HA address would be given to a slave, which dials a dead broker until its next 103, 30 s later.
        master = self.table.by_role(entry.name).get(MASTER_ID)
        if entry.claimed_id == MASTER_ID or master is None or master.address == entry.address:
            return RegisteredNameHeader()
        return RegisteredNameHeader(master_addr=master.address, ha_server_addr=master.ha_address or None)

    def _unregister(self, request: NameRequest) -> NameAnswer:
        header = read_header(BrokerHeader, dict(request.fields))
        self.table.unregister(header.broker_name or "", header.broker_addr or "")
        return _DONE

    def _heartbeat(self, request: NameRequest) -> NameAnswer:
        self._touch(request, read_header(BrokerHeader, dict(request.fields)))
        return _DONE

    def _touch(self, request: NameRequest, header: BrokerHeader) -> None:
        self.table.touch(
            header.broker_name or "", header.broker_addr or "", now_ms=request.now_ms, connection=request.connection
        )

    def _query_version(self, request: NameRequest) -> NameAnswer:
        header = read_header(BrokerHeader, dict(request.fields))
        version = read_version(request.body)
        known = self.table.registration(header.broker_name or "", header.broker_addr or "")
        self._touch(request, header)
        # "Changed" makes it register in full: after a restart of this controller, nothing else would before 30 s.
        if known is None:
            return NameAnswer(header=ChangedHeader(changed=True))
        # A slave that became master has told its version already, as a slave, and its topics were not taken: by the
        # version alone they never would be, and the set would serve none of the topics made since.
        is_missing = known.taken != known.version and self.table.is_source(known)
        return NameAnswer(
            header=ChangedHeader(changed=is_missing or known.version != version), body=encode(known.version)
        )

    # --- routes ------------------------------------------------------------------------------------------------------

    def _route(self, request: NameRequest) -> NameAnswer:
        topic = read_header(TopicHeader, dict(request.fields)).topic
        route = route_of(self.table, topic or "")
        if route is None:
            return NameAnswer(
                code=TOPIC_NOT_EXIST,
                remark=f"No topic route info in name server for the topic: {topic}\n"
                "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.",
            )
        zone = request.fields.get(ZONE_NAME)
        if zone and request.fields.get(ZONE_MODE, "").lower() == "true":
            route = within_zone(route, zone)
        return _body(route)

    def _members(self, request: NameRequest) -> NameAnswer:
        header = read_header(BrokerHeader, dict(request.fields))
        group = member_group(self.table, header.cluster_name or "", header.broker_name or "")
        return _body(MemberGroupBody(broker_member_group=group))

    def _topics(self, select: Callable[[NameTable], TopicList]) -> Callable[[NameRequest], NameAnswer]:
        return lambda _: _body(select(self.table))

    def _topics_of_cluster(self, request: NameRequest) -> NameAnswer:
        header = read_header(TopicHeader, dict(request.fields))
        return _body(topics_of_cluster(self.table, header.cluster or ""))

    # --- operators ---------------------------------------------------------------------------------------------------

    def _wipe_write(self, request: NameRequest) -> NameAnswer:
        name = read_header(BrokerHeader, dict(request.fields)).broker_name or ""
        return NameAnswer(header=WipedHeader(wipe_topic_count=self.table.set_permission(name, remove=PERMISSION_WRITE)))

    def _add_write(self, request: NameRequest) -> NameAnswer:
        name = read_header(BrokerHeader, dict(request.fields)).broker_name or ""
        count = self.table.set_permission(name, add=PERMISSION_READ_WRITE)
        return NameAnswer(header=AddedHeader(add_topic_count=count))

    def _delete_topic(self, request: NameRequest) -> NameAnswer:
        header = read_header(TopicHeader, dict(request.fields))
        self.table.delete_topic(header.topic or "", header.cluster_name)
        return _DONE

    def _register_topic(self, request: NameRequest) -> NameAnswer:
        header = read_header(TopicHeader, dict(request.fields))
        queues = read_queues(request.body) if request.body else ()
        if header.topic and queues:
            self.table.add_queues(header.topic, queues)
        return _DONE

    def _put_key(self, request: NameRequest) -> NameAnswer:
        header = read_header(KeyHeader, dict(request.fields))
        if not header.namespace or not header.key:
            raise NamesRefused("namespace or key is null")
        self.table.put_key(header.namespace, header.key, header.value or "")
        return _DONE

    def _get_key(self, request: NameRequest) -> NameAnswer:
        header = read_header(KeyHeader, dict(request.fields))
        value = self.table.keys.get(header.namespace or "", {}).get(header.key or "")
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            return NameAnswer(code=QUERY_NOT_FOUND, remark=remark)
        return NameAnswer(header=ValueHeader(value=value))

    def _delete_key(self, request: NameRequest) -> NameAnswer:
        header = read_header(KeyHeader, dict(request.fields))
        self.table.delete_key(header.namespace or "", header.key or "")
        return _DONE

    def _list_keys(self, request: NameRequest) -> NameAnswer:
        namespace = read_header(KeyHeader, dict(request.fields)).namespace
        table = self.table.keys.get(namespace or "")
        if table is None:
            return NameAnswer(code=QUERY_NOT_FOUND, remark=f"No config item, Namespace: {namespace}")
        return _body(KeyTable(table=table))

    def _show_settings(self, _: NameRequest) -> NameAnswer:
        lines = "".join(f"{key}={value}\n" for key, value in sorted(self._settings.items()))
        return NameAnswer(body=lines.encode())

    def _refuse_settings(self, _: NameRequest) -> NameAnswer:
        remark = "this name service is configured in the fleet file only"
        return NameAnswer(code=SystemCode.NO_PERMISSION, remark=remark)


def _body(bean: Bean) -> NameAnswer:
    return NameAnswer(body=encode(bean))
