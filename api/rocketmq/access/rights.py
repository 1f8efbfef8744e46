"""
Which right each of RocketMQ's codes needs. Pure.

Here: the table, and what a role may do. Not here: who asks (``judging``), other rules of a code (its handler).

Rule: a code that is not in the table needs a right that nobody has; ``tests/unit/test_rocketmq_access.py`` compares the
table with the codes that are served.
"""

from __future__ import annotations

from enum import StrEnum

from rollcall_ha.api.broker_port.headers import read_header
from rollcall_ha.api.rocketmq.controller.beans import ElectMasterHeader
from rollcall_ha.api.rocketmq.names.beans import BadNamesBody, read_queues
from rollcall_ha.api.rocketmq.names.machine import NameCode
from rollcall_ha.controller.contract.codes import RequestCode
from rollcall_ha.controller.contract.principals import Role
from rollcall_ha.node.remoting.frame import Frame


class Right(StrEnum):
    """What a request asks for."""

    READ = "read"
    SPEAK = "speak"
    """A broker's right to speak for the set that the request names."""
    OPERATE = "operate"
    ADMINISTER = "administer"
    NOBODY = "nobody"


_RIGHTS: dict[int, Right] = {
    RequestCode.GET_REPLICA_INFO: Right.READ,
    RequestCode.GET_METADATA_INFO: Right.READ,
    RequestCode.GET_SYNC_STATE_DATA: Right.READ,
    RequestCode.GET_CONTROLLER_CONFIG: Right.READ,
    RequestCode.GET_NEXT_BROKER_ID: Right.READ,
    RequestCode.APPLY_BROKER_ID: Right.SPEAK,
    RequestCode.REGISTER_BROKER: Right.SPEAK,
    RequestCode.BROKER_HEARTBEAT: Right.SPEAK,  # and the name server's 904
    RequestCode.ALTER_SYNC_STATE_SET: Right.SPEAK,
    RequestCode.ELECT_MASTER: Right.SPEAK,
    RequestCode.UPDATE_CONTROLLER_CONFIG: Right.ADMINISTER,
    RequestCode.CLEAN_BROKER_DATA: Right.ADMINISTER,
    NameCode.GET_KV_CONFIG: Right.READ,
    NameCode.GET_ROUTEINFO_BY_TOPIC: Right.READ,
    NameCode.GET_BROKER_CLUSTER_INFO: Right.READ,
    NameCode.GET_ALL_TOPIC_LIST: Right.READ,
    NameCode.GET_KVLIST_BY_NAMESPACE: Right.READ,
    NameCode.GET_TOPICS_BY_CLUSTER: Right.READ,
    NameCode.GET_SYSTEM_TOPIC_LIST: Right.READ,
    NameCode.GET_UNIT_TOPIC_LIST: Right.READ,
    NameCode.GET_HAS_UNIT_SUB_TOPIC_LIST: Right.READ,
    NameCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: Right.READ,
    NameCode.GET_NAMESRV_CONFIG: Right.READ,
    NameCode.GET_BROKER_MEMBER_GROUP: Right.READ,
    NameCode.NAMES_REGISTER_BROKER: Right.SPEAK,
    NameCode.UNREGISTER_BROKER: Right.SPEAK,
    NameCode.QUERY_DATA_VERSION: Right.SPEAK,
    NameCode.REGISTER_TOPIC_IN_NAMESRV: Right.SPEAK,
    NameCode.WIPE_WRITE_PERM_OF_BROKER: Right.OPERATE,
    NameCode.ADD_WRITE_PERM_OF_BROKER: Right.OPERATE,
    NameCode.PUT_KV_CONFIG: Right.ADMINISTER,
    NameCode.DELETE_KV_CONFIG: Right.ADMINISTER,
    NameCode.DELETE_TOPIC_IN_NAMESRV: Right.ADMINISTER,
    NameCode.UPDATE_NAMESRV_CONFIG: Right.ADMINISTER,
}

_ALLOWED: dict[Role, frozenset[Right]] = {
    Role.VIEWER: frozenset({Right.READ}),
    Role.BROKER: frozenset({Right.READ, Right.SPEAK}),
    Role.OPERATOR: frozenset({Right.READ, Right.OPERATE}),
    # Not SPEAK: with an administrator's key on a broker, each of its copies could speak for every set.
    Role.ADMIN: frozenset({Right.READ, Right.OPERATE, Right.ADMINISTER}),
}


def right_of(frame: Frame) -> Right:
    """What this request asks for."""
    if frame.code == RequestCode.ELECT_MASTER:
        # A broker asks whether there is a master; mqadmin says who it shall be.
        is_designated = read_header(ElectMasterHeader, frame.ext_fields).designate_elect
        return Right.OPERATE if is_designated else Right.SPEAK
    return _RIGHTS.get(frame.code, Right.NOBODY)


def is_allowed(role: Role, right: Right) -> bool:
    """Whether this role has that right."""
    return right in _ALLOWED[role]


def least_role(right: Right) -> Role:
    """The role that has this right and least else."""
    return min((role for role in _ALLOWED if right in _ALLOWED[role]), key=lambda role: len(_ALLOWED[role]))


def sets_named(frame: Frame) -> frozenset[str]:
    """The brokerNames in whose name a request of right SPEAK comes; empty: it names none, and is refused."""
    if frame.code == NameCode.REGISTER_TOPIC_IN_NAMESRV:
        try:
            return frozenset(queue.broker_name for queue in read_queues(frame.body)) if frame.body else frozenset()
        except BadNamesBody:
            return frozenset()
    name = (frame.ext_fields or {}).get("brokerName")
    return frozenset((name,)) if name else frozenset()
