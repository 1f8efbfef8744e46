"""
The master's end of one native link, as a step machine: bytes and time in, actions out.

Not here: sockets (``transport``), whether an ack counts (``sync_state``), one link per replica (``service``).

| state | input | actions | next state |
| --- | --- | --- | --- |
| HANDSHAKE | frame Handshake, right set and reign | SlaveOpened, Send | CUTTING |
| HANDSHAKE | frame Handshake, no reign yet, a reign to come, or an unknown replica | HigherEpochSeen? | PARKED |
| HANDSHAKE | frame Handshake, anything else | HigherEpochSeen?, Send, CloseLink | CLOSED |
| PARKED | reign_opened, replicas_changed | as HANDSHAKE | CUTTING, PARKED or CLOSED |
| CUTTING | frame Ack | SlaveAcked | TRANSFER |
| TRANSFER | frame Ack | SlaveAcked | TRANSFER |
| TRANSFER | plan_transfer | SendTransfer | TRANSFER |
| TRANSFER | tick | Send | TRANSFER |
| any | tick, nothing heard | Send, CloseLink | CLOSED |
| any | bad bytes, a frame at the wrong time, an offset without bytes or epoch | Send, CloseLink | CLOSED |
| HANDSHAKE | frame LinkError | CloseLink | CLOSED |
| any other | frame LinkError | HigherEpochSeen?, CloseLink | CLOSED |
| CUTTING, TRANSFER | reign_opened, reign_ended | Send, CloseLink | CLOSED |
| CUTTING, TRANSFER | replicas_changed: its incarnation has ended or its id is another's | Send, CloseLink | CLOSED |
| any | end | Send, CloseLink | CLOSED |
| CLOSED | anything | | CLOSED |

Rule 1: the first ack says where to begin; it must name bytes that are here and have an epoch (W16).
Rule 2: a transfer never crosses an epoch or a segment; its epoch is looked up by offset each time (W15).
Rule 3: an ack of another reign, generation or incarnation is dropped (R12); one beyond the sent bytes closes the link
(D5).
Rule 4: a lower epoch is refused, a higher one is reported (R21).
Rule 5: only a replica that the controllers' newest view names, in the incarnation that it names, is answered; where
links have certificates, only one that shows that of its id's owner.
"""

from __future__ import annotations

from enum import Enum

from rollcall_ha.controller.contract.ids import LogOffset, MasterEpoch
from rollcall_ha.controller.contract.values import made_from
from rollcall_ha.epoch.model import NO_EPOCH
from rollcall_ha.ha.actions import (
    CloseLink,
    HigherEpochSeen,
    MasterAction,
    Send,
    SendTransfer,
    SlaveAcked,
    SlaveOpened,
    last_word,
)
from rollcall_ha.ha.codec_native import NativeDecoder, encode
from rollcall_ha.ha.confirm_offset import MemberAck
from rollcall_ha.ha.errors import ErrorCode, HaProtocolError
from rollcall_ha.ha.frames import Ack, Handshake, HandshakeReply, LinkError, NativeFrame, Transfer
from rollcall_ha.ha.links import LinkReign, LinkSettings, ReplicaIdentity
from rollcall_ha.ha.ports import ReplicaLog


class MasterLinkState(Enum):
    """Where the link is."""

    HANDSHAKE = "handshake"
    PARKED = "parked"
    """The slave came before this broker entered the epoch."""
    CUTTING = "cutting"
    """Answered; the slave is making its log a prefix of ours."""
    TRANSFER = "transfer"
    CLOSED = "closed"


class MasterLink:
    def __init__(
        self,
        *,
        identity: ReplicaIdentity,
        reign: LinkReign | None,
        link_generation: int,
        log: ReplicaLog,
        settings: LinkSettings,
        now_ms: int,
    ) -> None:
        """``link_generation`` must be larger than that of every earlier link of this process."""
        self._identity = identity
        self._reign = reign
        self._log = log
        self._settings = settings
        self._decoder = NativeDecoder()
        self._opened_at_ms = self._heard_at_ms = self._sent_at_ms = now_ms
        self._sent_confirm = LogOffset(0)
        self.link_generation = link_generation
        self.state = MasterLinkState.HANDSHAKE
        self._peer_name: str | None = None
        self.peer: Handshake | None = None
        """The slave's handshake, once it came."""
        self.position = LogOffset(0)
        """Next offset to send; counts only in TRANSFER."""
        self.acked = LogOffset(0)
        """Last ack on this link."""

    @property
    def lag_bytes(self) -> int:
        """Bytes that the slave has not been sent yet."""
        return self._log.max_offset - self.position if self.state is MasterLinkState.TRANSFER else 0

    @property
    def unfinished_bytes(self) -> int:
        """Held of a frame that is not whole yet."""
        return self._decoder.held_bytes

    # --- inputs ------------------------------------------------------------------------------------------------------

    def proved(self, name: str) -> None:
        """The peer has shown the certificate of ``name``; not called on a plain link, whose peer is believed."""
        self._peer_name = name

    def bytes_received(self, data: bytes | memoryview, confirm: LogOffset, now_ms: int) -> list[MasterAction]:
        """Bytes from the slave, cut anywhere."""
        actions: list[MasterAction] = []
        view = memoryview(data)
        self._heard_at_ms = now_ms
        try:
            while view and self.state is not MasterLinkState.CLOSED:
                frame, taken = self._decoder.feed(view)
                view = view[taken:]
                if self._decoder.body_left:
                    return actions + self._fail(ErrorCode.PROTOCOL, "no body from a slave", "a transfer")
                if frame is not None:
                    actions += self._handle(frame, confirm, now_ms)
        except HaProtocolError as error:
            actions += self._fail(ErrorCode.PROTOCOL, "a native frame", str(error))
        return actions

    def reign_opened(self, reign: LinkReign, confirm: LogOffset, now_ms: int) -> list[MasterAction]:
        """This broker entered an epoch; a slave that came early is answered now. A link of an older reign ends."""
        # Its slave was cut against our history of then, and we may have been cut since: kept for epoch 3, the link
        # would go on behind bytes that only the slave has. ``HaServer.open_reign`` has ended it already, if it ran.
        if self.state not in (MasterLinkState.HANDSHAKE, MasterLinkState.PARKED):
            return self.end(ErrorCode.REIGN_ENDED, f"masterEpoch {reign.master_epoch} begins")
        self._reign = reign
        if self.state is MasterLinkState.HANDSHAKE or self.peer is None:
            return []
        self.state = MasterLinkState.HANDSHAKE
        return self._shake(self.peer, confirm, now_ms)

    def reign_ended(self, detail: str) -> list[MasterAction]:
        """This broker left its epoch (R12). A slave without an answer may wait for the next one."""
        if self.state not in (MasterLinkState.HANDSHAKE, MasterLinkState.PARKED):
            return self.end(ErrorCode.REIGN_ENDED, detail)
        self._reign = None
        return []

    def replicas_changed(self, reign: LinkReign, confirm: LogOffset, now_ms: int) -> list[MasterAction]:
        """A newer view of the same reign: a slave that waited for it is answered, one that has ended is let go."""
        if self.state is MasterLinkState.CLOSED or self.peer is None:
            self._reign = reign
            return []
        if self.state is MasterLinkState.PARKED:
            return self.reign_opened(reign, confirm, now_ms)
        self._reign = reign
        if not self._is_owner(self.peer):
            return self._fail_stranger(self.peer)
        # Acks of a process whose tail a power cut took may still stand in this socket: its successor has registered,
        # and has been judged (R3).
        if not self._is_registered(self.peer):
            known = reign.incarnations.get(self.peer.broker_id)
            return self._fail(ErrorCode.WRONG_PEER, f"incarnation {known or 'of a replica'}", self.peer.incarnation)
        return []

    def plan_transfer(self, confirm: LogOffset, now_ms: int, *, length_max: int | None = None) -> list[MasterAction]:
        """The next piece of the log, if there is one, of at most ``length_max`` bytes; ask again when it is sent."""
        if self.state is not MasterLinkState.TRANSFER or self._reign is None:
            return []
        offset, log = self.position, self._log
        if offset >= log.max_offset:
            return []
        # Looked up for each piece, not once per link: sent under the epoch of the piece before, bytes of 3 would be
        # recorded as 2 by the slave (W15).
        entry = log.history.find_by_offset(offset)
        if entry is None or offset < log.min_offset:
            return self._fail(ErrorCode.OFFSET_UNSERVED, f"bytes and an epoch from {log.min_offset} on", str(offset))
        # Not across the epoch's end: a header names one epoch for its whole body.
        epoch_end = log.history.end_of(entry.epoch, log.max_offset)
        limit = self._settings.transfer_bytes_max
        limit = limit if length_max is None else min(limit, length_max)
        region = log.region(offset, min(epoch_end - offset, limit))
        if region is None:
            return []
        header = Transfer(
            master_epoch=self._reign.master_epoch,
            link_generation=self.link_generation,
            entry=entry,
            offset=offset,
            body_length=region.length,
            confirm_offset=confirm,
        )
        self.position = LogOffset(offset + region.length)
        self._sent_at_ms, self._sent_confirm = now_ms, confirm
        return [SendTransfer(header=encode(header), region=region, end_offset=self.position)]

    def tick(self, confirm: LogOffset, now_ms: int, *, can_send: bool = True) -> list[MasterAction]:
        """Time passed. ``can_send``: nothing is queued; a heartbeat behind a stuck body would prove nothing."""
        if self.state is MasterLinkState.CLOSED:
            return []
        if self.state in (MasterLinkState.HANDSHAKE, MasterLinkState.PARKED):
            waited_ms = now_ms - self._opened_at_ms
            if waited_ms < self._settings.handshake_timeout_ms:
                return []
            if self.state is MasterLinkState.PARKED:
                return self._fail_parked(waited_ms)
            return self._fail(ErrorCode.IDLE, "a handshake", f"none in {waited_ms} ms")
        is_cutting = self.state is MasterLinkState.CUTTING
        silent_ms = now_ms - self._heard_at_ms
        # A slave that moves 16 GiB to quarantine is silent for long; ended after the idle timeout, it would begin
        # again, and never come back into the set.
        limit_ms = self._settings.cutting_timeout_ms if is_cutting else self._settings.idle_timeout_ms
        if silent_ms >= limit_ms:
            return self._fail(ErrorCode.IDLE, f"a frame in {limit_ms} ms", f"{silent_ms} ms of silence")
        quiet_ms = now_ms - self._sent_at_ms
        has_news = confirm > self._sent_confirm and quiet_ms >= self._settings.confirm_delay_ms
        is_due = has_news or quiet_ms >= self._settings.heartbeat_interval_ms
        return self._heartbeat(confirm, now_ms) if is_due and can_send and not is_cutting else []

    def end(self, code: ErrorCode, detail: str) -> list[MasterAction]:
        """The broker's own decision: reign ended, link replaced, stopping."""
        return self._fail(code, "an open link", detail)

    def connection_lost(self) -> None:
        """The socket is gone; nothing more will be said."""
        self.state = MasterLinkState.CLOSED

    # --- frames ------------------------------------------------------------------------------------------------------

    def _handle(self, frame: NativeFrame, confirm: LogOffset, now_ms: int) -> list[MasterAction]:
        match frame:
            case Ack() if self.state in (MasterLinkState.CUTTING, MasterLinkState.TRANSFER):
                return self._take_ack(frame)
            case Handshake() if self.state is MasterLinkState.HANDSHAKE:
                return self._shake(frame, confirm, now_ms)
            case LinkError():
                self.state = MasterLinkState.CLOSED
                close = CloseLink(code=frame.code, detail=str(frame), is_by_peer=True)
                return [*self._report_epoch(frame), close]
            case _:
                return self._fail(ErrorCode.PROTOCOL, f"a frame for {self.state.value}", type(frame).__name__)

    def _shake(self, shake: Handshake, confirm: LogOffset, now_ms: int) -> list[MasterAction]:
        self.peer = shake
        mine = self._identity
        for expected, actual in (
            (str(mine.set_key), str(shake.set_key)),
            (f"fleet {mine.fleet_incarnation}", f"fleet {shake.fleet_incarnation}"),
        ):
            if expected != actual:
                return self._fail(ErrorCode.WRONG_SET, expected, actual)
        # A slave that means our former process heard of an election that this one did not win; and a copy of our own
        # directory would ack our bytes as if there were two of them.
        meant = shake.expected_master, shake.expected_master_incarnation or mine.incarnation
        if meant != (mine.broker_id, mine.incarnation) or shake.broker_id == mine.broker_id:
            actual = f"replica {shake.broker_id} for {meant[0]} incarnation {meant[1]}"
            return self._fail(
                ErrorCode.WRONG_PEER,
                f"another replica of the set for {mine.broker_id} incarnation {mine.incarnation}",
                actual,
            )
        # Padding stands where segments end. In a log of other segments it would lie in the middle, and the slave's next
        # start would cut the log there.
        if shake.segment_bytes != self._log.segment_bytes:
            expected = f"segments of {self._log.segment_bytes} bytes (segment_bytes of the fleet file)"
            return self._fail(ErrorCode.WRONG_SEGMENTS, expected, f"segments of {shake.segment_bytes} bytes")
        reign = self._reign
        if reign is None or shake.master_epoch > reign.master_epoch:
            # It means us, so it heard of our election before we entered. Refused, it would come back after a pause, and
            # the election would be slower by that.
            self.state = MasterLinkState.PARKED
            return self._report_epoch(shake)
        # Anybody who can reach this port may name itself replica 3. Its acks would release messages that only we have,
        # and its link end that of the real 3. A replica whose registration we have yet to hear of waits for our view.
        if not self._is_registered(shake):
            self.state = MasterLinkState.PARKED
            return []
        # Its name in the set is good, its id is not: a stolen certificate of broker 3, in the name of 2, would ack for
        # both.
        if not self._is_owner(shake):
            return self._fail_stranger(shake)
        # It has not promised our epoch: its acks would not count, and its log must not grow behind a promise it never
        # made.
        if shake.master_epoch < reign.master_epoch:
            return self._fail(ErrorCode.EPOCH_STALE, str(reign.master_epoch), str(shake.master_epoch))
        self.state = MasterLinkState.CUTTING
        reply = made_from(
            mine,
            HandshakeReply,
            master_epoch=reign.master_epoch,
            link_generation=self.link_generation,
            min_offset=self._log.min_offset,
            max_offset=self._log.max_offset,
            confirm_offset=confirm,
            history=self._log.history,
            unclean_epoch=reign.unclean_epoch,
        )
        self._sent_at_ms, self._sent_confirm = now_ms, confirm
        return [SlaveOpened(handshake=shake, link_generation=self.link_generation), Send(data=encode(reply))]

    def _take_ack(self, ack: Ack) -> list[MasterAction]:
        peer, reign = self.peer, self._reign
        if peer is None or reign is None:
            return []
        mine = reign.master_epoch, self.link_generation, peer.incarnation
        # "Up to 1" of epoch 1, delivered late, would release v2 of epoch 2, which begins at the same offset (R12). And
        # it would say where this link begins; ``SlaveAcks.record`` only judges what it releases.
        if (ack.master_epoch, ack.link_generation, ack.incarnation) != mine:
            return []
        log = self._log
        if self.state is MasterLinkState.CUTTING:
            begin = ack.log_end
            # A beginning that we have no bytes or no epoch for would be served from another place, and the slave's log
            # would have a hole that acks do not show (W16).
            is_served = log.min_offset <= begin <= log.max_offset
            if not is_served or (begin < log.max_offset and log.history.find_by_offset(begin) is None):
                here = f"an offset from {log.min_offset} to {log.max_offset} with an epoch"
                return self._fail(ErrorCode.OFFSET_UNSERVED, here, str(begin))
            self.position = begin
            self.state = MasterLinkState.TRANSFER
        # It acks bytes that this link never carried: its log is not a prefix of ours, so no ack of it means anything
        # (D5).
        elif ack.log_end > self.position:
            return self._fail(ErrorCode.PROTOCOL, f"an ack up to {self.position}", str(ack.log_end))
        self.acked = ack.offset
        return [
            SlaveAcked(
                ack=MemberAck(
                    broker_id=peer.broker_id,
                    incarnation=ack.incarnation,
                    master_epoch=ack.master_epoch,
                    link_generation=ack.link_generation,
                    offset=ack.offset,
                    is_promise_durable=ack.is_promise_durable,
                )
            )
        ]

    # --- inside ------------------------------------------------------------------------------------------------------

    def _heartbeat(self, confirm: LogOffset, now_ms: int) -> list[MasterAction]:
        header = Transfer(
            master_epoch=self._own_epoch(),
            link_generation=self.link_generation,
            entry=self._log.history.find_by_offset(self.position),
            offset=self.position,
            body_length=0,
            confirm_offset=confirm,
        )
        self._sent_at_ms, self._sent_confirm = now_ms, confirm
        return [Send(data=encode(header))]

    def _own_epoch(self) -> MasterEpoch:
        return self._reign.master_epoch if self._reign else NO_EPOCH

    def _report_epoch(self, frame: Handshake | LinkError) -> list[MasterAction]:
        peer, reign = self.peer, self._reign
        # A stranger would have us ask the controllers as often as it likes. And nobody's word ends a reign: 2**60,
        # promised and made durable, would keep this replica out of every epoch that is issued.
        if peer is None or reign is None or not self._is_registered(peer) or frame.master_epoch <= reign.master_epoch:
            return []
        if (frame.broker_id, frame.incarnation) != (peer.broker_id, peer.incarnation):
            return []
        return [
            HigherEpochSeen(master_epoch=frame.master_epoch, broker_id=frame.broker_id, incarnation=frame.incarnation)
        ]

    def _is_registered(self, peer: Handshake) -> bool:
        """As this very process, by the controllers' newest view (rule 5)."""
        reign = self._reign
        return reign is not None and reign.incarnations.get(peer.broker_id) == peer.incarnation

    def _is_owner(self, peer: Handshake) -> bool:
        """Whether the certificate is that of the id's owner; a plain link has none, and is believed."""
        owner = self._reign.owners.get(peer.broker_id, "") if self._reign is not None else ""
        return self._peer_name is None or not owner or owner == self._peer_name

    def _fail_stranger(self, peer: Handshake) -> list[MasterAction]:
        owner = self._reign.owners.get(peer.broker_id) if self._reign is not None else None
        expected = f"a certificate of {owner}, to which replica {peer.broker_id} is bound"
        return self._fail(ErrorCode.CERTIFICATE_REFUSED, expected, f"one of {self._peer_name}")

    def _fail_parked(self, waited_ms: int) -> list[MasterAction]:
        peer, reign = self.peer, self._reign
        if peer is not None and reign is not None and not self._is_registered(peer):
            known = reign.incarnations.get(peer.broker_id)
            expected = f"a replica that the controllers name (replica {peer.broker_id}: {known or 'none'})"
            return self._fail(ErrorCode.WRONG_PEER, expected, f"incarnation {peer.incarnation}, for {waited_ms} ms")
        return self._fail(ErrorCode.NOT_MASTER, "a master", f"no reign of this broker after {waited_ms} ms")

    def _fail(self, code: ErrorCode, expected: str, actual: str) -> list[MasterAction]:
        if self.state is MasterLinkState.CLOSED:
            return []
        self.state = MasterLinkState.CLOSED
        return [*last_word(self._identity, code, self._own_epoch(), expected=expected, actual=actual)]
