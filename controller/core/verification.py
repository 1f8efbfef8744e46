"""
Rules that a record of events must keep, checked on the record alone.

Here: the walk along a hash chain, the rules that one election shows by itself, and the walk along one whole record; all
over lines as they were written. Not here: reading files (``controller.runtime.verify``), many records at once by Spark
(``analytics.checks.verify``), the state of a running fleet (``controller.core.invariants``).
Rule 1: the chain is over the text of a line with its own hash blanked. Text, not a decoded record: fields that were
added later have no part in an old event's hash.
Rule 2: an event of an unknown kind or version is still a link of the chain.
Rule 3: a gap in the input is not a violation: a fleet whose first events are not there begins a new walk, and is
counted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from rollcall_ha.controller.contract.events import EventRecord, FleetRestored, MasterElected, MasterEntered
from rollcall_ha.controller.contract.values import EventRef, Frozen
from rollcall_ha.controller.contract.verdicts import CandidateVerdict
from rollcall_ha.controller.core.explain import checked_rules

CHAIN_FIELD = b'"chain":"'
HASH_DIGITS = 64
BROKEN = "BROKEN: "

_decode = msgspec.json.Decoder(EventRecord).decode


class Rule:
    """Names of the rules, as they are printed and counted."""

    CHAIN = "hash-chain"
    ORDER = "order"
    ELECTIONS = "elections-from-evidence"
    ONE_MASTER = "one-master-per-epoch"
    ONE_START = "one-start-per-epoch"
    EPOCHS = "epochs-never-fall"
    SET_EPOCHS = "set-epochs-never-fall"
    READABLE = "readable"
    ONE_FLEET = "one-fleet"
    CHECKSUM = "checksum"
    FORMAT = "format"
    ONE_STATE = "one-state"
    ALL = (CHAIN, ORDER, ELECTIONS, ONE_MASTER, ONE_START, EPOCHS, SET_EPOCHS)
    """Those that hold of records of many fleets, in any order of files."""


class ChainedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event as the walk needs it. One is made per event of the record, so it keeps no more."""

    term: int
    index: int
    ordinal: int
    chain: bytes
    """The hash that the line carries, in hex; empty: it has none."""
    blanked: bytes
    """The line without its hash."""

    def hash_after(self, previous: bytes) -> bytes:
        return hashlib.sha256(previous + self.blanked).hexdigest().encode()


class Violation(Frozen):
    """One rule that one event breaks."""

    rule: str
    text: str


def link_of(line: bytes, *, term: int, index: int, ordinal: int) -> ChainedEvent:
    """The link that a line is; the hash is looked for at its end, where it is written."""
    # From the end: a reason typed by an operator may contain ``"chain":"``, and the first one would be blanked.
    begin = line.rfind(CHAIN_FIELD) + len(CHAIN_FIELD)
    end = begin + HASH_DIGITS
    has_hash = begin >= len(CHAIN_FIELD) and line[end : end + 1] == b'"'
    return ChainedEvent(
        term=term,
        index=index,
        ordinal=ordinal,
        chain=line[begin:end] if has_hash else b"",
        blanked=line[:begin] + line[end:] if has_hash else line,
    )


def walk(before: ChainedEvent | None, link: ChainedEvent) -> list[Violation]:
    """Violations of ``link`` after ``before``, the event just before it in the same record; None: it is the first."""
    found: list[Violation] = []
    previous = before.chain if before is not None else b""
    # An event without a hash before this one: anybody could have put any events there, and the next hash would fit.
    if (before is not None and not previous) or link.chain != link.hash_after(previous):
        after = f"{before.term}.{before.index}.{before.ordinal}" if before is not None else "the beginning"
        text = "it was changed, or events between are missing"
        found.append(Violation(rule=Rule.CHAIN, text=f"does not continue the chain after {after}: {text}"))
    if before is None:
        return found
    if link.term < before.term:
        found.append(Violation(rule=Rule.ORDER, text=f"term fell from {before.term} to {link.term}"))
    # Within an entry by one, at the next entry from 0. Indexes may skip (entries without events), ordinals may not.
    is_next = link.ordinal == (before.ordinal + 1 if link.index == before.index else 0)
    if not is_next:
        text = f"ordinal {link.ordinal} follows {before.index}.{before.ordinal}: an event of an entry is missing"
        found.append(Violation(rule=Rule.ORDER, text=text))
    return found


def begins_inside(link: ChainedEvent) -> bool:
    """Whether the events before the first one of a record are elsewhere: its chain does not begin with it."""
    return link.chain != link.hash_after(b"")


def election_violations(line: bytes) -> list[Violation]:
    """
    Violations of one election by itself: it is repeated from its own record (S68), and its verdict compared with its
    evidence. An event that is not an election of a known version breaks nothing.
    """
    try:
        record = _decode(line)
    except msgspec.DecodeError as error:
        return [Violation(rule=Rule.ELECTIONS, text=f"cannot be read as an election: {error}")]
    event = record.event
    if not isinstance(event, MasterElected):
        return []
    texts = [text.removeprefix(BROKEN) for text in checked_rules([record]) if text.startswith(BROKEN)]
    seen = {replica.broker_id: replica for replica in event.evidence.replicas}
    for candidate in event.verdict.candidates:
        # The evidence is what the leader read, the verdict what it judged by: a difference is a decision about a state
        # that nobody reported.
        replica = seen.get(candidate.broker_id)
        told = None if replica is None else (replica.last_epoch, replica.max_offset, replica.heartbeat_age_ms)
        if _judged(candidate) != (told or (None, None, None)):
            texts.append(f"R14 replica {candidate.broker_id} was judged by {_judged(candidate)}, evidence says {told}")
    if (event.verdict.winner, event.verdict.master_epoch, event.verdict.sync_state_set) != (
        event.master,
        event.master_epoch,
        event.sync_state_set,
    ):
        texts.append(f"the verdict elects {event.verdict.winner}, the event {event.master}")
    return [Violation(rule=Rule.ELECTIONS, text=text) for text in texts]


def _judged(candidate: CandidateVerdict) -> tuple[int | None, int | None, int | None]:
    return candidate.last_epoch, candidate.max_offset, candidate.heartbeat_age_ms


def _place(link: ChainedEvent) -> tuple[int, int]:
    return link.index, link.ordinal


class _Key(msgspec.Struct, rename="camel"):
    """The part of a line that the chain needs; of any kind and version."""

    fleet_incarnation: str
    term: int
    index: int
    ordinal: int


_decode_key = msgspec.json.Decoder(_Key).decode


class _SetSoFar(msgspec.Struct):
    """What is remembered of one set."""

    master_epoch: int = -1
    master: int = -1
    started_epoch: int = -1
    start_offset: int | None = None
    set_epoch: int = -1


def _is_restored(line: bytes, fleet: str) -> bool:
    """Whether this event says that the record of ``fleet`` goes on as another fleet's (R7)."""
    try:
        event = _decode(line).event
    except msgspec.MsgspecError:
        return False
    return isinstance(event, FleetRestored) and event.previous_fleet == fleet


class RecordWalk:
    """All rules over one fleet's record, line by line, in its order: what one controller's journal is read with."""

    def __init__(self) -> None:
        """Before the first line."""
        self.events = 0
        self.elections = 0
        self.first_index: int | None = None
        self.last_index: int | None = None
        self.is_begun_inside = False
        """The first event continues a chain whose beginning was not given."""
        self._before: ChainedEvent | None = None
        self._has_dropped = False
        self._has_skipped = False
        self._fleet = ""
        self._sets: dict[str, _SetSoFar] = {}

    @property
    def sets(self) -> int:
        """Broker sets that were elected in, started or altered."""
        return len(self._sets)

    @property
    def fleet(self) -> str:
        """Incarnation of the last event; empty: none was read."""
        return self._fleet

    @property
    def chain(self) -> str:
        """Hash of the last event; empty: none was read."""
        return "" if self._before is None else self._before.chain.decode()

    def newest_reigns(self) -> Mapping[str, tuple[int, int]]:
        """By set, epoch and master of the newest election that was read."""
        return {name: (one.master_epoch, one.master) for name, one in self._sets.items() if one.master_epoch >= 0}

    def begin_after(self, chain: str, last: EventRef) -> None:
        """The record goes on behind ``last``, whose hash is ``chain``."""
        self._has_dropped = True
        self._before = ChainedEvent(
            term=last.term, index=last.index, ordinal=last.ordinal, chain=chain.encode(), blanked=b""
        )

    def skip_to(self, chain: str, index: int) -> None:
        """Events up to ``index`` are not on record. ``chain``: hash of the last of them; empty: not known."""
        term = 0 if self._before is None else self._before.term
        # Any ordinal: the next event comes from a later entry, and begins with 0.
        known = ChainedEvent(term=term, index=index, ordinal=0, chain=chain.encode(), blanked=b"")
        self._before = known if chain else None
        self._has_skipped = True

    def add(self, line: bytes) -> list[Violation]:
        """Violations of the next line, which comes without its line end."""
        try:
            key = _decode_key(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return [Violation(rule=Rule.READABLE, text=f"no event: {error}")]
        link = link_of(line, term=key.term, index=key.index, ordinal=key.ordinal)
        if self.events == 0 and self._before is not None and self._has_dropped and _place(link) <= _place(self._before):
            # It stands in a file that was to go with the others when a crash came between: the next start removes it.
            return []
        found: list[Violation] = []
        if self._before is None and begins_inside(link) and link.chain:
            # Events before it are elsewhere: its hash cannot be judged, and those behind it are judged by it.
            self.is_begun_inside = self.events == 0 and not self._has_skipped
        else:
            found += walk(self._before, link)
        if self._before is not None and link.index < self._before.index:
            found.append(Violation(rule=Rule.ORDER, text=f"index fell from {self._before.index} to {link.index}"))
        if self._fleet and key.fleet_incarnation != self._fleet and not _is_restored(line, self._fleet):
            text = f"it is of fleet {key.fleet_incarnation}, the one before of {self._fleet}"
            found.append(Violation(rule=Rule.ONE_FLEET, text=text))
        self._fleet, self._before = key.fleet_incarnation, link
        self.events += 1
        self.first_index = link.index if self.first_index is None else self.first_index
        self.last_index = link.index
        return found + self._event(line)

    def _event(self, line: bytes) -> list[Violation]:
        try:
            record = _decode(line)
        except msgspec.MsgspecError:
            # Rule 2: an event of a newer program. That nobody made it up is told by its hash.
            return []
        if record.set_key is None:
            return []
        found: list[Violation] = []
        event, name = record.event, str(record.set_key)
        known = self._sets.setdefault(name, _SetSoFar())
        if isinstance(event, MasterElected):
            self.elections += 1
            found += election_violations(line)
            epoch, master = int(event.master_epoch), int(event.master)
            if epoch == known.master_epoch and master != known.master:
                text = f"{name} epoch {epoch} has two masters: {known.master} and {master}"
                found.append(Violation(rule=Rule.ONE_MASTER, text=text))
            elif epoch <= known.master_epoch:
                text = f"{name} was elected in epoch {epoch} after epoch {known.master_epoch}"
                found.append(Violation(rule=Rule.EPOCHS, text=text))
            known.master_epoch, known.master = max(epoch, known.master_epoch), master
        elif isinstance(event, MasterEntered):
            epoch, start = int(event.master_epoch), event.start_offset
            if epoch == known.started_epoch and start != known.start_offset:
                text = f"{name} epoch {epoch} starts twice: at {known.start_offset} and at {start}"
                found.append(Violation(rule=Rule.ONE_START, text=text))
            known.started_epoch, known.start_offset = epoch, start
        set_epoch = getattr(event, "sync_state_set_epoch", None)
        if set_epoch is not None:
            if set_epoch < known.set_epoch:
                text = f"{name}'s SyncStateSetEpoch fell from {known.set_epoch} to {set_epoch}"
                found.append(Violation(rule=Rule.SET_EPOCHS, text=text))
            known.set_epoch = int(set_epoch)
        return found
