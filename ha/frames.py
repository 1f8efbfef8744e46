"""
The frames between two replicas, as values.

Here: the frames of the native protocol. Not here: their bytes (``codec_native``), when they are said (``master_link``,
``slave_link``).
Rule: bodies are never part of a frame; a header announces ``body_length`` raw log bytes that follow it.
"""

from __future__ import annotations

from rollcall_ha.controller.contract.ids import BrokerId, FleetIncarnation, Incarnation, LogOffset, MasterEpoch, SetKey
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.epoch.history import EpochHistory
from rollcall_ha.epoch.model import NO_EPOCH, EpochEntry
from rollcall_ha.ha.errors import ErrorCode

# --- native, slave to master -----------------------------------------------------------------------------------------


class Handshake(Frozen):
    """First frame of a slave: its name, the master that it means, and the reign that it promised to follow."""

    set_key: SetKey
    fleet_incarnation: FleetIncarnation
    master_epoch: MasterEpoch
    broker_id: BrokerId
    incarnation: Incarnation
    expected_master: BrokerId
    expected_master_incarnation: Incarnation
    """Empty = not known."""
    is_learner: bool
    last_epoch: MasterEpoch
    max_offset: LogOffset
    segment_bytes: int


class Ack(Frozen):
    """
    All whole records before ``offset`` are in the slave's log (synced there, if the set runs ``flush = sync``).

    The first one on a link says that the cut is synced, and by ``log_end`` where to begin. It is also the heartbeat.
    """

    master_epoch: MasterEpoch
    link_generation: int
    incarnation: Incarnation
    offset: LogOffset
    log_end: LogOffset
    """First byte that the slave does not have; behind ``offset`` while a record is incomplete or not synced."""
    is_promise_durable: bool
    """The sender's promise of ``master_epoch`` is on its disk (R2, R9)."""


# --- native, master to slave -----------------------------------------------------------------------------------------


class HandshakeReply(Frozen):
    """The master's answer: everything that the slave needs to find its cut point."""

    set_key: SetKey
    fleet_incarnation: FleetIncarnation
    master_epoch: MasterEpoch
    broker_id: BrokerId
    incarnation: Incarnation
    link_generation: int
    """Counts the links of this master's process; acks and data of other ones are dropped (R12)."""
    min_offset: LogOffset
    max_offset: LogOffset
    confirm_offset: LogOffset
    history: EpochHistory
    unclean_epoch: MasterEpoch = NO_EPOCH
    """The newest epoch that began with an unclean election, as far as the master knows (R26)."""


class Transfer(Frozen):
    """Header of ``body_length`` log bytes, all of one epoch and one segment. 0 bytes = heartbeat and confirm only."""

    master_epoch: MasterEpoch
    """The reign; ``entry`` is the epoch of the bytes, which may be an older one."""
    link_generation: int
    entry: EpochEntry | None
    """None only in a heartbeat of a master whose history is empty."""
    offset: LogOffset
    body_length: int
    confirm_offset: LogOffset


# --- native, both ways -----------------------------------------------------------------------------------------------


class LinkError(Frozen):
    """Last frame of a link: why it ends, with both values and the sender's masterEpoch (R21)."""

    code: ErrorCode
    master_epoch: MasterEpoch
    expected: str
    actual: str
    broker_id: BrokerId
    incarnation: Incarnation

    def __str__(self) -> str:
        return f"{self.code.name}: expected {self.expected}, got {self.actual}"


NativeFrame = Handshake | HandshakeReply | Transfer | Ack | LinkError
