"""Links of the Raft group: what a peer that goes away while we write to it costs; renewed, revoked, expired certificates."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.contract.timing import PRESETS, Preset
from rollcall_ha.controller.replication.raft.internals import Member
from rollcall_ha.controller.replication.raft.messages import Message
from rollcall_ha.controller.replication.raft.transport import (
    RENEWAL_WAIT_SECONDS,
    WRITE_BYTES,
    LinkPoller,
    RaftLink,
    TlsTransport,
)
from rollcall_ha.deploy.local.processes import free_ports
from rollcall_ha.node.authority import Authority
from rollcall_ha.node.certified import CertifiedName, PeerKind
from rollcall_ha.node.config import split_address
from rollcall_ha.node.remoting.links import CloseCause
from rollcall_ha.node.tls import Credentials
from tests.support.raft_certs import FLEET, credentials_in, issue_more, make_certificates, named


class ResetAfterOne:
    """Written in Python, like ``ssl.SSLSocket``: the traceback of its error holds what it was given."""

    def __init__(self) -> None:
        self.sends = 0

    def send(self, data: memoryview) -> int:
        self.sends += 1
        if self.sends > 1:
            raise ConnectionResetError("the peer is gone")
        return len(data)


def test_a_peer_that_resets_in_the_middle_of_a_write_is_an_error_of_the_link() -> None:
    """It came out as a BufferError, which is no error of a link: it broke off the tick of the whole node."""
    link = RaftLink.__new__(RaftLink)
    link._out = bytearray(2 * WRITE_BYTES)
    link._socket = ResetAfterOne()  # type: ignore[assignment]
    with pytest.raises(ConnectionResetError):
        link._flush()


# --- certificates -----------------------------------------------------------------------------------------------------

DEADLINE_S = 20.0


class Clock:
    """Monotonic and wall time, which a test can move on."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ns(self) -> int:
        return time.monotonic_ns() + self.ahead_ms * 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms


class Watched(TlsTransport):
    """A member's links without a node: ups and downs of peers are counted."""

    def __init__(self, name: str, addresses: Mapping[str, str], credentials: Credentials, clock: Clock) -> None:
        members = [Member(ControllerName(each), number, addresses[each]) for number, each in enumerate(addresses)]
        super().__init__(
            next(member for member in members if member.name == name),
            [member for member in members if member.name != name],
            timing=PRESETS[Preset.NORMAL],
            tls=credentials,
            clock_ns=clock.now_ns,
            resolve=lambda host: host,
            stranger=lambda _name: None,
            wall_ms=clock.wall_ms,
        )
        self.changes: list[str] = []
        self.bind(LinkPoller())

    def peer_up(self, peer: Member) -> None:
        self.changes.append(f"+{peer.name}")

    def peer_down(self, peer: Member) -> None:
        self.changes.append(f"-{peer.name}")

    def deliver(self, peer: Member, message: Message) -> None:
        raise AssertionError(f"{peer} says {message}")


class Group:
    """Three members on loopback, turned by the test."""

    def __init__(self, directory: Path) -> None:
        self.clock = Clock()
        self.directory = directory
        self.files = make_certificates(directory, ("c1", "c2", "c3"))
        addresses = {name: f"127.0.0.1:{port}" for name, port in zip(self.files, free_ports(3), strict=True)}
        self.credentials = {name: credentials_in(directory, name) for name in self.files}
        self.members = {name: Watched(name, addresses, self.credentials[name], self.clock) for name in self.files}

    def turn(self) -> None:
        for member in self.members.values():
            member.attend()
            member.poller.poll(0.001)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        ends = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < ends, f"{what}; {[member.changes for member in self.members.values()]}"
            self.turn()

    def serials(self) -> set[str]:
        """Of all certificates that links show, at both ends."""
        links = [link for member in self.members.values() for link in member._links.values()]
        return {serial for link in links if link.proved for serial in (link.shown, link.proved.serial)}

    def is_whole(self) -> bool:
        return all(len(member._links) == 2 for member in self.members.values())

    def renew(self, name: str, *, days: float = 90) -> str:
        """Another certificate, taken by its process; its serial number."""
        authority = Authority.load(self.directory / "authority.pem", self.directory / "authority.key")
        own = CertifiedName(fleet=FLEET, kind=PeerKind.CONTROLLER, name=name)
        authority.issue(own, hosts=[name], days=days).write(self.files[name].certificate, self.files[name].key)
        assert self.credentials[name].renew_if_changed()
        return self.credentials[name].own.serial

    def move(self, ms: int) -> None:
        """Both clocks on, with all peers just heard: silence is judged by the same clock."""
        self.clock.ahead_ms += ms
        for member in self.members.values():
            for link in member._links.values():
                link.heard_ns = self.clock.now_ns()

    def close(self) -> None:
        for member in self.members.values():
            member.close()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    found = Group(tmp_path)
    found.until(found.is_whole, "links of all members")
    yield found
    found.close()


def test_links_move_over_to_renewed_certificates_one_after_the_other(group: Group) -> None:
    """Each is replaced once, by its dialling end, which is without a link for as long as it takes to read what is there."""
    renewed = {group.renew(name) for name in group.members}
    group.turn()
    group.move(int(RENEWAL_WAIT_SECONDS * 1000))
    gaps = 0

    def is_over() -> bool:
        nonlocal gaps
        gaps += not group.is_whole()
        return group.serials() == renewed

    group.until(is_over, "links with the renewed certificates")
    assert group.members["c3"].changes == ["+c1", "+c2", "-c1", "+c1", "-c2", "+c2"]
    assert gaps <= 3, "a link was closed before the new one was shaken hands on"


def test_a_peer_that_renewed_later_is_dialled_again_before_its_certificate_ends(group: Group) -> None:
    """c1 dials nobody: without a look at what it shows by now, its links would be closed when the old one expires."""
    later = group.renew("c1")
    assert later not in group.serials()
    group.turn()
    group.move(46 * 86_400_000)
    group.until(lambda: later in group.serials() and group.is_whole(), "links to what c1 shows now")


def test_a_revoked_controller_loses_its_links_and_gets_no_new_one(group: Group) -> None:
    """At both ends, at once; the two others keep theirs."""
    revoked = group.credentials["c2"].own.serial
    for credentials in group.credentials.values():
        credentials.revoke({revoked})
    group.until(lambda: not group.members["c2"]._links, "c2 to be without links")
    for _ in range(200):
        group.turn()
    assert group.members["c1"].closed_by_cause[CloseCause.REVOKED] >= 1
    assert [set(map(str, (peer.name for peer in member._links))) for member in group.members.values()] == [
        {"c3"},
        set(),
        {"c1"},
    ]


def test_why_a_controller_was_refused_stood_in_the_logs_alone(group: Group) -> None:
    """Of debugging. status said that there is no majority, doctor had it started again."""
    revoked = group.credentials["c2"].own.serial
    for credentials in group.credentials.values():
        credentials.revoke({revoked})
    c1, _, c3 = group.members.values()
    group.until(lambda: bool(c1.refused and c3.refused), "c2 to be refused")
    assert ("c2", "127.0.0.1", "revoked") in {(one.name, one.host, one.code) for one in c3.refused}, "it dials c2"
    assert ("", "127.0.0.1", "revoked") in {(one.name, one.host, one.code) for one in c1.refused}, "c2 dials it"
    assert c1.refused[0].reason == f"certificate {revoked} of rollcall://{FLEET}/controller/c2 is revoked"

    group.renew("c2")
    group.until(lambda: group.is_whole() and not (c1.refused or c3.refused), "c2 to be taken")


@pytest.mark.parametrize(
    ("kind", "days", "is_plain", "cause", "reason"),
    [
        (PeerKind.CONTROLLER, -1, False, CloseCause.TLS, "TLS: certificate has expired"),
        (PeerKind.ADMIN, 1, False, CloseCause.CERTIFICATE, "here come: controller"),
        (PeerKind.CONTROLLER, 1, True, CloseCause.TLS, None),
        (None, 1, False, CloseCause.TLS, None),
    ],
)
def test_strangers_at_the_raft_port_are_counted(
    group: Group, kind: PeerKind | None, days: float, is_plain: bool, cause: CloseCause, reason: str | None
) -> None:
    """
    An expired certificate, that of a person, bytes without TLS, and no certificate: an operator found nothing.

    Those that show a certificate are told, for a person to mend; a scan of ports is no controller that is refused.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if kind is not None:
        files = issue_more(group.directory, named(kind, "mallory"), days=days)
        context.load_cert_chain(files.certificate, files.key)
    c1 = group.members["c1"]
    before = c1.closed_by_cause[cause]
    with socket.create_connection(split_address(c1.me.address)) as raw:
        raw.setblocking(False)
        stranger = raw if is_plain else context.wrap_socket(raw, do_handshake_on_connect=False)

        def is_counted() -> bool:
            with suppress(OSError):
                stranger.send(b"GET / HTTP/1.1\r\n\r\n")
            return c1.closed_by_cause[cause] > before

        group.until(is_counted, "the stranger to be counted")
        stranger.close()
    told = [(one.name, one.host, one.code) for one in c1.refused]
    assert told == ([] if reason is None else [("", "127.0.0.1", cause)])
    assert reason is None or c1.refused[0].reason.endswith(reason)


def test_a_link_ends_when_its_peers_certificate_does(tmp_path: Path) -> None:
    """It was judged at the handshake only, and held for as long as nobody closed it."""
    group = Group(tmp_path)
    group.renew("c1", days=1)
    group.until(group.is_whole, "links of all members")
    group.move(86_400_000 + 1)
    group.turn()
    assert {peer.name for peer in group.members["c3"]._links} == {"c2"}
    group.close()
