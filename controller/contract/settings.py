"""
What a fleet can be set to while it runs: one frozen value, and one table that says what each key of it means.

Here: ``Settings``, ``KEYS``, what is wrong with a value. Not here: who may change it
and when (``controller.core.settings``), how it reaches the running parts (``controller.runtime.live_settings``,
``broker.live_settings``), what stays in the fleet file: addresses, certificates, and the ``raft_*`` durations with
``propose_timeout_ms``, which each controller's log takes at its start.

Rule 1: pure, and integers only (switches are true and false): every controller must come to the same answer (C8).
Rule 2: a key is a field with a ``Key``; docs/settings.md is made of them. A new one is unset until somebody sets it:
older entries lack it, and older controllers do not know it. ``Settings.value`` says what is in force.
Rule 3: a range is checked when a change is decided, never when a value is decoded: a range that a later program narrows
would stop its controllers at an entry that was fine when it was made (R15).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, get_type_hints

import msgspec
from msgspec import UNSET, UnsetType

from rollcall_ha.controller.contract.timing import Timing
from rollcall_ha.controller.contract.values import Frozen, Value

_HOUR_MS = 3_600_000
RETENTION_HOURS_MAX = 87_600
"""Ten years."""


class Key(Frozen):
    """What one setting means. ``least`` and ``most`` include themselves; ``is_off_at_zero``: 0 is taken, too."""

    meaning: str
    unit: str
    least: int
    most: int
    is_off_at_zero: bool = False
    rocketmq: str = ""
    """RocketMQ's name of the nearest thing; empty: it has none."""
    read_by: str = "controllers and brokers"
    unset: int = 0
    """In force while nobody has set it; of keys that came after feature level 1."""

    def takes(self, value: int) -> bool:
        """Whether ``value`` is in the range."""
        return self.least <= value <= self.most or (self.is_off_at_zero and value == 0)

    @property
    def range(self) -> str:
        """``100 to 3600000 ms``, for people."""
        return f"{'0 (off) or ' if self.is_off_at_zero else ''}{self.least} to {self.most} {self.unit}"


def _ms(least: int, most: int, meaning: str, *, rocketmq: str = "", read_by: str = "controllers and brokers") -> Key:
    return Key(meaning=meaning, unit="ms", least=least, most=most, rocketmq=rocketmq, read_by=read_by)


def _policy(meaning: str) -> Key:
    return Key(meaning=meaning, unit="ms", least=100, most=_HOUR_MS, is_off_at_zero=True, read_by="controllers")


def _rate(meaning: str, *, rocketmq: str = "") -> Key:
    # A slower copy sends less than a piece in a second, and its slave would look as if it stood still.
    return Key(
        meaning=meaning,
        unit="bytes/s",
        least=128 * 1024,
        most=1 << 40,
        is_off_at_zero=True,
        rocketmq=rocketmq,
        read_by="brokers",
    )


def _percent(meaning: str, *, rocketmq: str) -> Key:
    return Key(
        meaning=meaning,
        unit="%",
        least=30,
        most=98,
        is_off_at_zero=True,
        rocketmq=rocketmq,
        read_by="brokers",
    )


class Settings(Value, rename=None):
    """
    Everything at once. Names are the keys that people type; durations are those of ``Timing`` with the same name.
    """

    heartbeat_interval_ms: Annotated[
        int, _ms(50, 60_000, "Pause between two heartbeats of a broker.", rocketmq="brokerHeartbeatInterval")
    ]
    heartbeat_timeout_ms: Annotated[
        int,
        _ms(
            200,
            _HOUR_MS,
            "Silence after which a replica counts as gone; also the grace after a controller change.",
            rocketmq="controllerHeartBeatTimeoutMills",
        ),
    ]
    scan_interval_ms: Annotated[
        int,
        _ms(
            10,
            60_000,
            "How often the leader looks for silent replicas and for sets without a master.",
            rocketmq="scanInactiveMasterInterval",
            read_by="controllers",
        ),
    ]
    probe_timeout_ms: Annotated[
        int, _ms(20, 60_000, "A probe of a broker's port that takes longer proves nothing.", read_by="controllers")
    ]
    stall_ms: Annotated[
        int,
        _ms(
            100,
            600_000,
            "A leader that stood still for so long gives everybody a grace; a send that waits for so "
            "long means that writes are stopped.",
        ),
    ]
    entered_deadline_ms: Annotated[
        int, _ms(500, _HOUR_MS, "A winner that has not entered its epoch by then is replaced.", read_by="controllers")
    ]
    survivors_wait_ms: Annotated[
        int,
        _ms(
            50, 600_000, "A new master waits so long for its set before it removes missing members.", read_by="brokers"
        ),
    ]
    catch_up_timeout_ms: Annotated[
        int,
        _ms(
            100,
            _HOUR_MS,
            "A member of the SyncStateSet that was not caught up for so long is removed.",
            rocketmq="haMaxTimeSlaveNotCatchup",
            read_by="brokers",
        ),
    ]
    handover_ms: Annotated[
        int,
        _ms(
            0,
            600_000,
            "A replica that was asked to stop goes on for so long at most until nobody waits for it.",
            read_by="brokers",
        ),
    ]
    session_rpc_timeout_ms: Annotated[
        int,
        _ms(
            100,
            600_000,
            "An answer on a session, or a handshake of a link, that takes longer has failed.",
            rocketmq="sendHeartbeatTimeoutMillis",
            read_by="brokers",
        ),
    ]
    reconnect_delay_ms: Annotated[
        int, _ms(10, 60_000, "First pause between two attempts to connect; it doubles.", read_by="brokers")
    ]
    reconnect_delay_ms_max: Annotated[int, _ms(10, 600_000, "Longest pause between them.", read_by="brokers")]
    rocketmq_heartbeat_timeout_ms: Annotated[
        int,
        Key(
            meaning="Longest silence of a RocketMQ broker, whatever it asks for itself; 0: as each broker asks.",
            unit="ms",
            least=2_000,
            most=600_000,
            is_off_at_zero=True,
            rocketmq="controllerHeartBeatTimeoutMills",
            read_by="controllers",
        ),
    ] = 0
    handover_disk_full_after_ms: Annotated[
        int, _policy("A master whose writes are stopped for so long because its disk is full is left for a member.")
    ] = 0
    handover_writes_stopped_after_ms: Annotated[
        int,
        _policy(
            "The same for any other stop: too few in sync, a replica or its own disk that does not acknowledge, a "
            "master that has stopped itself."
        ),
    ] = 0
    handover_pause_ms: Annotated[
        int,
        _ms(1_000, 24 * _HOUR_MS, "No such hand-over so soon after the set's last election.", read_by="controllers"),
    ] = 60_000
    catch_up_bytes_per_s_max: Annotated[
        int,
        _rate("Of a copy to one slave that lags far behind; 0: no limit.", rocketmq="maxHaTransferByteInSecond"),
    ] = 0
    catch_up_node_bytes_per_s_max: Annotated[int, _rate("Of all such copies of one broker together; 0: no limit.")] = 0
    catch_up_copies_max: Annotated[
        int,
        Key(
            meaning="Slaves that a broker copies to at a time; the others wait for their turn.",
            unit="slaves",
            least=1,
            most=64,
            read_by="brokers",
        ),
    ] = 1

    flap_failovers: Annotated[
        int,
        Key(
            meaning="So many failovers of a set by one cause within flap_window_ms, and its next one waits for "
            "rollcall acknowledge.",
            unit="failovers",
            least=2,
            most=16,
            is_off_at_zero=True,
            read_by="controllers",
        ),
    ] = 0
    flap_window_ms: Annotated[
        int, _ms(10_000, 24 * _HOUR_MS, "How long a failover counts for flap_failovers.", read_by="controllers")
    ] = _HOUR_MS

    return_after_ms: Annotated[
        int,
        Key(
            meaning="A master is switched over to the preferred replica (priority) that was in sync for so long.",
            unit="ms",
            least=10_000,
            most=24 * _HOUR_MS,
            is_off_at_zero=True,
            read_by="controllers",
        ),
    ] = 0
    ack_timeout_ms: Annotated[
        int | UnsetType,
        Key(
            meaning="A send that is in the log and not acknowledged for so long is answered: outcome unknown.",
            unit="ms",
            least=1_000,
            most=600_000,
            rocketmq="syncFlushTimeout",
            read_by="brokers",
            unset=5_000,
        ),
    ] = UNSET
    retention_hours: Annotated[
        int | UnsetType,
        Key(
            meaning="A segment of a log is deleted when its newest record is so old; 0: none by its age.",
            unit="h",
            least=1,
            most=RETENTION_HOURS_MAX,
            is_off_at_zero=True,
            rocketmq="fileReservedTime",
            read_by="brokers",
        ),
    ] = UNSET
    sends_refused_percent: Annotated[
        int | UnsetType,
        _percent(
            "From so full a disk on a master refuses sends, until it is below retention_forced_percent, and no copy "
            "holds a segment; 0: never.",
            rocketmq="diskSpaceWarningLevelRatio",
        ),
    ] = UNSET
    retention_forced_percent: Annotated[
        int | UnsetType,
        _percent(
            "From so full a disk on the oldest segments go whatever their age, until it is below; 0: never.",
            rocketmq="diskSpaceCleanForciblyRatio",
        ),
    ] = UNSET
    retention_segments_max: Annotated[
        int | UnsetType,
        Key(
            meaning="Segments that a broker deletes in a turn, every 10 s.",
            unit="segments",
            least=1,
            most=100,
            rocketmq="deleteFileBatchMax",
            read_by="brokers",
            unset=10,
        ),
    ] = UNSET
    auto_create_topics: Annotated[
        int | UnsetType,
        Key(
            meaning="1: the first message to a topic makes it; 0: it is refused, and mqadmin updateTopic makes topics.",
            unit="(1 on, 0 off)",
            least=0,
            most=1,
            rocketmq="autoCreateTopicEnable",
            read_by="brokers",
            unset=1,
        ),
    ] = UNSET
    slave_reads: Annotated[
        int | UnsetType,
        Key(
            meaning="1: slaves in the SyncStateSet give messages, too; masters send readers far behind to them.",
            unit="(1 on, 0 off)",
            least=0,
            most=1,
            rocketmq="slaveReadEnable",
            read_by="brokers",
        ),
    ] = UNSET

    def value(self, name: str) -> int:
        """The value of a key that is in force."""
        value: int | UnsetType = getattr(self, name)
        return KEYS[name].unset if value is UNSET else value


class SettingChange(Value):
    """One key that a version sets otherwise than the one before."""

    key: str
    before: int
    after: int

    def __str__(self) -> str:
        return f"{self.key} {self.before} -> {self.after}"


class AppliedSettings(Value):
    """One version, as it is kept."""

    version: int
    settings: Settings
    worst_case_rto_ms: int
    applied_at_ms: int
    """Stamp (UTC) of the entry."""
    applied_by: str
    """The caller; the whole principal is in the event."""
    changed: tuple[SettingChange, ...] = ()
    reason: str = ""


def _keys() -> dict[str, Key]:
    hints = get_type_hints(Settings, include_extras=True)
    return {name: hints[name].__metadata__[0] for name in Settings.__struct_fields__}


KEYS: Mapping[str, Key] = _keys()
"""In the order of the pages and tables."""

_TIMING_KEYS = tuple(name for name in Timing.__struct_fields__ if name in KEYS)


def settings_of(*parts: msgspec.Struct) -> Settings:
    """The settings of a new fleet: keys that these parts of its file have, and the others by default."""
    return Settings(**{name: getattr(part, name) for part in parts for name in part.__struct_fields__ if name in KEYS})


def timing_keys_of(settings: Settings, timing: Timing) -> Settings:
    """``settings`` with the durations of ``timing``, such as those of a preset; other keys stay."""
    return msgspec.structs.replace(settings, **{name: getattr(timing, name) for name in _TIMING_KEYS})


def timing_with(settings: Settings, own: Timing) -> Timing:
    """The durations in force: those of ``settings``, and those of ``own`` that stay in the file."""
    return msgspec.structs.replace(own, **{name: getattr(settings, name) for name in _TIMING_KEYS})


def faults_of(settings: Settings, own: Timing) -> tuple[str, ...]:
    """
    Each value that is out of its range, and each broken relation, with both values and a remedy; () = none.

    ``own``: the deciding leader's file, whose ``raft_*`` durations the others must fit.
    """
    values = {name: settings.value(name) for name in KEYS}
    out_of_range = tuple(
        f"{name} is {value}, it takes {KEYS[name].range}"
        for name, value in values.items()
        if not KEYS[name].takes(value)
    )
    return out_of_range + timing_with(settings, own).violations() + _policy_faults(settings) + _pair_faults(settings)


def _pair_faults(settings: Settings) -> tuple[str, ...]:
    pairs = (
        # Never reached, the limit of a link would be a setting that does nothing.
        ("catch_up_bytes_per_s_max", "catch_up_node_bytes_per_s_max"),
        # Sends would be refused while there is something left that may be deleted for them.
        ("retention_forced_percent", "sends_refused_percent"),
    )
    values = {name: settings.value(name) for pair in pairs for name in pair}
    return tuple(
        f"{low} is {values[low]}, must be at most {high}, which is {values[high]}: lower {low} to {values[high]}, or "
        f"raise {high} to {values[low]}"
        for low, high in pairs
        if values[high] and values[low] > values[high]
    )


def _policy_faults(settings: Settings) -> tuple[str, ...]:
    """Policies that would act before the fact that they rest on is there, or before the ordinary remedy."""
    pairs = (
        # A stop is told by its master when it is so old, and no sooner.
        ("handover_disk_full_after_ms", "stall_ms"),
        # A slave that hangs is removed after this, and the master serves on. Left before, it would be left for nothing.
        ("handover_writes_stopped_after_ms", "catch_up_timeout_ms"),
    )
    return tuple(
        f"{policy} is {getattr(settings, policy)} ms, must be 0 (off) or at least {least}, which is "
        f"{getattr(settings, least)} ms: raise {policy} to {getattr(settings, least)}"
        for policy, least in pairs
        if 0 < getattr(settings, policy) < getattr(settings, least)
    )


def changes(before: Settings, after: Settings) -> tuple[SettingChange, ...]:
    """Each key that differs, with both values, in the order of ``KEYS``."""
    pairs = (SettingChange(key=name, before=before.value(name), after=after.value(name)) for name in KEYS)
    return tuple(change for change in pairs if change.before != change.after)
