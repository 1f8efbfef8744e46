"""The tables of bronze: values only. Not here: how rows are made (``events``)."""

from __future__ import annotations

from rollcall_ha.analytics.lake.tables import SET_ID_SQL, table

BRONZE_EVENTS = table(
    "bronze/events",
    "Every event once, with its line as it was read and the fields that silver needs, flat.",
    "fleet term index ordinal",
    f"""
cluster string cluster of the set; "/fleet" for events without a set
day date UTC date of stamped_at
fleet string fleet incarnation; the founding event counts to the fleet that it founds
term bigint Raft term of the entry
index bigint Raft index of the entry
ordinal bigint place among the events of the entry
seq bigint index * 2**20 + ordinal
stamped_at timestamp the entry's stamp, by the clock of the leader that proposed it
broker_set string null for events without a set
set_id bigint number of the set, of its names: {SET_ID_SQL.format(fleet="fleet")}; null for events without a set
kind int code of the event's kind (codes)
requested_by string requester: controller:c1, broker:2, admin:alice
caller string who asked, as proven: admin:alice, broker:broker-a-1; null = a controller
proved_by string certificate, token, signature, nothing; null as caller
version int schema version of the line
master_epoch bigint epoch that the event begins, reports on, grades or was decided in
broker_id int elected master, reporter, or the replica that the event is about; null = the leading controller
incarnation_hash bigint xxhash64 of that replica's incarnation
phase int milestone: code of the phase (codes)
elapsed_us bigint milestone: on the reporter's clock, since the proposal (leader) or the push (broker)
observed_us bigint milestone: on the leader's clock, from the first sign of the fault to when the phase was reached
uncertainty_us bigint milestone: how much more observed_us may be; null = it is exact
cut_from bigint truncation: first byte that was cut
cut_to bigint truncation: end of the log before the cut
released bigint truncation: highest end that the replica ever acknowledged
waited_us bigint milestone first-ack: longest wait of a sender up to it, by its own word; null = none said
is_cleaned boolean cleaning: whether it took the whole set away
stop_reason int writes stopped: code (codes)
age_us bigint writes stopped or resumed: how long before the report, by the master's clock
stopped_us bigint writes resumed: how long they had been stopped, by the master's clock
cause int code of the silence (codes); of a registration: of the end of the master's process that it replaces
election_kind int code (codes)
previous_master int election: the deposed master
previous_epoch bigint election: epoch before it
triggered_seq bigint election: seq of the event that triggered it
fault_age_us bigint election, silence or end as in cause: age of the first sign of the fault at the proposal
alive_age_us bigint election or silence: age of the last sure sign of life at the proposal; null = not known
detected_age_us bigint election or silence: age of the detection at the proposal
last_heartbeat_age_us bigint election or silence: age of the last heartbeat at the proposal
candidates int election: replicas that were judged
candidates_eligible int election: of these eligible, the winner included
regret_bytes bigint election: how much more than the winner an eligible candidate with the greatest (epoch, offset) held
estimated_loss_bytes bigint unclean election: estimate before it
policy string election: policy and version
grade int code (codes)
bound_bytes bigint grade: greatest possible loss
cut_bytes bigint grade: bytes that the old master threw away when it came back
sync_state_set array<int> the set after the event, sorted; null if the event has none
sync_state_set_epoch bigint its epoch
is_accepted boolean alter: whether it was accepted
expected_replicas int registration, configuration: replicas that the set expects from then on
min_in_sync int registration, configuration: members that a send needs; 0 = half of expected_replicas, rounded up
intactness int registration: code (codes)
controller string leadership: the new leader
chain string the hash that its line ends with; empty = it has none
continues bigint xxhash64 of the hash of the event before it, which its line was found to continue; null = not the one \
that was read with it
blanked string its line without its hash, where continues is null: the event before it may be read another time
line string the JSON text as it was read
source_file string a file that held it
""",
    partition="day",
)

BRONZE_REJECTED = table(
    "bronze/rejected",
    "Every line, or piece of a line, that gave no event, with the reason. Nothing is dropped silently.",
    "",
    """
source string hash of the file's path
source_file string where it was read
why string reason: a closed vocabulary (bronze.Why)
line string the text
""",
    partition="source",
)

BRONZE_QUALITY = table(
    "bronze/quality",
    "Input lines, per file: pieces = events + rejected; a line that is not blank gives at least one piece.",
    "source_file name",
    """
source_file string where it was read
name string lines; blank (without a text); shared (lines of several texts); pieces (texts); rejected:WHY
count bigint how many
""",
)

BRONZE_INPUTS = table(
    "bronze/inputs",
    "One row per file that was read, as it was when it was read: one that has not changed is not read again.",
    "path",
    """
path string the file
bytes bigint its size
modified_ns bigint its modification time
""",
)

BRONZE_GAPS = table(
    "bronze/gaps",
    "Every gap that a probe felt (docs/probe.md), once, however many journals have it.",
    "cluster broker_set from_at felt_ms",
    """
cluster string as the set's route names it; "" = the probe knew none
broker_set string name of the set
day date UTC date of from_at
from_at timestamp the first send that was not acknowledged in time began, by the clock of the probe's machine
felt_ms bigint from there to the first acknowledgement afterwards
near_from_at timestamp from_at less a second: clocks of probes and controllers differ
near_to_at timestamp the end of the gap and a second
stalled_ms bigint of felt_ms, what the probe's own process may have lost
sends_failed bigint sends that were not acknowledged in time
threshold_ms bigint gaps that are not longer were not told
is_over boolean false = the probe ended before the gap did
reason string of the first send that failed
""",
    partition="",
)

BRONZE = (BRONZE_EVENTS, BRONZE_REJECTED, BRONZE_QUALITY, BRONZE_INPUTS, BRONZE_GAPS)
