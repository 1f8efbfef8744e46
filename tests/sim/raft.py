"""
The real Raft library, hardened as in production, under the simulated controllers.

Here: links between members, their ticks, what happens when one stops itself. Not here: the protocol and its repairs
(``controller.replication.raft``, the same code that runs in a server).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

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
    RaftRole,
    ReplicatedLog,
)
from rollcall_ha.controller.replication.raft.failstop import FailStop
from rollcall_ha.controller.replication.raft.member import FOUNDING_FILE_NAME, RaftStartError
from rollcall_ha.controller.replication.raft.messages import Message, ProtocolError, decode_message, encode_message
from rollcall_ha.controller.replication.raft.seams import Seams
from tests.sim.members import MembersJudge
from tests.sim.violation import Violation
from tests.sim.world import World
from tests.support.raft_seams import SimulatedMember, Stopped, raise_stopped
from tests.support.sim_disk import PowerCut
from tests.support.sim_kernel import MS, Process
from tests.support.sim_net import End

TICK_US = 20 * MS
COMPACTION_ENTRIES = 60
"""Few, so that each seed sees snapshots."""

_EXPECTED = (FailStop.STORAGE,)
"""Why a member may stop itself in a world of one version without damaged disks."""


class _Member:
    """One life of one member, and its links."""

    def __init__(self, quorum: RaftQuorum, name: ControllerName, process: Process) -> None:
        self._quorum = quorum
        self._process = process
        self._name = name
        self._links: dict[ControllerName, End] = {}
        self._is_tick_due = False
        self._is_catching_up = False
        kernel, host = process.kernel, process.host
        self._member: SimulatedMember[FleetState] = SimulatedMember(
            FleetMachine(),
            me=name,
            members={other: f"{other}:raft" for other in quorum.by_fleet_file(name)},
            disk=quorum.world.controllers[name].disk,
            timing=quorum.world.timing,
            seams=Seams(
                monotonic_ns=lambda: host.monotonic_us() * 1_000,
                random=kernel.random.random,
                fail_stop=raise_stopped,
                run_beside=self._beside,
            ),
            send=self._send,
            compaction_floor=quorum.compaction_floor(name),
            compaction_entries=COMPACTION_ENTRIES,
        )

    # --- ports.ReplicatedLog ---

    @property
    def published(self) -> Published[FleetState]:
        return self._member.published

    @property
    def leadership(self) -> Leadership:
        return self._member.leadership

    def propose(self, payload: str, done: Callable[[ProposalOutcome], None]) -> None:
        self._quorum.payloads.append(payload)
        self._guarded(lambda: self._member.propose(payload, done))
        self._tick_soon()

    @property
    def is_voter(self) -> bool:
        """As the product says."""
        return self._member.raft.is_voter

    @property
    def last_index(self) -> int:
        """The newest entry in its journal, committed or not."""
        return self._member.raft.node.journal.last_index

    def followers(self) -> tuple[Follower, ...]:
        return self._member.followers()

    @property
    def members(self) -> Membership:
        return self._member.members

    def change(self, change: Change, done: Callable[[ProposalOutcome], None]) -> None:
        self._guarded(lambda: self._member.change(change, done))

    def hand_over(self, target: ControllerName, done: Callable[[HandoverEnd], None]) -> None:
        def ended(how: HandoverEnd) -> None:
            self._quorum.world.counts.add(f"transfers of the lead: {how}")
            done(how)

        self._guarded(lambda: self._member.hand_over(target, ended))

    def exchange_states(self, own: tuple[tuple[int, str], ...]) -> Mapping[ControllerName, Mapping[int, str]]:
        return self._member.exchange_states(own)

    def subscribe(self, listener: Callable[[AppliedEntry[FleetState]], None]) -> None:
        self._member.subscribe(listener)

    def start(self) -> None:
        try:
            self._member.start()
        except RaftStartError as error:
            if "cannot be used" in str(error):
                self._quorum.world.counts.add("controllers that cannot start")
                self._process.kill()
                self._quorum.world.start_later(self._quorum.world.controllers[self._name])
                return
            raise Violation(f"raft: {error}") from error
        except Stopped as stopped:
            self._stopped(stopped)
            return
        except PowerCut:
            self._power_cut()
            return
        self._quorum.judge.watch(self._member.raft.node)
        self._quorum.world.net.listen(self._process, f"{self._name}:raft", self._accept)
        for other in self._quorum.names:
            if other > self._name:
                self._dial(other)
        self._tick()

    def stop(self) -> None:
        self._member.stop()

    # --- turns ---

    def _guarded(self, turn: Callable[[], None]) -> None:
        try:
            turn()
        except Stopped as stopped:
            self._stopped(stopped)
        except PowerCut:
            self._power_cut()
        else:
            leadership = self._member.leadership
            if leadership.role is RaftRole.LEADER:
                self._quorum.world.oracle.leads(self._name, leadership.term)
            if self._is_catching_up and self.is_voter:
                is_new = self._name not in self._quorum.remembering
                what = "new controllers that caught up" if is_new else "wiped controllers that vote again"
                self._quorum.world.counts.add(what)
            self._is_catching_up = not self.is_voter
            if not self._is_catching_up:
                self._quorum.remembering.add(self._name)

    def _power_cut(self) -> None:
        """In the middle of a sync of the journal: what it wrote survives whole, torn, or not at all."""
        world = self._quorum.world
        machine = world.controllers[self._name]
        world.counts.add("power cuts in a sync")
        world.lose_power(machine)
        world.kernel.after(
            self._process.kernel.random.randrange(50, 1_500) * MS, "restart", lambda: world.start(machine)
        )

    def _stopped(self, stopped: Stopped) -> None:
        world = self._quorum.world
        world.counts.add(f"controllers stopped themselves: {stopped.code.name}")
        world.kernel.note(f"{self._name} stops: {stopped.reason}")
        self._process.kill()
        if stopped.code not in _EXPECTED:
            world.broken = world.broken or Violation(f"raft: {self._name} stopped itself, {stopped}")
        world.kernel.after(300 * MS, "supervisor", lambda: world.start(world.controllers[self._name]))

    def _beside(self, work: Callable[[], None]) -> None:
        """A thread that writes a snapshot: done a while later, if the process still lives."""
        self._quorum.world.counts.add("snapshots")
        delay_us = self._process.kernel.random.randrange(100, 60 * MS)
        self._process.after(delay_us, "beside", lambda: self._guarded(work))

    def _tick(self) -> None:
        self._turn()
        self._process.after(TICK_US, "raft tick", self._tick)

    def _tick_soon(self) -> None:
        if not self._is_tick_due:
            self._is_tick_due = True
            self._process.after(self._process.kernel.random.randrange(50, 400), "raft turn", self._turn)

    def _turn(self) -> None:
        self._is_tick_due = False
        if self._process.is_alive:
            self._guarded(self._member.tick)

    # --- links ---

    def _send(self, peer: ControllerName, message: Message) -> bool:
        end = self._links.get(peer)
        if end is None or not end.is_open:
            return False
        # Now and then through the codec: it is part of what must not lose anything.
        end.send(encode_message(message) if self._process.kernel.chance(0.05) else message)
        return True

    def _accept(self, end: End) -> None:
        name = ControllerName(end.peer.process.name)
        self._up(name, end)

    def _dial(self, other: ControllerName) -> None:
        again = [True]

        def refused() -> None:
            if again[0]:
                again[0] = False
                delay_us = self._process.kernel.random.randrange(30, 120) * MS
                self._process.after(delay_us, "raft dial", lambda: self._dial(other))

        def opened(end: End) -> None:
            if not again[0]:
                end.close()
                return
            again[0] = False
            self._up(other, end)

        self._quorum.world.net.connect(self._process, f"{other}:raft", other, opened, refused)
        self._process.after(500 * MS, "raft dial timeout", refused)

    def _up(self, other: ControllerName, end: End) -> None:
        old = self._links.pop(other, None)
        if old is not None:
            old.on_closed = lambda: None
            old.close()
            self._guarded(lambda: self._member.peer_down(other))
        self._links[other] = end
        heard_us = [self._process.host.monotonic_us()]
        silence_us = self._quorum.world.timing.raft_connection_timeout_ms * MS

        def received(message: object) -> None:
            heard_us[0] = self._process.host.monotonic_us()
            if message is _PING:
                return
            value = decode_message(message) if isinstance(message, bytes) else message
            try:
                self._guarded(lambda: self._member.receive(other, value))  # type: ignore[arg-type]
            except ProtocolError as error:
                raise Violation(f"raft: {self._name} calls {value} of {other} nonsense: {error}") from error
            self._tick_soon()

        def closed() -> None:
            if self._links.get(other) is end:
                del self._links[other]
                self._guarded(lambda: self._member.peer_down(other))
                if other > self._name:
                    self._dial(other)

        def watch() -> None:
            if self._links.get(other) is not end:
                return
            if self._process.host.monotonic_us() - heard_us[0] > silence_us:
                end.close()
                closed()
                return
            end.send(_PING)
            self._process.after(silence_us // 4, "raft ping", watch)

        end.on_message = received
        end.on_closed = closed
        self._guarded(lambda: self._member.peer_up(other))
        watch()


_PING = object()


class RaftQuorum:
    """Makes members; ``payloads`` and ``propose_again`` as in ``quorum.Quorum``."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.names = tuple(ControllerName(name) for name in world.controller_names)
        self.payloads: list[str] = []
        self.judge = MembersJudge(world.counts, world.founder_names)
        self.remembering: set[ControllerName] = set()
        """Members that had their memory once."""
        self._members: dict[ControllerName, _Member] = {}
        for name in world.founder_names:
            world.controllers[name].disk.replace(FOUNDING_FILE_NAME, b"founding\n")

    def open(self, name: ControllerName, process: Process) -> ReplicatedLog[FleetState]:
        member = self._members[name] = _Member(self, name, process)
        return member

    def is_voter(self, name: ControllerName) -> bool:
        return self._members[name].is_voter

    def ends_at(self, name: ControllerName) -> int:
        """Index of the last entry in its log, committed or not."""
        return self._members[name].last_index

    def by_fleet_file(self, name: ControllerName) -> tuple[ControllerName, ...]:
        """The controllers that the fleet file of ``name`` names: the founders, and itself."""
        seats = self.world.seats
        known = (*self.world.founder_names, name) if seats is None else seats.by_fleet_file(name)
        return tuple(one for one in self.names if one in known)

    def compaction_floor(self, name: ControllerName) -> Callable[[], int] | None:
        """What the event journal has synced: here, everything."""
        del name
        return None

    def propose_again(self, payload: str) -> None:
        leader = self.world.leader()
        if leader is not None:
            leader.process.run("duplicate", lambda: leader.log.propose(payload, lambda _outcome: None))


def raft_quorum(world: World) -> RaftQuorum:
    """For ``World``."""
    return RaftQuorum(world)
