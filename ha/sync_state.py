"""
The master's side of the SyncStateSet: which replicas must have a byte before it is released, may join, must leave.

Here: one step machine per reign, sans IO; inputs are methods that return outputs. Not here: sessions (``broker``),
whether an alter is accepted (``controller.core``), waiters and leases (``broker.core``).

| input | what may come out |
| --- | --- |
| ``log_extended``, ``log_synced`` | ConfirmMoved |
| ``link_opened`` | (nothing; the replica becomes unknown) |
| ``link_closed`` | ConfirmMoved, if it waited for a replica that is no member |
| ``ack`` | MemberInSync, ProposeAlter (a join), ConfirmMoved |
| ``verdict`` | MemberInSync, ProposeAlter (the next join), ConfirmMoved |
| ``overtaken`` | as ``verdict`` |
| ``authoritative_state`` | MastershipEnded, or as ``verdict`` |
| ``mastership_refused`` | MastershipEnded |
| ``tick`` | ProposeAlter (the same again, a removal, a join), ConfirmMoved |

Rule 1: the required set is local + proposed until the verdict on that seq, the stored verdict on a higher one, or a
state of this very reign with a higher SyncStateSetEpoch (R2). Errors, timeouts and lost sessions end nothing.
Rule 2: one proposal is outstanding; a retry is the same value, so the same bytes (R1, W7).
Rule 3: a member joins in one step: the ack passes the test and the member is required from then on (R2, W6b).
Rule 4: caught up is Kafka's rule: an ack reaches the end that the log had at the ack before (W13). For a healthy
replica that is about to join, confirm waits for a moment; else a master alone would always be one batch ahead (L3).
Rule 5: only a tick removes members, and after a stall of the own process every member gets the full time again.
Rule 6: a removal that would leave fewer than ``min_in_sync`` members is not proposed, whatever keeps a member away: in
such a set nothing may be acknowledged (R22), so nothing is gained, and replicas that hold every acknowledged byte could
not be elected any more. Members that stay count for that if they have a link and were heard within ``stall_ms``: a
master that is cut off loses its slaves one after the other. Nothing is appended or released as long as too few members
are caught up and linked.
Rule 7: a reign that ended answers nothing more, and its required set stays as it was.
All times are milliseconds of one monotonic clock.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from rollcall_ha.controller.contract.ids import (
    BrokerId,
    FleetIncarnation,
    FlushMode,
    Incarnation,
    LogOffset,
    MasterEpoch,
    SyncStateSet,
    SyncStateSetEpoch,
)
from rollcall_ha.controller.contract.replies import AlterVerdict, SetView
from rollcall_ha.controller.contract.timing import Timing
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.ha.confirm_offset import AckFate, MemberAck, SlaveAcks, confirm_candidate


class ReignStart(Frozen):
    """The knowledge of a master that has entered its epoch."""

    broker_id: BrokerId
    incarnation: Incarnation
    fleet_incarnation: FleetIncarnation
    """Its electors': epochs of another founding or of a restored backup are other epochs (R7)."""
    master_epoch: MasterEpoch
    start_offset: LogOffset
    """First byte of this epoch."""
    confirm_offset: LogOffset
    """Confirm as known when the epoch was entered; at most ``start_offset``."""
    sync_state_set: SyncStateSet
    sync_state_set_epoch: SyncStateSetEpoch
    min_in_sync: int
    flush: FlushMode
    timing: Timing
    """
    Ticks further apart than ``stall_ms`` mean that the own process stood still; an unanswered alter is sent again after
    ``session_rpc_timeout_ms``, which is also the pause after a refusal.
    """


# --- outputs ---------------------------------------------------------------------------------------------------------


class ProposeAlter(Frozen):
    """Send this alter. Repeated unchanged until a verdict; send it again on every new session, too."""

    master_epoch: MasterEpoch
    seq: int
    sync_state_set_epoch: SyncStateSetEpoch
    new_set: SyncStateSet
    joining: tuple[tuple[BrokerId, Incarnation], ...]
    """Incarnations taken from the links whose acks passed the join test (R1)."""
    reason: str


class ConfirmMoved(Frozen):
    """Everything before ``offset`` is on every member of the required set."""

    offset: LogOffset


class MastershipEnded(Frozen):
    """Stop acknowledging and fail all waiters as "outcome unknown" (R17)."""

    reason: str


class MemberInSync(Frozen):
    """First time on its link that a committed member has everything that is confirmed, and the whole older past."""

    broker_id: BrokerId


SyncOutput = ProposeAlter | ConfirmMoved | MastershipEnded | MemberInSync


class _CaughtUp(msgspec.Struct):
    """Kafka's three numbers for one member."""

    caught_up_at_ms: int
    """Last moment at which it is known to have had everything."""
    previous_ack_at_ms: int
    log_end_at_previous_ack: LogOffset | None = None
    is_reported: bool = False


class SyncState:
    """One reign; thrown away when it ends (R12)."""

    def __init__(self, reign: ReignStart, *, log_end: LogOffset, now_ms: int) -> None:
        """Begin right after ``entered``: members are unknown, and have ``survivors_wait_ms`` to shake hands (R6)."""
        if reign.broker_id not in reign.sync_state_set:
            raise ValueError(f"master {reign.broker_id} is not in its SyncStateSet {reign.sync_state_set}")
        self.reign = reign
        self._local = reign.sync_state_set
        self._local_epoch = reign.sync_state_set_epoch
        self._outstanding: ProposeAlter | None = None
        self._sent_at_ms = 0
        self._pause_until_ms = 0
        self._seq = 0
        self._log_end = log_end
        # Not the log's end: with ``flush = sync`` the master's own ack covers synced bytes only, and nobody has said
        # which.
        self._synced_end = reign.confirm_offset
        self._confirm = reign.confirm_offset
        self._table = SlaveAcks(reign.master_epoch)
        self._caught_up = {member: self._fresh(now_ms) for member in self._others(self._local)}
        self._linkless_since_ms = dict.fromkeys(self._others(self._local), now_ms)
        self._stopping: frozenset[BrokerId] = frozenset()
        """Replicas that announced their stop: none of them joins, and a member among them leaves at the next tick."""
        self._lost: frozenset[BrokerId] = frozenset()
        """Members that would be removed if the set were large enough (rule 6), by the last tick."""
        self._held_for: dict[BrokerId, int] = {}
        """Replicas that are about to join, with the time until which confirm is held for them."""
        self._last_tick_ms = now_ms
        self._ended: MastershipEnded | None = None

    # --- state -------------------------------------------------------------------------------------------------------

    @property
    def confirm_offset(self) -> LogOffset:
        """Never falls while this object lives."""
        return self._confirm

    @property
    def local_set(self) -> SyncStateSet:
        """The committed set as far as this master knows."""
        return self._local

    @property
    def proposed_set(self) -> SyncStateSet | None:
        """Set of the outstanding alter."""
        return self._outstanding.new_set if self._outstanding else None

    @property
    def outstanding(self) -> ProposeAlter | None:
        """The alter without a verdict: to be repeated on a new session as it is."""
        return self._outstanding

    @property
    def required_set(self) -> SyncStateSet:
        """Local + proposed (R2), sorted."""
        # {A, B} proposes {A}: with the proposed set alone A acks v1 without B, B is elected before the alter applies,
        # and v1 is lost. {A} proposes {A, B}: with the local set alone A acks v1 without B after the alter has applied.
        return tuple(sorted({*self._local, *(self.proposed_set or ())}))

    @property
    def counted(self) -> SyncStateSet:
        """Members of both the local and the proposed set that are not lost (R22)."""
        # Only these are in the set whichever way the alter ends. Counted by the union, {A} that proposes {A, B} would
        # satisfy ``min_in_sync = 2`` with one member: refused, B is none.
        both = self._local if self.proposed_set is None else tuple(set(self._local) & set(self.proposed_set))
        # Rule 6. Sends of a set whose members are cut off would be taken, and each would wait for its whole time.
        return tuple(sorted(member for member in both if member not in self._lost))

    @property
    def in_sync_count(self) -> int:
        """How many of them there are."""
        return len(self.counted)

    @property
    def may_release(self) -> bool:
        """The reign goes on and ``min_in_sync`` holds: asked before an append and again at release (W12, R22)."""
        return self._ended is None and self.in_sync_count >= self.reign.min_in_sync

    def retime(self, timing: Timing) -> None:
        """Other durations count from the next look on; what they have begun to wait for goes on."""
        self.reign = replace(self.reign, timing=timing)

    def require(self, min_in_sync: int) -> None:
        """So many members have to hold what is released from now on (R22); ask ``may_release`` again."""
        self.reign = replace(self.reign, min_in_sync=min_in_sync)

    @property
    def ended(self) -> MastershipEnded | None:
        """Why this reign is over; None = it goes on."""
        return self._ended

    def acked(self, broker_id: BrokerId) -> LogOffset | None:
        """Last ack of this replica on its current link; None = unknown."""
        return self._table.acked(broker_id)

    def heard_at_ms(self, broker_id: BrokerId) -> int:
        """When an ack of this member last counted, on whichever link; the beginning of its membership if none did."""
        state = self._caught_up.get(broker_id)
        return 0 if state is None else state.previous_ack_at_ms

    # --- inputs ------------------------------------------------------------------------------------------------------

    def log_extended(self, end: LogOffset) -> list[SyncOutput]:
        """The own log ends at ``end`` now."""
        self._log_end = max(self._log_end, end)
        return self._advance_confirm()

    def log_synced(self, end: LogOffset) -> list[SyncOutput]:
        """The own log is on disk up to ``end``: the master's own ack, if the set runs ``flush = sync`` (R3c)."""
        self._synced_end = max(self._synced_end, end)
        return self._advance_confirm()

    def link_opened(
        self, broker_id: BrokerId, incarnation: Incarnation, link_generation: int, *, is_learner: bool
    ) -> list[SyncOutput]:
        """A handshake was answered: the acks of this replica are unknown again (R2)."""
        if self._ended or broker_id == self.reign.broker_id:
            return []
        if self._table.open_link(broker_id, incarnation, link_generation, is_learner=is_learner):
            # Its acks of the former link spoke of a log that this handshake may cut: unknown again, and confirm waits.
            self._linkless_since_ms.pop(broker_id, None)
            self._held_for.pop(broker_id, None)
            state = self._caught_up.get(broker_id)
            if state is not None:
                state.log_end_at_previous_ack = None
                state.is_reported = False
        return []

    def link_closed(self, broker_id: BrokerId, link_generation: int, now_ms: int) -> list[SyncOutput]:
        """The current link of a replica is gone; a late close of an older one means nothing (W10)."""
        if self._ended or not self._table.close_link(broker_id, link_generation):
            return []
        self._linkless_since_ms[broker_id] = now_ms
        return self._stop_holding(broker_id)

    def ack(self, ack: MemberAck, now_ms: int) -> list[SyncOutput]:
        """An ack came. One that does not count changes nothing."""
        if self._ended or self._table.record(ack) is not AckFate.COUNTED:
            return []
        self._note_caught_up(ack, now_ms)
        # With the next tick only, it would be refused work for that long.
        if ack.broker_id in self._lost and not self._is_lost(ack.broker_id, now_ms):
            self._lost -= {ack.broker_id}
        outputs = self._report_in_sync(ack.broker_id)
        # The proposal before confirm, which then waits for C, too. The test and the entry are one step in
        # ``_propose_joining`` (rule 3): the other order could only keep C out for longer (L3).
        outputs += self._propose_joining(now_ms)
        return outputs + self._advance_confirm()

    def verdict(self, decided: AlterVerdict, now_ms: int) -> list[SyncOutput]:
        """
        The stored verdict of apply on one seq (R1). Ends the union only if it is that of the outstanding alter.

        A refusal because this mastership is over comes as ``mastership_refused`` instead.
        """
        reign, outstanding = self.reign, self._outstanding
        # The verdict on seq 1, delivered again while seq 2 is outstanding, would end the union of seq 2: A stops
        # requiring B, whose alter commits a moment later.
        is_known = outstanding is not None and decided.seq == outstanding.seq
        if self._ended or not is_known or decided.master_epoch != reign.master_epoch:
            return []
        self._outstanding = None
        # A refused proposal would be made again by the same ack, as fast as the controllers can refuse it.
        if not decided.is_accepted:
            self._pause_until_ms = now_ms + reign.timing.session_rpc_timeout_ms
        return self._adopt(decided, now_ms)

    def overtaken(self, decided: AlterVerdict, now_ms: int) -> list[SyncOutput]:
        """
        The set stores a verdict on the outstanding seq with other content, or on a higher seq (R1).

        Somebody else has proposed in our name. The next proposal goes above its seq.
        """
        outstanding = self._outstanding
        is_above = outstanding is not None and decided.seq >= outstanding.seq
        if self._ended or not is_above or decided.master_epoch != self.reign.master_epoch:
            return []
        # Without this a forged seq of 1,000 would stop the alters of this reign: ours, at 2, is refused for ever, and
        # is repeated for ever. The union may end: from that verdict on ours can never be applied; had it been applied
        # before, SyncStateSetEpoch would be higher than the one that ours named, and that state is adopted here.
        self._seq = decided.seq
        self._outstanding = None
        self._pause_until_ms = now_ms + self.reign.timing.session_rpc_timeout_ms
        return self._adopt(decided, now_ms)

    def mastership_refused(self, reason: str) -> list[SyncOutput]:
        """A refusal because of an older masterEpoch or an ended incarnation: ends the reign, never the union (R2)."""
        # {A} proposed {A, B}; it committed, the answer was lost, B was elected; A's retry is refused as older. With the
        # union ended A would ack v1 alone, and B has never heard of it.
        return self._end(reason)

    def authoritative_state(self, view: SetView, now_ms: int) -> list[SyncOutput]:
        """The state of the set by the controllers, from a push, a heartbeat's answer or a registration (R2)."""
        reign = self.reign
        if self._ended or view.master_epoch < reign.master_epoch:
            return []
        # Never adopt the set of another reign: A in epoch 1 that took {A} of epoch 3, where it is elected again, would
        # release v1 of epoch 1 alone; B in 2 has no v1, and 3 begins where 2 ends.
        if view.master_epoch > reign.master_epoch:
            return self._end(f"masterEpoch is {view.master_epoch} now, this reign is {reign.master_epoch}")
        if (view.master, view.master_incarnation) != (reign.broker_id, reign.incarnation):
            return self._end(
                f"masterEpoch {view.master_epoch} names master {view.master} incarnation {view.master_incarnation},"
                f" this is {reign.broker_id} incarnation {reign.incarnation}"
            )
        # Restored controllers count SyncStateSetEpochs on from an old backup. {1,2} proposes {1,2,3}, it commits, the
        # answer is lost and the backup is older: their {1,2} at a higher number is no knowledge of the alter, and 3,
        # whose stored view says {1,2,3}, may still be elected (R7).
        if view.fleet_incarnation != reign.fleet_incarnation:
            return []
        self._stopping = frozenset(member.broker_id for member in view.members if member.is_stopping)
        # Equal or lower is a state from before the outstanding alter, which may still commit.
        if view.sync_state_set_epoch <= self._local_epoch:
            return []
        # Higher: the outstanding alter named the old SyncStateSetEpoch, so it is in this state or can never apply.
        self._outstanding = None
        return self._adopt(view, now_ms)

    def tick(self, now_ms: int) -> list[SyncOutput]:
        """Time passed: repeat the outstanding proposal, or propose a removal or a join."""
        if self._ended:
            return []
        # This process stood still for 12 s: the acks of that time are in its sockets, unread. Without grace it would
        # first remove every member for having been silent.
        if now_ms - self._last_tick_ms > self.reign.timing.stall_ms:
            self._grant_grace(now_ms)
        self._last_tick_ms = now_ms
        self._lost = frozenset(member for member in self._others(self._local) if self._is_lost(member, now_ms))
        outputs = self._stop_holding(*(member for member, until_ms in self._held_for.items() if now_ms >= until_ms))
        outstanding = self._outstanding
        if outstanding is None:
            return outputs + (self._propose_leaving(now_ms) or self._propose_joining(now_ms))
        if now_ms - self._sent_at_ms < self.reign.timing.session_rpc_timeout_ms:
            return outputs
        # The same value, whatever changed meanwhile: a seq has one content (R1). {A, B} commits as seq 1 and B is
        # elected; seq 1 sent again as {A, C} would be answered by that verdict, and A would not require B.
        self._sent_at_ms = now_ms
        return [*outputs, outstanding]

    # --- inside ------------------------------------------------------------------------------------------------------

    def _fresh(self, now_ms: int) -> _CaughtUp:
        return _CaughtUp(caught_up_at_ms=now_ms, previous_ack_at_ms=now_ms)

    def _others(self, members: SyncStateSet) -> list[BrokerId]:
        return [member for member in members if member != self.reign.broker_id]

    def _end(self, reason: str) -> list[SyncOutput]:
        if self._ended:
            return []
        self._ended = MastershipEnded(reason=reason)
        return [self._ended]

    def _own_end(self) -> LogOffset:
        return self._synced_end if self.reign.flush is FlushMode.SYNC else self._log_end

    def _advance_confirm(self) -> list[SyncOutput]:
        if not self.may_release:
            return []
        # Members first, and those that are held for: a join can pass its test only while confirm does not run ahead.
        waited_for = (*self._others(self.required_set), *self._held_for)
        candidate = confirm_candidate(self._own_end(), waited_for, self._table)
        # Below the start of the epoch nothing is confirmed by it: the members agree on those bytes only after each of
        # them has been cut at its handshake and has acked beyond them.
        if candidate is None or candidate <= self._confirm or candidate < self.reign.start_offset:
            return []
        self._confirm = candidate
        return [ConfirmMoved(offset=candidate)]

    def _has_everything(self, broker_id: BrokerId) -> bool:
        acked = self._table.acked(broker_id)
        # Confirm: A acked v1 alone and admits B, which is at 0; B is elected without v1. Start: B admits C below its
        # own start, where C may still hold other bytes (R2).
        return acked is not None and acked >= max(self._confirm, self.reign.start_offset)

    def _note_caught_up(self, ack: MemberAck, now_ms: int) -> None:
        state = self._caught_up.get(ack.broker_id)
        if state is None:
            state = self._caught_up[ack.broker_id] = self._fresh(now_ms)
        if ack.offset >= self._log_end:
            state.caught_up_at_ms = now_ms
        elif state.log_end_at_previous_ack is not None and ack.offset >= state.log_end_at_previous_ack:
            state.caught_up_at_ms = max(state.caught_up_at_ms, state.previous_ack_at_ms)
            if self._may_join(ack.broker_id):
                self._held_for.setdefault(ack.broker_id, now_ms + self.reign.timing.survivors_wait_ms)
        state.previous_ack_at_ms = now_ms
        state.log_end_at_previous_ack = self._log_end

    def _stop_holding(self, *members: BrokerId) -> list[SyncOutput]:
        for member in members:
            self._held_for.pop(member, None)
        return self._advance_confirm() if members else []

    def _report_in_sync(self, broker_id: BrokerId) -> list[SyncOutput]:
        state = self._caught_up.get(broker_id)
        # "In sync" ends the exposure in the record of the failover: told of a committed member only, once per link.
        if state is None or state.is_reported or broker_id not in self._local or not self._has_everything(broker_id):
            return []
        state.is_reported = True
        return [MemberInSync(broker_id=broker_id)]

    def _adopt(self, told: AlterVerdict | SetView, now_ms: int) -> list[SyncOutput]:
        outputs: list[SyncOutput] = []
        if told.sync_state_set_epoch > self._local_epoch:
            newcomers = [member for member in self._others(told.sync_state_set) if member not in self._local]
            self._local, self._local_epoch = told.sync_state_set, told.sync_state_set_epoch
            for member in newcomers:
                self._caught_up.setdefault(member, self._fresh(now_ms)).caught_up_at_ms = now_ms
                if member not in self._table.links:
                    self._linkless_since_ms[member] = now_ms
                outputs += self._report_in_sync(member)
        outputs += self._advance_confirm()
        return outputs + self._propose_joining(now_ms)

    def _grant_grace(self, now_ms: int) -> None:
        for state in self._caught_up.values():
            state.caught_up_at_ms = now_ms
        for member in self._linkless_since_ms:
            self._linkless_since_ms[member] = now_ms

    def _propose_leaving(self, now_ms: int) -> list[SyncOutput]:
        # In the pause behind a refusal the same removal would be refused again.
        if now_ms < self._pause_until_ms:
            return []
        # A member about to stop, while it still acks: removed when its link is gone, each send would wait
        # ``survivors_wait_ms`` for it first. If too few would be left, then at least those that are lost.
        for leaving in (self._lost | self._stopping, self._lost):
            gone = [member for member in self._others(self._local) if member in leaving]
            remaining = tuple(member for member in self._local if member not in gone)
            if gone and self._may_remain(remaining, now_ms):
                why = "about to stop" if self._stopping.issuperset(gone) else "not caught up or not connected"
                return self._propose(remaining, (), f"{gone} {why}", now_ms)
        return []

    def _may_remain(self, members: SyncStateSet, now_ms: int) -> bool:
        # B was silent for its whole time, C will have been in 200 ms: of {A, C} nobody could be elected but C alone.
        since_ms = now_ms - self.reign.timing.stall_ms
        heard = [one for one in self._others(members) if one in self._table.links and self.heard_at_ms(one) >= since_ms]
        # Rule 6. {A, B, C} with min_in_sync 2, A cut off from both: as {A} it could not acknowledge either, and when A
        # dies next, B and C, who hold all that was acknowledged, could not be elected.
        return 1 + len(heard) >= self.reign.min_in_sync

    def _propose_joining(self, now_ms: int) -> list[SyncOutput]:
        if self._outstanding is not None or now_ms < self._pause_until_ms:
            return []
        joining = tuple(
            (link.broker_id, link.incarnation)
            for link in sorted(self._table.links.values(), key=lambda link: link.broker_id)
            if self._may_join(link.broker_id) and self._is_fit_to_join(link.broker_id, now_ms)
        )
        if not joining:
            return []
        ids = [broker_id for broker_id, _ in joining]
        for broker_id in ids:
            self._held_for.pop(broker_id, None)
        return self._propose(tuple(sorted({*self._local, *ids})), joining, f"{ids} caught up", now_ms)

    def _may_join(self, broker_id: BrokerId) -> bool:
        acked = self._table.acked(broker_id)
        link = self._table.links.get(broker_id)
        is_candidate = link is not None and not link.is_learner and broker_id not in self.required_set
        # A member that left because it is about to stop still acks: it would join again at once.
        is_candidate = is_candidate and broker_id not in self._stopping
        return is_candidate and acked is not None and acked >= self.reign.start_offset

    def _is_fit_to_join(self, broker_id: BrokerId, now_ms: int) -> bool:
        """
        It has everything, and lately so.

        A member that was stuck at 500 froze confirm at 500, and was removed for it. By its last ack alone it would join
        again at once, freeze confirm again, and so on.
        """
        is_fresh = now_ms - self._caught_up[broker_id].caught_up_at_ms < self.reign.timing.catch_up_timeout_ms
        return is_fresh and self._has_everything(broker_id)

    def _is_lost(self, member: BrokerId, now_ms: int) -> bool:
        """Without a link, or not caught up, for longer than it may be."""
        linkless_since_ms = self._linkless_since_ms.get(member)
        # No link: not the catch-up timeout, which a short break must not cost, but the wait that an election grants its
        # survivors (R6). Until then no send is acknowledged.
        if linkless_since_ms is not None and now_ms - linkless_since_ms >= self.reign.timing.survivors_wait_ms:
            return True
        return now_ms - self._caught_up[member].caught_up_at_ms >= self.reign.timing.catch_up_timeout_ms

    def _propose(
        self,
        new_set: SyncStateSet,
        joining: tuple[tuple[BrokerId, Incarnation], ...],
        reason: str,
        now_ms: int,
    ) -> list[SyncOutput]:
        self._seq += 1
        self._outstanding = ProposeAlter(
            master_epoch=self.reign.master_epoch,
            seq=self._seq,
            sync_state_set_epoch=self._local_epoch,
            new_set=new_set,
            joining=joining,
            reason=reason,
        )
        self._sent_at_ms = now_ms
        return [self._outstanding]
