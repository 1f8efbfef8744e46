"""
When the leading controller of a synthetic fleet proposes an election, and with which evidence.

Here: ``controller.runtime.election_duty`` for one set, on simulated time; a test runs both on the same states and
compares their proposals. Not simulated: that an election shares the entry of its silence (it comes with the next one),
and that a new leader does not know of failed attempts. Not here: the winner, which the real core decides.
Rule 1: the first attempt after the silence of a master is proposed without a dry run, so that "nobody was eligible" is
on record once; every other attempt only if a dry run finds a winner.
Rule 2: a winner that has not entered by its deadline is replaced (R6).
Rule 3: after ``OPERATOR_PATIENCE_US`` without an eligible replica an operator elects unclean, so that every history
ends with a master.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from rollcall_ha.analytics.synthetic.plan import US_PER_MS, US_PER_S
from rollcall_ha.analytics.synthetic.processes import Detection, Process, SyntheticOperation
from rollcall_ha.controller.contract.commands import ElectMaster, ElectUnclean
from rollcall_ha.controller.contract.events import ElectionFailed, EventRecord, LossGraded, MasterElected
from rollcall_ha.controller.contract.ids import BrokerId
from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.controller.contract.values import EventRef, Evidence, ReplicaEvidence
from rollcall_ha.controller.core.state import ReplicaState, SetState
from rollcall_ha.controller.core.views import condition_of

if TYPE_CHECKING:
    from rollcall_ha.analytics.synthetic.broker_set import SyntheticSet

FRESH_INTERVALS = 3
"""Heartbeat intervals after which a replica is not called ready any more."""

RETRY_US = US_PER_S
"""Between two looks at a set without an eligible replica."""

OPERATOR_PATIENCE_US = 600 * US_PER_S
LOSS_ACCEPTED_BYTES = 2**62
JUMP_DRAWS = 16


class ElectionProposer:
    def __init__(self, broker_set: SyntheticSet) -> None:
        self._set = broker_set
        self.detection: Detection | None = None
        """The signs of the fault of the master that the set is losing."""
        self._trigger: EventRef | None = None
        self._reason = ""
        self._attempt = 0
        """Of the newest look that is due; older ones come to nothing."""
        self._is_on_record = False
        self._waits_for_operator = False

    # --- after each entry --------------------------------------------------------------------------------------------

    def applied(self, records: Sequence[EventRecord], now_us: int, applied_us: int) -> None:
        """Entries of this moment touched the set; they are applied on the leader at ``applied_us``."""
        broker_set = self._set
        for record in records:
            event = record.event
            if isinstance(event, MasterElected):
                broker_set.failover.elected(record, event, proposed_us=now_us, applied_us=applied_us)
                self.detection = None
            elif isinstance(event, LossGraded):
                broker_set.failover.graded(event)
            elif isinstance(event, ElectionFailed):
                self._is_on_record = True
        lack = _lack_of(broker_set.state)
        if lack is None:
            # The set has a master again. A trigger that stayed would give the next election, days later, this silence
            # as its cause.
            self._trigger, self._is_on_record, self.detection = None, False, None
            return
        if self._trigger is None:
            # Both stay until the set has a master: a look after broker 2 has registered anew is still about its loss.
            self._trigger, self._reason = records[-1].ref, _reason_of(broker_set.state, lack)
        if lack is Condition.NO_ELIGIBLE_REPLICA:
            self._call_operator(applied_us)
        self._look_at(applied_us + broker_set.draws.step_us(300))

    # --- electing ----------------------------------------------------------------------------------------------------

    def _look_at(self, when_us: int) -> None:
        self._attempt += 1
        attempt = self._attempt
        self._set.later(when_us, lambda now_us: self._elect(now_us) if attempt == self._attempt else ())

    def _elect(self, now_us: int) -> Sequence[SyntheticOperation]:
        broker_set, state = self._set, self._set.state
        lack = _lack_of(state)
        if lack is None:
            return ()
        if self.detection is not None and self.detection.detected_us < broker_set.fleet.leader.since_us:
            self.detection = None  # The controller that saw the signs leads no more; its successor has its own.
        operation = self._operation(self._order(self._reason), now_us, self.detection)
        # The product proposes the election with the silence of the master, before it can know that nobody is eligible.
        # A set whose only member said goodbye has no such election: its condition says it already.
        is_due = lack is Condition.MASTER_SILENT or self.detection is not None
        is_record_due = is_due and not self._is_on_record
        if not is_record_due and not broker_set.fleet.would_elect(operation):
            if lack is not Condition.NO_ELIGIBLE_REPLICA:
                self._look_at(now_us + RETRY_US)
            return ()
        return [operation]

    def switchover(self, now_us: int, to: Process) -> Sequence[SyntheticOperation]:
        """An operator moves the master to ``to``."""
        operation = self._operation(self._order("moved by hand", to.broker_id), now_us, None)
        return [replace(operation, requested_by="admin:alice")]

    def overdue(self, epoch: int, now_us: int) -> Sequence[SyntheticOperation]:
        """Replace a winner that has not entered (rule 2)."""
        state = self._set.state
        if state.master_epoch != epoch or state.has_entered or not state.is_master_alive:
            return ()
        deadline_ms = self._set.timing.entered_deadline_ms
        reason = f"broker {state.master} did not enter masterEpoch {epoch} within {deadline_ms} ms"
        operation = self._operation(self._order(reason), now_us, None)
        # As the product: a winner that is slow to enter is better than an election that nobody wins.
        return [operation] if self._set.fleet.would_elect(operation) else ()

    def _order(self, reason: str, designated: BrokerId | None = None) -> ElectMaster:
        state = self._set.state
        return ElectMaster(
            set_key=self._set.key,
            to=designated,
            expected_master=state.master,
            expected_epoch=state.master_epoch,
            reason=reason,
        )

    def _call_operator(self, now_us: int) -> None:
        if not self._waits_for_operator:
            self._waits_for_operator = True
            self._set.later(now_us + OPERATOR_PATIENCE_US, self._elect_unclean)

    def _elect_unclean(self, now_us: int) -> Sequence[SyntheticOperation]:
        broker_set, state = self._set, self._set.state
        self._waits_for_operator = False
        if _lack_of(state) is not Condition.NO_ELIGIBLE_REPLICA:
            return ()
        self._call_operator(now_us - OPERATOR_PATIENCE_US + 60 * US_PER_S)
        command = ElectUnclean(
            set_key=broker_set.key,
            accepted_loss_bytes=LOSS_ACCEPTED_BYTES,
            expected_epoch=state.master_epoch,
            reason="nobody else will come back soon",
        )
        operation = replace(self._operation(command, now_us, self.detection), requested_by="admin:bob")
        return [operation] if broker_set.fleet.would_elect(operation) else ()

    # --- evidence ----------------------------------------------------------------------------------------------------

    def _operation(
        self, command: ElectMaster | ElectUnclean, now_us: int, detection: Detection | None
    ) -> SyntheticOperation:
        broker_set, state = self._set, self._set.state
        evidence = Evidence(
            read_at_index=broker_set.fleet.index,
            master_epoch=state.master_epoch,
            sync_state_set_epoch=state.sync_state_set_epoch,
            replicas=tuple(
                self._replica_evidence(replica, now_us) for replica in state.replicas if replica.is_registered
            ),
            triggered_by=self._trigger,
            detection=detection.ages(now_us) if detection is not None else None,
            epoch_jump_draw=broker_set.draws.pick(JUMP_DRAWS),
        )
        return broker_set.fleet.leader.proposes(command, evidence)

    def _replica_evidence(self, replica: ReplicaState, now_us: int) -> ReplicaEvidence:
        broker_set = self._set
        process = broker_set.processes[BrokerId(replica.broker_id)]
        interval_us = broker_set.interval_us
        heard_us = now_us - broker_set.draws.within_us(interval_us - 1) if process.is_up else process.last_heard_us
        is_heard = heard_us >= broker_set.fleet.leader.since_us
        age_us = now_us - heard_us
        positions = broker_set.positions(process, broker_set.end_of(process, now_us))
        assert replica.incarnation is not None
        return ReplicaEvidence(
            broker_id=replica.broker_id,
            incarnation=replica.incarnation,
            session_ordinal=replica.session_ordinal,
            heartbeat_age_ms=age_us // US_PER_MS if is_heard else None,
            is_ready=is_heard and age_us <= FRESH_INTERVALS * interval_us,
            **asdict(positions),
        )


def _lack_of(state: SetState) -> Condition | None:
    """In which condition the set needs an election; None: it needs none."""
    condition, _ = condition_of(state)
    configuration = state.configuration
    if condition is Condition.WAITING_FOR_REPLICAS:
        registered = sum(replica.is_registered for replica in state.replicas)
        is_complete = configuration is not None and registered >= configuration.expected_replicas
        return condition if is_complete else None
    return condition if condition in (Condition.MASTER_SILENT, Condition.NO_ELIGIBLE_REPLICA) else None


def _reason_of(state: SetState, lack: Condition) -> str:
    if lack is Condition.WAITING_FOR_REPLICAS:
        return "all expected replicas have registered"
    return f"broker {state.master} is gone" if state.master is not None else "the set has no master"
