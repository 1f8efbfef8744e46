"""
One session as the leader remembers it, and the stamps of its detection.

Here: values of the machine ``sessions``. Not here: how they change (``sessions``). All times are nanoseconds of one
monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, MasterEpoch, ReplicaKind, SessionOrdinal, SetKey
from rollcall_ha.controller.contract.session import BrokerState
from rollcall_ha.controller.contract.values import DetectionStamps, Positions, SilenceCause
from rollcall_ha.epoch.model import NO_EPOCH

NS_PER_MS = 1_000_000
NS_PER_US = 1_000

ConnectionId = int
ReplicaKey = tuple[SetKey, BrokerId]


class ProbeOutcome(StrEnum):
    """The result of a probe of a listen port."""

    REFUSED = "refused"
    """The operating system said that nobody listens."""
    ANSWERED = "answered"
    NO_ANSWER = "no-answer"
    """Unreachable or too late: proves nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamps:
    """When the leader noticed each sign of a replica's end; ``None`` = it did not."""

    cause: SilenceCause
    detected_ns: int
    last_heartbeat_ns: int | None = None
    session_closed_ns: int | None = None
    link_closed_ns: int | None = None
    probe_refused_ns: int | None = None

    @property
    def fault_ns(self) -> int:
        """Where the phases of a failover begin: ``DetectionStamps.fault_age_us`` on this clock."""
        heartbeat = self.last_heartbeat_ns if self.cause is SilenceCause.TIMEOUT else None
        signs = (self.session_closed_ns, self.link_closed_ns, self.probe_refused_ns, heartbeat)
        return min((stamp for stamp in signs if stamp is not None), default=self.detected_ns)

    def ages(self, now_ns: int) -> DetectionStamps:
        """As ages at the moment of a proposal."""
        return DetectionStamps(
            cause=self.cause,
            last_heartbeat_age_us=_age_us(self.last_heartbeat_ns, now_ns),
            session_closed_age_us=_age_us(self.session_closed_ns, now_ns),
            link_closed_age_us=_age_us(self.link_closed_ns, now_ns),
            probe_refused_age_us=_age_us(self.probe_refused_ns, now_ns),
            detected_age_us=(now_ns - self.detected_ns) // NS_PER_US,
        )


def _age_us(stamp_ns: int | None, now_ns: int) -> int | None:
    return None if stamp_ns is None else max(0, now_ns - stamp_ns) // NS_PER_US


@dataclass(slots=True, kw_only=True)
class ReplicaSession:
    """The leader's soft knowledge of one replica. Owned by ``Sessions``; others read."""

    set_key: SetKey
    broker_id: BrokerId
    incarnation: Incarnation
    ordinal: SessionOrdinal
    address: str
    kind: ReplicaKind
    timeout_ms: int
    """Silence after which it counts as gone: the fleet's, or that of a RocketMQ broker's heartbeats."""
    is_alive: bool
    due_from_ns: int
    """Silence counts from here: the last heartbeat, or when this leader began to listen."""
    heard_ns: int | None = None
    """Last heartbeat on this leader."""
    connection: ConnectionId | None = None
    state: BrokerState | None = None
    known_master_epoch: MasterEpoch = NO_EPOCH
    """The newest one that it knew when it told its ``state``."""
    is_ready: bool = False
    positions: Positions | None = None
    lag_bytes: int | None = None
    closed_ns: int | None = None
    refused_ns: int | None = None
    refusals: int = 0
    """Probes that were refused since the session closed."""
    is_probing: bool = False
    probes: int = 0
    cause: SilenceCause | None = None
    """Set while silence is proposed or about to be."""
    detected_ns: int = 0
    link_closed_ns: int | None = None
    """As reported by an electable member, when this one is master."""
    in_flight: bool = False
    retry_at_ns: int = 0
    open_links: dict[BrokerId, tuple[int, bool, int]] = field(default_factory=dict)
    """As master: member -> (masterEpoch, is open, since when), by the members' own reports."""

    @property
    def key(self) -> ReplicaKey:
        return self.set_key, self.broker_id

    def stamps(self) -> Stamps | None:
        """Of the detection that is under way or was the last; None if nothing was detected."""
        if self.cause is None:
            return None
        return Stamps(
            cause=self.cause,
            detected_ns=self.detected_ns,
            last_heartbeat_ns=self.heard_ns,
            session_closed_ns=self.closed_ns,
            link_closed_ns=self.link_closed_ns,
            probe_refused_ns=self.refused_ns,
        )
