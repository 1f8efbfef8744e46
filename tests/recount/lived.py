"""
Fleets with their past: restored ones go on where those before them ended, and stamps are of one clock.

Here: events in, events out. Not here: what they did to sets (``sets``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from tests.recount.journal import Event

GENERATION = 1 << 38
"""Indexes of a fleet that was restored once are so much greater: the lost controllers had indexes behind the backup, too."""


def lived(fleets: Mapping[str, Iterable[Event]]) -> dict[str, list[Event]]:
    """By the fleet that was founded, in order."""
    previous = {
        name: event.body["previousFleet"]
        for name, events in fleets.items()
        for event in events
        if event.kind == "fleet-restored"
    }
    found: dict[str, list[Event]] = defaultdict(list)
    for name, events in fleets.items():
        origin, generation = name, 0
        while origin in previous:
            origin, generation = previous[origin], generation + 1
        found[origin] += [_behind(event, generation * GENERATION) for event in events]
    return {name: _by_one_clock(sorted(events, key=lambda one: one.place)) for name, events in found.items()}


def _behind(event: Event, indexes: int) -> Event:
    index, ordinal = event.place
    body = event.body
    if indexes and body.get("trigger"):
        body = {**body, "trigger": (body["trigger"][0] + indexes, body["trigger"][1])}
    return event._replace(place=(index + indexes, ordinal), body=body)


def _by_one_clock(events: list[Event]) -> list[Event]:
    """What a clock was set by is added to all before it."""
    found, stepped_ms = [], 0
    for event in reversed(events):
        found.append(event._replace(at_ms=event.at_ms + stepped_ms))
        if event.kind == "clock-stepped":
            stepped_ms += event.body["stepMs"]
    return found[::-1]
