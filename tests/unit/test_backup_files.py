"""Backups: sound ones hold, and of a doctored one the first wrong line is named by ``verify`` and by ``restore``."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from rollcall_ha.controller.contract.backups import BackupHeader, encode_document
from rollcall_ha.controller.contract.events import EventRecord, MasterElected
from rollcall_ha.controller.contract.ids import BrokerId, FleetIncarnation, MasterEpoch
from rollcall_ha.controller.contract.principals import Role
from rollcall_ha.controller.core.backups import WITHHELD
from rollcall_ha.controller.core.state import FleetState, IssuedToken
from rollcall_ha.controller.core.verification import Rule
from rollcall_ha.controller.runtime import restore
from rollcall_ha.controller.runtime.backup_files import read_backup
from rollcall_ha.controller.runtime.verify import main, verify
from tests.support.backup_files import FLEET_NAME, documents, header_for, rewrite, write_backup
from tests.support.core_builders import FLEET, SET_A, Fleet, positions, rechained

STRANGERS = FleetIncarnation("9" * 32)
PASSPHRASE = b"correct horse"


def lived() -> Fleet:
    """First election, a failover, a token."""
    fleet = Fleet().serving()
    fleet.silence(1)
    fleet.elect(evidence=fleet.evidence({2: positions(900), 3: positions(1_000)}))
    fleet.enter(900)
    return fleet


LIVED = lived()
TOKEN = IssuedToken(
    token_id="t1",
    digest="5" * 64,
    role=Role.ADMIN,
    name="ops",
    set_key=None,
    expires_at_ms=2_000_000_000_000,
    issued_at_ms=1,
    issued_by="admin",
)
STATE: FleetState = replace(LIVED.state, tokens={"t1": TOKEN})
RECORDS = LIVED.records
STATE_LINES = 1 + len(STATE.sets) + len(STATE.tokens)
FIRST_EVENT = 2 + STATE_LINES
"""Its line."""
END = FIRST_EVENT + len(RECORDS)


def fleet_file(directory: Path, *, name: str = FLEET_NAME, incarnation: str = FLEET) -> Path:
    """Of one controller, founded empty."""
    (directory / "data" / "c1").mkdir(parents=True)
    (directory / "data" / "c1" / "FOUNDING").write_text(f"{incarnation}\n")
    file = directory / "rollcall.toml"
    file.write_text(
        f'version = 1\n[fleet]\nname = "{name}"\nincarnation = "{incarnation}" # drawn by init\ninsecure = true\n'
        '[controllers.c1]\nraft = "127.0.0.1:1"\nbroker = "127.0.0.1:2"\nrest = "127.0.0.1:3"\ndata = "data/c1"\n'
    )
    return file


# --- sound ones ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("passphrase", [None, PASSPHRASE])
@pytest.mark.parametrize("records", [None, RECORDS])
def test_a_sound_backup_holds(tmp_path: Path, records: list[EventRecord] | None, passphrase: bytes | None) -> None:
    """With and without history and secrets, and what is read is what was written."""
    file = write_backup(tmp_path / "b", STATE, records, passphrase=passphrase)
    read = read_backup(file, passphrase=passphrase)

    assert read.wrong == ()
    assert read.state is not None
    assert read.state.sets == STATE.sets
    assert (read.state.requests, read.state.index, read.state.chain_head) == ({}, STATE.index, STATE.chain_head)
    assert (read.state.tokens == STATE.tokens) == (passphrase is not None)
    assert read.record.events == (0 if records is None else len(RECORDS))
    assert file.stat().st_mode & 0o777 == 0o600


def test_without_secrets_a_token_has_no_digest_and_a_register_code_is_one(tmp_path: Path) -> None:
    """The file has nothing that lets somebody in."""
    file = write_backup(tmp_path / "b", STATE)

    assert TOKEN.digest.encode() not in file.read_bytes()
    read = read_backup(file)
    assert read.state is not None
    assert read.state.tokens["t1"].digest == f"{WITHHELD}t1"
    assert read.state.sets[SET_A].replicas[0].register_code.startswith("sha256:")


@pytest.mark.slow
def test_an_encrypted_backup_has_nothing_in_clear_and_needs_its_passphrase(tmp_path: Path) -> None:
    """Nor can its lines be exchanged, or left out at the end."""
    file = write_backup(tmp_path / "b", STATE, RECORDS, passphrase=PASSPHRASE)
    assert b"broker-a" not in file.read_bytes()
    assert "passphrase-file" in verify(file).wrong[0].text
    assert verify(file, passphrase=b"wrong").wrong[0].where == f"{file}:2"

    lines = documents(file)
    rewrite(file, [*lines[:3], lines[4], lines[3], *lines[5:]])
    assert verify(file, passphrase=PASSPHRASE).wrong[0].where == f"{file}:4"
    rewrite(file, lines[:-1])
    assert verify(file, passphrase=PASSPHRASE).wrong[0].where == f"{file}:{len(lines) - 1}"


# --- doctored ones ---------------------------------------------------------------------------------------------------

Doctored = Callable[[Path], Path]


@dataclass(frozen=True, slots=True)
class Case:
    """What is done, and the line and the rule that must be named."""

    make: Doctored
    line: int
    rule: str


def _sound(file: Path) -> Path:
    return write_backup(file, STATE, RECORDS)


def _flipped(line: int, place: int = 40) -> Doctored:
    def make(file: Path) -> Path:
        lines = _sound(file).read_bytes().splitlines(keepends=True)
        changed = bytearray(lines[line - 1])
        changed[place] ^= 1
        file.write_bytes(b"".join((*lines[: line - 1], bytes(changed), *lines[line:])))
        return file

    return make


def _cut_at(size: Callable[[int], int]) -> Doctored:
    def make(file: Path) -> Path:
        content = _sound(file).read_bytes()
        file.write_bytes(content[: size(len(content))])
        return file

    return make


def _with_header(**changes: object) -> Doctored:
    """Every sum fits."""
    return lambda file: write_backup(file, STATE, RECORDS, header=replace(header_for(STATE), **changes))


def _future(file: Path) -> Path:
    header = json.loads(encode_document(header_for(STATE)))
    _sound(file)
    rewrite(file, [msgspec.json.encode(header | {"rollcallBackup": 2, "shape": "new"}), *documents(file)[1:]])
    return file


def _line_out(line: int) -> Doctored:
    """A forger who makes the end anew, too."""

    def make(file: Path) -> Path:
        return write_backup(file, STATE, [one for at, one in enumerate(RECORDS) if at + FIRST_EVENT != line])

    return make


LAST_ELECTION = max(at for at, one in enumerate(RECORDS) if isinstance(one.event, MasterElected))


def _two_masters(file: Path) -> Path:
    """A forger who knows how hashes are made: a second election of the same epoch behind the first, and all fits."""
    elected = RECORDS[LAST_ELECTION]
    assert isinstance(elected.event, MasterElected)
    other = BrokerId(3 if elected.event.master == 2 else 2)
    second = replace(elected, event=replace(elected.event, master=other), ordinal=elected.ordinal + 1)
    records = rechained([*RECORDS[: LAST_ELECTION + 1], second])
    state = replace(STATE, chain_head=records[-1].chain)
    return write_backup(file, state, records)


def _older_epoch(file: Path) -> Path:
    """The state of a set is set back to epoch 1; record and header are true."""
    found = STATE.sets[SET_A]
    return write_backup(file, replace(STATE, sets={SET_A: replace(found, master_epoch=MasterEpoch(1))}), RECORDS)


def _older_state(file: Path) -> Path:
    """The whole state of before the failover, sound by itself, under the index and the hash of the newest one."""
    early = Fleet().serving().state
    claimed = replace(early, index=STATE.index, term=STATE.term, chain_head=STATE.chain_head)
    return write_backup(file, claimed, RECORDS)


def _state_item_out(file: Path) -> Path:
    lines = documents(_sound(file))
    rewrite(file, [lines[0], lines[1], *lines[3:]])
    return file


def _without_end(file: Path) -> Path:
    rewrite(file, documents(_sound(file))[:-1])
    return file


def _only_header(file: Path) -> Path:
    rewrite(file, documents(_sound(file))[:1])
    return file


DOCTORED: dict[str, Case] = {
    "a byte of the header": Case(_flipped(1), 1, Rule.CHECKSUM),
    "a byte of the mark of the file": Case(_flipped(1, 12), 1, Rule.CHECKSUM),
    "a byte of the state": Case(_flipped(3), 3, Rule.CHECKSUM),
    "a byte of the history": Case(_flipped(FIRST_EVENT + 2), FIRST_EVENT + 2, Rule.CHECKSUM),
    "a byte of the end": Case(_flipped(END), END, Rule.CHECKSUM),
    "a byte of a checksum": Case(_flipped(4, 0), 4, Rule.CHECKSUM),
    "cut in the middle of a line": Case(_cut_at(lambda size: size // 2), 0, Rule.CHECKSUM),
    "cut before its end": Case(_without_end, END - 1, Rule.READABLE),
    "nothing but its header": Case(_only_header, 1, Rule.FORMAT),
    "of a later format": Case(_future, 1, Rule.FORMAT),
    "of a later feature level": Case(_with_header(feature_level=99), 1, Rule.FORMAT),
    "header of another fleet": Case(_with_header(fleet_incarnation=STRANGERS), 1, Rule.ONE_STATE),
    "a lower index claimed": Case(_with_header(index=STATE.index - 3), 1, Rule.ONE_STATE),
    "a lower epoch claimed": Case(_with_header(highest_epoch=MasterEpoch(1)), 1, Rule.ONE_STATE),
    "an event taken out of the middle": Case(_line_out(FIRST_EVENT + 4), FIRST_EVENT + 4, Rule.CHAIN),
    "the newest event taken out": Case(_line_out(END - 1), END - 2, Rule.CHAIN),
    "the oldest event taken out": Case(_line_out(FIRST_EVENT), FIRST_EVENT, Rule.CHAIN),
    "two masters in one epoch": Case(_two_masters, FIRST_EVENT + LAST_ELECTION + 1, Rule.ELECTIONS),
    "an epoch set back": Case(_older_epoch, 2, Rule.ONE_STATE),
    "a state older than its record": Case(_older_state, END - 1 - len(STATE.tokens), Rule.ONE_STATE),
    "a set taken out of the state": Case(_state_item_out, END - 1, Rule.FORMAT),
}


@pytest.mark.parametrize("name", DOCTORED)
def test_a_doctored_backup_is_refused_with_the_line_named(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By ``verify``, and by ``restore``, which then writes nothing."""
    case = DOCTORED[name]
    file = case.make(tmp_path / "b")
    config = fleet_file(tmp_path)
    before = sorted((path, path.is_file() and path.read_bytes()) for path in tmp_path.rglob("*"))

    first = verify(file).wrong[0]
    print(f"{name}: {first.where.rpartition(':')[2]} {first.rule}: {first.text}")
    assert first.rule == case.rule
    if case.line:
        assert first.where == f"{file}:{case.line}"
    assert main([str(file)]) == 1
    capsys.readouterr()

    assert restore.main([str(file), "--config", str(config)]) == 1
    assert f"BROKEN  {first.where}: {first.rule}" in capsys.readouterr().err
    assert sorted((path, path.is_file() and path.read_bytes()) for path in tmp_path.rglob("*")) == before


def test_each_byte_of_a_backup_counts(tmp_path: Path) -> None:
    """Whichever is flipped, the backup is refused, and the line is the one that has it."""
    file = write_backup(tmp_path / "b", STATE)
    content = file.read_bytes()
    missed = []
    for place in range(0, len(content), 7):
        file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        line = content[:place].count(b"\n") + 1
        wrong = read_backup(file).wrong
        if not wrong or wrong[0].where != f"{file}:{line}":
            missed.append((place, line, wrong))
    assert missed == []


def test_both_masters_of_one_epoch_are_named(tmp_path: Path) -> None:
    """Behind the election that contradicts its own record."""
    wrong = verify(_two_masters(tmp_path / "b")).wrong
    assert any(one.rule == Rule.ONE_MASTER and "has two masters" in one.text for one in wrong)


def test_verify_tells_what_a_backup_is_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For people and for programs."""
    file = write_backup(tmp_path / "b", STATE)
    assert main([str(file)]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"OK  backup of fleet demo ({FLEET}), 1 broker sets at entry {STATE.index}")
    assert "no history" in told
    assert main([str(file), "--json"]) == 0
    header = msgspec.convert(json.loads(capsys.readouterr().out)["backup"], BackupHeader)
    assert header == header_for(STATE)
