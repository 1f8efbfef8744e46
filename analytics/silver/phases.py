"""
The phases of a reign: their order, the columns of their stamps and durations, and the SELECT from stamps to durations.

Here: values and SQL that Spark and DuckDB share. Not here: which reports become stamps (``facts``), the
columns (``tables``).

Rule 1: the phases chain as in ``controller.core.history`` (its rules 1-3); a test compares both row by row.
Rule 2: a stamp that goes back on its clock is left out, and the next one is measured from the last good one, which is
the greatest so far: else one skewed stamp would make a negative phase and a phase that is too long.
"""

from __future__ import annotations

from collections.abc import Iterable

from rollcall_ha.controller.contract.values import Phase
from rollcall_ha.controller.contract.verdicts import Grade

LEADER_PHASES = (Phase.COMMITTED, Phase.NOTIFIED)
WINNER_PHASES = (Phase.PROMISED, Phase.ROLE_APPLIED, Phase.SERVING, Phase.FIRST_ACK)
SPANS = (Phase.DETECTED, Phase.PROPOSED, *LEADER_PHASES, *WINNER_PHASES)
"""Phases of a failover that have a duration, in their order."""

OF_OUTAGE = SPANS[:-1]
"""Those of the outage; the first acknowledgement comes when somebody sends, and that may be an hour later."""


NEXT = "\n      "


def span_column(phase: Phase) -> str:
    """Name of a phase's duration, in microseconds."""
    return f"{phase.value.replace('-', '_')}_us"


def stamp_column(phase: Phase) -> str:
    """Name of a phase's stamp, in microseconds on its reporter's clock."""
    return f"at_{phase.value.replace('-', '_')}_us"


def _chained() -> tuple[dict[Phase, str], list[str]]:
    """Each phase's duration, null where its stamp is missing or goes back; and where a stamp goes back."""
    fault, detected = "fault_age_us", "detected_age_us"
    spans = {
        Phase.DETECTED: f"CASE WHEN {fault} >= {detected} THEN {fault} - {detected} END",
        Phase.PROPOSED: detected,
    }
    backward = [f"{fault} < {detected}"]
    for phases in (LEADER_PHASES, WINNER_PHASES):
        for number, phase in enumerate(phases):
            stamp, earlier = stamp_column(phase), ", ".join(map(stamp_column, phases[:number]))
            before = f"greatest(0, {earlier})" if earlier else "0"
            since = f"{stamp} - {before}" if earlier else stamp
            spans[phase] = f"CASE WHEN {stamp} >= {before} THEN {since} END"
            backward.append(f"{stamp} < {before}")
    return spans, backward


def _count(conditions: Iterable[str]) -> str:
    return f"{NEXT} + ".join(f"CASE WHEN {condition} THEN 1 ELSE 0 END" for condition in conditions)


_SPANS, _BACKWARD = _chained()
_NAMES = tuple(map(span_column, OF_OUTAGE))
# A first election has no fault: its missing detection is no gap in the record.
_OF_FAILOVERS = dict.fromkeys((Phase.DETECTED, Phase.PROPOSED), "is_failover AND ")
_MISSING = (f"{_OF_FAILOVERS.get(phase, '')}{span_column(phase)} IS NULL" for phase in SPANS)
_LONGEST = (f"WHEN {name} = longest_us THEN '{phase.value}'" for name, phase in zip(_NAMES, OF_OUTAGE, strict=True))

# An unknown bound stays null: "greatest" skips nulls, and would make it "the fault was seen". A wait that is longer
# than its phase began before SERVING, and is part of the outage. Of two equal phases the earlier one dominates. An
# unknown loss stays null: as 0 it would make the sum of a month look proven.
PHASES_SELECT = f"""
SELECT *,
       CASE WHEN total_us IS NOT NULL THEN greatest(total_us - known_us,
         least(0, total_us + coalesce(total_uncertainty_us, 0) - known_us)) END AS unattributed_us,
       total_us + coalesce(total_uncertainty_us, 0)
         + CASE WHEN alive_age_us IS NOT NULL THEN greatest(0, alive_age_us - coalesce(fault_age_us, 0)) END
         AS total_us_max,
       CASE WHEN told_wait_us IS NOT NULL AND first_ack_us IS NOT NULL THEN least(told_wait_us, first_ack_us) END
         AS waited_us,
       CASE {f"{NEXT}  ".join(_LONGEST)} END AS dominating_phase,
       {_count(_MISSING)} AS missing_phases,
       CASE WHEN grade = '{Grade.PROVEN}' THEN 0 WHEN grade <> '{Grade.UNKNOWN}' THEN bound_bytes END AS loss_bytes
FROM (SELECT *, greatest({", ".join(_NAMES)}) AS longest_us,
       {f"{NEXT} + ".join(f"coalesce({name}, 0)" for name in _NAMES)} AS known_us
FROM (SELECT *,
       {f",{NEXT}".join(f"{sql} AS {span_column(phase)}" for phase, sql in _SPANS.items())},
       {_count(_BACKWARD)} AS backward_stamps
FROM reigns) AS chained) AS compared
"""
