"""
One synthetic broker set as it is: its processes, the ends of their logs, what is acknowledged, who serves.

Here: these facts, and the SyncStateSet as the serving master tends it. Not here: faults and returns (``broker_set``),
what the leading controller notices (``leading``), the steps of a failover (``failover``), the effect of an operation,
which the real core decides (``log``).
Rule 1: a step is a function of the moment that gives operations; it reads the core's state of that moment and the
processes, never events.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rollcall_ha.controller.contract.commands import AlterSyncStateSet
from rollcall_ha.controller.contract.ids import AckMode, BrokerId, LogOffset, MasterEpoch, SetKey
from rollcall_ha.controller.contract.values import Joining, Positions
from rollcall_ha.controller.core.state import ReplicaState, SetState
from tests.synthetic.draws import Draws
from tests.synthetic.log import SyntheticLog
from tests.synthetic.plan import US_PER_MS, US_PER_S, Fault, Plan
from tests.synthetic.processes import Process, ServingMaster, Step, SyntheticOperation
from tests.synthetic.truth import Truth


class SetWorld:
    """What faults, failovers and the leading controller share."""

    def __init__(
        self, plan: Plan, log: SyntheticLog, draws: Draws, truth: Truth, *, key: SetKey, numbers: tuple[int, int]
    ) -> None:
        """``numbers``: the fleet's, and the set's in it."""
        self.plan, self.log, self.draws, self.truth, self.key = plan, log, draws, truth, key
        fleet_number, set_number = numbers
        # The last sets of a fleet, as many as the plan says.
        is_async = set_number >= plan.sets - round(plan.async_share * plan.sets)
        self.ack_mode = AckMode.ASYNC if is_async else AckMode.ALL
        self.faults_per_day = plan.faults_per_day * (plan.flapping_factor if set_number == 0 else 1.0)
        self.timing = plan.timing
        self.interval_us = self.timing.heartbeat_interval_ms * US_PER_MS
        self.names: dict[str, Any] = {"cluster": key.cluster, "broker_set": key.name}
        """As rows of truth name it."""
        self.write_bytes_per_s = draws.write_bytes_per_s()
        self.processes = {
            BrokerId(number): Process(BrokerId(number), f"{fleet_number:08x}{set_number:08x}{number:08x}")
            for number in range(1, plan.replicas + 1)
        }
        self.serving: ServingMaster | None = None
        self.starts: dict[int, int] = {}
        """Where each epoch begins."""
        self.acked = 0
        """Highest end that was acknowledged and is not lost."""
        self.seq = 0
        self.outage: tuple[int, Fault, int] | None = None
        """Begin, fault and epoch of the present outage."""
        self.lost: Process | None = None
        """The last master that was lost, until its successor is elected."""

    # --- the core's state ------------------------------------------------------------------------------------------

    @property
    def state(self) -> SetState:
        return self.log.state.sets.get(self.key) or SetState(set_key=self.key)

    @property
    def master(self) -> Process | None:
        """The real process that the core calls master, if its incarnation still runs or may come back."""
        state = self.state
        process = self.processes.get(state.master) if state.master is not None else None
        return process if process is not None and process.incarnation == state.master_incarnation else None

    def replica(self, process: Process) -> ReplicaState | None:
        return self.state.replica(process.broker_id)

    def session_of(self, process: Process) -> dict[str, Any]:
        """The fields by which a command names the session of a registered process."""
        replica = self.replica(process)
        assert replica is not None
        return {"set_key": self.key, **process.identity, "session_ordinal": replica.session_ordinal}

    def later(self, when_us: int, step: Step, *, of: Process | None = None) -> None:
        """Run a step of this set then; nothing, if ``of`` is another incarnation by then."""
        number = of.number if of is not None else None
        self.log.at(when_us, self.key, lambda at_us: step(at_us) if of is None or of.number == number else ())

    # --- logs --------------------------------------------------------------------------------------------------------

    def positions(self, process: Process, end: int) -> Positions:
        """The positions that a replica reports when its log ends at ``end``."""
        return Positions(
            last_epoch=MasterEpoch(process.last_epoch),
            max_offset=LogOffset(end),
            confirm_offset=LogOffset(min(self.acked, end)),
            released=LogOffset(process.released_told),
        )

    def freeze(self, process: Process, fault: Fault, now_us: int) -> None:
        """Fix the ends of the logs at the moment in which ``process`` ceases to take part."""
        serving = self.serving
        if serving is not None and process is serving.process:
            self.stop_serving(now_us, fault)
        elif serving is not None and process.following == serving.epoch:
            end = serving.end_at(now_us)
            process.end = end - self._lag(end, process)

    def _lag(self, end: int, process: Process) -> int:
        # A follower never falls behind the end that it has acknowledged: else a proven failover could lose bytes in the
        # synthetic world alone, and the truth test would blame the core.
        return min(self.draws.lag_bytes(self.write_bytes_per_s), end - max(process.end, self.acked, 0))

    def stop_serving(self, now_us: int, fault: Fault, *, is_drained: bool = False) -> None:
        """The master takes no more records: the end of each log is fixed here, and stays until a master serves."""
        serving = self.serving
        assert serving is not None
        end = serving.end_at(now_us)
        process = serving.process
        for follower in self.processes.values():
            if follower.is_up and follower is not process and follower.following == serving.epoch:
                follower.end = end if is_drained else end - self._lag(end, follower)
        process.end = end
        members = [self.processes[member].end for member in self.state.sync_state_set]
        released = end if self.ack_mode is AckMode.ASYNC or is_drained else max(self.acked, min([end, *members]))
        self.acked = released
        process.released = released
        unheard = self.write_bytes_per_s * self.draws.within_us(self.interval_us) // US_PER_S
        process.released_told = max(process.released_told, released if is_drained else released - unheard)
        self.serving = None
        self.outage = (now_us, fault, serving.epoch)

    def end_of(self, process: Process, now_us: int) -> int:
        """Where the log of a replica ends, by its last heartbeat."""
        serving = self.serving
        if serving is None:
            return process.end
        if process is serving.process:
            return serving.end_at(now_us if process.is_up else process.last_heard_us)
        return serving.end_at(now_us) if process.is_up and process.following == serving.epoch else process.end

    # --- the SyncStateSet ---------------------------------------------------------------------------------------------

    def shrink_soon(self, process: Process, when_us: int) -> None:
        """The serving master then looks whether the member still does not follow."""
        self.later(when_us, lambda now_us: self._shrink(process, now_us))

    def _shrink(self, process: Process, now_us: int) -> Sequence[SyntheticOperation]:
        """The master proposes to go on without a member that does not follow."""
        serving, state = self.serving, self.state
        if serving is None or process.broker_id not in state.sync_state_set or process is serving.process:
            return ()
        if process.is_up and process.following == serving.epoch:
            return ()
        if not serving.process.is_up:
            self.shrink_soon(process, now_us + US_PER_S)  # No controller hears its proposal: it tries again.
            return ()
        return [self.alter(tuple(member for member in state.sync_state_set if member != process.broker_id))]

    def remove_missing(self, now_us: int) -> None:
        """A new master waits for the handshakes of its set, then proposes to remove the missing members (R6)."""
        for process in self.processes.values():
            if not process.is_up and process.broker_id in self.state.sync_state_set:
                self.shrink_soon(process, now_us + self.timing.survivors_wait_ms * US_PER_MS)

    def alter(self, members: tuple[BrokerId, ...], *joining: Process) -> SyntheticOperation:
        """The next proposal of the serving master."""
        serving, state = self.serving, self.state
        assert serving is not None
        self.seq += 1
        command = AlterSyncStateSet(
            set_key=self.key,
            **serving.process.identity,
            master_epoch=MasterEpoch(serving.epoch),
            seq=self.seq,
            sync_state_set_epoch=state.sync_state_set_epoch,
            new_set=tuple(sorted(members)),
            joining=tuple(Joining(**process.identity) for process in joining),
        )
        return serving.process.proposes(command)
