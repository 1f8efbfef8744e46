#!/usr/bin/env python3
"""
Audit of acknowledged messages, from outside: the producers' ledger against the raw files of every replica.

    python3 deploy/local/audit.py .demo [--json] [--self-test]

Standard library only, no import of ours: files are read by RocketMQ's formats (commit log records, checkpoint, epoch
file), so that a fault in our own code cannot hide itself. Works on a running fleet too: the ledger is read first, then
the confirm offsets, then the logs.

Memory does not grow with the log: what the ledger and one replica at a time say of each message is in a database file,
300 bytes for each, in TMPDIR; 64 MiB of it and one mapped segment are in memory.

For every broker set:
1. every record lies where it says it lies, and its body has the CRC that it says;
2. every acknowledged message is there exactly once, on every replica, where the producer was told, with the same body;
3. queue offsets of a queue count up by one;
4. up to the highest confirm offset (and the last acknowledged byte) all logs are equal byte by byte;
5. the epoch files are intact and equal up to there.
A learner (by the fleet file beside the data) may begin at a later segment: it owes nothing before its first byte, and
is held against the others from there on. Another replica may, if its state says that its log is whole from there, and
the log where all queues go on; what it lacks of the ledger is counted as ``aged``, a failure without ``--retention``.
Any other replica that begins late is a failure, and so is a set of late learners.
A count of zero where there should be something is a failure too, and so is a replica that is down or behind: missing
messages at its end are counted as ``behind``, missing messages before that as ``lost``.

``--self-test`` shows that it would notice: in copies of one replica it removes an acknowledged record, flips a byte,
and changes an epoch; each must be found.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
import mmap
import re
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
import tomllib
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194
SYSFLAG_BORN_IPV6 = 1 << 4
SYSFLAG_STORE_IPV6 = 1 << 5
CONFIRM_AT_BYTE = 32
CACHE_KIB = 64 * 1024
BATCH_RECORDS_MAX = 10_000
TROUBLES_MAX = 20  # of one kind that are spelled out; the rest are counted


class Unreadable(Exception):
    """A file is not what the format says; the message names file and place."""


@dataclass(frozen=True)
class Promise:
    """One line of the ledger: a message that was acknowledged."""

    key: str
    set_name: str
    topic: str
    queue_id: int
    queue_offset: int | None
    offset: int | None
    """None: the producer was not told where, because only the answer to a repeated send arrived."""
    body_sha256: str


@dataclass(frozen=True)
class Record:
    """One message of a log."""

    offset: int
    key: str
    topic: str
    queue_id: int
    queue_offset: int
    body_sha256: str
    told: str = ""
    """Of a record that says where queues go on (``broker/log/told_queues.py``)."""


@dataclass
class Troubles:
    """Number of findings of each kind."""

    lines: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, kind: str, text: str) -> None:
        """Count one, and keep its words while there is room."""
        self.counts[kind] += 1
        if len(self.lines[kind]) < TROUBLES_MAX:
            self.lines[kind].append(text)

    def copy(self) -> Troubles:
        lines = {kind: list(lines) for kind, lines in self.lines.items()}
        return Troubles(defaultdict(list, lines), defaultdict(int, self.counts))

    @property
    def total(self) -> int:
        """How many in all."""
        return sum(self.counts.values())


# --- files -----------------------------------------------------------------------------------------------------------


def read_ledger(path: Path) -> Iterator[Promise]:
    """Every whole line; a last line without its end was not finished and promises nothing."""
    with path.open("rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                return
            row = json.loads(line)
            yield Promise(
                key=row["key"],
                set_name=row["set"],
                topic=row["topic"],
                queue_id=row["queueId"],
                queue_offset=row["queueOffset"],
                offset=row["physicalOffset"],
                body_sha256=row["bodySha256"],
            )


def read_confirm(replica: Path) -> int:
    """Confirm offset from ``checkpoint``; 0 before the first one, a flush interval after the first records."""
    path = replica / "checkpoint"
    data = path.read_bytes() if path.exists() else bytes(CONFIRM_AT_BYTE + 8)
    if len(data) < CONFIRM_AT_BYTE + 8:
        raise Unreadable(f"{path} has {len(data)} bytes")
    return int(struct.unpack_from(">q", data, CONFIRM_AT_BYTE)[0])


def read_epochs(replica: Path) -> list[tuple[int, int]]:
    """(epoch, start) pairs of ``epochFileCheckpoint``; its CRC must fit, 0 means unchecked."""
    path = replica / "epochFileCheckpoint"
    lines = path.read_text(encoding="ascii").split("\n")
    entries = lines[2:-1]
    if len(lines) < 3 or lines[-1] != "" or not lines[0].isdigit() or int(lines[0]) != len(entries):
        raise Unreadable(f"{path}: line 1 says {lines[0]!r} entries, {len(entries)} follow")
    found = zlib.crc32("".join(entry + "\n" for entry in entries).encode()) & 0x7FFFFFFF
    if int(lines[1]) not in (0, found):
        raise Unreadable(f"{path}: CRC is {found}, line 2 says {lines[1]}")
    pairs = [tuple(int(number) for number in entry.split("-")) for entry in entries]
    epochs = [(pair[0], pair[1]) for pair in pairs]
    if any(later[0] <= sooner[0] or later[1] < sooner[1] for sooner, later in itertools.pairwise(epochs)):
        raise Unreadable(f"{path}: entries do not rise: {entries}")
    return epochs


def read_whole_from(replica: Path) -> int:
    """A log that begins at or below it has lost older segments by age, or for room; by ``rollcall-checkpoint``."""
    crc, _, text = (replica / "rollcall-checkpoint").read_bytes().rstrip(b"\n").partition(b" ")
    if int(crc, 16) != zlib.crc32(text):
        raise Unreadable(f"{replica / 'rollcall-checkpoint'}: its CRC does not match")
    return int(json.loads(text).get("wholeFrom", 0))


def segments(replica: Path) -> list[tuple[int, Path]]:
    """(first offset, file) of each segment, in order; there must be no hole."""
    found = sorted(
        (int(path.name), path) for path in (replica / "commitlog").iterdir() if re.fullmatch(r"\d{20}", path.name)
    )
    for (base, path), (following, _) in itertools.pairwise(found):
        if base + path.stat().st_size != following:
            raise Unreadable(f"{path}: ends at {base + path.stat().st_size}, the next segment begins at {following}")
    return found


class Log:
    """The commit log of one replica, read once from its first byte to its end."""

    def __init__(
        self,
        name: str,
        replica: Path,
        until: int,
        troubles: Troubles,
        take: Callable[[Record], None],
        *,
        starts: Collection[int] = (),
    ) -> None:
        """
        Read everything, each record into ``take``. Replicas are compared from their own first byte and from each of
        ``starts`` on, up to ``until``.
        """
        self.name = name
        self._take = take
        self.record_count = self.end = self.aged = 0  # aged: messages of the ledger that it has lost by age
        # Below the confirm offset of its set (down, or still catching up); begins late, as it may; a learner's.
        self.is_short = self.is_late = self.is_part = False
        # As of where its newest whole telling says where queues go on; of the one that is being read, its next part.
        self.told_since, self._telling = -1, (-1, 0)
        self._next_queue_offset: dict[tuple[str, int], int] = {}
        self._troubles = troubles
        files = segments(replica)
        self.start = files[0][0] if files else 0
        digests = {start: hashlib.sha256() for start in {self.start, *starts}}
        for base, path in files:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                is_full = self._read_segment(base, content, until, digests)
            if not is_full:
                break
        self.digests = {start: digest.hexdigest() for start, digest in digests.items()}

    def _read_segment(self, base: int, content: mmap.mmap, until: int, digests: Mapping[int, hashlib._Hash]) -> bool:
        """Whether the segment was full, so that the log goes on in the next one."""
        position = 0
        while position + 8 <= len(content):
            size, magic = struct.unpack_from(">II", content, position)
            offset = base + position
            if magic == MAGIC_BLANK:
                if offset < until:
                    _update(digests, offset, content[position : position + 8])
                self.end = base + len(content)
                return True
            if magic == 0 and size == 0:
                return False
            if magic not in (MAGIC_V1, MAGIC_V2) or size < 91 or position + size > len(content):
                self._troubles.add("damaged", f"{self.name}: no record at {offset}: size {size}, magic {magic:#010x}")
                return False
            raw = content[position : position + size]
            self._keep(offset, raw, magic)
            if offset < until:
                _update(digests, offset, raw)
            position += size
            self.end = base + position
        return position >= len(content)

    def _keep(self, offset: int, raw: bytes, magic: int) -> None:
        try:
            record, claimed_offset, is_body_intact = decode_record(offset, raw, magic)
        except (struct.error, UnicodeDecodeError, IndexError) as error:
            self._troubles.add("damaged", f"{self.name}: the record at {offset} cannot be read: {error}")
            return
        self.record_count += 1
        self._take(record)
        if record.topic == "ROLLCALL_SYS_QUEUES" and record.told.startswith("["):
            since, number, is_last, _ = json.loads(record.told)
            is_next = number == 0 or (since, number) == self._telling
            self._telling = (since, number + 1) if is_next else (-1, 0)
            self.told_since = max(self.told_since, self._telling[0]) if is_last else self.told_since
        if claimed_offset != offset:
            self._troubles.add(
                "misplaced", f"{self.name}: the record at {offset} says that it lies at {claimed_offset}"
            )
        if not is_body_intact:
            self._troubles.add("damaged", f"{self.name}: the body of {record.key} at {offset} does not have its CRC")
        queue = (record.topic, record.queue_id)
        expected = self._next_queue_offset.get(queue, record.queue_offset)
        if record.queue_offset != expected:
            self._troubles.add(
                "queue", f"{self.name}: {queue} goes from {expected - 1} to {record.queue_offset} at {offset}"
            )
        self._next_queue_offset[queue] = record.queue_offset + 1


def _update(digests: Mapping[int, hashlib._Hash], offset: int, raw: bytes) -> None:
    for start, digest in digests.items():
        if offset >= start:
            digest.update(raw)


def decode_record(offset: int, raw: bytes, magic: int) -> tuple[Record, int, bool]:
    """The record, where it says it lies, and whether its body has the CRC that it says."""
    _, _, body_crc, queue_id, _, queue_offset, claimed_offset, sysflag = struct.unpack_from(">IIIiiqqi", raw)
    position = 40 + 8  # born timestamp
    position += 20 if sysflag & SYSFLAG_BORN_IPV6 else 8
    position += 8  # store timestamp
    position += 20 if sysflag & SYSFLAG_STORE_IPV6 else 8
    position += 4 + 8  # reconsume times, prepared offset
    (body_size,) = struct.unpack_from(">i", raw, position)
    body = raw[position + 4 : position + 4 + body_size]
    position += 4 + body_size
    if magic == MAGIC_V1:
        topic_size, position = raw[position], position + 1
    else:
        (topic_size,) = struct.unpack_from(">h", raw, position)
        position += 2
    topic = raw[position : position + topic_size].decode()
    position += topic_size
    (properties_size,) = struct.unpack_from(">h", raw, position)
    properties = raw[position + 2 : position + 2 + properties_size].decode()
    record = Record(
        offset=offset,
        key=property_of(properties, "UNIQ_KEY"),
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        body_sha256=hashlib.sha256(body).hexdigest(),
        told=property_of(properties, "QUEUES"),
    )
    return record, claimed_offset, zlib.crc32(body) & 0x7FFFFFFF == body_crc


def property_of(properties: str, name: str) -> str:
    """Value of a property of a record, ``""`` without it."""
    for pair in properties.split("\x02"):
        key, _, value = pair.partition("\x01")
        if key == name:
            return value
    return ""


# --- promises --------------------------------------------------------------------------------------------------------

_PROMISE = "key, set_name, topic, queue_id, queue_offset, offset, body_sha256"
_RECORD = "key, topic, queue_id, queue_offset, offset, body_sha256"


class Promises:
    """The promises of the ledger, in a database file; the log of one replica at a time is held against them."""

    def __init__(self, promises: Iterable[Promise]) -> None:
        """Takes all of them; close it, or use it in a ``with`` statement."""
        self._folder = tempfile.TemporaryDirectory(prefix="audit-")
        self._rows = sqlite3.connect(Path(self._folder.name) / "audit.db", isolation_level=None)
        self._rows.executescript(
            f"PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA temp_store=FILE; PRAGMA cache_size=-{CACHE_KIB};"
            f"CREATE TABLE promises ({_PROMISE}); CREATE TABLE records ({_RECORD});"
        )
        try:
            self._insert(
                "INSERT INTO promises VALUES (?,?,?,?,?,?,?)", ((p.key, p.set_name, *_told(p)) for p in promises)
            )
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Promises:
        return self

    def __exit__(self, *_: object) -> None:
        self._rows.close()
        self._folder.cleanup()

    def _insert(self, order: str, rows: Iterable[tuple[object, ...]]) -> None:
        # One transaction: each row by itself would be a write of its own.
        self._rows.execute("BEGIN")
        self._rows.executemany(order, rows)
        self._rows.execute("COMMIT")

    def sets(self) -> dict[str, int]:
        """Number of promises of each set."""
        return dict(self._rows.execute("SELECT set_name, count(*) FROM promises GROUP BY set_name"))

    def of_set(self, name: str) -> Iterator[Promise]:
        """In the order of the ledger."""
        found = self._rows.execute("SELECT * FROM promises WHERE set_name = ? ORDER BY rowid", (name,))
        return (_promise(row) for row in found)

    def end(self, name: str) -> int:
        """One above the highest offset that was promised in a set; 0 without any."""
        (highest,) = self._rows.execute("SELECT max(offset) FROM promises WHERE set_name = ?", (name,)).fetchone()
        return 0 if highest is None else int(highest) + 1

    def middle(self, starts: Mapping[str, int]) -> Promise | None:
        """One from the middle of the ledger of a set, at or behind where its logs begin; None if there is none."""
        for name, start in starts.items():
            found = self._rows.execute(
                "SELECT * FROM promises WHERE set_name = :name AND offset >= :start ORDER BY rowid LIMIT 1"
                " OFFSET (SELECT count(*) / 2 FROM promises WHERE set_name = :name AND offset >= :start)",
                {"name": name, "start": start},
            ).fetchone()  # fmt: skip
            if found is not None:
                return _promise(found)
        return None

    def read_log(
        self, name: str, replica: Path, until: int, troubles: Troubles, *, starts: Collection[int] = ()
    ) -> Log:
        """Read a replica's log; its records take the place of those of the last one."""
        self._rows.executescript("DROP INDEX IF EXISTS by_key; DELETE FROM records;")
        batch: list[Record] = []

        def flush() -> None:
            self._insert("INSERT INTO records VALUES (?,?,?,?,?,?)", ((r.key, *_told(r)) for r in batch))
            batch.clear()

        def take(record: Record) -> None:
            batch.append(record)
            if len(batch) >= BATCH_RECORDS_MAX:
                flush()

        log = Log(name, replica, until, troubles, take, starts=starts)
        flush()
        self._rows.execute("CREATE INDEX by_key ON records (key)")
        return log

    def with_records(self, name: str) -> Iterator[tuple[Promise, list[Record]]]:
        """Every promise of a set, in the order of the ledger, with the records of its key in the log read last."""
        found = self._rows.execute(
            "SELECT p.rowid, p.*, r.* FROM promises p LEFT JOIN records r ON r.key = p.key"
            " WHERE p.set_name = ? ORDER BY p.rowid, r.offset",
            (name,),
        )
        for _, rows in itertools.groupby(found, key=lambda row: row[0]):
            whole = list(rows)
            yield _promise(whole[0][1:8]), [_record(row[8:]) for row in whole if row[8] is not None]


def _told(one: Promise | Record) -> tuple[object, ...]:
    return one.topic, one.queue_id, one.queue_offset, one.offset, bytes.fromhex(one.body_sha256)


def _promise(row: Sequence[object]) -> Promise:
    return Promise(**dict(zip(_PROMISE.split(", "), (*row[:-1], _hex(row[-1])), strict=True)))  # type: ignore[arg-type]


def _record(row: Sequence[object]) -> Record:
    return Record(**dict(zip(_RECORD.split(", "), (*row[:-1], _hex(row[-1])), strict=True)))  # type: ignore[arg-type]


def _hex(digest: object) -> str:
    return digest.hex() if isinstance(digest, bytes) else ""


# --- audit -----------------------------------------------------------------------------------------------------------


def confirm_of(replicas: Mapping[str, Path], troubles: Troubles) -> int:
    """The highest confirm offset that a replica of a set has stored."""
    confirms = [0]
    for replica, path in replicas.items():
        try:
            confirms.append(read_confirm(path))
        except (OSError, Unreadable) as error:
            troubles.add("damaged", f"{replica}: {error}")
    return max(confirms)


def late_starts(replicas: Mapping[str, Path]) -> dict[str, int]:
    """First byte of each log that does not begin at 0, and may: a learner's, or one that is whole from there."""
    starts: dict[str, int] = {}
    for replica, path in replicas.items():
        with contextlib.suppress(OSError, ValueError, Unreadable):  # told when it is read
            files = segments(path)
            if files and files[0][0] > 0 and (is_learner(replica, path) or read_whole_from(path) >= files[0][0]):
                starts[replica] = files[0][0]
    return starts


def is_learner(replica: str, path: Path) -> bool:
    """By the fleet file beside ``data/``, or beside ``disks/``. Raises ``ValueError``: it is no TOML."""
    for folder in (path.parents[1], *path.parents[3:4]):
        file = folder / "rollcall.toml"
        if file.exists():
            return bool(tomllib.loads(file.read_text()).get("brokers", {}).get(replica, {}).get("is_learner"))
    return False


def audit_up_to(
    confirm: int, name: str, replicas: Mapping[str, Path], promises: Promises, troubles: Troubles, *, tries: int = 5
) -> dict[str, int]:
    """Audit one broker set, of which ``confirm`` was read before anything else; troubles are added, counts returned."""
    before = troubles.copy()
    logs: list[Log] = []
    late = late_starts(replicas)
    # An acknowledged byte counts as confirmed: right after a kill the checkpoint is a flush interval old, and logs that
    # differ behind it would pass for equal.
    until = max(confirm, promises.end(name))
    for replica, path in replicas.items():
        try:
            log = promises.read_log(replica, path, until, troubles, starts=late.values())
            if log.start != late.get(replica, 0) and log.start == late_starts({replica: path}).get(replica):
                raise FileNotFoundError(f"{path} has lost its first segment")
        except (OSError, ValueError, Unreadable) as error:
            # A segment went by age meanwhile: again from the listing on.
            if isinstance(error, FileNotFoundError) and tries > 1:
                troubles.lines, troubles.counts = before.lines, before.counts
                return audit_up_to(confirm, name, replicas, promises, troubles, tries=tries - 1)
            troubles.add("damaged", f"{replica}: {error}")
            continue
        logs.append(log)
        log.is_late = replica in late
        log.is_part = log.is_late and is_learner(replica, path)
        log.is_short = log.end < confirm
        if log.is_short:
            troubles.add("short", f"{log.name}: ends at {log.end}, confirm of the set is {confirm}")
        elif log.is_late and not log.is_part and log.told_since < log.start:
            troubles.add("lost", f"{log.name}: begins at {log.start}, no whole telling says where its queues go on")
        _audit_promises(log, promises.with_records(name), troubles)
    # The longest first: those that begin later are held against it.
    level = sorted((log for log in logs if not log.is_short), key=lambda log: (log.is_part, log.start))
    _audit_equality(level, until, troubles)
    _audit_epochs({log.name: replicas[log.name] for log in level}, until, troubles, late)
    if logs and all(log.is_part for log in logs):
        troubles.add("lost", f"{name}: no replica has the log from 0 on")
    counts = {
        "acked": promises.sets().get(name, 0),
        "audited_replicas": len(logs),
        "records": min((log.record_count for log in logs), default=0),
        "confirm": confirm,
        "bytes_compared": min((log.end for log in logs), default=0),
    }
    for what in (what for what, count in counts.items() if count == 0):
        troubles.add("nothing", f"{name}: {what} is 0")
    if len(replicas) == 1:
        troubles.add("nothing", f"{name}: only one replica, nothing to compare with")
    aged = max((log.aged for log in logs if not log.is_part), default=0)
    return {**counts, "aged": aged} if aged else counts


def _audit_promises(log: Log, promises: Iterable[tuple[Promise, list[Record]]], troubles: Troubles) -> None:
    for promise, found in promises:
        if not found and log.is_short and promise.offset is not None and promise.offset >= log.end:
            troubles.add("behind", f"{log.name}: {promise.key}, acknowledged at {promise.offset}, ends at {log.end}")
            continue
        # It began behind this message, and never owed it. Of one without an offset that cannot be told apart; the whole
        # logs of the set owe it.
        if not found and log.is_late and (promise.offset is None or promise.offset < log.start):
            log.aged += 1
            continue
        if not found:
            troubles.add("lost", f"{log.name}: {promise.key}, acknowledged at {promise.offset}, is not there")
            continue
        if len(found) > 1:
            places = [record.offset for record in found]
            troubles.add("duplicated", f"{log.name}: {promise.key} is there {len(found)} times, at {places}")
        record = found[0]
        told = (promise.topic, promise.queue_id, promise.body_sha256, promise.offset, promise.queue_offset)
        has = (
            record.topic,
            record.queue_id,
            record.body_sha256,
            None if promise.offset is None else record.offset,
            None if promise.queue_offset is None else record.queue_offset,
        )
        if told != has:
            troubles.add("altered", f"{log.name}: {promise.key}: acknowledged as {told}, is {has}")


def _audit_equality(logs: Sequence[Log], until: int, troubles: Troubles) -> None:
    for log in logs[1:]:
        start = max(log.start, logs[0].start)
        is_comparable = log.start == logs[0].start or (log.is_late if log.start == start else logs[0].is_late)
        if is_comparable and log.digests[start] != logs[0].digests[start]:
            troubles.add("unequal", f"{log.name} and {logs[0].name} differ in their logs before offset {until}")
        elif not is_comparable:
            troubles.add("unequal", f"{log.name} begins at {log.start}, {logs[0].name} at {logs[0].start}")


def _audit_epochs(replicas: Mapping[str, Path], until: int, troubles: Troubles, late: Mapping[str, int]) -> None:
    files: dict[str, list[tuple[int, int]]] = {}
    for replica, path in replicas.items():
        try:
            # An epoch without a record yet is known to its master only.
            files[replica] = [entry for entry in read_epochs(path) if entry[1] < until]
        except (OSError, ValueError, Unreadable) as error:
            troubles.add("epochs", f"{replica}: {error}")
    if not files:
        return
    first, *others = files
    if not files[first]:
        troubles.add("nothing", f"{first}: no epoch begins before {until}")
    for replica in others:
        begun = max(late.get(first, 0), late.get(replica, 0))
        found, expected = (_covering(files[one], begun, until) for one in (replica, first))
        if found != expected:
            troubles.add("epochs", f"{replica} has epochs {found}, {first} has {expected}, before {until}")


def _covering(epochs: Sequence[tuple[int, int]], begun: int, until: int) -> list[tuple[int, int]]:
    """Those that have a byte at or behind ``begun``."""
    ends = [start for _, start in epochs[1:]] + [until]
    return [entry for entry, end in zip(epochs, ends, strict=True) if end > begun]


def broker_directories(root: Path) -> dict[str, dict[str, Path]]:
    """Set -> broker -> data directory, from ``root/data`` and each machine's disk: whatever holds a commit log."""
    sets: dict[str, dict[str, Path]] = defaultdict(dict)
    for path in sorted((*root.glob("data/*"), *root.glob("disks/*/data/*"))):
        if (path / "commitlog").is_dir():
            sets[path.name.rpartition("-")[0] or path.name][path.name] = path
    return sets


def ledger_file(root: Path) -> Path:
    """The ledger of the producers of ``root``, or of those on the machine that is the client."""
    of_a_machine = root / "disks/client/ledger.jsonl"
    return of_a_machine if of_a_machine.exists() else root / "ledger.jsonl"


def audit(
    sets: Mapping[str, Mapping[str, Path]], promises: Promises, *, has_retention: bool = False
) -> tuple[dict[str, int], Troubles]:
    """Audit every set; returns sums of counts, and troubles. ``has_retention``: messages may go by age."""
    troubles = Troubles()
    totals: dict[str, int] = defaultdict(int)
    if not sets:
        troubles.add("nothing", "no commit log was found")
    for name in promises.sets().keys() - sets.keys():
        for promise in promises.of_set(name):
            troubles.add("lost", f"{promise.key} was acknowledged by set {name}, of which there is no replica")
    for name, replicas in sets.items():
        counts = audit_up_to(confirm_of(replicas, troubles), name, replicas, promises, troubles)
        for what, count in counts.items():
            totals[what] += count
        if counts.get("aged") and not has_retention:
            troubles.add("aged", f"{name}: {counts['aged']} messages are gone by age, and --retention was not said")
    return dict(totals), troubles


# --- self-test -------------------------------------------------------------------------------------------------------


def self_test(
    sets: Mapping[str, Mapping[str, Path]], promises: Promises, middle: Promise
) -> Iterator[tuple[str, bool, str]]:
    """(fault, whether it was found, by which words) for each fault, made at ``middle`` in a copy of one replica."""
    name = middle.set_name
    victim = max(sets[name].keys() - late_starts(sets[name]).keys() or sets[name].keys())
    for fault, damage, kinds in (
        ("one acknowledged record removed", "remove-record", ("lost",)),
        ("one byte of a body flipped", "flip-body", ("damaged", "altered")),
        ("one byte outside any checksum flipped", "flip-header", ("unequal",)),
        ("one epoch changed, its checksum made to fit", "change-epoch", ("epochs",)),
    ):
        with tempfile.TemporaryDirectory(prefix="audit-") as folder:
            copy, troubles = Path(folder) / victim, Troubles()
            # Before the copy: where a producer goes on, the others confirm more than the copy has, and as a replica
            # that is behind it would be compared with none.
            confirm = confirm_of(sets[name], troubles)
            _copy_replica(sets[name][victim], copy)
            faults = Path(__file__).with_name("audit_faults.py")
            subprocess.run([sys.executable, "-I", faults, damage, copy, str(middle.offset)], check=True)
            audit_up_to(confirm, name, {**sets[name], victim: copy}, promises, troubles)
        found = [kind for kind in kinds if troubles.counts.get(kind)]
        yield fault, bool(found), troubles.lines[found[0]][0] if found else "nothing was found"


def _copy_replica(source: Path, target: Path) -> None:
    (target / "commitlog").mkdir(parents=True)
    for _, path in segments(source):
        shutil.copyfile(path, target / "commitlog" / path.name)
    for name in ("checkpoint", "epochFileCheckpoint", "rollcall-checkpoint"):
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(source / name, target / name)


# --- command ---------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: everything that was promised is there, and with ``--self-test`` every fault was found."""
    parser = argparse.ArgumentParser(description="Audit acknowledged messages against the raw files of every replica.")
    parser.add_argument("directory", type=Path, help="where ledger.jsonl and data/ are, or disks/, e.g. .demo")
    parser.add_argument("--json", action="store_true", help="print one JSON object; what is wrong goes to stderr")
    parser.add_argument("--self-test", action="store_true", help="damage copies and see whether it is noticed")
    parser.add_argument("--retention", action="store_true", help="messages go by age: what a log began behind is fine")
    options = parser.parse_args(arguments)
    try:
        promises = Promises(read_ledger(ledger_file(options.directory)))
        sets = broker_directories(options.directory)
    except (OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"audit: {error!r}\n")
        return 2
    with promises:
        return report(sets, promises, options)


def report(sets: Mapping[str, Mapping[str, Path]], promises: Promises, options: argparse.Namespace) -> int:
    """Audit and print; returns the exit code."""
    totals, troubles = audit(sets, promises, has_retention=options.retention)
    kinds = ("lost", "behind", "duplicated", "altered", "unequal", "damaged", "epochs")
    found = {kind: troubles.counts.get(kind, 0) for kind in kinds}
    for lines in troubles.lines.values():
        (sys.stderr if options.json else sys.stdout).writelines(f"  {line}\n" for line in lines)
    counted = "  ".join(f"{what} {count:,}" for what, count in {**totals, **found}.items())
    is_good = troubles.total == 0
    words = f"AUDIT {'ok' if is_good else 'FAILED'}  {counted}"
    sys.stdout.write((json.dumps({**totals, **found, "troubles": troubles.total}) if options.json else words) + "\n")
    starts = {name: max([0, *late_starts(replicas).values()]) for name, replicas in sets.items()}
    middle = promises.middle(starts) if options.self_test else None
    if middle is not None:  # without one the audit has failed already
        for fault, is_found, words in self_test(sets, promises, middle):
            sys.stdout.write(f"self-test  {fault}: {'found' if is_found else 'NOT FOUND'}: {words}\n")
            is_good = is_good and is_found
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
