"""
When the leading controller of a synthetic fleet proposes an election, and with which evidence.

Here: the duty of ``controller.runtime.election_duty``, as far as one set shows it. Not here: who wins, which is the
real core's word.
Rule 1: the first attempt is proposed as it is, so that "nobody was eligible" is on record once; further ones only if a
dry run finds a winner.
Rule 2: a winner that has not entered by its deadline is replaced (R6).
Rule 3: after long enough without an eligible replica somebody elects unclean, so that every history goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rollcall_ha.analytics.synthetic.operations import SyntheticOperation
from rollcall_ha.analytics.synthetic.plan import US_PER_MS, US_PER_S
from rollcall_ha.analytics.synthetic.processes import Process, Seen
from rollcall_ha.controller.contract.commands import ElectMaster, ElectUnclean
from rollcall_ha.controller.contract.events import ElectionFailed, EventRecord, LossGraded, MasterElected
from rollcall_ha.controller.contract.ids import BrokerId, LogOffset, MasterEpoch
from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.controller.contract.values import EventRef, Evidence, ReplicaEvidence
from rollcall_ha.controller.core.state import ReplicaState, SetState
from rollcall_ha.controller.core.views import condition_of

if TYPE_CHECKING:
    from rollcall_ha.analytics.synthetic.broker_set import SetStory

FRESH_INTERVALS = 3
"""Heartbeat intervals after which a replica is not called ready any more."""

RETRY_US = US_PER_S
"""Between two looks at a set of which nobody can be elected."""

OPERATOR_PATIENCE_US = 600 * US_PER_S
LOSS_ACCEPTED_BYTES = 2**62
JUMP_DRAWS = 16


class Choosing:
    def __init__(self, story: SetStory) -> None:
        """Nobody is wanted yet."""
        self._story = story
        self.seen: Seen | None = None
        """What was noticed about the master that the set is losing."""
        self._trigger: EventRef | None = None
        self._attempt = 0
        """Of the newest look that is due; older ones come to nothing."""
        self._is_on_record = False
        self._waits_for_operator = False
        self._proposed_us = 0

    # --- after each entry --------------------------------------------------------------------------------------------

    def applied(self, records: Sequence[EventRecord], now_us: int, applied_us: int) -> None:
        """Entries of this moment touched the set; they are applied on the leader at ``applied_us``."""
        story = self._story
        for record in records:
            event = record.event
            if isinstance(event, MasterElected):
                seen = self._seen_by(event)
                story.failover.elected(record, event, proposed_us=now_us, applied_us=applied_us, seen=seen)
                self.seen = None
            elif isinstance(event, LossGraded):
                story.failover.graded(event)
            elif isinstance(event, ElectionFailed):
                self._is_on_record = True
        condition, _ = condition_of(story.state)
        is_first = condition is Condition.WAITING_FOR_REPLICAS and _is_complete(story.state)
        if not is_first and condition not in (Condition.MASTER_SILENT, Condition.NO_ELIGIBLE_REPLICA):
            # What was noticed came to nothing, so the next election has nothing to do with it.
            self._trigger, self._is_on_record, self.seen = None, False, None
            return
        if self._trigger is None:
            self._trigger = records[-1].ref
        if condition is Condition.NO_ELIGIBLE_REPLICA:
            self._call_operator(applied_us)
        self._look_at(applied_us + story.weather.step_us(300))

    def _seen_by(self, event: MasterElected) -> Seen | None:
        return self.seen if event.detection is not None else None

    # --- electing ----------------------------------------------------------------------------------------------------

    def _look_at(self, when_us: int) -> None:
        self._attempt += 1
        attempt = self._attempt
        self._story.later(when_us, lambda now_us: self._elect(now_us) if attempt == self._attempt else ())

    def _elect(self, now_us: int) -> Sequence[SyntheticOperation]:
        story, state = self._story, self._story.state
        condition, _ = condition_of(state)
        is_first = condition is Condition.WAITING_FOR_REPLICAS and _is_complete(state)
        if not is_first and condition not in (Condition.MASTER_SILENT, Condition.NO_ELIGIBLE_REPLICA):
            return ()
        if self.seen is not None and self.seen.detected_us < story.fleet.leader.since_us:
            self.seen = None  # The controller that noticed leads no more.
        command = ElectMaster(
            set_key=story.key,
            expected_master=state.master,
            expected_epoch=state.master_epoch,
            reason="all expected replicas have registered" if is_first else self._reason(),
        )
        order = self._order(command, now_us, self.seen)
        if self._is_on_record and not story.fleet.would_elect(order):
            if condition is Condition.MASTER_SILENT:
                self._look_at(now_us + RETRY_US)
            return ()
        return [order]

    def _reason(self) -> str:
        master = self._story.state.master
        return f"broker {master} is gone" if master is not None else "the set has no master"

    def switchover(self, now_us: int, to: Process) -> Sequence[SyntheticOperation]:
        """An operator moves the master to ``to``."""
        state = self._story.state
        command = ElectMaster(
            set_key=self._story.key,
            designated=to.broker_id,
            expected_master=state.master,
            expected_epoch=state.master_epoch,
            reason="moved by hand",
        )
        return [self._order(command, now_us, None, requested_by="admin:alice")]

    def overdue(self, epoch: int, now_us: int) -> Sequence[SyntheticOperation]:
        """Rule 2."""
        state = self._story.state
        if state.master_epoch != epoch or state.has_entered or not state.is_master_alive:
            return ()
        deadline_ms = self._story.timing.entered_deadline_ms
        command = ElectMaster(
            set_key=self._story.key,
            expected_master=state.master,
            expected_epoch=MasterEpoch(epoch),
            reason=f"broker {state.master} did not enter masterEpoch {epoch} within {deadline_ms} ms",
        )
        return [self._order(command, now_us, None)]

    def _call_operator(self, now_us: int) -> None:
        if not self._waits_for_operator:
            self._waits_for_operator = True
            self._story.later(now_us + OPERATOR_PATIENCE_US, self._elect_unclean)

    def _elect_unclean(self, now_us: int) -> Sequence[SyntheticOperation]:
        story, state = self._story, self._story.state
        self._waits_for_operator = False
        condition, _ = condition_of(state)
        if condition is not Condition.NO_ELIGIBLE_REPLICA:
            return ()
        self._call_operator(now_us - OPERATOR_PATIENCE_US + 60 * US_PER_S)
        command = ElectUnclean(
            set_key=story.key,
            accepted_loss_bytes=LOSS_ACCEPTED_BYTES,
            expected_epoch=state.master_epoch,
            reason="nobody else will come back soon",
        )
        order = self._order(command, now_us, self.seen, requested_by="admin:bob")
        return [order] if story.fleet.would_elect(order) else ()

    # --- evidence ----------------------------------------------------------------------------------------------------

    def _order(
        self, command: ElectMaster | ElectUnclean, now_us: int, seen: Seen | None, *, requested_by: str = ""
    ) -> SyntheticOperation:
        story, state = self._story, self._story.state
        evidence = Evidence(
            read_at_index=story.fleet.read_at_index,
            master_epoch=state.master_epoch,
            sync_state_set_epoch=state.sync_state_set_epoch,
            replicas=tuple(
                self._replica_evidence(replica, now_us) for replica in state.replicas if replica.is_registered
            ),
            triggered_by=self._trigger,
            detection=seen.ages(now_us) if seen is not None else None,
            epoch_jump_draw=story.weather.pick(JUMP_DRAWS),
        )
        return SyntheticOperation(
            command=command, evidence=evidence, requested_by=requested_by or story.fleet.leader.requested_by
        )

    def _replica_evidence(self, replica: ReplicaState, now_us: int) -> ReplicaEvidence:
        story = self._story
        process = story.processes[BrokerId(replica.broker_id)]
        interval_us = story.timing.heartbeat_interval_ms * US_PER_MS
        heard_us = now_us - story.weather.within_us(interval_us - 1) if process.is_up else process.last_heard_us
        is_heard = heard_us >= story.fleet.leader.since_us
        age_us = now_us - heard_us
        end = story.end_of(process, now_us)
        assert replica.incarnation is not None
        return ReplicaEvidence(
            broker_id=replica.broker_id,
            incarnation=replica.incarnation,
            session_ordinal=replica.session_ordinal,
            heartbeat_age_ms=age_us // US_PER_MS if is_heard else None,
            is_ready=is_heard and age_us <= FRESH_INTERVALS * interval_us,
            last_epoch=MasterEpoch(process.last_epoch),
            max_offset=LogOffset(end),
            confirm_offset=LogOffset(min(story.acked, end)),
            released=LogOffset(process.released_told),
        )


def _is_complete(state: SetState) -> bool:
    """All expected replicas have registered: the first election is due."""
    configuration = state.configuration
    registered = sum(replica.is_registered for replica in state.replicas)
    return configuration is not None and registered >= configuration.expected_replicas
