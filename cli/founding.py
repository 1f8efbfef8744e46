"""
Founding a fleet: its identity, its private certificate authority, directories, the fleet file, bundles for machines.

Here: everything that exists before the first process starts. Not here: which node is on which machine (``machines``),
signing (``issuing``), starting anything (``deploy.local``), reading the fleet file (``node.config``).

Rule 1: a fleet is founded once.
Rule 2: a controller may start on an empty directory only beside a file ``FOUNDING`` that names the fleet incarnation.
Rule 3: private keys are readable by their owner only; a machine's bundle has those of its own nodes and no other.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import tomli_w
import typer
from msgspec.structs import replace

from rollcall_ha.api.rocketmq.access.accounts import new_accounts
from rollcall_ha.cli.issuing import (
    AUTHORITY_DIRECTORY,
    AUTHORITY_FILE,
    CLIENT_DIRECTORY,
    KEY_FILE,
    MACHINES_DIRECTORY,
    OPERATOR_DIRECTORY,
    PASSPHRASE_VARIABLE,
    AuthorityFolder,
    person_name,
    read_passphrase,
)
from rollcall_ha.cli.machines import Placement, any_address, laid_out, place, tables
from rollcall_ha.cli.options import Founding
from rollcall_ha.cli.orders import may_ask
from rollcall_ha.cli.output import CommandExit, Format, Mood, Report, complain, fail, print_report, wrong_use
from rollcall_ha.controller.contract.ids import SERVED_ACK_MODES, FlushMode
from rollcall_ha.controller.contract.timing import Preset
from rollcall_ha.controller.contract.values import made_from
from rollcall_ha.node.authority import AuthorityError
from rollcall_ha.node.certified import PeerKind
from rollcall_ha.node.config import (
    FLEET_FILE_NAME,
    FLEET_FILE_VERSION,
    BrokerBind,
    BrokerSection,
    ConfigError,
    ControllerBind,
    ControllerSection,
    FleetFile,
    FleetSection,
    RetentionSection,
    RocketmqSection,
    RocketmqTls,
    TlsSection,
    refuse_plain_tls,
    rocketmq_networks,
    split_address,
)
from rollcall_ha.node.credentials import node_name
from rollcall_ha.node.files import atomic_replace

FOUNDING_FILE_NAME = "FOUNDING"
TLS_DIRECTORY = "tls"
DATA_DIRECTORY = "data"
CONTROLLERS = (1, 3, 5, 7)
ROCKETMQ_KEYS_FILE = "rocketmq-keys.toml"
ADMIN, CLIENT = "admin", "client"
PEOPLE_OF_INIT = {ADMIN: PeerKind.ADMIN, CLIENT: PeerKind.CLIENT}
FLEET_FILE_HEAD = """\
# One file for every process of the fleet: only the name on the command line differs.
# Paths are relative to this file. Made by: rollcall init
"""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_BROKER_NAME = re.compile(r"(?P<set>[A-Za-z0-9][A-Za-z0-9_-]{0,59})-(?P<number>[0-9]{1,3})")


def init(directory: Path, plan: Founding, *, form: Format = Format.TABLE) -> None:
    """
    Found a fleet in ``directory``; everything is durable on return.

    Raises:
        typer.Exit: there is one already (1), or the plan is wrong (2); the message says what to do.
    """
    fleet_file = directory / FLEET_FILE_NAME
    if fleet_file.exists():
        raise fail(
            f"rollcall: {fleet_file} exists: this fleet was founded already, and founding it again would forget what "
            "its brokers were promised. Choose another --directory.",
            CommandExit.REFUSED,
        )
    with wrong_use(ConfigError, AuthorityError):
        plan, placement = _placed(plan)
        fleet = describe(plan)
        if plan.min_in_sync == 0 and may_ask():
            fleet = describe(replace(plan, min_in_sync=_ask_min_in_sync(fleet)))
        passphrase = read_passphrase(plan.passphrase_file)
    try:
        _write(directory, fleet, placement, passphrase)
    except OSError as error:
        place = error.filename or directory
        raise fail(
            f"rollcall: the fleet cannot be founded in {directory}: {place}: {error.strerror}; choose a --directory "
            "that can be made and written",
            CommandExit.WRONG_USE,
        ) from None
    _tell(directory, fleet, placement, form)
    if passphrase is None:
        complain(
            f"WARNING  {directory / AUTHORITY_DIRECTORY / KEY_FILE} is not encrypted: who reads it can be anybody in "
            f"this fleet; where that matters, found the fleet with --passphrase-file or {PASSPHRASE_VARIABLE}"
        )


def _ask_min_in_sync(fleet: FleetFile) -> int:
    """The number that a person chooses (adr/0032); 0, the default, where sets of one replica or two leave no choice."""
    replicas = min((broker.expected_replicas for broker in fleet.brokers.values()), default=0)
    half = (replicas + 1) // 2
    if half < 2:
        return 0
    least: int = typer.prompt(
        f"How many of {replicas} replicas must be in sync before a message is acknowledged? {half} keep it on as many "
        f"disks, and writes stop when {replicas - half + 1} replicas are gone; 1 serves on with the last one, and what "
        "that acknowledges alone is gone with its disk",
        type=int,
        default=half,
        err=True,
    )
    _require(1 <= least <= replicas, f"{least} replicas cannot be in sync of {replicas}; say 1 to {replicas}")
    return least


def _placed(plan: Founding) -> tuple[Founding, Placement | None]:
    """A plan for machines as one of addresses. Raises ``ConfigError``."""
    _require(
        not (plan.machines and (plan.controllers or plan.brokers)),
        "--machine lays out every node; leave --controller and --broker out, or give their addresses without --machine",
    )
    _require(bool(plan.machines) or not plan.sets, "--brokers SET=REPLICAS needs --machine; else use --broker")
    if not plan.machines:
        return plan, None
    found = place(plan.machines, plan.sets)
    return replace(plan, controllers=found.controllers, brokers=found.brokers), found


def _tell(directory: Path, fleet: FleetFile, placement: Placement | None, form: Format) -> None:
    who = f"{len(fleet.controllers)} controllers and {len(fleet.brokers)} brokers"
    line = f"OK  founded fleet {fleet.fleet.name} with {who}: {directory / FLEET_FILE_NAME}"
    if placement is not None:
        found = laid_out(fleet, placement, str(directory))
        print_report(Report(document=found, verdict=line, mood=Mood.GOOD, parts=tuple(tables(found))), form)
        return
    first = next(iter(fleet.controllers))
    following = f"Next, on each machine: rollcall controller {first} --config {directory / FLEET_FILE_NAME}"
    print_report(Report(document=fleet, verdict=line, mood=Mood.GOOD, parts=(following,)), form)


def _write(directory: Path, fleet: FleetFile, placement: Placement | None, passphrase: bytes | None) -> None:
    """Everything of a new fleet, durable on return. Raises ``OSError``."""
    directory.mkdir(parents=True, exist_ok=True)
    keys = new_accounts().encode() if fleet.rocketmq is not None and fleet.rocketmq.credentials else b""
    authority = AuthorityFolder.create(directory / AUTHORITY_DIRECTORY, fleet.fleet.name, passphrase=passphrase)
    if placement is None:
        everybody = (*fleet.controllers, *fleet.brokers, ADMIN, CLIENT)
        _write_bundle(directory, fleet, authority, everybody, keys)
    else:
        bundles = {
            **{f"{MACHINES_DIRECTORY}/{machine}": _on(machine, placement) for machine in placement.hosts},
            OPERATOR_DIRECTORY: (ADMIN,),
            CLIENT_DIRECTORY: (CLIENT,),
        }
        for name, members in bundles.items():
            _write_bundle(directory / name, fleet, authority, members, keys)
            atomic_replace(directory / name / FLEET_FILE_NAME, render_fleet_file(fleet).encode(), mode=0o644)
    # LAST, by one rename: a crash before it leaves no fleet, and the next init begins again. Written first, half a
    # fleet would refuse to be founded (rule 1).
    atomic_replace(directory / FLEET_FILE_NAME, render_fleet_file(fleet).encode())


def _on(machine: str, placement: Placement) -> tuple[str, ...]:
    return tuple(node for node, at in placement.machine_of.items() if at == machine)


def _write_bundle(
    folder: Path, fleet: FleetFile, authority: AuthorityFolder, members: Sequence[str], keys: bytes
) -> None:
    """
    What ``members`` need besides the fleet file: the authority's certificate, their own pairs, marks of founding.

    ``keys``: RocketMQ's access keys and secrets, for controllers and for whoever hands them out; empty: none.
    """
    tls = folder / TLS_DIRECTORY
    tls.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic_replace(tls / AUTHORITY_FILE, authority.certificate, mode=0o644)
    if keys and (ADMIN in members or not fleet.controllers.keys().isdisjoint(members)):
        atomic_replace(folder / ROCKETMQ_KEYS_FILE, keys)
    for member in members:
        name = node_name(fleet, member) or person_name(fleet, PEOPLE_OF_INIT[member], member)
        authority.issue(fleet, name).write(tls / f"{member}.pem", tls / f"{member}.key")
        if member in fleet.controllers:
            data = folder / fleet.controllers[member].data
            data.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Without this file an empty directory may be one whose disk was replaced: that controller would vote again
            # in a term in which it has voted (rule 2). The first start moves it away.
            atomic_replace(data / FOUNDING_FILE_NAME, f"{fleet.fleet.incarnation}\n".encode())


def describe(plan: Founding) -> FleetFile:
    """The document, checked. Raises ``ConfigError`` with the value and the remedy."""
    _require(bool(_NAME.fullmatch(plan.name)), f"--name {plan.name!r} is not letters, digits, '-' and '_'")
    _require(plan.timing in list(Preset), f"--timing {plan.timing!r} is not one of {', '.join(Preset)}")
    _require(
        plan.ack_mode in SERVED_ACK_MODES,
        f"--ack-mode {plan.ack_mode!r} is not served; it must be one of {', '.join(SERVED_ACK_MODES)}",
    )
    _require(plan.flush in list(FlushMode), f"--flush {plan.flush!r} is not one of {', '.join(FlushMode)}")
    _require(
        len(plan.controllers) in CONTROLLERS,
        f"{len(plan.controllers)} controllers; 1 (no redundancy), 3, 5 or 7 are supported: one more than an odd number "
        "survives no more",
    )
    controller_sections = {
        node: ControllerSection(
            raft=addresses[0],
            broker=addresses[1],
            rest=addresses[2],
            data=f"{DATA_DIRECTORY}/{node}",
            bind=ControllerBind(**_bound(plan, ("raft", "broker", "rest"), addresses)),
        )
        for node, addresses in (_node("--controller", text) for text in plan.controllers)
    }
    nodes = [_node("--broker", text) for text in plan.brokers]
    sets = [_set_of(node) for node, _ in nodes]
    broker_sections = {
        node: made_from(
            plan,
            BrokerSection,
            set=set_name,
            listen=addresses[0],
            ha=addresses[1],
            health=addresses[2],
            data=f"{DATA_DIRECTORY}/{node}",
            expected_replicas=sets.count(set_name),
            bind=BrokerBind(**_bound(plan, ("listen", "ha", "health"), addresses)),
        )
        for (node, addresses), set_name in zip(nodes, sets, strict=True)
    }
    _require(len(controller_sections) == len(plan.controllers), "two controllers have the same name")
    _require(len(broker_sections) == len(plan.brokers), "two brokers have the same name")
    _require(not controller_sections.keys() & broker_sections.keys(), "a controller and a broker have the same name")
    _require_distinct(plan.controllers, plan.brokers)
    for name in sets:
        # Founded all the same, none of its brokers would start: each refuses such a fleet file (64).
        _require(
            plan.min_in_sync <= sets.count(name),
            f"--min-in-sync {plan.min_in_sync} is more than the {sets.count(name)} replicas of {name}; say 1 to "
            f"{sets.count(name)}, or 0 for half of them, rounded up",
        )
    return FleetFile(
        version=FLEET_FILE_VERSION,
        fleet=made_from(plan, FleetSection, incarnation=secrets.token_hex(16)),
        tls=TlsSection(authority=f"{TLS_DIRECTORY}/ca.pem", directory=TLS_DIRECTORY),
        rocketmq=_rocketmq(plan),
        # With RocketMQ's shares of the disk. An older fleet keeps all: what it has was not meant to go one day.
        retention=RetentionSection(
            retention_hours=plan.retention_hours, retention_forced_percent=85, sends_refused_percent=90
        )
        if plan.retention_hours
        else RetentionSection(),
        controllers=controller_sections,
        brokers=broker_sections,
    )


def _rocketmq(plan: Founding) -> RocketmqSection | None:
    _require(
        plan.rocketmq_tls in list(RocketmqTls),
        f"--rocketmq-tls {plan.rocketmq_tls!r} is not one of {', '.join(RocketmqTls)}",
    )
    if not plan.rocketmq and not plan.rocketmq_keys:
        _require(
            plan.rocketmq_tls == RocketmqTls.PERMISSIVE,
            f"--rocketmq-tls {plan.rocketmq_tls} needs --rocketmq NETWORK, --rocketmq-keys, or both",
        )
        return None
    section = RocketmqSection(
        tls=RocketmqTls(plan.rocketmq_tls),
        addresses=tuple(plan.rocketmq),
        credentials=ROCKETMQ_KEYS_FILE if plan.rocketmq_keys else None,
    )
    refuse_plain_tls(section, is_insecure=plan.insecure)
    rocketmq_networks(section)
    return section


def _bound(plan: Founding, keys: Sequence[str], addresses: Sequence[str]) -> dict[str, str]:
    """Where to listen, if not at the addresses that others are told."""
    return dict(zip(keys, map(any_address, addresses), strict=True)) if plan.bind_any else {}


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ConfigError(message)


def _node(option: str, text: str) -> tuple[str, list[str]]:
    """Name and addresses of ``NAME=A,B,C``."""
    node, equals, rest = text.partition("=")
    addresses = rest.split(",")
    _require(
        bool(equals and _NAME.fullmatch(node)) and len(addresses) == 3,
        f"{option} {text!r} is not NAME=host:port,host:port,host:port",
    )
    for address in addresses:
        split_address(address)
    return node, addresses


def _set_of(node: str) -> str:
    """``broker-a-1`` belongs to the set ``broker-a``."""
    found = _BROKER_NAME.fullmatch(node)
    if found is None:
        raise ConfigError(f"broker {node!r} is not SET-NUMBER, e.g. broker-a-1")
    return found["set"]


def _require_distinct(controllers: Sequence[str], brokers: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for text in (*controllers, *brokers):
        node, _, rest = text.partition("=")
        for address in rest.split(","):
            _require(address not in seen, f"{node} and {seen.get(address)} both have the address {address}")
            seen[address] = node


def render_fleet_file(fleet: FleetFile) -> str:
    """The document as TOML; values that are defaults are left out."""
    return FLEET_FILE_HEAD + tomli_w.dumps({name: _plain(value) for name, value in _told(fleet)})


def _told(section: msgspec.Struct) -> Iterator[tuple[str, object]]:
    for field in msgspec.structs.fields(section):
        value = getattr(section, field.name)
        if value not in (field.default, {}):
            yield field.name, value


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return _plain(dict(_told(value))) if isinstance(value, msgspec.Struct) else value
