"""
When the leader proposes an election: the duty, as a machine.

Here: which sets lack a master, when an election is proposed for them and with which evidence, and which winner is
overdue with ``entered``. Not here: the winner (``decide_election``); silence, and what was heard of replicas
(``controller.runtime.sessions``; the synthetic fleets of the tests have a source of their own); sending
(``controller.runtime.service``). Times are nanoseconds of one monotonic clock, which the caller reads.

Rule 1: work follows changes. An applied entry that changed a set, and a replica that becomes ready, cause a look at
that set only; a tick looks at deadlines and at pending elections, never at all sets.
Rule 2 (S43): pending elections wait in one queue in the order of their need; at most one election per set and
``ELECTIONS_IN_FLIGHT_MAX`` in all are in flight.
Rule 3: the first attempt is proposed without a preview, so that "nobody was eligible" is on record once; further ones
only if a preview on the newest state finds a winner (S08: the leader tries again at every change).
Rule 4 (R6): a winner that has not reported ``entered`` by its deadline is replaced; apply sets it aside for that
election.
Rule 5: the election of a successor is proposed together with the silence of the master, so that both share one Raft
entry. Its evidence holds only facts that the silence does not move. If apply refuses the silence, the master lives, and
apply refuses the election too.
Rule 6 (R7, R8): a set that waits for an operator or for reports is not tried.
Rule 7: RocketMQ brokers ask for their first election themselves and report no ``entered``: the duty neither proposes
the one nor waits for the other.
Rule 8: while elections are paused, the one that is withheld is proposed once, and again when the pause is over.
Rule 9: a pending election is for the masterEpoch in which its need arose. The newest state may be ahead of the changes
that the duty was told: an operator has elected broker 3, and the attempt of before would replace it while it enters.
Rule 10 (R13): an election waits while the master is awaited: this leader's own network may have made it silent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import ElectMaster, MarkSilent
from rollcall_ha.controller.contract.events import (
    CommandRefused,
    EventRecord,
    LossGraded,
    MilestoneReached,
    ReplicaSilent,
)
from rollcall_ha.controller.contract.ids import BrokerId, MasterEpoch, ReplicaKind, SetKey
from rollcall_ha.controller.contract.replies import AnyReply, Condition, Elected, Refused, SetView
from rollcall_ha.controller.contract.timing import NS_PER_MS, Timing
from rollcall_ha.controller.contract.values import EventRef, Evidence, Frozen
from rollcall_ha.controller.core.actions import ProposeCommand
from rollcall_ha.controller.core.detection import Stamps
from rollcall_ha.controller.core.views import ViewOf

ELECTIONS_IN_FLIGHT_MAX = 512
"""Proposed elections without an outcome; more wait in the queue."""

RETRY_PAUSE_MS = 20
"""Pause after an election whose outcome is unknown or whose evidence moved; doubles up to ``RETRY_PAUSE_MS_MAX``."""

RETRY_PAUSE_MS_MAX = 1_000

RETRIES_PER_TICK_MAX = 200
"""Sets whose pause is over that one tick looks at; the rest come with the next ticks, in order."""

PreviewOf = Callable[[ElectMaster, Evidence], Elected | Refused]
"""``decide`` without ``evolve`` on the newest applied state."""


class Hearing(Protocol):
    """What this leader has heard of replicas."""

    def has_heard(self, key: SetKey, broker_id: BrokerId) -> bool:
        """Whether the replica told its positions."""

    def stamps_of_lost(self, key: SetKey, master: BrokerId | None) -> Stamps | None:
        """How the set lost its master; ``master`` None: its process was replaced. None: this leader did not see it."""

    def awaits_master(self, view: SetView, now_ns: int) -> bool:
        """Whether its master may be there, and is to be heard before another one is elected."""

    def evidence(
        self, view: SetView, *, now_ns: int, triggered_by: EventRef | None, stamps: Stamps | None, draw: int
    ) -> Evidence:
        """Soft facts about every replica that was heard, and the state that they were taken against (R14)."""


_LOST_MASTER = (Condition.MASTER_SILENT, Condition.NO_ELIGIBLE_REPLICA)

_CHANGES_NO_SET = (MilestoneReached, LossGraded, CommandRefused)


def changed_sets(records: Iterable[EventRecord]) -> dict[SetKey, EventRef]:
    """The sets that these events changed, in order, each with the event that it should act on."""
    found: dict[SetKey, EventRef] = {}
    for record in records:
        if record.set_key is None or isinstance(record.event, _CHANGES_NO_SET):
            continue
        # The silence triggers an election, of several events in one entry: that is the one ``explain`` follows.
        if record.set_key not in found or isinstance(record.event, ReplicaSilent):
            found[record.set_key] = record.ref
    return found


class PendingElection(msgspec.Struct, kw_only=True):
    """One set without a serving master, and the attempts for it."""

    set_key: SetKey
    master_epoch: MasterEpoch
    """The epoch whose master is lost, or did not enter."""
    since_ns: int
    triggered_by: EventRef | None = None
    stamps: Stamps | None = None
    proposed_ns: int | None = None
    retry_at_ns: int = 0
    attempts: int = 0
    is_on_record: bool = False
    """A failed attempt is on record: only a winner in the preview is worth a further one (Rule 3)."""
    is_ahead: bool = False
    """Proposed together with the silence of the master, which has not been applied yet (Rule 5)."""
    reason: str = ""

    def is_of(self, view: SetView) -> bool:
        """Whether its need is that of the set as the newest state shows it (Rule 9)."""
        return self.master_epoch == view.master_epoch


class Entering(Frozen):
    """A winner from whom ``entered`` is due."""

    master: BrokerId
    master_epoch: MasterEpoch
    deadline_ns: int


class ElectionDuty:
    """The machine. Handlers return proposals; none raises."""

    def __init__(
        self,
        *,
        timing: Timing,
        view_of: ViewOf,
        sessions: Hearing,
        preview: PreviewOf,
        draw_epoch_jump: Callable[[], int],
        in_flight_max: int = ELECTIONS_IN_FLIGHT_MAX,
    ) -> None:
        """``draw_epoch_jump`` gives 0..15 (R7); randomness is the shell's."""
        self._timing = timing
        self._view_of = view_of
        self._sessions = sessions
        self._preview = preview
        self._draw = draw_epoch_jump
        self._in_flight_max = in_flight_max
        self._pending: dict[SetKey, PendingElection] = {}
        self._queue: dict[SetKey, None] = {}
        self._entering: dict[SetKey, Entering] = {}
        # By set, not in ``PendingElection``: a set may get its master back and lose it again while its first election
        # is in flight, and would then have two of them.
        self._in_flight: dict[SetKey, None] = {}

    def retime(self, timing: Timing) -> None:
        """Other durations count for elections from here on."""
        self._timing = timing

    def disarm(self) -> None:
        self._pending.clear()
        self._queue.clear()
        self._entering.clear()
        self._in_flight.clear()

    @property
    def pending_count(self) -> int:
        """Sets without a serving master that may be tried; a metric."""
        return len(self._pending)

    def pending_of(self, key: SetKey) -> PendingElection | None:
        """The pending election of one set, if there is one."""
        return self._pending.get(key)

    # --- inputs ------------------------------------------------------------------------------------------------------

    def set_changed(self, key: SetKey, triggered_by: EventRef | None, now_ns: int) -> list[ProposeCommand]:
        """An applied entry changed this set, or this controller begins to lead (S37)."""
        view = self._view_of(key)
        if view is None:
            self._drop(key)
            self._entering.pop(key, None)
            return self._propose_queued(now_ns)
        self._watch_entering(view, now_ns)
        if not _lacks_master(view):
            # Served, or not ours to try (Rule 6). A need that stays would be previewed each second for ever.
            self._drop(key)
            return self._propose_queued(now_ns)
        pending = self._pending.get(key)
        if pending is None or not pending.is_of(view):
            pending = PendingElection(
                set_key=key,
                master_epoch=view.master_epoch,
                since_ns=now_ns,
                triggered_by=triggered_by,
                reason=_reason(view),
            )
            self._pending[key] = pending
        pending.is_ahead = False
        pending.triggered_by = pending.triggered_by or triggered_by
        if pending.stamps is None:
            # Taken now: when the old master registers again, its session begins empty, and the record of this failover
            # would not say when the fault was noticed.
            pending.stamps = self._sessions.stamps_of_lost(key, view.master)
        # A change ends every pause (S08). Broker 2, the only member, comes back 10 ms after an attempt failed: with the
        # pause it would be elected up to a second later.
        pending.retry_at_ns = 0
        self._enqueue(pending)
        return self._propose_queued(now_ns)

    def silence_proposed(self, silence: MarkSilent, now_ns: int) -> list[ProposeCommand]:
        """``silence`` is being proposed: if it is a reigning master's, propose an election with it (Rule 5)."""
        key, view = silence.set_key, self._view_of(silence.set_key)
        is_masters = (
            view is not None
            and view.condition.has_master
            and (view.master, view.master_incarnation) == (silence.broker_id, silence.incarnation)
        )
        # Evidence names a replica only by its positions. Without the master in it nothing would tie the election to the
        # session that fell silent (R14): a winner that is still entering and registers a further session in between
        # would be deposed although it lives. A master that has entered is kept by apply as long as it is alive.
        is_known = self._sessions.has_heard(key, silence.broker_id)
        # Rule 2 holds here too: when a rack with 1,000 masters dies, 512 elections share the entry of their silence and
        # the others wait in the queue.
        is_free = key not in self._in_flight and key not in self._pending and len(self._in_flight) < self._in_flight_max
        if view is None or not (is_masters and is_known and is_free) or self._sessions.awaits_master(view, now_ns):
            return []
        pending = PendingElection(
            set_key=key,
            master_epoch=view.master_epoch,
            since_ns=now_ns,
            stamps=self._sessions.stamps_of_lost(key, silence.broker_id),
            reason=_gone(silence.broker_id),
        )
        pending.is_ahead = True
        self._pending[key] = pending
        command, evidence = self._order(view, pending, now_ns)
        pending.proposed_ns = now_ns
        self._in_flight[key] = None
        return [ProposeCommand(command=command, evidence=evidence)]

    def became_ready(self, key: SetKey, now_ns: int) -> list[ProposeCommand]:
        """A replica of this set was heard for the first time on this leader, or says that it is ready now."""
        pending = self._pending.get(key)
        if pending is None:
            return []
        pending.retry_at_ns = 0
        self._enqueue(pending)
        return self._propose_queued(now_ns)

    def resumed(self) -> None:
        """A pause of elections or a maintenance is over: the next tick tries each set that waits."""
        for pending in self._pending.values():
            pending.retry_at_ns = 0

    def proposed(self, command: ElectMaster, reply: AnyReply | None, now_ns: int) -> list[ProposeCommand]:
        """The outcome of a proposal; None = not proposed, or unknown. Applied changes come by ``set_changed``."""
        pending = self._pending.get(command.set_key)
        was_in_flight = command.set_key in self._in_flight
        self._in_flight.pop(command.set_key, None)
        if pending is not None and pending.is_ahead:
            # ``set_changed`` clears the flag when the silence is applied: it was refused or lost, so the master is
            # alive as far as is known, and this election, left pending, would ask for its successor.
            self._drop(command.set_key)
            pending = None
        if pending is None or not was_in_flight:
            # An outcome from before ``disarm`` says nothing about the election that is in flight now.
            return self._propose_queued(now_ns)
        if isinstance(reply, Refused) and reply.code in (RefusalCode.NO_ELIGIBLE_REPLICA, RefusalCode.PAUSED):
            # From now on a preview comes first: else a set that has lost its members, or waits for the end of a pause,
            # writes an election that was not held into the log again and again.
            pending.is_on_record = True
        pause_ms = min(RETRY_PAUSE_MS << min(pending.attempts, 16), RETRY_PAUSE_MS_MAX)
        pending.attempts += 1
        pending.retry_at_ns = now_ns + pause_ms * NS_PER_MS
        return self._propose_queued(now_ns)

    def tick(self, now_ns: int) -> list[ProposeCommand]:
        """Look at deadlines that have passed and at pauses that are over."""
        for key, entering in tuple(self._entering.items()):
            # In the order of their deadlines, all equally far ahead: the first that is not due ends the scan.
            if entering.deadline_ns > now_ns:
                break
            del self._entering[key]
            self._replace_winner(key, entering, now_ns)
        # Each retry is a preview on the loop. With 5,000 sets without a master an unbounded tick would hold the loop
        # for seconds, and the heartbeats that wait behind it would look like silence.
        budget = RETRIES_PER_TICK_MAX
        for pending in self._pending.values():
            if budget == 0:
                break
            if pending.retry_at_ns <= now_ns and pending.set_key not in self._queue:
                self._enqueue(pending)
                budget -= 1
        return self._propose_queued(now_ns)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _watch_entering(self, view: SetView, now_ns: int) -> None:
        if view.condition is not Condition.ENTERING or view.master is None or _is_rocketmq(view, view.master):
            self._entering.pop(view.set_key, None)
            return
        watched = self._entering.get(view.set_key)
        if watched is None or watched.master_epoch != view.master_epoch:
            # Removed first, so that it goes to the end: in its old place its later deadline would hide those behind it.
            self._entering.pop(view.set_key, None)
            self._entering[view.set_key] = Entering(
                master=view.master,
                master_epoch=view.master_epoch,
                deadline_ns=now_ns + self._timing.entered_deadline_ms * NS_PER_MS,
            )

    def overdue(self, key: SetKey, limit: str, now_ns: int) -> list[ProposeCommand]:
        """The winner that is entering this set has no more time, by ``limit``."""
        entering = self._entering.pop(key, None)
        if entering is None:
            return []
        self._replace_winner(key, entering, now_ns, limit=limit)
        return self._propose_queued(now_ns)

    def _replace_winner(self, key: SetKey, entering: Entering, now_ns: int, *, limit: str = "") -> None:
        view = self._view_of(key)
        if view is None or view.master_epoch != entering.master_epoch or view.has_entered:
            # Its ``entered`` was applied, or a later election was: replacing now would depose a master that serves.
            return
        pending = PendingElection(
            set_key=key,
            master_epoch=entering.master_epoch,
            since_ns=now_ns,
            reason=f"broker {entering.master} did not enter masterEpoch {entering.master_epoch} "
            f"within {limit or f'{self._timing.entered_deadline_ms} ms'}",
        )
        self._pending[key] = pending
        self._enqueue(pending)

    def _drop(self, key: SetKey) -> None:
        self._pending.pop(key, None)
        self._queue.pop(key, None)

    def _enqueue(self, pending: PendingElection) -> None:
        if pending.set_key not in self._in_flight:
            self._queue.setdefault(pending.set_key)

    def _propose_queued(self, now_ns: int) -> list[ProposeCommand]:
        actions: list[ProposeCommand] = []
        while self._queue and len(self._in_flight) < self._in_flight_max:
            key = next(iter(self._queue))
            del self._queue[key]
            pending, view = self._pending.get(key), self._view_of(key)
            if pending is None or view is None or pending.retry_at_ns > now_ns:
                continue  # a pause: ``tick`` puts it into the queue again
            if not pending.is_of(view):
                # Else the election would be held a second time, 30 ms after the operator's, and history would have the
                # outage twice. ``set_changed`` is about to be told, and ends this need.
                continue
            actions += self._propose(view, pending, now_ns)
        return actions

    def _propose(self, view: SetView, pending: PendingElection, now_ns: int) -> list[ProposeCommand]:
        if self._sessions.awaits_master(view, now_ns):
            # Controllers and brokers were cut from each other for a minute, in which the master served on. Its slave is
            # back 30 ms before it: elected now, the cut would be felt when it ends (promise 3).
            pending.retry_at_ns = now_ns + RETRY_PAUSE_MS * NS_PER_MS
            return []
        command, evidence = self._order(view, pending, now_ns)
        if not self._is_worth_proposing(view, pending, command, evidence):
            # Nobody would win. The pause is the longest, because a change, and a replica that becomes ready, end it.
            pending.retry_at_ns = now_ns + RETRY_PAUSE_MS_MAX * NS_PER_MS
            return []
        pending.proposed_ns = now_ns
        self._in_flight[view.set_key] = None
        return [ProposeCommand(command=command, evidence=evidence)]

    def _is_worth_proposing(
        self, view: SetView, pending: PendingElection, command: ElectMaster, evidence: Evidence
    ) -> bool:
        has_failed = pending.is_on_record or view.condition is Condition.NO_ELIGIBLE_REPLICA
        if view.condition in _LOST_MASTER and not has_failed:
            # Also if nobody would win: an operator finds "nobody was eligible, because ..." in the record (Rule 3).
            return True
        answer = self._preview(command, evidence)
        # A withheld election has a winner: proposed for it, each second of a pause would be on record.
        if isinstance(answer, Refused) and answer.code is RefusalCode.PAUSED:
            return False
        return answer.verdict is not None and answer.verdict.winner is not None

    def _order(self, view: SetView, pending: PendingElection, now_ns: int) -> tuple[ElectMaster, Evidence]:
        command = ElectMaster(
            set_key=view.set_key,
            expected_master=view.master,
            expected_epoch=view.master_epoch,
            reason=pending.reason,
        )
        evidence = self._sessions.evidence(
            view, now_ns=now_ns, triggered_by=pending.triggered_by, stamps=pending.stamps, draw=self._draw()
        )
        return command, evidence


def _lacks_master(view: SetView) -> bool:
    if view.condition is Condition.WAITING_FOR_REPLICAS:
        # With two of three registered, the third may be the one that holds records: apply refuses without it (R8).
        return len(view.members) >= view.configuration.expected_replicas and not _is_rocketmq(view)
    return view.condition in _LOST_MASTER


def _is_rocketmq(view: SetView, broker_id: BrokerId | None = None) -> bool:
    """Whether this replica, or any if none is named, is a RocketMQ broker."""
    return any(
        member.description.kind is ReplicaKind.ROCKETMQ
        for member in view.members
        if broker_id is None or member.broker_id == broker_id
    )


def _reason(view: SetView) -> str:
    if view.condition is Condition.WAITING_FOR_REPLICAS:
        return "all expected replicas have registered"
    return _gone(view.master) if view.master is not None else "the set has no master"


def _gone(master: BrokerId) -> str:
    return f"broker {master} is gone"
