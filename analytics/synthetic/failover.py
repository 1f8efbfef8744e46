"""
The steps of a failover in the brokers of a synthetic set, from the push to full redundancy.

Here: promise, entering, first acknowledgement, following, cuts, coming back into the SyncStateSet, and the truth about
each of them. Not here: who is elected and when (``proposing``), faults (``broker_set``).
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
from rollcall_ha.analytics.synthetic.processes import Process, Seen, ServingMaster
from rollcall_ha.analytics.synthetic.truth import OutageTruth, ReignTruth
from rollcall_ha.controller.contract.commands import RecordMilestones, ReportEntered
from rollcall_ha.controller.contract.events import EventRecord, LossGraded, MasterElected
from rollcall_ha.controller.contract.ids import LogOffset, MasterEpoch
from rollcall_ha.controller.contract.values import Milestone, Phase

if TYPE_CHECKING:
    from rollcall_ha.analytics.synthetic.broker_set import SetStory

REIGNS_REMEMBERED = 32
"""Past epochs whose start and whose truth may still matter: nobody stays away for longer."""


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
        moments = [self.notified_us, self.promised_us, self.role_applied_us, self.serving_us, self.first_ack_us]
        names = ("promised_us", "role_applied_us", "serving_us", "first_ack_us")
        return {name: later - sooner for name, sooner, later in zip(names, moments, moments[1:], strict=False)}


class SyntheticFailover:
    """Of one set. Steps end by themselves when a newer epoch has come."""

    def __init__(self, story: SetStory) -> None:
        """Nothing is under way."""
        self._story = story
        self._rows: dict[int, ReignTruth] = {}

    # --- an election was applied ---------------------------------------------------------------------------------

    def elected(
        self, record: EventRecord, event: MasterElected, *, proposed_us: int, applied_us: int, seen: Seen | None
    ) -> None:
        """Write the truth about it, and let its steps begin."""
        story, weather = self._story, self._story.weather
        old = story.processes.get(event.verdict.previous_master) if event.verdict.previous_master is not None else None
        if story.serving is not None:
            # A living master was moved: it has drained.
            story.stop_serving(proposed_us, Fault.SWITCHOVER, is_drained=True)
        story.seq = 0
        winner = story.processes[event.master]
        notified_us = applied_us + weather.step_us(150)
        promised_us = notified_us + weather.step_us(3_000)
        role_us = promised_us + weather.step_us(6_000)
        serving_us = role_us + weather.step_us(1_500)
        push = Push(
            epoch=int(event.master_epoch),
            winner=winner,
            number=winner.number,
            proposed_us=proposed_us,
            sign_us=seen.sign_us if seen is not None else proposed_us,
            committed_us=applied_us,
            notified_us=notified_us,
            promised_us=promised_us,
            role_applied_us=role_us,
            serving_us=serving_us,
            first_ack_us=serving_us + weather.step_us(30_000),
        )
        self._remember(self._row(record, event, push, seen, old))
        story.later(notified_us + 20 * US_PER_MS, lambda now_us: self._report_leader(push, now_us))
        self._enter_soon(push)
        overdue_us = applied_us + story.timing.entered_deadline_ms * US_PER_MS
        story.later(overdue_us, lambda now_us: story.choosing.overdue(push.epoch, now_us))

    def _enter_soon(self, push: Push) -> None:
        story = self._story
        story.later(push.role_applied_us, lambda now_us: self._enter(push, now_us))
        story.later(push.serving_us, lambda now_us: self._serve(push, now_us))
        story.later(push.first_ack_us + US_PER_MS, lambda now_us: self._report_winner(push, now_us))

    def _row(
        self, record: EventRecord, event: MasterElected, push: Push, seen: Seen | None, old: Process | None
    ) -> ReignTruth:
        story, verdict = self._story, event.verdict
        # A process that is back before the election was lost all the same.
        is_lost = old is not None and (old.fault is not None or old is story.lost)
        fault = (old.fault or old.last_fault) if old is not None and is_lost else None
        story.lost = None
        is_false = fault in (Fault.PAUSE, Fault.MEMBER_PAUSE, Fault.CONTROLLER)
        eligible = [((c.last_epoch or 0, c.max_offset or 0), c) for c in verdict.candidates if c.rank is not None]
        held = next(end for (_, end), c in eligible if c.broker_id == event.master)
        longest = max((end for end, _ in eligible), default=(0, 0))[1]
        return ReignTruth(
            cluster=story.key.cluster,
            broker_set=story.key.name,
            master_epoch=push.epoch,
            elected_at_ms=record.stamped_at_ms,
            kind=verdict.kind.value,
            fault=fault.value if fault is not None else "",
            cause=seen.cause.value if seen is not None else "",
            from_master=verdict.previous_master,
            to_master=event.master,
            fault_at_us=old.fault_us if old is not None and fault is not None else None,
            is_false=is_false,
            is_controller_caused=fault is Fault.CONTROLLER,
            regret_bytes=max(0, longest - held),
            detected_us=seen.detected_us - seen.sign_us if seen is not None else None,
            proposed_us=push.proposed_us - seen.detected_us if seen is not None else None,
        )

    def _remember(self, row: ReignTruth) -> None:
        self._story.truth.reigns.append(row)
        self._rows[row.master_epoch] = row
        if len(self._rows) > REIGNS_REMEMBERED:
            del self._rows[next(iter(self._rows))]

    def graded(self, event: LossGraded) -> None:
        """The core's word about loss."""
        row = self._rows.get(event.verdict.master_epoch)
        if row is not None:
            row.grade = event.verdict.grade.value

    # --- what is reported --------------------------------------------------------------------------------------------

    def _record(self, requested_by: str, *milestones: Milestone) -> SyntheticOperation:
        return SyntheticOperation(
            command=RecordMilestones(set_key=self._story.key, milestones=milestones), requested_by=requested_by
        )

    def _report_leader(self, push: Push, _now_us: int) -> Sequence[SyntheticOperation]:
        leader = self._story.fleet.leader
        row = self._rows.get(push.epoch)
        if leader.since_us > push.proposed_us or row is None:
            return ()  # Its stamps went with it.
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
        story, row = self._story, self._rows.get(push.epoch)
        is_there = push.winner.is_up and push.winner.number == push.number
        serving = story.serving
        serves = serving is not None and serving.process is push.winner and serving.epoch == push.epoch
        if row is None or not is_there or not serves or row.first_ack_us is not None:
            return ()
        if story.weather.chance(story.plan.dropped_stamp_share):
            return ()
        # A leader that did not see the beginning does not say how long it took (runtime.milestones, rule 2).
        arrived_us = now_us if story.fleet.leader.since_us <= push.proposed_us else None
        for name, duration_us in push.phases().items():
            setattr(row, name, duration_us)
        row.total_us = None if arrived_us is None else arrived_us - push.sign_us
        converged_us = now_us + story.weather.step_us(20_000)
        story.later(converged_us, lambda at_us: self._report_route(push, at_us))
        stamps = (
            (Phase.PROMISED, push.promised_us),
            (Phase.ROLE_APPLIED, push.role_applied_us),
            (Phase.SERVING, push.serving_us),
            (Phase.FIRST_ACK, push.first_ack_us),
        )
        milestones = [self._reported(push.winner, push, phase, at_us, arrived_us) for phase, at_us in stamps]
        return [self._record(story.by_broker(push.winner), *milestones)]

    def _report_route(self, push: Push, now_us: int) -> Sequence[SyntheticOperation]:
        story, row = self._story, self._rows.get(push.epoch)
        if row is None or story.fleet.leader.since_us > push.proposed_us or push.winner.number != push.number:
            return ()
        row.route_converged_us = now_us - push.sign_us
        milestone = self._reported(push.winner, push, Phase.ROUTE_CONVERGED, now_us, now_us)
        return [self._record(story.by_broker(push.winner), milestone)]

    # --- entering and serving ----------------------------------------------------------------------------------------

    def _may_go_on(self, push: Push) -> bool:
        state, winner = self._story.state, push.winner
        return (
            winner.is_up
            and winner.number == push.number
            and state.master_epoch == push.epoch
            and state.master == winner.broker_id
        )

    def _enter(self, push: Push, _now_us: int) -> Sequence[SyntheticOperation]:
        story, winner = self._story, push.winner
        if not self._may_go_on(push) or story.state.has_entered:
            return ()
        command = ReportEntered(
            set_key=story.key,
            broker_id=winner.broker_id,
            incarnation=winner.incarnation,
            master_epoch=MasterEpoch(push.epoch),
            start_offset=LogOffset(winner.end),
            acked_end_max=LogOffset(min(winner.end, max(story.acked, 0))),
        )
        return [SyntheticOperation(command=command, requested_by=story.by_broker(winner))]

    def _serve(self, push: Push, now_us: int) -> Sequence[SyntheticOperation]:
        story, winner = self._story, push.winner
        if not self._may_go_on(push) or not story.state.has_entered or story.serving is not None:
            return ()
        start = winner.end
        row = self._rows[push.epoch]
        row.lost_bytes, story.acked = max(0, story.acked - start), min(story.acked, start)
        story.starts[push.epoch] = start
        if len(story.starts) > REIGNS_REMEMBERED:
            del story.starts[next(iter(story.starts))]
        winner.last_epoch = push.epoch
        self._begin_serving(winner, push.epoch, now_us)
        story.remove_missing(now_us)
        for process in story.processes.values():
            self.follow_soon(process, now_us)
        return ()

    def _begin_serving(self, process: Process, epoch: int, now_us: int) -> None:
        story = self._story
        story.serving = ServingMaster(process, epoch, process.end, now_us, story.write_bytes_per_s)
        if story.outage is not None:
            from_us, fault, old_epoch = story.outage
            story.outage = None
            story.truth.outages.append(
                OutageTruth(
                    cluster=story.key.cluster,
                    broker_set=story.key.name,
                    from_us=from_us,
                    to_us=now_us,
                    fault=fault.value,
                    is_recorded=epoch != old_epoch,
                )
            )

    def resume(self, process: Process, now_us: int) -> None:
        """A process that paused goes on: as the master if it still is, else as a follower."""
        story, state = self._story, self._story.state
        if story.master is not process:
            self.follow_soon(process, now_us)
        elif not state.has_entered:
            row = self._rows.get(int(state.master_epoch))
            if row is not None:
                self._enter_soon(self._pushed_again(process, int(state.master_epoch), now_us))
        elif story.serving is None:
            story.lost = None
            self._begin_serving(process, int(state.master_epoch), now_us)
            for other in story.processes.values():
                self.follow_soon(other, now_us)

    def _pushed_again(self, process: Process, epoch: int, now_us: int) -> Push:
        """The session's answer tells the winner of its epoch once more; nobody saw when the first push arrived."""
        step_us = self._story.weather.step_us
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
        """Open a link to the serving master, if there is one and it is somebody else."""
        serving = self._story.serving
        if serving is None or serving.process is process or process.following == serving.epoch:
            return
        epoch, number = serving.epoch, process.number
        when_us = now_us + self._story.weather.step_us(8_000)
        self._story.later(when_us, lambda at_us: self._follow(process, number, epoch, at_us))

    def _follow(self, process: Process, number: int, epoch: int, now_us: int) -> Sequence[SyntheticOperation]:
        story, serving = self._story, self._story.serving
        is_current = serving is not None and serving.epoch == epoch and serving.process is not process
        if not is_current or not process.is_up or process.number != number or process.following == epoch:
            return ()
        starts = [start for later, start in story.starts.items() if later > process.last_epoch]
        before, process.end = process.end, min([process.end, *starts])
        process.following, process.last_epoch = epoch, epoch
        self._note_cut(process, epoch, before - process.end)
        milestone = Milestone(
            master_epoch=MasterEpoch(epoch),
            phase=Phase.TRUNCATED,
            elapsed_us=story.weather.step_us(2_000),
            broker_id=process.broker_id,
            incarnation=process.incarnation,
            cut_from=LogOffset(process.end) if before > process.end else None,
            cut_to=LogOffset(before) if before > process.end else None,
            released=LogOffset(process.released),
        )
        joined_us = now_us + 300 * US_PER_MS + story.weather.within_us(4 * US_PER_S)
        story.later(joined_us, lambda at_us: self._join(process, number, epoch, at_us))
        return [self._record(story.by_broker(process), milestone)]

    def _note_cut(self, process: Process, epoch: int, cut_bytes: int) -> None:
        """The newest reign, up to this epoch, that deposed this replica."""
        rows = (row for row in reversed(self._rows.values()) if row.master_epoch <= epoch)
        row = next((row for row in rows if row.from_master == process.broker_id), None)
        if row is not None and row.grade is not None and row.cut_bytes is None:
            row.cut_bytes = cut_bytes

    def _join(self, process: Process, number: int, epoch: int, now_us: int) -> Sequence[SyntheticOperation]:
        """Caught up: the master takes it back into the set."""
        story, serving, state = self._story, self._story.serving, self._story.state
        is_current = serving is not None and serving.epoch == epoch
        if serving is None or not is_current or not process.is_up or process.number != number:
            return ()
        replica = story.replica(process)
        if replica is None or not replica.is_alive or replica.incarnation != process.incarnation:
            # Not heard by the controllers yet: the master tries again.
            story.later(now_us + US_PER_S, lambda at_us: self._join(process, number, epoch, at_us))
            return ()
        orders: list[SyntheticOperation] = []
        if process.broker_id not in state.sync_state_set:
            orders.append(story.alter((*state.sync_state_set, process.broker_id), process))
        in_sync = Milestone(
            master_epoch=MasterEpoch(epoch),
            phase=Phase.IN_SYNC,
            elapsed_us=now_us - serving.since_us,
            broker_id=process.broker_id,
            incarnation=process.incarnation,
        )
        orders.append(self._record(story.by_broker(process), in_sync))
        if len({*state.sync_state_set, process.broker_id}) == story.plan.replicas:
            full = Milestone(
                master_epoch=MasterEpoch(epoch),
                phase=Phase.FULL_REDUNDANCY,
                elapsed_us=now_us - serving.since_us,
                broker_id=serving.process.broker_id,
                incarnation=serving.process.incarnation,
            )
            orders.append(self._record(story.by_broker(serving.process), full))
        return orders
