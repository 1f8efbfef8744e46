"""
The settings of one controller, its own and those of the others, checked.

Here: the frozen configuration of ``ControllerService``, made from the fleet file. Not here: reading that file
(``node.config``), binding (``api.server``).
Raises ``ConfigError`` with key, value and remedy.
"""

from __future__ import annotations

import re

import msgspec

from rollcall_ha.controller.contract.ids import ControllerName, FleetIncarnation
from rollcall_ha.controller.contract.names import name_complaint
from rollcall_ha.controller.contract.settings import Settings, settings_of
from rollcall_ha.controller.contract.timing import PRESETS, Preset, Timing
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.controller.core.state import REPLICAS_PER_SET_MAX
from rollcall_ha.controller.runtime.event_journal import SEGMENT_BYTES_MAX
from rollcall_ha.controller.runtime.journal_retention import MS_PER_DAY, Retention
from rollcall_ha.node.config import (
    ConfigError,
    FleetFile,
    ReplicationSection,
    RetentionSection,
    bind_address,
    refuse_open_ports,
    refuse_unreachable,
    refuse_unsafe_bind,
    split_address,
)

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
_HOST_NAME = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")
EVENT_DAYS_MAX = 36_500
EVENT_BYTES_MIN = 2 * SEGMENT_BYTES_MAX


class ControllerAddresses(Frozen):
    """host:port of one controller's three ports."""

    raft: str
    broker: str
    rest: str


class ServiceSettings(Frozen):
    name: ControllerName
    fleet_name: str
    fleet_incarnation: FleetIncarnation
    timing_name: str
    timing: Timing
    controllers: dict[ControllerName, ControllerAddresses]
    """What others are told; ``seating`` keeps it at the members of the log."""
    bind: ControllerAddresses | None = None
    """Where this one listens, if not there."""
    retention: Retention = msgspec.field(default_factory=Retention)
    rest_names: tuple[str, ...] = ()
    """Further host names of the REST ports (``fleet.rest_names``)."""
    is_insecure: bool = True
    """Ports are plain, and believe whoever connects (``fleet.insecure``)."""

    replication: ReplicationSection = msgspec.field(default_factory=ReplicationSection)
    messages: RetentionSection = msgspec.field(default_factory=RetentionSection)

    @property
    def founded(self) -> Settings:
        """What the fleet file says of all that can be changed while the fleet runs."""
        return settings_of(self.timing, self.replication, self.messages)

    @property
    def own(self) -> ControllerAddresses:
        return self.controllers[self.name]

    @property
    def bound(self) -> ControllerAddresses:
        """Where this one listens."""
        return self.bind or self.own

    @property
    def broker_ports(self) -> tuple[str, ...]:
        """Where brokers reach controllers, this one first."""
        others = (addresses.broker for name, addresses in self.controllers.items() if name != self.name)
        return (self.own.broker, *others)

    @property
    def rest_hosts(self) -> frozenset[str]:
        """What ``Host`` may say to our REST port: lower case, without port and brackets."""
        told = (split_address(address)[0].lower() for address in (self.own.rest, self.bound.rest))
        return frozenset((*LOOPBACK_HOSTS, *told, *self.rest_names))

    def rest_base(self, name: ControllerName | None) -> str | None:
        """Base URL of a controller's REST port."""
        addresses = self.controllers.get(name) if name is not None else None
        return None if addresses is None else f"{'http' if self.is_insecure else 'https'}://{addresses.rest}"


def settings_from(document: FleetFile, name: str) -> ServiceSettings:
    """
    The settings of controller ``name``.

    Raises ``ConfigError``: unknown name or preset, a name that is not taken, broken timing, an unsafe bind, a malformed
    incarnation.
    """
    own = document.controller(name)
    named = (("fleet.name", document.fleet.name), *(("the name of a controller", one) for one in document.controllers))
    for what, text in named:
        if complaint := name_complaint(what, text):
            raise ConfigError(complaint)
    try:
        timing = PRESETS[Preset(document.fleet.timing)]
    except ValueError:
        known = ", ".join(Preset)
        raise ConfigError(f"fleet.timing is {document.fleet.timing!r}; presets are: {known}") from None
    if violations := timing.violations():
        raise ConfigError(f"fleet.timing {document.fleet.timing!r}: {'; '.join(violations)}")
    incarnation = document.fleet.incarnation
    if len(incarnation) != 32 or any(digit not in "0123456789abcdef" for digit in incarnation):
        raise ConfigError(f"fleet.incarnation is {incarnation!r}; it must be 32 lower-case hex digits (rollcall init)")
    for member, section in document.controllers.items():
        for port in ("raft", "broker", "rest"):
            refuse_unreachable(f"controllers.{member}.{port}", getattr(section, port))
    bind = ControllerAddresses(**{port: bind_address(own, port) for port in ("raft", "broker", "rest")})
    if document.fleet.insecure:
        remedy = "with certificates (rollcall init) and without fleet.insecure it may be bound anywhere"
        refuse_unsafe_bind(f"controllers.{name}.rest", bind.rest, remedy=remedy)
    refuse_open_ports(document.fleet, {f"controllers.{name}.broker": bind.broker})
    expected = document.fleet.rocketmq_expected_replicas
    if not 1 <= expected <= REPLICAS_PER_SET_MAX:
        raise ConfigError(f"fleet.rocketmq_expected_replicas is {expected}; it must be 1 to {REPLICAS_PER_SET_MAX}")
    retention = _retention(document)
    return ServiceSettings(
        name=ControllerName(name),
        fleet_name=document.fleet.name,
        fleet_incarnation=FleetIncarnation(incarnation),
        timing_name=document.fleet.timing,
        timing=timing,
        controllers={
            ControllerName(member): ControllerAddresses(raft=section.raft, broker=section.broker, rest=section.rest)
            for member, section in document.controllers.items()
        },
        bind=bind,
        retention=retention,
        rest_names=_rest_names(document),
        is_insecure=document.fleet.insecure,
        replication=document.replication,
        messages=document.retention,
    )


def _rest_names(document: FleetFile) -> tuple[str, ...]:
    found = tuple(name.lower() for name in document.fleet.rest_names)
    for name in found:
        if not _HOST_NAME.fullmatch(name):
            raise ConfigError(
                f"fleet.rest_names has {name!r}; it takes host names and addresses alone, without scheme, port and "
                "brackets, such as 'rollcall.example.org'"
            )
    return found


def _retention(document: FleetFile) -> Retention:
    days, size_bytes = document.fleet.event_days, document.fleet.event_bytes
    if not 1 <= days <= EVENT_DAYS_MAX:
        raise ConfigError(f"fleet.event_days is {days}; it must be 1 to {EVENT_DAYS_MAX}")
    if size_bytes < EVENT_BYTES_MIN:
        raise ConfigError(f"fleet.event_bytes is {size_bytes}; it must be at least {EVENT_BYTES_MIN}: two segments")
    return Retention(keep_ms=days * MS_PER_DAY, keep_bytes=size_bytes)
