"""The data directory of a controller: whose it is, and that a start which is refused leaves it as it was."""

from __future__ import annotations

import asyncio
import errno
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rollcall_ha.api import server
from rollcall_ha.cli.main import app
from rollcall_ha.controller.contract.ids import FleetIncarnation
from rollcall_ha.controller.replication.raft.member import FOUNDING_FILE_NAME
from rollcall_ha.controller.runtime.directories import (
    OWNER_FILE_NAME,
    RAFT_DIRECTORY,
    Owner,
    own,
    refuse_other_owner,
)
from rollcall_ha.controller.runtime.event_journal import EventJournal
from rollcall_ha.controller.runtime.settings import settings_from
from rollcall_ha.deploy.local.processes import free_ports, our_environment, python_module, wait_until
from rollcall_ha.hooks import __main__ as hooks
from rollcall_ha.node.config import load_fleet_file
from rollcall_ha.node.files import DataDirectory, DirectoryError
from rollcall_ha.node.process import ExitCode
from tests.support.hook_files import webhook, write_hooks, write_secret

INCARNATION = FleetIncarnation("0" * 32)
OURS = Owner(fleet="shop", incarnation=INCARNATION, controller="c1")


def founded(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / FOUNDING_FILE_NAME).write_text(f"{INCARNATION}\n")
    return path


def everything_in(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def test_a_start_that_is_refused_does_not_spend_the_right_to_found(tmp_path: Path) -> None:
    """The mark had moved already: every later start was refused, too, and the fleet could never begin."""
    data = founded(tmp_path / "c1")
    (data / "notes.txt").write_text("mine")
    before = everything_in(data)

    with pytest.raises(DirectoryError, match=r"notes\.txt"):
        server._accept_founded(data, INCARNATION)
    assert everything_in(data) == before

    (data / "notes.txt").unlink()
    server._accept_founded(data, INCARNATION)
    assert (data / RAFT_DIRECTORY / FOUNDING_FILE_NAME).exists()


def test_a_mark_beside_a_directory_of_another_kind_stays(tmp_path: Path) -> None:
    data = founded(tmp_path / "c1")
    (data / "VERSION").write_text("broker 1\n")
    before = everything_in(data)

    with pytest.raises(DirectoryError, match=r"'broker 1'"):
        server._accept_founded(data, INCARNATION)

    assert everything_in(data) == before


def test_a_founded_directory_at_the_root_of_a_volume_is_accepted(tmp_path: Path) -> None:
    data = founded(tmp_path / "c1")
    (data / "lost+found").mkdir()

    try:
        server._accept_founded(data, INCARNATION)
    except DirectoryError as error:
        pytest.fail(str(error))

    assert (data / RAFT_DIRECTORY / FOUNDING_FILE_NAME).exists()


@pytest.mark.parametrize(
    ("other", "names"),
    [
        ({"fleet": "stock", "incarnation": "1" * 32}, ("'shop'", "'stock'")),
        ({"controller": "c2"}, ("'c1'", "'c2'")),
        ({"incarnation": "1" * 32}, ("0" * 32, "1" * 32)),
    ],
    ids=["of another fleet", "of another controller of this fleet", "of a fleet that has the same name"],
)
def test_the_directory_of_another_is_refused_with_both_names(
    tmp_path: Path, other: dict[str, str], names: tuple[str, str]
) -> None:
    own(tmp_path, OURS)
    refuse_other_owner(tmp_path, OURS)

    with pytest.raises(DirectoryError) as refused:
        refuse_other_owner(tmp_path, Owner(**{"fleet": "shop", "incarnation": INCARNATION, "controller": "c1"} | other))

    assert all(name in str(refused.value) for name in names)


def test_a_directory_that_says_nobodys_name_is_taken(tmp_path: Path) -> None:
    refuse_other_owner(tmp_path, OURS)
    refuse_other_owner(tmp_path / "none", OURS)


def test_an_owner_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / OWNER_FILE_NAME).write_bytes(b"\x00\x00")

    with pytest.raises(DirectoryError, match="damaged"):
        refuse_other_owner(tmp_path, OURS)


# --- real processes --------------------------------------------------------------------------------------------------


def fleet_of_one(folder: Path, name: str) -> Path:
    """The fleet file of an insecure fleet with one controller."""
    rest, broker, raft = free_ports(3)
    addresses = f"c1=127.0.0.1:{rest},127.0.0.1:{broker},127.0.0.1:{raft}"
    arguments = ["init", "--directory", str(folder), "--name", name, "--insecure", "--controller", addresses]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    return folder / "rollcall.toml"


def started(config: Path) -> subprocess.Popen[str]:
    command = python_module("rollcall_ha.api.server", "--config", str(config), "--name", "c1")
    return subprocess.Popen(command, env=our_environment(), stderr=subprocess.PIPE, text=True)


def test_a_disk_that_is_read_only_at_a_start_was_taken_for_the_wrong_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After 65 no supervisor starts a process again: controllers and hooks stayed away when their disk was back."""

    def read_only(*_place: object, **_named: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", "LOCK")

    monkeypatch.setattr(DataDirectory, "claim", read_only)
    fleet = load_fleet_file(fleet_of_one(tmp_path / "fleet", "shop"))
    assert asyncio.run(server._serve(fleet, settings_from(fleet, "c1"), asyncio.Event())) == ExitCode.STORAGE
    monkeypatch.setattr(hooks, "run", read_only)
    monkeypatch.setattr(hooks, "configure_logs", lambda **_named: None)  # it holds for the whole process
    write_secret(tmp_path)
    file = write_hooks(tmp_path, webhook("pager", "https://example.org/"))
    assert hooks._run(file, "") == ExitCode.STORAGE


@pytest.mark.slow
@pytest.mark.parametrize("says_its_owner", [True, False], ids=["directory of today", "directory of 0.2.0"])
def test_a_controller_on_another_fleets_directory_ends_with_65_and_both_fleets(
    tmp_path: Path, says_its_owner: bool
) -> None:
    """It stayed up and led without a duty; status spoke of a majority, which it was by itself."""
    ours, other = fleet_of_one(tmp_path / "ours", "shop"), fleet_of_one(tmp_path / "other", "stock")
    data, owner = tmp_path / "ours" / "data" / "c1", tmp_path / "ours" / "data" / "c1" / OWNER_FILE_NAME
    with started(ours) as process:
        wait_until(owner.exists, deadline_s=60, what="the fleet to be founded")
        process.terminate()
        process.communicate(timeout=30)
    if not says_its_owner:
        owner.unlink()
    before = everything_in(data)
    other.write_text(other.read_text().replace('data = "data/c1"', f'data = "{data}"'))

    done = subprocess.run(
        python_module("rollcall_ha.api.server", "--config", str(other), "--name", "c1"),
        env=our_environment(),
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == ExitCode.DIRECTORY
    incarnations = [
        line.split('"')[1]
        for file in (ours, other)
        for line in file.read_text().splitlines()
        if line.startswith("incarnation")
    ]
    assert all(incarnation in done.stderr for incarnation in incarnations)
    if says_its_owner:
        assert all(name in done.stderr for name in ("'shop'", "'stock'"))
        assert everything_in(data) == before


@pytest.mark.slow
def test_a_leader_whose_journals_disk_was_full_ended_with_the_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was missed for an election timeout, in the burst of events of a failover: another controller leads first."""
    fleet = load_fleet_file(fleet_of_one(tmp_path / "fleet", "shop"))
    told: list[str] = []

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def serve() -> int:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()

        async def handed_over(_service: object) -> bool:
            told.append("handed over")
            return True

        def ended(reason: str) -> None:
            told.append(reason)
            loop.call_soon_threadsafe(stop.set)

        monkeypatch.setattr(server, "step_aside", handed_over)
        monkeypatch.setattr(server, "_exit_storage", ended)
        async with asyncio.timeout(60):
            return await server._serve(fleet, settings_from(fleet, "c1"), stop)

    monkeypatch.setattr(EventJournal, "_write_group", full)
    assert asyncio.run(serve()) == ExitCode.OK
    assert told[:2] == ["handed over", "the event journal failed: OSError: [Errno 28] No space left on device"]
