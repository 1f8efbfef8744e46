"""
Silver, what people ordered, and what lasted because of it: pauses, maintenance, switchovers, settings. Views on bronze.

Here: values only. Not here: elections that waited for a pause (``waits`` of ``tables``).

Rule 1: such events are few: their fields are read from the line when somebody asks, and bronze has no columns for them.
Rule 2: who asked is who proved it; without a proof it is the name that the record gives.
"""

from __future__ import annotations

from rollcall_ha.analytics.codes import KINDS
from rollcall_ha.analytics.lake.tables import view
from rollcall_ha.analytics.silver.turns import FLEET, FROM_LIVED, LIVED, OF_LIVED
from rollcall_ha.controller.contract.values import SwitchoverEnd

ROLLED_BACK = (SwitchoverEnd.DEADLINE, SwitchoverEnd.TARGET_LOST, SwitchoverEnd.NOT_ENTERED)
"""Ends of a switchover by which the old master keeps its set, or gets it back."""


def _told(path: str, kind: str = "string") -> str:
    """A field of the event, from its line."""
    text = f"get_json_object(line, '$.event.{path}')"
    return text if kind == "string" else f"CAST({text} AS {kind})"


_BY = "coalesce(caller, requested_by) AS ordered_by"
_WHO = """
ordered_by string who asked, as proven: admin:alice; without a proof by the name that the record gives
reason string their reason
"""
_LASTED = f"""
{_WHO}
began_at timestamp stamp of the order
until_at timestamp when it was to end
ended_at timestamp stamp of its end; null = it lasts
ended_by string order, expiry (its time was over), renewal (the next row goes on); null = it lasts
"""


def _lasting(begin: str, end: str, scope: dict[str, str]) -> str:
    """The SELECT of all ``begin`` events, each up to the next ``begin`` or ``end`` of its scope (column -> SQL)."""
    following = f"OVER (PARTITION BY fleet, {', '.join(scope)} ORDER BY seq)"
    columns = ", ".join(f"{sql} AS {name}" for name, sql in scope.items())
    return f"""
SELECT *, CASE WHEN next_kind = {KINDS[begin]} THEN 'renewal' WHEN is_expired = 'true' THEN 'expiry'
               WHEN next_kind = {KINDS[end]} THEN 'order' END AS ended_by
FROM (SELECT *, lead(began_at) {following} AS ended_at, lead(kind) {following} AS next_kind,
             lead(told_expired) {following} AS is_expired
      FROM (SELECT {LIVED}, {columns}, day, kind, {_BY}, {_told("reason")} AS reason, stamped_at AS began_at,
                   timestamp_millis({_told("expiresAtMs", "bigint")}) AS until_at, {_told("isExpired")} AS told_expired
            {FROM_LIVED} WHERE kind IN ({KINDS[begin]}, {KINDS[end]})) AS told) AS followed
WHERE kind = {KINDS[begin]}
"""


SILVER_PAUSES = view(
    "silver/pauses",
    "One row per order that held elections, with its end: meanwhile only a person's word elected.",
    "fleet seq",
    f"""
fleet string fleet incarnation
cluster string cluster of the set; as in bronze.events where the whole fleet was paused
broker_set string name of the set; null = all of the fleet
day date UTC date of began_at
seq bigint of the order's event
{_LASTED}
""",
    of=OF_LIVED,
    select=_lasting("elections-paused", "elections-resumed", {"cluster": "cluster", "broker_set": "broker_set"}),
)

_SCOPE = {
    "host": f"nullif({_told('scope.host')}, '')",
    "cluster": _told("scope.setKey.cluster"),
    "broker_set": _told("scope.setKey.name"),
    "broker_id": _told("scope.brokerId", "int"),
}

SILVER_MAINTENANCES = view(
    "silver/maintenances",
    "One row per order that took replicas into maintenance, with its end: meanwhile only a person's word elected them.",
    "fleet seq",
    f"""
fleet string fleet incarnation
host string the replicas on this host; null = one replica
cluster string of the replica; null = a host
broker_set string of the replica; null = a host
broker_id int the replica; null = a host
day date UTC date of began_at
seq bigint of the order's event
{_LASTED}
""",
    of=OF_LIVED,
    select=_lasting("maintenance-begun", "maintenance-ended", _SCOPE),
)

SILVER_SWITCHOVERS = view(
    "silver/switchovers",
    "One row per order to switch a set over, with its end.",
    "fleet seq",
    f"""
fleet string fleet incarnation
cluster string cluster of the set
broker_set string name of the set
day date UTC date of ordered_at
seq bigint of the order's event
ordered_at timestamp its stamp
{_WHO}
master_epoch bigint the reign that was to end
from_master int its master
to_master int the target
lag_bytes bigint by which the target was behind when it was ordered
ended_at timestamp stamp of the end; null = under way
outcome string done; rolled-back: the old master keeps the set, or got it back; lost: the old master is gone, and a \
failover follows; overtaken by another election or a cleaning; null = under way
told_end string the end in the record's words ({", ".join(SwitchoverEnd)}); null = under way
end_reason string why it ended so
""",
    of=OF_LIVED,
    select=f"""
SELECT begun.*, ended_at, told_end, end_reason,
       CASE WHEN told_end IN ({", ".join(f"'{end}'" for end in ROLLED_BACK)}) THEN 'rolled-back'
            WHEN told_end = '{SwitchoverEnd.MASTER_LOST}' THEN 'lost' ELSE told_end END AS outcome
FROM (SELECT {LIVED}, cluster, broker_set, day, stamped_at AS ordered_at, {_BY}, {_told("reason")} AS reason,
             master_epoch, {_told("master", "int")} AS from_master, {_told("target", "int")} AS to_master,
             {_told("lagBytes", "bigint")} AS lag_bytes, {_told("order")} AS named
      {FROM_LIVED} WHERE kind = {KINDS["switchover-ordered"]}) AS begun
LEFT JOIN (SELECT {FLEET} AS in_fleet, stamped_at AS ended_at, {_told("end")} AS told_end,
                  {_told("reason")} AS end_reason, {_told("order")} AS of_order
           {FROM_LIVED} WHERE kind = {KINDS["switchover-ended"]}) AS finished ON in_fleet = fleet AND of_order = named
""",
)

SILVER_SETTINGS = view(
    "silver/settings",
    "One row per version of a fleet's settings.",
    "fleet version",
    f"""
fleet string fleet incarnation
version bigint from 1 on
day date UTC date of applied_at
seq bigint of the event
applied_at timestamp its stamp
{_WHO}
changed string JSON: key, before and after of each setting that differs from the version before; [] = from the file
worst_case_rto_ms bigint the longest outage that a silent master causes by these settings
""",
    of=OF_LIVED,
    select=f"""
SELECT {LIVED}, {_told("version", "bigint")} AS version, day, stamped_at AS applied_at, {_BY},
       {_told("reason")} AS reason, {_told("changed")} AS changed,
       {_told("worstCaseRtoMs", "bigint")} AS worst_case_rto_ms
{FROM_LIVED} WHERE kind = {KINDS["settings-applied"]}
""",
)

SILVER_ORDERS = view(
    "silver/orders",
    "One row per event that a person's order made, or a program's with a person's rights: no reports of brokers.",
    "fleet seq",
    f"""
fleet string fleet incarnation
cluster string cluster of the set; as in bronze.events where it was about the fleet
broker_set string name of the set; null = about the fleet
day date UTC date of ordered_at
seq bigint of the event
ordered_at timestamp its stamp
{_WHO}
proved_by string certificate, token, signature, nothing; null = no proof is on record
kind string kind of the event
broker_id int the replica that it is about, or the master that it made; null = none
refused string the command that was refused, for the reason; null = it was done
request string id of the request: events of one order share it
""",
    of=OF_LIVED,
    # A broker's registration and its reports have a proof, too: beside hundreds of them an order would not be seen.
    select=f"""
SELECT {LIVED}, cluster, broker_set, day, stamped_at AS ordered_at, {_BY}, {_told("reason")} AS reason, proved_by,
       {_told("kind")} AS kind, broker_id, get_json_object(line, '$.requestId') AS request,
       {_told("command")} AS refused
{FROM_LIVED}
WHERE requested_by NOT LIKE 'controller:%' AND requested_by NOT LIKE 'broker:%' AND requested_by NOT LIKE 'broker@%'
      AND coalesce(caller, '') NOT LIKE 'broker:%'
""",
)

ORDERS = (SILVER_PAUSES, SILVER_MAINTENANCES, SILVER_SWITCHOVERS, SILVER_SETTINGS, SILVER_ORDERS)
