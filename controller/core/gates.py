"""
The decisions that a fleet at an older feature level takes otherwise (R15).

Here: one question to the state for each rule that changed since a released level. Not here: the rules themselves, the
tables of commands and fields (``controller.contract.levels``).

During an upgrade the older program applies the same entries by the older rule. A controller of this program that took
the new rule at once would make another state of them, under the same index (C8). So it takes it with the level.

Rule 1: pure, and asked of the state in which the entry is applied, never of the program's own level.
Rule 2: a change of a reason's words is a change, too: reasons are in events, and events are chained by their hash.
``tests/property/test_feature_level_replay.py`` replays entries of a released level, and finds a change without a gate.
Rule 3: ``evolve`` sees no fleet. A field of a set that older levels lack is put back by ``kept_to_level``, unless it
comes from an event or a field of one that ``decide`` makes from its level on only.
Rule 4: when level 1 is no longer supported, delete this module and each branch for the answer "no".
"""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.controller.core.state import FleetState, SetState

_SINCE_LEVEL_2 = ("unclean_epoch", "is_handover_due", "outage", "alive_at_ms")
"""Fields of a set that level 1 lacks, and that ``evolve`` fills from events which level 1 has, too (rule 3)."""


def keeps_true_stamps(fleet: FleetState) -> bool:
    """Whether an entry keeps its leader's time where that lies before the last one. Level 1 repeats the last one."""
    return fleet.feature_level >= 2


def kept_to_level(fleet: FleetState, before: SetState, after: SetState) -> SetState:
    """
    ``after`` without the fields that the fleet's level does not keep: ``unclean_epoch`` (R26), ``is_handover_due``, and
    the beginning of an outage; and below level 4 the failovers.

    A controller of level 1 has none of them in its snapshot. Upgraded, it would lack what the others have recorded.
    """
    if fleet.feature_level >= 4:
        return after
    if after.failovers is not before.failovers:
        after = replace(after, failovers=before.failovers)
    if fleet.feature_level >= 2:
        return after
    kept = {name: getattr(before, name) for name in _SINCE_LEVEL_2}
    return after if all(getattr(after, name) == value for name, value in kept.items()) else replace(after, **kept)


def keeps_beginnings(fleet: FleetState) -> bool:
    """Whether events are given what the state knows of the beginning of an outage."""
    return fleet.feature_level >= 2


def bounds_seqs(fleet: FleetState) -> bool:
    """Whether an alter's seq far above the last one is refused. Level 1 decides it."""
    return fleet.feature_level >= 2


def withholds_verdicts_while_recovering(fleet: FleetState) -> bool:
    """Whether an alter in a set that recovers is refused without a stored verdict (R7). Level 1 stores one."""
    return fleet.feature_level >= 2


def vetoes_shortened_goodbyes(fleet: FleetState) -> bool:
    """Whether a log that ends below its clean stop proves nothing (R3). Level 1 lets the boot id prove it."""
    return fleet.feature_level >= 2


def keeps_cleared_suspects(fleet: FleetState) -> bool:
    """Whether a suspect that was elected stays cleared when it tells what it holds (R3). Level 1 marks it again."""
    return fleet.feature_level >= 2


def keeps_digests_of_codes(fleet: FleetState) -> bool:
    """Whether state and events have the digest of a register code. Level 1 has the code."""
    return fleet.feature_level >= 2


def bounds_shown_numbers(fleet: FleetState) -> bool:
    """Whether a registration with numbers that no wire carries is refused (R21). Level 1 takes any."""
    return fleet.feature_level >= 2


def tells_cleaned_from_unknown(fleet: FleetState) -> bool:
    """Whether every command on a cleaned set is told so. Level 1 tells some of them that the set does not exist."""
    return fleet.feature_level >= 2


def keeps_callers(fleet: FleetState) -> bool:
    """Whether orders and events have their caller, and ids an owner. Level 2 has neither."""
    return fleet.feature_level >= 3


def takes_later_signs(fleet: FleetState) -> bool:
    """Whether a master that was heard after it was found silent was in service until then. To level 2 it was not."""
    return fleet.feature_level >= 3


def records_restores(fleet: FleetState) -> bool:
    """Whether the record of a fleet that is restored from a backup has an event of it. Level 3 cannot read it."""
    return fleet.feature_level >= 4


def chains_states(fleet: FleetState) -> bool:
    """Whether each entry makes a digest of the state. A controller of level 1 has none, and its snapshots neither."""
    return fleet.feature_level >= 2
