"""
What the hooks' process must still know after it was killed: its cursor, what it knows of sets, and what waits.

Here: one SQLite file and its statements. Not here: when what is delivered (``desk``), what is read (``following``).

Rule 1: events become deliveries in one transaction with the cursor behind them: none is lost between, none is twice.
Rule 2: the file is for its owner alone (0600, in a folder of 0700), has a version, and is claimed by one process
(``node.files.DataDirectory``); ``rollcall hooks retry`` and ``dead-letters`` are further, short guests.
Rule 3: a power cut may take the newest transactions, never one out of the middle (WAL, synchronous=NORMAL): cursor and
deliveries go back together, and what is read again is delivered again. That keeps "at least once" without a sync for
each delivery.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import Self

import msgspec

from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.hooks.following import Cursor
from rollcall_ha.hooks.notices import Notice, SetMemory
from rollcall_ha.node.files import DirectoryError
from rollcall_ha.probe.journal import Spot

FILE_NAME = "hooks.sqlite3"
DIRECTORY_KIND = "rollcall-hooks"
DIRECTORY_VERSION = 1
USER_VERSION = 1
BUSY_MS = 10_000
REASON_CHARS_MAX = 500
_CURSOR, _REFUSED, _LAGGING, _PROBED = "cursor", "refused", "lagging", "probed"

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
CREATE TABLE sets (name TEXT PRIMARY KEY, memory BLOB NOT NULL) STRICT;
CREATE TABLE letters (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, hook TEXT NOT NULL, lane TEXT NOT NULL, id TEXT NOT NULL,
    body BLOB NOT NULL, born_ms INTEGER NOT NULL, tries INTEGER NOT NULL, due_ms INTEGER NOT NULL,
    dead_at_ms INTEGER, reason TEXT NOT NULL
) STRICT;
CREATE INDEX dead ON letters (dead_at_ms) WHERE dead_at_ms IS NOT NULL;
CREATE TABLE certificates (serial TEXT NOT NULL, days INTEGER NOT NULL, PRIMARY KEY (serial, days)) STRICT;
"""

_encode = msgspec.json.encode
_decode_cursor = msgspec.json.Decoder(Cursor).decode
_decode_memory = msgspec.json.Decoder(SetMemory).decode
_decode_spot = msgspec.json.Decoder(Spot).decode


class Waiting(Frozen):
    """One delivery, without its body."""

    seq: int
    """Order of deliveries of a lane."""
    hook: str
    lane: str
    id: str
    born_ms: int
    tries: int
    due_ms: int


class ChangeKind(StrEnum):
    """What came of a delivery; a label of metrics."""

    DELIVERED = "delivered"
    AGAIN = "failed"
    DEAD = "dead"


class Change(Frozen):
    """The outcome of a try, to be written."""

    kind: ChangeKind
    waiting: Waiting
    at_ms: int
    tries: int = 0
    due_ms: int = 0
    reason: str = ""


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A delivery that was given up."""

    id: str
    hook: str
    set_key: str
    """cluster/name; empty: it is about no set."""
    born_at_ms: int
    dead_at_ms: int
    tries: int
    reason: str
    body: msgspec.Raw


class Store:
    """The open file. Of one thread at a time. Blocks."""

    def __init__(self, link: sqlite3.Connection) -> None:
        """See ``open`` and ``visit``."""
        self._link = link

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Make or open the file in a folder that was claimed. Raises ``DirectoryError``, ``sqlite3.Error``."""
        file = folder / FILE_NAME
        # Made by us, so that its mode is ours from the first byte on; SQLite gives its helpers the mode of the file.
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        return cls(_linked(file, is_owner=True))

    @classmethod
    def visit(cls, folder: Path) -> Self:
        """Open the file that another process may have claimed. Raises ``DirectoryError``, ``sqlite3.Error``."""
        file = folder / FILE_NAME
        if not file.exists():
            raise DirectoryError(f"{file} is not there: rollcall hooks run has not been started with these settings")
        return cls(_linked(file, is_owner=False))

    def close(self) -> None:
        self._link.close()

    # --- reading on --------------------------------------------------------------------------------------------------

    def cursor(self) -> Cursor | None:
        """Where reading goes on; None: nothing was read yet."""
        found = self._meta(_CURSOR)
        return None if found is None else _decode_cursor(found)

    def refused(self) -> str:
        """Why nothing more is read; empty: it is."""
        return (self._meta(_REFUSED) or b"").decode()

    def memories(self) -> dict[str, SetMemory]:
        """What is known of each set, by cluster/name."""
        return {name: _decode_memory(memory) for name, memory in self._link.execute("SELECT name, memory FROM sets")}

    def begin(self, cursor: Cursor, memories: Mapping[str, SetMemory]) -> None:
        """Read on from here, of a record that was not read before; what waits stays. Durable as by rule 3."""
        with self._link:
            self._link.execute("DELETE FROM sets")
            self._link.execute("DELETE FROM meta WHERE key = ?", (_REFUSED,))
            self._put(cursor, memories)
        # Lost in a power cut, reading would begin at a later end, and nobody would hear of what lies between.
        self._link.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def take(
        self,
        cursor: Cursor,
        memories: Mapping[str, SetMemory | None],
        letters: Iterable[tuple[str, Notice]],
        *,
        now_ms: int,
        refused: str = "",
    ) -> None:
        """One page (rule 1): its cursor, the sets that it changed (None: gone), and (hook, notice) to deliver."""
        with self._link:
            self._put(cursor, memories)
            self._add(letters, now_ms)
            if refused:
                self._link.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_REFUSED, refused.encode()))

    def tell_certificates(
        self, told: Iterable[tuple[str, int]], letters: Iterable[tuple[str, Notice]], *, now_ms: int
    ) -> None:
        """(serial, days) that are said now, and the deliveries that say so, in one transaction."""
        with self._link:
            self._link.executemany("INSERT OR IGNORE INTO certificates VALUES (?, ?)", told)
            self._add(letters, now_ms)

    def tell_lagging(self, groups: Sequence[str], letters: Iterable[tuple[str, Notice]], *, now_ms: int) -> None:
        """The groups that are said to lag now, and the deliveries that say what is new, in one transaction."""
        with self._link:
            self._note(_LAGGING, groups)
            self._add(letters, now_ms)

    def lagging(self) -> frozenset[str]:
        """Groups that were said to lag, and not to have caught up."""
        return frozenset(msgspec.json.decode(self._meta(_LAGGING) or b"[]"))

    def tell_felt(self, behind: Spot, letters: Iterable[tuple[str, Notice]], *, now_ms: int) -> None:
        """A probe's journal was read up to ``behind``, and the deliveries that say what is new, in one transaction."""
        with self._link:
            self._note(_PROBED, behind)
            self._add(letters, now_ms)

    def probed(self) -> Spot | None:
        """Where reading a probe's journal goes on; None: it was never read."""
        found = self._meta(_PROBED)
        return None if found is None else _decode_spot(found)

    def tell(self, letters: Iterable[tuple[str, Notice]], *, now_ms: int) -> None:
        """Deliveries of no event that was read here; the running process takes them up behind those that it knows."""
        with self._link:
            self._add(letters, now_ms)

    def certificates_told(self) -> frozenset[tuple[str, int]]:
        """(serial, days) that were said."""
        return frozenset(self._link.execute("SELECT serial, days FROM certificates"))

    def _put(self, cursor: Cursor, memories: Mapping[str, SetMemory | None]) -> None:
        self._note(_CURSOR, cursor)
        for name, memory in memories.items():
            if memory is None:
                self._link.execute("DELETE FROM sets WHERE name = ?", (name,))
            else:
                self._link.execute("INSERT OR REPLACE INTO sets VALUES (?, ?)", (name, _encode(memory)))

    def _add(self, letters: Iterable[tuple[str, Notice]], now_ms: int) -> None:
        self._link.executemany(
            "INSERT INTO letters (hook, lane, id, body, born_ms, tries, due_ms, reason) "
            "VALUES (?, ?, ?, ?, ?, 0, 0, '')",
            ((hook, notice.lane, notice.id, _encode(notice), now_ms) for hook, notice in letters),
        )

    def _note(self, key: str, value: object) -> None:
        self._link.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, _encode(value)))

    def _meta(self, key: str) -> bytes | None:
        found = self._link.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if found is None else bytes(found[0])

    # --- deliveries --------------------------------------------------------------------------------------------------

    def waiting_after(self, seq: int) -> list[Waiting]:
        """What waits and came behind ``seq``, in order."""
        rows = self._link.execute(
            "SELECT seq, hook, lane, id, born_ms, tries, due_ms FROM letters "
            "WHERE seq > ? AND dead_at_ms IS NULL ORDER BY seq",
            (seq,),
        )
        names = ("seq", "hook", "lane", "id", "born_ms", "tries", "due_ms")
        return [Waiting(**dict(zip(names, row, strict=True))) for row in rows]

    def body(self, seq: int) -> bytes:
        """The payload of a delivery that waits."""
        return bytes(self._link.execute("SELECT body FROM letters WHERE seq = ?", (seq,)).fetchone()[0])

    def settle(self, changes: Sequence[Change], *, dead_letters_max: int) -> None:
        """All of them in one transaction; of too many dead letters the oldest go."""
        with self._link:
            for change in changes:
                seq, reason = change.waiting.seq, change.reason[:REASON_CHARS_MAX]
                if change.kind is ChangeKind.DELIVERED:
                    self._link.execute("DELETE FROM letters WHERE seq = ?", (seq,))
                else:
                    dead_at_ms = change.at_ms if change.kind is ChangeKind.DEAD else None
                    self._link.execute(
                        "UPDATE letters SET tries = ?, due_ms = ?, reason = ?, dead_at_ms = ? WHERE seq = ?",
                        (change.tries, change.due_ms, reason, dead_at_ms, seq),
                    )
            if any(change.kind is ChangeKind.DEAD for change in changes):
                self._link.execute(
                    "DELETE FROM letters WHERE seq IN (SELECT seq FROM letters WHERE dead_at_ms IS NOT NULL "
                    "ORDER BY dead_at_ms DESC, seq DESC LIMIT -1 OFFSET ?)",
                    (dead_letters_max,),
                )

    def give_up_unknown(self, hooks: Sequence[str]) -> None:
        """What waits for a hook that is not in the settings any more becomes dead letters."""
        marks = ", ".join("?" * len(hooks))
        with self._link:
            self._link.execute(
                f"UPDATE letters SET dead_at_ms = born_ms, reason = 'the settings have no such hook any more' "  # noqa: S608 (marks only)
                f"WHERE dead_at_ms IS NULL AND hook NOT IN ({marks})",
                tuple(hooks),
            )

    # --- dead letters ------------------------------------------------------------------------------------------------

    def dead_letters(self, *, limit: int) -> list[DeadLetter]:
        """Oldest first."""
        rows = self._link.execute(
            "SELECT id, hook, lane, born_ms, dead_at_ms, tries, reason, body FROM letters "
            "WHERE dead_at_ms IS NOT NULL ORDER BY seq LIMIT ?",
            (limit,),
        )
        names = ("id", "hook", "set_key", "born_at_ms", "dead_at_ms", "tries", "reason")
        return [DeadLetter(**dict(zip(names, row[:-1], strict=True)), body=msgspec.Raw(row[-1])) for row in rows]

    def dead_by_hook(self) -> dict[str, int]:
        """How many there are."""
        rows = self._link.execute("SELECT hook, count(*) FROM letters WHERE dead_at_ms IS NOT NULL GROUP BY hook")
        return dict(rows.fetchall())

    def retry(self, identity: str | None, hooks: Sequence[str], *, now_ms: int) -> int:
        """
        Let dead letters wait again, behind what waits, with all tries before them; None: all. How many there were.

        Those of hooks that are not among ``hooks`` stay dead: nobody would deliver them.
        """
        marks = ", ".join("?" * len(hooks))
        which = f"dead_at_ms IS NOT NULL AND hook IN ({marks}) AND (? IS NULL OR id = ?)"
        values = (*hooks, identity, identity)
        with self._link:
            newest = self._link.execute("SELECT coalesce(max(seq), 0) FROM letters").fetchone()[0]
            # Under new numbers: the running process takes up what is behind those that it knows.
            self._link.execute(
                "INSERT INTO letters (hook, lane, id, body, born_ms, tries, due_ms, reason) "  # noqa: S608 (marks only)
                f"SELECT hook, lane, id, body, ?, 0, 0, '' FROM letters WHERE {which} ORDER BY seq",
                (now_ms, *values),
            )
            gone = self._link.execute(f"DELETE FROM letters WHERE seq <= ? AND {which}", (newest, *values))  # noqa: S608 (marks only)
            return gone.rowcount


def _linked(file: Path, *, is_owner: bool) -> sqlite3.Connection:
    link = sqlite3.connect(file, timeout=BUSY_MS / 1000, check_same_thread=False)
    try:
        _prepare(link, file, is_owner=is_owner)
    except BaseException:
        link.close()
        raise
    return link


def _prepare(link: sqlite3.Connection, file: Path, *, is_owner: bool) -> None:
    with closing(link.cursor()) as doing:
        doing.execute("PRAGMA journal_mode = WAL")
        doing.execute("PRAGMA synchronous = NORMAL")
        version = doing.execute("PRAGMA user_version").fetchone()[0]
        # A guest makes nothing: between the making of the file and of its tables, both would make them.
        if version == 0 and is_owner:
            doing.executescript(f"BEGIN;{_SCHEMA}PRAGMA user_version = {USER_VERSION};COMMIT;")
    if version not in (0, USER_VERSION) or (version == 0 and not is_owner):
        told = f"has version {version}, this program reads version {USER_VERSION}" if version else "is being made"
        raise DirectoryError(f"{file} {told}")
