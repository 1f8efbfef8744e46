"""
Codes of a broker's listen port.

RocketMQ's numbers where it has them; ours are 3191-3199. System codes (busy, unknown code) are in
``node.remoting.codes``; PROBE (3190) is in ``controller.contract.codes``.

Rule 1: only ``PUT_OK`` is an acknowledgement (R18).
Rule 2: a refusal says whether the message is definitely not in the log: field ``outcome`` of the answer's header.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum


class ClientCode(IntEnum):
    """Requests of producers, consumers and RocketMQ's tools."""

    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    QUERY_MESSAGE = 12
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    UPDATE_AND_CREATE_TOPIC = 17
    UPDATE_AND_CREATE_TOPIC_LIST = 18
    GET_ALL_TOPIC_CONFIG = 21
    UPDATE_BROKER_CONFIG = 25
    GET_BROKER_CONFIG = 26
    GET_BROKER_RUNTIME_INFO = 28
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    GET_EARLIEST_MSG_STORETIME = 32
    VIEW_MESSAGE_BY_ID = 33
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    CONSUMER_SEND_MSG_BACK = 36
    GET_CONSUMER_LIST_BY_GROUP = 38
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    """One-way, from the broker to the members of a group."""
    LOCK_BATCH_MQ = 41
    UNLOCK_BATCH_MQ = 42
    CHECK_CLIENT_CONFIG = 46
    GET_ROUTE_BY_TOPIC = 105
    UPDATE_AND_CREATE_GROUP = 200
    GET_ALL_GROUP_CONFIG = 201
    GET_TOPIC_STATS = 202
    GET_CONSUMER_CONNECTION_LIST = 203
    GET_PRODUCER_CONNECTION_LIST = 204
    DELETE_GROUP = 207
    GET_CONSUME_STATS = 208
    DELETE_TOPIC = 215
    INVOKE_BROKER_TO_RESET_OFFSET = 222
    UPDATE_AND_CREATE_GROUP_LIST = 225
    QUERY_GROUPS_OF_TOPIC = 300
    GET_SYSTEM_TOPICS = 305
    CLEAN_EXPIRED_CONSUME_QUEUES = 306
    GET_CONSUMER_RUNNING_INFO = 307
    CONSUME_MESSAGE_DIRECTLY = 309
    SEND_MESSAGE_V2 = 310
    CLEAN_UNUSED_TOPICS = 316
    GET_BROKER_CONSUME_STATS = 317
    SEND_BATCH_MESSAGE = 320
    GET_ALL_PRODUCERS = 328
    DELETE_EXPIRED_LOG = 329
    QUERY_TOPICS_OF_GROUP = 343
    GET_TOPIC_CONFIG = 351
    GET_GROUP_CONFIG = 352
    LITE_PULL_MESSAGE = 361
    QUERY_ASSIGNMENT = 400
    SET_MESSAGE_REQUEST_MODE = 401
    GET_BROKER_EPOCHS = 1007
    WATCH_ROUTE = 3191
    """
    Answered with the route as soon as its masterEpoch is newer than the asker's, at the latest after the asked wait.
    """
    TELL_TOPICS = 3192
    """Four questions of controllers (adr/0039), answered in the types of ``controller.contract.consuming``."""
    TELL_TOPIC = 3193
    TELL_GROUPS = 3194
    TELL_GROUP = 3195


class ClientResult(IntEnum):
    """Answers, with the numbers that Java clients act on."""

    PUT_OK = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    OUTCOME_UNKNOWN = 12
    """RocketMQ's FLUSH_SLAVE_TIMEOUT: in the log here, but not acknowledged, and it may be cut."""
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    INVALID_PARAMETER = 29
    CONSUMER_NOT_ONLINE = 206
    FLOW_CONTROL = 215
    """Java's consumer pulls again after 20 ms, and a second after any other refusal."""


class SendOutcome(StrEnum):
    """Knowledge about a message that was not acknowledged."""

    NOT_APPENDED = "not-appended"
    UNKNOWN = "unknown"


class SendRefusal(StrEnum):
    """Why a send was not acknowledged; field ``reason`` of the answer's header."""

    NOT_MASTER = "not-master"
    MIN_IN_SYNC = "min-in-sync"
    OVERLOADED = "overloaded"
    DISK = "disk"
    ILLEGAL = "illegal"
    NO_TOPIC = "no-topic"
    NO_PERMISSION = "no-permission"
    """The topic may not be written to."""
    NO_QUEUE = "no-queue"
    """The topic has no such queue."""
    SEQUENCE_GAP = "sequence-gap"
    """Above last + 1: something before it is not here. Not appended."""
    SEQUENCE_OLD = "sequence-old"
    """
    Below what the table remembers, or of an older producer epoch. Not appended again; whether it was before is
    unknown.
    """
    PRODUCER_UNKNOWN = "producer-unknown"
    """The table has no such producer and the sequence is not 0. As for SEQUENCE_OLD."""
    EPOCH_ENDED = "epoch-ended"
    """Appended in a masterEpoch that ended before it was acknowledged (R17)."""
    ACK_TIMEOUT = "ack-timeout"
    """Appended, and not acknowledged for ``ack_timeout_ms``; it may be yet (R18)."""


REFUSAL_RESULT: dict[SendRefusal, ClientResult] = {
    SendRefusal.NOT_MASTER: ClientResult.SERVICE_NOT_AVAILABLE,
    SendRefusal.MIN_IN_SYNC: ClientResult.SYSTEM_ERROR,
    SendRefusal.OVERLOADED: ClientResult.SYSTEM_BUSY,
    SendRefusal.DISK: ClientResult.SERVICE_NOT_AVAILABLE,
    SendRefusal.ILLEGAL: ClientResult.MESSAGE_ILLEGAL,
    SendRefusal.NO_TOPIC: ClientResult.TOPIC_NOT_EXIST,
    SendRefusal.NO_PERMISSION: ClientResult.NO_PERMISSION,
    SendRefusal.NO_QUEUE: ClientResult.INVALID_PARAMETER,
    SendRefusal.SEQUENCE_GAP: ClientResult.MESSAGE_ILLEGAL,
    SendRefusal.SEQUENCE_OLD: ClientResult.MESSAGE_ILLEGAL,
    SendRefusal.PRODUCER_UNKNOWN: ClientResult.MESSAGE_ILLEGAL,
    SendRefusal.EPOCH_ENDED: ClientResult.OUTCOME_UNKNOWN,
    SendRefusal.ACK_TIMEOUT: ClientResult.OUTCOME_UNKNOWN,
}

REFUSAL_OUTCOME: dict[SendRefusal, SendOutcome] = dict.fromkeys(SendRefusal, SendOutcome.NOT_APPENDED) | {
    SendRefusal.SEQUENCE_OLD: SendOutcome.UNKNOWN,
    SendRefusal.PRODUCER_UNKNOWN: SendOutcome.UNKNOWN,
    SendRefusal.EPOCH_ENDED: SendOutcome.UNKNOWN,
    SendRefusal.ACK_TIMEOUT: SendOutcome.UNKNOWN,
}
