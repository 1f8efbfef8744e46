"""``rollcall certs``: what is issued, where renewed pairs go, what is listed, what is refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from cryptography import x509
from typer.testing import Result

from rollcall_ha.cli import certs as certs_module
from rollcall_ha.cli import context
from rollcall_ha.cli.main import app
from rollcall_ha.client import client
from rollcall_ha.controller.contract.commands import RevokeCertificate
from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.contract.values import RevokedCertificate
from rollcall_ha.controller.contract.views import CertificatesAnswer, Freshness
from rollcall_ha.node.authority import Authority, read_certificate
from rollcall_ha.node.certified import CertifiedName, PeerKind, parse_certified_name
from rollcall_ha.node.files import atomic_replace
from rollcall_ha.node.tls import Credentials, TlsFiles
from tests.support.cli import CliRunner


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """A founded fleet of one controller and one broker."""
    arguments = ["init", "--directory", str(tmp_path), "--name", "demo", "--controller", "c1=h1:1,h1:2,h1:3"]
    assert CliRunner().invoke(app, [*arguments, "--broker", "broker-a-1=h2:1,h2:2,h2:3"]).exit_code == 0
    return tmp_path


def certs(fleet: Path, verb: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["certs", verb, "--config", str(fleet / "rollcall.toml"), *arguments])


def rows(done: Result) -> list[dict[str, Any]]:
    assert done.exit_code == 0, done.output
    found: list[dict[str, Any]] = json.loads(done.stdout)["items"]
    return found


def credentials(folder: Path, name: str, authority: Path | None = None) -> Credentials:
    files = TlsFiles(
        authority=authority or folder / "ca.pem", certificate=folder / f"{name}.pem", key=folder / f"{name}.key"
    )
    return Credentials(files, fleet="demo", name=None)


def test_what_is_issued_proves_a_person_by_role(fleet: Path, tmp_path: Path) -> None:
    """Two files, with the role in the certificate's name; the key for its owner only."""
    done = certs(
        fleet, "issue", "alice", "--kind", "operator", "--days", "7", "--into", str(tmp_path / "out"), "-o", "json"
    )

    (row,) = rows(done)
    assert (row["name"], row["kind"], round(row["daysLeft"])) == ("alice", "operator", 7)
    own = credentials(tmp_path / "out", "alice", fleet / "tls" / "ca.pem").own
    assert own.name == CertifiedName(fleet="demo", kind=PeerKind.OPERATOR, name="alice")
    assert (tmp_path / "out" / "alice.key").stat().st_mode & 0o777 == 0o600


def test_a_replaced_machine_gets_a_bundle_without_the_right_to_vote(fleet: Path, tmp_path: Path) -> None:
    """Fleet file, authority and its own pair; no mark of founding, which a controller that has voted must not find."""
    assert certs(fleet, "issue", "c1", "--into", str(tmp_path / "c1")).exit_code == 0

    found = {path.relative_to(tmp_path / "c1").as_posix() for path in (tmp_path / "c1").rglob("*") if path.is_file()}
    assert found == {"rollcall.toml", "tls/ca.pem", "tls/c1.pem", "tls/c1.key"}
    assert str(credentials(tmp_path / "c1" / "tls", "c1").own.name) == "rollcall://demo/controller/c1"


def test_renewal_in_place_makes_new_keys_of_the_same_names(fleet: Path) -> None:
    """Running processes take them; nobody's name, and not the authority, changes."""
    tls = fleet / "tls"
    before = {path.name: path.read_bytes() for path in tls.iterdir()}
    running = credentials(tls, "broker-a-1")
    old = running.own
    done = certs(fleet, "renew", "--all", "-o", "json")

    assert {row["name"] for row in rows(done)} == {"c1", "broker-a-1", "admin", "client"}
    after = {path.name: path.read_bytes() for path in tls.iterdir()}
    assert {name for name in after if after[name] == before[name]} == {"ca.pem"}
    assert running.renew_if_changed()
    assert running.own.name == old.name
    assert running.own.serial != old.serial


def test_a_leader_whose_clock_was_set_back_refused_a_fleet_that_was_renewed_as_a_whole(fleet: Path) -> None:
    """Certificates were backdated by five minutes."""
    certs(fleet, "renew", "--all")
    behind = datetime.now(UTC) - timedelta(hours=23)
    issued = {path.stem: x509.load_pem_x509_certificate(path.read_bytes()) for path in (fleet / "tls").glob("*.pem")}
    assert {name for name, one in issued.items() if one.not_valid_before_utc > behind} == set()
    assert len(issued) == 5


def test_one_name_is_renewed_into_a_folder(fleet: Path, tmp_path: Path) -> None:
    """The others, and the old pair, stay as they are."""
    before = {path.name: path.read_bytes() for path in (fleet / "tls").iterdir()}
    assert certs(fleet, "renew", "broker-a-1", "--into", str(tmp_path / "out")).exit_code == 0

    assert {path.name for path in (tmp_path / "out").iterdir()} == {"broker-a-1.pem", "broker-a-1.key"}
    assert {path.name: path.read_bytes() for path in (fleet / "tls").iterdir()} == before


@pytest.mark.slow
def test_the_list_has_what_was_handed_out_and_what_was_replaced(fleet: Path, tmp_path: Path) -> None:
    """Revocation needs a serial number: those of pairs that are elsewhere, or were overwritten, too."""
    certs(fleet, "issue", "bob", "--kind", "viewer", "--into", str(tmp_path / "out"))
    certs(fleet, "renew", "c1")
    listed = rows(certs(fleet, "list", "-o", "json"))

    assert sorted(row["name"] for row in listed) == ["admin", "bob", "broker-a-1", "c1", "c1", "client"]
    assert len({row["serial"] for row in listed}) == len(listed)
    assert sorted(len(row["files"]) for row in listed if row["name"] == "c1") == [0, 1]
    assert {parse_certified_name(row["uri"]).fleet for row in listed} == {"demo"}


def test_an_encrypted_key_is_opened_by_file_or_environment(
    fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never by an option's value; without it the message says what is missing."""
    place = fleet / "authority"
    authority = Authority.load(place / "ca.pem", place / "ca.key")
    authority.write(place / "ca.pem", place / "ca.key", passphrase=b"wintergreen")
    assert b"ENCRYPTED" in (place / "ca.key").read_bytes()

    without = certs(fleet, "renew", "c1")
    assert (without.exit_code, "it is encrypted: give its passphrase" in without.stderr) == (2, True)
    atomic_replace(tmp_path / "secret", b"wintergreen\n")
    assert certs(fleet, "renew", "c1", "--passphrase-file", str(tmp_path / "secret")).exit_code == 0
    monkeypatch.setenv("ROLLCALL_AUTHORITY_PASSPHRASE", "wintergreen")
    assert certs(fleet, "renew", "c1").exit_code == 0
    monkeypatch.setenv("ROLLCALL_AUTHORITY_PASSPHRASE", "evergreen")
    assert certs(fleet, "renew", "c1").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("issue", "nobody"), "nobody is no node of the fleet file (it has: c1, broker-a-1)"),
        (("issue", "c1", "--kind", "viewer"), "c1 is a node of the fleet file"),
        (("issue", "../alice", "--kind", "viewer"), "'../alice' is not"),
        (("issue", "alice", "--kind", "broker"), "leave --kind out"),
        (("issue", "alice", "--kind", "king"), "king"),
        (("renew",), "name certificates, or say --all"),
        (("renew", "--all", "c1"), "name certificates, or say --all"),
        (("renew", "c9"), "no certificate of c9 lies here with its key; there are: admin, broker-a-1, c1, client"),
        (
            ("renew", "c1", "--authority-directory", "/nowhere"),
            "name the folder with the authority's ca.pem and ca.key",
        ),
    ],
)
def test_a_wrong_order_names_the_value_and_writes_nothing(fleet: Path, arguments: tuple[str, ...], words: str) -> None:
    """Exit code 2."""
    before = {path: path.read_bytes() for path in fleet.rglob("*") if path.is_file()}
    done = certs(fleet, arguments[0], *arguments[1:])

    assert done.exit_code == 2
    assert words in done.stderr
    assert {path: path.read_bytes() for path in fleet.rglob("*") if path.is_file()} == before


def test_nothing_is_signed_by_an_authority_that_its_place_does_not_trust(fleet: Path, tmp_path: Path) -> None:
    """Every peer of the renewed process would refuse it."""
    other = Authority.create("demo")
    other.write(tmp_path / "ca.pem", tmp_path / "ca.key")
    done = certs(fleet, "renew", "c1", "--authority-directory", str(tmp_path))

    assert done.exit_code == 2
    assert "tls/ca.pem does not trust the authority in" in done.stderr
    assert str(credentials(fleet / "tls", "c1").own.name) == "rollcall://demo/controller/c1"


# --- revoke ------------------------------------------------------------------------------------------------------------


class Leader:
    """Takes the orders of a client."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.orders: list[tuple[str, str, str]] = []
        monkeypatch.setattr(context, "make_client", lambda: self)
        monkeypatch.setattr(context.OPTIONS, "config", None)

    def order(self, asked: RevokeCertificate) -> None:
        assert asked.expires_at_ms > 0
        self.orders.append((asked.serial, asked.name, asked.reason))

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def leader(monkeypatch: pytest.MonkeyPatch) -> Leader:
    return Leader(monkeypatch)


@pytest.mark.slow
def test_a_name_is_revoked_with_every_certificate_that_still_opens_a_link(fleet: Path, leader: Leader) -> None:
    """The one that was replaced yesterday is as good as today's."""
    certs(fleet, "renew", "c1")
    serials = {row["serial"] for row in rows(certs(fleet, "list", "-o", "json")) if row["name"] == "c1"}
    done = certs(fleet, "revoke", "c1", "--yes", "--reason", "stolen", "-o", "json")

    assert all(row["isRevoked"] for row in rows(done))
    assert len(serials) == 2
    assert set(leader.orders) == {(serial, "rollcall://demo/controller/c1", "stolen") for serial in serials}


def test_one_certificate_is_revoked_by_its_serial_number_or_its_file(fleet: Path, leader: Leader) -> None:
    """The register need not know it: one of an own authority, of which nothing but the number is left."""
    uri = "rollcall://demo/broker/broker-a/broker-a-1"
    serial = read_certificate(fleet / "tls" / "broker-a-1.pem").serial
    for whose in (serial, str(fleet / "tls" / "broker-a-1.pem"), "0DEADBEEF0"):
        assert certs(fleet, "revoke", whose, "--yes").exit_code == 0

    assert leader.orders == [(serial, uri, ""), (serial, uri, ""), ("deadbeef0", "", "")]


def test_a_name_of_two_certificates_of_different_kinds_is_not_guessed(fleet: Path, leader: Leader) -> None:
    """The wrong one of two could be the operator's own."""
    for kind in ("viewer", "operator"):
        certs(fleet, "issue", "alice", "--kind", kind, "--into", str(fleet / kind))
    ambiguous = certs(fleet, "revoke", "alice", "--yes")
    unknown = certs(fleet, "revoke", "mallory", "--yes")
    unasked = certs(fleet, "revoke", "c1")
    named = certs(fleet, "revoke", "rollcall://demo/viewer/alice", "--yes")

    assert (ambiguous.exit_code, unknown.exit_code, unasked.exit_code, named.exit_code) == (2, 2, 2, 0)
    assert "give one of: rollcall://demo/operator/alice, rollcall://demo/viewer/alice" in ambiguous.stderr
    assert "there are: admin, alice, broker-a-1, c1, client" in unknown.stderr
    assert "needs --yes" in unasked.stderr
    assert [name for _, name, _ in leader.orders] == ["rollcall://demo/viewer/alice"]


def test_the_list_says_what_is_revoked_or_that_nobody_said_it(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that had no decoder for the answer ended in a traceback."""
    serial = read_certificate(fleet / "tls" / "c1.pem").serial
    fresh = Freshness(read_from=ControllerName("c1"), term=1, index=1, age_ms=0, is_authoritative=True, is_stale=False)
    one = RevokedCertificate(serial=serial, name="", expires_at_ms=1, reason="", revoked_at_ms=1, revoked_by="admin")
    answer = msgspec.json.encode(CertificatesAnswer(freshness=fresh, revoked=(one,)))
    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=answer))
    monkeypatch.setattr(context.OPTIONS, "config", None)
    monkeypatch.setattr(client, "Client", partial(client.Client, transport=transport))
    listed = {row["name"]: row["isRevoked"] for row in rows(certs(fleet, "list", "-o", "json"))}
    assert listed == {"c1": True, "broker-a-1": False, "admin": False, "client": False}

    refusing = httpx.MockTransport(lambda request: httpx.Response(502))
    monkeypatch.setattr(certs_module, "ASKING_MS_MAX", 10)
    monkeypatch.setattr(client, "Client", partial(client.Client, transport=refusing))
    without = certs(fleet, "list")
    assert without.exit_code == 0
    assert "What is revoked is not known" in without.stdout
