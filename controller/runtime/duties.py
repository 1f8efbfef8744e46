"""
The leader's duties as one machine: sessions, elections, milestones, pauses and maintenances behind one set of inputs.

Here: which part gets which input. Not here: rules (``sessions``, ``election_duty``, ``switchover_duty``,
``handover_duty``, ``milestones``), clocks and sockets (``service``; the simulation drives this same class).

Rule 1: every input has the time as an argument; every answer is a list of ``Action``, done by the shell.
Rule 2: before ``take`` and after ``stand_down`` inputs change nothing: the soft state of a former leader is older than
that of its successor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import (
    ElectMaster,
    LeaveMaster,
    MarkAlive,
    MarkSilent,
    NoteConfirms,
    RecordMilestones,
    RegisterReplica,
)
from rollcall_ha.controller.contract.events import (
    ElectionsResumed,
    EventRecord,
    GoodbyeSaid,
    MaintenanceEnded,
    MasterElected,
)
from rollcall_ha.controller.contract.ids import MasterEpoch, SetKey
from rollcall_ha.controller.contract.replies import AnyReply, Done, Refused, Registered
from rollcall_ha.controller.contract.session import Heartbeat, LinkReport, ProbeAnswer
from rollcall_ha.controller.contract.settings import Settings
from rollcall_ha.controller.contract.timing import NS_PER_US, Timing
from rollcall_ha.controller.core.actions import Action, ProposeCommand, SendProbe
from rollcall_ha.controller.core.election_duty import ELECTIONS_IN_FLIGHT_MAX, ElectionDuty, changed_sets
from rollcall_ha.controller.core.views import ViewOf
from rollcall_ha.controller.runtime.handover_duty import HandoverDuty, PreviewAny
from rollcall_ha.controller.runtime.milestones import Milestones, Origin, winner_beside
from rollcall_ha.controller.runtime.order_ends import FleetNow, OrderEnds
from rollcall_ha.controller.runtime.return_duty import ReturnDuty
from rollcall_ha.controller.runtime.session_state import ConnectionId, ProbeOutcome
from rollcall_ha.controller.runtime.sessions import Sessions
from rollcall_ha.controller.runtime.switchover_duty import SwitchoverDuty

OWN_ORDERS = "controller:"
"""Begins the names by which controllers propose; operators' and brokers' have others."""


class LeaderDuties:
    """The work of a controller while it leads."""

    def __init__(
        self,
        *,
        timing: Timing,
        view_of: ViewOf,
        preview: PreviewAny,
        draw_epoch_jump: Callable[[], int],
        fleet_now: FleetNow,
        elections_in_flight_max: int = ELECTIONS_IN_FLIGHT_MAX,
    ) -> None:
        """Ports: the newest applied state of a set, a dry run on it, a draw of 0..15, the whole state and UTC."""
        self.sessions = Sessions(timing=timing, view_of=view_of)
        self.elections = ElectionDuty(
            timing=timing,
            view_of=view_of,
            sessions=self.sessions,
            preview=preview,
            draw_epoch_jump=draw_epoch_jump,
            in_flight_max=elections_in_flight_max,
        )
        self.switchovers = SwitchoverDuty(view_of=view_of, elections=self.elections)
        self.handovers = HandoverDuty(
            view_of=view_of,
            fleet_now=fleet_now,
            sessions=self.sessions,
            preview=preview,
            draw_epoch_jump=draw_epoch_jump,
        )
        self.milestones = Milestones()
        self._order_ends = OrderEnds(fleet_now)
        self._returns = ReturnDuty(fleet_now)
        self._view_of, self._draw = view_of, draw_epoch_jump
        self.is_active = False
        self._requested_ns: dict[SetKey, int] = {}

    # --- leadership --------------------------------------------------------------------------------------------------

    def take(self, keys: Sequence[SetKey], now_ns: int) -> list[Action]:
        """Begin: the own ``TakeLeadership`` was applied. Sets without a master are tried at once (S37)."""
        self.stand_down()
        self.is_active = True
        self.sessions.arm(keys, now_ns)
        for key in keys:
            self.switchovers.set_changed(key, now_ns)
            self.handovers.set_changed(key, now_ns)
        return [action for key in keys for action in self.elections.set_changed(key, None, now_ns)]

    def stand_down(self) -> None:
        """End: this controller no longer leads. Outcomes of earlier proposals mean nothing afterwards."""
        self.is_active = False
        # Everything goes: a session of term 3 that is found again in term 5 would be silent since term 3, and be dead
        # at the first tick.
        self.sessions.disarm()
        self.elections.disarm()
        self.switchovers.disarm()
        self.handovers.disarm()
        self._returns.disarm()
        self.milestones.disarm()
        self._requested_ns.clear()

    def retime(self, timing: Timing, settings: Settings, now_ns: int) -> None:
        """Other settings are in force, from here on."""
        self.sessions.retime(timing, settings.rocketmq_heartbeat_timeout_ms, now_ns)
        self.elections.retime(timing)

    # --- inputs ------------------------------------------------------------------------------------------------------

    def handle_applied(self, records: Sequence[EventRecord], now_ns: int) -> list[Action]:
        """An entry was applied; ``view_of`` already shows its state. ``now_ns`` is when it was applied."""
        if not self.is_active:
            return []
        # Stamps BEFORE the loop below: ``set_changed`` drops the pending election that knows when it was proposed.
        for record in records:
            if isinstance(record.event, MasterElected) and record.set_key is not None:
                self._stamp_election(record, record.event, record.set_key, now_ns)
            elif isinstance(record.event, GoodbyeSaid) and record.set_key is not None:
                self.sessions.said_goodbye(record.set_key, record.event.broker_id, now_ns)
            elif isinstance(record.event, ElectionsResumed | MaintenanceEnded):
                self.elections.resumed()
                self.handovers.resumed()
        actions: list[Action] = []
        for key, ref in changed_sets(records).items():
            # Sessions first: the evidence of an election must name the session that this entry has just opened (R14).
            self.sessions.track(key, now_ns)
            actions += self.elections.set_changed(key, ref, now_ns)
            self.switchovers.set_changed(key, now_ns)
            self.handovers.set_changed(key, now_ns)
        return actions

    def _stamp_election(self, record: EventRecord, event: MasterElected, key: SetKey, now_ns: int) -> None:
        pending, requested_ns = self.elections.pending_of(key), self._requested_ns.pop(key, now_ns)
        is_own = record.requested_by.startswith(OWN_ORDERS)
        # An operator's election while an attempt of the duty waits for a member: the phases begin with his order. By
        # the attempt, 40 s of waiting would be on record as the time that a majority took to commit.
        proposed_ns = pending.proposed_ns if is_own and pending is not None else None
        origin_ns = requested_ns if proposed_ns is None else proposed_ns
        first_sign_age_us = event.detection.first_sign_age_us if event.detection is not None else 0
        winner, unheard_us = winner_beside(event), 0
        if winner is not None and event.detection is None:
            # Its old master serves until it is told. From the order, the time that a majority took to commit would be
            # on record as an outage that nobody felt.
            origin_ns = now_ns
            moved = event.verdict.previous_master
            session = None if moved is None else self.sessions.get(key, moved)
            unheard_us = 0 if session is None else session.overdue_ns(now_ns) // NS_PER_US
        fault_ns = origin_ns - first_sign_age_us * NS_PER_US
        origin = Origin(
            proposed_ns=origin_ns,
            fault_ns=fault_ns,
            committed_ns=now_ns,
            served_by=winner,
            unheard_us=unheard_us,
        )
        self.milestones.committed(key, event.master_epoch, origin)

    def handle_requested(self, key: SetKey, now_ns: int) -> None:
        """An election was submitted for somebody else: its milestones count from here."""
        # Bounded: orders that elect nobody leave their line here until this leader stands down.
        if self.is_active and len(self._requested_ns) < 1_000:
            self._requested_ns[key] = now_ns

    def handle_registered(
        self, command: RegisterReplica, reply: Registered, connection: ConnectionId | None, now_ns: int
    ) -> None:
        """A registration was answered on this connection."""
        if self.is_active:
            key = (command.set_key, reply.broker_id)
            self.sessions.open(key, reply.session_ordinal, command.positions, connection, now_ns)

    def handle_heartbeat(
        self, beat: Heartbeat, connection: ConnectionId | None, now_ns: int
    ) -> tuple[Refused | None, list[Action]]:
        """A heartbeat; the refusal says that its session is not the current one."""
        if not self.is_active:
            return _not_leading(), []
        session = self.sessions.get(beat.set_key, beat.broker_id)
        was_ready = session is not None and self.sessions.is_heard_ready(session, now_ns)
        outcome = self.sessions.heartbeat(beat, connection, now_ns)
        if isinstance(outcome, Refused):
            return outcome, []
        if beat.is_ready and not was_ready:
            outcome += self.elections.became_ready(beat.set_key, now_ns)
        return None, outcome

    def handle_link(self, report: LinkReport, now_ns: int) -> list[Action]:
        """A member's word about its link to the master; nonsense is ignored."""
        # A report is one-way: there is nobody to refuse to, and an old incarnation's report just does not count.
        outcome = self.sessions.link(report, now_ns) if self.is_active else []
        return [] if isinstance(outcome, Refused) else self._with_elections(outcome, now_ns)

    def handle_closed(self, connection: ConnectionId, now_ns: int, *, is_revoked: bool = False) -> list[Action]:
        """A broker's connection ended; ``is_revoked``: by us, because its certificate is revoked."""
        actions = self.sessions.close(connection, now_ns, is_revoked=is_revoked) if self.is_active else []
        return self._with_elections(actions, now_ns)

    def handle_probe(
        self, probe: SendProbe, outcome: ProbeOutcome, answer: ProbeAnswer | None, now_ns: int
    ) -> list[Action]:
        """The result of a ``SendProbe``."""
        actions = self.sessions.probed(probe, outcome, answer, now_ns) if self.is_active else []
        return self._with_elections(actions, now_ns)

    def handle_proposed(
        self, action: ProposeCommand, reply: AnyReply | None, now_ns: int, *, is_certainly_not_executed: bool = False
    ) -> list[Action]:
        """The outcome of a ``ProposeCommand``; None = not committed as far as is known."""
        if not self.is_active:
            return []
        command = action.command
        if isinstance(command, MarkSilent | MarkAlive):
            self.sessions.proposed(command, now_ns)
        elif isinstance(command, ElectMaster):
            return [*self.elections.proposed(command, reply, now_ns)]
        elif isinstance(command, LeaveMaster):
            self.handovers.proposed(command, reply, now_ns)
        elif isinstance(command, NoteConfirms) and not isinstance(reply, Done):
            self.sessions.confirms.not_noted(command)
        elif isinstance(command, RecordMilestones) and is_certainly_not_executed:
            # Only then: with an unknown outcome they may be in the log already, and would be there twice.
            self.milestones.give_back(command)
        return []

    def handle_notified(self, key: SetKey, epoch: MasterEpoch, now_ns: int) -> None:
        """The winner's connection was handed the notice of this epoch."""
        if self.is_active:
            self.milestones.notified(key, epoch, now_ns)

    def breathe(self, now_ns: int) -> None:
        """The loop runs; to be called many times between two ticks."""
        self.sessions.breathe(now_ns)

    def heard_within_ms(self, now_ns: int) -> int | None:
        """How long ago, at most, this leader heard any replica that counts as alive; None = it cannot say."""
        return self.sessions.heard_within_ms(now_ns) if self.is_active else None

    def tick(self, now_ns: int) -> list[Action]:
        """To be called every ``scan_interval_ms``."""
        if not self.is_active:
            return []
        found = self._with_elections(self.sessions.tick(now_ns), now_ns)
        left = self.handovers.tick(now_ns)
        for key in left:
            # No election waits that knows when it was proposed: the milestones would count from the commit.
            self.handle_requested(key, now_ns)
        elections = [*self.elections.tick(now_ns), *self.switchovers.tick(now_ns), *left.values()]
        ends = [*self._order_ends.tick(now_ns), *self._returns_at(now_ns)]
        return [*found, *elections, *self.milestones.flush(), *ends, *self.sessions.confirms.tick(now_ns)]

    def _returns_at(self, now_ns: int) -> list[ProposeCommand]:
        orders = []
        for command in self._returns.tick(now_ns):
            view = self._view_of(command.set_key)
            if view is not None:
                evidence = self.sessions.evidence(
                    view, now_ns=now_ns, triggered_by=None, stamps=None, draw=self._draw()
                )
                orders.append(ProposeCommand(command=command, evidence=evidence))
        return orders

    def _with_elections(self, actions: list[Action], now_ns: int) -> list[Action]:
        """With the elections that follow from them."""
        # Behind ALL silences: when brokers 1 and 2 of a set die together, an election between the two silences would
        # still keep broker 2 in the new set. (It is not elected: the evidence calls it not ready, rule 5 of sessions.)
        proposed = [action.command for action in actions if isinstance(action, ProposeCommand)]
        silences = [command for command in proposed if isinstance(command, MarkSilent)]
        elections = [action for silence in silences for action in self.elections.silence_proposed(silence, now_ns)]
        return [*actions, *elections]


def _not_leading() -> Refused:
    return Refused(
        code=RefusalCode.NOT_LEADER, reason="this controller does not lead", hint="ask any controller who leads"
    )
