"""The units of ``deploy/systemd``, by systemd's own programs, and what a server tells its supervisor."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rollcall_ha.cli.founding import init
from rollcall_ha.cli.main import app
from rollcall_ha.cli.options import Founding
from rollcall_ha.node.config import load_fleet_file
from rollcall_ha.node.process import ExitCode, tell_supervisor
from tests.support.cli import CliRunner

UNITS = sorted((Path(__file__).parents[2] / "deploy" / "systemd").glob("*.service"))
DRILL = UNITS[0].with_name("rollcall-drill@.service")
SERVERS = [unit for unit in UNITS if "@" in unit.name and unit != DRILL]
"""Of the fleet file; the hooks have settings and a folder of their own."""
EXPOSURE_MAX = 20
"""As ``systemd-analyze security`` takes it: 2.0 of 10, where 10 is a service without any limit."""
TELLING = """
import sys
from rollcall_ha.node.process import run, tell_supervisor
async def main(stop):
    tell_supervisor("READY=1")
    await stop.wait()
    return 0
sys.exit(run(main))
"""
JUDGES_FILES_SINCE = 250
"""The first systemd that judges a unit file which is not loaded."""


def systemd_version() -> int:
    """Of ``systemd-analyze``; 0 = there is none."""
    if shutil.which("systemd-analyze") is None:
        return 0
    told = subprocess.run(["systemd-analyze", "--version"], check=False, capture_output=True, text=True, timeout=30)
    found = re.match(r"systemd (\d+)", told.stdout)
    return int(found[1]) if found is not None else 0


needs_systemd = pytest.mark.skipif(
    systemd_version() < JUDGES_FILES_SINCE,
    reason=f"no systemd-analyze of {JUDGES_FILES_SINCE} or newer on the PATH: apt-get install systemd",
)


@needs_systemd
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_is_one_that_systemd_takes_and_gives_little_to_its_process(unit: Path, tmp_path: Path) -> None:
    """Unknown settings are warnings there, so nothing may be printed; the program is one that is here."""
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/rollcall/bin/rollcall", sys.executable))
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", copy], check=False, capture_output=True, text=True, timeout=30
    )
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")
    judged = subprocess.run(
        ["systemd-analyze", "security", "--no-pager", "--offline=yes", f"--threshold={EXPOSURE_MAX}", copy],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert judged.returncode == 0, judged.stdout[-300:]


@pytest.mark.parametrize("unit", [one for one in UNITS if one != DRILL], ids=lambda unit: unit.name)
def test_a_unit_starts_all_again_but_what_a_human_has_to_mend(unit: Path) -> None:
    """Started again, a directory that is damaged would be opened once a second."""
    found = re.search(r"^RestartPreventExitStatus=(.*)$", unit.read_text(), re.MULTILINE)
    assert found is not None
    assert {int(code) for code in found[1].split()} == {ExitCode.CONFIG, ExitCode.DIRECTORY}
    # R3 tells a restart of the process from one of the machine by this file.
    assert not re.search(r"^ProcSubset=", unit.read_text(), re.MULTILINE)


@pytest.mark.parametrize("unit", SERVERS, ids=lambda unit: unit.name)
def test_a_bundle_of_init_in_the_state_directory_is_all_that_a_unit_reads(unit: Path, tmp_path: Path) -> None:
    """Fleet file, keys and data are relative to it: nothing else is writable, and renewed files are seen at once."""
    found = dict(re.findall(r"(?m)^(\w+)=(.*)$", unit.read_text()))
    assert found["StateDirectory"] == "rollcall"
    assert found["WorkingDirectory"] == "/var/lib/rollcall"
    assert found["ExecStart"].endswith(" %i --config /var/lib/rollcall/rollcall.toml")
    assert "ReadWritePaths" not in found
    assert "ExecReload" not in found
    init(tmp_path, Founding(name="prod", machines=["m1=10.0.0.1"], sets=["broker-a=1"]))
    document = load_fleet_file(tmp_path / "machines" / "m1" / "rollcall.toml")
    assert document.tls is not None
    paths = [document.tls.authority, document.tls.directory, document.controllers["c1"].data]
    assert not any(Path(path).is_absolute() for path in paths)
    assert all(document.path(path).exists() for path in paths)
    assert document.path(document.tls.directory).stat().st_mode & 0o077 == 0


def test_there_is_a_unit_for_each_server() -> None:
    assert [unit.name for unit in SERVERS] == ["rollcall-broker@.service", "rollcall-controller@.service"]


def test_the_hooks_have_a_folder_of_their_own_and_come_behind_a_controller_of_the_same_machine() -> None:
    """They read no file of a broker or controller: what a command of theirs can be made to do, it does without keys."""
    (unit,) = [unit for unit in UNITS if unit not in SERVERS and unit != DRILL]
    found = dict(re.findall(r"(?m)^(\w+)=(.*)$", unit.read_text()))
    assert unit.name == "rollcall-hooks.service"
    assert found["StateDirectory"] == "rollcall-hooks"
    assert found["WorkingDirectory"] == "/var/lib/rollcall-hooks"
    assert found["ExecStart"].endswith(" hooks run --file /var/lib/rollcall-hooks/hooks.toml")
    assert "ReadWritePaths" not in found
    assert found["CPUSchedulingPolicy"] == "idle"


@needs_systemd
def test_the_timer_of_drills_is_one_that_systemd_takes_and_makes_up_for_none(tmp_path: Path) -> None:
    """Its service runs once, and is not started again: a drill that was refused would be tried until it is not."""
    timer = DRILL.with_suffix(".timer")
    for unit in (DRILL, timer):
        text = unit.read_text().replace("/opt/rollcall/bin/rollcall", sys.executable)
        (tmp_path / unit.name.replace("@", "@broker-a")).write_text(text)
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", tmp_path / "rollcall-drill@broker-a.timer"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")
    assert ("Persistent=false" in timer.read_text(), "Restart=" in DRILL.read_text()) == (True, False)
    command = re.search(r"(?m)^ExecStart=\S+ (drill .*)$", DRILL.read_text())
    assert command is not None
    ran = CliRunner().invoke(app, [*shlex.split(command[1].replace("%i", "broker-a")), "--help"])
    assert ran.exit_code == 0, ran.output


@pytest.mark.parametrize("is_abstract", [False, True])
def test_a_server_tells_its_supervisor_when_it_is_ready_and_when_it_stops(tmp_path: Path, is_abstract: bool) -> None:
    """As sd_notify(3) has it, over a path and over a name outside of the file system."""
    address = f"@rollcall-{tmp_path.name}" if is_abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.settimeout(10)
        supervisor.bind(address.replace("@", "\0") if is_abstract else address)
        process = subprocess.Popen([sys.executable, "-c", TELLING], env={**os.environ, "NOTIFY_SOCKET": address})
        try:
            assert supervisor.recv(100) == b"READY=1"
            process.send_signal(signal.SIGTERM)
            assert supervisor.recv(100) == b"STOPPING=1"
            assert process.wait(timeout=10) == 0
        finally:
            process.kill()
            process.wait()


def test_a_supervisor_that_is_gone_stops_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    tell_supervisor("READY=1")
    assert "READY=1 could not be sent" in capsys.readouterr().err
