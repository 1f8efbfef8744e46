"""
What persons ordered in a fleet, and how long it lasted.

Here: rows of orders, pauses, maintenances, switchovers, settings. Not here: what an order did to a set (``sets``).
"""

from __future__ import annotations

import datetime as dt
import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from tests.recount.journal import Event
from tests.recount.sets import FleetStory

Row = dict[str, Any]
ROLLED_BACK = ("deadline", "target-lost", "not-entered")
ENDS = {"elections-paused": "elections-resumed", "maintenance-begun": "maintenance-ended"}


def _instant(at_ms: int | None) -> dt.datetime | None:
    return None if at_ms is None else dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=at_ms)


def rows_of(fleet: FleetStory) -> Mapping[str, list[Row]]:
    """All of a fleet, by table."""
    found: dict[str, list[Row]] = defaultdict(list)
    found["pauses"] = _lasting(fleet, "elections-paused", _of_pause)
    found["maintenances"] = _lasting(fleet, "maintenance-begun", _of_maintenance)
    for event in fleet.orders:
        row = _head(fleet, event)
        if event.asked is not None:
            found["orders"].append(_order(event) | row | _set_of(event))
        if event.kind == "settings-applied":
            told = {"version": event.body["version"], "worst_case_rto_ms": event.body["worstCaseRtoMs"]}
            changed = json.dumps(event.body["changed"], separators=(",", ":"), ensure_ascii=False)
            found["settings"].append(
                row | _who(event) | told | {"changed": changed, "applied_at": _instant(event.stamped_ms)}
            )
        if event.kind == "switchover-ordered":
            ends = [one for one in fleet.orders if one.kind == "switchover-ended"]
            end = next((one for one in ends if one.body["order"] == event.body["order"]), None)
            found["switchovers"].append(row | _set_of(event) | _who(event) | _switchover(event, end))
    return found


def _head(fleet: FleetStory, event: Event) -> Row:
    day = dt.date(1970, 1, 1) + dt.timedelta(days=event.stamped_ms // 86_400_000)
    return {"fleet": fleet.name, "day": day, "seq": (event.place[0] << 20) + event.place[1]}


def _set_of(event: Event) -> Row:
    cluster, name = event.owner or ("/fleet", None)
    return {"cluster": cluster, "broker_set": name}


def _who(event: Event) -> Row:
    # An end that a leader wrote by itself is no order; what begins something was asked for by somebody.
    assert event.asked is not None
    return {"ordered_by": event.asked["by"], "reason": event.asked["reason"]}


def _order(event: Event) -> Row:
    assert event.asked is not None
    return _who(event) | {
        "ordered_at": _instant(event.stamped_ms),
        "proved_by": event.asked["proved"],
        "kind": event.kind,
        "broker_id": event.asked["broker"],
        "refused": event.asked["command"],
        "request": event.asked["request"],
    }


def _of_pause(event: Event) -> Row:
    return _set_of(event)


def _of_maintenance(event: Event) -> Row:
    scope = event.body["scope"]
    key = scope.get("setKey") or {}
    of_replica = {"cluster": key.get("cluster"), "broker_set": key.get("name"), "broker_id": scope.get("brokerId")}
    return {"host": scope.get("host") or None} | of_replica


def _lasting(fleet: FleetStory, begin: str, scope_of: Callable[[Event], Row]) -> list[Row]:
    """Each beginning, up to the next one or the end of the same scope."""
    points = [event for event in fleet.orders if event.kind in (begin, ENDS[begin])]
    rows = []
    for number, event in enumerate(points):
        if event.kind != begin:
            continue
        end = next((one for one in points[number + 1 :] if scope_of(one) == scope_of(event)), None)
        how = (
            None if end is None else "renewal" if end.kind == begin else "expiry" if end.body["isExpired"] else "order"
        )
        times = {
            "began_at": event.stamped_ms,
            "until_at": event.body["expiresAtMs"],
            "ended_at": end and end.stamped_ms,
        }
        instants = {name: _instant(at_ms) for name, at_ms in times.items()}
        rows.append(_head(fleet, event) | scope_of(event) | _who(event) | instants | {"ended_by": how})
    return rows


def _switchover(event: Event, end: Event | None) -> Row:
    told = None if end is None else end.body["end"]
    outcome = "rolled-back" if told in ROLLED_BACK else "lost" if told == "master-lost" else told
    return {
        "ordered_at": _instant(event.stamped_ms),
        "master_epoch": event.body["masterEpoch"],
        "from_master": event.body["master"],
        "to_master": event.body["target"],
        "lag_bytes": event.body["lagBytes"],
        "ended_at": _instant(None if end is None else end.stamped_ms),
        "outcome": outcome,
        "told_end": told,
        "end_reason": None if end is None else end.body["reason"],
    }
