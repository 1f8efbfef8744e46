"""
Rules that a record of events must keep, checked on the record alone.

Here: the walk along a hash chain, and the rules that one election shows by itself; over lines as they were written.
Not here: rules over many events of one set (``analytics.verify``), the state of a running fleet
(``controller.core.invariants``).
Rule 1: the chain is over the text of a line with its own hash blanked. Text, not a decoded record: fields that were
added later have no part in an old event's hash.
Rule 2: an event of an unknown kind or version is still a link of the chain.
Rule 3: a gap in the input is not a violation: a fleet whose first events are not there begins a new walk, and is
counted.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import msgspec

from rollcall_ha.controller.contract.events import EventRecord, MasterElected
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
    ALL = (CHAIN, ORDER, ELECTIONS, ONE_MASTER, ONE_START, EPOCHS, SET_EPOCHS)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
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
