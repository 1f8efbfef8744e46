"""
The interfaces that HA needs of the replica that it serves.

Implemented by ``broker.log`` (``ReplicaLog``) and by fakes in ``tests.support``, which are tested against the real one.
Rule 1: all methods are called on the broker's loop thread and return at once; work that may block is asked for by an
event and answered by a call of ``HaClient``.
Rule 2: a view handed out by ``receive_view`` is released before any other call.
Rule 3: an event may call back into the service that sent it; the service is in a consistent state when it tells one.
"""

from __future__ import annotations

from typing import Protocol

from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, MasterEpoch
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.epoch.history import EpochHistory
from rollcall_ha.epoch.model import LogOffset
from rollcall_ha.ha.confirm_offset import MemberAck
from rollcall_ha.ha.errors import ErrorCode
from rollcall_ha.ha.frames import Handshake


class FileRegion(Frozen):
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

        Raises ``ReceivedDamaged`` if their bodies are not those that were stored, ``ValueError`` if they are no
        records; they did not become part of the log.
        """
        ...

    def is_record_boundary(self, offset: LogOffset) -> bool:
        """Whether a record starts at ``offset``, or it is the end of the log."""
        ...


class MasterLinkEvents(Protocol):
    """Events and questions of ``HaServer``, for the master's broker."""

    def slave_opened(self, handshake: Handshake, link_generation: int) -> None:
        """A replica of the set shook hands: ``SyncState.link_opened``."""
        ...

    def slave_acked(self, ack: MemberAck) -> None:
        """An ack came, at most one per link and turn of the loop: ``SyncState.ack``."""
        ...

    def slave_closed(self, broker_id: BrokerId, link_generation: int, code: ErrorCode | None, detail: str) -> None:
        """A link that was told by ``slave_opened`` is gone (``code`` None: the network): ``SyncState.link_closed``."""
        ...

    def is_required(self, broker_id: BrokerId) -> bool:
        """Whether sends wait for the acks of this replica (R2): a link to it is never slowed down."""
        ...

    def higher_epoch_seen(self, master_epoch: MasterEpoch, broker_id: BrokerId, incarnation: Incarnation) -> None:
        """A slave shows a higher epoch: ask the controllers (R21)."""
        ...
