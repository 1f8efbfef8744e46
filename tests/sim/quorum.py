"""
The replicated log under the simulated controllers.

Here: ``MemoryQuorum``, on which scenarios run that are not about Raft. ``tests.sim.raft`` has the real one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec.structs import replace

from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.core.state import FleetState
from rollcall_ha.controller.replication.machine import FleetMachine
from rollcall_ha.controller.replication.membership import Change, Membership
from rollcall_ha.controller.replication.ports import (
    AppliedEntry,
    Follower,
    HandoverEnd,
    Leadership,
    ProposalOutcome,
    Published,
    ReplicatedLog,
)
from tests.support.memory_log import MemoryGroup, MemoryLog
from tests.support.sim_kernel import MS, Kernel, Process
from tests.support.sim_net import SimNet


class Quorum(Protocol):
    """Makes one member's log for each life of a controller process."""

    payloads: list[str]
    """Entries that were ever proposed, in order."""

    def open(self, name: ControllerName, process: Process) -> ReplicatedLog[FleetState]:
        """For a new life of ``name``."""
        ...

    def propose_again(self, payload: str) -> None:
        """Somebody's late duplicate of an entry reaches the leader (R1)."""
        ...

    def is_voter(self, name: ControllerName) -> bool:
        """False from the loss of its memory until it has caught up."""
        ...


class _Member:
    """A ``MemoryLog`` that takes a moment to commit."""

    def __init__(self, quorum: MemoryQuorum, name: ControllerName, process: Process) -> None:
        self._quorum = quorum
        self._log: MemoryLog[FleetState] = quorum.group.members[name]
        self._process = process

    @property
    def published(self) -> Published[FleetState]:
        return self._log.published

    @property
    def leadership(self) -> Leadership:
        """In this host's clock."""
        leadership = self._log.leadership
        asked_ns = leadership.majority_asked_at_ns
        if asked_ns is None:
            return leadership
        age_ns = self._process.kernel.now_us * 1_000 - asked_ns
        return replace(leadership, majority_asked_at_ns=self._process.host.monotonic_us() * 1_000 - age_ns)

    def propose(self, payload: str, done: Callable[[ProposalOutcome], None]) -> None:
        def answered(outcome: ProposalOutcome) -> None:
            self._process.run("committed", lambda: done(outcome))

        self._quorum.proposed(payload)
        self._log.propose(payload, answered)
        self._quorum.pump_soon()

    def exchange_states(self, own: tuple[tuple[int, str], ...]) -> Mapping[ControllerName, Mapping[int, str]]:
        return self._log.exchange_states(own)

    def followers(self) -> tuple[Follower, ...]:
        return self._log.followers()

    @property
    def members(self) -> Membership:
        return self._log.members

    def change(self, change: Change, done: Callable[[ProposalOutcome], None]) -> None:
        self._log.change(change, done)

    def hand_over(self, target: ControllerName, done: Callable[[HandoverEnd], None]) -> None:
        self._quorum.hand_over(target)
        done(HandoverEnd.DEPOSED)

    def subscribe(self, listener: Callable[[AppliedEntry[FleetState]], None]) -> None:
        self._log.subscribe(listener)

    def start(self) -> None:
        self._log.start()
        self._process.at_exit(self._log.stop)

    def stop(self) -> None:
        self._log.stop()


class MemoryQuorum:
    """One log that all members share: a leader that dies, stops or is cut off is replaced after an election timeout."""

    def __init__(self, kernel: Kernel, net: SimNet, names: tuple[ControllerName, ...]) -> None:
        self.kernel = kernel
        self.payloads: list[str] = []
        self._net = net
        self._names = names
        self._processes: dict[ControllerName, Process] = {}
        self._leader: ControllerName | None = None
        self._missed_since_us: int | None = None
        self.group = MemoryGroup(FleetMachine, names, clock_ns=lambda: kernel.now_us * 1_000)
        self._watch()

    def open(self, name: ControllerName, process: Process) -> ReplicatedLog[FleetState]:
        self._processes[name] = process
        self.group.members[name] = MemoryLog(self.group, name, FleetMachine())
        return _Member(self, name, process)

    def proposed(self, payload: str) -> None:
        """Remember it, for late duplicates."""
        self.payloads.append(payload)

    def propose_again(self, payload: str) -> None:
        if self._leader is not None:
            self.group.members[self._leader].propose(payload, lambda _outcome: None)
            self.pump_soon()

    def is_voter(self, name: ControllerName) -> bool:
        """Nobody here forgets anything."""
        del name
        return True

    def hand_over(self, target: ControllerName) -> None:
        """The target leads, if it can."""
        if self._is_fit(target):
            self._leader = target
            self.group.elect(target)

    def pump_soon(self) -> None:
        """Commit takes a round trip and a sync."""
        self.kernel.after(self.kernel.random.randrange(1, 8) * MS, "commit", self._pump)

    def _pump(self) -> None:
        leader = self._leader
        if leader is not None and self._is_fit(leader):
            self.group.pump()

    def _is_fit(self, name: ControllerName) -> bool:
        process = self._processes.get(name)
        if process is None or not process.is_alive or process.is_paused:
            return False
        reached = [
            other
            for other in self._names
            if other == name
            or (self._is_up(other) and not self._net.is_cut(name, other) and not self._net.is_cut(other, name))
        ]
        return len(reached) * 2 > len(self._names)

    def _is_up(self, name: ControllerName) -> bool:
        process = self._processes.get(name)
        return process is not None and process.is_alive and not process.is_paused

    def _watch(self) -> None:
        now_us = self.kernel.now_us
        if self._leader is not None and self._is_fit(self._leader):
            if self._missed_since_us is not None:
                self.group.elect(self._leader)
            self._missed_since_us = None
        elif self._missed_since_us is None:
            self._missed_since_us = now_us
            if self._leader is not None:
                self.group.cut_off_leader()
        elif now_us - self._missed_since_us > 400 * MS:
            fit = [name for name in self._names if self._is_fit(name)]
            if fit:
                self._leader = self.kernel.random.choice(fit)
                self.group.elect(self._leader)
                self._missed_since_us = None
                self.kernel.counts.add("raft leaders")
        self.kernel.after(100 * MS, "quorum", self._watch)
