"""``rollcall init``: what is there afterwards, and what is refused."""

from __future__ import annotations

import re
import ssl
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rollcall_ha.api.cli import founding
from rollcall_ha.api.cli.main import app
from rollcall_ha.node.config import load_fleet_file
from rollcall_ha.node.tls import TlsFiles, TlsFilesError, check_mutual, mutual_context


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

    assert _handshake(tmp_path / "one" / "tls", tmp_path / "one" / "tls") == "c2"
    with pytest.raises(ssl.SSLError):
        _handshake(tmp_path / "one" / "tls", tmp_path / "two" / "tls")


def _handshake(server_tls: Path, client_tls: Path) -> str:
    """TLS in memory between c1 and c2; returns the name that the client proved."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = _context(server_tls, "c1", is_server=True).wrap_bio(to_server, to_client, server_side=True)
    client = _context(client_tls, "c2", is_server=False).wrap_bio(to_client, to_server)
    pending = [client, server]
    for _ in range(6):
        for side in list(pending):
            try:
                side.do_handshake()
                pending.remove(side)
            except ssl.SSLWantReadError:
                continue
    assert not pending
    certificate = server.getpeercert()
    assert certificate is not None
    names = certificate["subjectAltName"]
    return str(names[0][1])


def _context(tls: Path, name: str, *, is_server: bool) -> ssl.SSLContext:
    files = TlsFiles(authority=tls / "ca.pem", certificate=tls / f"{name}.pem", key=tls / f"{name}.key")
    return mutual_context(files, is_server=is_server)


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
    fleet = founding.describe(founding.Founding(name="lab", controllers=["c1=h:1,h:2,h:3"]))

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
    check_mutual(files, "c1")
    wrong = {
        "c1.pem is the certificate of c1, not of c2": (files, "c2"),
        "was not signed by": (replace(files, authority=elsewhere / "ca.pem"), "c1"),
        "belong together: .*(?i:key).*mismatch": (replace(files, key=folder / "c2.key"), "c1"),
        "belong together": (replace(files, certificate=tmp_path / "a" / "rollcall.toml"), "c1"),
        "none.key cannot be read: No such file": (replace(files, key=folder / "none.key"), "c1"),
    }
    for message, (given, name) in wrong.items():
        with pytest.raises(TlsFilesError, match=message):
            check_mutual(given, name)


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
