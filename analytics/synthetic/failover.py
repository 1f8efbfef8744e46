"""
The steps of a failover in the brokers of a synthetic set, from the push to full redundancy.

Here: promise, entering, first acknowledgement, following, cuts, coming back into the SyncStateSet, and the truth about
each of them. Not here: elections (``proposing``), faults (``broker_set``).
Rule 1: a winner that is not up any more does nothing, and its milestones never come.
Rule 2: stamps are those of two clocks, as in ``controller.core.history``: the leader's from the proposal, the winner's
from the push.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rollcall_ha.analytics.synthetic.operations import SyntheticOperation
from rollcall_ha.analytics.synthetic.plan import US_PER_MS, US_PER_S, Fault
from rollcall_ha.analytics.synthetic.processes import Process, ServingMaster
from rollcall_ha.analytics.synthetic.truth import OutageTruth, ReignTruth
from rollcall_ha.controller.contract.commands import RecordMilestones, ReportEntered
from rollcall_ha.controller.contract.events import EventRecord, LossGraded, MasterElected
from rollcall_ha.controller.contract.ids import LogOffset, MasterEpoch
from rollcall_ha.controller.contract.values import Milestone, Phase

if TYPE_CHECKING:
    from rollcall_ha.analytics.synthetic.broker_set import SyntheticSet

REIGNS_REMEMBERED = 32
"""Past epochs whose start and whose truth may still matter: no replica stays away for longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """One election that was carried out, and how long its steps take."""

    epoch: int
    winner: Process
    number: int
    """Of the winner's start: another incarnation enters nothing."""
    proposed_us: int
    sign_us: int
    committed_us: int
    notified_us: int
    promised_us: int
    role_applied_us: int
    serving_us: int
    first_ack_us: int

    def phases(self) -> dict[str, int]:
        """Those of the winner up to SERVING."""
        moments = [self.notified_us, self.promised_us, self.role_applied_us, self.serving_us]
        names = ("promised_us", "role_applied_us", "serving_us")
        return {name: later - sooner for name, sooner, later in zip(names, moments, moments[1:], strict=False)}


class SyntheticFailover:
    """The failovers of one set. A step of an old epoch does nothing once a newer epoch has come."""

    def __init__(self, broker_set: SyntheticSet) -> None:
        """Nothing is under way."""
        self._set = broker_set
        self._rows: dict[int, ReignTruth] = {}

    # --- an election was applied ---------------------------------------------------------------------------------

    def elected(
        self,
        record: EventRecord,
        event: MasterElected,
        *,
        proposed_us: int,
        applied_us: int,
    ) -> None:
        """Write the truth about it, and let its steps begin."""
        broker_set, draws = self._set, self._set.draws
        old = (
            broker_set.processes.get(event.verdict.previous_master)
            if event.verdict.previous_master is not None
            else None
        )
        if broker_set.serving is not None:
            # A living master was moved: it drained first, so its followers hold all that it acknowledged.
            broker_set.stop_serving(proposed_us, Fault.SWITCHOVER, is_drained=True)
        broker_set.seq = 0
        winner = broker_set.processes[event.master]
        notified_us = applied_us + draws.step_us(150)
        promised_us = notified_us + draws.step_us(3_000)
        role_us = promised_us + draws.step_us(6_000)
        serving_us = role_us + draws.step_us(1_500)
        # As the leader does: where no stamps of its own were better, the core has put in those of the set.
        fault_age_us = event.detection.fault_age_us if event.detection is not None else 0
        push = Push(
            epoch=int(event.master_epoch),
            winner=winner,
            number=winner.number,
            proposed_us=proposed_us,
            sign_us=proposed_us - fault_age_us,
            committed_us=applied_us,
            notified_us=notified_us,
            promised_us=promised_us,
            role_applied_us=role_us,
            serving_us=serving_us,
            first_ack_us=serving_us + draws.step_us(30_000),
        )
        self._remember(self._row(record, event, push, old))
        broker_set.later(notified_us + 20 * US_PER_MS, lambda now_us: self._report_leader(push, now_us))
        self._enter_soon(push)
        overdue_us = applied_us + broker_set.timing.entered_deadline_ms * US_PER_MS
        broker_set.later(overdue_us, lambda now_us: broker_set.proposer.overdue(push.epoch, now_us))

    def _enter_soon(self, push: Push) -> None:
        broker_set = self._set
        broker_set.later(push.role_applied_us, lambda now_us: self._enter(push, now_us))
        broker_set.later(push.serving_us, lambda now_us: self._serve(push, now_us))
        broker_set.later(push.serving_us + US_PER_MS, lambda now_us: self._report_winner(push, now_us))
        broker_set.later(push.first_ack_us + US_PER_MS, lambda _: self._report_first_ack(push))

    def _row(self, record: EventRecord, event: MasterElected, push: Push, old: Process | None) -> ReignTruth:
        broker_set, verdict, detection = self._set, event.verdict, event.detection
        # A process that is back before the election fell silent all the same: without ``go_silent`` having kept it, a
        # restart of 80 ms would look like an election without a fault.
        is_lost = old is not None and (old.fault is not None or old is broker_set.lost)
        fault = (old.fault or old.last_fault) if old is not None and is_lost else None
        broker_set.lost = None
        is_false = fault in (Fault.PAUSE, Fault.MEMBER_PAUSE, Fault.CONTROLLER)
        eligible = [((c.last_epoch or 0, c.max_offset or 0), c) for c in verdict.candidates if c.rank is not None]
        held = next(end for (_, end), c in eligible if c.broker_id == event.master)
        longest = max((end for end, _ in eligible), default=(0, 0))[1]
        return ReignTruth(
            cluster=broker_set.key.cluster,
            broker_set=broker_set.key.name,
            master_epoch=push.epoch,
            elected_at_ms=record.stamped_at_ms,
            kind=verdict.kind.value,
            fault=fault.value if fault is not None else "",
            cause=detection.cause.value if detection is not None else "",
            from_master=verdict.previous_master,
            to_master=event.master,
            fault_at_us=old.fault_us if old is not None and fault is not None else None,
            is_false=is_false,
            is_controller_caused=fault is Fault.CONTROLLER,
            regret_bytes=max(0, longest - held),
            detected_us=detection.fault_age_us - detection.detected_age_us if detection is not None else None,
            proposed_us=detection.detected_age_us if detection is not None else None,
        )

    def _remember(self, row: ReignTruth) -> None:
        self._set.truth.reigns.append(row)
        self._rows[row.master_epoch] = row
        if len(self._rows) > REIGNS_REMEMBERED:
            del self._rows[next(iter(self._rows))]

    def graded(self, event: LossGraded) -> None:
        """The core's word about loss."""
        row = self._rows.get(event.verdict.master_epoch)
        if row is not None:
            row.grade = event.verdict.grade.value

    # --- reports -----------------------------------------------------------------------------------------------------

    def _record(self, requested_by: str, *milestones: Milestone) -> SyntheticOperation:
        return SyntheticOperation(
            command=RecordMilestones(set_key=self._set.key, milestones=milestones), requested_by=requested_by
        )

    def _report_leader(self, push: Push, _now_us: int) -> Sequence[SyntheticOperation]:
        leader = self._set.fleet.leader
        row = self._rows.get(push.epoch)
        if leader.since_us > push.proposed_us or row is None:
            return ()  # The leader that took these stamps leads no more, and they were in its memory only.
        row.committed_us, row.notified_us = push.committed_us - push.proposed_us, push.notified_us - push.committed_us
        stamps = ((Phase.COMMITTED, push.committed_us), (Phase.NOTIFIED, push.notified_us))
        milestones = [
            Milestone(
                master_epoch=MasterEpoch(push.epoch),
                phase=phase,
                elapsed_us=at_us - push.proposed_us,
                observed_us=at_us - push.sign_us,
            )
            for phase, at_us in stamps
        ]
        return [self._record(leader.requested_by, *milestones)]

    def _reported(self, process: Process, push: Push, phase: Phase, at_us: int, arrived_us: int | None) -> Milestone:
        return Milestone(
            master_epoch=MasterEpoch(push.epoch),
            phase=phase,
            elapsed_us=at_us - push.notified_us,
            broker_id=process.broker_id,
            incarnation=process.incarnation,
            observed_us=None if arrived_us is None else arrived_us - push.sign_us,
        )

    def _report_winner(self, push: Push, now_us: int) -> Sequence[SyntheticOperation]:
        broker_set, row = self._set, self._rows.get(push.epoch)
        is_there = push.winner.is_up and push.winner.number == push.number
        serving = broker_set.serving
        serves = serving is not None and serving.process is push.winner and serving.epoch == push.epoch
        if row is None or not is_there or not serves or row.serving_us is not None:
            return ()
        if broker_set.draws.chance(broker_set.plan.dropped_stamp_share):
            return ()
        # A leader that did not see the beginning does not say how long it took (runtime.milestones, rule 2).
        arrived_us = now_us if broker_set.fleet.leader.since_us <= push.proposed_us else None
        for name, duration_us in push.phases().items():
            setattr(row, name, duration_us)
        row.total_us = None if arrived_us is None else arrived_us - push.sign_us
        converged_us = now_us + broker_set.draws.step_us(20_000)
        broker_set.later(converged_us, lambda at_us: self._report_route(push, at_us))
        stamps = (
            (Phase.PROMISED, push.promised_us),
            (Phase.ROLE_APPLIED, push.role_applied_us),
            (Phase.SERVING, push.serving_us),
        )
        milestones = [self._reported(push.winner, push, phase, at_us, arrived_us) for phase, at_us in stamps]
        return [self._record(broker_set.by_broker(push.winner), *milestones)]

    def _report_first_ack(self, push: Push) -> Sequence[SyntheticOperation]:
        broker_set, row = self._set, self._rows.get(push.epoch)
        # With the report of SERVING lost there is no place that it could be counted from.
        is_lost = row is None or row.serving_us is None or row.first_ack_us is not None
        if row is None or is_lost or not push.winner.is_up or push.winner.number != push.number:
            return ()
        row.first_ack_us = push.first_ack_us - push.serving_us
        milestone = self._reported(push.winner, push, Phase.FIRST_ACK, push.first_ack_us, None)
        return [self._record(broker_set.by_broker(push.winner), milestone)]

    def _report_route(self, push: Push, now_us: int) -> Sequence[SyntheticOperation]:
        broker_set, row = self._set, self._rows.get(push.epoch)
        if row is None or broker_set.fleet.leader.since_us > push.proposed_us or push.winner.number != push.number:
            return ()
        row.route_converged_us = now_us - push.sign_us
        milestone = self._reported(push.winner, push, Phase.ROUTE_CONVERGED, now_us, now_us)
        return [self._record(broker_set.by_broker(push.winner), milestone)]

    # --- entering and serving ----------------------------------------------------------------------------------------

    def _may_go_on(self, push: Push) -> bool:
        state, winner = self._set.state, push.winner
        return (
            winner.is_up
            and winner.number == push.number
            and state.master_epoch == push.epoch
            and state.master == winner.broker_id
        )

    def _enter(self, push: Push, _now_us: int) -> Sequence[SyntheticOperation]:
        broker_set, winner = self._set, push.winner
        if not self._may_go_on(push) or broker_set.state.has_entered:
            return ()
        command = ReportEntered(
            set_key=broker_set.key,
            broker_id=winner.broker_id,
            incarnation=winner.incarnation,
            master_epoch=MasterEpoch(push.epoch),
            start_offset=LogOffset(winner.end),
            acked_end_max=LogOffset(min(winner.end, max(broker_set.acked, 0))),
        )
        return [SyntheticOperation(command=command, requested_by=broker_set.by_broker(winner))]

    def _serve(self, push: Push, now_us: int) -> Sequence[SyntheticOperation]:
        broker_set, winner = self._set, push.winner
        if not self._may_go_on(push) or not broker_set.state.has_entered or broker_set.serving is not None:
            return ()
        start = winner.end
        row = self._rows[push.epoch]
        row.lost_bytes, broker_set.acked = max(0, broker_set.acked - start), min(broker_set.acked, start)
        broker_set.starts[push.epoch] = start
        if len(broker_set.starts) > REIGNS_REMEMBERED:
            del broker_set.starts[next(iter(broker_set.starts))]
        winner.last_epoch = push.epoch
        self._begin_serving(winner, push.epoch, now_us)
        broker_set.remove_missing(now_us)
        for process in broker_set.processes.values():
            self.follow_soon(process, now_us)
        return ()

    def _begin_serving(self, process: Process, epoch: int, now_us: int) -> None:
        broker_set = self._set
        broker_set.serving = ServingMaster(process, epoch, process.end, now_us, broker_set.write_bytes_per_s)
        if broker_set.outage is not None:
            from_us, fault, old_epoch = broker_set.outage
            broker_set.outage = None
            broker_set.truth.outages.append(
                OutageTruth(
                    cluster=broker_set.key.cluster,
                    broker_set=broker_set.key.name,
                    from_us=from_us,
                    to_us=now_us,
                    fault=fault.value,
                    is_recorded=epoch != old_epoch,
                )
            )

    def resume(self, process: Process, now_us: int) -> None:
        """A process that paused goes on: as the master if it still is, else as a follower."""
        broker_set, state = self._set, self._set.state
        if broker_set.master is not process:
            self.follow_soon(process, now_us)
        elif not state.has_entered:
            row = self._rows.get(int(state.master_epoch))
            if row is not None:
                self._enter_soon(self._pushed_again(process, int(state.master_epoch), now_us))
        elif broker_set.serving is None:
            broker_set.lost = None
            self._begin_serving(process, int(state.master_epoch), now_us)
            for other in broker_set.processes.values():
                self.follow_soon(other, now_us)

    def _pushed_again(self, process: Process, epoch: int, now_us: int) -> Push:
        """The session's answer tells the winner of its epoch once more; the arrival of the first push was not seen."""
        step_us = self._set.draws.step_us
        promised_us = now_us + step_us(3_000)
        role_us = promised_us + step_us(6_000)
        serving_us = role_us + step_us(1_500)
        return Push(
            epoch=epoch,
            winner=process,
            number=process.number,
            proposed_us=-1,
            sign_us=now_us,
            committed_us=now_us,
            notified_us=now_us,
            promised_us=promised_us,
            role_applied_us=role_us,
            serving_us=serving_us,
            first_ack_us=serving_us + step_us(30_000),
        )

    # --- following ---------------------------------------------------------------------------------------------------

    def follow_soon(self, process: Process, now_us: int) -> None:
        """Open a link to the serving master, if there is one and it is another process."""
        serving = self._set.serving
        if serving is None or serving.process is process or process.following == serving.epoch:
            return
        epoch, number = serving.epoch, process.number
        when_us = now_us + self._set.draws.step_us(8_000)
        self._set.later(when_us, lambda at_us: self._follow(process, number, epoch, at_us))

    def _follow(self, process: Process, number: int, epoch: int, now_us: int) -> Sequence[SyntheticOperation]:
        broker_set, serving = self._set, self._set.serving
        is_current = serving is not None and serving.epoch == epoch and serving.process is not process
        if not is_current or not process.is_up or process.number != number or process.following == epoch:
            return ()
        starts = [start for later, start in broker_set.starts.items() if later > process.last_epoch]
        before, process.end = process.end, min([process.end, *starts])
        process.following, process.last_epoch = epoch, epoch
        self._note_cut(process, epoch, before - process.end)
        milestone = Milestone(
            master_epoch=MasterEpoch(epoch),
            phase=Phase.TRUNCATED,
            elapsed_us=broker_set.draws.step_us(2_000),
            broker_id=process.broker_id,
            incarnation=process.incarnation,
            cut_from=LogOffset(process.end) if before > process.end else None,
            cut_to=LogOffset(before) if before > process.end else None,
            released=LogOffset(process.released),
        )
        joined_us = now_us + 300 * US_PER_MS + broker_set.draws.within_us(4 * US_PER_S)
        broker_set.later(joined_us, lambda at_us: self._join(process, number, epoch, at_us))
        return [self._record(broker_set.by_broker(process), milestone)]

    def _note_cut(self, process: Process, epoch: int, cut_bytes: int) -> None:
        """The newest reign, up to this epoch, that deposed this replica."""
        rows = (row for row in reversed(self._rows.values()) if row.master_epoch <= epoch)
        row = next((row for row in rows if row.from_master == process.broker_id), None)
        if row is not None and row.grade is not None and row.cut_bytes is None:
            row.cut_bytes = cut_bytes

    def _join(self, process: Process, number: int, epoch: int, now_us: int) -> Sequence[SyntheticOperation]:
        """Caught up: the master takes it back into the set."""
        broker_set, serving, state = self._set, self._set.serving, self._set.state
        is_current = serving is not None and serving.epoch == epoch
        if serving is None or not is_current or not process.is_up or process.number != number:
            return ()
        replica = broker_set.replica(process)
        if replica is None or not replica.is_alive or replica.incarnation != process.incarnation:
            # Not heard by the controllers yet: the master tries again.
            broker_set.later(now_us + US_PER_S, lambda at_us: self._join(process, number, epoch, at_us))
            return ()
        operations: list[SyntheticOperation] = []
        if process.broker_id not in state.sync_state_set:
            operations.append(broker_set.alter((*state.sync_state_set, process.broker_id), process))
        in_sync = Milestone(
            master_epoch=MasterEpoch(epoch),
            phase=Phase.IN_SYNC,
            elapsed_us=now_us - serving.since_us,
            broker_id=process.broker_id,
            incarnation=process.incarnation,
        )
        operations.append(self._record(broker_set.by_broker(process), in_sync))
        if len({*state.sync_state_set, process.broker_id}) == broker_set.plan.replicas:
            full = Milestone(
                master_epoch=MasterEpoch(epoch),
                phase=Phase.FULL_REDUNDANCY,
                elapsed_us=now_us - serving.since_us,
                broker_id=serving.process.broker_id,
                incarnation=serving.process.incarnation,
            )
            operations.append(self._record(broker_set.by_broker(serving.process), full))
        return operations
