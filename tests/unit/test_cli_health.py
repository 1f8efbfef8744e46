"""``rollcall health``: the answer of the node itself, or none."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from rollcall_ha.broker.health import HealthServer, HealthSnapshot
from rollcall_ha.cli.main import app
from rollcall_ha.controller.contract.session import BrokerState
from rollcall_ha.node.certified import PeerKind
from rollcall_ha.node.telemetry import Telemetry
from rollcall_ha.node.tls import Credentials
from tests.support.cli import CliRunner
from tests.support.raft_certs import FLEET, make_certificates, more_credentials, named

SNAPSHOT = HealthSnapshot(state=BrokerState.SLAVE, is_ready=True, reason="follows broker 1", values=())
NODE = named(PeerKind.BROKER, "broker-a-1", set_key=f"{FLEET}/broker-a")
NEIGHBOUR = named(PeerKind.BROKER, "broker-a-2", set_key=f"{FLEET}/broker-a")


@contextmanager
def serving(credentials: Credentials | None, snapshot: HealthSnapshot = SNAPSHOT) -> Iterator[int]:
    """The port of a broker's health address on a loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = HealthServer(Telemetry(), lambda: snapshot, credentials=credentials)
    try:
        asyncio.run_coroutine_threadsafe(server.start("127.0.0.1", 0), loop).result(10)
        yield server.port
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


def fleet_file(directory: Path, port: int, *, insecure: bool = False) -> Path:
    """Of one controller and the broker that is asked; ``bind`` says every address, as in a container."""
    tls = "" if insecure else '[tls]\nauthority = "tls/authority.pem"\ndirectory = "tls"\n'
    file = directory / "rollcall.toml"
    file.write_text(
        f"""version = 1
[fleet]
name = "{FLEET}"
incarnation = "{"0" * 32}"
insecure = {str(insecure).lower()}
{tls}
[brokers.broker-a-1]
set = "broker-a"
listen = "broker-a-1:10911"
ha = "broker-a-1:10912"
health = "broker-a-1:{port}"
data = "data/broker-a-1"
[brokers.broker-a-1.bind]
health = "0.0.0.0:{port}"
"""
    )
    return file


@pytest.fixture
def secured(tmp_path: Path) -> Credentials:
    """Of the broker, in the files that the fleet file names."""
    make_certificates(tmp_path / "tls", ["c1"])
    credentials = more_credentials(tmp_path / "tls", NODE)
    for suffix in (".pem", ".key"):
        shutil.copy(credentials.files.certificate.with_suffix(suffix), tmp_path / "tls" / f"broker-a-1{suffix}")
    return credentials


def ask(file: Path, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["health", "--config", str(file), *arguments])
    return result.exit_code, result.output


def test_a_node_is_asked_by_tls_where_it_is_bound(tmp_path: Path, secured: Credentials) -> None:
    with serving(secured) as port:
        file = fleet_file(tmp_path, port)
        assert ask(file, "broker-a-1") == (0, "broker-a-1 200: alive\n")
        assert ask(file, "broker-a-1", "--ready") == (0, "broker-a-1 200: slave: follows broker 1\n")


def test_the_name_of_the_machine_is_the_name_of_the_node(
    tmp_path: Path, secured: Credentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image's HEALTHCHECK has no argument."""
    with serving(secured) as port:
        file = fleet_file(tmp_path, port)
        monkeypatch.setattr("socket.gethostname", lambda: "broker-a-1")
        assert ask(file)[0] == 0
        monkeypatch.setattr("socket.gethostname", lambda: "laptop")
        code, told = ask(file)
    assert code == 2
    assert "no node 'laptop' in the fleet file, which has: broker-a-1" in told


def test_a_node_that_is_not_ready_lives(tmp_path: Path, secured: Credentials) -> None:
    with serving(secured, replace(SNAPSHOT, is_ready=False, reason="reading the log")) as port:
        file = fleet_file(tmp_path, port)
        assert ask(file, "broker-a-1")[0] == 0
        code, told = ask(file, "broker-a-1", "--ready")
    assert code == 1
    assert "503: slave: reading the log" in told


def test_another_process_of_the_fleet_on_the_port_does_not_pass_for_the_node(
    tmp_path: Path, secured: Credentials
) -> None:
    assert secured.name == NODE
    with serving(more_credentials(tmp_path / "tls", NEIGHBOUR)) as port:
        code, told = ask(fleet_file(tmp_path, port), "broker-a-1")
    assert code == 4
    assert "broker-a-2; expected is rollcall://test/broker/broker-a/broker-a-1" in told


def test_a_plain_port_does_not_pass_for_a_secured_one(
    tmp_path: Path, secured: Credentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollcall_ha.cli.health.ANSWER_S_MAX", 0.1)
    assert secured.name == NODE
    with serving(None) as port:
        assert ask(fleet_file(tmp_path, port), "broker-a-1")[0] == 4


def test_a_node_of_an_insecure_fleet_is_asked_plainly(tmp_path: Path) -> None:
    with serving(None) as port:
        assert ask(fleet_file(tmp_path, port, insecure=True), "broker-a-1")[0] == 0
    assert ask(fleet_file(tmp_path, port, insecure=True), "broker-a-1")[0] == 4
