"""
What happened to the broker sets of one fleet: reigns, silences, stops of writes, members, from event to event.

Here: one pass over the events in their order. Not here: figures (``figures``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.recount.journal import Event
from tests.recount.lived import GENERATION

US_PER_MS = 1_000
LEADER = ("committed", "notified")
WINNER = ("promised", "role-applied", "serving", "first-ack")
SPANS = ("detected", "proposed", *LEADER, *WINNER)
"""Phases of a change of reign that have a duration, in their order."""
LOST_A_MASTER = ("failover", "unclean")
ENDS_OF_ORDERS = ("elections-resumed", "maintenance-ended", "switchover-ended", "settings-applied")
"""A leader may write them by itself."""
BY_HAND = ("requested", "unclean", "bootstrap", "switchover")


@dataclass(slots=True, kw_only=True)
class Silence:
    """A replica was found gone, or said goodbye."""

    place: tuple[int, int]
    broker: int
    incarnation: str
    at_ms: int
    cause: str
    fault_us: int | None
    led_since_ms: int | None
    """When the leader that found it took the lead from another one; None: it is the first."""
    back_at_ms: int | None = None
    is_same: bool = False
    """The very process came back."""

    @property
    def gone_at_ms(self) -> int:
        return self.at_ms - (self.fault_us or 0) // US_PER_MS


@dataclass(slots=True, kw_only=True)
class Reign:
    """One masterEpoch."""

    place: tuple[int, int]
    at_ms: int
    epoch: int
    previous_epoch: int
    kind: str
    found_by: str
    """How the fault was found, else the kind."""
    regret: int
    from_master: int | None
    master: int
    incarnation: str
    fault_us: int | None
    alive_us: int | None
    detected_us: int | None
    trigger: Silence | None
    """The silence of whichever replica led to the election."""
    held_up: str | None
    """Why it could not be held at once."""
    cleaned_before: int
    """How often the set had been taken away."""
    is_restored: bool
    """The set's first one by restored controllers, which knew of no master."""
    stamps: dict[str, int] = field(default_factory=dict)
    total_us: int | None = None
    uncertainty_us: int = 0
    told_wait_us: int | None = None
    route_us: int | None = None
    entered_at_ms: int | None = None
    served_place: tuple[int, int] | None = None
    grade: str | None = None
    bound_bytes: int | None = None
    cut_bytes: int | None = None
    following: Reign | None = None
    previous_failover_ms: int | None = None

    @property
    def is_failover(self) -> bool:
        return self.kind in LOST_A_MASTER and not self.is_restored

    @property
    def cause(self) -> str:
        """What the length of an outage tells of: the waiting, else the finding."""
        return self.held_up or self.found_by

    @property
    def served_at_ms(self) -> int | None:
        """The fault and the outage, else the stamp of the entry."""
        if self.total_us is not None and self.fault_us is not None:
            return self.at_ms + (self.total_us - self.fault_us) // US_PER_MS
        return self.entered_at_ms

    @property
    def lost_master(self) -> Silence | None:
        """The finding of the silence of the master before; None: it was another replica's, or there is none."""
        its = self.trigger is not None and self.trigger.broker == self.from_master
        return self.trigger if its else None

    @property
    def fault_at_ms(self) -> int:
        """Since when the set had no master: the election minus the fault's age, else the finding, else the election."""
        if self.fault_us is not None:
            return self.at_ms - self.fault_us // US_PER_MS
        return self.lost_master.at_ms if self.lost_master is not None else self.at_ms

    def reported(self, body: Mapping[str, Any], place: tuple[int, int]) -> None:
        """A milestone: of the leader, of the elected process, or that routes converged."""
        phase, observed_us = body["phase"], body.get("observedUs")
        if phase == "route-converged":
            self.route_us = max((us for us in (self.route_us, observed_us) if us is not None), default=None)
            return
        if "brokerId" in body and (body["brokerId"], body.get("incarnation")) != (self.master, self.incarnation):
            return
        self.stamps[phase] = min(self.stamps.get(phase, body["elapsedUs"]), body["elapsedUs"])
        if phase == "serving":
            self.total_us = _least(self.total_us, observed_us)
            self.uncertainty_us = body.get("uncertaintyUs") or 0
            self.served_place = self.served_place or place
        if phase == "first-ack":
            self.told_wait_us = _least(self.told_wait_us, body.get("waitedUs"))

    def durations(self) -> tuple[dict[str, int | None], int]:
        """Each phase in microseconds, None without a stamp; and how many stamps lie before the one before them."""
        found: dict[str, int | None] = dict.fromkeys(SPANS)
        backward = 0
        if self.fault_us is not None and self.detected_us is not None:
            found["proposed"] = self.detected_us
            found["detected"] = self.fault_us - self.detected_us if self.fault_us >= self.detected_us else None
            backward += self.fault_us < self.detected_us
        for clock in (LEADER, WINNER):
            before_us = 0
            for phase in clock:
                stamp_us = self.stamps.get(phase)
                if stamp_us is not None and stamp_us < before_us:
                    backward += 1
                elif stamp_us is not None:
                    found[phase], before_us = stamp_us - before_us, stamp_us
        return found, backward


def _generation(place: tuple[int, int]) -> int:
    return place[0] // GENERATION


def _least(one: int | None, other: int | None) -> int | None:
    return min((us for us in (one, other) if us is not None), default=None)


@dataclass(slots=True, kw_only=True)
class Stop:
    """A master that went on reigning took no writes."""

    epoch: int
    began_at_ms: int
    ended_at_ms: int | None = None
    ended_by: str | None = None
    stopped_us: int | None = None
    """By the master's own clock; None: it did not say."""


class Cleaning(NamedTuple):
    """The set was taken away."""

    place: tuple[int, int]
    at_ms: int


@dataclass(slots=True)
class SetStory:
    """All of one set."""

    reigns: list[Reign] = field(default_factory=list)
    silences: list[Silence] = field(default_factory=list)
    ends: list[Silence] = field(default_factory=list)
    """``silences``, and the ends of masters that the next process's registration tells."""
    stops: list[Stop] = field(default_factory=list)
    members: list[tuple[int, int, int]] = field(default_factory=list)
    """Since when the SyncStateSet had so many members, and how many the set needs."""
    cleanings: list[Cleaning] = field(default_factory=list)
    withheld: list[tuple[int, int]] = field(default_factory=list)
    """Places of elections that there would have been without a pause; ``nobody``: of those that found nobody."""
    nobody: list[tuple[int, int]] = field(default_factory=list)
    returns: list[tuple[tuple[int, int], int]] = field(default_factory=list)
    """Where which replica came back that had been gone."""
    _members_epoch: int = 0
    _members_known: int = 0
    _needed: int = 2
    _failover_ms: int | None = None
    """Of the last one."""
    _gone: dict[int, list[Silence]] = field(default_factory=dict)
    """Silences of each replica that is not back."""

    def happened(self, event: Event, ends: Mapping[tuple[int, int], Silence]) -> None:
        """``ends``: of replicas of the whole fleet, by place."""
        body, kind = event.body, event.kind
        if kind == "master-elected":
            self._elected(event, ends)
        elif kind in ("election-withheld", "election-failed"):
            (self.withheld if kind == "election-withheld" else self.nobody).append(event.place)
        elif kind in ("replica-silent", "goodbye-said"):
            silence = ends[event.place]
            self.silences.append(silence)
            self.ends.append(silence)
            self._gone.setdefault(silence.broker, []).append(silence)
        elif kind in ("replica-registered", "session-opened", "replica-alive"):
            self._back(event)
            self.ends += [ends[event.place]] if event.place in ends else []
        elif kind in ("milestone-reached", "master-entered", "loss-graded"):
            self._told(event)
        elif kind in ("writes-stopped", "writes-resumed"):
            self._end_stop(event)
            if kind == "writes-stopped":
                began_at_ms = event.at_ms - body["ageUs"] // US_PER_MS
                self.stops.append(Stop(epoch=body["masterEpoch"], began_at_ms=began_at_ms))
        elif kind == "replicas-cleaned" and not body["remaining"]:
            self._end_stop(event)
            self.cleanings.append(Cleaning(event.place, event.at_ms))
        self._members(event)

    def _elected(self, event: Event, ends: Mapping[tuple[int, int], Silence]) -> None:
        body, ages = event.body, event.body["ages"]
        # A living master was moved, or there was none before: the beginning is known.
        alive_us = ages.get("alive")
        if not ages and body["kind"] not in LOST_A_MASTER:
            alive_us = 0
        reign = Reign(
            place=event.place,
            at_ms=event.at_ms,
            epoch=body["masterEpoch"],
            previous_epoch=body["previousEpoch"],
            kind=body["kind"],
            found_by=ages.get("cause", body["kind"]),
            regret=body["regret"],
            from_master=body["from"],
            master=body["master"],
            incarnation=body["masterIncarnation"],
            fault_us=ages.get("fault"),
            alive_us=alive_us,
            detected_us=ages.get("detected"),
            trigger=ends.get(body["trigger"]),
            held_up=self._held_up(body, body["trigger"] or (0, 0)),
            cleaned_before=len(self.cleanings),
            is_restored=_generation(event.place) > (_generation(self.reigns[-1].place) if self.reigns else 0),
            previous_failover_ms=self._failover_ms,
        )
        if self.reigns:
            self.reigns[-1].following = reign
        if reign.is_failover:
            self._failover_ms = reign.at_ms
        self.reigns.append(reign)
        self._end_stop(event)

    def _held_up(self, body: Mapping[str, Any], since: tuple[int, int]) -> str | None:
        """Paused; or nobody could be elected: told, overruled by an operator, or the winner had to come back first."""
        if any(place > since for place in self.withheld):
            return "paused"
        back = [place for place, broker in self.returns if broker == body["master"]]
        is_waited = any(place > since for place in (*self.nobody, *back))
        return "nobody-eligible" if is_waited or body["kind"] == "unclean" else None

    def _back(self, event: Event) -> None:
        gone = self._gone.pop(event.body["brokerId"], ())
        self.returns += [(event.place, event.body["brokerId"])] if gone else []
        for silence in gone:
            silence.back_at_ms = event.at_ms
            silence.is_same = silence.incarnation == event.body["incarnation"]

    def _told(self, event: Event) -> None:
        body = event.body
        reign = next((one for one in reversed(self.reigns) if one.epoch == body["masterEpoch"]), None)
        if reign is None:
            return
        if event.kind == "milestone-reached":
            reign.reported(body, event.place)
        elif event.kind == "loss-graded":
            reign.grade, reign.bound_bytes, reign.cut_bytes = (
                body["grade"],
                body.get("boundBytes"),
                body.get("cutBytes"),
            )
        elif (body["brokerId"], body["incarnation"]) == (reign.master, reign.incarnation):
            reign.entered_at_ms = _least(reign.entered_at_ms, event.at_ms)
            reign.served_place = reign.served_place or event.place

    def _end_stop(self, event: Event) -> None:
        if not self.stops or self.stops[-1].ended_by is not None:
            return
        stop = self.stops[-1]
        told_us = event.body.get("stoppedUs") if event.kind == "writes-resumed" else None
        stop.ended_by, stop.stopped_us = event.kind, told_us
        stop.ended_at_ms = event.at_ms if told_us is None else stop.began_at_ms + told_us // US_PER_MS
        if event.kind == "writes-stopped":
            stop.ended_at_ms = event.at_ms - event.body["ageUs"] // US_PER_MS

    def _members(self, event: Event) -> None:
        epoch, needed = event.body.get("syncStateSetEpoch", 0), _needed(event.body, self._needed)
        # An event may repeat the set that is in force already; epoch 0 is a set that never had members.
        is_changed = epoch > 0 and epoch != self._members_epoch
        if is_changed:
            self._members_epoch, self._members_known = epoch, len(event.body["syncStateSet"])
        if is_changed or (needed != self._needed and self._members_epoch):
            self.members.append((event.at_ms, self._members_known, needed))
        self._needed = needed


def _needed(body: Mapping[str, Any], before: int) -> int:
    """How many members keep a set from being exposed: those that a send needs, and two; a set of one needs itself."""
    told = body.get("configuration", body)
    if "expectedReplicas" not in told:
        return before
    expected = int(told["expectedReplicas"])
    return min(expected, max(2, told.get("minInSync") or (expected + 1) // 2))


@dataclass(slots=True)
class FleetStory:
    """All sets of one fleet."""

    name: str
    sets: dict[tuple[str, str], SetStory] = field(default_factory=dict)
    horizon_ms: int = 0
    """Up to when it is counted: at least to the stamp of the last event."""
    stamps: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of each cluster: least and greatest stamp of its sets' events."""
    held: list[tuple[str, int, Mapping[str, Any]]] = field(default_factory=list)
    """Elections, with a winner or without: cluster, stamp as it was written, body."""
    changes: list[tuple[int, int]] = field(default_factory=list)
    """Places at which another controller took the lead."""
    clusters: set[str] = field(default_factory=set)
    first_at_ms: int = 1 << 62
    first_stamped_ms: int = 1 << 62
    last_at_ms: int = 0
    restores: list[tuple[Event, Event | None]] = field(default_factory=list)
    """Each with the last event before it; None: the lost controllers' are not here."""
    breaks: list[tuple[Event, Event]] = field(default_factory=list)
    """Neighbours of which the second one does not continue the first one's hash chain."""
    orders: list[Event] = field(default_factory=list)
    """What persons ordered, and the ends of it."""
    falling_stamps: int = 0
    events: int = 0


def story_of(name: str, events: Iterable[Event], until_ms: int) -> FleetStory:
    """Let the events happen; then nothing up to ``until_ms``."""
    fleet = FleetStory(name)
    ends: MutableMapping[tuple[int, int], Silence] = {}
    led_since_ms: int | None = None
    is_founded = False
    before: Event | None = None
    for event in events:
        # Restored controllers continue the chain of a backup, behind which the lost ones may have gone on.
        if before and _generation(before.place) == _generation(event.place) and not event.continues(before):
            fleet.breaks.append((before, event))
        if event.kind == "fleet-restored":
            fleet.restores.append((event, before))
        before = event
        fleet.events += 1
        fleet.falling_stamps += event.at_ms < fleet.horizon_ms
        fleet.horizon_ms = fleet.last_at_ms = event.at_ms
        fleet.first_at_ms = min(fleet.first_at_ms, event.at_ms)
        fleet.first_stamped_ms = min(fleet.first_stamped_ms, event.stamped_ms)
        if event.kind == "leadership-taken":
            # The first leader of a fleet took the lead from nobody.
            if not is_founded:
                led_since_ms = event.at_ms
                fleet.changes.append(event.place)
            is_founded = False
        is_founded = is_founded or event.kind == "fleet-initialised"
        if event.asked is not None or event.kind in ENDS_OF_ORDERS:
            fleet.orders.append(event)
        if event.owner is None:
            continue
        fleet.clusters.add(event.owner[0])
        least, greatest = fleet.stamps.get(event.owner[0], (event.stamped_ms, event.stamped_ms))
        fleet.stamps[event.owner[0]] = min(least, event.stamped_ms), max(greatest, event.stamped_ms)
        if event.kind in ("master-elected", "election-failed"):
            fleet.held.append((event.owner[0], event.stamped_ms, event.body))
        if event.kind in ("replica-silent", "goodbye-said"):
            ends[event.place] = _silence(event, led_since_ms)
        elif "ended" in event.body:
            ends[event.place] = _replaced(event, led_since_ms)
        fleet.sets.setdefault(event.owner, SetStory()).happened(event, ends)
    fleet.horizon_ms = max(fleet.horizon_ms, until_ms)
    return fleet


def _silence(event: Event, led_since_ms: int | None) -> Silence:
    body = event.body
    return Silence(
        place=event.place,
        broker=body["brokerId"],
        incarnation=body["incarnation"],
        at_ms=event.at_ms,
        cause=body["cause"],
        fault_us=body["fault"],
        led_since_ms=led_since_ms,
    )


def _replaced(event: Event, led_since_ms: int | None) -> Silence:
    """The master's process before the one that registers: it is back as another one."""
    return Silence(
        place=event.place,
        broker=event.body["brokerId"],
        incarnation="",
        at_ms=event.at_ms,
        cause="replaced",
        fault_us=event.body["ended"]["fault"],
        led_since_ms=led_since_ms,
        back_at_ms=event.at_ms,
    )
