"""
The identity of this replica: its directory's own files, this boot of the machine, this start of the process.

Here: reading and drawing them at start. Not here: getting an id from the controllers (``broker.core.registration``).
Rule 1: a directory belongs to one set for ever; a fleet file that says otherwise is refused.
Rule 2 (R9): marks that a start finds are written and synced again before it goes by them.
Rule 3 (R3): the incarnation of a start is on the disk before it is used. A backup that is put back later does not name
it, so the controllers see that the backup may miss bytes that this start acked.
Rule 4 (R3): a store knows the birth of a file that is made once. A start that finds another birth runs on a copy: it
is another store.
"""

from __future__ import annotations

import contextlib

import msgspec

from rollcall_ha.broker.config import BrokerConfig
from rollcall_ha.broker.core.durable import EpochMarks, Identity, ProcessIdentity, ProcessStarts
from rollcall_ha.broker.core.registration import Registration, ReplicaFacts
from rollcall_ha.broker.parts import Parts
from rollcall_ha.broker.replica_files import ReplicaFiles, StoreMark
from rollcall_ha.controller.contract.ids import Incarnation, MasterEpoch, RegisterCode, SetKey
from rollcall_ha.controller.contract.session import RevokedSerials
from rollcall_ha.controller.contract.values import CleanMark, StoredView
from rollcall_ha.epoch.model import NO_EPOCH
from rollcall_ha.node.config import ConfigError


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a start finds in the directory, or draws."""

    process: ProcessIdentity
    identity: Identity | None
    marks: EpochMarks
    stored: StoredView | None
    clean_mark: CleanMark | None
    revoked: RevokedSerials | None = None
    amiss: str = ""
    """A file that must have been there is gone: for a human."""


def disown(files: ReplicaFiles) -> None:
    """
    The next start is another store: a sync of the log failed, so pages that the kernel shows may never reach the disk.

    R3b would vouch for it: the process died, and the pages seem to live. Blocks; best effort, the disk is broken.
    """
    with contextlib.suppress(OSError):
        files.store.remove()


def remember(
    files: ReplicaFiles,
    set_key: SetKey,
    parts: Parts | None = None,
    *,
    last_epoch: MasterEpoch = NO_EPOCH,
    held_since_us: int | None = None,
) -> Remembered:
    """
    Read the directory's files; draw the identity of this start. Blocks.

    Args:
        files: Of the directory, which this process holds.
        set_key: The set that the directory has to belong to.
        parts: Of the process.
        last_epoch: The newest one of the log.
        held_since_us: Since when the directory is held, on the monotonic clock of ``parts``; None = since now.

    Raises:
        ConfigError: the directory belongs to another set.
        DirectoryError: one of the files is damaged.
        OSError: the disk.
    """
    parts = parts or Parts()
    identity = files.identity.load()
    if identity is not None and not identity.belongs_to(set_key):
        raise ConfigError(
            f"the data directory belongs to {identity.cluster}/{identity.broker_name}, the fleet file says {set_key};"
            " give this broker a directory of its own"
        )
    marks, amiss = _marks(files, last_epoch)
    stored = files.view.load()
    if stored is None and last_epoch > NO_EPOCH:
        amiss = (
            amiss
            or "view.json is gone: if the controllers lost their memory now, this replica could not report its set"
        )
    store, copied = _store(files, parts)
    amiss = amiss or copied
    starts = files.starts.load() or ProcessStarts()
    incarnation = Incarnation(parts.draw())
    files.starts.store(starts.with_start(incarnation))
    return Remembered(
        process=ProcessIdentity(
            incarnation=incarnation,
            boot_id=parts.boot_id(),
            store_id=store.store_id,
            held_since_us=parts.now_us() if held_since_us is None else held_since_us,
            previous_incarnations=starts.incarnations,
        ),
        identity=identity,
        marks=marks,
        stored=stored,
        clean_mark=files.clean_mark.load(),
        revoked=files.revoked.load(),
        amiss=amiss,
    )


def _store(files: ReplicaFiles, parts: Parts) -> tuple[StoreMark, str]:
    found, birthmark = files.store.load(), parts.birthmark(files.marks_path)
    # A copy of an hour ago, of a process that has run for months: it names that process, and lacks that hour. With the
    # id of the original it would be intact on the same boot, and in sets that sync on any machine (R3).
    is_copy = found is not None and "" not in (found.birthmark, birthmark) and found.birthmark != birthmark
    if found is None or is_copy:
        store = StoreMark(store_id=parts.draw(), birthmark=birthmark)
    else:
        # Of a program that knew no births, or of a file system that told none: taken as it is, once. As another store,
        # each replica would leave its set with its upgrade.
        store = msgspec.structs.replace(found, birthmark=birthmark or found.birthmark)
    if store != found:
        files.store.store(store)
    copied = "the data directory is a copy: this replica proves nothing and leaves its set until it has caught up"
    return store, copied if is_copy else ""


def marks_on_disk(files: ReplicaFiles) -> EpochMarks:
    """The marks that a start finds, on disk for sure when it returns. Raises ``DirectoryError``, ``OSError``."""
    marks = files.marks.load()
    # Their sync may have failed in the last process. The kernel shows them and calls the page clean: this process would
    # ack in epoch 7 by a promise that the next power cut takes. Of a new directory, too: the file tells its birth.
    files.marks.store(marks)
    return marks


def _marks(files: ReplicaFiles, last_epoch: MasterEpoch) -> tuple[EpochMarks, str]:
    marks = marks_on_disk(files)
    if marks.promised >= last_epoch:
        return marks, ""
    # An epoch is promised, durably, before its first byte is taken (R9): the marks are gone, or older ones were put
    # back. How high the last promise was nobody knows, so acks of the processes before this one prove nothing (R3).
    files.store.remove()
    files.clean_mark.remove()
    reason = (
        f"the marks say that masterEpoch {marks.promised} was promised, the log has bytes of {last_epoch}: the file "
        "was removed or put back; this replica proves nothing and leaves its set until it has caught up"
    )
    marks = marks.with_promised(last_epoch)
    files.marks.store(marks)
    return marks, reason


def registration_of(config: BrokerConfig, remembered: Remembered, new_code: RegisterCode) -> Registration:
    """What this process asks for at its registration."""
    facts = ReplicaFacts(
        set_key=config.set_key,
        process=remembered.process,
        description=config.description,
        configuration=config.configuration,
        clean_mark=remembered.clean_mark,
        new_register_code=new_code,
    )
    return Registration(facts, remembered.identity)
