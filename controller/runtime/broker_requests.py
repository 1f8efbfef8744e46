"""
What brokers ask and tell the leader: heartbeats, orders, the ends of their links.

Here: whether it is counted, answered at once, or proposed. Not here: what follows from it (``duties``), proposing
(``service``), frames (``api.broker_port``), RocketMQ's words (``api.rocketmq.controller``).

Rule (R24): a broker's request that the applied state refuses is answered without an entry, and counted. Operators'
orders, alters and elections go through the log: their refusals are on record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from rollcall_ha.controller.contract.names import refusal_of_texts
from rollcall_ha.controller.contract.principals import Principal
from rollcall_ha.controller.contract.replies import AnyReply, Refused, Registered, for_brokers
from rollcall_ha.controller.contract.session import Heartbeat, HeartbeatAck, LinkReport
from rollcall_ha.controller.contract.values import Evidence
from rollcall_ha.controller.core.decide import decide
from rollcall_ha.controller.runtime.live_settings import settings_unknown_to
from rollcall_ha.controller.runtime.revocations import unknown_to
from rollcall_ha.controller.runtime.session_state import NS_PER_US, ConnectionId, stamps_of_leaving
from rollcall_ha.node.telemetry import get_logger

if TYPE_CHECKING:
    from rollcall_ha.controller.runtime.service import ControllerService

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


class BrokerRequests:
    """The requests of all brokers, to one controller."""

    def __init__(self, service: ControllerService) -> None:
        self._service = service
        self._logger = get_logger("controller")

    def count_heartbeat(self, beat: Heartbeat, connection: ConnectionId | None) -> Refused | None:
        """Count a heartbeat that nobody waits for, thousands of times a second. Raises ``NoAuthority``."""
        # Answered without authority, the broker would stay with a leader that has been replaced, and the new leader
        # would find it silent.
        self._service.require_authority()
        refusal, actions = self._service.duties.handle_heartbeat(beat, connection, self._service.now_ns())
        self._service.do(actions)
        return refusal

    def handle_heartbeat(self, beat: Heartbeat, connection: ConnectionId | None) -> HeartbeatAck | Refused:
        """Count a heartbeat. Raises ``NoAuthority``. Lease: none is granted, so weak modes ack as ``all`` (R4)."""
        session = self._service.duties.sessions.get(beat.set_key, beat.broker_id)
        was_bound = session is not None and session.connection == connection
        refusal = self.count_heartbeat(beat, connection)
        if refusal is not None:
            return refusal
        published = self._service.published
        state = published.state.sets.get(beat.set_key)
        is_current = (
            state is not None
            and state.master_epoch == beat.known_master_epoch
            and state.sync_state_set_epoch == beat.known_set_epoch
        )
        # A first heartbeat on its connection, behind a leadership that was lost and taken again: views went to nobody
        # since. One with a replica's new incarnation raises no epoch, and a master refuses whom its view does not name.
        view = None if is_current and was_bound else self._service.view_of(beat.set_key)
        return HeartbeatAck(
            view=None if view is None else for_brokers(view),
            controllers=self._service.settings.broker_ports,
            leader_clock_us=self._service.now_ns() // NS_PER_US,
            revoked=unknown_to(beat, published.state),
            settings=settings_unknown_to(beat, published.state),
        )

    async def submit(
        self,
        command: AnyCommand,
        *,
        request_id: RequestId,
        requested_by: str,
        connection: ConnectionId | None,
        principal: Principal | None = None,
    ) -> AnyReply:
        """A broker's order on its session or by REST; opens the session if it was a registration. As ``submit``."""
        evidence = self._evidence_of_leaving(command) if isinstance(command, AnnounceStop | ReportDrained) else None
        refusal = refusal_of_texts(command) or self._refusal_of_now(
            self._service.operation(
                command, request_id=request_id, requested_by=requested_by, evidence=evidence, principal=principal
            )
        )
        if refusal is not None:
            self._service.metrics.refusals.labels(code=refusal.code.name).inc()
            return refusal
        if isinstance(command, AnnounceStop | ReportDrained) and evidence is not None:
            self._service.duties.handle_requested(command.set_key, self._service.now_ns())
        if isinstance(command, RecordMilestones):
            command = self._service.duties.milestones.observe(command, self._service.now_ns())
        reply = await self._service.submit(
            command, request_id=request_id, requested_by=requested_by, evidence=evidence, principal=principal
        )
        if isinstance(command, RegisterReplica) and isinstance(reply, Registered):
            # The entry may be applied and not heard of yet. Opened before ``track``, the session would not exist, and
            # the broker's connection be bound to nothing: its close would not be noticed.
            self._service.drain()
            self._service.duties.handle_registered(command, reply, connection, self._service.now_ns())
            # The reply is of its own place in the entry, and what came behind it was told before this session had a
            # connection: a master would refuse its slave's new process for ever, as one that it never heard of.
            return msgspec.structs.replace(reply, view=self._service.view_of(command.set_key) or reply.view)
        return reply

    def _evidence_of_leaving(self, command: AnnounceStop | ReportDrained) -> Evidence | None:
        """What an election in place of this master needs; None: a slave asks, nobody is elected."""
        view = self._service.view_of(command.set_key)
        if view is None or view.master != command.broker_id:
            return None
        return msgspec.structs.replace(self._service.evidence_of(view), detection=stamps_of_leaving(command))

    def _refusal_of_now(self, operation: Operation) -> Refused | None:
        """
        The refusal that the applied state has for a broker's request already; None: propose it (the rule).

        As true as that of an entry: with authority this state holds everything that anybody was told before the request
        came. Raises ``NoAuthority``.
        """
        self._service.require_authority()
        state = self._service.published.state
        # A known id is answered by its entry's reply (R24): decided anew, an order that was done would be refused.
        if not isinstance(operation.command, _REFUSED_AT_ONCE) or operation.request_id in state.requests:
            return None
        try:
            decision = decide(state, operation)
        except Exception:  # of ours: apply makes a refusal on record of it, here the broker would have no answer
            self._logger.exception("decision_failed", command=type(operation.command).__name__)
            return None
        # A cleaned broker that still runs asks every second: 86,400 entries and events a day that say the same.
        changes_nothing = all(isinstance(event, CommandRefused) for event in decision.events)
        return decision.answer if isinstance(decision.answer, Refused) and changes_nothing else None

    def handle_link(self, report: LinkReport) -> None:
        """A member's word about its link to the master (R13)."""
        self._service.do(self._service.duties.handle_link(report, self._service.now_ns()))

    def handle_closed(self, connection: ConnectionId, *, is_revoked: bool = False) -> None:
        """A broker's connection ended; ``is_revoked``: because its certificate is (R28)."""
        self._service.do(self._service.duties.handle_closed(connection, self._service.now_ns(), is_revoked=is_revoked))
