"""The tables and views of silver: values only. Not here: how rows of tables are made (``facts``,
``intervals``), how phases follow from stamps (``phases``).
"""

from __future__ import annotations

from rollcall_ha.analytics.codes import (
    CAUSES,
    ELECTION_KINDS,
    GRADES,
    KINDS,
    PHASES,
    STOP_REASONS,
    sql_word_of,
    words,
)
from rollcall_ha.analytics.lake.tables import BY_SET, table, view
from rollcall_ha.analytics.silver.orders import ORDERS
from rollcall_ha.analytics.silver.phases import PHASES_SELECT, stamp_column
from rollcall_ha.analytics.silver.turns import (
    FROM_LIVED,
    GENERATION_BITS,
    LIVED,
    OF_LIVED,
    SET_ID,
    SILVER_CLOCK_STEPS,
    SILVER_RESTORES,
)
from rollcall_ha.controller.contract.values import Phase

PAUSED = "paused"
"""Why a set waited for its master: an operator wanted no elections."""

NOBODY = "nobody-eligible"
"""Why a set waited for its master: all that could have been elected were gone."""

_NAMES = """
fleet string fleet incarnation: one founding of a control plane; of a restored one that which it goes back to (restores)
cluster string cluster of the broker set
broker_set string name of the broker set
"""
_SET = """
set_id bigint the broker set, as in broker_sets
day date UTC date of the row's beginning
"""

SILVER_BROKER_SETS = table(
    "silver/broker_sets",
    "One row per broker set: the names of what the other tables know by its number. In one of 2 million lakes "
    "of a million sets two share theirs.",
    "set_id",
    f"""
set_id bigint as in bronze.events, of these names
{_NAMES}
created_seq bigint seq of the first event that is known of its members
created_at timestamp its stamp
last_seq bigint seq of the last one
cleaned_at timestamp stamp of the last one, if it took the whole set away; null = the set is there
""",
    partition=BY_SET,
)

SILVER_REIGNS = table(
    "silver/reigns",
    "One row per masterEpoch: a failover where is_failover, else a first or wanted election. Its phases are in phases.",
    "set_id master_epoch",
    f"""{_SET}
master_epoch bigint the epoch that began
elected_seq bigint seq of the election
elected_at timestamp stamp of the election
term bigint Raft term of the leader that elected
kind string {words(ELECTION_KINDS)}
cause string how the fault was found: {words(CAUSES)}; the kind where nothing was stamped
is_failover boolean kind is failover or unclean, and it is not the set's first election since controllers were restored
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
total_us bigint outage, timed by the leader alone: first sign of the fault to the report of SERVING (RTO)
total_uncertainty_us bigint how much more total_us may be by its end, or by the last word of a master that was moved; \
null = nothing
told_wait_us bigint how long a sender says that it waited for the first acknowledgement; null = none says it
route_converged_us bigint latest report that routes converged, on the leader's clock from the first sign of the fault
entered_at timestamp stamp of the winner's entry into its epoch
grade string {words(GRADES)}; null = not graded yet. The newest grade counts
bound_bytes bigint as graded
cut_bytes bigint bytes that the old master threw away; null = not back yet
graded_seq bigint seq of the newest grade
served_at timestamp first moment with a serving master: fault + total_us, else entered_at; null = never
ended_at timestamp stamp of the set's next election; null = reigns still
ended_seq bigint seq of the next election
next_epoch bigint epoch that followed
end_kind string kind of the next election
end_cause string cause of the next election
lost_at timestamp first sign of the fault that ended it (next election minus its fault age); null = none was stamped
end_triggered_seq bigint seq of the event that triggered the next election
previous_failover_at timestamp stamp of the set's last failover before this reign; null = none
""",
    partition=BY_SET,
)

_BUT_STAMPS = " ".join(name for name in SILVER_REIGNS.column_names if name not in map(stamp_column, Phase))

SILVER_PHASES = view(
    "silver/phases",
    "One row per reign: what reigns knows of it but the stamps, and the phases that these tell.",
    "set_id master_epoch",
    f"""
{SILVER_REIGNS.lines(_BUT_STAMPS)}
detected_us bigint phase: from the first sign of the fault to the detection
proposed_us bigint phase: from the detection to the proposal
committed_us bigint phase: from the proposal to the commit; 0 of kind requested, whose old master serves until then
notified_us bigint phase: from the commit to the push
promised_us bigint phase: from the push to the winner's durable promise
role_applied_us bigint phase: to the role
serving_us bigint phase: to serving
first_ack_us bigint phase: to the first acknowledgement
total_us_max bigint with its uncertainty, from the last sure sign of life; equal if exact; null = no bound is known
waited_us bigint of first_ack_us: what a sender waited; null = no client says it. The rest nobody was sending
unattributed_us bigint total_us minus the phases before the first acknowledgement; 0 if they end within its bounds
dominating_phase string phase with the greatest duration; of equal ones the earliest
missing_phases int phases of the eight without a duration; the two of detection count for failovers only
backward_stamps int stamps that lie before the one before them on their clock: quarantined
loss_bytes bigint bytes lost at most: 0 if proven, the bound if bounded or refuted; null = unknown
""",
    of=(SILVER_REIGNS,),
    select=PHASES_SELECT,
)

_KIND = sql_word_of("election_kind", ELECTION_KINDS)
_CAUSE = sql_word_of("cause", CAUSES)
_IS_WON = f"kind = {KINDS['master-elected']}"

SILVER_ELECTIONS = view(
    "silver/elections",
    "One row per election that was held: with a winner or without.",
    "fleet seq",
    f"""{_NAMES}{_SET}
seq bigint of the election's event
held_at timestamp its stamp
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
""",
    of=OF_LIVED,
    select=f"""
SELECT {LIVED}, cluster, broker_set, {SET_ID}, day, stamped_at AS held_at, CASE WHEN {_IS_WON} THEN master_epoch END
           AS master_epoch, CASE WHEN {_IS_WON} THEN {_KIND} END AS kind,
       coalesce({_CAUSE}, CASE WHEN {_IS_WON} THEN {_KIND} END) AS cause, previous_master AS from_master,
       CASE WHEN {_IS_WON} THEN broker_id END AS to_master, policy, candidates, candidates_eligible, regret_bytes,
       estimated_loss_bytes, requested_by,
       triggered_seq + coalesce(generation, 0) * {1 << GENERATION_BITS} AS triggered_seq
{FROM_LIVED} WHERE kind IN ({KINDS["master-elected"]}, {KINDS["election-failed"]})
""",
)

_OF_TENURE = """
elected_seq elected_at served_at ended_at ended_seq next_epoch end_kind end_cause lost_at end_triggered_seq
"""

SILVER_TENURES = view(
    "silver/tenures",
    "One row per reign of one master, from election to the next.",
    "set_id master_epoch",
    f"""{_NAMES}{_SET}
master_epoch bigint its epoch
broker_id int the master
{SILVER_REIGNS.lines(_OF_TENURE)}
""",
    of=(SILVER_REIGNS, SILVER_BROKER_SETS),
    select="SELECT *, to_master AS broker_id FROM reigns JOIN broker_sets USING (set_id)",
)

SILVER_SYNC_STATE_SETS = table(
    "silver/sync_state_sets",
    "One row per interval in which the SyncStateSet had one content, and the set one configuration.",
    "set_id seq",
    f"""{_SET}
seq bigint of the event that made the set
began_at timestamp its stamp
sync_state_set array<int> members, sorted
set_size int how many; 0 = no member
members_needed int with fewer the set is exposed: min_in_sync, at least 2, at most expected_replicas; null = not told
sync_state_set_epoch bigint its epoch
changed_by string kind of that event
ended_at timestamp stamp of the next change; null = still so
ended_seq bigint seq of the next change
""",
    partition=BY_SET,
)

SILVER_SILENCES = table(
    "silver/silences",
    "One row per time that a replica was found silent or said goodbye, with its return; and one per process of "
    "a master whose end the registration of the next one told: gone and back with that event (returned_seq = seq).",
    "set_id seq",
    f"""{_SET}
seq bigint of the silence or goodbye, or of that registration
broker_id int the replica
incarnation_hash bigint xxhash64 of its incarnation; null = not told, of a process that a registration replaced
term bigint Raft term of the leader that found it
found_at timestamp its stamp
cause string {words(CAUSES)}; writes-stopped and drained only of elections
last_heartbeat_age_us bigint at the proposal
fault_age_us bigint first sign of the fault, at the proposal
returned_at timestamp stamp of the replica's next session, sign of life or registration; null = not back
returned_seq bigint seq of that event
returned_hash bigint xxhash64 of the incarnation that came back
is_same_incarnation boolean whether the process that came back is the one that was given up; null = not back
""",
    partition=BY_SET,
)

SILVER_STOPS = table(
    "silver/stops",
    "One row per time that writes stopped within a reign, by the master's word.",
    "set_id seq",
    f"""{_SET}
seq bigint of the report
master_epoch bigint the reign in which it happened
broker_id int its master
began_at timestamp stamp of the report minus the age that the master said
reason string {words(STOP_REASONS)}
ended_seq bigint seq of the event that ended it; null = it goes on
ended_by string writes-resumed; writes-stopped (a later stop: the end of this one was not told); replicas-cleaned; \
master-elected (the outage of that election begins with the stop)
ended_at timestamp began_at + stopped_us if writes resumed, else the stamp of the event that ended it
stopped_us bigint how long, by the master's clock; null = it did not say
""",
    partition=BY_SET,
)

SILVER_CLEANINGS = table(
    "silver/cleanings",
    "One row per time that a whole set was taken away: from then on it is not observed.",
    "set_id seq",
    f"""{_SET}
seq bigint of the event
cleaned_at timestamp its stamp
""",
    partition=BY_SET,
)

SILVER_WAITS = table(
    "silver/waits",
    "One row per time that a set without a master got none.",
    "set_id seq",
    f"""{_SET}
seq bigint of the event
wanted_at timestamp its stamp
master_epoch bigint the reign that had ended
why string {PAUSED}: elections were paused, the one that there would have been is on record; {NOBODY}: nobody was \
eligible
""",
    partition=BY_SET,
)

SILVER_TRUNCATIONS = view(
    "silver/truncations",
    "One row per report of a replica that it compared its log with the master's and cut the records beyond it.",
    "fleet seq",
    f"""{_NAMES}{_SET}
seq bigint of the report
reported_at timestamp its stamp
master_epoch bigint epoch that it joined
broker_id int the replica
cut_from bigint first byte that was cut; null = nothing
cut_to bigint end of its log before
cut_bytes bigint cut_to - cut_from; 0 = nothing
released bigint highest end that it ever acknowledged as a master
released_cut_bytes bigint acknowledged bytes among the cut ones; null = not known
""",
    of=OF_LIVED,
    # ``least`` skips nulls: without a ``released`` it would call all cut bytes acknowledged, a loss that never was.
    select=f"""
SELECT *, CASE WHEN cut_bytes = 0 THEN 0 WHEN released IS NOT NULL
          THEN greatest(0, least(released, cut_to) - cut_from) END AS released_cut_bytes
FROM (SELECT {LIVED}, cluster, broker_set, {SET_ID}, day, stamped_at AS reported_at, master_epoch, broker_id, cut_from,
             cut_to, greatest(0, coalesce(cut_to - cut_from, 0)) AS cut_bytes, released
      {FROM_LIVED} WHERE kind = {KINDS["milestone-reached"]} AND phase = {PHASES[Phase.TRUNCATED]}) AS cuts
""",
)

SILVER_LEADERSHIPS = table(
    "silver/leaderships",
    "One row per controller that began to lead.",
    "fleet seq",
    """
cluster string "/fleet"
day date UTC date of taken_at
fleet string fleet incarnation
seq bigint of the event
term bigint its term
controller string who
taken_at timestamp its stamp
is_founding boolean the fleet's first leader: its founding is on record, and nobody led between
""",
)

SILVER_CALLERS = table(
    "silver/callers",
    "Who did what on each day: the events that each proven caller's orders made.",
    "fleet cluster day caller proved_by kind",
    """
cluster string cluster; "/fleet" for orders about the whole fleet
day date UTC date
fleet string fleet incarnation
caller string admin:alice, broker:broker-a-1
proved_by string certificate, token, signature, nothing
kind string kind of the event
events bigint how many
first_at timestamp earliest stamp
last_at timestamp latest stamp
""",
)

SILVER_HORIZONS = table(
    "silver/horizons",
    "How far the events of each fleet and cluster reach.",
    "fleet cluster day generation",
    """
cluster string cluster
day date UTC date
fleet string fleet incarnation
generation bigint how often it had been restored (restores)
events bigint events on this day
first_at timestamp earliest stamp of this day
last_at timestamp stamp of the last event of this day
last_seq bigint greatest seq of this day
""",
)

SILVER_CHAINS = table(
    "silver/chains",
    "One row per run of a fleet's events, on one day, of which each continues the hash chain of the one before. A row "
    "that does not continue the row before it stands behind a hole of the record (gold/holes).",
    "fleet first_seq",
    """
fleet string fleet incarnation
generation bigint how often it had been restored (restores)
day date UTC date of its events, as in bronze
first_seq bigint seq of the first event
first_at timestamp its stamp
first_chain string the hash that its line ends with
first_text string its line without the hash, which is sha2(hash of the event before || first_text, 256); empty = it \
continues an event that is not the one before it, or has no hash
last_seq bigint seq of the last event
last_at timestamp its stamp
last_chain string its hash; empty = it has none, and what follows cannot be known to continue it
""",
)

SILVER = (
    SILVER_RESTORES,
    SILVER_CLOCK_STEPS,
    SILVER_BROKER_SETS,
    SILVER_REIGNS,
    SILVER_SYNC_STATE_SETS,
    SILVER_SILENCES,
    SILVER_STOPS,
    SILVER_CLEANINGS,
    SILVER_WAITS,
    SILVER_LEADERSHIPS,
    SILVER_CALLERS,
    SILVER_HORIZONS,
    SILVER_CHAINS,
)

SILVER_VIEWS = (SILVER_PHASES, SILVER_ELECTIONS, SILVER_TENURES, SILVER_TRUNCATIONS, *ORDERS)
