"""
The slave's end of one native link, as a step machine: bytes and time in, actions out.

Not here: sockets (``transport``), reconnecting (``service``), cutting and recording (by the broker, which answers).

| state | input | actions | next state |
| --- | --- | --- | --- |
| CONNECTING | connected | Send | WAITING |
| WAITING | frame HandshakeReply of the expected master and epoch | MasterAnswered, TruncateLog | CUTTING |
| WAITING | the same, but it would cut confirmed bytes | MasterAnswered, IsolationWanted, Send, CloseLink | CLOSED |
| WAITING | frame HandshakeReply, anything else | HigherEpochSeen?, Send, CloseLink | CLOSED |
| CUTTING | truncation_done | LinkReady, Send | TRANSFER |
| CUTTING | truncation_failed | Send, CloseLink | CLOSED |
| TRANSFER | header with bytes of the own last epoch | ConfirmHeard? | TRANSFER |
| TRANSFER | header with bytes of a new epoch | RecordEpoch | RECORDING |
| TRANSFER | body bytes | (LogGrew, ConfirmHeard?, Send at the end of the batch) | TRANSFER |
| TRANSFER | heartbeat | ConfirmHeard? | TRANSFER |
| TRANSFER | log_synced | Send? | TRANSFER |
| RECORDING | epoch_recorded | ConfirmHeard? | TRANSFER |
| WAITING, TRANSFER | tick | Send (heartbeat), or Send, CloseLink when nothing was heard | the same, or CLOSED |
| any | bad bytes, a frame at the wrong time, bytes that do not fit the log or are damaged | Send, CloseLink | CLOSED |
| any | frame LinkError | HigherEpochSeen?, CloseLink | CLOSED |
| CLOSED | anything | | CLOSED |

Rule 1: nothing is acked before the cut is synced, and then at once (S23, W14).
Rule 2: an epoch's entry is durable before its first byte is taken; nothing is read meanwhile (R9).
Rule 3: bytes are taken only at the own end, of this reign, this generation, and of the epoch that they say (D3, R12).
Rule 4: an ack covers whole records only, so that confirm is always a record boundary; in a set with ``flush = sync``
synced ones only (R3c).
Rule 5: the body goes straight into the log's map (``body_view``); ``bytes_received`` takes it as well, with a copy.
"""

from __future__ import annotations

from enum import Enum

from rollcall_ha.controller.contract.ids import FlushMode, LogOffset, MasterEpoch
from rollcall_ha.controller.contract.values import made_from
from rollcall_ha.epoch.model import NO_EPOCH
from rollcall_ha.ha.actions import (
    CloseLink,
    ConfirmHeard,
    HigherEpochSeen,
    IsolationWanted,
    LinkReady,
    LogGrew,
    MasterAnswered,
    RecordEpoch,
    Send,
    SlaveAction,
    TruncateLog,
    last_word,
)
from rollcall_ha.ha.codec_native import NativeDecoder, encode
from rollcall_ha.ha.errors import ErrorCode, FrameUnexpected, HaProtocolError, ReceivedDamaged
from rollcall_ha.ha.frames import Ack, Handshake, HandshakeReply, LinkError, NativeFrame, Transfer
from rollcall_ha.ha.links import FollowTarget, LinkSettings, ReplicaIdentity
from rollcall_ha.ha.ports import ReplicaLog
from rollcall_ha.ha.truncation import Isolate, LogExtent, plan_truncation

BACKLOG_BYTES_MAX = 8 * 1024 * 1024
"""Bytes that may wait while an epoch is recorded; the shell does not read then, so only a simulated link has any."""


class SlaveLinkState(Enum):
    """Where the link is."""

    CONNECTING = "connecting"
    WAITING = "waiting"
    CUTTING = "cutting"
    TRANSFER = "transfer"
    RECORDING = "recording"
    CLOSED = "closed"


class SlaveLink:
    def __init__(
        self,
        *,
        identity: ReplicaIdentity,
        target: FollowTarget,
        log: ReplicaLog,
        durable_confirm: LogOffset,
        is_promise_durable: bool,
        settings: LinkSettings,
        now_ms: int,
    ) -> None:
        """``durable_confirm``: highest confirm offset on the own disk, for R26."""
        self._identity = identity
        self.target = target
        self._log = log
        self._durable_confirm = durable_confirm
        self._is_promise_durable = is_promise_durable
        self._settings = settings
        self._decoder = NativeDecoder()
        self._opened_at_ms = self._heard_at_ms = self._sent_at_ms = now_ms
        self.bytes_at_ms: int | None = None
        """When the last bytes of the master came: a sign of its life. ``_heard_at_ms`` excuses our own cutting, too."""
        self._link_generation = -1
        self._acked: LogOffset | None = None
        self._synced_end = LogOffset(0)
        self._reported_end = LogOffset(0)
        self._master_confirm = LogOffset(0)
        self._master_end = LogOffset(0)
        self._confirm_told = (LogOffset(0), LogOffset(0))
        self._recording: Transfer | None = None
        self._backlog = bytearray()
        self.state = SlaveLinkState.CONNECTING

    # --- what the shell reads next -----------------------------------------------------------------------------------

    @property
    def header_wanted(self) -> int:
        """Read at most so many bytes for ``bytes_received``; 0 = a body comes first, or nothing may be read now."""
        # While the log is cut or an epoch is recorded, nothing is read: the bytes would have no place yet. TCP keeps
        # them.
        if self._decoder.body_left or self.state not in (SlaveLinkState.WAITING, SlaveLinkState.TRANSFER):
            return 0
        return self._decoder.header_wanted

    @property
    def body_wanted(self) -> int:
        """Body bytes that ``body_view`` may take now."""
        return self._decoder.body_left if self.state is SlaveLinkState.TRANSFER else 0

    @property
    def has_room(self) -> bool:
        """Whether ``body_view`` will not wait for the disk; if not, read on when the log says so."""
        return self._log.is_room_ready(1)

    def body_view(self, length_max: int) -> memoryview:
        """Where the next body bytes belong. Release it before anything else. Raises ``OSError``: then call ``fail``."""
        return self._log.receive_view(min(self.body_wanted, length_max))

    # --- inputs ------------------------------------------------------------------------------------------------------

    def connected(self, now_ms: int) -> list[SlaveAction]:
        """The connection is open."""
        if self.state is not SlaveLinkState.CONNECTING:
            return []
        self.state = SlaveLinkState.WAITING
        mine, target = self._identity, self.target
        shake = made_from(
            mine,
            Handshake,
            master_epoch=target.master_epoch,
            expected_master=target.master,
            expected_master_incarnation=target.master_incarnation,
            is_learner=target.is_learner,
            last_epoch=self._log.history.last_epoch,
            max_offset=self._log.max_offset,
            segment_bytes=self._log.segment_bytes,
        )
        self._opened_at_ms = self._heard_at_ms = self._sent_at_ms = now_ms
        return [Send(data=encode(shake))]

    def bytes_received(self, data: bytes | memoryview, now_ms: int) -> list[SlaveAction]:
        """Bytes from the master, cut anywhere; one call is one batch, with one ack at its end."""
        self._heard_at_ms = self.bytes_at_ms = now_ms
        if self.state is SlaveLinkState.CLOSED:
            return []
        if self._backlog or not self._may_read():
            # A master that ignores our pause, or means ill, would fill the memory of this process.
            if len(self._backlog) + len(data) > BACKLOG_BYTES_MAX:
                return self.fail(ErrorCode.PROTOCOL, f"at most {BACKLOG_BYTES_MAX} bytes while paused", "more")
            self._backlog += data
            return []
        return self._consume(memoryview(data), now_ms)

    def body_received(self, length: int, now_ms: int) -> list[SlaveAction]:
        """``length`` bytes were read into the view and it was released. After the last ones comes ``batch_ended``."""
        self._heard_at_ms = self.bytes_at_ms = now_ms
        try:
            self._commit(length)
        except HaProtocolError as error:
            return self.fail(ErrorCode.PROTOCOL, "records", str(error))
        except ReceivedDamaged as error:
            return self._fail_damaged(error)
        return []

    def batch_ended(self, now_ms: int) -> list[SlaveAction]:
        """Everything that one readable event brought is in: tell it and ack it."""
        if self.state not in (SlaveLinkState.TRANSFER, SlaveLinkState.RECORDING):
            return []
        return [*self._tell_growth(), *self._tell_confirm(), *self._ack_if_due(now_ms)]

    def truncation_done(self, now_ms: int) -> list[SlaveAction]:
        """The plan is executed and durable; with ``flush = sync`` the whole log is synced, too."""
        # An answer to a plan of the link before would let this one ack before it has compared histories. ``HaClient``
        # dials no link while a plan waits for its answer (its rule 3): this is the second guard.
        if self.state is not SlaveLinkState.CUTTING:
            return []
        self.state = SlaveLinkState.TRANSFER
        self._heard_at_ms = now_ms
        end = self._log.max_offset
        self._synced_end = self._reported_end = end
        return [LinkReady(offset=end), *self._tell_confirm(), *self._ack(now_ms), *self._resume(now_ms)]

    def truncation_failed(self, reason: str) -> list[SlaveAction]:
        """The plan could not be executed; the link closes."""
        if self.state is not SlaveLinkState.CUTTING:
            return []
        return self.fail(ErrorCode.CUT_REFUSED, "a log cut as planned", reason)

    def epoch_recorded(self, now_ms: int) -> list[SlaveAction]:
        """The asked-for entry is durable and the log's history shows it."""
        header = self._recording
        if self.state is not SlaveLinkState.RECORDING or header is None:
            return []
        self._recording = None
        self._heard_at_ms = now_ms
        # The bytes that follow would be stored under the epoch that the history ends with, whichever that is.
        if self._log.history.last != header.entry:
            return self.fail(ErrorCode.LOG_FAILED, f"{header.entry} recorded", str(self._log.history.last))
        self.state = SlaveLinkState.TRANSFER
        return self._resume(now_ms)

    def log_synced(self, end: LogOffset, now_ms: int) -> list[SlaveAction]:
        """The own log is on disk up to ``end``."""
        self._synced_end = max(self._synced_end, end)
        return self._ack_if_due(now_ms)

    def tick(self, now_ms: int) -> list[SlaveAction]:
        if self.state is SlaveLinkState.WAITING:
            waited_ms = now_ms - self._opened_at_ms
            if waited_ms >= 2 * self._settings.handshake_timeout_ms:  # the master may keep an early slave for one
                return self.fail(ErrorCode.IDLE, "an answer to the handshake", f"none in {waited_ms} ms")
        elif self.state is SlaveLinkState.TRANSFER:
            silent_ms = now_ms - self._heard_at_ms
            if silent_ms >= self._settings.idle_timeout_ms:
                return self.fail(
                    ErrorCode.IDLE, f"a frame in {self._settings.idle_timeout_ms} ms", f"{silent_ms} ms of silence"
                )
        if self.state not in (SlaveLinkState.TRANSFER, SlaveLinkState.RECORDING):
            return []
        is_due = now_ms - self._sent_at_ms >= self._settings.heartbeat_interval_ms
        return self._ack(now_ms) if is_due else []

    def fail(
        self, code: ErrorCode, expected: str, actual: str, *, left_for: MasterEpoch = NO_EPOCH
    ) -> list[SlaveAction]:
        """
        End the link from this side: nonsense of the peer, a broken disk, another target.

        ``left_for``: the epoch in which its master is another one. The last word shows it, and the master asks (R21).
        """
        if self.state is SlaveLinkState.CLOSED:
            return []
        self.connection_lost()
        shown = max(self.target.master_epoch, left_for)
        return [*last_word(self._identity, code, shown, expected=expected, actual=actual)]

    def connection_lost(self) -> None:
        """The socket is gone; nothing more will be said, and buffered bytes are dropped (R12)."""
        self.state = SlaveLinkState.CLOSED
        self._recording = None
        # Bytes of the old master that wait here must not be applied behind the promise of the new epoch, when the entry
        # that they waited for is recorded (R12).
        self._backlog.clear()

    # --- frames ------------------------------------------------------------------------------------------------------

    def _may_read(self) -> bool:
        return self.state in (SlaveLinkState.WAITING, SlaveLinkState.TRANSFER)

    def _resume(self, now_ms: int) -> list[SlaveAction]:
        data = bytes(self._backlog)
        self._backlog.clear()
        return self._consume(memoryview(data), now_ms)

    def _consume(self, view: memoryview, now_ms: int) -> list[SlaveAction]:
        actions: list[SlaveAction] = []
        try:
            while view and self._may_read():
                if self._decoder.body_left:
                    view = view[self._copy_body(view) :]
                    continue
                frame, taken = self._decoder.feed(view)
                view = view[taken:]
                if frame is not None:
                    actions += self._handle(frame)
        except HaProtocolError as error:
            return actions + self.fail(ErrorCode.PROTOCOL, "a native frame", str(error))
        except ReceivedDamaged as error:
            return actions + self._fail_damaged(error)
        except OSError as error:
            return actions + self.fail(ErrorCode.LOG_FAILED, "room in the log", str(error))
        if self.state is not SlaveLinkState.CLOSED:
            self._backlog += view
        return actions + self.batch_ended(now_ms)

    def _copy_body(self, data: memoryview) -> int:
        view = self._log.receive_view(min(len(data), self._decoder.body_left))
        try:
            length = min(len(view), len(data))
            view[:length] = data[:length]
        finally:
            view.release()
        self._commit(length)
        return length

    def _commit(self, length: int) -> None:
        self._decoder.body_taken(length)
        try:
            self._log.commit_received(length)
        except ReceivedDamaged:
            raise
        except ValueError as error:
            raise FrameUnexpected(f"bytes from {self._log.max_offset} on: {error}") from error

    def _fail_damaged(self, error: ReceivedDamaged) -> list[SlaveAction]:
        return self.fail(ErrorCode.RECORD_DAMAGED, "bodies as they were stored", str(error))

    def _handle(self, frame: NativeFrame) -> list[SlaveAction]:
        match frame:
            case Transfer() if self.state is SlaveLinkState.TRANSFER:
                return self._take_header(frame)
            case HandshakeReply() if self.state is SlaveLinkState.WAITING:
                return self._take_reply(frame)
            case LinkError():
                self.connection_lost()
                close = CloseLink(code=frame.code, detail=str(frame), is_by_peer=True)
                return [*self._report_epoch(frame), close]
            case _:
                return self.fail(ErrorCode.PROTOCOL, f"a frame for {self.state.value}", type(frame).__name__)

    def _take_reply(self, reply: HandshakeReply) -> list[SlaveAction]:
        mine, target = self._identity, self.target
        if (reply.set_key, reply.fleet_incarnation) != (mine.set_key, mine.fleet_incarnation):
            expected = f"{mine.set_key} fleet {mine.fleet_incarnation}"
            return self.fail(ErrorCode.WRONG_SET, expected, f"{reply.set_key} fleet {reply.fleet_incarnation}")
        # A restarted process at the same address: it is not the one that was elected, and its log may be shorter than
        # the confirm that the controllers know.
        meant = target.master, target.master_incarnation or reply.incarnation
        if (reply.broker_id, reply.incarnation) != meant:
            actual = f"{reply.broker_id} incarnation {reply.incarnation}"
            return self.fail(ErrorCode.WRONG_PEER, f"{meant[0]} incarnation {meant[1]}", actual)
        # The cut below would follow its history: a stale master of 2 would have us cut the bytes of 3 that we have
        # acked. A master of 4 we have not promised to: the controllers are asked, their view brings the promise (R21).
        if reply.master_epoch != target.master_epoch:
            is_higher = reply.master_epoch > target.master_epoch
            code = ErrorCode.EPOCH_UNKNOWN if is_higher else ErrorCode.EPOCH_STALE
            seen = self._report_epoch(reply)
            return [*seen, *self.fail(code, str(target.master_epoch), str(reply.master_epoch))]
        self._link_generation = reply.link_generation
        self._master_confirm, self._master_end = reply.confirm_offset, reply.max_offset
        log = self._log
        plan = plan_truncation(
            LogExtent(history=log.history, min_offset=log.min_offset, max_offset=log.max_offset),
            self._durable_confirm,
            LogExtent(history=reply.history, min_offset=reply.min_offset, max_offset=reply.max_offset),
            unclean_epoch=reply.unclean_epoch,
            is_record_boundary=log.is_record_boundary,
            begins_at_last_segment_of_bytes=(
                log.segment_bytes if target.is_learner and target.begins_at_last_segment else 0
            ),
        )
        answered = MasterAnswered(reply=reply)
        if isinstance(plan, Isolate):
            # The link ends here: nothing may be copied over bytes that were confirmed (R26).
            refusal = self.fail(ErrorCode.CUT_REFUSED, f"a cut at or above {plan.confirm_offset}", str(plan.point))
            return [answered, IsolationWanted(plan=plan), *refusal]
        self.state = SlaveLinkState.CUTTING
        return [answered, TruncateLog(plan=plan)]

    def _take_header(self, header: Transfer) -> list[SlaveAction]:
        own = self.target.master_epoch, self._link_generation
        # Bytes of another reign or link, at the same offset: v1 of A, taken on the link to C, would be acked to C as
        # its v2 (R12).
        if (header.master_epoch, header.link_generation) != own:
            actual = f"epoch {header.master_epoch} link {header.link_generation}"
            return self.fail(ErrorCode.PROTOCOL, f"epoch {own[0]} link {own[1]}", actual)
        self._master_confirm = max(self._master_confirm, header.confirm_offset)
        self._master_end = max(self._master_end, LogOffset(header.offset + header.body_length))
        entry, log = header.entry, self._log
        # A heartbeat records no epoch: an entry without bytes would survive here when the master dies before its first
        # record, and stand for an epoch that no other replica knows (R9).
        if header.body_length == 0 or entry is None:
            return []
        # Log offsets are addresses: one byte of shift, and every record behind it differs from the master's (D3).
        if header.offset != log.max_offset:
            return self.fail(ErrorCode.PROTOCOL, f"bytes from {log.max_offset}", f"bytes from {header.offset}")
        last = log.history.last
        if entry == last:
            return []
        is_first = last is None and log.max_offset == log.min_offset and entry.start_offset <= header.offset
        # A new epoch begins exactly here, above our last one and at or below the master's. Anything else would label
        # bytes with an epoch that they are not of; a later handshake, which compares labels, would keep them.
        grows = entry.epoch > log.history.last_epoch and entry.epoch <= header.master_epoch
        if not (grows and (is_first or entry.start_offset == header.offset)):
            expected = f"epoch {log.history.last_epoch} from {last.start_offset if last else None}, or a newer one"
            actual = f"epoch {entry.epoch} from {entry.start_offset} at {header.offset}"
            return self.fail(ErrorCode.PROTOCOL, expected, actual)
        self.state = SlaveLinkState.RECORDING
        self._recording = header
        return [RecordEpoch(entry=entry)]

    # --- inside ------------------------------------------------------------------------------------------------------

    def _report_epoch(self, frame: HandshakeReply | LinkError) -> list[SlaveAction]:
        target = self.target
        meant = target.master, target.master_incarnation or frame.incarnation
        if frame.master_epoch <= target.master_epoch or (frame.broker_id, frame.incarnation) != meant:
            return []
        return [
            HigherEpochSeen(master_epoch=frame.master_epoch, broker_id=frame.broker_id, incarnation=frame.incarnation)
        ]

    def _tell_growth(self) -> list[SlaveAction]:
        start, end = self._reported_end, self._log.max_offset
        if end == start:
            return []
        self._reported_end = end
        return [LogGrew(start=start, end=end)]

    def _tell_confirm(self) -> list[SlaveAction]:
        # The master's confirm may be ahead of this log: remembered unclamped, it would isolate us at the next handshake
        # (R26). ``CommitLog.note_confirm`` clamps again.
        told = min(self._master_confirm, self._log.max_offset), self._master_end
        if told == self._confirm_told:
            return []
        self._confirm_told = told
        return [ConfirmHeard(offset=told[0], master_end=told[1])]

    def _ackable(self) -> LogOffset:
        end = self._log.ackable_offset
        # In a set with ``flush = sync`` every restart counts as intact (R3c). An ack from memory, then a power cut:
        # this replica would be elected without the record that it acked.
        return min(end, self._synced_end) if self.target.flush is FlushMode.SYNC else end

    def _ack_if_due(self, now_ms: int) -> list[SlaveAction]:
        # No ack before the first one of ``truncation_done``: the log may still hold bytes that are to be cut (S23).
        if self.state not in (SlaveLinkState.TRANSFER, SlaveLinkState.RECORDING) or self._acked is None:
            return []
        return self._ack(now_ms) if self._ackable() > self._acked else []

    def _ack(self, now_ms: int) -> list[SlaveAction]:
        self._acked = self._ackable()
        self._sent_at_ms = now_ms
        ack = Ack(
            master_epoch=self.target.master_epoch,
            link_generation=self._link_generation,
            incarnation=self._identity.incarnation,
            offset=self._acked,
            log_end=self._log.max_offset,
            is_promise_durable=self._is_promise_durable,
        )
        return [Send(data=encode(ack))]
