"""
Numbers for the words of the event schema, as bronze stores them.

Here: the codes, and Spark columns between both. Not here: the meaning of the words (``controller.contract``).
Rule 1: a code is for ever; new words get new numbers. A word without a number becomes 0 (``UNKNOWN``) and is kept in
the line. A test compares these tables with the contract.
Rule 2: integers, because a Spark aggregate over text sorts where one over integers hashes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, get_args

from rollcall_ha.controller.contract.events import AnyEvent
from rollcall_ha.controller.contract.values import Phase, SilenceCause, StopReason
from rollcall_ha.controller.contract.verdicts import ElectionKind, Grade, Intactness

if TYPE_CHECKING:
    from pyspark.sql import Column

UNKNOWN = 0

KINDS: Mapping[str, int] = {
    kind.__struct_config__.tag: number for number, kind in enumerate(get_args(AnyEvent), start=1)
}
"""By the order of the union, which grows at its end (rule 1)."""

PHASES: Mapping[str, int] = {
    Phase.DETECTED: 1,
    Phase.PROPOSED: 2,
    Phase.COMMITTED: 3,
    Phase.NOTIFIED: 4,
    Phase.PROMISED: 5,
    Phase.TRUNCATED: 6,
    Phase.ROLE_APPLIED: 7,
    Phase.SERVING: 8,
    Phase.FIRST_ACK: 9,
    Phase.ROUTE_CONVERGED: 10,
    Phase.IN_SYNC: 11,
    Phase.FULL_REDUNDANCY: 12,
    Phase.FAULT: 13,
}

CAUSES: Mapping[str, int] = {
    SilenceCause.TIMEOUT: 1,
    SilenceCause.DEAD_AT_ONCE: 2,
    SilenceCause.REPLACED: 3,
    SilenceCause.GOODBYE: 4,
    SilenceCause.WRITES_STOPPED: 5,
    SilenceCause.REVOKED: 6,
    SilenceCause.DRAINED: 7,
}

ELECTION_KINDS: Mapping[str, int] = {
    ElectionKind.FIRST: 1,
    ElectionKind.BOOTSTRAP: 2,
    ElectionKind.FAILOVER: 3,
    ElectionKind.REQUESTED: 4,
    ElectionKind.UNCLEAN: 5,
    ElectionKind.HANDOVER: 6,
    ElectionKind.SWITCHOVER: 7,
}

STOP_REASONS: Mapping[str, int] = {
    StopReason.TOO_FEW_IN_SYNC: 1,
    StopReason.NOT_ACKNOWLEDGED: 2,
    StopReason.DISK_FULL: 3,
    StopReason.FENCED: 4,
    StopReason.OWN_DISK: 5,
}

GRADES: Mapping[str, int] = {Grade.PROVEN: 1, Grade.BOUNDED: 2, Grade.UNKNOWN: 3, Grade.REFUTED: 4}

INTACTNESS: Mapping[str, int] = {
    Intactness.NEW: 1,
    Intactness.SAME_INCARNATION: 2,
    Intactness.CLEAN_STOP: 3,
    Intactness.SAME_BOOT: 4,
    Intactness.SYNC_FLUSH: 5,
    Intactness.NOT_INTACT: 6,
    Intactness.SUSPECT: 7,
}


CODES: Mapping[str, Mapping[str, int]] = {
    "kind": KINDS,
    "phase": PHASES,
    "cause": CAUSES,
    "election_kind": ELECTION_KINDS,
    "stop_reason": STOP_REASONS,
    "grade": GRADES,
    "intactness": INTACTNESS,
}
"""Column of ``bronze.events`` -> its codes. The dictionary of the lake has them all."""


def words(codes: Mapping[str, int]) -> str:
    """For the meaning of a column that has any of them."""
    return ", ".join(codes)


def code_of(word: Column, codes: Mapping[str, int]) -> Column:
    """The word's code; null stays null, an unknown word is ``UNKNOWN``."""
    from pyspark.sql import functions as f

    words = f.array(*(f.lit(str(name)) for name in sorted(codes, key=lambda name: codes[name])))
    return f.array_position(words, word).cast("int")


def word_of(code: Column, codes: Mapping[str, int]) -> Column:
    """The code's word; null for null and for ``UNKNOWN``."""
    from pyspark.sql import functions as f

    words = f.array(*(f.lit(str(name)) for name in sorted(codes, key=lambda name: codes[name])))
    return f.get(words, code - 1)


def sql_word_of(code: str, codes: Mapping[str, int]) -> str:
    """``word_of`` of a column, as SQL."""
    cases = " ".join(f"WHEN {number} THEN '{word}'" for word, number in codes.items())
    return f"CASE {code} {cases} END"
