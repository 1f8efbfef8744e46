"""
``rollcall doctor``: everything about a fleet that can be seen from here, on one page.

Here: gathering facts, and the page. Not here: what they mean (``diagnosis``), dialling ports (``probing``).

Rule 1: nothing is changed, and no port is sent a request but REST. A port that is dialled and left counts there as a
link of a stranger.
Rule 2: it answers whatever is down: each fact that cannot be had is a finding, or is named as not looked at.
Rule 3: every wait has a limit: ``probing.DIAL_S_MAX`` a port, the client's a question.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence

import typer

from rollcall_ha import __version__
from rollcall_ha.cli import context, output, probing, tables
from rollcall_ha.cli.diagnosis import (
    CertificateFacts,
    ControllerFacts,
    DiskFacts,
    Facts,
    FileFacts,
    Finding,
    certificates_of,
    diagnose,
)
from rollcall_ha.cli.output import CommandExit, Format, Mood, Report, Table, columns, print_report
from rollcall_ha.cli.probing import Looked, Port
from rollcall_ha.client.client import Client, Reached
from rollcall_ha.client.errors import ClientError
from rollcall_ha.client.identity import Identity, IdentityError
from rollcall_ha.controller.contract.labels import names_of, word
from rollcall_ha.controller.contract.problems import Severity
from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.controller.contract.values import Value
from rollcall_ha.controller.contract.views import SetStatus
from rollcall_ha.node.authority import AuthorityError, read_certificate
from rollcall_ha.node.config import ConfigError, FleetFile, split_address
from rollcall_ha.node.credentials import node_name

CONTROLLER_PORTS = ("raft", "broker", "rest")
BROKER_PORTS = ("listen", "ha", "health")


class DoctorPage(Value):
    """What ``json`` prints."""

    looked_at_ms: int
    """UTC of this machine."""
    program: str
    """Version of the command that looked."""
    findings: tuple[Finding, ...]
    skipped: tuple[str, ...]
    """What was not looked at, with the reason."""
    controllers: tuple[dict[str, object], ...]
    ports: tuple[dict[str, object], ...]
    certificates: tuple[CertificateFacts, ...]
    disks: tuple[DiskFacts, ...]


def doctor(form: Format) -> None:
    """
    Look, and print the page.

    Raises:
        typer.Exit: a finding that is critical or a warning (6); wrong use (2).
    """
    found = context.fleet_file()
    document = None if found is None else found[1]
    # Not by ``context.client``: what is down is a line of the page, and not its end.
    with context.make_client() as asking:
        facts = gather(asking, document, context.identity(), path="" if found is None else str(found[0]))
    findings = diagnose(facts)
    print_report(page_of(facts, findings), form)
    if any(one.severity is not Severity.NOTE for one in findings):
        raise typer.Exit(int(CommandExit.DEGRADED))


# --- facts -----------------------------------------------------------------------------------------------------------


def gather(asking: Client, document: FleetFile | None, identity: Identity, *, path: str = "") -> Facts:
    """Ask every controller, dial every port that is known, look at what lies on this machine. Blocks; never raises."""
    skipped: list[str] = []
    now_ms = time.time_ns() // 1_000_000
    controllers = _controllers(asking, document)
    sets = _sets(asking, controllers, skipped)
    ports = _ports(document) if document is not None else _told_ports(controllers, sets, identity)
    try:
        looked = probing.look_at(ports, identity)
    except IdentityError as error:
        looked = ()
        skipped.append(f"{len(ports)} ports: {error}")
    blind = sum(1 for port in ports if port.is_tls) if identity.authority is None else 0
    if blind:
        skipped.append(f"certificates of {blind} ports: no authority is known here; name ca.pem by --authority")
    disks = tuple(_disks(document, skipped))
    silent_clocks = sum(1 for one in controllers if one.status is not None and one.clock_off_ms is None)
    if silent_clocks:
        skipped.append(
            f"clocks of {silent_clocks} controllers: without certificates their answers do not tell the time"
        )
    return Facts(
        now_ms=now_ms,
        controllers=controllers,
        sets=sets,
        ports=looked,
        disks=disks,
        own_certificates=tuple(_own(identity, now_ms, skipped)),
        revoked=_revoked(asking, skipped),
        file=None
        if document is None
        else FileFacts(
            path=path,
            fleet_name=document.fleet.name,
            timing=document.fleet.timing,
            is_insecure=document.fleet.insecure,
        ),
        skipped=tuple(skipped),
    )


def _controllers(asking: Client, document: FleetFile | None) -> tuple[ControllerFacts, ...]:
    names = {} if document is None else {section.rest: name for name, section in document.controllers.items()}
    found = [_controller(asking, reached, names) for reached in asking.survey()]
    return tuple(sorted(found, key=lambda one: one.name))


def _controller(asking: Client, reached: Reached, names: dict[str, str]) -> ControllerFacts:
    address = reached.address.partition("://")[2]
    if reached.status is None:
        trouble = reached.trouble.removeprefix(f"{reached.address}: ")
        return ControllerFacts(name=names.get(address, address), address=address, status=None, trouble=trouble)
    own = reached.status.controller
    newest, journal_trouble = None, ""
    try:
        page = asking.newest_event_by(reached.address)
        newest, journal_trouble = page.last, page.gap or ""
    except ClientError as error:
        journal_trouble = f"its end cannot be read: {error}"
    off_ms, doubt_ms = None, 0
    if own.certificates:
        # When an answer says that a certificate ends at 12:00 and in one hour, it was 11:00 there.
        told_ms = own.certificates[0].expires_at_ms - own.certificates[0].expires_in_ms
        off_ms = told_ms - (reached.asked_at_ms + reached.answered_at_ms) // 2
        doubt_ms = max(0, reached.answered_at_ms - reached.asked_at_ms + 1) // 2
    return ControllerFacts(
        name=str(own.name),
        address=address,
        status=reached.status,
        clock_off_ms=off_ms,
        clock_doubt_ms=doubt_ms,
        newest=newest,
        journal_trouble=journal_trouble,
    )


def _sets(asking: Client, controllers: Sequence[ControllerFacts], skipped: list[str]) -> tuple[SetStatus, ...]:
    """By the leader's word, else by that of the controller that has applied most."""
    try:
        return asking.status().sets
    except ClientError as error:
        trouble = str(error)
    alive = [one for one in controllers if one.status is not None]
    alive.sort(key=lambda one: one.status.controller.applied_index if one.status else 0, reverse=True)
    for one in alive:
        try:
            return asking.status_from(one.address).sets
        except ClientError as error:
            trouble = str(error)
    skipped.append(f"broker sets: nobody tells of them: {trouble}")
    return ()


def _ports(document: FleetFile) -> tuple[Port, ...]:
    """All ports of the fleet file."""
    # In an insecure fleet with certificates the Raft links use them, and no other port does.
    is_secure, has_raft_tls = not document.fleet.insecure, document.tls is not None
    wanted: list[tuple[str, str, str, bool]] = []
    for name, section in document.controllers.items():
        wanted += [
            (name, kind, getattr(section, kind), is_secure or (kind == "raft" and has_raft_tls))
            for kind in CONTROLLER_PORTS
        ]
    for name, broker in document.brokers.items():
        wanted += [(name, kind, getattr(broker, kind), is_secure) for kind in BROKER_PORTS]
    ports = []
    for name, kind, address, is_tls in wanted:
        host, number = split_address(address)
        expected = str(node_name(document, name) or "") if is_tls else ""
        ports.append(Port(node=name, kind=kind, host=host, number=number, expected=expected, is_tls=is_tls))
    return tuple(ports)


def _told_ports(
    controllers: Sequence[ControllerFacts], sets: Sequence[SetStatus], identity: Identity
) -> tuple[Port, ...]:
    """Without a fleet file: what the controllers tell of themselves and of replicas."""
    is_tls = identity.authority is not None
    told: dict[tuple[str, str], str] = {}
    for one in controllers:
        if one.status is None:
            told[one.name, "rest"] = one.address
            continue
        own = one.status.controller
        told |= {
            (one.name, "raft"): own.raft_address,
            (one.name, "broker"): own.broker_address,
            (one.name, "rest"): own.rest_address,
        }
    for status in sets:
        if status.view.condition is not Condition.CLEANED:
            names = names_of(status.view.members)
            for replica in status.replicas:
                # Without a name, or with one of two ids, by the set: the older address would be overwritten.
                is_named = word(replica.broker_id, names) != str(replica.broker_id)
                node = names[replica.broker_id] if is_named else f"{status.view.set_key.name}-{replica.broker_id}"
                told |= {(node, "listen"): replica.address, (node, "ha"): replica.ha_address}
    ports = []
    for (node, kind), address in told.items():
        try:
            host, number = split_address(address)
        except ConfigError:
            continue  # a replica of RocketMQ without an HA address
        ports.append(Port(node=node, kind=kind, host=host, number=number, is_tls=is_tls))
    return tuple(ports)


def _disks(document: FleetFile | None, skipped: list[str]) -> Iterator[DiskFacts]:
    if document is None:
        skipped.append("disks: no fleet file is here, so no data directory is known")
        return
    elsewhere = []
    data = {name: one.data for name, one in document.controllers.items()}
    data |= {name: one.data for name, one in document.brokers.items()}
    for name, folder in data.items():
        directory = document.path(folder)
        try:
            usage = shutil.disk_usage(directory)
        except OSError:
            elsewhere.append(name)
            continue
        journal = None
        if name in document.controllers:
            journal = sum(file.stat().st_size for file in (directory / "events").glob("events-*.jsonl"))
        yield DiskFacts(
            node=name,
            directory=str(directory),
            free_bytes=usage.free,
            total_bytes=usage.total,
            journal_bytes=journal,
            journal_limit_bytes=document.fleet.event_bytes,
        )
    if elsewhere:
        skipped.append(f"disks of {len(elsewhere)} nodes that are not on this machine: {', '.join(elsewhere)}")


def _own(identity: Identity, now_ms: int, skipped: list[str]) -> Iterator[CertificateFacts]:
    if identity.certificate is None:
        return
    try:
        found = read_certificate(identity.certificate)
    except AuthorityError as error:
        skipped.append(f"the caller's own certificate: {error}")
        return
    yield CertificateFacts(
        name=str(found.name or found.subject),
        serial=found.serial,
        expires_at_ms=found.expires_at_ms,
        expires_in_ms=found.expires_at_ms - now_ms,
    )


def _revoked(asking: Client, skipped: list[str]) -> frozenset[str]:
    try:
        return frozenset(one.serial for one in asking.certificates(consistency="local").revoked)
    except ClientError as error:
        skipped.append(f"revoked certificates: {error}")
        return frozenset()


# --- page ------------------------------------------------------------------------------------------------------------


def page_of(facts: Facts, findings: Sequence[Finding]) -> Report:
    """The page: findings first, then what they were found in."""
    certificates = certificates_of(facts)
    count = {severity: sum(1 for one in findings if one.severity is severity) for severity in Severity}
    worst = findings[0].severity if findings else None
    told = ", ".join(f"{number} {severity}" for severity, number in count.items() if number)
    word = {Severity.CRITICAL: "CRITICAL", Severity.WARNING: "WARNING"}.get(worst, "OK") if worst else "OK"
    looked = f"{len(facts.ports)} ports, {len(certificates)} certificates, {len(facts.sets)} sets looked at"
    skipped = tuple(f"SKIPPED  {text}" for text in facts.skipped)
    parts: list[str | Table] = [_findings_table(findings)] if findings else []
    parts += [_controllers_table(facts.controllers), *([_ports_table(facts.ports)] if facts.ports else [])]
    parts += [_certificates_table(certificates)] if certificates else []
    parts += [_disks_table(facts.disks)] if facts.disks else []
    document = DoctorPage(
        looked_at_ms=facts.now_ms,
        program=__version__,
        findings=tuple(findings),
        skipped=facts.skipped,
        controllers=tuple(_controller_document(one) for one in facts.controllers),
        ports=tuple(_port_document(one) for one in facts.ports),
        certificates=certificates,
        disks=facts.disks,
    )
    return Report(
        document=document,
        verdict=f"{word}  {told or 'nothing found'}; {looked}" + (f", {len(skipped)} skipped" if skipped else ""),
        read=f"{output.utc(facts.now_ms)} by rollcall {__version__}",
        mood={"OK": Mood.GOOD, "WARNING": Mood.WARNING}.get(word, Mood.BAD),
        parts=(*parts, *([""] if skipped else []), *skipped),
        names=tuple(one.subject for one in findings),
    )


def _controller_document(one: ControllerFacts) -> dict[str, object]:
    return {
        "name": one.name,
        "address": one.address,
        "trouble": one.trouble or None,
        "status": None if one.status is None else one.status.controller,
        "timing": None if one.status is None else one.status.timing,
        "clockOffMs": one.clock_off_ms,
        "clockDoubtMs": one.clock_doubt_ms,
        "journalLast": one.newest,
    }


def _port_document(one: Looked) -> dict[str, object]:
    return {
        "node": one.port.node,
        "kind": one.port.kind,
        "address": one.port.address,
        "state": one.state,
        "trouble": one.trouble or None,
        "expected": one.port.expected or None,
        "certificate": one.name or None,
        "serial": None if one.shown is None else one.shown.serial,
    }


def _findings_table(findings: Sequence[Finding]) -> Table:
    rows = tuple((str(one.severity), one.subject, one.found, one.expected, one.remedy) for one in findings)
    return Table(columns=columns("SEVERITY", "WHERE", "FOUND", "EXPECTED", "REMEDY"), rows=rows)


def _controllers_table(controllers: Sequence[ControllerFacts]) -> Table:
    rows = []
    for one in controllers:
        row = tables.ControllerRow(address=one.address, status=one.status.controller if one.status else None)
        own = row.status
        rows.append(
            (
                one.name,
                row.role,
                "" if own is None else str(own.term),
                "" if own is None else output.number(own.applied_index),
                "" if one.newest is None else output.number(one.newest.index),
                "" if own is None else f"{own.fleet_level} of {own.feature_level}",
                "" if one.status is None else one.status.timing,
                output.UNKNOWN if one.clock_off_ms is None else f"{one.clock_off_ms:+,} ms ±{one.clock_doubt_ms:,}",
                one.trouble,
            )
        )
    titles = columns("CONTROLLER", "ROLE", ">TERM", ">APPLIED", ">JOURNAL", "LEVEL", "TIMING", ">CLOCK", "TROUBLE?")
    return Table(columns=titles, rows=tuple(rows), leaving=("TIMING", "LEVEL"))


def _ports_table(ports: Sequence[Looked]) -> Table:
    rows = tuple(
        (one.port.node, one.port.kind, one.port.address, str(one.state), one.name, one.trouble) for one in ports
    )
    return Table(columns=columns("NODE", "PORT", "ADDRESS", "STATE", "CERTIFICATE?", "TROUBLE?"), rows=rows)


def _certificates_table(certificates: Sequence[CertificateFacts]) -> Table:
    rows = tuple(
        (one.name or output.UNKNOWN, one.serial, output.utc(one.expires_at_ms), f"{one.expires_in_ms / 86_400_000:.1f}")
        for one in certificates
    )
    titles = columns("CERTIFICATE", "SERIAL", "EXPIRES", ">DAYS LEFT")
    return Table(columns=titles, rows=rows, leaving=("SERIAL",))


def _disks_table(disks: Sequence[DiskFacts]) -> Table:
    rows = tuple(
        (
            one.node,
            one.directory,
            output.size(one.free_bytes),
            output.size(one.total_bytes),
            "" if one.journal_bytes is None else output.size(one.journal_bytes),
        )
        for one in disks
    )
    return Table(columns=columns("NODE", "DIRECTORY", ">FREE", ">OF", ">JOURNAL?"), rows=rows)
