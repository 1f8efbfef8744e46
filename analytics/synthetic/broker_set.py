"""
One synthetic broker set: faults, their detection by the leading controller, and the return of replicas.

Here: the moments of these, and the operations that follow. Not here: the effect of an operation, which the real core
decides (``controller.core``, by way of ``fleet``); the moment of an election (``proposing``); the steps of a failover
in brokers (``failover``); draws (``draws``).
Rule 1: a step is a function of the moment that gives operations; it reads the core's state of that moment and the
processes, never events.
Rule 2: the leading controller knows heartbeats, closed sessions and probes only; a new leader starts without any of
them and gives every replica one full timeout (``controller.runtime.sessions``, ``controller.runtime.election_duty``).
Rule 3: every fault ends: each process is repaired, so that a history comes to rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rollcall_ha.analytics.synthetic.draws import Draws
from rollcall_ha.analytics.synthetic.failover import SyntheticFailover
from rollcall_ha.analytics.synthetic.plan import SURVIVED, US_PER_MS, US_PER_S, Fault, Plan
from rollcall_ha.analytics.synthetic.processes import (
    NO_EPOCH_YET,
    Detection,
    Process,
    ServingMaster,
    Step,
    SyntheticOperation,
)
from rollcall_ha.analytics.synthetic.proposing import ElectionProposer
from rollcall_ha.analytics.synthetic.truth import ExposureTruth, GapTruth, Truth
from rollcall_ha.controller.contract.commands import (
    AlterSyncStateSet,
    ApplyBrokerId,
    MarkAlive,
    MarkSilent,
    RegisterReplica,
    SayGoodbye,
)
from rollcall_ha.controller.contract.events import EventRecord
from rollcall_ha.controller.contract.ids import AckMode, BrokerId, LogOffset, MasterEpoch, SetKey
from rollcall_ha.controller.contract.values import (
    CleanMark,
    Joining,
    Positions,
    ReplicaDescription,
    SetConfiguration,
    SilenceCause,
)
from rollcall_ha.controller.core.state import ReplicaState, SetState

if TYPE_CHECKING:
    from rollcall_ha.analytics.synthetic.fleet import SyntheticFleet

UNSYNCED_US = US_PER_S
"""A power loss takes at most the writes of so long a time."""


def _address(broker_id: BrokerId) -> str:
    return f"10.0.0.{broker_id}:10911"


class SyntheticSet:
    """``begin`` schedules registrations and faults; the fleet calls ``applied`` after each entry that touched it."""

    def __init__(
        self, plan: Plan, fleet: SyntheticFleet, draws: Draws, truth: Truth, *, key: SetKey, numbers: tuple[int, int]
    ) -> None:
        """``numbers``: of the fleet, and of the set in it."""
        self.plan, self.fleet, self.draws, self.truth, self.key = plan, fleet, draws, truth, key
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
        self.proposer = ElectionProposer(self)
        self.failover = SyntheticFailover(self)
        self.outage: tuple[int, Fault, int] | None = None
        """Begin, fault and epoch of the present outage."""
        self.lost: Process | None = None
        """The last master that was lost, until its successor is elected."""
        self._exposed_from_ms: int | None = None
        self._last_fault_us = 0

    # --- the core's state ------------------------------------------------------------------------------------------

    @property
    def state(self) -> SetState:
        return self.fleet.state.sets.get(self.key) or SetState(set_key=self.key)

    @property
    def master(self) -> Process | None:
        """The real process that the core calls master, if its incarnation still runs or may come back."""
        state = self.state
        process = self.processes.get(state.master) if state.master is not None else None
        return process if process is not None and process.incarnation == state.master_incarnation else None

    def replica(self, process: Process) -> ReplicaState | None:
        return self.state.replica(process.broker_id)

    def later(self, when_us: int, step: Step, *, of: Process | None = None) -> None:
        """Run a step of this set then; nothing, if ``of`` is another incarnation by then."""
        number = of.number if of is not None else None
        self.fleet.at(when_us, self.key, lambda at_us: step(at_us) if of is None or of.number == number else ())

    def applied(self, records: Sequence[EventRecord], now_us: int, applied_us: int) -> None:
        """An entry touched this set."""
        state = self.state
        stamped_ms = records[-1].stamped_at_ms
        is_exposed = state.is_established and len(state.sync_state_set) == 1
        if is_exposed and self._exposed_from_ms is None:
            self._exposed_from_ms = stamped_ms
        elif not is_exposed and self._exposed_from_ms is not None:
            self.truth.exposures.append(ExposureTruth(**self.names, from_ms=self._exposed_from_ms, to_ms=stamped_ms))
            self._exposed_from_ms = None
        self.proposer.applied(records, now_us, applied_us)

    # --- the beginning -----------------------------------------------------------------------------------------------

    def begin(self, now_us: int, last_fault_us: int) -> None:
        """Register all replicas, and schedule faults until ``last_fault_us``."""
        self._last_fault_us = last_fault_us
        self.later(now_us + self.draws.within_us(10 * US_PER_S), self._register_all)

    def _register_all(self, now_us: int) -> Sequence[SyntheticOperation]:
        self._schedule_fault(now_us + 60 * US_PER_S)
        grants = [process.proposes(self._apply_id(process)) for process in self.processes.values()]
        return [*grants, *(self._registration(process) for process in self.processes.values())]

    def _apply_id(self, process: Process) -> ApplyBrokerId:
        address = _address(process.broker_id)
        return ApplyBrokerId(set_key=self.key, register_code=process.register_code, address=address)

    def _registration(self, process: Process) -> SyntheticOperation:
        replica = self.replica(process)
        return process.proposes(
            RegisterReplica(
                set_key=self.key,
                **process.identity,
                register_code=process.register_code,
                boot_id=f"boot-{process.boot}",
                store_id=f"store-{process.name}",
                description=ReplicaDescription(
                    address=_address(process.broker_id),
                    ha_address=f"10.0.0.{process.broker_id}:10912",
                    zone=f"zone-{process.broker_id % 2}",
                    priority=10 * int(process.broker_id),
                ),
                configuration=SetConfiguration(expected_replicas=self.plan.replicas, ack_mode=self.ack_mode),
                positions=self.positions(process, process.end),
                clean_mark=process.mark,
                replaces=replica.registered_as if replica is not None else None,
                previous_incarnations=process.earlier_incarnations(),
            )
        )

    def positions(self, process: Process, end: int) -> Positions:
        """The positions that a replica reports when its log ends at ``end``."""
        return Positions(
            last_epoch=MasterEpoch(process.last_epoch),
            max_offset=LogOffset(end),
            confirm_offset=LogOffset(min(self.acked, end)),
            released=LogOffset(process.released_told),
        )

    # --- faults ------------------------------------------------------------------------------------------------------

    def _schedule_fault(self, now_us: int) -> None:
        if self.faults_per_day <= 0:
            return
        when_us = now_us + self.draws.until_next_us(self.faults_per_day)
        if when_us < self._last_fault_us:
            self.later(when_us, self._inject_fault)

    def _inject_fault(self, now_us: int) -> Sequence[SyntheticOperation]:
        self._schedule_fault(now_us)
        fault = self.draws.fault()
        master = self.master
        if fault is Fault.SWITCHOVER:
            return self._switchover(now_us)
        if fault in (Fault.MEMBER_CRASH, Fault.MEMBER_PAUSE):
            others = [process for process in self.processes.values() if process is not master]
            process: Process | None = others[self.draws.pick(len(others))]
        else:
            process = master
        if process is None or not process.is_up:
            return ()
        return self.go_silent(process, fault, now_us)

    def _switchover(self, now_us: int) -> Sequence[SyntheticOperation]:
        serving, state = self.serving, self.state
        # A master that no controller hears cannot be told to drain.
        if serving is None or not (serving.process.is_up and state.is_master_alive):
            return ()
        able = [
            process
            for process in self.processes.values()
            if process.is_up and process.following == serving.epoch and process.broker_id in state.sync_state_set
        ]
        return self.proposer.switchover(now_us, able[self.draws.pick(len(able))]) if able else ()

    def controller_changed(self, now_us: int) -> None:
        """The living master cannot open its session with the new leading controller."""
        master = self.master
        if master is not None and master.is_up and self.serving is not None:
            self.go_silent(master, Fault.CONTROLLER, now_us)

    def go_silent(self, process: Process, fault: Fault, now_us: int) -> Sequence[SyntheticOperation]:
        """``process`` is not heard from now on; how it comes back is drawn at once."""
        # A master that a new leader does not hear lives, and writes on until it is deposed.
        if fault is not Fault.CONTROLLER:
            self._freeze(process, fault, now_us)
        process.is_up, process.fault, process.fault_us = False, fault, now_us
        process.last_heard_us = now_us - self.draws.within_us(self.interval_us)
        process.following, process.mark = NO_EPOCH_YET, None
        is_master = process is self.master
        if is_master:
            self.lost = process
        away_us = self.draws.away_us(fault)
        come_back = self._resume if fault in SURVIVED else self._restart
        self.later(now_us + away_us, lambda at_us: come_back(process, at_us))
        operations: list[SyntheticOperation] = []
        if fault is Fault.STOP:
            operations.append(self._goodbye(process))
        elif is_master and fault in (Fault.CRASH, Fault.RESTART) and self._somebody_saw_the_link():
            self._detect_at_once(process, now_us, away_us)
        else:
            self._schedule_timeout(process)
        if not is_master:
            self._schedule_shrink(process, now_us + self.timing.catch_up_timeout_ms * US_PER_MS)
        return operations

    def _freeze(self, process: Process, fault: Fault, now_us: int) -> None:
        """Fix the ends of the logs at the moment in which ``process`` stops to take part."""
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

    # --- detection by the leading controller --------------------------------------------------------------------------

    def _somebody_saw_the_link(self) -> bool:
        """Whether a member that may be elected is heard: dead at once needs its word about the HA link (R13)."""
        state, master = self.state, self.master
        return any(
            process.is_up and process is not master and process.broker_id in state.sync_state_set
            for process in self.processes.values()
        )

    def _detect_at_once(self, process: Process, now_us: int, away_us: int) -> None:
        closed_us = now_us + self.draws.step_us(800)
        link_us = now_us + self.draws.step_us(1_000)
        refused_us = max(closed_us, link_us) + self.draws.step_us(1_500)
        if process.fault is Fault.RESTART:
            # The probe finds the next incarnation: it listens a moment before it registers.
            found_us = now_us + away_us - 20 * US_PER_MS
            detection = Detection(
                cause=SilenceCause.REPLACED, detected_us=found_us, heard_us=process.last_heard_us, closed_us=closed_us
            )
        else:
            detection = Detection(
                cause=SilenceCause.DEAD_AT_ONCE,
                detected_us=refused_us,
                heard_us=process.last_heard_us,
                closed_us=closed_us,
                link_closed_us=link_us,
                refused_us=refused_us,
            )
        self.later(detection.detected_us, lambda at_us: self._silent(process, detection, at_us), of=process)

    def _schedule_timeout(self, process: Process) -> None:
        """Silence is found by the first scan after the timeout; a new leader counts from when it began to listen."""
        timeout_us = self.timing.heartbeat_timeout_ms * US_PER_MS
        heard_from_us = max(process.last_heard_us, self.fleet.leader.since_us)
        found_us = heard_from_us + timeout_us + self.draws.within_us(self.timing.scan_interval_ms * US_PER_MS)
        self.later(found_us, lambda at_us: self._timed_out(process, at_us), of=process)

    def _timed_out(self, process: Process, now_us: int) -> Sequence[SyntheticOperation]:
        if process.is_up:
            return ()
        leads_since_us = self.fleet.leader.since_us
        timeout_us = self.timing.heartbeat_timeout_ms * US_PER_MS
        if now_us - leads_since_us < timeout_us:
            self._schedule_timeout(process)
            return ()
        if now_us - process.last_heard_us < timeout_us:
            # It was heard meanwhile, and fell silent anew: that silence has a timeout of its own, and this one would
            # find it after less than the timeout.
            return ()
        heard_us = process.last_heard_us if process.last_heard_us >= leads_since_us else None
        detection = Detection(cause=SilenceCause.TIMEOUT, detected_us=now_us, heard_us=heard_us)
        return self._silent(process, detection, now_us)

    def _silent(self, process: Process, detection: Detection, now_us: int) -> Sequence[SyntheticOperation]:
        replica = self.replica(process)
        if process.is_up or replica is None or not replica.is_alive:
            return ()
        stamps = detection.ages(now_us)
        sign_us = now_us - stamps.first_sign_age_us
        if sign_us < self.fleet.leader.since_us and detection.cause is not SilenceCause.TIMEOUT:
            # The controller that saw the connections close leads no more, and its successor saw nothing: it may count
            # from its own beginning only.
            self._schedule_timeout(process)
            return ()
        if process is self.master:
            self.proposer.detection = detection
        command = MarkSilent(**self._session_of(process), cause=detection.cause, detection=stamps)
        return [self.fleet.leader.proposes(command)]

    def _session_of(self, process: Process) -> dict[str, Any]:
        """The fields by which a command names the session of a registered process."""
        replica = self.replica(process)
        assert replica is not None
        return {"set_key": self.key, **process.identity, "session_ordinal": replica.session_ordinal}

    def _goodbye(self, process: Process) -> SyntheticOperation:
        process.mark = CleanMark(nonce=f"{process.incarnation}", end_offset=LogOffset(process.end))
        process.released_told = process.released
        return process.proposes(SayGoodbye(**self._session_of(process), clean_mark=process.mark))

    # --- coming back --------------------------------------------------------------------------------------------------

    def _restart(self, process: Process, now_us: int) -> Sequence[SyntheticOperation]:
        """A new incarnation of the process registers."""
        if process.fault is Fault.POWER:
            process.boot += 1
            process.end -= min(process.end, self.write_bytes_per_s * self.draws.within_us(UNSYNCED_US) // US_PER_S)
            # Entries of the epoch list that begin beyond the end are dropped (R9).
            kept = [e for e, start in self.starts.items() if e <= process.last_epoch and start <= process.end]
            process.last_epoch = max(kept, default=process.last_epoch)
        process.number += 1
        process.is_up = True
        process.released_told = process.released
        self.failover.follow_soon(process, now_us)
        return [self._registration(process)]

    def _resume(self, process: Process, now_us: int) -> Sequence[SyntheticOperation]:
        """The pause is over: the same incarnation sends a heartbeat, or opens a further session."""
        replica = self.replica(process)
        assert replica is not None
        heard_us = now_us + self.draws.within_us(self.interval_us // 4)
        self.truth.gaps.append(
            GapTruth(
                **self.names,
                **process.identity,
                is_master=process is self.master,
                from_us=process.last_heard_us,
                gap_us=heard_us - process.last_heard_us,
                is_detected=not replica.is_alive,
            )
        )
        process.is_up = True
        operations: list[SyntheticOperation] = []
        if not replica.is_alive:
            is_new_session = self.draws.chance(0.5)
            alive = MarkAlive(**self._session_of(process))
            operations.append(self._registration(process) if is_new_session else self.fleet.leader.proposes(alive))
        self.failover.resume(process, now_us)
        return operations

    # --- the SyncStateSet ---------------------------------------------------------------------------------------------

    def _schedule_shrink(self, process: Process, when_us: int) -> None:
        self.later(when_us, lambda now_us: self._shrink(process, now_us))

    def _shrink(self, process: Process, now_us: int) -> Sequence[SyntheticOperation]:
        """The master proposes to go on without a member that does not follow."""
        serving, state = self.serving, self.state
        if serving is None or process.broker_id not in state.sync_state_set or process is serving.process:
            return ()
        if process.is_up and process.following == serving.epoch:
            return ()
        if not serving.process.is_up:
            self._schedule_shrink(process, now_us + US_PER_S)  # No controller hears its proposal: it tries again.
            return ()
        return [self.alter(tuple(member for member in state.sync_state_set if member != process.broker_id))]

    def remove_missing(self, now_us: int) -> None:
        """A new master waits for the handshakes of its set, then proposes to remove the missing members (R6)."""
        for process in self.processes.values():
            if not process.is_up and process.broker_id in self.state.sync_state_set:
                self._schedule_shrink(process, now_us + self.timing.survivors_wait_ms * US_PER_MS)

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
