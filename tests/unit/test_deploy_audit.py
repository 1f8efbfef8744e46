"""The audit on small logs written here by docs/wire.md: it is silent on good ones and names each fault."""

from __future__ import annotations

import hashlib
import json
import struct
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest

from rollcall_ha.deploy.local import audit

SEGMENT_BYTES = 1024
REPLICAS = ("broker-a-1", "broker-a-2", "broker-a-3")


def record(key: str, body: bytes, *, offset: int, queue_offset: int) -> bytes:
    """A V1 record on queue 0 of topic T (docs/wire.md, log records)."""
    properties = f"UNIQ_KEY\x01{key}\x02".encode()
    tail = struct.pack(">i", len(body)) + body + b"\x01T" + struct.pack(">h", len(properties)) + properties
    hosts = bytes([127, 0, 0, 1, 0, 0, 0, 1])
    middle = struct.pack(">qqiq", queue_offset, offset, 0, 1_700_000_000_000) + hosts
    middle += struct.pack(">q", 1_700_000_000_001) + hosts + struct.pack(">iq", 0, 0)
    crc = zlib.crc32(body) & 0x7FFFFFFF
    size = 4 + 4 + 4 + 4 + 4 + len(middle) + len(tail)
    return struct.pack(">IIIii", size, 0xDAA320A7, crc, 0, 0) + middle + tail


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """Three equal replicas with twelve acknowledged messages over three segments, two epochs."""
    return build(tmp_path, messages=12)


def build(tmp_path: Path, *, messages: int) -> Path:
    content, promises = bytearray(), []
    for number in range(messages):
        body = f"body {number}".encode() * 5
        position = len(content) % SEGMENT_BYTES
        size = len(record("K00", body, offset=0, queue_offset=0))
        if position + size + 8 > SEGMENT_BYTES:
            space = SEGMENT_BYTES - position
            content += struct.pack(">II", space, 0xCBD43194).ljust(space, b"\0")
        offset = len(content)
        content += record(f"K{number:02d}", body, offset=offset, queue_offset=number)
        promises.append(
            {
                "key": f"K{number:02d}",
                "set": "broker-a",
                "topic": "T",
                "queueId": 0,
                "queueOffset": number,
                "physicalOffset": offset,
                "bodySha256": hashlib.sha256(body).hexdigest(),
            }
        )
    lines = "1-0\n2-300\n"
    epochs = f"2\n{zlib.crc32(lines.encode()) & 0x7FFFFFFF}\n{lines}"
    for name in REPLICAS:
        folder = tmp_path / "data" / name
        (folder / "commitlog").mkdir(parents=True)
        for base in range(0, len(content), SEGMENT_BYTES):
            piece = bytes(content[base : base + SEGMENT_BYTES]).ljust(SEGMENT_BYTES, b"\0")
            (folder / "commitlog" / f"{base:020d}").write_bytes(piece)
        (folder / "epochFileCheckpoint").write_text(epochs)
        (folder / "checkpoint").write_bytes(struct.pack(">qqqqq", 0, 0, 0, 0, len(content)).ljust(4096, b"\0"))
    (tmp_path / "data" / "c1").mkdir()
    (tmp_path / "ledger.jsonl").write_text("".join(json.dumps(row) + "\n" for row in promises))
    return tmp_path


def troubles_of(root: Path) -> dict[str, int]:
    with audit.Promises(audit.read_ledger(root / "ledger.jsonl")) as promises:
        _, troubles = audit.audit(audit.broker_directories(root), promises)
    return dict(troubles.counts)


def test_equal_replicas_with_every_message_are_fine(fleet: Path) -> None:
    """Nothing is reported where nothing is wrong, and what was counted is said."""
    with audit.Promises(audit.read_ledger(fleet / "ledger.jsonl")) as promises:
        totals, troubles = audit.audit(audit.broker_directories(fleet), promises)

    assert troubles.total == 0
    assert (totals["acked"], totals["audited_replicas"], totals["records"]) == (12, 3, 12)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It held every record of every replica: 5.4 GB for 1.3 GB of log."""
    monkeypatch.setattr(audit, "BATCH_RECORDS_MAX", 50)
    monkeypatch.setitem(globals(), "SEGMENT_BYTES", 256 * 1024)
    peaks = []
    for messages in (100, 1_000):
        root = build(tmp_path / str(messages), messages=messages)
        tracemalloc.start()
        assert troubles_of(root) == {}
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

    assert peaks[1] - peaks[0] < 900 * 100, "a record is kept: each takes 1,000 bytes"


@pytest.mark.slow
def test_self_test_finds_each_fault_by_the_command_alone(fleet: Path) -> None:
    """The program runs without anything of ours on its path, and notices every fault that it makes."""
    path = Path(audit.__file__)
    command = [sys.executable, "-I", str(path), str(fleet), "--self-test"]

    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=fleet)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": found: ") == 4
    assert "AUDIT ok  acked 12" in done.stdout


def test_self_test_finds_each_fault_while_a_producer_goes_on(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy was behind what the others had confirmed meanwhile, and two of the four faults were NOT FOUND."""
    checkpoint = fleet / "data" / REPLICAS[0] / "checkpoint"
    before = checkpoint.read_bytes()
    copy_replica, audit_up_to = audit._copy_replica, audit.audit_up_to

    def copied(source: Path, target: Path) -> None:
        copy_replica(source, target)
        checkpoint.write_bytes(struct.pack(">qqqqq", 0, 0, 0, 0, 1_000_000).ljust(4096, b"\0"))

    def audited(*arguments: Any) -> dict[str, int]:
        counts = audit_up_to(*arguments)
        checkpoint.write_bytes(before)
        return counts

    monkeypatch.setattr(audit, "_copy_replica", copied)
    monkeypatch.setattr(audit, "audit_up_to", audited)
    with audit.Promises(audit.read_ledger(fleet / "ledger.jsonl")) as promises:
        middle = promises.middle({"broker-a": 0})
        assert middle is not None
        faults = list(audit.self_test(audit.broker_directories(fleet), promises, middle))

    assert [fault for fault, is_found, _ in faults if not is_found] == []


def test_message_missing_in_the_middle_of_one_replica_is_lost(fleet: Path) -> None:
    """Two of three copies are not enough: a promise in mode all names every replica."""
    path = fleet / "data" / "broker-a-3" / "commitlog" / f"{0:020d}"
    path.write_bytes(path.read_bytes().replace(b"UNIQ_KEY\x01K01", b"UNIQ_KEY\x01X01"))

    assert troubles_of(fleet)["lost"] == 1


def test_replica_that_lacks_the_end_is_behind_which_fails_too(fleet: Path) -> None:
    """A broker that is down has lost nothing, but there is no third copy either."""
    for base in (SEGMENT_BYTES, 2 * SEGMENT_BYTES):
        (fleet / "data" / "broker-a-3" / "commitlog" / f"{base:020d}").write_bytes(bytes(SEGMENT_BYTES))
    troubles = troubles_of(fleet)

    assert troubles["behind"] > 0
    assert troubles["short"] == 1
    assert "lost" not in troubles


def test_message_that_is_there_twice_is_duplicated(fleet: Path) -> None:
    """A retry that was appended again is found, though nothing is lost."""
    lines = (fleet / "ledger.jsonl").read_text().splitlines()
    first, second = json.loads(lines[0]), json.loads(lines[1])
    for name in REPLICAS:
        path = fleet / "data" / name / "commitlog" / f"{0:020d}"
        content = path.read_bytes().replace(b"UNIQ_KEY\x01K01", b"UNIQ_KEY\x01K00")
        path.write_bytes(content)
    (fleet / "ledger.jsonl").write_text(json.dumps(first) + "\n")

    assert second["key"] == "K01"
    assert troubles_of(fleet)["duplicated"] == 3


def test_promise_cut_off_in_the_middle_of_writing_promises_nothing(fleet: Path) -> None:
    """A producer that died while writing its ledger had not told anybody yet."""
    with (fleet / "ledger.jsonl").open("a") as ledger:
        ledger.write('{"key": "K99", "set": "bro')

    assert troubles_of(fleet) == {}


def test_empty_ledger_fails(fleet: Path) -> None:
    """An audit of nothing is not a success."""
    (fleet / "ledger.jsonl").write_text("")

    assert troubles_of(fleet)["nothing"] > 0


def test_tail_behind_confirm_may_differ(fleet: Path) -> None:
    """What nobody acknowledged and nothing confirms is not compared: a slave may be behind while the audit runs."""
    for name, body in zip(REPLICAS, (b"x", b"y", b""), strict=True):
        base, path = audit.segments(fleet / "data" / name)[-1]
        content = bytearray(path.read_bytes())
        end = audit.Log(name, fleet / "data" / name, 0, audit.Troubles(), lambda _: None).end - base
        extra = record(f"T{name[-1]}", body, offset=base + end, queue_offset=12) if body else b""
        content[end : end + len(extra)] = extra
        path.write_bytes(bytes(content[:SEGMENT_BYTES]))

    assert troubles_of(fleet) == {}


def test_replica_too_young_for_a_checkpoint_was_damaged(fleet: Path) -> None:
    """A broker writes its first one up to a flush interval after its first records; what was acknowledged is compared
    all the same. None at all confirms nothing, and that is no success."""
    checkpoints = [fleet / "data" / name / "checkpoint" for name in REPLICAS]
    checkpoints[2].unlink()
    assert troubles_of(fleet) == {}
    (fleet / "data" / REPLICAS[2] / "commitlog" / f"{0:020d}").write_bytes(b"\0" * SEGMENT_BYTES)
    assert troubles_of(fleet).keys() >= {"short", "behind"}
    for path in checkpoints[:2]:
        path.unlink()

    assert "nothing" in troubles_of(fleet)


def test_replica_whose_epoch_file_has_a_wrong_checksum_is_named(fleet: Path) -> None:
    """A damaged epoch file is a trouble of its own, with both checksums."""
    path = fleet / "data" / "broker-a-2" / "epochFileCheckpoint"
    path.write_text(path.read_text().replace("2-300", "2-400"))

    assert troubles_of(fleet) == {"epochs": 1}


LATE = REPLICAS[0]
"""The first one: the others are held against it if it is taken for whole."""


def begun_late(root: Path, name: str = LATE, *, is_learner: bool = True) -> Path:
    """Without its first segment, as a learner that began at a later one; epoch 2 begins in the first."""
    (root / "data" / name / "commitlog" / f"{0:020d}").unlink()
    lines = "2-300\n"
    crc = zlib.crc32(lines.encode()) & 0x7FFFFFFF
    (root / "data" / name / "epochFileCheckpoint").write_text(f"1\n{crc}\n{lines}")
    with (root / "rollcall.toml").open("a") as file:
        file.write(f"[brokers.{name}]\nis_learner = {str(is_learner).lower()}\n")
    return root


def test_a_learner_that_began_at_a_later_segment_owes_nothing_before_it(fleet: Path) -> None:
    assert troubles_of(begun_late(fleet)) == {}


def test_a_member_that_begins_late_has_lost_what_was_acknowledged_before(fleet: Path) -> None:
    found = troubles_of(begun_late(fleet, is_learner=False))
    assert found["lost"] > 0
    assert found["unequal"] == 1
    assert found["epochs"] == 1


def telling(offset: int, since: int, *, number: int = 0, is_last: bool = True) -> bytes:
    whole = json.dumps([since, number, is_last, [["VA==", 0, 1]]]).encode()
    properties = b"QUEUES\x01" + whole + b"\x02"
    body = record("", b"", offset=offset, queue_offset=0)
    tail = struct.pack(">i", 0) + b"\x13ROLLCALL_SYS_QUEUES" + struct.pack(">h", len(properties)) + properties
    return struct.pack(">I", 84 + len(tail)) + body[4:84] + tail


def aged(root: Path, *names: str, since: int | None = 2 * SEGMENT_BYTES, segments: int = 1) -> Path:
    """A fleet that deletes by age: all tell where queues go on, and ``names`` have lost their first segments."""
    for name in REPLICAS:
        folder = root / "data" / name
        *_, path = sorted((folder / "commitlog").iterdir())
        if since is not None:
            end = audit.Log(name, folder, 0, audit.Troubles(), lambda _: None).end
            content = bytearray(path.read_bytes())
            told = telling(end, since)
            at = end - int(path.name)
            content[at : at + len(told)] = told
            path.write_bytes(bytes(content[:SEGMENT_BYTES]))
    for name in names:
        folder = root / "data" / name
        for base in range(segments):
            (folder / "commitlog" / f"{base * SEGMENT_BYTES:020d}").unlink()
        state = json.dumps({"type": "log-state", "wholeFrom": segments * SEGMENT_BYTES}).encode()
        (folder / "rollcall-checkpoint").write_bytes(b"%08x %s\n" % (zlib.crc32(state), state))
        lines = "2-300\n"
        text = f"1\n{zlib.crc32(lines.encode()) & 0x7FFFFFFF}\n{lines}"
        (folder / "epochFileCheckpoint").write_text(text)
    return root


def troubles_with_retention(root: Path) -> tuple[dict[str, int], int]:
    with audit.Promises(audit.read_ledger(root / "ledger.jsonl")) as promises:
        totals, troubles = audit.audit(audit.broker_directories(root), promises, has_retention=True)
    return dict(troubles.counts), totals.get("aged", 0)


@pytest.mark.parametrize("names", [REPLICAS[:1], REPLICAS[1:], REPLICAS])
def test_members_that_had_deleted_by_age_were_called_lost(fleet: Path, names: tuple[str, ...]) -> None:
    """Each begins where its disk let it; where all of them do, no replica has the log from 0 on."""
    aged(fleet, *names)
    counts, gone = troubles_with_retention(fleet)
    assert (counts, gone > 0) == ({}, True)
    assert troubles_of(fleet) == {"aged": 1}, "of a fleet that keeps all, it is a loss"


def test_a_member_that_begins_late_without_a_whole_telling_has_lost_numbers(fleet: Path) -> None:
    aged(fleet, LATE, since=SEGMENT_BYTES - 1)
    assert troubles_with_retention(fleet)[0] == {"lost": 1}
    (fleet / "data" / LATE / "rollcall-checkpoint").write_bytes(b'00000000 {"wholeFrom":1024}\n')
    assert troubles_with_retention(fleet)[0]["lost"] > 1, "its word is damaged"


def test_members_that_begin_at_different_places_are_compared_from_the_later_one_on(tmp_path: Path) -> None:
    fleet = aged(build(tmp_path, messages=20), *REPLICAS[:2])
    aged(fleet, REPLICAS[2], since=None, segments=2)
    assert troubles_with_retention(fleet)[0] == {}
    path = max((fleet / "data" / REPLICAS[2] / "commitlog").iterdir())
    content = bytearray(path.read_bytes())
    content[47] ^= 1
    path.write_bytes(content)
    assert troubles_with_retention(fleet)[0] == {"unequal": 1}


def test_a_segment_that_went_while_it_was_read_was_called_damaged(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aged(fleet)
    read_log, deleted = audit.Promises.read_log, [False]

    def read(self: audit.Promises, name: str, *rest: Any, **named: Any) -> audit.Log:
        if name == REPLICAS[1] and not deleted[0]:
            deleted[0] = True
            listed = audit.segments(fleet / "data" / name)
            aged(fleet, name, since=None)
            with monkeypatch.context() as patch:
                patch.setattr(audit, "segments", lambda _replica: listed)
                return read_log(self, name, *rest, **named)
        return read_log(self, name, *rest, **named)

    monkeypatch.setattr(audit.Promises, "read_log", read)
    assert troubles_with_retention(fleet)[0] == {}
    assert deleted[0]


def test_the_self_test_of_a_fleet_that_had_deleted_by_age_fell_over(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No replica was whole, so none could be damaged; and the middle of the ledger was gone."""
    assert audit.main([str(aged(fleet, *REPLICAS)), "--self-test", "--retention"]) == 0
    out = capsys.readouterr().out
    assert "aged " in out
    assert out.count(": found: ") == 4


def test_a_learner_is_held_against_the_others_from_its_first_byte_on(fleet: Path) -> None:
    """One byte of a header that no checksum covers, in its last segment; and a message that it should have."""
    log = begun_late(fleet) / "data" / LATE / "commitlog"
    *_, last = sorted(log.iterdir())
    content = bytearray(last.read_bytes())
    content[16] ^= 1
    last.write_bytes(bytes(content))
    assert troubles_of(fleet).keys() >= {"unequal"}
    last.write_bytes(bytes(SEGMENT_BYTES))
    assert troubles_of(fleet).keys() >= {"short", "behind"}


def test_a_set_of_late_learners_has_no_whole_log(fleet: Path) -> None:
    for name in REPLICAS:
        begun_late(fleet, name)
    assert troubles_of(fleet) == {"lost": 1}


def test_the_command_takes_learners_from_the_fleet_file(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.main([str(begun_late(fleet)), "--self-test"]) == 0
    out = capsys.readouterr().out
    assert "AUDIT ok  acked 12" in out
    assert out.count(": found: ") == 4
