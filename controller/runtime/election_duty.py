"""
When the leader proposes an election: the duty, as a machine.

Here: which sets want a master, when to try, with which evidence, and whose ``entered`` is overdue.
Not here: who wins (``controller.core``), who is silent (``sessions``), sending (``service``). Times are nanoseconds of
one monotonic clock.

Rule 1: work follows changes. An applied entry that touches a set, and a replica that becomes ready, look at that set
only; a tick looks at deadlines and at sets that want a master, never at all sets.
Rule 2 (S43): sets wait in one queue in the order of their need; at most one election per set and
``ELECTIONS_IN_FLIGHT_MAX`` in all are under way.
Rule 3: the first attempt is proposed as it is, so that "nobody was eligible" is on record once; further ones only if a
preview on the newest state finds a winner (S08: retried on every change).
Rule 4 (R6): a winner that has not reported ``entered`` by its deadline is replaced; apply sets it
aside for that election.
Rule 5: the election of a master's successor is proposed together with its silence, so that both share one Raft entry.
Its evidence is what the silence does not move; should that be refused, the master lives and the election is refused.
Rule 6 (R8, R7): what waits for an operator or for reports is not tried.
Rule 6: RocketMQ brokers ask for their first election themselves, and report no ``entered``: it is neither tried for
them nor awaited of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import ElectMaster, MarkSilent
from rollcall_ha.controller.contract.ids import BrokerId, MasterEpoch, ReplicaKind, SetKey
from rollcall_ha.controller.contract.replies import AnyReply, Condition, Elected, Refused, SetView
from rollcall_ha.controller.contract.timing import Timing
from rollcall_ha.controller.contract.values import EventRef, Evidence
from rollcall_ha.controller.contract.verdicts import Verdict
from rollcall_ha.controller.runtime.actions import Action, ProposeCommand
from rollcall_ha.controller.runtime.session_state import NS_PER_MS, Stamps
from rollcall_ha.controller.runtime.sessions import Sessions, ViewOf

ELECTIONS_IN_FLIGHT_MAX = 512
"""Proposed elections without an outcome; more wait in the queue."""

RETRY_PAUSE_MS = 20
"""Pause after an election whose outcome is unknown or whose evidence moved; doubles up to ``RETRY_PAUSE_MS_MAX``."""

RETRY_PAUSE_MS_MAX = 1_000

RETRIES_PER_TICK_MAX = 200
"""Sets whose pause is over that one tick looks at; the rest come with the next ticks, in order."""

PreviewOf = Callable[[ElectMaster, Evidence], Elected | Refused]
"""``decide`` without ``evolve`` on the newest applied state."""

_REIGNS = (Condition.SERVING, Condition.ENTERING)
_LOST_MASTER = (Condition.MASTER_SILENT, Condition.NO_ELIGIBLE_REPLICA)


@dataclass(slots=True, kw_only=True)
class Want:
    """One set that has no serving master, and what was tried."""

    set_key: SetKey
    since_ns: int
    triggered_by: EventRef | None = None
    stamps: Stamps | None = None
    proposed_ns: int | None = None
    retry_at_ns: int = 0
    attempts: int = 0
    is_on_record: bool = False
    """A failed attempt is on record for this need."""
    is_ahead: bool = False
    """Proposed together with the silence of the master; the need itself has not been applied yet."""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entering:
    """A winner from whom ``entered`` is due."""

    master: BrokerId
    master_epoch: MasterEpoch
    deadline_ns: int


class Electing:
    """The machine. Handlers return proposals; none raises."""

    def __init__(
        self,
        *,
        timing: Timing,
        view_of: ViewOf,
        sessions: Sessions,
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
        self._wants: dict[SetKey, Want] = {}
        self._queue: dict[SetKey, None] = {}
        self._entering: dict[SetKey, Entering] = {}
        # An election belongs to its set, not to the want: the want may end and return while it is under way.
        self._in_flight: dict[SetKey, None] = {}

    def disarm(self) -> None:
        self._wants.clear()
        self._queue.clear()
        self._entering.clear()
        self._in_flight.clear()

    @property
    def wanting(self) -> int:
        """Sets without a serving master that may be tried; a metric."""
        return len(self._wants)

    def want_of(self, key: SetKey) -> Want | None:
        """What is under way for one set."""
        return self._wants.get(key)

    # --- inputs ------------------------------------------------------------------------------------------------------

    def touched(self, key: SetKey, triggered_by: EventRef | None, now_ns: int) -> list[Action]:
        """An applied entry changed this set, or this controller begins to lead (S37)."""
        view = self._view_of(key)
        if view is None:
            self._drop(key)
            self._entering.pop(key, None)
            return self._pump(now_ns)
        self._watch_entering(view, now_ns)
        if not _wants_master(view):
            self._drop(key)
            return self._pump(now_ns)
        want = self._wants.get(key)
        if want is None:
            want = Want(set_key=key, since_ns=now_ns, triggered_by=triggered_by, reason=_reason(view))
            self._wants[key] = want
        want.is_ahead = False
        if want.stamps is None and view.master is not None:
            master = self._sessions.get(key, view.master)
            want.stamps = master.stamps() if master is not None else None
        # A change ends every pause: what was refused a moment ago may be possible now (S08).
        want.retry_at_ns = 0
        self._enqueue(want)
        return self._pump(now_ns)

    def silencing(self, silence: MarkSilent, now_ns: int) -> list[Action]:
        """``silence`` is being proposed: what to propose with it, if it is that of a reigning master (Rule 5)."""
        key, view = silence.set_key, self._view_of(silence.set_key)
        session = self._sessions.get(key, silence.broker_id)
        is_masters = (
            view is not None
            and view.condition in _REIGNS
            and (view.master, view.master_incarnation) == (silence.broker_id, silence.incarnation)
        )
        # Without its positions the master would not be in the evidence, and nothing would hold it to this session.
        is_known = session is not None and session.positions is not None
        is_free = key not in self._in_flight and key not in self._wants and len(self._in_flight) < self._in_flight_max
        if view is None or session is None or not (is_masters and is_known and is_free):
            return []
        want = Want(set_key=key, since_ns=now_ns, stamps=session.stamps(), reason=_gone(silence.broker_id))
        want.is_ahead = True
        self._wants[key] = want
        command, evidence = self._order(view, want, now_ns)
        want.proposed_ns = now_ns
        self._in_flight[key] = None
        return [ProposeCommand(command=command, evidence=evidence)]

    def became_ready(self, key: SetKey, now_ns: int) -> list[Action]:
        """A replica of this set was heard for the first time on this leader, or says that it is ready now."""
        want = self._wants.get(key)
        if want is None:
            return []
        want.retry_at_ns = 0
        self._enqueue(want)
        return self._pump(now_ns)

    def proposed(self, command: ElectMaster, reply: AnyReply | None, now_ns: int) -> list[Action]:
        """The outcome of a proposal; None = not proposed, or unknown. What was applied comes by ``touched``."""
        want = self._wants.get(command.set_key)
        was_in_flight = command.set_key in self._in_flight
        self._in_flight.pop(command.set_key, None)
        if want is not None and want.is_ahead:
            # Whatever became of the silence: if it is applied, the need is.
            self._drop(command.set_key)
            want = None
        if want is None or not was_in_flight:
            return self._pump(now_ns)
        if isinstance(reply, Refused) and reply.code is RefusalCode.NO_ELIGIBLE_REPLICA:
            want.is_on_record = True
        pause_ms = min(RETRY_PAUSE_MS << min(want.attempts, 16), RETRY_PAUSE_MS_MAX)
        want.attempts += 1
        want.retry_at_ns = now_ns + pause_ms * NS_PER_MS
        return self._pump(now_ns)

    def tick(self, now_ns: int) -> list[Action]:
        """Look at deadlines that have passed and at pauses that are over."""
        for key, entering in tuple(self._entering.items()):
            # In order of their deadlines: the first that is not due ends the scan.
            if entering.deadline_ns > now_ns:
                break
            del self._entering[key]
            self._replace_winner(key, entering, now_ns)
        budget = RETRIES_PER_TICK_MAX
        for want in self._wants.values():
            if budget == 0:
                break
            if want.retry_at_ns <= now_ns and want.set_key not in self._queue:
                self._enqueue(want)
                budget -= 1
        return self._pump(now_ns)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _watch_entering(self, view: SetView, now_ns: int) -> None:
        if view.condition is not Condition.ENTERING or view.master is None or _is_rocketmq(view, view.master):
            self._entering.pop(view.set_key, None)
            return
        watched = self._entering.get(view.set_key)
        if watched is None or watched.master_epoch != view.master_epoch:
            self._entering.pop(view.set_key, None)
            self._entering[view.set_key] = Entering(
                master=view.master,
                master_epoch=view.master_epoch,
                deadline_ns=now_ns + self._timing.entered_deadline_ms * NS_PER_MS,
            )

    def _replace_winner(self, key: SetKey, entering: Entering, now_ns: int) -> None:
        view = self._view_of(key)
        if view is None or view.master_epoch != entering.master_epoch or view.has_entered:
            return
        want = Want(
            set_key=key,
            since_ns=now_ns,
            reason=f"broker {entering.master} did not enter masterEpoch {entering.master_epoch} "
            f"within {self._timing.entered_deadline_ms} ms",
        )
        self._wants[key] = want
        self._enqueue(want)

    def _drop(self, key: SetKey) -> None:
        self._wants.pop(key, None)
        self._queue.pop(key, None)

    def _enqueue(self, want: Want) -> None:
        if want.set_key not in self._in_flight:
            self._queue.setdefault(want.set_key)

    def _pump(self, now_ns: int) -> list[Action]:
        actions: list[Action] = []
        while self._queue and len(self._in_flight) < self._in_flight_max:
            key = next(iter(self._queue))
            del self._queue[key]
            want, view = self._wants.get(key), self._view_of(key)
            if want is None or view is None or want.retry_at_ns > now_ns:
                continue
            actions += self._propose(view, want, now_ns)
        return actions

    def _propose(self, view: SetView, want: Want, now_ns: int) -> list[Action]:
        command, evidence = self._order(view, want, now_ns)
        if not self._is_worth_proposing(view, want, command, evidence):
            want.retry_at_ns = now_ns + RETRY_PAUSE_MS_MAX * NS_PER_MS
            return []
        want.proposed_ns = now_ns
        self._in_flight[view.set_key] = None
        return [ProposeCommand(command=command, evidence=evidence)]

    def _is_worth_proposing(self, view: SetView, want: Want, command: ElectMaster, evidence: Evidence) -> bool:
        has_failed = want.is_on_record or view.condition is Condition.NO_ELIGIBLE_REPLICA
        if view.condition in _LOST_MASTER and not has_failed:
            return True
        verdict = _verdict_of(self._preview(command, evidence))
        return verdict is not None and verdict.winner is not None

    def _order(self, view: SetView, want: Want, now_ns: int) -> tuple[ElectMaster, Evidence]:
        command = ElectMaster(
            set_key=view.set_key,
            expected_master=view.master,
            expected_epoch=view.master_epoch,
            reason=want.reason,
        )
        evidence = self._sessions.evidence(
            view, now_ns=now_ns, triggered_by=want.triggered_by, stamps=want.stamps, draw=self._draw()
        )
        return command, evidence


def _verdict_of(reply: Elected | Refused) -> Verdict | None:
    return reply.verdict


def _wants_master(view: SetView) -> bool:
    if view.condition is Condition.WAITING_FOR_REPLICAS:
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
