"""
One life of a controller in the simulation: the shell around ``LeaderDuties``, ``Proposer`` and a ``ReplicatedLog``.

Here: what ``controller.runtime.service`` and ``api.rocketmq`` do with sockets and tasks, done with simulated ones.
Not here: any rule. Everything that decides is the production machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rollcall_ha.controller.contract.commands import (
    FEATURE_LEVEL,
    AnyCommand,
    ElectMaster,
    InitialiseFleet,
    Operation,
    RaiseFeatureLevel,
    RecordMilestones,
    RegisterReplica,
    TakeLeadership,
)
from rollcall_ha.controller.contract.events import EventRecord, LeadershipTaken
from rollcall_ha.controller.contract.ids import ControllerName, FleetIncarnation, MasterEpoch, RequestId, SetKey
from rollcall_ha.controller.contract.replies import AnyReply, Elected, Refused, Registered, SetView
from rollcall_ha.controller.contract.session import (
    Heartbeat,
    HeartbeatAck,
    LeaderHint,
    LinkReport,
    ProbeAnswer,
    RoleNotice,
)
from rollcall_ha.controller.contract.timing import Timing
from rollcall_ha.controller.contract.values import Evidence
from rollcall_ha.controller.core.preview import preview
from rollcall_ha.controller.core.state import FleetState
from rollcall_ha.controller.core.views import view_of
from rollcall_ha.controller.replication.codec import encode_operation
from rollcall_ha.controller.replication.ports import AppliedEntry, ProposalOutcome, RaftRole, ReplicatedLog
from rollcall_ha.controller.replication.proposer import (
    EntryOutcome,
    Flush,
    NotLeader,
    Overloaded,
    ProposeEntry,
    ProposeError,
    Proposer,
    ProposerTick,
    Resolve,
    Submit,
)
from rollcall_ha.controller.runtime.actions import Action, ProposeCommand, SendProbe
from rollcall_ha.controller.runtime.authority import judge_authority
from rollcall_ha.controller.runtime.duties import LeaderDuties, changed_sets
from rollcall_ha.controller.runtime.sessions import ProbeOutcome
from tests.sim.wire import Answer, Ask, FindLeader, OneWay, Probe
from tests.support.sim_kernel import MS, Process
from tests.support.sim_net import End, SimNet

NS_PER_US = 1_000


@dataclass(slots=True)
class _Waiting:
    """One submitted operation."""

    done: Callable[[AnyReply | ProposeError], None]


class ControllerNode:
    """See the module. Made anew for each life of the process."""

    def __init__(
        self,
        *,
        name: ControllerName,
        process: Process,
        net: SimNet,
        log: ReplicatedLog[FleetState],
        timing: Timing,
        fleet_incarnation: FleetIncarnation,
        on_applied: Callable[[ControllerNode, AppliedEntry[FleetState]], None],
    ) -> None:
        """Subscribes and listens; ``start`` begins."""
        self.name = name
        self.process = process
        self.log = log
        self.duties = LeaderDuties(
            timing=timing,
            view_of=lambda key: view_of(self.log.published.state, key),
            preview=self._preview,
            draw_epoch_jump=lambda: process.kernel.random.randrange(16),
        )
        self.taken_term: int | None = None
        self._net = net
        self._timing = timing
        self._fleet_incarnation = fleet_incarnation
        self._on_applied = on_applied
        self._proposer = Proposer(propose_timeout_ms=timing.propose_timeout_ms)
        self._tickets: dict[int, _Waiting] = {}
        self._next_ticket = 0
        self._connections: dict[int, End] = {}
        self._next_connection = 0
        self._requested_term: int | None = None
        self._leads = False
        self._is_flushing = False
        log.subscribe(self._applied)

    # --- life ---

    def start(self) -> None:
        """Recover, listen, tick."""
        self.log.start()
        self._net.listen(self.process, f"{self.name}:broker", self._accept)
        self._tick()

    def now_ns(self) -> int:
        return self.process.host.monotonic_us() * NS_PER_US

    def _tick(self) -> None:
        now_ns = self.now_ns()
        self._proposer_actions(self._proposer.handle(ProposerTick(now_ns=now_ns)))
        self._watch_leadership()
        self._do(self.duties.tick(now_ns))
        self.process.after(self._timing.scan_interval_ms * MS, "controller tick", self._tick)

    def _watch_leadership(self) -> None:
        leadership = self.log.leadership
        leads = leadership.role is RaftRole.LEADER
        if (self._leads and not leads) or (leads and self.taken_term not in (None, leadership.term)):
            self.duties.stand_down()
            self.taken_term = None
        self._leads = leads
        if leads and self._requested_term != leadership.term:
            term = self._requested_term = leadership.term
            if not self.log.published.state.fleet_incarnation:
                self._submit_own(InitialiseFleet(fleet_incarnation=self._fleet_incarnation), lambda _result: None)
                self._submit_own(RaiseFeatureLevel(level=FEATURE_LEVEL), lambda _result: None)

            def done(result: AnyReply | ProposeError) -> None:
                if isinstance(result, ProposeError) and self._requested_term == term:
                    self._requested_term = None

            self._submit_own(TakeLeadership(controller=self.name, term=term), done)

    @property
    def has_authority(self) -> bool:
        """By R5."""
        return judge_authority(
            self.log.leadership,
            taken_term=self.taken_term,
            now_ns=self.now_ns(),
            election_timeout_ms_min=self._timing.raft_election_timeout_ms_min,
        ).is_held

    # --- the log ---

    def _applied(self, entry: AppliedEntry[FleetState]) -> None:
        self._on_applied(self, entry)
        applied_ns = self.now_ns()
        # The log has its own thread; its listener only hands over.
        self.process.after(0, "applied", lambda: self._on_loop(entry.records, applied_ns, entry.term))

    def _on_loop(self, records: tuple[EventRecord, ...], applied_ns: int, term: int) -> None:
        leadership = self.log.leadership
        taken = [record.event for record in records if isinstance(record.event, LeadershipTaken)]
        is_ours = any((event.controller, event.term) == (self.name, term) for event in taken)
        if is_ours and leadership.role is RaftRole.LEADER and leadership.term == term:
            self.taken_term = term
            self._do(self.duties.take(sorted(self.log.published.state.sets), self.now_ns()))
        self._do(self.duties.handle_applied(records, applied_ns))
        if self.duties.is_active:
            for key in changed_sets(records):
                self._push(key)

    def _push(self, key: SetKey) -> None:
        view = self.view(key)
        if view is None:
            return
        for connection in self.duties.sessions.connections_of(view):
            end = self._connections.get(connection)
            if end is not None:
                end.send(OneWay(RoleNotice(view=view)))

    def view(self, key: SetKey) -> SetView | None:
        return view_of(self.log.published.state, key)

    def _preview(self, command: ElectMaster, evidence: Evidence) -> Elected | Refused:
        reply = preview(self.log.published.state, self._operation(command, evidence, "preview", "controller"))
        assert isinstance(reply, Elected | Refused)
        return reply

    def _operation(
        self, command: AnyCommand, evidence: Evidence | None, request_id: str, requested_by: str
    ) -> Operation:
        return Operation(
            version=self.log.published.state.feature_level,
            request_id=RequestId(request_id),
            stamped_at_ms=self.process.host.wall_ms(),
            requested_by=requested_by,
            command=command,
            evidence=evidence,
        )

    def submit(
        self,
        command: AnyCommand,
        evidence: Evidence | None,
        *,
        request_id: str,
        requested_by: str,
        done: Callable[[AnyReply | ProposeError], None],
    ) -> None:
        """Through the proposer into the log; ``done`` exactly once while this process lives."""
        self._next_ticket += 1
        ticket = self._next_ticket
        self._tickets[ticket] = _Waiting(done)
        now_ns = self.now_ns()
        part = encode_operation(self._operation(command, evidence, request_id, requested_by))
        deadline_ns = now_ns + self._timing.propose_timeout_ms * MS * NS_PER_US
        actions = self._proposer.handle(
            Submit(ticket=ticket, request_id=RequestId(request_id), part=part, deadline_ns=deadline_ns)
        )
        self._proposer_actions(actions)
        if not self._is_flushing:
            self._is_flushing = True
            self.process.after(0, "flush", self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        self._proposer_actions(self._proposer.handle(Flush(now_ns=self.now_ns())))

    def _submit_own(
        self, command: AnyCommand, done: Callable[[AnyReply | ProposeError], None], evidence: Evidence | None = None
    ) -> None:
        request_id = self.process.kernel.hex_digits(16)
        self.submit(command, evidence, request_id=request_id, requested_by=f"controller:{self.name}", done=done)

    def _proposer_actions(self, actions: list[ProposeEntry | Resolve]) -> None:
        for action in actions:
            if isinstance(action, Resolve):
                waiting = self._tickets.pop(action.ticket, None)
                if waiting is not None:
                    waiting.done(action.result)
            else:
                entry = action.entry

                def answered(outcome: ProposalOutcome, entry: int = entry) -> None:
                    self.process.after(0, "outcome", lambda: self._outcome(entry, outcome))

                self.log.propose(action.payload, answered)

    def _outcome(self, entry: int, outcome: ProposalOutcome) -> None:
        self._proposer_actions(self._proposer.handle(EntryOutcome(entry=entry, outcome=outcome, now_ns=self.now_ns())))

    # --- duties ---

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, ProposeCommand):
                self._propose(action)
            else:
                self._probe(action)

    def _propose(self, action: ProposeCommand) -> None:
        def done(result: AnyReply | ProposeError) -> None:
            reply = None if isinstance(result, ProposeError) else result
            certainly_not = isinstance(result, NotLeader | Overloaded)
            self._do(self.duties.handle_proposed(action, reply, self.now_ns(), is_certainly_not_executed=certainly_not))

        self._submit_own(action.command, done, action.evidence)

    def _probe(self, probe: SendProbe) -> None:
        state = [False]

        def answer(outcome: ProbeOutcome, body: ProbeAnswer | None = None) -> None:
            if not state[0]:
                state[0] = True
                self._do(self.duties.handle_probe(probe, outcome, body, self.now_ns()))

        def opened(end: End) -> None:
            end.on_message = lambda message: answer(ProbeOutcome.ANSWERED, message)
            end.send(Probe())

        host = probe.address.partition(":")[0]
        self._net.connect(self.process, probe.address, host, opened, lambda: answer(ProbeOutcome.REFUSED))
        self.process.after(self._timing.probe_timeout_ms * MS, "probe timeout", lambda: answer(ProbeOutcome.NO_ANSWER))

    # --- sessions ---

    def _accept(self, end: End) -> None:
        self._next_connection += 1
        connection = self._next_connection
        self._connections[connection] = end
        end.on_message = lambda message: self._message(connection, end, message)

        def closed() -> None:
            self._connections.pop(connection, None)
            self._do(self.duties.handle_closed(connection, self.now_ns()))

        end.on_closed = closed

    def _message(self, connection: int, end: End, message: object) -> None:
        if isinstance(message, OneWay) and isinstance(message.body, LinkReport):
            self._do(self.duties.handle_link(message.body, self.now_ns()))
        elif (isinstance(message, Ask) and isinstance(message.body, FindLeader)) or (
            isinstance(message, Ask) and not self.has_authority
        ):
            end.send(Answer(message.number, self._hint()))
        elif isinstance(message, Ask) and isinstance(message.body, Heartbeat):
            self._heartbeat(connection, end, message.number, message.body)
        elif isinstance(message, Ask):
            self._command(connection, end, message)

    def _hint(self) -> LeaderHint:
        leadership = self.log.leadership
        leader = leadership.leader if leadership.role is not RaftRole.LEADER or self.has_authority else None
        return LeaderHint(
            controller=self.name,
            leader=leader,
            leader_broker_address=f"{leader}:broker" if leader is not None else None,
            leader_rest_address=None,
            term=leadership.term,
        )

    def _heartbeat(self, connection: int, end: End, number: int, beat: Heartbeat) -> None:
        session = self.duties.sessions.get(beat.set_key, beat.broker_id)
        was_bound = session is not None and session.connection == connection
        refusal, actions = self.duties.handle_heartbeat(beat, connection, self.now_ns())
        self._do(actions)
        if refusal is not None:
            end.send(Answer(number, refusal))
            return
        view = self.view(beat.set_key)
        known = (beat.known_master_epoch, beat.known_set_epoch)
        is_current = view is None or (view.master_epoch, view.sync_state_set_epoch) == known
        end.send(Answer(number, HeartbeatAck(view=None if is_current and was_bound else view, controllers=())))

    def _command(self, connection: int, end: End, ask: Ask) -> None:
        command = ask.body
        if isinstance(command, RecordMilestones):
            command = self.duties.milestones.observe(command, self.now_ns())

        def done(result: AnyReply | ProposeError) -> None:
            if isinstance(command, RegisterReplica) and isinstance(result, Registered):
                self.duties.handle_registered(command, result, connection, self.now_ns())
            if isinstance(result, NotLeader):
                end.send(Answer(ask.number, self._hint()))
            else:
                end.send(Answer(ask.number, None if isinstance(result, ProposeError) else result))

        evidence = None
        if isinstance(command, ElectMaster) or type(command).__name__ in ("ElectUnclean", "Bootstrap"):
            view = self.view(command.set_key)  # type: ignore[attr-defined]
            if view is not None:
                evidence = self.duties.sessions.evidence(
                    view,
                    now_ns=self.now_ns(),
                    triggered_by=None,
                    stamps=None,
                    draw=self.process.kernel.random.randrange(16),
                )
        self.submit(command, evidence, request_id=ask.request_id, requested_by="broker", done=done)  # type: ignore[arg-type]

    def notified_epoch(self, key: SetKey, epoch: MasterEpoch) -> None:
        """For milestones: the winner's notice left."""
        self.duties.handle_notified(key, epoch, self.now_ns())
