"""The certificate of a process: what it starts with, what it takes while it runs, what other tools may make."""

from __future__ import annotations

import re
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from rollcall_ha.node.authority import Authority
from rollcall_ha.node.certified import CertifiedName, PeerKind
from rollcall_ha.node.config import BrokerSection, ConfigError, FleetFile, FleetSection, load_fleet_file
from rollcall_ha.node.credentials import broker_name, controller_name, credentials_of, of_ports
from rollcall_ha.node.files import atomic_replace
from rollcall_ha.node.tls import Credentials, TlsFiles, TlsFilesError
from tests.support.fleet_certs import FleetCertificates

PAGE = Path(__file__).parents[2] / "docs/certificates.md"
C1 = CertifiedName(fleet="demo", kind=PeerKind.CONTROLLER, name="c1")


def credentials(folder: Path, name: CertifiedName = C1, *, authority: str = "ca.pem") -> Credentials:
    files = TlsFiles(authority=folder / authority, certificate=folder / "c1.pem", key=folder / "c1.key")
    return Credentials(files, fleet="demo", name=name)


def put(folder: Path, authority: Authority, name: CertifiedName = C1, *, days: float = 90) -> str:
    """A pair for ``name`` in c1's place; its serial number."""
    issued = authority.issue(name, days=days)
    issued.write(folder / "c1.pem", folder / "c1.key")
    return issued.serial


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority.create("demo")
    made.write(tmp_path / "ca.pem", tmp_path / "ca.key")
    return made


# --- at the start ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "days", "words"),
    [
        (C1, -1, "certificate has expired"),
        (CertifiedName(fleet="other", kind=PeerKind.CONTROLLER, name="c1"), 90, "this fleet is demo"),
        (CertifiedName(fleet="demo", kind=PeerKind.ADMIN, name="c1"), 90, "expected is rollcall://demo/controller/c1"),
        (CertifiedName(fleet="demo", kind=PeerKind.CONTROLLER, name="c2"), 90, "names rollcall://demo/controller/c2"),
    ],
)
def test_a_process_does_not_start_with_what_its_peers_would_refuse(
    tmp_path: Path, authority: Authority, name: CertifiedName, days: float, words: str
) -> None:
    """Each was a process that ran, and whose links all failed, in the logs of others."""
    put(tmp_path, authority, name, days=days)
    with pytest.raises(TlsFilesError, match=words):
        credentials(tmp_path)


def test_a_clock_that_is_hours_behind_takes_a_certificate_of_this_minute(authority: Authority) -> None:
    """A leader whose clock was set back refused every certificate younger than that, and led on."""
    issued = x509.load_pem_x509_certificate(authority.issue(C1).certificate)
    behind = datetime.now(UTC) - timedelta(hours=23)
    assert issued.not_valid_before_utc < behind


def test_a_foreign_authority_with_the_right_names_is_refused(tmp_path: Path, authority: Authority) -> None:
    """Names are anybody's to write; the signature is not."""
    put(tmp_path, Authority.create("demo"))
    with pytest.raises(TlsFilesError, match="is not taken by those who trust"):
        credentials(tmp_path)
    assert put(tmp_path, authority) == credentials(tmp_path).own.serial


def test_an_insecure_fleet_keeps_the_certificates_of_its_raft_links_and_no_other(tmp_path: Path) -> None:
    """Without [tls] and without that word nothing starts."""

    def document(*, insecure: bool, tls: bool) -> FleetFile:
        text = f'version = 1\n[fleet]\nname = "demo"\nincarnation = "{"0" * 32}"\ninsecure = {str(insecure).lower()}\n'
        (tmp_path / "rollcall.toml").write_text(text + '[tls]\nauthority = "ca.pem"\ndirectory = "."\n' * tls)
        return load_fleet_file(tmp_path / "rollcall.toml")

    FleetCertificates(tmp_path).credentials()
    with pytest.raises(ConfigError, match=r"does not say fleet\.insecure = true"):
        credentials_of(document(insecure=False, tls=False), C1)
    assert credentials_of(document(insecure=True, tls=False), C1) is None
    found = credentials_of(document(insecure=True, tls=True), C1)
    assert found is not None
    assert of_ports(document(insecure=True, tls=True), found) is None
    assert of_ports(document(insecure=False, tls=True), found) is found


def test_a_missing_pair_is_told_with_the_files_and_where_they_come_from(tmp_path: Path) -> None:
    """A machine that got another one's bundle."""
    text = f'version = 1\n[fleet]\nname = "demo"\nincarnation = "{"0" * 32}"\n[tls]\nauthority = "ca.pem"\ndirectory = "."\n'
    (tmp_path / "rollcall.toml").write_text(text)
    document = load_fleet_file(tmp_path / "rollcall.toml")
    with pytest.raises(
        ConfigError, match=r"rollcall certs renew makes new ones: copy ca.pem, c1.pem, c1.key from there"
    ):
        credentials_of(document, controller_name(document, "c1"))


# --- while it runs -----------------------------------------------------------------------------------------------------


def test_half_of_a_renewed_pair_changes_nothing_until_it_is_whole(tmp_path: Path, authority: Authority) -> None:
    """A copy takes the key first; a process that looked then would have no certificate at all."""
    old = put(tmp_path, authority)
    running = credentials(tmp_path)
    told: list[str] = []
    running.listeners.append(lambda: told.append(running.own.serial))
    issued = authority.issue(C1)
    atomic_replace(tmp_path / "c1.key", issued.key)
    assert not running.renew_if_changed()
    assert (running.own.serial, "belong together" in running.complaint, told) == (old, True, [])
    (tmp_path / "c1.pem").write_bytes(issued.certificate)
    assert running.renew_if_changed()
    assert (running.own.serial, running.complaint, told) == (issued.serial, "", [issued.serial])
    assert not running.renew_if_changed(), "nothing has changed since"


@pytest.mark.parametrize("case", ["wrong name", "expired", "foreign", "gone"])
def test_a_bad_renewal_keeps_the_old_certificate_and_says_why(tmp_path: Path, authority: Authority, case: str) -> None:
    """The old one goes on to work: links that are opened meanwhile show it."""
    old = put(tmp_path, authority)
    running = credentials(tmp_path)
    if case == "wrong name":
        put(tmp_path, authority, CertifiedName(fleet="demo", kind=PeerKind.CONTROLLER, name="c2"))
    elif case == "expired":
        put(tmp_path, authority, days=-1)
    elif case == "foreign":
        put(tmp_path, Authority.create("demo"))
    else:
        (tmp_path / "c1.pem").unlink()
    assert not running.renew_if_changed()
    assert running.own.serial == old
    assert running.complaint
    peer = running.client_context()
    assert peer.get_ca_certs()
    new = put(tmp_path, authority)
    assert running.renew_if_changed()
    assert running.own.serial == new


def test_listeners_hear_of_a_revocation_once(tmp_path: Path, authority: Authority) -> None:
    """Each word of the controllers repeats the whole list."""
    put(tmp_path, authority)
    running = credentials(tmp_path)
    told: list[int] = []
    running.listeners.append(lambda: told.append(len(running.revoked)))
    for serials in ({"a"}, {"a"}, {"a", "b"}, {"b"}, {"b"}):
        running.revoke(serials)
    assert told == [1, 2, 1]


def test_an_authority_takes_over_from_another_without_a_gap(tmp_path: Path, authority: Authority) -> None:
    """docs/certificates.md: both in ca.pem, then renewal, then the new one alone."""
    put(tmp_path, authority)
    running = credentials(tmp_path)
    following = Authority.create("demo")
    (tmp_path / "ca.pem").write_bytes(authority.certificate + following.certificate)
    assert running.renew_if_changed()
    new = put(tmp_path, following)
    assert running.renew_if_changed()
    (tmp_path / "ca.pem").write_bytes(following.certificate)
    assert running.renew_if_changed()
    assert (running.own.serial, running.complaint) == (new, "")


# --- bring your own ----------------------------------------------------------------------------------------------------


def test_certificates_that_openssl_made_as_the_page_says_are_taken(tmp_path: Path, authority: Authority) -> None:
    """docs/certificates.md, its commands as they are printed."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on the PATH: apt-get install openssl")
    block = re.search(r"```\n(openssl req (?:.*\n)*?)```", PAGE.read_text())
    assert block is not None
    subprocess.run(["sh", "-e", "-c", block[1]], cwd=tmp_path, check=True, capture_output=True, timeout=30)
    prod = CertifiedName(fleet="prod", kind=PeerKind.CONTROLLER, name="c1")
    files = TlsFiles(authority=tmp_path / "ca.pem", certificate=tmp_path / "c1.pem", key=tmp_path / "c1.key")

    own = Credentials(files, fleet="prod", name=prod).own
    assert own.name == prod
    assert 89 < own.expires_in_days(int(datetime.now(UTC).timestamp() * 1000)) <= 90


def _signed(
    name: str, key: rsa.RSAPrivateKey, issuer: tuple[str, rsa.RSAPrivateKey], extensions: list[x509.ExtensionType]
) -> bytes:
    def subject(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject(name)).issuer_name(subject(issuer[0]))
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=9))
    for extension in extensions:
        builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
    return builder.sign(issuer[1], hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize(
    ("uris", "words"),
    [
        (["rollcall://demo/broker/broker-a/c1"], None),
        ([], "has 0 URI names; it must have one"),
        (["rollcall://demo/broker/broker-a/c1", "spiffe://demo/c1"], "has 2 URI names"),
        (["spiffe://demo/c1"], "is not rollcall://"),
        (["rollcall://demo/broker/broker-b/c1"], "expected is rollcall://demo/broker/broker-a/c1"),
    ],
)
def test_an_own_authority_signs_through_an_intermediate_one(tmp_path: Path, uris: list[str], words: str | None) -> None:
    """RSA keys, three levels, as an enterprise has them: the name decides, not who made it."""
    keys = [rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(3)]
    is_authority = x509.BasicConstraints(ca=True, path_length=None)
    names = x509.SubjectAlternativeName([x509.DNSName("c1"), *(x509.UniformResourceIdentifier(uri) for uri in uris)])
    (tmp_path / "ca.pem").write_bytes(_signed("root", keys[0], ("root", keys[0]), [is_authority]))
    chain = _signed("middle", keys[1], ("root", keys[0]), [is_authority])
    (tmp_path / "c1.pem").write_bytes(_signed("c1", keys[2], ("middle", keys[1]), [names]) + chain)
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
    atomic_replace(tmp_path / "c1.key", keys[2].private_bytes(encoding, form, serialization.NoEncryption()))
    expected = CertifiedName(fleet="demo", kind=PeerKind.BROKER, name="c1", set_key="demo/broker-a")

    if words is None:
        assert credentials(tmp_path, expected).own.name == expected
        return
    with pytest.raises(TlsFilesError, match=words):
        credentials(tmp_path, expected)


def test_names_of_brokers_have_the_set_and_a_foreign_cluster() -> None:
    """Rule 1 of ``node.certified``."""
    section = BrokerSection(set="b", listen="h:1", ha="h:2", health="h:3", data="d", cluster="other")
    document = FleetFile(version=1, fleet=FleetSection(name="demo", incarnation="0" * 32), brokers={"b-1": section})
    assert str(broker_name(document, "b-1", section)) == "rollcall://demo/broker/other%2Fb/b-1"
