"""
Actions of the link machines: for their shell to execute, and for their broker to hear.

Here: values, and the last frame of a link. ``transport`` and the simulation execute the first group and pass the others
on.
"""

from __future__ import annotations

from typing import Protocol

from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, LogOffset, MasterEpoch
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.epoch.model import EpochEntry
from rollcall_ha.ha.codec_native import encode
from rollcall_ha.ha.confirm_offset import MemberAck
from rollcall_ha.ha.errors import ErrorCode
from rollcall_ha.ha.frames import Handshake, HandshakeReply, LinkError
from rollcall_ha.ha.links import FollowTarget, ReplicaIdentity
from rollcall_ha.ha.ports import FileRegion
from rollcall_ha.ha.truncation import ExecutablePlan, Isolate

# --- for the shell ---------------------------------------------------------------------------------------------------


class Send(Frozen):
    """Write these bytes behind everything that was sent before."""

    data: bytes


class SendTransfer(Frozen):
    """Write the header, then the region; nothing may come between them."""

    header: bytes
    region: FileRegion
    end_offset: LogOffset
    """Log offset behind the region's last byte."""


class CloseLink(Frozen):
    """Send the queued bytes, then close. The machine takes no further input."""

    code: ErrorCode
    detail: str
    """Both values, for the log line."""
    is_by_peer: bool = False
    """The peer said so in its last frame."""


# --- for the broker, from a master's link ----------------------------------------------------------------------------


class SlaveOpened(Frozen):
    """A slave's handshake was answered: its acks on older links count no more."""

    handshake: Handshake
    link_generation: int


class SlaveAcked(Frozen):
    """An ack came on this link; ``SyncState`` decides whether it counts."""

    ack: MemberAck


# --- for the broker, from a slave's link -----------------------------------------------------------------------------


class MasterAnswered(Frozen):
    """The handshake is answered; the cut point is being worked out."""

    reply: HandshakeReply


class TruncateLog(Frozen):
    """
    Execute the plan crash-safely (R20), then answer with ``truncation_done``. Nothing is acked before (S23).

    ``Keep`` is asked for like the others: with ``flush = sync`` the log must be synced before the answer (R3c).
    """

    plan: ExecutablePlan


class IsolationWanted(Frozen):
    """Touch nothing and raise the alarm (R26); the link closes."""

    plan: Isolate


class RecordEpoch(Frozen):
    """Append the entry durably, then answer with ``epoch_recorded``. No byte of it is taken before (R9)."""

    entry: EpochEntry


class LinkReady(Frozen):
    """The own log is a prefix of the master's; its first ack is on the way."""

    offset: LogOffset


class LogGrew(Frozen):
    """Bytes ``start`` to ``end`` were received since the last one of these; the last record may be incomplete."""

    start: LogOffset
    end: LogOffset


class ConfirmHeard(Frozen):
    """The master's confirm offset, clamped to the own end."""

    offset: LogOffset
    master_end: LogOffset
    """End of the bytes that the master has sent a header for: the distance to the own end is the known lag."""


# --- for the broker, from both ---------------------------------------------------------------------------------------


class HigherEpochSeen(Frozen):
    """The peer showed a higher masterEpoch: ask the controllers (R21)."""

    master_epoch: MasterEpoch
    broker_id: BrokerId
    """The replica that showed it: to a slave its master, to a master one of its slaves."""
    incarnation: Incarnation


MasterAction = Send | SendTransfer | CloseLink | SlaveOpened | SlaveAcked | HigherEpochSeen
SlaveAction = (
    Send
    | CloseLink
    | MasterAnswered
    | TruncateLog
    | IsolationWanted
    | RecordEpoch
    | LinkReady
    | LogGrew
    | ConfirmHeard
    | HigherEpochSeen
)


class SlaveLinkEvents(Protocol):
    """Questions and events of ``HaClient``, for the following broker."""

    def durable_confirm(self) -> LogOffset:
        """Highest confirm offset on the own disk, asked at every connection (R26)."""
        ...

    def is_promise_durable(self, master_epoch: MasterEpoch) -> bool:
        """Whether the promise of this epoch is on the own disk, asked at every connection (R9)."""
        ...

    def owner_of(self, broker_id: BrokerId) -> str:
        """
        The name in the certificate that this id is bound to, by the newest view; asked at every connection.

        Empty = it is bound to none yet.
        """
        ...

    def slave_acted(self, target: FollowTarget, action: SlaveAction) -> None:
        """
        The link to ``target`` did something that is not for its shell. Two actions wait for an answer.

        ``TruncateLog``: ``HaClient.truncation_done`` or ``truncation_failed``; ``RecordEpoch``: ``epoch_recorded`` or
        ``epoch_failed``. No other link is dialled before.
        """
        ...

    def link_closed(self, target: FollowTarget, code: ErrorCode | None, detail: str) -> None:
        """
        The link is gone, or did not open (``code`` None: the network said so); another attempt follows by itself.

        Told once per attempt: the R13 report of a closed link.
        """
        ...


def last_word(
    identity: ReplicaIdentity, code: ErrorCode, master_epoch: MasterEpoch, *, expected: str, actual: str
) -> list[Send | CloseLink]:
    """The last frame of a link, and its end."""
    error = LinkError(
        code=code,
        master_epoch=master_epoch,
        broker_id=identity.broker_id,
        incarnation=identity.incarnation,
        expected=expected,
        actual=actual,
    )
    return [Send(data=encode(error)), CloseLink(code=code, detail=str(error))]
