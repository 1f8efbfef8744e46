"""
The steps of a failover in the brokers of a synthetic set, from the push to full redundancy.

Here: promise, entering, first acknowledgement, following, cuts, coming back into the SyncStateSet, and the truth about
each of them. Not here: elections (``leading``), faults (``broker_set``).
Rule 1: a winner that is not up any more does nothing, and its milestones never come; its next incarnation enters
nothing.
Rule 2: stamps are those of two clocks, as in ``controller.core.history``: the leader's from the proposal, the winner's
from the push.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rollcall_ha.controller.contract.commands import RecordMilestones, ReportEntered
from rollcall_ha.controller.contract.events import EventRecord, LossGraded, MasterElected
from rollcall_ha.controller.contract.ids import BrokerId, LogOffset, MasterEpoch
from rollcall_ha.controller.contract.values import Frozen, Milestone, Phase
from tests.synthetic.plan import SURVIVED, US_PER_MS, US_PER_S, Fault
from tests.synthetic.processes import Leader, Process, ServingMaster, SyntheticOperation
from tests.synthetic.truth import OutageTruth, ReignTruth
from tests.synthetic.world import SetWorld

REIGNS_REMEMBERED = 32
"""Past epochs whose start and whose truth may still matter: no replica stays away for longer."""


class Push(Frozen):
    """One election that was carried out, and how long its steps take."""

    row: ReignTruth
    epoch: int
    winner: Process
    proposed_us: int
    sign_us: int
    committed_us: int
    notified_us: int
    promised_us: int
    role_applied_us: int
    serving_us: int
    first_ack_us: int


class SyntheticFailover:
    """The failovers of one set. A step of an old epoch does nothing once a newer epoch has come."""

    def __init__(self, world: SetWorld) -> None:
        """Nothing is under way."""
        self._world = world
        self._rows: dict[int, ReignTruth] = {}

    # --- an election was applied ---------------------------------------------------------------------------------

    def elected(self, record: EventRecord, event: MasterElected, *, proposed_us: int, applied_us: int) -> None:
        """Write the truth about it, and let its steps begin."""
        world, draws = self._world, self._world.draws
        previous = event.verdict.previous_master
        old = world.processes.get(previous) if previous is not None else None
        if world.serving is not None:
            # A living master was moved: it drained first, so its followers hold all that it acknowledged. One that is
            # not heard could not drain.
            is_heard = world.serving.process.is_up
            fault = Fault.SWITCHOVER if is_heard else Fault.CONTROLLER
            world.stop_serving(proposed_us, fault, is_drained=is_heard)
        world.seq = 0
        # As the leader does: where no stamps of its own were better, the core has put in those of the set.
        fault_age_us = event.detection.first_sign_age_us if event.detection is not None else 0
        row = self._row(record, event, old)
        world.truth.reigns.append(row)
        _remember(self._rows, row.master_epoch, row)
        push = self._push(
            row,
            proposed_us=proposed_us,
            sign_us=proposed_us - fault_age_us,
            committed_us=applied_us,
            notified_us=applied_us + draws.step_us(150),
        )
        world.later(push.notified_us + 20 * US_PER_MS, lambda _: self._report_leader(push))
        self._enter_soon(push)

    def _push(self, row: ReignTruth, **moments: int) -> Push:
        """``moments`` are those of the controllers; how long the winner's steps take is drawn."""
        step_us = self._world.draws.step_us
        promised_us = moments["notified_us"] + step_us(3_000)
        role_us = promised_us + step_us(6_000)
        serving_us = role_us + step_us(1_500)
        return Push(
            row=row,
            epoch=row.master_epoch,
            winner=self._world.processes[BrokerId(row.to_master)],
            **moments,
            promised_us=promised_us,
            role_applied_us=role_us,
            serving_us=serving_us,
            first_ack_us=serving_us + step_us(30_000),
        )

    def _enter_soon(self, push: Push) -> None:
        later, winner = self._world.later, push.winner
        later(push.role_applied_us, lambda _: self._enter(push), of=winner)
        later(push.serving_us, lambda now_us: self._serve(push, now_us), of=winner)
        later(push.serving_us + US_PER_MS, lambda now_us: self._report_winner(push, now_us), of=winner)
        later(push.first_ack_us + US_PER_MS, lambda _: self._report_first_ack(push), of=winner)

    def _row(self, record: EventRecord, event: MasterElected, old: Process | None) -> ReignTruth:
        world, verdict, detection = self._world, event.verdict, event.detection
        # A process that is back before the election fell silent all the same: without ``go_silent`` having kept it, a
        # restart of 80 ms would look like an election without a fault.
        is_lost = old is not None and (not old.is_up or old is world.lost)
        fault = old.fault if old is not None and is_lost else None
        world.lost = None
        eligible = [((c.last_epoch or 0, c.max_offset or 0), c) for c in verdict.candidates if c.rank is not None]
        held = next(end for (_, end), c in eligible if c.broker_id == event.master)
        longest = max((end for end, _ in eligible), default=(0, 0))[1]
        return ReignTruth(
            **world.names,
            master_epoch=int(event.master_epoch),
            elected_at_ms=record.stamped_at_ms,
            kind=verdict.kind.value,
            fault=fault.value if fault is not None else "",
            cause=detection.cause.value if detection is not None else "",
            from_master=verdict.previous_master,
            to_master=event.master,
            fault_at_us=old.fault_us if old is not None and fault is not None else None,
            is_false=fault in SURVIVED,
            is_controller_caused=fault is Fault.CONTROLLER,
            regret_bytes=max(0, longest - held),
            detected_us=detection.first_sign_age_us - detection.detected_age_us if detection is not None else None,
            proposed_us=detection.detected_age_us if detection is not None else None,
        )

    def graded(self, event: LossGraded) -> None:
        """The core's word about loss."""
        row = self._rows.get(event.verdict.master_epoch)
        if row is not None:
            row.grade = event.verdict.grade.value

    # --- reports -----------------------------------------------------------------------------------------------------

    def _record(self, reporter: Process | Leader, *milestones: Milestone) -> SyntheticOperation:
        return reporter.proposes(RecordMilestones(set_key=self._world.key, milestones=milestones))

    def _report_leader(self, push: Push) -> Sequence[SyntheticOperation]:
        leader, row = self._world.log.leader, push.row
        if leader.since_us > push.proposed_us:
            return ()  # The leader that took these stamps leads no more, and they were in its memory only.
        row.committed_us, row.notified_us = push.committed_us - push.proposed_us, push.notified_us - push.committed_us
        stamps = ((Phase.COMMITTED, push.committed_us), (Phase.NOTIFIED, push.notified_us))
        milestones = [
            _milestone(push.epoch, phase, at_us - push.proposed_us, observed_us=at_us - push.sign_us)
            for phase, at_us in stamps
        ]
        return [self._record(leader, *milestones)]

    def _reported(self, push: Push, phase: Phase, at_us: int, observed_us: int | None) -> Milestone:
        return _milestone(push.epoch, phase, at_us - push.notified_us, push.winner, observed_us=observed_us)

    def _report_winner(self, push: Push, now_us: int) -> Sequence[SyntheticOperation]:
        world, row, serving = self._world, push.row, self._world.serving
        serves = serving is not None and serving.process is push.winner and serving.epoch == push.epoch
        if not serves or not push.winner.is_up or row.serving_us is not None:
            return ()
        if world.draws.chance(world.plan.dropped_stamp_share):
            return ()
        # A leader that did not see the beginning does not say how long it took (runtime.milestones, rule 2).
        total_us = now_us - push.sign_us if world.log.leader.since_us <= push.proposed_us else None
        row.promised_us = push.promised_us - push.notified_us
        row.role_applied_us = push.role_applied_us - push.promised_us
        row.serving_us = push.serving_us - push.role_applied_us
        row.total_us = total_us
        converged_us = now_us + world.draws.step_us(20_000)
        world.later(converged_us, lambda at_us: self._report_route(push, at_us), of=push.winner)
        stamps = (
            (Phase.PROMISED, push.promised_us),
            (Phase.ROLE_APPLIED, push.role_applied_us),
            (Phase.SERVING, push.serving_us),
        )
        return [self._record(push.winner, *(self._reported(push, *stamp, total_us) for stamp in stamps))]

    def _report_first_ack(self, push: Push) -> Sequence[SyntheticOperation]:
        row = push.row
        # With the report of SERVING lost there is no place that it could be counted from.
        if row.serving_us is None or row.first_ack_us is not None or not push.winner.is_up:
            return ()
        row.first_ack_us = push.first_ack_us - push.serving_us
        return [self._record(push.winner, self._reported(push, Phase.FIRST_ACK, push.first_ack_us, None))]

    def _report_route(self, push: Push, now_us: int) -> Sequence[SyntheticOperation]:
        if self._world.log.leader.since_us > push.proposed_us:
            return ()
        push.row.route_converged_us = now_us - push.sign_us
        milestone = self._reported(push, Phase.ROUTE_CONVERGED, now_us, push.row.route_converged_us)
        return [self._record(push.winner, milestone)]

    # --- entering and serving ----------------------------------------------------------------------------------------

    def _may_go_on(self, push: Push) -> bool:
        state, winner = self._world.state, push.winner
        return winner.is_up and state.master_epoch == push.epoch and state.master == winner.broker_id

    def _enter(self, push: Push) -> Sequence[SyntheticOperation]:
        world, winner = self._world, push.winner
        if not self._may_go_on(push) or world.state.has_entered:
            return ()
        command = ReportEntered(
            set_key=world.key,
            **winner.identity,
            master_epoch=MasterEpoch(push.epoch),
            start_offset=LogOffset(winner.end),
            acked_end_max=LogOffset(min(winner.end, max(world.acked, 0))),
        )
        return [winner.proposes(command)]

    def _serve(self, push: Push, now_us: int) -> Sequence[SyntheticOperation]:
        world, winner = self._world, push.winner
        if not self._may_go_on(push) or not world.state.has_entered or world.serving is not None:
            return ()
        start = winner.end
        push.row.lost_bytes, world.acked = max(0, world.acked - start), min(world.acked, start)
        _remember(world.starts, push.epoch, start)
        winner.last_epoch = push.epoch
        world.remove_missing(now_us)
        self._begin_serving(winner, push.epoch, now_us)
        return ()

    def _begin_serving(self, process: Process, epoch: int, now_us: int) -> None:
        world = self._world
        world.serving = ServingMaster(process, epoch, process.end, now_us, world.write_bytes_per_s)
        if world.outage is not None:
            from_us, fault, old_epoch = world.outage
            world.outage = None
            row = OutageTruth(
                **world.names, from_us=from_us, to_us=now_us, fault=fault.value, is_recorded=epoch != old_epoch
            )
            world.truth.outages.append(row)
        for other in world.processes.values():
            self.follow_soon(other, now_us)

    def resume(self, process: Process, now_us: int) -> None:
        """A process that paused goes on: as the master if it still is, else as a follower."""
        world, state = self._world, self._world.state
        epoch = int(state.master_epoch)
        if world.master is not process:
            self.follow_soon(process, now_us)
        elif not state.has_entered:
            # The session's answer tells the winner of its epoch once more; the arrival of the first push was not seen.
            row = self._rows[epoch]
            again = self._push(row, proposed_us=-1, sign_us=now_us, committed_us=now_us, notified_us=now_us)
            self._enter_soon(again)
        else:
            world.lost = None
            if world.serving is None:
                self._begin_serving(process, epoch, now_us)

    # --- following ---------------------------------------------------------------------------------------------------

    def follow_soon(self, process: Process, now_us: int) -> None:
        """Open a link to the serving master, if there is one and it is another process."""
        serving = self._world.serving
        if serving is None or serving.process is process or process.following == serving.epoch:
            return
        epoch = serving.epoch
        when_us = now_us + self._world.draws.step_us(8_000)
        self._world.later(when_us, lambda at_us: self._follow(process, epoch, at_us), of=process)

    def _follow(self, process: Process, epoch: int, now_us: int) -> Sequence[SyntheticOperation]:
        world, serving = self._world, self._world.serving
        is_current = serving is not None and serving.epoch == epoch and serving.process is not process
        if not is_current or not process.is_up or process.following == epoch:
            return ()
        starts = [start for later, start in world.starts.items() if later > process.last_epoch]
        before, process.end = process.end, min([process.end, *starts])
        process.following, process.last_epoch = epoch, epoch
        self._note_cut(process, epoch, before - process.end)
        milestone = _milestone(
            epoch,
            Phase.TRUNCATED,
            world.draws.step_us(2_000),
            process,
            cut_from=LogOffset(process.end) if before > process.end else None,
            cut_to=LogOffset(before) if before > process.end else None,
            released=LogOffset(process.released),
        )
        joined_us = now_us + 300 * US_PER_MS + world.draws.within_us(4 * US_PER_S)
        world.later(joined_us, lambda at_us: self._join(process, epoch, at_us), of=process)
        return [self._record(process, milestone)]

    def _note_cut(self, process: Process, epoch: int, cut_bytes: int) -> None:
        """The newest reign, up to this epoch, that deposed this replica."""
        rows = (row for row in reversed(self._rows.values()) if row.master_epoch <= epoch)
        row = next((row for row in rows if row.from_master == process.broker_id), None)
        if row is not None and row.grade is not None and row.cut_bytes is None:
            row.cut_bytes = cut_bytes

    def _join(self, process: Process, epoch: int, now_us: int) -> Sequence[SyntheticOperation]:
        """Caught up: the master takes it back into the set."""
        world, serving, state = self._world, self._world.serving, self._world.state
        if serving is None or serving.epoch != epoch or not process.is_up:
            return ()
        replica = world.replica(process)
        is_known = replica is not None and replica.is_alive and replica.incarnation == process.incarnation
        if not is_known or not serving.process.is_up:
            # The controllers do not hear one of the two: the master tries again.
            world.later(now_us + US_PER_S, lambda at_us: self._join(process, epoch, at_us), of=process)
            return ()
        operations: list[SyntheticOperation] = []
        if process.broker_id not in state.sync_state_set:
            operations.append(world.alter((*state.sync_state_set, process.broker_id), process))
        elapsed_us = now_us - serving.since_us
        operations.append(self._record(process, _milestone(epoch, Phase.IN_SYNC, elapsed_us, process)))
        if len({*state.sync_state_set, process.broker_id}) == world.plan.replicas:
            full = _milestone(epoch, Phase.FULL_REDUNDANCY, elapsed_us, serving.process)
            operations.append(self._record(serving.process, full))
        return operations


def _milestone(epoch: int, phase: Phase, elapsed_us: int, process: Process | None = None, **more: Any) -> Milestone:
    """The leader reports it where no process is named."""
    named = process.identity if process is not None else {}
    return Milestone(master_epoch=MasterEpoch(epoch), phase=phase, elapsed_us=elapsed_us, **named, **more)


def _remember(kept: dict[int, Any], epoch: int, value: Any) -> None:
    kept[epoch] = value
    if len(kept) > REIGNS_REMEMBERED:
        del kept[next(iter(kept))]
