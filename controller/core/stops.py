"""
The stops of writes in the history of one set, computed from its events.

Here: ``stops_of``. Not here: reigns (``history``), judging the reports (``writes``).

Rule: a stop ends by its master's word, by the next election or by the cleaning of its set, never by guess. A stop
that an election ends is part of the outage of that change of reign, and is not counted twice: ``stopped_us`` is None.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from rollcall_ha.controller.contract.events import (
    EventRecord,
    MasterElected,
    ReplicasCleaned,
    WritesResumed,
    WritesStopped,
)
from rollcall_ha.controller.contract.views import StopEnd, WriteStop


def stops_of(records: Iterable[EventRecord]) -> tuple[WriteStop, ...]:
    """
    One value per stop, newest first.

    Args:
        records: Events of one set, in order; others are ignored. A repeated event changes nothing (S81).
    """
    stops: dict[tuple[int, int], WriteStop] = {}
    going_on: set[tuple[int, int]] = set()
    for record in records:
        event = record.event
        if isinstance(event, WritesStopped) and (key := (event.master_epoch, event.seq)) not in stops:
            stops[key] = _begun(record, event)
            going_on.add(key)
        elif isinstance(event, WritesResumed) and (key := (event.master_epoch, event.seq)) in going_on:
            going_on.remove(key)
            stops[key] = replace(stops[key], stopped_us=event.stopped_us, end=StopEnd.RESUMED)
        elif isinstance(event, MasterElected) or (isinstance(event, ReplicasCleaned) and event.master is None):
            end = StopEnd.ELECTION if isinstance(event, MasterElected) else StopEnd.CLEANED
            stops |= {key: replace(stops[key], end=end) for key in going_on}
            going_on.clear()
    return tuple(reversed(stops.values()))


def _begun(record: EventRecord, event: WritesStopped) -> WriteStop:
    return WriteStop(
        master_epoch=event.master_epoch,
        broker_id=event.broker_id,
        began_at_ms=max(0, record.stamped_at_ms - event.age_us // 1_000),
        reason=event.reason,
        detail=event.detail,
        stopped_us=None,
        end=None,
        event=record.ref,
    )
