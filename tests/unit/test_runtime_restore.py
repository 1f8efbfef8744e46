"""``rollcall restore``: what empty controllers begin with, and who is refused; nothing is started here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rollcall_ha.api import server
from rollcall_ha.controller.contract.events import FleetRestored
from rollcall_ha.controller.contract.ids import FleetIncarnation
from rollcall_ha.controller.core.state import FleetState
from rollcall_ha.controller.replication.machine import FleetMachine
from rollcall_ha.controller.replication.raft.member import FOUNDING_FILE_NAME
from rollcall_ha.controller.replication.raft.snapshot import SNAPSHOT_FILE_NAME, decode_snapshot
from rollcall_ha.controller.runtime import restore
from rollcall_ha.controller.runtime.directories import RESTORING_FILE_NAME
from rollcall_ha.controller.runtime.event_journal import EventJournal
from rollcall_ha.controller.runtime.verify import verify
from rollcall_ha.node.config import load_fleet_file
from rollcall_ha.node.files import DirectoryError, atomic_replace
from tests.support.backup_files import write_backup
from tests.support.core_builders import FLEET
from tests.support.runtime_records import fails
from tests.unit.test_backup_files import PASSPHRASE, RECORDS, STATE, STRANGERS, fleet_file

TOKEN = "1750000000000-0123456789abcdef"
OTHER_TOKEN = "1750000000000-0123456789abcdee"


def begun_with(data: Path) -> FleetState:
    """The state in a controller's directory."""
    snapshot = decode_snapshot((data / "raft" / SNAPSHOT_FILE_NAME).read_bytes())
    state = FleetMachine().decode(snapshot.items)
    assert snapshot.last[1:] == (state.index, state.term)
    return state


def run(file: Path, config: Path, *options: str) -> int:
    return restore.main([str(file), "--config", str(config), *options])


def test_r7_restored_controllers_are_another_fleet_in_which_every_set_awaits_its_replicas(tmp_path: Path) -> None:
    """One entry behind the backup; nobody is alive, and the fleet file says who they are."""
    config = fleet_file(tmp_path)
    assert run(write_backup(tmp_path / "b", STATE), config) == 0

    state = begun_with(tmp_path / "data" / "c1")
    assert state.index == STATE.index + 1
    assert state.fleet_incarnation not in (STATE.fleet_incarnation, "")
    assert load_fleet_file(config).fleet.incarnation == state.fleet_incarnation
    assert "# drawn by init" in config.read_text(), "what an operator wrote stays"
    for key, before in STATE.sets.items():
        after = state.sets[key]
        assert after.recovery is not None
        assert after.recovery.awaited == tuple(replica.broker_id for replica in before.replicas)
        assert after.master_epoch == before.master_epoch
        assert not any(replica.is_alive for replica in after.replicas)


def test_a_restored_directory_may_be_started_on_and_found(tmp_path: Path) -> None:
    """It has the right to vote, its record goes on from the backup's, and no mark is left."""
    config = fleet_file(tmp_path)
    assert run(write_backup(tmp_path / "b", STATE, RECORDS), config) == 0
    data = tmp_path / "data" / "c1"
    state = begun_with(data)

    assert (data / "raft" / FOUNDING_FILE_NAME).read_text().strip() == state.fleet_incarnation
    assert not (data / FOUNDING_FILE_NAME).exists()
    assert not (data / RESTORING_FILE_NAME).exists()
    server._accept_founded(data, state.fleet_incarnation)
    found = verify(data)
    assert (found.wrong, found.notes) == ((), ())
    assert (found.events, found.last_index, found.chain) == (len(RECORDS) + 1, state.index, state.chain_head)
    journal: EventJournal[FleetState] = EventJournal(
        data / "events", chain_head_of=lambda one: one.chain_head, fail=fails
    )
    newest = journal.read_newest(limit=1).records[0].event
    assert isinstance(newest, FleetRestored)
    assert (newest.previous_fleet, newest.backup_index) == (FLEET, STATE.index)
    assert journal.gaps() == ()


def test_without_history_the_record_begins_with_a_hole_that_has_the_hash(tmp_path: Path) -> None:
    """So the old record, wherever it is kept, can be laid in front of it."""
    config = fleet_file(tmp_path)
    assert run(write_backup(tmp_path / "b", STATE), config) == 0
    found = verify(tmp_path / "data" / "c1")

    assert (found.wrong, found.events) == ((), 1)
    assert "a hole after the beginning up to index" in found.notes[0]


def test_one_token_makes_one_fleet_on_every_machine(tmp_path: Path) -> None:
    """Of another backup, or with another token, it is not that fleet."""
    file = write_backup(tmp_path / "b", STATE, RECORDS)
    made = {}
    for place, (backup, token) in {
        "m1": (file, TOKEN),
        "m2": (file, TOKEN),
        "m3": (file, OTHER_TOKEN),
        "m4": (write_backup(tmp_path / "other", STATE), TOKEN),
    }.items():
        config = fleet_file(tmp_path / place)
        assert run(backup, config, "--token", token, "--name", "c1") == 0
        data = tmp_path / place / "data" / "c1"
        made[place] = [(data / "raft" / SNAPSHOT_FILE_NAME).read_bytes(), begun_with(data).fleet_incarnation]

    assert made["m1"] == made["m2"]
    assert len({made[place][1] for place in ("m1", "m3", "m4")}) == 3


def test_a_dry_run_says_what_would_be_done_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a program reads it."""
    config = fleet_file(tmp_path)
    before = config.read_bytes()
    assert run(write_backup(tmp_path / "b", STATE), config, "--dry-run", "--json") == 0

    told = json.loads(capsys.readouterr().out)
    assert (told["isDryRun"], list(told["controllers"]), told["beginsAt"]) == (True, ["c1"], STATE.index + 1)
    assert config.read_bytes() == before
    assert [path.name for path in (tmp_path / "data" / "c1").iterdir()] == [FOUNDING_FILE_NAME]


@pytest.mark.parametrize("left", ["raft", "VERSION", "events", "notes.txt"])
def test_a_controller_that_was_ever_started_is_not_written_over(
    tmp_path: Path, left: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may have voted in this term."""
    config = fleet_file(tmp_path)
    before = config.read_bytes()
    (tmp_path / "data" / "c1" / left).mkdir()

    assert run(write_backup(tmp_path / "b", STATE), config) == 1
    assert f"is not empty (it has {left})" in capsys.readouterr().err
    assert config.read_bytes() == before


def test_another_fleet_is_not_restored_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By its name never; by its incarnation only if the operator says which."""
    file = write_backup(tmp_path / "b", STATE)
    assert run(file, fleet_file(tmp_path / "named", name="prod")) == 1
    assert "the backup is of fleet 'demo'" in capsys.readouterr().err

    config = fleet_file(tmp_path / "anew", incarnation=STRANGERS)
    assert run(file, config) == 1
    told = capsys.readouterr().err
    assert FLEET in told
    assert STRANGERS in told
    assert run(file, config, "--accept-fleet", STRANGERS) == 1, "the word is the backup's incarnation"
    assert run(file, config, "--accept-fleet", FLEET) == 0


def test_wrong_use_is_told_with_its_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is written."""
    config = fleet_file(tmp_path)
    file = write_backup(tmp_path / "b", STATE)
    for options, text in (
        (("--token", "abc"), "--token 'abc' is none"),
        (("--name", "c9"), "c9"),
        (("--passphrase-file", str(tmp_path / "none")), "cannot be read"),
    ):
        assert run(file, config, *options) == 2
        assert text in capsys.readouterr().err
    assert run(config, config) == 2
    assert "is no backup" in capsys.readouterr().err


def test_a_restore_that_was_interrupted_is_nobodys_directory_until_it_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller that started on half of it would be an empty member."""
    config = fleet_file(tmp_path)
    file = write_backup(tmp_path / "b", STATE, RECORDS)
    data = tmp_path / "data" / "c1"

    def dies(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(restore, "seed", dies)
        assert run(file, config, "--token", TOKEN) == 2
    with pytest.raises(DirectoryError, match="a restore has not ended here"):
        server._accept_founded(data, FLEET)

    assert run(file, config, "--token", TOKEN) == 0
    assert verify(data).wrong == ()
    server._accept_founded(data, FleetIncarnation(load_fleet_file(config).fleet.incarnation))


def test_r7_a_controller_that_was_forgotten_does_not_found_an_empty_fleet_beside_the_restored_one(
    tmp_path: Path,
) -> None:
    """Its fleet file was copied; its mark of founding is of the fleet before."""
    fleet_file(tmp_path)
    with pytest.raises(DirectoryError, match="restore this controller, too"):
        server._accept_founded(tmp_path / "data" / "c1", STRANGERS)


@pytest.mark.slow
def test_tokens_come_back_only_with_the_secrets(tmp_path: Path) -> None:
    """One that was revoked after the backup would be in force again."""
    config = fleet_file(tmp_path / "without")
    assert run(write_backup(tmp_path / "b", STATE), config) == 0
    token = begun_with(tmp_path / "without" / "data" / "c1").tokens["t1"]
    assert (token.revoked_by, token.revoked_at_ms is None) == ("restore", False)

    config = fleet_file(tmp_path / "with")
    word = tmp_path / "word"
    atomic_replace(word, PASSPHRASE + b"\n")
    file = write_backup(tmp_path / "sealed", STATE, passphrase=PASSPHRASE)
    assert run(file, config) == 1, "without its passphrase"
    assert run(file, config, "--passphrase-file", str(word)) == 0
    assert begun_with(tmp_path / "with" / "data" / "c1").tokens == STATE.tokens


def test_a_history_is_divided_into_segments_between_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a controller's own: the events of one entry are in one file."""
    monkeypatch.setattr(restore, "SEGMENT_BYTES_MAX", 2_000)
    config = fleet_file(tmp_path)
    assert run(write_backup(tmp_path / "b", STATE, RECORDS), config) == 0
    data = tmp_path / "data" / "c1"

    assert len(list((data / "events").glob("*.jsonl"))) > 3
    assert verify(data).wrong == ()
    assert verify(data).events == len(RECORDS) + 1
