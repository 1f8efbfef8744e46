"""
Messages of a session: the long-lived remoting connection of a broker to the leading controller's broker port.

Bodies are the JSON of these values; request codes are in ``codes``. A command that a broker may submit travels as it
is, under its code in ``SESSION_COMMANDS``; ``SESSION_REGISTER`` opens the session. The answer's body is an
``AnyReply``, its remoting code 0 or the refusal's. An answer with code ``NOT_LEADER`` has a ``LeaderHint`` as body.
"""

from __future__ import annotations

from enum import StrEnum

from rollcall_ha.controller.contract.codes import RequestCode
from rollcall_ha.controller.contract.commands import (
    AlterSyncStateSet,
    AnnounceStop,
    ApplyBrokerId,
    RecordMilestones,
    RegisterReplica,
    ReportDrained,
    ReportEntered,
    ReportWrites,
    SayGoodbye,
)
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    ControllerName,
    Incarnation,
    LogOffset,
    MasterEpoch,
    SessionOrdinal,
    SetKey,
    SyncStateSetEpoch,
)
from rollcall_ha.controller.contract.replies import SetView
from rollcall_ha.controller.contract.settings import Settings
from rollcall_ha.controller.contract.values import Positions, Value

SESSION_COMMANDS = {
    RequestCode.SESSION_APPLY_ID: ApplyBrokerId,
    RequestCode.SESSION_REGISTER: RegisterReplica,
    RequestCode.SESSION_ALTER: AlterSyncStateSet,
    RequestCode.SESSION_ENTERED: ReportEntered,
    RequestCode.SESSION_MILESTONES: RecordMilestones,
    RequestCode.SESSION_GOODBYE: SayGoodbye,
    RequestCode.SESSION_STOPPING: AnnounceStop,
    RequestCode.SESSION_WRITES: ReportWrites,
    RequestCode.SESSION_DRAINED: ReportDrained,
}
"""Which command a session request carries."""


class BrokerState(StrEnum):
    """Where a broker's role machine is."""

    BOOT = "boot"
    RECOVERING = "recovering"
    REGISTERING = "registering"
    FENCED = "fenced"
    PROMISED = "promised"
    """Heard that it won; entering."""
    SLAVE = "slave"
    MASTER = "master"
    LEARNER = "learner"
    ISOLATED = "isolated"
    STOPPING = "stopping"


class Heartbeat(Value):
    """SESSION_HEARTBEAT, answered by ``HeartbeatAck``; one in flight at a time."""

    set_key: SetKey
    broker_id: BrokerId
    incarnation: Incarnation
    session_ordinal: SessionOrdinal
    state: BrokerState
    is_ready: bool
    positions: Positions
    known_master_epoch: MasterEpoch
    known_set_epoch: SyncStateSetEpoch
    timeout_ms: int | None = None
    """A RocketMQ broker's own heartbeat timeout; None for ours: the fleet's counts."""
    lag_bytes: int | None = None
    """A slave's distance to its master's last known end; None = not connected."""
    master_heard_age_us: int | None = None
    """A slave's, on its own clock: since the last byte of its master; None = not connected, or not told."""
    waiting_us: int | None = None
    """A master's, on its own clock: since its oldest send that waits was appended; None = none waits, or not told."""
    answered_age_us: int | None = None
    """
    On the sender's clock: since it had the answer to what it sent before on this session; None = not told. TCP may
    bring a heartbeat half a minute late: it was sent no earlier than that answer and this age.
    """
    known_revocations: int | None = None
    """Number of the newest ``RevokedSerials`` that it has, 0 = it has none; None = it does not ask for them."""
    min_offset: LogOffset | None = None
    """First byte of its log, above 0 of a learner that began at the last segment; None = not told."""
    known_settings: int | None = None
    """Version by which it works, 0 = by its file; None = it does not ask for settings."""
    seen_index: int = 0
    """The highest index at which controllers of this founding told it a state; 0 = not told."""


class RevokedSerials(Value):
    """
    SESSION_REVOKED, one-way, pushed the moment a certificate is revoked; also part of a ``HeartbeatAck``.

    The whole list of the controllers; a broker keeps what it has heard before besides (R28).
    """

    revocations: int
    """Number of this list; another one is another list, whether it is higher or not."""
    serials: tuple[str, ...]


class SettingsTold(Value):
    """
    SESSION_SETTINGS, one-way, pushed the moment a version is applied; also part of a ``HeartbeatAck``.

    Until its first session a broker works by its own file.
    """

    version: int
    """Another number is another version, whether it is higher or not: a backup of controllers may be restored."""
    settings: Settings


class HeartbeatAck(Value):
    """``view`` is there only if the heartbeat's known epochs are not the current ones."""

    view: SetView | None
    controllers: tuple[str, ...]
    """host:port of every controller's broker port: the broker remembers them."""
    leader_clock_us: int = 0
    """The leader's monotonic clock when it answered; 0 = not told. With the round trip it tells the clocks apart."""
    revoked: RevokedSerials | None = None
    """There only if the heartbeat asked for revocations and showed another number."""
    settings: SettingsTold | None = None
    """There only if the heartbeat asked for settings and showed another version."""


class RoleNotice(Value):
    """SESSION_NOTICE, one-way, pushed the moment a change of the set is committed."""

    view: SetView
    sent_at_us: int = 0
    """The leader's monotonic clock when it pushed; 0 = not told."""


class LinkReport(Value):
    """
    SESSION_LINKS, one-way: what an electable member sees of its HA link to the master (R13).

    Sent when the link opens or closes, and to every leader on a new session. Ages run on the member's clock.
    """

    set_key: SetKey
    broker_id: BrokerId
    incarnation: Incarnation
    session_ordinal: SessionOrdinal
    master: BrokerId
    master_epoch: MasterEpoch
    is_open: bool
    closed_age_us: int | None = None
    """Since the master's end closed the link; None = it is open, or it ended in another way."""
    heard_age_us: int | None = None
    """Since the last byte of the master; None = none came, or not told."""


class LeaderHint(Value):
    """
    FIND_LEADER, and the body of every NOT_LEADER answer. A follower never names a leader that it has not heard
    lately.
    """

    controller: ControllerName
    leader: ControllerName | None
    leader_broker_address: str | None
    term: int
    leader_rest_address: str | None = None
    """Nothing reads it any more. A broker of 0.2.0 takes no hint without it, and would never find its leader again."""


class ProbeAnswer(Value):
    """PROBE on a broker's listen port."""

    set_key: SetKey
    broker_id: BrokerId | None
    incarnation: Incarnation
    state: BrokerState
