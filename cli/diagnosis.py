"""
What is wrong with a fleet, by facts that were gathered: findings, each with a severity, both values and a remedy.

Here: pure judgement. Not here: gathering (``doctor``, ``probing``), how the page looks (``doctor_page``).

Rule 1: a finding names what was found, what was expected and what to do; without the last, it is a complaint.
Rule 2: what was not looked at is said and counted, and is no finding: nobody shall take it for healthy.
Rule 3: names, addresses and serial numbers only. A page that is attached to a report holds no key and no token.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from rollcall_ha.cli import output
from rollcall_ha.cli.probing import Looked, PortState
from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.contract.labels import in_words, label, labels, names_of, word
from rollcall_ha.controller.contract.problems import (
    LEAD_CHANGES_MAX,
    LEAD_WINDOW_MS,
    PROBLEMS,
    ProblemCode,
    Severity,
    lead_unstable_words,
    lost_entries_words,
    own_network_words,
)
from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.controller.contract.values import EventRef, Frozen, Value
from rollcall_ha.controller.contract.views import FleetStatus, SetStatus
from rollcall_ha.node.certified import WARNING_DAYS, utc_text

CLOCK_OFF_MS_MAX = 1_000
"""Between two machines. Stamps in the record come from these clocks, and certificates begin and end by them."""
FREE_PERCENT_MIN = 10
FREE_BYTES_MIN = 1_000_000_000
FREE_BYTES_CRITICAL = 100_000_000
"""What is free on a disk with a data directory. Below it, a segment of the log may be the last one that fits."""
DAY_MS = 86_400_000


class Finding(Value):
    """One thing that is not as it should be."""

    severity: Severity
    subject: str
    """A node, a port of it, a set, or ``fleet``."""
    found: str
    expected: str
    remedy: str


_critical = partial(Finding, severity=Severity.CRITICAL)
_warning = partial(Finding, severity=Severity.WARNING)
_note = partial(Finding, severity=Severity.NOTE)


class ControllerFacts(Frozen):
    """One controller; ``status`` None: it did not answer, and ``trouble`` says why."""

    name: str
    address: str
    status: FleetStatus | None
    trouble: str = ""
    clock_off_ms: int | None = None
    """Its clock minus that of this machine; None: its answer does not tell."""
    clock_doubt_ms: int = 0
    """The truth is at most this far away: half of the time that the answer took."""
    newest: EventRef | None = None
    """The end of its journal on disk."""
    journal_trouble: str = ""
    """Why its journal could not be read, or what it lacks."""


class DiskFacts(Value):
    """The disk under a data directory of this machine."""

    node: str
    directory: str
    free_bytes: int
    total_bytes: int
    journal_bytes: int | None = None
    """Size of a controller's events; None: it is a broker."""
    journal_limit_bytes: int = 0


class CertificateFacts(Value):
    """A certificate that some process shows, or the caller's own."""

    name: str
    serial: str
    expires_at_ms: int
    expires_in_ms: int
    """By the clock of who told it."""


class FileFacts(Frozen):
    """What the fleet file here says."""

    path: str
    fleet_name: str
    timing: str
    is_insecure: bool


class Facts(Frozen):
    """Everything that was gathered."""

    now_ms: int
    """UTC of this machine."""
    controllers: tuple[ControllerFacts, ...]
    sets: tuple[SetStatus, ...] = ()
    """By the leader's word, or by that of the controller that has applied most."""
    ports: tuple[Looked, ...] = ()
    disks: tuple[DiskFacts, ...] = ()
    own_certificates: tuple[CertificateFacts, ...] = ()
    revoked: frozenset[str] = frozenset()
    """Serial numbers."""
    file: FileFacts | None = None
    skipped: tuple[str, ...] = ()
    """What was not looked at, with the reason."""

    @property
    def answering(self) -> tuple[tuple[ControllerFacts, FleetStatus], ...]:
        return tuple((one, one.status) for one in self.controllers if one.status is not None)


_ORDER = {severity: place for place, severity in enumerate(Severity)}


def diagnose(facts: Facts) -> tuple[Finding, ...]:
    """All findings, the worst first."""
    found = [
        *_quorum(facts),
        *_members(facts),
        *_missed_masters(facts),
        *_sets(facts.sets),
        *_ports(facts.ports),
        *_certificates(facts),
        *_versions(facts),
        *_settings(facts),
        *_clocks(facts),
        *_disks(facts.disks),
        *_journals(facts.answering),
    ]
    return tuple(sorted(found, key=lambda one: _ORDER[one.severity]))


# --- quorum ----------------------------------------------------------------------------------------------------------


def _quorum(facts: Facts) -> Iterator[Finding]:
    total, alive = len(facts.controllers), len(facts.answering)
    needed = total // 2 + 1
    leaders = [one.name for one, status in facts.answering if status.controller.has_authority]
    refused = {(by.name, one.who): one for by, status in facts.answering for one in status.controller.refused}
    if not leaders:
        # Those that run and are refused are no majority either, and starting them again changes nothing.
        remedy = "mend why controllers are refused, as told here" if refused else "start the controllers that are down"
        yield _critical(
            subject="fleet",
            found=f"no controller leads with authority; {alive} of {total} answer",
            expected=f"one leads, and {needed} of {total} are up",
            remedy=f"{remedy}; brokers keep serving meanwhile, and nobody is elected",
        )
    for (by_name, who), refusal in refused.items():
        yield _warning(
            subject=who,
            found=f"it runs at {refusal.host}, and {by_name} refuses it as a controller: {refusal}",
            expected="controllers take each other's certificates",
            remedy=refusal.hint,
        )
    if unstable := lead_unstable_words([status.controller for _, status in facts.answering]):
        yield _warning(
            subject="fleet",
            found=unstable,
            expected=f"at most {LEAD_CHANGES_MAX} changes within {LEAD_WINDOW_MS // 60_000} minutes",
            remedy="take load from the machines of controllers that are late; if none is, look at the network between "
            "them; timing = safe waits longer",
        )
    for one in facts.controllers:
        if one.status is None:
            # Its certificate may be no good here either.
            known = next((refusal for refusal in refused.values() if refusal.name == one.name), None)
            start = (
                f"start it on its machine (rollcall controller {one.name}); its log says why it ended: "
                "exit code 64 is its fleet file, 65 its data directory"
            )
            yield Finding(
                severity=Severity.WARNING if alive >= needed else Severity.CRITICAL,
                subject=one.name,
                found=f"controller does not answer: {one.trouble}",
                expected=f"{total} of {total} answer; {alive} do, and {needed} are needed",
                remedy=start if known is None else known.hint,
            )
        elif one.status.controller.differing:
            names = ", ".join(one.status.controller.differing)
            yield _critical(
                subject=one.name,
                found=f"its state {one.status.controller.state_digest[:12]} differs from that of {names}",
                expected="the same entries make the same state",
                remedy="keep the data directories of all controllers, and report it",
            )
        elif lost := one.status.controller.lost_entries:
            yield _critical(
                subject=one.name,
                found=lost_entries_words(lost),
                expected="every entry that was committed",
                remedy="orders, settings, tokens and revocations since that copy are gone: give them again; "
                "docs/controllers.md has what to look at",
            )


def _members(facts: Facts) -> Iterator[Finding]:
    told = (status.controller for _, status in facts.answering)
    leader = next((one for one in told if one.has_authority), None)
    # A silent one that no file names is known by its address only: it may be any of them.
    if leader is None or not leader.voters or any(one.name == one.address for one in facts.controllers):
        return
    known = {ControllerName(one.name) for one in facts.controllers}
    voters = ", ".join(leader.voters)
    for name in sorted({*leader.voters} - known):
        yield _warning(
            subject=name,
            found=f"it votes, and was not asked; known here: {', '.join(sorted(known))}",
            expected=f"all that vote are known here: {voters}",
            remedy="add it to the fleet file of every machine, and its address to contexts (docs/controllers.md)",
        )
    for name in sorted(known - {*leader.voters, *leader.learners}):
        yield _warning(
            subject=name,
            found="it is known here, and is no member by the leader's log",
            expected=f"one that votes: {voters}",
            remedy=f"rollcall controllers add {name}; or stop it, and take it out of fleet files and contexts",
        )


# --- sets ------------------------------------------------------------------------------------------------------------


def _missed_masters(facts: Facts) -> Iterator[Finding]:
    for one, status in facts.answering:
        if own_network := own_network_words(status.controller.missed, status.sets_total):
            yield _critical(
                subject=one.name,
                found=own_network,
                expected="brokers that fail one by one",
                remedy=f"look at the network between {one.name} and the brokers first: masters may serve on. A fault "
                f"of {one.name}'s machine alone: rollcall controllers transfer",
            )


def _sets(sets: Iterable[SetStatus]) -> Iterator[Finding]:
    for status in sets:
        view = status.view
        # A tombstone: it has no master, and never shall.
        if view.condition is Condition.CLEANED:
            continue
        key, expected = str(view.set_key), view.configuration.expected_replicas
        names = names_of(view.members)
        in_sync = f"in sync {labels(view.sync_state_set, names)} of {expected}"
        if view.condition is not Condition.SERVING:
            master = "no master" if view.master is None else f"master {label(view.master, names)}"
            reason = in_words(view.condition_reason, names) or "no reason is told"
            yield _critical(
                subject=key,
                found=f"{master}, {view.condition}: {reason}; {in_sync}",
                expected="a master that serves",
                remedy=f"start its brokers; rollcall explain {key} tells why nobody was elected",
            )
        for problem in (PROBLEMS[ProblemCode(code)] for code in status.problems if code in PROBLEMS):
            if problem.severity is Severity.CRITICAL and view.condition is Condition.SERVING:
                yield _critical(
                    subject=key,
                    found=f"{problem.words}; {in_sync}",
                    expected=f"min_in_sync is {view.configuration.effective_min_in_sync}, and writes are taken",
                    remedy="start the brokers that are not in sync; they follow by themselves",
                )
        gone = {one.broker_id for one in status.replicas if not one.is_alive}
        for one in status.refused:
            if one.broker_id is not None and one.broker_id not in gone:
                yield _warning(
                    subject=f"{key} broker {label(one.broker_id, names)}",
                    found=f"a process at {one.host} asks under this id and is refused: {one}",
                    expected="one process for each id, and no id that was cleaned",
                    remedy=one.hint,
                )
        for replica in status.replicas:
            refusal = status.refusal_of(replica)
            if not replica.is_alive:
                heard = f"last heard {output.age_ms(replica.seen_age_ms)} ago at {replica.address}"
                refused = refusal and f"a process at {refusal.host} runs and is refused: {refusal}"
                again = word(replica.broker_id, names)
                remedy = f"start it; an id that never comes back: rollcall clean {key} --broker {again}"
                yield _warning(
                    subject=f"{key} broker {label(replica.broker_id, names)}",
                    found=f"gone; {refused or heard}",
                    expected=f"{expected} replicas in sync; the set has {len(view.sync_state_set)}",
                    remedy=refusal.hint if refusal else remedy,
                )
            elif not (replica.is_in_sync or replica.is_learner):
                yield _warning(
                    subject=f"{key} broker {label(replica.broker_id, names)}",
                    found=f"alive and not in sync, {output.size(replica.lag_bytes)} behind",
                    expected="in the SyncStateSet",
                    remedy=f"wait while it catches up: rollcall wait {key} --until in-sync; then read its log",
                )


# --- ports -----------------------------------------------------------------------------------------------------------

_PORT_WORDS = {
    PortState.REFUSED: ("nobody listens there", "start the node, or correct its address in the fleet file"),
    PortState.SILENT: ("it is silent", "start the machine, and open the port in what stands before it"),
    PortState.UNREACHABLE: ("there is no way to it", "correct its address in the fleet file, or the name in DNS"),
    PortState.NOT_OURS: (
        "something else has it, or the fleet is insecure there",
        "find the program on that machine (ss -tlnp), end it, and start the node",
    ),
    PortState.WRONG_AUTHORITY: (
        "its certificate comes from another authority",
        "look whether ca.pem is this fleet's (--authority); give the node a certificate: rollcall certs renew",
    ),
    PortState.EXPIRED: ("its certificate has expired", "rollcall certs renew, and copy its files"),
    PortState.UNPROVEN: (
        "its certificate does not hold",
        "look at the clock here; rollcall certs renew, and copy its files",
    ),
}


def _ports(ports: Iterable[Looked]) -> Iterator[Finding]:
    for one in ports:
        subject = f"{one.port.node} {one.port.kind} {one.port.address}"
        expected = one.port.expected or ("a certificate of the fleet" if one.port.is_tls else "it takes connections")
        if one.state in _PORT_WORDS:
            words, remedy = _PORT_WORDS[one.state]
            shown = f"; it shows {one.name}, until {utc_text(one.shown.expires_at_ms)}" if one.shown else ""
            yield _critical(
                subject=subject,
                found=f"{words}: {one.trouble}{shown}",
                expected=expected,
                remedy=remedy,
            )
        elif one.shown is not None and one.port.expected and one.name != one.port.expected:
            yield _critical(
                subject=subject,
                found=f"it shows the certificate of {one.name}",
                expected=expected,
                remedy="another node of the fleet has this port: correct the address in the fleet file, or its files",
            )


# --- certificates ----------------------------------------------------------------------------------------------------


def certificates_of(facts: Facts) -> tuple[CertificateFacts, ...]:
    """Each certificate once, by its serial number; the next to end first."""
    known = {one.serial: one for one in facts.own_certificates}
    for looked in facts.ports:
        if looked.shown is not None:
            ends = looked.shown.expires_at_ms
            known[looked.shown.serial] = CertificateFacts(
                name=looked.name,
                serial=looked.shown.serial,
                expires_at_ms=ends,
                expires_in_ms=ends - facts.now_ms,
            )
    for _, status in facts.answering:
        for told in status.controller.certificates:
            known[told.serial] = CertificateFacts(
                name=told.name, serial=told.serial, expires_at_ms=told.expires_at_ms, expires_in_ms=told.expires_in_ms
            )
    return tuple(sorted(known.values(), key=lambda one: (one.expires_at_ms, one.name)))


def _certificates(facts: Facts) -> Iterator[Finding]:
    for one in certificates_of(facts):
        name = one.name.rpartition("/")[2] or one.serial
        subject = f"certificate of {one.name or 'nobody'}, {one.serial[:12]}"
        if one.serial in facts.revoked:
            yield _critical(
                subject=subject,
                found="it is revoked, and shown",
                expected="no process has a revoked certificate",
                remedy=f"if {name} is to go on: rollcall certs issue {name}, and copy its files; else end it",
            )
        if one.expires_in_ms < WARNING_DAYS * DAY_MS:
            is_over, until = one.expires_in_ms <= 0, utc_text(one.expires_at_ms)
            yield Finding(
                severity=Severity.CRITICAL if is_over else Severity.WARNING,
                subject=subject,
                found=f"it expired at {until}"
                if is_over
                else f"it expires in {one.expires_in_ms / DAY_MS:.1f} days, at {until}",
                expected=f"at least {WARNING_DAYS} days are left",
                remedy=f"rollcall certs renew {name}, and copy its files",
            )
    for controller, status in facts.answering:
        if complaint := status.controller.certificate_complaint:
            yield _warning(
                subject=controller.name,
                found=f"it goes on with its old certificate: {complaint}",
                expected="the files on its disk are those in use",
                remedy=f"rollcall certs renew {controller.name}, and copy both of its files",
            )


# --- versions and settings -------------------------------------------------------------------------------------------


def _versions(facts: Facts) -> Iterator[Finding]:
    told = {one.name: status.controller for one, status in facts.answering}
    if not told:
        return
    highest = max(status.feature_level for status in told.values())
    for name, status in told.items():
        if status.feature_level < highest:
            yield _warning(
                subject=name,
                found=f"its program has feature level {status.feature_level}",
                expected=f"feature level {highest}, as the newest controller's program",
                remedy="upgrade it (docs/controllers.md)",
            )
    lowest, in_force = min(one.feature_level for one in told.values()), max(one.fleet_level for one in told.values())
    if in_force < lowest:
        yield _note(
            subject="fleet",
            found=f"feature level {in_force} is in force",
            expected=f"feature level {lowest}, which every controller's program that answers has",
            remedy="rollcall raise-level, when no controller of the older version may come back",
        )


def _settings(facts: Facts) -> Iterator[Finding]:
    told = [(one.name, status) for one, status in facts.answering]
    values: dict[str, list[tuple[str, str]]] = {
        "fleet.name": [(name, status.fleet_name) for name, status in told],
        "fleet.timing": [(name, status.timing) for name, status in told],
        "fleet.insecure": [(name, str(status.controller.is_insecure).lower()) for name, status in told],
        "fleet.incarnation": [(name, str(status.controller.fleet_incarnation)) for name, status in told],
    }
    if facts.file is not None:
        file = facts.file
        values["fleet.name"].append((file.path, file.fleet_name))
        values["fleet.timing"].append((file.path, file.timing))
        values["fleet.insecure"].append((file.path, str(file.is_insecure).lower()))
    for key, pairs in values.items():
        if len({value for _, value in pairs}) > 1:
            yield Finding(
                severity=Severity.CRITICAL if key == "fleet.incarnation" else Severity.WARNING,
                subject=key,
                found=", ".join(f"{name}: {value}" for name, value in pairs),
                expected="the same everywhere",
                remedy="give every machine the same fleet file, and restart the node that has the other value",
            )
    insecure = [name for name, status in told if status.controller.is_insecure]
    whose = ", ".join(insecure) or "by the fleet file"
    if insecure or (facts.file is not None and facts.file.is_insecure):
        yield _warning(
            subject="fleet",
            found=f"insecure: ports are plain and believe whoever connects ({whose})",
            expected="every port has TLS and asks for a certificate",
            remedy="found it with certificates (rollcall init without --insecure): docs/certificates.md",
        )


# --- clocks, disks, journals -----------------------------------------------------------------------------------------


def _clocks(facts: Facts) -> Iterator[Finding]:
    told = [(one, one.clock_off_ms) for one, _ in facts.answering if one.clock_off_ms is not None]
    # The median of three or more, not this machine: a laptop that is wrong would accuse the whole fleet.
    has_middle = len(told) > 2
    middle = sorted(off for _, off in told)[len(told) // 2] if has_middle else 0
    expected = f"at most {CLOCK_OFF_MS_MAX:,} ms"
    remedy = "let NTP set the clocks of all machines (chronyc tracking); stamps of the record come from these clocks"
    for one, off in told:
        if abs(off - middle) - one.clock_doubt_ms > CLOCK_OFF_MS_MAX:
            against = "the middle of all controllers'" if has_middle else "this machine's"
            found = f"its clock is {off - middle:+,} ms from {against}, give or take {one.clock_doubt_ms:,} ms"
            yield _warning(subject=one.name, found=found, expected=expected, remedy=remedy)
    if abs(middle) > CLOCK_OFF_MS_MAX + max((one.clock_doubt_ms for one, _ in told), default=0):
        found = f"its clock is {-middle:+,} ms from the middle of all controllers'"
        yield _note(subject="this machine", found=found, expected=expected, remedy=remedy)
    for one, status in facts.answering:
        if step_ms := status.controller.clock_step_ms:
            yield _note(
                subject=one.name,
                found=f"the clock of entries stepped by {step_ms:+,} ms within the last hour",
                expected="no step",
                remedy="let NTP slew the clock; durations on record are not by this clock, stamps are",
            )


def _disks(disks: Sequence[DiskFacts]) -> Iterator[Finding]:
    for one in disks:
        percent = 100 * one.free_bytes / max(1, one.total_bytes)
        room = f"{output.size(one.free_bytes)} free of {output.size(one.total_bytes)} ({percent:.0f} %)"
        if one.free_bytes < FREE_BYTES_CRITICAL or percent < FREE_PERCENT_MIN or one.free_bytes < FREE_BYTES_MIN:
            yield Finding(
                severity=Severity.CRITICAL if one.free_bytes < FREE_BYTES_CRITICAL else Severity.WARNING,
                subject=f"{one.node} disk",
                found=f"{room} under {one.directory}",
                expected=f"{FREE_PERCENT_MIN} % and {output.size(FREE_BYTES_MIN)} are free",
                remedy="free some room, or give it a larger disk: a master with a full one acknowledges no write",
            )
        if one.journal_bytes is not None and one.journal_bytes > one.journal_limit_bytes:
            yield _warning(
                subject=f"{one.node} journal",
                found=f"{output.size(one.journal_bytes)} of events under {one.directory}",
                expected=f"at most {output.size(one.journal_limit_bytes)}, by fleet.event_bytes",
                remedy="look whether the controller runs: it removes the oldest events by itself",
            )


def _journals(answering: Sequence[tuple[ControllerFacts, FleetStatus]]) -> Iterator[Finding]:
    ends = [one.newest.index for one, _ in answering if one.newest is not None]
    newest = max(ends, default=0)
    for one, status in answering:
        if one.journal_trouble:
            yield _warning(
                subject=f"{one.name} journal",
                found=one.journal_trouble,
                expected="every event is on its disk",
                remedy="it fetches what it lacks from the others while they have it; look at its log",
            )
        applied, own = status.controller.applied_index, 0 if one.newest is None else one.newest.index
        # Asked one after the other: an event between two questions is in the second answer only, and its entry is not
        # applied by the first controller's word.
        if own < newest <= applied:
            yield _warning(
                subject=f"{one.name} journal",
                found=f"it ends at index {own:,} on disk, and the controller has applied {applied:,}",
                expected=f"index {newest:,}, as another controller's",
                remedy="look at the disk and the log of this controller",
            )
