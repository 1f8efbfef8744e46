"""
Every table of the lake: names, columns with their exact meaning, types, keys, partitions.

Here: values only, of bronze and silver. Not here: gold (``gold_tables``), how they are computed (``bronze``,
``silver``, ``gold``), how they are published (``lake``).

Rule 1: an event belongs to (fleet, term, index, ordinal). ``seq`` = index * 2**20 + ordinal orders the events of one
fleet, because an index belongs to one term for ever; stamps order nothing, leaders' clocks are skewed.
Rule 2: ``day`` is the UTC date of the row's own beginning, taken from the entry's stamp: every copy of an event has the
same. All tables with a cluster and a day are partitioned by both.
Rule 3: a phase without a stamp is null. A duration that would be negative is null, and counted.
Rule 4 (open rows): a row whose end has not been seen has a null end. The next run that sees it writes the row again;
gold counts it up to the last event of its fleet (``horizons``). Batch and streaming are equal by this rule.
Rule 5: daily gold tables hold sums and counts of whole numbers, so that adding days gives exactly the longer period's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ORDINALS_PER_INDEX = 1 << 20
FLEET_CLUSTER = "_fleet"
"""``cluster`` of events that belong to no broker set: leadership, founding."""


@dataclass(frozen=True, slots=True)
class LakeColumn:
    """One column: its Spark type as DDL, and the meaning of its values."""

    name: str
    kind: str
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeTable:
    """One table of one layer. ``key`` is unique; ``partitions`` are the folders below it."""

    layer: str
    name: str
    meaning: str
    columns: tuple[LakeColumn, ...]
    key: tuple[str, ...]
    partitions: tuple[str, ...] = ("cluster", "day")

    @property
    def path(self) -> str:
        """Its name in manifests and below the lake's folder."""
        return f"{self.layer}/{self.name}"

    @property
    def ddl(self) -> str:
        """All columns, the partitions first."""
        return ", ".join(f"`{column.name}` {column.kind}" for column in self.columns)

    @property
    def column_names(self) -> tuple[str, ...]:
        """In the order of ``ddl``."""
        return tuple(column.name for column in self.columns)

    def schema(self) -> StructType:
        """The Spark type of a row."""
        from pyspark.sql.types import StructType

        return StructType.fromDDL(self.ddl)


def columns_of(text: str) -> tuple[LakeColumn, ...]:
    """``name type meaning`` per line; without a meaning: as the line before it says."""
    rows = [line.split(maxsplit=2) for line in text.splitlines() if line]
    return tuple(LakeColumn(row[0], row[1], row[2] if len(row) > 2 else "as above") for row in rows)


_SET = """
cluster string cluster of the broker set
day date UTC date of the row's beginning
fleet string fleet incarnation: one founding of a control plane
broker_set string name of the broker set
"""

# --- bronze ----------------------------------------------------------------------------------------------------------

BRONZE_EVENTS = LakeTable(
    layer="bronze",
    name="events",
    meaning="Every event once, with its line as it was read and the fields that silver needs, flat.",
    key=("fleet", "term", "index", "ordinal"),
    columns=columns_of(
        """
cluster string cluster of the set; "_fleet" for events without a set
day date UTC date of stamped_at_ms
fleet string fleet incarnation; the founding event counts to the fleet that it founds
term bigint Raft term of the entry
index bigint Raft index of the entry
ordinal bigint place among the events of the entry
seq bigint index * 2**20 + ordinal
stamped_at_ms bigint the entry's stamp, UTC of the leader that proposed it
broker_set string null for events without a set
kind int code of the event's kind (codes.KINDS)
requested_by string requester: controller:c1, broker:2, admin:alice
caller string who asked, as proven: admin:alice, broker:broker-a-1; null = a controller, or before feature level 3
proved_by string certificate, token, signature, nothing; null as caller
version int schema version of the line
master_epoch bigint epoch that the event begins, reports on, grades or was decided in
broker_id int elected master, reporter, or the replica that the event is about; null = the leading controller
incarnation_hash bigint xxhash64 of that replica's incarnation
phase int milestone: code of the phase (codes.PHASES)
elapsed_us bigint milestone: on the reporter's clock, since the proposal (leader) or the push (broker)
observed_us bigint milestone: on the leader's clock, from the first sign of the fault to the report
cut_from bigint truncation: first byte that was cut
cut_to bigint truncation: end of the log before the cut
released bigint truncation: highest end that the replica ever acknowledged
waited_us bigint milestone first-ack: longest wait of a sender up to it, by its own word; null = none said
is_cleaned boolean cleaning: whether it took the whole set away
stop_reason int writes stopped: code (codes.STOP_REASONS)
age_us bigint writes stopped or resumed: how long before the report, by the master's clock
stopped_us bigint writes resumed: how long they had been stopped, by the master's clock
cause int code of the silence (codes.CAUSES)
election_kind int code (codes.ELECTION_KINDS)
previous_master int election: the deposed master
previous_epoch bigint election: epoch before it
triggered_seq bigint election: seq of the event that triggered it
fault_age_us bigint election or silence: age of the first sign of the fault at the proposal
alive_age_us bigint election or silence: age of the last sure sign of life at the proposal; null = not known
detected_age_us bigint election or silence: age of the detection at the proposal
last_heartbeat_age_us bigint election or silence: age of the last heartbeat at the proposal
candidates int election: replicas that were judged
candidates_eligible int election: of these eligible, the winner included
regret_bytes bigint election: how much more than the winner an eligible candidate with the greatest (epoch, offset) held
estimated_loss_bytes bigint unclean election: estimate before it
policy string election: policy and version
grade int code (codes.GRADES)
bound_bytes bigint grade: greatest possible loss
cut_bytes bigint grade: bytes that the old master threw away when it came back
sync_state_set array<int> the set after the event, sorted; null if the event has none
sync_state_set_epoch bigint its epoch
is_accepted boolean alter: whether it was accepted
expected_replicas int registration: configured size of the set
intactness int registration: code (codes.INTACTNESS)
controller string leadership: the new leader
line string the JSON text as it was read
source_file string a file that held it
"""
    ),
)

BRONZE_REJECTED = LakeTable(
    layer="bronze",
    name="rejected",
    meaning="Every line, or piece of a line, that gave no event, with the reason. Nothing is dropped silently.",
    key=(),
    partitions=("source",),
    columns=columns_of(
        """
source string hash of the file's path
source_file string where it was read
why string reason: a closed vocabulary (bronze.Why)
line string the text
"""
    ),
)

BRONZE_QUALITY = LakeTable(
    layer="bronze",
    name="quality",
    meaning="Input lines, per file: pieces = events + rejected; a line that is not blank gives at least one piece.",
    key=("source_file", "name"),
    partitions=(),
    columns=columns_of(
        """
source_file string where it was read
name string lines; blank; shared (lines with more than one record, pages too); pieces (texts); rejected:WHY
count bigint how many
"""
    ),
)

# --- silver ----------------------------------------------------------------------------------------------------------

SILVER_REIGNS = LakeTable(
    layer="silver",
    name="reigns",
    meaning="One row per masterEpoch: a failover with its phases where is_failover, else a first or wanted election.",
    key=("fleet", "cluster", "broker_set", "master_epoch"),
    columns=columns_of(
        _SET
        + """
master_epoch bigint the epoch that began
elected_seq bigint seq of the election
elected_at_ms bigint stamp of the election
term bigint Raft term of the leader that elected
kind string first, bootstrap, failover, requested, unclean, handover
cause string how the fault was found (SilenceCause), else the kind
is_failover boolean kind is failover or unclean
from_master int deposed master; null = none
to_master int the winner
winner_hash bigint xxhash64 of the winner's incarnation
previous_epoch bigint epoch before
triggered_seq bigint seq of the event that triggered the election: the silence or goodbye of the master
set_size int members of the new SyncStateSet
regret_bytes bigint how much more than the winner an eligible candidate held; 0 = the best one won
fault_age_us bigint first sign of the fault before the proposal; null = no detection stamps
alive_age_us bigint last sure sign of life before the proposal: the fault lies between both; null = not known
detected_age_us bigint detection before the proposal
last_heartbeat_age_us bigint last heartbeat of the deposed master before the proposal
at_committed_us bigint leader's clock, from the proposal; earliest report
at_notified_us bigint as above
at_promised_us bigint winner's clock, from the push; earliest report of the elected incarnation
at_role_applied_us bigint as above
at_serving_us bigint as above
at_first_ack_us bigint as above
at_full_redundancy_us bigint as above
detected_us bigint phase: from the first sign of the fault to the detection
proposed_us bigint phase: from the detection to the proposal
committed_us bigint phase: from the proposal to the commit
notified_us bigint phase: from the commit to the push
promised_us bigint phase: from the push to the winner's durable promise
role_applied_us bigint phase: to the role
serving_us bigint phase: to serving
first_ack_us bigint phase: to the first acknowledgement
total_us bigint outage, timed by the leader alone: first sign of the fault to the report of SERVING (RTO)
total_us_max bigint the same from the last sure sign of life; equal if the fault was seen; null = no bound is known
waited_us bigint of first_ack_us: what a sender waited; null = no client says it. The rest nobody was sending
unattributed_us bigint total_us minus the phases before the first acknowledgement
dominating_phase string phase with the greatest duration; of equal ones the earliest
missing_phases int phases of the eight without a duration; the two of detection count for failovers only
backward_stamps int stamps that lie before the one before them on their clock: quarantined
route_converged_us bigint latest report that routes converged, on the leader's clock from the first sign of the fault
entered_at_ms bigint stamp of the winner's entry into its epoch
grade string proven, bounded, unknown, refuted; null = not graded yet. The newest grade counts
loss_bytes bigint bytes lost at most: 0 if proven, the bound if bounded or refuted; null = unknown
bound_bytes bigint as graded
cut_bytes bigint bytes that the old master threw away; null = not back yet
graded_seq bigint seq of the newest grade
"""
    ),
)

SILVER_ELECTIONS = LakeTable(
    layer="silver",
    name="elections",
    meaning="One row per election that was held: with a winner or without.",
    key=("fleet", "seq"),
    columns=columns_of(
        _SET
        + """
seq bigint of the election's event
held_at_ms bigint its stamp
master_epoch bigint the new epoch; null = nobody was eligible
kind string as reigns.kind; null = as above
cause string as reigns.cause; null = no detection stamps
from_master int deposed or missing master
to_master int winner; null = nobody was eligible
policy string policy and version
candidates int replicas that were judged
candidates_eligible int of these eligible, the winner included
regret_bytes bigint how much more than the winner an eligible candidate held; 0 = the best one won
estimated_loss_bytes bigint unclean: estimate before it
requested_by string who asked
triggered_seq bigint seq of the event that triggered it
"""
    ),
)

SILVER_TENURES = LakeTable(
    layer="silver",
    name="tenures",
    meaning="One row per reign of one master, from election to the next.",
    key=("fleet", "cluster", "broker_set", "master_epoch"),
    columns=columns_of(
        _SET
        + """
master_epoch bigint its epoch
broker_id int the master
elected_seq bigint seq of its election
elected_at_ms bigint stamp of its election
served_at_ms bigint first moment with a serving master: fault + total_us, else the stamp of its entry; null = never
ended_at_ms bigint stamp of the next election; null = reigns still
next_epoch bigint epoch that followed
end_kind string kind of the next election
end_cause string cause of the next election
lost_at_ms bigint first sign of the fault that ended it (next election minus its fault age); null = none was stamped
end_triggered_seq bigint seq of the event that triggered the next election
"""
    ),
)

SILVER_SYNC_STATE_SETS = LakeTable(
    layer="silver",
    name="sync_state_sets",
    meaning="One row per interval in which the SyncStateSet had one content.",
    key=("fleet", "cluster", "broker_set", "seq"),
    columns=columns_of(
        _SET
        + """
seq bigint of the event that made the set
began_at_ms bigint its stamp
sync_state_set array<int> members, sorted
set_size int how many; 0 = no member
sync_state_set_epoch bigint its epoch
changed_by int kind of that event (codes.KINDS)
ended_at_ms bigint stamp of the next change; null = still so
ended_seq bigint seq of the next change
"""
    ),
)

SILVER_SILENCES = LakeTable(
    layer="silver",
    name="silences",
    meaning="One row per time that a replica was found silent or said goodbye, with its return.",
    key=("fleet", "seq"),
    columns=columns_of(
        _SET
        + """
seq bigint of the silence or goodbye
broker_id int the replica
incarnation_hash bigint xxhash64 of its incarnation
term bigint Raft term of the leader that found it
found_at_ms bigint its stamp
cause string timeout, dead-at-once, replaced, goodbye, revoked
last_heartbeat_age_us bigint at the proposal
fault_age_us bigint first sign of the fault, at the proposal
returned_at_ms bigint stamp of the replica's next session, sign of life or registration; null = not back
returned_seq bigint seq of that event
returned_hash bigint xxhash64 of the incarnation that came back
is_same_incarnation boolean whether the process that came back is the one that was given up; null = not back
"""
    ),
)

SILVER_STOPS = LakeTable(
    layer="silver",
    name="stops",
    meaning="One row per time that writes stopped within a reign, by the master's word.",
    key=("fleet", "seq"),
    columns=columns_of(
        _SET
        + """
seq bigint of the report
master_epoch bigint the reign in which it happened
broker_id int its master
began_at_ms bigint stamp of the report minus the age that the master said
reason string too-few-in-sync, not-acknowledged, disk-full, fenced
ended_seq bigint seq of the event that ended it; null = it goes on
ended_by string writes-resumed; writes-stopped (a later stop: the end of this one was not told); replicas-cleaned; \
master-elected (the outage of that election begins with the stop)
ended_at_ms bigint began_at_ms + stopped_us if writes resumed, else the stamp of the event that ended it
stopped_us bigint how long, by the master's clock; null = it did not say
"""
    ),
)

SILVER_CLEANINGS = LakeTable(
    layer="silver",
    name="cleanings",
    meaning="One row per time that a whole set was taken away: from then on it is not observed.",
    key=("fleet", "seq"),
    columns=columns_of(
        _SET
        + """
seq bigint of the event
cleaned_at_ms bigint its stamp
"""
    ),
)

SILVER_TRUNCATIONS = LakeTable(
    layer="silver",
    name="truncations",
    meaning="One row per report of a replica that it compared its log with the master's and cut the records beyond it.",
    key=("fleet", "seq"),
    columns=columns_of(
        _SET
        + """
seq bigint of the report
reported_at_ms bigint its stamp
master_epoch bigint epoch that it joined
broker_id int the replica
cut_from bigint first byte that was cut; null = nothing
cut_to bigint end of its log before
cut_bytes bigint cut_to - cut_from; 0 = nothing
released bigint highest end that it ever acknowledged as a master
released_cut_bytes bigint acknowledged bytes among the cut ones; null = not known
"""
    ),
)

SILVER_LEADERSHIPS = LakeTable(
    layer="silver",
    name="leaderships",
    meaning="One row per controller that began to lead.",
    key=("fleet", "seq"),
    columns=columns_of(
        """
cluster string "_fleet"
day date UTC date of taken_at_ms
fleet string fleet incarnation
seq bigint of the event
term bigint its term
controller string who
taken_at_ms bigint its stamp
is_founding boolean the fleet's first leader: its founding is on record, and nobody led between
"""
    ),
)

SILVER_CALLERS = LakeTable(
    layer="silver",
    name="callers",
    meaning="Who did what on each day: the events that each proven caller's orders made.",
    key=("fleet", "cluster", "day", "caller", "proved_by", "kind"),
    columns=columns_of(
        """
cluster string cluster; "_fleet" for orders about the whole fleet
day date UTC date
fleet string fleet incarnation
caller string admin:alice, broker:broker-a-1
proved_by string certificate, token, signature, nothing
kind int kind of the event (codes.KINDS)
events bigint how many
first_at_ms bigint earliest stamp
last_at_ms bigint latest stamp
"""
    ),
)

SILVER_HORIZONS = LakeTable(
    layer="silver",
    name="horizons",
    meaning="How far the events of each fleet and cluster reach.",
    key=("fleet", "cluster", "day"),
    columns=columns_of(
        """
cluster string cluster
day date UTC date
fleet string fleet incarnation
events bigint events on this day
first_at_ms bigint earliest stamp of this day
last_at_ms bigint stamp of the last event of this day
last_seq bigint greatest seq of this day
"""
    ),
)

BRONZE = (BRONZE_EVENTS, BRONZE_REJECTED, BRONZE_QUALITY)
SILVER = (
    SILVER_REIGNS,
    SILVER_ELECTIONS,
    SILVER_TENURES,
    SILVER_SYNC_STATE_SETS,
    SILVER_SILENCES,
    SILVER_STOPS,
    SILVER_CLEANINGS,
    SILVER_TRUNCATIONS,
    SILVER_LEADERSHIPS,
    SILVER_CALLERS,
    SILVER_HORIZONS,
)
