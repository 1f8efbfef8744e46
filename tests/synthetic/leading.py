"""
What the leading controller of a synthetic fleet notices of one set, and what it and an operator order.

Here: the signs of a fault, and when each is seen; what was heard, as the source of the product's own machine of
elections (``controller.core.election_duty``), which decides when one is proposed; the operator. Not here: the winner,
which the real core decides.
Rule 1: the leading controller knows heartbeats, closed sessions and probes only; a new leader starts without any of
them and gives every replica one full timeout, as ``controller.runtime.sessions`` does.
Rule 2: after ``OPERATOR_PATIENCE_US`` without an eligible replica an operator elects unclean, so that every history
ends with a master.
"""

from __future__ import annotations

from collections.abc import Sequence

from rollcall_ha.controller.contract.commands import ElectMaster, ElectUnclean, MarkSilent
from rollcall_ha.controller.contract.events import EventRecord
from rollcall_ha.controller.contract.ids import BrokerId, SetKey
from rollcall_ha.controller.contract.replies import AnyReply, Condition, Elected, MemberView, Refused, SetView
from rollcall_ha.controller.contract.timing import NS_PER_US
from rollcall_ha.controller.contract.values import EventRef, Evidence, ReplicaEvidence, SilenceCause, made_from
from rollcall_ha.controller.core.actions import ProposeCommand
from rollcall_ha.controller.core.detection import FRESH_INTERVALS, Stamps
from rollcall_ha.controller.core.election_duty import ElectionDuty, changed_sets
from rollcall_ha.controller.core.recovery import EPOCH_JUMP_DRAWS
from rollcall_ha.controller.core.views import condition_of, view_of
from tests.synthetic.plan import US_PER_MS, US_PER_S, Fault
from tests.synthetic.processes import Process, SyntheticOperation
from tests.synthetic.world import SetWorld

TICK_US = US_PER_S
"""Between two looks at a set that waits for a replica to become ready."""

OPERATOR_PATIENCE_US = 600 * US_PER_S
LOSS_ACCEPTED_BYTES = 2**62

Answer = tuple[SyntheticOperation, AnyReply]
"""An operation of an entry, and what became of it."""


class SetLeader:
    def __init__(self, world: SetWorld) -> None:
        self._world = world
        self._lost: Stamps | None = None
        """How the set lost its master, as far as this leader saw it."""
        self._duty = ElectionDuty(
            timing=world.timing,
            view_of=lambda key: view_of(world.log.state, key),
            sessions=self,
            preview=self._preview,
            draw_epoch_jump=lambda: world.draws.pick(EPOCH_JUMP_DRAWS),
        )
        self._looks = 0
        """Counts the looks: if several are due, only the newest is taken."""
        self._waits_for_operator = False

    def taken_over(self, now_us: int) -> None:
        """Another controller leads: it knows nothing that its predecessor saw, and tries a set without a master."""
        self._duty.disarm()
        self._lost = None
        self._world.later(now_us, lambda at_us: self._told(None, (), at_us))

    def applied(self, records: Sequence[EventRecord], answers: Sequence[Answer], applied_us: int) -> None:
        """An entry touched the set; ``answers`` are those of all sets. The leader applied it at ``applied_us``."""
        condition = self._condition()
        if condition.has_master:
            # Signs that stayed would be on record with the next election, days later.
            self._lost = None
        elif condition is Condition.NO_ELIGIBLE_REPLICA:
            self._call_operator(applied_us)
        ref = changed_sets(records).get(self._world.key)
        own = [
            (operation.command, reply)
            for operation, reply in answers
            if operation.requested_by == self._world.log.leader.signature
            and isinstance(operation.command, ElectMaster)
            and operation.command.set_key == self._world.key
        ]
        if ref is not None or own:
            told_us = applied_us + self._world.draws.step_us(300)
            self._world.later(told_us, lambda at_us: self._told(ref, own, at_us))

    # --- detection ---------------------------------------------------------------------------------------------------

    def somebody_sees_the_link(self) -> bool:
        """Whether a member that may be elected is heard: dead at once needs its word about the HA link (R13)."""
        world = self._world
        state, master = world.state, world.master
        return any(
            process.is_up and process is not master and process.broker_id in state.sync_state_set
            for process in world.processes.values()
        )

    def notice_at_once(self, process: Process, now_us: int, away_us: int) -> None:
        """The master's connections close, and its listen port refuses, or the next process answers there."""
        step_us = self._world.draws.step_us
        closed_us = now_us + step_us(800)
        link_us = now_us + step_us(1_000)
        refused_us = max(closed_us, link_us) + step_us(1_500)
        heard_us = process.last_heard_us
        if process.fault is Fault.RESTART:
            # The probe finds the next incarnation: it listens a moment before it registers.
            found_us = now_us + away_us - 20 * US_PER_MS
            stamps = _stamps(SilenceCause.REPLACED, found_us, heard_us, closed_us=closed_us)
        else:
            found_us = refused_us
            stamps = _stamps(
                SilenceCause.DEAD_AT_ONCE,
                found_us,
                heard_us,
                closed_us=closed_us,
                link_us=link_us,
                refused_us=refused_us,
            )
        self._world.later(found_us, lambda at_us: self._silent(process, stamps, at_us), of=process)

    def time_out_soon(self, process: Process) -> None:
        """Silence is found by the first scan after the timeout; a new leader counts from when it began to listen."""
        world = self._world
        timing = world.timing
        heard_from_us = max(process.last_heard_us, world.log.leader.since_us)
        scanned_us = world.draws.within_us(timing.scan_interval_ms * US_PER_MS)
        found_us = heard_from_us + timing.heartbeat_timeout_ms * US_PER_MS + scanned_us
        world.later(found_us, lambda at_us: self._timed_out(process, at_us), of=process)

    def _timed_out(self, process: Process, now_us: int) -> Sequence[SyntheticOperation]:
        if process.is_up:
            return ()
        leads_since_us = self._world.log.leader.since_us
        timeout_us = self._world.timing.heartbeat_timeout_ms * US_PER_MS
        if now_us - leads_since_us < timeout_us:
            self.time_out_soon(process)
            return ()
        if now_us - process.last_heard_us < timeout_us:
            # It was heard meanwhile, and fell silent anew: that silence has a timeout of its own, and this one would
            # find it after less than the timeout.
            return ()
        heard_us = process.last_heard_us if process.last_heard_us >= leads_since_us else None
        return self._silent(process, _stamps(SilenceCause.TIMEOUT, now_us, heard_us), now_us)

    def _silent(self, process: Process, stamps: Stamps, now_us: int) -> Sequence[SyntheticOperation]:
        world = self._world
        replica = world.replica(process)
        if process.is_up or replica is None or not replica.is_alive:
            return ()
        saw_since_ns = world.log.leader.since_us * NS_PER_US
        if stamps.first_sign_ns < saw_since_ns and stamps.cause is not SilenceCause.TIMEOUT:
            # The controller that saw the connections close leads no more, and its successor saw nothing: it may count
            # from its own beginning only.
            self.time_out_soon(process)
            return ()
        if process is world.master:
            self._lost = stamps
        now_ns = now_us * NS_PER_US
        silence = MarkSilent(**world.session_of(process), cause=stamps.cause, detection=stamps.ages(now_ns))
        return [world.log.leader.proposes(silence), *self._orders(self._duty.silence_proposed(silence, now_ns), now_us)]

    # --- elections ---------------------------------------------------------------------------------------------------

    def _told(
        self, ref: EventRef | None, own: Sequence[tuple[ElectMaster, AnyReply]], now_us: int
    ) -> Sequence[SyntheticOperation]:
        """The duty hears of a change first, and of its own elections' outcomes behind it, as in the product."""
        world = self._world
        actions = self._duty.set_changed(world.key, ref, now_us * NS_PER_US)
        for command, reply in own:
            actions += self._duty.proposed(command, reply, now_us * NS_PER_US)
        if self._condition() is Condition.ENTERING:
            world.later(now_us + world.timing.entered_deadline_ms * US_PER_MS, self._tick)
        return self._orders(actions, now_us)

    def _tick(self, now_us: int) -> Sequence[SyntheticOperation]:
        return self._orders(self._duty.tick(now_us * NS_PER_US), now_us)

    def _orders(self, actions: Sequence[ProposeCommand], now_us: int) -> list[SyntheticOperation]:
        world = self._world
        self._looks += 1
        look = self._looks
        waits = self._duty.pending_of(world.key) is not None
        # Without an eligible replica only a change helps, and it is told: ten minutes of ticks would find nothing.
        if waits and self._condition() is not Condition.NO_ELIGIBLE_REPLICA:
            world.later(now_us + TICK_US, lambda at_us: self._tick(at_us) if look == self._looks else ())
        leader = world.log.leader
        return [leader.proposes(action.command, action.evidence) for action in actions]

    def _view(self) -> SetView | None:
        return view_of(self._world.log.state, self._world.key)

    def _condition(self) -> Condition:
        return condition_of(self._world.state)[0]

    def _preview(self, command: ElectMaster, evidence: Evidence) -> Elected | Refused:
        return self._world.log.preview(self._world.log.leader.proposes(command, evidence))

    # --- what an operator orders -------------------------------------------------------------------------------------

    def switchover(self, now_us: int, to: Process) -> Sequence[SyntheticOperation]:
        """An operator moves the master to ``to``."""
        state = self._world.state
        command = ElectMaster(
            set_key=self._world.key,
            to=to.broker_id,
            expected_master=state.master,
            expected_epoch=state.master_epoch,
            reason="moved by hand",
        )
        return [self._ordered(command, "admin:alice", now_us)]

    def _call_operator(self, now_us: int) -> None:
        if not self._waits_for_operator:
            self._waits_for_operator = True
            self._world.later(now_us + OPERATOR_PATIENCE_US, self._elect_unclean)

    def _elect_unclean(self, now_us: int) -> Sequence[SyntheticOperation]:
        world = self._world
        self._waits_for_operator = False
        if self._condition() is not Condition.NO_ELIGIBLE_REPLICA:
            return ()
        self._call_operator(now_us - OPERATOR_PATIENCE_US + 60 * US_PER_S)
        command = ElectUnclean(
            set_key=world.key,
            accepted_loss_bytes=LOSS_ACCEPTED_BYTES,
            expected_epoch=world.state.master_epoch,
            reason="nobody else will come back soon",
        )
        operation = self._ordered(command, "admin:bob", now_us)
        return [operation] if isinstance(world.log.preview(operation), Elected) else ()

    def _ordered(self, command: ElectMaster | ElectUnclean, operator: str, now_us: int) -> SyntheticOperation:
        view, pending = self._view(), self._duty.pending_of(self._world.key)
        assert view is not None
        evidence = self.evidence(
            view,
            now_ns=now_us * NS_PER_US,
            triggered_by=pending.triggered_by if pending is not None else None,
            stamps=pending.stamps if pending is not None else None,
            draw=self._world.draws.pick(EPOCH_JUMP_DRAWS),
        )
        return SyntheticOperation(command=command, requested_by=operator, evidence=evidence)

    # --- what the duty asks ------------------------------------------------------------------------------------------

    def has_heard(self, _key: SetKey, _broker_id: BrokerId) -> bool:
        """Each replica told its positions when it registered."""
        return True

    def awaits_master(self, _view: SetView, _now_ns: int) -> bool:
        """Leaders of a synthetic fleet are cut off from nobody."""
        return False

    def stamps_of_lost(self, _key: SetKey, _master: BrokerId | None) -> Stamps | None:
        """The signs of the end of the one master that the set is losing."""
        return self._lost

    def evidence(
        self, view: SetView, *, now_ns: int, triggered_by: EventRef | None, stamps: Stamps | None, draw: int
    ) -> Evidence:
        """As the leader gathers it from its sessions."""
        return Evidence(
            read_at_index=view.index,
            master_epoch=view.master_epoch,
            sync_state_set_epoch=view.sync_state_set_epoch,
            replicas=tuple(self._replica_evidence(member, now_ns // NS_PER_US) for member in view.members),
            triggered_by=triggered_by,
            detection=stamps.ages(now_ns) if stamps is not None else None,
            epoch_jump_draw=draw,
        )

    def _replica_evidence(self, member: MemberView, now_us: int) -> ReplicaEvidence:
        world = self._world
        process, interval_us = world.processes[member.broker_id], world.interval_us
        heard_us = now_us - world.draws.within_us(interval_us - 1) if process.is_up else process.last_heard_us
        is_heard = heard_us >= world.log.leader.since_us
        age_us = now_us - heard_us
        return made_from(
            world.positions(process, world.end_of(process, now_us)),
            ReplicaEvidence,
            broker_id=member.broker_id,
            incarnation=member.incarnation,
            session_ordinal=member.session_ordinal,
            heartbeat_age_ms=age_us // US_PER_MS if is_heard else None,
            is_ready=is_heard and age_us <= FRESH_INTERVALS * interval_us,
        )


def _stamps(
    cause: SilenceCause,
    detected_us: int,
    heard_us: int | None,
    *,
    closed_us: int | None = None,
    link_us: int | None = None,
    refused_us: int | None = None,
) -> Stamps:
    # A heartbeat is a sign of life; it bounds the fault only where silence was all that there was.
    signs = (closed_us, link_us, refused_us, heard_us if cause is SilenceCause.TIMEOUT else None)
    return Stamps(
        cause=cause,
        detected_ns=detected_us * NS_PER_US,
        last_heartbeat_ns=_ns(heard_us),
        session_closed_ns=_ns(closed_us),
        link_closed_ns=_ns(link_us),
        probe_refused_ns=_ns(refused_us),
        first_sign_ns=min((sign for sign in signs if sign is not None), default=detected_us) * NS_PER_US,
        alive_ns=None,
    )


def _ns(at_us: int | None) -> int | None:
    return None if at_us is None else at_us * NS_PER_US
