"""
The interfaces that HA needs of the replica that it serves.

Implemented by ``broker.log`` (``ReplicaLog``) and by fakes in ``tests.support``, which are tested against the real one.
Rule 1: all methods are called on the broker's loop thread and return at once; work that may block is asked for by an
event and answered by a call of ``HaClient``.
Rule 2: a view handed out by ``receive_view`` is released before any other call.
Rule 3: an event may call back into the service that sent it; the service is in a consistent state when it tells one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, MasterEpoch
from rollcall_ha.epoch.history import EpochHistory
from rollcall_ha.epoch.model import EpochEntry, LogOffset
from rollcall_ha.ha.confirm_offset import MemberAck
from rollcall_ha.ha.errors import ErrorCode
from rollcall_ha.ha.frames import Handshake, HandshakeReply
from rollcall_ha.ha.links import FollowTarget
from rollcall_ha.ha.truncation import ExecutablePlan, Isolate


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRegion:
    """Bytes of the log as a part of one file, for ``os.sendfile``. Valid until the next truncation."""

    fd: int
    position: int
    length: int


class ReplicaLog(Protocol):
    """A commit log as a sequence of bytes with an epoch history."""

    @property
    def segment_bytes(self) -> int:
        """Records never cross a multiple of this: both ends of a link must have the same."""
        ...

    @property
    def min_offset(self) -> LogOffset:
        """First byte that is still there."""
        ...

    @property
    def max_offset(self) -> LogOffset:
        """End of the log: everything before it is in the map, not necessarily synced."""
        ...

    @property
    def ackable_offset(self) -> LogOffset:
        """End of the ackable bytes: whole records (confirm is always a boundary), synced ones if flush is sync."""
        ...

    @property
    def history(self) -> EpochHistory:
        """Epochs of the bytes that are there."""
        ...

    def region(self, offset: LogOffset, length_max: int) -> FileRegion | None:
        """Bytes from ``offset`` on, cut at the end of the log and of the segment; None if there are none."""
        ...

    def is_room_ready(self, length: int) -> bool:
        """
        Whether the next ``length`` bytes find their place without waiting for the disk.

        If not, it is being made, and the broker hears when to ask again (``HaClient.log_has_room``).
        """
        ...

    def receive_view(self, length_max: int) -> memoryview:
        """
        Writable bytes at ``max_offset``, cut at the end of the segment; never empty. Raises ``OSError`` if the disk
        is full.
        """
        ...

    def commit_received(self, length: int) -> None:
        """
        The first ``length`` bytes of the last view are now part of the log.

        Raises ``ValueError`` if they are no records; they did not become part of the log.
        """
        ...

    def is_record_boundary(self, offset: LogOffset) -> bool:
        """Whether a record starts at ``offset``, or it is the end of the log."""
        ...


class MasterLinkEvents(Protocol):
    """Events of ``HaServer``, for the master's broker."""

    def slave_opened(self, handshake: Handshake, link_generation: int) -> None:
        """A replica of the set shook hands: ``SyncState.link_opened``."""
        ...

    def slave_acked(self, ack: MemberAck) -> None:
        """An ack came, at most one per link and turn of the loop: ``SyncState.ack``."""
        ...

    def slave_closed(self, broker_id: BrokerId, link_generation: int, code: ErrorCode | None, detail: str) -> None:
        """A link that was told by ``slave_opened`` is gone (``code`` None: the network): ``SyncState.link_closed``."""
        ...

    def higher_epoch_seen(self, master_epoch: MasterEpoch, broker_id: BrokerId, incarnation: Incarnation) -> None:
        """A slave follows a higher epoch: leave the own reign (R21)."""
        ...


class SlaveLinkEvents(Protocol):
    """Questions and events of ``HaClient``, for the following broker."""

    def durable_confirm(self) -> LogOffset:
        """Highest confirm offset on the own disk, asked at every connection (R26)."""
        ...

    def is_promise_durable(self, master_epoch: MasterEpoch) -> bool:
        """Whether the promise of this epoch is on the own disk, asked at every connection (R9)."""
        ...

    def link_opened(self, target: FollowTarget) -> None:
        """The TCP connection to the master stands; an R13 report of an open link follows ``link_ready``."""
        ...

    def master_answered(self, target: FollowTarget, reply: HandshakeReply) -> None:
        """The master showed its history; a truncation request follows."""
        ...

    def truncation_wanted(self, target: FollowTarget, plan: ExecutablePlan) -> None:
        """Do it crash-safely (R20), then ``HaClient.truncation_done`` or ``truncation_failed``."""
        ...

    def isolation_wanted(self, target: FollowTarget, plan: Isolate) -> None:
        """Isolate this replica and raise the alarm (R26)."""
        ...

    def epoch_wanted(self, target: FollowTarget, entry: EpochEntry) -> None:
        """Store the entry durably, then ``HaClient.epoch_recorded`` (R9)."""
        ...

    def link_ready(self, target: FollowTarget, offset: LogOffset) -> None:
        """Cut and synced; acks flow."""
        ...

    def log_grew(self, start: LogOffset, end: LogOffset) -> None:
        """Bytes came in, once per batch; the last record may be incomplete."""
        ...

    def confirm_heard(self, offset: LogOffset, master_end: LogOffset) -> None:
        """Everything before ``offset`` is confirmed and here; ``master_end`` is the master's last known end."""
        ...

    def higher_epoch_seen(self, master_epoch: MasterEpoch, broker_id: BrokerId, incarnation: Incarnation) -> None:
        """The master of ``target`` is in a higher epoch: promise it and follow again (R21)."""
        ...

    def link_closed(self, target: FollowTarget, code: ErrorCode | None, detail: str) -> None:
        """
        The link is gone, or did not open (``code`` None: the network said so); another attempt follows by itself.

        Told once per attempt: the R13 report of a closed link.
        """
        ...
