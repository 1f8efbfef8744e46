"""``rollcall doctor``: ten faults are planted, on real ports where it dials them, and each has to be named."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import ssl
import threading
import time
from collections import namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from msgspec.structs import replace
from msgspec.structs import replace as changed

from rollcall_ha.cli import context, probing
from rollcall_ha.cli.diagnosis import (
    CertificateFacts,
    ControllerFacts,
    DiskFacts,
    Facts,
    FileFacts,
    Finding,
    diagnose,
)
from rollcall_ha.cli.main import app
from rollcall_ha.cli.probing import Looked, Port, PortState, look_at
from rollcall_ha.client.client import Client
from rollcall_ha.client.identity import Identity
from rollcall_ha.controller.contract.ids import BrokerId, ControllerName, FleetIncarnation
from rollcall_ha.controller.contract.problems import Severity
from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.controller.contract.values import EventRef
from rollcall_ha.controller.contract.views import (
    CertificatesAnswer,
    CertificateStatus,
    EventPage,
    FleetStatus,
    MissedMasters,
    RefusedBroker,
    RefusedController,
    SetStatus,
)
from rollcall_ha.deploy.local.processes import free_ports
from rollcall_ha.node.certified import PeerKind
from tests.support.cli import CliRunner
from tests.support.fake_controllers import FakeControllers, answer, controller_status, freshness, set_status
from tests.support.fleet_certs import FleetCertificates

DAY_MS = 86_400_000
TOKEN = "3f9c0e7d55aa" * 4
END = EventRef(term=7, index=4200, ordinal=0)


# --- pure ------------------------------------------------------------------------------------------------------------


def status_of(name: str, *, sets: tuple[SetStatus, ...] = (), **own: Any) -> FleetStatus:
    """c1 leads."""
    controller = changed(controller_status(name, leads=name == "c1"), **own)
    return FleetStatus(
        freshness=freshness(name),
        controller=controller,
        fleet_name="demo",
        timing="normal",
        sets=sets,
        sets_total=len(sets),
        next_after=None,
    )


def controller(name: str, **changes: Any) -> ControllerFacts:
    known: dict[str, Any] = {"status": status_of(name), "clock_off_ms": 3, "clock_doubt_ms": 2, "newest": END}
    return ControllerFacts(name=name, address=f"{name}:9870", **{**known, **changes})


HEALTHY = Facts(
    now_ms=1_800_000_000_000,
    controllers=tuple(controller(name) for name in ("c1", "c2", "c3")),
    sets=(set_status(),),
    disks=(DiskFacts(node="c1", directory="/d", free_bytes=50 * 10**9, total_bytes=100 * 10**9, journal_bytes=5),),
    file=FileFacts(path="rollcall.toml", fleet_name="demo", timing="normal", is_insecure=False),
)
HEALTHY = replace(HEALTHY, disks=(replace(HEALTHY.disks[0], journal_limit_bytes=10),))


def with_controller(place: int, **changes: Any) -> Facts:
    known = list(HEALTHY.controllers)
    known[place] = controller(known[place].name, **changes)
    return replace(HEALTHY, controllers=tuple(known))


def with_own(place: int, **own: Any) -> Facts:
    return with_controller(place, status=status_of(HEALTHY.controllers[place].name, **own))


def with_certificate(days: float) -> Facts:
    ends = HEALTHY.now_ms + int(days * DAY_MS)
    own = CertificateFacts(
        name="rollcall://demo/admin/admin", serial="ab", expires_at_ms=ends, expires_in_ms=ends - HEALTHY.now_ms
    )
    return replace(HEALTHY, own_certificates=(own,))


def refusing(broker_id: int) -> SetStatus:
    """Broker 2 is gone; one that asks as ``broker_id`` is refused."""
    status = set_status()
    gone = changed(status.replicas[1], is_alive=False)
    refused = RefusedBroker(
        broker_id=BrokerId(broker_id), host="10.0.0.9", code="NOT_THE_OWNER", reason="why", hint="the remedy"
    )
    return changed(status, replicas=(status.replicas[0], gone, status.replicas[2]), refused=(refused,))


REFUSED_CONTROLLER = RefusedController(name="c3", host="10.0.0.3", code="revoked", reason="why", hint="the remedy")
PORT = Port(node="c1", kind="raft", host="c1", number=9872, expected="rollcall://demo/controller/c1")

FAULTS: dict[str, tuple[Facts, Severity, str, str]] = {
    "two controllers are dead": (
        replace(
            HEALTHY, controllers=(controller("c1"), *(controller(n, status=None, trouble="x") for n in ("c2", "c3")))
        ),
        Severity.CRITICAL,
        "c2",
        "controller does not answer: x",
    ),
    "nobody leads": (with_own(0, has_authority=False), Severity.CRITICAL, "fleet", "no controller leads"),
    "a voter that nobody here knows": (
        with_own(0, voters=tuple(ControllerName(name) for name in ("c1", "c2", "c3", "c4"))),
        Severity.WARNING,
        "c4",
        "it votes, and was not asked; known here: c1, c2, c3",
    ),
    "a controller that was removed": (
        with_own(0, voters=(ControllerName("c1"), ControllerName("c2"))),
        Severity.WARNING,
        "c3",
        "no member by the leader's log",
    ),
    "states differ": (
        with_own(1, differing=(ControllerName("c1"),), state_digest="d" * 64),
        Severity.CRITICAL,
        "c2",
        "differs from that of c1",
    ),
    "a set without master": (
        replace(HEALTHY, sets=(set_status(master=None, condition=Condition.NO_ELIGIBLE_REPLICA, reason="1 gone"),)),
        Severity.CRITICAL,
        "demo/broker-a",
        "no master, no-eligible-replica: 1 gone",
    ),
    "below min_in_sync": (
        replace(HEALTHY, sets=(set_status(in_sync=(1,), problems=("BELOW_MIN_IN_SYNC",)),)),
        Severity.CRITICAL,
        "demo/broker-a",
        "refuses writes",
    ),
    "a broker that runs and is refused": (
        replace(HEALTHY, sets=(refusing(2),)),
        Severity.WARNING,
        "demo/broker-a broker 2",
        "gone; a process at 10.0.0.9 runs and is refused: why (NOT_THE_OWNER)",
    ),
    "a broker whose id was cleaned": (
        replace(HEALTHY, sets=(refusing(7),)),
        Severity.WARNING,
        "demo/broker-a broker 7",
        "a process at 10.0.0.9 asks under this id and is refused: why (NOT_THE_OWNER)",
    ),
    "a port of another authority": (
        replace(HEALTHY, ports=(Looked(port=PORT, state=PortState.WRONG_AUTHORITY, trouble="self-signed"),)),
        Severity.CRITICAL,
        "c1 raft c1:9872",
        "another authority: self-signed",
    ),
    "own certificate near its end": (with_certificate(3), Severity.WARNING, "certificate of", "expires in 3.0 days"),
    "own certificate expired": (with_certificate(-1), Severity.CRITICAL, "certificate of", "it expired at"),
    "own certificate revoked": (
        replace(with_certificate(50), revoked=frozenset({"ab"})),
        Severity.CRITICAL,
        "certificate of",
        "it is revoked",
    ),
    "files that are not taken": (
        with_own(2, certificate_complaint="c3.pem and c3.key do not belong together"),
        Severity.WARNING,
        "c3",
        "old certificate: c3.pem",
    ),
    "a program behind": (
        replace(
            with_own(0, feature_level=2),
            controllers=(
                *with_own(0, feature_level=2).controllers[:2],
                controller("c3", status=status_of("c3", feature_level=1)),
            ),
        ),
        Severity.WARNING,
        "c3",
        "feature level 1",
    ),
    "a level that could be raised": (
        replace(HEALTHY, controllers=tuple(controller(n, status=status_of(n, feature_level=2)) for n in ("c1", "c2"))),
        Severity.NOTE,
        "fleet",
        "feature level 1 is in force",
    ),
    "another founding": (
        with_own(2, fleet_incarnation=FleetIncarnation("e" * 32)),
        Severity.CRITICAL,
        "fleet.incarnation",
        f"c3: {'e' * 32}",
    ),
    "another timing": (
        replace(HEALTHY, file=FileFacts(path="rollcall.toml", fleet_name="demo", timing="fast", is_insecure=False)),
        Severity.WARNING,
        "fleet.timing",
        "c1: normal, c2: normal, c3: normal, rollcall.toml: fast",
    ),
    "a clock that is off": (
        with_controller(1, clock_off_ms=-61_000),
        Severity.WARNING,
        "c2",
        "-61,003 ms from the middle of all controllers', give or take 2 ms",
    ),
    "the clock here is off": (
        replace(HEALTHY, controllers=tuple(controller(n, clock_off_ms=9_000) for n in ("c1", "c2", "c3"))),
        Severity.NOTE,
        "this machine",
        "-9,000 ms",
    ),
    "a lead that changes": (
        with_own(0, lead_changes=23, late_ms=2_100),
        Severity.WARNING,
        "fleet",
        "late, c1 2.1 s: too",
    ),
    "a lead that changes in a bad network": (with_own(1, lead_changes=6), Severity.WARNING, "fleet", "6 times within"),
    "a controller that was put back": (
        with_own(0, lost_entries=134),
        Severity.CRITICAL,
        "c1",
        "its log lacks 134 entries that brokers have seen",
    ),
    "a leader that lost most of the fleet at once": (
        with_own(0, missed=MissedMasters(sets=1, silent_ms=4_000, left_ms=None)),
        Severity.CRITICAL,
        "c1",
        "OWN_NETWORK: the masters of 1 of",
    ),
    "a controller that is refused": (
        with_own(0, refused=(REFUSED_CONTROLLER,)),
        Severity.WARNING,
        "c3",
        "it runs at 10.0.0.3, and c1 refuses it as a controller: why (revoked)",
    ),
    "nobody leads because controllers are refused": (
        with_own(0, refused=(REFUSED_CONTROLLER,), has_authority=False),
        Severity.CRITICAL,
        "fleet",
        "no controller leads",
    ),
    "a clock that stepped": (with_own(0, clock_step_ms=5_000), Severity.NOTE, "c1", "+5,000 ms"),
    "a disk nearly full": (
        replace(HEALTHY, disks=(replace(HEALTHY.disks[0], free_bytes=2 * 10**9),)),
        Severity.WARNING,
        "c1 disk",
        "2.0 G free of 100.0 G (2 %)",
    ),
    "a full disk": (
        replace(HEALTHY, disks=(replace(HEALTHY.disks[0], free_bytes=0),)),
        Severity.CRITICAL,
        "c1 disk",
        "0 B",
    ),
    "a journal over its limit": (
        replace(HEALTHY, disks=(replace(HEALTHY.disks[0], journal_bytes=11),)),
        Severity.WARNING,
        "c1 journal",
        "11 B of events",
    ),
    "a journal that stays behind": (
        with_controller(2, newest=EventRef(term=7, index=4100, ordinal=0)),
        Severity.WARNING,
        "c3 journal",
        "ends at index 4,100 on disk, and the controller has applied 4,207",
    ),
    "a journal with a hole": (with_controller(2, journal_trouble="hole"), Severity.WARNING, "c3 journal", "hole"),
}


def test_a_healthy_fleet_has_no_finding() -> None:
    """A page of false alarms is read once."""
    assert diagnose(HEALTHY) == ()


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_named_with_both_values_and_a_remedy(fault: str) -> None:
    """One of them with the expected severity, subject and words."""
    facts, severity, subject, words = FAULTS[fault]
    found = [one for one in diagnose(facts) if one.subject.startswith(subject) and words in one.found]

    assert [one.severity for one in found] == [severity], diagnose(facts)
    assert all(one.expected and one.remedy for one in diagnose(facts))


def test_no_leader_had_controllers_started_that_run_and_are_refused() -> None:
    remedies = {
        name: next(one.remedy for one in diagnose(FAULTS[name][0]) if one.subject == "fleet")
        for name in ("nobody leads", "nobody leads because controllers are refused")
    }
    assert [one.partition(";")[0] for one in remedies.values()] == [
        "start the controllers that are down",
        "mend why controllers are refused, as told here",
    ]
    silent = (*with_own(0, refused=(REFUSED_CONTROLLER,)).controllers[:2], controller("c3", status=None, trouble="TLS"))
    told = [one.remedy for one in diagnose(replace(HEALTHY, controllers=silent)) if one.subject == "c3"]
    assert told == ["the remedy", "the remedy"], "silent, and refused"


def test_the_clock_of_one_of_two_is_compared_with_this_machine() -> None:
    """Two clocks have no middle, and one of them is not believed against the other."""
    facts = replace(HEALTHY, controllers=(controller("c1"), controller("c2", clock_off_ms=40_000)))

    assert [(one.subject, one.found[:26]) for one in diagnose(facts)] == [("c2", "its clock is +40,000 ms fr")]


def test_a_slow_answer_is_no_wrong_clock() -> None:
    """An answer that took 4 s tells the clock to 2 s."""
    assert diagnose(with_controller(1, clock_off_ms=1_900, clock_doubt_ms=2_000)) == ()


def test_the_worst_comes_first() -> None:
    """The page may be cut by whoever pastes it."""
    facts = replace(FAULTS["a disk nearly full"][0], sets=FAULTS["a set without master"][0].sets)

    assert [one.severity for one in diagnose(facts)] == [Severity.CRITICAL, Severity.WARNING]


# --- ports -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def listening(certificate: Path | None, host: str = "127.0.0.1") -> Iterator[int]:
    """A port that shows ``certificate``; None: it says something else to everybody."""
    ended = threading.Event()
    server = socket.create_server((host, 0))
    server.settimeout(0.05)
    answers = None
    if certificate is not None:
        answers = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        answers.load_cert_chain(certificate, certificate.with_suffix(".key"))

    def serve() -> None:
        while not ended.is_set():
            with contextlib.suppress(OSError):
                link, _ = server.accept()
                with link:
                    link.settimeout(5)
                    if answers is None:
                        link.sendall(b"220 mail.example.org ESMTP\r\n")
                    else:
                        answers.wrap_socket(link, server_side=True).close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield int(server.getsockname()[1])
    finally:
        ended.set()
        thread.join(30)
        server.close()


def unused_port(host: str = "127.0.0.1") -> int:
    # Not one that the kernel gave and took back: the next test that asks for any port gets it.
    return free_ports(1, host)[0]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> FleetCertificates:
    return FleetCertificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> FleetCertificates:
    return FleetCertificates(tmp_path_factory.mktemp("other"))


def looked(port: int, identity: Identity, *, is_tls: bool = True) -> Looked:
    wanted = Port(node="c1", kind="raft", host="127.0.0.1", number=port, is_tls=is_tls)
    return look_at([wanted], identity)[0]


def test_a_port_is_whose_certificate_it_shows(certificates: FleetCertificates, strangers: FleetCertificates) -> None:
    """Good, expired, and of another authority: the name is read from all three, and believed of the first."""
    identity = Identity(authority=certificates.authority_file)
    good = certificates.issue(PeerKind.CONTROLLER, "c1")
    expired = certificates.issue(PeerKind.CONTROLLER, "c-old", days=-0.001)
    other = strangers.issue(PeerKind.CONTROLLER, "c1")
    found = []
    for file in (good, expired, other):
        with listening(file) as port:
            found.append(looked(port, identity))

    assert [(one.state, one.name) for one in found] == [
        (PortState.OPEN, "rollcall://demo/controller/c1"),
        (PortState.EXPIRED, "rollcall://demo/controller/c-old"),
        (PortState.WRONG_AUTHORITY, "rollcall://demo/controller/c1"),
    ]
    assert found[0].shown is not None
    assert found[0].shown.expires_at_ms > time.time() * 1000


def test_a_port_without_tls_is_somebody_elses(certificates: FleetCertificates) -> None:
    """A mail server there; of an insecure fleet nothing more than "it listens" can be told."""
    identity = Identity(authority=certificates.authority_file)
    with listening(None) as port:
        assert (looked(port, identity).state, looked(port, identity, is_tls=False).state) == (
            PortState.NOT_OURS,
            PortState.OPEN,
        )
    refused = looked(unused_port(), identity)
    assert (refused.state, refused.trouble) == (PortState.REFUSED, "connection refused")


def test_a_port_that_hangs_does_not_hold_the_page(
    certificates: FleetCertificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes connections, and says nothing: its process is stopped."""
    monkeypatch.setattr(probing, "DIAL_S_MAX", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = looked(server.getsockname()[1], Identity(authority=certificates.authority_file))

    assert (found.state, "no TLS handshake ended" in found.trouble) == (PortState.NOT_OURS, True)


# --- the command -----------------------------------------------------------------------------------------------------

Usage = namedtuple("Usage", "total used free")
HOSTS = {"c1": "127.0.0.1", "c2": "127.0.0.2", "c3": "127.0.0.3"}


@dataclass
class Planted:
    """A fleet by its file, its ports and what its controllers answer."""

    directory: Path
    certificates: FleetCertificates
    ports: contextlib.ExitStack
    script: dict[tuple[str, str, str], object] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def node(self, kind: PeerKind, name: str, **files: Path | int | None) -> None:
        """A node whose ports show its certificate, or what ``files`` says of them; an int is a port that is there."""
        host = HOSTS.get(name, "127.0.0.1")
        own = self.certificates.issue(kind, name, set_key="demo/broker-a" if kind is PeerKind.BROKER else "")
        keys = ("raft", "broker", "rest") if kind is PeerKind.CONTROLLER else ("listen", "ha", "health")
        section = "controllers" if kind is PeerKind.CONTROLLER else "brokers"
        self.lines += [f"[{section}.{name}]", f'data = "data/{name}"']
        self.lines += ['set = "broker-a"'] if kind is PeerKind.BROKER else []
        for key in keys:
            shown = files.get(key, own)
            port = shown if isinstance(shown, int) else self.ports.enter_context(listening(shown, host))
            self.lines.append(f'{key} = "{host}:{port}"')
        (self.directory / "data" / name).mkdir(parents=True)

    def answers(self, name: str, status: object, last: EventRef = END) -> None:
        page = EventPage(freshness=freshness(name), events=(), next_from=None, last=last)
        for path, value in (
            ("/v1/status", status),
            ("/v1/events", page),
            ("/v1/certificates", CertificatesAnswer(freshness=freshness(name), revoked=())),
        ):
            self.script[HOSTS[name], "GET", path] = value

    def address(self, name: str) -> str:
        place = self.lines.index(f"[controllers.{name}]")
        return next(line for line in self.lines[place:] if line.startswith("rest")).split('"')[1]

    def write(self) -> Path:
        head = [
            "version = 1",
            "[fleet]",
            'name = "demo"',
            f'incarnation = "{"f" * 32}"',
            "[tls]",
            f'authority = "{self.certificates.authority_file}"',
            f'directory = "{self.certificates.directory}"',
        ]
        file = self.directory / "rollcall.toml"
        file.write_text("\n".join([*head, *self.lines]) + "\n")
        return file


def told(name: str, *, clock_off_ms: int = 0, **own: Any) -> Callable[[httpx.Request], httpx.Response]:
    """With a certificate, by whose end the clock of the controller is told, at the moment of the answer."""
    ends = int(time.time() * 1000) + 60 * DAY_MS

    def tell(_: httpx.Request) -> httpx.Response:
        left_ms = ends - int(time.time() * 1000) - clock_off_ms
        uri = f"rollcall://demo/controller/{name}"
        certificate = CertificateStatus(name=uri, serial=f"c0ffee{name}", expires_at_ms=ends, expires_in_ms=left_ms)
        return answer(status_of(name, certificates=(certificate,), **own))

    return tell


@pytest.fixture
def planted(tmp_path: Path, certificates: FleetCertificates) -> Iterator[Planted]:
    with contextlib.ExitStack() as ports:
        yield Planted(directory=tmp_path, certificates=certificates, ports=ports)


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def doctor(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run it on what is planted."""
    monkeypatch.setenv(context.TOKEN_VARIABLE, TOKEN)
    admin = planted.certificates.issue(PeerKind.ADMIN, "admin")

    def run(form: str = "table") -> tuple[int, str]:
        file = planted.write()
        transport = FakeControllers(planted.script).transport()
        identity = Identity(authority=planted.certificates.authority_file, certificate=admin)
        addresses = [planted.address(name) for name in HOSTS]
        ticks = iter(range(100_000))

        def make() -> Client:
            return Client(
                addresses,
                identity=identity,
                token=TOKEN,
                transport=transport,
                clock=lambda: float(next(ticks)),
                pause=lambda _: None,
            )

        monkeypatch.setattr(context, "make_client", make)
        done = CliRunner().invoke(app, ["--config", str(file), "doctor", "-o", form])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.stdout

    return run


def test_a_healthy_fleet_is_ok(planted: Planted, doctor: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 0, every port dialled, nothing found and nothing skipped."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(100 * 10**9, 50 * 10**9, 50 * 10**9))
    for name in HOSTS:
        planted.node(PeerKind.CONTROLLER, name)
        planted.answers(name, told(name, sets=(set_status(),)))
    planted.node(PeerKind.BROKER, "broker-a-1")
    code, out = doctor()

    assert out.startswith("OK  nothing found; 12 ports, ")
    assert (code, "SKIPPED" in out) == (0, False)


@pytest.mark.slow
def test_each_of_ten_planted_faults_is_named(
    planted: Planted, doctor: Run, strangers: FleetCertificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once, on one page; in each format, and without a secret in any."""
    certificates = planted.certificates
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(100 * 10**9, 97 * 10**9, 3 * 10**9))
    old = certificates.issue(PeerKind.BROKER, "broker-a-8", set_key="demo/broker-a", days=-0.001)
    ending = certificates.issue(PeerKind.BROKER, "broker-a-9", set_key="demo/broker-a", days=2)
    dead = set_status(in_sync=(1,), problems=("BELOW_MIN_IN_SYNC",))
    gone = changed(dead.replicas[1], is_alive=False)
    sets = (changed(dead, replicas=(dead.replicas[0], gone, dead.replicas[2])),)

    planted.node(PeerKind.CONTROLLER, "c1")
    planted.node(PeerKind.CONTROLLER, "c2", **{key: unused_port("127.0.0.2") for key in ("raft", "broker", "rest")})
    planted.node(PeerKind.CONTROLLER, "c3")
    planted.node(
        PeerKind.BROKER, "broker-a-1", ha=strangers.issue(PeerKind.BROKER, "x", set_key="demo/x"), health=ending
    )
    planted.node(PeerKind.BROKER, "broker-a-2", listen=unused_port(), ha=unused_port(), health=unused_port())
    planted.node(PeerKind.BROKER, "broker-a-3", listen=None, ha=old)
    planted.answers("c1", told("c1", sets=sets, feature_level=3, fleet_level=1))
    planted.answers("c3", told("c3", sets=sets, clock_off_ms=300_000, is_insecure=True, feature_level=2))
    code, out = doctor("json")
    page = json.loads(out)
    found = [Finding(**one) for one in page["findings"]]

    def named(subject: str, words: str) -> bool:
        return any(one.subject.startswith(subject) and words in one.found for one in found)

    assert code == 6
    faults = {
        "dead controller": named("c2", "controller does not answer"),
        "dead broker": named("demo/broker-a broker 2", "gone") and named("broker-a-2 listen", "nobody listens"),
        "wrong authority": named("broker-a-1 ha", "another authority"),
        "near expiry": named("certificate of rollcall://demo/broker/broker-a/broker-a-9", "expires in 2.0 days"),
        "expired": named("broker-a-3 ha", "has expired") and named("certificate of", "it expired at"),
        "clock off": named("c3", "its clock is +300,0") or named("c3", "its clock is +299,9"),
        "disk nearly full": named("c1 disk", "3.0 G free of 100.0 G (3 %)"),
        "level behind": named("c3", "feature level 2"),
        "port taken": named("broker-a-3 listen", "something else has it"),
        "below min_in_sync": named("demo/broker-a", "refuses writes"),
        "insecure": named("fleet", "insecure: ports are plain and believe whoever connects (c3)"),
    }
    assert [fault for fault, is_named in faults.items() if not is_named] == []
    for form in ("table", "yaml", "tsv"):
        text = doctor(form)[1]
        assert "broker-a-3 listen" in text or form == "yaml"
        out += text
    assert yaml.safe_load(doctor("yaml")[1])["findings"]
    keys = [line for file in certificates.directory.glob("*.key") for line in file.read_text().splitlines()[1:-1]]
    assert [secret for secret in (TOKEN, "PRIVATE KEY", *keys) if secret in out] == []


def test_a_fleet_that_is_down_still_has_a_page(planted: Planted, doctor: Run) -> None:
    """Every controller dead: it says so, and what could not be looked at."""
    for name, host in HOSTS.items():
        planted.node(PeerKind.CONTROLLER, name, **{key: unused_port(host) for key in ("raft", "broker", "rest")})
    code, out = doctor()

    assert (code, out.startswith("CRITICAL  ")) == (6, True)
    assert "no controller leads with authority; 0 of 3 answer" in out
    assert "SKIPPED  broker sets: nobody tells of them" in out
