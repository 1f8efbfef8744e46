"""
A copy of a lake in an object store, where other programs read it.

Here: the order in which objects are put. Not here: who may write the lake (``lake``); addresses and credentials, which
are pyarrow's: those of AWS's own programs.

Rule 1: data before logs, and the log of snapshots last: a reader finds each table in its old version or the new one,
and all versions that the newest snapshot names.
Rule 2: what is there is not put again: no name of a run or of a log's entry is ever used for something else. A copy
that was ended in the middle is finished by the next one.
Rule 3: files that the lake let go are removed last; logs stay.
Rule 4: a target holds one lake, for ever: that of its first log.
Rule 5: only object stores: there an object is there whole, or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby

import msgspec
from pyarrow import fs

from rollcall_ha.analytics.lake.delta import LOG
from rollcall_ha.analytics.lake.lake import Lake, LakeWriter
from rollcall_ha.analytics.lake.tables import FORMS, SNAPSHOTS
from rollcall_ha.analytics.refusals import JobRefused

SCHEME = "s3://"
PUTS_AT_ONCE_MAX = 8
NEWEST_CHECKPOINT = "_last_checkpoint"
"""The one name in a log whose content changes."""
FIRST_ENTRY = f"{SNAPSHOTS.path}/{LOG}/{0:020d}.json"
SUFFIXES = (".parquet", ".json", NEWEST_CHECKPOINT)
STEPS = ("files of tables", "logs of tables", "files of snapshots", "log of snapshots")
DATA = re.compile(rf"^(?:(?:{'|'.join(FORMS)})/\w+|{SNAPSHOTS.path})/\d{{8,}}-[0-9a-f]{{12}}/.+\.parquet$")
"""A file that a run wrote, below a lake's folder."""


class WrongTarget(JobRefused):
    """The target is no object store, or holds another lake; the message names it."""


class Copied(msgspec.Struct, frozen=True):
    """The objects of one copy."""

    snapshot: int
    """The newest one that the target has now."""
    put: int
    put_bytes: int
    removed: int
    kept: int
    """They were there already."""


def copy(lake: Lake, target: str, tell: Callable[[str, Iterable[None], int], Iterable[None]]) -> Copied:
    """
    Bring the copy of ``lake`` at ``target``, an address as pyarrow reads it, up to date.

    ``tell`` is given each step: its name, an iterable with an item per object that is put, and how many they are. It
    hands the items on, and may show them.

    Raises:
        LakeBusy, NoLake: The lake is being written, or there is none.
        WrongTarget: Rules 4 and 5.
        OSError: The store refuses, or does not answer. The copy is as it was, or has a part that the next one finishes.
    """
    # pyarrow takes keys out of an address, too: every process list would show them, and we would print them.
    if not target.startswith(SCHEME) or "@" in target.partition("?")[0]:
        shown = target.rpartition("@")[2]
        raise WrongTarget(
            f"{shown} is no target: name {SCHEME}BUCKET/PREFIX, without keys; a folder is for rsync or cp"
        )
    store, root = fs.FileSystem.from_uri(target)
    lake.require()
    # Held, so that no run adds a file between its listing and its log.
    with lake.writer() as writer:
        _refuse_another(lake, store, root, target)
        listed = store.get_file_info(fs.FileSelector(root, allow_not_found=True, recursive=True))
        there = {one.path.removeprefix(f"{root}/") for one in listed if one.is_file}
        mine = sorted(_files(lake, writer), key=_place)
        fresh = [name for name in mine if name not in there or name.endswith(NEWEST_CHECKPOINT)]

        def put(name: str) -> None:
            fs.copy_files(str(lake.root / name), f"{root}/{name}", fs.LocalFileSystem(), store)

        with ThreadPoolExecutor(PUTS_AT_ONCE_MAX) as pool:
            for step, found in groupby(fresh, lambda name: _place(name)[0]):
                names = list(found)
                # Entries of a log one by one: behind a missing one a reader would find a log that it cannot follow.
                each = map if step % 2 else pool.map
                for _ in tell(STEPS[step], each(put, names), len(names)):
                    pass
        # An object that no run of a lake wrote is somebody else's, though it lies below the prefix.
        gone = [name for name in there.difference(mine) if DATA.match(name)]
        for name in gone:
            store.delete_file(f"{root}/{name}")
        put_bytes = sum((lake.root / name).stat().st_size for name in fresh)
        return Copied(writer.published.number, len(fresh), put_bytes, len(gone), len(mine) - len(fresh))


def _refuse_another(lake: Lake, store: fs.FileSystem, root: str, target: str) -> None:
    first = store.get_file_info(f"{root}/{FIRST_ENTRY}")
    if not first.is_file:
        return
    with store.open_input_stream(first.path) as stream:
        # Two lakes' versions of one number would take turns, and a reader would get rows of both.
        if stream.read() != (lake.root / FIRST_ENTRY).read_bytes():
            raise WrongTarget(f"{target} holds another lake than {lake.root}: name an empty prefix, or empty that one")


def _files(lake: Lake, writer: LakeWriter) -> Iterable[str]:
    """The files that a reader needs: no lock, no mark of Spark's. The writer has swept what belongs to no version."""
    for path in (*writer.paths(), SNAPSHOTS.path):
        for file in lake.folder(path).rglob("*"):
            if file.name.endswith(SUFFIXES):
                yield str(file.relative_to(lake.root))


def _place(name: str) -> tuple[int, str]:
    """The step of an object (rule 1), and its order in it: that of a log's entries is that of their names."""
    return 2 * name.startswith(f"{SNAPSHOTS.path}/") + (f"/{LOG}/" in name), name
