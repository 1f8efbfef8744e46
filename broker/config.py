"""
The configuration of one broker, checked, from its part of the fleet file.

Here: every check of a value, with key, value and remedy, before anything is touched. Not here: the file's shape
(``node.config``).
"""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path

import msgspec

from rollcall_ha.controller.contract.ids import (
    SERVED_ACK_MODES,
    AckMode,
    BrokerName,
    ClusterName,
    FleetIncarnation,
    FlushMode,
    SetKey,
)
from rollcall_ha.controller.contract.names import key_complaint, text_complaint
from rollcall_ha.controller.contract.replies import SetView
from rollcall_ha.controller.contract.settings import Settings, faults_of, settings_of
from rollcall_ha.controller.contract.timing import PRESETS, Preset, Timing
from rollcall_ha.controller.contract.values import Frozen, ReplicaDescription, SetConfiguration, made_from
from rollcall_ha.ha.catch_up import CatchUpLimits
from rollcall_ha.node.config import (
    BrokerSection,
    ConfigError,
    FleetFile,
    RetentionSection,
    bind_address,
    refuse_open_ports,
    refuse_unreachable,
    split_address,
)
from rollcall_ha.node.segments import SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN

QUARANTINE_BYTES_MAX = 1 << 50


class BrokerConfig(Frozen):
    """One broker's configuration, checked."""

    name: str
    set_key: SetKey
    fleet_incarnation: FleetIncarnation
    timing: Timing
    directory: Path
    listen: tuple[str, int]
    ha: tuple[str, int]
    health: tuple[str, int]
    controllers: tuple[str, ...]
    description: ReplicaDescription
    configuration: SetConfiguration
    segment_bytes: int
    quarantine_days: int
    quarantine_bytes: int
    catch_up: CatchUpLimits = msgspec.field(default_factory=CatchUpLimits)
    founded: Settings | None = None
    """The live settings as the fleet file has them; None: it has those of ``timing`` alone."""
    tells_names: bool = False
    """Whether the controllers serve names, and hear this broker's topics."""
    begins_at_last_segment: bool = False
    """With an empty log; of learners only."""

    @property
    def store_host(self) -> bytes:
        """
        IP and int32 port of the address that clients are told, as records carry them: 8 bytes, of IPv6 20.

        Raises ``ConfigError``: the name has no address.
        """
        host, port = split_address(self.description.address)
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, ValueError) as error:
            raise ConfigError(f"listen: {host!r} has no address ({error}); use a name or address that has") from error
        # IPv4 of a name with both: records are 12 bytes shorter, and readers before IPv6's flags know no other.
        chosen = min(found, key=lambda one: one[0] != socket.AF_INET)[4][0]
        return ipaddress.ip_address(str(chosen).partition("%")[0]).packed + port.to_bytes(4, "big")


def broker_config(fleet: FleetFile, name: str) -> BrokerConfig:
    """Raises ``ConfigError`` with key, value and remedy."""
    section = fleet.broker(name)
    by_name = () if fleet.fleet.controllers_name is None else (fleet.fleet.controllers_name,)
    if not fleet.controllers and not by_name:
        raise ConfigError(
            "the fleet file has no controllers; a broker needs their broker ports, or fleet.controllers_name, one DNS "
            "name of all of them with a port"
        )
    bound = {f"brokers.{name}.{port}": bind_address(section, port) for port in ("listen", "ha", "health")}
    refuse_open_ports(fleet.fleet, bound)
    for port in ("listen", "ha"):
        refuse_unreachable(f"brokers.{name}.{port}", getattr(section, port))
    set_key = SetKey(cluster=ClusterName(section.cluster or fleet.fleet.name), name=BrokerName(section.set))
    if complaint := key_complaint(set_key) or text_complaint("zone", section.zone):
        raise ConfigError(f"brokers.{name}: {complaint}")
    timing = _timing(fleet.fleet.timing)
    founded = _founded(timing, fleet)
    return BrokerConfig(
        name=name,
        set_key=set_key,
        fleet_incarnation=FleetIncarnation(fleet.fleet.incarnation),
        timing=timing,
        directory=fleet.path(section.data),
        listen=split_address(bind_address(section, "listen")),
        ha=split_address(bind_address(section, "ha")),
        health=split_address(bind_address(section, "health")),
        controllers=tuple(
            _checked_address(one) for one in (*by_name, *(own.broker for _, own in sorted(fleet.controllers.items())))
        ),
        description=made_from(
            section,
            ReplicaDescription,
            address=_checked_address(section.listen),
            ha_address=_checked_address(section.ha),
        ),
        configuration=_configuration(name, section),
        segment_bytes=_within(
            f"brokers.{name}.segment_bytes", section.segment_bytes, SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX
        ),
        quarantine_days=_within(f"brokers.{name}.quarantine_days", section.quarantine_days, 0, 3650),
        quarantine_bytes=_within(f"brokers.{name}.quarantine_bytes", section.quarantine_bytes, 0, QUARANTINE_BYTES_MAX),
        tells_names=fleet.fleet.name_service,
        catch_up=copies_by(founded),
        founded=founded,
        begins_at_last_segment=section.is_learner and fleet.replication.learners_begin_at_last_segment,
    )


def rocketmq_config(config: BrokerConfig, view: SetView | None) -> dict[str, str]:
    """
    The configuration under RocketMQ's names, as far as it has them, for its tools.

    ``view``: what the controllers have told of the set; its numbers are in force, whatever the fleet file says.
    """
    described, replicas = config.description, config.configuration if view is None else view.configuration
    return {
        "brokerClusterName": str(config.set_key.cluster),
        "brokerName": str(config.set_key.name),
        "flushDiskType": f"{replicas.flush.value.upper()}_FLUSH",
        "haListenPort": described.ha_address.rpartition(":")[2],
        "listenPort": described.address.rpartition(":")[2],
        "mappedFileSizeCommitLog": str(config.segment_bytes),
        "minInSyncReplicas": str(replicas.effective_min_in_sync),
        "totalReplicas": str(replicas.expected_replicas),
    }


def _founded(timing: Timing, fleet: FleetFile) -> Settings:
    settings = settings_of(timing, fleet.replication, fleet.retention)
    if faults := faults_of(settings, timing):
        is_of_messages = faults[0].startswith(RetentionSection.__struct_fields__)
        raise ConfigError(f"{'retention' if is_of_messages else 'replication'}.{faults[0]}")
    return settings


def copies_by(settings: Settings) -> CatchUpLimits:
    """The limits of copies that ``settings`` say."""
    return CatchUpLimits(
        link_bytes_per_s_max=settings.catch_up_bytes_per_s_max,
        node_bytes_per_s_max=settings.catch_up_node_bytes_per_s_max,
        copies_max=settings.catch_up_copies_max,
    )


def _timing(preset: str) -> Timing:
    try:
        return PRESETS[Preset(preset)]
    except ValueError:
        known = ", ".join(Preset)
        raise ConfigError(f"fleet.timing is {preset!r}; it must be one of: {known}") from None


def _configuration(name: str, section: BrokerSection) -> SetConfiguration:
    expected = _within(f"brokers.{name}.expected_replicas", section.expected_replicas, 1, 64)
    return SetConfiguration(
        expected_replicas=expected,
        ack_mode=AckMode(_one_of(f"brokers.{name}.ack_mode", section.ack_mode, SERVED_ACK_MODES)),
        min_in_sync=_within(f"brokers.{name}.min_in_sync", section.min_in_sync, 0, expected),
        flush=FlushMode(_one_of(f"brokers.{name}.flush", section.flush, tuple(FlushMode))),
    )


def _checked_address(address: str) -> str:
    split_address(address)
    return address


def _one_of(key: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise ConfigError(f"{key} is {value!r}; it must be one of: {', '.join(known)}")
    return value


def _within(key: str, value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise ConfigError(f"{key} is {value}; it must be from {low} to {high}")
    return value
