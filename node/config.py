"""
The fleet file: one TOML document that every process of a fleet starts from, with only its name differing.

Here: its shape, reading it, and resolving paths. Not here: the checks of one server's own part (in that server).
Written by ``rollcall init``; paths in it are relative to the folder that it lies in.
Raises ``ConfigError`` with the key, the value and the remedy.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType

FLEET_FILE_NAME = "rollcall.toml"
FLEET_FILE_VERSION = 1
UNSPECIFIED_HOSTS = ("0.0.0.0", "::")

IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


class ConfigError(ValueError):
    """The fleet file cannot be used; the message names key, value and remedy."""


class FleetSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings that all processes of the fleet share."""

    name: str
    """Default cluster name of its brokers."""
    incarnation: str
    """Fleet incarnation: 32 hex digits, drawn by ``rollcall init``."""
    timing: str = "normal"
    """A preset of ``controller.contract.timing``."""
    name_service: bool = False
    """Whether controllers serve RocketMQ's name server codes on their broker ports (a fleet may keep its own)."""
    rocketmq_expected_replicas: int = 1
    """Replicas that must have registered before a set of RocketMQ brokers elects its first master."""
    event_days: int = 90
    """How long controllers keep the record of events."""
    event_bytes: int = 8 * 1024**3
    """How much of it each controller keeps, whole segments of 64 MiB; whichever limit is met first counts."""
    rest_names: tuple[str, ...] = ()
    """
    Host names under which REST ports are reached besides their addresses and loopback's: those of a proxy or a tunnel.
    A request with another name in ``Host`` is refused.
    """
    controllers_name: str | None = None
    """
    host:port of the controllers' broker ports by one DNS name, for brokers: each of its addresses is tried. The other
    addresses are then learnt from the controllers, and a broker's file needs none of them.
    """
    insecure: bool = False
    """
    Every port is plain and believes whoever connects, so each is bound to loopback only (but ``open_broker_ports``).
    False: TLS everywhere, with the certificates of ``tls``.
    """
    open_broker_ports: bool = False
    """
    Brokers, and broker ports of controllers, of an insecure fleet may be bound to any address all the same. Whoever
    reaches them is believed: only where everybody on the network is trusted. Ports with TLS may be bound anywhere.
    """


class TlsSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Private certificate authority of the controllers; certificates lie beside it as NAME.pem and NAME.key."""

    authority: str
    directory: str


class RocketmqTls(StrEnum):
    """What RocketMQ's peers may begin a link with, in RocketMQ's own words (``tls.server.mode``)."""

    DISABLED = "disabled"
    """Plain only."""
    PERMISSIVE = "permissive"
    """Plain, or TLS."""
    ENFORCING = "enforcing"
    """TLS only."""


class RocketmqSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    RocketMQ's brokers, clients and mqadmin on the controllers' broker ports, without certificates of this fleet.

    Without this section an insecure fleet serves whoever connects, any other fleet only peers with certificates.
    """

    tls: RocketmqTls = RocketmqTls.PERMISSIVE
    addresses: tuple[str, ...] = ()
    """Networks that they connect from, such as ``10.0.0.0/8``; empty: any, if there are ``credentials``."""
    credentials: str | None = None
    """File with access keys and secrets; then each request has to be signed."""


class ReplicationSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a broker copies to slaves that lag far behind (docs/settings.md). 0 = no limit."""

    catch_up_bytes_per_s_max: int = 0
    """To one slave. RocketMQ: maxHaTransferByteInSecond, with haFlowControlEnable."""
    catch_up_node_bytes_per_s_max: int = 0
    """What one broker sends to all its slaves together."""
    catch_up_copies_max: int = 1
    """Slaves that a broker copies to at a time; the others wait for their turn."""
    learners_begin_at_last_segment: bool = False
    """A learner with an empty log copies from its master's last segment on, not from 0. RocketMQ: syncFromLastFile."""


class RetentionSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long messages are kept, until an order changes it (docs/settings.md); without it all are."""

    retention_hours: int | UnsetType = UNSET
    retention_forced_percent: int | UnsetType = UNSET
    sends_refused_percent: int | UnsetType = UNSET


class ControllerBind(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a controller listens, host:port; None: at the address that others are told."""

    raft: str | None = None
    broker: str | None = None
    rest: str | None = None


class BrokerBind(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a broker listens, host:port; None: at the address that others are told."""

    listen: str | None = None
    ha: str | None = None
    health: str | None = None


class ControllerSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One controller. Its addresses, host:port, are what others are told."""

    raft: str
    broker: str
    """Port for broker sessions and for RocketMQ's controller protocol."""
    rest: str
    data: str
    bind: ControllerBind = ControllerBind()
    """Where an address that others are told is not one of this machine: behind a translation, or in a container."""


class BrokerSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    set: str
    listen: str
    ha: str
    health: str
    """HTTP: /livez, /readyz, /metrics."""
    data: str
    cluster: str | None = None
    """None = the fleet's name."""
    zone: str = ""
    priority: int = 100
    is_learner: bool = False
    expected_replicas: int = 1
    ack_mode: str = "all"
    min_in_sync: int = 0
    flush: str = "async"
    segment_bytes: int = 64 * 1024 * 1024
    bind: BrokerBind = BrokerBind()
    """As ``ControllerSection.bind``."""
    quarantine_days: int = 7
    """How long a tail that was cut from the log is kept beside it; looked at when the broker starts."""
    quarantine_bytes: int = 8 * 1024**3
    """The same by size: the oldest cuts go first, the newest one by its age only."""


class FleetFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int
    fleet: FleetSection
    tls: TlsSection | None = None
    rocketmq: RocketmqSection | None = None
    replication: ReplicationSection = ReplicationSection()
    retention: RetentionSection = RetentionSection()
    controllers: dict[str, ControllerSection] = {}
    brokers: dict[str, BrokerSection] = {}
    directory: str = ""
    """Absolute folder of the file; set by ``load_fleet_file``, never written."""

    def path(self, relative: str) -> Path:
        """A path of the document as an absolute one."""
        return Path(self.directory) / relative

    def controller(self, name: str) -> ControllerSection:
        """Raises ``ConfigError`` with the names that exist."""
        try:
            return self.controllers[name]
        except KeyError:
            known = ", ".join(self.controllers) or "none"
            raise ConfigError(f"no controller {name!r} in the fleet file; it has: {known}") from None

    def broker(self, name: str) -> BrokerSection:
        """Raises ``ConfigError`` with the names that exist."""
        try:
            return self.brokers[name]
        except KeyError:
            known = ", ".join(self.brokers) or "none"
            raise ConfigError(f"no broker {name!r} in the fleet file; it has: {known}") from None


msgspec.json.Decoder(FleetFile)  # builds the type for ``load_fleet_file``; msgspec has no decoder object for TOML


_SECTIONS = (
    FleetFile,
    FleetSection,
    TlsSection,
    RocketmqSection,
    ReplicationSection,
    RetentionSection,
    ControllerSection,
    ControllerBind,
    BrokerSection,
    BrokerBind,
)


def load_fleet_file(path: Path) -> FleetFile:
    """
    Read and check the shape of a fleet file.

    Raises:
        ConfigError: it is missing, no UTF-8, no TOML, or of another version; a key is unknown or of the wrong type.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"cannot read the fleet file {path}: {error.strerror}; make one with: rollcall init"
        ) from error
    try:
        document = msgspec.toml.decode(raw, type=FleetFile)
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: byte {error.start} is {error.object[error.start]:#04x}, which is no UTF-8; save the file as UTF-8"
        ) from error
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path}: {_told(str(error), raw.decode())}") from error
    if document.version != FLEET_FILE_VERSION:
        raise ConfigError(f"{path}: version {document.version}, this program reads version {FLEET_FILE_VERSION}")
    return msgspec.structs.replace(document, directory=str(path.resolve().parent))


_TYPES = {
    "int": "a whole number",
    "str": "a text in quotes",
    "bool": "true or false",
    "array": "a list",
    "object": "a section",
}
_LINE = re.compile(r"(?P<what>.*) \(at line (?P<number>\d+), column \d+\)")
_AT = r"(?: - at `\$\.?(?P<at>.*)`)?"
_KEY = re.compile(r"Object (?:contains|missing) (?P<how>unknown|required) field `(?P<key>.*?)`" + _AT)
_TYPE = re.compile(r"Expected `(?P<wanted>\w+)[^`]*`, got `(?P<got>\w+)`" + _AT)


def _told(error: str, text: str) -> str:
    """What msgspec says of a file, in words of whoever wrote it: the place, what it has, what it may have."""
    if found := _LINE.fullmatch(error):
        line = text.splitlines()[int(found["number"]) - 1].strip()
        return f"line {found['number']} is no TOML: {line!r}: {found['what']}; a text stands in quotes, a list in []"
    if found := _KEY.fullmatch(error):
        keys = {field.name for kind in _SECTIONS for field in msgspec.structs.fields(kind)}
        likely = "".join(f"; did you mean {key}?" for key in get_close_matches(found["key"], keys, 1))
        told = f"unknown key {found['key']!r}{likely}" if found["how"] == "unknown" else f"{found['key']!r} is missing"
        return f"{_place(found['at'])}: {told}"
    if found := _TYPE.fullmatch(error):
        wanted, got = (_TYPES.get(found[one], found[one]) for one in ("wanted", "got"))
        return f"{_place(found['at'])} is {got}, and has to be {wanted}"
    return error


def _place(at: str | None) -> str:
    return (at or "the file").replace("[...]", ".NAME")


def split_address(address: str) -> tuple[str, int]:
    """``host:port`` as its parts. Raises ``ConfigError`` with the value."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"address {address!r} is not host:port with a port from 1 to 65535")
    return host.strip("[]"), int(port)


def refuse_plain_tls(section: RocketmqSection, *, is_insecure: bool) -> None:
    """An insecure fleet has no TLS to enforce. Raises ``ConfigError``."""
    if is_insecure and section.tls is RocketmqTls.ENFORCING:
        raise ConfigError(
            "rocketmq.tls is 'enforcing' and fleet.insecure is true: an insecure fleet has plain ports only; leave "
            "fleet.insecure out, or take 'permissive'"
        )


def rocketmq_networks(section: RocketmqSection) -> tuple[IpNetwork, ...]:
    """``rocketmq.addresses``. Raises ``ConfigError`` with the value; also if nothing says who may come."""
    networks: list[IpNetwork] = []
    for text in section.addresses:
        try:
            networks.append(ipaddress.ip_network(text))
        except ValueError as error:
            raise ConfigError(
                f"rocketmq.addresses has {text!r}: {error}; it takes networks such as '10.0.0.0/8' or 'fd00::/8', and "
                "single addresses"
            ) from None
    # By leaving both out nobody opens a port: who wants it open writes the network of everybody.
    if not networks and section.credentials is None:
        raise ConfigError(
            "rocketmq has neither addresses nor credentials, so whoever connects would be believed; name the networks "
            "of RocketMQ's brokers, clients and mqadmin (addresses = ['10.0.0.0/8']), a file of access keys "
            "(credentials), or both"
        )
    return tuple(networks)


def bind_address(section: ControllerSection | BrokerSection, port: str) -> str:
    """Where to listen for ``port``, a key of the section's ``bind``: there, or else at the address of that key."""
    chosen: str | None = getattr(section.bind, port)
    told: str = getattr(section, port)
    return chosen or told


def refuse_unreachable(key: str, address: str) -> None:
    """An address that others are told is one that they can dial. Raises ``ConfigError``."""
    host, _ = split_address(address)
    # Taken, slaves on other machines would follow themselves: 0.0.0.0 is dialled as loopback.
    if host in UNSPECIFIED_HOSTS:
        raise ConfigError(
            f"{key} is {address!r}, which others are told and cannot reach; give the address that they dial, and where "
            f"to listen as bind.{key.rpartition('.')[2]}"
        )


def is_loopback(host: str) -> bool:
    """Whether ``host`` is an address of this machine that no other one reaches, by its looks: nothing is resolved."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def refuse_open_ports(fleet: FleetSection, bound: Mapping[str, str]) -> None:
    """``bound``: addresses by their keys. What an insecure fleet keeps on loopback. Raises ``ConfigError``."""
    if fleet.open_broker_ports and not fleet.insecure:
        # A setting that is there and does nothing would be left there, for the day on which the fleet becomes insecure.
        raise ConfigError(
            "fleet.open_broker_ports is true, and fleet.insecure is not: ports with TLS may be bound to any address "
            "without it; remove open_broker_ports"
        )
    if fleet.insecure and not fleet.open_broker_ports:
        remedy = (
            "without fleet.insecure ports have TLS and may be bound anywhere; where everybody on the network is "
            "trusted, set fleet.open_broker_ports = true"
        )
        for key, address in bound.items():
            refuse_unsafe_bind(key, address, remedy=remedy)


def refuse_unsafe_bind(key: str, address: str, *, remedy: str) -> None:
    """A port without authentication is bound to loopback only. Raises ``ConfigError``."""
    host, _ = split_address(address)
    if not is_loopback(host):
        raise ConfigError(
            f"{key} is {address!r}: this port has no authentication, so it may only be bound to loopback "
            f"(127.0.0.1, ::1 or localhost); {remedy}"
        )
