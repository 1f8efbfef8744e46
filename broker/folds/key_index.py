"""
The key index: from a message's id and keys to its place in the log, in RocketMQ's files below ``index/``.

Here: which files there are, keys of records, the mark, cuts, starts. Not here: one file (``index_file``), who feeds it
(``dispatcher``), who asks it (``broker.consuming.queries``).

Rule 1: it is a function of the visible records below ``taken_offset``: the same bytes on every replica, names of files
included, whatever was cut or lost meanwhile. It knows hashes only: who asks compares the records.
Rule 2: what counts is said by the mark, a file beside ``index/``. It is replaced when all that it counts is synced:
units, then slots, then the mark. A start goes back to it, and is fed from its offset on again.
Rule 3: whoever takes back what the mark counts lowers it, repairs the slots on disk, and overwrites units only then. In
another order a slot on disk would name the unit of another key, and its chain would go on in that one's.
Rule 4: one thread feeds. ``flush`` may run beside it on another one; what else is *Blocking* may not. A question beside
a cut finds less than there is, or ``OSError``.

A kill or a power cut between these steps leaves slots ahead of the mark. Their units were synced before them and are
not overwritten yet, so they lead back to what counts (``index_file``, rule 3).
"""

from __future__ import annotations

import re
import threading
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Self

import msgspec

from rollcall_ha.broker.folds.index_file import INT_MAX, Draft, Header, IndexDamagedError, IndexFile, Shape
from rollcall_ha.broker.protocol.java_hash import java_hash
from rollcall_ha.broker.protocol.properties import last_value
from rollcall_ha.node.files import atomic_replace, fsync_directory

FOLDER_NAME: Final = "index"
MARK_FILE_NAME: Final = "key-index-mark"
LINKS_MAX: Final = 512
"""A question follows so many links of chains, 1 ms from memory: of a key that very many records have, the newest."""
WORDS_MAX: Final = 128
"""Of one record's KEYS; a message of 32 KB of them would hold the loop for milliseconds, and the disk for more."""
HELD_FILES_MAX: Final = 3
"""Files with slots in memory, 20 MB each: the one that grows, and full ones until the next flush."""
NAMED_MS_MAX: Final = 200_000_000_000_000
"""A store time of the year 8307; names of files end before the year 10,000."""
_NAME: Final = re.compile(r"[0-9]{17}\Z")
_UNIQUE: Final = b"UNIQ_KEY\x01"
_KEYS: Final = b"KEYS\x01"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ROCKETMQ: Final = Shape()

Keyed = tuple[bytes, bytes, int, int, int, bool]
"""
Of a record: topic, properties, log offset, size, store time (ms), whether it has a place in its queue: others, which a
transaction took back or never finished, have no keys.
"""


class _Mark(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag="key-index"):
    """What counts (rule 2)."""

    taken_offset: int
    shape: Shape
    files: tuple[str, ...]
    newest: Header
    """Of the last file. The others are full, and say it themselves."""
    is_exact: bool


class _Point(msgspec.Struct, frozen=True):
    """All that is in, replaced as a whole: a flush on another thread sees one moment."""

    taken_offset: int
    files: tuple[IndexFile, ...] = ()
    newest: Header = Header()
    is_exact: bool = True
    """Whether the end time of ``newest`` is; if not, the record at ``taken_offset`` has keys, and will say it."""


_decode_mark = msgspec.json.Decoder(_Mark).decode


class KeyIndex:
    """The key index of one replica. Made by ``open``."""

    def __init__(self, root: Path, shape: Shape) -> None:
        """Empty, and nothing is done on the disk yet."""
        self._folder = root / FOLDER_NAME
        self._mark_path = root / MARK_FILE_NAME
        self._shape = shape
        self._point = self._marked = _Point(0)
        self._is_unsettled = True
        self.is_trusted = True
        """False: a sync has failed, nothing that this process says of the disk is to be believed by the next one."""
        self._lock = threading.Lock()

    @classmethod
    def open(cls, root: Path, *, valid_to: int, start: int = 0, shape: Shape = _ROCKETMQ) -> Self:
        """
        *Blocking*. The index below ``root`` of a log that holds ``[start, valid_to)``.

        What is damaged, was not flushed, or is beyond ``valid_to`` is dropped: feed it from ``taken_offset`` on. Raises
        ``OSError``.
        """
        index = cls(root, shape)
        index._folder.mkdir(mode=0o755, exist_ok=True)
        mark = _read_mark(index._mark_path)
        if mark is not None:
            index._marked = _Point(mark.taken_offset)
            if mark.shape == shape:
                index._load(mark)
        index._take_back(valid_to)
        index._settle()
        index._note(max(index.taken_offset, min(start, valid_to)))
        return index

    def _load(self, mark: _Mark) -> None:
        files: list[IndexFile] = []
        try:
            for name in mark.files:
                file = IndexFile(self._folder / name, self._shape, mark.newest)
                if name == mark.files[-1]:
                    file.attach()
                else:
                    file.read_header()
                files.append(file)
        except (IndexDamagedError, FileNotFoundError):
            file.detach()
            # A prefix stays. Where the last record of it ends is not known, and its keys may go on in the lost file: it
            # is taken again.
            end = files[-1].header.end_offset if files else 0
            self._point = _Point(end + 1, tuple(files))
            self._drop_from(end)
        else:
            self._point = _Point(mark.taken_offset, tuple(files), mark.newest, mark.is_exact)

    # --- feeding -----------------------------------------------------------------------------------------------------

    @property
    def taken_offset(self) -> int:
        """All visible records that end at or below it are in, and no other."""
        return self._point.taken_offset

    def take_all(self, records: Sequence[Keyed], end: int) -> None:
        """
        Take in the visible ``records`` of the log up to ``end``, in its order; those that are in already are left out.

        Raises ``OSError``: nothing was taken, and the same may be tried again.
        """
        if self._is_unsettled or sum(file.heads is not None for file in self._point.files) > HELD_FILES_MAX:
            # 60 million keys since the last flush: without one here memory would have no limit.
            self.flush()
        drafts = self._drafts(self._keys(records))
        for draft in drafts:
            draft.file.apply(draft)
        point = self._point
        new = tuple(draft.file for draft in drafts if draft.file not in point.files)
        newest, is_exact = (drafts[-1].header, True) if drafts else (point.newest, point.is_exact)
        self._point = _Point(max(point.taken_offset, end), point.files + new, newest, is_exact)

    def _keys(self, records: Sequence[Keyed]) -> list[tuple[int, int, int]]:
        """(hash, log offset, store time) of each key of the records that are new."""
        taken = self._point.taken_offset
        topics: dict[bytes, int] = {}
        found: list[tuple[int, int, int]] = []
        for topic, properties, offset, size, stored_at_ms, is_queued in records:
            if offset + size <= taken or not is_queued:
                continue
            before = topics.get(topic)
            if before is None:
                before = topics[topic] = java_hash(topic + b"#")
            unique, words = keys_of(properties)
            found += [
                (_hash(key, before), offset, stored_at_ms)
                for key in (unique, *words.split(b" ", WORDS_MAX)[:WORDS_MAX])
                if key
            ]
        return found

    def _drafts(self, keys: list[tuple[int, int, int]]) -> list[Draft]:
        """The units of ``keys``, written and not counted yet, by file. Raises ``OSError``: no new file is left."""
        files, newest, at = self._point.files, self._point.newest, 0
        drafts: list[Draft] = []
        made: list[IndexFile] = []
        try:
            while at < len(keys):
                if not files or newest.count >= self._shape.unit_count:
                    name = _name_for(keys[at][2], files[-1].path.name if files else "")
                    made.append(IndexFile.create(self._folder / name, self._shape, newest))
                    files = (*files, made[-1])
                    newest = made[-1].header
                draft = files[-1].draft(keys[at : at + self._shape.unit_count - newest.count])
                files[-1].write(draft)
                drafts.append(draft)
                at += draft.header.count - newest.count
                newest = draft.header
        except OSError:
            for file in made:
                file.detach()
                file.path.unlink(missing_ok=True)
            raise
        return drafts

    def _note(self, taken_offset: int) -> None:
        self._point = msgspec.structs.replace(self._point, taken_offset=taken_offset)

    # --- durable -----------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """
        *Blocking*. All that was taken before the call is durable on return.

        Raises ``OSError``: of a write, try again; of a sync, stop (``node.files``).
        """
        with self._lock:
            if self._is_unsettled:
                self._settle()
            elif self._point is not self._marked:
                self._flush(self._point)

    def _flush(self, point: _Point) -> None:
        for file in point.files:
            if file.heads is not None:
                file.sync(point.newest if file is point.files[-1] else file.header)
        self._write_mark(point)
        for file in point.files[:-1]:
            file.detach()

    def _write_mark(self, point: _Point) -> None:
        if not self.is_trusted:
            return
        if point.files != self._marked.files:
            fsync_directory(self._folder)
        names = tuple(file.path.name for file in point.files)
        mark = _Mark(
            taken_offset=point.taken_offset,
            shape=self._shape,
            files=names,
            newest=point.newest,
            is_exact=point.is_exact,
        )
        raw = msgspec.json.encode(mark)
        atomic_replace(self._mark_path, b"%08x %s\n" % (zlib.crc32(raw), raw), mode=0o644)
        self._marked = point

    def close(self) -> None:
        """*Blocking*. Close the files; makes nothing durable."""
        with self._lock:
            for file in self._point.files:
                file.detach()
            # A flush that was ordered before does nothing: without slots in memory it would count them unwritten.
            self._point = self._marked

    # --- taking back -------------------------------------------------------------------------------------------------

    def cut(self, end: int) -> None:
        """
        *Blocking*. Take back all records at or beyond the log offset ``end``; perhaps the one before, too: feed it from
        ``taken_offset`` on.

        Raises ``OSError``: it is taken back, and the disk does not say so yet; ``take_all`` tries that again first.
        """
        with self._lock:
            if end < self.taken_offset:
                self._is_unsettled = True
                self._take_back(end)
                self._settle()

    def clear(self, start: int = 0) -> None:
        """*Blocking*. Take back everything: the log begins anew, at ``start``. Raises ``OSError``, as ``cut``."""
        with self._lock:
            self._is_unsettled = True
            self._drop_from(0)
            self._note(start)
            self._settle()

    def has_below(self, start: int) -> bool:
        """Whether ``trim`` would remove a file."""
        return any(file.header.end_offset < start for file in self._point.files[:-1])

    def trim(self, start: int) -> None:
        """*Blocking*. Remove files with records below the log offset ``start`` only. Raises ``OSError``."""
        with self._lock:
            point = self._point
            kept = tuple(file for file in point.files if file.header.end_offset >= start or file is point.files[-1])
            if kept == point.files:
                return
            for file in set(point.files) - set(kept):
                file.detach()
            self._point = msgspec.structs.replace(point, files=kept)
            if self._is_unsettled:
                self._settle()
            else:
                self._flush(self._point)
            self._remove_unknown()

    def _take_back(self, end: int) -> None:
        if end < self.taken_offset:
            self._drop_from(end)
            if not self._point.is_exact:
                # Without this the header would say an end time that is up to a second off, for ever if no other key
                # follows: the record that it is of is taken again (rule 1).
                self._drop_from(self._point.newest.end_offset)

    def _drop_from(self, boundary: int) -> None:
        """In memory: units of records at or beyond ``boundary`` do not count any more."""
        point, files, is_exact = self._point, list(self._point.files), True
        while files and files[-1].header.begin_offset >= boundary:
            files.pop().detach()
        taken = min(boundary, point.taken_offset)
        if files:
            try:
                if files[-1].heads is None:
                    files[-1].attach()
                is_exact = files[-1].undo(boundary) and (point.is_exact or files[-1] is not point.files[-1])
            except OSError:
                # Damaged, or not to be read now. Half of it is taken back, and what that was is not known: it is built
                # anew.
                for file in files:
                    file.detach()
                files, taken = [], 0
        self._point = _Point(taken, tuple(files), files[-1].header if files else Header(), is_exact or not files)

    def _settle(self) -> None:
        """Make the disk say what is in memory (rule 3). Raises ``OSError``."""
        if self._point.taken_offset < self._marked.taken_offset or not self._point.files:
            self._write_mark(self._point)
        self._remove_unknown()
        self._flush(self._point)
        if self._point.files:
            self._point.files[-1].clear_tail()
        self._is_unsettled = False

    def _remove_unknown(self) -> None:
        known = {file.path for file in self._point.files}
        for path in self._folder.iterdir():
            if _NAME.match(path.name) and path not in known:
                path.unlink()

    # --- asking ------------------------------------------------------------------------------------------------------

    @property
    def last_ms(self) -> int:
        """Store time of the newest record with a key; 0: there is none."""
        return self._point.newest.end_ms

    @property
    def last_offset(self) -> int:
        """Log offset of the newest record with a key; 0: there is none."""
        return self._point.newest.end_offset

    def find(self, topic: bytes, key: bytes, *, begin_ms: int, end_ms: int, count_max: int) -> list[int]:
        """
        Log offsets of records of ``topic`` that may have ``key``, newest first, at most ``count_max``.

        Others have the same hash, and some were stored up to a second outside of [``begin_ms``, ``end_ms``]: compare
        the records. At most ``LINKS_MAX`` links are followed. Raises ``OSError``.
        """
        key_hash = _hash(key, java_hash(topic + b"#"))
        found: dict[int, None] = {}
        links_left = LINKS_MAX
        for file in reversed(self._point.files):
            links_left -= file.find(key_hash, begin_ms, end_ms, count_max=count_max, links_max=links_left, found=found)
            if len(found) >= count_max or links_left <= 0:
                break
        return list(found)


def _hash(key: bytes, before: int) -> int:
    """RocketMQ's hash of a key; that of int32's least number is 0."""
    return abs(java_hash(key, before)) & INT_MAX


def keys_of(properties: bytes) -> tuple[bytes, bytes]:
    """The properties UNIQ_KEY and KEYS; empty: there is none."""
    return last_value(properties, _UNIQUE), last_value(properties, _KEYS)


def _name_for(stored_at_ms: int, before: str) -> str:
    """
    The name of a file by the store time of its first record, UTC, later than the name ``before``.

    RocketMQ takes the time of the clock: no two replicas would have the same files.
    """
    name = _time_text(_EPOCH + timedelta(milliseconds=min(max(stored_at_ms, 0), NAMED_MS_MAX)))
    if name > before:
        return name
    # A master's clock behind that of the one before: RocketMQ orders its files by name.
    return _time_text(datetime.strptime(before, "%Y%m%d%H%M%S%f").replace(tzinfo=UTC) + timedelta(milliseconds=1))


def _time_text(time: datetime) -> str:
    return f"{time:%Y%m%d%H%M%S}{time.microsecond // 1000:03d}"


def _read_mark(path: Path) -> _Mark | None:
    """None: there is none, or it is damaged: nothing is known then of what the files hold. Raises ``OSError``."""
    try:
        crc, _, raw = path.read_bytes().rstrip(b"\n").partition(b" ")
        return _decode_mark(raw) if int(crc, 16) == zlib.crc32(raw) else None
    except (FileNotFoundError, ValueError, msgspec.MsgspecError):
        return None
