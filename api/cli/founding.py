"""
Founding a fleet: its identity, the private certificate authority of its controllers, directories, the fleet file.

Here: everything that exists before the first process starts. Not here: starting anything (``deploy.local``), reading
the fleet file (``node.config``).

Rule 1: a fleet is founded once.
Rule 2: a controller may start on an empty directory only beside a file ``FOUNDING`` that names the fleet incarnation.
Rule 3: private keys are readable by their owner only.
"""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import tomli_w

from rollcall_ha.api.cli.context import CommandExit, fail
from rollcall_ha.controller.contract.ids import SERVED_ACK_MODES, FlushMode
from rollcall_ha.controller.contract.timing import Preset
from rollcall_ha.node.config import (
    FLEET_FILE_NAME,
    FLEET_FILE_VERSION,
    BrokerSection,
    ConfigError,
    ControllerSection,
    FleetFile,
    FleetSection,
    TlsSection,
    split_address,
)
from rollcall_ha.node.files import atomic_replace

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate

FOUNDING_FILE_NAME = "FOUNDING"
TLS_DIRECTORY = "tls"
DATA_DIRECTORY = "data"
CERTIFICATE_DAYS = 3650
SEGMENT_BYTES_MIN = 64 * 1024
FLEET_FILE_HEAD = """\
# One file for every process of the fleet: only the name on the command line differs.
# Paths are relative to this file. Made by: rollcall init
"""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_BROKER_NAME = re.compile(r"(?P<set>[A-Za-z0-9][A-Za-z0-9_-]{0,59})-(?P<number>[0-9]{1,3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Founding:
    """The options of ``rollcall init``: settings of all brokers; the fleet file may be edited afterwards."""

    name: str
    controllers: Sequence[str]
    """NAME=RAFT,BROKER,REST, each host:port."""
    brokers: Sequence[str] = ()
    """SET-NUMBER=LISTEN,HA,HEALTH, each host:port."""
    timing: str = "normal"
    name_service: bool = False
    ack_mode: str = "all"
    min_in_sync: int = 0
    flush: str = "async"
    segment_bytes: int = 64 * 1024 * 1024


def init(directory: Path, plan: Founding) -> None:
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
    try:
        fleet = describe(plan)
    except ConfigError as error:
        raise fail(f"rollcall: {error}", CommandExit.WRONG_USE) from None
    try:
        _write(directory, fleet)
    except OSError as error:
        place = error.filename or directory
        raise fail(
            f"rollcall: the fleet cannot be founded in {directory}: {place}: {error.strerror}; choose a --directory "
            "that can be made and written",
            CommandExit.WRONG_USE,
        ) from None
    who = f"{len(fleet.controllers)} controllers and {len(fleet.brokers)} brokers"
    sys.stdout.write(f"OK  founded fleet {plan.name} with {who}: {fleet_file}\n")
    first = next(iter(fleet.controllers))
    sys.stdout.write(f"Next, on each machine: rollcall controller {first} --config {fleet_file}\n")


def _write(directory: Path, fleet: FleetFile) -> None:
    """Everything of a new fleet, durable on return. Raises ``OSError``."""
    directory.mkdir(parents=True, exist_ok=True)
    _write_certificates(directory / TLS_DIRECTORY, fleet)
    for section in fleet.controllers.values():
        data = directory / section.data
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Without this file an empty directory may be one whose disk was replaced: that controller would vote again in a
        # term in which it has voted (rule 2). The first start moves it away.
        atomic_replace(data / FOUNDING_FILE_NAME, f"{fleet.fleet.incarnation}\n".encode())
    # LAST, by one rename: a crash before it leaves no fleet, and the next init begins again. Written first, half a
    # fleet would refuse to be founded (rule 1).
    atomic_replace(directory / FLEET_FILE_NAME, render_fleet_file(fleet).encode())


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
        plan.segment_bytes >= SEGMENT_BYTES_MIN,
        f"--segment-bytes {plan.segment_bytes} is less than {SEGMENT_BYTES_MIN}",
    )
    _require(
        len(plan.controllers) in (1, 3), f"{len(plan.controllers)} controllers; 1 (no redundancy) or 3 are supported"
    )
    controller_sections = {
        node: ControllerSection(
            raft=addresses[0], broker=addresses[1], rest=addresses[2], data=f"{DATA_DIRECTORY}/{node}"
        )
        for node, addresses in (_node("--controller", text) for text in plan.controllers)
    }
    nodes = [_node("--broker", text) for text in plan.brokers]
    sets = [_set_of(node) for node, _ in nodes]
    broker_sections = {
        node: BrokerSection(
            set=set_name,
            listen=addresses[0],
            ha=addresses[1],
            health=addresses[2],
            data=f"{DATA_DIRECTORY}/{node}",
            expected_replicas=sets.count(set_name),
            ack_mode=plan.ack_mode,
            min_in_sync=plan.min_in_sync,
            flush=plan.flush,
            segment_bytes=plan.segment_bytes,
        )
        for (node, addresses), set_name in zip(nodes, sets, strict=True)
    }
    _require(len(controller_sections) == len(plan.controllers), "two controllers have the same name")
    _require(len(broker_sections) == len(plan.brokers), "two brokers have the same name")
    _require(not controller_sections.keys() & broker_sections.keys(), "a controller and a broker have the same name")
    _require_distinct(plan.controllers, plan.brokers)
    return FleetFile(
        version=FLEET_FILE_VERSION,
        fleet=FleetSection(
            name=plan.name, incarnation=secrets.token_hex(16), timing=plan.timing, name_service=plan.name_service
        ),
        tls=TlsSection(authority=f"{TLS_DIRECTORY}/ca.pem", directory=TLS_DIRECTORY),
        controllers=controller_sections,
        brokers=broker_sections,
    )


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
    return dict(_told(value)) if isinstance(value, msgspec.Struct) else value


# --- certificates ----------------------------------------------------------------------------------------------------


def _write_certificates(directory: Path, fleet: FleetFile) -> None:
    """``ca.pem``, ``ca.key``, and NAME.pem with NAME.key for each controller: CN and DNS name are NAME."""
    from cryptography.hazmat.primitives.asymmetric import ec

    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _certificate(f"{fleet.fleet.name} controllers", authority_key, None, authority_key)
    _write_pair(directory / "ca.pem", directory / "ca.key", authority, authority_key)
    for node in fleet.controllers:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _certificate(node, key, authority, authority_key)
        _write_pair(directory / f"{node}.pem", directory / f"{node}.key", certificate, key)


def _certificate(
    name: str, key: EllipticCurvePrivateKey, issuer: Certificate | None, issuer_key: EllipticCurvePrivateKey
) -> Certificate:
    """A certificate of ``issuer``, or, with none, one that signs itself and may sign others."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    is_authority = issuer is None
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=CERTIFICATE_DAYS))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=is_authority,
                crl_sign=is_authority,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
    )
    if not is_authority:
        usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = builder.add_extension(usages, critical=False)
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _write_pair(certificate_file: Path, key_file: Path, certificate: Certificate, key: EllipticCurvePrivateKey) -> None:
    from cryptography.hazmat.primitives import serialization

    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    atomic_replace(key_file, private, mode=0o600)
    atomic_replace(certificate_file, certificate.public_bytes(pem), mode=0o644)
