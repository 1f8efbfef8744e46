"""
Whether the writes of a running reign can be acknowledged, and since when they cannot. Pure.

Here: ``WriteWatch``: facts in, stops out. Not here: reading the facts (``broker.write_stops``), telling the controllers
(``write_reports``), what is released (``ha.sync_state``).

Rule 1: *able* is the newest moment of which it is known that a write could be acknowledged: the last release, or, while
nothing waits, the last time at which every required member had been heard. It never falls.
Rule 2: writes are stopped when a send has waited for ``stall_ms``, for its ack or for room in the log, when something
that would keep one waiting, or have it refused, has stood in the way for ``stall_ms``, or, while nothing is sent, after
``QUIET_INTERVALS`` heartbeats of silence. An ordinary removal of a dead member takes ``survivors_wait_ms``, which is
less, and is no stop.
Rule 3: a stop begins at able, and ends with the first release behind it, or, if nothing waits, when nothing stands in
the way of a release any more. So its length is what a sender felt, not when somebody looked.
Rule 4: a look that comes ``stall_ms`` late means that this process stood still: it acknowledged nothing meanwhile. A
release since the look before belongs to the end that it is nearer to: before the standstill, or of acks read behind it.
Rule 5: a reign that begins with too few in sync begins with a stop, however short: for a sender the outage goes on. Not
with an empty log: a set that is being founded has taken nothing yet.
All times are microseconds of one monotonic clock.
"""

from __future__ import annotations

from typing import Final

import msgspec

from rollcall_ha.broker.core.role_io import PublishRole
from rollcall_ha.controller.contract.commands import STOP_DETAIL_CHARS_MAX
from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, LogOffset, MasterEpoch, SyncStateSet
from rollcall_ha.controller.contract.replies import SetView
from rollcall_ha.controller.contract.session import BrokerState
from rollcall_ha.controller.contract.values import Frozen, StopReason

US_PER_MS: Final = 1_000
START: Final = LogOffset(0)
QUIET_INTERVALS: Final = 3
"""Heartbeats of a slave that may be late before an idle master calls its writes stopped."""


class MemberFacts(Frozen):
    """A member of the required set other than the master."""

    broker_id: BrokerId
    heard_us: int
    """Its last ack that counted, on whichever link; the beginning of its membership if there was none."""
    acked: LogOffset | None
    """On its current link; None = it has no link, or has acked nothing on it."""


class WriteFacts(Frozen):
    """The findings of one look at a reign."""

    master_epoch: MasterEpoch
    is_fenced: bool = False
    """The controllers name this process as master of this epoch, and it does not serve."""
    fenced_reason: str = ""
    disk_trouble: str = ""
    """Why appends are refused; empty = they are not."""
    is_min_in_sync: bool = True
    in_sync: SyncStateSet = ()
    """Members of the set that are caught up and linked, the master included."""
    min_in_sync: int = 1
    members: tuple[MemberFacts, ...] = ()
    confirm: LogOffset = START
    log_end: LogOffset = START
    synced: LogOffset | None = None
    """End of what the master's own log counts for: in mode sync, of what is on its disk; None = not known."""
    released_us: int = 0
    """When this process last released a send; 0 = it has not yet."""
    waiting_since_us: int | None = None
    """When the oldest send that waits was appended; None = none waits."""
    room_wanted_since_us: int | None = None
    """Since when the oldest send waits for the next segment of the log, and is not appended; None = none does."""

    @property
    def oldest_us(self) -> int | None:
        """Since when the oldest send waits, for an ack or for room; None = none does."""
        return min((one for one in (self.waiting_since_us, self.room_wanted_since_us) if one is not None), default=None)


def fenced_facts(
    view: SetView | None, role: PublishRole, *, broker_id: BrokerId, incarnation: Incarnation
) -> WriteFacts | None:
    """
    The facts of a master that has stopped itself, while the newest view goes on calling this process master.

    None: it has not, or another one is master by now. Until the controllers elect, such a set is without writes.
    """
    if view is None or (view.master, view.master_incarnation) != (broker_id, incarnation):
        return None
    if role.state not in (BrokerState.FENCED, BrokerState.ISOLATED):
        return None
    return WriteFacts(master_epoch=view.master_epoch, is_fenced=True, fenced_reason=role.reason)


class Stop(msgspec.Struct, kw_only=True):
    """One stop; ``ended_us`` None = it goes on."""

    master_epoch: MasterEpoch
    seq: int
    reason: StopReason
    detail: str
    began_us: int
    ended_us: int | None = None


class WriteWatch:
    """One process, reign after reign. ``look`` at least every ``stall_ms``; while ``stop`` is set, at each change."""

    def __init__(self, *, stall_ms: int, heartbeat_interval_ms: int) -> None:
        """``heartbeat_interval_ms``: of the slaves, while nothing is sent."""
        self.stop: Stop | None = None
        """The stop that goes on."""
        self.stops = 0
        """How many have begun since the start of the process."""
        self.stopped_us = 0
        """The time in stops that have ended."""
        self.retime(stall_ms=stall_ms, heartbeat_interval_ms=heartbeat_interval_ms)
        self._epoch: MasterEpoch | None = None
        self._seq = 0
        self._able_us = 0
        self._looked_us = 0
        self._obstacle_since_us: int | None = None

    def retime(self, *, stall_ms: int, heartbeat_interval_ms: int) -> None:
        """From the next look on."""
        self._stall_us = stall_ms * US_PER_MS
        self._quiet_us = max(QUIET_INTERVALS * heartbeat_interval_ms, stall_ms) * US_PER_MS

    def leave(self) -> None:
        """Not master by anybody's word: a stop that goes on ends with the reign, on the controllers' record."""
        self._epoch = self.stop = self._obstacle_since_us = None

    def look(self, facts: WriteFacts, now_us: int) -> Stop | None:
        """The stop that began or ended with this look; None = nothing changed."""
        begins = facts.master_epoch != self._epoch
        if begins:
            self._epoch, self._seq, self.stop, self._obstacle_since_us = facts.master_epoch, 0, None, None
            # From when it may serve: what was before is the outage of the change of reign.
            self._able_us = self._looked_us = now_us
        late_us, looked_us = now_us - self._looked_us, self._looked_us
        self._looked_us = now_us
        obstacle, able_us = _obstacle(facts), self._able_us
        # A clock of its own may be a turn of the loop ahead of the stamps: never a stop from the future.
        self._able_us = min(now_us, max(self._able_us, facts.released_us, self._heard_us(facts, obstacle, now_us)))
        if self.stop is not None:
            return self._maybe_end(self.stop, facts, obstacle, now_us)
        if begins and not facts.is_min_in_sync and obstacle is not None and facts.log_end > START:
            # Rule 5. Called after ``stall_ms``, a stop of 750 ms is on no record, and the set serves by every page.
            return self._begin(facts, *obstacle, now_us)
        if late_us > self._stall_us:
            # Rule 4. The acks of that time are in the sockets, unread: by them its members would be to blame.
            if facts.released_us - looked_us <= now_us - facts.released_us:
                began_us = min(self._able_us, max(looked_us, facts.released_us))
            else:
                # Begun with this release, which ended it, a standstill of 4 s would be a stop of half a millisecond.
                began_us = min(able_us, looked_us)
            detail = f"this broker's process stood still for {late_us / 1_000_000:.1f} s"
            stop = self._begin(facts, StopReason.NOT_ACKNOWLEDGED, detail, began_us)
            self._maybe_end(stop, facts, obstacle, now_us)
            return stop
        if not self._is_due(facts, obstacle is not None, now_us):
            return None
        reason, detail = obstacle or _laggards(facts, now_us - self._quiet_us)
        return self._begin(facts, reason, detail, self._able_us)

    def _is_due(self, facts: WriteFacts, is_obstructed: bool, now_us: int) -> bool:
        """Rule 2; by how long the cause has lasted, not by able: of an idle set that is a heartbeat older."""
        # From the last release on: a log that cannot grow takes what its last segment has room for.
        since_us = max(self._obstacle_since_us or now_us, facts.released_us)
        self._obstacle_since_us = since_us if is_obstructed else None
        since = [one for one in (self._obstacle_since_us, facts.waiting_since_us) if one is not None]
        # Beside a large send that waits for the next segment, small ones that fit into the last one are acknowledged.
        if facts.room_wanted_since_us is not None:
            since.append(max(facts.room_wanted_since_us, facts.released_us))
        return now_us - self._able_us >= self._quiet_us or (bool(since) and now_us - min(since) >= self._stall_us)

    def _heard_us(self, facts: WriteFacts, obstacle: tuple[StopReason, str] | None, now_us: int) -> int:
        """The newest moment at which, without a release, a write could have been acknowledged; 0 = not known."""
        # A member that comes back lacks what is confirmed: the time at which it said so proves nothing.
        if obstacle is not None and obstacle[0] is not StopReason.NOT_ACKNOWLEDGED:
            return 0
        if any(one.acked is not None and one.acked < facts.confirm for one in facts.members):
            return 0
        heard_us = min((one.heard_us for one in facts.members), default=now_us)
        if facts.oldest_us is None:
            return heard_us
        # Members are heard, and do not say that they have it: what waits was handed in when a write was still possible
        # as far as anybody knows. In a stop it proves nothing, then a release alone does.
        return min(heard_us, facts.oldest_us) if self.stop is None else 0

    def _begin(self, facts: WriteFacts, reason: StopReason, detail: str, began_us: int) -> Stop:
        self._seq += 1
        self.stops += 1
        detail = detail if detail.isprintable() else ascii(detail)
        self.stop = Stop(
            master_epoch=facts.master_epoch,
            seq=self._seq,
            reason=reason,
            detail=detail[:STOP_DETAIL_CHARS_MAX],
            began_us=began_us,
        )
        return self.stop

    def _maybe_end(
        self, stop: Stop, facts: WriteFacts, obstacle: tuple[StopReason, str] | None, now_us: int
    ) -> Stop | None:
        if facts.released_us > stop.began_us:
            ended_us = facts.released_us
        elif obstacle is None and facts.oldest_us is None and now_us - self._able_us < self._stall_us:
            # The last of the members is heard again in this look: able is when the first one was.
            ended_us = now_us
        else:
            return None
        stop.ended_us = self._able_us = ended_us
        self.stop = None
        self.stopped_us += ended_us - stop.began_us
        return stop


def _obstacle(facts: WriteFacts) -> tuple[StopReason, str] | None:
    """The worst obstacle that certainly stands in the way of a release now; None = none is known."""
    if facts.is_fenced:
        return StopReason.FENCED, facts.fenced_reason
    if facts.disk_trouble:
        return StopReason.DISK_FULL, facts.disk_trouble
    if not facts.is_min_in_sync:
        members = _brokers([*map(str, facts.in_sync)]) if facts.in_sync else "nobody"
        return StopReason.TOO_FEW_IN_SYNC, f"{len(facts.in_sync)} in sync of {facts.min_in_sync} needed: {members}"
    away = [str(one.broker_id) for one in facts.members if one.acked is None]
    if away:
        return StopReason.NOT_ACKNOWLEDGED, f"no link of {_brokers(away)}"
    return None


def _laggards(facts: WriteFacts, heard_before_us: int) -> tuple[StopReason, str]:
    """The members that do not acknowledge, or the own disk, if all others have what it lacks."""
    quiet = [str(one.broker_id) for one in facts.members if one.heard_us <= heard_before_us]
    if quiet:
        return StopReason.NOT_ACKNOWLEDGED, f"nothing is heard of {_brokers(quiet)}"
    synced = facts.log_end if facts.synced is None else facts.synced
    # A slave that is as far as the master, and no further, may be as slow: another master would not help.
    if synced < facts.log_end and all(one.acked is not None and one.acked > synced for one in facts.members):
        return StopReason.OWN_DISK, f"it has synced {synced:,} of {facts.log_end:,} bytes, and every other member more"
    behind = [one for one in facts.members if one.acked is not None and one.acked < facts.log_end]
    if behind:
        lowest = min(behind, key=lambda one: one.acked or 0)
        return (
            StopReason.NOT_ACKNOWLEDGED,
            f"broker {lowest.broker_id} has {lowest.acked:,} of {facts.log_end:,} bytes",
        )
    if facts.room_wanted_since_us is not None:
        return StopReason.OWN_DISK, "this broker's disk has not made the next segment of its log"
    return StopReason.NOT_ACKNOWLEDGED, "every member has what was sent, and it is not released yet"


def _brokers(ids: list[str]) -> str:
    return f"broker {ids[0]}" if len(ids) == 1 else f"brokers {', '.join(ids)}"
