"""
One reign of this replica, from ``prepare`` to ``leave``: SyncStateSet, links of slaves, waiters, and the gate.

Here: passing events between ``ha.sync_state``, ``ha.service.HaServer``, the put path and the session. Not here: any
decision about members, epochs or acks.
Rule 1 (R12): all parts of a reign are made when it is prepared and thrown away when it is left.
Rule 2 (R1): a proposal is sent again, byte for byte, until its verdict; at most one request is under way.
Rule 3 (R2): only a verdict, also one on a higher seq, or a state of this very reign ends the union; a refusal because
the reign is over ends the reign; errors and timeouts end nothing.
Rule 4 (R17, R22): the gate closes before waiters are failed, and each release asks it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rollcall_ha.broker.core.role_io import PrepareMaster
from rollcall_ha.broker.core.write_watch import US_PER_MS, MemberFacts, WriteFacts
from rollcall_ha.broker.handlers.ports import Gate, GateState
from rollcall_ha.broker.handlers.put import PutPath
from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import AlterSyncStateSet
from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, LogOffset, MasterEpoch, SetKey
from rollcall_ha.controller.contract.replies import AlterDecided, AlterVerdict, AnyReply, Refused, SetView
from rollcall_ha.controller.contract.timing import Timing
from rollcall_ha.controller.contract.values import Frozen, Joining, Phase, Value, made_from
from rollcall_ha.ha.confirm_offset import MemberAck
from rollcall_ha.ha.errors import ErrorCode
from rollcall_ha.ha.frames import Handshake
from rollcall_ha.ha.links import LinkReign
from rollcall_ha.ha.service import HaServer
from rollcall_ha.ha.sync_state import (
    ConfirmMoved,
    MastershipEnded,
    MemberInSync,
    ProposeAlter,
    ReignStart,
    SyncOutput,
    SyncState,
)
from rollcall_ha.node.telemetry import get_logger

TICK_MS = 50
REIGN_OVER = frozenset(
    {RefusalCode.FENCED_MASTER_EPOCH, RefusalCode.FENCED_INCARNATION, RefusalCode.INVALID_MASTER}
)  # fmt: skip
"""``Refused`` with one of these says that this reign is over (R2). In a verdict they speak of the new members."""
SEQ_OVERTAKEN = frozenset({RefusalCode.STALE_SEQUENCE, RefusalCode.SEQUENCE_REUSED})
"""``Refused`` with one of these carries the verdict on a seq that this master has not proposed, or not like that."""

_log = get_logger("mastership")


class ReignContext(Frozen):
    """The parts of this process that all its reigns share."""

    set_key: SetKey
    broker_id: BrokerId
    incarnation: Incarnation
    address: str
    """Where the own listen port is."""
    log: CommitLog
    links: HaServer
    waiters: PutPath
    gate: Gate
    timing: Timing
    ask: Callable[[Value], asyncio.Future[AnyReply]]
    """A request over the session; the future ends with the reply or ``SessionUnavailable``."""
    on_phase: Callable[[MasterEpoch, Phase], None]
    on_drained: Callable[[MasterEpoch], None]
    """Once, after ``drain``: no byte is unconfirmed, and no sender waits."""
    on_refused: Callable[[MasterEpoch, str], None]
    """The reign is over by the controllers' word."""
    on_moved: Callable[[], None]
    """Acks, the set or confirm may have moved: once per batch."""


class Mastership:
    """One reign. Hears what ``ha.ports.MasterLinkEvents`` tell the broker while it lasts."""

    def __init__(self, context: ReignContext, order: PrepareMaster) -> None:
        """Nothing is open yet. The log's index is complete (R19)."""
        view = order.view
        self._context = context
        self._loop = asyncio.get_running_loop()
        self.master_epoch = order.master_epoch
        self._expected = view.configuration.expected_replicas
        self._is_serving = False
        self._is_over = False
        self._draining_since_s: float | None = None
        self._may_serve_again = False
        self._is_drained = False
        self._in_flight: ProposeAlter | None = None
        self._in_sync: set[BrokerId] = set()
        self.sync = SyncState(
            ReignStart(
                broker_id=context.broker_id,
                incarnation=context.incarnation,
                fleet_incarnation=view.fleet_incarnation,
                master_epoch=order.master_epoch,
                start_offset=order.start_offset,
                # As a slave we may have heard of a confirm beyond our own end; of this epoch nothing is confirmed yet.
                confirm_offset=LogOffset(min(context.log.confirm_offset, order.start_offset)),
                sync_state_set=view.sync_state_set,
                sync_state_set_epoch=view.sync_state_set_epoch,
                min_in_sync=view.configuration.effective_min_in_sync,
                flush=view.configuration.flush,
                timing=context.timing,
            ),
            log_end=context.log.max_offset,
            now_ms=self._now_ms(),
        )
        self._links = link_reign_of(view)
        self._timer = self._loop.call_later(TICK_MS / 1000, self._tick)

    # --- from the role machine ---------------------------------------------------------------------------------------

    def open_links(self) -> None:
        """Slaves are answered; those that waited for this reign are told before this returns."""
        self._context.links.open_reign(self._links, self.sync.confirm_offset)

    def serve(self) -> None:
        """The role is published: appends may begin."""
        # The table of waiters first: a send that passes the gate must find the epoch that it appends in (R17).
        self._context.waiters.enter_epoch(self.master_epoch)
        self._is_serving = True
        self._show_gate()
        self._handle(self.sync.log_extended(self._context.log.max_offset))
        self._handle(self.sync.log_synced(self._context.log.flushed_offset))

    def drain(self, *, may_serve_again: bool) -> None:
        """No new sends from here on; ``on_drained`` when all that were taken are answered."""
        self._may_serve_again = may_serve_again
        self._draining_since_s = self._loop.time()
        self._show_gate()
        self._note_drained()

    def serve_again(self) -> None:
        """Sends are taken again; what was drained counts no more."""
        self._draining_since_s, self._is_drained = None, False
        self._show_gate()

    @property
    def drained_us(self) -> int:
        """For how long it takes no sends; 0 = it does."""
        return 0 if self._draining_since_s is None else int((self._loop.time() - self._draining_since_s) * 1_000_000)

    def leave(self, reason: str, master_address: str) -> None:
        """R12, R17: no append, no release, no link, no proposal from here on."""
        self._is_serving = False
        self._is_over = True
        self._timer.cancel()
        # The gate first: failing a waiter writes to its client, whose next send may be handled before the last waiter
        # is failed; it would be appended in an epoch that is over.
        self._context.gate.close(reason, self.master_epoch, master_address)
        self._context.waiters.leave_epoch()
        self._context.links.end_reign(reason)

    def adopt(self, view: SetView) -> None:
        """The state of the set by the controllers (R2)."""
        # The winner of a later reign takes them: here a gate that is about to close would open for a moment.
        if view.master_epoch == self.master_epoch:
            self._expected = view.configuration.expected_replicas
            self.sync.require(view.configuration.effective_min_in_sync)
        links = link_reign_of(view)
        if links != self._links:
            self._links = links
            self._context.links.replicas_changed(links)
        outputs = self.sync.authoritative_state(view, self._now_ms())
        self._take(outputs)

    def retime(self, timing: Timing) -> None:
        """Other durations are in force."""
        self.sync.retime(timing)

    def session_opened(self) -> None:
        """An outstanding proposal is sent again at once; its verdict may have been lost with the session (R1)."""
        if self.sync.outstanding is not None:
            self._propose(self.sync.outstanding)

    # --- from the log and the put path -------------------------------------------------------------------------------

    def log_extended(self) -> None:
        """Once per batch of appends."""
        self._handle(self.sync.log_extended(self._context.log.max_offset))
        self._context.links.log_extended()

    def log_synced(self, end: LogOffset) -> None:
        """Once per group commit."""
        self._handle(self.sync.log_synced(end))

    # --- from the links (MasterLinkEvents) ---------------------------------------------------------------------------

    def slave_opened(self, handshake: Handshake, link_generation: int) -> None:
        """A replica shook hands."""
        self._handle(
            self.sync.link_opened(
                handshake.broker_id, handshake.incarnation, link_generation, is_learner=handshake.is_learner
            )
        )

    def slave_acked(self, ack: MemberAck) -> None:
        self._handle(self.sync.ack(ack, self._now_ms()))

    def slave_closed(self, broker_id: BrokerId, link_generation: int, code: ErrorCode | None, detail: str) -> None:
        """A link is gone."""
        del code, detail
        self._handle(self.sync.link_closed(broker_id, link_generation, self._now_ms()))

    def write_facts(self) -> WriteFacts | None:
        """The reign as a look of ``WriteWatch`` wants it; None = the gate is not open yet, or closes on purpose."""
        # A planned stop is measured from the master's word on; as a stop of writes it would be counted twice. A drain
        # that may be taken back is looked at: forgotten, the stops of this reign would be counted from 1 again.
        is_stopping = self._draining_since_s is not None and not self._may_serve_again
        if not self._is_serving or is_stopping:
            return None
        sync = self.sync
        return WriteFacts(
            master_epoch=self.master_epoch,
            is_min_in_sync=sync.may_release,
            in_sync=sync.counted,
            min_in_sync=sync.reign.min_in_sync,
            members=tuple(
                MemberFacts(broker_id=member, heard_us=sync.heard_at_ms(member) * US_PER_MS, acked=sync.acked(member))
                for member in sync.required_set
                if member != sync.reign.broker_id
            ),
            confirm=sync.confirm_offset,
            log_end=self._context.log.max_offset,
            synced=self._context.log.ackable_offset,
        )

    # --- inside ------------------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_MS / 1000, self._tick)
        self._context.waiters.expire()
        self._take(self.sync.tick(self._now_ms()))

    def _take(self, outputs: list[SyncOutput]) -> None:
        """Show the gate, also if nothing else comes of it, then do what is asked for."""
        # A set that has become smaller than ``min_in_sync`` must close the gate at once, for appends and for the
        # answers to duplicates (R22); and a member may be lost, or be back, that stays in the set.
        self._show_gate()
        self._handle(outputs)

    def _handle(self, outputs: list[SyncOutput]) -> None:
        # A task that ends after the reign, or an ack in the same turn, would release waiters of the next one.
        if self._is_over:
            return
        confirm: LogOffset | None = None
        for output in outputs:
            if isinstance(output, ConfirmMoved):
                confirm = output.offset
            elif isinstance(output, ProposeAlter):
                self._propose(output)
            elif isinstance(output, MemberInSync):
                self._in_sync.add(output.broker_id)
            else:
                self._end(output)
                return
        if outputs:
            self._show_gate()
            self._note_redundancy()
        if confirm is not None:
            context = self._context
            # Noted before anybody is told: at the next handshake the log must know of every confirm that a slave has
            # heard.
            context.log.note_confirm(confirm, context.log.released_offset)
            context.links.confirm_moved(confirm)
            context.waiters.release(confirm)
        self._note_drained()
        self._context.on_moved()

    def _note_drained(self) -> None:
        context = self._context
        is_done = self.sync.confirm_offset >= context.log.max_offset and context.waiters.waiting_messages == 0
        if self._draining_since_s is not None and is_done and not self._is_drained:
            self._is_drained = True
            context.on_drained(self.master_epoch)

    def _end(self, output: MastershipEnded) -> None:
        _log.warning("reign_refused", master_epoch=self.master_epoch, reason=output.reason)
        self._context.on_refused(self.master_epoch, output.reason)

    def _show_gate(self) -> None:
        """Replace the gate as a whole, if anything of it moved; a set that is large enough again releases waiters."""
        if not self._is_serving:
            return
        old = self._context.gate.state
        is_draining = self._draining_since_s is not None
        new = GateState(
            is_serving=not is_draining,
            is_draining=is_draining,
            master_epoch=self.master_epoch,
            is_min_in_sync=self.sync.may_release,
            in_sync=self.sync.counted,
            master_address=self._context.address,
            reason="hands over to another master" if is_draining else "",
        )
        if new != old:
            self._context.gate.state = new
            # Confirm passed these waiters while the set was too small, and will not move again without a new send.
            if new.is_min_in_sync and not old.is_min_in_sync:
                self._context.waiters.release(self.sync.confirm_offset)

    def _note_redundancy(self) -> None:
        members = self.sync.local_set
        if len(members) >= self._expected and self._in_sync.issuperset(set(members) - {self._context.broker_id}):
            self._context.on_phase(self.master_epoch, Phase.FULL_REDUNDANCY)

    def _propose(self, output: ProposeAlter) -> None:
        # A retry that overtakes the first copy on another connection is harmless (its seq has one content, R1), but
        # each tick of an unreachable leader would queue one more.
        if self._in_flight is not None:
            return
        self._in_flight = output
        command = made_from(
            output,
            AlterSyncStateSet,
            set_key=self._context.set_key,
            broker_id=self._context.broker_id,
            incarnation=self._context.incarnation,
            joining=tuple(Joining(broker_id=one, incarnation=incarnation) for one, incarnation in output.joining),
        )
        _log.info(
            "set_proposed", master_epoch=output.master_epoch, seq=output.seq, new_set=output.new_set, why=output.reason
        )
        self._context.ask(command).add_done_callback(self._answered)

    def _answered(self, future: asyncio.Future[AnyReply]) -> None:
        self._in_flight = None
        # The exception first: not looked at, as after the end of the reign, it is a traceback in the log.
        if future.cancelled() or future.exception() is not None or self._is_over:
            # Outcome unknown. {A} proposed {A, B}, it may be committed: dropped here, A would ack alone while B is
            # electable (R2). The next tick repeats the same proposal.
            return
        reply = future.result()
        if isinstance(reply, AlterDecided):
            self._decided(reply.verdict, reply.reason)
        elif isinstance(reply, Refused) and reply.code in REIGN_OVER:
            self._handle(self.sync.mastership_refused(reply.reason))
        elif isinstance(reply, Refused) and reply.code in SEQ_OVERTAKEN and reply.alter is not None:
            self._overtaken(reply, reply.alter)
        else:
            _log.warning("alter_unanswered", reply=type(reply).__name__, reason=getattr(reply, "reason", ""))

    def _overtaken(self, refusal: Refused, decided: AlterVerdict) -> None:
        _log.warning("alter_overtaken", master_epoch=decided.master_epoch, seq=decided.seq, reason=refusal.reason)
        self._take(self.sync.overtaken(decided, self._now_ms()))

    def _decided(self, verdict: AlterVerdict, reason: str) -> None:
        _log.info(
            "set_decided",
            master_epoch=verdict.master_epoch,
            seq=verdict.seq,
            is_accepted=verdict.is_accepted,
            sync_state_set=verdict.sync_state_set,
            why=reason,
        )
        self._take(self.sync.verdict(verdict, self._now_ms()))


def link_reign_of(view: SetView) -> LinkReign:
    """The part of a view that the links of a reign need."""
    return LinkReign(
        master_epoch=view.master_epoch,
        unclean_epoch=view.unclean_epoch,
        incarnations={one.broker_id: one.incarnation for one in view.members},
        owners={one.broker_id: one.owner for one in view.members if one.owner},
    )
