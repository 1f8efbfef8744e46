"""
What brokers ask and tell the leader: heartbeats, orders, the ends of their links.

Here: whether it is counted, answered at once, or proposed. Not here: what follows from it (``duties``), proposing
(``service``), frames (``api.broker_port``), RocketMQ's words (``api.rocketmq.controller``).

Rule (R24): a broker's request that the applied state refuses is answered without an entry, and counted. Operators'
orders, alters and elections go through the log: their refusals are on record.
"""

from __future__ import annotations

import msgspec

from rollcall_ha.controller.contract.commands import (
    AnnounceStop,
    AnyCommand,
    ApplyBrokerId,
    Operation,
    RecordMilestones,
    RegisterReplica,
    ReportDrained,
    ReportEntered,
    SayGoodbye,
)
from rollcall_ha.controller.contract.events import CommandRefused
from rollcall_ha.controller.contract.ids import RequestId
from rollcall_ha.controller.contract.levels import FIELDS_SINCE
from rollcall_ha.controller.contract.names import refusal_of_texts
from rollcall_ha.controller.contract.principals import Principal
from rollcall_ha.controller.contract.replies import AnyReply, Refused, Registered
from rollcall_ha.controller.contract.session import Heartbeat, HeartbeatAck, LinkReport
from rollcall_ha.controller.contract.timing import NS_PER_US
from rollcall_ha.controller.contract.values import Evidence, Milestone
from rollcall_ha.controller.core.decide import decide
from rollcall_ha.controller.runtime.live_settings import settings_unknown_to
from rollcall_ha.controller.runtime.revocations import unknown_to
from rollcall_ha.controller.runtime.service import ControllerService
from rollcall_ha.controller.runtime.session_state import ConnectionId, stamps_of_leaving
from rollcall_ha.node.telemetry import get_logger

_logger = get_logger("controller")
_REFUSED_AT_ONCE = (
    ApplyBrokerId,
    RegisterReplica,
    ReportEntered,
    RecordMilestones,
    AnnounceStop,
    ReportDrained,
    SayGoodbye,
)
"""
Requests of brokers whose refusal needs no entry. Not alters: an earlier try of the same alter may be in the log and not
yet applied. Refused by the state before it, the master would end its union, and then the alter commits (R2).
"""


def count_heartbeat(service: ControllerService, beat: Heartbeat, connection: ConnectionId | None) -> Refused | None:
    """Count a heartbeat that nobody waits for, thousands of times a second. Raises ``NoAuthority``."""
    # Answered without authority, the broker would stay with a leader that has been replaced, and the new leader would
    # find it silent.
    service.require_authority()
    refusal, actions = service.duties.handle_heartbeat(beat, connection, service.now_ns())
    service.do(actions)
    return refusal


def handle_heartbeat(
    service: ControllerService, beat: Heartbeat, connection: ConnectionId | None
) -> HeartbeatAck | Refused:
    """Count a heartbeat. Raises ``NoAuthority``. Lease: none is granted, so weak modes ack as ``all`` (R4)."""
    session = service.duties.sessions.get(beat.set_key, beat.broker_id)
    was_bound = session is not None and session.connection == connection
    refusal = count_heartbeat(service, beat, connection)
    if refusal is not None:
        return refusal
    published = service.published
    # An entry that a broker has seen was committed, and applied by the leader that told it. Ours ends below: this
    # directory is an older copy, and what was decided since is known to brokers alone.
    service.lost_entries = max(service.lost_entries, beat.seen_index - published.index)
    state = published.state.sets.get(beat.set_key)
    is_current = (
        state is not None
        and state.master_epoch == beat.known_master_epoch
        and state.sync_state_set_epoch == beat.known_set_epoch
    )
    # A first heartbeat on its connection, behind a leadership that was lost and taken again: views went to nobody
    # since. One with a replica's new incarnation raises no epoch, and a master refuses whom its view does not name.
    return HeartbeatAck(
        view=None if is_current and was_bound else service.view_of(beat.set_key),
        controllers=service.broker_ports,
        leader_clock_us=service.now_ns() // NS_PER_US,
        revoked=unknown_to(beat, published.state),
        settings=settings_unknown_to(beat, published.state),
    )


async def submit(
    service: ControllerService,
    command: AnyCommand,
    *,
    request_id: RequestId,
    requested_by: str,
    connection: ConnectionId | None,
    principal: Principal | None = None,
) -> AnyReply:
    """A broker's order, as ``service.submit``, on its session or by REST; a registration opens the session."""
    if isinstance(command, RegisterReplica):
        command = gone_since_heard(service, command)
    evidence = _evidence_for(service, command)
    refusal = refusal_of_texts(command) or _refusal_of_now(
        service,
        service.operation(
            command, request_id=request_id, requested_by=requested_by, evidence=evidence, principal=principal
        ),
    )
    if refusal is not None:
        service.metrics.refusals.labels(code=refusal.code.name).inc()
        return refusal
    if isinstance(command, AnnounceStop | ReportDrained) and evidence is not None:
        service.duties.handle_requested(command.set_key, service.now_ns())
    if isinstance(command, RecordMilestones):
        state = service.published.state
        has_bounds = state.feature_level >= FIELDS_SINCE[Milestone]["uncertainty_us"]
        steady_ms = service.ports.wall_ms() - state.stepped_ms if has_bounds else None
        command = service.duties.milestones.observe(command, service.now_ns(), steady_ms=steady_ms)
    reply = await service.submit(
        command, request_id=request_id, requested_by=requested_by, evidence=evidence, principal=principal
    )
    if isinstance(command, RegisterReplica) and isinstance(reply, Registered):
        # The entry may be applied and not heard of yet. Opened before ``track``, the session would not exist, and the
        # broker's connection be bound to nothing: its close would not be noticed.
        service.drain()
        service.duties.handle_registered(command, reply, connection, service.now_ns())
        # The reply has the view as it was at its own place in the entry. What the same entry changed behind it was
        # pushed before this session had a connection: a master that is never told would refuse its slave's new process
        # for ever.
        return msgspec.structs.replace(reply, view=service.view_of(command.set_key) or reply.view)
    return reply


def gone_since_heard(service: ControllerService, command: RegisterReplica) -> RegisterReplica:
    """The registration, by which the process before it is gone since it was heard last at the earliest."""
    before, held_us = service.duties.sessions.get(command.set_key, command.broker_id), command.held_us
    if held_us is None or before is None or before.alive_ns is None or before.incarnation == command.incarnation:
        return command
    # A copy has a lock of its own, and the process of the original served until the copy registered: "exactly 9,544 ms"
    # were on record of 706 felt.
    heard_us = max(0, service.now_ns() - before.alive_ns) // NS_PER_US
    return msgspec.structs.replace(command, held_us=min(held_us, heard_us))


def _evidence_for(service: ControllerService, command: AnyCommand) -> Evidence | None:
    """Facts that this leader alone knows, and that apply needs to decide the command."""
    if not isinstance(command, AnnounceStop | ReportDrained | RegisterReplica):
        return None
    view = service.view_of(command.set_key)
    if view is None:
        return None
    if isinstance(command, RegisterReplica):
        # Replicated state learns of a set's confirm at elections only: what this leader has heard since is what a copy
        # of that time lacks (R3).
        return Evidence(
            read_at_index=view.index,
            master_epoch=view.master_epoch,
            sync_state_set_epoch=view.sync_state_set_epoch,
            replicas=(),
            confirmed=service.duties.sessions.confirms.told(view),
        )
    # An election in place of this master; if a slave asks, nobody is elected.
    leaves = view.master == command.broker_id
    return msgspec.structs.replace(service.evidence_of(view), detection=stamps_of_leaving(command)) if leaves else None


def _refusal_of_now(service: ControllerService, operation: Operation) -> Refused | None:
    """
    The refusal that the applied state has for a broker's request already; None: propose it (the rule).

    As true as that of an entry: with authority this state holds everything that anybody was told before the request
    came. Raises ``NoAuthority``.
    """
    service.require_authority()
    state = service.published.state
    # A known id is answered by its entry's reply (R24): decided anew, an order that was done would be refused.
    if not isinstance(operation.command, _REFUSED_AT_ONCE) or operation.request_id in state.requests:
        return None
    try:
        decision = decide(state, operation)
    except Exception:  # of ours: apply makes a refusal on record of it, here the broker would have no answer
        _logger.exception("decision_failed", command=type(operation.command).__name__)
        return None
    # A cleaned broker that still runs asks every second: 86,400 entries and events a day that say the same.
    changes_nothing = all(isinstance(event, CommandRefused) for event in decision.events)
    return decision.answer if isinstance(decision.answer, Refused) and changes_nothing else None


def handle_link(service: ControllerService, report: LinkReport) -> None:
    """A member's word about its link to the master (R13)."""
    service.do(service.duties.handle_link(report, service.now_ns()))


def handle_closed(service: ControllerService, connection: ConnectionId, *, is_revoked: bool = False) -> None:
    """A broker's connection ended; ``is_revoked``: because its certificate is (R28)."""
    service.do(service.duties.handle_closed(connection, service.now_ns(), is_revoked=is_revoked))
