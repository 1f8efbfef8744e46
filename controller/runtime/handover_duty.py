"""
When the leader leaves a master that lives and cannot acknowledge: the duty, as a machine.

Here: how long a stop of writes has lasted, which policy it falls under, damping, what is proposed. Not here: noticing
a stop (``broker.core.write_watch``), whether an heir would help and which one (``controller.core.decide_leaving``).
Times are nanoseconds of one monotonic clock.

Rule 1: off until a setting switches it on: ``handover_disk_full_after_ms`` for a full disk,
``handover_writes_stopped_after_ms`` for every other reason.
Rule 2 (R14): a stop is as old as its master told, and from there on by this leader's clock. A new leader begins with
the age that was told: it leaves no master sooner than a leader that saw the whole stop.
Rule 3: damped by ``handover_pause_ms`` since the set's last election, of whichever kind, which is replicated: a fault
that travels with the mastership would else move it round for ever. The wall clock is read once for a stop, where it is
first seen; a clock that was set shifts the pause by its step, and by the pause itself at most.
Rule 4: stops by the master's own disk that follow each other within ``stall_ms`` are one. A disk that takes two
seconds for each sync lets a batch through every two seconds, and no stop of it ever gets old. Of a slave's disk that is
not said: its master would be left for nothing.
Rule 5: the first attempt is proposed without a preview, so that "nobody could take over" and "elections are paused" are
on record once for each stop; further ones only if a preview finds an heir. The end of a pause or a maintenance begins
anew.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from rollcall_ha.controller.contract.commands import ElectMaster, LeaveMaster
from rollcall_ha.controller.contract.ids import BrokerId, MasterEpoch, SetKey
from rollcall_ha.controller.contract.replies import AnyReply, Elected, Refused, SetView
from rollcall_ha.controller.contract.settings import AppliedSettings, Settings
from rollcall_ha.controller.contract.timing import NS_PER_MS
from rollcall_ha.controller.contract.values import Evidence, StopReason
from rollcall_ha.controller.core.actions import ProposeCommand
from rollcall_ha.controller.core.settings import settings_in_force
from rollcall_ha.controller.core.state import SetState
from rollcall_ha.controller.core.views import ViewOf
from rollcall_ha.controller.core.writes import stop_words
from rollcall_ha.controller.runtime.order_ends import FleetNow
from rollcall_ha.controller.runtime.session_state import LinkSeen
from rollcall_ha.controller.runtime.sessions import Sessions

RETRY_MS = 1_000
"""Between two looks at a stop that nobody could be elected for."""

LOOKS_PER_TICK_MAX = 100
"""Stops that one tick may preview or propose for; the rest come with the next ticks."""

PreviewAny = Callable[[ElectMaster | LeaveMaster, Evidence], Elected | Refused]
"""``decide`` without ``evolve`` on the newest applied state."""


class _Stopped(msgspec.Struct, kw_only=True):
    """A stop that goes on."""

    master_epoch: MasterEpoch
    seq: int
    reason: StopReason
    since_ns: int
    elected_ns: int
    """When the set's last election was (rule 3)."""
    look_ns: int = 0
    is_on_record: bool = False
    is_in_flight: bool = False
    stops: int = 1
    """That are one (rule 4)."""
    ended_ns: int | None = None
    """None: it goes on."""


def limit_ms(settings: Settings, reason: StopReason) -> int:
    """How long a stop for ``reason`` may last before its master is left; 0: it is not left for that."""
    if reason is StopReason.DISK_FULL:
        return settings.handover_disk_full_after_ms
    return settings.handover_writes_stopped_after_ms


class HandoverDuty:
    """The machine of one leader."""

    def __init__(
        self,
        *,
        view_of: ViewOf,
        fleet_now: FleetNow,
        sessions: Sessions,
        preview: PreviewAny,
        draw_epoch_jump: Callable[[], int],
    ) -> None:
        """Ports as of ``LeaderDuties``."""
        self._view_of = view_of
        self._fleet_now = fleet_now
        self._sessions = sessions
        self._preview = preview
        self._draw = draw_epoch_jump
        self._stopped: dict[SetKey, _Stopped] = {}

    def disarm(self) -> None:
        self._stopped.clear()

    def resumed(self) -> None:
        """A pause of elections, or a maintenance, is over."""
        for stopped in self._stopped.values():
            stopped.is_on_record, stopped.look_ns = False, 0

    def set_changed(self, key: SetKey, now_ns: int) -> None:
        """An applied entry changed this set, or this controller begins to lead."""
        fleet, wall_ms = self._fleet_now()
        set_state = fleet.sets.get(key)
        writes = set_state.writes if set_state is not None else None
        known = self._stopped.get(key)
        if set_state is None or writes is None or writes.is_over:
            if known is not None and known.ended_ns is None:
                known.ended_ns = now_ns
            if set_state is None or writes is None:
                self._stopped.pop(key, None)
            return
        if known is not None and (known.master_epoch, known.seq) == (set_state.master_epoch, writes.seq):
            # A member came back, or left: worth a look, but no second record.
            known.look_ns = 0
            return
        since_election_ms = max(0, wall_ms - (set_state.last_elected_at_ms or 0))
        stopped = _Stopped(
            master_epoch=set_state.master_epoch,
            seq=writes.seq,
            reason=writes.reason,
            since_ns=now_ns - (writes.told_at_ms - writes.began_at_ms) * NS_PER_MS,
            elected_ns=now_ns - since_election_ms * NS_PER_MS,
        )
        if known is not None and _is_continued(known, stopped, settings_in_force(fleet)):
            stopped.since_ns, stopped.stops = known.since_ns, known.stops + 1
            stopped.is_on_record = known.is_on_record
        self._stopped[key] = stopped

    def proposed(self, command: LeaveMaster, reply: AnyReply | None, now_ns: int) -> None:
        """The outcome of a proposal; None = not proposed, or unknown. An election comes by ``set_changed``."""
        stopped = self._stopped.get(command.set_key)
        if stopped is None or (stopped.master_epoch, stopped.seq) != (command.master_epoch, command.seq):
            return
        stopped.is_in_flight = False
        stopped.is_on_record = stopped.is_on_record or isinstance(reply, Refused)
        stopped.look_ns = now_ns + RETRY_MS * NS_PER_MS

    def tick(self, now_ns: int) -> dict[SetKey, ProposeCommand]:
        """Look at the stops that have lasted too long; at most one proposal for each set."""
        if not self._stopped:
            return {}
        fleet, _ = self._fleet_now()
        applied = settings_in_force(fleet)
        # Rule 1: the fleet file has no such policy.
        if applied is None:
            return {}
        actions: dict[SetKey, ProposeCommand] = {}
        looks = LOOKS_PER_TICK_MAX
        for key, stopped in self._stopped.items():
            if looks == 0:
                break
            set_state, view = fleet.sets.get(key), self._view_of(key)
            # Cleaned a moment ago: ended by it, the look at every later set would wait for the next tick.
            if set_state is None or view is None or not self._is_due(set_state, stopped, applied.settings, now_ns):
                continue
            looks -= 1
            action = self._leave(set_state, view, stopped, now_ns)
            if action is not None:
                actions[key] = action
        return actions

    # --- inside ------------------------------------------------------------------------------------------------------

    def _is_due(self, set_state: SetState, stopped: _Stopped, settings: Settings, now_ns: int) -> bool:
        writes = set_state.writes
        # Over, or another stop by now: the entry that says so is about to be handed to ``set_changed``.
        named = (stopped.master_epoch, stopped.seq)
        if writes is None or writes.is_over or (set_state.master_epoch, writes.seq) != named:
            return False
        after_ms = limit_ms(settings, writes.reason)
        is_old = after_ms > 0 and now_ns - stopped.since_ns >= after_ms * NS_PER_MS
        # Rule 3.
        is_damped = now_ns - stopped.elected_ns < settings.handover_pause_ms * NS_PER_MS
        return is_old and not is_damped and not stopped.is_in_flight and stopped.look_ns <= now_ns

    def _leave(self, set_state: SetState, view: SetView, stopped: _Stopped, now_ns: int) -> ProposeCommand | None:
        assert set_state.writes is not None
        evidence = self._sessions.evidence(
            view, now_ns=now_ns, triggered_by=set_state.writes.told_by, stamps=None, draw=self._draw()
        )
        command = LeaveMaster(
            set_key=set_state.set_key,
            master_epoch=stopped.master_epoch,
            seq=stopped.seq,
            reason=self._reason(set_state, evidence, stopped, now_ns),
        )
        # Rule 5.
        if stopped.is_on_record and not isinstance(self._preview(command, evidence), Elected):
            stopped.look_ns = now_ns + RETRY_MS * NS_PER_MS
            return None
        stopped.is_in_flight = True
        return ProposeCommand(command=command, evidence=evidence)

    def _reason(self, set_state: SetState, evidence: Evidence, stopped: _Stopped, now_ns: int) -> str:
        """The evidence, for people: what the master says, and what is heard of the others."""
        assert set_state.writes is not None
        master = set_state.master
        session = self._sessions.get(set_state.set_key, master) if master is not None else None
        links = session.links if session is not None else {}
        heard = ", ".join(
            _heard(seen.broker_id, seen.heartbeat_age_ms, is_cut=_is_cut(links.get(seen.broker_id), set_state))
            for seen in evidence.replicas
            if seen.broker_id != master and seen.broker_id in set_state.sync_state_set and seen.is_ready
        )
        nothing = "nothing" if stopped.stops == 1 else f"next to nothing, in {stopped.stops} stops,"
        age_s = (now_ns - stopped.since_ns) / NS_PER_MS / 1000
        return (
            f"handed over by policy: broker {master} has acknowledged {nothing} for {age_s:.1f} s "
            f"({stop_words(set_state.writes)}); in sync besides: {heard or 'nobody who is heard'}"
        )


def _is_continued(known: _Stopped, stopped: _Stopped, applied: AppliedSettings | None) -> bool:
    """Whether ``stopped`` goes on where ``known`` ended (rule 4)."""
    if applied is None or known.master_epoch != stopped.master_epoch:
        return False
    # One entry may end a stop and begin the next one.
    between_ns = 0 if known.ended_ns is None else stopped.since_ns - known.ended_ns
    is_own = known.reason is stopped.reason is StopReason.OWN_DISK
    return is_own and between_ns <= applied.settings.stall_ms * NS_PER_MS


def _is_cut(link: LinkSeen | None, set_state: SetState) -> bool:
    return link is not None and link.master_epoch == set_state.master_epoch and not link.is_open


def _heard(broker_id: BrokerId, age_ms: int | None, *, is_cut: bool) -> str:
    age = "never heard" if age_ms is None else f"heard {age_ms / 1000:.1f} s ago"
    return f"broker {broker_id}, {age}{', without a link to it' if is_cut else ''}"
