"""
The stops of writes in the history of one set, computed from its events.

Here: ``stops_of``. Not here: reigns (``history``), judging the reports (``writes``).

Rule 1: a stop ends by its master's word, by the next election or by the cleaning of its set, never by guess. A stop
that an election ends is part of the outage of that change of reign, and is not counted twice: ``stopped_us`` is None.
Rule 2: a later stop of its reign says that it is over, too. How long it was is not known then: the master dropped the
report of its end, the oldest of too many that waited to be told.
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
from rollcall_ha.controller.contract.values import made_from
from rollcall_ha.controller.contract.views import StopEnd, WriteStop


def stops_of(records: Iterable[EventRecord]) -> tuple[WriteStop, ...]:
    """
    One value per stop, newest first.

    Args:
        records: Events of one set, in order; others are ignored. A repeated event changes nothing (S81).
    """
    stops: dict[tuple[int, int], WriteStop] = {}
    going_on: tuple[int, int] | None = None
    for record in records:
        event, end, stopped_us = record.event, None, None
        if isinstance(event, WritesStopped) and (event.master_epoch, event.seq) not in stops:
            end = StopEnd.RESUMED
        elif isinstance(event, WritesResumed) and (event.master_epoch, event.seq) == going_on:
            end, stopped_us = StopEnd.RESUMED, event.stopped_us
        elif isinstance(event, MasterElected):
            end = StopEnd.ELECTION
        elif isinstance(event, ReplicasCleaned) and not event.remaining:
            # A set that keeps replicas has an outage that goes on, or a master that is still stopped.
            end = StopEnd.CLEANED
        if end is None:
            continue
        if going_on is not None:
            stops[going_on] = replace(stops[going_on], stopped_us=stopped_us, end=end)
        going_on = None
        if isinstance(event, WritesStopped):
            going_on = (event.master_epoch, event.seq)
            stops[going_on] = _begun(record, event)
    return tuple(reversed(stops.values()))


def _begun(record: EventRecord, event: WritesStopped) -> WriteStop:
    return made_from(
        event,
        WriteStop,
        began_at_ms=max(0, record.stamped_at_ms - event.age_us // 1_000),
        stopped_us=None,
        end=None,
        event=record.ref,
    )
