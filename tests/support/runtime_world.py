"""
The leader's machines on the real core, under a clock that only the test moves.

``World`` applies proposals through the real state machine, what is proposed together in one entry, and hands the
outcome back, as the service does. Brokers are values: a test registers them, lets them beat, closes their connections.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from rollcall_ha.controller.contract.commands import (
    FEATURE_LEVEL,
    AnyCommand,
    ApplyBrokerId,
    ElectMaster,
    InitialiseFleet,
    LeaveMaster,
    Operation,
    RaiseFeatureLevel,
    RegisterReplica,
    ReportEntered,
)
from rollcall_ha.controller.contract.events import EventRecord, MasterElected, ReplicaSilent
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    BrokerName,
    ClusterName,
    FleetIncarnation,
    Incarnation,
    LogOffset,
    MasterEpoch,
    RegisterCode,
    ReplicaKind,
    RequestId,
    SessionOrdinal,
    SetKey,
    SyncStateSetEpoch,
)
from rollcall_ha.controller.contract.replies import AnyReply, Elected, IdGranted, Refused, Registered, SetView
from rollcall_ha.controller.contract.session import BrokerState, Heartbeat, LinkReport
from rollcall_ha.controller.contract.timing import NS_PER_MS, PRESETS, Preset
from rollcall_ha.controller.contract.values import Evidence, Positions, ReplicaDescription, SetConfiguration
from rollcall_ha.controller.core.actions import Action, ProposeCommand, SendProbe
from rollcall_ha.controller.core.preview import preview
from rollcall_ha.controller.core.state import FleetState
from rollcall_ha.controller.core.views import view_of
from rollcall_ha.controller.replication.codec import encode_operations
from rollcall_ha.controller.replication.machine import FleetMachine
from rollcall_ha.controller.runtime.duties import LeaderDuties
from rollcall_ha.controller.runtime.session_state import ProbeOutcome
from rollcall_ha.epoch.model import NO_EPOCH

FLEET = FleetIncarnation("0123456789abcdef" * 2)
ZERO = LogOffset(0)


def set_key(name: str = "broker-a") -> SetKey:
    """A key in the test's cluster."""
    return SetKey(ClusterName("demo"), BrokerName(name))


@dataclass(slots=True, kw_only=True)
class Replica:
    """What a broker process knows of itself."""

    key: SetKey
    broker_id: BrokerId
    incarnation: Incarnation
    ordinal: SessionOrdinal
    connection: int
    begin: LogOffset = ZERO
    end: LogOffset = ZERO
    confirm: LogOffset = ZERO
    last_epoch: MasterEpoch = NO_EPOCH
    is_ready: bool = True
    known_epoch: MasterEpoch = NO_EPOCH
    timeout_ms: int | None = None
    """A RocketMQ broker's own."""


@dataclass(slots=True)
class World:
    """One leader. Times are in milliseconds here, in nanoseconds inside."""

    now_ms: int = 1_000_000
    timing_name: Preset = Preset.NORMAL
    applies: bool = True
    """False: proposals wait in ``waiting`` until the test decides their fate."""
    state: FleetState = field(init=False)
    index: int = 0
    records: list[EventRecord] = field(default_factory=list)
    proposals: list[ProposeCommand] = field(default_factory=list)
    waiting: list[ProposeCommand] = field(default_factory=list)
    probes: list[SendProbe] = field(default_factory=list)
    pushed: list[SetKey] = field(default_factory=list)
    duties: LeaderDuties = field(init=False)
    elections_in_flight_max: int = 512
    requested_by: str = "controller:c1"
    wall_step_ms: int = 0
    """By how much the leader's wall clock was set; stamps of entries stay."""
    _machine: FleetMachine = field(default_factory=FleetMachine)
    _connections: int = 0

    def __post_init__(self) -> None:
        self.state = self._machine.initial()
        self.duties = LeaderDuties(
            timing=PRESETS[self.timing_name],
            view_of=self.view,
            preview=self.preview,
            draw_epoch_jump=lambda: 0,
            fleet_now=lambda: (self.state, self.now_ms + self.wall_step_ms),
            elections_in_flight_max=self.elections_in_flight_max,
        )
        self.apply(InitialiseFleet(fleet_incarnation=FLEET))
        self.apply(RaiseFeatureLevel(level=FEATURE_LEVEL))

    # --- the log -----------------------------------------------------------------------------------------------------

    @property
    def now_ns(self) -> int:
        return self.now_ms * NS_PER_MS

    def view(self, key: SetKey) -> SetView | None:
        return view_of(self.state, key)

    def the_view(self, key: SetKey) -> SetView:
        found = self.view(key)
        assert found is not None
        return found

    def _operation(self, command: AnyCommand, evidence: Evidence | None) -> Operation:
        return Operation(
            version=self.state.feature_level,
            request_id=RequestId(f"r{self.index + 1}"),
            stamped_at_ms=self.now_ms,
            requested_by=self.requested_by,
            command=command,
            evidence=evidence,
        )

    def preview(self, command: ElectMaster | LeaveMaster, evidence: Evidence) -> Elected | Refused:
        reply = preview(self.state, self._operation(command, evidence))
        assert isinstance(reply, Elected | Refused)
        return reply

    def apply(self, command: AnyCommand, evidence: Evidence | None = None, *, is_told: bool = True) -> AnyReply:
        """Commit one operation and let the duties hear of it; not told: only the newest state shows it so far."""
        self.index += 1
        payload = encode_operations([self._operation(command, evidence)])
        applied = self._machine.apply(self.state, payload, term=1, index=self.index)
        self.state = applied.state
        self.records += applied.records
        if is_told:
            self.do(self.duties.handle_applied(applied.records, self.now_ns))
        return applied.replies[0]

    def do(self, actions: list[Action]) -> None:
        self.probes += [action for action in actions if isinstance(action, SendProbe)]
        proposals = [action for action in actions if isinstance(action, ProposeCommand)]
        self.proposals += proposals
        if not self.applies:
            self.waiting += proposals
        elif proposals:
            self.commit_together(proposals)

    def settle(self, action: ProposeCommand) -> None:
        """Commit a proposal and report its outcome."""
        reply = self.apply(action.command, action.evidence)
        self.do(self.duties.handle_proposed(action, reply, self.now_ns))

    def commit_together(self, actions: Sequence[ProposeCommand]) -> None:
        """One entry for all of them."""
        self.index += 1
        operations = [
            replace(self._operation(action.command, action.evidence), request_id=RequestId(f"r{self.index}-{number}"))
            for number, action in enumerate(actions)
        ]
        applied = self._machine.apply(self.state, encode_operations(operations), term=1, index=self.index)
        self.state = applied.state
        self.records += applied.records
        self.do(self.duties.handle_applied(applied.records, self.now_ns))
        for action, reply in zip(actions, applied.replies, strict=True):
            self.do(self.duties.handle_proposed(action, reply, self.now_ns))

    def lose(self, action: ProposeCommand) -> None:
        """The outcome of a proposal is unknown."""
        self.do(self.duties.handle_proposed(action, None, self.now_ns))

    # --- leadership and time -----------------------------------------------------------------------------------------

    def take(self) -> None:
        self.do(self.duties.take(sorted(self.state.sets), self.now_ns))

    def tick(self) -> None:
        self.do(self.duties.tick(self.now_ns))

    def pass_ms(self, duration_ms: int, *beating: Replica, step_ms: int = 100) -> None:
        """Let time pass, with ticks, and heartbeats of ``beating`` at each step."""
        end_ms = self.now_ms + duration_ms
        while self.now_ms < end_ms:
            self.run_loop(min(end_ms - self.now_ms, step_ms))
            for replica in beating:
                self.beat(replica)
            self.tick()

    def run_loop(self, duration_ms: int) -> None:
        """Let time pass on a loop that runs, without a tick."""
        end_ms = self.now_ms + duration_ms
        while self.now_ms < end_ms:
            self.now_ms = min(end_ms, self.now_ms + 20)
            self.duties.breathe(self.now_ns)

    def refuse_probe(self) -> None:
        """Nobody listens any more where the last probe asked."""
        self.do(self.duties.handle_probe(self.probes[-1], ProbeOutcome.REFUSED, None, self.now_ns))

    # --- brokers -----------------------------------------------------------------------------------------------------

    def register(
        self,
        key: SetKey,
        number: int,
        *,
        expected: int = 3,
        incarnation: str | None = None,
        boot: str = "boot",
        kind: ReplicaKind = ReplicaKind.NATIVE,
        end: int = 0,
    ) -> Replica:
        """A process asks for its id and registers on a connection of its own; it has not beaten yet."""
        code = RegisterCode(f"{key}-{number}")
        address = f"127.0.0.1:{10_000 + number}"
        granted = self.apply(ApplyBrokerId(set_key=key, register_code=code, address=address))
        assert isinstance(granted, IdGranted), granted
        name = Incarnation(incarnation or f"inc-{key.name}-{number}-1")
        replica = self.state.sets[key].replica(granted.broker_id)
        registered = replica.registered_as if replica is not None else None
        command = RegisterReplica(
            set_key=key,
            broker_id=granted.broker_id,
            register_code=code,
            incarnation=name,
            boot_id=boot,
            store_id=f"store-{key.name}-{number}",
            description=ReplicaDescription(address=address, ha_address=f"127.0.0.1:{20_000 + number}", kind=kind),
            configuration=SetConfiguration(expected_replicas=expected),
            positions=Positions(
                last_epoch=MasterEpoch(1 if end else -1), max_offset=LogOffset(end), confirm_offset=ZERO
            ),
            replaces=registered,
            previous_incarnations=() if registered is None else (registered.incarnation,),
        )
        reply = self.apply(command)
        assert isinstance(reply, Registered), reply
        self._connections += 1
        self.duties.handle_registered(command, reply, self._connections, self.now_ns)
        return Replica(
            key=key,
            broker_id=granted.broker_id,
            incarnation=name,
            ordinal=reply.session_ordinal,
            connection=self._connections,
        )

    def beat(
        self,
        replica: Replica,
        *,
        master_heard_ms: int | None = None,
        waiting_ms: int | None = None,
        answered_ms: int | None = None,
    ) -> Refused | None:
        """
        By the replica's word: how long ago its master's last byte came, for how long its oldest send has waited, and how
        long ago it had its last answer.
        """
        refusal, actions = self.duties.handle_heartbeat(
            Heartbeat(
                set_key=replica.key,
                broker_id=replica.broker_id,
                incarnation=replica.incarnation,
                session_ordinal=replica.ordinal,
                state=BrokerState.FENCED,
                is_ready=replica.is_ready,
                positions=Positions(
                    last_epoch=replica.last_epoch, max_offset=replica.end, confirm_offset=replica.confirm
                ),
                known_master_epoch=replica.known_epoch,
                known_set_epoch=SyncStateSetEpoch(0),
                timeout_ms=replica.timeout_ms,
                min_offset=replica.begin,
                master_heard_age_us=None if master_heard_ms is None else master_heard_ms * 1_000,
                waiting_us=None if waiting_ms is None else waiting_ms * 1_000,
                answered_age_us=None if answered_ms is None else answered_ms * 1_000,
            ),
            replica.connection,
            self.now_ns,
        )
        self.do(actions)
        return refusal

    def close(self, replica: Replica) -> None:
        self.do(self.duties.handle_closed(replica.connection, self.now_ns))

    def report_link(
        self,
        reporter: Replica,
        master: Replica,
        *,
        is_open: bool = False,
        closed_ms: int | None = None,
        heard_ms: int | None = None,
    ) -> None:
        """A member's word about its link to the master: open or not, and how long ago it was closed and heard."""
        report = LinkReport(
            set_key=reporter.key,
            broker_id=reporter.broker_id,
            incarnation=reporter.incarnation,
            session_ordinal=reporter.ordinal,
            master=master.broker_id,
            master_epoch=self.the_view(reporter.key).master_epoch,
            is_open=is_open,
            closed_age_us=None if closed_ms is None else closed_ms * 1_000,
            heard_age_us=None if heard_ms is None else heard_ms * 1_000,
        )
        self.do(self.duties.handle_link(report, self.now_ns))

    def enter(self, replica: Replica) -> AnyReply:
        """The winner reports that it entered its epoch."""
        return self.apply(
            ReportEntered(
                set_key=replica.key,
                broker_id=replica.broker_id,
                incarnation=replica.incarnation,
                master_epoch=self.the_view(replica.key).master_epoch,
                start_offset=replica.end,
                acked_end_max=replica.end,
            )
        )

    def serving_set(self, name: str = "broker-a", size: int = 3) -> list[Replica]:
        """A set whose first master serves; the master is the first of the list."""
        key = set_key(name)
        replicas = [self.register(key, number, expected=size) for number in range(1, size + 1)]
        for replica in replicas:
            self.beat(replica)
        master = self.the_view(key).master
        assert master is not None
        replicas.sort(key=lambda replica: replica.broker_id != master)
        self.enter(replicas[0])
        return replicas

    # --- looking -----------------------------------------------------------------------------------------------------

    def elections(self) -> list[MasterElected]:
        return [record.event for record in self.records if isinstance(record.event, MasterElected)]

    def silences(self) -> list[ReplicaSilent]:
        return [record.event for record in self.records if isinstance(record.event, ReplicaSilent)]

    def kinds(self, since: int = 0) -> list[str]:
        """Kinds of the events from position ``since`` on."""
        return [msgspec.to_builtins(record.event)["kind"] for record in self.records[since:]]


def led_set() -> tuple[World, list[Replica]]:
    """A world whose controller leads, and a set that serves in it."""
    world = World()
    world.take()
    return world, world.serving_set()
