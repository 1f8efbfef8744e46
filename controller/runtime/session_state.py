"""
One session as the leader remembers it, and the stamps of its detection.

Here: values of the machine ``sessions``. Not here: how they change (``sessions``). All times are nanoseconds of one
monotonic clock.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec
from msgspec.structs import replace

from rollcall_ha.controller.contract.commands import AnnounceStop, ReportDrained
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    Incarnation,
    LogOffset,
    MasterEpoch,
    ReplicaKind,
    SessionOrdinal,
    SetKey,
)
from rollcall_ha.controller.contract.session import BrokerState
from rollcall_ha.controller.contract.timing import NS_PER_MS, NS_PER_US
from rollcall_ha.controller.contract.values import DetectionStamps, Frozen, Positions, SilenceCause
from rollcall_ha.controller.core.detection import FRESH_INTERVALS, Stamps
from rollcall_ha.controller.runtime.catch_up import LogGrowth
from rollcall_ha.epoch.model import NO_EPOCH

TRANSIT_NS = 50 * NS_PER_MS
"""How much later than it happened a sign may reach the leader's machine while nothing stands still."""

NOTHING_CONFIRMED = (NO_EPOCH, LogOffset(0))
ConnectionId = int
ReplicaKey = tuple[SetKey, BrokerId]


class ProbeOutcome(StrEnum):
    """The result of a probe of a listen port."""

    REFUSED = "refused"
    """The operating system said that nobody listens."""
    ANSWERED = "answered"
    NO_ANSWER = "no-answer"
    """Unreachable or too late: proves nothing."""


ROCKETMQ_TIMEOUT_MS = 10_000
"""The default of RocketMQ brokers: counts for one that this leader has not heard yet."""

ROCKETMQ_TIMEOUTS_MS = range(1_000, 600_001)
"""Timeouts that a RocketMQ broker may ask for; beyond them the nearest one."""


def rocketmq_timeout_ms(asked_ms: int | None, most_ms: int) -> int:
    """The timeout of a RocketMQ broker that asks for so much, None = was not heard yet; ``most_ms`` 0 = no limit."""
    asked_ms = ROCKETMQ_TIMEOUT_MS if asked_ms is None else asked_ms
    asked_ms = min(max(asked_ms, ROCKETMQ_TIMEOUTS_MS[0]), ROCKETMQ_TIMEOUTS_MS[-1])
    # It asks for 10 s by the file of each Java broker: a master that hangs would stop its set for so long.
    return min(asked_ms, most_ms) if most_ms else asked_ms


def stamps_of_leaving(command: AnnounceStop | ReportDrained) -> DetectionStamps:
    """A handover begins with what writes have waited for already, as a failover begins with the fault."""
    since_us = command.drained_us
    cause = SilenceCause.GOODBYE if isinstance(command, AnnounceStop) else SilenceCause.DRAINED
    return DetectionStamps(cause=cause, detected_age_us=since_us, first_sign_age_us=since_us, alive_age_us=since_us)


class LinkSeen(Frozen):
    """A member's word about its HA link to the master; times on the leader's clock."""

    master_epoch: int
    is_open: bool
    since_ns: int
    is_end_seen: bool
    """It was closed by the master's end, and not by the member, as after a timeout."""


class ReplicaSession(msgspec.Struct, kw_only=True):
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
    interval_ns: int
    """Between two heartbeats, on its session and on its HA links."""
    stall_ns: int
    """How long writes may be stopped before it calls them so."""
    heard_ns: int | None = None
    """Last heartbeat on this leader."""
    back_ns: int | None = None
    """The first one behind the last gap (``own_network.returned``)."""
    alive_ns: int | None = None
    """Last sure sign of life: read from its session, or told by a member that follows it as master."""
    told_ns: int | None = None
    """As ``alive_ns``, by its own session alone, less the time for which a send had waited for its slaves then."""
    answered_ns: int | None = None
    """When its registration, or its last heartbeat on this session, was answered."""
    connection: ConnectionId | None = None
    state: BrokerState | None = None
    known_master_epoch: MasterEpoch = NO_EPOCH
    """The newest one that it knew when it told its ``state``."""
    is_ready: bool = False
    positions: Positions | None = None
    confirmed_before: tuple[MasterEpoch, LogOffset] = NOTHING_CONFIRMED
    """An end that ``positions`` must reach: ``answered_confirm`` when they came."""
    answered_confirm: tuple[MasterEpoch, LogOffset] = NOTHING_CONFIRMED
    """Confirm of its set, and in which masterEpoch, when it was last answered as a member."""
    lag_bytes: int | None = None
    known_settings: int | None = None
    """Version of the settings by which it works, 0 = its file's; None = not told."""
    min_offset: LogOffset | None = None
    growth: LogGrowth = msgspec.field(default_factory=LogGrowth)
    closed_ns: int | None = None
    closed_after_ns: int = 0
    """The session was open then: its end was read at ``closed_ns``, and lies between both."""
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
    link_ended_ns: int | None = None
    """The same, if the member saw that this one's end closed it."""
    missed_ns: int | None = None
    """Found silent then, and it may be this leader's own network (``own_network``)."""
    witnessed_ns: int | None = None
    """Since then: when a member's first word came that it has bytes from this one as master."""
    in_flight: bool = False
    retry_at_ns: int = 0
    links: dict[BrokerId, LinkSeen] = msgspec.field(default_factory=dict)
    """As master: by the members' own reports."""

    @property
    def key(self) -> ReplicaKey:
        return self.set_key, self.broker_id

    def is_fresh(self, stamp_ns: int | None, now_ns: int) -> bool:
        """Whether it was heard at ``stamp_ns``, and that is young enough to count as now."""
        return stamp_ns is not None and now_ns - stamp_ns <= FRESH_INTERVALS * self.interval_ns

    def late_ns(self, answered_age_us: int | None, read_ns: int) -> int:
        """How long a heartbeat may have been on its way that was read at ``read_ns``, by its sender's word."""
        if answered_age_us is None or self.answered_ns is None:
            return 0
        # 80 % of all packets were lost: TCP brought a heartbeat, and the end of its session, 27 s late. By these, 74 s
        # without an acknowledgement were an outage of 47 s at most.
        return max(0, read_ns - self.answered_ns - max(0, answered_age_us) * NS_PER_US)

    def overdue_ns(self, now_ns: int) -> int:
        """How long ago it was heard itself, if it should have been heard since; else 0."""
        unheard_ns = 0 if self.told_ns is None else now_ns - self.told_ns
        return unheard_ns if unheard_ns > self.interval_ns * 3 // 2 else 0

    def stamps(self) -> Stamps | None:
        """Those of the detection that is under way or was the last; None if nothing was detected."""
        if self.cause is None:
            return None
        first_sign_ns, alive_ns = self._beginning()
        return Stamps(
            cause=self.cause,
            detected_ns=self.detected_ns,
            first_sign_ns=first_sign_ns,
            alive_ns=alive_ns,
            last_heartbeat_ns=self.heard_ns,
            session_closed_ns=self.closed_ns,
            link_closed_ns=self.link_closed_ns,
            probe_refused_ns=self.refused_ns,
        )

    def lived_on(self, stamps: Stamps, now_ns: int) -> Stamps:
        """``stamps`` of this session; with a later first sign if members heard it after it was found silent."""
        is_silent = self.cause is SilenceCause.TIMEOUT
        if not is_silent or self.alive_ns is None or self.alive_ns <= stamps.detected_ns:
            return stamps
        # No controller reached a broker for 5 s. By the moment at which it was found silent, an outage of a second that
        # the election itself made would be one of 5 s at the least.
        first_ns = min(now_ns, self.alive_ns + self.interval_ns)
        return replace(stamps, detected_ns=first_ns, first_sign_ns=first_ns)

    def ended(self, now_ns: int) -> Stamps:
        """The stamps of a process whose successor has registered at ``now_ns``, by another incarnation."""
        if self.cause is None:
            self.cause, self.detected_ns = SilenceCause.REPLACED, now_ns
        stamps = self.stamps()
        assert stamps is not None, "it has a cause"
        return stamps

    def _beginning(self) -> tuple[int, int | None]:
        """The first sign of the fault, and the last moment before it; equal if the fault itself was seen."""
        signs = [one for one in (self.closed_ns, self.link_closed_ns, self.refused_ns) if one is not None]
        if self.alive_ns is None:
            return min([*signs, self.detected_ns]), None
        # A link that broke before the last sign of life was not the fault.
        earliest_ns = self.alive_ns - TRANSIT_NS
        first_ns = min([self.detected_ns, *(one for one in signs if one >= earliest_ns)])
        alive_ns = min(self.alive_ns, first_ns)
        # The kernel closes everything at the moment of a death. But a process that had hung for 10 s when it was killed
        # had done nothing since: an end is the fault only if the next sign of life was not overdue.
        after_ns = self.closed_after_ns if first_ns == self.closed_ns else first_ns
        if first_ns in (self.closed_ns, self.link_ended_ns) and after_ns <= alive_ns + self.interval_ns * 3 // 2:
            return first_ns, max(alive_ns, after_ns)
        # Not the bytes that its slaves heard: in a bad network they hear a master that no controller hears, and that
        # acknowledges nothing. By them, 1.9 s without an acknowledgement were an outage of 0.2 s at most.
        told_ns = None if self.told_ns is None else min(self.told_ns, first_ns)
        return min(first_ns, alive_ns + self.interval_ns), told_ns
