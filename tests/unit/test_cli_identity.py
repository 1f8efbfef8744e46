"""Who asks, by the command line: a real controller behind TLS, and a command that is right, wrong, or nobody's."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollcall_ha.cli.main import app
from rollcall_ha.cli.output import CommandExit
from rollcall_ha.client import client as client_module
from rollcall_ha.client.client import Client
from rollcall_ha.client.identity import Identity
from rollcall_ha.node.certified import PeerKind
from tests.support.cli import CliRunner, Ran, Run
from tests.support.fleet_certs import FleetCertificates
from tests.support.rest_server import RestThread

NOT_PERMITTED = int(CommandExit.NOT_PERMITTED)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestThread]:
    with RestThread(tmp_path_factory.mktemp("rest")) as found:
        yield found


@pytest.fixture
def rollcall(server: RestThread, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run a command in an empty folder; ``variables`` are its environment."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("ROLLCALL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(client_module, "LIMIT_MS", 1_000)

    def run(*arguments: str, variables: dict[str, str] | None = None) -> Ran:
        done = CliRunner().invoke(app, ["--controllers", server.address, *arguments], env=variables)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return Ran(code=done.exit_code, out=done.stdout, err=done.stderr)

    return run


def _as(identity: Identity) -> dict[str, str]:
    return {"ROLLCALL_AUTHORITY": str(identity.authority), "ROLLCALL_IDENTITY": str(identity.certificate or "")}


def test_a_certificate_by_the_environment_or_an_option_asks_and_orders(server: RestThread, rollcall: Run) -> None:
    """What its role allows; more is a refusal with both roles and an exit code of its own."""
    viewer, operator = server.identity(PeerKind.VIEWER), server.identity(PeerKind.OPERATOR)
    assert rollcall("sets", variables=_as(viewer)).code == 0
    by_option = rollcall("--authority", str(viewer.authority), "--identity", str(viewer.certificate), "sets")
    assert by_option.code == 0
    refused = rollcall("elect", "demo/broker-a", variables=_as(viewer))
    assert (refused.code, "needs role operator or admin; viewer has role viewer" in refused.err) == (
        NOT_PERMITTED,
        True,
    )
    ordered = rollcall("elect", "demo/broker-a", variables=_as(operator))
    assert ordered.code in (0, 1), "judged by its content"
    beyond = rollcall("clean", "demo/broker-a", "--yes", variables=_as(operator))
    assert (beyond.code, "needs role admin" in beyond.err) == (NOT_PERMITTED, True)


@pytest.mark.slow
def test_whoever_is_not_taken_is_told_why_and_what_helps(
    server: RestThread, rollcall: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line each, exit code 7; asking again for five seconds would not help."""
    # A second round would fail here, where its pause is computed.
    monkeypatch.setattr(client_module, "ROUND_PAUSE_MS", None)
    authority = server.certificates.authority_file
    other = FleetCertificates(tmp_path / "other")
    stranger = other.issue(PeerKind.ADMIN, "mallory")
    late = server.certificates.issue(PeerKind.ADMIN, "late", days=-1)
    cases = {
        "neither a client certificate nor a bearer token": {"ROLLCALL_AUTHORITY": str(authority)},
        "another authority signed the controller's certificate; is this": {
            "ROLLCALL_AUTHORITY": str(other.authority_file)
        },
        "does not know the authority of our certificate": _as(Identity(authority=authority, certificate=stranger)),
        "our certificate has expired": _as(Identity(authority=authority, certificate=late)),
        "this token is unknown here": {"ROLLCALL_AUTHORITY": str(authority), "ROLLCALL_TOKEN": "guess"},
    }
    for told, variables in cases.items():
        ran = rollcall("sets", variables=variables)
        assert (told, ran.code, told in ran.err) == (told, NOT_PERMITTED, True), ran.err
    files = {
        "cannot be used: No such file": {"ROLLCALL_AUTHORITY": str(tmp_path / "none.pem")},
        "holds no token": {"ROLLCALL_AUTHORITY": str(authority), "ROLLCALL_TOKEN": "two words"},
    }
    for told, variables in files.items():
        ran = rollcall("sets", variables=variables)
        assert (told, ran.code, told in ran.err) == (told, int(CommandExit.WRONG_USE), True), ran.err
    for command in ("sets", "status", "controllers"):
        plain = rollcall(command)
        assert "speaks TLS only" in plain.err, command
        assert "--authority ca.pem --identity admin.pem" in plain.err, command


def test_a_token_is_issued_used_and_revoked(server: RestThread, rollcall: Run, tmp_path: Path) -> None:
    """Into a file of its owner alone, or printed once; a viewer's cannot issue; revoked, it is nobody's."""
    admin, file = _as(server.identity(PeerKind.ADMIN)), tmp_path / "robot.token"
    issued = rollcall("tokens", "issue", "--role", "viewer", "--name", "robot", "--out", str(file), variables=admin)
    assert issued.code == 0, issued.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    token = file.read_text().strip()
    assert len(token) >= 43
    assert token not in issued.out + issued.err
    again = rollcall("tokens", "issue", "--role", "viewer", "--out", str(file), variables=admin)
    assert (again.code, file.read_text().strip()) == (int(CommandExit.WRONG_USE), token)
    shown = rollcall("tokens", "issue", "--role", "broker", "--set", "demo/broker-a", "--show", variables=admin)
    # The controller of this process prints its own lines there, each of several words.
    assert (shown.code, len([line for line in shown.out.splitlines() if " " not in line])) == (0, 1), shown.out
    robot = {"ROLLCALL_AUTHORITY": admin["ROLLCALL_AUTHORITY"], "ROLLCALL_TOKEN_FILE": str(file)}
    assert rollcall("sets", variables=robot).code == 0
    beyond = tmp_path / "more.token"
    refused = rollcall("tokens", "issue", "--role", "admin", "--out", str(beyond), variables=robot)
    assert (refused.code, beyond.exists()) == (NOT_PERMITTED, False)
    listed = rollcall("tokens", "list", variables=admin).out
    (line,) = [line for line in listed.splitlines() if "robot" in line]
    assert "in force" in line
    token_id = line.split()[0]
    assert rollcall("tokens", "revoke", token_id, "--yes", variables=admin).code == 0
    assert rollcall("sets", variables=robot).code == NOT_PERMITTED


def test_each_address_of_a_name_is_tried_and_the_name_is_proved(
    server: RestThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind one name a dead controller's address comes first: the next one answers, under the name's certificate."""
    port = int(server.address.rpartition(":")[2])
    monkeypatch.setattr(client_module, "resolved", lambda _host, _port: ("127.0.0.9", "127.0.0.1"))
    identity = server.identity(PeerKind.VIEWER)
    with Client([f"localhost:{port}"], identity=identity) as asking:
        assert [key.view.set_key.name for key in asking.sets().sets] == ["broker-a"]
        reached = asking.survey()
    assert [one.status is not None for one in reached] == [False, True]
    with Client([f"rollcall.example:{port}"], identity=identity, limit_ms=100) as asking:
        troubles = [one.trouble for one in asking.survey()]
    assert "certificate is not for this name" in troubles[1]
