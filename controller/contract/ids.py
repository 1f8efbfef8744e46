"""
Names and numbers of the control plane.

Here: identifiers that may cross a package border. Not here: behaviour.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NewType

import msgspec

from rollcall_ha.epoch import model

LogOffset = model.LogOffset
MasterEpoch = model.MasterEpoch

ClusterName = NewType("ClusterName", str)
BrokerName = NewType("BrokerName", str)
"""Name of a broker set (RocketMQ: brokerName): all replicas that share it hold one log."""

BrokerId = NewType("BrokerId", int)
"""Permanent number of a replica in its set, from 1, given once, never reused."""

ControllerName = NewType("ControllerName", str)

RegisterCode = NewType("RegisterCode", str)
"""Nonce that a broker draws and stores before it asks for an id: proves that a retry is the same broker (S62)."""

Incarnation = NewType("Incarnation", str)
"""
32 hex digits drawn at each start of a broker process, after its recovery. Mastership belongs to (id, incarnation).
"""

SessionOrdinal = NewType("SessionOrdinal", int)
"""Counts the sessions of a replica; replicated, so that evidence can name the one it was taken on (R14, S33)."""

SyncStateSetEpoch = NewType("SyncStateSetEpoch", int)
"""Compare-and-set version of a SyncStateSet."""

FleetIncarnation = NewType("FleetIncarnation", str)
"""32 hex digits, drawn by ``init`` and by a restore: tells a wiped control plane from the one brokers knew (R7)."""

RequestId = NewType("RequestId", str)
"""Drawn by the caller of a mutating request; at most 64 ASCII characters."""

SyncStateSet = tuple[BrokerId, ...]
"""Always sorted, without repetition: equal sets are equal values."""


class SetKey(msgspec.Struct, frozen=True, order=True, rename="camel"):
    """Key of a broker set: two clusters may use one broker name (S64)."""

    cluster: ClusterName
    name: BrokerName

    def __str__(self) -> str:
        return f"{self.cluster}/{self.name}"


class ReplicaKind(StrEnum):
    """Which program the replica is: decides what a restart or an election can prove."""

    NATIVE = "native"
    ROCKETMQ = "rocketmq"


class AckMode(StrEnum):
    """Which acks release a message to its producer."""

    ALL = "all"
    N = "n"
    ASYNC = "async"


SERVED_ACK_MODES = (AckMode.ALL,)
"""
What a fleet may be configured with. The weak modes need leases (R4), which no controller grants, and a limit of lag
(R10), which no master enforces: a set that asked for them would silently wait for all.
"""


class FlushMode(StrEnum):
    """Whether a replica syncs its log before it acks."""

    ASYNC = "async"
    SYNC = "sync"
