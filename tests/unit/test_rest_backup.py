"""GET /v1/backup and ``rollcall backup``: one state at one index, from any controller, while the fleet goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import httpx
import msgspec
import pytest

from rollcall_ha.cli import backup as taking
from rollcall_ha.cli import context
from rollcall_ha.cli.main import app
from rollcall_ha.client.client import Client
from rollcall_ha.controller.contract.backups import BackupPage
from rollcall_ha.controller.contract.timing import NS_PER_MS
from rollcall_ha.controller.core.snapshot import decode_state
from rollcall_ha.controller.runtime import backups
from rollcall_ha.controller.runtime.backup_files import read_backup
from rollcall_ha.node.certified import PeerKind
from rollcall_ha.node.files import atomic_replace
from tests.support.cli import CliRunner
from tests.support.rest_callers import caller, certificate
from tests.support.rest_server import RestThread
from tests.support.runtime_controller import NAMES, Controller, Group, make_set, play, played, recorded, running_group

Ran = Callable[..., tuple[int, str]]


async def page_of(controller: Controller, **params: str | int) -> BackupPage:
    answer = await controller.http.get("/v1/backup", params=params)
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=BackupPage)


@pytest.mark.slow
def test_pages_are_of_one_index_on_every_controller_while_entries_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page is read between two new sets; what comes out is the state as it was at the first one."""
    monkeypatch.setattr(backups, "PAGE_BYTES", 1_500)

    async def scenario(group: Group) -> None:
        leader = await group.elect("c1")
        for number in range(6):
            await make_set(leader, f"broker-{number}")
        for name in ("c1", "c2"):
            await recorded(group[name])
            before = group[name].service.published.state
            page = await page_of(group[name])
            items = [*page.items]
            while not page.is_last:
                await make_set(leader, f"during-{name}-{page.page}")
                page = await page_of(group[name], backup=page.backup, page=page.page + 1)
                assert sum(len(bytes(item)) for item in page.items[:-1]) < 1_500
                items += page.items
            state = decode_state(bytes(item) for item in items)
            assert page.page >= 3
            assert (page.header.index, page.header.taken_by) == (before.index, name)
            assert (state.index, state.sets) == (before.index, before.sets)
            assert len(group[name].service.published.state.sets) > len(state.sets)

    play(tmp_path, scenario, names=NAMES)


@played(names=NAMES)
async def test_a_page_may_be_asked_for_twice_and_no_backup_stays_open_for_ever(group: Group) -> None:
    """The answer may be lost; a state that nobody reads on would stay in memory."""
    leader = await group.elect("c1")
    first = await page_of(leader)
    assert await page_of(leader, backup=first.backup, page=0) == first
    for page in (1, 7):
        answer = await leader.http.get("/v1/backup", params={"backup": first.backup, "page": page})
        assert answer.status_code == 404
        assert "begin the backup again" in answer.text
    # One that was read to its end makes room for another.
    opened = [(await page_of(leader)).backup for _ in range(backups.OPEN_MAX + 1)]
    assert len(set(opened)) == backups.OPEN_MAX + 1


def test_a_backup_that_nobody_reads_on_makes_room_and_kept_the_fifth_one_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each keeps a state of long ago; four that were given up had REST answer 503 for a minute."""
    monkeypatch.setattr(backups, "PAGE_BYTES", 1)

    async def scenario(group: Group) -> None:
        leader = await group.elect("c1")
        await make_set(leader)
        read, given_up, *_ = [(await page_of(leader)).backup for _ in range(backups.OPEN_MAX)]
        await leader.http.get("/v1/backup", params={"backup": read, "page": 0})
        assert (await page_of(leader)).page == 0

        async def status_of(backup: str, page: int) -> int:
            return (await leader.http.get("/v1/backup", params={"backup": backup, "page": page})).status_code

        assert (await status_of(given_up, 0), await status_of(read, 0)) == (404, 200)
        now = leader.service.now_ns
        monkeypatch.setattr(leader.service, "now_ns", lambda: now() + (backups.IDLE_MS_MAX + 1) * NS_PER_MS)
        assert await status_of(read, 0) == 404

    play(tmp_path, scenario, names=NAMES)


def test_a_backup_is_an_admins_and_its_log_says_whose(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody else may read it, with secrets or without; who took them is told, once for each backup."""

    async def main() -> None:
        async with running_group(tmp_path, NAMES[:1], is_insecure=False) as group:
            leader = await group.elect("c1")
            for kind, status in ((PeerKind.VIEWER, 403), (PeerKind.OPERATOR, 403), (PeerKind.ADMIN, 200)):
                async with caller(leader, certificate(kind)) as http:
                    assert (await http.get("/v1/backup")).status_code == status
            async with caller(leader) as http:
                assert (await http.get("/v1/backup")).status_code == 401
            async with caller(leader, certificate(PeerKind.ADMIN)) as http:
                first = (await http.get("/v1/backup", params={"secrets": "true"})).json()
                await http.get("/v1/backup", params={"backup": first["backup"], "page": 0})

    asyncio.run(main())
    told = [line for line in capsys.readouterr().out.splitlines() if "backup_begun" in line]
    assert ["has_secrets=True" in line for line in told] == [False, True]
    assert all("admin" in line for line in told)


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def rollcall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Run it as an admin, against a controller that leads."""

    def run(server: RestThread, *arguments: str) -> tuple[int, str]:
        identity = server.identity(PeerKind.ADMIN)
        monkeypatch.setattr(context, "make_client", lambda: Client([server.address], identity=identity))
        done = CliRunner().invoke(app, list(arguments))
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.stdout + done.stderr

    return run


@pytest.mark.slow
def test_the_command_writes_a_file_that_holds(tmp_path: Path, rollcall: Ran) -> None:
    """Without history, with it, and encrypted with secrets; never over another file."""
    word = tmp_path / "word"
    atomic_replace(word, b"correct horse\n")
    with RestThread(tmp_path / "server") as server:
        for name, options, passphrase in (
            ("plain", (), None),
            ("whole", ("--with-history", "--from", "c1"), None),
            ("sealed", ("--with-history", "--with-secrets", "--passphrase-file", str(word)), b"correct horse"),
        ):
            file = tmp_path / name
            code, told = rollcall(server, "backup", str(file), *options)
            assert (code, "OK  1 broker sets at entry" in told) == (0, True), told
            read = read_backup(file, passphrase=passphrase)
            assert read.wrong == ()
            assert read.header is not None
            assert (read.header.taken_by, read.header.fleet_name) == ("c1", "demo")
            assert (read.record.chain == read.header.chain_head) == ("--with-history" in options)
            assert read.header.has_secrets == (passphrase is not None)
            assert file.stat().st_mode & 0o777 == 0o600
        before = (tmp_path / "plain").read_bytes()
        code, told = rollcall(server, "backup", str(tmp_path / "plain"))
        assert (code, "exists; name another file" in told) == (2, True)
        assert (tmp_path / "plain").read_bytes() == before
        for wrong in (("--with-secrets",), ("--passphrase-file", str(word)), ("--from", "c7")):
            assert rollcall(server, "backup", str(tmp_path / "new"), *wrong)[0] == 2
    assert not (tmp_path / "new").exists()
    assert list(tmp_path.glob("*.part")) == []


def test_a_controller_that_hears_no_leader_gives_a_backup_only_if_it_may_be_old(
    tmp_path: Path, rollcall: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been cut off for a day; but it may be the last one that there is."""
    monkeypatch.setattr(taking, "CONTACT_AGE_MS_MAX", -1)
    with RestThread(tmp_path / "server") as server:
        code, told = rollcall(server, "backup", str(tmp_path / "b"))
        assert (code, "has heard no leader" in told) == (1, True)
        assert rollcall(server, "backup", str(tmp_path / "b"), "--stale")[0] == 0


def test_a_record_that_does_not_lead_to_the_state_was_read_for_ever(
    tmp_path: Path, rollcall: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events behind the backup's index came as fast as they were read, and the hash that was sought was not among them."""
    real = Client.text_from

    def other_index(self: Client, address: str, path: str, params: dict[str, str], *, wait_ms: int = 0) -> bytes:
        text = real(self, address, path, params, wait_ms=wait_ms)
        if path != "/v1/backup":
            return text
        page = msgspec.json.decode(text)
        page["header"]["index"] = 1
        return msgspec.json.encode(page)

    monkeypatch.setattr(Client, "text_from", other_index)
    with RestThread(tmp_path / "server") as server:
        code, told = rollcall(server, "backup", str(tmp_path / "b"), "--with-history")
    assert (code, "up to entry 1 ends with chain" in told) == (1, True), told
    assert not (tmp_path / "b").exists()


def test_a_backup_that_breaks_off_leaves_no_file(
    tmp_path: Path, rollcall: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of one under its name would be found in the night in which it is needed."""

    def lost(*_: object, **__: object) -> bytes:
        raise httpx.ReadError("gone")

    with RestThread(tmp_path / "server") as server:
        real = Client.text_from
        calls: list[str] = []

        def text_from(self: Client, address: str, path: str, params: dict[str, str], *, wait_ms: int = 0) -> bytes:
            calls.append(path)
            return real(self, address, path, params, wait_ms=wait_ms) if len(calls) < 2 else lost()

        monkeypatch.setattr(Client, "text_from", text_from)
        with pytest.raises(httpx.ReadError):
            rollcall(server, "backup", str(tmp_path / "b"), "--with-history")
    assert calls == ["/v1/backup", "/v1/events"]
    assert [path.name for path in tmp_path.iterdir()] == ["server"]
