"""
One synthetic broker set: its faults, and the return of its replicas.

Here: the moments of these, and the operations that follow. Not here: the set as it is (``world``), what the leading
controller notices and orders (``leading``), the steps of a failover in brokers (``failover``), draws (``draws``).
Rule 1: every fault ends: each process is repaired, so that a history comes to rest.
"""

from __future__ import annotations

from collections.abc import Sequence

from rollcall_ha.controller.contract.commands import ApplyBrokerId, MarkAlive, RegisterReplica, SayGoodbye
from rollcall_ha.controller.contract.events import EventRecord, LossGraded, MasterElected
from rollcall_ha.controller.contract.ids import BrokerId, LogOffset
from rollcall_ha.controller.contract.values import CleanMark, ReplicaDescription, SetConfiguration
from tests.synthetic.failover import SyntheticFailover
from tests.synthetic.leading import Answer, SetLeader
from tests.synthetic.plan import SURVIVED, US_PER_MS, US_PER_S, Fault
from tests.synthetic.processes import NO_EPOCH_YET, Process, SyntheticOperation
from tests.synthetic.truth import ExposureTruth, GapTruth
from tests.synthetic.world import SetWorld

UNSYNCED_US = US_PER_S
"""A power loss takes at most the writes of so long a time."""


def _address(broker_id: BrokerId) -> str:
    return f"10.0.0.{broker_id}:10911"


class SyntheticSet:
    """``begin`` schedules registrations and faults; the fleet calls ``applied`` after each entry that touched it."""

    def __init__(self, world: SetWorld) -> None:
        """Nothing has happened yet."""
        self._world = world
        self._leader = SetLeader(world)
        self._failover = SyntheticFailover(world)
        self._exposed_from_ms: int | None = None
        self._is_observed = False
        self._last_fault_us = 0

    def applied(self, records: Sequence[EventRecord], answers: Sequence[Answer], now_us: int, applied_us: int) -> None:
        """An entry of this moment touched this set, or refused it an election; the leader has applied it."""
        for record in records:
            if isinstance(record.event, MasterElected):
                self._failover.elected(record, record.event, proposed_us=now_us, applied_us=applied_us)
            elif isinstance(record.event, LossGraded):
                self._failover.graded(record.event)
        if records:
            self._note_exposure(records[-1].stamped_at_ms)
        self._leader.applied(records, answers, applied_us)

    def _note_exposure(self, stamped_ms: int) -> None:
        world, state = self._world, self._world.state
        # From its first serving master on: the lake observes a set since then.
        self._is_observed = self._is_observed or state.has_entered
        is_exposed = self._is_observed and len(state.sync_state_set) == 1
        if is_exposed and self._exposed_from_ms is None:
            self._exposed_from_ms = stamped_ms
        elif not is_exposed and self._exposed_from_ms is not None:
            world.truth.exposures.append(ExposureTruth(**world.names, from_ms=self._exposed_from_ms, to_ms=stamped_ms))
            self._exposed_from_ms = None

    # --- the beginning -----------------------------------------------------------------------------------------------

    def begin(self, now_us: int, last_fault_us: int) -> None:
        """Register all replicas, and schedule faults until ``last_fault_us``."""
        self._last_fault_us = last_fault_us
        self._world.later(now_us + self._world.draws.within_us(10 * US_PER_S), self._register_all)

    def _register_all(self, now_us: int) -> Sequence[SyntheticOperation]:
        self._schedule_fault(now_us + 60 * US_PER_S)
        grants = [process.proposes(self._apply_id(process)) for process in self._world.processes.values()]
        return [*grants, *(self._registration(process) for process in self._world.processes.values())]

    def _apply_id(self, process: Process) -> ApplyBrokerId:
        address = _address(process.broker_id)
        return ApplyBrokerId(set_key=self._world.key, register_code=process.register_code, address=address)

    def _registration(self, process: Process) -> SyntheticOperation:
        world, replica = self._world, self._world.replica(process)
        return process.proposes(
            RegisterReplica(
                set_key=world.key,
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
                configuration=SetConfiguration(expected_replicas=world.plan.replicas, ack_mode=world.ack_mode),
                positions=world.positions(process, process.end),
                clean_mark=process.mark,
                replaces=replica.registered_as if replica is not None else None,
                previous_incarnations=process.earlier_incarnations(),
            )
        )

    # --- faults ------------------------------------------------------------------------------------------------------

    def _schedule_fault(self, now_us: int) -> None:
        world = self._world
        if world.faults_per_day <= 0:
            return
        when_us = now_us + world.draws.until_next_us(world.faults_per_day)
        if when_us < self._last_fault_us:
            world.later(when_us, self._inject_fault)

    def _inject_fault(self, now_us: int) -> Sequence[SyntheticOperation]:
        world = self._world
        self._schedule_fault(now_us)
        fault = world.draws.fault()
        master = world.master
        if fault is Fault.SWITCHOVER:
            return self._switchover(now_us)
        if fault in (Fault.MEMBER_CRASH, Fault.MEMBER_PAUSE):
            others = [process for process in world.processes.values() if process is not master]
            process: Process | None = others[world.draws.pick(len(others))]
        else:
            process = master
        if process is None or not process.is_up:
            return ()
        return self.go_silent(process, fault, now_us)

    def _switchover(self, now_us: int) -> Sequence[SyntheticOperation]:
        world = self._world
        serving, state = world.serving, world.state
        # A master that no controller hears cannot be told to drain.
        if serving is None or not (serving.process.is_up and state.is_master_alive):
            return ()
        able = [
            process
            for process in world.processes.values()
            if process.is_up and process.following == serving.epoch and process.broker_id in state.sync_state_set
        ]
        return self._leader.switchover(now_us, able[world.draws.pick(len(able))]) if able else ()

    def controller_changed(self, now_us: int, *, is_cut_off: bool) -> None:
        """Another controller leads; ``is_cut_off``: the living master cannot open its session with it."""
        self._leader.taken_over(now_us)
        master = self._world.master
        if is_cut_off and master is not None and master.is_up and self._world.serving is not None:
            self.go_silent(master, Fault.CONTROLLER, now_us)

    def go_silent(self, process: Process, fault: Fault, now_us: int) -> Sequence[SyntheticOperation]:
        """``process`` is not heard from now on; how it comes back is drawn at once."""
        world = self._world
        # A master that a new leader does not hear lives, and writes on until it is deposed.
        if fault is not Fault.CONTROLLER:
            world.freeze(process, fault, now_us)
        process.is_up, process.fault, process.fault_us = False, fault, now_us
        process.last_heard_us = now_us - world.draws.within_us(world.interval_us)
        process.following, process.mark = NO_EPOCH_YET, None
        is_master = process is world.master
        if is_master:
            world.lost = process
        away_us = world.draws.away_us(fault)
        come_back = self._resume if fault in SURVIVED else self._restart
        world.later(now_us + away_us, lambda at_us: come_back(process, at_us))
        operations: list[SyntheticOperation] = []
        if fault is Fault.STOP:
            operations.append(self._goodbye(process))
        elif is_master and fault in (Fault.CRASH, Fault.RESTART) and self._leader.somebody_sees_the_link():
            self._leader.notice_at_once(process, now_us, away_us)
        else:
            self._leader.time_out_soon(process)
        if not is_master:
            world.shrink_soon(process, now_us + world.timing.catch_up_timeout_ms * US_PER_MS)
        return operations

    def _goodbye(self, process: Process) -> SyntheticOperation:
        process.mark = CleanMark(nonce=f"{process.incarnation}", end_offset=LogOffset(process.end))
        process.released_told = process.released
        return process.proposes(SayGoodbye(**self._world.session_of(process), clean_mark=process.mark))

    # --- coming back --------------------------------------------------------------------------------------------------

    def _restart(self, process: Process, now_us: int) -> Sequence[SyntheticOperation]:
        """A new incarnation of the process registers."""
        world = self._world
        if process.fault is Fault.POWER:
            process.boot += 1
            process.end -= min(process.end, world.write_bytes_per_s * world.draws.within_us(UNSYNCED_US) // US_PER_S)
            # Entries of the epoch list that begin beyond the end are dropped (R9).
            kept = [e for e, start in world.starts.items() if e <= process.last_epoch and start <= process.end]
            process.last_epoch = max(kept, default=process.last_epoch)
        process.number += 1
        process.is_up = True
        process.released_told = process.released
        self._failover.follow_soon(process, now_us)
        return [self._registration(process)]

    def _resume(self, process: Process, now_us: int) -> Sequence[SyntheticOperation]:
        """The pause is over: the same incarnation sends a heartbeat, or opens a further session."""
        world = self._world
        replica = world.replica(process)
        assert replica is not None
        heard_us = now_us + world.draws.within_us(world.interval_us // 4)
        world.truth.gaps.append(
            GapTruth(
                **world.names,
                **process.identity,
                is_master=process is world.master,
                from_us=process.last_heard_us,
                gap_us=heard_us - process.last_heard_us,
                is_detected=not replica.is_alive,
            )
        )
        process.is_up = True
        operations: list[SyntheticOperation] = []
        if not replica.is_alive:
            is_new_session = world.draws.chance(0.5)
            alive = MarkAlive(**world.session_of(process))
            operations.append(self._registration(process) if is_new_session else world.log.leader.proposes(alive))
        self._failover.resume(process, now_us)
        return operations
