"""``rollcall init``: what is there afterwards, and what is refused."""

from __future__ import annotations

import re
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import Result

from rollcall_ha.api.rocketmq.access.judging import accounts_of, rules_of
from rollcall_ha.cli import founding
from rollcall_ha.cli.main import app
from rollcall_ha.cli.options import Founding
from rollcall_ha.node.certified import CertifiedName, PeerKind
from rollcall_ha.node.config import load_fleet_file
from rollcall_ha.node.files import atomic_replace
from rollcall_ha.node.tls import Credentials, TlsFiles, TlsFilesError
from tests.docs.transcripts import assert_shown
from tests.support.cli import CliRunner


def init(directory: Path, *more: str, controllers: int = 3, brokers: int = 3) -> Result:
    arguments = ["init", "--directory", str(directory), "--name", "demo"]
    for number in range(1, controllers + 1):
        arguments += ["--controller", f"c{number}=h{number}:1,h{number}:2,h{number}:3"]
    for number in range(1, brokers + 1):
        arguments += ["--broker", f"broker-a-{number}=h{number}:4,h{number}:5,h{number}:6"]
    return CliRunner().invoke(app, [*arguments, *more])


def test_fleet_file_reads_back_as_it_was_described(tmp_path: Path) -> None:
    """Every option arrives in the document that servers load."""
    done = init(tmp_path, "--timing", "fast", "--segment-bytes", "1048576", "--min-in-sync", "2", "--flush", "sync")
    fleet = load_fleet_file(tmp_path / "rollcall.toml")

    assert done.exit_code == 0, done.output
    assert (fleet.fleet.name, fleet.fleet.timing, len(fleet.fleet.incarnation)) == ("demo", "fast", 32)
    assert list(fleet.controllers) == ["c1", "c2", "c3"]
    broker = fleet.brokers["broker-a-2"]
    assert (broker.set, broker.listen, broker.ha, broker.health) == ("broker-a", "h2:4", "h2:5", "h2:6")
    assert (broker.expected_replicas, broker.min_in_sync, broker.flush, broker.segment_bytes) == (3, 2, "sync", 1 << 20)


@pytest.mark.parametrize(("count", "is_founded"), [(1, True), (2, False), (4, False), (5, True), (7, True), (9, False)])
def test_a_fleet_has_an_odd_number_of_controllers_up_to_seven(tmp_path: Path, count: int, is_founded: bool) -> None:
    """Four survive no more than three, and each order waits for one more disk."""
    done = init(tmp_path, controllers=count)
    assert (done.exit_code == 0) is is_founded
    assert is_founded or f"{count} controllers; 1 (no redundancy), 3, 5 or 7 are supported" in done.stderr


def test_names_are_served_only_where_the_fleet_file_says_so(tmp_path: Path) -> None:
    """A fleet may keep its own name servers."""
    for folder, options, expected in (("without", (), False), ("with", ("--name-service",), True)):
        assert init(tmp_path / folder, *options).exit_code == 0
        assert load_fleet_file(tmp_path / folder / "rollcall.toml").fleet.name_service is expected


def test_second_init_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    """Founding again would forget what was promised: exit code 1, every byte as before."""
    init(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    again = init(tmp_path)

    assert again.exit_code == 1
    assert "founded already" in again.stderr
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_controllers_trust_each_other_and_nobody_else(tmp_path: Path) -> None:
    """A certificate of one fleet passes in that fleet under its own name, and not in another."""
    for fleet in ("one", "two"):
        assert init(tmp_path / fleet).exit_code == 0

    assert _handshake(tmp_path / "one" / "tls", tmp_path / "one" / "tls") == "rollcall://demo/controller/c2"
    with pytest.raises(ssl.SSLError):
        _handshake(tmp_path / "one" / "tls", tmp_path / "two" / "tls")


def _handshake(server_tls: Path, client_tls: Path) -> str:
    """TLS in memory between c1 and c2; returns the name that the client proved."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    own = _credentials(server_tls, "c1")
    server = own.server_context().wrap_bio(to_server, to_client, server_side=True)
    client = _credentials(client_tls, "c2").client_context().wrap_bio(to_client, to_server)
    pending = [client, server]
    for _ in range(6):
        for side in list(pending):
            try:
                side.do_handshake()
                pending.remove(side)
            except ssl.SSLWantReadError:
                continue
    assert not pending
    return str(own.judge(server.getpeercert()).name)


def _credentials(tls: Path, name: str) -> Credentials:
    files = TlsFiles(authority=tls / "ca.pem", certificate=tls / f"{name}.pem", key=tls / f"{name}.key")
    return Credentials(files, fleet="demo", name=CertifiedName(fleet="demo", kind=PeerKind.CONTROLLER, name=name))


def test_private_keys_are_for_their_owner_only(tmp_path: Path) -> None:
    """No key is readable by anybody else."""
    init(tmp_path)

    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "tls").glob("*.key")} == {0o600}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--timing", "quick"), "quick"),
        (("--ack-mode", "most"), "most"),
        (("--segment-bytes", "100"), "100"),
        (("--segment-bytes", "1073741825"), "'1073741825' and takes a whole number from 65536 to 1073741824"),
        (("--min-in-sync", "4"), "--min-in-sync 4 is more than the 3 replicas of broker-a; say 1 to 3"),
        (("--controller", "c9"), "4 controllers"),
        (("--broker", "broker=h9:1,h9:2,h9:3"), "SET-NUMBER"),
        (("--broker", "broker-a-9=h1:1,h9:2,h9:3"), "h1:1"),
        (("--broker", "broker-a-9=h9:1,h9:2"), "host:port,host:port,host:port"),
        (("--broker", "broker-a-9=h9:1,h9:2,h9:70000"), "70000"),
        (("--broker", "broker-a-1=h9:1,h9:2,h9:3"), "same name"),
        (("--name", "a b"), "a b"),
    ],
)
def test_wrong_description_names_the_value_and_founds_nothing(
    tmp_path: Path, more: tuple[str, ...], words: str
) -> None:
    """Exit code 2 before anything is written."""
    done = init(tmp_path, *more)

    assert done.exit_code == 2
    assert words in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_fleet_file_begins_with_its_comments_and_has_no_defaults() -> None:
    """What an operator reads first; a table that is empty, and a value that is a default, are not written."""
    fleet = founding.describe(Founding(name="lab", controllers=["c1=h:1,h:2,h:3"]))

    text = founding.render_fleet_file(fleet)

    assert text.startswith("# One file for every process of the fleet")
    assert "timing" not in text
    assert "[brokers]" not in text
    assert '[controllers.c1]\nraft = "h:1"\n' in text


@pytest.mark.parametrize("place", ["file/fleet", "/proc/fleet"])
def test_a_place_that_cannot_be_made_was_a_traceback(tmp_path: Path, place: str) -> None:
    """One line with place, reason and remedy."""
    (tmp_path / "file").write_text("")
    done = init(tmp_path / place)

    assert done.exit_code == 2
    assert done.stderr.startswith("rollcall: the fleet cannot be founded in ")
    assert done.stderr.rstrip().endswith("choose a --directory that can be made and written")


def test_tls_files_that_cannot_prove_a_name_are_named(tmp_path: Path) -> None:
    """A missing one was a traceback; those of another controller, or fleet, were refused in the logs of peers only."""
    assert init(tmp_path / "a").exit_code == init(tmp_path / "b").exit_code == 0
    folder, elsewhere = tmp_path / "a" / "tls", tmp_path / "b" / "tls"
    files = TlsFiles(authority=folder / "ca.pem", certificate=folder / "c1.pem", key=folder / "c1.key")
    assert _credentials(folder, "c1").own.name.name == "c1"
    wrong = {
        "names rollcall://demo/controller/c1; expected is rollcall://demo/controller/c2": (files, "c2"),
        "is not taken by those who trust": (replace(files, authority=elsewhere / "ca.pem"), "c1"),
        "belong together: .*(?i:key).*mismatch": (replace(files, key=folder / "c2.key"), "c1"),
        "belong together": (replace(files, certificate=tmp_path / "a" / "rollcall.toml"), "c1"),
        "none.key cannot be read: No such file": (replace(files, key=folder / "none.key"), "c1"),
    }
    for message, (given, name) in wrong.items():
        with pytest.raises(TlsFilesError, match=message):
            Credentials(given, fleet="demo", name=CertifiedName(fleet="demo", kind=PeerKind.CONTROLLER, name=name))


@pytest.mark.slow
def test_a_controller_without_its_tls_files_ends_with_a_line_and_64(tmp_path: Path) -> None:
    """It was a traceback, and exit code 1, which supervisors restart for ever."""
    assert init(tmp_path).exit_code == 0
    path = tmp_path / "rollcall.toml"
    path.write_text(re.sub(r"h\d:", "127.0.0.1:", path.read_text()))
    (tmp_path / "tls" / "c1.key").unlink()
    command = [sys.executable, "-m", "rollcall_ha.api.server", "--config", str(path), "--name", "c1"]

    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)

    assert done.returncode == 64
    assert "Traceback" not in done.stderr
    assert "c1.key cannot be read: No such file or directory; rollcall init made these files" in done.stderr


# --- machines ----------------------------------------------------------------------------------------------------------


def lay_out(
    directory: Path, *more: str, machines: tuple[str, ...] = ("m1=10.0.0.1", "m2=::2", "m3=m3.example")
) -> Result:
    arguments = ["init", "--directory", str(directory), "--name", "demo"]
    for machine in machines:
        arguments += ["--machine", machine]
    return CliRunner().invoke(app, [*arguments, *more])


def inside(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_bundle_has_its_machines_own_keys_and_no_other(tmp_path: Path) -> None:
    """Who takes one machine has one controller and one broker, not the fleet."""
    assert lay_out(tmp_path, "--brokers", "broker-a=3").exit_code == 0

    assert inside(tmp_path / "machines" / "m2") == {
        *("rollcall.toml", "data/c2/FOUNDING"),
        *("tls/ca.pem", "tls/c2.pem", "tls/c2.key", "tls/broker-a-2.pem", "tls/broker-a-2.key"),
    }
    assert inside(tmp_path / "operator") == {"rollcall.toml", "tls/ca.pem", "tls/admin.pem", "tls/admin.key"}
    assert inside(tmp_path / "client") == {"rollcall.toml", "tls/ca.pem", "tls/client.pem", "tls/client.key"}
    assert {path.parent.name for path in tmp_path.rglob("ca.key")} == {"authority"}
    assert {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*.key")} == {0o600}
    texts = {path.read_text() for path in tmp_path.rglob("rollcall.toml")}
    assert len(texts) == 1
    fleet = load_fleet_file(tmp_path / "machines" / "m1" / "rollcall.toml")
    assert (tmp_path / "machines" / "m1" / "data" / "c1" / "FOUNDING").read_text().strip() == fleet.fleet.incarnation


def test_nodes_are_spread_and_addresses_may_be_names_and_of_ipv6(tmp_path: Path) -> None:
    """First replicas on different machines, the same ports on each, the next ones for its second broker."""
    assert lay_out(tmp_path, "--brokers", "a=2", "--brokers", "b=2", "--bind-any").exit_code == 0
    fleet = load_fleet_file(tmp_path / "rollcall.toml")

    assert {name: one.raft for name, one in fleet.controllers.items()} == {
        "c1": "10.0.0.1:9300",
        "c2": "[::2]:9300",
        "c3": "m3.example:9300",
    }
    assert {name: one.listen for name, one in fleet.brokers.items()} == {
        "a-1": "10.0.0.1:10911",
        "a-2": "[::2]:10911",
        "b-1": "[::2]:10921",
        "b-2": "m3.example:10911",
    }
    assert (fleet.brokers["b-1"].ha, fleet.brokers["b-1"].health) == ("[::2]:10922", "[::2]:9401")
    assert (fleet.controllers["c2"].bind.rest, fleet.brokers["a-1"].bind.ha) == ("[::]:9200", "0.0.0.0:10912")


def test_machines_to_spare_have_the_brokers_to_themselves(tmp_path: Path) -> None:
    """Six machines and one set of three: each node has one of its own."""
    six = tuple(f"m{number}=10.0.0.{number}" for number in range(1, 7))
    assert lay_out(tmp_path, "--brokers", "a=3", machines=six).exit_code == 0
    fleet = load_fleet_file(tmp_path / "rollcall.toml")
    assert [one.raft for one in fleet.controllers.values()] == [f"10.0.0.{number}:9300" for number in (1, 2, 3)]
    assert [one.listen for one in fleet.brokers.values()] == [f"10.0.0.{number}:10911" for number in (4, 5, 6)]


def test_two_machines_have_one_controller(tmp_path: Path) -> None:
    """Two would need both: one of them more to fail, and none that may."""
    assert lay_out(tmp_path, "--brokers", "a=2", machines=("m1=h1", "m2=h2")).exit_code == 0
    assert list(load_fleet_file(tmp_path / "rollcall.toml").controllers) == ["c1"]


def test_the_page_shows_what_init_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/machines.md: the command, and every line behind it."""
    machines = "--machine m1=10.0.0.1 --machine m2=10.0.0.2 --machine m3=m3.example.org"
    command = f"init --directory fleet --name prod {machines} --brokers broker-a=3"
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, command.split())

    assert_shown(f"$ rollcall {command}\n{done.stdout}")


def test_a_passphrase_encrypts_the_authoritys_key_and_its_lack_is_told(tmp_path: Path) -> None:
    """From a file; a warning on standard error where there is none."""
    atomic_replace(tmp_path / "secret", b"wintergreen\n")
    encrypted = lay_out(tmp_path / "a", "--brokers", "a=1", "--passphrase-file", str(tmp_path / "secret"))
    plain = lay_out(tmp_path / "b", "--brokers", "a=1")

    assert ("WARNING" in encrypted.stderr, "ca.key is not encrypted" in plain.stderr) == (False, True)
    assert b"ENCRYPTED" in (tmp_path / "a" / "authority" / "ca.key").read_bytes()
    atomic_replace(tmp_path / "empty", b"\n")
    refused = lay_out(tmp_path / "c", "--passphrase-file", str(tmp_path / "empty"))
    assert (refused.exit_code, "is empty" in refused.stderr, (tmp_path / "c").exists()) == (2, True, False)


def test_a_fleet_is_insecure_by_its_own_word_only(tmp_path: Path) -> None:
    """As an option, and in the file that every process reads."""
    assert lay_out(tmp_path / "a", "--brokers", "a=3", "--insecure").exit_code == 0
    assert lay_out(tmp_path / "b", "--brokers", "a=3").exit_code == 0
    found = [load_fleet_file(tmp_path / name / "rollcall.toml").fleet.insecure for name in ("a", "b")]
    assert found == [True, False]


def test_rocketmq_is_let_in_by_its_own_word_only(tmp_path: Path) -> None:
    """By networks, by keys, or by both; the keys are new, on each machine with a controller, and nobody else's."""
    assert lay_out(tmp_path / "a", "--brokers", "a=3").exit_code == 0
    assert load_fleet_file(tmp_path / "a" / "rollcall.toml").rocketmq is None
    options = ("--rocketmq", "10.0.0.0/8", "--rocketmq", "fd00::/8", "--rocketmq-keys", "--rocketmq-tls", "enforcing")
    machines = ("m1=h1", "m2=h2", "m3=h3", "m4=h4")
    assert lay_out(tmp_path / "b", "--brokers", "a=4", *options, machines=machines).exit_code == 0
    documents = [load_fleet_file(tmp_path / "b" / "machines" / name / "rollcall.toml") for name in ("m1", "m2", "m3")]
    rules = [rules_of(document, accounts_of(document)) for document in documents]
    assert rules[0] == rules[1] == rules[2]
    assert (rules[0].takes_plain, len(rules[0].networks or ())) == (False, 2)
    assert set(rules[0].accounts or ()) == {"brokers", "clients", "mqadmin"}
    assert {path.parent.name for path in (tmp_path / "b").rglob("rocketmq-keys.toml")} == {"m1", "m2", "m3", "operator"}


@pytest.mark.parametrize(
    ("machines", "more", "words"),
    [
        (("m1=10.0.0.1:80",), (), "'m1=10.0.0.1:80' is not NAME=HOST"),
        (("m1",), (), "'m1' is not NAME=HOST"),
        (("../m=h",), (), "'../m=h' is not NAME=HOST"),
        (("m1=0.0.0.0",), (), "others are told 0.0.0.0 and cannot reach it"),
        (("m1=h1", "m1=h2"), (), "two machines have the same name"),
        (("m1=h1", "m2=h1", "m3=h3"), (), "c2 and c1 both have the address h1:9300"),
        (("m1=h1", "m2=h2"), (), "nothing would run on m2"),
        (("m1=h1",), ("--brokers", "a"), "'a' is not SET=REPLICAS"),
        (("m1=h1",), ("--brokers", "a=0"), "'a=0' is not SET=REPLICAS"),
        (("m1=h1",), ("--controller", "c1=h:1,h:2,h:3"), "--machine lays out every node"),
        (("m1=h1",), ("--rocketmq", "everybody"), "rocketmq.addresses has 'everybody'"),
        (("m1=h1",), ("--rocketmq-tls", "on", "--rocketmq-keys"), "--rocketmq-tls 'on' is not one of"),
        (("m1=h1",), ("--rocketmq-tls", "enforcing"), "needs --rocketmq NETWORK, --rocketmq-keys, or both"),
        (("m1=h1",), ("--rocketmq-tls", "enforcing", "--rocketmq-keys", "--insecure"), "plain ports only"),
        ((), ("--brokers", "a=1", "--controller", "c1=h:1,h:2,h:3"), "needs --machine"),
    ],
)
def test_a_wrong_layout_names_the_value_and_founds_nothing(
    tmp_path: Path, machines: tuple[str, ...], more: tuple[str, ...], words: str
) -> None:
    """Exit code 2 before anything is written."""
    done = lay_out(tmp_path, *more, machines=machines)

    assert (done.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert words in done.stderr


@pytest.mark.parametrize(("typed", "least", "code"), [("1\n", 1, 0), ("\n", 2, 0), ("4\n", None, 2)])
def test_a_person_is_asked_how_many_must_be_in_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, least: int | None, code: int
) -> None:
    """A script is not, nor who has said it, nor where there is no choice."""
    monkeypatch.setattr(founding, "may_ask", lambda: True)
    machines = "--machine m1=h1 --machine m2=h2 --machine m3=h3"

    def found(place: str, options: str) -> Result:
        command = f"init --directory {tmp_path / place} {machines} {options}"
        return CliRunner().invoke(app, command.split(), input=typed)

    asked = found("asked", "--brokers a=3")
    assert asked.exit_code == code
    assert "How many of 3 replicas" in asked.stderr
    if least is not None:
        fleet = load_fleet_file(tmp_path / "asked" / "rollcall.toml")
        assert {one.min_in_sync for one in fleet.brokers.values()} == {least}
        assert "How many" not in found("said", "--brokers a=3 --min-in-sync 2").stderr
        assert "How many" not in found("pair", "--brokers a=2").stderr
    else:
        assert "say 1 to 3" in asked.stderr
        assert not (tmp_path / "asked").exists()


def test_the_question_says_what_either_answer_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five, three on disk and stops when three are gone, or the last one alone (adr/0032)."""
    asked: list[str] = []

    def prompt(text: str, *, default: int, **_how: object) -> int:
        asked.append(text)
        return default

    monkeypatch.setattr(founding, "may_ask", lambda: True)
    monkeypatch.setattr("typer.prompt", prompt)
    assert init(tmp_path / "fleet", brokers=5).exit_code == 0
    assert len(asked) == 1
    assert "of 5 replicas" in asked[0]
    assert "3 keep it on as many disks, and writes stop when 3 replicas are gone" in asked[0]
    assert "what that acknowledges alone is gone with its disk" in asked[0]
