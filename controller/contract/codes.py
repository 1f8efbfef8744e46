"""
The closed vocabulary of codes.

Here: request codes of the controller port and the codes of refusals, with RocketMQ's numbers where it has them.
Not here: system codes of remoting (``node.remoting.codes``), client codes of brokers (``broker.protocol.codes``).
Rule: a number is stable for ever. Ours are 3101-3199 (requests) and 21000-21099 (refusals); RocketMQ uses neither.
"""

from __future__ import annotations

from enum import IntEnum


class RequestCode(IntEnum):
    """Requests on a controller's broker port (and 3190 on a broker's listen port)."""

    BROKER_HEARTBEAT = 904
    EXCHANGE_BROKER_HA_INFO = 906
    """Controller -> broker: the address of the master's HA port; without one it asks the broker for its own."""
    ALTER_SYNC_STATE_SET = 1001
    ELECT_MASTER = 1002
    REGISTER_BROKER = 1003
    GET_REPLICA_INFO = 1004
    GET_METADATA_INFO = 1005
    GET_SYNC_STATE_DATA = 1006
    NOTIFY_BROKER_ROLE_CHANGED = 1008
    UPDATE_CONTROLLER_CONFIG = 1009
    GET_CONTROLLER_CONFIG = 1010
    CLEAN_BROKER_DATA = 1011
    GET_NEXT_BROKER_ID = 1012
    APPLY_BROKER_ID = 1013

    # The session of a Rollcall broker: bodies are the JSON of controller.contract.session.
    SESSION_APPLY_ID = 3101
    SESSION_REGISTER = 3102
    SESSION_HEARTBEAT = 3103
    SESSION_ALTER = 3104
    SESSION_ENTERED = 3105
    SESSION_MILESTONES = 3106
    SESSION_GOODBYE = 3107
    SESSION_NOTICE = 3108
    """Controller -> broker on the broker's own session, one-way: a ``RoleNotice``."""
    SESSION_LINKS = 3109
    """Broker -> controller, one-way: the HA link to the master closed or opened (R13)."""
    FIND_LEADER = 3110
    """Any controller answers with a ``LeaderHint``."""

    SESSION_WRITES = 3111
    SESSION_STOPPING = 3112
    SESSION_REVOKED = 3113
    """Controller -> broker on the broker's own session, one-way: ``RevokedSerials`` (R28)."""
    SESSION_SETTINGS = 3114
    """Controller -> broker on the broker's own session, one-way: ``SettingsTold``."""
    SESSION_DRAINED = 3115

    PROBE = 3190
    """Controller -> broker listen port: answers with the incarnation of the process that listens (R13)."""


class RefusalCode(IntEnum):
    """Why a command was refused. The name is what REST and the CLI print."""

    INVALID_ARGUMENT = 1
    FENCED_MASTER_EPOCH = 2000
    FENCED_SYNC_STATE_SET_EPOCH = 2001
    INVALID_MASTER = 2002
    INVALID_REPLICAS = 2003
    MASTER_NOT_AVAILABLE = 2004
    INVALID_REQUEST = 2005
    BROKER_NOT_ALIVE = 2006
    NOT_LEADER = 2007
    SET_NOT_FOUND = 2008
    INVALID_CLEAN = 2009
    NEED_TO_BE_REGISTERED = 2010
    MASTER_STILL_EXISTS = 2011
    NO_ELIGIBLE_REPLICA = 2012
    ALTER_REFUSED = 2013
    BROKER_ID_INVALID = 2014

    FENCED_INCARNATION = 21000
    """The incarnation named in the request has ended (S12)."""
    EVIDENCE_MOVED = 21001
    """What the decision was taken against changed before it was applied (R14)."""
    EXPECTATION_FAILED = 21002
    """--expect-master or --expect-epoch did not hold (S69)."""
    UNKNOWN_RECORDS = 21003
    """A replica brings records that the set's history does not know (R8)."""
    WAITING_FOR_REPORTS = 21004
    """After a wipe or restore not every named replica has reported yet (R7)."""
    STALE_SEQUENCE = 21005
    """An alter older than the last one that this epoch decided (R1)."""
    SEQUENCE_REUSED = 21006
    """The same seq came with other content (R1)."""
    NOT_CONFIRMED = 21007
    """An unclean election without, or with too small, an accepted loss."""
    FENCED_SESSION = 21008
    """The session named in the request has been replaced (S33)."""
    CLUSTER_MISMATCH = 21009
    MIN_IN_SYNC = 21010
    """The proposed set would be smaller than what may be agreed on, or lacks the master."""
    NOT_ELIGIBLE = 21011
    """The designated replica may not be elected; the verdict says why."""
    WRONG_FLEET = 21012
    """The peer belongs to another fleet incarnation."""
    UNKNOWN_REPLICA = 21013
    TOMBSTONED = 21014
    OVERLOADED = 21015
    """The proposer's buffer is full: nothing was proposed; retry after the named pause."""
    MASTER_NOT_FENCED = 21016
    """Cleaning a set whose master still serves needs the unclean verb (R8)."""
    NOT_BOOTSTRAPPABLE = 21017
    FEATURE_LEVEL = 21018
    NOT_THE_OWNER = 21019
    """The broker id belongs to the broker with another certificate's name."""
    FORBIDDEN = 21020
    """The caller is known and may not do this: its role, its set, or its certificate or token, which is revoked."""
    UNKNOWN_TOKEN = 21021
    SWITCHOVER_UNDER_WAY = 21022
    NO_SWITCHOVER = 21023
    """The order that the request names is not, or no longer, under way (R29)."""
    PAUSED = 21024
    """Elections are paused: only an operator's word elects."""
    NO_SUCCESSOR = 21025
    """No other controller, or not the one that was named, can take over the lead now."""
    NO_BUDGET = 21026
    """The failure budget of a set does not cover what is asked for."""
    MEMBERS_NOT_CHANGED = 21027
    """The controllers cannot be changed so, or not now."""


HTTP_STATUS: dict[RefusalCode, int] = {
    RefusalCode.INVALID_ARGUMENT: 422,
    RefusalCode.INVALID_REQUEST: 422,
    RefusalCode.SET_NOT_FOUND: 404,
    RefusalCode.UNKNOWN_REPLICA: 404,
    RefusalCode.NEED_TO_BE_REGISTERED: 404,
    RefusalCode.UNKNOWN_TOKEN: 404,
    RefusalCode.NOT_THE_OWNER: 403,
    RefusalCode.FORBIDDEN: 403,
    RefusalCode.OVERLOADED: 503,
    RefusalCode.NOT_LEADER: 503,
}
"""The HTTP status of a refusal; every code that is not named here is a conflict with the state: 409."""

REQUEST_ID_HEADER = "X-Request-Id"
REQUESTED_BY_HEADER = "X-Requested-By"
LEADER_HEADER = "X-Rollcall-Leader"
"""On an answer that another controller passed on, it names the one that led and gave it."""
